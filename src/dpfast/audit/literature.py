"""Mechanisms of the literature that do not meet their claim, attacked as ours are: the audit must catch each of them.

Each runs as it is printed, many copies at once, on the pair of neighbouring tables that exposes it; every random bit is
from our own source. If the printed law is Gaussian, its size is bounded as for ours. Otherwise nothing is assumed of
the outputs: events, fixed beforehand, are counted on either table. Each claim is chosen so that the defect shows in a
practical number of outputs; it is not the claim of the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, Events, GaussianShift
from dpfast.privacy import Privacy, classic_gaussian_scale, l2_laplace_scale, laplace_scale
from dpfast.releases import printed

#: Batch size of outputs: at least a hundred times this many are drawn.
_FEW, _MANY = 1000, 20_000


def broken_attacks() -> Iterator[Attack]:
    """Yield attacks on mechanisms of the literature that are known to be broken, each at a claim it breaks.

    Returns
    -------
    iterator of Attack
        Each with its `defect`, as shown in JSON and in the table.
    """
    source = noise.SecureSource()
    yield _uniform_doubles(source)
    yield _sparse_vector(source)
    yield _read_bounds(source)
    yield _one_dimensional_radius(source)
    yield _classic_constant(source)
    yield from _primo(source)
    yield _primo_sample(source)
    for delta in (0.0, 1e-6):
        yield _donor_objective(delta, source)


def _counted(
    name: str, claim: Privacy, defect: str, outputs: Callable[[bool], FloatArray], *events: Callable[..., FloatArray]
) -> Attack:
    """Count events among outputs; each takes an output's columns and returns whether it happened."""

    def seen(neighbour: bool) -> FloatArray:
        columns = outputs(neighbour).T
        return np.column_stack([event(*columns) for event in events]).astype(np.float64)

    return Attack(f"{name}, {claim.adjacency}", claim, Events(), seen, defect=defect)


def _measured(
    name: str, claim: Privacy, defect: str, moved: FloatArray, scales: FloatArray, source: noise.BitSource
) -> Attack:
    """Bound Gaussian noise of printed scales about sums that lie `moved` apart."""

    def seen(neighbour: bool) -> FloatArray:
        return scales * noise.gaussian(1.0, (_FEW, len(scales)), source)

    return Attack(f"{name}, {claim.adjacency}", claim, GaussianShift(moved, scales), seen, defect=defect)


def _uniform(n: int, source: noise.BitSource) -> FloatArray:
    """Return doubles as most libraries draw them: multiples of 2**-53 in [0, 1)."""
    return np.asarray((source.words(n) >> np.uint64(11)) * 2.0**-53, np.float64)


def _uniform_doubles(source: noise.BitSource) -> Attack:
    """Attack a count of 0 or 1 with Laplace noise by inversion: some doubles near 0 are impossible as sums with 1."""
    claim = Privacy(1.0)
    scale = laplace_scale(claim.epsilon, 1.0)

    def outputs(neighbour: bool) -> FloatArray:
        centred = _uniform(_FEW, source) - 0.5
        released = float(neighbour) - scale * np.sign(centred) * np.log1p(-2.0 * np.abs(centred))
        return np.asarray(released[:, None])

    def too_fine(released: FloatArray) -> FloatArray:
        """Detect values within 1/4 of 0 off the multiples of 2**-53: a sum of 1 and a double below -1/2 is on them."""
        return np.asarray((np.abs(released) < 0.25) & (released * 2.0**53 % 1.0 != 0.0))

    defect = "holds for real numbers; doubles that one table can give, the other cannot (Mironov 2012)"
    return _counted("Laplace noise in doubles", claim, defect, outputs, too_fine)


def _sparse_vector(source: noise.BitSource) -> Attack:
    """Attack two counts of (0, 1), or of (1, 0), compared with a noisy threshold."""
    claim = Privacy(1.0)

    def outputs(neighbour: bool) -> FloatArray:
        threshold = noise.laplace(laplace_scale(0.5 * claim.epsilon, 1.0), (_FEW, 1), source)
        return np.asarray(np.array([1.0, 0.0] if neighbour else [0.0, 1.0]) >= threshold, np.float64)

    def second_alone(first: FloatArray, second: FloatArray) -> FloatArray:
        return (1.0 - first) * second

    defect = "answers have no noise of their own (Stoddard et al. 2014; Lyu, Su, Li 2017, Algorithm 5)"
    return _counted("sparse vector without noise on answers", claim, defect, outputs, second_alone)


def _read_bounds(source: noise.BitSource) -> Attack:
    """Attack a mean of ten with noise in proportion to the range in the table: one person is at 1, or at a million."""
    claim, n = Privacy(1.0), 10

    def outputs(neighbour: bool) -> FloatArray:
        people = np.append(np.tile([0.0, 1.0, 1.0], 3), 1e6 if neighbour else 1.0)
        scale = laplace_scale(claim.epsilon, float(np.ptp(people)) / n)
        return np.asarray(noise.laplace(scale, (_FEW, 1), source) + people.mean())

    def small(released: FloatArray) -> FloatArray:
        return np.asarray(np.abs(released) < 10.0)

    defect = "bounds read off the table tell who is at its ends"
    return _counted("mean within bounds read off the table", claim, defect, outputs, small)


