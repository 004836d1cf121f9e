"""Ridge regression: on noisy moments, as post-processing of released matrices and public numbers, or on rows.

The moments are X'X + E and X'Y + F with noise of known size. Three things differ from textbook ridge. The noisy X'X may
have negative eigenvalues, which no table can have, so they are set to zero. The penalty is chosen from the known size
of the noise, to avoid amplifying it in directions of small variance. And the error of the coefficients is known.

Rows may have had a public centre c subtracted before summing, been divided by public units, and a column of ones may
have been summed with them. All are undone here: with z = x - c and the augmented row (z, 1), every solution is ridge on
a linear image of the augmented moments, which `ReducedMoments` computes.

*Panels.* The inverses of a panel's noisy moments have eigenvalues bounded away from the noise. Released moments are
X'X + E. E is symmetric with independent entries of known size, so its spectrum fills an interval with a known edge. An
eigenvalue inside it is uninformative, and its inverse amplifies noise. A ridge large enough to prevent this would also
shrink the few large eigenvalues, the signal of a panel. So there is a floor as well: smaller eigenvalues, ridge
included, are raised to it. Functions with a floor take matrices with any number of leading axes, and solve each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import chdtri

from dpfast._arrays import FloatArray

# A released eigenvalue near zero means that the true one is of the size of the noise, not that it is zero. The floor is
# this fraction of sigma sqrt(d/2), the scale of the noise's spectrum: of {1/4, 1/2, 1} the one nearest to the best
# penalty in hindsight, over simulated tables of 500 to 200,000 rows, 5 to 64 features, flat to steep spectra.
_EIGENVALUE_FLOOR = 0.25
# Deviations of noise that a sum of squares must be above to be seen: noise alone is in one of 160.
_ABOVE_NOISE = 2.5
# Penalties tried, in units of sigma sqrt(d): from no effect to shrinking everything to zero.
_PENALTIES = np.geomspace(1e-3, 1e5, 161)
# Beyond these, a penalty removes the coefficients completely, or none of their noise.
_LEAST_PENALTY, _LARGEST_PENALTY = 2.0**-200, 2.0**500
# Mean squared coefficients are estimated from the directions whose eigenvalue is so many deviations of the noise's
# spectrum above it, all alike: weighted by its square, one direction that all rows share would speak for all of them.
# Of {1/2, 1, 2, 4, 8, 16, 32, 128, inf} squared, the nearest to the best penalty in hindsight, as below.
_SQUARED_SIGNAL_TO_NOISE = 16.0
# The same, where other directions say next to nothing instead: a column of zeros, where X'X has no more than its noise
# and X'Y has as much as anywhere, would drown the signal of all others, of however many rows. The larger of both
# estimates counts. Of {4, 16, 32, 64} and weights that vanish with the second or fourth power of the eigenvalue, near
# the best penalty in hindsight over simulated tables of 1,000 to 200,000 rows, 8 to 30 features, 1 to 100 outcomes,
# spectra flat, steep, singular, and with one direction in common.
_SQUARED_SIGNAL_TO_NOISE_ALONE = 32.0
# Standard deviations that the noise is given the benefit of, where the signal in X'Y and the size of X'X are estimated
# from what is left without its mean. Without them noise passes for signal every other time, and coefficients of nothing
# but noise lose far more than shrunk ones can. Of {0, 1/4, 1/2, 1, 3/2, 2, 5/2, 3} and {1/2, 1, 2} the pair nearest to
# the best penalty in hindsight, over simulated tables of 100 to 50,000 rows, 4 to 64 features, 1 to 600 outcomes,
# spectra flat, steep, and with one direction in common.
_SIGNAL_MARGIN, _SIZE_MARGIN = 1.5, 2.0


@dataclass(frozen=True)
class MomentNoise:
    """Standard deviations of the noise in the entries of released moments; X'X has symmetric noise.

    `sampling` is no standard deviation. If X'X was estimated from s of n rows, sampled without replacement, it is
    (1 - s/n)/s, the variance of a mean over such a sample in units of that of one row. `coef_std` does not include it.
    """

    diagonal: float
    off_diagonal: float
    cross: float  # of X'Y
    x: float = 0.0  # of the sum of rows
    y: float = 0.0  # of the sum of outcomes
    n: float = 0.0  # of the number of rows
    sampling: float = 0.0


@dataclass(frozen=True)
class Shrinkage:
    """Factor of X'Y after its release, from the right: a symmetric S with eigenvalues up to 1."""

    factors: FloatArray  # the eigenvalues of S that are not zero
    lengths: FloatArray  # L2 norms of the columns of S: by how much the noise in each outcome changed
    overlap: FloatArray  # inner products of the rows of X'Y as it was released and as it is now, shape (d, d)


