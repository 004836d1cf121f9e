"""
Policy evaluation, figure 1: the chain
======================================

The conference paper's only figure (Balle, Gomrokchi and Precup, 2016) has
four plots on a chain of 40 states: walkers stay with probability 0.5, and the
last state pays 1, discounted by 0.99 a step. epsilon = delta = 0.1.

This page shows them with the printed noise, with ours for the same statistic,
and with sums over people, dpfast's default. The chain is simulated, so the true
values are known. Bands contain 90% of the fits.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpfast import PolicyEvaluation, Trajectories, UnsoundCalibrationWarning, UtilityWarning
from dpfast.datasets.decision_processes import (
    adjacent_pairs,
    chain_trajectories,
    chain_values,
)
from dpfast.plotting import score_curves

# Most of what is measured here is what these warn of.
warnings.simplefilter("ignore", UtilityWarning)
warnings.simplefilter("ignore", UnsoundCalibrationWarning)

STATES, GAMMA, RUNS = 40, 0.99, 8
SIZES = [100, 1000, 10_000]
TRUTH = chain_values(GAMMA, n_states=STATES)
WAYS = {
    "DP-LSW, noise as printed": {"method": "lsw", "calibration": "icml"},
    "DP-LSW, our noise": {"method": "lsw"},
    "sums over people (default)": {},
}
trajectories = {
    (m, run): Trajectories(*chain_trajectories(m, n_states=STATES, seed=1000 * m + run))
    for m in SIZES
    for run in range(RUNS)
}


def values(m, run, epsilon=0.1, **options):
    """Evaluate the policy from one set of trajectories."""
    public = {
        "gamma": GAMMA,
        "return_range": (0.0, 1.0),
        "weights": np.full(STATES, 1.0 / STATES),
    }
    model = PolicyEvaluation(epsilon, 0.1, random_state=run, **public, **options)
    return model.fit(trajectories[m, run]).value_


def distance(one, other):
    """Root mean square over states."""
    return np.sqrt(np.mean((one - other) ** 2))


# %%
# a: against the number of walkers. c: the same where neighbouring states
# share a value. d: what privacy alone adds, the paper's excess risk. The
# thin grey line answers 0 everywhere.
fig, axes = plt.subplots(2, 2, figsize=(10.0, 8.6), layout="constrained")
panels = {
    "a: error": ({}, TRUTH),
    "c: error, states in pairs": ({"features": adjacent_pairs(STATES)}, TRUTH),
    "d: what privacy adds": ({}, None),
}
for ax, (title, (options, truth)) in zip(axes.flat[[0, 2, 3]], panels.items(), strict=True):
    for label, way in WAYS.items():
        errors = np.zeros((RUNS, len(SIZES)))
        for run, column in np.ndindex(errors.shape):
            place = SIZES[column], run
            against = values(*place, np.inf, method="lsw") if truth is None else truth
            errors[run, column] = distance(values(*place, **way, **options), against)
        text = {
            "quantity": "RMSE",
            "unit": "of the range of returns",
            "xlabel": "walkers m",
            "title": title,
        }
        score_curves(SIZES, errors, ax=ax, label=label, **text)
        print(f"{title:26} {label:28}", errors.mean(axis=0).round(4))
# b: ridge regression of states seen often, against its penalty.
ridges = [1, 10, 100, 1000, 10_000]
for label, way in (
    ("DP-LSL, noise as printed", {"calibration": "icml"}),
    ("DP-LSL, our noise", {}),
):
    errors = [
        [
            distance(values(1000, run, method="lsl", ridge=float(ridge), **way), TRUTH)
            for ridge in ridges
        ]
        for run in range(RUNS)
    ]
    text = {
        "quantity": "RMSE",
        "unit": "of the range of returns",
        "xlabel": "penalty lambda",
    }
    score_curves(
        ridges,
        errors,
        ax=axes[0, 1],
        label=label,
        title="b: error of ridge regression, m = 1,000",
        **text,
    )
for ax in axes.flat:
    ax.set(yscale="log", ylim=(1e-3, 1.0))
    ax.axhline(distance(TRUTH, 0.0), color="0.6", linewidth=0.8, zorder=0)
    ax.get_legend().remove()
axes[0, 1].legend(loc="lower left", fontsize=8)
fig.legend(
    *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8
)
plt.show()

# %%
# The printed noise is so large that values are clipped to either end of the
# range: random guesses are as good. Our error for the same statistic falls with
# the number of walkers. Sums over people are best if every state has its own
# value; if states share values (c), ``method="lsw"`` is best.
