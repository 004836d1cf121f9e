"""Batch jobs of regression and classification by objective perturbation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfast.convex_erm import results
from dpfast.convex_erm.classifier import ObjectivePerturbationClassifier
from dpfast.convex_erm.regressor import ObjectivePerturbationRegressor
from dpfast.jobs.kinds import Kind
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm
from dpfast.jobs.values import INTEGER, NUMBER, TEXT, Either, Lists

_FEATURES = """
dose = { low = -3, high = 3 }
smoker = { kind = "boolean", missing = false }
site = { levels = ["Bern", "Basel", "Genf"], drop_first = true, undeclared = "zeros" }
"""


class Regressor(Kind):
    """Regression within a public set."""

    KIND = "objective_perturbation_regressor"
    ESTIMATOR = ObjectivePerturbationRegressor
    RESULTS = results
    FORM = RowsForm(ObjectivePerturbationRegressor, "one", example=(_FEATURES, 'days = "number"'))
    CHANGES = Changes(
        examples={"bound_y": "30.0", "constraint": '{ kind = "L2Ball", radius = 30.0 }'},
    )


class Classifier(Kind):
    """Classification by declared labels."""

    KIND = "objective_perturbation_classifier"
    ESTIMATOR = ObjectivePerturbationClassifier
    RESULTS = results
    FORM = RowsForm(
        ObjectivePerturbationClassifier,
        "labels",
        example=(_FEATURES, 'outcome = { levels = ["home", "ward", "dead"] }'),
    )
    CHANGES = Changes(
        values={"classes": Lists(Either((TEXT, INTEGER, NUMBER)))},
        optional=("classes",),
    )

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; labels are levels, or classes where columns have no names."""
        if data.classes is not None and "classes" in given:
            raise ValueError("[estimator] classes are the levels in [outcomes]: leave one of them out")
        if data.columns is None and "classes" not in given:
            raise ValueError("[estimator] lacks the key 'classes': all labels there are in y")
        classes = list(given["classes"] if data.classes is None else data.classes)
        return super().parameters(given, data) | {"classes": classes} | self._weights(given, classes)

    def _weights(self, given: Mapping[str, Any], classes: list[Any]) -> dict[str, Any]:
        """Return weights by label: keys of TOML are text."""
        if "class_weight" not in given:
            return {}
        labels = {str(label): label for label in classes}
        for key in given["class_weight"]:
            if key not in labels:
                raise ValueError(f"[estimator.class_weight] {key!r} is none of the classes, {', '.join(labels)}")
        return {"class_weight": {labels[key]: weight for key, weight in given["class_weight"].items()}}


KINDS = (Regressor(), Classifier())
