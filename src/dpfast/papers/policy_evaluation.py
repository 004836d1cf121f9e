"""Private policy evaluation (Balle, Gomrokchi, Precup, ICML 2016): printed constants, and excess risks.

Numbers of lemmas and theorems are those of the supplement. m trajectories are independent; state s is visited by each
with probability p_s, so its count |X_s| is binomial. Errors of the print, and their corrections:

- Lemma 10: exp(-b x)/(a - x)**2 is log-convex in x, so its maximum over [0, a - 1] is at an end, max(1/a**2,
  exp(-b (a - 1))). The print's stationary value, exp(2 - a b) b**2/4, is the minimum; at b < 2/a and b > 2 it has other
  values than those of the end where the maximum is. Lemma 12, Theorem 13 and Corollary 14 inherit the factor
  exp(2) beta**2/4 where exp(beta) belongs: too small by about 1/beta**2 until m p_s beta is large.
- The bound on psi before Lemma 17 squares exp(-k beta): with the maximum over k of exp(-k beta) (...)**2 the term to
  bound is exp(-k beta) min(|X_s| + k, m), at most |X_s| + min(1/(e beta), m). Lemma 17's cases are decided by 1/(2b)
  against a and m, not by b against a/2 and m/2. So (42) and Theorem 19 have a 1/(2 e beta) for states without visits;
  it should be 1/(e beta) for all states.

Arguments by their letters: `m` trajectories; `features` Phi, (n_states, n_features); `weights` w or rho, (n_states,),
nonnegative; `ridge` lambda; `alpha` and `beta` the noise's calibration; `return_width` that of the public range of
returns, Rmax/(1 - gamma) as printed.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.io.trajectories import Trajectories
from dpfast.papers import Bound
from dpfast.privacy import SmoothGaussian, UnsoundCalibrationWarning, smooth_gaussian_delta


def printed_smooth_gaussian(epsilon: float, delta: float, dim: int, source: str = "paper") -> SmoothGaussian:
    """Constants for noise on `dim` coordinates, about 20 times that of `smooth_gaussian`; both rounded to nearest.

    "paper": Lemma 1 of the supplement, ``alpha = 15 sqrt(2 ln(4/delta))/epsilon`` and ``beta = 2 ln(2) epsilon/(5
    (sqrt(dim) + sqrt(2 ln(4/delta)))**2)``, for epsilon up to 5, which its proof needs. "icml": the conference's
    Algorithms 1 and 2, ``alpha = 5 sqrt(2 ln(2/delta))/epsilon`` and ``beta = epsilon/(4 (dim + ln(2/delta)))``. Warns
    (UnsoundCalibrationWarning) where their exact delta is above the one they are printed for.

    >>> from dpfast.papers.policy_evaluation import printed_smooth_gaussian
    >>> printed = printed_smooth_gaussian(epsilon=1.0, delta=1e-6, dim=10)
    >>> round(printed.alpha, 1), round(printed.beta, 5)
    (82.7, 0.00368)
    """
    printed = printed_constants(epsilon, delta, dim, source)
    exact = 0.0 if epsilon == math.inf else smooth_gaussian_delta(printed.alpha, printed.beta, epsilon, dim)
    if exact > delta:
        warnings.warn(
            f"the printed constants give delta = {exact:.3g} at epsilon = {epsilon:g}, where {delta:.3g} is claimed",
            UnsoundCalibrationWarning,
            stacklevel=2,
        )
    return printed


def printed_constants(epsilon: float, delta: float, dim: int, source: str) -> SmoothGaussian:
    """Return `printed_smooth_gaussian` without a warning, for mechanisms that state their guarantee themselves."""
    epsilon = check.positive_or_inf("epsilon", epsilon)
    delta, dim = check.delta_value(delta), check.positive_integer("dim", dim)
    check.choice("source", source, ("paper", "icml"))
    if epsilon == math.inf:
        return SmoothGaussian(0.0, math.inf)
    if source == "paper":
        if epsilon > 5.0:
            raise ValueError(f"epsilon must be at most 5 (or infinite) for the printed constants, got {epsilon!r}")
        root = math.sqrt(2.0 * math.log(4.0 / delta))
        beta = 2.0 * math.log(2.0) * epsilon / (5.0 * (math.sqrt(dim) + root) ** 2)
        return SmoothGaussian(15.0 * root / epsilon, beta)
    logarithm = math.log(2.0 / delta)
    return SmoothGaussian(5.0 * math.sqrt(2.0 * logarithm) / epsilon, epsilon / (4.0 * (dim + logarithm)))


class CountMoments(NamedTuple):
    """Lemma 18: expectations of the numbers of m trajectories that visit states s and t."""

    #: E|X_s|, (n_states,).
    mean: FloatArray
    #: P(|X_s| = 0), (n_states,).
    unvisited: FloatArray
    #: E[|X_s| |X_t|], (n_states, n_states); E[|X_s|**2] on the diagonal.
    products: FloatArray
    #: E[|X_s| 1(|X_t| = 0)], (n_states, n_states); 0 on the diagonal.
    visited_without: FloatArray


@dataclass(frozen=True, eq=False)
class Visits:
    """Probabilities that a trajectory visits both of two states, (n_states, n_states); one state on the diagonal."""

    pairs: FloatArray

    def __post_init__(self) -> None:
        pairs = np.array(self.pairs, np.float64)
        if pairs.ndim != 2 or pairs.shape[0] != pairs.shape[1] or len(pairs) == 0:
            raise ValueError(f"pairs must be a square array of probabilities, got shape {pairs.shape}")
        if not ((pairs >= 0.0) & (pairs <= 1.0)).all():
            raise ValueError("pairs must hold probabilities, in [0, 1]")
        if not np.array_equal(pairs, pairs.T):
            raise ValueError("pairs must be symmetric")
        pairs.setflags(write=False)
        object.__setattr__(self, "pairs", pairs)

    @classmethod
    def observed(cls, states: ArrayLike, offsets: ArrayLike, n_states: int) -> Visits:
        """Take the frequencies in trajectories, simulated or public (those of private ones are private).

        Trajectory i is ``states[offsets[i]:offsets[i + 1]]``, in ``range(n_states)``;
        `dpfast.datasets.decision_processes.markov_trajectories` simulates from known transitions and a policy.

        >>> from dpfast.papers.policy_evaluation import Visits
        >>> Visits.observed([0, 1, 1, 0], [0, 3, 4], 2).pairs.tolist()
        [[1.0, 0.5], [0.5, 0.5]]
        """
        steps = Trajectories(states, np.zeros(np.shape(states)), offsets, n_states)
        if len(steps) == 0:
            raise ValueError("offsets must be of at least one trajectory, got none")
        visited = np.zeros((len(steps), steps.n_states))
        visited[np.repeat(np.arange(len(steps)), np.diff(steps.offsets)), steps.states] = 1.0
        return cls(visited.T @ visited / len(visited))

    @property
    def single(self) -> FloatArray:
        """p_s, of shape (n_states,)."""
        return np.diagonal(self.pairs)

    def moments(self, m: int) -> CountMoments:
        """Lemma 18's equations 1, 2, 4 (with 3 on the diagonal) and 5, for m independent trajectories."""
        m = check.positive_integer("m", m)
        p = self.single
        without = p[:, None] - self.pairs
        return CountMoments(
            mean=m * p,
            unvisited=(1.0 - p) ** m,
            products=m * (m - 1) * np.outer(p, p) + m * self.pairs,
            visited_without=m * without * (1.0 - p) ** (m - 1),
        )


