"""The choice of an estimator within a budget."""

from dpfast.selection.selection import Selection, select

__all__ = ["Selection", "select"]
