"""Convex empirical risk minimisation: noise in the objective."""

from dpfast.convex_erm.classifier import ObjectivePerturbationClassifier
from dpfast.convex_erm.estimator import objective_perturbation
from dpfast.convex_erm.regressor import ObjectivePerturbationRegressor

__all__ = ["ObjectivePerturbationClassifier", "ObjectivePerturbationRegressor", "objective_perturbation"]
