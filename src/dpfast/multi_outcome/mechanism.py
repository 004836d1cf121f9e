"""Ways to sum rows within their declared limits, and the public choice of the one with the least cost of noise.

Rows are about the origin, or about the centre of a declared box together with their sums. The moments about the origin
follow from these. Rows are in units of the box's half-widths, so the noise in no column depends on the units of others.
The choice is made from declared numbers alone, so it costs no privacy. So is the error to expect, for plans.

*Weights.* Once rows are weighted, r x for the root r of a weight's share, a mean is no intercept, and limits far from 0
are none. So rows are clipped to their bounds before, put about the centre of their limits, and get a constant as their
last column, which becomes r times as large as the others do. A regression of such rows without an intercept has it as
the last coefficient. All of that is a public map of each row alone, as io/table.py requires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from dpfast._arrays import FloatArray
from dpfast.estimator.base import Expected
from dpfast.estimator.plan import Plan, least
from dpfast.ledger import Release
from dpfast.noise import BitSource
from dpfast.privacy import Adjacency, Composition, Privacy
from dpfast.privacy.guarantee import ROUND_UP
from dpfast.releases.mechanism import Around, NoisySum, Query, Stages, given
from dpfast.releases.moments import DeclaredPeople, JointMoments, noisy_moments, prediction_costs
from dpfast.releases.staged_fit import Regression, number_of_rows
from dpfast.releases.staged_regression import Public, StagedRegression
from dpfast.solvers.inference import InferenceState, Textbook, inference_of_moments
from dpfast.solvers.ridge import (
    MomentNoise,
    RidgeSolution,
    Units,
    held,
    moments_of_each_outcome,
    reduced_moments,
    ridge_from_moments,
    ridge_of_each_outcome,
)
from dpfast.statistics import SampledGram, rounded_bound
from dpfast.statistics.rows import RowMap, centred, check_box, limits_of, scaled

NONNEGATIVE = RowMap(np.zeros(1), np.full(1, np.inf))


@dataclass(frozen=True)
class FeatureScaling:
    """A way to sum rows: the public map they pass through, the largest norm after it, and what is released of them."""

    row_map: RowMap | None
    radius: float
    nonnegative: bool
    sums: bool

    def blocks(self, adjacency: Adjacency, *, several_rows: bool = False) -> list[str]:
        """Name the blocks of moments that are released under an adjacency."""
        if not self.sums:
            return ["xx", "xy"]
        # Under replace-one the number of people is public, and that of rows if a person is a row.
        return ["xx", "xy", "x", "y"] + (["n"] if adjacency == "add_remove" or several_rows else [])


#: How many times the norm of the shortest rows that of others may be, for a way to sum these to be tried.
_LONGEST_ROW_RATIO = 2.0**20
#: Share of the signal that public numbers say steps lose, below which releases alone decide of a warning.
_HOPELESS = 0.9

#: With delta 0: people over half the deviation of noise in moments of bounds 1, below which they show the mean outcome
#: alone.
_FEWEST_OF_MOMENTS = 120.0
#: With delta 0: squares of outcomes are assumed to be so many times smaller than their bound allows; and the level
#: counts more by so much of the part of R-squared that noise in coefficients takes away.
_LESS_VARIED, _SHRUNK = 8.0, 2.0
#: Share for the number of people where it is private and may be few, and of the rest where they are.
_COUNT, _COUNT_OF_FEWEST = 0.04, 0.2


@dataclass(frozen=True)
class OutcomeUnits:
    """How outcomes are summed: the norm to which a person's are clipped, after a public map of theirs.

    If every outcome has a bound of its own, it is clipped to that and divided by it. Then l of them lie in [-1, 1], and
    their norm is at most the root of l. All blocks of moments are then released in these units, by one calibration, and
    the noise in what follows is in proportion to each outcome's own bound: ||x y'|| <= Bx sqrt(l), attained.
    """

    bound: float
    units: FloatArray | None = None

    @classmethod
    def of_each(cls, bounds: FloatArray, n_outcomes: int) -> OutcomeUnits:
        """Return those of outcomes with a bound each."""
        if bounds.shape != (n_outcomes,):
            raise ValueError(f"bound_y must be one number, or one an outcome: {n_outcomes}, got {bounds.size}")
        return cls(math.sqrt(n_outcomes), bounds)

    def row_map(self, nonnegative: bool) -> RowMap | None:
        """Return the map, if there is any, without the bound; entries may be known to be at least 0."""
        if self.units is None:
            return NONNEGATIVE if nonnegative else None
        return RowMap(np.zeros_like(self.units) if nonnegative else -self.units, self.units, scale=self.units)


@dataclass(frozen=True)
class Options:
    """What is asked of a release of moments beyond its scaling, all of it public.

    Parameters
    ----------
    max_rows : int, optional
        Most rows of a person, where people own several.
    block_bounds : tuple of (bound_xx, bound_xy)
        Bounds on a person's block, each None for none.
    sample : tuple of int, optional
        Rows in the secret sample for X'X, and in all.
    composition : {"basic", "advanced", "mu"}, optional
        For a release an outcome (the naive baseline): how they share the budget.
    printed : bool
        Whether the noise is PRIMO's printed one.
    times : mapping
        How many times the variance of noise in blocks, by name, counts more than if outcomes are at their bound.
    """

    max_rows: int | None = None
    block_bounds: tuple[float | None, float | None] = (None, None)
    sample: tuple[int, int] | None = None
    composition: Composition | None = None
    printed: bool = False
    times: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MomentMechanism:
    """A scaling with its calibration, for rows as they are after its map."""

    calibration: JointMoments
    #: What the noise costs the fit: the least is chosen.
    cost: float
    scaling: FeatureScaling

    @classmethod
    def cheapest(
        cls, scalings: list[FeatureScaling], privacy: Privacy, bound_y: float, shape: tuple[int, int], options: Options
    ) -> MomentMechanism:
        """Calibrate every way to sum and return the one whose noise moves the fit least, by public numbers alone."""
        features, outcomes = shape
        least = min(scaling.radius for scaling in scalings)
        # Others cost more in any case, and an L2-Laplace draw has no room for their blocks.
        scalings = [scaling for scaling in scalings if scaling.radius <= _LONGEST_ROW_RATIO * least]
        # Bounds so far apart that squares would overflow leave nothing to choose.
        signal = features * min(rounded_bound(bound_y, outcomes) / least, 2.0**500) ** 2
        return min((cls._of(one, privacy, bound_y, shape, signal, options) for one in scalings), key=attrgetter("cost"))

    @classmethod
    def _of(
        cls,
        scaling: FeatureScaling,
        privacy: Privacy,
        bound_y: float,
        shape: tuple[int, int],
        signal: float,
        options: Options,
    ) -> MomentMechanism:
        features, outcomes = shape
        radii = rounded_bound(scaling.radius, features), rounded_bound(bound_y, outcomes)
        each_outcome = options.composition is not None
        costs = prediction_costs(features, 1 if each_outcome else outcomes, *radii, signal)
        costs |= {name: factor * costs[name] for name, factor in options.times.items()}
        people = None
        if options.max_rows is not None:
            people = DeclaredPeople.of(options.max_rows, options.block_bounds, scaling.radius, bound_y, shape)
        weights = {name: costs[name] for name in scaling.blocks(privacy.adjacency, several_rows=people is not None)}
        if options.printed:
            # All entries of the upper triangle have the same noise: off the diagonal they cost twice.
            weights["xx"] *= 2.0 * features / (features + 1)
            calibration = JointMoments.printed(privacy, radii, shape, options.sample)
        elif options.sample is not None:
            calibration = JointMoments.calibrate_sampled(privacy, radii, shape, weights, options.sample)
        elif options.composition is not None:
            calibration = JointMoments.calibrate_each_outcome(privacy, radii, shape, weights, options.composition)
        else:
            calibration = JointMoments.calibrate(
                privacy, radii, shape, weights, nonnegative=scaling.nonnegative, people=people
            )
        return cls(calibration, calibration.cost(weights) * (outcomes if each_outcome else 1), scaling)

    @property
    def center(self) -> FloatArray | None:
        """The public point subtracted from every row, if any, in the units of the summed rows."""
        row_map = self.scaling.row_map
        if row_map is None or row_map.center is None or row_map.scale is None:
            return None
        return row_map.center / row_map.scale

    @property
    def units(self) -> FloatArray | None:
        """The units that rows are summed in, if not their own."""
        return None if self.scaling.row_map is None else self.scaling.row_map.scale


def in_stages(
    scalings: list[FeatureScaling],
    privacy: Privacy,
    outcomes: OutcomeUnits,
    shape: tuple[int, int],
    options: Options,
    **settings: Any,
) -> StagedRegression:
    """Return the mechanism that fits rows in stages: about the origin, or wherever their bound is least."""
    scaling = min(scalings, key=lambda scaling: scaling.radius) if settings["fit_intercept"] else scalings[0]
    row_map, outcome_map = scaling.row_map or RowMap(), outcomes.row_map(scaling.nonnegative) or RowMap()
    return StagedRegression(
        privacy,
        shape,
        (scaling.radius, outcomes.bound),
        row_map if row_map.scale is not None else replace(row_map, bound=scaling.radius),
        outcome_map if outcome_map.scale is not None else replace(outcome_map, bound=outcomes.bound),
        max_rows=options.max_rows,
        bound_xx=options.block_bounds[0],
        **settings,
    )


@dataclass(frozen=True)
class Moments(Around[Regression]):
    """The mechanism of a fit without residual steps: one release of moments, and the coefficients that follow."""

    chosen: MomentMechanism
    bound_y: float
    public: Public
    #: Or of each column; None to choose it.
    penalty: float | FloatArray | None = None
    fit_intercept: bool = False

    @property
    def inner(self) -> JointMoments:
        """The release."""
        return self.chosen.calibration

    def stages(self) -> Stages[Regression]:
        """Ask for the moments, or for the mean outcome where it is all that so few people show."""
        noise = self.inner
        if self._may_show_mean_alone:
            n_rows, left = self.public.n_rows or 0.0, noise.privacy
            if self.public.n_rows is None:
                n_rows, left = yield from number_of_rows("number of people", left, _COUNT)
            if self._shows_mean_alone(n_rows):
                return (yield from self._mean_alone(left, n_rows))
            assumed = assumed_of(self.chosen, round(n_rows), noise.shape, self.bound_y, (SPREAD, SPREAD), R2)
            # What the level loses stays; of what coefficients lose shrinkage leaves the less, the more it is.
            level = (1.0 + _SHRUNK * assumed.loss_of_noise(noise.noise) / R2) ** 2
            own = Options(times={"xy": _LESS_VARIED, "y": _LESS_VARIED * level, "n": level})
            noise = MomentMechanism.cheapest([self.chosen.scaling], left, self.bound_y, noise.shape, own).calibration
        statistic, bits = (given, None) if noise.sample is None else (_sampled, noise.bound_to)
        released = yield Query("moments of features and outcomes", noise, statistic, sampled_by=bits)
        return partial(self._solved, released, noise)

    @property
    def _may_show_mean_alone(self) -> bool:
        """Whether there are numbers of people for which noise of all moments is more than they show."""
        noise = self.inner
        is_plain = (noise.people, noise.sample, self.public.labels).count(None) == 3 and not noise.each_outcome
        return is_plain and self.fit_intercept and noise.privacy.delta == 0.0

    def _shows_mean_alone(self, n_rows: float) -> bool:
        """Whether noise of all moments, where delta is 0, is more than so few people show."""
        features, outcomes = self.inner.shape
        entries = round((features + 1) * (features / 2 + 1 + outcomes))
        return 2.0 * n_rows < _FEWEST_OF_MOMENTS * NoisySum.calibrate(self.inner.privacy, 1.0, (entries,)).deviation

    def _mean_alone(self, left: Privacy, n_rows: float) -> Stages[Regression]:
        """Ask for the mean outcome; for the number of people once more if it is private."""
        features, outcomes = self.inner.shape
        if self.public.n_rows is None:
            again, left = yield from number_of_rows("number of people, once more", left, _COUNT_OF_FEWEST)
            weights = _COUNT**2, ((1.0 - _COUNT) * _COUNT_OF_FEWEST) ** 2
            n_rows = (weights[0] * n_rows + weights[1] * again) / sum(weights)
        sums = NoisySum.calibrate(left, rounded_bound(self.bound_y, outcomes) * ROUND_UP, (outcomes,))
        released = yield Query("mean of outcomes", sums, attrgetter("exact_y_sum"))
        return partial(Regression.of_level, held(released.values["sum"] / n_rows, self.bound_y), features)

    def _solved(self, released: Release, noise: JointMoments) -> Regression:
        radii = self.chosen.scaling.radius, self.bound_y
        own = Units.near(*radii)
        moments = own.moments(noisy_moments(released, noise, self.public.n_rows), radii if self.fit_intercept else None)
        state = own.of_inference(self.chosen.units, noise.shape[0]) | {"alike": self.chosen.units is not None}
        penalty = own.penalty(self.penalty)
        if noise.each_outcome:
            states = tuple(inference_of_moments(one, **state) for one in moments_of_each_outcome(moments))
            return Regression(own.solution(ridge_of_each_outcome(moments, penalty)), states)
        framing: dict[str, Any] = {"center": own.center(self.chosen.center), "fit_intercept": self.fit_intercept}
        reduced = reduced_moments(moments, **framing)
        states = (inference_of_moments(moments, reduced=reduced, **framing, **state),)
        if self.public.labels is not None:
            moments = self.public.labels.project_moments(moments, radii[0] / own.rows)
            reduced = reduced_moments(moments, **framing)
        solved = ridge_from_moments(moments, penalty, units=self.chosen.units, reduced=reduced, **framing)
        return Regression(own.solution(solved), states)


def _sampled(exact: Callable[[BitSource], SampledGram], bits: BitSource) -> SampledGram:
    """Draw the secret sample, and sum it."""
    return exact(bits)


def feature_scalings(
    features: int, bound: float | None, *, box: object = None, nonnegative: bool = False, sums: bool = False
) -> list[FeatureScaling]:
    """List the ways to sum rows: about the origin, and about the centre of a box if one is declared, in its units.

    Without a bound the box alone bounds the rows; sums of rows and outcomes are released in any case if requested.
    """
    largest = math.inf if bound is None else bound
    if box is None:
        return [FeatureScaling(NONNEGATIVE if nonnegative else None, largest, nonnegative, sums)]
    low, high = limits_of(box, features)
    if nonnegative:
        low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
    if not np.any(low) and not np.any(high):
        raise ValueError("box_x and nonnegative together leave room for zeros only")
    about_origin = FeatureScaling(*scaled(low, high, largest), nonnegative, sums)
    row_map, radius = centred(low, high, largest)
    if radius == 0.0:
        return [about_origin]
    return [about_origin, FeatureScaling(row_map, radius, nonnegative=False, sums=True)]


def clip_to_box(box: object, *, nonnegative: bool = False) -> RowMap:
    """Return the map that clips entries to a declared box."""
    low, high = np.broadcast_arrays(*(np.atleast_1d(side).astype(np.float64) for side in check_box(box)))
    return RowMap(np.maximum(low, 0.0), np.maximum(high, 0.0)) if nonnegative else RowMap(low, high)


#: Assumed where nothing is known: mean squared norms as a fraction of squared bounds, and R^2 without privacy.
SPREAD, R2 = 0.25, 0.5


class Assumed(NamedTuple):
    """Assumptions on rows: even over directions, and outcomes explained by them as far as R^2 says."""

    n_people: int
    rows: float
    shape: tuple[int, int]
    #: Mean squared norms of rows and of outcomes.
    squares: tuple[float, float]
    score: float
    max_rows: int = 1

    def loss_of_noise(self, noise: MomentNoise) -> float:
        """Return the loss of R^2 from noise in moments without shrinkage: r'(X'X)^-1 r over the sum of y'y.

        The noise r in X'Y - X'X theta has a mean squared norm of d l cross^2 + (d + 1)/2 diagonal^2 ||theta||^2.
        """
        features, outcomes = self.shape
        eigenvalue, power, signal = self._sizes
        squared = features * outcomes * noise.cross**2 + (features + 1) / 2.0 * noise.diagonal**2 * signal
        return squared / (eigenvalue * power) + noise.sampling * features * self.score

    def loss_of_level(self, noise: MomentNoise) -> float:
        """Return the loss from noise in the sums of outcomes, and of rows times theta."""
        _, power, signal = self._sizes
        return (self.shape[1] * noise.y**2 + noise.x**2 * signal) / (self.rows * power)

    @property
    def _sizes(self) -> tuple[float, float, float]:
        """An eigenvalue of X'X, the sum of y'y, and ||theta||^2."""
        eigenvalue, power = self.rows * self.squares[0] / self.shape[0], self.rows * self.squares[1]
        return eigenvalue, power, self.score * power / eigenvalue

    def expected_score(self, loss: float) -> float:
        """Return the R^2 to expect, with the best penalty.

        The loss was reckoned for rows that are even over directions. Those of people have eigenvalues like k^-1.5
        rather, k = 1, 2, ..., and coefficients as large in all of them: noise in moments matters most where rows are
        short; but there is least to lose there.
        """
        features = self.shape[0]
        lengths = np.arange(1.0, features + 1.0) ** -1.5
        lengths /= lengths.sum()
        signal = self.score * lengths
        noise = loss / features**2 / lengths
        return self.score - float(np.sum(signal * noise / (signal + noise)))


def score_in_stages(mechanism: StagedRegression, people: float, score: float) -> float:
    """Return the R^2 to expect of a fit in stages."""
    loss = mechanism.expected_loss(people, score)
    return score * score / (score + loss) if score > 0.0 else 0.0


def planned_in_stages(mechanism: StagedRegression, n: int, target: float, spread: float, score: float) -> Plan:
    """Plan for a fit in stages: its error falls faster than 1/n where directions come out of the noise.

    Shrinkage keeps the error of coefficients below the signal. People who show the mean outcome alone lose all of the
    signal, and the noise in the mean adds to that.
    """

    def error(people: int) -> float:
        loss = mechanism.expected_loss(people, score)
        if math.isinf(loss):
            return math.hypot(math.sqrt(score * spread), mechanism.unit_deviation / people)
        return math.sqrt(spread * score * loss / (score + loss)) if loss > 0.0 else 0.0

    expected = score_in_stages(mechanism, n, score)
    return _plan(error, n, target, mechanism.scales, score, expected)


def planned(
    chosen: MomentMechanism,
    of_all: MomentMechanism,
    n: int,
    shape: tuple[int, int],
    bound_y: float,
    target: float,
    spreads: tuple[float, float],
    score: float,
) -> Plan:
    """Plan for n people whose rows and outcomes have mean squared norms of `spreads` of their squared bounds.

    The route of all rows is compared with where the route takes a sample. Planned for others, people have the same
    fraction sampled.
    """
    noise = chosen.calibration.noise

    def lost(people: int, noise: MomentNoise) -> float:
        assumed = assumed_of(chosen, people, shape, bound_y, spreads, score)
        return max(score - assumed.expected_score(assumed.loss_of_noise(noise)), 0.0) + assumed.loss_of_level(noise)

    def error_of_noise(people: int) -> float:
        return math.sqrt(lost(people, replace(noise, sampling=0.0)) * spreads[1])

    def error_of_sampling(people: int) -> float:
        # The error of (n/s) X_s'X_s theta is a sum over the sample of rows times predictions. Its mean square in the
        # norm of (X'X)^-1 is (1 - s/n)(d/s) times that of predictions, for rows whose d directions are equally long.
        return math.sqrt(noise.sampling * n / people * shape[0] * score * spreads[1])

    def error(people: int) -> float:
        return math.hypot(error_of_noise(people), error_of_sampling(people))

    plan = _plan(error, n, target, chosen.calibration.scales, score, score - lost(n, noise))
    if chosen.calibration.sample is None:
        return plan
    notes = {"error of the noise": error_of_noise(n), "error of sampling": error_of_sampling(n)}
    return replace(plan, notes=notes | _cost_of_sampling(chosen, of_all, shape))


def _plan(
    error: Callable[[int], float], n: int, target: float, scales: Mapping[str, float], score: float, expected: float
) -> Plan:
    """Return the plan, with the least number of people whose error is the target."""
    needed = least(lambda people: error(people) <= target)
    return Plan(n, min(error(n), 1.0), target, needed, scales, score=score, expected_score=expected)


def assumed_of(
    chosen: MomentMechanism, n: int, shape: tuple[int, int], bound_y: float, spreads: tuple[float, float], score: float
) -> Assumed:
    """Assume of rows, and of outcomes, mean squared norms of `spreads` of their squared bounds."""
    unit = chosen.calibration.people
    rows = n * _counting_rows(chosen, shape[0], bound_y, spreads[0])
    squares = spreads[0] * chosen.scaling.radius**2, spreads[1] * bound_y**2
    return Assumed(n, rows, shape, squares, score, 1 if unit is None else unit.max_rows)


def expected_loss(
    chosen: MomentMechanism | None, in_stages: StagedRegression | None, n: int | None, bound_y: float = 0.0
) -> Expected | None:
    """Return the expected loss of R^2 from noise, as a share, if only public numbers are known: n may be private."""
    if n is None:
        return None
    if in_stages is not None:
        lost = 1.0 - score_in_stages(in_stages, n, R2) / R2
        return Expected(lost if lost >= _HOPELESS else 0.0, n)
    assert chosen is not None
    assumed = assumed_of(chosen, n, chosen.calibration.shape, bound_y, (SPREAD, SPREAD), R2)
    return Expected(1.0 - assumed.expected_score(assumed.loss_of_noise(chosen.calibration.noise)) / assumed.score, n)


def _counting_rows(chosen: MomentMechanism, features: int, bound_y: float, spread: float) -> float:
    """Rows of a person, as planned, less what the bounds on their block scale them down by."""
    unit = chosen.calibration.people
    if unit is None:
        return 1.0
    # Rows even over as many directions as they can be; outcomes at their bound, explained by rows at theirs.
    norm = unit.max_rows * spread * chosen.scaling.radius / math.sqrt(min(unit.max_rows, features))
    limits = ((unit.bound_xx, chosen.scaling.radius), (unit.bound_xy, bound_y))
    factors = [bound / (norm * length) for bound, length in limits if bound is not None]
    return unit.max_rows * min([1.0, *factors])


def _cost_of_sampling(chosen: MomentMechanism, of_all: MomentMechanism, shape: tuple[int, int]) -> dict[str, float]:
    """Compare X'X of a sample with the one of all rows: its cost in noise, and its saving in arithmetic."""
    features, outcomes = shape
    factor, scales, other = chosen.calibration.xx_factor, chosen.calibration.scales, of_all.calibration.scales
    products_of_xx, products_of_xy = features * (features + 1) / 2, features * outcomes
    saved = (1.0 - 1.0 / factor) * products_of_xx / (products_of_xx + products_of_xy)
    return {
        "noise in xx over that without sampling": factor * scales["xx"] / other["xx"],
        "noise in xy over that without sampling": scales["xy"] / other["xy"],
        "fraction of the arithmetic saved": saved,
    }


