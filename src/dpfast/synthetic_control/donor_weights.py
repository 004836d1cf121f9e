"""Synthetic control by releasing the donors' weights, then the prediction made with them: the paper's two algorithms.

*Output perturbation* adds noise to the ridge weights. *Objective perturbation* adds it to their objective, over weights
within the L1 ball. Either way, once the weights f are public, X_post'f/max|f_i| moves by at most twice a donor's norm
when one donor is replaced, in as many dimensions as there are post-periods; that is released, and multiplied by the
public max|f_i| again. (The paper adds noise to every donor's every post-period instead.) Each class is one algorithm:
`calibrate` from public numbers, then `release`.

Everything here is in scaled units: donors' entries in [-1, 1], or rows scaled onto smaller norms.

*Floating point.* With u = 2^-53, gamma_k = k u/(1 - k u), n donors of norm at most B, t pre-periods and the matrix
K = X'X + (ridge/2) I of trace at most S = n B^2 + t ridge/2: forming K costs at most gamma_(n+1) S, solving by Cholesky
gamma_(4t+2) S, both as changes of K in the L2 norm, and the factorisation runs to its end if t (t + 1) u S is small
against ridge/2 (Higham 2002, (3.13) and theorems 10.3, 10.4, 10.7, which hold for sums in any order, with or without
fused multiply-add). So the solution is that of a matrix within kappa = 1.1 u (n + (t + 2)^2) S of K, and as
||X K^-1|| <= 1/sqrt(2 ridge), the weights are within

    (kappa/sqrt(2 ridge) + gamma_t sqrt(n) B) ||y||/(ridge/2 - kappa)

of the exact ones, for every X. Noise is for sensitivities with twice that added.

References
----------
Rho, Cummings and Misra (2023), "Differentially private synthetic control", AISTATS: Algorithms 2 and 3.
Higham (2002), "Accuracy and stability of numerical algorithms", 2nd edition, SIAM.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from scipy import linalg
from scipy.special import ndtri

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.threads import single_threaded_blas
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
from dpfast.releases.printed import printed
from dpfast.solvers import L1Ball
from dpfast.solvers.quadratic import FactorMatrix, minimise_quadratic
from dpfast.statistics.rows import NORM_SLACK, RowMap

Law = Literal["Gaussian", "L2-Laplace"]

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
    """What is public of a panel of donors and the target.

    Parameters
    ----------
    n_donors, n_pre, n_post : int
        Numbers of donors, pre-periods and post-periods.
    target_norm : float
        L2 norm of the target's pre-period, at least.
    row_pre, row_post : float
        Largest L2 norms of a donor's pre- and post-period; longer ones are scaled onto them.
    """

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
        """Return the bounds of donors with entries in [-1, 1].

        Parameters
        ----------
        n_donors, n_post : int
            Numbers of donors and of post-periods.
        target : ndarray of shape (n_pre,)
            The target's pre-period, scaled as the donors are.
        row_bound : tuple of (float or None, float or None)
            Smaller norms for the donors' pre- and post-periods.
        """
        norm = math.sqrt(math.fsum(value * value for value in target.tolist())) * (1.0 + 2.0**-50)
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

    def weight_error(self, ridge: float) -> float:
        """Return how far computed ridge weights may be from the exact ones, whatever the donors.

        Raises
        ------
        ValueError
            If the ridge is too small for double precision to say.
        """
        n, t = self.n_donors, self.n_pre
        trace = n * self.row_pre**2 + 0.5 * t * ridge
        changed = 1.1 * _UNIT * (n + (t + 2.0) ** 2) * trace
        if changed > ridge / 16.0:
            raise ValueError(f"ridge must be larger for panels of this size in double precision, got {ridge!r}")
        per_solution = changed / math.sqrt(2.0 * ridge) + 1.1 * _UNIT * t * math.sqrt(n) * self.row_pre
        return 1.1 * per_solution * self.target_norm / (0.5 * ridge - changed)

    @property
    def projection_sensitivity(self) -> float:
        """Most that one donor can move the computed projection, twice the bound on its rounding error added.

        An entry of X_post'f/max|f_i| is a sum of n products, divided once: its error is at most gamma_(n+2) times the
        sum of the entries' magnitudes, and all entries' together at most gamma_(n+2) times the sum of donors' norms.
        """
        rounding = 1.1 * _UNIT * (self.n_donors + 2.0) * self.n_donors
        return 2.0 * self.row_post * (1.0 + rounding) * (1.0 + 2.0**-50)


@dataclass(frozen=True, eq=False, repr=False)
class Panel:
    """The donors' bounded rows and the target: the data owner's, not public.

    Parameters
    ----------
    pre : ndarray of shape (n_donors, n_pre)
        Donors' pre-periods.
    post : ndarray of shape (n_donors, n_post)
        Donors' post-periods.
    target : ndarray of shape (n_pre,)
        The target's pre-period; public.
    """

    pre: FloatArray
    post: FloatArray
    target: FloatArray

    @classmethod
    def of(
        cls, donors: FloatArray, target: FloatArray, bounds: PanelBounds, offset: float = 0.0, half_width: float = 1.0
    ) -> Self:
        """Return donors with entries (v - offset)/half_width, clipped to [-1, 1], and rows scaled onto their bounds."""
        limit, slack = np.ones(1), 1.0 + NORM_SLACK
        pre, post = (
            RowMap(-limit, limit, bound=bound / slack, offset=offset, unit=half_width)(part)
            for bound, part in zip(
                (bounds.row_pre, bounds.row_post), np.split(donors, [bounds.n_pre], axis=1), strict=True
            )
        )
        return cls(pre, post, target)

    def __repr__(self) -> str:
        return "Panel(not private)"


class DonorMechanism(Protocol):
    """One algorithm, calibrated: what it promises, how well it may do, and the one thing it does."""

    @property
    def bounds(self) -> PanelBounds:
        """What is public of the panels it is for."""

    @property
    def privacy(self) -> Privacy:
        """What is promised."""

    @property
    def guaranteed(self) -> bool:
        """Whether it is proved to give that."""

    @property
    def calibration(self) -> Calibration:
        """Whether the noise is the proved one or the printed one."""

    @property
    def ridge(self) -> float:
        """The paper's lambda, or what takes its place."""

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""

    @property
    def expected_error(self) -> float:
        """Rough root mean square of what privacy adds to a predicted entry."""

    def release(self, panel: Panel, source: noise.BitSource, name: str) -> Release:
        """Draw the noise: the only place where the panel turns into something public."""


