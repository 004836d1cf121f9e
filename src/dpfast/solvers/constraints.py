"""Convex sets over which problems are solved, and penalties added to a loss.

Sets are balls of the L1 and L2 norms, and boxes, with projections onto them. Penalties are L1, squared L2, both, or any
with a proximal map. They are public: nothing in them may come from data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

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
        largest = np.maximum.reduce(np.abs(array), axis=-1, keepdims=True, initial=self.radius)
        with np.errstate(under="ignore"):
            norms = largest * np.sqrt(np.add.reduce(np.square(array / largest), axis=-1, keepdims=True))
        is_within = norms <= self.radius
        if np.logical_and.reduce(is_within, axis=None):
            return array.copy()
        return np.where(is_within, array, array / np.maximum(norms, self.radius) * self.radius)


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


@runtime_checkable
class Proximable(Protocol):
    """A closed convex function with a proximal map; may be infinite outside a convex set."""

    def value(self, x: FloatArray) -> float:
        """Value at x."""

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Minimiser of ||x - v||^2/2 + step value(x)."""

    def prox_error(self, norm: float, step: float) -> float:
        """Upper bound on the L2 distance of the result of `prox` from the exact minimiser, where ||v|| <= norm."""


@dataclass(frozen=True)
class ElasticNet:
    """The penalty l1 ||x||_1 + l2 ||x||_2^2 / 2.

    Parameters
    ----------
    l1, l2 : float
        At least 0, at most 2**200.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import ElasticNet
    >>> ElasticNet(1.0, 1.0).prox(np.array([3.0, -0.5]), 1.0)
    array([ 1., -0.])
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        for name in ("l1", "l2"):
            object.__setattr__(self, name, penalty_weight(name, getattr(self, name)))

    def value(self, x: FloatArray) -> float:
        """Value at x."""
        return float(self.l1 * np.abs(x).sum() + 0.5 * self.l2 * (x @ x))

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Minimiser of ||x - v||^2/2 + step value(x): soft-thresholding, then scaling."""
        return np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0) / (1.0 + step * self.l2)

    def prox_error(self, norm: float, step: float) -> float:
        """Upper bound on the L2 distance of the result of `prox` from the exact minimiser, where ||v|| <= norm.

        Entries that are not zero exceed step l1, so rounding it counts no more than rounding v.
        """
        return 2.0**-50 * norm


class Lasso(ElasticNet):
    """The penalty weight ||x||_1, weight at least 0, at most 2**200."""

    def __init__(self, weight: float) -> None:
        super().__init__(penalty_weight("weight", weight), 0.0)

    @property
    def weight(self) -> float:
        """Factor of the norm."""
        return self.l1

    def __repr__(self) -> str:
        return f"Lasso(weight={self.l1!r})"


class Ridge(ElasticNet):
    """The penalty weight ||x||_2^2 / 2, weight at least 0, at most 2**200."""

    def __init__(self, weight: float) -> None:
        super().__init__(0.0, penalty_weight("weight", weight))

    @property
    def weight(self) -> float:
        """Factor of half the squared norm."""
        return self.l2

    def __repr__(self) -> str:
        return f"Ridge(weight={self.l2!r})"


def penalty_weight(name: str, value: object) -> float:
    """Return a float from 0 to 2**200."""
    number = check.nonnegative(name, value)
    if number > LARGEST:
        raise ValueError(f"{name} must be at most 2**200, got {number!r}")
    return number
