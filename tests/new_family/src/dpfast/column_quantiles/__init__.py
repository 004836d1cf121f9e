"""Quantiles of columns, picked among public candidates."""

from dpfast.column_quantiles.estimator import ColumnQuantiles

__all__ = ["ColumnQuantiles"]
