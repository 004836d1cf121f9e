"""Batch jobs of multi-outcome regression: what their section [estimator] takes, and what they write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfast.estimator.plan import Plan
from dpfast.jobs.kinds import Kind, Progress
from dpfast.jobs.rows import Rows
from dpfast.jobs.specification import Job
from dpfast.jobs.tables import Table
from dpfast.multi_outcome import results
from dpfast.multi_outcome.estimator import MultiOutcomeRidge

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MultiOutcome(Kind):
    """One release of moments for all outcomes."""

    KIND = "multi_outcome_ridge"
    NOTE = results.NOTE
    ESTIMATOR = MultiOutcomeRidge
    PARAMETERS = ("bound_x", "bound_y", "ridge", "refine", "mechanism", "n_subsample", "fit_intercept", "nonnegative")

    def parameters(self, given: Mapping[str, Any], data: Rows) -> dict[str, Any]:
        """Return the estimator's parameters; rows are bounded by their limits too."""
        given = dict(given)
        box = given.pop("box", None)
        if box is not None and data.box is not None:
            raise ValueError("[estimator] box and low, high in [features] say the same: leave one of them out")
        box = data.box if box is None else box
        if "bound_y" not in given:
            raise ValueError("[estimator] lacks the key 'bound_y'")
        if "bound_x" not in given and box is None:
            raise ValueError("[estimator] lacks the key 'bound_x', and there is no box that would bound the rows")
        if data.n_rows is None and "n_subsample" in given:
            raise ValueError(
                "[estimator] n_subsample needs a pair of .npy files, as [input] x and y: no sample is drawn of a stream"
            )
        return {"bound_x": None, **given, **({} if box is None else {"box_x": tuple(box)})}

    def check(self, parameters: Mapping[str, Any], data: Rows) -> None:
        """Refuse what a fit would refuse of the parameters: a plan does, which needs public sizes only."""
        self._planned(parameters, data, n=data.n_rows or 1)

    def fit(self, model: MultiOutcomeRidge, job: Job, progress: Progress | None) -> None:
        """Fit, from a stream of named columns or from arrays."""
        data: Rows = job.data
        if data.columns is None:
            features, outcomes = data.files
            model.fit(features, outcomes)
        else:
            model.fit(data.encoded(progress), None, groups=data.owners(), max_rows=data.max_rows)

    def plan(self, job: Job, **sizes: Any) -> Plan:
        """Return the error to expect."""
        return self._planned(job.parameters, job.data, **sizes)

    def _planned(self, parameters: Mapping[str, Any], data: Rows, **sizes: Any) -> Plan:
        # What bounds do not go with that are to be found; where they are, a plan needs numbers in their place.
        stand_in = self.ESTIMATOR(**parameters).checked_stand_in()
        numbers = {name: getattr(stand_in, name) for name in parameters}
        widths = {"n_features": len(data.feature_names), "n_outcomes": len(data.outcome_names)}
        planned: Plan = self.ESTIMATOR.plan(**widths, max_rows=data.max_rows, **numbers, **sizes)
        return planned

    def tables(self, model: MultiOutcomeRidge, job: Job) -> dict[str, Table]:
        """Return coefficients, their errors and limits."""
        return results.tables(model, job.data.feature_names, job.data.outcome_names)

    def figures(self, model: MultiOutcomeRidge, job: Job) -> dict[str, Figure]:
        """Return a picture of them."""
        return results.figures(model, job.data.feature_names, job.data.outcome_names)

    def facts(self, model: MultiOutcomeRidge, job: Job) -> list[tuple[str, str]]:
        """Return what was chosen."""
        return results.facts(model)


KINDS = (MultiOutcome(),)
