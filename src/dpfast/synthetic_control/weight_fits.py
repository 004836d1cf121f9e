"""Synthetic control by releasing the donors' weights for one target: the mechanisms "output" and "objective".

The algorithms, in scaled units, are those of releases/donor_weights.py; here a panel in input units is brought to them,
and what they release is kept, for the target of the fit and no other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.estimator.plan import Plan
from dpfast.ledger import Release, Reservation
from dpfast.privacy import Privacy
from dpfast.statistics.rows import RowMap
from dpfast.synthetic_control.donor_weights import (
    DonorMechanism,
    Panel,
    PanelBounds,
    algorithm,
    output_half_width,
    prediction,
)
from dpfast.synthetic_control.parameters import RELATIVE_TO, DeclaredParameters, released_attributes


class WeightFits(DeclaredParameters):
    """Fit, predict and plan with weights that are released for one target."""

    n_pre_: int
    n_post_: int
    prediction_: FloatArray
    privacy_spent_: Privacy
    releases_: tuple[Release, ...]
    target_: FloatArray | None
    weights_: FloatArray

    def _bounded(
        self, donors: FloatArray, n_pre: int, target: FloatArray | None, privacy: Privacy
    ) -> tuple[DonorMechanism, Panel]:
        """Calibrate for one target, and bring the donors within the bounds that this is for."""
        if target is None or target.ndim != 1:
            raise ValueError(
                f"target must be one series with mechanism={self.mechanism!r}: a second target's weights are a "
                "release of their own, with a budget of their own. mechanism='cross_section' serves any number"
            )
        offset, half_width = self._range()
        own = (target[:n_pre] - offset) / half_width
        chosen = self._algorithm(len(donors), donors.shape[1] - n_pre, own, privacy)
        scaled = RowMap(-np.ones(1), np.ones(1), offset=offset, unit=half_width)(donors)
        return chosen, Panel.bounded(scaled[:, :n_pre], scaled[:, n_pre:], own, chosen.bounds)

    def _fit_weights(self, panel: Panel, chosen: DonorMechanism, reservation: Reservation) -> dict[str, Any]:
        """Draw the noise, which is paid for there and then: from there on all is public."""
        name = f"{type(self).__name__}: weights of donors and the prediction made with them"
        release = chosen.release(panel, noise.resolve_source(self.random_state).bound(panel.target), name)
        reservation.commit(release)
        offset, half_width = self._range()
        return released_attributes(release, offset, half_width) | {
            "weights_": np.array(release.values["weights"]),
            "prediction_": offset + half_width * prediction(release),
            "ridge_": chosen.ridge,
            "noise_floor_": 0.0,
            "n_components_": None,
            "_center": None,
            "_n_donors": chosen.bounds.n_donors,
        }

    def _algorithm(self, n_donors: int, n_post: int, target: FloatArray, privacy: Privacy) -> DonorMechanism:
        """Calibrate "output" or "objective" from public numbers; the target is in mapped units."""
        return algorithm(
            "output" if self.mechanism == "output" else "objective",
            self.calibration,
            privacy,
            PanelBounds.of(n_donors, n_post, target, (None, None) if self.row_bound is None else self.row_bound),
            self._lambda(len(target)),
            split=self.split,
            curvature=self.curvature,
            gradient=self.gradient,
        )

    def _released_prediction(self, pre: FloatArray) -> FloatArray:
        """Return the prediction that was released, for the target that it was released for."""
        assert self.target_ is not None
        rows = np.atleast_2d(pre)
        if len(rows) != 1 or not np.array_equal(rows[0], self.target_[: self.n_pre_]):
            raise ValueError(
                f"target_pre must be that of the fit with mechanism={self.mechanism!r}: its weights were released for "
                "that target, and another one's are another release. mechanism='cross_section' serves any number"
            )
        return np.broadcast_to(self.prediction_, (*pre.shape[:-1], self.n_post_)).copy()

    def _released_interval(self, pre: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        if self.mechanism != "output":
            raise ValueError("interval is not offered with mechanism='objective': its error is not symmetric noise")
        predicted = self._released_prediction(pre)
        assert self.target_ is not None
        own = self._scaled(self.target_[: self.n_pre_])
        chosen = self._algorithm(len(self.weights_), self.n_post_, own, self.privacy_spent_)
        half = self._half_width * output_half_width(chosen, self.releases_[0], level)
        return predicted - half, predicted + half

    def _plan_weights(self, n: int, n_pre: int, n_post: int, target: float, spread: float, privacy: Privacy) -> Plan:
        """Plan for noise on weights, of which there are more with more donors: the error does not fall with them."""
        own = np.full(n_pre, math.sqrt(spread))

        def error(count: int) -> float:
            return self._algorithm(count, n_post, own, privacy).expected_error / math.sqrt(spread)

        scales = self._algorithm(n, n_post, own, privacy).scales
        needed = 1 if error(1) <= target else None
        return Plan(n, min(error(n), 1.0), target, needed, scales, RELATIVE_TO)
