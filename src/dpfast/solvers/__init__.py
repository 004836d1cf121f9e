"""Mathematics on released or public values; knows nothing of privacy."""

from dpfast.registry import lazy, stub_homes

# All other names of the stub are internal to the package.
__all__ = [
    "Box",
    "CallableLoss",
    "CappedLogisticLoss",
    "ElasticNet",
    "GeneralisedLinearLoss",
    "L1Ball",
    "L2Ball",
    "Lasso",
    "LogisticLoss",
    "PoissonLoss",
    "Proximable",
    "Ridge",
    "SmoothedHinge",
    "SmoothedHuber",
    "SmoothedQuantile",
    "SquaredLoss",
    "quadratic_over_ball",
    "quadratic_over_sphere",
]

__getattr__, __dir__ = lazy(__name__, stub_homes(__file__))