@dataclass(frozen=True)
class NoisyMoments:
    """Released moments of d features x, with a public centre subtracted if there is one, and l outcomes y.

    The sums x and y and the number of rows n are needed for an intercept or a centre.
    """

    xx: FloatArray  # (d, d), symmetric
    xy: FloatArray  # (d, l)
    noise: MomentNoise
    x: FloatArray | None = None
    y: FloatArray | None = None
    n: float | None = None
    shrinkage: Shrinkage | None = None  # of xy since it was released


class Units(NamedTuple):
    """Powers of two near public bounds: in units of them nothing overflows or vanishes, and no other digit changes."""

    rows: float
    outcomes: float

    @classmethod
    def near(cls, bound_x: float, bound_y: float) -> Units:
        """Return the largest powers of two that are not above these bounds."""
        return cls(math.ldexp(0.5, math.frexp(bound_x)[1]), math.ldexp(0.5, math.frexp(bound_y)[1]))

    def moments(self, moments: NoisyMoments, bounds: tuple[float, float] | None = None) -> NoisyMoments:
        """Return moments, as they were released, in these units, means of rows and outcomes within bounds if given."""
        rows, outcomes = self
        own = moments.noise
        squared, product = rows**2, rows * outcomes
        noise = MomentNoise(
            own.diagonal / squared,
            own.off_diagonal / squared,
            own.cross / product,
            own.x / rows,
            own.y / outcomes,
            own.n,
            own.sampling,
        )
        x = None if moments.x is None else moments.x / rows
        y = None if moments.y is None else moments.y / outcomes
        if bounds is not None and x is not None and y is not None and moments.n is not None:
            n = _counted(moments.n)
            x, y = held(x, n * bounds[0] / rows), held(y, n * bounds[1] / outcomes)
        return NoisyMoments(moments.xx / squared, moments.xy / product, noise, x, y, moments.n)

    def penalty(self, ridge: float | FloatArray | None) -> Any:
        """Return a penalty on coefficients in these units; None for None."""
        if ridge is None:
            return None
        return np.where(ridge == 0.0, 0.0, np.clip(ridge / self.rows**2, _LEAST_PENALTY, _LARGEST_PENALTY))[()]

    def center(self, center: FloatArray | None) -> FloatArray | None:
        """Return a public centre of rows in these units; None for None."""
        return None if center is None else center / self.rows

    def of_inference(self, units: FloatArray | None, features: int) -> dict[str, Any]:
        """Return the divisors and the factors for coefficients of rows divided by `units`."""
        per = np.full(features, self.rows) * (1.0 if units is None else units)
        return {"units": per, "outcome_unit": self.outcomes}

    def solution(self, solution: RidgeSolution) -> RidgeSolution:
        """Return a solution in these units as it is in none."""
        slope = self.outcomes / self.rows
        return RidgeSolution(
            slope * solution.coef,
            self.outcomes * solution.intercept,
            slope * solution.coef_std,
            float(self.rows**2 * solution.ridge),
        )


@dataclass(frozen=True)
class RidgeSolution:
    """Coefficients, one row an outcome, and the effect of the noise in the moments on them."""

    coef: FloatArray
    intercept: FloatArray
    coef_std: FloatArray  # first-order standard deviation of coef from the noise alone
    ridge: float  # what was added to the diagonal of X'X

    def times(self, units: FloatArray) -> RidgeSolution:
        """Return the solution for outcomes scaled by one factor each."""
        rows = units[:, None]
        return RidgeSolution(rows * self.coef, units * self.intercept, rows * self.coef_std, self.ridge)


