"""Batch jobs of quantiles."""

from __future__ import annotations

from collections.abc import Sequence

from dpfast.column_quantiles.estimator import ColumnQuantiles

from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import NUMBER, Overrides, lists
from dpfast.jobs.report import Table
from dpfast.jobs.rows import RowsInput


class Quantiles(JobType):
    """Quantiles of declared columns."""

    JOB_TYPE = "column_quantiles"
    ESTIMATOR = ColumnQuantiles
    NOTE = "Quantiles are candidates: none is nearer than these lie."
    INPUT_TYPE = RowsInput(ColumnQuantiles, "none", example=('dose = "number"', ""))
    OVERRIDES = Overrides(values={"candidates": lists(NUMBER)}, examples={"candidates": "[0.0, 0.5, 1.0]"})

    def tables(self, model: ColumnQuantiles, features: Sequence[str], _: Sequence[str]) -> dict[str, Table]:
        """Return a quantile a feature."""
        return {"quantiles": {"feature": list(features), "quantile": model.quantiles_.tolist()}}


JOB_TYPES = (Quantiles(),)
