"""
Private convex ERM, table 2: people needed to find a support
============================================================

The paper's table 2 (Kifer, Smith and Thakurta, 2012) compares two methods of
private selection of s of p features: an exponential mechanism over all
supports, and votes of many small samples. It gives the number of people that
each needs.

This page measures how often each finds the true support, against the number of
people, for 2 of 30 features at epsilon = 2. It adds dpfast's default, one
feature after the other. The data are simulated.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpfast import SparseRegression, UtilityWarning
from dpfast.plotting import series

# Too few people are what is looked at, and what this warns of.
warnings.simplefilter("ignore", UtilityWarning)

FEATURES, COEFFICIENTS, REPEATS = 30, (0.8, -0.6), 12
PEOPLE = [100, 300, 1000, 3000]
SELECTORS = {
    "exponential": "exponential mechanism (paper)",
    "sample_aggregate": "votes of samples (paper)",
    "pursuit": "one after the other (dpfast)",
}


def found(selector, n, seed):
    """Whether the support is found in a new table."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(n, FEATURES))
    support = np.sort(rng.choice(FEATURES, 2, replace=False))
    signal = x[:, support] @ COEFFICIENTS
    y = signal + 0.5 * signal.std() * rng.normal(size=n)
    model = SparseRegression(
        2.0, 1e-6, n_nonzero=2, selector=selector, random_state=seed, **BOUNDS[selector]
    )
    return np.array_equal(model.fit(x, y).support_, support)


BOUNDS = {name: {"bound_y": 2.0} if name == "pursuit" else {} for name in SELECTORS}

# %%
fig, ax = plt.subplots(figsize=(7.6, 4.8), layout="constrained")
for number, (selector, label) in enumerate(SELECTORS.items()):
    hits = np.array(
        [sum(found(selector, n, seed) for seed in range(REPEATS)) for n in PEOPLE]
    )
    # Wilson's limits of a frequency, of 95%.
    middle = (hits + 1.92) / (REPEATS + 3.84)
    half = 1.96 * np.sqrt(hits * (1 - hits / REPEATS) + 0.96) / (REPEATS + 3.84)
    style = series(number)
    ax.fill_between(
        PEOPLE, middle - half, middle + half, color=style["color"], alpha=0.2, linewidth=0
    )
    ax.plot(PEOPLE, hits / REPEATS, **style, label=label)
    print(f"{label:32}", dict(zip(PEOPLE, (hits / REPEATS).round(2).tolist(), strict=True)))
ax.set(
    xscale="log",
    ylim=(-0.03, 1.03),
    xlabel="people n",
    ylabel=f"support found (share of {REPEATS} tables)",
)
ax.set_xticks(PEOPLE, [f"{n:,}" for n in PEOPLE])
ax.set_xticks([], minor=True)
ax.spines[["top", "right"]].set_visible(False)
ax.set_title(
    f"2 of {FEATURES} features, epsilon = 2, delta = 1e-6; bands: 95% limits", fontsize=10
)
ax.legend(fontsize=9)
plt.show()
