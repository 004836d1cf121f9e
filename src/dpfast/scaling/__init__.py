"""Where numbers lie, privately: bounds on rows, means and standard deviations of features."""

from dpfast.scaling.estimator import PrivateBounds, PrivateStandardScaler, private_bounds

__all__ = ["PrivateBounds", "PrivateStandardScaler", "private_bounds"]
