"""Inference on the minimiser of an expected loss, from noisy sums of curvatures and scores.

For people drawn at random, coefficients without noise have the covariance H^-1 J H^-1, whether the model is true or not
(Huber 1967; White 1982). H is the sum of second derivatives of the loss times x x', J that of squared first
derivatives. One Newton step from nearby coefficients, along the sum of scores g, reaches the minimiser up to terms of
second order. So noise in the sum, of covariance s^2 I, adds H^-1 s^2 H^-1. The step removes earlier errors of the
coefficients: from noise, a ridge or clipped slopes.

Noise E in H, of deviation h off its diagonal, multiplies the step d: E d has the covariance h^2 (||d||^2 I + d d'). It
makes the inverse larger on average, so standard errors are overestimated. Directions of H below its noise are not
identified. The mean squared error there may be as large as that of the coefficients themselves. A coefficient with more
than a small part in them is not identified either.

*Counts.* A shift of all predictions by t multiplies rates, and so curvatures, by exp(t). The score at the shifted
coefficients then follows from the same sums: with the constant feature k it is g - (exp(t) - 1) H_k/k, H_k the
constant's column of H. So the shift after which rates sum to counts is log(1 + k g_k/H_kk), however far that is. A
Newton step would lower the logarithms of too large rates by 1 at most, and raise those of small ones too far. Newton's
step d follows at the shifted coefficients. Noise in H is multiplied by exp(t) d + (exp(t) - 1)/k of the constant. The
error of d is of second order in the change of predictions. So a step is cut where it would change that of any row by
more than `_FAR`. If the last one was, or the released sum of counts is not distinct from its noise, steps have not
converged, and nothing is known.

References
----------
Huber, P. (1967). The behavior of maximum likelihood estimates under nonstandard conditions. Fifth Berkeley Symposium.
White, H. (1982). Maximum likelihood estimation of misspecified models. Econometrica 50.
Le Cam, L. (1956). On the asymptotic theory of estimation and testing hypotheses. Third Berkeley Symposium: one step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import eigh

# An eigenvalue is above the noise beyond this many deviations times the root of their number (Wigner 1955: 2).
_STANDS_OUT = 2.25
# A coefficient is identified if its unit vector has no more than this, squared, in unidentified directions.
_UNSEEN = 0.05
# Change of predictions of counts in a step, at most, for the longest row, and by a shift of all of them.
_FAR, _FARTHEST_SHIFT = 2.0, 3.0
# The same in the last step, as a mean square over rates, at most: half of it is of second order.
_CLOSE = 0.5
# Deviations of the noise that the sum of counts is above, if anything is known.
_DISTINCT = 2.0
_TINY = 1e-280


class Rates(NamedTuple):
    """Public numbers of rows with a loss of counts."""

    #: The constant feature, 0 for none, and the length of the longest row with it.
    constant: float
    length: float

    def most(self, theta: FloatArray) -> float:
        """Return the largest prediction that any row can have."""
        features = theta[:-1] if self.constant > 0.0 else theta
        rest = math.sqrt(max(self.length**2 - self.constant**2, 0.0)) * float(np.linalg.norm(features))
        return rest + self.constant * float(theta[-1])


class Sums(NamedTuple):
    """Noisy sums over people at some coefficients, and the deviations of the noise in their entries."""

    #: Of curvature times x x', (d, d), of score^2 times x x', and of score times x, minus the gradient, (d,).
    curvature: FloatArray
    squares: FloatArray
    score: FloatArray
    #: Off the diagonal of the first, and in the last.
    noise_of_curvature: float
    noise_of_score: float
    #: Of counts alone.
    rates: Rates | None = None


class Errors(NamedTuple):
    """Coefficients (d,), their covariance, and whether each is known."""

    theta: FloatArray
    covariance: FloatArray
    known: NDArray[np.bool_]
    #: The last curvature of the diagonal, a constant feature's where there is one, and the deviation of its noise.
    curvature_of_last: FloatArray


class _Step(NamedTuple):
    """A step, the sums that it is computed from, with the curvatures' spectrum, and whether it ends where it should."""

    moved: FloatArray
    #: What noise in the sum of curvatures is multiplied by.
    blurred: FloatArray
    sums: Sums
    values: FloatArray
    vectors: FloatArray
    is_close: bool


