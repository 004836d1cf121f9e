"""Sufficient statistics of first-visit returns on features, each trajectory clipped, summed exactly.

A trajectory contributes A = sum of rho_s phi_s phi_s' and b = sum of rho_s phi_s F_s over the states it visits, F_s its
first-visit return less the lower end of the range: nonnegative. It is a person with one row for each of these states,
features sqrt(rho_s) phi_s with outcome sqrt(rho_s) F_s, at most min(horizon, n_states) rows. The sums are those of
`gram` with `groups`, so the calibration is the one for people's rows.

Without features A is diagonal, and only its diagonal is summed, at the cost of the visits alone: A and b as integers
on grids of their own, scaled by one factor and rounded to nearest. Neither has a negative entry, so two are at most
sqrt(||A||**2 + ||A'||**2) apart, and ``block_moment_mu(..., nonnegative=True)`` applies. No product structure is needed
for that, so rounding A and b separately is allowed. The facts about people's rows are not used, as there are none.

States of one weight may be summed with returns about the middle of the range (`centered`): then a trajectory adds one
integer to the count of every state it visits, and to its returns an integer between two others. Both ends are what the
kernel gives for the least and the largest return, as it is monotone in the return: `dpfast.privacy.block_moments` has
the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import redact_errors, suppress_float_warnings
from dpfast._threads import resolve_n_threads
from dpfast.io.partitions import Partitions
from dpfast.io.people import People
from dpfast.io.trajectories import Trajectories
from dpfast.kernels import first_visits
from dpfast.kernels.columns import FixedPoint
from dpfast.privacy.block_moments import BlockBounds, VisitLimits
from dpfast.privacy.guarantee import sqrt_up, up
from dpfast.statistics import returns
from dpfast.statistics.accumulator import GramAccumulator, PersonAccumulator
from dpfast.statistics.returns import ReturnGrid
from dpfast.statistics.rows import PersonUnit, person_block_bounds, rounded_bound

_STEPS_PER_CHUNK = 1 << 16
_VALUES_PER_CHUNK = 1 << 22
_MOST_VISITED = 1 << 20
# Entries of a trajectory's vectors are integers up to this power of two.
_LOG2_ENTRY = 30
_SUM_RANGE = 1 << 62
_SMALLEST, _LARGEST = 1e-100, 1e100
# More than the rounding errors of a sum of 2**20 terms.
_SUM_ROUND_UP = 1.0 + 2.0**-30


@dataclass(frozen=True)
class VisitBounds:
    """Bounds on one trajectory's part in sums over visits, from public numbers alone, to calibrate noise with."""

    #: Norms of its A, b and weighted returns as they are summed; with returns about the middle, entries state by state.
    block: BlockBounds | VisitLimits
    #: Whether no A and no b can have a negative entry.
    nonnegative: bool
    #: Whether A is known to be diagonal, and summed so.
    diagonal: bool
    #: What it owns: a row for each state it visits.
    unit: PersonUnit
    #: Largest norms of such a row, as summed, and of its outcome; without features the roots of the largest entries.
    radii: tuple[float, float]
    n_features: int


