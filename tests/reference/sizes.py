"""Plain twin of kernels/sizes: codes of sizes, by comparison with the edges."""

import math

import numpy as np

from reference.rows import squared_norm


def entry_code(value, bins):
    code = sum(abs(value) > bins.size(code) for code in range(bins.largest_code))
    return -code if value < 0.0 else code


def norm_code(row, bins):
    """By squares, the edges of which are powers of two."""
    squared = squared_norm(row, len(row), 1.0)
    return sum(squared > math.ldexp(1.0, bins.first + code) for code in range(bins.largest_code))


def codes_of(rows, bins, norms):
    rows = np.asarray(rows, np.float64).tolist()
    codes = [[norm_code(row, bins)] if norms else [entry_code(value, bins) for value in row] for row in rows]
    return np.array(codes, np.int16).reshape(len(rows), -1)
