"""Batch jobs of multi-outcome regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfast.estimator.linear import Names
from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import Overrides
from dpfast.jobs.rows import RowsInput
from dpfast.multi_outcome.estimator import MultiOutcomeRidge
from dpfast.multi_outcome.reports import LEVEL

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


class MultiOutcome(JobType):
    """One release of moments for all outcomes."""

    JOB_TYPE = "multi_outcome_ridge"
    ESTIMATOR = MultiOutcomeRidge
    INPUT_TYPE = RowsInput(MultiOutcomeRidge, example=(_FEATURES, _OUTCOMES))
    # Rows are streamed, which neither is for.
    OVERRIDES = Overrides(left_out=("block_bounds", "n_subsample"), examples={"bound_y": "30.0"})
    NOTE = (
        "std_privacy is what the privacy noise alone does to a coefficient; it says nothing of sampling error. "
        f"estimate, std_error, low and high ({LEVEL:.0%} limits) and p_value are those of MultiOutcomeRidge.summary(), "
        "for the target named above: where the residual variance was not released, they leave sampling error out too, "
        "and there is no p_value."
    )

    def tables(
        self, model: MultiOutcomeRidge, features: Sequence[str], outcomes: Sequence[str]
    ) -> dict[str, Mapping[str, Any]]:
        """Return a row for each outcome and feature, and for its intercept, where there is one."""
        return {"coefficients": model._estimates(Names(features, outcomes)).written()}

    def figures(self, model: MultiOutcomeRidge, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Axes]:
        """Draw the estimates and their limits."""
        return {"coefficients": model.plot(level=LEVEL, feature_names=features, outcome_names=outcomes)}

    def facts(self, model: MultiOutcomeRidge) -> list[tuple[str, str]]:
        """Say what was chosen, and how large the error is as the release tells it."""
        stated = [("penalty used", repr(float(model.ridge_))), ("residual steps", str(model.n_steps_))]
        if model.residual_std_ is not None:
            stated.append(("residual standard deviations", ", ".join(f"{one:.5g}" for one in model.residual_std_)))
        stated.append(("limits are for the target", model._usual_target(model.residual_std_)))
        stated.append(("error as released", f"about {model._expected_error:.2g} of the signal is lost to noise"))
        return stated


JOB_TYPES = (MultiOutcome(),)
