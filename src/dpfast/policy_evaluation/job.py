"""Batch jobs of policy evaluation, from trajectories in long form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfast.jobs.inputs import TrajectoriesInput
from dpfast.jobs.job_types import JobType
from dpfast.jobs.parameters import Overrides
from dpfast.policy_evaluation.estimator import PolicyEvaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVEL = 0.95


class Evaluation(JobType):
    """The value of every state."""

    JOB_TYPE = "policy_evaluation"
    ESTIMATOR = PolicyEvaluation
    INPUT_TYPE = TrajectoriesInput()
    OVERRIDES = Overrides(examples={"gamma": "0.9", "horizon": "20", "reward_range": "[0.0, 1.0]"})
    PEOPLE = "m"
    NOTE = (
        f"std_error is such that low and high, {_LEVEL:.0%} limits, include noise, sampling, shrinkage, and the "
        "largest possible bias by truncated tails and returns beyond the range. Where sums were not released in "
        f"stages, std_privacy takes its place, and low_privacy and high_privacy are {_LEVEL:.0%} limits for the "
        "privacy noise alone (first order): they do not include sampling error."
    )

    def tables(self, model: PolicyEvaluation, states: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
        """Return a row for each state, and the coefficients where states have features."""
        values = model._estimates(states, level=_LEVEL).written()
        if model.features is None:
            return {"values": values}
        return {"values": values, "coefficients": {"feature": np.arange(len(model.coef_)), "estimate": model.coef_}}

    def figures(self, model: PolicyEvaluation, states: Sequence[Any]) -> dict[str, Axes]:
        """Draw the values: of a few states by name, of many over their numbers."""
        return {"values": model.plot(state_names=states)}

    def facts(self, model: PolicyEvaluation) -> list[tuple[str, str]]:
        """Describe the result, and the noise relative to the spread of values."""
        stated = [("penalty used", repr(float(model.ridge_))), ("offset", f"{model.offset_:.5g}")]
        if hasattr(model, "return_range_"):
            stated.append(("range of returns that was found", "{:.5g} to {:.5g}".format(*model.return_range_)))
        if hasattr(model, "value_std_"):
            noise = float(np.sqrt(np.mean(np.square(model.value_std_))))
            stated.append(("error as released", f"{noise:.2g} in root mean square over states"))
        if getattr(model, "caution_", ""):
            stated.append(("caution", model.caution_))
        return stated


JOB_TYPES = (Evaluation(),)
