"""Batch jobs that release means and standard deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import Overrides
from dpfast.jobs.rows import RowsInput
from dpfast.scaling.estimator import PrivateStandardScaler

_FEATURES = """
age = { low = 18, high = 100, missing = 50 }
days = { low = 0, high = 90 }
"""


class Scaler(JobType):
    """Means and standard deviations of features within limits."""

    JOB_TYPE = "private_standard_scaler"
    ESTIMATOR = PrivateStandardScaler
    INPUT_TYPE = RowsInput(PrivateStandardScaler, "none", example=(_FEATURES, ""))
    OVERRIDES = Overrides(optional=("box_x",))
    NOTE = "No variance is below what the known noise may make of none."

    def tables(
        self, model: PrivateStandardScaler, features: Sequence[str], _: Sequence[str]
    ) -> dict[str, Mapping[str, Any]]:
        """Return a row for each feature."""
        return {"scales": model._estimates(features).written()}

    def facts(self, model: PrivateStandardScaler) -> list[tuple[str, str]]:
        """Describe the result."""
        return [("features", str(model.n_features_in_))]


JOB_TYPES = (Scaler(),)
