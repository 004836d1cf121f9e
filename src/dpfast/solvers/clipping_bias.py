"""The bias of least squares whose residuals are clipped, from a released sum of what exceeds the clip.

At the fixed point of clipped steps the sum of p clip(r)' is 0, p a row and r its residuals. So X'X times the distance
to least squares is the sum of the excess, p (r - clip(r))'. It is released up to a second, larger clip. What is beyond
that is extrapolated: sizes of parts above the first clip are taken as lognormal, of a spread that is fitted to their
released counts. Costs and counts have such tails about, and normal outcomes shorter ones.

The bias has a prior of unknown size (empirical Bayes; Morris 1983): none, or normal in the constant, of up to the size
that it has if all of the excess has one sign, or as is measured of the constant. Skew moves the constant, and another
mean of residuals shows how far: these are clipped about as far out as the excess, so that as much is beyond. Where the
spread of outcomes grows like a power of their mean, coefficients are moved along themselves, by a multiple of that: for
rows of an elliptical law the mean excess given the row depends on its prediction alone, and so does its sum times rows
(Brillinger 1982). The multiple follows from the growth of the excess with the spread, which the tail has.
Other directions have a prior of a part of that size, never of none: rows of skewed laws have a bias there too, more of
it beyond the second clip than of others. Without a release of the excess the prior and the constant alone say what the
bias may be. Without another mean, as beside weights, the size is that of an excess of one sign, or half of it.

The bias is the excess over X'X without a ridge. One against the noise in X'X takes away a third of the bias of a few
thousand people, and limits about the rest do not hold.

Rows of few people, who alone have a column, are long: of a share f of the people, f^(-1/2) times as long as others in
whitened coordinates. So nearly all of their residuals may be clipped. The column's coefficient has a further prior. Its
mean has the sign of the constant's bias. If both clips are short, most of this bias is beyond the second one too, where
nothing is seen of it: what is measured is then a part of the bias, known a priori, and tells as much less. The second
clip is farther out if such coefficients can be known.

Limits are about the posterior mean, with the posterior covariance. Estimates are moved by it along themselves if the
measured bias is above its noise, and elsewhere if far above it: otherwise a correction may as well harm.

Constants were chosen on tables of 450 to 10,000 people and four to six features at epsilon 1 and 3, with outcomes that
are lognormal, gamma, negative binomial, zero-inflated and normal, have lognormal errors, errors whose spread grows with
one column, or levels of unequal shares. `benchmarks/ridge_limits.py` has others, some of which were seen meanwhile.

References
----------
Brillinger, D. (1982). A generalized linear model with "Gaussian" regressor variables. A Festschrift for Erich L.
Lehmann.
Morris, C. (1983). Parametric empirical Bayes inference: theory and applications. JASA 78.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpfast._arrays import FloatArray
from dpfast.solvers.averaged_descent import Coordinates, DescentResult, inverse
from dpfast.solvers.ridge import eigh, qr

# The share of people beyond the second clip, over that beyond the first.
FEWER = 1.0 / 8.0
# How much farther out the second clip may be for rows of few people: noise in all coefficients grows with it.
_FARTHER = 1.5
# Spreads of logarithms of sizes that are tried, and the prior of their logarithm; and how many people, over those
# aimed at, may be beyond the first clip.
_SPREADS, _TYPICAL_SPREAD, _UNSURE, _BEYOND = np.geomspace(0.4, 2.0, 60), 1.1, 0.4, (0.3, 1.5)
# Least share of people beyond the first clip, and noise in counts; and largest counts, over people and noise.
_LEAST_SHARE, _LEAST_NOISE, _MOST_PEOPLE, _MOST_NOISE = 1e-9, 1e-3, 4.0, 40.0
# Over the larger of what a bias may be and of its noise: the largest that is seen, and the least variance.
_FARTHEST, _EXACT, _TINY = 1e6, 1e-16, 1e-300
# Coefficients lose more beyond the second clip than the constant, the more so the more people are clipped on either
# side: a power of the same factor. All of what is extrapolated is uncertain.
_BY_SHARE, _UNCERTAIN = 5.0, 1.0
# What is beyond the second clip may have a direction of its own: so much of the constant's, times the growth.
_UNSEEN_APART = 0.35
# Of no bias, the probability; its squares tried, over the largest; powers of the mean that the spread may grow like;
# how the spread may grow along coefficients besides, and in other directions.
_NONE, _SQUARES = 0.15, np.exp2([-6.0, -4.0, -2.0, 0.0])
_ALONG, _APART, _OTHERS = np.array([0.0, 0.8, 1.6, 2.4]), 0.2, np.array([0.15, 0.5])
# The largest signal, over the level; part of coefficients that is lost; growth less 1; and multiple.
_LARGEST_SIGNAL, _MOST_LOST, _MOST_GROWTH, _STEEPEST = 0.6, 0.6, 4.0, 2.0
# Up to so many residual deviations in a mean row of few people, all of their bias is beyond a clip; how many more take
# it down by a factor of e; and how unsure that part is, over it.
_ALL_HIDDEN, _BY_E, _HIDDEN_UNSURE = 2.0, 2.0, 0.5
# What is not measured is known so much worse than its size; and squares of measured biases over noise, by chance, and
# if one of few people, or not along coefficients, is sure enough to correct for.
_UNSEEN, _CHANCE, _SURE = 1e3, 1.0, 6.0


class Tail(NamedTuple):
    """The second clip, the mean excess over the first as a multiple of that up to it, and that mean itself."""

    clip: float
    factor: float
    mean: float
    #: How fast the mean grows with the sizes: the derivative of its logarithm by theirs.
    growth: float
    #: Of people beyond the first clip.
    share: float


def tail(
    counts: FloatArray, deviation: float, edges: FloatArray, clip: float, share: float, people: float, far: float = 0.0
) -> Tail:
    """Fit the sizes of parts beyond a clip that a share of the people exceed.

    `counts[i]`, with noise, is of sizes from `edges[i]` to the next one, the last of all beyond. The second clip is
    `far` at least.
    """
    # Whatever was drawn, and for however few: numbers stay in range.
    share, deviation = max(share, _LEAST_SHARE), max(deviation, _LEAST_NOISE)
    most = max(_MOST_PEOPLE * people, _MOST_NOISE * deviation)
    counts = np.clip(counts, -most, most)
    quantiles = special.ndtri([1.0 - share, 1.0 - share * FEWER])
    seen = edges >= min(clip, edges[-1])
    steps = np.log(np.maximum(edges[seen] / clip, 1.0)) / _SPREADS[:, None]
    expected = -people * np.diff(special.ndtr(-(quantiles[0] + steps)), append=0.0)
    squares = np.sum(expected**2, axis=1)
    scales = np.clip(expected @ counts[seen] / np.maximum(squares, 1e-300), *_BEYOND)
    deviances = np.sum((counts[seen] - scales[:, None] * expected) ** 2, axis=1) / deviation**2
    deviances += (np.log(_SPREADS / _TYPICAL_SPREAD) / _UNSURE) ** 2
    weights = np.exp(-0.5 * (deviances - np.min(deviances)))
    spread = math.exp(float(np.log(_SPREADS) @ weights) / float(np.sum(weights)))
    usual = math.exp(spread * float(quantiles[1] - quantiles[0]))
    quantiles[1] += math.log(min(max(far / (clip * usual), 1.0), _FARTHER)) / spread
    ratios = np.exp(spread * (quantiles - quantiles[0]))
    # E (z - c)+ of a lognormal z, over the first c: as the price of an option.
    mean = math.exp(spread**2 / 2.0 - spread * quantiles[0])
    first, second = mean * special.ndtr(spread - quantiles) - ratios * special.ndtr(-quantiles)
    growth = 1.0 + min(share / float(first), _MOST_GROWTH)
    return Tail(clip * float(ratios[1]), float(first / (first - second)), clip * float(first), growth, share)


class Excess(NamedTuple):
    """The released sum of the excess (k, l), the standard deviation of its noise, and its tail; in units."""

    total: FloatArray
    #: None if it was not released.
    deviation: float | None
    tail: Tail


def hidden_share(clips: FloatArray) -> FloatArray:
    """Return which part of few people's bias is beyond clips, over the deviation of a residual in their mean row."""
    return np.asarray(np.exp(np.minimum((_ALL_HIDDEN - clips) / _BY_E, 0.0)))


