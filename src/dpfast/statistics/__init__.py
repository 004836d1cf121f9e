"""Rows to exact sums. What these return is the data owner's: it is not private."""

from dpfast.statistics.accumulator import GramAccumulator, gram
from dpfast.statistics.gram import Gram, Grid, person_block_bounds, rounded_bound
from dpfast.statistics.people import PersonUnit
from dpfast.statistics.sampled import SampledGram, cross_moments, sampled_gram

__all__ = [
    "Gram",
    "GramAccumulator",
    "Grid",
    "PersonUnit",
    "SampledGram",
    "cross_moments",
    "gram",
    "person_block_bounds",
    "rounded_bound",
    "sampled_gram",
]
