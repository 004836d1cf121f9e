"""Output of a job that describes a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpfast.description.describer import TableDescriber

NOTE = (
    "low and high are 95% limits for the population that rows are drawn from, noise and sampling in them. Shares are "
    "of all rows, means and quantiles of those that have the value, clipped to the declared limits."
)


def tables(model: TableDescriber, *_: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return a row for each statistic of each column."""
    return {"description": model.description_._estimates().written()}


def facts(model: TableDescriber) -> list[tuple[str, str]]:
    """Describe the result."""
    return [("bins of a number", str(model.n_bins))]
