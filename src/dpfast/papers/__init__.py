"""The papers' error bounds as functions of public numbers: as printed, and corrected where they are off."""

from dpfast.papers import convex_erm, policy_evaluation, sparse_regression, synthetic_control
from dpfast.papers.bound import Bound

__all__ = ["Bound", "convex_erm", "policy_evaluation", "sparse_regression", "synthetic_control"]
