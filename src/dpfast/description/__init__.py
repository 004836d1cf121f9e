"""Describe a table before it is modelled: counts, shares, crosstabs, means and quantiles, with limits."""

from dpfast.description.description import Description, describe

__all__ = ["Description", "describe"]
