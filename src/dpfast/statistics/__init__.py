"""Rows and trajectories to exact sums. The results are the data owner's: they are not private."""

from dpfast.io.states import StateEncoder
from dpfast.io.trajectories import Trajectories
from dpfast.statistics.accumulator import GramAccumulator, gram
from dpfast.statistics.gram import Gram, Grid, person_block_bounds, rounded_bound
from dpfast.statistics.influence import Influence, influence
from dpfast.statistics.local_sensitivity import SMOOTH_SENSITIVITY_ERROR, smooth_sensitivity, smooth_sensitivity_lsl
from dpfast.statistics.person_unit import PersonUnit
from dpfast.statistics.returns import (
    FirstVisitReturns,
    ReturnGrid,
    every_visit_returns,
    first_visit_returns,
    return_range,
)
from dpfast.statistics.rows import MOST_ROWS_IF_PRIVATE
from dpfast.statistics.sampled_gram import SampledGram, cross_moments, sampled_gram
from dpfast.statistics.visits import SufficientStatistics, sufficient_statistics
from dpfast.statistics.votes import LassoSelector, Selector, block_votes, check_selector

__all__ = [
    "MOST_ROWS_IF_PRIVATE",
    "SMOOTH_SENSITIVITY_ERROR",
    "FirstVisitReturns",
    "Gram",
    "GramAccumulator",
    "Grid",
    "Influence",
    "LassoSelector",
    "PersonUnit",
    "ReturnGrid",
    "SampledGram",
    "Selector",
    "StateEncoder",
    "SufficientStatistics",
    "Trajectories",
    "block_votes",
    "check_selector",
    "cross_moments",
    "every_visit_returns",
    "first_visit_returns",
    "gram",
    "influence",
    "person_block_bounds",
    "return_range",
    "rounded_bound",
    "sampled_gram",
    "smooth_sensitivity",
    "smooth_sensitivity_lsl",
    "sufficient_statistics",
]
