"""Ours beside the libraries that people know, and how far it scales: prints docs/performance.md.

``python -m benchmarks.performance [SECTION ...]`` prints all sections or those named; ``--write`` writes the page. Run
it on a machine at rest, with tabmat, glum, numba, opendp, diffprivlib and pyarrow installed: rows whose library is not
installed are left out. With DPFAST_SMALL_BENCHMARKS=1 tables are small, and figures mean nothing.
"""

import argparse
import importlib
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from threadpoolctl import threadpool_limits

from benchmarks import bench_coded_gram, bench_files, bench_gram, bench_policy, bench_sparse_gram
from benchmarks.timing import SMALL, often, seconds, sized
from dpfast import MultiOutcomeRidge, ObjectivePerturbationClassifier
from dpfast.io import Category, Columns
from dpfast.noise import SecureSource, gaussian
from dpfast.statistics import GramAccumulator, gram

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
LIBRARIES = ("numpy", "scipy", "sklearn", "pyarrow", "tabmat", "glum", "numba", "opendp", "diffprivlib")
ROUNDS = 5
#: Seconds before each call: threads of BLAS and numba go on spinning after one, at the cost of whoever is timed next.
REST = 0.05


class Pair(NamedTuple):
    """Two ways to the same end."""

    what: str
    peer: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    n_threads: int = 1


