"""Sufficient statistics of first-visit returns on features, each trajectory clipped, summed exactly.

A trajectory contributes A = sum of rho_s phi_s phi_s' and b = sum of rho_s phi_s F_s over the states it visits, F_s its
first-visit return less the lower end of the range: nonnegative. It is a person who owns one row for each of these
states, features sqrt(rho_s) phi_s with outcome sqrt(rho_s) F_s, at most min(horizon, n_states) rows: `gram` with
`groups` sums just that, and `dpfast.privacy.block_moment_mu` calibrates it.

Without features A is diagonal, and only its diagonal is summed, at the cost of the visits alone: A and b as integers
on grids of their own, scaled by one factor and rounded to nearest. Neither has a negative entry, so two are at most
sqrt(||A||**2 + ||A'||**2) apart, and ``block_moment_mu(..., nonnegative=True)`` applies. No product structure is needed
for that, so rounding A and b separately is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast._quiet import quiet
from dpfast.io.people import People
from dpfast.io.trajectories import Trajectories
from dpfast.kernels import diagonal_moments
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.kernels.threads import resolve_n_threads
from dpfast.privacy import _rounding as rounding
from dpfast.privacy.block_moments import BlockBounds
from dpfast.statistics.accumulator import GramAccumulator, PersonAccumulator
from dpfast.statistics.gram import Gram
from dpfast.statistics.person_unit import PersonUnit
from dpfast.statistics.returns import ReturnGrid, blocks_of, checked_discount, first_visits_kernel

_STEPS_PER_CHUNK = 1 << 16
_VALUES_PER_CHUNK = 1 << 22
_MOST_VISITED = 1 << 20
# Entries of a trajectory's vectors are integers up to this power of two.
_LOG2_ENTRY = 30
_SUM_RANGE = 1 << 62
_SMALLEST, _LARGEST = 1e-100, 1e100
# More than the rounding errors of a sum of 2**20 terms.
_ROUND_UP = 1.0 + 2.0**-30


@dataclass(frozen=True, eq=False, repr=False)
class SufficientStatistics:
    """Sums of trajectories' clipped A and b. **Not private**: they belong to the owner of the data.

    Parameters
    ----------
    exact_xx : FixedPoint
        Sum of A: (n_features, n_features), or its diagonal (n_states,) without features.
    exact_xy : FixedPoint
        Sum of b, of returns less `low`: (n_features,) or (n_states,).
    n_trajectories : int
        How many there are.
    low : float
        The lower end of the range of returns.
    bounds : BlockBounds
        Norms of one trajectory's A, b and weighted returns as they were summed: what to calibrate with.
    nonnegative : bool
        Whether no A and no b can have a negative entry: as for `dpfast.privacy.block_moment_mu`.
    """

    exact_xx: FixedPoint
    exact_xy: FixedPoint
    n_trajectories: int
    low: float
    bounds: BlockBounds
    nonnegative: bool

    @property
    def xx(self) -> FloatArray:
        """Sum of A, each entry rounded once to the nearest double."""
        return self.exact_xx.to_float64()

    @property
    def xy(self) -> FloatArray:
        """Sum of b, each entry rounded once to the nearest double."""
        return self.exact_xy.to_float64()

    def __repr__(self) -> str:
        kind = "diagonal " if len(self.exact_xx.shape) == 1 else ""
        return f"<SufficientStatistics, {kind}of {self.exact_xy.shape[0]} features: not private>"


@quiet
def sufficient_statistics(
    trajectories: Trajectories | Iterable[Trajectories],
    gamma: float,
    *,
    return_range: tuple[float, float],
    features: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    horizon: int | None = None,
    bound_xx: float | None = None,
    bound_xy: float | None = None,
    n_threads: int | None = None,
) -> SufficientStatistics:
    """Sum ``rho_s phi_s phi_s'`` and ``rho_s phi_s F_s`` over trajectories and the states each visits. **Not private**.

    Parameters
    ----------
    trajectories, gamma, horizon, n_threads
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

    Returns
    -------
    SufficientStatistics
        The same to the bit for any order, split into blocks and number of threads. Replacing one trajectory moves it by
        what `dpfast.privacy.block_moment_mu` says of its `bounds`.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type, or shapes do not fit.

    Examples
    --------
    >>> from dpfast.statistics import Trajectories, sufficient_statistics
    >>> walks = Trajectories([0, 1, 0, 1], [0.0, 1.0, 1.0, 0.25], [0, 3, 4], n_states=2)
    >>> sums = sufficient_statistics(walks, 0.5, return_range=(0.0, 2.0))
    >>> sums
    <SufficientStatistics, diagonal of 2 features: not private>
    >>> sums.xx, sums.xy
    (array([1., 2.]), array([0.75, 1.75]))
    """
    gamma, horizon = checked_discount(gamma, horizon)
    grid = ReturnGrid.for_range(*check.limits("return_range", return_range))
    xx = check.optional(check.positive, "bound_xx", bound_xx)
    xy = check.optional(check.positive, "bound_xy", bound_xy)
    resolve_n_threads(n_threads)
    sums: _Sums | None = None
    n_states = n_trajectories = 0
    for block in blocks_of(trajectories):
        if sums is None:
            n_states = block.n_states
            rho = _checked_weights(weights, n_states)
            most_visited = n_states if horizon is None else min(horizon, n_states)
            if most_visited > _MOST_VISITED:
                raise ValueError(f"horizon must be given, and be at most {_MOST_VISITED}, with so many states")
            if features is None:
                sums = _Diagonal(rho, grid, most_visited, xx, xy)
            else:
                sums = _Featured(_checked_features(features, n_states), rho, grid, most_visited, xx, xy, n_threads)
        if block.n_states != n_states:
            raise ValueError(f"blocks are over different numbers of states: {n_states} and {block.n_states}")
        n_trajectories += len(block)
        if n_trajectories << (_LOG2_ENTRY + 1) >= _SUM_RANGE:
            raise OverflowError("exact sums are kept in 64 bits, which suffice for 2**31 trajectories")
        for visits in _chunks(block, gamma, horizon, grid, sums.chunk_steps):
            sums.add(*visits)
    if sums is None:
        raise ValueError("trajectories must hold at least one block, got none")
    return sums.total(n_trajectories)


class _Sums(Protocol):
    chunk_steps: int

    def add(self, visited: NDArray[np.int32], units: FloatArray, ends: IntArray) -> None:
        """Add trajectories, given the states each visits, the returns there in grid units, and where each ends."""

    def total(self, n_trajectories: int) -> SufficientStatistics: ...


def _chunks(
    block: Trajectories, gamma: float, horizon: int | None, grid: ReturnGrid, chunk_steps: int
) -> Iterator[tuple[NDArray[np.int32], FloatArray, IntArray]]:
    """List the first visits of some trajectories at a time."""
    kernel = first_visits_kernel(block, gamma, horizon, grid)
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

    def __init__(
        self, rho: FloatArray, grid: ReturnGrid, most_visited: int, bound_xx: float | None, bound_xy: float | None
    ) -> None:
        self._low = grid.low
        self._exponent_a = _LOG2_ENTRY - math.frexp(float(rho.max()))[1]
        # A weight of 2**30 times a return of 2**31 units is an entry of 2**30.
        self._exponent_b = self._exponent_a + grid.exponent - (_LOG2_ENTRY + 1)
        self._weights = np.rint(np.ldexp(rho, self._exponent_a))
        self._scale = 2.0 ** -(_LOG2_ENTRY + 1)
        largest_b = np.rint(self._weights * grid.largest * self._scale)
        self._bound_a, most_a = _padded(bound_xx, self._exponent_a, self._weights, most_visited)
        self._bound_b, most_b = _padded(bound_xy, self._exponent_b, largest_b, most_visited)
        xx, xy = (
            rounding.sqrt_up(squared / Fraction(4) ** exponent)
            for squared, exponent in ((most_a, self._exponent_a), (most_b, self._exponent_b))
        )
        # Such outcomes never lower the bound on b: with nonnegative entries nothing else depends on them.
        outcomes = max(math.sqrt(_top_sum(rho, most_visited)) * grid.width, xy / math.sqrt(xx)) * _ROUND_UP
        self._bounds = BlockBounds(xx, xy, outcomes)
        self._totals = np.zeros((len(rho), 2), np.int64)

    def add(self, visited: NDArray[np.int32], units: FloatArray, ends: IntArray) -> None:
        diagonal_moments.add_diagonal(
            visited, units, ends, len(ends), self._weights, self._scale, self._bound_a, self._bound_b, self._totals
        )

    def total(self, n_trajectories: int) -> SufficientStatistics:
        xx, xy = (
            FixedPoint(totals >> 63, totals.astype(np.uint64), -exponent)
            for totals, exponent in zip(self._totals.T, (self._exponent_a, self._exponent_b), strict=True)
        )
        return SufficientStatistics(xx, xy, n_trajectories, self._low, self._bounds, nonnegative=True)


def _padded(bound: float | None, exponent: int, largest: FloatArray, most_visited: int) -> tuple[float, Fraction]:
    """Return the norm to scale onto, inf if no trajectory can pass it, and the largest squared norm after rounding.

    `largest` holds the largest entries, integers, of which `most_visited` may come together; see diagonal_moments.pyx.
    """
    squares = sorted((int(entry) ** 2 for entry in largest), reverse=True)
    reached = Fraction(sum(squares[:most_visited]))
    if bound is None or Fraction(bound) ** 2 * Fraction(4) ** exponent >= reached:
        return math.inf, reached
    scaled = Fraction(bound) * Fraction(2) ** exponent
    root = Fraction(rounding.sqrt_up(Fraction(most_visited)))
    padded = scaled * Fraction(_ROUND_UP) + root * (Fraction(1, 2) + Fraction(1, 1 << 20))
    return float(scaled), min(padded**2, reached)


class _Featured:
    """Any features: rows sqrt(rho_s) phi_s with outcomes sqrt(rho_s) F_s, summed as people's blocks."""

    def __init__(
        self,
        features: FloatArray,
        rho: FloatArray,
        grid: ReturnGrid,
        most_visited: int,
        bound_xx: float | None,
        bound_xy: float | None,
        n_threads: int | None,
    ) -> None:
        root = np.sqrt(rho)
        self._rows, self._outcomes = root[:, np.newaxis] * features, root * grid.unit
        self._low, self._root_of_weights = grid.low, math.sqrt(_top_sum(rho, most_visited))
        norms, returns = np.sqrt(np.sum(self._rows**2, axis=1)), root * grid.width
        bound_x, bound_y = float(norms.max()) * _ROUND_UP, float(returns.max()) * _ROUND_UP
        if not _SMALLEST <= bound_x <= _LARGEST:
            raise ValueError("features must not all be 0, and stay within 1e100")
        # By the triangle inequality no trajectory is beyond these.
        reached_xx = _top_sum(norms**2, most_visited) * _ROUND_UP
        reached_xy = _top_sum(norms * returns, most_visited) * _ROUND_UP
        xx = reached_xx if bound_xx is None else min(bound_xx, reached_xx)
        xy = reached_xy if bound_xy is None else min(bound_xy, reached_xy)
        self._unit = PersonUnit.checked(most_visited, xx, xy, bound_x, bound_y)
        options: dict[str, Any] = {"bound_x": bound_x, "bound_y": bound_y, "n_threads": n_threads}
        d = features.shape[1]
        self._accumulator = (
            PersonAccumulator(d, 1, self._unit, **options)
            if self._unit.clips_blocks
            else GramAccumulator(d, 1, **options)
        )
        self._most_visited, self._width = most_visited, grid.width
        self._nonnegative = bool(np.all(features >= 0.0))
        self.chunk_steps = max(1, min(_STEPS_PER_CHUNK, _VALUES_PER_CHUNK // d))

    def add(self, visited: NDArray[np.int32], units: FloatArray, ends: IntArray) -> None:
        x, y = self._rows[visited], (self._outcomes[visited] * units)[:, np.newaxis]
        if isinstance(self._accumulator, PersonAccumulator):
            self._accumulator.add_people(x, y, People(len(x), None, np.concatenate([[0], ends])))
        else:
            self._accumulator.update(x, y)

    def total(self, n_trajectories: int) -> SufficientStatistics:
        moments = Gram._of(self._accumulator._totals, self._accumulator, self._unit)
        bounds, exact_xy = moments.block_bounds, moments.exact_xy
        assert bounds is not None
        assert bounds.outcomes is not None
        assert exact_xy is not None
        assert moments.grid.exponent_y is not None
        # Rounding moves each outcome by half a unit of its grid at most, in either of two roundings.
        rounded = math.sqrt(self._most_visited) * math.ldexp(1.0, -moments.grid.exponent_y)
        outcomes = min(bounds.outcomes, (self._root_of_weights * self._width + rounded) * _ROUND_UP)
        return SufficientStatistics(
            moments.exact_xx,
            exact_xy[:, 0],
            n_trajectories,
            self._low,
            BlockBounds(bounds.xx, bounds.xy, outcomes),
            self._nonnegative,
        )


def _top_sum(values: FloatArray, n: int) -> float:
    """Sum of the n largest."""
    return math.fsum(np.sort(values)[::-1][:n].tolist())


def _checked_weights(weights: ArrayLike | None, n_states: int) -> FloatArray:
    if weights is None:
        return np.ones(n_states)
    rho = np.asarray(weights)
    if rho.shape != (n_states,) or rho.dtype.kind not in "fiub":
        raise ValueError(f"weights must be {n_states} real numbers, one a state, got {rho.dtype} of shape {rho.shape}")
    rho = rho.astype(np.float64)
    if not (np.all((rho >= 0.0) & (rho <= _LARGEST)) and rho.max() >= _SMALLEST):
        raise ValueError("weights must be at least 0, at most 1e100 and not all 0")
    return rho


def _checked_features(features: ArrayLike, n_states: int) -> FloatArray:
    table = np.asarray(features)
    if table.ndim != 2 or len(table) != n_states or table.shape[1] == 0 or table.dtype.kind not in "fiub":
        raise ValueError(
            f"features must be a 2-D array of real numbers with one row for each of {n_states} states, got "
            f"{table.dtype} of shape {table.shape}"
        )
    table = table.astype(np.float64)
    if not np.all(np.abs(table) <= _LARGEST):
        raise ValueError("features must be finite and within 1e100")
    return table
