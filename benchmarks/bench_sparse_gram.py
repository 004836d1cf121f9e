"""Sums of sparse tables, by their entries, against the products of scipy and tabmat, which are not exact.

asv runs it at a fifth of the rows. ``python -m benchmarks.bench_sparse_gram`` prints the table at full size, tabmat's
column where it is installed.
"""

from functools import partial

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.timing import median_ratio, sized
from dpfast.statistics import gram

#: Features, and the share of entries that are not zero.
SHAPES = [(200, 0.01), (1000, 0.01)]


def table(n_rows, n_features, density):
    rng = np.random.default_rng(0)
    n_entries = int(n_rows * n_features * density)
    places = rng.integers(0, n_rows, n_entries), rng.integers(0, n_features, n_entries)
    rows = sparse.csr_array((np.ones(n_entries), places), shape=(n_rows, n_features))
    rows.sum_duplicates()
    rows.data = rng.uniform(-1.0, 1.0, rows.nnz)
    return rows


def bound(rows):
    """Every row is within it."""
    return float(np.sqrt(rows.multiply(rows).sum(axis=1).max()))


class Sparse:
    params = (SHAPES,)
    param_names = ("shape",)

    def setup(self, shape):
        self.rows = table(sized(1_000_000) // 5, *shape)
        self.bound = bound(self.rows)
        self.few = self.rows[: max(1, len(self.rows.indptr) // 20)]
        self.dense = self.few.toarray()

    def time_sums(self, shape):
        gram(self.rows, bound_x=self.bound, n_threads=1)

    def time_sums_of_rows_beyond_their_bound(self, shape):
        gram(self.few, bound_x=1e-3, n_threads=1)

    def track_ratio_to_scipy(self, shape):
        """How many times as fast as scipy's product."""
        turned = self.rows.T
        return median_ratio(partial(gram, self.rows, bound_x=self.bound, n_threads=1), lambda: turned @ self.rows, 3)

    def track_ratio_to_dense(self, shape):
        """How many times as fast as some of the rows, written out beforehand."""
        ours, theirs = (partial(gram, rows, bound_x=self.bound, n_threads=1) for rows in (self.few, self.dense))
        return median_ratio(ours, theirs, 5)


def main():
    try:
        import tabmat
    except ImportError:
        tabmat = None
    for shape in SHAPES:
        rows = table(sized(1_000_000), *shape)
        ours, turned = partial(gram, rows, bound_x=bound(rows), n_threads=1), rows.T
        line = f"{rows.shape[0]:9,} rows of {shape[0]:,}, {shape[1]:.0%} not zero, one thread:"
        line += f" {median_ratio(ours, lambda: turned @ rows, 3):.1f} times as fast as scipy,"  # noqa: B023
        if tabmat is None:
            print(line, "tabmat is not installed")
            continue
        matrix, weights = tabmat.SparseMatrix(sparse.csc_matrix(rows)), np.ones(rows.shape[0])
        with threadpool_limits(1):
            print(line, f"{median_ratio(ours, partial(matrix.sandwich, weights), 7):.1f} times as tabmat")


if __name__ == "__main__":
    main()