def algorithm(
    mechanism: Literal["output", "objective"],
    calibration: Calibration,
    privacy: Privacy,
    bounds: PanelBounds,
    ridge: float,
    *,
    split: tuple[float, float] | None = None,
    curvature: float | None = None,
    gradient: float | None = None,
) -> DonorMechanism:
    """Choose one of the four algorithms and calibrate it.

    Parameters
    ----------
    mechanism : {"output", "objective"}
        Where the noise goes.
    calibration : {"sound", "paper"}
        Exact, or as printed.
    privacy, bounds, ridge
        As for `calibrate` of each.
    split, curvature, gradient
        As for `calibrate` of those that have them.

    Returns
    -------
    DonorMechanism

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range, or given to an algorithm that does not have it.
    """
    given = {"split": split, "curvature": curvature, "gradient": gradient}
    given = {name: value for name, value in given.items() if value is not None}
    chosen: Any
    chosen, known = {
        ("output", "sound"): (OutputPerturbation, ()),
        ("objective", "sound"): (ObjectivePerturbation, ("curvature", "gradient")),
        ("output", "paper"): (PrintedOutputPerturbation, ("split",)),
        ("objective", "paper"): (PrintedObjectivePerturbation, ("split", "curvature")),
    }[mechanism, calibration]
    for name in given:
        if name not in known:
            raise ValueError(f"{name} must not be given with mechanism={mechanism!r}, calibration={calibration!r}")
    calibrated: DonorMechanism = chosen.calibrate(privacy, bounds, ridge, **given)
    return calibrated


