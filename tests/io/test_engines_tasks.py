"""What Spark's tasks do with partitions of a frame, run here in one process without Spark."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dpfast.io import Category, Columns, Number, SparkPartitions
from dpfast.statistics import gram

pa = pytest.importorskip("pyarrow")
BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}
N = 1000
DECLARED = Columns(["x.0", Number("n`1"), Category("site", ("Bern", "Genf"), missing="Bern")], ["y"])


class _Frame:
    """What `SparkPartitions` needs of Spark, in one process: tasks over partitions of batches."""

    def __init__(self, parts, names):
        self.parts, self.columns = parts, names

    def select(self, *quoted):
        names = [one.strip("`").replace("``", "`") for one in quoted]
        return _Frame([[batch.select(names) for batch in part] for part in self.parts], names)

    def toDF(self, *names):
        return _Frame([[batch.rename_columns(list(names)) for batch in part] for part in self.parts], names)

    def mapInArrow(self, task, schema):
        made = []
        for place, part in enumerate(self.parts):
            context = SimpleNamespace(partitionId=lambda place=place: place)
            sys.modules["pyspark"] = SimpleNamespace(TaskContext=SimpleNamespace(get=lambda context=context: context))
            made.append(list(task(iter(part))))
        return _Frame(made, [one.split()[0] for one in schema.split(", ")])

    def selectExpr(self, placed, *names):
        self.modulus = int(placed.split("%")[1].split()[0])
        assert names == ("sums",)
        return self

    def repartition(self, n, by):
        parts = [[] for _ in range(n)]
        for batch in (batch for part in self.parts for batch in part):
            for i, place in enumerate(batch.column(by).to_pylist()):
                parts[place % self.modulus].append(batch.slice(i, 1))
        return _Frame(parts, self.columns)

    def collect(self):
        found = (batch.column("sums").to_pylist() for part in self.parts for batch in part)
        return [SimpleNamespace(sums=one) for several in found for one in several]


def test_sums_of_tasks_are_those_of_the_table(monkeypatch):
    """However rows are cut, and in one or in two rounds of sums, with empty partitions too."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    rng = np.random.default_rng(5)
    site = pa.array(rng.choice(np.array(["Bern", "Genf", None], object), N), pa.string())
    table = pa.table({"x.0": rng.normal(size=N), "n`1": np.arange(N), "site": site, "y": rng.normal(size=N)})
    parts = [table.slice(start, 300).to_batches(max_chunksize=70) for start in range(0, N, 300)]
    expected = gram(DECLARED.encode(table), **BOUNDS)
    for several in (parts, [*parts, []], [[batch for part in parts for batch in part]]):
        assert gram(SparkPartitions(_Frame(several, table.column_names), DECLARED), **BOUNDS) == expected
    wide = np.random.default_rng(1).standard_normal((300, 260))
    names = [f"x{j}" for j in range(260)]
    batches = pa.table(list(wide.T), names).to_batches(max_chunksize=10)
    assert gram(SparkPartitions(_Frame([[one] for one in batches], names), Columns(names)), bound_x=1.0) == gram(
        wide, bound_x=1.0
    )
