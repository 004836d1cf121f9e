"""Noisy gradient descent: many noisy sums of slopes times rows, which share one joint budget.

Every step releases the sum over people of x r', with r minus the derivative of their loss in theta'x at the
coefficients so far. Each person's matrix is clipped in the Frobenius norm by an integer test (statistics/residuals.py).
So for every theta one person moves the sum by at most `residual_bound`, or twice that if a row is replaced. theta is a
function of the releases before and of public numbers, fixed before the data are read again. So the releases compose
adaptively, by mu squared (`dpfast.privacy.parts_of`). All outcomes of a row are in one matrix, so classes need no
shares of their own.

A person may have several rows, of which the first `max_rows` count. The person's matrix is then the sum of their rows'
matrices, and is clipped as a whole: the same proof, with the person for the row.

If the number of people is private, a noisy count comes first, for a small share: it decides the number of steps. With
several rows a person, rows are counted: a person adds `max_rows` at most.

*Steps, sizes and clips* follow from public numbers. A row has the margins z = theta'x and the slope r, minus the loss's
derivative in z. The norm of x r' is clipped to half of its value for the longest row at theta = 0. Noise is
proportional to that clip. Beyond it a loss is nearly linear: rows on the wrong side have no larger gradients than
uncertain rows.

Steps go on until their accumulated noise, undamped, would reach a fixed norm in the difference of two classes'
coefficients, in units of the inverse of the longest row. That is the norm of coefficients able to separate classes.
While slopes hardly change, n equal steps have the same effect as one step of their sum, noise included. So only the sum
of sizes matters, and it depends on the noise alone, not on the number of people. More steps follow the slopes as they
change. Losses here have second derivatives of at most h, so a step of n h B^2/2 times less than 1 never overshoots, for
any rows of length B; larger ones take the least momentum with which descent is stable (the heavy ball's bound). With
few people there are few steps. With many there are as many as needed, up to a limit reached only with many people.

Late iterates are averaged, to reduce the noise of the last steps (Polyak and Juditsky 1992). These rules have the same
constants for all tables, sizes and budgets. They were within 1% of the best of 200 settings on digits, two to ten of
them, cancer, wine, pictures and simulated rows, n = 100 to 70,000, epsilon = 0.5 to 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, gaussian_mu, parts_of
from dpfast.releases.mechanism import Mechanism, NoisySum, Query, Stages
from dpfast.releases.people import People
from dpfast.statistics.residuals import ResidualStep, residual_bound, residual_sums
from dpfast.statistics.rows import RowMap

Link = Literal["logistic", "softmax"]

#: Length of the noise gathered in the difference of two classes' coefficients, over the inverse of the longest row.
_GATHERED = 15.0
#: Slopes are clipped to this share of their value at coefficients of 0.
_CLIPPED = 0.5
#: The clip of a person with several rows grows as this power of the most rows of one.
_SEVERAL = 0.5
#: Fewest and most steps.
_FEW, _MANY = 30, 80
#: Size of a step times the largest curvature that rows can have: what more steps are taken for, and most.
_STIFF, _STIFFEST = 20.0, 50.0
#: Share of the steps whose results are averaged.
_AVERAGED = 0.5
#: Share of mu^2 for the count of people, if it is private.
_COUNT = 0.02
#: Standard deviations above the noise at which squared slopes are taken for signal.
_SURE = 4.0
#: Standard deviations that several classes' squared slopes are taken to be longer than they are seen.
_DOUBT = 0.5


class Descent(NamedTuple):
    """A schedule of steps."""

    n_steps: int
    #: Factor of a step for sums of slopes times rows.
    size: float
    momentum: float

    @property
    def first_averaged(self) -> int:
        """How many steps are taken before iterates are averaged."""
        return int(self.n_steps * (1.0 - _AVERAGED))


class Position(NamedTuple):
    """Where descent is, how fast it goes, and the sum of late iterates."""

    theta: FloatArray
    velocity: FloatArray
    late: FloatArray

    @classmethod
    def start(cls, shape: tuple[int, int]) -> Position:
        """Return the position before the first step."""
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))


def first_slope(link: Link, n_outcomes: int) -> float:
    """Return the length of a row's slope where coefficients are 0."""
    return 0.5 if link == "logistic" else math.sqrt(1.0 - 1.0 / n_outcomes)


