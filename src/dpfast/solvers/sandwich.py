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
_TINY = 1e-280


class Sums(NamedTuple):
    """Noisy sums over people at some coefficients, and the deviations of the noise in their entries."""

    #: Of curvature times x x', (d, d), of score^2 times x x', and of score times x, minus the gradient, (d,).
    curvature: FloatArray
    squares: FloatArray
    score: FloatArray
    #: Off the diagonal of the first, and in the last.
    noise_of_curvature: float
    noise_of_score: float


class Errors(NamedTuple):
    """Coefficients (d,), their covariance, and whether each is known."""

    theta: FloatArray
    covariance: FloatArray
    known: NDArray[np.bool_]
    #: The last curvature of the diagonal, a constant feature's where there is one, and the deviation of its noise.
    curvature_of_last: FloatArray


def newton_step(theta: FloatArray, sums: Sums) -> FloatArray:
    """Return the end of a Newton step; directions below the noise are given the noise's curvature."""
    values, vectors = eigh(sums.curvature)
    return np.asarray(theta + (vectors / np.maximum(values, _least(sums))) @ (vectors.T @ sums.score))


def errors(theta: FloatArray, sums: Sums) -> Errors:
    """Return the result of the last step."""
    values, vectors = eigh(sums.curvature)
    seen = values > _least(sums)
    found = newton_step(theta, sums)
    moved = found - theta
    inverse = (vectors / np.maximum(values, _least(sums))) @ vectors.T
    spread, turned = eigh(sums.squares)
    meat = (turned * np.maximum(spread, 0.0)) @ turned.T + sums.noise_of_score**2 * np.eye(len(theta))
    meat += sums.noise_of_curvature**2 * (float(moved @ moved) * np.eye(len(theta)) + np.outer(moved, moved))
    hidden = vectors[:, ~seen] @ vectors[:, ~seen].T
    last = np.array([sums.curvature[-1, -1], math.sqrt(2.0) * sums.noise_of_curvature])
    covariance = inverse @ meat @ inverse + float(np.mean(found**2)) * hidden
    return Errors(found, 0.5 * (covariance + covariance.T), np.diag(hidden) <= _UNSEEN, last)


def _least(sums: Sums) -> float:
    noise = _STANDS_OUT * sums.noise_of_curvature * math.sqrt(len(sums.score))
    return max(noise, 1e-14 * float(np.trace(sums.curvature)), _TINY)
