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
from typing import NamedTuple

import numpy as np
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.solvers.bounds import last_bin
from dpfast.solvers.ridge import MomentNoise, NoisyMoments, RidgeSolution

# An eigenvalue near zero says that the true one is of the noise's size, not that it is zero: see solvers.ridge.
_EIGENVALUE_FLOOR = 0.25
#: Share of the people whose rows, or outcomes, may be longer than the radii that the first moments hold them to.
BEYOND = 0.01
# Mean squared coefficients tried, in units of their precision: from nothing to no shrinkage at all.
_SIGNALS = np.geomspace(1e-6, 1e12, 181)
# A signal is spoken against where its logarithmic likelihood is so far below the largest. More is safer and loses
# accuracy where people are few: of {0, .3, .5, 1, 2}, the least that keeps errors within what is expected of them.
_UNLIKELY = 0.3
_STEPS = 3
# Steps after so many clip as the last of them did: residuals change little by then, and a histogram costs a pass.
_COUNTED_STEPS = 2
_TINY = 1e-280  # in place of a variance of zero
_LEAST_HEARD = 1e-24  # in place of no noise at all, as a part of what is not trusted
_COUNT_MARGIN = 2.0
# What is cut off points in directions of its own, but for a part in common: that of skewed residuals with the constant,
# one of k coordinates, say.
_COHERENCE = 2.0
# Sizes are counted by half-octaves over so many of them; a size below counts in the lowest.
_HALF_OCTAVES = 40


@dataclass(frozen=True)
class Schedule:
    """Shares of mu^2 (of epsilon where delta is 0) of the releases of one fit, adding to 1."""

    bounds: float  # histograms of the lengths of rows and outcomes
    moments: float
    row_sizes: float  # the histogram that clips whitened rows
    row_moments: float  # X'X of whitened rows
    sizes: tuple[float, ...]  # histograms that clip the sums of a step each; the last one's clip holds for later steps
    sums: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Count the residual steps."""
        return len(self.sums)

    def without_steps(self) -> Schedule:
        """Leave to the moments all that is not spent on bounds."""
        return Schedule(self.bounds, 1.0 - self.bounds, 0.0, 0.0, (), ())


def has_steps(people: float, mu: float, shape: tuple[int, int]) -> bool:
    """Return whether steps tell more than they take from the moments, for so many people, from n or a noisy count.

    They need histograms in which people stand out of the noise, an X'X that does in some directions, whose noise has
    a spectrum of sqrt(d) times that of a row, and an X'Y that does, whose noise is as many times longer as there are
    outcomes and features. The constants: below, steps lost to moments more often than not (simulations of `schedule`).
    """
    features, outcomes = shape
    needed: float = max(100.0, 0.8 * features * math.sqrt(features), 2.0 * features * math.sqrt(outcomes))
    return people * mu >= needed


def shortening_bias(people: float, radii: tuple[float, float], shape: tuple[int, int]) -> float:
    """Return `first_belief`'s bias where the `BEYOND` of people are shortened to radii, all in one direction."""
    return BEYOND * max(people, 0.0) * radii[0] * radii[1] / math.sqrt(shape[0] * shape[1])


def schedule(steps: int | None = None, *, bounds: bool = True, shape: tuple[int, int] = (1, 1)) -> Schedule:
    """Return the shares of a fit of so many residual steps; without `bounds` no histograms of lengths are released.

    Near the least mean logarithm of the excess error, over simulated tables of 500 to 200,000 people, 2 to 60 features,
    1 to 100 outcomes, R^2 of .05 to .99, condition 1 to 1,000, bounds up to 30 times loose, features and residuals
    Gaussian, skewed, heavy-tailed and 0 or 1, epsilon of .1 to 8, both adjacencies. It is flat: within 10% for moments
    of .15 to .35, whitened moments of .1 to .3, 3 or more steps, histograms of a tenth to a quarter of a step.
    """
    steps = _STEPS if steps is None else steps
    if steps == 0:
        return Schedule(0.0, 1.0, 0.0, 0.0, (), ())
    first = 0.06 if bounds else 0.0
    # Where outcomes are more than features, what is left to learn is X'Y.
    of_moments, of_rows, of_sizes = (0.15, 0.1, 0.05) if shape[1] > shape[0] else (0.25, 0.2, 0.12)
    moments, rows = of_moments * (1.0 - first), of_rows * (1.0 - first)
    each = (1.0 - first - moments - rows) / steps
    counted = min(steps, _COUNTED_STEPS)
    sums = ((1.0 - of_sizes) * each,) * counted + (each,) * (steps - counted)
    return Schedule(first, moments, 0.15 * rows, 0.85 * rows, (of_sizes * each,) * counted, sums)


