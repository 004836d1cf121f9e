"""Output of a job on means and standard deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpfast.scaling.estimator import PrivateStandardScaler

NOTE = "No variance is below what the known noise may make of none."


def tables(model: PrivateStandardScaler, features: Sequence[str], _: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return a row for each feature."""
    return {"scales": model._estimates(features).written()}


def facts(model: PrivateStandardScaler) -> list[tuple[str, str]]:
    """Describe the result."""
    return [("features", str(model.n_features_in_))]
