"""Objective perturbation: how much noise in the objective makes its minimiser private.

The mechanism releases ``argmin over F of loss(theta) + regulariser(theta) + (m/2) ||theta||**2 + b'theta``, F closed
and convex, noise b. Let neighbouring losses differ in gradient by h(theta) with ``||h|| <= L`` on F, and in curvature
by matrices with at most one negative eigenvalue, of at most c in absolute value.

*From the noise of one table to that of the other.* theta_D(b) is optimal exactly if -(grad Q_D(theta) + b) is a
subgradient of r + 1_F there, Q_D the smooth part with (m/2) ||theta||**2, r the regulariser. Let T(b) = b +
h(theta_D(b)). At theta = theta_D(b), grad Q_D'(theta) + T(b) = grad Q_D(theta) + b: the same point is optimal on D' at
T(b), with the same subgradient, in the interior, on the boundary or where r is not differentiable. Exchanging the
tables inverts T. theta_D is 1/m-Lipschitz, so T is Lipschitz and differentiable almost everywhere. For every event O,
P_D(O) is the integral of nu(b), and P_D'(O) that of nu(T(b)) det DT(b), over {theta_D(b) in O}.

*The determinant.* -theta_D is the gradient of the convex function sup over theta of -b'theta - Q_D - r - 1_F. So P =
-D theta_D is symmetric, P >= 0, DT = I - EP, E the difference of the Hessians. Subgradients of r + 1_F are monotone:
(b1 - b2)'(theta2 - theta1) >= (grad Q_D(theta1) - grad Q_D(theta2))'(theta1 - theta2). So P >= PHP with the Hessian H
>= mI of Q_D, hence P <= I/m and P^(1/2) H P^(1/2) <= I. Now det(I - EP) = det(I - P^(1/2) E P^(1/2)) and E = H - H'
<= H - mI, so I - P^(1/2) E P^(1/2) >= mP: positive on the range of P, the identity on its kernel. P^(1/2) E P^(1/2)
has at most one negative eigenvalue, of size c/m at most (Sylvester; P <= I/m): one factor of at most 1 + c/m, the
others in (0, 1]. The inverse of T has -E for E. So 1/(1 + c/m) <= det DT <= 1 + c/m, and P_D(O) - exp(epsilon)
P_D'(O) is at most the integral of nu(b) [1 - exp(epsilon)/(1 + c/m) nu(T(b))/nu(b)]_+. So with

    epsilon = epsilon_noise + log(1 + c/m)

the noise b has to hide a shift of at most L at epsilon_noise, e for short. (c is one record's under replace-one too: a
difference of two positive semidefinite matrices of rank one has one negative eigenvalue at most, no larger than
theirs.) But the shift depends on b. So a Gaussian b, of deviation 1 for now, does not have the Gaussian mechanism's
delta,

    G(L) = Phi(-z) - exp(e) Phi(-z - L),  z = e/L - L/2.

At noise b and shift h the loss is b'h + ||h||**2/2. So delta is at most E g(loss), with ``g(w) = max(0, 1 - exp(e -
w))`` and the loss being the largest over all possible h. The loss is convex in h, so it is largest at an end or a
vertex of the set of possible h; and g(0) = 0. The geometry of this set then decides how much noise is needed
(`Geometry`):

*A segment*, from 0 to an end of length L: a record whose slope has one sign comes or goes. That end is worst for every
b, and delta is G(L).

*A line*, L to either side: the loss is at most ``L |N(0, 1)| + L**2/2``, and delta 2 G(L) if z >= 0.

*A plane*, L to all sides: |N(0, 1)| becomes a Rayleigh variable, and where z >= 0 delta is ``sqrt(2 pi) L exp(e) Phi(-z
- L) = L exp(-z**2/2) M(z + L)``, M the Mills ratio.

*A disk* in a plane, of radius r, with no point farther than L from 0: only a part of h, of length r, turns with b. Its
centre c has a length of at most L - r. The loss is at most b'c + r |b| + L**2/2. If b is at an angle x to c, this is k
|b| + L**2/2 with k = r + (L - r) cos x, and |b| is Rayleigh's variable as before. If ``L**2/2 <= e``, **delta is at
most the mean of k exp(-y**2/2) M(y + k), y = (e - L**2/2)/k, over x from 0 to pi**, counted as 0 if k is not above 0.
This is a plane's delta at r = L, and G(L) at r = 0. No disk of a smaller radius, or nearer to 0, is worse. For delta is
1 minus the integral of the lesser of the densities of b and exp(e) phi(|b + c| + r), both of which fall from a centre
outwards. The sets above a level of either are balls. The integral sums over levels the volume of their intersection,
and this is smaller the farther c is from 0. A disk of radius r' < r lies within one of radius r with its centre nearer
to 0 by r - r', or at 0.

*Two segments*, h = v1 + v2, each on a segment from 0 of length at most L/2: a record whose slope has one sign replaces
another. The vertices' losses are P = b'v1 + ||v1||**2/2, Q likewise, and P + Q + k with k = v1'v2. Let the angle
between v1 and v2 vary: (P, Q) is normal with covariance k, and else as it was, so that by Price's theorem

    dE f/dk = E (df/dk + d2f/dP dQ),  f = g(max(P, Q, P + Q + k)).

If P, Q > -k the last is largest, and the integrand is g' + g'' at it: a unit mass at w = e, as g'' = -g' above.
Elsewhere f depends on P or on Q alone, so the integrand is 0 except on the edge P = Q < -k. There it is -g'(P): 0 too
if -k <= e. (df/dQ does not jump at P = -k: it is g'(Q) on either side.) So delta grows with k if ``||v1|| ||v2|| <=
e``, until v1 and v2 point the same way, as on one segment: **at most G(L) if (L/2)**2 <= e**. Without that condition it
is a plane's.

*Two lines*, h = v1 + v2, each on a line and of length at most L/2: any record replaces another. The vertices, +-(v1 +
v2) and +-(v1 - v2), have lengths s and t with s**2 + t**2 <= L**2, and delta is at most 2 G(s) + 2 G(t). Let v = u**2.
The derivative of G(u) in v is phi(z)/(2u), and it rises at first and then falls. So v times the derivative minus G(u)
starts at 0, and once it is below 0 it stays below. Hence if ``G(L) <= L phi(z)/2``, G(u)/u**2 rises up to L and G(s) +
G(t) <= G(L): **at most 2 G(L)**. Without that condition it is a plane's.

L2-Laplace noise b of scale L/epsilon_noise is pure, and hides any shift.

*Curvature that fades.* If the slope of a record is a part 1 - r of its bound, let its curvature be at most 4 c r (1 -
r), as for a logistic loss. Slope and curvature are then not at worst at once, and less than log(1 + c/m) pays for
curvature. On a segment let A = e, on two segments A = e/2, and let

    paid = max over 0 <= r <= 1 of  log(1 + 4 c r (1 - r)/m) - r A,

This is 0 from m = 4c/A on. **Then epsilon = e + paid holds with the noise as above**, for two segments if (L/2)**2 <=
e/2. Proof. The Jacobian contains the curvature of one record: the record in the table with the output and not in its
neighbour. Let v1 be the vector of this record. (Without such a record, the Jacobian is at most 1.) Say v1 reaches a
part p of its largest length, because its row is short or has less weight; its curvature is at most p times the bound,
and h there is (1 - r) v1 + s v2. The logarithm of the Jacobian is at most log(1 + 4 c p r (1 - r)/m) <= log(1 + 4 c q
(1 - q)/m) <= paid + q A with q = p r. The rest of the loss is convex in r and in s: at most (1 - r) times its value at
r = 0 plus r times that at r = 1, and s is 0 or 1. So, with a = p A, the loss is at most paid plus the larger of two
numbers: its value at r = 0, and a plus its value at r = 1. This is max(P, a) on a segment, max(P, Q + a, P + Q + k, a)
on two. As a <= e, g(a) = 0: on a segment delta is E g(P) = G again. On two segments let k vary as above. The last of
max(P, Q + a, P + Q + k) is largest if P > a - k and Q > -k. The edge P = Q + a lies below a - k, and there g is 0 as a
+ ||v1|| ||v2|| <= e/2 + (L/2)**2 <= e. So in the worst case v1 and v2 point the same way, P = l1 N + l1**2/2 and Q = l2
N + l2**2/2 with l1 = p L/2, l2 <= L/2 and one normal N. If Q + a > e, then N > (e - a)/l2 - l2/2. It follows that P + k
> (l1/l2) (e - a) >= p (e - a) >= p e/2 = a, so the last is larger. What remains is G(l1 + l2). With L2-Laplace noise of
scale L/e the loss is at most (1 - r) p e/2 + e/2 + paid + p r e/2 <= e + paid, and likewise on a segment.

A solver returns the minimiser only to within some tau, with floating-point error. Its output is therefore released with
a little L2-Laplace noise of its own, of scale 2 tau/epsilon_finish. The exact minimiser plus that noise is a
post-processing of the exact minimiser. Moving the noise's centre by tau changes densities by a factor of at most
exp(epsilon_finish/2), on either table.

References
----------
Chaudhuri, Monteleoni and Sarwate (2011), "Differentially private empirical risk minimization", JMLR 12, Algorithm 2.
Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1; the loss as a folded
variable, for the line, is that of Redberg, Koskela and Wang (2023), "Improving the privacy and practicality of
objective perturbation for differentially private linear learners", NeurIPS, Theorem 3.1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dpfast import _arguments as check
from dpfast.privacy import guarantee
from dpfast.privacy.guarantee import ROUND_DOWN, ROUND_UP, Law, Privacy, first_that_holds, least_at, remembered

#: The set that contains the change of the gradient, whatever the parameters and the noise; see this module's docstring.
Geometry = Literal["segment", "line", "two segments", "two lines", "disk", "plane"]
#: The largest L2 norm of a change of the gradient; of a disk that and its radius.
Length = float | tuple[float, float]
#: Proved bounds on a change of the gradient: sets that contain it, and its length in each. All of them hold.
Changes = Mapping[Geometry, Length]
_Profile = Callable[[float, float], float]


# Default share of epsilon to hide the solver's error.
FINISHING_SHARE = 2.0**-7


@dataclass(frozen=True)
class ObjectiveNoise:
    """The whole calibration of one objective perturbation.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of the released minimiser, finishing noise included.
    mechanism : {"Gaussian", "L2-Laplace"}
        Law of the noise b in the objective.
    scale : float
        Its scale: the standard deviation of a coordinate, or the scale of the density exp(-||b||/scale).
    strong_convexity : float
        m: the objective has ``(m/2) ||theta||**2`` in it.
    noise_epsilon, curvature_epsilon, finishing_epsilon : float
        How epsilon is divided.
    """

    privacy: Privacy
    mechanism: Law
    scale: float
    strong_convexity: float
    noise_epsilon: float
    curvature_epsilon: float
    finishing_epsilon: float

    def finishing_scale(self, tolerance: float) -> float:
        """Return the scale of the L2-Laplace noise that hides a minimiser's largest distance from the exact one."""
        return guarantee.l2_laplace_scale(self.finishing_epsilon, 2.0 * check.positive("tolerance", tolerance))

    def coordinate_scale(self, dim: int) -> float:
        """Return the standard deviation of a coordinate of b."""
        return guarantee.coordinate_deviation(self.mechanism, self.scale, dim)