def newton_step(theta: FloatArray, sums: Sums) -> FloatArray:
    """Return the end of a Newton step; directions below the noise are given the noise's curvature."""
    return np.asarray(theta + _step(sums, is_last=False).moved)


def errors(theta: FloatArray, sums: Sums) -> Errors:
    """Return the result of the last step."""
    moved, blurred, sums, values, vectors, is_close = _step(sums, is_last=True)
    seen = values > _least(sums)
    found = theta + moved
    inverse = (vectors / np.maximum(values, _least(sums))) @ vectors.T
    spread, turned = eigh(sums.squares)
    meat = (turned * np.maximum(spread, 0.0)) @ turned.T + sums.noise_of_score**2 * np.eye(len(theta))
    meat += sums.noise_of_curvature**2 * (float(blurred @ blurred) * np.eye(len(theta)) + np.outer(blurred, blurred))
    hidden = vectors[:, ~seen] @ vectors[:, ~seen].T
    last = np.array([sums.curvature[-1, -1], math.sqrt(2.0) * sums.noise_of_curvature])
    covariance = inverse @ meat @ inverse + float(np.mean(found**2)) * hidden
    known = (np.diag(hidden) <= _UNSEEN) & is_close
    return Errors(found, 0.5 * (covariance + covariance.T), known, last)


def _step(sums: Sums, *, is_last: bool) -> _Step:
    rates, shift, blurred, is_close = sums.rates, 0.0, 0.0, True
    if rates is not None and rates.constant > 0.0:
        shift, blurred, sums, is_close = _shifted(sums, rates.constant)
    values, vectors = eigh(sums.curvature)
    moved = (vectors / np.maximum(values, _least(sums))) @ (vectors.T @ sums.score)
    if rates is not None:
        # Without a constant, rates are at least the trace's part of the longest row.
        k, curved = rates.constant, sums.curvature
        rate = float(curved[-1, -1]) / k**2 if k > 0.0 else float(np.trace(curved)) / rates.length**2
        is_close &= float(moved @ sums.score) <= _CLOSE * rate
        if not (is_last and is_close):
            moved = moved * min(1.0, _FAR / max(rates.most(moved), rates.most(-moved), _TINY))
    last = np.eye(len(moved))[-1]
    return _Step(moved + shift * last, moved + blurred * last, sums, values, vectors, is_close)


def _shifted(sums: Sums, constant: float) -> tuple[float, float, Sums, bool]:
    """Return the shift of the last coefficient, its part in `blurred`, the sums there, and if counts are not noise."""
    last = max(float(sums.curvature[-1, -1]), _least(sums))
    ratio, noise = 1.0 + constant * float(sums.score[-1]) / last, constant * sums.noise_of_score / last
    factor = min(max(ratio, noise, math.exp(-_FARTHEST_SHIFT)), math.exp(_FARTHEST_SHIFT))
    shifted = sums._replace(
        curvature=factor * sums.curvature,
        score=sums.score - (factor - 1.0) / constant * sums.curvature[-1],
        noise_of_curvature=factor * sums.noise_of_curvature,
    )
    return math.log(factor) / constant, (1.0 - 1.0 / factor) / constant, shifted, ratio > _DISTINCT * noise


def _least(sums: Sums) -> float:
    noise = _STANDS_OUT * sums.noise_of_curvature * math.sqrt(len(sums.score))
    return max(noise, 1e-14 * float(np.trace(sums.curvature)), _TINY)
