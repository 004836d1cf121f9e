"""Ways to sum rows that keep to what is declared of them, and the public choice of the one whose noise costs least.

Rows about the origin, or rows about the centre of a declared box together with their sums, from which the moments about
the origin follow. The choice is made from declared numbers alone, so it costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray
from dpfast.privacy import Adjacency, Composition, Privacy
from dpfast.releases.moments import (
    DeclaredPeople,
    MomentCalibration,
    calibrate,
    calibrate_each_outcome,
    calibrate_sampled,
    printed_primo,
    printed_sampled_primo,
    weighted_cost,
)
from dpfast.statistics import rounded_bound
from dpfast.statistics.rows import RowMap, centred

NONNEGATIVE = RowMap(np.zeros(1), np.full(1, np.inf))


@dataclass(frozen=True)
class Frame:
    """A way to sum rows: the public map they pass through, the largest norm after it, and what is released of them."""

    row_map: RowMap | None
    radius: float
    nonnegative: bool
    sums: bool

    def blocks(self, adjacency: Adjacency, *, several_rows: bool = False) -> list[str]:
        """Name the blocks of moments that are released under an adjacency."""
        names = ["xx", "xy"]
        if self.sums:
            names += ["x", "y"]
            # Under replace-one the number of people is public, and that of rows if a person is a row.
            names += ["n"] if adjacency == "add_remove" or several_rows else []
        return names


@dataclass(frozen=True)
class Route:
    """A frame with its calibration, and what the noise costs."""

    frame: Frame
    calibration: MomentCalibration
    cost: float

    @property
    def center(self) -> FloatArray | None:
        """The public point that was subtracted from every row, if any."""
        return None if self.frame.row_map is None else self.frame.row_map.center


def row_frames(
    features: int, bound: float | None, *, box: object = None, nonnegative: bool = False, sums: bool = False
) -> list[Frame]:
    """List the ways to sum rows: about the origin, and about the centre of a box if one is declared.

    Parameters
    ----------
    features : int
        Length of a row.
    bound : float or None
        L2 norm that rows are scaled to stay within; None if the box alone bounds them.
    box : tuple of (low, high), optional
        Declared limits of the entries, numbers or arrays.
    nonnegative : bool, default False
        Whether rows (and outcomes) are declared to be at least 0 everywhere.
    sums : bool, default False
        Whether the sums of rows and of outcomes are wanted in any case.

    Returns
    -------
    list of Frame

    Raises
    ------
    ValueError, TypeError
        If the box is not one of `features` columns, or leaves room for zeros only.
    """
    largest = math.inf if bound is None else bound
    if box is None:
        return [Frame(NONNEGATIVE if nonnegative else None, largest, nonnegative, sums)]
    low, high = (_broadcast(side, features) for side in check_box(box))
    if nonnegative:
        low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
    farthest = float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))
    if farthest == 0.0:
        raise ValueError("box_x and nonnegative together leave room for zeros only")
    about_origin = Frame(RowMap(low, high), min(largest, farthest), nonnegative, sums)
    row_map, radius = centred(low, high, largest)
    if radius == 0.0:
        return [about_origin]
    return [about_origin, Frame(row_map, radius, nonnegative=False, sums=True)]


def cheapest_route(
    frames: list[Frame],
    privacy: Privacy,
    bound_y: float,
    shape: tuple[int, int],
    max_rows: int | None = None,
    block_bounds: tuple[float | None, float | None] = (None, None),
) -> Route:
    """Calibrate every frame and return the one whose noise costs least.

    Parameters
    ----------
    frames : list of Frame
        As `row_frames` gives them.
    privacy : Privacy
        The guarantee wanted.
    bound_y : float
        L2 norm that outcome rows are held to.
    shape : tuple of int
        Numbers of features and of outcomes.
    max_rows : int, optional
        Most rows of a person, where people may own several.
    block_bounds : tuple of float or None
        Goes with `max_rows`: Frobenius norms of a person's X'X and X'Y. Frames that keep sums have none.

    Returns
    -------
    Route
    """
    features, outcomes = shape
    radius_y = rounded_bound(bound_y, outcomes)
    signal = features * (radius_y / min(frame.radius for frame in frames)) ** 2
    routes = []
    for frame in frames:
        radius = rounded_bound(frame.radius, features)
        people = None
        if max_rows is not None:
            people = DeclaredPeople.of(max_rows, block_bounds, frame.radius, bound_y, shape)
        costs = _costs(features, outcomes, radius, radius_y, signal)
        weights = {name: costs[name] for name in frame.blocks(privacy.adjacency, several_rows=people is not None)}
        calibration = calibrate(privacy, radius, radius_y, shape, weights, nonnegative=frame.nonnegative, people=people)
        routes.append(Route(frame, calibration, weighted_cost(calibration, weights)))
    return min(routes, key=lambda route: route.cost)


def independent_route(
    frame: Frame, privacy: Privacy, bound_y: float, shape: tuple[int, int], composition: Composition
) -> Route:
    """Calibrate the naive baseline: every outcome has a release of its own.

    Parameters
    ----------
    frame : Frame
        Rows about the origin.
    privacy : Privacy
        The guarantee of all outcomes together.
    bound_y : float
        Largest absolute value of an outcome: that of a row of them.
    shape : tuple of int
        Numbers of features and of outcomes.
    composition : {"basic", "advanced", "mu"}
        How the budget is shared.

    Returns
    -------
    Route
    """
    features, outcomes = shape
    radius = rounded_bound(frame.radius, features)
    costs = _costs(features, 1, radius, bound_y, features * (bound_y / radius) ** 2)
    weights = {name: costs[name] for name in ("xx", "xy")}
    calibration = calibrate_each_outcome(privacy, radius, bound_y, shape, weights, composition)
    return Route(frame, calibration, outcomes * weighted_cost(calibration, weights))


def sampled_route(
    frame: Frame, privacy: Privacy, bound_y: float, shape: tuple[int, int], sample: tuple[int, int]
) -> Route:
    """Calibrate X'X of a secret sample and X'Y of all rows.

    Parameters
    ----------
    frame : Frame
        Rows about the origin, without sums.
    privacy, bound_y, shape
        As for `cheapest_route`.
    sample : tuple of int
        Rows in the sample and in all.

    Returns
    -------
    Route
        Its cost is that of the noise; the error of sampling comes on top.
    """
    features, outcomes = shape
    radius = rounded_bound(frame.radius, features)
    costs = _costs(features, outcomes, radius, bound_y, features * (bound_y / radius) ** 2)
    weights = {name: costs[name] for name in ("xx", "xy")}
    calibration = calibrate_sampled(privacy, radius, bound_y, shape, weights, sample)
    return Route(frame, calibration, weighted_cost(calibration, weights))


def printed_route(
    frame: Frame,
    privacy: Privacy,
    bound_y: float,
    shape: tuple[int, int],
    sample: tuple[int, int] | None = None,
) -> Route:
    """Calibrate as PRIMO prints it: Algorithm 1, or 4 where X'X is of a sample.

    Parameters
    ----------
    frame, privacy, bound_y, shape
        As for `sampled_route`.
    sample : tuple of int, optional
        Rows in the sample and in all.

    Returns
    -------
    Route
    """
    features, outcomes = shape
    radius = rounded_bound(frame.radius, features)
    if sample is None:
        calibration = printed_primo(privacy, radius, bound_y)
    else:
        calibration = printed_sampled_primo(privacy, radius, bound_y, shape, sample)
    costs = _costs(features, outcomes, radius, bound_y, features * (bound_y / radius) ** 2)
    # The printed noise is as large off the diagonal of X'X as on it.
    weights = {"xx": costs["xx"] * 2.0 * features / (features + 1), "xy": costs["xy"]}
    return Route(frame, calibration, weighted_cost(calibration, weights))


def cost_of_sampling(route: Route, of_all: Route, shape: tuple[int, int]) -> dict[str, float]:
    """Compare X'X of a sample with that of all rows: what it costs in noise, and saves in arithmetic.

    Parameters
    ----------
    route, of_all : Route
        With a sample, and without.
    shape : tuple of int
        Numbers of features and of outcomes.

    Returns
    -------
    dict of str to float
        By what it is, in words.
    """
    features, outcomes = shape
    calibration, scales = route.calibration, of_all.calibration.scales
    products_of_xx, products_of_xy = features * (features + 1) / 2, features * outcomes
    return {
        "noise in xx over that without sampling": calibration.xx_factor * calibration.scales.xx / scales.xx,
        "noise in xy over that without sampling": calibration.scales.xy / scales.xy,
        "fraction of the arithmetic saved": (1.0 - 1.0 / calibration.xx_factor)
        * products_of_xx
        / (products_of_xx + products_of_xy),
    }


def _costs(features: int, outcomes: int, radius: float, bound_y: float, signal: float) -> dict[str, float]:
    """Weight of each block's noise variance in the error of the predictions, up to one factor common to all.

    The error is r'(X'X)^-1 r for the noise r in X'Y - X'X theta, summed over outcomes. With rows spread evenly, X'X is
    a multiple of the identity and the weights are those in ||r||^2. Noise in the sum of rows is multiplied by a
    prediction at the centre, at most bound_y; noise in the sum of outcomes moves the mean prediction alone.

    Parameters
    ----------
    features, outcomes : int
        Sizes.
    radius, bound_y : float
        Largest norms of a row of features and of outcomes.
    signal : float
        Assumed squared norm of all coefficients: outcomes at their bound, explained by rows at theirs.
    """
    spread = radius**2 / features
    return {
        "xx": signal * (features + 1) / 2.0,
        "xy": float(features * outcomes),
        "x": features * bound_y**2 + signal * spread,
        "y": outcomes * spread,
        "n": bound_y**2 * spread,
    }


def check_box(box: object) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the declared limits as two arrays of numbers, finite and in order."""
    if not isinstance(box, tuple | list) or len(box) != 2:
        raise TypeError(f"box_x must be a pair (low, high), got {type(box).__name__}")
    low, high = (np.asarray(side) for side in box)
    for name, side in (("low", low), ("high", high)):
        if side.dtype.kind not in "iuf" or side.ndim > 1 or not np.all(np.isfinite(side)):
            raise ValueError(f"box_x's {name} must be a finite number or a one-dimensional array of them")
    if not {low.size, high.size} <= {1, max(low.size, high.size)}:
        raise ValueError(f"box_x's low and high must have one length, got {low.size} and {high.size}")
    if not np.all(low <= high) or not np.any(low < high):
        raise ValueError("box_x's low must be at most its high everywhere, and below it somewhere")
    return low, high


def _broadcast(side: NDArray[Any], features: int) -> FloatArray:
    if side.ndim == 1 and len(side) != features:
        raise ValueError(f"box_x must hold one entry for each of {features} features, got {len(side)}")
    return np.broadcast_to(side, (features,)).astype(np.float64)
