"""Batch jobs of regression and classification by objective perturbation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from dpfast.convex_erm import results
from dpfast.convex_erm.classifier import ObjectivePerturbationClassifier
from dpfast.convex_erm.regressor import ObjectivePerturbationRegressor
from dpfast.io import Deferred
from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm, bounded_by_limits
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.jobs.values import INTEGER, NUMBER, TEXT, Either, Lists

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; rows are bounded by their limits too."""
        return bounded_by_limits(given, data)

    def fit(self, model: ObjectivePerturbationRegressor, job: Job, progress: Progress | None) -> None:
        """Fit; of a squared loss from a stream, of others the rows are held in memory."""
        model.fit(*job.data.tables(progress), **job.data.fit_options())

    def tables(self, model: ObjectivePerturbationRegressor, job: Job) -> dict[str, Table]:
        """Return coefficients."""
        return results.tables_of_outcome(model, job.data.feature_names, job.data.outcome_names[0])

    def figures(self, model: ObjectivePerturbationRegressor, job: Job) -> dict[str, Axes]:
        """Return pictures of them."""
        return results.figures_of_outcome(model, job.data.feature_names, job.data.outcome_names[0])


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
        return bounded_by_limits(given, data) | {"classes": classes} | self._weights(given, classes)

    def _weights(self, given: Mapping[str, Any], classes: list[Any]) -> dict[str, Any]:
        """Return weights by label: keys of TOML are text."""
        if "class_weight" not in given:
            return {}
        labels = {str(label): label for label in classes}
        for key in given["class_weight"]:
            if key not in labels:
                raise ValueError(f"[estimator.class_weight] {key!r} is none of the classes, {', '.join(labels)}")
        return {"class_weight": {labels[key]: weight for key, weight in given["class_weight"].items()}}

    def fit(self, model: ObjectivePerturbationClassifier, job: Job, progress: Progress | None) -> None:
        """Fit, from rows in memory."""
        read = cache(partial(job.data.labelled, progress))
        model.fit(Deferred(lambda: read()[0]), Deferred(lambda: read()[1]), **job.data.fit_options())

    def tables(self, model: ObjectivePerturbationClassifier, job: Job) -> dict[str, Table]:
        """Return coefficients and classes."""
        return results.tables_of_classes(model, job.data.feature_names)

    def figures(self, model: ObjectivePerturbationClassifier, job: Job) -> dict[str, Axes]:
        """Return pictures of them."""
        return results.figures_of_classes(model, job.data.feature_names)


KINDS = (Regressor(), Classifier())
