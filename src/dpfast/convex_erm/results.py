"""Results of batch jobs of convex risk minimisation: coefficients, and their classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpfast.convex_erm.classifier import ObjectivePerturbationClassifier
from dpfast.convex_erm.inference import LEVEL
from dpfast.convex_erm.regressor import ObjectivePerturbationRegressor
from dpfast.estimator.linear import Names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Model: TypeAlias = ObjectivePerturbationClassifier | ObjectivePerturbationRegressor
NOTE = (
    "Standard errors need inference = true: how far noise moves a minimiser depends on the curvature of the loss, "
    f"which is private and has to be paid for. Then estimate, std_error, low and high ({LEVEL:.0%} limits) and p_value "
    "are those of summary(), and left empty where noise hides a feature; predictions are made with the coefficients of "
    "the model."
)


def tables(model: Model, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return a row for each feature and the intercept, if any; of a class against the rest; and the classes."""
    if isinstance(model, ObjectivePerturbationRegressor):
        return {"coefficients": model._estimates(Names(features, outcomes)).written()}
    classes = model.classes_.tolist()
    weights = model.class_weight if isinstance(model.class_weight, Mapping) else {}
    table = {"class": classes, "weight": [float(weights.get(label, 1.0)) for label in classes]}
    return {"coefficients": model._estimates(Names(features, model._sides()[1])).written(), "classes": table}


def figures(model: Model, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Axes]:
    """Draw the coefficients."""
    named: dict[str, Any] = {"outcome_names": outcomes} if isinstance(model, ObjectivePerturbationRegressor) else {}
    return {"coefficients": model.plot(feature_names=features, **named)}


def facts(model: Model) -> list[tuple[str, str]]:
    """Say what was chosen."""
    stated = [("penalty used", repr(float(model.ridge_)))]
    if model.inference:
        known = int(np.sum(~np.isnan(model.estimate_)))
        stated.append(("standard errors", f"of {known} of {len(model.estimate_)} coefficients, as noise hides others"))
    if isinstance(model, ObjectivePerturbationClassifier):
        classes = model.classes_.tolist()
        two = f"{classes[-1]} (where the score is positive) against {classes[0]}"
        stated.append(
            ("classes", two if len(classes) == 2 else ", ".join(map(str, classes)) + ": each against the rest")
        )
        stated.append(("method", model.method_))
        counted = hasattr(model, "log_odds_")
        stated.append(("probabilities", "calibrated by noisy counts" if counted else "by the link"))
    return stated
