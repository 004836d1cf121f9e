"""Describe a table before it is modelled: counts, shares, crosstabs, means and quantiles, with limits."""

from dpfast.description.describer import describe
from dpfast.description.description import Description

__all__ = ["Description", "describe"]
