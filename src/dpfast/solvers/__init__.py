"""Mathematics on released or public values; knows nothing of privacy."""

from dpfast._lazy import lazy
from dpfast.solvers.constraints import Box, L1Ball, L2Ball
from dpfast.solvers.losses import (
    CallableLoss,
    CappedLogisticLoss,
    GeneralisedLinearLoss,
    LogisticLoss,
    PoissonLoss,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)
from dpfast.solvers.penalties import ElasticNet, Lasso, Proximable, Ridge
from dpfast.solvers.sphere import quadratic_over_ball, quadratic_over_sphere

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

# All other names here are internal to the package.
_OTHERS = {
    "best_subset": "SupportScores score_error",
    "certificates": "Minimiser",
    "constraints": "project_onto_simplex",
    "damped": "DenoisedMoments components_beyond damped_solve hidden_reach noise_edge noise_floor",
    "inference": "Evidence Posterior Textbook evidence_of_moments",
    "fieller": "NoisyRatio",
    "loss_sums": "CallableLossSum GeneralisedLinear LeastSquares LossBounds",
    "projection": "LabelFactor project_cross_moments",
    "proximal_point": "minimise_convex",
    "quadratic": "FactorMatrix minimise_quadratic quadratic_over_l1_ball smallest_quadratic_tolerance",
    "ridge": "MomentNoise NoisyMoments RidgeSolution Shrinkage automatic_diagonal_ridge automatic_ridge "
    "positive_semidefinite ridge_from_moments ridge_from_rows ridge_of_each_outcome",
    "smooth_convex": "SmoothConvexFunction minimise_smooth smallest_smooth_tolerance",
}
__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _OTHERS.items() for name in names.split()}
)
