"""What is released of a mean: the exact sum of bounded rows, with noise for one of them.

Rows are clipped to the bound and rounded to a grid, after which none is longer than the bound rounded up to it. One
that is replaced by another moves the sum by their difference, which is no longer than twice that: attained by a row and
its negative. The number of rows is public.
"""

from __future__ import annotations

from dpfast.privacy import Privacy
from dpfast.releases.mechanism import Named, NoisySum
from dpfast.statistics import rounded_bound


def sum_of_rows(privacy: Privacy, bound: float, n_features: int) -> Named[NoisySum]:
    """Return noise for one row that is replaced by another."""
    return Named("sum of rows", NoisySum.calibrate(privacy, rounded_bound(bound, n_features), (n_features,)))
