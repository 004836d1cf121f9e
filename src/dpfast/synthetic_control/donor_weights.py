"""Synthetic control by releasing the donors' weights, then the prediction made with them: the paper's two algorithms.

*Output perturbation* adds noise to the ridge weights. *Objective perturbation* adds it to their objective, over weights
within the L1 ball. Either way, once the weights f are public, X_post'f/max|f_i| moves by at most twice a donor's norm
when one donor is replaced, in as many dimensions as there are post-periods. This quotient is released, and multiplied
by the public max|f_i| again. (The paper adds noise to every donor's every post-period instead; so do both algorithms
here where the noise is as printed.)

Everything here is in scaled units: donors' entries in [-1, 1], or rows scaled onto smaller norms.

*Floating point.* Let u = 2^-53 and gamma_k = k u/(1 - k u), with n donors of norm at most B, t pre-periods and the
matrix K = X'X + (ridge/2) I of trace at most S = n B^2 + t ridge/2. Forming K costs at most gamma_(n+1) S, solving by
Cholesky gamma_(4t+2) S, both as changes of K in the L2 norm. The factorisation runs to its end if t (t + 1) u S is
small against ridge/2. (See Higham 2002, (3.13) and theorems 10.3, 10.4, 10.7; they hold for sums in any order, with or
without fused multiply-add.) So the solution is that of a matrix within kappa = 1.1 u (n + (t + 2)^2) S of K, and as
||X K^-1|| <= 1/sqrt(2 ridge), the weights are within

    (kappa/sqrt(2 ridge) + gamma_t sqrt(n) B) ||y||/(ridge/2 - kappa)

of the exact ones, for every X. Noise is for sensitivities with twice that added.

An entry of X_post'f/max|f_i| is a sum of n products, divided once: its error is at most gamma_(n+2) times the sum of
the entries' magnitudes, and all entries' together at most gamma_(n+2) times the sum of donors' norms.

References
----------
Rho, Cummings and Misra (2023), "Differentially private synthetic control", AISTATS: Algorithms 2 and 3.
Higham (2002), "Accuracy and stability of numerical algorithms", 2nd edition, SIAM.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Self, TypeVar

import numpy as np
from scipy import linalg
from scipy.special import ndtri

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._threads import single_threaded_blas
from dpfast.ledger import Release
from dpfast.privacy import (
    Calibration,
    DonorNoise,
    DonorObjectiveNoise,
    Privacy,
    donor_curvature,
    donor_gradient,
    donor_objective_noise,
    l2_laplace_coordinate_quantile,
    output_noise,
    weight_sensitivity,
)
from dpfast.privacy.guarantee import ROUND_UP, coordinate_deviation, expected_length
from dpfast.releases import printed
from dpfast.releases.mechanism import Drawn, SingleRelease, draw, draw_columns
from dpfast.releases.objective_bounds import draw_perturbation, perturbation_rounding
from dpfast.solvers import L1Ball
from dpfast.solvers.quadratic import minimise_factored
from dpfast.statistics.rows import NORM_SLACK, RowMap

_UNIT = 2.0**-53
# Multiplications up to which OpenBLAS computes a product on one thread anyway (its GEMM_MULTITHREAD_THRESHOLD).
_SERIAL_PRODUCT = 2**18
# Least tolerance that is asked of the solver, on a ball of radius 1.
_LEAST_TOLERANCE = 2.0**-40
# Noise in the objective beyond this many times its expected length is less probable than e^-500000: than guessing the
# keys that it is made of. Only the rounding of sums with it counts on that.
_LONGEST_NOISE = 2.0**20


@dataclass(frozen=True)
class PanelBounds:
    """Public facts of a panel of donors and the target: sizes, norm of the target, largest norms of donors."""

    n_donors: int
    n_pre: int
    n_post: int
    target_norm: float
    row_pre: float
    row_post: float

    @classmethod
    def of(
        cls, n_donors: int, n_post: int, target: FloatArray, row_bound: tuple[float | None, float | None] = (None, None)
    ) -> Self:
        """Return the bounds of donors with entries in [-1, 1], or smaller norms before and after the intervention."""
        norm = math.sqrt(math.fsum(value * value for value in target.tolist())) * ROUND_UP
        if norm == 0.0:
            raise ValueError(
                "target must not be at the middle of the declared range throughout: its weights would all be 0"
            )
        roots = math.sqrt(len(target)), math.sqrt(n_post)
        pre, post = (
            root if bound is None else min(root, check.positive("row_bound", bound))
            for bound, root in zip(row_bound, roots, strict=True)
        )
        slack = 1.0 + NORM_SLACK
        return cls(n_donors, len(target), n_post, norm, pre * slack, post * slack)

    @property
    def sizes(self) -> dict[str, int]:
        """Those of the panel, as calibrations take them."""
        return {"n_donors": self.n_donors, "n_pre": self.n_pre, "n_post": self.n_post}

    def weight_error(self, ridge: float) -> float:
        """Return how far computed ridge weights may be from the exact ones, whatever the donors.

        ValueError if the ridge is too small for double precision to say.
        """
        n, t = self.n_donors, self.n_pre
        trace = n * self.row_pre**2 + 0.5 * t * ridge
        changed = 1.1 * _UNIT * (n + (t + 2.0) ** 2) * trace
        if changed > ridge / 16.0:
            raise ValueError(f"ridge must be larger for panels of this size in double precision, got {ridge!r}")
        per_solution = changed / math.sqrt(2.0 * ridge) + 1.1 * _UNIT * t * math.sqrt(n) * self.row_pre
        return 1.1 * per_solution * self.target_norm / (0.5 * ridge - changed)

    def weight_sensitivity(self, ridge: float) -> float:
        """Most that one donor can move the computed ridge weights."""
        exact = weight_sensitivity(ridge, self.target_norm, n_donors=self.n_donors, row_norm=self.row_pre)
        return exact + 2.0 * self.weight_error(ridge)

    @property
    def projection_sensitivity(self) -> float:
        """Most that one donor can move the computed projection, twice the bound on its rounding error added."""
        rounding = 1.1 * _UNIT * (self.n_donors + 2.0) * self.n_donors
        return 2.0 * self.row_post * (1.0 + rounding) * ROUND_UP


@dataclass(frozen=True, eq=False, repr=False)
class BoundedPanel:
    """The donors' bounded rows before and after the intervention and the public target: the data owner's."""

    pre: FloatArray
    post: FloatArray
    target: FloatArray

    @classmethod
    def of(
        cls, donors: FloatArray, target: FloatArray, bounds: PanelBounds, offset: float = 0.0, half_width: float = 1.0
    ) -> Self:
        """Return donors with entries (v - offset)/half_width, clipped to [-1, 1], and rows scaled onto their bounds."""
        limit, slack = np.ones(1), 1.0 + NORM_SLACK
        parts = np.split(donors, [bounds.n_pre], axis=1)
        pre, post = (
            RowMap(-limit, limit, bound=bound / slack, offset=offset, unit=half_width)(part)
            for bound, part in zip((bounds.row_pre, bounds.row_post), parts, strict=True)
        )
        return cls(pre, post, target)

    def __repr__(self) -> str:
        return "BoundedPanel(not private)"


@dataclass(frozen=True)
class DonorMechanism(SingleRelease):
    """Shared by all algorithms: a release of weights, then a release of their prediction."""

    bounds: PanelBounds
    noise_scales: DonorNoise
    #: The paper's lambda, or its replacement.
    ridge: float

    #: Statistic that the first noise is added to.
    first: ClassVar[Literal["weights", "objective"]]

    @cached_property
    def privacy(self) -> Privacy:
        """Privacy cost of one release."""
        return self.noise_scales.privacy

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        second, scale = self._second
        return {self.first: self.noise_scales.weight_scale, second: scale}

    @property
    def _second(self) -> tuple[str, float]:
        """Statistic that the second noise is added to, and its scale."""
        own = self.noise_scales
        return ("donors", own.donor_scale) if self.calibration == "paper" else ("projection", own.projection_scale)

    @abstractmethod
    def _weights(self, panel: BoundedPanel, source: noise.BitSource) -> FloatArray:
        """Draw the first noise, and return the weights."""

    def seeds(self, statistic: BoundedPanel) -> tuple[object, ...]:
        """Return the public values that seeded noise is bound to, besides the target."""
        return (self,)

    def bound(self, source: noise.BitSource, name: str, statistic: BoundedPanel) -> noise.BitSource:
        """Bind seeded noise to the target, which is public, too."""
        return super().bound(source.bound(statistic.target), name, statistic)

    def draw(self, statistic: BoundedPanel, source: noise.BitSource) -> Drawn:
        """Draw the weights, and their prediction."""
        panel = statistic
        second, scale = self._second
        weights = self._weights(panel, source)
        if self.calibration == "paper":
            # One joint draw for all donors' post-periods.
            noisy = draw("L2-Laplace", scale, panel.post.ravel(), source).reshape(panel.post.shape)
        else:
            noisy = self._projections(panel, weights[:, np.newaxis], source)[:, 0]
        own = self.noise_scales
        law: str = own.mechanism
        scales = {"weights": own.weight_scale, second: scale}
        if self.first == "objective":  # weights that follow from noise in their objective are on no grid
            law, scales = f"{law} objective", {second: scale}
        grid = {value: noise.default_grid(one) for value, one in scales.items()}
        return Drawn(law, {"weights": weights, second: noisy}, grid, own.mu, remark=self._remark)

    def _projections(self, panel: BoundedPanel, weights: FloatArray, source: noise.BitSource) -> FloatArray:
        """Draw the second noise for every column of weights."""
        largest = np.abs(weights).max(axis=0)
        # Weights that are all 0 predict 0.
        with nullcontext() if weights.size * panel.post.shape[1] <= _SERIAL_PRODUCT else single_threaded_blas():
            predicted = panel.post.T @ weights / np.where(largest > 0.0, largest, 1.0)
        return draw_columns(self.noise_scales.mechanism, self.noise_scales.projection_scale, predicted, source)

    @property
    def _remark(self) -> str:
        """Suffix of the name in records."""
        return ""


def ridge_weights(pre: FloatArray, target: FloatArray, ridge: float) -> FloatArray:
    """Minimise ``||y - X'f||**2 + (ridge/2) ||f||**2``, within `PanelBounds.weight_error`: X (X'X + (ridge/2) I)^-1 y.

    X is `pre`, of shape (n_donors, n_pre), and y the target.
    """
    with single_threaded_blas():
        moments = pre.T @ pre
        moments.flat[:: len(moments) + 1] += 0.5 * ridge
        factor = linalg.cho_factor(moments, overwrite_a=True, check_finite=False)
        return np.asarray(pre @ linalg.cho_solve(factor, target, check_finite=False))


def prediction(release: Release) -> FloatArray:
    """Compute the prediction of the post-period from released values."""
    weights = release.values["weights"]
    if "donors" in release.values:
        return np.asarray(release.values["donors"].T @ weights)
    return np.asarray(release.values["projection"] * np.abs(weights).max())


def output_half_width(chosen: DonorMechanism, release: Release, level: float) -> float:
    """Bound the distance of an output perturbation's prediction from the one without noise, with a probability.

    The bound holds for each period alone, with probability at least `level`. The noise in the weights is multiplied by
    the donors' outcomes in that period. These are private, so each is assumed to be as far from the middle of the range
    as possible. L2-Laplace noise of the two steps is bounded one by one. For Gaussian noise, the sum ignores that noise
    in the prediction grows with weights made large by the first noise. At a nominal 90%, coverage may therefore be
    88.5% with a single donor and 89.4% with two. With five or more the loss is too small to measure.
    """
    n, periods = chosen.bounds.n_donors, chosen.bounds.n_post
    weights, scales = release.values["weights"], release.scales
    reach, largest = math.sqrt(n) * min(1.0, chosen.bounds.row_post), float(np.abs(weights).max())
    each = 0.5 + 0.5 * level
    if chosen.noise_scales.mechanism == "Gaussian":
        return float(ndtri(each)) * math.hypot(reach * scales["weights"], largest * scales["projection"])
    in_weights = reach * l2_laplace_coordinate_quantile(scales["weights"], n, each)
    if "donors" in scales:
        own = float(np.linalg.norm(weights)) * l2_laplace_coordinate_quantile(scales["donors"], n * periods, each)
    else:
        own = largest * l2_laplace_coordinate_quantile(scales["projection"], periods, each)
    return in_weights + own


@dataclass(frozen=True)
class OutputPerturbation(DonorMechanism):
    """Algorithm 2 with exact sensitivities: noise on the ridge weights, then on the prediction made with them."""

    first = "weights"

    @classmethod
    def calibrate(cls, privacy: Privacy, bounds: PanelBounds, ridge: float) -> Self:
        """Calibrate from public numbers; ValueError for a ridge that is not positive, or too small for these sizes."""
        ridge = check.positive("ridge", ridge)
        calibrated = output_noise(
            privacy,
            weight_sensitivity=bounds.weight_sensitivity(ridge) * ROUND_UP,
            projection_sensitivity=bounds.projection_sensitivity,
            n_donors=bounds.n_donors,
            n_post=bounds.n_post,
            weight_norm=bounds.target_norm / math.sqrt(2.0 * ridge),
        )
        return cls(bounds, calibrated, ridge)

    def _weights(self, panel: BoundedPanel, source: noise.BitSource) -> FloatArray:
        return self._repeated(ridge_weights(panel.pre, panel.target, self.ridge), source, 1)[:, 0]

    def _repeated(self, exact: FloatArray, source: noise.BitSource, repeats: int) -> FloatArray:
        own = self.noise_scales
        return draw(own.mechanism, own.weight_scale, exact, source, repeats=repeats).T

    def repeat(
        self, panel: BoundedPanel, source: noise.BitSource, repeats: int, *, exact: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Draw many independent releases of one panel, as studies of the mechanism do; each of them costs `privacy`.

        Weights of shape (n_donors, repeats) and projections (n_post, repeats); `exact` are the panel's `ridge_weights`,
        where they have been computed before.
        """
        if exact is None:
            exact = ridge_weights(panel.pre, panel.target, self.ridge)
        source = source.bound(self, repeats)
        weights = self._repeated(exact, source, repeats)
        return weights, self._projections(panel, weights, source)


