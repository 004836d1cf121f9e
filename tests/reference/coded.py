"""Plain twins of sums over rows with codes: indicators written out, and sums by counting, in Python integers."""

from __future__ import annotations

import numpy as np


def written_out(block):
    """The table that a CodedBlock stands for, entry by entry."""
    table = np.zeros(block.shape)
    numbers = np.asarray(block.numbers)
    for row in range(len(block)):
        table[row, list(block.layout.places)] = numbers[row]
        for first, n_levels, codes in zip(block.layout.firsts, block.layout.levels, block.codes, strict=True):
            if 0 <= codes[row] < n_levels:
                table[row, first + codes[row]] = 1.0
    return table


def by_counting(numbers, block, absent, present):
    """X'X of rounded numbers (integers), and of indicators with two values each, from counts of levels and of pairs."""
    indicators = written_out(block)[:, block.layout.indicators].astype(np.int64).astype(object)
    q, a = np.array(numbers, object), np.array([int(v) for v in absent], object)
    w = np.array([int(v) for v in present], object) - a
    n, z, sums, columns = len(block), indicators.sum(0), q.T @ indicators, q.sum(0)
    out = np.zeros((block.layout.n_columns,) * 2, object)
    of_numbers, of_codes = list(block.layout.places), block.layout.indicators
    out[np.ix_(of_numbers, of_numbers)] = q.T @ q
    out[np.ix_(of_numbers, of_codes)] = np.outer(columns, a) + sums * w
    out[np.ix_(of_codes, of_numbers)] = out[np.ix_(of_numbers, of_codes)].T
    pairs = np.outer(w, w) * (indicators.T @ indicators)
    out[np.ix_(of_codes, of_codes)] = n * np.outer(a, a) + np.outer(a, w * z) + np.outer(w * z, a) + pairs
    return out
