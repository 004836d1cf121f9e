"""Least squares in stages, each release fitted to what those before have shown: noise for the data, not for the bounds.

Moments alone pay for the longest row and the largest outcomes that were declared. Here they are the second of several
releases, which share one joint budget (`dpfast.privacy.parts_of`):

1. *Sizes.* Noisy counts of people by the norms of their rows and of their outcomes give the radii to which both are
   held in the moments.
2. *Moments* of rows held to those radii, by `JointMoments`.
3. *Moments of whitened rows.* In coordinates in which the released X'X is the identity, rows are again counted by size,
   held to a length that few exceed, and their X'X is released once more: noise in proportion to X'X itself.
4. *Residual steps.* Whitened rows times what the coefficients so far leave of their outcomes are counted by size, in
   the first steps, and summed, each person's part held to a clip: noise in proportion to what is still unexplained.
5. *Squares of residuals* of each outcome, where a row is a person: what sampling does to coefficients.

Every map, radius, clip and coefficient is a function of earlier releases and public numbers, fixed before the data are
read again, and every release is calibrated for its part as if it were alone: whatever was released before, one person
changes the count in one bin of each histogram, moves the moments of rows held to r as `JointMoments` says of r, and a
sum of parts held to a clip by at most `residual_bound`. So the releases compose adaptively to the whole (Gaussian ones
by mu squared, pure ones by epsilon: dpfast.ledger has the statement).

What is computed between releases is written once, as a generator that asks for one stage after the other: a fit answers
with the data, and the solution is had by answering with what was released.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from dpfast import io
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.kernels.half_octaves import HalfOctaves
from dpfast.ledger import Release
from dpfast.privacy import Privacy, Unit, gaussian_mu, parts_of
from dpfast.releases.mechanism import Mechanism, Query, Stages
from dpfast.releases.moments import DeclaredPeople, JointMoments, noisy_moments, weights_of
from dpfast.releases.noisy_sum import NoisySum
from dpfast.solvers import refining
from dpfast.solvers.bounds import last_bin
from dpfast.solvers.inference import Evidence, evidence_of_belief, evidence_of_moments
from dpfast.solvers.projection import LabelFactor
from dpfast.solvers.refining import Belief, Clip, Estimate, Schedule
from dpfast.solvers.ridge import MomentNoise, RidgeSolution, Units, ridge_from_moments
from dpfast.statistics import Gram, gram, rounded_bound
from dpfast.statistics.residuals import ResidualStep, residual_bound, residual_sizes, residual_sums, squares_bound
from dpfast.statistics.rows import RowMap
from dpfast.statistics.sizes import Sizes, size_counts

#: Share of mu^2 (of epsilon where delta is 0), besides all others, of the squares of residuals: their variance need be
#: known to a tenth or so.
_SQUARES = 0.02
#: How many times what is expected of a row a residual part may be and still be told by its size.
_BEYOND_EXPECTED = 8.0
#: How many times as large as outcomes predictions may be that residuals are taken of.
_REACH = 2.0**12
#: Half-octaves below the largest size that is expected in which sizes are told apart.
_TOLD_APART = 40


@dataclass(frozen=True)
class People:
    """The data owner's rows, whose they are, and the first counts of them: not private."""

    table: io.Table
    groups: ArrayLike | io.PersonIds | None = None
    max_rows: int | None = None
    n_threads: int | None = None
    sizes: FixedPoint | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What sums of rows are told of them."""
        return {"groups": self.groups, "max_rows": self.max_rows, "n_threads": self.n_threads}

    @property
    def n_people(self) -> int:
        """How many were counted."""
        assert self.sizes is not None
        return int(self.sizes.to_float64()[0].sum())


class Public(NamedTuple):
    """What is public besides the releases: the number of rows, where it is, and labels declared so."""

    n_rows: int | None
    labels: LabelFactor | None = None


_NOTHING = Public(None)


class PlannedNoise(NamedTuple):
    """Noise of the stages for what is assumed of people, in the units that rows are summed in."""

    moments: MomentNoise
    #: In an entry on the diagonal of X'X of whitened rows; infinite where they are not summed.
    row_moments: float
    #: In an entry of each step's sum, for a clip of 1.
    sums: tuple[float, ...]


class Refined(NamedTuple):
    """What the releases of a fit tell."""

    #: In the units that rows came in.
    solution: RidgeSolution
    #: One for all outcomes, or one each.
    evidence: tuple[Evidence, ...]
    #: Of outcomes about their linear function of the features; None where people own several rows.
    residual_variance: FloatArray | None = None
    n_steps: int = 0


@dataclass(frozen=True)
class RefinedMoments(Mechanism[Refined]):
    """The mechanism: a schedule of releases, calibrated for what is declared of rows and what is learned of them.

    Parameters
    ----------
    privacy : Privacy
        Of all releases together.
    schedule : Schedule
        Shares of them.
    shape : tuple of int
        Features and outcomes.
    radii : tuple of float
        Largest norms of rows, once they are mapped, and of outcomes.
    row_map, outcome_map : RowMap
        Public maps, whose results are bounded.
    blocks : tuple of str
        Names of the blocks of moments that are released.
    penalty : float, optional
        Added to the diagonal of X'X, of rows in the units that they came in; None to choose it.
    fit_intercept, nonnegative : bool
        Whether there is an intercept; whether mapped rows and outcomes are at least 0.
    max_rows : int, optional
        Most rows of a person, where people own several.
    block_bounds : tuple
        Bounds on a person's moments, each None for none.
    may_stop : bool
        Whether the first counts may decide that there are too few people for steps, and moments get all that is left.
    public : Public
        What is public besides the releases.
    """

    privacy: Privacy
    schedule: Schedule
    shape: tuple[int, int]
    radii: tuple[float, float]
    row_map: RowMap
    outcome_map: RowMap
    blocks: tuple[str, ...]
    penalty: float | None = None
    fit_intercept: bool = False
    nonnegative: bool = False
    max_rows: int | None = None
    block_bounds: tuple[float | None, float | None] = (None, None)
    may_stop: bool = False
    public: Public = _NOTHING

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry of each block of moments, at the declared radii."""
        return self._moments(self._parts(self.schedule).moments, self.radii).scales

    def count_sizes(self, people: People) -> FixedPoint:
        """Count people by the norms of their rows and of their outcomes: the first reading of a table."""
        sizes = Sizes(rows=True, outcomes=True, bins=self._bins)
        map_x, map_y = _unless_bare(self.row_map), _unless_bare(self.outcome_map)
        return size_counts(people.table, sizes, map_x=map_x, map_y=map_y, **people.options)

    def planned_noise(self, radii: tuple[float, float], length: float, *, has_steps: bool) -> PlannedNoise:
        """Return the noise if moments are held to these radii, and whitened rows to this length."""
        parts = self._parts(self.schedule if has_steps else self.schedule.without_steps())
        rows = math.inf if parts.row_moments is None else self._row_moments(parts.row_moments, length).scales["xx"]
        sums = tuple(NoisySum.calibrate(part, 1.0, self.shape).deviation for part in parts.sums)
        return PlannedNoise(self._moments(parts.moments, radii).noise, rows, sums)

    def stages(self) -> Stages[Refined]:
        """Ask for one release after the other."""
        public = self.public
        counts = NoisySum.of_counts(self._parts(self.schedule).bounds, 2, self._bins.n_bins, unit=self._unit)
        released = yield Query("sizes of rows and outcomes", counts, _first_counts)
        held = self._held(released.values["sum"], counts, public)
        schedule = self.schedule if held.has_steps else self.schedule.without_steps()
        parts = self._parts(schedule)
        moments = self._moments(parts.moments, held.radii)
        released = yield Query(
            "moments", moments, partial(self._sum_rows, moments=moments, radii=held.radii, row_map=self.row_map)
        )
        own, units = self._units, self.row_map.scale
        noisy = noisy_moments(released, moments, public.n_rows)
        noisy = own.moments(noisy, held.radii if self.fit_intercept else None)
        told = own.of_evidence(units, self.shape[0])
        framing: dict[str, Any] = {"center": own.center(self._center), "fit_intercept": self.fit_intercept}
        if not held.has_steps:
            evidence = evidence_of_moments(noisy, **framing, **told)
            if public.labels is not None:
                noisy = public.labels.project_moments(noisy, held.radii[0] / own.rows)
            solution = own.solution(ridge_from_moments(noisy, own.penalty(self.penalty), units=units, **framing))
            coef = self._with_constant(solution)
            variance = yield from self._residual_variance(coef, parts, self.radii[1], held.people)
            return lambda: Refined(solution, (evidence,), variance)
        if public.labels is not None:
            noisy = public.labels.project_moments(noisy, held.radii[0] / own.rows)
        radii = held.radii[0] / own.rows, held.radii[1] / own.outcomes
        bias = refining.shortening_bias(held.people, radii, self.shape)
        # The error of X'Y never grows by a projection: its noise is taken to be what it was.
        penalty = own.penalty(self._penalty_as_summed)
        belief = refining.first_belief(replace(noisy, shrinkage=None), ridge=penalty, bias=bias, **framing)
        length = self.row_map.largest_norm(self.shape[0])
        if parts.row_moments is not None:
            belief, length = yield from self._whitened_moments(belief, parts)
        held_to = _HeldTo(None, self.radii[1])
        for number in range(schedule.steps):
            belief, held_to = yield from self._residual_step(belief, parts, number, length, held.people, held_to)
        estimate = belief.solve()
        variance = yield from self._residual_variance(self._as_summed(estimate), parts, held_to.residuals, held.people)

        def refined() -> Refined:
            solution = own.solution(refining.solution(belief, estimate))
            per = np.ones(1) if units is None else units
            given = solution.ridge if self.penalty is None else self.penalty
            solution = replace(solution, coef=solution.coef / per, coef_std=solution.coef_std / per, ridge=given)
            return Refined(solution, (evidence_of_belief(belief, **told),), variance, schedule.steps)

        return refined

    def _whitened_moments(self, belief: Belief, parts: _Parts) -> Generator[Query, Release, tuple[Belief, float]]:
        """Learn more of X'X, from rows in coordinates in which it is about the identity."""
        assert parts.row_sizes is not None
        assert parts.row_moments is not None
        row_map = self._whitened_map(belief)
        assert row_map.basis is not None
        bins = _bins_below(row_map.largest_norm(self.shape[0]) * float(np.linalg.norm(row_map.basis, 2)))
        counts = NoisySum.of_counts(parts.row_sizes, 1, bins.n_bins, unit=self._unit)
        released = yield Query(
            "sizes of whitened rows", counts, partial(_count_rows, sizes=Sizes(rows=True, bins=bins), row_map=row_map)
        )
        sizes = np.array([bins.size(code) for code in range(bins.largest_code + 1)])
        features = self.shape[0]
        clip = refining.clip_from_counts(
            np.append(released.values["sum"][0, bins.largest_code :], 0.0),
            counts.deviation,
            sizes**2,
            shape=(features, features),
            # Cut off is the square of a row, wherever it points.
            coherence=1.0,
            sum_deviation=self._row_moments(parts.row_moments, 1.0).off_diagonal,
            heavy=counts.law == "Laplace",
        )
        length = math.sqrt(clip.size)
        moments = self._row_moments(parts.row_moments, length)
        released = yield Query(
            "moments of whitened rows",
            moments,
            partial(self._sum_rows, moments=moments, radii=(length, self.radii[1]), row_map=row_map),
        )
        values = released.values
        return refining.with_row_moments(belief, values["xx"], moments.noise, values.get("x"), clip=clip), length

    def _residual_step(
        self, belief: Belief, parts: _Parts, number: int, length: float, people: float, held_to: _HeldTo
    ) -> Generator[Query, Release, tuple[Belief, _HeldTo]]:
        """Learn of what the coefficients so far leave unexplained, parts held to a clip of this step or the last."""
        own, estimate = self._units, belief.solve()
        kept = self._summable(self._as_summed(estimate))
        estimate = replace(estimate, theta=kept * estimate.theta, coef=kept * estimate.coef)
        turn, whitening = _triangular(belief.whitening)
        whitening[:, : self.shape[0]] /= own.rows
        step = ResidualStep(self._as_summed(estimate), self.row_map, self.outcome_map, whitening, belief.constant)
        if number < len(parts.sizes):
            held_to = yield from self._residual_sizes(step, belief, parts, number, length, people)
        clip = held_to.clip
        assert clip is not None
        bound = residual_bound(clip.size, step, self.max_rows)
        sums = NoisySum.calibrate(parts.sums[number], bound, step.shape, unit=self._unit)
        released = yield Query(
            f"residuals, step {number + 1}", sums, partial(_sum_residuals, step=step, clip=clip.size)
        )
        measured = turn @ (released.values["sum"] / own.outcomes)
        cut = clip._replace(bias=clip.bias / own.outcomes)
        return refining.with_residuals(belief, estimate, measured, sums.deviation / own.outcomes, cut), held_to

    def _summable(self, coef: FloatArray) -> float:
        """Return the part of coefficients (D, l) that is kept for sums of residuals, which may not overflow: often 1.

        What is learned of residuals holds from whichever coefficients they are taken.
        """
        length = math.hypot(self.row_map.largest_norm(self.shape[0]), 1.0)
        predicted = length * float(np.sum(np.abs(coef)))
        return 1.0 / max(1.0, predicted / (_REACH * self.outcome_map.largest_norm(self.shape[1])))

    def _as_summed(self, estimate: Estimate) -> FloatArray:
        """Return coefficients, the constant's last if there is one, for rows and outcomes as they are summed."""
        own = self._units
        coef = own.outcomes * estimate.coef
        coef[: self.shape[0]] /= own.rows
        return coef

    def _residual_sizes(
        self, step: ResidualStep, belief: Belief, parts: _Parts, number: int, length: float, people: float
    ) -> Generator[Query, Release, _HeldTo]:
        """Count people by the size of their part of a step's sum: what tells its clip, and how long residuals are."""
        last = math.ceil(2.0 * math.log2(_BEYOND_EXPECTED * self.radii[1] * length))
        octaves = max(-900, min(last, 900)) - _TOLD_APART, max(-900, min(last, 900))
        counts = NoisySum.of_counts(parts.sizes[number], 1, _TOLD_APART + 2, unit=self._unit)
        released = yield Query(
            f"sizes of residuals, step {number + 1}", counts, partial(_count_residuals, step=step, octaves=octaves)
        )
        sizes = released.values["sum"][0]
        edges = np.exp2(np.arange(octaves[0], octaves[1] + 1) / 2.0)
        heavy = counts.law == "Laplace"
        clip = refining.clip_from_counts(
            sizes,
            counts.deviation,
            edges,
            shape=step.shape,
            sum_deviation=NoisySum.calibrate(parts.sums[number], 1.0, step.shape).deviation,
            heavy=heavy,
        )
        longest = last_bin(sizes, counts.deviation, share=refining.BEYOND, people=people, heavy=heavy)
        limit = self.radii[1]
        if longest.is_certain and longest.place < len(edges):
            # Sizes are of residuals times whitened rows, whose mean squared length is known.
            limit = min(limit, float(edges[longest.place]) * belief.mean_length(people))
        return _HeldTo(clip, limit)

    def _residual_variance(
        self, coef: FloatArray, parts: _Parts, limit: float, people: float
    ) -> Generator[Query, Release, FloatArray | None]:
        """Learn how far outcomes are from the coefficients (d + 1, l), a row's residuals held to a limit."""
        if parts.squares is None:
            return None
        constant = len(coef) > self.shape[0]
        # So that its square has a grid.
        limit = min(max(limit, 1e-49), 1e49)
        step = ResidualStep(self._summable(coef) * coef, self.row_map, self.outcome_map, constant=constant)
        noise = NoisySum.calibrate(parts.squares, squares_bound(limit**2, step), step.shape[1:])
        released = yield Query("squares of residuals", noise, partial(_sum_squares, step=step, limit=limit))
        # What cannot be told from noise may be as large as that.
        squares = np.maximum(released.values["sum"], noise.deviation)
        variance: FloatArray = squares / max(people - len(coef), 1.0)
        return variance

    def _with_constant(self, solution: RidgeSolution) -> FloatArray:
        """Return coefficients and constant in the units that rows are summed in."""
        coef = solution.coef if self.row_map.scale is None else solution.coef * self.row_map.scale
        center = np.zeros(self.shape[0]) if self._center is None else self._center
        return np.vstack([coef.T, solution.intercept + coef @ center])

    @property
    def _units(self) -> Units:
        """What is computed between releases is in these; rows and outcomes are summed as they come."""
        return Units.near(*self.radii)

    @property
    def _unit(self) -> Unit:
        return "row" if self.max_rows is None else "person"

    @property
    def _center(self) -> FloatArray | None:
        center, scale = self.row_map.center, self.row_map.scale
        return center if center is None or scale is None else center / scale

    @property
    def _bins(self) -> HalfOctaves:
        return _bins_below(*self.radii)

    @property
    def _penalty_as_summed(self) -> float | FloatArray | None:
        """The penalty that was given, for coefficients in the units that rows are summed in."""
        if self.penalty is None or self.row_map.scale is None:
            return self.penalty
        return self.penalty / self.row_map.scale**2

    def _parts(self, schedule: Schedule) -> _Parts:
        """Split the budget."""
        shares = [schedule.bounds, schedule.moments, schedule.row_sizes, schedule.row_moments]
        shares += [0.0 if self.max_rows is not None else _SQUARES, *schedule.sizes, *schedule.sums]
        each = iter(parts_of(self.privacy, [share for share in shares if share > 0.0]))
        found = [next(each) if share > 0.0 else None for share in shares]
        bounds, moments, row_sizes, row_moments, squares, *steps = found
        assert bounds is not None
        assert moments is not None
        known = tuple(part for part in steps if part is not None)
        sizes, sums = known[: len(schedule.sizes)], known[len(schedule.sizes) :]
        return _Parts(bounds, moments, row_sizes, row_moments, squares, sizes, sums)

    def _held(self, counts: FloatArray, mechanism: NoisySum, public: Public) -> _Held:
        """Choose the norms to which rows and outcomes are held in their moments: public labels as declared."""
        bins, heavy = self._bins, mechanism.law == "Laplace"
        sizes = counts[:, bins.largest_code :]
        last = [
            last_bin(one, mechanism.deviation, share=refining.BEYOND, people=public.n_rows, heavy=heavy)
            for one in sizes
        ]
        radii = [
            min(declared, bins.size(one.place)) if one.is_certain and one.place < bins.largest_code else declared
            for one, declared in zip(last, self.radii, strict=True)
        ]
        if public.labels is not None:
            radii[1] = self.radii[1]
        people = float(public.n_rows or sizes[0, max(last[0].place - 7, 0) : last[0].place + 1].sum())
        enough = all(one.is_certain for one in last) and (
            mechanism.mu is not None and refining.has_steps(people, gaussian_mu(*self.privacy.target), self.shape)
        )
        return _Held((radii[0], radii[1]), people, enough or not self.may_stop)

    def _moments(self, part: Privacy, radii: tuple[float, float]) -> JointMoments:
        weights = weights_of(self.blocks, self.shape, *map(rounded_bound, radii, self.shape))
        return self._calibrated(part, radii, weights, nonnegative=self.nonnegative, block_bounds=self.block_bounds)

    def _calibrated(
        self,
        part: Privacy,
        radii: tuple[float, float],
        weights: Mapping[str, float],
        *,
        nonnegative: bool,
        block_bounds: tuple[float | None, float | None],
    ) -> JointMoments:
        features, outcomes = self.shape
        rounded = rounded_bound(radii[0], features), rounded_bound(radii[1], outcomes)
        people = None
        if self.max_rows is not None:
            people = DeclaredPeople.of(self.max_rows, block_bounds, *radii, self.shape)
        return JointMoments.calibrate(part, rounded, self.shape, weights, nonnegative=nonnegative, people=people)

    def _row_moments(self, part: Privacy, length: float) -> JointMoments:
        """Calibrate for whitened rows; a coordinate of their sum is worth as much as one of their products."""
        features = self.shape[0]
        weights = {"xx": (features + 1) / 2.0} | ({"x": features * length**2} if self.fit_intercept else {})
        radii = length, self.radii[1]
        return self._calibrated(part, radii, weights, nonnegative=False, block_bounds=(None, None))

    def _whitened_map(self, belief: Belief) -> RowMap:
        """Return the map of rows, as they come, to a belief's coordinates; it subtracts and multiplies once."""
        center, basis = belief.row_map()
        center, basis = self._units.rows * center, basis / self._units.rows
        own = self.row_map
        if own.scale is not None:
            center = center * own.scale
        return replace(own, center=center if own.center is None else own.center + center, basis=basis)

    def _sum_rows(self, people: People, moments: JointMoments, radii: tuple[float, float], row_map: RowMap) -> Gram:
        unit = moments.people
        return gram(
            people.table,
            bound_x=radii[0],
            bound_y=radii[1],
            bound_xx=None if unit is None else unit.bound_xx,
            bound_xy=None if unit is None else unit.bound_xy,
            map_x=_unless_bare(row_map),
            map_y=_unless_bare(self.outcome_map),
            sums="x" in moments.scales,
            **people.options,
        )


