"""First-visit discounted returns, summed per state on a public grid.

**What privacy rests on.** A trajectory's return at a state is computed in floating point, clipped to the public range
[low, high] and rounded to a grid. So the summands are integers from 0 to `ReturnGrid.largest`, one for each of the at
most min(horizon, n_states) states it visits. They are a function of that trajectory alone, also in the way they are
computed. Sums of integers are exact. So the computed sums, not only those of real numbers, move by at most ``largest``
units in each state that a replaced trajectory visits, and ``low + largest * 2**-exponent <= high``: no pad is needed.

How far the computed returns are from those of real numbers is a matter of accuracy alone: with rewards up to R in size
and c = 1 + gamma + ... + gamma**(horizon - 1), F_t = r_t + gamma F_(t+1) errs by at most ``3 * 2**-53 * R * c**2``, and
the grid by half a unit, ``high - low`` over 2**31 at most.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import suppress_float_warnings
from dpfast._threads import RowRanges, run_in_threads, threads_for
from dpfast.io.partitions import Partitions, Result
from dpfast.io.sources import is_arrow, is_frame, is_path
from dpfast.io.trajectories import Trajectories
from dpfast.kernels import first_visits as kernel
from dpfast.privacy.guarantee import remembered, up

# A range has between 2**30 and 2**31 units: so 2**31 trajectories still sum in 64 bits.
_LOG2_UNITS = 30
_SUM_RANGE = 1 << 62
_SMALLEST_WIDTH, LARGEST_LIMIT = 1e-100, 1e100
_NO_HORIZON = (1 << 62) - 1
_STEPS_PER_THREAD = 1 << 17  # below this, starting a thread costs more than it brings
_STEPS_PER_RANGE = 1 << 22  # some 20 ms of one core: how long an interrupt waits
# Rounding errors of a few operations are below this many parts of the result.
_FEW_ROUNDINGS = 4 * 2.0**-53


@remembered
def _exponent_and_largest(low: float, high: float) -> tuple[int, int]:
    width = Fraction(high) - Fraction(low)
    exponent = _LOG2_UNITS - math.frexp(up(width))[1]
    while width * Fraction(2) ** exponent <= 1 << _LOG2_UNITS:
        exponent += 1
    return exponent, int(width * Fraction(2) ** exponent)


@dataclass(frozen=True)
class ReturnGrid:
    """The public grid of returns: ``low + unit * 2**-exponent``, for integer units from 0 to `largest`.

    Parameters
    ----------
    low, high : float
        The public range.
    exponent : int
        The smallest k with ``(high - low) * 2**k > 2**30``.
    largest : int
        ``floor((high - low) * 2**exponent)``, exactly: no clipped return is beyond `high`.

    Examples
    --------
    >>> from dpfast.statistics import ReturnGrid
    >>> ReturnGrid.for_range(0.0, 1.0)
    ReturnGrid(low=0.0, high=1.0, exponent=31, largest=2147483648)
    """

    low: float
    high: float
    exponent: int
    largest: int

    @classmethod
    def for_range(cls, low: float, high: float) -> ReturnGrid:
        """Return the grid that belongs to a range; ValueError if it is empty, or too narrow or wide for floats."""
        low, high = check.real("return_range[0]", low), check.real("return_range[1]", high)
        if not max(abs(low), abs(high)) <= LARGEST_LIMIT or not high - low >= _SMALLEST_WIDTH:
            raise ValueError(
                "return_range must be a pair (low, high), low below high by 1e-100 or more, within 1e100, "
                f"got ({low!r}, {high!r})"
            )
        return cls(low, high, *_exponent_and_largest(low, high))

    @property
    def unit(self) -> float:
        """``2**-exponent``."""
        return math.ldexp(1.0, -self.exponent)

    @property
    def width(self) -> float:
        """``largest`` units, which is at most ``high - low``: how far one return can be from another."""
        return math.ldexp(self.largest, -self.exponent)

    @property
    def top(self) -> float:
        """The largest float within the rounded range: at most ``low + width``, which `high` itself may be beyond."""
        exact = Fraction(self.low) + Fraction(self.largest) / Fraction(2) ** self.exponent
        nearest = float(exact)
        return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, -math.inf)

    @property
    def middle_units(self) -> int:
        """Units of about the middle of the range."""
        return self.largest // 2

    @cached_property
    def middle(self) -> float:
        """That point, rounded once to the nearest float."""
        return float(Fraction(self.low) + Fraction(self.middle_units) / Fraction(2) ** self.exponent)

    @property
    def mean_error(self) -> float:
        """Proved bound on the distance of `FirstVisitReturns.means` from the exact means, of any state and data."""
        # Conversion, quotient and, unless low is 0, the sum err by 2^-53 of at most the width, the width and the range.
        reach = max(abs(self.low), abs(self.high)) if self.low != 0.0 else 0.0
        return _FEW_ROUNDINGS * (self.width + reach)


@dataclass(frozen=True, eq=False, repr=False)
class FirstVisitReturns:
    """First-visit returns summed over trajectories. **Not private**: they belong to the owner of the data.

    Parameters
    ----------
    counts : ndarray of int64 (n_states,)
        Trajectories that visit each state.
    units : ndarray of int64 (n_states,), or of float64 without a grid
        Sums of returns, less `grid.low` each, in units of the grid: exact. Without a grid, the sums as they are.
    n_trajectories : int
        How many there are.
    grid : ReturnGrid or None
        None where returns were neither clipped nor rounded.
    gamma, horizon, lag : float, int or None, int
        As they were given.
    """

    counts: IntArray
    units: NDArray[Any]
    n_trajectories: int
    grid: ReturnGrid | None
    gamma: float
    horizon: int | None = None
    lag: int = 0

    @property
    def sums(self) -> FloatArray:
        """Sum of the returns at each state, (n_states,), in the units of rewards.

        The exact sums rounded to nearest if `grid.low` is 0, to within a few parts in 1e16 of
        ``counts * max(abs(low), abs(high))`` if it is not.
        """
        if self.grid is None:
            return self.units.copy()
        shifted: FloatArray = np.ldexp(self.units.astype(np.float64), -self.grid.exponent)
        return self.grid.low * self.counts + shifted

    def means(self, default: float | None = None) -> FloatArray:
        """Return the mean return at each visited state, and `default` elsewhere; (n_states,).

        The default (the lower end, 0 without a grid) is public and lies within the rounded range, from `ReturnGrid.low`
        to `ReturnGrid.top`: otherwise a state that loses its only visitor would move by more than the grid's width.
        Means are within the range, and within `mean_error` of the exact means of the rounded returns.
        """
        low, top = (-math.inf, math.inf) if self.grid is None else (self.grid.low, self.grid.top)
        default = check.real("default", default if default is not None else (0.0 if self.grid is None else low))
        if not low <= default <= top:
            raise ValueError(f"default must lie in the rounded range of returns, [{low!r}, {top!r}], got {default!r}")
        visited = np.maximum(self.counts, 1)
        if self.grid is None:
            means = self.units / visited
        else:
            # From the exact sums, not from `sums`: low would be added and, in part, taken away again.
            means = np.ldexp(self.units.astype(np.float64) / visited, -self.grid.exponent) + low
            means = np.minimum(means, top)
        return np.where(self.counts > 0, means, default)

    def __add__(self, other: object) -> FirstVisitReturns:
        """Return those of both sets of trajectories; exactly, on a grid.

        ValueError if discount, horizon, grid or number of states differ; OverflowError beyond 2**31 trajectories.
        """
        if not isinstance(other, FirstVisitReturns):
            return NotImplemented
        if self._layout() != other._layout():
            raise ValueError(f"{self!r} and {other!r} differ in states, discount, horizon or range of returns")
        n_trajectories = self.n_trajectories + other.n_trajectories
        _check_capacity(self.grid, n_trajectories)
        return FirstVisitReturns(
            self.counts + other.counts, self.units + other.units, n_trajectories, *self._layout()[1:]
        )

    def __eq__(self, other: object) -> bool:
        """Whether all that is public, every sum and every count agree."""
        if not isinstance(other, FirstVisitReturns):
            return NotImplemented
        return (
            (self._layout(), self.n_trajectories) == (other._layout(), other.n_trajectories)
            and np.array_equal(self.units, other.units)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]

    def _layout(self) -> tuple[int, ReturnGrid | None, float, int | None, int]:
        return len(self.counts), self.grid, self.gamma, self.horizon, self.lag

    def __repr__(self) -> str:
        limits = None if self.grid is None else (self.grid.low, self.grid.high)
        return (
            f"<FirstVisitReturns of {len(self.counts)} states, gamma={self.gamma}, horizon={self.horizon}, "
            f"{f'lag={self.lag}, ' if self.lag else ''}return_range={limits}: not private>"
        )


def return_range(reward_range: tuple[float, float], gamma: float, horizon: int | None = None) -> tuple[float, float]:
    """Range of discounted returns whose rewards lie in a range: public, from public numbers alone.

    With c = (1 - gamma**horizon)/(1 - gamma) the largest is ``c * high``, or ``high`` itself if that is negative, as
    the last state's return is one reward; the least likewise. `horizon`, which gamma = 1 needs, is the most recorded
    states of a trajectory, a terminal one included.

    Examples
    --------
    >>> from dpfast.statistics import return_range
    >>> return_range((0.0, 1.0), 0.5, horizon=2), return_range((-1.0, 2.0), 0.75)
    ((0.0, 1.5), (-4.0, 8.0))
    """
    gamma, horizon = checked_discount(gamma, horizon)
    low, high = check.limits("reward_range", reward_range)
    if horizon is None:
        total = 1.0 / (1.0 - gamma)
    elif gamma == 1.0:
        total = float(horizon)
    else:
        total = -math.expm1(horizon * math.log(gamma)) / (1.0 - gamma)
    return min(low, low * total), max(high, high * total)


@suppress_float_warnings
def first_visit_returns(
    trajectories: Trajectories | Iterable[Trajectories] | Partitions,
    gamma: float,
    *,
    return_range: tuple[float, float] | None = None,
    horizon: int | None = None,
    lag: int = 0,
    n_threads: int | None = None,
) -> FirstVisitReturns:
    """Sum the discounted return from the first visit of each state on, over trajectories. **Not private**.

    Parameters
    ----------
    trajectories : Trajectories, iterable of Trajectories, or Partitions
        Blocks, as of `Trajectories.iter_sorted`, are read one at a time; a part holds Trajectories, or a list of them.
    gamma : float
        The discount, in (0, 1]; 1 needs a horizon.
    return_range : tuple of float, optional
        Public. Each return is clipped to it and rounded to its grid (`ReturnGrid`), and sums are exact. If omitted,
        returns are summed as they are, in floating point on one thread: for estimates that need no privacy.
    horizon : int, optional
        Most steps of a trajectory that count, from its first; longer ones are cut. Public.
    lag : int, default 0
        Visits at the last so many steps before the horizon do not count, though their rewards do. If a trajectory is
        truncated, a return that counts then lacks at most the share ``gamma**lag`` of the return after its end. Whether
        a visit counts depends on what was before it alone, so it favours no return. Public, below the horizon.
    n_threads : int, optional
        Default ``OMP_NUM_THREADS``, else the cores this process may use. The result does not depend on it.

    Returns
    -------
    FirstVisitReturns
        With a range, the same to the bit for any order, split into blocks and number of threads: replacing one
        trajectory moves the sum of a state by at most the width of the range, its count by at most 1, and only of
        states that the old or the new one visits.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong type, or blocks are over different states.

    References
    ----------
    Balle, Gomrokchi, Precup (2016), "Differentially private policy evaluation", ICML, section 3.

    Examples
    --------
    >>> from dpfast.statistics import Trajectories, first_visit_returns
    >>> trajectories = Trajectories([0, 1, 0, 1], [0.0, 1.0, 1.0, 0.25], [0, 3, 4], n_states=2)
    >>> returns = first_visit_returns(trajectories, 0.5, return_range=(0.0, 2.0))
    >>> returns
    <FirstVisitReturns of 2 states, gamma=0.5, horizon=None, return_range=(0.0, 2.0): not private>
    >>> returns.sums, returns.counts
    (array([0.75, 1.75]), array([1, 2]))
    """
    gamma, horizon = checked_discount(gamma, horizon)
    lag = checked_lag(lag, horizon)
    grid = None if return_range is None else ReturnGrid.for_range(*check.limits("return_range", return_range))
    threads_for(0, n_threads)
    if isinstance(trajectories, Partitions):
        if grid is None:
            raise TypeError("trajectories in parts are summed exactly, which needs a return_range")
        options: dict[str, Any] = {"return_range": return_range, "horizon": horizon, "lag": lag}
        of_blocks = partial(first_visit_returns, gamma=gamma, **options, n_threads=n_threads or 1)
        return sum_of_trajectories(trajectories, of_blocks)

    def of_block(block: Trajectories) -> FirstVisitReturns:
        _check_capacity(grid, len(block))
        units: NDArray[Any]
        if grid is None:
            units, counts = _plain_sums(block, gamma, horizon, lag, every=False)
        else:
            units, counts = _exact_sums(block, gamma, horizon, lag, grid, n_threads)
        return FirstVisitReturns(counts, units, len(block), grid, gamma, horizon, lag)

    return reduce(operator.add, map(of_block, blocks_of(trajectories, some=True)))


@suppress_float_warnings
def every_visit_returns(
    trajectories: Trajectories, gamma: float, *, horizon: int | None = None
) -> tuple[FloatArray, IntArray]:
    """Sum the discounted return from every visit of each state on, and count these: for comparison only.

    **Not private**, and nothing here bounds it: returns are neither clipped nor rounded.
    """
    gamma, horizon = checked_discount(gamma, horizon)
    check.instance("trajectories", trajectories, Trajectories, "Trajectories")
    return _plain_sums(trajectories, gamma, horizon, 0, every=True)


def sum_of_trajectories(parts: Partitions, function: Callable[..., Result]) -> Result:
    """Add up a function of the trajectories of every part, exact and of a part that has any."""
    if parts.partitioned_by is not None:
        raise ValueError("trajectories are one a person: their parts must not be declared to be partitioned by person")
    total: Result | None = parts.reduce(partial(_of_part, function), operator.add)
    if total is None:
        raise ValueError("trajectories must hold at least one block, got none")
    return total


def _of_part(function: Callable[[Any], Any], trajectories: Any, *nothing: None) -> Any:
    blocks = list(blocks_of(trajectories))
    return function(blocks) if blocks else None


def blocks_of(trajectories: object, *, some: bool = False) -> Iterator[Trajectories]:
    """Iterate over one or several Trajectories, of the same states; over at least one, if there must be some."""
    if isinstance(trajectories, Trajectories):
        yield trajectories
        return
    if not isinstance(trajectories, Iterable):
        raise _refused(trajectories, "be Trajectories or an iterable of them", trajectories)
    n_states = None
    for block in trajectories:
        if not isinstance(block, Trajectories):
            raise _refused(trajectories, "yield Trajectories", block)
        if n_states not in (None, block.n_states):
            raise ValueError(f"blocks are over different numbers of states: {n_states} and {block.n_states}")
        n_states = block.n_states
        yield block
    if some and n_states is None:
        raise ValueError("trajectories must hold at least one block, got none")


def _refused(given: object, what: str, wrong: object) -> TypeError:
    """Return the error of what is no trajectories, with the call that makes them."""
    if is_frame(given) or is_arrow(given) or is_path(given):
        return TypeError(
            f"trajectories must be Trajectories, got {type(given).__name__}: of a table or a file with a row a step "
            "Trajectories.from_frame(table, trajectory=..., state=..., reward=...) makes them"
        )
    return TypeError(
        f"trajectories must {what}, got {type(wrong).__name__}: lists of steps (state, reward) become them by "
        "Trajectories.from_episodes, episodes of Minari by from_minari, and both in a fit that is given all states, "
        "fit(episodes, states=[...])"
    )


def first_visits_kernel(
    block: Trajectories, gamma: float, horizon: int | None, lag: int, grid: ReturnGrid | None
) -> kernel.FirstVisits:
    """Return a kernel for one thread and the trajectories of a block."""
    limit = _NO_HORIZON if horizon is None else min(horizon, _NO_HORIZON)
    longest, counted = min(block.longest, limit), limit - lag
    units: dict[str, float] = {}
    if grid is not None:
        units = {"low": grid.low, "scale": math.ldexp(1.0, grid.exponent), "largest": float(grid.largest)}
    return kernel.FirstVisits(block.n_states, gamma, limit, longest, counted=counted, **units)


def _exact_sums(
    block: Trajectories, gamma: float, horizon: int | None, lag: int, grid: ReturnGrid, n_threads: int | None
) -> tuple[IntArray, IntArray]:
    threads = threads_for(block.n_steps // _STEPS_PER_THREAD, n_threads)
    parts = [first_visits_kernel(block, gamma, horizon, lag, grid) for _ in range(threads)]
    ranges = RowRanges(block.n_steps, min(_STEPS_PER_RANGE, block.n_steps // (4 * threads) + 1))

    def add(part: kernel.FirstVisits) -> None:
        for start, stop in ranges:
            # The trajectories whose first step is one of start to stop.
            first, last = np.searchsorted(block.offsets[:-1], (start, stop)).tolist()
            if first < last:
                part.add(block.states, block.rewards, block.offsets, first, last)

    run_in_threads([partial(add, part) for part in parts], ranges.stop)
    units, counts = np.zeros(block.n_states, np.int64), np.zeros(block.n_states, np.int64)
    for part in parts:
        part.add_to(units, counts)
    return units, counts


def _plain_sums(
    block: Trajectories, gamma: float, horizon: int | None, lag: int, *, every: bool
) -> tuple[FloatArray, IntArray]:
    visited, returns, ends = np.empty(block.n_steps, np.int32), np.empty(block.n_steps), np.empty(len(block), np.int64)
    part, steps = first_visits_kernel(block, gamma, horizon, lag, None), (block.states, block.rewards, block.offsets)
    n = part.list_units(*steps, 0, len(block), visited, returns, ends, every)
    counts = np.bincount(visited[:n], minlength=block.n_states)
    return np.asarray(np.bincount(visited[:n], returns[:n], block.n_states), np.float64), counts


def _check_capacity(grid: ReturnGrid | None, n_trajectories: int) -> None:
    if grid is not None and n_trajectories * grid.largest >= _SUM_RANGE:
        raise OverflowError("exact sums are kept in 64 bits, which suffice for 2**31 trajectories")


def checked_discount(gamma: object, horizon: object) -> tuple[float, int | None]:
    """Return the discount and the horizon; a discount of 1 needs a horizon."""
    discount = check.share("gamma", gamma, whole=True)
    limit = check.optional(check.positive_integer, "horizon", horizon)
    if discount == 1.0 and limit is None:
        raise ValueError("gamma = 1 needs a horizon: without one, returns are unbounded")
    return discount, limit


def checked_lag(lag: object, horizon: int | None) -> int:
    """Return how many steps before the horizon visits stop to count."""
    steps = check.integer_of_at_least("lag", lag, 0)
    if steps and horizon is None:
        raise ValueError("lag needs a horizon: without one, no trajectory is cut")
    if horizon is not None and steps >= horizon:
        raise ValueError(f"lag must be below horizon, {horizon}, got {steps}")
    return steps
