"""
PRIMO, figure 1: many outcomes at the price of one
==================================================

The paper's figure 1 (Neel, PRIMO) is a table of the cost of l outcomes: the
error of each, relative to that of a single outcome. If the noise of the shared
covariance dominates, cost(l) is 1: further outcomes are free. If the noise of
the outcomes' sums dominates, it grows with l: like the square root of l in the
paper's error, itself a square root.

This page measures the same on simulated tables: one release for all outcomes
(dpfast), a release for each outcome (the method before the paper), and, for
very many public outcomes, the paper's projection.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from dpfast import MultiOutcomeRidge, UtilityWarning
from dpfast.plotting import score_curves

# Costs are seen where noise dominates, which is what this warns of.
warnings.simplefilter("ignore", UtilityWarning)

FEATURES, REPEATS = 8, 5
EACH = {"label": "a release for each outcome", "mechanism": "independent"}
SHARED = {"label": "one release for all (dpfast)"}
PROJECTED = {
    "label": "the same, projected",
    "mechanism": "projection",
    "public_labels": True,
}


def people(n, n_outcomes, strength, seed):
    """Rows of length 1, and outcomes of +1 and -1 that follow them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, FEATURES))
    # The last feature explains nothing. The longer it is, the shorter the
    # others are, and the larger are their coefficients.
    x *= strength / np.linalg.norm(x, axis=1)[:, np.newaxis]
    x = np.column_stack([x, np.sqrt(1.0 - strength**2) * rng.choice([-1.0, 1.0], size=n)])
    truth = rng.normal(size=(FEATURES, n_outcomes))
    truth /= np.linalg.norm(truth, axis=0) * strength
    y = np.where(
        rng.uniform(-1.0, 1.0, size=(n, n_outcomes)) < x[:, :-1] @ truth, 1.0, -1.0
    )
    return x, y


def error(x, y, seed, **options):
    """Risk that privacy adds, as a share of what the features explain."""
    exact = np.linalg.lstsq(x, y)[0]
    bounds = {"bound_x": 1.0, "bound_y": float(np.sqrt(y.shape[1])), "refine": 0}
    model = MultiOutcomeRidge(1.0, 1e-6, random_state=seed, **bounds, **options).fit(x, y)
    added, explained = (
        np.sum(c * (x.T @ x @ c), axis=0) for c in (model.coef_.T - exact, exact)
    )
    return np.mean(added / explained)


# %%
fig, axes = plt.subplots(1, 3, figsize=(12.0, 5.0), sharey=True, layout="constrained")
panels = {
    "small coefficients": (
        20_000,
        1.0,
        [1, 3, 10, 30, 100],
        (EACH, SHARED),
    ),
    "large coefficients": (
        20_000,
        0.1,
        [1, 3, 10, 30, 100],
        (EACH, SHARED),
    ),
    "public outcomes, few people": (3000, 1.0, [1, 10, 100, 1000], (SHARED, PROJECTED)),
}
for ax, (title, (n, strength, counts, ways)) in zip(axes, panels.items(), strict=True):
    tables = [people(n, max(counts), strength, seed) for seed in range(REPEATS)]
    for way in ways:
        options = {name: value for name, value in way.items() if name != "label"}
        # A hundred releases take a hundred times as long as one.
        some = counts[:-1] if way is EACH else counts
        errors = [
            [
                error(x, np.ascontiguousarray(y[:, :count]), seed, **options)
                for count in some
            ]
            for seed, (x, y) in enumerate(tables)
        ]
        text = {
            "quantity": "risk added",
            "unit": "of what is explained",
            "xlabel": f"outcomes l of {n:,} people",
        }
        score_curves(some, errors, ax=ax, label=way["label"], title=title, **text)
        mean = np.mean(errors, axis=0)
        print(f"{title:28} {way['label']:29} cost(l):", (mean / mean[0]).round(1))
    ax.axhline(1.0, color="0.3", linewidth=1.0)
    ax.set_yscale("log")
    ax.label_outer()
    ax.legend(fontsize=7, loc="lower right")
plt.show()

# %%
# The grey line is the error of predicting 0. Risks are squares: if the paper's
# cost grows like the root of l, the risk grows like l. This is the case on the
# left, where the noise of X'Y dominates. In the middle the noise of X'X
# dominates, and each of ten outcomes costs little more than one.
#
# ``refine=0`` is the paper's single release of moments. By default dpfast then
# refines coefficients if this lowers the error. The paper's noise is too small
# for its guarantee: see PRIMO's rows of ``dpfast audit``.
