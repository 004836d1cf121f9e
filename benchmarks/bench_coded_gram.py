"""Sums of tables with categories, kept as codes, against tabmat's product of the same table, which is not exact.

asv runs it at a fifth of the rows. ``python -m benchmarks.bench_coded_gram`` prints the table at full size, tabmat's
column where it is installed.
"""

from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import median_ratio, sized
from dpfast import io
from dpfast.kernels.columns import CodedBlock, CodeLayout, ColumnBlock
from dpfast.statistics import GramAccumulator
from dpfast.statistics.residuals import ResidualStep, residual_sums
from dpfast.statistics.rows import RowMap, centred

#: Numbers, categories and levels.
SHAPES = [(5, 4, 50), (20, 10, 20)]


def table(n_rows, n_numbers, n_categories, n_levels):
    rng = np.random.default_rng(0)
    numbers = ColumnBlock(list(rng.uniform(-1, 1, (n_rows, n_numbers)).T))
    codes = [rng.integers(0, n_levels, n_rows).astype(np.int32) for _ in range(n_categories)]
    firsts = tuple(range(n_numbers, n_numbers + n_categories * n_levels, n_levels))
    layout = CodeLayout(
        n_numbers + n_categories * n_levels, tuple(range(n_numbers)), firsts, (n_levels,) * n_categories
    )
    return CodedBlock(numbers, codes, layout)


def sums(rows, shape, n_threads):
    bound = (shape[0] + shape[1]) ** 0.5
    return GramAccumulator(rows.shape[1], bound_x=bound, n_threads=n_threads).update(rows).gram()


class Codes:
    params = (SHAPES, [1, 2])
    param_names = ("shape", "n_threads")

    def setup(self, shape, n_threads):
        self.rows = table(sized(1_000_000) // 5, *shape)
        self.few = self.rows[: len(self.rows) // 10]
        self.indicators = np.asarray(self.few)

    def time_sums(self, shape, n_threads):
        sums(self.rows, shape, n_threads)

    def track_ratio_to_indicators(self, shape, n_threads):
        """How many times as fast as the same rows with their indicators written out."""
        return median_ratio(
            lambda: sums(self.few, shape, n_threads), lambda: sums(self.indicators, shape, n_threads), 5
        )


class ResidualSteps:
    """A step in coordinates, and the same with the indicators of a tenth of the rows written out."""

    params = (SHAPES,)
    param_names = ("shape",)

    def setup(self, shape):
        rows = table(sized(500_000) // 5, *shape)
        d, rng = rows.shape[1], np.random.default_rng(1)
        low, high = np.zeros(d), np.ones(d)
        low[: shape[0]] = -1.0
        whitening = rng.normal(size=(d + 1, d + 1))
        maps = centred(low, high)[0], RowMap(bound=3.0)
        self.step = ResidualStep(rng.normal(size=(d + 1, 1)), *maps, whitening, constant=True)
        y = rng.normal(size=(len(rows), 1))
        n_few = len(rows) // 10
        self.codes, self.few = io.open_table([(rows, y)]), io.open_table([(rows[:n_few], y[:n_few])])
        self.indicators = io.open_table(np.asarray(rows[:n_few]), y[:n_few])

    def time_step(self, shape):
        residual_sums(self.codes, self.step, 2.0, n_threads=1)

    def track_ratio_to_indicators(self, shape):
        """How many times as fast as the same rows with their indicators written out."""
        ours, theirs = (
            partial(residual_sums, rows, self.step, 2.0, n_threads=1) for rows in (self.few, self.indicators)
        )
        return median_ratio(ours, theirs, 5)


def main():
    try:
        import tabmat
    except ImportError:
        tabmat = None
    for shape in SHAPES:
        rows = table(sized(1_000_000), *shape)
        for n_threads in (1, 2):
            line = f"{len(rows):9,} rows, {shape[0]} + {shape[1]} x {shape[2]}, {n_threads} threads:"
            if tabmat is None:
                print(line, "tabmat is not installed")
                continue
            numbers = tabmat.DenseMatrix(np.asfortranarray(np.asarray(rows.numbers)))
            matrix = tabmat.SplitMatrix([numbers, *map(tabmat.CategoricalMatrix, rows.codes)])
            weights = np.ones(len(rows))
            with threadpool_limits(n_threads):
                faster = median_ratio(partial(sums, rows, shape, n_threads), partial(matrix.sandwich, weights), 7)
            print(line, f"{faster:.2f} times as fast as tabmat")


if __name__ == "__main__":
    main()