def hidden_columns(squares: FloatArray, noise: FloatArray | float) -> NDArray[np.bool_]:
    """Return which columns' sums of squares are no more than noise of this deviation, and certainly below another's.

    Such columns may be in another unit than the rest: nothing tells how large their coefficients are.
    """
    reach = _ABOVE_NOISE * np.asarray(noise)
    return np.asarray((squares < reach) & (squares + reach < np.max(squares - reach)))


def positive_semidefinite(matrix: FloatArray) -> FloatArray:
    """Nearest positive semidefinite matrix in Frobenius norm to a symmetric one (Higham 1988, Theorem 2.1).

    Negative eigenvalues become zero.
    """
    values, vectors = eigh(matrix)
    return symmetric((vectors * np.maximum(values, 0.0)) @ vectors.T)


def symmetric(matrix: FloatArray) -> FloatArray:
    """Return the mean of a matrix and its transpose, which differ by rounding."""
    return np.asarray((matrix + matrix.T) / 2.0)


def denoised_eigenvalues(values: FloatArray, off_diagonal: float) -> FloatArray:
    """Return the mean of v'(X'X)v for the eigenvectors v of X'X and noise, of these eigenvalues.

    An eigenvalue is pushed by others, by off_diagonal^2 over its distance from each, and its vector turned towards
    theirs, which costs as much again.
    """
    if off_diagonal == 0.0:
        return np.maximum(values, 0.0)
    apart = values[:, None] - values
    # Neighbours nearer than the noise in an entry are not distinguished.
    pushed = np.sum(apart / (apart**2 + off_diagonal**2), axis=1)
    return np.asarray(np.maximum(values - 2.0 * off_diagonal**2 * pushed, 0.0))


def automatic_ridge(reduced: ReducedMoments, shrinkage: Shrinkage | None = None) -> float:
    """Penalty that minimises the estimated excess risk caused by the noise, by the penalty and by earlier shrinkage.

    Write s_i for the eigenvalues of X'X, S for the shrinkage of X'Y (the identity if there was none), t = ||theta
    S||^2/d for the true coefficients theta (assumed to be spread evenly over the features), u = <theta, theta S>/d, and
    v = cross^2 tr(S^2) + d t (mean squared entry of the noise in X'X) for the variance of the noise in a row of (X'Y)
    S - X'X theta S. In the eigenbasis the penalty p leaves an excess risk of about

        sum_i s_i (s_i^2 t + v)/(s_i + p)^2 - 2 s_i^2 u/(s_i + p)

    more than coefficients of zero do. Row i of X'Y S has in expectation the squared norm s_i^2 t + cross^2 tr(S^2), and
    its product with that of X'Y s_i^2 u + cross^2 tr(S): t and u are weighted means over i, less the noise's mean share
    and one and a half standard deviations of it. Two sets of weights are tried, and the larger result is used.

    If X'X is n/s times the sum over a sample of s of n rows, the error of X'X theta is a sum of n prediction errors
    times rows. If the component of rows along theta is independent of their other components, its variance in direction
    i is (1 - s/n)/s times s_i and the sum of squared predictions, t sum_j s_j. It joins v, direction by direction.

    Without noise it is 0.
    """
    noise, xy = reduced.noise, reduced.xy
    if noise.diagonal == noise.off_diagonal == 0.0:
        return 0.0
    factors = np.ones(xy.shape[1]) if shrinkage is None else shrinkage.factors
    eigenvalues, vectors = reduced.spectrum
    rotated = vectors.T @ xy
    squares = np.einsum("ij,ij->i", rotated, rotated)
    products = squares if shrinkage is None else np.sum(vectors * (shrinkage.overlap @ vectors), axis=0)
    return _least_risk_penalty(eigenvalues, squares, products, factors, noise)


def automatic_diagonal_ridge(diagonal: FloatArray, xy: FloatArray, noise: MomentNoise) -> float:
    """Penalty of `automatic_ridge` for one outcome where X'X is known to be diagonal, its noise too; shapes (d,)."""
    if noise.diagonal == 0.0:
        return 0.0
    return _least_risk_penalty(diagonal, xy**2, xy**2, np.ones(1), noise)


