"""The mechanisms of the family: noisy descent, objective perturbation, counts of margins; and the error to expect.

*Noisy gradient descent* is many noisy sums of slopes times rows, which share one joint budget. Every step releases the
sum over people of x r', with r minus the derivative of their loss in theta'x at the coefficients so far. Each person's
matrix is clipped in the Frobenius norm by an integer test (statistics/residuals.py). So for every theta one person
moves the sum by at most `residual_bound`, or twice that if a row is replaced. theta is a function of the releases
before and of public numbers, fixed before the data are read again. So the releases compose adaptively, by mu squared
(`dpfast.privacy.split_budget`). All outcomes of a row are in one matrix, so classes need no shares of their own.

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

*Choices for a budget*, and the error of predictions from privacy, follow from public numbers.

*Which logistic loss, and how much strong convexity.* The noise hides a slope of 1. Before anything is known, margins
are 0 and rows have a slope of 1/2 on the logistic loss: half of the slope that the noise hides. With a shift of the
margins it is nearly all, but then the curvature, which tells directions apart, is small until parameters are long. So
where noise is large the shift is `_LARGEST`. The strong convexity is the least that costs nothing of epsilon
(releases/objective_bounds.py). Parameters then are near the sum of y x, and little more could be learned. Where noise
is small the shift ends, and the convexity falls until its cost would matter.

Between the two stands `v`, the signal of rows in one parameter over the noise in it: n/(25 d s), s the deviation of
noise for a change of 1, about 4/epsilon. The constants were chosen on breast cancer, pairs of digits, patches of
pictures and synthetic tables of 200 to 100,000 rows and 5 to 200 features, at epsilon 1/2 to 4. Where features are
correlated and the model is wrong, as on the patches, less convexity and less of a shift do better at small v, by .02 to
.08; on breast cancer and digits, as much of either loses .02 to .2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import numpy as np
from scipy.special import softmax

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.convex_erm.calibration import (
    FARTHEST_GAP,
    SPREAD_OF_ROWS,
    ClassCells,
    Classes,
    LinkScore,
    MarginCells,
    cell_counts,
    estimated_rates,
    even_margins,
    margin_counts,
    placed,
    score_sum,
    slope_of_link,
)
from dpfast.estimator.plan import Plan, least
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, gaussian_mu, gaussian_scale, split_budget
from dpfast.releases.mechanism import Around, Mechanism, NoisySum, Query, Stages, within
from dpfast.releases.objective_bounds import (
    ObjectivePerturbation,
)
from dpfast.releases.people import People
from dpfast.solvers import GeneralisedLinearLoss, LogisticLoss, SquaredLoss
from dpfast.statistics import MOST_ROWS_IF_PRIVATE
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
#: Deviation of the weight that steps show, for rows that are not even over directions.
_OF_MODEL = 0.15
_LEAST_INFORMATION = 2.0**-40
#: Standard deviations that several classes' squared slopes are taken to be longer than they are seen.
_DOUBT = 0.5


class Schedule(NamedTuple):
    """A schedule of steps."""

    n_steps: int
    #: Factor of a step for sums of slopes times rows.
    size: float
    momentum: float

    @property
    def first_averaged(self) -> int:
        """How many steps are taken before iterates are averaged."""
        return int(self.n_steps * (1.0 - _AVERAGED))


class Iterate(NamedTuple):
    """Where descent is, how fast it goes, and the sum of late iterates."""

    theta: FloatArray
    velocity: FloatArray
    late: FloatArray

    @classmethod
    def start(cls, shape: tuple[int, int]) -> Iterate:
        """Return the position before the first step."""
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))


def first_slope(link: Link, n_outcomes: int) -> float:
    """Return the length of a row's slope where coefficients are 0."""
    return 0.5 if link == "logistic" else math.sqrt(1.0 - 1.0 / n_outcomes)


