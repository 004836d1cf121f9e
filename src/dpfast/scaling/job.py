"""Batch jobs that release means and standard deviations."""

from __future__ import annotations

from dpfast.jobs.kinds import Kind
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import RowsForm
from dpfast.scaling import results
from dpfast.scaling.estimator import PrivateStandardScaler

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


KINDS = (Scaler(),)