def clip_of_slopes(link: Link, n_outcomes: int, row_bound: float, max_rows: int = 1) -> float:
    """Return the norm to clip a person's rows times slopes to, for rows of norm at most `row_bound`."""
    stretch: float = float(max_rows) ** _SEVERAL
    return _CLIPPED * first_slope(link, n_outcomes) * row_bound * stretch


def schedule(link: Link, shape: tuple[int, int], row_bound: float, people: float, deviation: float) -> Descent:
    """Choose steps for about this many people.

    `deviation` is that of the noise in an entry of one sum, clipped and released with the whole budget.
    """
    features, outcomes = shape
    # Of two outcomes' coefficients; a logistic loss has their difference.
    length = _GATHERED * (1.0 if link == "logistic" else first_slope(link, outcomes))
    total = length / (row_bound * deviation * math.sqrt(features))
    curvature = _curvature(link) * row_bound**2 * max(people, 1.0)
    n_steps = int(min(max(total * curvature / _STIFF, _FEW), _MANY))
    size = min(total / n_steps, _STIFFEST / curvature)
    stiffness = max(0.5 * size * curvature, 1.0)
    return Descent(n_steps, size, (stiffness - 1.0) / (stiffness + 1.0))


def stepped(position: Position, descent: Descent, number: int, slopes: FloatArray) -> Position:
    """Take a step, the `number`-th from 0, along a noisy sum of slopes times rows."""
    velocity = descent.momentum * position.velocity + slopes
    theta = position.theta + descent.size * (1.0 - descent.momentum) * velocity
    late = position.late + theta if number >= descent.first_averaged else position.late
    return Position(theta, velocity, late)


def averaged(position: Position, descent: Descent) -> FloatArray:
    """Return the mean of late iterates, once all steps are taken."""
    return position.late / (descent.n_steps - descent.first_averaged)


def agreement(link: Link, shape: tuple[int, int], row_bound: float, people: float, deviation: float) -> float:
    """Return the correlation to expect of margins with those sought, of classes that these tell apart, and only just.

    Rows are even over directions: the mean slope times row is the clip's share ``sqrt(2/(pi D))`` long, and noise of
    that `deviation` in each of D entries.
    """
    features, outcomes = shape
    # Two of several classes are separated by their people alone.
    of_two = people if link == "logistic" else 2.0 * people / outcomes
    signal = clip_of_slopes(link, outcomes, row_bound) * math.sqrt(2.0 / (math.pi * features)) * max(of_two, 1.0)
    return 1.0 / math.hypot(1.0, deviation * math.sqrt(features) / signal)


def _curvature(link: Link) -> float:
    """Return the largest eigenvalue of a loss's second derivative in the margins."""
    return 0.25 if link == "logistic" else 0.5


class Descended(NamedTuple):
    """The solution from the releases."""

    #: Coefficients (D, l) of rows as they were summed, the constant's last.
    theta: FloatArray
    #: Number of rows that count, public or released.
    people: float
    #: Correlation of margins with the target ones, as shown by early steps.
    agreement: float
    #: The largest such correlation that is likely: below, the fit is said to be noise.
    likely_agreement: float


