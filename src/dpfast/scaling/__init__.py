"""Where numbers lie, privately: bounds on rows, means and standard deviations of features."""

from dpfast.scaling.bounds import PrivateBounds, private_bounds
from dpfast.scaling.estimator import PrivateStandardScaler

__all__ = ["PrivateBounds", "PrivateStandardScaler", "private_bounds"]
