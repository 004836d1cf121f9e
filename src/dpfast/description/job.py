"""Batch jobs that describe a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfast.description import results
from dpfast.description.describer import TableDescriber
from dpfast.jobs.kinds import Kind
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm
from dpfast.jobs.values import TEXT, Lists

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


KINDS = (Describe(),)
