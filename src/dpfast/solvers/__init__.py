"""Mathematics on released or public values; knows nothing of privacy."""

from dpfast.solvers.constrained import (
    FactorMatrix,
    Minimiser,
    minimise_quadratic,
    quadratic_over_l1_ball,
    smallest_quadratic_tolerance,
)
from dpfast.solvers.constraints import Box, L1Ball, L2Ball, project_onto_simplex
from dpfast.solvers.damped import (
    DenoisedMoments,
    components_beyond,
    damped_solve,
    hidden_reach,
    noise_edge,
    noise_floor,
)
from dpfast.solvers.penalties import ElasticNet, Lasso, Proximable, Ridge
from dpfast.solvers.projection import LabelFactor, project_cross_moments
from dpfast.solvers.ridge import (
    MomentNoise,
    NoisyMoments,
    RidgeSolution,
    automatic_ridge,
    positive_semidefinite,
    ridge_from_moments,
    ridge_of_each_outcome,
)
from dpfast.solvers.singular import ridge_from_rows
from dpfast.solvers.sphere import quadratic_over_ball, quadratic_over_sphere

__all__ = [
    "Box",
    "DenoisedMoments",
    "ElasticNet",
    "FactorMatrix",
    "L1Ball",
    "L2Ball",
    "LabelFactor",
    "Lasso",
    "Minimiser",
    "MomentNoise",
    "NoisyMoments",
    "Proximable",
    "Ridge",
    "RidgeSolution",
    "automatic_ridge",
    "components_beyond",
    "damped_solve",
    "minimise_quadratic",
    "hidden_reach",
    "noise_edge",
    "noise_floor",
    "positive_semidefinite",
    "project_cross_moments",
    "project_onto_simplex",
    "quadratic_over_ball",
    "quadratic_over_l1_ball",
    "quadratic_over_sphere",
    "ridge_from_moments",
    "ridge_from_rows",
    "ridge_of_each_outcome",
    "smallest_quadratic_tolerance",
]