def largest_decayed_inverse_square(a: float, b: float) -> Bound:
    """Lemma 10: the maximum of ``exp(-b x)/(a - x)**2`` over x in [0, a - 1], a >= 1 a count, b > 0; equalities."""
    a, b = check.positive("a", a), check.positive("b", b)
    if a < 1.0:
        raise ValueError(f"a must be at least 1, got {a!r}")
    if b < 2.0 / a:
        printed = a**-2
    elif b > 2.0:
        printed = math.exp(1.0 - a * b)
    else:
        printed = 0.25 * math.exp(2.0 - a * b) * b**2
    return Bound(printed, max(a**-2, math.exp(-b * (a - 1.0))))


def largest_decayed_count(a: float, b: float, m: float) -> Bound:
    """Lemma 17: the maximum of ``exp(-2 b x) (a + x)`` over x in [0, m - a], a <= m; both meant as equalities.

    The bound on psi needs b = beta/2; the paper applies the lemma with b = beta.
    """
    a, b, m = check.nonnegative("a", a), check.positive("b", b), check.positive("m", m)
    if a > m:
        raise ValueError(f"a must be at most m = {m!r}, got {a!r}")
    at_end = m * math.exp(-2.0 * b * (m - a))
    # The print also takes this value far from where it is the maximum, and there it may be anything.
    inside = math.exp(2.0 * a * b - 1.0) / (2.0 * b) if a * b < 300.0 else math.inf
    printed = a if b < a / 2.0 else at_end if b > m / 2.0 else inside
    peak = 0.5 / b
    return Bound(printed, a if peak <= a else at_end if peak >= m else inside)


