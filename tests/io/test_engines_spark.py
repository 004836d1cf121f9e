"""Spark sums the partitions of a frame to the bit, also where a worker is killed; skipped without pyspark and Java.

Continuous integration runs them in an environment of their own (.ci/run): Spark is larger than all else together.
"""

import os
import shutil
import signal
import sys

import numpy as np
import pytest

from dpfast import MultiOutcomeRidge
from dpfast.io import Boolean, Category, Columns, Number, SparkPartitions
from dpfast.statistics import gram

pytestmark = pytest.mark.slow
BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}
N = 2000
#: A name with a dot, which Spark takes for a field.
DECLARED = Columns(
    ["x.0", Number("n`1", missing=1.0), Boolean("smokes"), Category("site", ("Bern", "Genf"), missing="Bern")],
    ["y"],
)


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql")
    pytest.importorskip("pandas")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java")
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    # Tasks are tried four times, as they are elsewhere than on one machine.
    builder = sql.SparkSession.builder.master("local[2, 4]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def table():
    pa = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, N))
    numbers = pa.array(np.arange(N) % 7, mask=np.arange(N) % 5 == 0)
    site = pa.array(rng.choice(np.array(["Bern", "Genf", None], object), N), pa.string())
    who = pa.array(np.arange(N) // 4)
    return pa.table({"x.0": x, "n`1": numbers, "smokes": x > 0, "site": site, "y": y, "who": who, "unused": site})


@pytest.fixture(scope="module")
def frame(spark, table):
    return spark.createDataFrame(table).repartition(5, "who").persist()


def test_a_frame_gives_the_same_bits(frame, table):
    parts = SparkPartitions(frame, DECLARED)
    expected = gram(DECLARED.encode(table), **BOUNDS)
    assert gram(parts, **BOUNDS) == expected
    model = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, random_state=0)
    fitted = model.fit(parts).coef_
    assert model.feature_names_in_.tolist() == list(DECLARED.feature_names)
    assert model.outcome_names_in_.tolist() == list(DECLARED.outcome_names)
    assert np.array_equal(fitted, model.fit(DECLARED.encode(table), None).coef_)
    assert gram(SparkPartitions(frame.filter("y > 100"), DECLARED), **BOUNDS).n_rows == 0


def test_sums_of_wide_rows_are_combined_by_several_workers(spark):
    wide = np.random.default_rng(1).standard_normal((300, 260))
    names = [f"x{j}" for j in range(260)]
    frame = spark.createDataFrame(wide.tolist(), names).repartition(20, "x0")
    assert gram(SparkPartitions(frame, Columns(names)), bound_x=1.0) == gram(wide, bound_x=1.0)


def test_a_worker_that_is_killed_changes_no_bit(frame, table, tmp_path):
    marker = str(tmp_path / "killed")

    def kill_once(x, y, ids):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return x, y, ids
        os.kill(os.getpid(), signal.SIGKILL)

    parts = SparkPartitions(frame, DECLARED).mapped(kill_once, len(DECLARED.feature_names), 1)
    assert gram(parts, **BOUNDS) == gram(DECLARED.encode(table), **BOUNDS)
    assert os.path.exists(marker)


def test_rows_of_people_lie_in_one_partition(frame, table):
    parts = SparkPartitions(frame, DECLARED, "who", partitioned_by="person")
    for max_rows in (2, 4):
        expected = gram(DECLARED.encode(table), groups=np.asarray(table["who"]), max_rows=max_rows, **BOUNDS)
        found = gram(parts, groups=parts.groups, max_rows=max_rows, **BOUNDS)
        assert found.n_rows == expected.n_rows
        if max_rows == 4:
            assert found == expected


def test_what_spark_says_is_not_quoted(frame, capfd):
    functions = pytest.importorskip("pyspark.sql.functions")
    for column, message in (
        (frame.site, "column 'y' of the table holds string"),
        (functions.raise_error(functions.lit("Anna is 7")), "the engine failed while it went through the parts"),
    ):
        with pytest.raises((TypeError, ValueError), match=message) as raised:
            gram(SparkPartitions(frame.withColumn("y", column), DECLARED), **BOUNDS)
        assert "Anna" not in str(raised.value)
        assert raised.value.__context__ is None


def test_what_is_not_a_table_of_these_columns_is_refused():
    class Frame:
        columns = ("a", "b")

        def mapInArrow(self):
            """A frame that is not asked for rows."""

    with pytest.raises(TypeError, match="frame must be a Spark DataFrame, got list"):
        SparkPartitions([], DECLARED)
    with pytest.raises(TypeError, match=r"columns must be dpfast\.io\.Columns, got list"):
        SparkPartitions(Frame(), ["a"])
    with pytest.raises(ValueError, match="frame has no column 'c'"):
        SparkPartitions(Frame(), Columns(["a", "c"]))
    with pytest.raises(ValueError, match="ids and partitioned_by='person' must be given together"):
        SparkPartitions(Frame(), Columns(["a"]), "b")
