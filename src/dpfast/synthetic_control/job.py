"""Batch jobs of synthetic control, from wide panels and long ones."""

from __future__ import annotations

from dpfast.jobs.kinds import Kind
from dpfast.jobs.panels import PanelForm
from dpfast.jobs.parameters import Changes
from dpfast.synthetic_control import results
from dpfast.synthetic_control.estimator import SyntheticControl


class Control(Kind):
    """Moments of donors, for public targets."""

    KIND = "synthetic_control"
    ESTIMATOR = SyntheticControl
    RESULTS = results
    FORM = PanelForm()
    CHANGES = Changes(examples={"bound": "[0.0, 5.0]"}, left_out=("predictors",))


KINDS = (Control(),)
