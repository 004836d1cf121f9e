"""Private convex empirical risk minimization (Kifer, Smith, Thakurta, COLT 2012): printed noise, and error bounds.

Algorithm 1 minimises n J(theta) + (Delta/2) ||theta||^2 + b'theta over a closed convex F, where n J is the summed loss
plus a regulariser, its noise b either of density exp(-epsilon ||b||/(2 zeta)) ("gamma", delta = 0) or Gaussian of
standard deviation zeta sqrt(8 log(2/delta) + 4 epsilon)/epsilon. Excess risks are J(theta_priv) - J(theta_hat), on the
paper's scale of a mean over people.

All corrected bounds rest on one inequality. Let n J be eta-strongly convex where it matters (eta = 0: convex), and
d = theta_hat - theta_priv. The objective is (Delta + eta)-strongly convex and theta_priv minimises it, so that for any
theta_hat in F

    n (J(theta_priv) - J(theta_hat)) <= (b + Delta theta_hat)'d - (Delta + eta/2) ||d||^2
                                     <= ||b + Delta theta_hat||^2 / (2 (2 Delta + eta)),

and where theta_hat minimises J, ||d|| <= ||b + Delta theta_hat||/(Delta + eta). In expectation, both laws being
symmetric, ||b + Delta theta_hat||^2 is E||b||^2 + Delta^2 ||theta_hat||^2. Errors of the printed bounds:

- Lemma 3 holds, at four times the noise's share and twice the rest; the inequality is attained.
- Lemma 28 is applied with half of the term needed in its proof. Also 2p + 2 log(1/gamma) is replaced by 2p
  log(1/gamma), which is not an upper bound. So Theorems 26, 30 and 31 fail for Gaussian noise at large p and gamma
  above exp(-1/2). Here are the exact quantiles instead.
- Theorem 4 takes the logarithm of Theorem 26's quantile over into an expectation, where it has no place: at p = 1 it
  is 0 and the bound fails, at large p it is too large. Its condition Delta >= lambda/(2 epsilon) is a slip for
  Algorithm 1's 2 lambda/epsilon: below epsilon = 1.25 it leaves nothing of epsilon for the noise.
- Theorem 29 has no sampling error: its bound vanishes as epsilon grows, for a fixed n. Its Delta does not grow with n,
  so the cited conversion adds a term that does not fall with n.
- Theorem 30 (a) leaves out the 2 of its equation (18), which is not needed.

Arguments by their letters: `n`, `n_features` p, `epsilon` and `delta` (the noise's law as above), `gradient` zeta and
`curvature` lambda (bounds on the norm of a person's gradient and on the eigenvalues of their Hessian),
`strong_convexity` Delta, `loss_convexity` eta, `norm` ||theta_hat|| or a bound on it, `gamma` in (0, 1), how often a
bound may fail.

References
----------
Kifer, D., Smith, A., Thakurta, A. (2012). Private Convex Empirical Risk Minimization and High-dimensional Regression.
COLT. Algorithm 1; Theorem 2 for its privacy.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dpfast import _arguments as check
from dpfast.papers import Bound
from dpfast.privacy import ObjectiveNoise, Privacy
from dpfast.privacy.guarantee import law_for


class ParameterDistance(NamedTuple):
    """Theorem 30: how far the private parameters are from two others, and where curvature is needed for it."""

    #: On ||theta_priv - theta_#||, theta_# the minimiser without noise but with Delta.
    from_ridge: Bound
    #: On ||theta_priv - theta_hat||.
    from_minimiser: Bound
    #: psi: of the ball around theta_hat in which the loss must be strongly convex.
    radius: Bound


class LinearRegression(NamedTuple):
    """Section H: the constants of linear regression with rows and parameters of norm sqrt(p), |y| <= p."""

    #: zeta = 2 p^(3/2).
    gradient: float
    #: lambda = p.
    curvature: float
    #: sqrt(p), of the L2 ball F.
    radius: float


class Table1(NamedTuple):
    """Table 1: bounds on the expected excess risk of linear regression."""

    #: Theorem 4, part 1: O(p^3 log p/n) printed; p^3/n is proved.
    gamma: Bound
    #: Theorem 4, part 2: O(p^(5/2)/n).
    gaussian: Bound
    #: Theorem 5: O(p^2/n) printed, for n >= p^2; (p^4 + p^3)/n^2 is proved.
    strongly_convex: Bound


def printed_objective_perturbation(
    privacy: Privacy, *, gradient: float, curvature: float, strong_convexity: float = 0.0
) -> ObjectiveNoise:
    """Noise and strong convexity of Algorithm 1: valid for generalised linear losses under add/remove.

    `strong_convexity` is that of the objective without noise; the difference to Delta = 2 lambda/epsilon is added. This
    costs log(1 + epsilon/2), the noise epsilon/2. The rest, about epsilon^2/8, hides the solver's error here.
    """
    gradient, curvature = check.positive("gradient", gradient), check.positive("curvature", curvature)
    least = check.nonnegative("strong_convexity", strong_convexity)
    target, epsilon = privacy.finite_target[0], privacy.epsilon
    convexity = max(least, 2.0 * curvature / epsilon)
    spent = math.log1p(curvature / convexity)
    # Rounding cannot use it up: it is at least epsilon - log(1 + epsilon/2) - epsilon/2.
    finishing = (target - spent - 0.5 * epsilon) * (1.0 - 2.0**-20)
    if not finishing > 0.0:
        raise ValueError(f"epsilon must be larger for the printed calibration in double precision, got {epsilon!r}")
    scale = _scale(epsilon, privacy.delta, gradient)
    return ObjectiveNoise(privacy, law_for(privacy), scale, convexity, 0.5 * epsilon, spent, finishing)


def empirical_risk(noise_norm: float, *, n: int, strong_convexity: float, norm: float) -> Bound:
    """Lemma 3: bound on the excess risk for one draw of the noise, of length ||b||.

    ``2 ||b||^2/(Delta n) + Delta ||theta_hat||^2/(2 n)``, and ``(||b|| + Delta ||theta_hat||)^2/(4 Delta n)``, which is
    attained; corrected holds against any other point of F too, with its norm.
    """
    noise, n = check.nonnegative("noise_norm", noise_norm), check.positive_integer("n", n)
    added, norm = check.positive("strong_convexity", strong_convexity), check.nonnegative("norm", norm)
    return Bound((2.0 * noise**2 / added + 0.5 * added * norm**2) / n, (noise + added * norm) ** 2 / (4.0 * added * n))


def empirical_risk_tail(
    epsilon: float,
    delta: float,
    *,
    n: int,
    n_features: int,
    gradient: float,
    strong_convexity: float,
    norm: float,
    gamma: float,
) -> Bound:
    """Theorem 26: `empirical_risk` but for a probability: with the printed tail of ||b||, and its exact quantile."""
    quantile = _Noise(epsilon, delta, n_features, gradient).quantile(gamma)
    printed, corrected = (empirical_risk(size, n=n, strong_convexity=strong_convexity, norm=norm) for size in quantile)
    return Bound(printed.printed, corrected.corrected)


def best_strong_convexity(
    epsilon: float, delta: float, *, n_features: int, gradient: float, curvature: float, norm: float
) -> Bound:
    """Theorem 4: the Delta that balances noise and shrinkage; two values, not bounds.

    Printed: zeta p log(p)/(epsilon ||theta_hat||), or for Gaussian noise zeta sqrt(p log(1/delta))/(epsilon
    ||theta_hat||), at least lambda/(2 epsilon). Corrected: the best one for `expected_risk`'s corrected bound,
    sqrt(E||b||^2)/||theta_hat||, at least Algorithm 1's 2 lambda/epsilon.
    """
    noise = _Noise(epsilon, delta, n_features, gradient)
    curvature, norm = check.positive("curvature", curvature), check.positive("norm", norm)
    p = noise.n_features
    spread = p * math.log(p) if noise.delta == 0.0 else math.sqrt(p * math.log(1.0 / noise.delta))
    return Bound(
        max(noise.gradient * spread / (noise.epsilon * norm), curvature / (2.0 * noise.epsilon)),
        max(math.sqrt(noise.second_moment) / norm, 2.0 * curvature / noise.epsilon),
    )


def expected_risk(
    epsilon: float, delta: float, *, n: int, n_features: int, gradient: float, strong_convexity: float, norm: float
) -> Bound:
    """Theorem 4: bound on the expected excess risk, at any Delta (see `best_strong_convexity`).

    Printed: Theorem 26's with gamma ignored, as the proof has it. Corrected: ``(E||b||^2/Delta + Delta
    ||theta_hat||^2)/(4 n)``.
    """
    return _expected_risk(_Noise(epsilon, delta, n_features, gradient), n, strong_convexity, 0.0, norm)


def expected_population_risk(
    epsilon: float,
    delta: float,
    *,
    n: int,
    n_features: int,
    bound_x: float,
    derivative: float,
    strong_convexity: float,
    norm: float,
) -> Bound:
    """Theorem 29: bound on the expected excess risk for a new person, for generalised linear losses.

    Rows have norms up to R = `bound_x`, the loss a `derivative` in x'theta up to L; `norm` is that of the minimiser for
    the population. Printed: `expected_risk`'s with zeta = R L. Corrected, in expectation over people too:
    ``2 (R L)^2/Delta + (E||b||^2/Delta + Delta ||theta_bar||^2)/(4 n)``. Its first term is the stability of the
    minimiser: one person moves it by at most 2 R L/Delta, and a loss by R L times that. The printed Delta does not grow
    with n; corrected is least at about ``sqrt(8 n) R L/||theta_bar||``.
    """
    gradient = check.positive("bound_x", bound_x) * check.positive("derivative", derivative)
    empirical = _expected_risk(_Noise(epsilon, delta, n_features, gradient), n, strong_convexity, 0.0, norm)
    return Bound(empirical.printed, 2.0 * gradient**2 / strong_convexity + empirical.corrected)


def parameter_distance(
    epsilon: float,
    delta: float,
    *,
    n_features: int,
    gradient: float,
    strong_convexity: float,
    loss_convexity: float,
    norm: float,
    gamma: float,
) -> ParameterDistance:
    """Theorem 30, for Gaussian noise: bounds on the distance of the private parameters, but for a probability.

    With q the quantile of ||b||: q/(Delta + eta) for (a); for (b), as printed ``q/(Delta + eta) + sqrt(Delta/(Delta +
    eta)) ||theta_hat||``, corrected ``(q + Delta ||theta_hat||)/(Delta + eta)``, which is also the radius needed (Jpriv
    rises along the segment from theta_hat to any point beyond). The summed loss is eta-strongly convex in that ball
    around theta_hat.
    """
    noise = _Noise(epsilon, check.delta_value(delta), n_features, gradient)
    added, norm = check.positive("strong_convexity", strong_convexity), check.nonnegative("norm", norm)
    total = added + check.nonnegative("loss_convexity", loss_convexity)
    moved = Bound(*(quantile / total for quantile in noise.quantile(gamma)))
    shrunk = Bound(math.sqrt(added / total) * norm, added / total * norm)
    distance = Bound(moved.printed + shrunk.printed, moved.corrected + shrunk.corrected)
    # Here the printed theorem does have the 2 of its equation (18), and doubles all of it.
    radius = Bound(4.0 * moved.printed + 2.0 * shrunk.printed, distance.corrected)
    return ParameterDistance(moved, distance, radius)


def strongly_convex_risk_tail(
    epsilon: float,
    delta: float,
    *,
    n: int,
    n_features: int,
    gradient: float,
    strong_convexity: float,
    loss_convexity: float,
    norm: float,
    gamma: float,
) -> Bound:
    """Theorem 31, for Gaussian noise: bound on the excess risk where the loss is strongly convex as in Theorem 30.

    Printed: ``2 q^2/(n (Delta + eta)) + Delta ||theta_hat||^2/(2 n)`` with q the printed tail bound, the constants
    being those of the appendix and of Theorem 44. Corrected: ``(q + Delta ||theta_hat||)^2/(2 n (2 Delta + eta))`` with
    q the quantile.
    """
    noise = _Noise(epsilon, check.delta_value(delta), n_features, gradient)
    n, norm = check.positive_integer("n", n), check.nonnegative("norm", norm)
    added = check.positive("strong_convexity", strong_convexity)
    convexity = check.nonnegative("loss_convexity", loss_convexity)
    quantile = noise.quantile(gamma)
    return Bound(
        (2.0 * quantile.printed**2 / (added + convexity) + 0.5 * added * norm**2) / n,
        (quantile.corrected + added * norm) ** 2 / (2.0 * n * (2.0 * added + convexity)),
    )


def expected_strongly_convex_risk(
    epsilon: float,
    delta: float,
    *,
    n: int,
    n_features: int,
    gradient: float,
    curvature: float,
    loss_convexity: float,
    norm: float,
) -> Bound:
    """Theorem 5, for Gaussian noise: bound on the expected excess risk at Delta = 2 lambda/epsilon.

    The summed loss is eta-strongly convex on F, eta positive; the paper's Assumption 1 takes it to be of the order of
    lambda n/p. Printed: ``4 p zeta^2 (8 log(2/delta) + 4 epsilon)/(n epsilon^2 eta) + lambda ||theta_hat||^2/(n
    epsilon)``, the theorem's expression if eta = lambda n/p. Corrected: ``(E||b||^2 + Delta^2 ||theta_hat||^2)/(2 n (2
    Delta + eta))``: the second term too falls as 1/n^2.
    """
    noise = _Noise(epsilon, check.delta_value(delta), n_features, gradient)
    added = 2.0 * check.positive("curvature", curvature) / noise.epsilon
    return _expected_risk(noise, n, added, check.positive("loss_convexity", loss_convexity), norm)


def linear_regression(n_features: int) -> LinearRegression:
    """Section H: the assumptions of Table 1."""
    p = check.positive_integer("n_features", n_features)
    return LinearRegression(2.0 * p**1.5, float(p), math.sqrt(p))


def table_1(epsilon: float, delta: float, *, n: int, n_features: int) -> Table1:
    """Table 1: Theorems 4 and 5 in the setting of Section H; the gamma row leaves delta out.

    Each version at its own Delta, ``||theta_hat||`` at its largest, sqrt(p), and eta = lambda n/p = n.

    >>> from dpfast.papers.convex_erm import table_1
    >>> for row, bound in table_1(1.0, 1e-6, n=100_000, n_features=10)._asdict().items():
    ...     print(f"{row}: {bound.printed:.4f}, {bound.corrected:.4f}")
    gamma: 0.3914, 0.0210
    gaussian: 0.8290, 0.0347
    strongly_convex: 0.0029, 0.0002
    """
    delta = check.delta_value(delta)
    given = linear_regression(n_features)
    sizes: dict[str, Any] = {"n_features": n_features, "gradient": given.gradient, "norm": given.radius}

    def theorem_4(used: float) -> Bound:
        best = best_strong_convexity(epsilon, used, curvature=given.curvature, **sizes)
        printed, corrected = (expected_risk(epsilon, used, n=n, strong_convexity=added, **sizes) for added in best)
        return Bound(printed.printed, corrected.corrected)

    theorem_5 = expected_strongly_convex_risk(
        epsilon, delta, n=n, curvature=given.curvature, loss_convexity=float(n), **sizes
    )
    return Table1(theorem_4(0.0), theorem_4(delta), theorem_5)


def _scale(epsilon: float, delta: float, gradient: float) -> float:
    if delta == 0.0:
        return 2.0 * gradient / epsilon
    return gradient * math.sqrt(8.0 * math.log(2.0 / delta) + 4.0 * epsilon) / epsilon


class _Noise:
    """The noise of Algorithm 1: its scale, second moment E||b||^2, and quantiles of ||b||."""

    def __init__(self, epsilon: float, delta: float, n_features: int, gradient: float) -> None:
        self.epsilon = check.positive("epsilon", epsilon)
        self.delta = 0.0 if delta == 0.0 else check.delta_value(delta)
        self.n_features = check.positive_integer("n_features", n_features)
        self.gradient = check.positive("gradient", gradient)
        self.scale = _scale(self.epsilon, self.delta, self.gradient)

    @property
    def second_moment(self) -> float:
        # Of a Gamma(p) radius, or a chi-square variable.
        p = self.n_features
        return self.scale**2 * (p * (p + 1.0) if self.delta == 0.0 else p)

    def quantile(self, gamma: float) -> Bound:
        """Lemmas 27 and 28 as they are used: bounds on ||b|| that fail with probability gamma; and the quantile."""
        from scipy.special import gammainccinv  # takes longer to import than all of dpfast.privacy

        gamma, p = check.share("gamma", gamma), self.n_features
        if self.delta == 0.0:
            return Bound(p * self.scale * math.log(p / gamma), self.scale * float(gammainccinv(p, gamma)))
        printed = math.sqrt(2.0 * p * math.log(1.0 / gamma))
        return Bound(self.scale * printed, self.scale * math.sqrt(2.0 * float(gammainccinv(0.5 * p, gamma))))


def _expected_risk(noise: _Noise, n: int, strong_convexity: float, loss_convexity: float, norm: float) -> Bound:
    """Theorems 4 and 5: with gamma ignored as printed, exact moments corrected."""
    n, norm = check.positive_integer("n", n), check.nonnegative("norm", norm)
    added, p = check.positive("strong_convexity", strong_convexity), noise.n_features
    spread = p * math.log(p) if noise.delta == 0.0 else math.sqrt(2.0 * p)
    # Theorem 5 drops Delta beside eta.
    against = loss_convexity if loss_convexity > 0.0 else added
    return Bound(
        (2.0 * (noise.scale * spread) ** 2 / against + 0.5 * added * norm**2) / n,
        (noise.second_moment + (added * norm) ** 2) / (2.0 * n * (2.0 * added + loss_convexity)),
    )
