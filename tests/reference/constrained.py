"""Small quadratics over balls and boxes with 400 digits, by trying every face.

The minimiser is the minimiser over its own face: of all such points that lie in the set, the best one is it.
"""

from itertools import product

import mpmath as mp
import numpy as np

from dpfast._threads import single_threaded_blas
from dpfast.solvers import Box, L1Ball, L2Ball
from dpfast.solvers.constraints import QuadraticBounds
from dpfast.solvers.quadratic import QuadraticProblem

DIGITS = 400  # differences of squares beside vectors of 1e120, and then some


def minimised(matrix, vector, *, constraint, penalty=None, strong_convexity, smoothness, tolerance=None):
    """Minimise a dense quadratic by the method of models of smooth problems, certified as factored ones are.

    By default to the smallest tolerance that can be promised.
    """
    l1, l2 = (0.0, 0.0) if penalty is None else (penalty.l1, penalty.l2)
    array, linear = np.ascontiguousarray(matrix, np.float64), np.array(vector, np.float64)
    bounds = QuadraticBounds.of(len(linear), 0, constraint, l1, strong_convexity + l2, smoothness + l2)
    problem = QuadraticProblem(array, None, l2, linear, l1, constraint, bounds)
    with single_threaded_blas():
        return problem.minimiser(bounds.smallest_tolerance() if tolerance is None else tolerance)


def exact_minimiser(matrix, vector, constraint=None, l1=0.0, l2=0.0):
    """Minimiser of x'(A + l2 I)x/2 + v'x + l1 ||x||_1 over the set, as a list of mpf; n up to 4 or so."""
    with mp.workdps(DIGITS):
        n = len(vector)
        a = mp.matrix(n, n)
        for i, j in product(range(n), repeat=2):
            a[i, j] = mp.mpf(float(matrix[i][j])) + (mp.mpf(l2) if i == j else 0)
        v, weight = [mp.mpf(float(x)) for x in vector], mp.mpf(l1)
        best, least = None, mp.inf
        for x in _candidates(a, v, weight, constraint):
            value = _value(a, v, weight, x)
            if value < least:
                best, least = x, value
        return best


def distance(x, exact):
    """||x - exact||, of floats from mpf."""
    with mp.workdps(DIGITS):
        return float(mp.sqrt(mp.fsum((mp.mpf(float(a)) - b) ** 2 for a, b in zip(x, exact, strict=True))))


def _value(a, v, weight, x):
    n = range(len(v))
    quadratic = mp.fsum(x[i] * a[i, j] * x[j] for i in n for j in n) / 2
    return quadratic + mp.fsum(v[i] * x[i] + weight * abs(x[i]) for i in n)


def _candidates(a, v, weight, constraint):
    n = len(v)
    states = ["+", "-", "0"] + (["low", "high"] if isinstance(constraint, Box) else [])
    bounds = (
        [[mp.mpf(float(x)) for x in side] for side in constraint.bounds(n)] if isinstance(constraint, Box) else None
    )
    for pattern in product(states, repeat=n):
        x = [mp.mpf(0)] * n
        for i, state in enumerate(pattern):
            if state in ("low", "high"):
                x[i] = bounds[state == "high"][i]
        free = [i for i in range(n) if pattern[i] in "+-"]
        signs = [1 if pattern[i] == "+" else -1 for i in free]
        for values in _on_face(a, v, weight, constraint, x, free, signs):
            y = list(x)
            for i, value in zip(free, values, strict=True):
                y[i] = value
            if all(value * sign >= 0 for value, sign in zip(values, signs, strict=True)) and _contains(
                constraint, bounds, y
            ):
                yield y


def _on_face(a, v, weight, constraint, x, free, signs):
    if not free:
        yield []
        return
    k = len(free)
    inner = mp.matrix(k, k)
    right = mp.matrix(k, 1)
    for row, i in enumerate(free):
        right[row] = -v[i] - weight * signs[row] - mp.fsum(a[i, j] * x[j] for j in range(len(v)))
        for column, j in enumerate(free):
            inner[row, column] = a[i, j]
    yield list(mp.lu_solve(inner, right))
    if isinstance(constraint, L1Ball):
        bordered = mp.matrix(k + 1, k + 1)
        target = mp.matrix(k + 1, 1)
        bordered[:k, :k], target[:k, 0] = inner, right
        for row in range(k):
            bordered[row, k] = bordered[k, row] = signs[row]
        target[k] = mp.mpf(constraint.radius)
        yield list(mp.lu_solve(bordered, target))[:k]
    if isinstance(constraint, L2Ball):
        yield from _on_sphere(inner, right, mp.mpf(constraint.radius))


def _on_sphere(inner, right, radius):
    """||x(nu)||, x(nu) = (A + nu I)^-1 b, is radius: Newton's method on its inverse, which approaches from the left."""
    shift = mp.mpf(0)
    x = mp.lu_solve(inner, right)
    if mp.norm(x) < radius:
        return
    while mp.norm(x) > radius * (1 + mp.mpf(10) ** -250):
        slope = (x.T * mp.lu_solve(inner + shift * mp.eye(len(right)), x))[0]
        shift += (mp.norm(x) / radius - 1) * mp.norm(x) ** 2 / slope
        x = mp.lu_solve(inner + shift * mp.eye(len(right)), right)
    yield list(x * (radius / mp.norm(x)))


def _contains(constraint, bounds, x):
    slack = 1 + mp.mpf(10) ** -200
    if isinstance(constraint, L1Ball):
        return mp.fsum(abs(y) for y in x) <= slack * mp.mpf(constraint.radius)
    if isinstance(constraint, L2Ball):
        return mp.sqrt(mp.fsum(y * y for y in x)) <= slack * mp.mpf(constraint.radius)
    if isinstance(constraint, Box):
        return all(low <= y <= high for low, y, high in zip(bounds[0], x, bounds[1], strict=True))
    return True


def definite_matrix(rng, n, condition):
    """A symmetric matrix with eigenvalues from 1/condition to 1, and bounds on them that hold for its floats."""
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    matrix = basis * np.geomspace(1.0 / condition, 1.0, n) @ basis.T
    rounding = 4.0 * n * 2.0**-52
    return (matrix + matrix.T) / 2, 1.0 / condition - rounding, 1.0 + rounding