@dataclass(frozen=True)
class DonorObjectivePerturbation(DonorMechanism):
    """Algorithm 3 made private: noise in the objective, over the L1 ball, then on the prediction.

    The solver's minimiser is within `tolerance` of the exact one, for every panel and every noise. The number of steps
    that guarantees this is known before any data are read. A little L2-Laplace noise hides the remaining error. Its
    share of epsilon is in the release's record.
    """

    noise_scales: DonorObjectiveNoise
    tolerance: float

    first = "objective"

    @classmethod
    def calibrate(cls, privacy: Privacy, bounds: PanelBounds, ridge: float) -> Self:
        """Calibrate from public numbers; the convexity used may be larger than the requested ridge, which may be 0."""
        n, row = bounds.n_donors, bounds.row_pre
        calibrated = donor_objective_noise(
            privacy,
            curvature=donor_curvature(n, row),
            gradient=donor_gradient(n, row, bounds.target_norm),
            ridge=ridge,
            projection_sensitivity=bounds.projection_sensitivity,
            **bounds.sizes,
        )
        tolerance = 2.0 * max(_perturbation(bounds, calibrated), _LEAST_TOLERANCE)
        return cls(bounds, calibrated, calibrated.weights.strong_convexity, tolerance)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        objective, second = super().scales.items()
        return dict((objective, ("weights", self.finishing_scale), second))

    @property
    def finishing_scale(self) -> float:
        """Scale of the L2-Laplace noise that the computed weights are released with."""
        return self.noise_scales.weights.finishing_scale(self.tolerance)

    def minimise(self, panel: BoundedPanel, perturbation: FloatArray) -> FloatArray:
        """Minimise ``||y - X'f||**2 + (m/2) ||f||**2 + b'f`` over ||f||_1 <= 1; not public.

        Within `tolerance` of the exact minimiser for the b that was rounded to the grid.
        """
        with single_threaded_blas():
            correlation = panel.pre @ panel.target
        found = minimise_factored(
            panel.pre,
            self.ridge,
            perturbation - 2.0 * correlation,
            constraint=L1Ball(1.0),
            smoothness=self.ridge + 2.0 * self.bounds.n_donors * self.bounds.row_pre**2,
            tolerance=0.5 * self.tolerance,
        )
        return found.x

    def _weights(self, panel: BoundedPanel, source: noise.BitSource) -> FloatArray:
        perturbation = draw_perturbation(self.noise_scales.weights, len(panel.pre), source)
        finished = draw("L2-Laplace", self.finishing_scale, self.minimise(panel, perturbation), source)
        # Back into the ball, which is public.
        return L1Ball(1.0).project(finished)

    @property
    def _remark(self) -> str:
        hidden = self.noise_scales.weights.finishing_epsilon
        return f" (epsilon {hidden:.3g} of it hides a solver's error of {self.tolerance:.3g})"


