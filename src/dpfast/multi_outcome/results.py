"""What a batch job of multi-outcome regression writes: coefficients, their errors and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfast.estimator.linear import INTERCEPT
from dpfast.multi_outcome.estimator import MultiOutcomeRidge
from dpfast.multi_outcome.reports import p_values
from dpfast.solvers.inference import Evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.95
NOTE = (
    "std_privacy is what the privacy noise alone does to a coefficient; it says nothing of sampling error. estimate, "
    f"std_error, low and high ({LEVEL:.0%} limits) and p_value are those of MultiOutcomeRidge.summary(), for the "
    "target named above: where the residual variance was not released, they leave sampling error out too, and there is "
    "no p_value."
)


def tables(model: MultiOutcomeRidge, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return a row for each outcome and feature, and for its intercept, where there is one."""
    target = model._usual_target(model.residual_std_)
    law = model._law(target, model.residual_std_, LEVEL)
    columns = {
        "coef": model.coef_,
        "std_privacy": model.coef_std_,
        "estimate": law.center,
        "std_error": law.deviation,
        "low": law.low,
        "high": law.high,
        "p_value": p_values(law, target),
    }
    constant = [INTERCEPT] if model._has_intercept else []
    names = [*constant, *features]
    table: dict[str, list[Any]] = {
        "outcome": [outcome for outcome in outcomes for _ in names],
        "feature": [name for _ in outcomes for name in names],
    }
    for name, values in columns.items():
        # An intercept's error is not known.
        first = model.intercept_[:, None] if name == "coef" else np.full((len(outcomes), 1), None, object)
        known = values.astype(object)
        known[np.isnan(values)] = None
        block = np.hstack([first, known]) if constant else known
        table[name] = block.ravel().tolist()
    return {"coefficients": table}


def figures(model: MultiOutcomeRidge, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Axes]:
    """Draw the estimates and their limits."""
    return {"coefficients": model.plot(level=LEVEL, feature_names=features, outcome_names=outcomes)}


def facts(model: MultiOutcomeRidge) -> list[tuple[str, str]]:
    """Say what was chosen, and how large the error is as the release tells it."""
    prominence = float(np.mean([Evidence(**told).prominence for told in model._evidence])) if model._evidence else 1.0
    stated = [("penalty used", repr(float(model.ridge_))), ("residual steps", str(model.n_steps_))]
    if model.residual_std_ is not None:
        stated.append(("residual standard deviations", ", ".join(f"{one:.5g}" for one in model.residual_std_)))
    stated.append(("limits are for the target", model._usual_target(model.residual_std_)))
    stated.append(("error as released", f"{1.0 / max(prominence, 1.0):.2g} of the signal, by the noise beside it"))
    return stated
