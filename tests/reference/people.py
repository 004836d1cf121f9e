"""Plain twin of the sums over people: each person's rows in Python integers, scaled by one factor if beyond a bound."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from reference.gram import round_rows


def kept_rows(groups, max_rows):
    """Indices of each person's first rows, people in the order they appear."""
    rows = {}
    for index, one in enumerate(groups):
        rows.setdefault(one, []).append(index)
    return [indices[:max_rows] for indices in rows.values()]


def people_sums(X, Y, groups, *, max_rows, bound_x, bound_y, limits_xx, limits_xy):
    """(xx, xy) in grid units, and the blocks of all people; limits are pairs (norm to scale onto, squared bound)."""
    x, _ = round_rows(X, bound_x)
    y, _ = round_rows(Y, bound_y)
    x = np.array(x, dtype=object).reshape(np.shape(X))
    y = np.array(y, dtype=object).reshape(np.shape(Y))
    blocks = [clipped_block(x[rows], y[rows], limits_xx, limits_xy) for rows in kept_rows(groups, max_rows)]
    xx = sum((a for a, _ in blocks), np.zeros((x.shape[1],) * 2, object))
    xy = sum((b for _, b in blocks), np.zeros((x.shape[1], y.shape[1]), object))
    return xx, xy, blocks


def clipped_block(x, y, limits_xx, limits_xy):
    a, b = x.T @ x, x.T @ y
    if squared(a) <= limits_xx[1] and squared(b) <= limits_xy[1]:
        return a, b
    factor = min(over(limits_xx[0], squared(a)), over(limits_xy[0], squared(b)), 1.0)
    multiplier = math.sqrt(factor) * (1.0 - 2.0**-45)
    for step in range(51):
        u, v = rounded(x, multiplier), rounded(y, multiplier)
        a, b = u.T @ u, u.T @ v
        if squared(a) <= limits_xx[1] and squared(b) <= limits_xy[1]:
            return a, b
        multiplier *= 1.0 - 2.0 ** (step - 50)
    raise AssertionError("a multiplier of zero is within any bound")


def squared(block):
    return int(np.sum(block * block))


def over(norm, squared_norm):
    return norm / math.sqrt(float(squared_norm)) if squared_norm else math.inf


def rounded(rows, multiplier):
    # Integers below 2^53 are doubles; Python's round is half to even.
    integers = [[round(Fraction(float(value) * multiplier)) for value in row] for row in rows]
    return np.array(integers, dtype=object).reshape(rows.shape)