def objective_delta(scale: float, epsilon: float, gradient: Length = 1.0, *, geometry: Geometry) -> float:
    """Delta that Gaussian noise in an objective provides at the part of epsilon left for it, curvature aside.

    `gradient` is L, the largest L2 norm of a change of gradient. `geometry` is the set of possible changes, whatever
    the parameters:

    - "segment": one record, the loss's slope of one sign;
    - "line": one record;
    - "two segments", "two lines": one record for another, with L the sum of both's;
    - "plane": any changes in a plane;
    - "disk": a disk in it, with a pair of L and the disk's radius as `gradient`.

    Exact for the worst such change, except for two lines and disks, and for two segments with hardly any noise; rounded
    up by less than 1e-11 relative.

    Examples
    --------
    >>> from dpfast.privacy import objective_delta
    >>> f"{objective_delta(9.0737, 0.5, geometry='plane'):.2e}"
    '1.00e-06'
    """
    scale, epsilon = check.positive("scale", scale), check.nonnegative("epsilon", epsilon)
    length, profile = _profile(gradient, geometry)
    return _delta_up(length / scale, epsilon, profile)


def objective_scale(epsilon: float, delta: float, gradient: Length = 1.0, *, geometry: Geometry) -> float:
    """Smallest Gaussian noise in an objective that gives (epsilon, delta), curvature aside: `objective_delta` inverted.

    Examples
    --------
    >>> from dpfast.privacy import objective_scale
    >>> round(objective_scale(0.5, 1e-6, geometry="plane"), 2), round(objective_scale(0.5, 1e-6, geometry="line"), 2)
    (9.07, 8.35)
    """
    epsilon, (length, profile) = check.positive_or_inf("epsilon", epsilon), _profile(gradient, geometry)
    if epsilon == math.inf:
        return 0.0
    delta = check.delta_value(delta)
    # Noise for less epsilon is private for more; squares of larger numbers overflow, and the search would not end.
    epsilon = min(epsilon, 2.0**960)
    # The plane's, the largest, is at most exp(-z**2/2): with z = sqrt(2 log(1/delta)) all are below the target.
    t = math.sqrt(-2.0 * math.log(delta))
    guess = 2.0 * epsilon / (t + math.sqrt(t * t + 2.0 * epsilon))
    ratio = guarantee.largest_within(
        lambda u: math.log(_delta_up(u, epsilon, profile)), math.log(delta), guess, precision=1e-15, slack=1e-13
    )
    return first_that_holds(
        lambda extra: length / ratio * (1.0 + extra),
        lambda scale: 0.0 < scale < math.inf and _delta_up(length / scale, epsilon, profile) <= delta,
    )


