"""Public bounds of records on a support of few features, with coefficients ``|theta_j| <= 1``.

The support is chosen (releases/selection.py), then the coefficients on it are those of objective perturbation over that
box (releases/objective_bounds.py), from exact moments. Both see the same bounds. Each mechanism computes the error due
to privacy, from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Self, TypeAlias

from scipy.special import ndtri

from dpfast._arrays import IntArray
from dpfast.estimator.plan import Plan, least
from dpfast.ledger import Release
from dpfast.privacy import Calibration, Privacy
from dpfast.privacy.objective import SplitCost
from dpfast.releases.mechanism import Mechanism, Query, Stages
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation
from dpfast.releases.pursuit import UNCLIPPED, Chosen, Pursuit
from dpfast.releases.selection import Scored, ScoredSelection, VotedSelection, Voters, chance_of_noise
from dpfast.solvers import Box, SquaredLoss
from dpfast.solvers.losses import LeastSquares
from dpfast.statistics import Grid, rounded_bound
from dpfast.statistics.rows import NORM_SLACK, RowMap

#: Root mean square of a coefficient that convexity is chosen for.
TYPICAL_COEFFICIENT = 0.5


# Assumed where nothing is known: mean squared norm of rows on the support as a fraction of its squared bound, the
# smallest coefficient, and R^2 without privacy.
SPREAD, SIGNAL, R2 = 0.25, 0.5, 0.5
# How much larger squared errors of a fit are where delta is 0, of steps that share epsilon and not its square: 240 to
# 4,500 times on tables of 200 to 30,000 people.
_WORSE_IF_PURE = 350.0


class Errors(NamedTuple):
    """Expected errors, in the units of outcomes."""

    #: Root mean squared error of predictions on the right support.
    moved: float
    #: Share of the support that is missed.
    missed: float
    #: Root mean square of predictions with usual coefficients.
    prediction: float
    #: Largest outcome.
    bound: float


def top_entries(size: int) -> RowMap:
    """Scale rows so that the L2 norm of their `size` largest entries is within its root: Algorithm 3, step 3.

    (Algorithm 6 divides by the norm of the whole row instead, which clips rows more than their bound needs.)
    """
    return RowMap(bound=math.sqrt(size), top=size)


def whole_row_bound(size: int, n_columns: int) -> float:
    """Largest L2 norm of a whole row whose `top_entries` are within their bound: all entries are alike then."""
    return math.sqrt(size) * math.sqrt(n_columns / size) * (1.0 + NORM_SLACK)


def bounds_on_support(
    size: int, n_columns: int, bound_x: float | None, bound_y: float, n_rows: int | None
) -> ObjectiveBounds:
    """Bound records restricted to any support, once rows of `n_columns` are rounded to their grid.

    The rows have an L2 norm within `bound_x`; without one they were mapped by `top_entries` and summed within
    `whole_row_bound`.
    """
    if bound_x is not None:
        length = rounded_bound(bound_x, n_columns)
    else:
        unit = 2.0 ** -Grid.for_bounds(whole_row_bound(size, n_columns)).exponent_x
        length = math.sqrt(size) * (1.0 + NORM_SLACK + unit) * (1.0 + 2.0**-50)
    return ObjectiveBounds(SquaredLoss(), size, length, rounded_bound(bound_y, 1), Box(1.0), None, n_rows)


def error_of_coefficients(bounds: ObjectiveBounds) -> SplitCost | None:
    """Return the cost of convexity if the number of people is private; None if it is public.

    `ObjectiveBounds.typical_excess` then assumes no curvature, and the fewest people. Useful coefficients come from
    many people: their error is proportional to the sum of noise and shrinkage.
    """
    if bounds.n_rows is not None:
        return None
    return _ErrorOfCoefficients()


@dataclass(frozen=True)
class _ErrorOfCoefficients(SplitCost):
    """Noise, and the pull of convexity towards 0."""

    def __call__(self, deviation: float, convexity: float) -> float:
        return math.hypot(deviation, TYPICAL_COEFFICIENT * convexity)


class Choices(NamedTuple):
    """Statistics of the table for both stages: the data owner's."""

    statistic: Scored | Voters
    loss_on: Callable[[IntArray], LeastSquares]


