"""Convex sets over which problems are solved: balls of the L1 and L2 norms, boxes; projections onto them.

They are public: nothing in them may come from data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels import projections
from dpfast.solvers.arrays import finite_array, in_ranges

# Squares of values in these limits, times or over any sensible constant, neither overflow nor underflow.
LARGEST = 2.0**200
SMALLEST = 2.0**-200


@dataclass(frozen=True)
class _Ball:
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", in_range("radius", self.radius))

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        return self.radius


class L2Ball(_Ball):
    """The points x with ||x||_2 <= radius.

    Parameters
    ----------
    radius : float
        Positive, from 2**-200 to 2**200.

    Examples
    --------
    >>> from dpfast.solvers import L2Ball
    >>> L2Ball(1.0).project([3.0, 4.0])
    array([0.6, 0.8])
    """

    def project(self, points: ArrayLike) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n)."""
        array = _vectors(points)
        largest = np.abs(array).max(axis=-1, keepdims=True, initial=self.radius)
        with np.errstate(under="ignore"):
            norms = largest * np.sqrt(np.square(array / largest).sum(axis=-1, keepdims=True))
        return np.where(norms <= self.radius, array, array / np.maximum(norms, self.radius) * self.radius)


class L1Ball(_Ball):
    """The points x with ||x||_1 <= radius.

    Parameters
    ----------
    radius : float
        Positive, from 2**-200 to 2**200.

    Examples
    --------
    >>> from dpfast.solvers import L1Ball
    >>> L1Ball(1.0).project([1.5, -1.0, 0.2])
    array([ 0.75, -0.25,  0.  ])
    """

    def project(self, points: ArrayLike, *, n_threads: int | None = None) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n), in linear time (Condat 2016)."""
        array = _vectors(points)
        rows = array.reshape(-1, array.shape[-1])
        projected = np.empty_like(rows)

        def project_range(start: int, stop: int) -> None:
            projections.project(rows, self.radius, start, stop, np.empty(rows.shape[1]), projected)

        in_ranges(*rows.shape, n_threads, project_range)
        return projected.reshape(array.shape)


def project_onto_simplex(points: ArrayLike, total: float = 1.0, *, n_threads: int | None = None) -> FloatArray:
    """Nearest point of {x >= 0, sum x = total} to each vector of an array of shape (..., n), in linear time."""
    # A shift moves no projection, and no entry that is `total` below the largest counts: so all become positive, with a
    # sum beyond the ball.
    ball, array = L1Ball(total), _vectors(points)
    near = np.maximum(array - array.max(axis=-1, keepdims=True), -ball.radius)
    return ball.project(near + 2.0 * ball.radius, n_threads=n_threads)


@dataclass(frozen=True, eq=False)
class Box:
    """The points x with low <= x <= high in every coordinate.

    Parameters
    ----------
    radius : float, optional
        Positive, from 2**-200 to 2**200: low = -radius, high = radius.
    low, high : float or array_like of shape (n,), optional
        Both instead of a radius; at most 2**200 in size, low below high in every coordinate, by at least 2**-200.

    Examples
    --------
    >>> from dpfast.solvers import Box
    >>> Box(1.0).project([3.0, -0.5])
    array([ 1. , -0.5])
    >>> Box(low=0.0, high=[1.0, 2.0]).project([3.0, -0.5])
    array([1., 0.])
    """

    low: FloatArray
    high: FloatArray

    def __init__(
        self, radius: float | None = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None
    ) -> None:
        if (radius is None) == (low is None) or (low is None) != (high is None):
            raise TypeError("Box takes either radius, or low and high")
        if radius is not None:
            high = in_range("radius", radius)
            low = -high
        assert low is not None
        assert high is not None
        bounds = finite_array("low", low, (0, 1)), finite_array("high", high, (0, 1))
        try:
            lows, highs = (np.array(bound, order="C") for bound in np.broadcast_arrays(*bounds))
        except ValueError:
            raise ValueError(
                f"low and high must have equally many entries, got shapes {bounds[0].shape} and {bounds[1].shape}"
            ) from None
        if not (highs - lows >= SMALLEST).all() or max(np.abs(lows).max(), np.abs(highs).max()) > LARGEST:
            raise ValueError("low must be below high by at least 2**-200 everywhere, and both at most 2**200 in size")
        for name, bound in (("low", lows), ("high", highs)):
            bound.flags.writeable = False
            object.__setattr__(self, name, bound)

    def project(self, points: ArrayLike) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n)."""
        array = _vectors(points)
        self.bounds(array.shape[-1])
        return np.clip(array, self.low, self.high)

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        sizes = np.broadcast_to(np.maximum(np.abs(self.low), np.abs(self.high)), n)
        return float(np.linalg.norm(sizes)) * (1.0 + (n + 8) * 2.0**-52)

    def bounds(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return low and high, of shape (n,) each; ValueError if they are of another length."""
        if self.low.ndim == 1 and len(self.low) != n:
            raise ValueError(f"the box has {len(self.low)} coordinates, the problem {n}")
        return np.broadcast_to(self.low, n), np.broadcast_to(self.high, n)


Constraint: TypeAlias = L2Ball | L1Ball | Box


def in_range(name: str, value: object) -> float:
    """Return a float from 2**-200 to 2**200."""
    number = check.positive(name, value)
    if not SMALLEST <= number <= LARGEST:
        raise ValueError(f"{name} must lie between 2**-200 and 2**200, got {number!r}")
    return number


def checked_constraint(constraint: Constraint | None, n: int) -> Constraint | None:
    """Return a constraint, or None; TypeError or ValueError for anything else and for a box of other dimension."""
    if constraint is not None and not isinstance(constraint, L2Ball | L1Ball | Box):
        raise TypeError(f"constraint must be L2Ball, L1Ball, Box or None, got {type(constraint).__name__}")
    if isinstance(constraint, Box):
        constraint.bounds(n)
    return constraint


def _vectors(points: ArrayLike) -> FloatArray:
    array = np.asarray(points)
    return finite_array("points", array, (max(array.ndim, 1),))
