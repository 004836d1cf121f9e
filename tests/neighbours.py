"""Hill-climbing over pairs of neighbours: the most that one person can move a statistic.

A test of a sensitivity bound says how a vector of free parameters becomes a pair of allowed records (`row_in_ball`,
`row_in_box`) and how far apart the statistics of the two are; `climb` looks for the worst pair. What it finds must
never pass the bound, and reaches it where the bound is tight.
"""

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits


def climb(change, n_parameters, rng, *, restarts=12, screened=60):
    """Largest value of ``change(parameters)`` found by ascents from the best of random starts, and where.

    Parameters
    ----------
    change : callable
        Maps an array of ``n_parameters`` unrestricted numbers of order 1 to a nonnegative number.
    n_parameters : int
        How many numbers describe a pair of neighbours.
    rng : numpy.random.Generator
        Draws the starts.
    restarts, screened : int
        The best ``restarts`` of ``screened`` random starts are climbed from.

    Returns
    -------
    tuple of float and ndarray
        The largest change and its parameters.
    """
    starts = rng.normal(size=(screened, n_parameters)) * rng.choice([0.3, 1.0, 3.0], size=(screened, 1))
    starts = sorted(starts, key=change)[-restarts:]
    # The quasi-Newton matrices are tiny: further BLAS threads only wait for each other.
    with threadpool_limits(1):
        ends = [minimize(lambda p: -change(p), start, method="L-BFGS-B", options={"ftol": 1e-14}).x for start in starts]
    best = max(ends, key=change)
    return change(best), best


def row_in_ball(parameters, bound, *, nonnegative=False):
    """Return the parameters (their squares, if nonnegative: smooth at 0) as a row, scaled onto the ball if outside."""
    row = np.square(parameters) if nonnegative else np.asarray(parameters)
    return row * (bound / max(1.0, np.sqrt(row @ row)))


def row_in_box(parameters, low, high):
    """Return the parameters as a row, clipped to [low, high]."""
    return np.clip(low + (high - low) * (np.asarray(parameters) + 1.0) / 2.0, low, high)