def attributes_of(
    solution: RidgeSolution,
    states: tuple[InferenceState, ...],
    n_steps: int = 0,
    *,
    residual_variance: FloatArray | None = None,
    textbook: Textbook | None = None,
    lost: float = 0.0,
) -> dict[str, Any]:
    """Return the fitted attributes of a solution and what is known of it: `lost` is the error as part of the signal."""
    return {
        "_expected_error": lost,
        "_inference_states": tuple(dict(vars(state)) for state in states),
        "_textbook": None if textbook is None else tuple(textbook),
        "residual_std_": None if residual_variance is None else np.sqrt(residual_variance),
        "n_steps_": n_steps,
        "coef_": solution.coef,
        "intercept_": solution.intercept,
        "coef_std_": solution.coef_std,
        "ridge_": solution.ridge,
        "n_features_in_": solution.coef.shape[1],
    }


class Column(NamedTuple):
    """The constant column, in place of an intercept, of weighted rows."""

    #: The point that they were about, (n_features,) or (1,), and their last column.
    center: FloatArray
    constant: float

    def split(self, solution: RidgeSolution) -> RidgeSolution:
        """Return the solution of rows as they came: the last coefficient is their intercept."""
        coef = solution.coef[:, :-1]
        intercept = self.constant * solution.coef[:, -1] - coef @ np.broadcast_to(self.center, coef.shape[1])
        return replace(solution, coef=coef, intercept=intercept, coef_std=solution.coef_std[:, :-1])

    def with_constant(self, states: InferenceState) -> InferenceState:
        """Return what is known of the intercept, too: a function of the coefficients."""
        assert states.units is not None
        weights = np.append(-np.broadcast_to(self.center, len(states.xx) - 1), self.constant)
        return replace(states, constant=weights / states.units)

    def rows_per_weight(self, states: tuple[InferenceState, ...]) -> float:
        """Return how many rows there are for the sum of their weights, as squares of rows and of the constant tell.

        Residual variances of weighted rows are smaller by this factor, if the weights say nothing of them. Both squares
        are of rows clipped to a norm. This overestimates the number, by 2 if weights are exponential.
        """
        if not states:
            return 1.0
        state = states[0]
        assert state.units is not None
        squares = float(linalg.inv(state.inverse)[-1, -1])
        return max(state.n_rows / (squares * float(state.units[-1] / self.constant) ** 2), 1.0)


