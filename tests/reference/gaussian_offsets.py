"""The NumPy twin of the Gaussian kernel: the same operations in the same order, so the same bits."""

import numpy as np

OCTAVES = 20
SIGN = np.uint64(1 << 63)


def gaussian_offsets(words, fractions, steps, margin, table):
    """Offsets from the base cells, and the indices that are not decided."""
    bits = (words & ~SIGN).astype(np.float64).view(np.uint64)
    rows = (bits >> np.uint64(48)).astype(np.int64) - ((1023 + 63 - OCTAVES - 1) << 4)
    mantissas = (bits << np.uint64(4)) & np.uint64(0x000FFFFFFFFFFFFF) | np.uint64(0x3FF0000000000000)
    t = mantissas.view(np.float64) - 1.5
    coefficients = table[np.maximum(rows, 0)]
    z = coefficients[:, -1]
    for power in range(table.shape[1] - 2, -1, -1):
        z = z * t + coefficients[:, power]
    y = steps * np.where(words & SIGN, -z, z) + fractions
    offsets = np.rint(y)
    return offsets, np.flatnonzero(~(np.abs(y - offsets) <= 0.5 - margin))