def has(*modules: str) -> bool:
    """Return whether these are installed."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def row_of(pair: Pair) -> str:
    """Measure a pair in alternating rounds, after a call of each; a row of the table."""
    with threadpool_limits(pair.n_threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of noise: the tables are made to be timed
        pair.ours(), pair.theirs()
        spent = []
        for _ in range(often(ROUNDS)):
            time.sleep(REST)
            ours = seconds(pair.ours)
            time.sleep(REST)
            spent.append((ours, seconds(pair.theirs)))
    ours, theirs = (statistics.median(column) for column in zip(*spent, strict=True))
    low, middle, high = np.quantile([theirs / ours for ours, theirs in spent], [0.25, 0.5, 0.75])
    figures = f"{shown(ours)} | {shown(theirs)} | **{middle:.2f}** ({low:.2f}-{high:.2f})"
    return f"| {pair.what} | {pair.n_threads} | {pair.peer} | {figures} |"


def shown(spent: float) -> str:
    """Return a time to three digits."""
    return f"{spent * 1e3:.3g} ms" if spent < 1.0 else f"{spent:.3g} s"


def sums() -> Iterator[Pair]:
    """Sums of products: what a regression costs."""
    for n, d in bench_gram.SIZES:
        for n_threads in (1, 2):
            cases = bench_gram.cases(n, d, n_threads)
            yield Pair(f"{n:,} rows of {d}", "NumPy `X.T @ X`", *cases["float64"], n_threads)
            if n_threads == 1:
                yield Pair(f"{n:,} rows of {d}, half beyond the bound", "NumPy, clipped", *cases["half clipped"])
    if has("tabmat"):
        import tabmat

        for shape in bench_coded_gram.SHAPES:
            rows = bench_coded_gram.table(sized(1_000_000), *shape)
            numbers = tabmat.DenseMatrix(np.asfortranarray(np.asarray(rows.numbers)))
            split = tabmat.SplitMatrix([numbers, *map(tabmat.CategoricalMatrix, rows.codes)])
            what = f"{len(rows):,} rows: {shape[0]} numbers, {shape[1]} categories of {shape[2]} levels"
            for n_threads in (1, 2):
                ours = partial(bench_coded_gram.sums, rows, shape, n_threads)
                yield Pair(what, "tabmat", ours, partial(split.sandwich, np.ones(len(rows))), n_threads)
    for shape in bench_sparse_gram.SHAPES:
        sparse = bench_sparse_gram.table(sized(1_000_000), *shape)
        what = f"{sparse.shape[0]:,} sparse rows of {shape[0]:,}, {shape[1]:.0%} not zero"
        ours, turned = partial(gram, sparse, bound_x=bench_sparse_gram.bound(sparse), n_threads=1), sparse.T
        yield Pair(what, "SciPy", ours, partial(turned.__matmul__, sparse))
        if has("tabmat"):
            matrix = tabmat.SparseMatrix(sparse.tocsc())
            yield Pair(what, "tabmat", ours, partial(matrix.sandwich, np.ones(sparse.shape[0])))


def visits() -> Iterator[Pair]:
    """First-visit returns of trajectories."""
    if not has("numba"):
        return
    for size in bench_policy.SIZES:
        bench = bench_policy.FirstVisits()
        for n_threads in (1, 2):
            bench.setup(size, n_threads)
            theirs = partial(bench_policy.numba_sums(n_threads), bench.walks)
            yield Pair(f"{size[2]:,} steps, {size[0]:,} states", "a loop in numba", bench.ours, theirs, n_threads)


def noise() -> Iterator[Pair]:
    """A million draws of Gaussian noise."""
    n = sized(1_000_000)
    source, generator = SecureSource(), np.random.default_rng(0)
    ours = partial(gaussian, 3.7, n, source)
    yield Pair(f"{n:,} draws", "NumPy's generator, not secure", ours, partial(generator.normal, 0.0, 3.7, n))
    if has("opendp"):
        import opendp.prelude as dp

        dp.enable_features("contrib")
        zeros, few = [0.0] * (n // 10), partial(gaussian, 3.7, n // 10, source)
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(zeros)), dp.l2_distance(T=float)
        yield Pair(f"{n // 10:,} draws", "OpenDP", few, partial(space >> dp.m.then_gaussian(3.7), zeros))
    if has("diffprivlib"):
        from diffprivlib.mechanisms import GaussianDiscrete

        mechanism, n_few = GaussianDiscrete(epsilon=0.5, delta=1e-6), 200
        few = partial(gaussian, 3.7, n_few, source)
        yield Pair(f"{n_few} draws", "diffprivlib", few, lambda: [mechanism.randomise(0) for _ in range(n_few)])


def fits() -> Iterator[Pair]:
    """Whole fits: bounds checked, privacy calibrated, noise drawn, limits of coefficients."""
    rng = np.random.default_rng(0)
    for n in (200, sized(100_000), sized(1_000_000)):
        X = rng.uniform(-1.0, 1.0, (n, 20)) / 20**0.5
        y = X @ rng.normal(size=20) / 5.0 + 0.1 * rng.normal(size=n)
        labels = (y > 0.0).astype(int)
        table, bounds = f"{n:,} rows of 20", {"bound_x": 1.0, "bound_y": 1.0}
        exact = partial(Ridge().fit, X, y)
        ridge = partial(MultiOutcomeRidge(1.0, 1e-6, **bounds, refine=0).fit, X, y)
        yield Pair(f"least squares, {table}, sums alone", "scikit-learn, not private", ridge, exact)
        ridge = partial(MultiOutcomeRidge(1.0, 1e-6, **bounds).fit, X, y)
        yield Pair(f"least squares, {table}, as by default", "scikit-learn, not private", ridge, exact)
        ours = partial(ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=[0, 1]).fit, X, labels)
        exact = partial(LogisticRegression().fit, X, labels)
        yield Pair(f"logistic regression, {table}", "scikit-learn, not private", ours, exact)
        if has("diffprivlib") and n <= 100_000:
            from diffprivlib import models

            theirs = models.LinearRegression(epsilon=1.0, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0))
            yield Pair(f"least squares, {table}, as by default", "diffprivlib", ridge, partial(theirs.fit, X, y))
            theirs = models.LogisticRegression(epsilon=1.0, data_norm=1.0)
            yield Pair(f"logistic regression, {table}", "diffprivlib", ours, partial(theirs.fit, X, labels))
    if has("glum", "pandas"):
        yield from fits_of_categories(sized(500_000))


def fits_of_categories(n: int) -> Iterator[Pair]:
    """Fits of a data frame of five numbers and four categories."""
    import glum
    import pandas as pd

    rng = np.random.default_rng(0)
    levels = [f"level {k}" for k in range(50)]
    numbers = {f"x{j}": rng.uniform(-1.0, 1.0, n) for j in range(5)}
    codes = [rng.integers(0, 50, n) for _ in range(4)]
    frame = pd.DataFrame(numbers | {f"c{j}": pd.Categorical.from_codes(c, levels) for j, c in enumerate(codes)})
    frame["y"] = frame["x0"] - 0.02 * codes[0] + 0.1 * rng.normal(size=n)
    features = [*numbers, *(Category(f"c{j}", levels) for j in range(4))]
    columns = Columns(features, ["y"])
    what = f"least squares, {n:,} rows of a pandas frame: 5 numbers, 4 categories of 50 levels"
    limits = {"bound_x": 3.0, "bound_y": 3.0}
    theirs = glum.GeneralizedLinearRegressor(family="normal", alpha=1.0 / n, l1_ratio=0)
    exact = partial(theirs.fit, frame.drop(columns="y"), frame["y"])
    for settings, name in (({"refine": 0}, "sums alone"), ({}, "as by default")):
        model = MultiOutcomeRidge(1.0, 1e-6, **limits, **settings)
        ours = partial(lambda model: model.fit(columns.encode(frame), None), model)
        yield Pair(f"{what}, {name}", "glum, not private", ours, exact)


def files() -> Iterator[Pair]:
    """Parquet files, from the page cache: columns of float64, and categories, are decoded and summed."""
    if not has("pyarrow"):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        bench_files.write_table(path, 1 if SMALL else 4)
        ours, theirs = partial(bench_files.fit, path), partial(bench_files.decode, path)
        what = f"fit of {path.stat().st_size / 1e6:.0f} MB"
        yield Pair(what, "pyarrow decoding alone", ours, theirs, 2)
        shapes = {
            "20 numbers": (20, 0),
            "20 numbers, declared": (20, 0),
            "5 numbers, 4 categories of 50 levels": (5, 4),
        }
        for kind, (numbers, categories) in shapes.items():
            bench_files.write_declared(path, numbers, categories, sized(4_000_000))
            table = path if kind == "20 numbers" else bench_files.declared(numbers, categories).encode(path)
            ours, theirs = partial(gram, table, bound_x=10.0), partial(bench_files.decode_as_stored, path)
            what = f"sums of {path.stat().st_size / 1e6:.0f} MB: {kind}"
            yield Pair(what, "pyarrow decoding alone", ours, theirs, 2)


def stream(n: int, d: int) -> tuple[float, float]:
    """Seconds and peak megabytes of sums of blocks that are made once: the sums' own cost."""
    rng = np.random.default_rng(0)
    block = rng.uniform(-1.0, 1.0, (min(n, 250_000), d))
    sums = GramAccumulator(d, bound_x=d**0.5, n_threads=1)
    spent = seconds(lambda: [sums.update(block) for _ in range(n // len(block))] and sums.gram())
    # Not what `resource` knows: that includes the process that started this one.
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s*(\d+)", status.read_text()) if status.exists() else None
    return spent, math.nan if peak is None else int(peak[1]) / 1024


def scaling() -> list[str]:
    """Rows of the table of sizes, each measured in a process of its own."""
    lines = []
    for n, d in ((10**6, 20), (10**7, 20), (10**8, 20), (10**6, 50), (10**6, 100), (10**6, 200)):
        code = f"from benchmarks.performance import stream; print(*stream({sized(n)}, {d}))"
        out = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
        spent, megabytes = map(float, out.split())
        per_million = spent / sized(n) * 1e6
        lines.append(f"| {sized(n):,} | {d} | {shown(spent)} | {shown(per_million)} | {megabytes:.0f} MB |")
    return lines


#: By name: the heading, what a reader must know, and the pairs.
SECTIONS = {
    "sums": (
        "Sums",
        "Ours clips every row to its bound and adds integers exactly. The others add in floating point, and do not clip"
        " unless it is said.",
        sums,
    ),
    "visits": ("First visits", "Returns of first visits, summed by state.", visits),
    "noise": (
        "Noise",
        "Ours draws exactly the rounded Gaussian from a cryptographic source. OpenDP and diffprivlib draw exact"
        " discrete noise too; their time contains their conversion from Python's numbers.",
        noise,
    ),
    "fits": (
        "Fits",
        "A private fit also calibrates, draws noise and computes limits of coefficients. By default a regression passes"
        " over its rows many times, for a far lower error.",
        fits,
    ),
    "files": ("Files", "1 would mean that bounds, exact sums, noise and limits cost nothing beside decoding.", files),
}


def machine() -> str:
    """Return what it was measured on, and with."""
    model = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        model = next((s.partition(": ")[2] for s in info.read_text().splitlines() if s.startswith("model name")), model)
    versions = [f"{name} {importlib.import_module(name).__version__}" for name in LIBRARIES[:-2] if has(name)]
    from importlib.metadata import version

    versions += [f"{name} {version(name)}" for name in LIBRARIES[-2:] if has(name)]
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}; {', '.join(versions)}"


def page(names: list[str]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Performance"
    yield ""
    yield (
        "`python -m benchmarks.performance --write` measures and writes this page. Both sides of a row are timed"
        f" alternately in one process. Times are medians of {ROUNDS}. The last column is their time over ours, with"
        " quartiles in brackets: above 1 dpfast is faster."
    )
    yield ""
    yield f"Measured on {machine()}."
    for name in names:
        if name in SECTIONS:
            heading, words, pairs = SECTIONS[name]
            yield from ("", f"## {heading}", "", words, "")
            yield "| What | Threads | Beside | dpfast | The other | Times as fast |"
            yield "| :--- | ---: | :--- | ---: | ---: | :--- |"
            for pair in pairs():
                yield row_of(pair)
    if "scaling" in names:
        yield from ("", "## Size", "", "Sums of rows that come in blocks, on one thread. Memory is the whole process.")
        yield from (
            "",
            "| Rows | Features | Time | A million rows | Peak memory |",
            "| ---: | ---: | ---: | ---: | ---: |",
        )
        yield from scaling()


def main() -> None:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, "scaling", []], metavar="SECTION")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} when all is measured")
    options = parser.parse_args()
    lines = []
    for line in page(options.sections or [*SECTIONS, "scaling"]):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
