"""Inverses of noisy second moments, with eigenvalues bounded away from the noise.

Released moments are X'X + E. E is symmetric with independent entries of known size, so its spectrum fills an interval
with a known edge. An eigenvalue inside it is uninformative, and its inverse amplifies noise. A ridge large enough to
prevent this would also shrink the few large eigenvalues, the signal of a panel. So there is a floor as well: smaller
eigenvalues, ridge included, are raised to it.

Every function takes matrices with any number of leading axes, and solves each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtri

from dpfast._arrays import FloatArray

# Floor in units of the edge of the noise's spectrum: of {0.35, 0.7, 1, 1.4, 2, 3} the best or nearly so over the
# paper's panels of 1,000 and 10,000 donors and three-factor panels of 300 to 100,000.
_FLOOR_OF_EDGE = math.sqrt(2.0)
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

    values: FloatArray  # eigenvalues of X'X that stand out, as they were without noise
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
        stands_out = values > edge + _TRACY_WIDOM_99 * off_diagonal * features ** (-1.0 / 6.0)
        values = values[stands_out]
        original: FloatArray = (values + np.sqrt(values**2 - edge**2)) / 2.0
        cosines: FloatArray = np.sqrt(1.0 - features * (off_diagonal / original) ** 2)
        return cls(original, vectors[:, stands_out], cosines)

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
        share = np.sqrt(np.maximum(length - self.turned(paths), 0.0) / np.where(length > 0.0, length, 1.0))
        return np.asarray(self.inside(paths) + share * outside)

    def turned(self, paths: FloatArray) -> FloatArray:
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
        by_chance = turning * self.turned(paths) * (chdtri(others, 0.25) / others)
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