def curvature_cost(curvature: float, epsilon: float, geometry: Geometry | None = None) -> float:
    """Epsilon that curvature costs beside noise at `epsilon`; `curvature` is c over the strong convexity.

    With a `geometry`: of a loss whose curvature fades; this module's docstring has the proof. Rounded up.

    Examples
    --------
    >>> from dpfast.privacy.objective import curvature_cost
    >>> curvature_cost(0.125, 1.0, "two segments"), round(curvature_cost(0.125, 1.0), 3)
    (0.0, 0.118)
    """
    if geometry not in _FADES:
        return math.log1p(curvature) * ROUND_UP
    # The gain is concave in r, below its tangent at the root of its derivative, C (1 - 2r) = A (1 + C r (1 - r)).
    spread, rate = 4.0 * curvature, _FADES[geometry] * epsilon
    if spread <= rate:
        return 0.0
    half = 1.0 + 0.5 * rate
    r = min((1.0 - rate / spread) / (half + math.sqrt(half * half - rate * (1.0 - rate / spread))), 1.0)
    inner = spread * r * (1.0 - r)
    tilt = spread * (1.0 - 2.0 * r) / (1.0 + inner) - rate
    # Either term errs by some 2**-50 of itself, and the tangent is that much off, too.
    return max(0.0, math.log1p(inner) - rate * r) + abs(tilt) + 2.0**-48 * (math.log1p(inner) + rate)