@dataclass(frozen=True)
class NoisyDescent(Mechanism[Descended]):
    """The mechanism, calibrated for public numbers: schedule and noise of every step."""

    privacy: Privacy
    link: Link
    row_map: RowMap
    #: Columns of X, and outcomes.
    sizes: tuple[int, int]
    #: Whether rows are followed by a 1.
    constant: bool = False
    #: None if it is private.
    n_rows: int | None = None
    #: Most rows of a person, if people have several; None where every row is a person.
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.privacy.delta == 0.0:
            raise ValueError("descent needs delta > 0: with delta = 0 its steps share epsilon, and are mostly noise")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the coefficients."""
        return self.sizes[0] + self.constant, self.sizes[1]

    @property
    def row_bound(self) -> float:
        """Length of the longest row as summed."""
        return math.hypot(self.row_map.largest_norm(self.sizes[0]), float(self.constant))

    @cached_property
    def whole(self) -> NoisySum:
        """Noise of a single sum with the whole budget."""
        return NoisySum.calibrate(self.privacy, self._bound, self.shape, unit=self._unit)

    @property
    def mu(self) -> float:
        """Mu of all releases together, which are Gaussian."""
        return gaussian_mu(*self.privacy.finite_target)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of a sum with the whole budget."""
        return self.whole.scales

    def schedule(self, people: float) -> Descent:
        """Return the steps for about this many people."""
        return schedule(self.link, self.shape, self.row_bound, people, self.whole.deviation)

    def agreement(self, people: float) -> float:
        """Return the expected correlation of margins with the target ones."""
        return agreement(self.link, self.shape, self.row_bound, people, self.whole.deviation)

    def shown_agreement(self, steps: Sequence[Release]) -> float:
        """Return the same correlation as shown by early steps, while slopes are still as they were at first.

        If few steps suffice, slopes change within the first half of them. The steps examined are then fewer, too, and
        their slopes must be more than `_SURE` standard deviations longer than their noise; this threshold is larger the
        fewer they are.
        """
        return self._shown_agreement(steps, (len(steps) + 1) // 2, 0.0)

    def likely_agreement(self, steps: Sequence[Release]) -> float:
        """Return the correlation below which a fit is said to be noise: of several classes, with the benefit of doubt.

        Their slopes have many entries, so that noise hides how long they are. All steps are examined too: their mean is
        shorter than the first ones', but its noise is the least. Half a standard deviation is added.
        """
        if self.link == "logistic":
            return self.shown_agreement(steps)
        return self._shown_agreement(steps, len(steps), _DOUBT)

    def _shown_agreement(self, steps: Sequence[Release], looked_at: int, doubt: float) -> float:
        entries, half = math.prod(self.shape), (len(steps) + 1) // 2
        signal, relative = 0.0, math.sqrt(2.0 / entries)
        while looked_at:
            mean = sum(release.values["sum"] for release in steps[:looked_at]) / looked_at
            noise = entries * steps[0].scales["sum"] ** 2 / looked_at
            beyond = float(np.sum(mean**2)) - noise + doubt * relative * noise
            unsure = 0.0 if looked_at >= half else _SURE * relative
            signal = max(signal, beyond if beyond > unsure * noise else 0.0)
            looked_at = half if looked_at > half else looked_at // 2
        return math.sqrt(signal / (signal + entries * self.whole.deviation**2))

    def stages(self) -> Stages[Descended]:
        """Yield one query after the other."""
        left, people = self.privacy, self.n_rows
        if self.n_rows is None:
            part, left = parts_of(self.privacy, [_COUNT, 1.0 - _COUNT])
            counts = partial(_count, step=self._first_step, clip=self._clip)
            counted = yield Query(*self._counting(part), counts)
            people = counted.values["sum"].item()
        assert people is not None
        steps, slopes = self.schedule(float(people)), []
        position = Position.start(self.shape)
        for number, part in enumerate(parts_of(left, [1.0] * steps.n_steps)):
            mechanism = NoisySum.calibrate(part, self._bound, self.shape, unit=self._unit)
            statistic = partial(_slopes, step=self._first_step.at(position.theta), clip=self._clip)
            released = yield Query(f"slopes, step {number + 1}", mechanism, statistic)
            slopes.append(released)
            position = stepped(position, steps, number, released.values["sum"])

        def found() -> Descended:
            shown = self.shown_agreement(slopes), self.likely_agreement(slopes)
            return Descended(averaged(position, steps), float(people), *shown)

        return found

    def _counting(self, part: Privacy) -> tuple[str, NoisySum]:
        """Return the name and the noise of the count of rows."""
        if self.max_rows is None:
            return "number of people", NoisySum.of_counts(part, 1, 1)
        return "number of rows", NoisySum.calibrate(part, float(self.max_rows), (1, 1), unit=self._unit)

    @property
    def _unit(self) -> Unit:
        return "row" if self.max_rows is None else "person"

    @cached_property
    def _clip(self) -> float:
        return clip_of_slopes(self.link, self.sizes[1], self.row_bound, self.max_rows or 1)

    @cached_property
    def _bound(self) -> float:
        return residual_bound(self._clip, self._first_step, self.max_rows)

    @cached_property
    def _first_step(self) -> ResidualStep:
        low = -1.0 if self.link == "logistic" else 0.0
        outcomes = RowMap(np.full(1, low), np.ones(1))
        return ResidualStep(np.zeros(self.shape), self.row_map, outcomes, constant=self.constant, link=self.link)


def _count(rows: People, step: ResidualStep, clip: float) -> FixedPoint:
    """Count rows after reading them all: a row unusable in a step is refused before anything is drawn."""
    _slopes(rows, step, clip)
    return FixedPoint.from_integers(np.full((1, 1), rows.count_rows(), np.int64), 0)


def _slopes(rows: People, step: ResidualStep, clip: float) -> FixedPoint:
    return residual_sums(rows.table, step, clip, **rows.residual_options).products
