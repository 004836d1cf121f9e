"""Least squares learned in stages, each told by what came before; a function of released and public numbers alone.

Write u for a row in the coordinates in which it is summed, with a 1 as its last entry where there is a constant, and
X'X, X'Y for the sums over all rows. Whatever is released, about coefficients theta_k known by then,

    z_k = (released sum of u r_k') + G theta_k,     r_k = y - u'theta_k the residuals, G the released X'X = X'X + E,

is X'Y + E theta_k + (noise of the release), that is, with theta the coefficients sought (X'X theta = X'Y),

    z_k = G theta + E (theta_k - theta) + noise.

Moments are the case theta_0 = 0. So every stage measures one vector, G theta, and the measurements are pooled by their
precisions (generalised least squares); noise in X'X counts for as much as theta_k was wrong, which `covariance` tells.

The coordinates are whitened by what is known of X'X: with rows basis'u and basis basis' = (G + Lambda)^-1, Lambda the
spectrum of the noise in G, the error of predictions is the length of the error of theta wherever G is resolved. Noise
added in these coordinates, the same in all, costs tr(A) tr(A^-1)/d^2 times less there than noise in those of the rows,
A = G + Lambda (Brown, Hopkins and Smith 2023, Fast, Sample-Efficient, Affine-Invariant Private Mean and Covariance
Estimation for Subgaussian Distributions), and nothing depends on units. Where Lambda hides directions, the moments of
whitened rows, clipped to a length that hardly any exceeds, show them: noise in proportion to X'X + Lambda itself
(Biswas, Dong, Kamath and Ullman 2020, CoinPress; Kamath, Li, Singhal and Ullman 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.solvers.ridge import MomentNoise, NoisyMoments, RidgeSolution

# An eigenvalue near zero says that the true one is of the noise's size, not that it is zero: see solvers.ridge.
_EIGENVALUE_FLOOR = 0.25
# Mean squared coefficients tried, in units of their precision: from nothing to no shrinkage at all.
_SIGNALS = np.geomspace(1e-6, 1e12, 181)
_STEPS = 3
_COUNT_MARGIN = 2.0
# What is cut off points in directions of its own, but for a part in common: that of skewed residuals with the constant,
# one of k coordinates, say.
_COHERENCE = 0.25
# Sizes are counted by half-octaves over so many of them; a size below counts in the lowest.
_HALF_OCTAVES = 40


@dataclass(frozen=True)
class Schedule:
    """Shares of mu^2 (of epsilon where delta is 0) of the releases of one fit, adding to 1."""

    bounds: float  # histograms of the lengths of rows and outcomes
    moments: float
    row_sizes: float  # the histogram that clips whitened rows
    row_moments: float  # X'X of whitened rows
    sizes: tuple[float, ...]  # histograms that clip each step's sums
    sums: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Count the residual steps."""
        return len(self.sums)


def schedule(steps: int | None = None, *, bounds: bool = True) -> Schedule:
    """Return the shares of a fit of so many residual steps; without `bounds` no histograms of lengths are released."""
    steps = _STEPS if steps is None else steps
    if steps == 0:
        return Schedule(0.0, 1.0, 0.0, 0.0, (), ())
    first = 0.06 if bounds else 0.0
    moments, rows = 0.3 * (1.0 - first), 0.15 * (1.0 - first)
    each = (1.0 - first - moments - rows) / steps
    return Schedule(first, moments, 0.1 * rows, 0.9 * rows, (0.05 * each,) * steps, (0.95 * each,) * steps)


@dataclass(frozen=True)
class Belief:
    """What is known of X'X and X'Y, in coordinates of its own: a row u is `basis`'u there."""

    basis: FloatArray  # (D, k)
    xx: FloatArray  # (k, k), noisy
    variance: FloatArray  # (k, k), of the noise in its entries
    xy: FloatArray  # (k, l), all measurements of xx theta pooled
    precision: FloatArray  # (k, k), inverse covariance of xy - xx theta, in the mean of all outcomes
    metric: FloatArray  # (k, k): theta' metric theta is what the penalty multiplies
    penalty: float | None  # None to choose it
    center: FloatArray | None
    fit_intercept: bool

    @property
    def constant(self) -> bool:
        """Whether rows have a 1 as their last entry."""
        return self.fit_intercept or self.center is not None

    @property
    def whitening(self) -> FloatArray:
        """The matrix (k, D) that takes rows to these coordinates."""
        return np.ascontiguousarray(self.basis.T)

    def solve(self) -> Estimate:
        """Penalised least squares from what is known, and its error."""
        return _estimate(self)

    def row_map(self) -> tuple[FloatArray, FloatArray]:
        """Return (center, basis): a row z without its 1 has the coordinates (z - center) basis, beside the constant's.

        An intercept's is apart before whitened rows are summed; without one, the center undoes the rows'.
        """
        features = len(self.basis) - self.constant
        directions: FloatArray = self.basis[:features]
        if not self.fit_intercept:
            return np.zeros(features) if self.center is None else -self.center, np.ascontiguousarray(directions)
        directions = np.ascontiguousarray(directions[:, :-1])
        return linalg.solve(directions.T, -self.basis[-1, :-1]), directions


