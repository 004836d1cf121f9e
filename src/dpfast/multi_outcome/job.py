"""Batch jobs of multi-outcome regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfast.jobs.kinds import Kind
from dpfast.jobs.parameters import Changes
from dpfast.jobs.rows import Rows, RowsForm
from dpfast.multi_outcome import results
from dpfast.multi_outcome.estimator import MultiOutcomeRidge

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
        parameters = super().parameters(given, data)
        if data.columns is not None and "n_subsample" in given:
            raise ValueError(
                "[estimator] n_subsample needs a pair of .npy files, as [input] x and y: no sample is drawn of a stream"
            )
        return parameters


KINDS = (MultiOutcome(),)
