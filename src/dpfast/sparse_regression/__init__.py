"""Sparse regression: a support is selected, then fitted."""

from dpfast.sparse_regression.estimator import SparseRegression

__all__ = ["SparseRegression"]
