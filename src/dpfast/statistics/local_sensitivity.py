"""Smooth sensitivity of first-visit means: how far one trajectory can move them, here and near here.

Let v_s be the counts of the trajectories that visit each state. Then phi_k is the largest squared local sensitivity of
any data set with counts within k of these, and psi = max over k of exp(-k beta) phi_k. Replacing a trajectory moves no
count by more than 1, so phi_k of one data set is at most phi_(k+1) of its neighbour, and ln psi moves by at most beta.

Only some k need be looked at, and what is returned is never below the exact maximum:

- DP-LSW, phi_k = sum of w_s/max(v_s - k, 1)**2. Each term is constant or log-convex in k between two values of
  {v_s - 1}, so their sum is, and so is the largest sum of `top` terms (a maximum of log-convex functions): the maximum
  lies at k = 0 or at some v_s - 1. As phi_k does not decrease, exp(-beta a) phi_b bounds all k from a to b: the search
  splits the interval with the largest bound until none is above the best value found.
- DP-LSL, phi_k = (a sqrt(sum of rho_s min(v_s + k, m)) + r)**2, is log-concave in k. The growth of ln phi_k decreases,
  and bisection finds where it falls below beta. It is computed without cancellation, to a few roundings; as it falls by
  a share of beta/2 or more in each step there, a wrong turn within its error costs second-order terms.

Every value computed errs by less than 2**-45 of itself (sums are pairwise or better; exp of the C library is taken to
err by at most 4 units in the last place), so 2**-44 is added, and the result exceeds the exact maximum by at most
2**-43 of it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast.io.sources import zero_copy_view
from dpfast.kernels import first_visits
from dpfast.privacy.guarantee import ROUND_UP

_LARGEST_COUNT = 1 << 53
_SMALLEST_WEIGHT, _LARGEST_WEIGHT = 1e-100, 1e100

#: What is returned lies between the exact maximum and that times 1 + SMOOTH_SENSITIVITY_ERROR, so its logarithm moves
#: by at most beta + SMOOTH_SENSITIVITY_ERROR between neighbours: the number to calibrate with.
SMOOTH_SENSITIVITY_ERROR = 2.0**-43


def smooth_sensitivity(counts: ArrayLike, weights: ArrayLike, beta: float, *, top: int | None = None) -> float:
    """beta-smooth bound on the squared local sensitivity of first-visit means (DP-LSW). **Not private**.

    The maximum over k >= 0 of ``exp(-k beta) * sum_s w_s / max(v_s - k, 1)**2``. Replacing one trajectory moves the
    weighted means by at most the width of the range of returns times its root, in the norm
    ``sqrt(sum_s w_s x_s**2)``, and its logarithm by at most `beta` (and ``SMOOTH_SENSITIVITY_ERROR``).

    Parameters
    ----------
    counts : array_like of int (n_states,)
        Trajectories that visit each state.
    weights : array_like (n_states,)
        w: public, nonnegative, not all 0.
    beta : float
        Smoothness, positive. Public.
    top : int, optional
        Most states that two trajectories visit together: for each k only so many of the largest terms are summed.

    Returns
    -------
    float
        Rounded up: never below the exact maximum.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range, or lengths differ.

    References
    ----------
    Balle, Gomrokchi, Precup (2016), "Differentially private policy evaluation", supplement, Corollary 4 and Lemma 5.

    Examples
    --------
    >>> from dpfast.statistics import smooth_sensitivity
    >>> round(smooth_sensitivity([100, 80, 3], [0.3, 0.3, 0.4], beta=0.5), 6)
    0.147181
    """
    beta = check.positive("beta", beta)
    v, w = _checked(counts, weights, "weights")
    n_terms = _at_most(len(w), top)
    if n_terms < len(w):
        v, w = _without_dominated(v, w, n_terms)
    largest, phi = _all_terms(v, w) if n_terms == len(w) else _top_terms(v, w, n_terms)
    candidates = np.unique(np.append(0, np.maximum(v - 1, 0)))
    return math.nextafter(_largest_decayed(phi, candidates, largest, beta) * ROUND_UP, math.inf)


def smooth_sensitivity_lsl(
    counts: ArrayLike,
    weights: ArrayLike,
    beta: float,
    *,
    n_trajectories: int,
    feature_norm: float,
    ridge: float,
    top: int | None = None,
) -> float:
    """beta-smooth bound for ridge regression of returns on features (DP-LSL). **Not private**.

    The maximum over k >= 0 of exp(-k beta) phi_k,
    ``phi_k = (||Phi|| max(rho)/sqrt(2 lambda) * sqrt(sum_s rho_s min(v_s + k, m)) + ||rho||)**2``. Replacing one
    trajectory moves the minimiser by at most ``2 Fmax ||Phi|| sqrt(phi_0)/lambda``, and the logarithm of the result by
    at most `beta` (and ``SMOOTH_SENSITIVITY_ERROR``).

    Parameters
    ----------
    counts, beta
        As for `smooth_sensitivity`; no count is above `n_trajectories`.
    weights : array_like (n_states,)
        rho: public, nonnegative, not all 0.
    n_trajectories : int
        m: public under replace-one.
    feature_norm, ridge : float
        Spectral norm of the features, or more, and lambda, positive.
    top : int, optional
        Most states that two trajectories visit together: of rho, only so many of the largest enter its norm.

    References
    ----------
    Balle, Gomrokchi, Precup (2016), supplement, Corollary 7 and Lemma 8, where "max" is printed for "min".

    Examples
    --------
    >>> from dpfast.statistics import smooth_sensitivity_lsl
    >>> options = {"n_trajectories": 100, "feature_norm": 1.0, "ridge": 50.0}
    >>> round(smooth_sensitivity_lsl([100, 80, 3], [0.3, 0.3, 0.4], beta=0.5, **options), 6)
    0.774896
    """
    beta = check.positive("beta", beta)
    m = check.positive_integer("n_trajectories", n_trajectories)
    norm, ridge = check.positive("feature_norm", feature_norm), check.positive("ridge", ridge)
    for name, value in (("feature_norm", norm), ("ridge", ridge)):
        if not _SMALLEST_WEIGHT <= value <= _LARGEST_WEIGHT:
            raise ValueError(f"{name} must lie between {_SMALLEST_WEIGHT} and {_LARGEST_WEIGHT}, got {value!r}")
    v, rho = _checked(counts, weights, "weights")
    if m > _LARGEST_COUNT:
        raise ValueError(f"n_trajectories must be at most 2**53, got {m}")
    if v.max() > m:
        raise ValueError("counts must not be above n_trajectories")
    slope = norm * float(rho.max()) / math.sqrt(2.0 * ridge)
    constant = math.sqrt(float(np.sum(np.square(_largest(rho, _at_most(len(rho), top))))))

    def visits(k: int) -> float:
        return float(np.sum(rho * np.minimum(v + k, m)))

    def root(k: int) -> float:
        return slope * math.sqrt(visits(k)) + constant

    def grows(k: int) -> bool:
        """Whether exp(-k beta) phi_k is below its value at k + 1."""
        added = float(np.sum(rho[v + k < m]))
        before, after = math.sqrt(visits(k)), math.sqrt(visits(k + 1))
        if added == 0.0:
            return False
        return 2.0 * math.log1p(slope * added / ((before + after) * (slope * before + constant))) > beta

    low, high = 0, m - int(v.min())
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if grows(middle) else (low, middle)
    return math.nextafter(_decay(low, beta) * root(low) ** 2 * ROUND_UP, math.inf)


def _checked(counts: ArrayLike, weights: ArrayLike, name: str) -> tuple[IntArray, FloatArray]:
    """Return counts and weights of the states that have one; the others never matter."""
    v = np.asarray(zero_copy_view(counts, "counts"))
    if v.ndim != 1 or v.dtype.kind not in "iu" or len(v) == 0:
        raise TypeError("counts must be a 1-D array of integers, one a state")
    if v.min() < 0 or v.max() > _LARGEST_COUNT:
        raise ValueError("counts must lie between 0 and 2**53")
    w = np.asarray(zero_copy_view(weights, name))
    if w.ndim != 1 or w.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be a 1-D array of real numbers")
    if len(w) != len(v):
        raise ValueError(f"counts and {name} have different lengths: {len(v)} and {len(w)}")
    w = w.astype(np.float64)
    used = w != 0.0
    if not used.any() or not np.all((w[used] >= _SMALLEST_WEIGHT) & (w[used] <= _LARGEST_WEIGHT)):
        raise ValueError(f"{name} must be 0 or lie between {_SMALLEST_WEIGHT} and {_LARGEST_WEIGHT}, and not all be 0")
    return v[used].astype(np.int64), np.ascontiguousarray(w[used])


def _without_dominated(v: IntArray, w: FloatArray, top: int) -> tuple[IntArray, FloatArray]:
    """Drop states whose term is never among the largest: at equal weights all but those with the smallest counts."""
    if w.min() < w.max():
        return v, w
    smallest = np.argpartition(v, top - 1)[:top]
    return v[smallest], w[smallest]


def _all_terms(v: IntArray, w: FloatArray) -> tuple[float, Callable[[int], float]]:
    """Return the largest phi, and phi as a function of k."""
    counts = v.astype(np.float64)
    largest = first_visits.sum_inverse_squares(w, np.ones_like(counts), 0.0)
    return largest, lambda k: first_visits.sum_inverse_squares(w, counts, float(k))


def _top_terms(v: IntArray, w: FloatArray, top: int) -> tuple[float, Callable[[int], float]]:
    def total(terms: FloatArray) -> float:
        return float(np.sum(_largest(terms, top)))

    return total(w), lambda k: total(w / np.square(np.maximum(v - k, 1).astype(np.float64)))


def _largest(values: FloatArray, n: int) -> FloatArray:
    return np.partition(values, len(values) - n)[len(values) - n :]


def _at_most(n: int, top: int | None) -> int:
    return n if top is None else min(check.positive_integer("top", top), n)


def _largest_decayed(phi: Callable[[int], float], candidates: IntArray, largest: float, beta: float) -> float:
    """Maximum of exp(-k beta) phi(k) over increasing candidates from 0; phi does not decrease, up to `largest`."""
    best = phi(0)
    # Intervals between two candidates, both seen or out of the question, with a bound on all in between.
    intervals: list[tuple[float, int, int, float]] = []

    def add(first: int, last: int, phi_last: float) -> None:
        if last - first > 1:
            bound = _decay(int(candidates[first + 1]), beta) * phi_last
            heapq.heappush(intervals, (-bound, first, last, phi_last))

    add(0, len(candidates), largest)
    while intervals and -intervals[0][0] > best:
        _, first, last, phi_last = heapq.heappop(intervals)
        middle = (first + last) // 2
        phi_middle = phi(int(candidates[middle]))
        best = max(best, _decay(int(candidates[middle]), beta) * phi_middle)
        add(first, middle, phi_middle)
        add(middle, last, phi_last)
    return best


def _decay(k: int, beta: float) -> float:
    """exp(-k beta), to a few units in the last place: the product is not rounded."""
    product = k * Fraction(beta)
    if product > 745:
        return 0.0
    rounded = float(product)
    return math.exp(-rounded) * (1.0 - float(product - Fraction(rounded)))
