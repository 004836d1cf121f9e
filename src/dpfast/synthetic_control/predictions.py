"""From released moments of donors to predictions of any target, and their limits: post-processing of what is public."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._quiet import quiet
from dpfast.io import target_rows
from dpfast.kernels.threads import single_threaded_blas
from dpfast.ledger import Release
from dpfast.releases.moments import unpacked
from dpfast.solvers.damped import DenoisedMoments, damped_solve, hidden_reach
from dpfast.synthetic_control.mechanism import CrossSection

# Draws that an interval's quantiles are taken from: they are then off by 0.01 in coverage, up or down.
_SIMULATIONS = 500
# Entries of X'X that are simulated at a time.
_BATCH_ENTRIES = 1 << 19


def coefficients(theta: FloatArray, basis: FloatArray | None, n_post: int) -> dict[str, Any]:
    """Part coefficients on features into those of later and of earlier periods, on the periods themselves."""
    post, back = np.split(theta, [n_post], axis=1)
    if basis is not None:
        post, back = basis @ post, basis @ back @ basis.T
    return {"coef_": post.T.copy(), "pre_coef_": back.T.copy()}


def coefficients_of_moments(
    xx: FloatArray, xy: FloatArray, basis: FloatArray | None, ridge: float, floor: float, keep: int | None
) -> dict[str, Any]:
    """Solve for the coefficients of the paper's estimate; no eigenvalue counts for less than the floor."""
    theta = damped_solve(xx, np.concatenate([xy, xx], axis=1), ridge / 2.0, floor, keep)
    return coefficients(theta, basis, xy.shape[1])


def predictions(
    xx: FloatArray, xy: FloatArray, targets: FloatArray, ridge: float, floor: float, n_components: int | None
) -> FloatArray:
    """Predict targets, features of shape (n_targets, d), from moments of shape (..., d, d) and (..., d, n_post)."""
    weights = damped_solve(xx, targets.T, ridge / 2.0, floor, n_components)
    predicted: FloatArray = np.swapaxes(weights, -1, -2) @ xy
    return predicted


def prediction_interval(
    section: CrossSection,
    values: Mapping[str, FloatArray],
    n_donors: int | None,
    targets: FloatArray,
    *,
    ridge: float,
    n_components: int | None,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Limits for the prediction without privacy noise at the same ridge, from released values and the known noise.

    The prediction is not linear in the noise, so its errors are simulated: fresh noise with the known law is added to
    moments from which what does not stand out of the released noise has been removed
    (`dpfast.solvers.DenoisedMoments`), and the errors' quantiles are taken off the prediction: the parametric
    bootstrap's basic interval (Davison and Hinkley 1997, "Bootstrap Methods and their Application", section 5.2). Where
    the target visibly has a part in directions that do not stand out, the most that they may add is put on either side;
    at a ridge with lambda/2 beyond the floor there is no such part.
    """
    xx, xy = section.moments(values, n_donors)
    denoised = DenoisedMoments.of(xx, section.off_diagonal)
    source_xx, source_xy = denoised.xx, denoised.inside(xy)
    paths = denoised.turned_back(targets.T).T
    # A stream of its own: with the fit's seed the noise simulated would be the noise that was added.
    digest = hashlib.sha256(values["xx"].tobytes() + values["xy"].tobytes()).digest()
    source = noise.SeededSource(int.from_bytes(digest, "little"))
    centre = predictions(source_xx, source_xy, paths, ridge, 0.0, n_components)
    batch = max(1, min(_SIMULATIONS, _BATCH_ENTRIES // xx.size))
    errors = np.empty((_SIMULATIONS, *centre.shape))
    # The matrices are small: further BLAS threads only wait for each other.
    with single_threaded_blas():
        for start in range(0, _SIMULATIONS, batch):
            stop = min(start + batch, _SIMULATIONS)
            noise_xx, noise_xy = section.noise_alone(stop - start, source)
            noisy = source_xx + noise_xx, source_xy + noise_xy
            errors[start:stop] = predictions(*noisy, paths, ridge, section.floor, n_components) - centre
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(errors, [tail, 1.0 - tail], axis=0)
    predicted = predictions(xx, xy, targets, ridge, section.floor, n_components)
    reach = _hidden_reach(section, xx, denoised, targets, ridge, n_components)[:, None]
    return predicted - high - reach, predicted - low + reach


def _hidden_reach(
    section: CrossSection,
    xx: FloatArray,
    denoised: DenoisedMoments,
    targets: FloatArray,
    ridge: float,
    n_components: int | None,
) -> FloatArray:
    """Bound what directions that are hidden in the noise add to the prediction of each target without noise.

    What hides is taken to be no larger in a period after the intervention than, on average, in one before: no more
    than the 95% limit of what is left of the trace of X'X.
    """
    if n_components is not None and n_components <= len(denoised.values):
        return np.zeros(len(targets))
    features = len(xx)
    trace = max(float(np.trace(xx)) - float(np.sum(denoised.values)), 0.0)
    # The diagonal has twice the variance of the entries off it.
    trace += 1.645 * math.sqrt(2.0 * features) * section.off_diagonal
    turning, rows = 1.0, section.rows
    if rows.restored:
        # Bringing moments back to the origin adds the noise of sums, times the centre's length, along the centre.
        assert rows.center is not None
        length = float(np.linalg.norm(rows.center[: rows.n_pre]))
        turning += (section.scales["x"] / rows.rate * length / section.off_diagonal) ** 2
    return denoised.hidden(targets.T, turning) * hidden_reach(trace / features, ridge / 2.0, section.floor)


@dataclass(frozen=True, repr=False)
class CrossSectionBatch:
    """Repeated releases of one panel's moments, from which predictions at any ridge are computed when asked for.

    Attributes
    ----------
    section : CrossSection
        The rows and the calibration of each release.
    release : Release
        All of them; see `dpfast.releases.moments`.
    n_donors : int or None
        Number of donors, None where it is private.
    ridge : float
        The paper's lambda, where no other is asked for.
    """

    section: CrossSection
    release: Release
    n_donors: int | None
    ridge: float

    @quiet
    def predict(self, target_pre: ArrayLike, ridge: float | None = None) -> FloatArray:
        """Predict a target, or several, from every release.

        Parameters
        ----------
        target_pre : array of shape (n_pre,) or (n_targets, n_pre)
            Public outcomes before the intervention, in the units of the donors.
        ridge : float, optional
            The paper's lambda; by default the estimator's. Another one costs no further privacy.

        Returns
        -------
        ndarray of shape (repeats, n_post) or (repeats, n_targets, n_post)
        """
        rows = self.section.rows
        penalty = self.ridge if ridge is None else check.nonnegative("ridge", ridge)
        pre = target_rows(target_pre, {"n_pre": rows.n_pre}, "target_pre")
        features = np.atleast_2d(rows.features(pre))
        xx, xy = self.section.moments(unpacked(self.release.values), self.n_donors)
        with single_threaded_blas():
            predicted = rows.predicted(predictions(xx, xy, features, penalty, self.section.floor, None))
        return predicted[:, 0] if pre.ndim == 1 else predicted

    def __repr__(self) -> str:
        repeats = self.release.values["xy"].shape[0]
        return f"<{repeats} releases of a panel's moments, together at {self.release.privacy}>"