@dataclass(frozen=True)
class Estimate:
    """Coefficients in the coordinates of a belief, and what noise, and the penalty, leave unknown of them."""

    theta: FloatArray  # (k, l)
    noise: FloatArray  # (k, k), covariance from noise, in the mean of all outcomes
    covariance: FloatArray  # (k, k), with what a chosen penalty shrinks
    ridge: float
    #: Mean square of coefficients, in the metric of the penalty, that it was chosen for; infinite where it was given.
    signal: float
    coef: FloatArray  # (D, l), in the coordinates in which rows are summed


def first_belief(
    moments: NoisyMoments,
    *,
    center: FloatArray | None = None,
    fit_intercept: bool = False,
    ridge: float | FloatArray | None = None,
) -> Belief:
    """Return what released moments tell; `ridge` penalises the features alike or each its own way, None chooses."""
    features = len(moments.xx)
    xx, xy = moments.xx, moments.xy
    noise = moments.noise
    variance = np.full((features, features), noise.off_diagonal**2)
    np.fill_diagonal(variance, noise.diagonal**2)
    cross = np.full(features, noise.cross**2)
    basis = np.eye(features)
    if center is not None or fit_intercept:
        if moments.x is None or moments.y is None or moments.n is None:
            raise ValueError("moments must hold the sums x and y and the count n for an intercept or a center")
        n = max(moments.n, 1.0)
        mean = -center if center is not None and not fit_intercept else moments.x / n
        basis = np.vstack([basis, -mean])
        xx = xx - np.outer(moments.x, mean) - np.outer(mean, moments.x) + n * np.outer(mean, mean)
        xy = xy - np.outer(mean, moments.y)
        variance = variance + noise.x**2 * np.add.outer(mean**2, mean**2) + noise.n**2 * np.outer(mean, mean) ** 2
        cross = cross + noise.y**2 * mean**2
        if fit_intercept:
            basis = np.column_stack([basis, np.eye(features + 1)[-1]])
            xx = linalg.block_diag(xx, n)
            xy = np.vstack([xy, moments.y])
            sums = noise.x**2 + noise.n**2 * mean**2
            variance = np.block([[variance, sums[:, None]], [sums[None, :], np.full((1, 1), noise.n**2)]])
            cross = np.append(cross, noise.y**2)
    weights = np.ones(features) if ridge is None else np.broadcast_to(np.asarray(ridge, dtype=np.float64), features)
    metric = np.diag(np.append(weights, 0.0) if fit_intercept else weights)
    belief = Belief(
        basis, xx, variance, xy, np.diag(1.0 / cross), metric, None if ridge is None else 1.0, center, fit_intercept
    )
    # Noise in X'X moves X'Y - X'X theta with theta, which is learned from it.
    for _ in range(3):
        estimate = belief.solve()
        squares = np.mean(estimate.theta**2, axis=1) + np.diag(estimate.covariance)
        belief = replace(belief, precision=np.diag(1.0 / (cross + variance @ squares)))
    return whitened(belief)


def whitened(belief: Belief) -> Belief:
    """Return the same in coordinates in which X'X plus the spectrum of its noise is the identity."""
    size = len(belief.xx)
    # As if entries differed by units alone: those of isotropic noise have half the variance off the diagonal.
    spectrum = np.sqrt((size + 1) / 2.0 * np.diag(belief.variance))
    # Without noise, a public count for one, it need only keep rows from being singular.
    spectrum = np.maximum(spectrum, 1e-9 * np.maximum(np.diag(belief.xx), np.finfo(np.float64).tiny))
    scale = 1.0 / np.sqrt(spectrum)
    values, vectors = linalg.eigh(scale[:, None] * belief.xx * scale)
    return _moved(belief, scale[:, None] * vectors / np.sqrt(np.maximum(values, 0.0) + 1.0))


