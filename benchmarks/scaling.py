"""What a pass over rows costs by engine, and from it an estimate for tables and machines that are not here.

A pass is one exact Gram of Parquet files of float64 columns: what a fit costs, but for its noise, which does not grow
with rows. Files are read from the page cache. Measured are rows (4 and 16 parts), smaller parts, width, and a second
worker, by the processors' time of all processes, Spark's own among them, which others on the machine hardly change, and
by the clock. A model of an engine is taken from the processors' time, and what a pass of no rows takes by the clock:

    seconds = latency + (parts * a_part + rows * a_row(width)) / (workers * efficiency),    a_row quadratic in the width

and other rows and machines are estimated by it and by the assumptions that are printed with it. Engines that are not
installed are left out; Spark wants an environment with pyspark and Java.

Run ``python -m benchmarks.scaling`` (some 5 minutes), ``--quick`` for a tenth of the rows.
"""

import argparse
import contextlib
import importlib.util
import itertools
import math
import os
import pickle
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dpfast.io import Columns, DaskPartitions, ProcessPartitions, SparkPartitions
from dpfast.statistics import gram

BOUNDS = {"bound_x": 10.0, "bound_y": 1.0}
WIDTHS = (10, 50, 200)
#: By name: columns, rows of a part, parts.
CASES = {
    "no rows": (10, 10, 4),
    "rows": (10, 100_000, 4),
    "more rows": (10, 100_000, 16),
    "small parts": (10, 25_000, 64),
    "wider": (50, 100_000, 4),
    "widest": (200, 50_000, 4),
}
#: What is estimated: columns, rows and machines.
WIDTH, ROWS, MACHINES = 50, (1e9, 1e11), (1, 10, 100)
ROWS_OF_PART = 1e6
CORES = 2  # of each machine
DISK, NETWORK = 500e6, 125e6  # bytes a second, of each machine
FAN_IN = 16  # of Dask's tree


def columns_of(width):
    """Declare what a file holds."""
    return Columns([f"x{j}" for j in range(width)], ["y"])


def write(folder, width, rows, parts):
    """Write parts of a table; returns their paths."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rng = np.random.default_rng(0)
    names = [*columns_of(width).feature_names, "y"]
    paths = [folder / f"part{i:03d}.parquet" for i in range(parts)]
    values = rng.uniform(-1.0, 1.0, (width + 1, rows))
    for path in paths:
        parquet.write_table(pa.table(dict(zip(names, values, strict=True))), path, use_dictionary=False)
    return paths


@contextlib.contextmanager
def processes(n_workers):
    """Worker processes of this machine."""
    with contextlib.ExitStack() as stack:

        def parts(paths, columns):
            encoded = [columns.encode(path) for path in paths]
            return stack.enter_context(ProcessPartitions(encoded, n_workers=n_workers))

        yield parts


def _blocks(columns, path):
    return list(columns.encode(path))


@contextlib.contextmanager
def dask(n_workers):
    """Processes of Dask's scheduler for clusters."""
    from dask import bag
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster):

        def parts(paths, columns):
            files = bag.from_sequence(list(map(str, paths)), npartitions=len(paths))
            return DaskPartitions(files.map(partial(_blocks, columns)).flatten())

        yield parts