@dataclass(frozen=True)
class Unweighted:
    """Rows that are to be weighted, as they are declared."""

    bound: float | None
    box: object
    nonnegative: bool
    has_intercept: bool

    @property
    def stay(self) -> bool:
        """Whether they are weighted as they come."""
        return not self.has_intercept and self.box is None

    @property
    def held(self) -> Callable[[Any], FloatArray] | None:
        """The map that holds them to their bounds, and completes them."""
        return None if self.stay else lambda rows: self._completed(self._row_map(rows.shape[1])(rows), self._constant)

    @property
    def as_they_are(self) -> Callable[[Any], FloatArray] | None:
        """The map that completes them if nothing is clipped to a bound."""
        return None if not self.has_intercept else lambda rows: self._completed(np.asarray(rows, np.float64), 1.0)

    def parameters(self, features: int) -> dict[str, Any]:
        """Return the parameters for weighted rows, and their column in place of an intercept, if any."""
        center = self._center(features)
        found: dict[str, Any] = {"fit_intercept": False}
        if self.has_intercept:
            found["_column"] = center, self._constant
        if self.box is None:
            assert self.bound is not None
            return found | {"bound_x": math.hypot(self.bound, self._constant)}
        low, high = self._limits(features)
        if self.bound is not None:
            # Rows scaled onto their bound leave their limits towards the origin, by no more than the longest do.
            part = min(1.0, self.bound / float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high)))))
            low, high = np.minimum(low, part * low), np.maximum(high, part * high)
        low, high = low - center, high - center
        # Weights move rows towards the origin that they are about.
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        if self.has_intercept:
            low, high = np.append(low, 0.0 if self.nonnegative else -1.0), np.append(high, 1.0)
        return found | {"bound_x": None, "box_x": (low, high)}

    @property
    def _constant(self) -> float:
        """About as much as the bound on rows, a power of two, or as what limits are in units of half their widths."""
        return 1.0 if self.box is not None or self.bound is None else 2.0 ** round(math.log2(self.bound))

    def _completed(self, rows: FloatArray, constant: float) -> FloatArray:
        return np.column_stack([rows, np.full(len(rows), constant)]) if self.has_intercept else rows

    def _row_map(self, features: int) -> RowMap:
        bound = math.inf if self.bound is None else self.bound
        if self.box is None:
            return RowMap(bound=bound)
        return RowMap(*self._limits(features), bound, self._center(features))

    def _limits(self, features: int) -> tuple[FloatArray, FloatArray]:
        low, high = limits_of(self.box, features)
        return (np.maximum(low, 0.0), np.maximum(high, 0.0)) if self.nonnegative else (low, high)

    def _center(self, features: int) -> FloatArray:
        """Return the center of rows: the origin if no intercept makes up for another."""
        if self.box is None or self.nonnegative or not self.has_intercept:
            return np.zeros(features)
        low, high = self._limits(features)
        return low / 2.0 + high / 2.0