def _least_risk_penalty(
    eigenvalues: FloatArray, squares: FloatArray, products: FloatArray, factors: FloatArray, noise: MomentNoise
) -> float:
    """Minimise the risk of `automatic_ridge`, from rows of X'Y in the eigenbasis: squared norms, and products."""
    features = len(eigenvalues)
    # d times the mean squared entry of the noise in X'X.
    spectrum = noise.diagonal**2 + (features - 1) * noise.off_diagonal**2
    kept, aligned = 0.0, 0.0
    for votes in _votes(eigenvalues**2 / spectrum):
        # The squared norm of the noise, d times that of its spectrum, has standard deviation 2/d of its mean.
        size = float(votes @ (eigenvalues**2 - spectrum))
        size = max(size, 2.0 * _SIZE_MARGIN / features * spectrum * float(np.sum(votes)))
        signal = _signal(squares, votes, factors**2, noise.cross)
        if signal > kept * size:
            kept, aligned = signal / size, _signal(products, votes, factors, noise.cross) / size
    variance = noise.cross**2 * float(np.sum(factors**2)) + spectrum * kept
    values = np.maximum(eigenvalues, 0.0)
    weights = np.maximum(values, _EIGENVALUE_FLOOR * math.sqrt(spectrum))
    penalties = math.sqrt(spectrum) * _PENALTIES
    variances = variance + noise.sampling * kept * float(np.sum(values)) * weights
    damped = values + penalties[:, None]
    risks = np.sum(weights * ((values**2 * kept + variances) / damped - 2.0 * values * aligned) / damped, axis=1)
    return float(penalties[np.argmin(risks)])


def _votes(signals_to_noise: FloatArray) -> Iterator[FloatArray]:
    """Weights of the directions, by their squared eigenvalues in units of the squared spectrum of the noise."""
    yield 1.0 / (signals_to_noise + _SQUARED_SIGNAL_TO_NOISE)
    lifted = signals_to_noise + _SQUARED_SIGNAL_TO_NOISE_ALONE
    yield (signals_to_noise / lifted) ** 2 / lifted


def _signal(squares: FloatArray, votes: FloatArray, factors: FloatArray, cross: float) -> float:
    """Return the weighted sum of squared rows of X'Y less what noise, multiplied by `factors`, may well have of it."""
    mean = cross**2 * float(factors.sum()) * float(votes.sum())
    deviation = math.sqrt(2.0) * cross**2 * (math.sqrt(factors @ factors) * math.sqrt(votes @ votes))
    return max(float(votes @ squares) - mean - _SIGNAL_MARGIN * deviation, 0.0)


def ridge_from_moments(
    moments: NoisyMoments,
    ridge: float | FloatArray | None = None,
    *,
    center: FloatArray | None = None,
    units: FloatArray | None = None,
    fit_intercept: bool = False,
    reduced: ReducedMoments | None = None,
) -> RidgeSolution:
    """Ridge coefficients of every outcome from one set of noisy moments.

    `ridge`, one or (d,), is added to the diagonal of X'X, by default `automatic_ridge`; at 0 the minimum-norm solution
    is taken where X'X is singular. The coefficients are those of the rows as they were before they were divided by
    `units` and `center`, in those units, was subtracted: a penalty that is given is for them, the automatic one for
    rows in the units. An intercept is not penalised. `reduced` are these moments without the constant column, if they
    are known.
    """
    reduced = reduced or reduced_moments(moments, center, fit_intercept)
    shrinkage = moments.shrinkage
    penalty = automatic_ridge(reduced, shrinkage) if ridge is None else ridge
    response = _response(reduced, penalty, units if ridge is not None and np.any(ridge) else None)
    theta = response @ reduced.xy
    constant = np.zeros(theta.shape[1])
    intercept = np.zeros(theta.shape[1])
    if fit_intercept:
        x, y, n = _sums(moments)
        constant = (y - x @ theta) / n
        intercept = constant if center is None else constant - center @ theta
    elif center is not None:
        constant = center @ theta
    cross = moments.noise.cross * (np.ones(theta.shape[1]) if shrinkage is None else shrinkage.lengths)
    std = _coefficient_std(response, reduced.shift, theta, constant, moments.noise, cross)
    own = 1.0 if units is None else units
    return RidgeSolution(theta.T / own, intercept, std.T / own, float(np.max(penalty)))


