"""What is promised: calibrations, which are functions of public numbers, and the records of what was spent."""

from dpfast.privacy.block_moments import (
    BlockBounds,
    block_moment_mu,
    block_moment_scales,
    person_moment_mu,
    person_moment_scales,
)
from dpfast.privacy.budget import BudgetExceeded, Ledger, Reservation
from dpfast.privacy.composition import Composition, share_of_mu
from dpfast.privacy.donors import (
    DonorObjectiveNoise,
    OutputNoise,
    donor_curvature,
    donor_gradient,
    donor_objective_noise,
    output_noise,
    weight_sensitivity,
)
from dpfast.privacy.donors_printed import (
    PrintedObjectiveNoise,
    PrintedOutputNoise,
    printed_objective_noise,
    printed_output_noise,
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
from dpfast.privacy.guarantee import Adjacency, Privacy
from dpfast.privacy.laplace import (
    exponential_mechanism_coefficient,
    l2_laplace_coordinate_quantile,
    l2_laplace_expected_norm,
    l2_laplace_norm_quantile,
    l2_laplace_scale,
    laplace_scale,
)
from dpfast.privacy.moments import MomentScales, moment_mu, moment_scales
from dpfast.privacy.objective import ObjectiveNoise, objective_delta, objective_noise, objective_scale
from dpfast.privacy.objective_printed import meets_its_claim, printed_objective_perturbation
from dpfast.privacy.planning import Plan
from dpfast.privacy.primo import primo_printed_delta, primo_printed_sampled_scales, primo_printed_scales
from dpfast.privacy.release import Calibration, Release, Unit, UnsoundCalibrationWarning, UtilityWarning
from dpfast.privacy.sensitivity import (
    padded_bound,
    padded_squared_block_bounds,
    padded_squared_bound,
    sum_sensitivity,
    xx_sensitivity,
    xy_sensitivity,
)
from dpfast.privacy.smooth import (
    SmoothGaussian,
    best_beta,
    printed_smooth_gaussian,
    smooth_gaussian,
    smooth_gaussian_delta,
)
from dpfast.privacy.subsampled_moments import subsampled_moment_delta, subsampled_moment_scales
from dpfast.privacy.subsampling import subsampled_budget
from dpfast.privacy.supports import VoteNoise, loss_range, score_rate, vote_noise

__all__ = [
    "Adjacency",
    "BlockBounds",
    "BudgetExceeded",
    "Calibration",
    "Composition",
    "DonorObjectiveNoise",
    "Ledger",
    "MomentScales",
    "ObjectiveNoise",
    "OutputNoise",
    "Plan",
    "PrintedObjectiveNoise",
    "PrintedOutputNoise",
    "Privacy",
    "Release",
    "Reservation",
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
    "person_moment_mu",
    "person_moment_scales",
    "primo_printed_delta",
    "primo_printed_sampled_scales",
    "primo_printed_scales",
    "printed_objective_noise",
    "printed_objective_perturbation",
    "printed_output_noise",
    "printed_smooth_gaussian",
    "scale_for_mu",
    "score_rate",
    "share_of_mu",
    "smooth_gaussian",
    "smooth_gaussian_delta",
    "split_mu",
    "subsampled_budget",
    "subsampled_moment_delta",
    "subsampled_moment_scales",
    "sum_sensitivity",
    "vote_noise",
    "weight_sensitivity",
    "xx_sensitivity",
    "xy_sensitivity",
]
