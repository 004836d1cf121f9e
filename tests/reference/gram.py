"""Plain twin of the exact Gram: rows one by one, sums in Python integers."""

from __future__ import annotations

import math

import numpy as np

from dpfast.privacy.moment_scales import padded_squared_bound


def grid_exponent(bound):
    """Smallest k with bound * 2**k > 2**21, by search."""
    k = -1100
    while math.ldexp(bound, k) <= 2.0**21:
        k += 1
    return k


def round_rows(rows, bound):
    """Grid rows, as lists of Python integers, and k; rows beyond the bound are scaled onto it."""
    rows = np.asarray(rows).astype(np.float64)
    k = grid_exponent(bound)
    limit = padded_squared_bound(bound, k, rows.shape[1])
    return [_round_row(row, bound, k, limit) for row in rows], k


def _round_row(row, bound, k, limit):
    largest = np.max(np.abs(row))
    if largest == 0 or math.frexp(largest)[1] + k < 50:
        integers = _integers(row, math.ldexp(1.0, k))
        if _squared(integers) <= limit:
            return integers
    scale = math.ldexp(1.0, k)
    squared = _squared_norm(row, scale)
    if not math.isfinite(squared):
        scale = math.ldexp(1.0, 1 - math.frexp(largest)[1])
        squared = _squared_norm(row, scale)
    multiplier = scale * (math.ldexp(bound, k) / math.sqrt(squared))
    step = 0
    while _squared(integers := _integers(row, multiplier)) > limit:
        multiplier *= 1.0 - math.ldexp(1.0, step - 50)
        step += 1
    return integers


def _integers(row, multiplier):
    return [int(value) for value in np.rint(row * multiplier)]


def _squared(integers):
    return sum(value * value for value in integers)


def _squared_norm(row, scale):
    """Eight interleaved partial sums, folded in pairs: the kernel's documented order."""
    partial = [0.0] * 8
    with np.errstate(over="ignore"):
        for j, value in enumerate(row * scale):
            partial[j % 8] += float(value * value)
    a, b, c, d, e, f, g, h = partial
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


def exact_sums(X, bound_x, Y=None, bound_y=None):
    """(xx, xy, x_sum, y_sum) as object arrays of integers in grid units, with their grid exponents (k_x, k_y)."""
    x, k_x = round_rows(X, bound_x)
    x = np.array(x, dtype=object).reshape(np.shape(X))
    if Y is None:
        return (_product(x, x), None, _column_sums(x), None), (k_x, None)
    Y = np.asarray(Y)[:, None] if np.ndim(Y) == 1 else np.asarray(Y)
    y, k_y = round_rows(Y, bound_y)
    y = np.array(y, dtype=object).reshape(Y.shape)
    return (_product(x, x), _product(x, y), _column_sums(x), _column_sums(y)), (k_x, k_y)


def _product(a, b):
    result = np.empty((a.shape[1], b.shape[1]), dtype=object)
    for i in range(a.shape[1]):
        for j in range(b.shape[1]):
            result[i, j] = sum((int(u) * int(v) for u, v in zip(a[:, i], b[:, j], strict=True)), 0)
    return result


def _column_sums(a):
    return np.array([sum((int(u) for u in a[:, j]), 0) for j in range(a.shape[1])], dtype=object)
