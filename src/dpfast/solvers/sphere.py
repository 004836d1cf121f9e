"""Quadratics over a ball and over a sphere, in the eigenbasis of their matrix.

With A = U diag(eigenvalues) U' and z = U x, minimising z'Az/2 - b'z over ||z|| <= radius or ||z|| = radius separates
into terms with coefficients U'b and one unknown, the multiplier of the constraint. dpfast.kernels.secular finds it.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from dpfast._arrays import FloatArray
from dpfast.kernels import secular
from dpfast.solvers.constraints import finite_array, in_ranges


@overload
def quadratic_over_ball(
    eigenvalues: ArrayLike,
    coefficients: ArrayLike,
    radius: ArrayLike,
    *,
    return_multiplier: Literal[False] = False,
    n_threads: int | None = None,
) -> FloatArray: ...


@overload
def quadratic_over_ball(
    eigenvalues: ArrayLike,
    coefficients: ArrayLike,
    radius: ArrayLike,
    *,
    return_multiplier: Literal[True],
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]: ...


def quadratic_over_ball(
    eigenvalues: ArrayLike,
    coefficients: ArrayLike,
    radius: ArrayLike,
    *,
    return_multiplier: bool = False,
    n_threads: int | None = None,
) -> FloatArray | tuple[FloatArray, FloatArray]:
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
    return_multiplier : bool, default False
        Return the multiplier of the constraint too.
    n_threads : int, optional
        Threads for batches; the result does not depend on it.

    Returns
    -------
    x : ndarray of shape (n_terms,) or (n_problems, n_terms)
        A global minimiser, 2-D if any argument was a batch. See Notes for which, if there are several.
    multiplier : ndarray of shape () or (n_problems,)
        Only with `return_multiplier`: the nu >= max(0, -min(eigenvalues)) with (eigenvalues + nu) x = coefficients; 0
        if the minimum of the quadratic is within the ball.

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
    x, multiplier = _minimise(eigenvalues, coefficients, radius, sphere=False, n_threads=n_threads)
    return (x, multiplier) if return_multiplier else x


@overload
def quadratic_over_sphere(
    eigenvalues: ArrayLike,
    coefficients: ArrayLike,
    radius: ArrayLike,
    *,
    return_multiplier: Literal[False] = False,
    n_threads: int | None = None,
) -> FloatArray: ...


@overload
def quadratic_over_sphere(
    eigenvalues: ArrayLike,
    coefficients: ArrayLike,
    radius: ArrayLike,
    *,
    return_multiplier: Literal[True],
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]: ...


def quadratic_over_sphere(
    eigenvalues: ArrayLike,
    coefficients: ArrayLike,
    radius: ArrayLike,
    *,
    return_multiplier: bool = False,
    n_threads: int | None = None,
) -> FloatArray | tuple[FloatArray, FloatArray]:
    """Minimise sum_j (eigenvalues_j x_j^2 / 2 - coefficients_j x_j) subject to ||x|| = radius.

    Parameters
    ----------
    eigenvalues : array_like of shape (n_terms,) or (n_problems, n_terms)
        In any order; may be repeated, zero or negative.
    coefficients : array_like of shape (n_terms,) or (n_problems, n_terms)
        Of the linear term. An array for one problem is shared by all.
    radius : float or array_like of shape (n_problems,)
        Positive.
    return_multiplier : bool, default False
        Return the multiplier of the constraint too.
    n_threads : int, optional
        Threads for batches; the result does not depend on it.

    Returns
    -------
    x : ndarray of shape (n_terms,) or (n_problems, n_terms)
        A global minimiser, 2-D if any argument was a batch, with the accuracy and range of `quadratic_over_ball`. In
        the hard case (the coefficients of the smallest eigenvalue are all zero, and the other terms do not reach the
        radius) it is chosen as there.
    multiplier : ndarray of shape () or (n_problems,)
        Only with `return_multiplier`: the nu >= -min(eigenvalues) with (eigenvalues + nu) x = coefficients.

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
    >>> quadratic_over_sphere([-1.0, 1.0], [0.0, 6.0], 5.0, return_multiplier=True)
    (array([4., 3.]), array(1.))
    """
    x, multiplier = _minimise(eigenvalues, coefficients, radius, sphere=True, n_threads=n_threads)
    return (x, multiplier) if return_multiplier else x


def ball_multiplier(eigenvalues: FloatArray, coefficients: FloatArray, radius: float) -> float:
    """Return the multiplier of `quadratic_over_ball` for one problem of finite, contiguous arrays, unchecked."""
    solution, multiplier = np.empty((1, len(eigenvalues))), np.empty(1)
    problem = eigenvalues[np.newaxis], coefficients[np.newaxis], np.array([radius])
    secular.solve_quadratics(*problem, False, 0, 1, solution, multiplier)
    return float(multiplier[0])


def _minimise(
    eigenvalues: ArrayLike, coefficients: ArrayLike, radius: ArrayLike, *, sphere: bool, n_threads: int | None
) -> tuple[FloatArray, FloatArray]:
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
        secular.solve_quadratics(*problems, sphere, start, stop, solutions, multipliers)

    in_ranges(n_problems, n_terms, n_threads, solve)
    return solutions.reshape((*batch, n_terms)), multipliers.reshape(batch)
