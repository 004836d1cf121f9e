"""Sums of curvatures and scores at released coefficients: the parts of sandwich standard errors.

Let theta be coefficients released before. A person has a row x of length L at most, a constant feature included, and an
outcome y. Their score s is minus the loss's derivative in x'theta, and their curvature w is its second derivative. In
every step two sums are released: of (sqrt(w) x)(sqrt(w) x)', and, jointly, of (s x)(s x)' and s x (solvers/inference.py
describes their use).

A row that has a weight, a share v of at most 1, has v times the score and the curvature.

*Privacy.* sqrt(w) x and s x are functions of that person's row and outcome, of theta and of public numbers. They are
clipped to the lengths sqrt(c) L and l L, with c and l the loss's bounds on its derivatives for predictions of up to
L ||theta||. Of counts c is half of the largest rate of any row within the bounds at theta, as rates grow with
predictions, or a public part of the loss's bound, if that is more. Rows are rounded as those of any second moments are:
whatever the loss is, and however small c is, nobody's is longer. Their exact sums are calibrated as moments of such
rows (privacy/moment_scales.py). A replaced person moves a sum of z z' by sqrt(2) ||z||^2 at most, as inner products of
two such matrices are not negative; one who comes or goes by ||z||^2.

So the sensitivity depends on theta, and hence on earlier releases, but on nothing else of the data. Fix these releases:
theta, c, l, the clip and the scale of the noise are then numbers, the same for any two neighbours. For each such value
the next sum is a Gaussian release with the mu of its part, or a pure one with its epsilon. Its noise is drawn afresh.
That is what adaptive composition needs: the parts, fixed before anything is read, add up. The steps between are
post-processing. No value of theta makes a release fail: a failure would reveal what was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.privacy import Privacy, split_budget
from dpfast.releases.mechanism import Query, Stages
from dpfast.releases.moments import JointMoments
from dpfast.releases.objective_bounds import TableLoss
from dpfast.solvers import GeneralisedLinearLoss, PoissonLoss
from dpfast.solvers.inference import Errors, Rates, Sums, errors, newton_step
from dpfast.solvers.ridge import held
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.rows import RowMap

Kind = Literal["curvatures", "scores"]
KINDS: tuple[Kind, Kind] = "curvatures", "scores"
#: Shares of the sum of curvatures and of the sum of scores, in every step.
_SHARES = ((0.01, 0.03), (0.01, 0.04), (0.03, 0.1), (0.41, 0.37))
#: Weight of squared noise in the sum of (s x)(s x)', relative to that in s x.
_SQUARES = 0.02
#: Predictions of up to this many times 1 and the bound on outcomes.
_REACH = 2.0**20
#: Clip of curvatures of counts over the largest that any row can have at released coefficients: most are far below. The
#: sum H of clipped ones is between half of the whole and the whole. So no step goes further than twice the distance.
_ROOM = 0.5
#: The same clip, at least, over the loss's bound: rows to sum are of no size near 0.
_LEAST = 2.0**-20


@dataclass(frozen=True)
class Sandwich:
    """Newton steps and their releases, as stages of a mechanism: calibrated for public numbers."""

    privacy: Privacy
    table_loss: TableLoss
    #: Number of coefficients, the constant's included.
    size: int

    @cached_property
    def length(self) -> float:
        """Length of the longest row, the constant included."""
        return self.table_loss.sizes(self.size - (self.table_loss.constant > 0.0))["row_bound"]

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviations of the noise in the last sums, at coefficients of 0."""
        nowhere = np.zeros(self.size)
        kinds = zip(KINDS, self._parts[-2:], strict=True)
        own = {kind: self.moments(part, nowhere, kind)[0].scales for kind, part in kinds}
        return {"curvatures": own["curvatures"]["xx"], "scores": own["scores"]["x"]}

    @cached_property
    def _parts(self) -> tuple[Privacy, ...]:
        return split_budget(self.privacy, [share for step in _SHARES for share in step])

    def stages(self, theta: FloatArray) -> Stages[Errors]:
        """Yield queries for the sums at the coefficients, and at the ends of steps along them."""
        bound_y = self.table_loss.bound_y
        parts = iter(self._parts)
        for number in range(len(_SHARES)):
            theta = held(theta, _REACH * (1.0 + bound_y) / self.length)
            curvatures = yield self._query(f"curvatures, step {number + 1}", next(parts), theta, "curvatures")
            scored = yield self._query(f"scores, step {number + 1}", next(parts), theta, "scores")
            sums = Sums(
                curvatures.values["xx"],
                scored.values["xx"],
                scored.values["x"],
                curvatures.scales["xx"] * math.sqrt(0.5),
                scored.scales["x"],
                self._rates if isinstance(self.table_loss.loss, PoissonLoss) else None,
            )
            if number + 1 < len(_SHARES):
                theta = newton_step(theta, sums)
        return lambda: errors(theta, sums)

    @property
    def _rates(self) -> Rates:
        return Rates(self.table_loss.constant, self.length)

    def _curvature(self, theta: FloatArray) -> float:
        """Return the curvature to clip to at these coefficients: of counts half of the largest rate there may be."""
        loss, bound = self.table_loss.loss, self.table_loss.loss.second_derivative_bound()
        if not isinstance(loss, PoissonLoss):
            return bound
        return max(_ROOM * loss.second_derivative_bound(self._rates.most(theta)), _LEAST * bound)

    def moments(self, part: Privacy, theta: FloatArray, kind: Kind) -> tuple[JointMoments, float]:
        """Return the noise of a sum at some coefficients, and the clip of its rows."""
        loss = self.table_loss.loss
        reach = self.length * float(np.linalg.norm(theta))
        if kind == "curvatures":
            radius, weights = math.sqrt(self._curvature(theta)) * self.length, {"xx": 1.0}
        else:
            radius = loss.derivative_bound(reach, self.table_loss.bound_y) * self.length
            weights = {"xx": _SQUARES / radius**2, "x": 1.0}
        radii = rounded_bound(radius, self.size), 1.0
        return JointMoments.calibrate(part, radii, (self.size, 1), weights), radius

    def _query(self, name: str, part: Privacy, theta: FloatArray, kind: Kind) -> Query:
        moments, radius = self.moments(part, theta, kind)
        weighted_rows = WeightedRows(self.table_loss, theta, kind)
        return Query(name, moments, partial(sum_weighted, weighted_rows=weighted_rows, radius=radius), radius)


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Replaces rows, clipped and followed by the constant, by their product with sqrt(w) or s."""

    table_loss: TableLoss
    theta: FloatArray
    kind: Kind

    def __call__(self, x: Any, y: Any, ids: Any) -> tuple[FloatArray, None, Any]:
        """Map rows, each on its own, to the bit: products by RowMap, derivatives by the kernel, one by one."""
        rows, outcomes, weights = self.table_loss.bounded(*io.open_table(x, y).whole())
        weights = np.ones(len(rows)) if weights is None else weights
        margins = RowMap(basis=np.ascontiguousarray(self.theta[:, None]))(rows)[:, 0]
        loss = self.table_loss.loss
        if self.kind == "curvatures":
            curvatures = loss.second_derivative(margins, outcomes[:, 0])
            factors = np.sqrt(np.maximum(weights * curvatures, 0.0))
        else:
            factors = -weights * loss.derivative(margins, outcomes[:, 0])
        return rows * factors[:, None], None, ids


def sum_weighted(data: Any, weighted_rows: WeightedRows, radius: float) -> Gram:
    """Return exact moments of weighted rows: not private."""
    table = data.table
    if table.partitions is None:
        x, y = table.whole()
        people = io.open_table(weighted_rows(x, y, None)[0])
    else:
        people = io.open_table(table.partitions.mapped(weighted_rows, len(weighted_rows.theta), 0))
    return gram(people, bound_x=radius, sums=weighted_rows.kind == "scores", n_threads=data.n_threads)


def exact_errors(
    loss: GeneralisedLinearLoss,
    theta: FloatArray,
    rows: FloatArray,
    outcomes: FloatArray,
    weights: FloatArray | None = None,
) -> Errors:
    """Return the errors from steps without noise, for unclipped rows."""
    weights = np.ones(len(rows)) if weights is None else weights
    for _ in _SHARES:
        margins = rows @ theta
        curvatures = weights * loss.second_derivative(margins, outcomes)
        scores = -weights * loss.derivative(margins, outcomes)
        scored = rows * scores[:, None]
        sums = Sums((rows * curvatures[:, None]).T @ rows, scored.T @ scored, scored.sum(axis=0), 0.0, 0.0)
        last, theta = theta, newton_step(theta, sums)
    return errors(last, sums)