def objective_noise(
    privacy: Privacy,
    *,
    changes: Changes,
    curvature: float,
    curvature_fades: bool = False,
    strong_convexity: float,
    dim: int,
    radius: float = 1.0,
    cost: Callable[[float, float], float] | None = None,
    least_curvature_share: float = 2.0**-5,
    finishing_share: float = FINISHING_SHARE,
) -> ObjectiveNoise:
    """Calibrate objective perturbation: noise, convexity and the finishing noise that hides the solver's error.

    More convexity m leaves more of epsilon for the noise, and shrinks harder towards 0. The split is free. By default
    it minimises the most that both can add to the objective on a ball of the given radius, ``sqrt(dim) * radius *
    (deviation of a coordinate of b) + (m - strong_convexity) * radius**2/2``.

    Parameters
    ----------
    privacy : Privacy
        The guarantee of the released minimiser. Gaussian noise if its delta is above 0, else L2-Laplace noise.
    changes : mapping of str to float
        Proved bounds on one person's change of the loss's gradient, anywhere on the constraint set: a set that contains
        the change, as for `objective_delta`, and its largest L2 norm. The least noise that any allows is taken.
    curvature : float
        c: largest eigenvalue, in absolute value, of a change of the loss's Hessian there; the change must have at most
        one negative eigenvalue.
    curvature_fades : bool, default False
        Whether a record's curvature is at most 4 c r (1 - r) if its slope is a part 1 - r of its bound, as for a
        logistic loss. The lengths in `changes` must be for that bound. Curvature then costs less of epsilon.
    strong_convexity : float
        Least m wanted, at least 0.
    dim : int
        Number of parameters.
    radius : float, default 1.0
        Largest L2 norm of the parameters, or a usual one if they are not constrained; it only guides the split.
    cost : callable, optional
        Function to minimise instead, of the deviation of a coordinate of b and of m; see `SplitCost`.
    least_curvature_share : float, default 2**-5
        Least share of epsilon for curvature, in (0, 1), unless the `strong_convexity` wanted needs less. With a smaller
        share more convexity hardly lowers the noise, though it does lower the effect of the noise.
    finishing_share : float, default 2**-7
        Share of epsilon that hides the solver's error, in (0, 1); at most an epsilon of 1 does.

    Returns
    -------
    ObjectiveNoise
        Rounded towards privacy.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range, or epsilon is infinite and there is nothing to calibrate.

    Examples
    --------
    >>> from dpfast import Privacy
    >>> from dpfast.privacy import objective_noise
    >>> noise = objective_noise(
    ...     Privacy(1.0, 1e-6), changes={"line": 1.0}, curvature=0.25, strong_convexity=0.1, dim=5
    ... )
    >>> noise.noise_epsilon + noise.curvature_epsilon + noise.finishing_epsilon <= 1.0
    True
    """
    curvature = check.positive("curvature", curvature)
    _longest(changes)
    least = check.nonnegative("strong_convexity", strong_convexity)
    dim, radius = check.positive_integer("dim", dim), check.positive("radius", radius)
    share = check.share("finishing_share", finishing_share)
    least_share = check.share("least_curvature_share", least_curvature_share)
    known = tuple(
        (geometry, (float(change[0]), float(change[1])) if isinstance(change, tuple) else float(change))
        for geometry, change in changes.items()
    )
    search = _objective_noise if cost is None or isinstance(cost, SplitCost) else _search_objective_noise
    return search(privacy, known, curvature, bool(curvature_fades), least, dim, radius, cost, least_share, share)


