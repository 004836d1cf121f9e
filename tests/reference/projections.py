"""Projections onto the simplex and the L1 ball by sorting, and in exact arithmetic."""

from fractions import Fraction

import numpy as np


def onto_simplex(y, total):
    """Held, Wolfe and Crowder's sort."""
    descending = np.sort(y)[::-1]
    thresholds = (np.cumsum(descending) - total) / np.arange(1, len(y) + 1)
    return np.maximum(y - thresholds[np.flatnonzero(descending > thresholds)[-1]], 0.0)


def onto_l1_ball(y, radius):
    return y.copy() if np.abs(y).sum() <= radius else np.sign(y) * onto_simplex(np.abs(y), radius)


def exactly_onto_simplex(y, total):
    """The projection of the floats y, as fractions."""
    y, total = [Fraction(x) for x in y], Fraction(total)
    running, threshold = Fraction(0), None
    for count, x in enumerate(sorted(y, reverse=True), start=1):
        running += x
        if x > (running - total) / count:
            threshold = (running - total) / count
    return [max(x - threshold, Fraction(0)) for x in y]


def exactly_onto_l1_ball(y, radius):
    sizes = [abs(Fraction(x)) for x in y]
    if sum(sizes) <= Fraction(radius):
        return [Fraction(x) for x in y]
    projected = exactly_onto_simplex([abs(x) for x in y], radius)
    return [p if x >= 0 else -p for p, x in zip(projected, y, strict=True)]
