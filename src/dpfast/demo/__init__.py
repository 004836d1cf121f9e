"""The demonstration: every family on data that come with the package or with scikit-learn, in a few seconds."""

from __future__ import annotations

from pathlib import Path

from dpfast.demo import policy_evaluation, regression, synthetic_control


def run(output: Path) -> None:
    """Fit, print and plot.

    Parameters
    ----------
    output : Path
        Folder for the plots, made if it is missing; there are plots where matplotlib is installed.
    """
    regression.show(output)
    synthetic_control.show(output)
    policy_evaluation.show(output)
