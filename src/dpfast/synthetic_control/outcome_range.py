"""The range of donors' outcomes, found within the budget: noisy counts of donors by their largest and least outcome.

Every donor counts once in each of the two histograms. Missing entries are skipped; a donor without any entry counts at
0. The result is used like a declared range. About 1% of the donors are beyond it at either end.
"""

from __future__ import annotations

import numpy as np

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.size_counts import NoisySizes
from dpfast.statistics.sizes import Sizes, size_counts

_SIZES = Sizes(entries=True)


def range_counts(donors: FloatArray | io.Partitions) -> FixedPoint:
    """Count donors by their largest outcome, and by their least."""
    total: FixedPoint = io.sum_over(donors, _range_counts)
    return total


def _range_counts(donors: FloatArray) -> FixedPoint:
    extremes = np.column_stack([np.fmax.reduce(donors, axis=1), np.fmin.reduce(donors, axis=1)])
    return size_counts(io.open_table(np.nan_to_num(extremes, nan=0.0)), _SIZES)


def range_noise(privacy: Privacy, *, is_gaussian: bool) -> tuple[NoisySizes, Privacy]:
    """Calibrate for a share of the budget; return it with the remaining budget."""
    return NoisySizes.within(privacy, is_gaussian, _SIZES, 2)


def range_found(
    mechanism: NoisySizes, release: Release, n_donors: int | None, *, nonnegative: bool
) -> tuple[float, float, bool]:
    """Return the ends of the range, and whether both are certain; the number of donors where it is public."""
    found = mechanism.found(release, n_donors, nonnegative=nonnegative)
    box = found.usable_box
    assert box is not None
    lows, highs = box
    if not found.are_certain:
        return float(lows.min()), float(highs.max()), False
    # Noise may have the largest outcomes below the least ones.
    low, high = min(lows[1], highs[0]), max(lows[1], highs[0])
    return float(low), float(max(high, low + highs[1] - lows[1])), True