def _response(reduced: ReducedMoments, penalty: float | FloatArray, units: FloatArray | None) -> FloatArray:
    """Return the inverse of the repaired X'X and its penalty, of the coefficients of rows as they were before `units`.

    With u = units/max(units), (X'X + penalty diag(1/units^2))^-1 is u (u X'X u + penalty/max(units)^2 I)^-1 u.
    """
    if units is not None:
        penalty = penalty / float(np.max(units)) ** 2
        units = units / np.max(units)
    if np.ndim(penalty):
        xx = positive_semidefinite(reduced.xx)
        values, vectors = eigh((xx if units is None else xx * np.outer(units, units)) + np.diag(penalty))
        penalty = 0.0
    elif units is not None:
        values, vectors = eigh(positive_semidefinite(reduced.xx) * np.outer(units, units))
    else:
        values, vectors = reduced.spectrum
    damped = np.maximum(values, 0.0) + penalty
    # The cut-off of the usual pseudo-inverses: the largest rounding error of a zero eigenvalue.
    cutoff = len(values) * np.finfo(np.float64).eps * float(damped[-1])
    inverse = np.divide(1.0, damped, out=np.zeros_like(damped), where=damped > cutoff)
    response: FloatArray = (vectors * inverse) @ vectors.T
    return response if units is None else response * np.outer(units, units)


def ridge_from_rows(
    rows: FloatArray, outcomes: FloatArray, penalty: float, n_components: int | None = None
) -> FloatArray:
    """Solve (X'X + penalty I) theta = X'Y by the singular values of X, more accurately than from X'X.

    At no penalty the minimum-norm solution; `n_components` keeps the largest so many singular values: hard singular
    value thresholding (Amjad, Shah and Shen 2018, Robust Synthetic Control, JMLR 19, Algorithm 1).
    """
    left, singular, right = np.linalg.svd(rows, full_matrices=False)
    # The largest rounding error of a zero: the cut-off of the usual pseudo-inverses.
    kept = singular > max(rows.shape) * np.finfo(np.float64).eps * singular[0]
    if n_components is not None:
        kept[n_components:] = False
    gain = np.divide(singular, singular**2 + penalty, out=np.zeros_like(singular), where=kept)
    return np.asarray((right.T * gain) @ (left.T @ outcomes))


def ridge_of_each_outcome(moments: NoisyMoments, ridge: float | None = None) -> RidgeSolution:
    """Ridge coefficients where every outcome has a noisy X'X of its own: `xx` of shape (l, d, d).

    The `ridge` of the solution is the largest used.
    """
    fits = [ridge_from_moments(one, ridge) for one in moments_of_each_outcome(moments)]
    return RidgeSolution(
        np.concatenate([fit.coef for fit in fits]),
        np.concatenate([fit.intercept for fit in fits]),
        np.concatenate([fit.coef_std for fit in fits]),
        max(fit.ridge for fit in fits),
    )


def moments_of_each_outcome(moments: NoisyMoments) -> list[NoisyMoments]:
    """Part moments whose every outcome has a noisy X'X of its own."""
    return [NoisyMoments(xx, moments.xy[:, [column]], moments.noise) for column, xx in enumerate(moments.xx)]


@dataclass(frozen=True)
class ReducedMoments:
    """Moments after the constant column is eliminated; a residual r of the augmented system acts as r_x + shift r_1."""

    xx: FloatArray
    xy: FloatArray
    shift: FloatArray | None
    noise: MomentNoise

    @cached_property
    def spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors of X'X."""
        values, vectors = eigh(self.xx)
        return values, vectors


def _sums(moments: NoisyMoments) -> tuple[FloatArray, FloatArray, float]:
    if moments.x is None or moments.y is None or moments.n is None:
        raise ValueError("moments must hold the sums x and y and the count n for an intercept or a center")
    return moments.x, moments.y, _counted(moments.n)


def _counted(n: float) -> float:
    """Return a number of rows: a noisy count can be anything, a table to fit has at least a row."""
    return max(n, 1.0)