def least_squares(
    rows: FloatArray, outcomes: FloatArray, ridge: float, roots: FloatArray | None, *, robust: bool
) -> tuple[RidgeSolution, Textbook]:
    """Return the textbook estimator and its errors: rows as they are, no noise.

    `roots`, of shape (n,), holds what the constant of an intercept is in each row, the root of its weight.
    """
    mean_x, mean_y = np.zeros(rows.shape[1]), np.zeros(outcomes.shape[1])
    if roots is not None:
        mean_x, mean_y = (roots @ table / (roots @ roots) for table in (rows, outcomes))
        rows, outcomes = rows - np.outer(roots, mean_x), outcomes - np.outer(roots, mean_y)
    if roots is None:
        textbook = Textbook.of(rows, outcomes, robust=robust)
    else:
        # A constant as long as the rows are on average, so that neither is taken for rounding of the other.
        unit = float(np.linalg.norm(rows)) / math.sqrt(rows.shape[1] * float(roots @ roots)) or 1.0
        functions = np.eye(rows.shape[1] + 1)
        functions[-1] = np.append(-mean_x, unit)
        design, observed = np.column_stack([rows, unit * roots]), outcomes + np.outer(roots, mean_y)
        textbook = Textbook.of(design, observed, functions=functions, robust=robust)
    fitted = rows @ textbook.center[:, : rows.shape[1]].T
    total, rest = np.sum(outcomes**2, axis=0), np.sum((outcomes - fitted) ** 2, axis=0)
    textbook = textbook._replace(r_squared=(total - rest) / np.maximum(total, np.finfo(np.float64).tiny))
    if ridge > 0.0:
        theta = linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ outcomes, assume_a="pos")
    else:
        theta = linalg.lstsq(rows, outcomes)[0]
    return RidgeSolution(theta.T, mean_y - mean_x @ theta, np.zeros_like(theta.T), ridge), textbook
