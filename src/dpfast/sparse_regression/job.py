"""Batch jobs of regression on a few features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm, with_declared
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.sparse_regression import results
from dpfast.sparse_regression.estimator import SparseRegression

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEATURES = """
dose = { low = -3, high = 3 }
smoker = { kind = "boolean", missing = false }
site = { levels = ["Bern", "Basel", "Genf"], undeclared = "zeros" }
"""


class Sparse(Kind):
    """A choice of features, then coefficients on it."""

    KIND = "sparse_regression"
    ESTIMATOR = SparseRegression
    RESULTS = results
    FORM = RowsForm(SparseRegression, example=(_FEATURES, 'days = "number"'))
    CHANGES = Changes(examples={"n_nonzero": "2", "bound_y": "30.0"})

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; entries are scaled by their limits."""
        if data.box is not None and "bound_x" in given:
            raise ValueError("[estimator] bound_x and low, high in [features] exclude each other: give one of them")
        return with_declared(given, data)

    def check(self, parameters: Mapping[str, Any], data: Rows) -> None:
        """Refuse several outcomes where one is taken, besides."""
        super().check(parameters, data)
        selector = parameters.get("selector", "auto")
        one = selector not in ("auto", "pursuit") or parameters.get("calibration") == "paper"
        if one and data.outcome_names is not None and len(data.outcome_names) > 1:
            raise ValueError(f"[outcomes] must declare one column with selector = {selector!r}")

    def fit(self, model: SparseRegression, job: Job, progress: Progress | None) -> None:
        """Fit, from a stream that is read as often as the selector needs."""
        model.fit(*job.data.tables(progress), **job.data.fit_options())

    def tables(self, model: SparseRegression, job: Job) -> dict[str, Table]:
        """Return the support and coefficients."""
        return results.tables(model, job.data.feature_names, job.data.outcome_names)

    def figures(self, model: SparseRegression, job: Job) -> dict[str, Axes]:
        """Return pictures of them."""
        return results.figures(model, job.data.feature_names, job.data.outcome_names)


KINDS = (Sparse(),)
