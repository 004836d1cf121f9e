"""Mathematics on released or public values; knows nothing of privacy."""

from dpfast.solvers.best_subset import SupportScores, score_error
from dpfast.solvers.callable_loss import CallableLoss, CallableLossBounds, CallableLossSum
from dpfast.solvers.certificates import Minimiser
from dpfast.solvers.constrained import (
    FactorMatrix,
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
from dpfast.solvers.least_squares import LeastSquares, LeastSquaresBounds
from dpfast.solvers.losses import (
    GeneralisedLinearLoss,
    LogisticLoss,
    SmoothedHinge,
    SmoothedHuber,
    SquaredLoss,
)
from dpfast.solvers.penalties import ElasticNet, Lasso, Proximable, Ridge
from dpfast.solvers.projection import LabelFactor, project_cross_moments
from dpfast.solvers.proximal_point import minimise_convex
from dpfast.solvers.ridge import (
    MomentNoise,
    NoisyMoments,
    RidgeSolution,
    Shrinkage,
    automatic_diagonal_ridge,
    automatic_ridge,
    positive_semidefinite,
    ridge_from_moments,
    ridge_of_each_outcome,
)
from dpfast.solvers.ridge_from_rows import ridge_from_rows
from dpfast.solvers.smooth_convex import (
    GeneralisedLinear,
    GeneralisedLinearBounds,
    SmoothConvexFunction,
    SmoothFunction,
    minimise_smooth,
    smallest_smooth_tolerance,
)
from dpfast.solvers.sphere import quadratic_over_ball, quadratic_over_sphere

__all__ = [
    "Box",
    "CallableLoss",
    "CallableLossBounds",
    "CallableLossSum",
    "DenoisedMoments",
    "ElasticNet",
    "FactorMatrix",
    "GeneralisedLinear",
    "GeneralisedLinearBounds",
    "GeneralisedLinearLoss",
    "L1Ball",
    "L2Ball",
    "LabelFactor",
    "Lasso",
    "LeastSquares",
    "LeastSquaresBounds",
    "LogisticLoss",
    "Minimiser",
    "MomentNoise",
    "NoisyMoments",
    "Proximable",
    "Ridge",
    "RidgeSolution",
    "Shrinkage",
    "SmoothConvexFunction",
    "SmoothFunction",
    "SmoothedHinge",
    "SmoothedHuber",
    "SquaredLoss",
    "SupportScores",
    "automatic_diagonal_ridge",
    "automatic_ridge",
    "components_beyond",
    "damped_solve",
    "hidden_reach",
    "minimise_convex",
    "minimise_quadratic",
    "minimise_smooth",
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
    "score_error",
    "smallest_quadratic_tolerance",
    "smallest_smooth_tolerance",
]