@dataclass(frozen=True)
class PrintedOutputPerturbation(OutputPerturbation):
    """Algorithm 2 as printed: private, with far more noise than it takes."""

    calibration = "paper"

    @classmethod
    def calibrate(
        cls, privacy: Privacy, bounds: PanelBounds, ridge: float, *, split: tuple[float, float] | None = None
    ) -> Self:
        """Take the printed scales; norms below those of entries in [-1, 1] are of no use to them."""
        if privacy.delta > 0.0:
            raise ValueError("delta must be 0 for the printed output perturbation: Algorithm 2 has no other form")
        parts = _split(privacy, split)
        own: DonorNoise = printed("synthetic_control", "printed_output_noise")(*parts, ridge=ridge, **bounds.sizes)
        if bounds.weight_sensitivity(ridge) > own.weight_scale * parts[0]:
            raise ValueError("target must lie within the declared range for the printed output perturbation")
        in_weights = coordinate_deviation(own.mechanism, own.weight_scale, bounds.n_donors)
        return cls(bounds, _claimed(own, privacy, bounds, ridge, in_weights), ridge)


@dataclass(frozen=True)
class PrintedObjectivePerturbation(DonorMechanism):
    """Algorithm 3 as printed, over all of R^n: **not private**, for comparison only."""

    noise_scales: DonorObjectiveNoise

    calibration = "paper"
    guaranteed = False
    first = "objective"

    @classmethod
    def calibrate(
        cls, privacy: Privacy, bounds: PanelBounds, ridge: float, *, split: tuple[float, float] | None = None
    ) -> Self:
        """Take the printed scales, with the exact c; the convexity used is lambda + Delta."""
        n, scales = bounds.n_donors, printed("synthetic_control", "printed_objective_noise")
        numbers = bounds.sizes | {"ridge": ridge, "curvature": donor_curvature(n, math.sqrt(bounds.n_pre))}
        own: DonorObjectiveNoise = scales(*_split(privacy, split), privacy.delta, **numbers)
        convexity = own.weights.strong_convexity
        in_weights = own.weights.coordinate_scale(n) / convexity
        return cls(bounds, _claimed(own, privacy, bounds, convexity, in_weights), convexity)

    def _weights(self, panel: BoundedPanel, source: noise.BitSource) -> FloatArray:
        perturbation = draw_perturbation(self.noise_scales.weights, len(panel.pre), source)
        with single_threaded_blas():
            hessian = 2.0 * (panel.pre @ panel.pre.T)
            hessian.flat[:: len(hessian) + 1] += self.ridge
            right = 2.0 * (panel.pre @ panel.target) - perturbation
            return np.asarray(linalg.solve(hessian, right, assume_a="pos"))


