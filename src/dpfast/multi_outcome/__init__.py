"""Multi-outcome regression: one release of the moments of features and outcomes."""

from dpfast.multi_outcome.estimator import MultiOutcomeRidge

__all__ = ["MultiOutcomeRidge"]