def expected_inverse_count(m: int, p: float) -> float:
    """Lemma 11: ``E[1/(B + 1)]`` for a binomial B of m trials, ``(1 - (1 - p)**(m + 1))/(p (m + 1))``."""
    m, p = check.positive_integer("m", m), _probability(p)
    return _hit(p, m + 1) / (p * (m + 1))


def expected_inverse_square_count(m: int, p: float) -> float:
    """Lemma 11: an upper bound on ``E[1/B**2; B >= 1]`` for a binomial B of m trials, at most 6 times that."""
    m, p = check.positive_integer("m", m), _probability(p)
    # 6 sum over j >= 2 of P[Binomial(m + 1, p) = j]/(j + 1): as printed, 6/(p(m+1)) (E[1/(B'+1)] - P[0] - P[1]/2).
    missed = (1.0 - p) ** (m + 1)
    once = 0.5 * p * (m + 1) * (1.0 - p) ** m
    return 6.0 / (p * (m + 1)) * max(0.0, _hit(p, m + 2) / (p * (m + 2)) - missed - once)


def expected_smooth_inverse_square(m: int, p: float, beta: float) -> Bound:
    """Lemma 12: ``E[max over k >= 0 of exp(-k beta)/max(|X_s| - k, 1)**2]``, one state's part of E[psi] for DP-LSW.

    ``6/(p**2 (m + 1)(m + 2)) + c (1 - (1 - exp(-beta)) p)**m``, beta <= 2, with c = exp(2) beta**2/4 printed, exp(beta)
    corrected; never above 1, which the maximum never exceeds. 1 where p = 0.
    """
    m, p, beta = check.positive_integer("m", m), _probability(p, least=0.0), _smoothness(beta, 2.0)
    if p == 0.0:
        return Bound(1.0, 1.0)
    inverse = 6.0 / (p**2 * (m + 1) * (m + 2))
    decayed = (1.0 + math.expm1(-beta) * p) ** m
    printed = inverse + 0.25 * math.exp(2.0) * beta**2 * decayed
    return Bound(printed, min(1.0, inverse + math.exp(beta) * decayed))


def lsw_excess_risk(
    visits: ArrayLike, weights: ArrayLike, features: ArrayLike, *, m: int, beta: float, **noise: Any
) -> Bound:
    """Theorem 13: bound on the expected weighted squared error of DP-LSW due to privacy, beta <= 2.

    ``C**2 sum_s w_s E[...]``, with Lemma 12 printed and corrected, p_s in `visits`; the other keywords are `alpha`,
    `return_width` and `orthonormal` (False), whether the release is made in orthonormal coordinates. C**2 is then
    ``alpha**2 return_width**2 n_features``, in place of the paper's ``alpha**2 return_width**2 ||U^+||**2 ||U||_F**2``,
    U = sqrt(w) Phi, which has full column rank.
    """
    p, w, factor = _lsw_arguments(visits, weights, features, **noise)
    terms = [expected_smooth_inverse_square(m, float(probability), beta) for probability in p]
    return Bound(*(factor * math.fsum(w * column) for column in np.array(terms).T))