def _one_dimensional_radius(source: noise.BitSource) -> Attack:
    """Attack the weights of ten donors, as far apart as possible, with noise that is often close to zero."""
    claim, donors = Privacy(1.0), 10
    scale = l2_laplace_scale(claim.epsilon, 1.0)

    def outputs(neighbour: bool) -> FloatArray:
        direction = noise.gaussian(1.0, (_FEW, donors), source)
        radius = noise.laplace(scale, (_FEW, 1), source)
        away = np.eye(donors)[0] * float(neighbour)
        return np.asarray(radius * direction / np.linalg.norm(direction, axis=1)[:, None] + away)

    def near(*weights: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.norm(weights, axis=0) < 0.25)

    defect = "its radius has the law of one dimension, not Gamma's (in public code for Rho, Cummings, Misra 2023)"
    return _counted("donor weights with a radius of Laplace noise", claim, defect, outputs, near)


def _classic_constant(source: noise.BitSource) -> Attack:
    claim = Privacy(10.0, 1e-5)
    scale = classic_gaussian_scale(claim.epsilon, claim.delta)
    defect = "proved below epsilon = 1 only (Dwork, Roth 2014, Theorem A.1; Balle, Wang 2018)"
    return _measured("Gaussian noise by the classic constant", claim, defect, np.ones(1), np.array([scale]), source)


def _primo(source: noise.BitSource) -> Iterator[Attack]:
    """Attack X'X, X'y and both of them with rows of length 1; one person reverses or turns theirs by a right angle."""
    printed_scales = printed("primo", "primo_printed_scales")
    half, whole = Privacy(0.5, 5e-7), Privacy(10.0, 1e-6)
    scales = printed_scales(2.0 * half.epsilon, 2.0 * half.delta, 1.0, 1.0)
    # Rows (1, 0) and (0, 1) move both entries of the diagonal; y goes from 1 to -1.
    rotated, flipped = np.array([1.0, -1.0]), np.array([2.0])
    covariance = "noise for a sensitivity of 1, which is sqrt(2) (Neel, Algorithms 1 and 3)"
    yield _measured("PRIMO, X'X alone", half, covariance, rotated, np.full(2, scales.xx), source)
    association = "noise for a sensitivity of 1, which is 2 (Neel, Algorithms 1 to 4)"
    yield _measured("PRIMO, X'Y alone", half, association, flipped, np.array([scales.xy]), source)
    scales = printed_scales(whole.epsilon, whole.delta, 1.0, 1.0)
    # x'v = c gives 2 - 2 c^2 and 2 + 2 c squared, largest at c = 1/2: 4.5 in all.
    moved, deviations = np.array([math.sqrt(1.5), math.sqrt(3.0)]), np.array([scales.xx, scales.xy])
    both = "both sensitivities; the waste of the classic constant hides it below epsilon = 6 (Neel, Algorithm 1)"
    yield _measured("PRIMO, whole", whole, both, moved, deviations, source)


def _primo_sample(source: noise.BitSource) -> Attack:
    """Attack X'X of a secret sample of 5 of 50 people, one of whom is turned by a right angle."""
    claim, sampled, people = Privacy(1.0, 1e-6), 5, 50
    scale = printed("primo", "primo_printed_sampled_scales")(claim.epsilon, claim.delta, sampled, people, 1.0, 1.0).xx

    def outputs(neighbour: bool) -> FloatArray:
        chosen = _uniform(_FEW, source)[:, None] < sampled / people
        return chosen * float(neighbour) + noise.gaussian(scale, (_FEW, 1), source)

    def rotated(entry: FloatArray) -> FloatArray:
        """Detect the turned person by an entry of X'X to which all others contribute 0."""
        return np.asarray(entry > 0.5)

    defect = "a mean over the sample has noise for one over all rows (Neel, Algorithm 4)"
    return _counted("PRIMO, X'X of a sample", claim, defect, outputs, rotated)


def _donor_objective(delta: float, source: noise.BitSource) -> Attack:
    """Attack one donor of 0s or of 1s before the intervention: the weight's laws differ in scale."""
    claim, before, ridge = Privacy(1.0, delta), 10, 10.0
    sizes = {"n_donors": 1, "n_pre": before, "n_post": 1}
    curvature = printed("synthetic_control", "curvature")(1, before).printed
    printed_noise = printed("synthetic_control", "printed_objective_noise")
    weights = printed_noise(claim.epsilon, 1.0, delta, ridge=ridge, curvature=curvature, **sizes).weights
    draw = noise.gaussian if delta > 0.0 else noise.laplace

    def outputs(neighbour: bool) -> FloatArray:
        # The minimiser of (y - x f)'(y - x f) + (m/2) f^2 + b f for a target of 1s.
        squared = before * float(neighbour)
        b = draw(weights.scale, (_MANY, 1), source)
        return np.asarray((2.0 * squared - b) / (2.0 * squared + weights.strong_convexity))

    def far(at: float) -> Callable[[FloatArray], FloatArray]:
        return lambda weight: np.asarray(weight < -at)

    # As far out as every 50th to every 5,000th output on the first table.
    tails = (2.0, 2.5, 3.0, 3.5) if delta > 0.0 else (4.0, 5.0, 6.0, 7.0)
    ends = [far(tail * weights.scale / weights.strong_convexity) for tail in tails]
    defect = "a quadratic loss has no gradient bound without a constraint (Rho, Cummings, Misra 2023, Algorithm 3)"
    law = "Gaussian" if delta > 0.0 else "L2-Laplace"
    return _counted(f"donor weights, objective perturbation, as printed, {law}", claim, defect, outputs, *ends)
