"""Batch jobs of policy evaluation, from trajectories in long form."""

from __future__ import annotations

from dpfast.jobs.kinds import Kind
from dpfast.jobs.parameters import Changes
from dpfast.jobs.walks import WalksForm
from dpfast.policy_evaluation import results
from dpfast.policy_evaluation.estimator import PolicyEvaluation


class Evaluation(Kind):
    """The value of every state."""

    KIND = "policy_evaluation"
    ESTIMATOR = PolicyEvaluation
    RESULTS = results
    FORM = WalksForm()
    CHANGES = Changes(examples={"gamma": "0.9", "horizon": "20", "reward_range": "[0.0, 1.0]"})
    PEOPLE = "m"


KINDS = (Evaluation(),)
