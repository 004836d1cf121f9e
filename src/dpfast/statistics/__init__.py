"""Rows to exact sums. What these return is the data owner's: it is not private."""

from dpfast.statistics.accumulator import GramAccumulator, gram
from dpfast.statistics.gram import Gram, Grid, person_block_bounds, rounded_bound
from dpfast.statistics.influence import Influence, influence
from dpfast.statistics.people import PersonUnit

__all__ = [
    "Gram",
    "GramAccumulator",
    "Grid",
    "Influence",
    "PersonUnit",
    "gram",
    "influence",
    "person_block_bounds",
    "rounded_bound",
]
