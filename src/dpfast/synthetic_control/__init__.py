"""Private synthetic control: what would have happened to a target, from donors whose records stay private."""

from dpfast.synthetic_control.estimator import SyntheticControl

__all__ = ["SyntheticControl"]
