"""Plain NumPy twin of the support-scoring kernel: every assignment of coordinates to a bound or to neither is tried."""

from itertools import combinations, product

import numpy as np


def support_scores(xx, xy, size, ridge):
    """Least value of theta'A theta/2 - g'theta over the unit box for every support, in lexicographic order."""
    return np.array([_least(xx[np.ix_(one, one)] + ridge * np.eye(size), xy[list(one)]) for one in _supports(xy, size)])


def _supports(xy, size):
    return combinations(range(len(xy)), size)


def _least(matrix, vector):
    """The minimiser lies on some face of the box, where it is that of the face's affine hull."""
    values = []
    for sides in product((-1.0, 0.0, 1.0), repeat=len(vector)):
        theta = np.array(sides)
        free = theta == 0.0
        if free.any():
            right = vector[free] - matrix[np.ix_(free, ~free)] @ theta[~free]
            theta[free] = np.linalg.solve(matrix[np.ix_(free, free)], right)
        if np.abs(theta).max() <= 1.0 + 1e-12:
            values.append(0.5 * theta @ matrix @ theta - vector @ theta)
    return min(values)
