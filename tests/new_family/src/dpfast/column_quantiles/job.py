"""Batch jobs of quantiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from dpfast.column_quantiles.estimator import ColumnQuantiles

from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import RowsForm
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.jobs.values import NUMBER, Lists

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Quantiles(Kind):
    """Quantiles of declared columns."""

    KIND = "column_quantiles"
    ESTIMATOR = ColumnQuantiles
    RESULTS = SimpleNamespace(NOTE="Quantiles are candidates: none is nearer than these lie.", facts=lambda model: [])
    FORM = RowsForm(ColumnQuantiles, "none", example=('dose = "number"', ""))
    CHANGES = Changes(values={"candidates": Lists(NUMBER)}, examples={"candidates": "[0.0, 0.5, 1.0]"})

    def fit(self, model: ColumnQuantiles, job: Job, progress: Progress | None) -> None:
        """Fit, from a stream."""
        model.fit(job.data.tables(progress)[0])

    def tables(self, model: ColumnQuantiles, job: Job) -> dict[str, Table]:
        """Return a quantile a feature."""
        return {"quantiles": {"feature": list(job.data.feature_names), "quantile": model.quantiles_.tolist()}}

    def figures(self, model: ColumnQuantiles, job: Job) -> dict[str, Axes]:
        """Draw nothing: the table says it all."""
        return {}


KINDS = (Quantiles(),)
