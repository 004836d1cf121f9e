"""
Synthetic control, arXiv figure 6: what a delta buys
====================================================

The longer version of the paper (Rho, Cummings and Misra, arXiv, section 8.3)
adds a figure: the error of objective perturbation with Laplace noise (delta =
0) and with Gaussian noise (delta = 1e-6), against epsilon. Gaussian noise is
better at most budgets, above all with many earlier periods.

This page repeats the comparison for our sound mechanisms on 100 donors and 100
earlier periods, with noise in many dimensions: moments of donors (the default)
and weights by output perturbation. The data are simulated, with 40 fits.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpfast import SyntheticControl, UtilityWarning
from dpfast.datasets import synthetic_control_panel
from dpfast.plotting import score_curves

# What is measured here is what this warns of.
warnings.simplefilter("ignore", UtilityWarning)

N, T0, REPEATS = 100, 100, 40
EPSILONS = [2, 4, 10, 20, 40, 100, 200]
donors, target, signal = synthetic_control_panel(N, T0, 3, seed=100_100)


def moments(delta):
    """Errors of the default: a row a fit, a column an epsilon."""
    model = SyntheticControl(1.0, delta, random_state=0)
    batches = model.fit_repeatedly(
        donors, T0, REPEATS, epsilons=[float(epsilon) for epsilon in EPSILONS]
    )
    return np.stack([rmse(batch.predict(target[:T0])) for batch in batches], axis=1)


def weights(delta):
    """Errors of released weights."""
    models = [
        [
            SyntheticControl(float(epsilon), delta, mechanism="output", random_state=seed)
            for epsilon in EPSILONS
        ]
        for seed in range(REPEATS)
    ]
    return np.array(
        [
            [rmse(one.fit(donors, T0, target=target).prediction_) for one in row]
            for row in models
        ]
    )


def rmse(predicted):
    """Root mean square error after the intervention."""
    return np.sqrt(np.mean((predicted - signal[T0:]) ** 2, axis=-1))


# %%
fig, axes = plt.subplots(1, 2, figsize=(10.0, 4.6), sharey=True, layout="constrained")
for ax, fit, title in zip(
    axes,
    (weights, moments),
    ("output perturbation, sound", "cross-section (the default)"),
    strict=True,
):
    for delta, label in ((0.0, "L2-Laplace, delta = 0"), (1e-6, "Gaussian, delta = 1e-6")):
        score_curves(
            EPSILONS,
            fit(delta),
            ax=ax,
            label=label,
            title=title,
            quantity="RMSE",
            unit="of the range",
        )
    ax.axhline(
        np.sqrt(np.mean(signal[T0:] ** 2)),
        color="0.3",
        linewidth=1.0,
        label="size of the signal",
    )
    ax.set_yscale("log")
    ax.legend(fontsize=8)
    ax.label_outer()
plt.show()

# %%
# A delta of one in a million is a small price. The noise vector of the default
# has 5,350 coordinates here. The norm of Laplace noise grows with their number,
# the norm of Gaussian noise with its square root.