class SplitCost(ABC):
    """A cost of noise and convexity, from public numbers: two of one class with the same numbers are equal."""

    @abstractmethod
    def __call__(self, deviation: float, convexity: float) -> float:
        """Return the cost of m and of the deviation of a coordinate of b."""


def _search_objective_noise(
    privacy: Privacy,
    changes: tuple[tuple[Geometry, Length], ...],
    curvature: float,
    curvature_fades: bool,
    least: float,
    dim: int,
    radius: float,
    cost: Callable[[float, float], float] | None,
    least_share: float,
    share: float,
) -> ObjectiveNoise:
    epsilon, delta = privacy.finite_target
    # More would hide hardly more of the error, but use up delta until nothing is left of it.
    finishing = min(share * epsilon, 1.0)
    shared = (epsilon - finishing) * ROUND_DOWN
    # The finishing noise multiplies delta by exp(finishing/2): see the top of this module.
    delta *= math.exp(-0.5 * finishing) * ROUND_DOWN
    # At epsilons in the thousands nothing of delta is left.
    law: Law = "Gaussian" if delta > 0.0 else "L2-Laplace"

    def split(convexity: float, geometry: Geometry | None = None) -> tuple[float, float]:
        """Return the parts of epsilon for noise and for curvature."""
        relative = curvature / convexity

        def left_beside(noise: float) -> float:
            return (shared - curvature_cost(relative, noise, geometry)) * ROUND_DOWN

        noise = left_beside(0.0)
        if geometry in _FADES and curvature_cost(relative, shared, geometry) == 0.0:
            noise = shared
        elif geometry in _FADES:
            # The cost falls as noise gets more: bisect for the most that leaves curvature enough.
            noise = guarantee.bisected(lambda more: more <= left_beside(more), max(noise, 0.0), shared, 60)[0]
        return noise, curvature_cost(relative, noise, geometry)

    def choices(convexity: float) -> Iterator[tuple[float, float, float]]:
        """Yield the scales that are proved sufficient, and how each divides epsilon between noise and curvature."""
        for geometry, change in changes:
            length = _profile(change, geometry)[0]
            for fading in (geometry, None) if curvature_fades and geometry in _FADES else (None,):
                left, paid = split(convexity, fading)
                if left <= 0.0:
                    continue
                if delta == 0.0:
                    scale = guarantee.l2_laplace_scale(left, length)
                else:
                    scale = objective_scale(left, delta, change, geometry=geometry)
                if fading is None or delta == 0.0 or _fading_is_proved(length / scale, left, fading):
                    yield scale, left, paid
                    break

    def best(convexity: float) -> tuple[float, float, float]:
        return min(choices(convexity), default=(math.inf, 0.0, math.inf))

    def excess(deviation: float, convexity: float) -> float:
        return math.sqrt(dim) * radius * deviation + 0.5 * (convexity - least) * radius**2

    def minimised(convexity: float) -> float:
        return (cost or excess)(guarantee.coordinate_deviation(law, best(convexity)[0], dim), convexity)

    convexity = _best_convexity(minimised, curvature, least, shared, least_share)
    scale, left, paid = best(convexity)
    return ObjectiveNoise(
        privacy,
        law,
        scale=scale,
        strong_convexity=convexity,
        noise_epsilon=left,
        curvature_epsilon=paid,
        finishing_epsilon=finishing,
    )