@dataclass(frozen=True, eq=False, repr=False)
class SufficientStatistics:
    """Sums of trajectories' clipped A and b. **Not private**: they belong to the owner of the data.

    Parameters
    ----------
    exact_xx : FixedPoint
        Sum of A: (n_features, n_features), or its diagonal (n_states,) without features.
    exact_xy : FixedPoint
        Sum of b, of returns less `origin`: (n_features,) or (n_states,).
    n_trajectories : int
        How many there are.
    origin : float
        The zero of returns: the lower end of their range, or about its middle.
    public : VisitBounds
        Bounds on one trajectory's part, to calibrate with.
    """

    exact_xx: FixedPoint
    exact_xy: FixedPoint
    n_trajectories: int
    origin: float
    public: VisitBounds

    @property
    def bounds(self) -> BlockBounds | VisitLimits:
        """Bounds on one trajectory's part: norms of its A, b and weighted returns, or its entries state by state."""
        return self.public.block

    @property
    def unit(self) -> PersonUnit:
        """The declared limits of a trajectory: a person with a row for each state it visits."""
        return self.public.unit

    @property
    def xx(self) -> FloatArray:
        """Sum of A, each entry rounded once to the nearest double."""
        return self.exact_xx.to_float64()

    @property
    def xy(self) -> FloatArray:
        """Sum of b, each entry rounded once to the nearest double."""
        return self.exact_xy.to_float64()

    def __add__(self, other: object) -> SufficientStatistics:
        """Return the sums over both sets of trajectories, exactly.

        ValueError if what is public of them differs; OverflowError beyond 2**31 trajectories.
        """
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        if (self.public, self.origin) != (other.public, other.origin):
            raise ValueError(f"{self!r} and {other!r} differ in what was declared of trajectories")
        n_trajectories = self.n_trajectories + other.n_trajectories
        check_capacity(n_trajectories)
        exact = self.exact_xx + other.exact_xx, self.exact_xy + other.exact_xy
        return SufficientStatistics(*exact, n_trajectories, self.origin, self.public)

    def __repr__(self) -> str:
        kind = "diagonal " if self.public.diagonal else ""
        return f"<SufficientStatistics, {kind}of {self.public.n_features} features: not private>"


@suppress_float_warnings
def sufficient_statistics(
    trajectories: Trajectories | Iterable[Trajectories] | Partitions,
    gamma: float,
    *,
    return_range: tuple[float, float],
    features: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    horizon: int | None = None,
    lag: int = 0,
    bound_xx: float | None = None,
    bound_xy: float | None = None,
    centered: bool = False,
    n_threads: int | None = None,
) -> SufficientStatistics:
    """Sum ``rho_s phi_s phi_s'`` and ``rho_s phi_s F_s`` over trajectories and the states each visits. **Not private**.

    Parameters
    ----------
    trajectories, gamma, horizon, lag, n_threads
        As for `first_visit_returns`.
    return_range : tuple of float
        Public. Returns are clipped to it, and its lower end is subtracted.
    features : array_like (n_states, n_features), optional
        Phi, public. Default: one for each state, of which only the diagonal of A is summed.
    weights : array_like (n_states,), optional
        rho, public, nonnegative, not all 0; default 1 each.
    bound_xx, bound_xy : float, optional
        Frobenius norms of one trajectory's A and b, public. A trajectory beyond them is scaled by the one factor that
        brings it within both. Default: what features, weights, range and horizon allow.
    centered : bool, default False
        Count returns from about the middle of the range, which needs less noise: for states of equal weight, without
        features and such norms.

    Returns
    -------
    SufficientStatistics
        The same to the bit for any order, split into blocks and number of threads. The effect of replacing one
        trajectory is given by `dpfast.privacy.block_moment_mu` of its `bounds`, and for centered sums by
        `visit_moment_mu`.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    Examples
    --------
    >>> from dpfast.statistics import Trajectories, sufficient_statistics
    >>> trajectories = Trajectories([0, 1, 0, 1], [0.0, 1.0, 1.0, 0.25], [0, 3, 4], n_states=2)
    >>> sums = sufficient_statistics(trajectories, 0.5, return_range=(0.0, 2.0))
    >>> sums
    <SufficientStatistics, diagonal of 2 features: not private>
    >>> sums.xx, sums.xy
    (array([1., 2.]), array([0.75, 1.75]))
    """
    if isinstance(trajectories, Partitions):
        options: dict[str, Any] = {"return_range": return_range, "features": features, "weights": weights}
        options |= {"horizon": horizon, "lag": lag, "bound_xx": bound_xx, "bound_xy": bound_xy, "centered": centered}
        of_blocks = partial(sufficient_statistics, gamma=gamma, **options, n_threads=n_threads or 1)
        return returns.sum_of_trajectories(trajectories, of_blocks)
    gamma, horizon = returns.checked_discount(gamma, horizon)
    scheme = _Scheme.checked(return_range, features, weights, horizon, lag, bound_xx, bound_xy, centered)
    resolve_n_threads(n_threads)
    sums: _Sums | None = None
    n_trajectories = 0
    for block in returns.blocks_of(trajectories, some=True):
        sums = sums or scheme.sums(block.n_states, n_threads)
        n_trajectories += len(block)
        check_capacity(n_trajectories)
        for visits in chunks_of_visits(block, gamma, horizon, scheme.lag, scheme.grid, sums.chunk_steps):
            sums.add(*visits)
    assert sums is not None
    return SufficientStatistics(*sums.exact(), n_trajectories, sums.origin, sums.public)


