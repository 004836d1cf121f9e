"""Guarantees and calibrations, all of them functions of public numbers."""

from dpfast._lazy import lazy
from dpfast.privacy.block_moments import (
    BlockBounds,
    block_moment_mu,
    block_moment_scales,
    person_moment_mu,
    person_moment_scales,
)
from dpfast.privacy.composition import Composition, keeps_to, parts_of, share_of_mu
from dpfast.privacy.donors import (
    DonorNoise,
    DonorObjectiveNoise,
    donor_curvature,
    donor_gradient,
    donor_objective_noise,
    output_noise,
    weight_sensitivity,
)
from dpfast.privacy.gaussian import (
    classic_gaussian_scale,
    compose_mu,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_scale,
    least_noise_split,
    scale_for_mu,
    split_mu,
)
from dpfast.privacy.guarantee import (
    Adjacency,
    Calibration,
    LargeDeltaWarning,
    Privacy,
    Unit,
    UnsoundCalibrationWarning,
    UtilityWarning,
)
from dpfast.privacy.moment_scales import MomentScales, moment_mu, moment_scales
from dpfast.privacy.objective import ObjectiveNoise, meets_its_claim, objective_delta, objective_noise, objective_scale
from dpfast.privacy.picks import picks_delta, picks_range, split_with_picks
from dpfast.privacy.pure import (
    exponential_mechanism_coefficient,
    l2_laplace_coordinate_quantile,
    l2_laplace_expected_norm,
    l2_laplace_norm_quantile,
    l2_laplace_scale,
    laplace_scale,
    range_mu,
    range_of_mu,
)
from dpfast.privacy.sensitivity import (
    padded_bound,
    padded_squared_block_bounds,
    padded_squared_bound,
    sum_sensitivity,
    xx_sensitivity,
    xy_sensitivity,
)
from dpfast.privacy.smooth_gaussian import (
    SmoothGaussian,
    best_beta,
    smooth_gaussian,
    smooth_gaussian_delta,
)
from dpfast.privacy.subsampling import subsampled_budget, subsampled_moment_delta, subsampled_moment_scales
from dpfast.privacy.support_noise import VoteNoise, loss_range, score_rate, vote_noise

__all__ = [
    "Adjacency",
    "BlockBounds",
    "Calibration",
    "Composition",
    "DonorNoise",
    "DonorObjectiveNoise",
    "LargeDeltaWarning",
    "MomentScales",
    "ObjectiveNoise",
    "Privacy",
    "SmoothGaussian",
    "Unit",
    "UnsoundCalibrationWarning",
    "UtilityWarning",
    "VoteNoise",
    "best_beta",
    "block_moment_mu",
    "block_moment_scales",
    "classic_gaussian_scale",
    "compose_mu",
    "donor_curvature",
    "donor_gradient",
    "donor_objective_noise",
    "exponential_mechanism_coefficient",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_scale",
    "keeps_to",
    "l2_laplace_coordinate_quantile",
    "l2_laplace_expected_norm",
    "l2_laplace_norm_quantile",
    "l2_laplace_scale",
    "laplace_scale",
    "least_noise_split",
    "loss_range",
    "meets_its_claim",
    "moment_mu",
    "moment_scales",
    "objective_delta",
    "objective_noise",
    "objective_scale",
    "output_noise",
    "padded_bound",
    "padded_squared_block_bounds",
    "padded_squared_bound",
    "parts_of",
    "person_moment_mu",
    "person_moment_scales",
    "picks_delta",
    "picks_range",
    "range_mu",
    "range_of_mu",
    "scale_for_mu",
    "score_rate",
    "share_of_mu",
    "smooth_gaussian",
    "smooth_gaussian_delta",
    "split_mu",
    "split_with_picks",
    "subsampled_budget",
    "subsampled_moment_delta",
    "subsampled_moment_scales",
    "sum_sensitivity",
    "vote_noise",
    "weight_sensitivity",
    "xx_sensitivity",
    "xy_sensitivity",
]

# Former names of one calibration's result.
OutputNoise = PrintedOutputNoise = DonorNoise
PrintedObjectiveNoise = DonorObjectiveNoise

# Names that were here before the ledger, plans and printed calibrations had folders of their own.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "BudgetExceeded": "dpfast.ledger",
        "Ledger": "dpfast.ledger",
        "Reservation": "dpfast.ledger",
        "Release": "dpfast.ledger",
        "Plan": "dpfast.estimator.plan",
        "primo_printed_delta": "dpfast.papers.primo",
        "primo_printed_sampled_scales": "dpfast.papers.primo",
        "primo_printed_scales": "dpfast.papers.primo",
        "printed_objective_noise": "dpfast.papers.synthetic_control",
        "printed_output_noise": "dpfast.papers.synthetic_control",
        "printed_objective_perturbation": "dpfast.papers.convex_erm",
        "printed_smooth_gaussian": "dpfast.papers.policy_evaluation",
    },
)