@np.errstate(under="ignore")  # products of tiny entries: nothing is lost, and a warning would tell of them
def ridge_weights(pre: FloatArray, target: FloatArray, ridge: float) -> FloatArray:
    """Minimise ``||y - X'f||**2 + (ridge/2) ||f||**2`` over all weights f.

    Parameters
    ----------
    pre : ndarray of shape (n_donors, n_pre)
        X.
    target : ndarray of shape (n_pre,)
        y.
    ridge : float
        The paper's lambda, positive.

    Returns
    -------
    ndarray of shape (n_donors,)
        ``X (X'X + (ridge/2) I)^-1 y``, within `PanelBounds.weight_error` of the exact minimiser.
    """
    with single_threaded_blas():
        moments = pre.T @ pre
        moments.flat[:: len(moments) + 1] += 0.5 * ridge
        factor = linalg.cho_factor(moments, overwrite_a=True, check_finite=False)
        weights: FloatArray = pre @ linalg.cho_solve(factor, target, check_finite=False)
    return weights


def prediction(release: Release) -> FloatArray:
    """Compute the prediction of the post-period from what was released.

    Parameters
    ----------
    release : Release
        Of any mechanism of this module.

    Returns
    -------
    ndarray of shape (n_post,)
    """
    weights = release.values["weights"]
    if "donors" in release.values:
        predicted: FloatArray = release.values["donors"].T @ weights
        return predicted
    return np.asarray(release.values["projection"] * np.abs(weights).max())


def output_half_width(chosen: DonorMechanism, release: Release, level: float) -> float:
    """Bound how far the prediction of an output perturbation may be from the one without noise, with a probability.

    The noise in the weights reaches a period by the donors' outcomes then, which are private: each is taken to be as
    far from the middle of the range as it may be, so that the probability is at least `level`. L2-Laplace noise of the
    two steps is bounded one by one.

    Parameters
    ----------
    chosen : OutputPerturbation or PrintedOutputPerturbation
        What made the release.
    release : Release
        Of one panel.
    level : float
        Probability in (0, 1).

    Returns
    -------
    float
        For each period alone.
    """
    n, periods = chosen.bounds.n_donors, chosen.bounds.n_post
    weights = release.values["weights"]
    reach = math.sqrt(n) * min(1.0, chosen.bounds.row_post)
    scales = release.scales
    if release.mechanism == "Gaussian":
        deviation = math.hypot(reach * scales["weights"], float(np.abs(weights).max()) * scales["projection"])
        return float(ndtri(0.5 + 0.5 * level)) * deviation
    each = 0.5 + 0.5 * level
    in_weights = reach * l2_laplace_coordinate_quantile(scales["weights"], n, each)
    if "donors" in scales:
        own = float(np.linalg.norm(weights)) * l2_laplace_coordinate_quantile(scales["donors"], n * periods, each)
    else:
        own = float(np.abs(weights).max()) * l2_laplace_coordinate_quantile(scales["projection"], periods, each)
    return in_weights + own


