"""Tables in files: how much memory a streamed fit takes, and how its speed compares with decoding alone.

Run as a script it does the same for a table of any size:
``python -m benchmarks.bench_files --gigabytes 5 [--folder DIR]``; with ``--encodings`` it says what each encoding of
Parquet costs: to decode, by pyarrow as it comes and as it is used here, and to fit, from a cold cache and a warm one.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.timing import median_ratio, seconds
from dpfast import MultiOutcomeRidge
from dpfast.io import Category, Columns, Number
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
    model = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, refine=0, fit_intercept=False, random_state=0)
    return model.fit(Columns(features, outcomes).encode(path), None)


#: How pyarrow writes a file, and whether entries are of few values.
ENCODINGS = {
    "plain": ({"compression": "none", "use_dictionary": False}, False),
    "plain, snappy": ({"compression": "snappy", "use_dictionary": False}, False),
    "plain, zstd": ({"compression": "zstd", "use_dictionary": False}, False),
    "dictionary, snappy": ({"compression": "snappy"}, True),
    "byte-stream-split, zstd": (
        {"compression": "zstd", "use_dictionary": False, "use_byte_stream_split": True},
        False,
    ),
}


def write_encoded(path, dtype, width, n_rows, options, few_values):
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(f"x{j}", pa.from_numpy_dtype(dtype)) for j in range(width)])
    with parquet.ParquetWriter(path, schema, **options) as writer:
        for first in range(0, n_rows, ROWS_PER_GROUP):
            values = np.random.default_rng(first).standard_normal((width, min(ROWS_PER_GROUP, n_rows - first)))
            columns = (np.round(values, 1) if few_values else values).astype(dtype)
            writer.write_table(pa.Table.from_arrays(list(map(pa.array, columns)), schema=schema))


def levels():
    return tuple(f"level {i}" for i in range(50))


def write_declared(path, n_numbers, n_categories, n_rows):
    """Write numbers, and text of a few levels, as pyarrow writes them by default."""
    import pyarrow as pa
    from pyarrow import parquet

    fields = [(f"x{j}", pa.float64()) for j in range(n_numbers)]
    schema = pa.schema(fields + [(f"c{k}", pa.string()) for k in range(n_categories)])
    names = [f"c{k}" for k in range(n_categories)]
    with parquet.ParquetWriter(path, schema, use_dictionary=names or False) as writer:
        for first in range(0, n_rows, ROWS_PER_GROUP):
            rng, n = np.random.default_rng(first), min(ROWS_PER_GROUP, n_rows - first)
            columns = [pa.array(column) for column in rng.standard_normal((n_numbers, n))]
            codes = rng.integers(0, len(levels()), (n_categories, n))
            columns += [pa.array(np.array(levels())[one]) for one in codes]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def declared(n_numbers, n_categories):
    numbers = [Number(f"x{j}", low=-3.0, high=3.0) for j in range(n_numbers)]
    return Columns([*numbers, *(Category(f"c{k}", levels(), drop_first=True) for k in range(n_categories))])


def decode_as_stored(path):
    """Read every value by pyarrow, in batches of as many rows and by the same buffers, with text as text."""
    from pyarrow import parquet

    from dpfast.io.arrow import batch_rows

    with parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 15) as file:
        batches = file.iter_batches(batch_size=batch_rows(len(file.schema_arrow)))
        return sum(batch.num_rows for batch in batches)


def decode_as_pyarrow_comes(path):
    from pyarrow import parquet

    return sum(batch.num_rows for batch in parquet.ParquetFile(path).iter_batches())


def forget(path):
    """Have the system drop a file from its cache, if it does."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def print_encodings(folder, gigabytes, rounds):
    """Seconds, and of processor time in brackets, of each encoding; shares are medians of alternating rounds."""
    ways = {"pyarrow": decode_as_pyarrow_comes, "decoding": decode, "summing": lambda path: gram(path, bound_x=10.0)}
    for (dtype, width), (encoding, (options, few_values)) in itertools.product(
        ((np.float32, 20), (np.float64, FEATURES + OUTCOMES)), ENCODINGS.items()
    ):
        path = Path(folder) / "encoded.parquet"
        n_rows = round(gigabytes * 1e9 / (np.dtype(dtype).itemsize * width))
        write_encoded(path, np.dtype(dtype), width, n_rows, options, few_values)
        for cold in (True, False):
            spent = {name: [] for name in ways}
            for _ in range(rounds):
                for name, way in ways.items():
                    if cold:
                        forget(path)
                    start = time.process_time()
                    elapsed = seconds(partial(way, path))
                    spent[name].append((elapsed, time.process_time() - start))
            medians = {
                name: [statistics.median(column) for column in zip(*one, strict=True)] for name, one in spent.items()
            }
            shares = [
                statistics.median(a[k] / b[k] for a, b in zip(spent[name], spent["summing"], strict=True))
                for name in ("pyarrow", "decoding")
                for k in (0, 1)
            ]
            print(
                f"{width} {np.dtype(dtype).name}, {encoding}, {path.stat().st_size / 1e6:.0f} MB, "
                f"{'cold' if cold else 'warm'}: "
                + ", ".join(f"{name} {wall:.2f} s ({cpu:.2f})" for name, (wall, cpu) in medians.items())
                + "; summing is {:.2f} ({:.2f}) of pyarrow, {:.2f} ({:.2f}) of decoding".format(*shares),
                flush=True,
            )


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


class Declared:
    params = ([(20, 0), (5, 4)],)
    param_names = ("numbers and categories",)

    def setup(self, shape):
        self.path = Path(f"declared{shape[1]}.parquet").resolve()
        write_declared(self.path, *shape, 4 * ROWS_PER_GROUP)

    def track_ratio_of_decoding_alone(self, shape):
        """Median share of the speed of decoding alone by pyarrow, alternating; 1 if summing were free."""
        table = declared(*shape).encode(self.path)
        return median_ratio(lambda: gram(table, bound_x=10.0), lambda: decode_as_stored(self.path), 7)


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
    parser.add_argument("--encodings", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measured(options.measure, options.repeats)))
        return
    if options.encodings:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print_encodings(folder, options.gigabytes, options.repeats)
        return
    n_groups = max(1, round(options.gigabytes * 1e9 / (8 * (FEATURES + OUTCOMES) * ROWS_PER_GROUP)))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "table.parquet"
        write_table(path, n_groups)
        command = [sys.executable, "-m", "benchmarks.bench_files", "--measure", path, "--repeats", str(options.repeats)]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        result["file_bytes"] = path.stat().st_size
    from_memory = gram(map(row_group, range(n_groups)), **BOUNDS)
    model = MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, refine=0, fit_intercept=False, random_state=0).fit_gram(from_memory)
    result["same_bits_as_in_memory"] = model.coef_.tolist() == result.pop("coef")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
