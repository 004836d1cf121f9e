"""Plain twin of residual steps by pairs of levels: a row at a time, in Python's floats, integers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpfast.kernels.columns import CodedBlock

_SMALLEST_SQUARE = 2.0**-960


def slots_of(tables, codes):
    """Places of a row's slots among all."""
    ends = [sum(n + 1 for n in tables.levels[: k + 1]) for k in range(len(tables.levels))]
    return [
        end - n - 1 + (int(code) if 0 <= code < n else n)
        for end, n, code in zip(ends, tables.levels, codes, strict=True)
    ]


def row(tables, numbers, codes, y):
    """A row's numbers in units, slots, residuals, squared norm of p and size; None if it is left out."""
    slots, units = slots_of(tables, codes), []
    squared = 0.0
    for j, v in enumerate(numbers):
        if tables.low is not None:
            v = min(max(v, float(tables.low[j])), float(tables.high[j]))
        squared += v * v
        units.append((v - float(tables.center[j])) * float(tables.inverse_scale[j]) * float(tables.units[j]))
    of_codes = tables.squared_absent
    for slot in slots:
        of_codes += float(tables.slot_squares[slot])
    if not squared + of_codes <= tables.squared_bound or any(not abs(unit) <= 2.0**20 for unit in units):
        return None
    x = [float(round(unit)) for unit in units]
    norm, residuals = _squared_norm(tables, x, slots), []
    of_r = 0.0
    for m, outcome in enumerate(y):
        z = _summed(tables, slots, len(x) + m)
        for theta, unit in zip(tables.theta[m].tolist(), x, strict=True):
            z += theta * unit
        residuals.append(outcome - z)
        of_r += residuals[-1] * residuals[-1]
    if not norm <= tables.squared_longest:
        return None
    return x, slots, residuals, norm + tables.slack, (norm + tables.slack) * of_r


def held(tables, clip, found):
    """Residuals in units, held to the clip; None if the row is left out."""
    unit, onto_clip, limit, _ = clip
    _, _, residuals, squared, size = found
    multiplier = unit if size <= (onto_clip / unit) * (onto_clip / unit) else onto_clip / math.sqrt(size)
    units = [float(round(residual * multiplier)) for residual in residuals]
    of_r = 0.0
    for one in units:
        of_r += one * one
    is_small = all(abs(residual * multiplier) <= 2.0**25 for residual in residuals)
    return units if is_small and squared * of_r <= limit else None


def exponent(size):
    return -math.inf if size < _SMALLEST_SQUARE else math.frexp(size)[1] - 1


def exact_product(tables, x, slots):
    """p, from V's integers."""
    columns = [*range(len(x)), *(len(x) + slot for slot in slots)]
    factors = [*map(int, x), *[1] * len(slots)]
    return [
        sum(
            Fraction(int(tables.integers[column, i]) * factor) / Fraction(2) ** int(tables.exponents[column])
            for column, factor in zip(columns, factors, strict=True)
        )
        for i in range(tables.integers.shape[1])
    ]


def _summed(tables, slots, column):
    total = 0.0
    for slot in slots:
        total += float(tables.of_slots[slot, column])
    return total


def _squared_norm(tables, x, slots):
    sizes, total, first = [n + 1 for n in tables.levels], 0.0, 0
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    for a, b in combinations(range(len(sizes)), 2):
        one, other = slots[a] - starts[a], slots[b] - starts[b]
        total += float(tables.pairs[first + one * sizes[b] + other])
        first += sizes[a] * sizes[b]
    total += _summed(tables, slots, len(x) + len(tables.theta))
    for j, unit in enumerate(x):
        products = _summed(tables, slots, j)
        for i in range(j + 1):
            products += float(tables.products[j, i]) * x[i]
        total += unit * products
    return total


def coded_rows(rng, layout, largest, n=101):
    """Numbers and codes, some of them no level, and rows beyond every bound; sizes end at a power of ten."""
    x = rng.normal(size=(n, len(layout.places))) * 10.0 ** rng.uniform(-3.0, largest, (n, 1))
    x[3:5] = 1e300
    codes = [rng.choice(np.array([*range(-2, most + 2), 2**31 - 1, -(2**31)]), n) for most in layout.levels]
    return CodedBlock(x, codes, layout)