def _moved(belief: Belief, to: FloatArray) -> Belief:
    """Change coordinates: theta becomes to^-1 theta, rows to' times them."""
    back = np.linalg.inv(to)
    xx, metric, precision = to.T @ belief.xx @ to, to.T @ belief.metric @ to, back @ belief.precision @ back.T
    return replace(
        belief,
        basis=belief.basis @ to,
        xx=_symmetric(xx),
        variance=_moved_variance(belief.variance, to),
        xy=to.T @ belief.xy,
        precision=_symmetric(precision),
        metric=_symmetric(metric),
    )


def _moved_variance(variance: FloatArray, to: FloatArray) -> FloatArray:
    """Variances of the entries of to' E to, for a symmetric E of independent entries.

    Exact where E is D G D, D diagonal and G isotropic in the Frobenius norm: the second term is what E_ij and E_ji, the
    same number, add then. It is of the first's size on the diagonal alone.
    """
    squares = to**2
    independent = squares.T @ variance @ squares
    lengths = np.diag(variance)
    twice = 0.5 * ((to.T @ (np.sqrt(lengths)[:, None] * to)) ** 2 - squares.T @ (lengths[:, None] * squares))
    return _symmetric(np.maximum(independent + twice, 0.5 * independent))


def with_row_moments(
    belief: Belief, xx: FloatArray, noise: MomentNoise, x: FloatArray | None = None, n: float | None = None
) -> Belief:
    """Add what the released moments of rows as `Belief.row_map` has them tell of X'X, each entry by its precision."""
    variance = np.full(xx.shape, noise.off_diagonal**2)
    np.fill_diagonal(variance, noise.diagonal**2)
    known = np.ones(belief.xx.shape)
    if belief.fit_intercept:
        assert x is not None
        unit = belief.basis[-1, -1]
        corner = (belief.xx[-1, -1], belief.variance[-1, -1]) if n is None else (unit**2 * n, unit**4 * noise.n**2)
        xx = np.block([[xx, unit * x[:, None]], [unit * x[None, :], np.full((1, 1), corner[0])]])
        sums = np.full(len(x), unit**2 * noise.x**2)
        variance = np.block([[variance, sums[:, None]], [sums[None, :], np.full((1, 1), corner[1])]])
        known[-1, -1] = 0.0 if n is None else 1.0
    tiny = np.finfo(np.float64).tiny
    new, old = known / np.maximum(variance, tiny), 1.0 / np.maximum(belief.variance, tiny)
    pooled = (new * xx + old * belief.xx) / (new + old)
    return whitened(replace(belief, xx=_symmetric(pooled), variance=1.0 / (new + old)))


def with_residuals(belief: Belief, estimate: Estimate, sums: FloatArray, deviation: float) -> Belief:
    """Add a released sum of rows, in the belief's coordinates, times their residuals from the estimate."""
    measured = sums + belief.xx @ estimate.theta
    variance = deviation**2 + belief.variance @ np.diag(estimate.covariance)
    precision = belief.precision + np.diag(1.0 / variance)
    pooled = belief.precision @ belief.xy + measured / variance[:, None]
    return replace(belief, xy=linalg.solve(precision, pooled, assume_a="pos"), precision=precision)


def _estimate(belief: Belief) -> Estimate:
    """Solve (xx + p metric) theta = xy for the penalty p that minimises the expected squared error of predictions.

    With U such that U'xx U = I and U'metric U = diag(kappa), theta = U (U'xy)/(1 + p kappa). For coefficients
    of which the metric takes the mean square tau^2, each of U'xy has the variance tau^2/kappa + rho, rho that of the
    noise, which gives tau^2 by maximum likelihood (empirical Bayes); the error is
    sum (rho + p^2 kappa tau^2)/(1 + p kappa)^2.
    """
    values, vectors = linalg.eigh(belief.xx)
    floor = _EIGENVALUE_FLOOR * math.sqrt(float(np.mean(np.sum(belief.variance, axis=1))))
    values = np.maximum(values, max(floor, 1e-12 * float(values[-1]), np.finfo(np.float64).tiny))
    half = vectors / np.sqrt(values)
    kappa, turn = linalg.eigh(_symmetric(half.T @ belief.metric @ half))
    directions, kappa = half @ turn, np.maximum(kappa, 0.0)
    measured = directions.T @ belief.xy
    covariance = _symmetric(directions.T @ linalg.solve(belief.precision, directions, assume_a="pos"))
    rho = np.diag(covariance)
    penalised = kappa > 1e-12 * kappa[-1]
    shrunk, signal = np.zeros(len(kappa)), math.inf
    if belief.penalty is not None:
        penalty = belief.penalty
    else:
        signal, penalty = _signal_and_penalty(kappa[penalised], rho[penalised], measured[penalised])
        shrunk = penalty**2 * kappa * signal / (1.0 + penalty * kappa) ** 2
    gain = 1.0 / (1.0 + penalty * kappa)
    theta = directions @ (gain[:, None] * measured)
    damped = directions * gain
    noise = _symmetric(damped @ covariance @ damped.T)
    unknown = noise + _symmetric((directions * shrunk) @ directions.T)
    return Estimate(theta, noise, unknown, penalty, signal, belief.basis @ theta)


