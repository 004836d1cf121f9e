"""Synthetic control by moments of donors as rows: the mechanism "cross_section", and the textbook estimate.

The mechanism is that of cross_section.py, which knows rows and noise; here the declared parameters choose among the
ways to sum donors, and what was released is solved for coefficients, which serve any target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.estimator.plan import Plan
from dpfast.ledger import Release, Reservation
from dpfast.privacy import Privacy
from dpfast.solvers.damped import damped_solve
from dpfast.solvers.ridge import ridge_from_rows
from dpfast.synthetic_control.mechanism import (
    CrossSection,
    DonorRows,
    kept_components,
    orthonormal_basis,
    with_center,
)
from dpfast.synthetic_control.parameters import RELATIVE_TO, DeclaredParameters, released_attributes


class MomentFits(DeclaredParameters):
    """Fit and plan with moments, about the origin, of donors as rows."""

    n_pre_: int
    n_post_: int
    privacy_spent_: Privacy
    releases_: tuple[Release, ...]
    _center: FloatArray | None
    _n_donors: int | None

    def _section(self, n_pre: int, n_post: int, privacy: Privacy, center: FloatArray | None) -> CrossSection:
        """Choose how to sum the donors, from public numbers alone, so that the noise costs least."""
        offset, half_width = self._range()
        declared = (math.inf, math.inf) if self.row_bound is None else self.row_bound
        # Rounded up: a row in the box must not be scaled.
        longest = (math.nextafter(math.sqrt(length), math.inf) for length in (n_pre, n_post))
        pre, post = (min(float(given), most) for given, most in zip(declared, longest, strict=True))
        basis = orthonormal_basis(self.basis, n_pre)
        rows = DonorRows(
            offset, half_width, n_pre, n_post, pre, post, self.nonnegative, None, basis, self.observation_rate
        )
        candidates = [rows]
        if center is not None:
            # A declared row_bound is about the centre; without one the origin may do better.
            free = replace(rows, bound_pre=float(declared[0]), bound_post=float(declared[1]))
            candidates = [with_center(free, center), *([rows] if self.row_bound is None else [])]
        if self.nonnegative and self.row_bound is None:
            candidates.append(with_center(rows, np.full(n_pre + n_post, 0.5)))
        return CrossSection.cheapest(candidates, privacy)

    def _fit_cross_section(self, donors: FloatArray, section: CrossSection, reservation: Reservation) -> dict[str, Any]:
        """Sum the donors, draw the noise, which is paid for there and then, and solve: from there on all is public."""
        exact = section.rows.sums(donors, self.n_threads)
        source = self._source(section.rows)
        release = section.calibration.release(exact, source, self._release_name)
        reservation.commit(release)
        n_donors = exact.n_rows if self._count_is_public(section) else None
        xx, xy = section.moments(release.values, n_donors)
        keep = kept_components(xx, self.n_components, section.floor)
        solved = self._solved(xx, xy, section.rows.basis, section.rows.n_pre, section.floor, keep)
        private = {"_center": section.rows.center, "_n_donors": n_donors}
        return solved | released_attributes(release, section.rows.offset, section.rows.half_width) | private

    def _source(self, rows: DonorRows) -> noise.BitSource:
        # In mapped units: the noise does not depend on those of the panel.
        return noise.resolve_source(self.random_state).bound(rows.n_pre, rows.center, rows.basis, rows.observation_rate)

    def _plan_moments(self, n: int, n_pre: int, n_post: int, target: float, spread: float, privacy: Privacy) -> Plan:
        """Plan for noise in moments, which weighs the less the more donors there are."""
        if isinstance(self.center, str):
            raise ValueError("center must be given by its values for a plan, got 'target'")
        section = self._section(n_pre, n_post, privacy, self._center_path(n_pre + n_post, None))
        ridge = self._lambda(n_pre)
        error = section.expected_error(n, ridge, spread)
        needed = _least(lambda count: section.expected_error(count, ridge, spread) <= target)
        return Plan(n, min(error, 1.0), target, needed, section.calibration.scales, RELATIVE_TO)

    def _fit_without_noise(self, donors: FloatArray, n_pre: int, privacy: Privacy) -> dict[str, Any]:
        """Fit the textbook estimate of the raw data, about the middle of the range where entries are missing."""
        basis = orthonormal_basis(self.basis, n_pre)
        n_post = donors.shape[1] - n_pre
        offset = 0.0
        if np.any(np.isnan(donors)):
            offset = self._range()[0]
            rows = DonorRows(offset, 1.0, n_pre, n_post, 1.0, 1.0, basis=basis, observation_rate=self.observation_rate)
            filled = np.nan_to_num(donors - offset, nan=0.0)
            pre, post = rows.features(filled[:, :n_pre]), filled[:, n_pre:]
            xx, xy = rows.about_origin({"xx": pre.T @ pre, "xy": pre.T @ post}, len(donors))
            keep = None if isinstance(self.n_components, str) else self.n_components
            # A floor above zero alone: what rounding leaves of a zero eigenvalue has no inverse worth having.
            floor = len(xx) * float(np.finfo(np.float64).eps) * float(np.trace(xx))
            solved = self._solved(xx, xy, basis, n_pre, floor, keep)
        else:
            solved = self._solved_exactly(donors, n_pre, basis)
        release = Release(self._release_name, "no", privacy, {"coef": solved["coef_"]}, {})
        exact = {"noise_floor_": 0.0, "_center": None, "_n_donors": None}
        return solved | released_attributes(release, offset, 1.0) | exact

    def _solved_exactly(self, donors: FloatArray, n_pre: int, basis: FloatArray | None) -> dict[str, Any]:
        pre = donors[:, :n_pre] if basis is None else donors[:, :n_pre] @ basis
        keep = None if isinstance(self.n_components, str) else self.n_components
        ridge = self._lambda(n_pre)
        outcomes = np.concatenate([donors[:, n_pre:], pre], axis=1)
        theta = ridge_from_rows(pre, outcomes, ridge / 2.0, keep)
        return _coefficients(theta, basis, donors.shape[1] - n_pre) | {"ridge_": ridge, "n_components_": keep}

    def _solved(
        self, xx: FloatArray, xy: FloatArray, basis: FloatArray | None, n_pre: int, floor: float, keep: int | None
    ) -> dict[str, Any]:
        ridge = self._lambda(n_pre)
        theta = damped_solve(xx, np.concatenate([xy, xx], axis=1), ridge / 2.0, floor, keep)
        return _coefficients(theta, basis, xy.shape[1]) | {
            "ridge_": ridge,
            "noise_floor_": floor,
            "n_components_": keep,
        }

    def _count_is_public(self, section: CrossSection) -> bool:
        """Whether the number of donors is public, and needed to bring moments about a centre back to the origin."""
        return self.adjacency == "replace_one" and section.rows.center is not None

    @property
    def _release_name(self) -> str:
        return f"{type(self).__name__}: moments of donors before and across the intervention"

    def _moments(self) -> tuple[FloatArray, FloatArray]:
        """Return the released moments about the origin."""
        if math.isinf(self.privacy_spent_.epsilon):
            raise ValueError("placebo needs released moments; at epsilon=inf fit again with the earlier n_pre")
        section = self._section(self.n_pre_, self.n_post_, self.privacy_spent_, self._center)
        return section.moments(self.releases_[0].values, self._n_donors)


def _coefficients(theta: FloatArray, basis: FloatArray | None, n_post: int) -> dict[str, Any]:
    """Part coefficients on features into those of later and of earlier periods, on the periods themselves."""
    post, back = np.split(theta, [n_post], axis=1)
    if basis is not None:
        post, back = basis @ post, basis @ back @ basis.T
    return {"coef_": post.T.copy(), "pre_coef_": back.T.copy()}


def _least(holds: Callable[[int], bool]) -> int:
    """Return the least count for which a condition holds that holds from there on."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