@dataclass(frozen=True)
class Belief:
    """What is known of X'X and X'Y, in coordinates of its own: a row u is `basis`'u there."""

    basis: FloatArray  # (D, k)
    xx: FloatArray  # (k, k), noisy
    variance: FloatArray  # (k, k), of the noise in its entries
    xy: FloatArray  # (k, l), all measurements of xx theta pooled
    root: FloatArray  # (k, k): root' root is the precision by which the mean column of xy - xx theta is trusted
    weighed_noise: FloatArray  # (k, k): precision times the covariance of noise alone in xy - xx theta times precision
    #: What noise in X'X brings to the steps' measurements, times their precisions, and its square: standard deviations
    #: that add up, as it is the same noise in all of them, and variances that would if it were not. Shape (2, k).
    repeated: FloatArray
    metric: FloatArray  # (k, k): theta' metric theta is what the penalty multiplies
    penalty: float | None  # None to choose it
    center: FloatArray | None
    fit_intercept: bool

    @property
    def constant(self) -> bool:
        """Whether rows have a 1 as their last entry."""
        return self.fit_intercept or self.center is not None

    @property
    def precision(self) -> FloatArray:
        """How far a column of xy - xx theta is trusted: the inverse of its covariance, and of what clips cut off."""
        return self.root.T @ self.root

    @property
    def covariance(self) -> FloatArray:
        """That of a column of xy - xx theta, with what clips may have cut off and what errors have in common."""
        inverse = _inverse_root(self.root)
        variances = inverse @ inverse.T
        return _symmetric(variances + (variances * self.common) @ variances)

    @property
    def common(self) -> FloatArray:
        """What errors of the steps' measurements, times their precisions, have in common beyond being independent."""
        common: FloatArray = np.maximum(self.repeated[0] ** 2 - self.repeated[1], 0.0)
        return common

    @property
    def whitening(self) -> FloatArray:
        """The matrix (k, D) that takes rows to these coordinates."""
        return np.ascontiguousarray(self.basis.T)

    def mean_length(self, people: float) -> float:
        """Root mean square of how many times longer rows were than they are in these coordinates, for residuals."""
        return math.sqrt(max(people, 1.0) / max(float(np.trace(self.xx)), _TINY))

    def solve(self) -> Estimate:
        """Penalised least squares from what is known, and its error."""
        return _estimate(self)

    def row_map(self) -> tuple[FloatArray, FloatArray]:
        """Return (center, basis): a row z without its 1 has the coordinates (z - center) basis, beside the constant's.

        For a `first_belief`: an intercept's coordinate is apart in it. Without one, the center undoes the rows'.
        """
        features = len(self.basis) - self.constant
        directions: FloatArray = self.basis[:features]
        if not self.fit_intercept:
            return np.zeros(features) if self.center is None else -self.center, np.ascontiguousarray(directions)
        directions = np.ascontiguousarray(directions[:, :-1])
        return -inverse(directions).T @ self.basis[-1, :-1], directions


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
    bias: float = 0.0,
) -> Belief:
    """Return what released moments tell; `ridge` penalises the features alike or each its own way, None chooses.

    `bias` is the root mean square error in an entry of X'Y of holding rows and outcomes to what few are longer than.
    """
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
    penalty = None if ridge is None else 1.0
    belief = Belief(
        basis,
        xx,
        variance,
        xy,
        _root(cross),
        np.diag(1.0 / cross),
        np.zeros((2, len(xx))),
        metric,
        penalty,
        center,
        fit_intercept,
    )
    # Noise in X'X moves X'Y - X'X theta with theta, which is learned from it.
    for _ in range(3):
        estimate = belief.solve()
        squares = np.mean(estimate.theta**2, axis=1) + np.maximum(np.diag(estimate.covariance), 0.0)
        noisy = cross + variance @ squares
        trusted = noisy + bias**2
        belief = replace(belief, root=_root(trusted), weighed_noise=np.diag(noisy / trusted**2))
    if not fit_intercept:
        return whitened(belief)
    # The constant stays the last coordinate: rows about their mean have no product with it.
    features_to, features_back = _white(xx[:-1, :-1], variance[:-1, :-1])
    constant_to, constant_back = _white(xx[-1:, -1:], variance[-1:, -1:])
    return _moved(belief, linalg.block_diag(features_to, constant_to), linalg.block_diag(features_back, constant_back))


