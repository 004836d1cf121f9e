"""The demonstration's line of quantiles: ages that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from dpfast.column_quantiles.estimator import ColumnQuantiles

from dpfast.demo import Comparison, Line


def lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield what fits give, and the fits."""
    ages = np.random.default_rng(0).uniform(18.0, 90.0, (1_000, 1))

    def fit(epsilon: float, delta: float) -> ColumnQuantiles:
        return ColumnQuantiles(epsilon, delta, candidates=range(101)).fit(ages)

    yield Comparison("made-up ages", len(ages), "median", fit, lambda model: float(model.quantiles_[0])).line(1.0, 0.0)
