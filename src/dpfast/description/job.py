"""Batch jobs that describe a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpfast.description.description import TableDescriber
from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import TEXT, Overrides, lists
from dpfast.jobs.rows import Rows, RowsInput

_COLUMNS = """
age = { low = 18, high = 100 }
site = { levels = ["Bern", "Basel", "Genf"] }
smoker = "boolean"
"""


class Describe(JobType):
    """Counts, shares, crosstabs, means and quantiles."""

    JOB_TYPE = "describe"
    ESTIMATOR = TableDescriber
    INPUT_TYPE = RowsInput(TableDescriber, "none", is_encoded=False, example=(_COLUMNS, ""))
    OVERRIDES = Overrides(
        values={"crosstabs": lists(lists(TEXT, 2))},
        examples={"crosstabs": '[["site", "smoker"]]'},
        left_out=("columns", "calibration", "n_threads"),
    )
    NOTE = (
        "low and high are 95% limits for the population that rows are drawn from, noise and sampling in them. Shares "
        "are of all rows, means and quantiles of those that have the value, clipped to the declared limits."
    )

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the parameters, with the columns that the job declares."""
        assert data.columns is not None
        columns = {column.name: column for column in data.columns.declared}
        return {**replace(data, box=None).parameters(given), "columns": columns}

    def tables(self, model: TableDescriber, *_: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return a row for each statistic of each column."""
        return {"description": model.description_._estimates().written()}

    def facts(self, model: TableDescriber) -> list[tuple[str, str]]:
        """Describe the result."""
        return [("bins of a number", str(model.n_bins))]


JOB_TYPES = (Describe(),)
