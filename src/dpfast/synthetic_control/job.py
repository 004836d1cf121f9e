"""Batch jobs of synthetic control, from wide panels and long ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dpfast.io import Deferred
from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.panels import Panel, PanelForm
from dpfast.jobs.parameters import Changes
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.synthetic_control import results
from dpfast.synthetic_control.estimator import SyntheticControl

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Control(Kind):
    """Moments of donors, for public targets."""

    KIND = "synthetic_control"
    ESTIMATOR = SyntheticControl
    RESULTS = results
    FORM = PanelForm()
    CHANGES = Changes(examples={"bound": "[0.0, 5.0]"}, left_out=("predictors",))

    def parameters(self, given: Mapping[str, Any], data: Panel) -> dict[str, Any]:
        """Return the parameters, with the predictors that the panel declares."""
        return dict(given) | ({"predictors": data.predictors} if data.predictors else {})

    def fit(self, model: SyntheticControl, job: Job, progress: Progress | None) -> None:
        """Fit, from a panel in memory."""
        data: Panel = job.data
        if data.long is None:
            model.fit(Deferred(partial(data.wide, progress)), data.n_pre, data.series)
        else:
            model.fit_long(Deferred(partial(data.rows, progress)), *data.long, data.treated, data.n_pre)

    def tables(self, model: SyntheticControl, job: Job) -> dict[str, Table]:
        """Return effects, paths and coefficients."""
        return results.tables(model, job.data.targets)

    def figures(self, model: SyntheticControl, job: Job) -> dict[str, Axes]:
        """Return pictures of them."""
        return results.figures(model, job.data.targets)


KINDS = (Control(),)
