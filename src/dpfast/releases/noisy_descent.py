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
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, gaussian_mu, parts_of
from dpfast.releases.mechanism import Mechanism, NoisySum, Query, Stages
from dpfast.releases.people import People
from dpfast.solvers import descent
from dpfast.solvers.descent import Descent, Link, Position
from dpfast.statistics.residuals import ResidualStep, residual_bound, residual_sums
from dpfast.statistics.rows import RowMap

#: Share of mu^2 for the count of people, if it is private.
_COUNT = 0.02
#: Standard deviations above the noise at which squared slopes are taken for signal.
_SURE = 4.0
#: Standard deviations that several classes' squared slopes are taken to be longer than they are seen.
_DOUBT = 0.5


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
        return descent.schedule(self.link, self.shape, self.row_bound, people, self.whole.deviation)

    def agreement(self, people: float) -> float:
        """Return the expected correlation of margins with the target ones."""
        return descent.agreement(self.link, self.shape, self.row_bound, people, self.whole.deviation)

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
            position = descent.stepped(position, steps, number, released.values["sum"])

        def found() -> Descended:
            shown = self.shown_agreement(slopes), self.likely_agreement(slopes)
            return Descended(descent.averaged(position, steps), float(people), *shown)

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
        return descent.clip(self.link, self.sizes[1], self.row_bound, self.max_rows or 1)

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
