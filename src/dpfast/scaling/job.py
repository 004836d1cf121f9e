"""Batch jobs that release means and standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm, with_declared
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.scaling import results
from dpfast.scaling.estimator import PrivateStandardScaler

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEATURES = """
age = { low = 18, high = 100, missing = 50 }
days = { low = 0, high = 90 }
"""


class Scaler(Kind):
    """Means and standard deviations of features within limits."""

    KIND = "private_standard_scaler"
    ESTIMATOR = PrivateStandardScaler
    RESULTS = results
    FORM = RowsForm(PrivateStandardScaler, "none", example=(_FEATURES, ""))
    CHANGES = Changes(optional=("box_x",))

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; features have their limits."""
        parameters = with_declared(given, data)
        if "box_x" not in parameters:
            raise ValueError("[estimator] lacks the key 'box_x', and features have no limits, low and high")
        return parameters

    def fit(self, model: PrivateStandardScaler, job: Job, progress: Progress | None) -> None:
        """Fit, from a stream."""
        features, _ = job.data.tables(progress)
        model.fit(features, **job.data.fit_options())

    def tables(self, model: PrivateStandardScaler, job: Job) -> dict[str, Table]:
        """Return means and standard deviations."""
        return results.tables(model, job.data.feature_names)

    def figures(self, model: PrivateStandardScaler, job: Job) -> dict[str, Axes]:
        """Return none."""
        return {}


KINDS = (Scaler(),)
