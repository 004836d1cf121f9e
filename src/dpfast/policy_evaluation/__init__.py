"""Policy evaluation from the first-visit returns of trajectories."""

from dpfast.policy_evaluation.estimator import PolicyEvaluation

__all__ = ["PolicyEvaluation"]
