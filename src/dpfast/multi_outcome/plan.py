"""The error from privacy in a regression, from public numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpfast.estimator.plan import Plan, least
from dpfast.multi_outcome.mechanism import Route
from dpfast.releases.staged_regression import StagedRegression
from dpfast.solvers.ridge import MomentNoise

#: Assumed where nothing is known: mean squared norms as a fraction of squared bounds, and R^2 without privacy.
SPREAD, R2 = 0.25, 0.5


class Assumed(NamedTuple):
    """Assumptions on rows: even over directions, and outcomes explained by them as far as R^2 says."""

    n_people: int
    rows: float
    shape: tuple[int, int]
    #: Mean squared norms of rows and of outcomes.
    squares: tuple[float, float]
    score: float
    max_rows: int = 1

    def loss_of_noise(self, noise: MomentNoise) -> float:
        """Return the loss of R^2 from noise in moments without shrinkage: r'(X'X)^-1 r over the sum of y'y.

        The noise r in X'Y - X'X theta has a mean squared norm of d l cross^2 + (d + 1)/2 diagonal^2 ||theta||^2.
        """
        features, outcomes = self.shape
        eigenvalue = self.rows * self.squares[0] / features
        power = self.rows * self.squares[1]
        signal = self.score * power / eigenvalue
        squared = features * outcomes * noise.cross**2 + (features + 1) / 2.0 * noise.diagonal**2 * signal
        return squared / (eigenvalue * power) + noise.sampling * features * self.score

    def expected_score(self, loss: float) -> float:
        """Return the R^2 to expect, with the best penalty.

        The loss was reckoned for rows that are even over directions. Those of people have eigenvalues like k^-1.5
        rather, k = 1, 2, ..., and coefficients as large in all of them: noise in moments matters most where rows are
        short; but there is least to lose there.
        """
        features = self.shape[0]
        lengths = np.arange(1.0, features + 1.0) ** -1.5
        lengths /= lengths.sum()
        signal = self.score * lengths
        noise = loss / features**2 / lengths
        return self.score - float(np.sum(signal * noise / (signal + noise)))


def score_in_stages(mechanism: StagedRegression, people: float, score: float) -> float:
    """Return the R^2 to expect of a fit in stages."""
    loss = mechanism.expected_loss(people, score)
    return score * score / (score + loss) if score > 0.0 else 0.0


def planned_in_stages(mechanism: StagedRegression, n: int, target: float, spread: float, score: float) -> Plan:
    """Plan for a fit in stages: its error falls faster than 1/n where directions come out of the noise."""

    def error(people: int) -> float:
        return math.sqrt(mechanism.expected_loss(people, score) * spread)

    expected = score_in_stages(mechanism, n, score)
    needed = least(lambda people: error(people) <= target)
    return Plan(n, min(error(n), 1.0), target, needed, mechanism.scales, score=score, expected_score=expected)


def planned(
    route: Route,
    of_all: Route,
    n: int,
    shape: tuple[int, int],
    bound_y: float,
    target: float,
    spread: float,
    score: float,
) -> Plan:
    """Plan for n people whose rows have a mean squared norm of `spread` of their squared bound, even over directions.

    E r'(X'X)^-1 r/n with X'X = (n spread radius^2/d) I, r the noise in X'Y - X'X theta: `mechanism._costs` has it. The
    route of all rows is compared with where the route takes a sample.
    """
    features, _ = shape
    rows = n * _counting_rows(route, features, bound_y, spread)
    error = math.sqrt(features * route.cost) / (spread * route.frame.radius * rows * bound_y)
    assumed = assumed_of(route, n, shape, bound_y, spread, score)
    expected = assumed.expected_score(assumed.loss_of_noise(route.calibration.noise))
    if route.calibration.sample is None:
        return replace(
            Plan.from_error(n, error, target, route.calibration.scales), score=score, expected_score=expected
        )
    # The error of (n/s) X_s'X_s theta is a sum over the sample of rows times predictions. Its mean square in the
    # norm of (X'X)^-1 is (1 - s/n)(d/s) bound_y^2 a person, for rows whose d directions are equally long.
    sampling_error = math.sqrt(route.calibration.noise.sampling * features)
    notes = {"error of the noise": error, "error of sampling": sampling_error} | _cost_of_sampling(route, of_all, shape)
    plan = Plan.from_error(n, error, target, route.calibration.scales, sampling_error=sampling_error, notes=notes)
    return replace(plan, score=score, expected_score=expected)


def assumed_of(route: Route, n: int, shape: tuple[int, int], bound_y: float, spread: float, score: float) -> Assumed:
    """Assume of rows, and of outcomes, a mean squared norm of `spread` of their squared bounds."""
    unit = route.calibration.people
    rows = n * _counting_rows(route, shape[0], bound_y, spread)
    squares = spread * route.frame.radius**2, spread * bound_y**2
    return Assumed(n, rows, shape, squares, score, 1 if unit is None else unit.max_rows)


def lost_share(route: Route | None, in_stages: StagedRegression | None, n: int, bound_y: float) -> float:
    """Return the expected loss of R^2 from noise, as a share, if only public numbers are known."""
    if in_stages is not None:
        return 1.0 - score_in_stages(in_stages, n, R2) / R2
    assert route is not None
    assumed = assumed_of(route, n, route.calibration.shape, bound_y, SPREAD, R2)
    return 1.0 - assumed.expected_score(assumed.loss_of_noise(route.calibration.noise)) / assumed.score


def _counting_rows(route: Route, features: int, bound_y: float, spread: float) -> float:
    """Rows of a person, as planned, less what the bounds on their block scale them down by."""
    unit = route.calibration.people
    if unit is None:
        return 1.0
    # Rows even over as many directions as they can be; outcomes at their bound, explained by rows at theirs.
    norm = unit.max_rows * spread * route.frame.radius / math.sqrt(min(unit.max_rows, features))
    limits = ((unit.bound_xx, route.frame.radius), (unit.bound_xy, bound_y))
    factors = [bound / (norm * length) for bound, length in limits if bound is not None]
    return unit.max_rows * min([1.0, *factors])


def _cost_of_sampling(route: Route, of_all: Route, shape: tuple[int, int]) -> dict[str, float]:
    """Compare X'X of a sample with the one of all rows: its cost in noise, and its saving in arithmetic."""
    features, outcomes = shape
    factor, scales, other = route.calibration.xx_factor, route.calibration.scales, of_all.calibration.scales
    products_of_xx, products_of_xy = features * (features + 1) / 2, features * outcomes
    saved = (1.0 - 1.0 / factor) * products_of_xx / (products_of_xx + products_of_xy)
    return {
        "noise in xx over that without sampling": factor * scales["xx"] / other["xx"],
        "noise in xy over that without sampling": scales["xy"] / other["xy"],
        "fraction of the arithmetic saved": saved,
    }
