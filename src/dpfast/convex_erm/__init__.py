"""Convex empirical risk minimisation: noise in the objective."""

from dpfast.convex_erm.estimator import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.convex_erm.mechanism import objective_perturbation

__all__ = ["ObjectivePerturbationClassifier", "ObjectivePerturbationRegressor", "objective_perturbation"]