def whitened(belief: Belief) -> Belief:
    """Return the same in coordinates in which X'X plus the spectrum of its noise is the identity."""
    return _moved(belief, *_white(belief.xx, belief.variance))


def _white(xx: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the change of coordinates of `whitened`, and its inverse."""
    size = len(xx)
    # As if entries differed by units alone: those of isotropic noise have half the variance off the diagonal.
    spectrum = np.sqrt((size + 1) / 2.0 * np.diag(variance))
    # Without noise, a public count for one, it need only keep rows from being singular.
    spectrum = np.maximum(spectrum, 1e-9 * np.maximum(np.diag(xx), _TINY))
    scale = 1.0 / np.sqrt(spectrum)
    values, vectors = linalg.eigh(_symmetric(scale[:, None] * xx * scale))
    lengths = np.sqrt(np.maximum(values, 0.0) + 1.0)
    return scale[:, None] * vectors / lengths, lengths[:, None] * vectors.T / scale


def _moved(belief: Belief, to: FloatArray, back: FloatArray) -> Belief:
    """Change coordinates: theta becomes back theta, rows to' times them."""
    return replace(
        belief,
        basis=belief.basis @ to,
        xx=_symmetric(to.T @ belief.xx @ to),
        variance=_moved_variance(belief.variance, to),
        xy=to.T @ belief.xy,
        root=belief.root @ back.T,
        weighed_noise=_symmetric(back @ belief.weighed_noise @ back.T),
        metric=_symmetric(to.T @ belief.metric @ to),
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
    belief: Belief,
    xx: FloatArray,
    noise: MomentNoise,
    x: FloatArray | None = None,
    n: float | None = None,
    clip: Clip | None = None,
) -> Belief:
    """Add what the released moments of rows as `Belief.row_map` has them tell of X'X, each entry by its precision."""
    variance = np.full(xx.shape, noise.off_diagonal**2)
    np.fill_diagonal(variance, noise.diagonal**2)
    variance += 0.0 if clip is None else clip.bias**2
    known = np.ones(belief.xx.shape)
    if belief.fit_intercept:
        assert x is not None
        unit = belief.basis[-1, -1]
        corner = (belief.xx[-1, -1], belief.variance[-1, -1]) if n is None else (unit**2 * n, unit**4 * noise.n**2)
        xx = np.block([[xx, unit * x[:, None]], [unit * x[None, :], np.full((1, 1), corner[0])]])
        sums = np.full(len(x), unit**2 * noise.x**2)
        variance = np.block([[variance, sums[:, None]], [sums[None, :], np.full((1, 1), corner[1])]])
        known[-1, -1] = 0.0 if n is None else 1.0
    new, old = known / np.maximum(variance, _TINY), 1.0 / np.maximum(belief.variance, _TINY)
    pooled = (new * xx + old * belief.xx) / (new + old)
    return whitened(replace(belief, xx=_symmetric(pooled), variance=1.0 / (new + old)))


def with_residuals(
    belief: Belief, estimate: Estimate, sums: FloatArray, deviation: float, clip: Clip | None = None
) -> Belief:
    """Add a released sum of rows, in the belief's coordinates, times their residuals from the estimate."""
    squares = np.maximum(np.diag(estimate.covariance), 0.0)
    cut = (0.0, 0.0) if clip is None else (clip.bias**2, clip.cut**2)
    surprise = _surprise(belief, estimate, sums, deviation**2 + belief.variance @ squares + cut[0] + cut[1] * squares)
    # Products of errors, and what few directions hide, are not in the covariance: what was known was known worse.
    belief = replace(
        belief,
        root=belief.root / math.sqrt(surprise),
        weighed_noise=belief.weighed_noise / surprise,
        repeated=belief.repeated / math.sqrt(surprise) ** np.array([[1.0], [2.0]]),
    )
    squares = surprise * squares
    repeated_variance = belief.variance @ squares
    noisy = deviation**2 + repeated_variance
    trusted = noisy + cut[0] + cut[1] * squares
    measured = sums + belief.xx @ estimate.theta
    trust = _root(trusted)
    both, root = linalg.qr(np.vstack([belief.root, trust]), mode="economic")
    pooled = both.T @ np.vstack([belief.root @ belief.xy, trust @ measured])
    weighed_noise = belief.weighed_noise + np.diag(noisy / trusted**2)
    repeated = belief.repeated + np.array([np.sqrt(repeated_variance) / trusted, repeated_variance / trusted**2])
    return replace(belief, xy=_inverse_root(root) @ pooled, root=root, weighed_noise=weighed_noise, repeated=repeated)


def _surprise(belief: Belief, estimate: Estimate, sums: FloatArray, variance: FloatArray) -> float:
    """Return the mean square of released sums in units of that to expect, for xx (theta - theta_k) and noise, or 1."""
    if not np.all(np.isfinite(variance)):
        return 1.0
    expected = belief.xx @ estimate.covariance @ belief.xx + np.diag(variance)
    scaled = _inverse_root(linalg.cholesky(_symmetric(expected))).T @ sums
    return max(1.0, float(np.mean(scaled**2)))


def _estimate(belief: Belief) -> Estimate:
    """Solve (xx + p metric) theta = xy for the penalty p that minimises the expected squared error of predictions.

    With U such that U'xx U = I and U'metric U = diag(kappa), theta = U (U'xy)/(1 + p kappa). For coefficients
    of which the metric takes the mean square tau^2, each of U'xy has the variance tau^2/kappa + rho, rho that of the
    noise, which gives tau^2 by maximum likelihood (empirical Bayes). The error is sum (rho + p^2 kappa tau^2)/(1 + p
    kappa)^2, with what clips may have cut off in rho.
    """
    values, vectors = linalg.eigh(belief.xx)
    floor = _EIGENVALUE_FLOOR * math.sqrt(float(np.mean(np.sum(belief.variance, axis=1))))
    values = np.maximum(values, max(floor, 1e-12 * float(values[-1]), _TINY))
    half = vectors / np.sqrt(values)
    kappa, turn = linalg.eigh(_symmetric(half.T @ belief.metric @ half))
    directions, kappa = half @ turn, np.maximum(kappa, 0.0)
    measured = directions.T @ belief.xy
    inverse = _inverse_root(belief.root)
    parts = directions.T @ inverse
    mistrust = _symmetric(parts @ parts.T)
    noise = parts @ inverse.T
    noise = _symmetric(noise @ (belief.weighed_noise + np.diag(belief.common)) @ noise.T)
    if not np.isfinite(noise).all():
        noise = mistrust  # of precisions beyond 1e150, whose squares no float holds
    rho = np.maximum(np.diag(mistrust), _TINY)
    heard = np.clip(np.diag(noise), _LEAST_HEARD * rho, rho)
    penalised = kappa > 1e-12 * kappa[-1]
    shrunk, signal = np.zeros(len(kappa)), math.inf
    if belief.penalty is not None:
        penalty = belief.penalty
    else:
        signal, largest, penalty = _signal_and_penalty(
            kappa[penalised], rho[penalised], heard[penalised], measured[penalised]
        )
        shrunk = penalty**2 * kappa * largest / (1.0 + penalty * kappa) ** 2
    gain = 1.0 / (1.0 + penalty * kappa)
    theta = directions @ (gain[:, None] * measured)
    damped = directions * gain
    unknown = _symmetric(damped @ mistrust @ damped.T) + _symmetric((directions * shrunk) @ directions.T)
    return Estimate(theta, _symmetric(damped @ noise @ damped.T), unknown, penalty, signal, belief.basis @ theta)


def _signal_and_penalty(
    kappa: FloatArray, rho: FloatArray, noise: FloatArray, measured: FloatArray
) -> tuple[float, float, float]:
    """Return tau^2 of `_estimate`, the largest that what was measured does not speak against, and the penalty."""
    outcomes = measured.shape[1]
    squares = np.sum(measured**2, axis=1)
    unit = float(np.exp(np.mean(np.log(noise * kappa))))
    variances = unit * _SIGNALS[:, None] / kappa + noise
    likelihoods = -0.5 * np.sum(outcomes * np.log(variances) + squares / variances, axis=1)
    likely = np.flatnonzero(likelihoods >= np.max(likelihoods) - _UNLIKELY)
    signal, largest = unit * float(_SIGNALS[np.argmax(likelihoods)]), unit * float(_SIGNALS[likely[-1]])
    penalties = float(np.exp(np.mean(np.log(rho)))) / signal * np.geomspace(1e-4, 1e4, 161)[:, None]
    risks = np.sum((rho + penalties**2 * kappa * signal) / (1.0 + penalties * kappa) ** 2, axis=1)
    return signal, largest, float(penalties[np.argmin(risks), 0])


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


class Clip(NamedTuple):
    """Where to clip, and what that may cost."""

    size: float
    #: Root mean square, over the entries of the sum, of what is cut off if it points anywhere.
    bias: float
    #: Share of the sum that is cut off if all of it has one cause.
    cut: float


def clip_from_counts(
    counts: FloatArray,
    deviation: float,
    edges: FloatArray,
    *,
    shape: tuple[int, int],
    sum_deviation: float,
    coherence: float | None = None,
    heavy: bool = False,
) -> Clip:
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
    coherence : float, optional
        Share of the squared length of all that is cut off, were it all in one direction, that stays; by default that
        of residuals.
    heavy : bool
        Whether the noise in the counts is Laplace.
    """
    entries = shape[0] * shape[1]
    coherence = _COHERENCE / shape[0] if coherence is None else coherence
    # Beyond, there is nothing but noise. Counts within the noise are taken as none.
    last, is_certain = last_bin(counts, deviation, share=0.0, heavy=heavy)
    people = np.maximum(counts - _COUNT_MARGIN * deviation, 0.0)
    people = people[1:] * (np.arange(1, len(people)) <= last)
    sizes = np.append(np.sqrt(edges[:-1] * edges[1:]), edges[-1])
    clips = np.sort(np.concatenate([edges, edges * 2.0**-0.25]))
    excess = np.maximum(sizes - clips[:, None], 0.0)
    squared_bias = excess**2 @ people + coherence * (excess @ people) ** 2
    best = int(np.argmin(entries * (sum_deviation * clips) ** 2 + squared_bias))
    whole = float(people @ sizes**2)
    cut = float((excess[best] * sizes) @ people) / whole if whole > 0.0 else 0.0
    # A sum clipped who knows where tells nothing.
    bias = math.sqrt(float(squared_bias[best]) / entries) if is_certain and whole > 0.0 else math.inf
    return Clip(float(clips[best]), bias, cut)


def _root(variances: FloatArray) -> FloatArray:
    """Return the root of the precision of independent entries."""
    return np.diag(1.0 / np.sqrt(variances))


def _inverse_root(root: FloatArray) -> FloatArray:
    """Invert; what rounding has made of the least that is known counts as little more than nothing."""
    left, values, right = linalg.svd(root)
    values = np.maximum(values, max(len(values) * np.finfo(np.float64).eps * float(values[0]), _TINY))
    inverse: FloatArray = (right.T / values) @ left.T
    return inverse


def inverse(basis: FloatArray) -> FloatArray:
    """Invert a basis whose rows may differ in size; what rounding has made of a direction is as good as none."""
    sizes = np.maximum(linalg.norm(basis, axis=1), _TINY)
    found: FloatArray = _inverse_root(basis / sizes[:, None]) / sizes
    return found


def _symmetric(matrix: FloatArray) -> FloatArray:
    symmetric: FloatArray = (matrix + matrix.T) / 2.0
    return symmetric
