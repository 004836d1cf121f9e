"""Public maps of rows, applied block by block before they are summed: clip to a declared box, subtract its centre.

Rows known to lie in a box lie closer to its centre than to the origin: for [0, 1]^d the bound on the squared norm falls
from d to d/4, and the noise with it. The map depends on declared numbers alone, so it costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


#: Norms are compared in floating point with their bounds; what is calibrated allows for rows longer by as much.
NORM_SLACK = 2.0**-30


@dataclass(frozen=True)
class RowMap:
    """Clip the entries of rows to [low, high], scale rows beyond `bound` onto it, subtract `center`.

    Parameters
    ----------
    low, high : ndarray of shape (d,)
        Entrywise limits; may be infinite.
    bound : float, default inf
        L2 norm of a row before the centre is subtracted.
    center : ndarray of shape (d,), optional
        Subtracted last.
    """

    low: FloatArray
    high: FloatArray
    bound: float = math.inf
    center: FloatArray | None = None

    def __call__(self, rows: NDArray[np.generic]) -> FloatArray:
        """Map one block of rows, shape (n, d); NaN and infinity become NaN, to be refused where rows are summed."""
        values = np.asarray(rows, np.float64)
        clipped: FloatArray = np.where(np.isfinite(values), np.clip(values, self.low, self.high), np.nan)
        if math.isfinite(self.bound):
            norms = np.sqrt(np.einsum("ij,ij->i", clipped, clipped))
            clipped *= np.minimum(1.0, self.bound / np.maximum(norms, self.bound))[:, None]
        return clipped if self.center is None else clipped - self.center


def centred(low: FloatArray, high: FloatArray, bound: float = math.inf) -> tuple[RowMap, float]:
    """Map the rows of a box to its centre, and bound the norm of what comes out.

    Parameters
    ----------
    low, high : ndarray of shape (d,)
        Finite limits of every entry.
    bound : float, default inf
        L2 norm that rows are known, or scaled, to stay within.

    Returns
    -------
    RowMap
        Clips, scales and subtracts the centre.
    float
        The largest norm of a mapped row: with half-widths h and centre c the smaller of ||h|| and, where rows are
        bounded, the root of bound^2 - 2 min c'x + ||c||^2.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics.rows import centred
    >>> centred(np.zeros(4), np.ones(4))[1]
    1.0
    """
    center = (low + high) / 2.0
    # The centre is rounded: measure to the farther side, so that the radius holds for the centre as it is.
    squared = float(np.sum(np.maximum(high - center, center - low) ** 2))
    if math.isfinite(bound):
        length = float(np.linalg.norm(center))
        least = max(float(np.sum(np.minimum(center * low, center * high))), -bound * length)
        cut = bound**2 - 2.0 * least + length**2
        # Not positive if no row of the box is within the bound: then they are scaled out of it, and held to its size.
        squared = min(squared, cut) if cut > 0.0 else squared
    return RowMap(low, high, bound, center), math.sqrt(squared)


def shortened(rows: FloatArray, bound: float) -> FloatArray:
    """Scale rows that are longer than a bound onto it.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Finite.
    bound : float
        L2 norm.

    Returns
    -------
    ndarray of shape (n, d)
        Rows of at most ``bound * (1 + NORM_SLACK)``; those that were no longer than `bound` are as they were.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.statistics.rows import shortened
    >>> shortened(np.array([[3.0, 4.0], [0.0, 1.0]]), 1.0)
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    # Entries beyond the bound are cut to a direction first, so that no square overflows.
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), bound)[:, np.newaxis]
    with np.errstate(under="ignore"):
        norms = largest * np.linalg.norm(rows / largest, axis=1, keepdims=True)
    longer = norms > bound * (1.0 + 0.5 * NORM_SLACK)
    return rows * np.where(longer, bound / np.maximum(norms, bound), 1.0)