class _Held(NamedTuple):
    """What the first counts of people tell."""

    #: To which rows and outcomes are held in their moments.
    radii: tuple[float, float]
    people: float
    has_steps: bool


class _HeldTo(NamedTuple):
    """What the last counts of residual parts tell."""

    #: None before the first.
    clip: Clip | None
    #: Length that few rows' residuals exceed.
    residuals: float


class _Parts(NamedTuple):
    """The budget, by release."""

    bounds: Privacy
    moments: Privacy
    row_sizes: Privacy | None
    row_moments: Privacy | None
    squares: Privacy | None
    sizes: tuple[Privacy, ...]
    sums: tuple[Privacy, ...]


def _bins_below(*largest: float) -> HalfOctaves:
    """Return half-octaves up to the largest of some sizes, from far below the least of them."""
    tops = [math.ceil(2.0 * math.log2(one)) for one in largest]
    return HalfOctaves(max(min(tops) - _TOLD_APART, -800), min(max(max(tops), -799), 800))


def _triangular(whitening: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn coordinates so that as few products as can be are needed: whitening = turn @ lower, turn orthogonal.

    Noise that is alike in all coordinates stays so.
    """
    side = len(whitening)
    left, right = linalg.qr(whitening[:, :side][:, ::-1])
    turn = left[:, ::-1]
    return turn, np.ascontiguousarray(np.hstack([right[::-1, ::-1], turn.T @ whitening[:, side:]]))


def _unless_bare(row_map: RowMap) -> RowMap | None:
    """Leave out a map that does no more than hold rows to a bound: what sums or counts them does that too."""
    is_bare = all(getattr(row_map, name) is None for name in ("low", "center", "scale", "basis"))
    return None if is_bare else row_map


def _first_counts(people: People) -> FixedPoint:
    assert people.sizes is not None
    return people.sizes


def _count_rows(people: People, sizes: Sizes, row_map: RowMap) -> FixedPoint:
    return size_counts(people.table, sizes, map_x=row_map, **people.options)


def _residual_options(people: People) -> dict[str, Any]:
    if people.groups is None or people.max_rows is None:
        return {"n_threads": people.n_threads}
    return {
        "whose": people.groups
        if isinstance(people.groups, io.PersonIds)
        else io.people(people.groups, people.max_rows),
        "max_rows": people.max_rows,
        "n_threads": people.n_threads,
    }


def _count_residuals(people: People, step: ResidualStep, octaves: tuple[int, int]) -> FixedPoint:
    counts = residual_sizes(people.table, step, octaves, **_residual_options(people))
    return FixedPoint.from_integers(counts[None, :], 0)


def _sum_residuals(people: People, step: ResidualStep, clip: float) -> FixedPoint:
    return residual_sums(people.table, step, clip, **_residual_options(people)).products


def _sum_squares(people: People, step: ResidualStep, limit: float) -> FixedPoint:
    squares = residual_sums(people.table, step, limit, bound_squares=limit**2, **_residual_options(people)).squares
    assert squares is not None
    return squares