_objective_noise = remembered(_search_objective_noise)


def meets_its_claim(noise: ObjectiveNoise, changes: Changes) -> bool:
    """Whether noise meets its claim, given proved bounds on one person's change of the gradient.

    A printed calibration counts less epsilon for the noise than curvature and finishing noise leave; all of it counts
    here.
    """
    left = noise.privacy.target[0] - noise.curvature_epsilon - noise.finishing_epsilon
    if noise.mechanism == "L2-Laplace":
        return _longest(changes) <= noise.scale * left
    exact = min(
        objective_delta(noise.scale, max(left, 0.0), change, geometry=geometry) for geometry, change in changes.items()
    )
    return exact <= noise.privacy.target[1] * math.exp(-0.5 * noise.finishing_epsilon)


def _longest(changes: Changes) -> float:
    """Largest L2 norm of a change of the gradient: the least of the proved bounds."""
    if not changes:
        raise ValueError("changes must say what is proved of at least one geometry")
    return min(_profile(change, geometry, f"changes[{geometry!r}]")[0] for geometry, change in changes.items())


def _best_convexity(
    cost: Callable[[float], float], curvature: float, least: float, epsilon: float, least_share: float
) -> float:
    """Minimise the cost over curvature's part of epsilon: at most all of it, or the need of the least convexity."""
    # For larger numbers the exponential overflows; its inverse is 0 long before.
    epsilon = min(epsilon, 700.0)
    most = min(epsilon, math.log1p(curvature / least)) if least > 0.0 else epsilon
    fewest = min(most, least_share * epsilon)

    def convexity(curvature_epsilon: float) -> float:
        return max(least, curvature / math.expm1(curvature_epsilon))

    # On a logarithmic scale: for large epsilon the best part is tiny.
    part = least_at(lambda part: cost(convexity(math.exp(part))), math.log(fewest), math.log(most))
    candidates = [convexity(math.exp(part)), convexity(fewest)] + ([least] if most < epsilon else [])
    return min(candidates, key=cost)


def _fading_is_proved(ratio: float, epsilon: float, geometry: Geometry) -> bool:
    """Whether the proof for fading curvature applies; `ratio` is L over the noise's scale."""
    return geometry == "segment" or 0.25 * ratio * ratio * ROUND_UP <= 0.5 * epsilon


def _profile(gradient: Length, geometry: Geometry, name: str = "gradient") -> tuple[float, _Profile]:
    """Return the largest L2 norm of a change, and delta as a function of its ratio to the scale and of epsilon."""
    check.choice("geometry", geometry, get_args(Geometry))
    if geometry != "disk" or not isinstance(gradient, tuple):
        return check.positive(name, gradient), _PROFILES[geometry]
    length, radius = check.positives(name, gradient)
    turning = min(radius / length * ROUND_UP, 1.0)
    return length, lambda u, epsilon: _delta_on_a_disk(u, turning, epsilon)


