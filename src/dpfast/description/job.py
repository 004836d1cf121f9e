"""Batch jobs that describe a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfast.description import results
from dpfast.description.describer import TableDescriber
from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.jobs.values import TEXT, Lists

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = """
age = { low = 18, high = 100 }
site = { levels = ["Bern", "Basel", "Genf"] }
smoker = "boolean"
"""


class Describe(Kind):
    """Counts, shares, crosstabs, means and quantiles."""

    KIND = "describe"
    ESTIMATOR = TableDescriber
    RESULTS = results
    FORM = RowsForm(TableDescriber, "none", is_encoded=False, example=(_COLUMNS, ""))
    CHANGES = Changes(
        values={"crosstabs": Lists(Lists(TEXT, 2))},
        examples={"crosstabs": '[["site", "smoker"]]'},
        left_out=("columns", "calibration", "n_threads"),
    )

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the parameters, with the columns that the job declares."""
        assert data.columns is not None
        return {**given, "columns": {column.name: column for column in data.columns.declared}}

    def fit(self, model: TableDescriber, job: Job, progress: Progress | None) -> None:
        """Describe, from a stream."""
        model.fit(job.data.encoded(progress), **job.data.fit_options())

    def tables(self, model: TableDescriber, job: Job) -> dict[str, Table]:
        """Return the description."""
        return results.tables(model)

    def figures(self, model: TableDescriber, job: Job) -> dict[str, Axes]:
        """Return none."""
        return {}


KINDS = (Describe(),)