def lsw_excess_risk_simple(
    visits: ArrayLike, weights: ArrayLike, features: ArrayLike, *, m: int, beta: float, **noise: Any
) -> Bound:
    """Corollary 14: Theorem 13 in a simpler form, for beta up to 1/2.

    ``C**2 (sum of w_s over p_s = 0 + sum of w_s (6/(p_s m)**2 + c (1 - beta p_s/2)**m))`` with c = 6 beta**2 printed,
    exp(beta) corrected.
    """
    p, w, factor = _lsw_arguments(visits, weights, features, **noise)
    m, beta = check.positive_integer("m", m), _smoothness(beta, 0.5)
    seen = p > 0.0
    inverse = 6.0 / (p[seen] * m) ** 2
    decayed = (1.0 - 0.5 * beta * p[seen]) ** m
    unseen = math.fsum(w[~seen])
    return Bound(
        *(factor * (unseen + math.fsum(w[seen] * (inverse + c * decayed))) for c in (6.0 * beta**2, math.exp(beta)))
    )


def lsl_excess_risk_of_counts(
    counts: ArrayLike, weights: ArrayLike, features: ArrayLike, *, m: int, ridge: float, variance: float
) -> float:
    """Lemma 16, before the expectation over the data: exact increase of DP-LSL's objective by noise of a variance.

    ``(lambda d/(2m) + sum_s rho_s ||phi_s||**2 |X_s|/m) variance``, |X_s| in `counts`: simulated or public (those of
    private data are private).
    """
    phi = _features(features)
    rho = _vector("weights", weights, len(phi))
    visited = _vector("counts", counts, len(phi))
    m, ridge = check.positive_integer("m", m), check.positive("ridge", ridge)
    if (visited > m).any():
        raise ValueError(f"counts must be at most m = {m}")
    risk = 0.5 * ridge * phi.shape[1] / m + math.fsum(rho * np.sum(phi**2, axis=1) * visited) / m
    return float(risk * check.nonnegative("variance", variance))


def lsl_excess_risk(
    visits: Visits, weights: ArrayLike, features: ArrayLike, *, m: int, ridge: float, beta: float, **noise: Any
) -> Bound:
    """Theorem 19: bound on the increase of the expected objective of DP-LSL by privacy, beta below 1/2.

    Printed: for the printed sensitivity, which divides by ``lambda - ||Phi||**2 max(rho)``; inf if that is not
    positive. Corrected: for the sensitivity that divides by lambda, valid for every lambda > 0. The other keywords are
    `alpha` and `return_width`.
    """
    check.instance("visits", visits, Visits, "Visits")
    phi = _features(features)
    if len(visits.pairs) != len(phi):
        raise ValueError(f"visits must be of {len(phi)} states, a row of features each, got {len(visits.pairs)}")
    rho = _vector("weights", weights, len(phi))
    m, ridge = check.positive_integer("m", m), check.positive("ridge", ridge)
    beta = _smoothness(beta, 0.5)
    unit = 2.0 * _noise_unit(**noise)
    norm = float(np.linalg.norm(phi, 2))
    factors = _lsl_factors(visits, rho, phi, m, ridge, beta, norm**2 * float(rho.max()) ** 2)
    floor = norm**2 * float(rho.max())
    printed = (unit * norm / (ridge - floor)) ** 2 * factors.printed if ridge > floor else math.inf
    return Bound(printed, (unit * norm / ridge) ** 2 * factors.corrected)