@dataclass(frozen=True)
class OutputPerturbation:
    """Algorithm 2 with exact sensitivities: noise on the ridge weights, then on the prediction made with them.

    Parameters
    ----------
    bounds : PanelBounds
        What is public of the panel.
    ridge : float
        The paper's lambda.
    noise_scales : DonorNoise
        The calibration.
    """

    bounds: PanelBounds
    ridge: float
    noise_scales: DonorNoise
    calibration: Calibration = "sound"
    guaranteed: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, privacy: Privacy, bounds: PanelBounds, ridge: float) -> Self:
        """Calibrate from public numbers; ValueError for a ridge that is not positive, or too small for these sizes."""
        ridge = check.positive("ridge", ridge)
        sensitivity = weight_sensitivity(
            ridge, bounds.target_norm, n_donors=bounds.n_donors, row_norm=bounds.row_pre
        ) + 2.0 * bounds.weight_error(ridge)
        calibrated = output_noise(
            privacy,
            weight_sensitivity=sensitivity * (1.0 + 2.0**-50),
            projection_sensitivity=bounds.projection_sensitivity,
            n_donors=bounds.n_donors,
            n_post=bounds.n_post,
            weight_norm=bounds.target_norm / math.sqrt(2.0 * ridge),
        )
        return cls(bounds, ridge, calibrated)

    @property
    def privacy(self) -> Privacy:
        """What is promised."""
        return self.noise_scales.privacy

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        return {"weights": self.noise_scales.weight_scale, "projection": self.noise_scales.projection_scale}

    @property
    def expected_error(self) -> float:
        """Rough root mean square of what privacy adds to a predicted entry."""
        return self.noise_scales.expected_error

    def release(self, panel: Panel, source: noise.BitSource, name: str) -> Release:
        """Draw the noise: the only place where the panel turns into something public."""
        weights, projections = self.repeat(panel, source.bound(panel.target).bound(name), 1)
        calibrated = self.noise_scales
        return Release(
            name,
            calibrated.mechanism,
            calibrated.privacy,
            {"weights": weights[:, 0], "projection": projections[:, 0]},
            self.scales,
            mu=calibrated.mu,
            grid={
                "weights": noise.default_grid(calibrated.weight_scale),
                "projection": noise.default_grid(calibrated.projection_scale),
            },
            reproducible=source.reproducible,
        )

    def repeat(
        self, panel: Panel, source: noise.BitSource, repeats: int, *, exact: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Draw many independent releases of one panel, as studies of the mechanism do; each of them costs `privacy`.

        Parameters
        ----------
        panel : Panel
            The donors and the target.
        source : BitSource
            Where the bits come from.
        repeats : int
            How many releases.
        exact : ndarray of shape (n_donors,), optional
            The panel's `ridge_weights` at this ridge, where they have been computed before.

        Returns
        -------
        weights : ndarray of shape (n_donors, repeats)
        projections : ndarray of shape (n_post, repeats)
        """
        if exact is None:
            exact = ridge_weights(panel.pre, panel.target, self.ridge)
        source = source.bound(self, repeats)
        law, scale = self.noise_scales.mechanism, self.noise_scales.weight_scale
        if law == "Gaussian":
            weights = noise.gaussian(scale, (repeats, len(exact)), source, center=exact).T
        else:
            weights = np.column_stack([_draw(law, scale, exact, source) for _ in range(repeats)])
        projected = _projected(panel.post, weights)
        return weights, _draw_columns(law, self.noise_scales.projection_scale, projected, source)


@dataclass(frozen=True)
class ObjectivePerturbation:
    """Algorithm 3 made private: noise in the objective, over the L1 ball, then on the prediction.

    The solver's minimiser is within `tolerance` of the exact one, for every panel and every noise: the number of steps
    that guarantees it is known before any data are read. It is released with a little L2-Laplace noise that hides the
    rest, whose share of epsilon is in the release's record.

    Parameters
    ----------
    bounds : PanelBounds
        What is public of the panel.
    noise_scales : DonorObjectiveNoise
        The calibration.
    tolerance : float
        Bound on the distance of the computed weights from the exact minimiser.
    """

    bounds: PanelBounds
    noise_scales: DonorObjectiveNoise
    tolerance: float
    calibration: Calibration = "sound"
    guaranteed: ClassVar[bool] = True

    @classmethod
    def calibrate(
        cls,
        privacy: Privacy,
        bounds: PanelBounds,
        ridge: float,
        *,
        curvature: float | None = None,
        gradient: float | None = None,
    ) -> Self:
        """Calibrate from public numbers.

        Parameters
        ----------
        privacy : Privacy
            The guarantee of weights and prediction together.
        bounds : PanelBounds
            What is public of the panel.
        ridge : float
            The paper's lambda, at least 0; the convexity used may be larger.
        curvature, gradient : float, optional
            c and L, where every table that could have been keeps to smaller ones than the bounds give; this is taken
            on trust.
        """
        n, row = bounds.n_donors, bounds.row_pre
        known = donor_curvature(n, row), donor_gradient(n, row, bounds.target_norm)
        calibrated = donor_objective_noise(
            privacy,
            curvature=known[0] if curvature is None else min(known[0], check.positive("curvature", curvature)),
            gradient=known[1] if gradient is None else min(known[1], check.positive("gradient", gradient)),
            ridge=ridge,
            projection_sensitivity=bounds.projection_sensitivity,
            n_donors=n,
            n_pre=bounds.n_pre,
            n_post=bounds.n_post,
        )
        return cls(bounds, calibrated, 2.0 * max(_perturbation(bounds, calibrated), _LEAST_TOLERANCE))

    @property
    def privacy(self) -> Privacy:
        """What is promised."""
        return self.noise_scales.privacy

    @property
    def ridge(self) -> float:
        """The convexity used, in the place of the paper's lambda."""
        return self.noise_scales.weights.strong_convexity

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        return {
            "objective": self.noise_scales.weights.scale,
            "weights": self.finishing_scale,
            "projection": self.noise_scales.projection_scale,
        }

    @property
    def expected_error(self) -> float:
        """Rough root mean square of what privacy adds to a predicted entry."""
        return self.noise_scales.expected_error

    @property
    def finishing_scale(self) -> float:
        """Scale of the L2-Laplace noise that the computed weights are released with."""
        return self.noise_scales.weights.finishing_scale(self.tolerance)

    @np.errstate(under="ignore")
    def minimise(self, panel: Panel, perturbation: FloatArray) -> FloatArray:
        """Minimise ``||y - X'f||**2 + (m/2) ||f||**2 + b'f`` over ||f||_1 <= 1; not public.

        Parameters
        ----------
        panel : Panel
            X and y.
        perturbation : ndarray of shape (n_donors,)
            b.

        Returns
        -------
        ndarray of shape (n_donors,)
            Within `tolerance` of the exact minimiser for the b that was rounded to the grid.
        """
        with single_threaded_blas():
            correlation = panel.pre @ panel.target
        found = minimise_quadratic(
            FactorMatrix(panel.pre, self.ridge),
            perturbation - 2.0 * correlation,
            constraint=L1Ball(1.0),
            strong_convexity=self.ridge,
            smoothness=self.ridge + 2.0 * self.bounds.n_donors * self.bounds.row_pre**2,
            tolerance=0.5 * self.tolerance,
        )
        return found.x

    def release(self, panel: Panel, source: noise.BitSource, name: str) -> Release:
        """Draw the noise: the only place where the panel turns into something public."""
        source = source.bound(panel.target).bound(name, self)
        own = self.noise_scales.weights
        n = self.bounds.n_donors
        perturbation = _draw(own.mechanism, own.scale, np.zeros(n), source, grid=noise.finest_grid(own.scale))
        finished = _draw("L2-Laplace", self.finishing_scale, self.minimise(panel, perturbation), source)
        # Back into the ball, which is public.
        weights = L1Ball(1.0).project(finished)
        projection = _draw(own.mechanism, self.noise_scales.projection_scale, _projected(panel.post, weights), source)
        return Release(
            f"{name} (epsilon {own.finishing_epsilon:.3g} of it hides a solver's error of {self.tolerance:.3g})",
            f"{own.mechanism} objective",
            self.privacy,
            {"weights": weights, "projection": projection},
            self.scales,
            grid={"projection": noise.default_grid(self.noise_scales.projection_scale)},
            reproducible=source.reproducible,
        )


@dataclass(frozen=True)
class PrintedOutputPerturbation:
    """Algorithm 2 as printed: private, with far more noise than it takes.

    Parameters
    ----------
    bounds : PanelBounds
        What is public of the panel.
    privacy : Privacy
        What it claims: (epsilon_1 + epsilon_2, 0).
    ridge : float
        The paper's lambda.
    noise_scales : DonorNoise
        The printed scales.
    """

    bounds: PanelBounds
    privacy: Privacy
    ridge: float
    noise_scales: DonorNoise
    calibration: Calibration = "paper"
    guaranteed: ClassVar[bool] = True

    @classmethod
    def calibrate(
        cls, privacy: Privacy, bounds: PanelBounds, ridge: float, *, split: tuple[float, float] | None = None
    ) -> Self:
        """Take the printed scales.

        Parameters
        ----------
        privacy : Privacy
            The claim; its delta must be 0.
        bounds : PanelBounds
            What is public of the panel; norms below those of entries in [-1, 1] are of no use to the printed scales.
        ridge : float
            The paper's lambda, positive.
        split : tuple of float, optional
            epsilon_1 and epsilon_2; halves if omitted.
        """
        if privacy.delta > 0.0:
            raise ValueError("delta must be 0 for the printed output perturbation: Algorithm 2 has no other form")
        parts = _split(privacy, split)
        sizes = {"n_donors": bounds.n_donors, "n_pre": bounds.n_pre, "n_post": bounds.n_post}
        noise_scales: DonorNoise = printed("synthetic_control", "printed_output_noise")(*parts, ridge=ridge, **sizes)
        needed = weight_sensitivity(ridge, bounds.target_norm, n_donors=bounds.n_donors, row_norm=bounds.row_pre)
        if needed + 2.0 * bounds.weight_error(ridge) > noise_scales.weight_scale * parts[0]:
            raise ValueError("target must lie within the declared range for the printed output perturbation")
        return cls(bounds, privacy, ridge, noise_scales)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        return {"weights": self.noise_scales.weight_scale, "donors": self.noise_scales.donor_scale}

    @property
    def expected_error(self) -> float:
        """Rough root mean square of what privacy adds to a predicted entry."""
        n, periods = self.bounds.n_donors, self.bounds.n_post
        in_weights = self.noise_scales.weight_scale * math.sqrt(n + 1.0)
        in_donors = self.noise_scales.donor_scale * math.sqrt(n * periods + 1.0)
        norm = self.bounds.target_norm / math.sqrt(2.0 * self.ridge)
        return math.hypot(in_weights * math.sqrt(n / 3.0), in_donors * math.hypot(norm, in_weights * math.sqrt(n)))

    def release(self, panel: Panel, source: noise.BitSource, name: str) -> Release:
        """Draw the noise: the only place where the panel turns into something public."""
        source = source.bound(panel.target).bound(name, self)
        exact = ridge_weights(panel.pre, panel.target, self.ridge)
        weights = _draw("L2-Laplace", self.noise_scales.weight_scale, exact, source)
        return Release(
            name,
            "L2-Laplace",
            self.privacy,
            {"weights": weights, "donors": _noisy_donors(panel, self.noise_scales.donor_scale, source)},
            self.scales,
            grid={
                "weights": noise.default_grid(self.noise_scales.weight_scale),
                "donors": noise.default_grid(self.noise_scales.donor_scale),
            },
            calibration=self.calibration,
            reproducible=source.reproducible,
        )


@dataclass(frozen=True)
class PrintedObjectivePerturbation:
    """Algorithm 3 as printed, over all of R^n: **not private**, for comparison only.

    Parameters
    ----------
    bounds : PanelBounds
        What is public of the panel.
    privacy : Privacy
        What it claims: (epsilon_1 + epsilon_2, delta).
    noise_scales : DonorObjectiveNoise
        The printed calibration.
    """

    bounds: PanelBounds
    privacy: Privacy
    noise_scales: DonorObjectiveNoise
    calibration: Calibration = "paper"
    guaranteed: ClassVar[bool] = False

    @classmethod
    def calibrate(
        cls,
        privacy: Privacy,
        bounds: PanelBounds,
        ridge: float,
        *,
        split: tuple[float, float] | None = None,
        curvature: float | None = None,
    ) -> Self:
        """Take the printed scales.

        Parameters
        ----------
        privacy : Privacy
            The claim, which does not hold.
        bounds : PanelBounds
            What is public of the panel.
        ridge : float
            The paper's lambda, positive.
        split : tuple of float, optional
            epsilon_1 and epsilon_2; halves if omitted.
        curvature : float, optional
            The paper's c; `donor_curvature` if omitted.
        """
        n, before = bounds.n_donors, bounds.n_pre
        noise_scales: DonorObjectiveNoise = printed("synthetic_control", "printed_objective_noise")(
            *_split(privacy, split),
            privacy.delta,
            n_donors=n,
            n_pre=before,
            n_post=bounds.n_post,
            ridge=ridge,
            curvature=donor_curvature(n, math.sqrt(before)) if curvature is None else curvature,
        )
        return cls(bounds, privacy, noise_scales)

    @property
    def ridge(self) -> float:
        """The paper's lambda + Delta."""
        return self.noise_scales.weights.strong_convexity

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise, by what it is added to."""
        return {"objective": self.noise_scales.weight_scale, "donors": self.noise_scales.donor_scale}

    @property
    def expected_error(self) -> float:
        """Rough root mean square of what privacy adds to a predicted entry."""
        n, periods = self.bounds.n_donors, self.bounds.n_post
        pure = self.noise_scales.mechanism == "L2-Laplace"
        in_weights = self.noise_scales.weight_scale * (math.sqrt(n + 1.0) if pure else 1.0) / self.ridge
        in_donors = self.noise_scales.donor_scale * math.sqrt(n * periods + 1.0)
        norm = self.bounds.target_norm / math.sqrt(2.0 * self.ridge)
        return math.hypot(in_weights * math.sqrt(n / 3.0), in_donors * math.hypot(norm, in_weights * math.sqrt(n)))

    def release(self, panel: Panel, source: noise.BitSource, name: str) -> Release:
        """Draw the noise, which does not protect anybody."""
        source = source.bound(panel.target).bound(name, self)
        perturbation = _draw(
            self.noise_scales.mechanism, self.noise_scales.weight_scale, np.zeros(self.bounds.n_donors), source
        )
        with single_threaded_blas(), np.errstate(under="ignore"):
            hessian = 2.0 * (panel.pre @ panel.pre.T)
            hessian.flat[:: len(hessian) + 1] += self.ridge
            weights = linalg.solve(hessian, 2.0 * (panel.pre @ panel.target) - perturbation, assume_a="pos")
        return Release(
            name,
            f"{self.noise_scales.mechanism} objective",
            self.privacy,
            {"weights": weights, "donors": _noisy_donors(panel, self.noise_scales.donor_scale, source)},
            self.scales,
            grid={"donors": noise.default_grid(self.noise_scales.donor_scale)},
            calibration=self.calibration,
            guaranteed=False,
            reproducible=source.reproducible,
        )


@np.errstate(under="ignore")
def _projected(post: FloatArray, weights: FloatArray) -> FloatArray:
    """X_post'f/max|f_i|, for one vector of weights or for every column."""
    largest = np.abs(weights).max(axis=0)
    # Weights that are all 0 predict 0.
    with nullcontext() if weights.size * post.shape[1] <= _SERIAL_PRODUCT else single_threaded_blas():
        predicted = post.T @ weights
    return np.asarray(predicted / np.where(largest > 0.0, largest, 1.0))


def _perturbation(bounds: PanelBounds, calibrated: DonorObjectiveNoise) -> float:
    """Bound how far rounding before the solver moves the minimiser: the noise's grid, the vector's sums, over m."""
    own, n = calibrated.weights, bounds.n_donors
    root = math.sqrt(n)
    longest = _LONGEST_NOISE * own.scale * (root if own.mechanism == "Gaussian" else n)
    linear = 2.0 * root * bounds.row_pre * bounds.target_norm
    rounding = 0.5 * root * noise.finest_grid(own.scale) + 1.1 * _UNIT * ((bounds.n_pre + 2.0) * linear + longest)
    return rounding / own.strong_convexity * (1.0 + 2.0**-45)


def _draw(law: Law, scale: float, centre: FloatArray, source: noise.BitSource, grid: float | None = None) -> FloatArray:
    if law == "Gaussian":
        return noise.gaussian(scale, centre.shape, source, center=centre, grid=grid)
    return noise.l2_laplace(scale, len(centre), source, center=centre, grid=grid)


def _draw_columns(law: Law, scale: float, centres: FloatArray, source: noise.BitSource) -> FloatArray:
    """Draw about every column: one call for all where coordinates are independent."""
    if law == "Gaussian":
        return noise.gaussian(scale, centres.shape, source, center=centres)
    return np.column_stack([_draw(law, scale, np.ascontiguousarray(column), source) for column in centres.T])


def _noisy_donors(panel: Panel, scale: float, source: noise.BitSource) -> FloatArray:
    """Step 2 as printed: one joint L2-Laplace draw for all donors' post-periods."""
    return _draw("L2-Laplace", scale, panel.post.ravel(), source).reshape(panel.post.shape)


def _split(privacy: Privacy, split: tuple[float, float] | None) -> tuple[float, float]:
    """Return epsilon_1 and epsilon_2; ValueError if they are more than there is."""
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without noise there is nothing to calibrate")
    if split is None:
        return privacy.epsilon / 2.0, privacy.epsilon / 2.0
    first, second = check.positives("split", split)
    if first + second > privacy.epsilon:
        raise ValueError(f"split must add up to epsilon at most, {privacy.epsilon!r}, got {first!r} + {second!r}")
    return first, second