@suppress_float_warnings
def extreme_counts(
    trajectories: Trajectories | Iterable[Trajectories] | Partitions,
    gamma: float,
    grid: ReturnGrid,
    edges: IntArray,
    *,
    horizon: int | None = None,
    lag: int = 0,
) -> FixedPoint:
    """Count trajectories by their largest and by their least first-visit return that counts. **Not private**.

    Exact, (2, n_bins): a trajectory is in one bin of each, from ``edges[i]`` up to below ``edges[i + 1]`` in units of
    the grid. Every trajectory counts, as its first step is a visit.
    """
    if isinstance(trajectories, Partitions):
        of_blocks = partial(extreme_counts, gamma=gamma, grid=grid, edges=edges, horizon=horizon, lag=lag)
        return returns.sum_of_trajectories(trajectories, of_blocks)
    gamma, horizon = returns.checked_discount(gamma, horizon)
    lag = returns.checked_lag(lag, horizon)
    counts = np.zeros((2, len(edges) - 1), np.int64)
    for block in returns.blocks_of(trajectories):
        for _, units, ends in chunks_of_visits(block, gamma, horizon, lag, grid, _STEPS_PER_CHUNK):
            starts = np.concatenate([[0], ends[:-1]])
            for histogram, extreme in zip(counts, (np.maximum, np.minimum), strict=True):
                found = np.searchsorted(edges[1:-1], extreme.reduceat(units, starts), side="right")
                histogram += np.bincount(found, minlength=len(histogram))
    return FixedPoint.from_integers(counts, 0)


def visit_bounds(n_states: int, **options: Any) -> VisitBounds:
    """Return what one trajectory may add, before any is read; options are those of `sufficient_statistics`."""
    return _Scheme.checked(**options).sums(n_states).public


def check_most_visited(most_visited: int) -> None:
    """Refuse more visits of a trajectory than norms of them are computed for."""
    if most_visited > _MOST_VISITED:
        raise ValueError(f"horizon must be given, and be at most {_MOST_VISITED}, with so many states")


def check_capacity(n_trajectories: int) -> None:
    """Refuse more trajectories than sums of 64 bits are for."""
    if n_trajectories << (_LOG2_ENTRY + 1) >= _SUM_RANGE:
        raise OverflowError("exact sums are kept in 64 bits, which suffice for 2**31 trajectories")


