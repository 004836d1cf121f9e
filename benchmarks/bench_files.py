"""Tables in files: how much memory a streamed fit takes, and how its speed compares with decoding alone.

Run as a script it does the same for a table of any size:
``python -m benchmarks.bench_files --gigabytes 5 [--folder DIR]``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import median_ratio
from dpfast import MultiOutcomeRidge
from dpfast.io import Columns
from dpfast.statistics import gram

FEATURES, OUTCOMES = 60, 4
ROWS_PER_GROUP = 1 << 17
BOUNDS = {"bound_x": 10.0, "bound_y": 2.0}


def names():
    return [f"x{j}" for j in range(FEATURES)], [f"y{k}" for k in range(OUTCOMES)]


def row_group(seed):
    """The same rows whenever they are asked for."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS_PER_GROUP, FEATURES))
    return x, np.tanh(x[:, :OUTCOMES]) + 0.1 * rng.standard_normal((ROWS_PER_GROUP, OUTCOMES))


def write_table(path, n_groups):
    import pyarrow as pa
    from pyarrow import parquet

    features, outcomes = names()
    schema = pa.schema([(name, pa.float64()) for name in features + outcomes])
    with parquet.ParquetWriter(path, schema, compression="snappy", use_dictionary=False) as writer:
        for seed in range(n_groups):
            block = np.hstack(row_group(seed))
            writer.write_table(pa.Table.from_arrays([pa.array(column) for column in block.T], schema=schema))


def decode(path):
    """Read every value, as `dpfast.io` does, and leave it at that."""
    from dpfast.io.arrow import parquet_batches

    return sum(len(batch) for batch, _ in parquet_batches(Path(path), None))


def fit(path):
    features, outcomes = names()
    model = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, refine=0, random_state=0)
    return model.fit(Columns(features, outcomes).encode(path), None)


class Parquet:
    def setup_cache(self):
        path = Path("table.parquet").resolve()
        write_table(path, 2)
        return str(path)

    def time_fit(self, path):
        fit(path)

    def peakmem_fit(self, path):
        fit(path)

    def track_ratio_of_decoding_alone(self, path):
        """Median share of the speed of decoding alone, alternating; 1 if summing were free."""
        return median_ratio(lambda: fit(path), lambda: decode(path), 7)


def measured(path, repeats):
    """Seconds of decoding and of fitting, and the largest resident memory, of this process."""
    import resource

    decoding, fitting = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        model = fit(path)
        fitting.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        start = time.perf_counter()
        rows = decode(path)
        decoding.append(time.perf_counter() - start)
    return {
        "rows": rows,
        "peak_bytes_of_fit": peak,
        "rows_per_second": rows / float(np.median(fitting)),
        "share_of_decoding_speed": float(np.median(np.array(decoding) / fitting)),
        "coef": model.coef_.tolist(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measured(options.measure, options.repeats)))
        return
    n_groups = max(1, round(options.gigabytes * 1e9 / (8 * (FEATURES + OUTCOMES) * ROWS_PER_GROUP)))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "table.parquet"
        write_table(path, n_groups)
        command = [sys.executable, "-m", "benchmarks.bench_files", "--measure", path, "--repeats", str(options.repeats)]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        result["file_bytes"] = path.stat().st_size
    from_memory = gram(map(row_group, range(n_groups)), **BOUNDS)
    model = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, refine=0, random_state=0).fit_gram(from_memory)
    result["same_bits_as_in_memory"] = model.coef_.tolist() == result.pop("coef")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
