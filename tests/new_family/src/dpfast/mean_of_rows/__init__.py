"""The mean of rows within a ball."""

from dpfast.mean_of_rows.estimator import MeanOfRows

__all__ = ["MeanOfRows"]