def _lsl_factors(
    visits: Visits, rho: FloatArray, phi: FloatArray, m: int, ridge: float, beta: float, coupling: float
) -> Bound:
    """Bound E[(Lemma 16's factor) psi], `coupling` being ||Phi||**2 max(rho)**2.

    Printed: Theorem 19, term by term. Corrected: psi is at most 2 ||rho||**2 + coupling/lambda times the sum of
    rho_s (|X_s| + c), c = min(1/(e beta), m).
    """
    p, squares, d = visits.single, np.asarray(np.sum(phi**2, axis=1)), phi.shape[1]
    spread = float(rho @ rho)
    decay = 1.0 / (2.0 * math.e * beta)
    outer = np.outer(rho * squares, rho)
    without = (p[:, None] - visits.pairs) * (1.0 - p) ** (m - 1)
    pairs = outer * (visits.pairs - np.outer(p, p) + decay * without)
    np.fill_diagonal(pairs, rho**2 * squares * (p - p**2))
    printed = (
        np.sum(rho * p * (0.5 * d * coupling + 2.0 * spread * squares))
        + ridge / m * d * spread
        + 0.5 * d * coupling * decay / m * np.sum(rho * (1.0 - p) ** m)
        + m / ridge * coupling * np.sum(outer * np.outer(p, p))
        + coupling / ridge * np.sum(pairs)
    )
    factor, share = 0.5 * ridge * d / m, coupling / ridge
    fixed = 2.0 * spread + share * min(1.0 / (math.e * beta), m) * float(rho.sum())
    moments = visits.moments(m)
    visited = rho * squares / m
    corrected = (factor + visited @ moments.mean) * fixed
    corrected += share * (factor * (rho @ moments.mean) + visited @ moments.products @ rho)
    return Bound(float(printed), float(corrected))


def _hit(p: float, trials: int) -> float:
    """Probability of at least one success, without cancellation for small p."""
    return 1.0 if p == 1.0 else -math.expm1(trials * math.log1p(-p))


def _noise_unit(*, alpha: float, return_width: float) -> float:
    return check.nonnegative("alpha", alpha) * check.positive("return_width", return_width)


def _lsw_arguments(
    visits: ArrayLike, weights: ArrayLike, features: ArrayLike, *, orthonormal: bool = False, **noise: Any
) -> tuple[FloatArray, FloatArray, float]:
    """Return p, w and C**2."""
    phi = _features(features)
    p, w = _vector("visits", visits, len(phi)), _vector("weights", weights, len(phi))
    if (p > 1.0).any():
        raise ValueError("visits must hold probabilities, in [0, 1]")
    singular = np.linalg.svd(np.sqrt(w)[:, None] * phi, compute_uv=False)
    if singular[-1] <= singular[0] * len(phi) * np.finfo(float).eps or len(singular) < phi.shape[1]:
        raise ValueError("sqrt(weights) * features must have full column rank")
    inflation = phi.shape[1] if check.boolean("orthonormal", orthonormal) else np.sum((singular / singular[-1]) ** 2)
    return p, w, _noise_unit(**noise) ** 2 * float(inflation)


def _features(features: ArrayLike) -> FloatArray:
    phi = check.array("features", features)
    if phi.ndim != 2 or 0 in phi.shape:
        raise ValueError(f"features must be of shape (n_states, n_features), got {phi.shape}")
    if not np.isfinite(phi).all() or not phi.any():
        raise ValueError("features must be finite and not all 0")
    return phi


def _vector(name: str, values: Any, length: int) -> FloatArray:
    vector = check.array(name, values)
    if vector.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), a number a row of features, got {vector.shape}")
    if not (np.isfinite(vector) & (vector >= 0.0)).all():
        raise ValueError(f"{name} must be nonnegative and finite")
    return vector


def _probability(value: object, least: float | None = None) -> float:
    p = check.real("p", value)
    if not (0.0 < p <= 1.0 or p == least):
        raise ValueError(f"p must lie in {'(' if least is None else '['}0, 1], got {p!r}")
    return p


def _smoothness(value: object, most: float) -> float:
    beta = check.positive("beta", value)
    if beta > most:
        raise ValueError(f"beta must be at most {most:g} for this bound, got {beta!r}")
    return beta