class RareBiases(NamedTuple):
    """Biases of the coefficients of columns that few people have, d, as they are expected a priori."""

    #: Where a coefficient of 1 is, (d, k), and how large the bias is for each outcome, (l, d).
    directions: FloatArray
    mean: FloatArray
    deviation: FloatArray
    #: Which part of a bias is not seen, (d,).
    hidden: FloatArray
    #: Whether so few people have the column that its bias is its own, (d,).
    is_rare: NDArray[np.bool_]

    def measured_and_true(self, outcome: int, basis: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means of what is measured and of the bias, (2, k), and variances, with covariances between these.

        Parts of one bias in several directions are taken as independent; `joint` makes up for it.
        """
        rotated, seen = self.directions @ basis, 1.0 - self.hidden
        means = np.array([self.mean[outcome] * seen, self.mean[outcome]]) @ rotated
        variances = np.array([seen**2 + (_HIDDEN_UNSURE * self.hidden) ** 2, seen, np.ones(len(seen))])
        return means, (variances * self.deviation[outcome] ** 2) @ rotated**2

    def joint(self, outcome: int, basis: FloatArray, covariance: FloatArray, noise: FloatArray) -> FloatArray:
        """Return a covariance of biases in which those of one column, in several directions, are parts of one.

        So a bias of a rare column's coefficient is none of others'.
        """
        rotated = (self.is_rare * self.deviation[outcome])[:, None] * (self.directions @ basis)
        seen, between, sought = self.measured_and_true(outcome, basis)[1]
        # What is left of each direction's part, where it is measured.
        left = np.sqrt(np.maximum(1.0 - between**2 / np.maximum(sought * (seen + noise), _TINY), 0.0))
        together = rotated.T @ rotated * np.outer(left, left)
        values, vectors = eigh(covariance + together - np.diag(np.diag(together)))
        return np.asarray(vectors * np.maximum(values, 0.0) @ vectors.T)


class Corrected(NamedTuple):
    """Coefficients (k, l) without the bias of clipping, and what they are expected to be, with covariance (l, k, k)."""

    theta: FloatArray
    center: FloatArray
    covariance: FloatArray


def corrected(
    found: DescentResult,
    coordinates: Coordinates,
    excess: Excess,
    level: FloatArray,
    level_variance: float | None,
    rare: RareBiases,
) -> Corrected:
    """Find the expected bias of each outcome's coefficients; `level` is another estimate of a constant, if it has one.

    Coefficients are corrected where their measured bias is above its noise.
    """
    size, constant, of_tail = len(found.theta), coordinates.constant, excess.tail
    factors = np.full(size, of_tail.factor ** (1.0 + _BY_SHARE * of_tail.share))
    factors[size - constant :] = of_tail.factor
    solve = factors[:, None] * inverse(coordinates.resolved())
    # Estimates are moved as far as X'X is above its noise; limits allow for all of it.
    reached = coordinates.ridged_inverse() @ coordinates.resolved() if excess.deviation else np.eye(size)
    largest, deviation = of_tail.mean**2 / size, excess.deviation or 0.0
    seen, noise = solve @ excess.total, (deviation * solve) @ (deviation * solve).T
    if excess.deviation is None:
        noise = _UNSEEN**2 * max(largest, level_variance or 0.0, _TINY) * np.eye(size)
    # Where no other mean shows that it is small, a bias may be as large as the excess.
    squares = _SQUARES if level_variance is not None else _SQUARES[-2:]
    theta, centers, covariances = found.theta.copy(), found.theta.copy(), []
    for outcome, own in enumerate(found.theta.T):
        basis = _basis(own, (rare.deviation[outcome][:, None] * rare.directions).T, constant=constant)
        means, of_few = rare.measured_and_true(outcome, basis)
        bias, variances = basis.T @ seen[:, outcome], np.sum(basis * (noise @ basis), axis=0)
        measured = bias**2 / np.maximum(variances, _TINY)
        along = _ALONG * _LARGEST_SIGNAL * of_tail.growth
        if constant:
            if level_variance is not None:
                # Residuals are clipped for that mean about as far out as for the excess.
                other = of_tail.factor**2 * (level_variance + float(found.covariance[-1, -1]))
                shown = of_tail.factor * (level[outcome] - own[-1])
                bias[0] = (bias[0] * other + shown * variances[0]) / (other + variances[0])
                variances[0] *= other / (other + variances[0])
            along = _along(own, found.covariance, float(level[outcome]), float(bias[0]), of_tail.growth)
        prior = of_few, 1 + constant, max(largest, constant * bias[0] ** 2), along, of_tail.growth, squares
        mean, covariance = _posterior(bias - means[0], variances, *prior)
        mean += means[1]
        covariance = rare.joint(outcome, basis, covariance, variances)
        covariance += (_UNCERTAIN * (1.0 - 1.0 / factors[0])) ** 2 * np.outer(mean, mean)
        if excess.deviation is not None:
            of_constant = mean[0] ** 2 + covariance[0, 0] if constant else largest
            apart = _UNSEEN_APART * of_tail.growth * (1.0 - 1.0 / of_tail.factor)
            covariance += apart**2 * of_constant * np.diag(np.arange(size) >= constant)
        centers[:, outcome] += basis @ mean
        kept = special.expit(measured - np.where(np.arange(size) == constant, _CHANCE, _SURE))
        kept[:constant] = 1.0
        if np.any(means):
            usual, also = (_posterior(bias, variances, part, *prior[1:])[0] for part in (np.zeros_like(of_few), of_few))
            mean = usual + special.expit(measured - _SURE) * (also - usual)
        theta[:, outcome] += reached @ basis @ (kept * mean)
        covariances.append(basis @ covariance @ basis.T)
    return Corrected(theta, centers, np.array(covariances))


def corrected_about(
    constant: FloatArray, found: DescentResult, coordinates: Coordinates, excess: Excess, rare: RareBiases
) -> Corrected:
    """Find it where a direction of the coefficients, and no coordinate, is that of a constant."""
    columns = np.column_stack([constant, np.eye(len(constant))])
    rotated = qr(columns)[0][:, ::-1]
    rotated[:, -1] *= np.sign(rotated[:, -1] @ constant)
    theta, center, covariance = corrected(
        found._replace(theta=rotated.T @ found.theta, covariance=rotated.T @ found.covariance @ rotated),
        replace(coordinates, constant=True, xx=rotated.T @ coordinates.xx @ rotated),
        excess._replace(total=rotated.T @ excess.total),
        rotated[:, -1] @ found.theta,
        None,
        rare._replace(directions=rare.directions @ rotated),
    )
    return Corrected(rotated @ theta, rotated @ center, rotated @ covariance @ rotated.T)


def _along(own: FloatArray, covariance: FloatArray, level: float, bias: float, growth: float) -> FloatArray:
    """Return how much of the constant's bias coefficients along themselves may have.

    If the spread of outcomes grows like a power of their mean, the bias grows like its `growth` times as large a power.
    """
    signal = math.sqrt(max(float(own[:-1] @ own[:-1] - np.trace(covariance[:-1, :-1])), 0.0))
    steepness = signal / max(abs(level), signal / _LARGEST_SIGNAL, _TINY)
    lost = np.clip(growth * _ALONG * abs(bias) / max(abs(level), abs(bias), _TINY), 0.0, _MOST_LOST)
    return np.asarray(math.copysign(1.0, bias) * np.minimum(growth * steepness * _ALONG / (1.0 - lost), _STEEPEST))


def _basis(own: FloatArray, rare: FloatArray, *, constant: bool) -> FloatArray:
    """Return orthonormal columns: the constant, if there is one; the coefficients; those of few people; others."""
    size = len(own)
    leading = [np.eye(size)[-1]] if constant else []
    leading.append(own * (np.arange(size) < size - constant))
    basis, _ = qr(np.column_stack([*leading, rare, np.eye(size)]))
    for place, direction in enumerate(leading):
        basis[:, place] *= 1.0 if basis[:, place] @ direction >= 0.0 else -1.0
    return basis


def _posterior(
    bias: FloatArray,
    variances: FloatArray,
    rare: FloatArray,
    n_leading: int,
    largest: float,
    along: FloatArray,
    growth: float,
    of_squares: FloatArray = _SQUARES,
) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of a bias that is seen with noise of these variances; the leading ones may agree.

    `rare` has the variances of a further part as it is seen, as it is, and between these.
    """
    unit = math.sqrt(max(largest, float(np.max(variances)), float(np.max(rare)), _TINY))
    bias = np.clip(bias / unit, -_FARTHEST, _FARTHEST)
    variances, largest = np.maximum(variances / unit**2, _EXACT), max(largest / unit**2, _EXACT)
    rare = rare / unit**2
    # Of every combination, and first of no bias: the square, how much along, how much apart, and the weight.
    each = np.empty((4, len(of_squares), len(along), len(_OTHERS)))
    each[0], each[1] = (of_squares * largest)[:, None, None], along[:, None]
    each[2], each[3] = np.square(growth * _OTHERS), (1.0 - _NONE) / each[0].size
    squares, along, others, weights = np.concatenate([[[0.0]] * 3 + [[_NONE]], each.reshape(4, -1)], axis=1)
    of_leading = np.column_stack([np.ones_like(along), along])[:, 2 - n_leading :]
    prior = np.einsum("m,mi,mj->mij", squares, of_leading, of_leading)
    prior[:, -1, -1] += (_APART * growth) ** 2 * squares
    leading, rest = np.split(bias, [n_leading])
    own, free = np.split(variances, [n_leading])
    # As seen, between both, and as sought.
    of_rest = (squares * others)[:, None] + rare[:, None, n_leading:]
    of_leading = prior + (rare[:, :n_leading, None] * np.eye(n_leading))[:, None]
    total, apart = of_leading[0] + np.diag(own), of_rest[0]
    inverse, kept = np.linalg.inv(total), of_rest[1] / (apart + free)
    gain = of_leading[1] @ inverse
    logs = np.log(weights) - 0.5 * np.log(np.linalg.det(total / own))
    logs -= 0.5 * np.add.reduce(np.log1p(apart / free), axis=1)
    logs -= 0.5 * np.einsum("i,mij,j->m", leading, inverse, leading)
    logs -= 0.5 * np.add.reduce(rest**2 / (apart + free), axis=1)
    weights = np.exp(logs - np.maximum.reduce(logs))
    weights /= np.add.reduce(weights)
    means = np.hstack([gain @ leading, kept * rest])
    mean = weights @ means
    covariance = ((means - mean).T * weights) @ (means - mean)
    covariance[:n_leading, :n_leading] += np.einsum("m,mij->ij", weights, of_leading[2] - gain @ of_leading[1])
    covariance[n_leading:, n_leading:] += np.diag(weights @ (of_rest[2] - kept * of_rest[1]))
    return unit * mean, unit**2 * covariance
