"""Made-up regressions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpfast._arrays import FloatArray


def sparse_regression_rows(
    n: int, n_features: int, coefficients: Mapping[int, float], *, noise: float = 0.2, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Draw rows evenly from [-1, 1], and outcomes of few of their features with Gaussian noise about them."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1.0, 1.0, (n, n_features))
    return rows, rows[:, list(coefficients)] @ list(coefficients.values()) + noise * rng.normal(size=n)
