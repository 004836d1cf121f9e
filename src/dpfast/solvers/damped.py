"""Inverses of noisy second moments, held away from what noise alone decides.

Released moments are X'X + E. The spectrum of E, a symmetric matrix of independent entries of known size, fills an
interval whose edge is known; inside it an eigenvalue says nothing, and its inverse is where noise is amplified. A ridge
large enough to tame it would shrink the few large eigenvalues too, which carry the signal of a panel. So there is a
floor as well: no eigenvalue, ridge included, counts for less than it.

Every function takes matrices with any number of leading axes, and solves each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Floor in units of the edge of the noise's spectrum: of {0.35, 0.7, 1, 1.4, 2, 3} the best or nearly so over the
# paper's panels of 1,000 and 10,000 donors and three-factor panels of 300 to 100,000.
_FLOOR_OF_EDGE = math.sqrt(2.0)


def noise_edge(n_features: int, off_diagonal: float) -> float:
    """Return where the spectrum of symmetric noise ends.

    Parameters
    ----------
    n_features : int
        Rows of the matrix, d.
    off_diagonal : float
        Standard deviation of its entries off the diagonal, sigma.

    Returns
    -------
    float
        2 sigma sqrt(d).

    References
    ----------
    Wigner, E. P. (1958). On the distribution of the roots of certain symmetric matrices. Annals of Mathematics 67.

    Examples
    --------
    >>> from dpfast.solvers import noise_edge
    >>> noise_edge(100, 1.0)
    20.0
    """
    return 2.0 * off_diagonal * math.sqrt(n_features)


def noise_floor(n_features: int, off_diagonal: float) -> float:
    """Return the least that an eigenvalue of noisy moments should count for: sqrt(2) times the edge of the noise.

    Parameters
    ----------
    n_features, off_diagonal
        As for `noise_edge`.

    Returns
    -------
    float
    """
    return _FLOOR_OF_EDGE * noise_edge(n_features, off_diagonal)


def damped_solve(
    xx: FloatArray, right: FloatArray, penalty: float, floor: float, n_components: int | None = None
) -> FloatArray:
    """Solve with the eigenvalues of noisy moments damped.

    Parameters
    ----------
    xx : ndarray of shape (..., d, d)
        Symmetric.
    right : ndarray of shape (d, k) or (..., d, k)
        Right-hand sides.
    penalty : float
        Added to every eigenvalue, once negative ones are raised to 0.
    floor : float
        Least value of an eigenvalue with its penalty.
    n_components : int, optional
        Keep the largest so many eigenvalues; the inverse is zero on the others.

    Returns
    -------
    ndarray of shape (..., d, k)
        V diag(1/max(max(v, 0) + penalty, floor)) V' right, for xx = V diag(v) V'.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import damped_solve
    >>> damped_solve(np.diag([9.0, -2.0]), np.ones((2, 1)), 1.0, 5.0).ravel().tolist()
    [0.1, 0.2]
    """
    values, vectors = np.linalg.eigh(xx)
    inverse = 1.0 / np.maximum(np.maximum(values, 0.0) + penalty, floor)
    if n_components is not None:
        inverse[..., : values.shape[-1] - n_components] = 0.0
    solution: FloatArray = vectors @ (inverse[..., None] * (np.swapaxes(vectors, -1, -2) @ right))
    return solution


def components_beyond(xx: FloatArray, threshold: float) -> int:
    """Count the eigenvalues above a threshold; at least one.

    Parameters
    ----------
    xx : ndarray of shape (d, d)
        Symmetric.
    threshold : float
        As `noise_floor` gives it.

    Returns
    -------
    int
    """
    return max(1, int(np.sum(np.linalg.eigvalsh(xx) > threshold)))


@dataclass(frozen=True)
class DenoisedMoments:
    """What noisy moments most likely came from, where they stand out of the noise.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Eigenvalues of X'X that stand out, as they were without noise.
    vectors : ndarray of shape (d, k)
        Their eigenvectors, noisy as they are.
    off_diagonal : float
        Standard deviation of the noise in X'X off the diagonal.
    """

    values: FloatArray
    vectors: FloatArray
    off_diagonal: float

    @classmethod
    def of(cls, xx: FloatArray, off_diagonal: float) -> DenoisedMoments:
        """Undo what noise does to the spectrum.

        An eigenvalue k of the moments comes out at k + d sigma^2/k on average [1]_, if it stands out of the noise at
        all (k > sigma sqrt(d)). What does not stand out is taken to be zero.

        Parameters
        ----------
        xx : ndarray of shape (d, d)
            Noisy second moments.
        off_diagonal : float
            sigma.

        Returns
        -------
        DenoisedMoments

        References
        ----------
        .. [1] Benaych-Georges, F., Nadakuditi, R. R. (2011). The eigenvalues and eigenvectors of finite, low rank
           perturbations of large random matrices. Advances in Mathematics 227, Section 3.1.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast.solvers import DenoisedMoments
        >>> DenoisedMoments.of(np.diag([10.0, 1.0]), 1.0).xx.round(2).tolist()
        [[9.8, 0.0], [0.0, 0.0]]
        """
        values, vectors = np.linalg.eigh(xx)
        edge = noise_edge(len(xx), off_diagonal)
        stands_out = values > edge
        values = values[stands_out]
        original: FloatArray = (values + np.sqrt(values**2 - edge**2)) / 2.0
        return cls(original, vectors[:, stands_out], off_diagonal)

    @property
    def xx(self) -> FloatArray:
        """X'X, of shape (d, d)."""
        matrix: FloatArray = (self.vectors * self.values) @ self.vectors.T
        return matrix

    def inside(self, paths: FloatArray) -> FloatArray:
        """Project columns, such as X'Y, on the directions that stand out."""
        projected: FloatArray = self.vectors @ (self.vectors.T @ paths)
        return projected

    def turned_back(self, paths: FloatArray) -> FloatArray:
        """Shorten what columns have outside the directions that stand out by what noise put there.

        Noise turns an eigenvector out of its place by an expected square of sigma^2/k^2 in each other direction, to
        first order, and a path along it seems to leave it by as much.

        Parameters
        ----------
        paths : ndarray of shape (d, n)
            Columns known without noise.

        Returns
        -------
        ndarray of shape (d, n)
        """
        coordinates = self.vectors.T @ paths
        inside = self.vectors @ coordinates
        outside = paths - inside
        others = len(paths) - len(self.values)
        turned = others * self.off_diagonal**2 * np.sum((coordinates / self.values[:, None]) ** 2, axis=0)
        length = np.sum(outside**2, axis=0)
        share = np.sqrt(np.maximum(length - turned, 0.0) / np.where(length > 0.0, length, 1.0))
        shortened: FloatArray = inside + share * outside
        return shortened
