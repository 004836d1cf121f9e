"""Maps of rows against the same in NumPy, alternating in one process: both read a block and write another."""

import math

import numpy as np

from benchmarks.timing import fastest_ratio
from dpfast.statistics.rows import RowMap, centred, clipped_to_norm

N_ROWS = 8192


def _centred(rows, low, high, bound, center):
    clipped = np.where(np.isfinite(rows), np.clip(rows, low, high), np.nan)
    norms = np.sqrt(np.einsum("ij,ij->i", clipped, clipped))
    clipped *= np.minimum(1.0, bound / np.maximum(norms, bound))[:, None]
    return clipped - center


def _shortened(rows, bound):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, bound / np.maximum(norms, bound))


def _top_entries(rows, size, bound):
    largest = np.partition(np.abs(rows), rows.shape[1] - size, axis=1)[:, -size:]
    norms = np.linalg.norm(largest, axis=1, keepdims=True)
    return np.where(np.isfinite(norms), rows * np.minimum(1.0, bound / np.maximum(norms, bound)), np.nan)


class RowMaps:
    """About half of the rows are beyond the bound; memory order as arrays and as frames have it."""

    params = (["box and norm", "norm", "top entries"], [5, 20, 100, 500], ["C", "F"])
    param_names = ("map", "columns", "order")

    def setup(self, name, columns, order):
        self.rows = np.asarray(np.random.default_rng(0).normal(size=(N_ROWS, columns)), order=order)
        bound, side = 0.9 * math.sqrt(columns), 2.0 * np.ones(columns)
        size, top_bound = max(1, columns // 4), math.sqrt(columns) / 1.5
        row_map = centred(-side, side, bound)[0]
        top = RowMap(bound=top_bound, top=size)
        self.ours, self.theirs = {
            "box and norm": (row_map, lambda rows: _centred(rows, -side, side, bound, 0.0 * side)),
            "norm": (lambda rows: clipped_to_norm(rows, bound), lambda rows: _shortened(rows, bound)),
            "top entries": (top, lambda rows: _top_entries(rows, size, top_bound)),
        }[name]

    def time_map(self, name, columns, order):
        self.ours(self.rows)

    def track_times_faster_than_numpy(self, name, columns, order):
        return fastest_ratio(lambda: self.ours(self.rows), lambda: self.theirs(self.rows), 15)
