"""Quadratics over a ball and over a sphere, and the projection of a noisy X'Y that is one of them.

*Quadratics* are solved in the eigenbasis of their matrix. With A = U diag(eigenvalues) U' and z = U x, minimising
z'Az/2 - b'z over ||z|| <= radius or ||z|| = radius separates into terms with coefficients U'b and one unknown, the
multiplier of the constraint. dpfast.kernels.projections finds it.

*Projection* is onto the set possible for bounded rows with public labels Y. With n rows of norm at most `bound`, X'Y
lies in K = {X'Y : ||X||_F <= sqrt(n) bound}, an ellipsoid in the row space of Y. Noise lies mostly outside of it: K is
thin where the singular values of Y are small, and flat beyond its rank. The point of K nearest to a noisy G in
Frobenius norm is

    X'Y with X' = G Y' (YY' + nu I)^-1,    nu >= 0 the multiplier of the constraint.

With YY' = U diag(s^2) U' and h_j = ||G Y' u_j||, either nu = 0 or sum_j h_j^2/(s_j^2 + nu)^2 = n bound^2: the
multiplier of a quadratic over a ball, in as many terms as Y has positive singular values. The smaller of YY' and
Y'Y = V diag(s^2) V' is enough, as Y' u_j = s_j v_j. Nothing of the size of X is formed.

The error never grows, as the true X'Y is in K. The gain is largest with more outcomes than rows over the root of the
number of features. This is post-processing: a function of a released G, the sum rather than the mean over rows, and of
public numbers.

References
----------
Neel, S. PRIMO: Private Regression in Multiple Outcomes. Algorithms 2 and 3, the quadratic grouped by singular value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.kernels import projections
from dpfast.solvers.constraints import finite_array, in_ranges
from dpfast.solvers.ridge import NoisyMoments, Shrinkage


def quadratic_over_ball(
    eigenvalues: ArrayLike, coefficients: ArrayLike, radius: ArrayLike, *, n_threads: int | None = None
) -> FloatArray:
    """Minimise sum_j (eigenvalues_j x_j^2 / 2 - coefficients_j x_j) subject to ||x|| <= radius.

    This is z'Az/2 - b'z with A = U diag(eigenvalues) U', z = U x and coefficients U'b. Hager's z'Az - 2b'z is twice
    that, with the same minimiser; for z'Az - b'z pass coefficients U'b/2.

    Parameters
    ----------
    eigenvalues : array_like of shape (n_terms,) or (n_problems, n_terms)
        In any order; may be repeated, zero or negative.
    coefficients : array_like of shape (n_terms,) or (n_problems, n_terms)
        Of the linear term. An array for one problem is shared by all.
    radius : float or array_like of shape (n_problems,)
        Positive.
    n_threads : int, optional
        Threads for batches; the result does not depend on it.

    Returns
    -------
    x : ndarray of shape (n_terms,) or (n_problems, n_terms)
        A global minimiser, 2-D if any argument was a batch. See Notes for which, if there are several.

    Raises
    ------
    TypeError, ValueError
        If an argument is not finite real numbers of the shape described, or a radius not positive.

    Notes
    -----
    The hard case: the smallest eigenvalue is negative, its coefficients are all zero, and the other terms do not reach
    the radius. Then the first term of that eigenvalue is set to reach the radius, with a positive sign; the opposite
    sign gives a minimiser too. Terms with zero eigenvalue and zero coefficient are 0 if the minimum is within the ball.

    Components above 1e-12 of the radius are accurate to 1e-12 relative, in the hard case and near it too: where double
    precision does not determine the multiplier, twice the precision is used. Coefficients over the radius that are
    below 1e-264 times the larger of the largest such quotient and the spread of the eigenvalues count as zero.

    References
    ----------
    Hager, W. W. (2001). Minimizing a quadratic over a sphere. SIAM J. Optim. 12, 188-208: Lemmas 2.1 and 2.2.

    Examples
    --------
    >>> from dpfast.solvers import quadratic_over_ball
    >>> quadratic_over_ball([1.0, 1.0], [3.0, 4.0], [1.0, 10.0])
    array([[0.6, 0.8],
           [3. , 4. ]])
    """
    return _minimise(eigenvalues, coefficients, radius, sphere=False, n_threads=n_threads)[0]


def quadratic_over_sphere(
    eigenvalues: ArrayLike, coefficients: ArrayLike, radius: ArrayLike, *, n_threads: int | None = None
) -> FloatArray:
    """Minimise sum_j (eigenvalues_j x_j^2 / 2 - coefficients_j x_j) subject to ||x|| = radius.

    Parameters
    ----------
    eigenvalues : array_like of shape (n_terms,) or (n_problems, n_terms)
        In any order; may be repeated, zero or negative.
    coefficients : array_like of shape (n_terms,) or (n_problems, n_terms)
        Of the linear term. An array for one problem is shared by all.
    radius : float or array_like of shape (n_problems,)
        Positive.
    n_threads : int, optional
        Threads for batches; the result does not depend on it.

    Returns
    -------
    x : ndarray of shape (n_terms,) or (n_problems, n_terms)
        A global minimiser, 2-D if any argument was a batch, with the accuracy and range of `quadratic_over_ball`. In
        the hard case (the coefficients of the smallest eigenvalue are all zero, and the other terms do not reach the
        radius) it is chosen as there.

    Raises
    ------
    TypeError, ValueError
        If an argument is not finite real numbers of the shape described, or a radius not positive.

    References
    ----------
    Hager, W. W. (2001). Minimizing a quadratic over a sphere. SIAM J. Optim. 12, 188-208: Lemmas 2.1 and 2.2.

    Examples
    --------
    >>> from dpfast.solvers import quadratic_over_sphere
    >>> quadratic_over_sphere([-1.0, 1.0], [0.0, 6.0], 5.0)
    array([4., 3.])
    """
    return _minimise(eigenvalues, coefficients, radius, sphere=True, n_threads=n_threads)[0]


def ball_multiplier(eigenvalues: FloatArray, coefficients: FloatArray, radius: float) -> float:
    """Return the multiplier of `quadratic_over_ball` for one problem of finite, contiguous arrays, unchecked."""
    solution, multiplier = np.empty((1, len(eigenvalues))), np.empty(1)
    problem = eigenvalues[np.newaxis], coefficients[np.newaxis], np.array([radius])
    projections.solve_quadratics(*problem, False, 0, 1, solution, multiplier)
    return float(multiplier[0])


def _minimise(
    eigenvalues: ArrayLike, coefficients: ArrayLike, radius: ArrayLike, *, sphere: bool, n_threads: int | None
) -> tuple[FloatArray, FloatArray]:
    """Return minimisers and the multipliers nu of the constraint, with (eigenvalues + nu) x = coefficients.

    A multiplier is at least -min(eigenvalues); of a ball it is at least 0, and 0 where the minimum is within.
    """
    values = finite_array("eigenvalues", eigenvalues, (1, 2), empty=True)
    linear = finite_array("coefficients", coefficients, (1, 2), empty=True)
    radii = finite_array("radius", radius, (0, 1), empty=True)
    if radii.size and radii.min() <= 0.0:
        raise ValueError("radius must be positive, got one that is zero or negative")
    n_terms = values.shape[-1]
    if linear.shape[-1] != n_terms or n_terms == 0:
        raise ValueError(
            "eigenvalues and coefficients must have equally many terms, at least one, "
            f"got shapes {values.shape} and {linear.shape}"
        )
    try:
        batch = np.broadcast_shapes(values.shape[:-1], linear.shape[:-1], radii.shape)
    except ValueError:
        raise ValueError(
            "eigenvalues, coefficients and radius must have equally many problems, "
            f"got shapes {values.shape}, {linear.shape} and {radii.shape}"
        ) from None
    n_problems = batch[0] if batch else 1
    solutions, multipliers = np.empty((n_problems, n_terms)), np.empty(n_problems)
    problems = values.reshape(-1, n_terms), linear.reshape(-1, n_terms), radii.reshape(-1)

    def solve(start: int, stop: int) -> None:
        projections.solve_quadratics(*problems, sphere, start, stop, solutions, multipliers)

    in_ranges(n_problems, n_terms, n_threads, solve)
    return solutions.reshape((*batch, n_terms)), multipliers.reshape(batch)


_BLOCK_ENTRIES = 1 << 20  # labels that are converted to float64 at a time: 8 MB


@dataclass(frozen=True, eq=False, repr=False)
class LabelFactor:
    """Precomputed part of the public labels Y, for projections of any number of matrices X'Y: `from_labels`.

    Singular values are positive and ascend. With fewer rows than columns, vectors are U and the labels are kept: Y
    itself, not a copy, so it must not be changed. Otherwise vectors are V.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import LabelFactor
    >>> factor = LabelFactor.from_labels(np.array([[3.0, 0.0], [4.0, 0.0]]))
    >>> factor
    <LabelFactor of 2 rows, 2 outcomes, rank 1>
    >>> factor.singular_values
    array([5.])
    >>> factor.project(np.array([[20.0, 1.0]]), bound=1.0).round(3)
    array([[7.071, 0.   ]])
    """

    singular_values: FloatArray
    vectors: FloatArray
    n_rows: int
    labels: NDArray[np.generic] | None = None

    @classmethod
    def from_labels(cls, labels: ArrayLike) -> LabelFactor:
        """Factor Y, shape (n_rows, n_outcomes), of any real dtype; converted to float64 block by block."""
        table = np.asarray(labels)
        if table.dtype.kind not in "fiub":
            raise TypeError(f"labels must hold real numbers, got dtype {table.dtype}")
        if table.ndim != 2 or table.size == 0:
            raise ValueError(f"labels must be a non-empty two-dimensional array, got shape {table.shape}")
        wide = table.shape[0] < table.shape[1]
        gram = np.zeros((min(table.shape),) * 2)
        for _, block in _blocks(table.T if wide else table):
            gram += block.T @ block
        if not np.isfinite(gram).all():
            raise ValueError("labels must be finite, and so must their squares")
        singular_values, vectors = _decompose(gram)
        return cls(singular_values, vectors, table.shape[0], table if wide else None)

    def __repr__(self) -> str:
        return f"<LabelFactor of {self.n_rows} rows, {self.n_outcomes} outcomes, rank {self.rank}>"

    @property
    def rank(self) -> int:
        """Number of positive singular values."""
        return len(self.singular_values)

    @property
    def n_outcomes(self) -> int:
        """Columns of Y."""
        return int((self.vectors.T if self.labels is None else self.labels).shape[1])

    def project(self, xy: ArrayLike, bound: float) -> FloatArray:
        """Nearest point to `xy`, a sum over rows, of {X'Y : ||X||_F <= sqrt(n_rows) bound} in Frobenius norm."""
        return self._projected(xy, bound)[0]

    def project_moments(self, moments: NoisyMoments, bound: float) -> NoisyMoments:
        """Project X'Y; return it with its remaining noise.

        With the multiplier nu fixed the projection is linear, G S with S = Y'Y (Y'Y + nu I)^-1: the remaining noise is
        known, and the ridge on X'X treats it as any other. Moments in K are returned unchanged.
        """
        projected, multiplier, coordinates = self._projected(moments.xy, bound)
        if multiplier == 0.0 and self.rank == self.n_outcomes:
            return moments
        damped = self.singular_values**2 + multiplier
        shrinkage = Shrinkage(
            self.singular_values**2 / damped, self._column_lengths(multiplier), (coordinates / damped) @ coordinates.T
        )
        return replace(moments, xy=projected, shrinkage=shrinkage)

    def _projected(self, xy: ArrayLike, bound: float) -> tuple[FloatArray, float, FloatArray]:
        """Return the nearest point, the multiplier and G Y' U."""
        row_bound = check.positive("bound", bound)
        noisy = finite_array("xy", xy, (2,))
        if noisy.shape[1] != self.n_outcomes:
            raise ValueError(f"xy must have one column an outcome ({self.n_outcomes}), got shape {noisy.shape}")
        if self.rank == 0:
            return np.zeros_like(noisy), 0.0, np.zeros((len(noisy), 0))
        squares = self.singular_values**2
        with np.errstate(over="ignore", invalid="ignore"):
            coordinates = self._coordinates(noisy)
            lengths = np.sqrt(np.einsum("ij,ij->j", coordinates, coordinates))
        if not np.isfinite(lengths).all():
            raise ValueError("xy must be small enough that its products with the labels, squared, do not overflow")
        radius = math.sqrt(self.n_rows) * row_bound
        multiplier = ball_multiplier(squares, lengths, radius)
        if multiplier == 0.0 and self.rank == self.n_outcomes:
            return noisy.copy(), multiplier, coordinates
        return self._from_coordinates(coordinates / (squares + multiplier)), multiplier, coordinates

    def _column_lengths(self, multiplier: float) -> FloatArray:
        """Return the norms of the columns of V diag(s^2/(s^2 + nu)) V' = Y'U diag(s/(s^2 + nu)) V', shape (l,)."""
        squares = self.singular_values**2
        if self.labels is None:
            return np.asarray(np.linalg.norm(self.vectors * (squares / (squares + multiplier)), axis=1))
        weighted = self.vectors * (self.singular_values / (squares + multiplier))
        lengths = np.empty(self.n_outcomes)
        for columns, block in _blocks(self.labels.T):
            lengths[columns] = np.linalg.norm(block @ weighted, axis=1)
        return lengths

    def _coordinates(self, noisy: FloatArray) -> FloatArray:
        """Return G Y' U = G V diag(s), shape (d, rank)."""
        if self.labels is None:
            return np.asarray((noisy @ self.vectors) * self.singular_values)
        products = np.zeros((noisy.shape[0], self.n_rows))
        for columns, block in _blocks(self.labels.T):
            products += noisy[:, columns] @ block
        return products @ self.vectors

    def _from_coordinates(self, coordinates: FloatArray) -> FloatArray:
        """Return Z U' Y = Z diag(s) V' for Z = X'U, shape (d, n_outcomes)."""
        if self.labels is None:
            return np.asarray((coordinates * self.singular_values) @ self.vectors.T)
        rows = coordinates @ self.vectors.T
        xy = np.empty((len(rows), self.n_outcomes))
        for columns, block in _blocks(self.labels.T):
            xy[:, columns] = rows @ block.T
        return xy


def _blocks(matrix: NDArray[np.generic]) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of rows as float64, with the rows they are."""
    step = max(1, _BLOCK_ENTRIES // matrix.shape[1])
    for start in range(0, matrix.shape[0], step):
        rows = slice(start, min(start + step, matrix.shape[0]))
        yield rows, matrix[rows].astype(np.float64, copy=False)


def _decompose(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Square roots and vectors of the eigenvalues above the rounding error of a zero."""
    values, vectors = linalg.eigh(gram, driver="evd", check_finite=False)
    kept = values > len(values) * np.finfo(np.float64).eps * float(np.abs(values).max())
    return np.sqrt(values[kept]), np.ascontiguousarray(vectors[:, kept])
