"""Differentially private estimators with exact sums, exact noise and proved calibration.

Public names are imported when they are first used, so that importing dpfast loads nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfast.multi_outcome import MultiOutcomeRidge
    from dpfast.objective_perturbation import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
    from dpfast.policy_evaluation import PolicyEvaluation
    from dpfast.privacy import (
        BudgetExceeded,
        Ledger,
        Plan,
        Privacy,
        Release,
        UnsoundCalibrationWarning,
        UtilityWarning,
    )
    from dpfast.solvers import Box, L1Ball, L2Ball
    from dpfast.sparse_regression import SparseRegression
    from dpfast.statistics import Trajectories
    from dpfast.synthetic_control import SyntheticControl

__version__ = "0.1.0"

_HOMES = {
    "MultiOutcomeRidge": "dpfast.multi_outcome",
    "Box": "dpfast.solvers",
    "BudgetExceeded": "dpfast.privacy",
    "L1Ball": "dpfast.solvers",
    "L2Ball": "dpfast.solvers",
    "Ledger": "dpfast.privacy",
    "ObjectivePerturbationClassifier": "dpfast.objective_perturbation",
    "ObjectivePerturbationRegressor": "dpfast.objective_perturbation",
    "Plan": "dpfast.privacy",
    "PolicyEvaluation": "dpfast.policy_evaluation",
    "Privacy": "dpfast.privacy",
    "Release": "dpfast.privacy",
    "SparseRegression": "dpfast.sparse_regression",
    "SyntheticControl": "dpfast.synthetic_control",
    "Trajectories": "dpfast.statistics",
    "UnsoundCalibrationWarning": "dpfast.privacy",
    "UtilityWarning": "dpfast.privacy",
}
_FOLDERS = ("audit", "datasets", "effects", "io", "noise", "privacy", "releases", "solvers", "statistics", "theory")

__all__ = [
    "Box",
    "BudgetExceeded",
    "L1Ball",
    "L2Ball",
    "Ledger",
    "MultiOutcomeRidge",
    "ObjectivePerturbationClassifier",
    "ObjectivePerturbationRegressor",
    "Plan",
    "PolicyEvaluation",
    "Privacy",
    "Release",
    "SparseRegression",
    "SyntheticControl",
    "Trajectories",
    "UnsoundCalibrationWarning",
    "UtilityWarning",
]


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return import_module(f"dpfast.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'dpfast' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FOLDERS, *_HOMES])