@contextlib.contextmanager
def spark(n_workers):
    """Spark on this machine."""
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A file is a part.
        "spark.sql.files.maxPartitionBytes": str(1 << 30),
        "spark.sql.files.openCostInBytes": str(1 << 30),
    }
    builder = SparkSession.builder.master(f"local[{n_workers}, 4]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield lambda paths, columns: SparkPartitions(session.read.parquet(str(paths[0].parent)), columns)
    finally:
        session.stop()


ENGINES = {"processes": (processes, None), "dask": (dask, "distributed"), "spark": (spark, "pyspark")}


def timed(work, repeats, clock=time.perf_counter):
    """Return the fastest of some calls, after one more; by each clock of several, if the clock has several."""
    work()
    spent = []
    for _ in range(repeats):
        start = np.array(clock())
        work()
        spent.append(np.array(clock()) - start)
    return np.min(spent, axis=0)


def clocks():
    """Return the time, and the processors' time of this process and all that it has started."""
    import psutil

    used = 0.0
    for process in (own := psutil.Process(), *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            used += sum(process.cpu_times()[:2])
    return time.perf_counter(), used


def measure(engine, files, n_cores, repeats):
    """Return the seconds that an engine is up after, and those of a pass over every case by both clocks, by workers."""
    up, passes = {}, {}
    for n_workers in (1, 2)[:n_cores]:
        start = time.perf_counter()
        with engine(n_workers) as split_budget:
            for name, (width, _, _) in CASES.items():
                parts = split_budget(files[name], columns_of(width))
                up.setdefault(n_workers, time.perf_counter() - start)
                passes[name, n_workers] = timed(lambda parts=parts: gram(parts, **BOUNDS), repeats, clocks)
    return up, passes


@dataclass
class Model:
    """Seconds of a pass: see the head of the file."""

    latency: float
    a_part: float
    a_row: np.ndarray  # coefficients of 1, width and its square
    efficiency: float  # of two workers: the time that one takes of processors, over that of two

    @classmethod
    def of(cls, passes):
        """Take the numbers from what was measured, none below 0."""
        used = {name: passes[name, 1][1] for name in CASES}
        rows = {name: rows * parts for name, (_, rows, parts) in CASES.items()}
        parts = {name: parts for name, (_, _, parts) in CASES.items()}
        a_part = max(0.0, (used["small parts"] - used["more rows"]) / (parts["small parts"] - parts["more rows"]))

        def of_rows(name, other):
            more = used[name] - used[other] - a_part * (parts[name] - parts[other])
            return max(0.0, more / (rows[name] - rows[other]))

        by_width = [of_rows("more rows", "rows"), of_rows("wider", "no rows"), of_rows("widest", "no rows")]
        both = [sum(passes[name, w][1] for name in CASES) for w in (1, 2) if ("rows", w) in passes]
        a_row = np.polynomial.polynomial.polyfit(WIDTHS, by_width, 2)
        return cls(passes["no rows", 1][0], a_part, a_row, min(1.0, both[0] / both[-1]))

    def row(self, width):
        """Return the seconds of a row."""
        return float(np.polynomial.polynomial.polyval(width, self.a_row))


def estimate(model, engine, rows, machines, sums):
    """Return seconds of one pass on machines like this one: working, reading, combining."""
    parts = max(rows / ROWS_OF_PART, 1.0)
    speed = machines * CORES * model.efficiency
    working = (parts * model.a_part + rows * model.row(WIDTH)) / speed
    # The last part of each worker is waited for.
    working += ROWS_OF_PART * model.row(WIDTH)
    reading = rows * 8.0 * (WIDTH + 1) / (machines * DISK)
    n_bytes, combine = sums
    if machines == 1:
        combining = parts * combine
    elif engine == "dask":
        combining = math.ceil(math.log(parts, FAN_IN)) * FAN_IN * (combine + n_bytes / NETWORK)
    else:
        combining = parts * (combine + n_bytes / NETWORK)
    return model.latency + max(working, reading) + combining, working, reading, combining


def partial_sum(width):
    """Return the size of the sum of a part in bytes, and the seconds to combine it with another."""
    rng = np.random.default_rng(1)
    sums = gram(rng.uniform(-1, 1, (1000, width)), rng.uniform(-1, 1, 1000), **BOUNDS)
    written = pickle.dumps(sums)
    return len(written), timed(lambda: [sums + pickle.loads(written) for _ in range(100)], 3, time.process_time) / 100


def report(engine, up, passes, sums):
    """Print what was measured, the model of it, and the estimates."""
    print(f"\n{engine}\n  up after {', '.join(f'{s:.1f} s ({w} workers)' for w, s in up.items())}; 1 / 2 workers:")
    for name, (width, rows, parts) in CASES.items():
        spent = [passes[name, w] for w in (1, 2) if (name, w) in passes]
        by_clock, used = (" / ".join(f"{one[k]:.2f}" for one in spent) for k in (0, 1))
        print(f"  {rows * parts:>9,} rows x {width:>3}, {parts:>2} parts: {by_clock} s, processors {used} s")
    model = Model.of(passes)
    per_row = ", ".join(f"{model.row(width) * 1e9:.0f} ns at {width}" for width in WIDTHS)
    print(
        f"  model: latency {model.latency:.2f} s, {model.a_part * 1e3:.1f} ms a part, a row {per_row} columns, "
        f"efficiency of two workers {model.efficiency:.2f}"
    )
    for rows, machines in itertools.product(ROWS, MACHINES):
        if engine == "processes" and machines > 1:
            continue
        total, working, reading, combining = estimate(model, engine, rows, machines, sums)
        print(
            f"  {rows:.0e} rows x {WIDTH} on {machines:>3} machines: {_spelt(total):>8} a pass "
            f"(working {_spelt(working)}, reading {_spelt(reading)}, combining {_spelt(combining)})"
        )


def _spelt(seconds):
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def assumptions(sums):
    """Print what the estimates take for granted."""
    n_bytes, combine = sums
    print(f"""
estimates assume
  machines of {CORES} cores like this one's, with nothing else to do (load here {os.getloadavg()[0]:.1f})
  a part and a row cost on many machines what they do here: workers share nothing but the network
  rows of {WIDTH} + 1 float64 columns, uncompressed Parquet in parts of {ROWS_OF_PART:.0e} rows, spread evenly
  files come at {DISK / 1e6:.0f} MB/s a machine while others are summed: a pass takes the longer of both
  a sum of {n_bytes / 1e3:.1f} kB ({WIDTH} columns), combined in {combine * 1e6:.0f} us, at {NETWORK / 1e6:.0f} MB/s
  Dask combines in a tree of {FAN_IN}, level after level; Spark by one worker (from 256 columns on by 16, then one)
  no machine is lost: one that is costs the parts that it had not given back the sums of once more
  parts are handed out no slower than here, where they are few; starting the engine is left out
  one pass: a Gram, or counts of sizes; a private bound, or a step of residuals, is one more
  the driver holds one sum; at 1e11 rows it is exact: checked above by doubling""")


def check_capacity():
    """Double a sum until it is of more rows than any estimate, exactly."""
    one = gram(np.full((1000, 3), 0.5), np.ones(1000), **BOUNDS)
    doubled, times = one, 0
    while doubled.n_rows < max(ROWS):
        doubled, times = doubled + doubled, times + 1
    assert np.array_equal(doubled.xx, one.xx * 2.0**times)
    print(f"a sum of {doubled.n_rows:.2e} rows is exact")


def main():
    """Measure what is installed, and estimate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        CASES.update({name: (width, rows // 10, parts) for name, (width, rows, parts) in CASES.items()})
    check_capacity()
    sums = partial_sum(WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, (width, rows, parts) in CASES.items():
            place = Path(folder, name.replace(" ", "-"))
            place.mkdir()
            files[name] = write(place, width, rows, parts)
        for engine in options.engines:
            run, library = ENGINES[engine]
            if library is not None and importlib.util.find_spec(library) is None:
                print(f"\n{engine}: {library} is not installed")
                continue
            report(engine, *measure(run, files, os.cpu_count() or 1, options.repeats), sums)
    assumptions(sums)


if __name__ == "__main__":
    main()
