"""The demonstration, on data that come with the package, with scikit-learn or with Gymnasium, in a few seconds."""

from __future__ import annotations

from pathlib import Path

from dpfast.demo import counterfactuals, games, regression


def run(output: Path) -> None:
    """Fit, print and plot; there are plots, in a folder that is made, where matplotlib is installed."""
    for part in (regression, counterfactuals, games):
        part.show(output)