def _delta_up(ratio: float, epsilon: float, profile: _Profile) -> float:
    """Delta at u = gradient/scale, rounded up."""
    return min(1.0, math.nextafter(profile(ratio, epsilon), 1.0))


def _delta_on_a_line(u: float, epsilon: float) -> float:
    if epsilon >= 0.5 * u * u:
        return 2.0 * guarantee.gaussian_delta(1.0, epsilon, u)
    # Every draw of b counts: 1 - exp(epsilon) E exp(-u |N| - u**2/2) = 1 - 2 exp(epsilon) Phi(-u).
    if u < 1.0:
        return -math.expm1(epsilon + math.log1p(-math.erf(u * math.sqrt(0.5)))) * ROUND_UP
    from scipy.special import log_ndtr  # takes longer to import than all of dpfast.privacy

    return -math.expm1(epsilon + math.log(2.0) + float(log_ndtr(-u))) * ROUND_UP


def _delta_on_a_plane(u: float, epsilon: float) -> float:
    from scipy.special import erfcx  # takes longer to import than all of dpfast.privacy

    half = 0.5 * u
    mills = math.sqrt(0.5 * math.pi) * float(erfcx(max(epsilon / u + half, u) * math.sqrt(0.5)))
    z = epsilon / u - half
    if z < 0.0:
        # Every draw of b counts: 1 - exp(epsilon) E exp(-u R - u**2/2), R Rayleigh.
        shifted = epsilon - half * u
        return (-math.expm1(shifted) + math.exp(shifted) * u * mills) * ROUND_UP
    # z has an error of a few 2**-53 (z + u), which moves delta by z times that.
    return u * math.exp(-0.5 * z * z) * mills * (1.0 + (32.0 + 4.0 * z * (z + u)) * 2.0**-52)


def _delta_on_two_segments(u: float, epsilon: float) -> float:
    if 0.25 * u * u * ROUND_UP <= epsilon:
        return guarantee.gaussian_delta(1.0, epsilon, u)
    return _delta_on_a_plane(u, epsilon)


def _delta_on_two_lines(u: float, epsilon: float) -> float:
    delta, plane = guarantee.gaussian_delta(1.0, epsilon, u), _delta_on_a_plane(u, epsilon)
    # Rounding z moves the density by less than z times a few 2**-53 (z + u); where z is large so is the room.
    z = epsilon / u - 0.5 * u
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    if delta * ROUND_UP <= 0.5 * u * density * ROUND_DOWN:
        return min(2.0 * delta, plane)
    return plane


# A over e, for each geometry in which fading curvature costs less; see this module's docstring.
_FADES: Mapping[Geometry | None, float] = {"segment": 1.0, "two segments": 0.5}


@remembered
def _delta_on_a_disk(u: float, turning: float, epsilon: float) -> float:
    """Delta where the part `turning` of the longest change is the disk's radius."""
    above = epsilon - 0.5 * u * u
    if above < 2.0**-20 * epsilon:
        return _delta_on_a_plane(u, epsilon)
    import numpy as np
    from scipy.special import erfcx  # takes longer to import than all of dpfast.privacy

    def mean(nodes: int) -> float:
        angles = (np.arange(nodes) + 0.5) * (math.pi / nodes)
        k = u * (turning + (1.0 - turning) * np.cos(angles))
        k = k[k > 2.0**-500]
        y = above / k
        deltas = k * np.exp(-0.5 * y * y) * erfcx((y + k) * math.sqrt(0.5))
        return math.sqrt(0.5 * math.pi) * float(deltas.sum()) / nodes

    # Periodic and smooth: the means converge faster than any power of their nodes, and the last two bound the error.
    fewer, more = mean(128), mean(256)
    z = epsilon / u - 0.5 * u
    return (max(fewer, more) + abs(more - fewer)) * (1.0 + (64.0 + 8.0 * z * (z + u)) * 2.0**-52)


_PROFILES: dict[Geometry, _Profile] = {
    "segment": lambda u, epsilon: guarantee.gaussian_delta(1.0, epsilon, u),
    "line": _delta_on_a_line,
    "two segments": _delta_on_two_segments,
    "two lines": _delta_on_two_lines,
    # Without a known radius.
    "disk": _delta_on_a_plane,
    "plane": _delta_on_a_plane,
}
