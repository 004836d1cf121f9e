"""Rows to exact sums. What these return is the data owner's: it is not private."""

from dpfast.statistics.accumulator import GramAccumulator, gram
from dpfast.statistics.gram import Gram, Grid, person_block_bounds, rounded_bound
from dpfast.statistics.people import PersonUnit
from dpfast.statistics.votes import LassoSelector, Selector, block_votes, check_selector

__all__ = [
    "Gram",
    "GramAccumulator",
    "Grid",
    "LassoSelector",
    "PersonUnit",
    "Selector",
    "block_votes",
    "check_selector",
    "gram",
    "person_block_bounds",
    "rounded_bound",
]