@dataclass(frozen=True)
class _Scheme:
    """How trajectories are summed, as far as it is known before their states are."""

    grid: ReturnGrid
    features: ArrayLike | None
    weights: ArrayLike | None
    horizon: int | None
    lag: int
    bounds: tuple[float | None, float | None]
    centered: bool

    @classmethod
    def checked(
        cls,
        return_range: object,
        features: ArrayLike | None,
        weights: ArrayLike | None,
        horizon: int | None,
        lag: object,
        bound_xx: object,
        bound_xy: object,
        centered: object,
    ) -> _Scheme:
        grid = ReturnGrid.for_range(*check.limits("return_range", return_range))
        xx = check.optional(check.positive, "bound_xx", bound_xx)
        bounds = xx, check.optional(check.positive, "bound_xy", bound_xy)
        alone = features is None and bounds == (None, None)
        if check.boolean("centered", centered) and not alone:
            raise ValueError("centered sums have no features and no bounds on a trajectory's norms")
        return cls(grid, features, weights, horizon, returns.checked_lag(lag, horizon), bounds, bool(centered))

    def sums(self, n_states: int, n_threads: int | None = None) -> _Sums:
        sizes = _SMALLEST, _LARGEST
        rho = np.ones(n_states) if self.weights is None else checked_weights(self.weights, n_states, sizes)
        most_visited = n_states if self.horizon is None else min(self.horizon - self.lag, n_states)
        check_most_visited(most_visited)
        if self.centered:
            return _Centered(rho, self, most_visited)
        if self.features is None:
            return _Diagonal(rho, self, most_visited)
        features = checked_of_states("features", self.features, n_states, 2, sizes)
        return _Featured(features, rho, self, most_visited, n_threads)


def chunks_of_visits(
    block: Trajectories, gamma: float, horizon: int | None, lag: int, grid: ReturnGrid, chunk_steps: int
) -> Iterator[tuple[NDArray[np.int32], FloatArray, IntArray]]:
    """List the first visits of some trajectories at a time: states, returns in units, and where each one's end."""
    kernel = returns.first_visits_kernel(block, gamma, horizon, lag, grid)
    first = 0
    while first < len(block):
        beyond = int(np.searchsorted(block.offsets, block.offsets[first] + chunk_steps, side="right")) - 1
        last = min(max(beyond, first + 1), len(block))
        n_steps = int(block.offsets[last] - block.offsets[first])
        visited, units = np.empty(n_steps, np.int32), np.empty(n_steps)
        ends = np.empty(last - first, np.int64)
        n = kernel.list_units(block.states, block.rewards, block.offsets, first, last, visited, units, ends)
        yield visited[:n], units[:n], ends
        first = last


class _Diagonal:
    """One feature a state: diagonals of A on the grid ``2**-exponent_a``, b on ``2**-exponent_b``."""

    chunk_steps = _STEPS_PER_CHUNK

    def __init__(self, rho: FloatArray, scheme: _Scheme, most_visited: int) -> None:
        grid, heaviest = scheme.grid, float(rho.max())
        exponent_a = _LOG2_ENTRY - math.frexp(heaviest)[1]
        # A weight of 2**30 times a return of 2**31 units is an entry of 2**30.
        exponent_b = exponent_a + grid.exponent - (_LOG2_ENTRY + 1)
        self._exponents = exponent_a, exponent_b
        self._weights = np.rint(np.ldexp(rho, exponent_a))
        self._scale = 2.0 ** -(_LOG2_ENTRY + 1)
        self._totals = np.zeros((len(rho), 2), np.int64)
        self._bound_a = self._bound_b = math.inf
        self.origin = grid.low
        self.public = self._declared(rho, scheme, most_visited)

    def _declared(self, rho: FloatArray, scheme: _Scheme, most_visited: int) -> VisitBounds:
        grid, heaviest, (exponent_a, exponent_b) = scheme.grid, float(rho.max()), self._exponents
        largest_b = np.rint(self._weights * grid.largest * self._scale)
        self._bound_a, most_a = _padded(scheme.bounds[0], exponent_a, self._weights, most_visited)
        self._bound_b, most_b = _padded(scheme.bounds[1], exponent_b, largest_b, most_visited)
        xx, xy = (
            sqrt_up(squared / Fraction(4) ** exponent)
            for squared, exponent in ((most_a, exponent_a), (most_b, exponent_b))
        )
        # Such outcomes never lower the bound on b: with nonnegative entries nothing else depends on them.
        outcomes = max(math.sqrt(_top_sum(rho, most_visited)) * grid.width, xy / math.sqrt(xx)) * _SUM_ROUND_UP
        return VisitBounds(
            BlockBounds(xx, xy, outcomes),
            nonnegative=True,
            diagonal=True,
            unit=PersonUnit(most_visited, *scheme.bounds),
            radii=(math.sqrt(heaviest), math.sqrt(heaviest) * grid.width),
            n_features=len(rho),
        )

    def add(self, visited: NDArray[np.int32], units: FloatArray, ends: IntArray) -> None:
        first_visits.add_diagonal(
            visited, units, ends, len(ends), self._weights, self._scale, self._bound_a, self._bound_b, self._totals
        )

    def exact(self) -> tuple[FixedPoint, FixedPoint]:
        xx, xy = (
            FixedPoint.from_integers(totals, -exponent)
            for totals, exponent in zip(self._totals.T, self._exponents, strict=True)
        )
        return xx, xy