def _signal_and_penalty(kappa: FloatArray, rho: FloatArray, measured: FloatArray) -> tuple[float, float]:
    """Return tau^2 and the penalty of `_estimate`."""
    outcomes = measured.shape[1]
    squares = np.sum(measured**2, axis=1)
    unit = float(np.exp(np.mean(np.log(rho * kappa))))
    variances = unit * _SIGNALS[:, None] / kappa + rho
    likelihoods = -0.5 * np.sum(outcomes * np.log(variances) + squares / variances, axis=1)
    signal = unit * float(_SIGNALS[np.argmax(likelihoods)])
    penalties = float(np.exp(np.mean(np.log(rho)))) / signal * np.geomspace(1e-4, 1e4, 161)[:, None]
    risks = np.sum((rho + penalties**2 * kappa * signal) / (1.0 + penalties * kappa) ** 2, axis=1)
    return signal, float(penalties[np.argmin(risks), 0])


def solution(belief: Belief, estimate: Estimate) -> RidgeSolution:
    """Return coefficients of rows as they were before a public centre was subtracted, and their standard deviations."""
    features = len(belief.basis) - belief.constant
    coef = estimate.coef[:features]
    intercept: FloatArray = np.zeros(coef.shape[1])
    if belief.fit_intercept:
        intercept = estimate.coef[-1] if belief.center is None else estimate.coef[-1] - belief.center @ coef
    noise = np.diag(belief.basis[:features] @ estimate.noise @ belief.basis[:features].T)
    std = np.tile(np.sqrt(np.maximum(noise, 0.0)), (coef.shape[1], 1))
    return RidgeSolution(coef.T.copy(), intercept, std, estimate.ridge)


def size_edges(largest: float) -> FloatArray:
    """Return increasing edges by half-octaves, up to the largest size there can be."""
    edges: FloatArray = largest * np.exp2(-0.5 * np.arange(_HALF_OCTAVES)[::-1])
    return edges


def clip_from_counts(
    counts: FloatArray, deviation: float, edges: FloatArray, *, shape: tuple[int, int], sum_deviation: float
) -> float:
    """Return where to clip what people add to a sum, from noisy counts of their sizes: least noise and bias.

    Parameters
    ----------
    counts : ndarray of shape (len(edges) + 1,)
        People by size: below the first edge, between neighbours, at the last or above.
    deviation : float
        Of the noise in a count.
    edges : ndarray
        Increasing; the clip is at most the last.
    shape : tuple of int
        Of the sum.
    sum_deviation : float
        Of the noise in an entry of the sum, for a clip of 1.
    """
    entries = shape[0] * shape[1]
    # Counts within the noise are taken as none.
    people = np.maximum(counts - _COUNT_MARGIN * deviation, 0.0)
    # Sizes go on without a gap of more than an octave from where most are, or it is noise that is seen beyond.
    last = int(np.argmax(people))
    for size in range(last + 1, len(people)):
        last = size if people[size] > 0.0 and size - last <= 3 else last
    people = people[1:] * (np.arange(1, len(people)) <= last)
    sizes = np.append(np.sqrt(edges[:-1] * edges[1:]), edges[-1])
    clips = np.sort(np.concatenate([edges, edges * 2.0**-0.25]))
    excess = np.maximum(sizes - clips[:, None], 0.0)
    bias = excess**2 @ people + _COHERENCE / shape[0] * (excess @ people) ** 2
    return float(clips[np.argmin(entries * (sum_deviation * clips) ** 2 + bias)])


def _symmetric(matrix: FloatArray) -> FloatArray:
    symmetric: FloatArray = (matrix + matrix.T) / 2.0
    return symmetric
