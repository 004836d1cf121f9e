"""Attacks on synthetic control by noise on the donors' weights: a single donor, along the target, becomes another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast.audit.attacks import Attack
from dpfast.audit.minimisers import perturbed_log_density
from dpfast.privacy import Privacy, Release
from dpfast.releases.donor_weights import ObjectivePerturbation, OutputPerturbation, Panel, PanelBounds

FloatArray = NDArray[np.float64]

_N_PRE = 4
# Finishing noise blurs the ends of [-1, 1] by a few of its scales, and by less than e^-30 further.
_BLURRED = 30.0


def weight_attacks(privacy: Privacy, weaken: float = 1.0) -> Iterator[Attack]:
    """Attack output and objective perturbation, Gaussian and pure.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by the Gaussian ones alone.
    weaken : float, default 1.0
        Divides the noise: above 1 the mechanism is broken.
    """
    for delta in (privacy.delta, 0.0):
        yield output_attack(replace(privacy, delta=delta), weaken)
        yield objective_attack(replace(privacy, delta=delta), weaken)


def output_attack(privacy: Privacy, weaken: float = 1.0) -> Attack:
    """Attack output perturbation where it is tight: a donor with ||x||**2 = ridge/2 along the target is flipped.

    Parameters
    ----------
    privacy : Privacy
        Claim; pure where its delta is 0.
    weaken : float, default 1.0
        Divides the noise.
    """
    bounds, ridge = _bounds(), float(_N_PRE)
    chosen = OutputPerturbation.calibrate(privacy, bounds, ridge)
    scales = chosen.noise_scales
    weak = replace(scales, weight_scale=scales.weight_scale / weaken, projection_scale=scales.projection_scale / weaken)
    broken = replace(chosen, noise_scales=weak)
    own = bounds.target_norm / math.sqrt(2.0 * ridge)
    gaussian = scales.mechanism == "Gaussian"

    def ratio(value: float, centre: float, scale: float) -> float:
        """Log likelihood ratio of a centre and its negative."""
        if gaussian:
            return 2.0 * value * centre / scale**2
        return (abs(value + centre) - abs(value - centre)) / scale

    def score(release: Release) -> float:
        weight, projection = float(release.values["weights"][0]), float(release.values["projection"][0])
        return -ratio(weight, own, scales.weight_scale) - ratio(
            projection, math.copysign(1.0, weight), scales.projection_scale
        )

    panels = _panel(math.sqrt(0.5), 1.0), _panel(-math.sqrt(0.5), -1.0)
    name = f"donor weights, output perturbation, {scales.mechanism}"
    return Attack(name, privacy, _scores(broken.release, panels, score), gaussian=gaussian)


def objective_attack(privacy: Privacy, weaken: float = 1.0) -> Attack:
    """Attack objective perturbation with a donor that is 0 and becomes the target, by its exact likelihood.

    Parameters
    ----------
    privacy : Privacy
        Claim; pure where its delta is 0.
    weaken : float, default 1.0
        Divides the noise.
    """
    chosen = ObjectivePerturbation.calibrate(privacy, _bounds(), float(_N_PRE))
    scales = chosen.noise_scales
    own = scales.weights
    weak = replace(
        scales,
        weights=replace(own, scale=own.scale / weaken),
        projection_scale=scales.projection_scale / weaken,
    )
    broken = replace(chosen, noise_scales=weak)
    gaussian = own.mechanism == "Gaussian"
    end = 1.0 - _BLURRED * chosen.finishing_scale

    def log_density(x: float, weight: float) -> float:
        """Log density of the weight within (-1, 1), up to a constant; log mass at its ends.

        The donor is x in every period, and the target 1.
        """
        curvature, slope = 2.0 * _N_PRE * x * x + own.strong_convexity, 2.0 * _N_PRE * x
        return perturbed_log_density(weight, slope, curvature, own.scale, gaussian, end)

    def score(release: Release) -> float:
        weight, projection = float(release.values["weights"][0]), float(release.values["projection"][0])
        moved = math.copysign(1.0, weight)
        if gaussian:
            projected = -2.0 * projection * moved / scales.projection_scale**2
        else:
            projected = (abs(projection - moved) - abs(projection + moved)) / scales.projection_scale
        return log_density(1.0, weight) - log_density(0.0, weight) + projected

    panels = _panel(0.0, 1.0), _panel(1.0, -1.0)
    name = f"donor weights, objective perturbation, {own.mechanism}"
    return Attack(name, privacy, _scores(broken.release, panels, score), gaussian=False)


def _bounds() -> PanelBounds:
    return PanelBounds.of(1, 1, np.ones(_N_PRE))


def _panel(before: float, after: float) -> Panel:
    """Return one donor with the same outcome in all periods before, and one after."""
    return Panel(np.full((1, _N_PRE), before), np.full((1, 1), after), np.ones(_N_PRE))


def _scores(
    release: Callable[[Panel, noise.BitSource, str], Release],
    panels: tuple[Panel, Panel],
    score: Callable[[Release], float],
) -> Callable[[bool, int], FloatArray]:
    source = noise.SecureSource()

    def scores(neighbour: bool, n: int) -> FloatArray:
        return np.array([score(release(panels[neighbour], source, "audit")) for _ in range(n)])

    return scores
