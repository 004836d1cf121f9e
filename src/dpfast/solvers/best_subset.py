"""Scores of all supports of one size: the least sum of squares over a box, each within a proved error.

The score of a support G is the least value over ``|theta_j| <= 1`` of ``theta'A theta/2 - g'theta``, with A and g the
parts of ``X'X + ridge I`` and X'y for G. It is half the least sum of squared residuals, up to y'y/2, a constant for all
supports.

Over a box the least value is a well-conditioned number, whatever the matrix: changing its entries by E changes it by at
most half the sum of |E|. So every score comes from a point certified by a duality gap. In the rare cases without such a
point in double arithmetic, it is computed in exact rational arithmetic. With C >= sum of |A_jk| and G >= sum of |g_j|
over any support, u = 2^-53 and the sums rounded to double before:

- rounding X'X, X'y and the added ridge moves the least value by at most 1.01 u (C + G);
- a computed gradient is off by at most (s + 2) u (C + G) in the L1 norm; half of this enters the value, and the sum of
  the value adds (s + 2) u (C + 2G)/2. The gap has twice the gradient's error, and twice as much for its sum.

A computed score minus the exact one lies between -e and gap + e with e = 8 (s + 2) u (C + G).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast._threads import resolve_n_threads, run_in_threads
from dpfast.kernels import support_scores as kernel
from dpfast.solvers.constraints import ROUND_UP_ONE, UNIT

#: Supports scored at a time: their scores take a megabyte, and threads have some 10 ms to work before they meet.
BLOCK_SUPPORTS = 1 << 17
# Below, starting a thread costs more than it brings.
_SUPPORTS_PER_THREAD = 2000


@dataclass(frozen=True, eq=False)
class SupportScores:
    """The scores of all supports of one size, in lexicographic order, computed in blocks.

    `xx` is X'X, symmetric, `xy` X'y, `size` the number of features in a support; a positive `ridge` on the diagonal
    makes the minimiser of a support unique, `tolerance` is the duality gap that a score may have (`score_error`).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import SupportScores
    >>> scores = SupportScores(np.eye(3), [0.5, 0.1, 0.4], 2, ridge=1e-9, tolerance=1e-9)
    >>> [(tuple(scores.support(i).tolist()), float(score.round(3))) for i, score in enumerate(next(scores.blocks()))]
    [((0, 1), -0.13), ((0, 2), -0.205), ((1, 2), -0.085)]
    """

    xx: FloatArray
    xy: FloatArray
    size: int
    _: KW_ONLY
    ridge: float
    tolerance: float

    def __post_init__(self) -> None:
        matrix, vector = (np.array(values, np.float64, order="C") for values in (self.xx, self.xy))
        p = len(vector) if vector.ndim == 1 else 0
        if p == 0 or matrix.shape != (p, p):
            raise ValueError(f"xx and xy must have shapes (p, p) and (p,), got {matrix.shape} and {vector.shape}")
        if not (np.isfinite(matrix).all() and np.isfinite(vector).all()) or not np.array_equal(matrix, matrix.T):
            raise ValueError("xx and xy must be finite, and xx symmetric")
        if check.positive_integer("size", self.size) > p:
            raise ValueError(f"size must be at most the number of features, {p}, got {self.size}")
        object.__setattr__(self, "xx", matrix)
        object.__setattr__(self, "xy", vector)
        for name in ("ridge", "tolerance"):
            object.__setattr__(self, name, check.positive(name, getattr(self, name)))

    @property
    def n_supports(self) -> int:
        """How many supports there are."""
        return math.comb(len(self.xy), self.size)

    def support(self, index: int) -> IntArray:
        """Return the features of a support, increasing, by its place in lexicographic order."""
        return support_at(index, len(self.xy), self.size)

    def blocks(
        self, n_threads: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[FloatArray]:
        """Compute all scores, a block at a time; they do not depend on the number of threads.

        After every block `progress` is told how many supports have been scored and how many there are.
        """
        for start in range(0, self.n_supports, BLOCK_SUPPORTS):
            stop = min(start + BLOCK_SUPPORTS, self.n_supports)
            yield self._scored(start, stop, resolve_n_threads(n_threads))
            if progress is not None:
                progress(stop, self.n_supports)

    def _scored(self, start: int, stop: int, n_threads: int) -> FloatArray:
        scores = np.empty(stop - start)
        n_parts = max(1, min(n_threads, len(scores) // _SUPPORTS_PER_THREAD))
        cuts = [len(scores) * part // n_parts for part in range(n_parts + 1)]

        def score_part(first: int, last: int) -> None:
            support = self.support(start + first)
            kernel.score_supports(self.xx, self.xy, self.ridge, self.tolerance, support, scores[first:last])

        run_in_threads([partial(score_part, *part) for part in pairwise(cuts)], lambda: None)
        for i in np.flatnonzero(np.isnan(scores)):
            scores[i] = self._exact(start + int(i))
        return scores

    def _exact(self, index: int) -> float:
        """Score a support in rational arithmetic."""
        chosen = self.support(index)
        matrix = [[Fraction(float(self.xx[i, j])) for j in chosen] for i in chosen]
        for i, row in enumerate(matrix):
            row[i] += Fraction(self.ridge)
        vector = [Fraction(float(self.xy[i])) for i in chosen]
        return float(exact_box_minimum(matrix, vector)[0])


def exact_box_minimum(matrix: list[list[Fraction]], vector: list[Fraction]) -> tuple[Fraction, list[Fraction]]:
    """Least value of ``theta'A theta/2 - g'theta`` over ``|theta_j| <= 1``, and where, by Murty's least-index rule.

    It ends: with theta_j the last coordinate, the least value over the others is convex in theta_j, so once they are
    right for theta_j at a bound or free, and it is not, it moves to where it stays after at most two changes.

    Murty, K. G. (1974). Note on a Bard-type scheme for solving the complementarity problem. Opsearch 11.
    Judice, J. J., Pires, F. M. (1989). Direct methods for convex quadratic programs subject to box constraints.
    Investigacao Operacional 9.
    """
    n = len(vector)
    sides = [0] * n
    while True:
        free = [i for i in range(n) if sides[i] == 0]
        right = [vector[i] - sum(matrix[i][j] * sides[j] for j in range(n)) for i in free]
        solution = _solved([[matrix[i][j] for j in free] for i in free], right)
        theta = [Fraction(side) for side in sides]
        for i, value in zip(free, solution, strict=True):
            theta[i] = value
        gradient = [sum(matrix[i][j] * theta[j] for j in range(n)) - vector[i] for i in range(n)]
        for i in range(n):
            if sides[i] == 0 and abs(theta[i]) > 1:
                sides[i] = 1 if theta[i] > 1 else -1
                break
            if sides[i] * gradient[i] > 0:
                sides[i] = 0
                break
        else:
            return sum((theta[i] * (gradient[i] - vector[i]) for i in range(n)), Fraction(0)) / 2, theta


def _solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Solve a positive definite system by elimination."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(n):
        for k in range(i + 1, n):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    solution = [Fraction(0)] * n
    for i in reversed(range(n)):
        rest = sum(rows[i][j] * solution[j] for j in range(i + 1, n))
        solution[i] = (rows[i][n] - rest) / rows[i][i]
    return solution


def score_error(size: int, curvature: float, gradient: float, tolerance: float) -> float:
    """Bound on the error of computed scores: half the length of the interval that holds computed less exact.

    The middle of the interval is shared by all scores, and a common shift changes no comparison of scores. `curvature`
    and `gradient` are at least the sums of absolute entries of X'X (with the ridge) and of X'y on any support: from
    public numbers, where privacy relies on the bound. It is tolerance/2 + 8 (size + 2) 2^-53 (curvature + gradient),
    rounded up; the proof stands at the top of this module.
    """
    size = check.positive_integer("size", size)
    sums = check.nonnegative("curvature", curvature) + check.nonnegative("gradient", gradient)
    rounding = 8.0 * (size + 2) * UNIT * sums
    return (0.5 * check.nonnegative("tolerance", tolerance) + rounding) * ROUND_UP_ONE


def support_at(index: int, n_features: int, size: int) -> IntArray:
    """Return the support at a place in the lexicographic order of all of one size, increasing."""
    support, feature = np.empty(size, np.int64), 0
    for place in range(size):
        while (behind := math.comb(n_features - feature - 1, size - place - 1)) <= index:
            index -= behind
            feature += 1
        support[place] = feature
        feature += 1
    return support
