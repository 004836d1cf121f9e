"""Batch jobs of policy evaluation, from trajectories in long form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.parameters import Changes
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.jobs.walks import Blocks, WalksForm
from dpfast.policy_evaluation import results
from dpfast.policy_evaluation.estimator import PolicyEvaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Evaluation(Kind):
    """The value of every state."""

    KIND = "policy_evaluation"
    ESTIMATOR = PolicyEvaluation
    RESULTS = results
    FORM = WalksForm()
    CHANGES = Changes(examples={"gamma": "0.9", "horizon": "20", "reward_range": "[0.0, 1.0]"})
    PEOPLE = "m"

    def fit(self, model: PolicyEvaluation, job: Job, progress: Progress | None) -> None:
        """Fit, from blocks of trajectories if the files are sorted and can be read in blocks."""
        model.fit(Blocks(job.data, progress))

    def tables(self, model: PolicyEvaluation, job: Job) -> dict[str, Table]:
        """Return values of states."""
        return results.tables(model, job.data.states)

    def figures(self, model: PolicyEvaluation, job: Job) -> dict[str, Axes]:
        """Return pictures of them."""
        return results.figures(model, job.data.states)


KINDS = (Evaluation(),)
