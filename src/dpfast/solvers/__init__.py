"""Mathematics on released or public values; knows nothing of privacy."""

from dpfast.solvers.projection import LabelFactor, project_cross_moments
from dpfast.solvers.ridge import (
    MomentNoise,
    NoisyMoments,
    RidgeSolution,
    Shrinkage,
    automatic_ridge,
    positive_semidefinite,
    ridge_from_moments,
    ridge_of_each_outcome,
)
from dpfast.solvers.sphere import quadratic_over_ball, quadratic_over_sphere

__all__ = [
    "LabelFactor",
    "MomentNoise",
    "NoisyMoments",
    "RidgeSolution",
    "Shrinkage",
    "automatic_ridge",
    "positive_semidefinite",
    "project_cross_moments",
    "quadratic_over_ball",
    "quadratic_over_sphere",
    "ridge_from_moments",
    "ridge_of_each_outcome",
]
