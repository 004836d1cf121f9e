"""Shared parts of all estimators: parameters and checks, plans, files, names of features."""

from dpfast.estimator.persistence import complete
from dpfast.estimator.plan import Plan

__all__ = ["Plan", "complete"]