class _Centered(_Diagonal):
    """States of one weight, with returns about the middle of the range: b on the same grid, of either sign."""

    def _declared(self, rho: FloatArray, scheme: _Scheme, most_visited: int) -> VisitBounds:
        if not np.all(rho == rho[0]):
            raise ValueError("centered sums need equal weights")
        grid, (exponent_a, exponent_b) = scheme.grid, self._exponents
        self._middle, self.origin = float(grid.middle_units), grid.middle
        weight = float(self._weights[0])
        ends = [int(np.rint(weight * (units - self._middle) * self._scale)) for units in (0.0, float(grid.largest))]
        visit = up(Fraction(int(weight)) / Fraction(2) ** exponent_a)
        width, reach = (
            up(Fraction(units) / Fraction(2) ** exponent_b) for units in (ends[1] - ends[0], max(ends[1], -ends[0]))
        )
        return VisitBounds(
            VisitLimits(len(rho), most_visited, visit, width, reach),
            nonnegative=False,
            diagonal=True,
            unit=PersonUnit(most_visited, None, None),
            radii=(math.sqrt(visit), width / math.sqrt(visit)),
            n_features=len(rho),
        )

    def add(self, visited: NDArray[np.int32], units: FloatArray, ends: IntArray) -> None:
        super().add(visited, units - self._middle, ends)


def _padded(bound: float | None, exponent: int, largest: FloatArray, most_visited: int) -> tuple[float, Fraction]:
    """Return the norm to scale onto, inf if no trajectory can pass it, and the largest squared norm after rounding.

    `largest` holds the largest entries, integers, of which `most_visited` may come together; see first_visits.pyx.
    """
    squares = sorted((int(entry) ** 2 for entry in largest), reverse=True)
    reached = Fraction(sum(squares[:most_visited]))
    if bound is None or Fraction(bound) ** 2 * Fraction(4) ** exponent >= reached:
        return math.inf, reached
    scaled = Fraction(bound) * Fraction(2) ** exponent
    root = Fraction(sqrt_up(Fraction(most_visited)))
    padded = scaled * Fraction(_SUM_ROUND_UP) + root * (Fraction(1, 2) + Fraction(1, 1 << 20))
    return float(scaled), min(padded**2, reached)


