"""Private synthetic control: the counterfactual path of a target, from donors with private records."""

from dpfast.synthetic_control.estimator import SyntheticControl

__all__ = ["SyntheticControl"]
