"""Batch jobs of regression and classification by objective perturbation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfast.convex_erm.classifier import ObjectivePerturbationClassifier
from dpfast.convex_erm.inference import LEVEL
from dpfast.convex_erm.regressor import ObjectivePerturbationRegressor
from dpfast.estimator.linear import Names
from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import Overrides
from dpfast.jobs.rows import Rows, RowsInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEATURES = """
dose = { low = -3, high = 3 }
smoker = { kind = "boolean", missing = false }
site = { levels = ["Bern", "Basel", "Genf"], drop_first = true, undeclared = "zeros" }
"""


class _Coefficients(JobType):
    """The results of both: coefficients."""

    NOTE = (
        "Standard errors need inference = true: how far noise moves a minimiser depends on the curvature of the loss, "
        "which is private and has to be paid for. Then estimate, std_error, low and high "
        f"({LEVEL:.0%} limits) and p_value are those of summary(), and left empty where noise hides a feature; "
        "predictions are made with the coefficients of the model."
    )

    def tables(self, model: Any, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return a row for each feature and the intercept, if any."""
        return {"coefficients": model._estimates(Names(features, outcomes)).written()}

    def figures(self, model: Any, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Axes]:
        """Draw the coefficients."""
        return {"coefficients": model.plot(feature_names=features, outcome_names=outcomes)}

    def facts(self, model: Any) -> list[tuple[str, str]]:
        """Say what was chosen."""
        stated = [("penalty used", repr(float(model.ridge_)))]
        if model.inference:
            known, n = int(np.sum(~np.isnan(model.estimate_))), len(model.estimate_)
            why = ", as noise hides others" if known < n else ""
            stated.append(("standard errors", f"of {known} of {n} coefficients{why}"))
        return stated


class Regressor(_Coefficients):
    """Regression within a public set."""

    JOB_TYPE = "objective_perturbation_regressor"
    ESTIMATOR = ObjectivePerturbationRegressor
    INPUT_TYPE = RowsInput(ObjectivePerturbationRegressor, "one", example=(_FEATURES, 'days = "number"'))
    OVERRIDES = Overrides(
        examples={"bound_y": "30.0", "constraint": '{ kind = "L2Ball", radius = 30.0 }'},
    )


class Classifier(_Coefficients):
    """Classification by declared labels."""

    JOB_TYPE = "objective_perturbation_classifier"
    ESTIMATOR = ObjectivePerturbationClassifier
    INPUT_TYPE = RowsInput(
        ObjectivePerturbationClassifier,
        "labels",
        example=(_FEATURES, 'outcome = { levels = ["home", "ward", "dead"] }'),
    )
    OVERRIDES = Overrides(left_out=("classes",))

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; the classes are the levels of the outcome."""
        classes = list(data.classes or ())
        return super().parameters(given, data) | {"classes": classes} | self._weights(given, classes)

    def tables(self, model: Any, features: Sequence[str], _: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return coefficients, of a class against the rest; and the classes."""
        classes = model.classes_.tolist()
        weights = model.class_weight if isinstance(model.class_weight, Mapping) else {}
        table = {"class": classes, "weight": [float(weights.get(label, 1.0)) for label in classes]}
        return super().tables(model, features, model._sides()[1]) | {"classes": table}

    def figures(self, model: Any, features: Sequence[str], _: Sequence[str]) -> dict[str, Axes]:
        """Draw the coefficients."""
        return {"coefficients": model.plot(feature_names=features)}

    def facts(self, model: Any) -> list[tuple[str, str]]:
        """Name the classes and the method, besides."""
        classes = model.classes_.tolist()
        two = f"{classes[-1]} (where the score is positive) against {classes[0]}"
        sides = two if len(classes) == 2 else ", ".join(map(str, classes)) + ": each against the rest"
        counted = "calibrated by noisy counts" if hasattr(model, "log_odds_") else "by the link"
        return [*super().facts(model), ("classes", sides), ("method", model.method_), ("probabilities", counted)]

    def _weights(self, given: Mapping[str, Any], classes: list[Any]) -> dict[str, Any]:
        """Return weights by label: keys of TOML are text."""
        if "class_weight" not in given:
            return {}
        labels = {str(label): label for label in classes}
        for key in given["class_weight"]:
            if key not in labels:
                raise ValueError(f"[estimator.class_weight] {key!r} is none of the classes, {', '.join(labels)}")
        return {"class_weight": {labels[key]: weight for key, weight in given["class_weight"].items()}}


JOB_TYPES = (Regressor(), Classifier())
