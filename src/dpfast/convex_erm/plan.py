"""Choices for a budget, and the error of predictions from privacy, from public numbers.

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
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.estimator.plan import Plan, least
from dpfast.privacy import Privacy, gaussian_scale
from dpfast.releases.objective_bounds import ObjectivePerturbation
from dpfast.solvers import GeneralisedLinearLoss, LogisticLoss
from dpfast.statistics import MOST_ROWS_IF_PRIVATE

# Mean squared norm of rows, and mean square of outcomes, as a fraction of their squared bound, where nothing is known.
SPREAD = 0.25
#: Scores without privacy that are assumed where nothing is known: R^2, and accuracy.
R2, ACCURACY = 0.5, 0.8
# Points and weights of means over a standard normal variable.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS /= _WEIGHTS.sum()
# The logistic function is close to the normal distribution function of its argument over this.
_LOGISTIC_WIDTH = 1.7
# Of the shift, and of convexity.
_LARGEST = 6.0
_LEAST_PART = 0.125
# Under add/remove the number of rows is private: between the ends.
_UNKNOWN = 4.0, 1.0


class Asked(NamedTuple):
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
    outcome, share = mechanism.bounds.outcome_bound, usual_curvature(mechanism, spread)
    if mechanism.bounds.loss.is_of_counts:
        return _usual_rate(mechanism, spread) / outcome * mechanism.prediction_error(n, spread, 1.0, share)
    return mechanism.prediction_error(n, spread, outcome, share) / outcome


def usual_curvature(mechanism: ObjectivePerturbation, spread: float = SPREAD, score: float = R2) -> float:
    """Return the mean second derivative of a regression's loss as a share of the greatest.

    Residuals are normal, what the share `score` of the outcomes' variance leaves; counts have the usual rate.
    """
    loss = mechanism.bounds.loss
    if loss.is_of_counts:
        curvatures = loss.second_derivative(math.log(_usual_rate(mechanism, spread, score)), np.zeros(len(_POINTS)))
    else:
        residuals = math.sqrt((1.0 - score) * spread) * mechanism.bounds.outcome_bound * _POINTS
        curvatures = loss.second_derivative(residuals, 0.0)
    return float(curvatures @ _WEIGHTS) / loss.second_derivative_bound()


def _usual_rate(mechanism: ObjectivePerturbation, spread: float, score: float = R2) -> float:
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
    noisy, kept = mechanism.prediction_noise(n, spread, usual_curvature(mechanism, spread, score))
    if mechanism.bounds.loss.is_of_counts:
        # Noise in the logarithm of a rate moves it in proportion; counts have a variance of the rate over what is left.
        relative = noisy**2 * _usual_rate(mechanism, spread, score) * _left(score)
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
