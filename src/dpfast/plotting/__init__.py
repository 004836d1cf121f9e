"""Pictures of released and public numbers; matplotlib is needed only here.

Every one takes `ax`, `title`, `label` and `unit` and returns the axes. Without `ax` it has a figure of its own, made
without pyplot; drawn on the same axes again, with another `label`, a second series stands beside the first. The styles
of `series` distinguish the series, also in other pictures. Their colours are for people who see red, green or blue
otherwise. Markers and styles of lines are for readers of grey.
"""

from dpfast.plotting.canvas import saved, series
from dpfast.plotting.estimates import coefficients
from dpfast.plotting.paths import placebo_distribution, synthetic_control_gaps, synthetic_control_paths
from dpfast.plotting.public_rows import calibration, roc
from dpfast.plotting.spending import budget_spent, plan_curves, score_curves
from dpfast.plotting.states import value_function

__all__ = [
    "budget_spent",
    "calibration",
    "coefficients",
    "placebo_distribution",
    "plan_curves",
    "roc",
    "saved",
    "score_curves",
    "series",
    "synthetic_control_gaps",
    "synthetic_control_paths",
    "value_function",
]
