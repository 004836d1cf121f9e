"""Output of a batch job of sparse regression: the features chosen, and the coefficients on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfast.estimator.linear import Names
from dpfast.sparse_regression.estimator import SparseRegression

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTE = (
    "The choice of features is noisy too: with few people, a feature that is not in the support may be as good as one "
    "that is. All coefficients outside of it are 0."
)


def tables(model: SparseRegression, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the support, and a row for each outcome and feature that was chosen."""
    return {
        "support": {"number": model.support_.tolist(), "feature": [features[j] for j in model.support_]},
        "coefficients": model._estimates(Names(features, outcomes)).written(),
    }


def figures(model: SparseRegression, features: Sequence[str], outcomes: Sequence[str]) -> dict[str, Axes]:
    """Draw the coefficients on the support."""
    return {"coefficients": model.plot(feature_names=features, outcome_names=outcomes)}


def facts(model: SparseRegression) -> list[tuple[str, str]]:
    """Say how many features were chosen."""
    return [("features chosen", f"{len(model.support_)} of {model.n_features_in_}")]