def clip_of_slopes(link: Link, n_outcomes: int, row_bound: float, max_rows: int = 1) -> float:
    """Return the norm to clip a person's rows times slopes to, for rows of norm at most `row_bound`."""
    stretch: float = float(max_rows) ** _SEVERAL
    return _CLIPPED * first_slope(link, n_outcomes) * row_bound * stretch


def schedule(link: Link, shape: tuple[int, int], row_bound: float, people: float, deviation: float) -> Schedule:
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
    return Schedule(n_steps, size, (stiffness - 1.0) / (stiffness + 1.0))


def next_iterate(iterate: Iterate, descent: Schedule, slopes: FloatArray, *, averaged: bool) -> Iterate:
    """Take a step, `averaged` or an early one, along a noisy sum of slopes times rows."""
    theta, velocity, late = iterate
    velocity = descent.momentum * velocity + slopes
    theta = theta + descent.size * (1.0 - descent.momentum) * velocity
    return Iterate(theta, velocity, late + theta if averaged else late)


def averaged(iterate: Iterate, descent: Schedule) -> FloatArray:
    """Return the mean of late iterates, once all steps are taken."""
    return iterate.late / (descent.n_steps - descent.first_averaged)


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
    #: Coefficients that steps were taken at, and what was released there.
    steps: Sequence[tuple[FloatArray, FloatArray]]


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

    def schedule(self, people: float) -> Schedule:
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
        """Return the correlation below which a fit of several classes is said to be noise, with the benefit of doubt.

        Their slopes have many entries, so that noise hides how long they are. All steps are examined too: their mean is
        shorter than the first ones', but its noise is the least. Half a standard deviation is added.
        """
        return self._shown_agreement(steps, len(steps), _DOUBT)

    def _shown_agreement(self, steps: Sequence[Release], looked_at: int, doubt: float) -> float:
        entries, half = math.prod(self.shape), (len(steps) + 1) // 2
        sums = np.add.accumulate([release.values["sum"] for release in steps[: max(looked_at, half)]])
        signal, relative = 0.0, math.sqrt(2.0 / entries)
        while looked_at:
            mean = sums[looked_at - 1] / looked_at
            noise = entries * steps[0].scales["sum"] ** 2 / looked_at
            beyond = float(np.sum(mean**2)) - noise + doubt * relative * noise
            unsure = 0.0 if looked_at >= half else _SURE * relative
            signal = max(signal, beyond if beyond > unsure * noise else 0.0)
            looked_at = half if looked_at > half else looked_at // 2
        return math.sqrt(signal / (signal + entries * self.whole.deviation**2))

    def weight_in_steps(self, found: Descended, link: LinkScore) -> tuple[float, float]:
        """Return the weight of the link in a mixture with rates that late steps show, and its variance.

        The sum of a step times its coefficients is that of classes, less their probabilities, times margins. The noise
        in it is independent of the coefficients.
        """
        deviation = self.whole.deviation * math.sqrt(len(found.steps)) / found.people
        signal, information = 0.0, _LEAST_INFORMATION
        for theta, slopes in found.steps[len(found.steps) // 3 :]:
            coef, intercept = Linear.split(theta.T, float(self.constant))
            by_rates, by_link = self._slopes_along(coef.T, intercept, link)
            variance = max(deviation**2 * float(np.sum(coef**2)), _LEAST_INFORMATION)
            along = float(np.sum(slopes[: self.sizes[0]] * coef.T)) / found.people
            signal += (by_link - by_rates) / variance * (along - by_rates)
            information += (by_link - by_rates) ** 2 / variance
        return signal / information, 1.0 / information + _OF_MODEL**2

    def _slopes_along(self, coef: FloatArray, intercept: FloatArray, link: LinkScore) -> tuple[float, float]:
        """Return the mean slope times margin, clipped, if classes follow their rates and if they follow the link."""
        bound = self.row_map.largest_norm(self.sizes[0])
        inner = even_margins(coef, bound)
        given = link.probabilities(inner + intercept)
        halves = np.array([-0.5, 0.5]) if self.link == "logistic" else np.ones(1)
        fitted = softmax((inner + intercept) * halves, axis=1)
        inner = inner * halves
        # Of a logistic loss a slope has one entry, of a softmax of two classes two.
        sizes = np.sqrt(np.maximum(1.0 - 2.0 * fitted + np.sum(fitted**2, axis=1, keepdims=True), _LEAST_INFORMATION))
        length = math.hypot(SPREAD_OF_ROWS * bound, float(self.constant)) / math.sqrt(len(halves))
        values = np.minimum(self._clip / (length * sizes), 1.0) * (
            inner - np.sum(fitted * inner, axis=1, keepdims=True)
        )
        return float(np.mean(values @ link.rates)), float(np.mean(np.sum(given * values, axis=1)))

    def stages(self) -> Stages[Descended]:
        """Yield one query after the other."""
        left, people = self.privacy, self.n_rows
        if self.n_rows is None:
            part, left = split_budget(self.privacy, [_COUNT, 1.0 - _COUNT])
            counts = partial(_count, step=self._first_step, clip=self._clip)
            counted = yield Query(*self._counting(part), counts)
            people = counted.values["sum"].item()
        assert people is not None
        steps, slopes, course = self.schedule(float(people)), [], []
        iterate, late = Iterate.start(self.shape), steps.first_averaged
        first_step, clip = self._first_step, self._clip
        part, *_ = split_budget(left, [1.0] * steps.n_steps)  # all alike
        mechanism = NoisySum.calibrate(part, self._bound, self.shape, unit=self._unit)
        for number in range(steps.n_steps):
            statistic = partial(_slopes, step=first_step.at(iterate.theta), clip=clip)
            released = yield Query(f"coefficients: slopes, step {number + 1}", mechanism, statistic)
            slopes.append(released)
            course.append((iterate.theta, released.values["sum"]))
            iterate = next_iterate(iterate, steps, released.values["sum"], averaged=number >= late)

        def found() -> Descended:
            shown = self.shown_agreement(slopes)
            # Early steps judge two classes: their slopes have few entries.
            likely = shown if self.link == "logistic" else self.likely_agreement(slopes)
            return Descended(averaged(iterate, steps), float(people), shown, likely, course)

        return found

    def _counting(self, part: Privacy) -> tuple[str, NoisySum]:
        """Return the name and the noise of the count of rows."""
        if self.max_rows is None:
            return "coefficients: number of people", NoisySum.of_counts(part, 1, 1)
        return "coefficients: number of rows", NoisySum.calibrate(part, float(self.max_rows), (1, 1), unit=self._unit)

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
    return residual_sums(rows.table, step, clip, kept=rows.kept, **rows.residual_options).products


# Below, bins would be lost in the rounding of the smallest doubles.
_LEAST_UNIT = 2.0**-1000


@dataclass(frozen=True)
class Minimisers(Mechanism[FloatArray]):
    """One minimiser of a perturbed objective, or one for each class: they have equal parts of the budget."""

    privacy: Privacy
    #: Of each.
    perturbation: ObjectivePerturbation
    number: int
    #: Value of the last feature, the same in every row; 0 for none.
    constant: float = 0.0

    method: ClassVar = "objective"

    @cached_property
    def guaranteed(self) -> bool:
        """Whether the noise is proved to give that."""
        return self.perturbation.guaranteed

    @property
    def scales(self) -> dict[str, float]:
        """Scales of the noise of each."""
        return self.perturbation.scales

    def stages(self) -> Stages[FloatArray]:
        """Ask for one minimiser after the other; they are rows of what is told."""
        found = []
        for i, name in enumerate(names_of_minimisers(self.number)):
            released = yield Query(name, self.perturbation, itemgetter(i))
            found.append(released.values["coef"])
        return lambda: np.array(found)

    def linear(self, found: FloatArray) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        return Linear.split(found, self.constant)


class Linear(NamedTuple):
    """Linear functions of rows: coefficients (l, d) and intercepts (l,)."""

    coef: FloatArray
    intercept: FloatArray

    @classmethod
    def split(cls, coef: FloatArray, constant: float) -> Self:
        """Take the coefficient of a last feature, a constant in every row, for the intercept; 0 is none."""
        if constant == 0.0:
            return cls(coef, np.zeros(len(coef)))
        return cls(coef[:, :-1].copy(), constant * coef[:, -1])


def names_of_minimisers(number: int) -> list[str]:
    """Return what so many releases are called in records."""
    return ["coefficients"] if number == 1 else [f"coefficients of class {i}" for i in range(number)]


_Result = TypeVar("_Result")


@dataclass(frozen=True)
class StepsOf(Around[_Result]):
    """A descent as one of the family's mechanisms."""

    steps: Mechanism[_Result]

    method: ClassVar = "gradient"

    @property
    def inner(self) -> Mechanism[_Result]:
        """The descent; its scale is of an entry of a sum of parts of length 1 that had the whole budget."""
        return self.steps

    def stages(self) -> Stages[_Result]:
        """Ask for one release after the other."""
        return (yield from within(self.steps.stages(), _of_coefficients))


def _of_coefficients(query: Query) -> Query:
    return Query(f"coefficients: {query.name}", *query[1:])


@dataclass(frozen=True)
class Descent(StepsOf[Descended]):
    """Descent for all classes at once."""

    steps: NoisyDescent
    #: Of its rows, in those of the map.
    unit: float

    def stages(self) -> Stages[Descended]:
        """Ask for one release after the other: their names say what they are of."""
        return self.steps.stages()

    def linear(self, found: Descended) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        coef, intercept = Linear.split(found.theta.T, float(self.steps.constant))
        return Linear(coef / self.unit, intercept)


class Placed(NamedTuple):
    """Places of the bins of margins."""

    unit: float
    #: The intercept that some are about, if any.
    offset: float | None
    #: Of all bins, the outermost too.
    ends: FloatArray


class Counts(NamedTuple):
    """How rows are counted by margin and class."""

    #: Of all cells in one histogram.
    noise: NoisySum
    #: The public map of rows, and the length of the longest after it.
    row_map: RowMap
    bound: float
    #: Where bins of margins end, in multiples of `unit_of_margins`.
    edges: FloatArray
    #: Whether margins have an intercept: then there are some bins about it.
    about_intercept: bool = False

    def placed(self, linear: Linear) -> Placed:
        """Return where bins of margins are, by released coefficients."""
        unit, intercept = unit_of_margins(linear, self.bound), linear.intercept
        offset = float(intercept[0]) if self.about_intercept else None
        return Placed(unit, offset, placed(self.edges, unit, offset))


class FewCounts(NamedTuple):
    """What is released where people are few: how many there are by class, and a sum of scores of the link.

    *Share.* The noise of rates is at least that of n mu people, so shares of the budget are larger where n mu is small.
    Where it is not, they are smaller the more classes there are: noise in slopes costs them more accuracy.
    """

    #: Of classes, and of scores.
    noises: tuple[NoisySum, NoisySum]
    row_map: RowMap
    bound: float
    #: The number of rows, where each counts in full.
    n_rows: int | None

    @classmethod
    def split(cls, privacy: Privacy, n_classes: int, people: int) -> tuple[tuple[NoisySum, NoisySum], Privacy]:
        """Return the noise of both, and the rest of the budget."""
        several, alone = n_classes > 2, NoisySum.of_counts(privacy, 1, 1).deviation
        usual = max(_LEAST_OF_SEVERAL, _OVER_SQUARE / n_classes**2) if several else _LEAST_SHARE
        share = max(usual, min(_LARGEST_SHARE, (_KNOWN * alone / people) ** 2))
        own = _OF_CLASSES[several and share == usual] * share
        of_classes, of_link, rest = split_budget(privacy, [own, share - own, 1.0 - share])
        return (NoisySum.of_counts(of_classes, 1, n_classes), NoisySum.calibrate(of_link, 1.0, (1, 1))), rest

    def classes(self, counts: FloatArray) -> Classes:
        """Return what noisy counts (1, n) say of classes."""
        return Classes(counts[0], self.noises[0].deviation, self.n_rows)


# Of mu^2 for the counts of few people: of two classes the least; of several the least, and so much over the square of
# their number. Then the most, and others in deviations of a count with all of it over people. Last the part for counts
# of classes: for two or where the share is larger, and for several.
_LEAST_SHARE, _LEAST_OF_SEVERAL, _OVER_SQUARE = 0.15, 0.012, 0.8
_LARGEST_SHARE, _KNOWN = 0.4, 10.0
_OF_CLASSES = 0.65, 0.5


class Labelled(NamedTuple):
    """The data owner's: the data of a classifier's fit, and the table of the rows counted afterwards."""

    fitted: Any
    table: io.Table
    n_threads: int | None = None
    #: Of the people that rows belong to, if people have several.
    groups: Any = None


@dataclass(frozen=True)
class Calibrated(Mechanism[tuple[Any, Any]]):
    """A classifier, and then noisy counts of rows by margin and class: what probabilities are calibrated with.

    *Privacy.* The cell of a row is a function of that row, of coefficients released before and of public numbers
    (convex_erm/calibration.py). The row adds at most 1 to its cell. Of a person with several rows the first is counted.
    No other person decides which row this is. With more than two classes each class has a histogram of its own. One
    more histogram is of classes alone, in which a row counts for a public weight c at most. So for any coefficients one
    record more or less changes one cell of each of h histograms by up to 1, and one of the last by up to c: by sqrt(h +
    c^2) in the L2 norm, and h + c in L1. One in the place of another changes two of each, by sqrt(2 (h + c^2)) and 2 (h
    + c), as cells that coincide only cancel: `NoisySum.of_counts`. That holds for every value of the coefficients, and
    the noise is drawn afresh. So the counts compose adaptively with any releases before. After Gaussian steps, Gaussian
    counts add to mu squared. After a pure minimiser, pure counts add to epsilon. The privacy loss of an (epsilon,
    delta)-private minimiser has no proved curve under replace-one. After it, the epsilons and the deltas add up
    (`NoisySum.counts_within`). Everything computed from coefficients and counts is post-processing.

    Few people have a histogram of classes in which a row is in one cell, after Gaussian steps, and then a sum of scores
    (`FewCounts`). A score is from -1 to 1 after rounding, and a function of the row, of the coefficients and of the
    released counts of classes. So the histogram changes by sqrt(2) at most and the sum by 2, or each by 1 if a record
    is added, and they add to mu squared too.
    """

    privacy: Privacy
    classifier: Minimisers | Descent
    counts: Counts | FewCounts

    @property
    def method(self) -> str:
        """How the classifier is found."""
        return self.classifier.method

    @property
    def guaranteed(self) -> bool:
        """Whether all of it is proved to keep to the budget."""
        return self.classifier.guaranteed

    @property
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise: of the classifier, and of counts."""
        own = self.counts.noises[1] if isinstance(self.counts, FewCounts) else self.counts.noise
        return {**self.classifier.scales, "counts": own.deviation}

    def stages(self) -> Stages[tuple[Any, Any]]:
        """Ask for the classifier's releases, and for the counts."""
        classifier: Any = self.classifier
        found = (yield from within(classifier.stages(), of_fitted))()
        linear, few = classifier.linear(found), self.counts
        if isinstance(few, FewCounts):
            of_classes, of_link = few.noises
            classes = partial(_count_cells, cells=ClassCells(of_classes.shape[1]))
            in_classes = yield Query("counts of classes", of_classes, classes)
            rates = estimated_rates(few.classes(in_classes.values["sum"]))
            slope = slope_of_link(found.agreement, unit_of_margins(linear, few.bound))
            link = LinkScore(self._margins(linear), linear.intercept, slope, rates)
            score = yield Query("score of the link", of_link, partial(_sum_scores, score=link))
            return lambda: (found, (link, in_classes.values["sum"], score.values["sum"].item()))
        statistic = partial(_count_margins, cells=self.cells(linear))
        released = yield Query("counts of margins by class", few.noise, statistic)
        return lambda: (found, released.values["sum"])

    def linear(self, found: tuple[Any, Any]) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        classifier: Any = self.classifier
        linear: Linear = classifier.linear(found[0])
        return linear

    def cells(self, linear: Linear) -> MarginCells:
        """Return the cells of rows, by released coefficients."""
        assert isinstance(self.counts, Counts)
        edges = self.counts.placed(linear).ends[1:-1]
        return MarginCells(self._margins(linear), linear.intercept, edges)

    def _margins(self, linear: Linear) -> RowMap:
        return replace(self.counts.row_map, basis=np.ascontiguousarray(linear.coef.T))


def unit_of_margins(linear: Linear, bound: float) -> float:
    """Return the root mean square of margins, or of gaps between two, of rows of half the bound even over directions.

    It is 1 where coefficients are 0, and all rows are alike. Of several it is larger where intercepts are far apart.
    """
    n_margins, d = linear.coef.shape
    pairs = 1.0 if n_margins == 1 else 2.0 / n_margins
    unit = 0.5 * bound * math.sqrt(pairs * float(np.sum(linear.coef * linear.coef)) / d)
    unit = unit if _LEAST_UNIT < unit < math.inf else 1.0
    return max(unit, float(np.ptp(linear.intercept)) / FARTHEST_GAP) if n_margins > 1 else unit


def of_fitted(query: Query) -> Query:
    """Ask it of what a classifier or regressor is fitted to."""
    return Query(query.name, query.mechanism, partial(_answer, query.statistic), query.clip, query.sampled_by)


def _answer(statistic: Callable[..., Any], data: Labelled, *bits: Any) -> Any:
    return statistic(data.fitted, *bits)


def _count_margins(data: Labelled, cells: MarginCells) -> FixedPoint:
    return margin_counts(data.table, cells, data.n_threads, groups=data.groups)


def _count_cells(data: Labelled, cells: ClassCells) -> FixedPoint:
    return cell_counts(data.table, cells, data.n_threads)


def _sum_scores(data: Labelled, score: LinkScore) -> FixedPoint:
    return score_sum(data.table, score, data.n_threads)


# Mean squared norm of rows, and mean square of outcomes, as a fraction of their squared bound, where nothing is known.
SPREAD = 0.25
#: Scores without privacy that are assumed where nothing is known: R^2, and accuracy.
R2, ACCURACY = 0.5, 0.8
# Points and weights of means over a standard normal variable.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS /= _WEIGHTS.sum()
# The mean of a curvature that is the same everywhere, rounded as others are.
_EVEN = float(np.ones(len(_POINTS)) @ _WEIGHTS)
# The logistic function is close to the normal distribution function of its argument over this.
_LOGISTIC_WIDTH = 1.7
# Of the shift, and of convexity.
_LARGEST = 6.0
_LEAST_PART = 0.125
# Under add/remove the number of rows is private: between the ends.
_UNKNOWN = 4.0, 1.0


class PlanRequest(NamedTuple):
    """Public numbers that a plan depends on."""

    n: int
    n_features: int
    target: float
    spread: float
    score: float
    #: What the target is a fraction of.
    relative_to: str
    #: Rows of a person, if people own several.
    max_rows: int | None = None

    def plan(
        self,
        error: Callable[[int], float],
        scales: Mapping[str, float],
        expected_score: float,
        notes: Mapping[str, float] | None = None,
    ) -> Plan:
        """Plan for an error to expect of a number of people."""
        needed = least(lambda people: error(people) <= self.target, MOST_ROWS_IF_PRIVATE)
        found, scores = min(error(self.n), 1.0), (self.score, expected_score)
        return Plan(self.n, found, self.target, needed, scales, self.relative_to, notes or {}, *scores)


def relative_error(mechanism: ObjectivePerturbation, n: int, spread: float = SPREAD) -> float:
    """Return the error of predictions over the outcomes' bound, for n people with predictions as large as the bound.

    For counts it is the usual rate over their bound, times the error of log-rates as large as 1.
    """
    if isinstance(mechanism.bounds.loss, LogisticLoss) and mechanism.bounds.loss.shift > 0.0:
        # Of margins but their ratios count: shrinkage is none of it.
        noisy, kept = mechanism.prediction_noise(n, spread, _pull(mechanism.bounds.loss, np.abs(_POINTS)))
        return noisy / kept
    outcome, share = mechanism.bounds.outcome_bound, typical_curvature(mechanism, spread)
    if mechanism.bounds.loss.is_of_counts:
        return _typical_rate(mechanism, spread) / outcome * mechanism.prediction_error(n, spread, 1.0, share)
    return mechanism.prediction_error(n, spread, outcome, share) / outcome


def typical_curvature(mechanism: ObjectivePerturbation, spread: float = SPREAD, score: float = R2) -> float:
    """Return the mean second derivative of a regression's loss as a share of the greatest.

    Residuals are normal, what the share `score` of the outcomes' variance leaves; counts have the usual rate.
    """
    loss = mechanism.bounds.loss
    if isinstance(loss, SquaredLoss):
        return _EVEN
    if loss.is_of_counts:
        curvatures = loss.second_derivative(math.log(_typical_rate(mechanism, spread, score)), np.zeros(len(_POINTS)))
    else:
        residuals = math.sqrt((1.0 - score) * spread) * mechanism.bounds.outcome_bound * _POINTS
        curvatures = loss.second_derivative(residuals, 0.0)
    return float(curvatures @ _WEIGHTS) / loss.second_derivative_bound()


def _typical_rate(mechanism: ObjectivePerturbation, spread: float, score: float = R2) -> float:
    """Return the mean m of counts of a mean square `spread`, in squared bounds.

    A rate leaves a variance of m. That is the share `left` of the whole variance, so m^2 + m/left is the mean square.
    """
    left, square = _left(score), spread * mechanism.bounds.outcome_bound**2
    return 2.0 * left * square / (1.0 + math.sqrt(1.0 + 4.0 * left**2 * square))


def _left(score: float) -> float:
    """Share of the outcomes' variance that features leave."""
    return max(1.0 - score, 2.0**-20)


def expected_r2(mechanism: ObjectivePerturbation, n: int, score: float, spread: float = SPREAD) -> float:
    """Return the R^2 to expect where features explain the share `score` of the outcomes' variance.

    Outcomes have a mean square of `spread` of their squared bound.
    """
    noisy, kept = mechanism.prediction_noise(n, spread, typical_curvature(mechanism, spread, score))
    if mechanism.bounds.loss.is_of_counts:
        # Noise in the logarithm of a rate moves it in proportion; counts have a variance of the rate over what is left.
        relative = noisy**2 * _typical_rate(mechanism, spread, score) * _left(score)
    else:
        relative = (noisy / mechanism.bounds.outcome_bound) ** 2 / spread
    return score - score * (1.0 - kept) ** 2 - relative


def expected_accuracy(
    mechanism: ObjectivePerturbation, n: int, score: float, n_classes: int, spread: float = SPREAD
) -> float:
    """Return the accuracy to expect where `score` is reached without privacy.

    More than two classes are as far from guessing as two would be.
    """
    margin = _LOGISTIC_WIDTH * math.tan(_angle(score, n_classes))
    return score - max(score - 1.0 / n_classes, 0.0) * lost_accuracy(mechanism, n, margin, spread)


def lost_accuracy(mechanism: ObjectivePerturbation, n: int, margin: float, spread: float = SPREAD) -> float:
    """Return privacy's loss, as a share of the gain of margins of a root mean square over guessing.

    The sign of a normal margin agrees with that of another of correlation r, the class, by 1/2 + asin(r)/pi; noise
    lowers the correlation.
    """
    if margin == 0.0:
        return 1.0
    noisy, kept = mechanism.prediction_noise(n, spread, _pull(mechanism.bounds.loss, margin * np.abs(_POINTS)))
    if kept * margin == 0.0:
        # So near guessing that a loss is a line all the way.
        return 1.0
    return _lost(math.atan(margin / _LOGISTIC_WIDTH), 1.0 / math.hypot(1.0, noisy / (kept * margin)))


def lost_share(agreement: float, score: float, n_classes: int) -> float:
    """Return the lost share of the gain over guessing, for margins known up to a correlation, where `score` is reached.

    The sign of a normal margin agrees with that of another of correlation r, the class, by 1/2 + asin(r)/pi.
    """
    return _lost(_angle(score, n_classes), agreement)


def _angle(score: float, n_classes: int) -> float:
    """Return the angle between margins and the classes' true direction at which two classes are separated so well."""
    guessed = 1.0 / n_classes
    return 0.5 * math.pi * min(max(score - guessed, 0.0) / (1.0 - guessed), 0.95)


def _lost(angle: float, agreement: float) -> float:
    """Return the share lost where margins at such an angle are known up to a correlation."""
    return 1.0 - (math.asin(math.sin(angle) * agreement) / angle if angle > 0.0 else agreement)


def _pull(loss: GeneralisedLinearLoss, margins: FloatArray) -> float:
    """Return how strongly rows of normal margins pull parameters from 0 to these, as a share of the curvature."""
    if isinstance(loss, LogisticLoss):
        # By how much more they pull one way than the other at 0, for the probabilities that such margins mean.
        slopes = -loss.derivative(0.0, 1.0) * np.tanh(0.5 * margins)
    else:
        # On the way of a margin from 0 to its full size: a hinge has no curvature at either end.
        slopes = loss.derivative(margins, 1.0) - loss.derivative(0.0, 1.0)
    return float((slopes / margins) @ _WEIGHTS) / loss.second_derivative_bound()


def released_signal(
    mechanism: ObjectivePerturbation, n: int, coef: FloatArray, curvature: float = 1.0, spread: float = SPREAD
) -> float:
    """Return the root mean square of predictions, less the noise in them, for rows even over directions."""
    bounds = mechanism.bounds
    squared = spread / bounds.n_features * bounds.row_bound**2 * float(coef @ coef)
    noisy, kept = mechanism.prediction_noise(n, spread, curvature)
    return math.sqrt(max(squared - noisy**2, 0.0)) / max(kept, 2.0**-30)


def lost_of_released(mechanism: ObjectivePerturbation, n: int, coef: FloatArray, spread: float = SPREAD) -> float:
    """Return the noise's share of the released margins' information, at the curvature where they are."""
    bounds = mechanism.bounds
    size = math.sqrt(spread / bounds.n_features) * bounds.row_bound * float(np.linalg.norm(coef))
    curvatures = bounds.loss.second_derivative(size * np.abs(_POINTS), 1.0)
    share = float(curvatures @ _WEIGHTS) / bounds.loss.second_derivative_bound()
    noisy, _ = mechanism.prediction_noise(n, spread, share)
    return 1.0 if size == 0.0 else 1.0 - math.sqrt(max(1.0 - (noisy / size) ** 2, 0.0))


class Fitting(NamedTuple):
    """The choices for a budget."""

    #: Of the logistic loss.
    shift: float
    #: Strong convexity over the least that costs nothing of epsilon.
    convexity: float


def fitting(privacy: Privacy, n_parameters: int, n_rows: int | None) -> Fitting:
    """Choose for a minimiser with this budget of its own; `n_rows` is None where it is private."""
    if n_rows is None:
        return Fitting(*_UNKNOWN)
    epsilon, delta = privacy.epsilon, privacy.delta
    deviation = gaussian_scale(epsilon, delta) if delta > 0.0 else math.sqrt(n_parameters + 1.0) / epsilon
    v = max(n_rows / (25.0 * n_parameters * deviation), 1.0)
    return Fitting(max(_LARGEST - math.log(v), 0.0), max(1.0 / v, _LEAST_PART))
