"""
Synthetic control, figure 4: error by penalty
=============================================

The paper's fourth figure (Rho, Cummings and Misra, 2023) shows the error after
the intervention against the penalty lambda, for 10 donors and 10 earlier
periods at epsilon = 100, without privacy and with either of its algorithms. The
paper therefore recommends lambda = T0.

This page shows the same curves from the printed algorithms, and ours at the
same budget. As in the paper, the two approach the non-private fit as lambda
grows. In these units this needs lambda far above T0, where all predictions are
close to 0. Our error is below the signal at every lambda, and hardly depends on
it up to T0.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpfast import SyntheticControl, UnsoundCalibrationWarning, UtilityWarning
from dpfast.datasets import synthetic_control_panel
from dpfast.plotting import score_curves

# Most of what is measured here is what these warn of.
warnings.simplefilter("ignore", UtilityWarning)
warnings.simplefilter("ignore", UnsoundCalibrationWarning)

N, T0, REPEATS, EPSILON = 10, 10, 60, 100.0
RIDGES = [1, 2, 5, 10, 20, 50, 200, 1000, 5000]
donors, target, signal = synthetic_control_panel(N, T0, 3, seed=10_010)


def rmse(predicted):
    """Root mean square error of predictions, a row each."""
    return np.sqrt(np.mean((predicted - signal[T0:]) ** 2, axis=-1))


def printed(mechanism, ridge, seed):
    """Predict with one of the paper's algorithms."""
    options = {"mechanism": mechanism, "calibration": "paper", "ridge": float(ridge)}
    model = SyntheticControl(EPSILON, 0.0, random_state=seed, **options)
    return model.fit(donors, T0, target=target).prediction_


def exact(ridge):
    """Predict without privacy."""
    return SyntheticControl(np.inf, ridge=float(ridge)).fit(donors, T0).predict(target[:T0])


(batch,) = SyntheticControl(EPSILON, 0.0, random_state=0).fit_repeatedly(
    donors, T0, REPEATS
)
curves = {
    "printed output perturbation": [
        [rmse(printed("output", r, s)) for r in RIDGES] for s in range(REPEATS)
    ],
    "printed objective (not private)": [
        [rmse(printed("objective", r, s)) for r in RIDGES] for s in range(REPEATS)
    ],
    "dpfast, cross-section": np.transpose(
        [rmse(batch.predict(target[:T0], float(r))) for r in RIDGES]
    ),
    "no privacy": [[rmse(exact(ridge)) for ridge in RIDGES]],
}

# %%
fig, ax = plt.subplots(figsize=(7.6, 5.4), layout="constrained")
for label, errors in curves.items():
    score_curves(
        RIDGES,
        errors,
        ax=ax,
        label=label,
        quantity="RMSE",
        xlabel="penalty lambda",
        unit="of the range",
    )
size = np.sqrt(np.mean(signal[T0:] ** 2))
ax.axhline(size, color="0.3", linewidth=1.0, label="size of the signal")
ax.set_yscale("log")
ax.set_title(f"{N} donors, {T0} earlier periods, epsilon = {EPSILON:g}", fontsize=10)
ax.legend(fontsize=8)
plt.show()

# %%
# Mean errors at lambda = T0:
for label, errors in curves.items():
    print(f"{label:32} {np.mean(errors, axis=0)[RIDGES.index(T0)]:8.3f}")