class _Featured:
    """Any features: rows sqrt(rho_s) phi_s with outcomes sqrt(rho_s) F_s, summed as people's blocks."""

    def __init__(
        self, features: FloatArray, rho: FloatArray, scheme: _Scheme, most_visited: int, n_threads: int | None
    ) -> None:
        root, width, d = np.sqrt(rho), scheme.grid.width, features.shape[1]
        self.origin = scheme.grid.low
        self._rows, self._outcomes = root[:, np.newaxis] * features, root * scheme.grid.unit
        norms, returns = np.sqrt(np.sum(self._rows**2, axis=1)), root * width
        bounds = {"bound_x": float(norms.max()) * _SUM_ROUND_UP, "bound_y": float(returns.max()) * _SUM_ROUND_UP}
        if not _SMALLEST <= bounds["bound_x"] <= _LARGEST:
            raise ValueError("features must not all be 0, and stay within 1e100")
        # By the triangle inequality no trajectory is beyond these.
        reached = (_top_sum(of_states, most_visited) * _SUM_ROUND_UP for of_states in (norms**2, norms * returns))
        xx, xy = (
            most if declared is None else min(declared, most)
            for declared, most in zip(scheme.bounds, reached, strict=True)
        )
        unit = PersonUnit.checked(most_visited, xx, xy, **bounds)
        options: dict[str, Any] = bounds | {"n_threads": n_threads}
        self._accumulator = (
            PersonAccumulator(d, 1, unit, **options) if unit.clips_blocks else GramAccumulator(d, 1, **options)
        )
        block = person_block_bounds(most_visited, d, 1, **bounds, bound_xx=xx, bound_xy=xy)
        assert self._accumulator.grid.exponent_y is not None
        assert block.outcomes is not None
        # Rounding moves each outcome by half a unit of its grid at most, in either of two roundings.
        rounded = math.sqrt(most_visited) * math.ldexp(1.0, -self._accumulator.grid.exponent_y)
        outcomes = (math.sqrt(_top_sum(rho, most_visited)) * width + rounded) * _SUM_ROUND_UP
        self.public = VisitBounds(
            BlockBounds(block.xx, block.xy, min(block.outcomes, outcomes)),
            nonnegative=bool(np.all(features >= 0.0)),
            diagonal=False,
            unit=unit,
            radii=(rounded_bound(bounds["bound_x"], d), rounded_bound(bounds["bound_y"], 1)),
            n_features=d,
        )
        self.chunk_steps = max(1, min(_STEPS_PER_CHUNK, _VALUES_PER_CHUNK // d))

    def add(self, visited: NDArray[np.int32], units: FloatArray, ends: IntArray) -> None:
        x, y = self._rows[visited], (self._outcomes[visited] * units)[:, np.newaxis]
        if isinstance(self._accumulator, PersonAccumulator):
            self._accumulator.add_people(x, y, People(len(x), None, np.concatenate([[0], ends])))
        else:
            self._accumulator.update(x, y)

    def exact(self) -> tuple[FixedPoint, FixedPoint]:
        moments = self._accumulator.gram()
        assert moments.exact_xy is not None
        return moments.exact_xx, moments.exact_xy[:, 0]


#: How sums are kept: the states a trajectory visits, returns there in grid units, and where each trajectory ends.
_Sums: TypeAlias = _Diagonal | _Featured


def _top_sum(values: FloatArray, n: int) -> float:
    """Sum of the n largest."""
    return math.fsum(np.sort(values)[::-1][:n].tolist())


def checked_weights(values: object, n_states: int, sizes: tuple[float, float]) -> FloatArray:
    """Return public weights of states, not all of them 0."""
    weights = checked_of_states("weights", values, n_states, 1, sizes)
    if not (np.all(weights >= 0.0) and weights.any()):
        raise ValueError("weights must be at least 0 and not all 0")
    return weights


def checked_of_states(name: str, values: Any, n_states: int, ndim: int, sizes: tuple[float, float]) -> FloatArray:
    """Return public numbers, a row a state, each 0 or of a size within limits: their squares stay within floats."""
    array = redact_errors(lambda: np.asarray(values), f"{name} must be an array, with entries of one length")
    if array.ndim != ndim or len(array) != n_states or array.dtype.kind not in "fiub" or 0 in array.shape:
        raise ValueError(
            f"{name} must be a {ndim}-D array of real numbers with one entry for each of {n_states} states, got "
            f"{array.dtype} of shape {array.shape}"
        )
    table = array.astype(np.float64)
    if not np.all((table == 0.0) | ((np.abs(table) >= sizes[0]) & (np.abs(table) <= sizes[1]))):
        raise ValueError(f"{name} must be finite, and 0 or between {sizes[0]} and {sizes[1]} in size")
    return table
