"""Convex sets over which problems are solved: balls of the L1 and L2 norms, boxes; projections onto them.

They are public: nothing in them may come from data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels import projections
from dpfast.kernels.columns import in_c_order
from dpfast.kernels.threads import RowRanges, resolve_n_threads, run_in_threads

# Squares of what is measured in them, times or over any sensible constant, neither overflow nor underflow.
LARGEST = 2.0**200
SMALLEST = 2.0**-200

_ENTRIES_PER_THREAD = 20_000  # some 0.1 ms of one core: below, starting a thread costs more than it brings


@dataclass(frozen=True)
class L2Ball:
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

    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", in_range("radius", self.radius))

    def project(self, points: ArrayLike) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n)."""
        array = _vectors(points)
        largest = np.abs(array).max(axis=-1, keepdims=True, initial=self.radius)
        with np.errstate(under="ignore"):
            norms = largest * np.sqrt(np.square(array / largest).sum(axis=-1, keepdims=True))
        return np.where(norms <= self.radius, array, array / np.maximum(norms, self.radius) * self.radius)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether each vector of an array of shape (..., n) is in the set, to rounding of its norm to nearest."""
        array = _vectors(points)
        return np.asarray(np.apply_along_axis(lambda x: math.hypot(*x) <= self.radius, -1, array))

    def support(self, directions: ArrayLike) -> FloatArray:
        """Largest inner product of a point of the set with each vector of an array of shape (..., n)."""
        return np.asarray(self.radius * np.linalg.norm(_vectors(directions), axis=-1))

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        return self.radius

    def diameter(self, n: int) -> float:
        """Upper bound on the L2 distance between points of the set in n dimensions."""
        return 2.0 * self.radius


@dataclass(frozen=True)
class L1Ball:
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

    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", in_range("radius", self.radius))

    def project(self, points: ArrayLike, *, n_threads: int | None = None) -> FloatArray:
        """Nearest point of the set to each vector of an array of shape (..., n), in linear time (Condat 2016)."""
        return _project_in_threads(_vectors(points), self.radius, simplex=False, n_threads=n_threads)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether each vector of an array of shape (..., n) is in the set, to rounding of its norm to nearest."""
        array = _vectors(points)
        return np.asarray(np.apply_along_axis(lambda x: math.fsum(np.abs(x)) <= self.radius, -1, array))

    def support(self, directions: ArrayLike) -> FloatArray:
        """Largest inner product of a point of the set with each vector of an array of shape (..., n)."""
        return np.asarray(self.radius * np.abs(_vectors(directions)).max(axis=-1))

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        return self.radius

    def diameter(self, n: int) -> float:
        """Upper bound on the L2 distance between points of the set in n dimensions."""
        return 2.0 * self.radius


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
        return np.clip(self._fitting(points), self.low, self.high)

    def contains(self, points: ArrayLike) -> NDArray[np.bool_]:
        """Whether each vector of an array of shape (..., n) is in the set."""
        array = self._fitting(points)
        return np.asarray(((self.low <= array) & (array <= self.high)).all(axis=-1))

    def support(self, directions: ArrayLike) -> FloatArray:
        """Largest inner product of a point of the set with each vector of an array of shape (..., n)."""
        array = self._fitting(directions)
        return np.asarray(np.maximum(array * self.low, array * self.high).sum(axis=-1))

    def norm_bound(self, n: int) -> float:
        """Upper bound on the L2 norm of the points of the set in n dimensions."""
        return self._norm(np.maximum(np.abs(self.low), np.abs(self.high)), n)

    def diameter(self, n: int) -> float:
        """Upper bound on the L2 distance between points of the set in n dimensions."""
        return self._norm(self.high - self.low, n)

    def bounds(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Return low and high, of shape (n,) each; ValueError if they are of another length."""
        if self.low.ndim == 1 and len(self.low) != n:
            raise ValueError(f"the box has {len(self.low)} coordinates, the problem {n}")
        return np.broadcast_to(self.low, n), np.broadcast_to(self.high, n)

    def _fitting(self, points: ArrayLike) -> FloatArray:
        array = _vectors(points)
        self.bounds(array.shape[-1])
        return array

    def _norm(self, sizes: FloatArray, n: int) -> float:
        return float(np.linalg.norm(np.broadcast_to(sizes, n))) * (1.0 + (n + 8) * 2.0**-52)


Constraint: TypeAlias = L2Ball | L1Ball | Box


def project_onto_simplex(points: ArrayLike, total: float = 1.0, *, n_threads: int | None = None) -> FloatArray:
    """Nearest point of {x >= 0, sum x = total} to each vector, in linear time.

    Parameters
    ----------
    points : array_like of shape (..., n)
        Finite.
    total : float, default 1.0
        Positive, from 2**-200 to 2**200.
    n_threads : int, optional
        Threads for batches; the result does not depend on it.

    Returns
    -------
    ndarray of shape (..., n)

    References
    ----------
    Condat, L. (2016). Fast projection onto the simplex and the l1 ball. Mathematical Programming 158, 575-585.

    Examples
    --------
    >>> from dpfast.solvers import project_onto_simplex
    >>> project_onto_simplex([0.6, 0.8, -1.0])
    array([0.4, 0.6, 0. ])
    """
    return _project_in_threads(_vectors(points), in_range("total", total), simplex=True, n_threads=n_threads)


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


def finite_array(name: str, values: Any, dimensions: tuple[int, ...]) -> FloatArray:
    """Return a contiguous float64 array of finite entries with one of the given numbers of dimensions, not empty."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim not in dimensions or array.size == 0:
        accepted = " or ".join(map(str, dimensions))
        raise ValueError(f"{name} must have {accepted} dimensions and at least one entry, got shape {array.shape}")
    array = in_c_order(array, np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def _vectors(points: ArrayLike) -> FloatArray:
    array = np.asarray(points)
    return finite_array("points", array, (max(array.ndim, 1),))


def _project_in_threads(points: FloatArray, radius: float, *, simplex: bool, n_threads: int | None) -> FloatArray:
    rows = points.reshape(-1, points.shape[-1])
    projected = np.empty_like(rows)
    threads = resolve_n_threads(n_threads) if n_threads is not None or len(rows) > 1 else 1
    threads = max(1, min(threads, rows.size // _ENTRIES_PER_THREAD))
    ranges = RowRanges(len(rows), -(-len(rows) // (4 * threads)))

    def project_ranges() -> None:
        workspace = np.empty(rows.shape[1])
        for start, stop in ranges:
            projections.project(rows, simplex, radius, start, stop, workspace, projected)

    run_in_threads([project_ranges] * threads, ranges.stop)
    return projected.reshape(points.shape)