def held(vector: FloatArray, length: float) -> FloatArray:
    """Scale a vector onto a length, if it is longer."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= length else vector * (length / norm)


def reduced_moments(moments: NoisyMoments, center: FloatArray | None, fit_intercept: bool) -> ReducedMoments:
    """Eliminate the constant column, or undo the centre."""
    if center is None and not fit_intercept:
        return ReducedMoments(moments.xx, moments.xy, None, moments.noise)
    x, y, n = _sums(moments)
    if fit_intercept:
        shift = -x / n
        xx = moments.xx - np.outer(x, x) / n
        xy = moments.xy - np.outer(x, y) / n
    else:
        assert center is not None
        shift = center
        xx = moments.xx + np.outer(center, x) + np.outer(x, center) + n * np.outer(center, center)
        xy = moments.xy + np.outer(center, y)
    return ReducedMoments(xx, xy, shift, _reduced_noise(moments.noise, shift, y / n))


def _reduced_noise(noise: MomentNoise, shift: FloatArray, mean_y: FloatArray) -> MomentNoise:
    """Entrywise noise of the reduced moments.

    With e the noise in the sum of rows and f that in the sum of outcomes, the reduced residual gains
    shift (f - e'theta) - e (prediction at the centre). The first part lies in one direction and is spread evenly over
    the entries; the prediction at the centre is about the mean outcome.
    """
    features = len(shift)
    squared = float(shift @ shift)
    added = squared * noise.x**2 / features**2
    cross = noise.cross**2 + squared * noise.y**2 / features + float(np.mean(mean_y**2)) * noise.x**2
    return MomentNoise(math.hypot(noise.diagonal, added**0.5), math.hypot(noise.off_diagonal, added**0.5), cross**0.5)


def _coefficient_std(
    response: FloatArray,
    shift: FloatArray | None,
    theta: FloatArray,
    constant: FloatArray,
    noise: MomentNoise,
    cross: FloatArray,
) -> FloatArray:
    """First-order standard deviation of theta = response (h - G theta) under noise in the augmented moments (G, h).

    The residual of entry i is F_i - sum_k E_ik w_k with w = (theta, constant) and E symmetric, so its covariance has
    c^2 + sum_k V_ik w_k^2 on the diagonal and V_ik w_i w_k off it, V the entrywise variances of E. V is constant on
    the blocks (diagonal, off-diagonal, ones column, count), which keeps the cost at O(d^2 l).
    """
    diagonal, off = noise.diagonal**2, noise.off_diagonal**2
    squares = theta**2
    own = cross**2 + off * np.sum(squares, axis=0) + (diagonal - 2.0 * off) * squares + noise.x**2 * constant**2
    projected = response @ theta
    variance = response**2 @ own + off * projected**2
    if shift is not None:
        last = (response @ shift)[:, None]
        own_last = noise.y**2 + noise.x**2 * np.sum(squares, axis=0) + noise.n**2 * constant**2
        variance += last**2 * own_last + 2.0 * noise.x**2 * projected * last * constant
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def eigh(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues and eigenvectors of a symmetric matrix.

    As `scipy.linalg.eigh`, to the bit, which takes more than twice as long for small ones; of large ones, those that
    are diagonal already are only sorted.
    """
    matrix = np.asarray_chkfinite(matrix)
    if len(matrix) >= _LARGE:
        diagonal = np.diag(matrix)
        if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
            order = np.argsort(diagonal, kind="stable")
            return diagonal[order], np.eye(len(matrix))[:, order]
    lwork, liwork = _room_for_eigh(len(matrix))
    values, vectors, _, _, info = lapack.dsyevr(matrix, lower=1, lwork=lwork, liwork=liwork)
    if info != 0:
        raise np.linalg.LinAlgError(f"the eigenvalues of a matrix were not found: dsyevr returned {info}")
    return values, vectors


def qr(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the economic QR decomposition, as `scipy.linalg.qr`, to the bit, in a fifth of its time for small ones."""
    rows, columns = matrix.shape
    lwork = 64 * max(rows, columns)  # for LAPACK's widest blocks
    packed, factors, _, _ = lapack.dgeqrf(np.asarray_chkfinite(matrix), lwork=lwork)
    basis, _, _ = lapack.dorgqr(packed[:, :rows], factors, lwork=lwork)
    return basis, np.triu(packed[:columns])


@lru_cache(maxsize=64)
def _room_for_eigh(size: int) -> tuple[int, int]:
    lwork, liwork, _ = lapack.dsyevr_lwork(size, lower=1)
    return int(lwork), int(liwork)


# Floor in units of the edge of the noise's spectrum: of {0.35, 0.7, 1, 1.4, 2, 3} the best or nearly so over the
# paper's panels of 1,000 and 10,000 donors and three-factor panels of 300 to 100,000.
_FLOOR_OF_EDGE = math.sqrt(2.0)
# Rows from which on it is worth looking whether a matrix is diagonal: eigenvalues take a fifth of a millisecond.
_LARGE = 32
# 99th percentile of the Tracy-Widom law of real symmetric matrices.
_TRACY_WIDOM_99 = 2.0233
# Rounding error of a zero eigenvalue, relative to the largest.
_ROUNDING = 1e-12
# Share of a path's norm assumed to be noise of the path itself.
_OWN_SHARE = 0.02


def noise_edge(n_features: int, off_diagonal: float) -> float:
    """Return the edge of the spectrum of symmetric noise, 2 sigma sqrt(d), sigma that of its entries off the diagonal.

    Wigner, E. P. (1958). On the distribution of the roots of certain symmetric matrices. Annals of Mathematics 67.
    """
    return 2.0 * off_diagonal * math.sqrt(n_features)


def noise_floor(n_features: int, off_diagonal: float) -> float:
    """Return the least that an eigenvalue of noisy moments should count for: sqrt(2) times the edge of the noise."""
    return _FLOOR_OF_EDGE * noise_edge(n_features, off_diagonal)


def damped_solve(
    xx: FloatArray, right: FloatArray, penalty: float, floor: float, n_components: int | None = None
) -> FloatArray:
    """Return V diag(1/max(max(v, 0) + penalty, floor)) V' right, for symmetric xx = V diag(v) V'.

    Where the denominator is no more than rounding of the largest eigenvalue the inverse is zero. So it is, with
    `n_components`, but on that many of the largest eigenvalues.
    """
    values, vectors = np.linalg.eigh(xx)
    damped = np.maximum(np.maximum(values, 0.0) + penalty, floor)
    rounding = np.maximum(_ROUNDING * np.maximum(values[..., -1:], 0.0), np.finfo(np.float64).tiny)
    inverse = np.where(damped > rounding, 1.0 / np.maximum(damped, rounding), 0.0)
    if n_components is not None:
        inverse[..., : values.shape[-1] - n_components] = 0.0
    return np.asarray(vectors @ (inverse[..., None] * (np.swapaxes(vectors, -1, -2) @ right)))


def coefficients_of_solution(theta: FloatArray, basis: FloatArray | None, n_post: int) -> dict[str, Any]:
    """Part coefficients on features into those of later and of earlier periods, on the periods themselves."""
    post, back = np.split(theta, [n_post], axis=1)
    if basis is not None:
        post, back = basis @ post, basis @ back @ basis.T
    return {"coef_": post.T.copy(), "pre_coef_": back.T.copy()}


def coefficients_of_moments(
    xx: FloatArray, xy: FloatArray, basis: FloatArray | None, ridge: float, floor: float, keep: int | None
) -> dict[str, Any]:
    """Solve for a panel's coefficients at half the ridge; eigenvalues below the floor are raised to it."""
    theta = damped_solve(xx, np.concatenate([xy, xx], axis=1), ridge / 2.0, floor, keep)
    return coefficients_of_solution(theta, basis, xy.shape[1])


def components_beyond(xx: FloatArray, threshold: float) -> int:
    """Count the eigenvalues above a threshold, such as `noise_floor`; at least one."""
    return max(1, int(np.sum(np.linalg.eigvalsh(xx) > threshold)))


@dataclass(frozen=True)
class DenoisedMoments:
    """Estimate of the moments without noise, in the directions above the noise.

    Let noise with standard deviation sigma in every entry be added to d by d moments. It moves an eigenvalue k above
    the noise (k > sigma sqrt(d)) to k + d sigma^2/k, and rotates its eigenvector by an angle with squared cosine
    1 - d sigma^2/k^2. Below the noise both are lost [1]_. This corrects both, on average.

    References
    ----------
    .. [1] Benaych-Georges, F., Nadakuditi, R. R. (2011). The eigenvalues and eigenvectors of finite, low rank
       perturbations of large random matrices. Advances in Mathematics 227, Section 3.1.
    .. [2] Tracy, C. A., Widom, H. (1996). On orthogonal and symplectic matrix ensembles. Communications in
       Mathematical Physics 177.
    """

    values: FloatArray  # eigenvalues of X'X above the noise, as they were without noise
    vectors: FloatArray  # their eigenvectors, noisy as they are, in columns
    cosines: FloatArray  # of the angles by which noise turned them

    @classmethod
    def of(cls, xx: FloatArray, off_diagonal: float) -> DenoisedMoments:
        """Correct the spectrum for the effect of noise.

        Eigenvalues below the noise are set to zero: those no larger than the value exceeded by noise alone with a
        probability of 0.01, by the law of Tracy and Widom (the second reference of the class).
        """
        values, vectors = np.linalg.eigh(xx)
        features = len(xx)
        edge = noise_edge(features, off_diagonal)
        above_noise = values > edge + _TRACY_WIDOM_99 * off_diagonal * features ** (-1.0 / 6.0)
        values = values[above_noise]
        original: FloatArray = (values + np.sqrt(values**2 - edge**2)) / 2.0
        cosines: FloatArray = np.sqrt(1.0 - features * (off_diagonal / original) ** 2)
        return cls(original, vectors[:, above_noise], cosines)

    @property
    def xx(self) -> FloatArray:
        """X'X, of shape (d, d)."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)

    def inside(self, paths: FloatArray) -> FloatArray:
        """Project columns, such as X'Y, to the directions above the noise, with their norm in the true ones."""
        return np.asarray(self.vectors @ (self.vectors.T @ paths / self.cosines[:, None]))

    def turned_back(self, paths: FloatArray) -> FloatArray:
        """Correct columns for the noise's rotation of the directions above it: part of them seems to lie outside.

        The columns are known without noise. They keep their norm, unless this needs more than lies outside.
        """
        coordinates = self.vectors.T @ paths
        outside = paths - self.vectors @ coordinates
        length = np.sum(outside**2, axis=0)
        share = np.sqrt(np.maximum(length - self.rotated(paths), 0.0) / np.where(length > 0.0, length, 1.0))
        return np.asarray(self.inside(paths) + share * outside)

    def rotated(self, paths: FloatArray) -> FloatArray:
        """Return the expected squared length of columns that the turning of directions put outside of them."""
        coordinates = self.vectors.T @ paths / self.cosines[:, None]
        return np.asarray(np.sum(coordinates**2 * (1.0 - self.cosines[:, None] ** 2), axis=0))

    def hidden(self, paths: FloatArray, turning: float = 1.0) -> FloatArray:
        """Return the norm of columns in hidden directions, beyond chance and the noise of the columns themselves.

        Rotation by noise explains a part outside of the directions above the noise, up to the 75% limit of a
        chi-squared variable. With the 95% limit, intervals of 90% hold .6 to .8 where a factor is just below the noise.
        Noise of a column itself explains a share of 2% of its norm. `turning` is the variance of the rotating noise, in
        units of that off the diagonal.
        """
        others = max(len(paths) - len(self.values), 1)
        outside = np.sum((paths - self.vectors @ (self.vectors.T @ paths)) ** 2, axis=0)
        by_chance = turning * self.rotated(paths) * (chdtri(others, 0.25) / others)
        explained = by_chance + _OWN_SHARE**2 * np.sum(paths**2, axis=0)
        return np.asarray(np.sqrt(np.maximum(outside - explained, 0.0)))


def hidden_reach(energy: float, penalty: float, floor: float) -> float:
    """Bound the contribution of hidden eigenvalues to a prediction at a penalty, beyond their contribution at a floor.

    With X = U diag(sqrt(k)) V', a prediction of X_post from a target t is the sum of (V't)_i sqrt(k_i) (U'X_post)_i
    over k_i + penalty. So for a target of norm 1 in hidden directions the difference is at most ``||X_post|| max_k
    sqrt(k) (1/(k + penalty) - 1/floor)`` there, with `energy` the squared norm of the outcomes in hidden directions.
    Eigenvalues below a millionth of the floor are assumed to be zero.
    """
    if penalty >= floor:
        return 0.0
    eigenvalues = np.geomspace(1e-6 * floor, floor - penalty, 1000)
    return math.sqrt(energy) * float(np.max(np.sqrt(eigenvalues) * (1.0 / (eigenvalues + penalty) - 1.0 / floor)))