def algorithm(
    mechanism: Literal["output", "objective"],
    calibration: Calibration,
    privacy: Privacy,
    bounds: PanelBounds,
    ridge: float,
    *,
    split: tuple[float, float] | None = None,
) -> DonorMechanism:
    """Choose one of the four algorithms and calibrate it; ValueError for a split that it does not have."""
    if calibration == "paper":
        chosen = PrintedOutputPerturbation if mechanism == "output" else PrintedObjectivePerturbation
        return chosen.calibrate(privacy, bounds, ridge, split=split)
    if split is not None:
        raise ValueError(f"split must not be given with mechanism={mechanism!r}, calibration={calibration!r}")
    sound = OutputPerturbation if mechanism == "output" else DonorObjectivePerturbation
    return sound.calibrate(privacy, bounds, ridge)


Printed = TypeVar("Printed", bound=DonorNoise)


def _claimed(own: Printed, privacy: Privacy, bounds: PanelBounds, ridge: float, in_weights: float) -> Printed:
    """Return the printed noise with its claimed guarantee and its effect on a predicted entry."""
    n = bounds.n_donors
    in_donors = coordinate_deviation("L2-Laplace", own.donor_scale, n * bounds.n_post)
    norm = bounds.target_norm / math.sqrt(2.0 * ridge)
    error = math.hypot(in_weights * math.sqrt(n / 3.0), in_donors * math.hypot(norm, in_weights * math.sqrt(n)))
    return replace(own, privacy=privacy, expected_error=error)


def _perturbation(bounds: PanelBounds, calibrated: DonorObjectiveNoise) -> float:
    """Bound how far rounding before the solver moves the minimiser: the noise's grid, the vector's sums, over m."""
    own, n = calibrated.weights, bounds.n_donors
    longest = _LONGEST_NOISE * expected_length(own.mechanism, own.scale, n)
    linear = 2.0 * math.sqrt(n) * bounds.row_pre * bounds.target_norm
    sums = 1.1 * _UNIT * ((bounds.n_pre + 2.0) * linear + longest)
    return (perturbation_rounding(own, n) + sums / own.strong_convexity) * ROUND_UP


def _split(privacy: Privacy, split: tuple[float, float] | None) -> tuple[float, float]:
    """Return epsilon_1 and epsilon_2; ValueError if they are more than there is."""
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without noise there is nothing to calibrate")
    if split is None:
        return privacy.epsilon / 2.0, privacy.epsilon / 2.0
    first, second = check.positives("split", check.pair("split", split, "(epsilon_1, epsilon_2)"))
    if first + second > privacy.epsilon:
        raise ValueError(f"split must add up to epsilon at most, {privacy.epsilon!r}, got {first!r} + {second!r}")
    return first, second
