"""The demonstration's line of a mean: rows that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from dpfast.mean_of_rows.estimator import MeanOfRows

from dpfast.demo import Comparison, Line


def lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield what fits give, and the fits."""
    rows = np.random.default_rng(0).uniform(0.0, 1.0, (1_000, 1))

    def fit(epsilon: float, delta: float) -> MeanOfRows:
        return MeanOfRows(epsilon, delta, bound=1.0).fit(rows)

    yield Comparison("made-up rows", len(rows), "mean", fit, lambda model: float(model.mean_[0])).line(1.0, 1e-6)
