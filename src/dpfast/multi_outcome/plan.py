"""The error from privacy in a regression, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
        eigenvalue, power, signal = self._sizes
        squared = features * outcomes * noise.cross**2 + (features + 1) / 2.0 * noise.diagonal**2 * signal
        return squared / (eigenvalue * power) + noise.sampling * features * self.score

    def loss_of_level(self, noise: MomentNoise) -> float:
        """Return the loss from noise in the sums of outcomes, and of rows times theta."""
        _, power, signal = self._sizes
        return (self.shape[1] * noise.y**2 + noise.x**2 * signal) / (self.rows * power)

    @property
    def _sizes(self) -> tuple[float, float, float]:
        """An eigenvalue of X'X, the sum of y'y, and ||theta||^2."""
        eigenvalue, power = self.rows * self.squares[0] / self.shape[0], self.rows * self.squares[1]
        return eigenvalue, power, self.score * power / eigenvalue

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
    """Plan for a fit in stages: its error falls faster than 1/n where directions come out of the noise.

    Shrinkage keeps the error of coefficients below the signal. People who show the mean outcome alone lose all of the
    signal, and the noise in the mean adds to that.
    """

    def error(people: int) -> float:
        loss = mechanism.expected_loss(people, score)
        if math.isinf(loss):
            return math.hypot(math.sqrt(score * spread), mechanism.unit_deviation / people)
        return math.sqrt(spread * score * loss / (score + loss)) if loss > 0.0 else 0.0

    expected = score_in_stages(mechanism, n, score)
    return _plan(error, n, target, mechanism.scales, score, expected)


def planned(
    route: Route,
    of_all: Route,
    n: int,
    shape: tuple[int, int],
    bound_y: float,
    target: float,
    spreads: tuple[float, float],
    score: float,
) -> Plan:
    """Plan for n people whose rows and outcomes have mean squared norms of `spreads` of their squared bounds.

    The route of all rows is compared with where the route takes a sample. Planned for others, people have the same
    fraction sampled.
    """
    noise = route.calibration.noise

    def lost(people: int, noise: MomentNoise) -> float:
        assumed = assumed_of(route, people, shape, bound_y, spreads, score)
        shrunk = max(score - assumed.expected_score(assumed.loss_of_noise(noise)), 0.0)
        return shrunk + assumed.loss_of_level(noise)

    def error_of_noise(people: int) -> float:
        return math.sqrt(lost(people, replace(noise, sampling=0.0)) * spreads[1])

    def error_of_sampling(people: int) -> float:
        # The error of (n/s) X_s'X_s theta is a sum over the sample of rows times predictions. Its mean square in the
        # norm of (X'X)^-1 is (1 - s/n)(d/s) times that of predictions, for rows whose d directions are equally long.
        return math.sqrt(noise.sampling * n / people * shape[0] * score * spreads[1])

    def error(people: int) -> float:
        return math.hypot(error_of_noise(people), error_of_sampling(people))

    plan = _plan(error, n, target, route.calibration.scales, score, score - lost(n, noise))
    if route.calibration.sample is None:
        return plan
    notes = {"error of the noise": error_of_noise(n), "error of sampling": error_of_sampling(n)}
    return replace(plan, notes=notes | _cost_of_sampling(route, of_all, shape))


def _plan(
    error: Callable[[int], float], n: int, target: float, scales: Mapping[str, float], score: float, expected: float
) -> Plan:
    """Return the plan, with the least number of people whose error is the target."""
    needed = least(lambda people: error(people) <= target)
    return Plan(n, min(error(n), 1.0), target, needed, scales, score=score, expected_score=expected)


def assumed_of(
    route: Route, n: int, shape: tuple[int, int], bound_y: float, spreads: tuple[float, float], score: float
) -> Assumed:
    """Assume of rows, and of outcomes, mean squared norms of `spreads` of their squared bounds."""
    unit = route.calibration.people
    rows = n * _counting_rows(route, shape[0], bound_y, spreads[0])
    squares = spreads[0] * route.frame.radius**2, spreads[1] * bound_y**2
    return Assumed(n, rows, shape, squares, score, 1 if unit is None else unit.max_rows)


def lost_share(route: Route | None, in_stages: StagedRegression | None, n: int, bound_y: float) -> float:
    """Return the expected loss of R^2 from noise, as a share, if only public numbers are known."""
    if in_stages is not None:
        return 1.0 - score_in_stages(in_stages, n, R2) / R2
    assert route is not None
    assumed = assumed_of(route, n, route.calibration.shape, bound_y, (SPREAD, SPREAD), R2)
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