@dataclass(frozen=True)
class SupportThenFit(Mechanism[Chosen]):
    """A support, then the coefficients on it: by basic composition, as objective perturbation is not Gaussian."""

    privacy: Privacy
    selection: ScoredSelection | VotedSelection
    regression: ObjectivePerturbation

    @classmethod
    def calibrate(
        cls, privacy: Privacy, bounds: ObjectiveBounds, share: float, voted: tuple[int, int] | None, kind: Calibration
    ) -> Self:
        """Calibrate both; the second takes the rest. A support that is voted for is of so many features, by blocks."""
        selection: ScoredSelection | VotedSelection
        if voted is None:
            # The exponential mechanism is pure.
            part = Privacy(share * privacy.epsilon, 0.0, privacy.adjacency)
            selection = ScoredSelection.calibrate(part, bounds, calibration=kind)
        else:
            part = Privacy(share * privacy.epsilon, share * privacy.delta, privacy.adjacency)
            selection = VotedSelection.calibrate(part, bounds.n_features, *voted, calibration=kind)
        spent = selection.privacy
        rest = Privacy(privacy.epsilon - spent.epsilon, privacy.delta - spent.delta, privacy.adjacency)
        cost = error_of_coefficients(bounds)
        return cls(privacy, selection, ObjectivePerturbation.calibrate(rest, bounds, calibration=kind, cost=cost))

    @cached_property
    def guaranteed(self) -> bool:
        """Whether the noise is proved to give that."""
        return self.selection.guaranteed and self.regression.guaranteed

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is public."""
        return self.regression.bounds.n_rows

    @property
    def scales(self) -> dict[str, float]:
        """Scales of the noise of both."""
        return self.selection.scales | self.regression.scales

    def stages(self) -> Stages[Chosen]:
        """Ask for the support, then for the coefficients."""
        chosen = yield Query("support", self.selection, lambda choices: choices.statistic)
        support = chosen.values["support"]
        fitted = yield Query("coefficients on the support", self.regression, lambda choices: choices.loss_on(support))
        return partial(_chosen, chosen, fitted)

    def errors(self, n: int, n_features: int, spread: float = SPREAD, signal: float = SIGNAL) -> Errors:
        """Return what to expect of n people."""
        bounds = self.regression.bounds
        # Without one feature of the support, its part of the sum of squares is left.
        left = 0.5 * n * spread * bounds.curvature / bounds.n_features * signal**2
        missed = self.selection.missed(left, n_features)
        prediction = math.sqrt(spread) * bounds.row_bound * TYPICAL_COEFFICIENT
        moved = self.regression.prediction_error(n, spread, prediction)
        return Errors(moved, missed, prediction, bounds.outcome_bound)


def _chosen(chosen: Release, fitted: Release) -> Chosen:
    error = math.sqrt(chance_of_noise(chosen)) if "votes" in chosen.values else 0.0
    return Chosen(tuple(chosen.values["support"].tolist()), fitted.values["coef"][:, None], error=error)


@dataclass(frozen=True)
class PursuitFit(Pursuit):
    """Pursuit of features for all outcomes, and what to expect of it."""

    def errors(self, n: int, n_features: int, spread: float = SPREAD, signal: float = SIGNAL) -> Errors:
        """Expect every round to be like the first: residuals are normal and as large as all outcomes."""
        size, n_features = self.size, self.shape[0]
        radius = self.radius(size)
        prediction = math.sqrt(spread) * radius * TYPICAL_COEFFICIENT
        outcome = min(prediction / math.sqrt(R2), self.outcome_bound)
        squares = n * (self.max_rows or 1) * spread * radius**2 / size
        # Of the curvature, the share that the clip leaves.
        score = UNCLIPPED * squares * signal
        odds = score / self.pick(outcome * float(ndtri(0.5 + UNCLIPPED / 2.0))).scales["feature"]
        others = n_features - size
        missed = 1.0 / (1.0 + math.exp(min(odds, 700.0)) / others) if others else 0.0
        # The fit is of residuals, of features assumed to be equally large.
        left = math.sqrt(1.0 - R2) * outcome
        worse = _WORSE_IF_PURE if self.privacy.delta == 0.0 else 1.0
        moved = left * math.sqrt(self.fit.expected_loss(n, 0.0, worse=worse))
        moved = min(moved, prediction)
        return Errors(moved, missed, prediction, self.outcome_bound)


SparseMechanism: TypeAlias = SupportThenFit | PursuitFit


def relative_error(mechanism: SparseMechanism, n: int, n_features: int) -> float:
    """Return the expected error as a share of predictions; a missed feature has an error of its whole share."""
    found = mechanism.errors(n, n_features)
    return math.hypot(found.moved / found.prediction, math.sqrt(found.missed))


def planned(
    calibrated: Callable[[int], SparseMechanism],
    n: int,
    n_features: int,
    target: float,
    spread: float,
    signal: float,
    score: float,
) -> Plan:
    """Plan for n people; of an error of the whole bound, as much counts as of the support is missed.

    The calibration may depend on the number of people.
    """

    def error(people: int) -> float:
        found = calibrated(people).errors(people, n_features, spread, signal)
        return math.hypot(found.moved / found.bound, math.sqrt(found.missed))

    needed = least(lambda people: error(people) <= target)
    mechanism = calibrated(n)
    found = mechanism.errors(n, n_features, spread, signal)
    expected_score = score * ((1.0 - found.missed) - (found.moved / found.prediction) ** 2)
    return Plan(n, min(error(n), 1.0), target, needed, mechanism.scales, score=score, expected_score=expected_score)
