"""Plain twin of the row maps: one row at a time, in Python's floats; and the layouts that a table may come in."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa

from dpfast.kernels.columns import ColumnBlock

TOLERATED = 1.0 + 2.0**-30


def map_row(row, *, low=None, high=None, bound=math.inf, center=None, top=None, basis=None, offset=0.0, unit=1.0):
    """The documented order: shift and divide, clip, scale, subtract, multiply; NaN throughout if not finite."""
    values = [float(value) for value in row]
    features = len(values) if basis is None else basis.shape[1]
    if not all(map(math.isfinite, values)):
        return [math.nan] * features
    values = [(value - offset) / unit for value in values]
    if low is not None:
        values = [min(max(value, a), b) for value, a, b in zip(values, low.tolist(), high.tolist(), strict=True)]
    values = held(values, bound, len(values) if top is None else top)
    if center is not None:
        values = [value - c for value, c in zip(values, center.tolist(), strict=True)]
    if basis is not None:
        products = [0.0] * features
        for value, weights in zip(values, basis.tolist(), strict=True):
            products = [total + value * weight for total, weight in zip(products, weights, strict=True)]
        values = products
    return values


def held(values, bound, top):
    if math.isinf(bound):
        return values
    scale = unit_scale(bound)
    limit = bound * scale * (bound * scale) * TOLERATED
    if squared_norm(values, len(values), scale) <= limit:
        return values
    squared = squared_norm(values, top, scale)
    if squared <= limit:
        return values
    if math.isinf(squared):
        scale = unit_scale(max(map(abs, values)))
        squared = squared_norm(values, top, scale)
    factor = bound * unit_scale(bound) / math.sqrt(squared)
    return [value * scale * factor * (1.0 / unit_scale(bound)) for value in values]


def unit_scale(size):
    return math.ldexp(1.0, min(max(1 - math.frexp(size)[1], -1000), 1000))


def squared_norm(values, top, scale):
    """Eight partial sums, entry j into that of j % 8; of several entries, those above the least of them, then it."""
    least = sorted(map(abs, values))[-top] if top < len(values) else -1.0
    counted = [(j, value) for j, value in enumerate(values) if abs(value) > least]
    partial = [0.0] * 8
    for j, value in counted:
        entry = value * scale
        partial[j % 8] += entry * entry
    a, b, c, d, e, f, g, h = partial
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    return total if top == len(values) else total + (top - len(counted)) * (least * scale * (least * scale))


def _strided(table):
    wide = np.zeros((2 * len(table), 3 * table.shape[1]))
    wide[::2, ::3] = table
    return wide[::2, ::3]


def _backwards(table):
    return np.ascontiguousarray(table[::-1, ::-1])[::-1, ::-1]


def _read_only(table):
    copy = np.array(table)
    copy.flags.writeable = False
    return copy


def _swapped(table):
    return table.astype(table.dtype.newbyteorder())


def _frame(table):
    return pd.DataFrame({f"c{j}": table[:, j].copy() for j in range(table.shape[1])})


#: How the same rows may lie in memory, as the kernels get them.
ARRAYS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "strided": _strided,
    "negative strides": _backwards,
    "read-only": _read_only,
    "byte-swapped": _swapped,
    "separate columns": lambda table: ColumnBlock(list(np.array(table).T)),
}

#: How they may be given to an estimator.
TABLES = {name: ARRAYS[name] for name in ("C order", "Fortran order", "strided", "negative strides", "read-only")} | {
    "data frame of separate columns": _frame,
    "data frame of one block": lambda table: pd.DataFrame(np.array(table)).add_prefix("c"),
    "Arrow table": lambda table: pa.table({f"c{j}": np.array(table[:, j]) for j in range(table.shape[1])}),
}
