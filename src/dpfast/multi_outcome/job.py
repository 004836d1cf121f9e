"""Batch jobs of multi-outcome regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm, bounded_by_limits
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.multi_outcome import results
from dpfast.multi_outcome.estimator import MultiOutcomeRidge

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEATURES = """
age = { low = 18, high = 100, missing = 50 }
smoker = { kind = "boolean", missing = false }
site = { levels = ["Bern", "Basel", "Genf"], drop_first = true, undeclared = "zeros" }
"""
_OUTCOMES = """
days = "number"
readmitted = "boolean"
"""


class MultiOutcome(Kind):
    """One release of moments for all outcomes."""

    KIND = "multi_outcome_ridge"
    ESTIMATOR = MultiOutcomeRidge
    RESULTS = results
    FORM = RowsForm(MultiOutcomeRidge, example=(_FEATURES, _OUTCOMES))
    # People with several rows are streamed, which block_bounds are not for.
    CHANGES = Changes(
        left_out=("block_bounds",),
        examples={"bound_y": "30.0"},
    )

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; rows are bounded by their limits too."""
        parameters = bounded_by_limits(given, data)
        if data.columns is not None and "n_subsample" in given:
            raise ValueError(
                "[estimator] n_subsample needs a pair of .npy files, as [input] x and y: no sample is drawn of a stream"
            )
        return parameters

    def fit(self, model: MultiOutcomeRidge, job: Job, progress: Progress | None) -> None:
        """Fit, from a stream of named columns or from arrays."""
        data: Rows = job.data
        if data.columns is None:
            features, outcomes = data.files
            model.fit(features, outcomes)
        else:
            model.fit(data.encoded(progress), None, **data.fit_options())

    def tables(self, model: MultiOutcomeRidge, job: Job) -> dict[str, Table]:
        """Return coefficients, their errors and limits."""
        return results.tables(model, job.data.feature_names, job.data.outcome_names)

    def figures(self, model: MultiOutcomeRidge, job: Job) -> dict[str, Axes]:
        """Return pictures of them."""
        return results.figures(model, job.data.feature_names, job.data.outcome_names)


KINDS = (MultiOutcome(),)
