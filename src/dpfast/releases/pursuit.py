"""Private orthogonal matching pursuit: pick one feature after the other, each by the residuals of those before.

A round spends three parts of one joint budget (`dpfast.privacy.split_with_picks`):

1. *Sizes.* A histogram counts people by the size of their residuals, with noise. The clip of the residuals in the round
   is in proportion to the bound it gives.
2. *Pick.* The feature with the largest score |sum of x_ij r_i| is picked by the exponential mechanism, with r the
   clipped residuals (with several outcomes, the L2 norm of the vector of sums).
3. *Moments* of the features so far and of the clipped residuals, by `JointMoments`: a Newton step of the coefficients.
   The last round leaves it out: `StagedRegression` fits all features with the rest of the budget.

*Sensitivity of scores.* A person's part in the sums of a feature is x_ij r_i, of an L2 norm of `part_bound` m at most
(statistics/scores.py). An added person moves the score of each feature by something in [-m, m], a replaced one by
something in [-2m, 2m]. Computed norms are within tau of the exact ones: another 4 tau. So the exponential mechanism
with a rate of r/(2m + 4 tau), or r/(4m + 4 tau), has the bounded range r: it is r-DP. By its range it composes with the
other picks and the noise of all other releases (privacy/support_noise.py), whatever earlier releases these depend on.
Features that were picked are no candidates, on either of two neighbouring tables.

Every clip, map and coefficient is a function of earlier releases and public numbers, fixed before rows are read again.

*An intercept* is the coefficient of a public constant c beside the features: c is in every row of moments and of the
fit, whose norm is at most hypot(radius, c), and no candidate of a pick. Before the first round its moments with the
outcomes, clipped to their declared bound, are one more step: residuals have a mean near 0 when features are picked.

*People with several rows.* The first `max_rows` of a person count, k at most. The person's part in the sums of a
feature is that of their rows, of a norm of k m at most: the same proof with k m for m. In a histogram of sizes the
person's first row counts. Moments and the fit are those of people (`JointMoments`, `StagedRegression`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast.kernels.columns import FixedPoint, Rows, SparseBlock, kept, numbers_of
from dpfast.ledger import Release
from dpfast.noise import BitSource
from dpfast.privacy import Privacy, Unit, range_mu, score_rate, split_budget, split_with_picks
from dpfast.privacy.guarantee import ROUND_UP, remembered
from dpfast.releases.mechanism import Drawn, Mechanism, NoisySum, Query, SingleRelease, Stages, within
from dpfast.releases.moments import DeclaredPeople, JointMoments, Shape, noisy_moments, weights_of
from dpfast.releases.people import People
from dpfast.releases.staged_regression import Public, StagedRegression
from dpfast.solvers.averaged_descent import quantile_bin
from dpfast.solvers.ridge import ridge_from_moments
from dpfast.statistics import MOST_ROWS_IF_PRIVATE, Gram, gram, rounded_bound
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms, size_counts
from dpfast.statistics.residuals import check_most_rows
from dpfast.statistics.rows import MapIntoRoom, RowMap, sum_of_parts
from dpfast.statistics.scores import part_bound, residual_scores, score_error

# Shares of the budget left by picks. Near the best over tables of 700 to 4,000 people, 60 to 200 features, correlated
# and not: flat within a factor of 1.5.
_SIZES, _STEPS, _FIT = 0.12, 0.28, 0.6
#: Share of people below the clip of residuals. Shorter clips have a better ratio of signal to noise, as the density of
#: residuals is largest about 0, until sampling error dominates. Near the best as above; flat from .3 to .5.
UNCLIPPED = 0.4
# The share is larger in steps: the rest of a clipped sum is in proportion to coefficients for normal features only.
_UNCLIPPED_IN_STEPS = 0.8
# Half-octaves below the largest outcome in which residuals are counted.
_TOLD_APART = 20
# The released moments.
_BLOCKS = "xx", "xy"
# In the place of a feature: the public constant.
_CONSTANT = -1

#: Features by their places, the constant among them; and what is summed over rows.
Features: TypeAlias = tuple[int, ...]
Statistic: TypeAlias = "Callable[[PursuedRows], Any]"


@dataclass
class PursuedRows:
    """The data owner's rows, and statistics computed once from them: not private."""

    table: io.Table
    row_map: RowMap
    outcome_map: RowMap
    n_threads: int | None = None
    #: Of the people that rows belong to, and the most rows of one that count, if people have several.
    groups: Any = None
    max_rows: int | None = None
    #: The entry of a constant feature.
    constant: float = 0.0
    #: Within their bound.
    outcomes: FloatArray = field(init=False)
    _columns: dict[int, FloatArray] = field(init=False)
    #: What `people` returned last: all queries of a fit are for the same rows.
    _people: tuple[Features, FloatArray, People] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Read the outcomes, and check that all are finite: a later failure would cost budget and give no reason."""
        blocks = [np.empty((0, self.table.n_outcomes))]
        for x, y in self.table.blocks(map_y=self.outcome_map):
            if not _all_finite(numbers_of(x)):
                raise check.not_finite("X")
            blocks += [] if y is None else [kept(y)]
        self.outcomes = np.concatenate(blocks)
        if not np.isfinite(self.outcomes).all():
            raise check.not_finite("y")
        self._columns = {_CONSTANT: np.full(len(self.outcomes), self.constant)}
        if self._whose is not None and self._whose.n_rows != len(self.outcomes):
            raise ValueError("groups must have one id a row: X has another number of rows")

    @cached_property
    def _whose(self) -> io.People | None:
        return None if self.max_rows is None else io.people(self.groups, self.max_rows, ordered=False)

    @property
    def options(self) -> dict[str, Any]:
        """Options of sums of rows."""
        return {"groups": self.groups, "max_rows": self.max_rows, "n_threads": self.n_threads}

    def counting(self, rows: FloatArray) -> FloatArray:
        """Return the rows, with zeros in those that do not count."""
        kept = None if self._whose is None else self._whose.kept()
        return rows if kept is None else np.where(kept[:, None], rows, 0.0)

    def count(self) -> int:
        """Count the rows, and check that all entries are numbers: some rows are read only after the first draw."""
        self.table.check_finite()
        return len(self.outcomes)

    def columns(self, features: Features) -> FloatArray:
        """Return columns of mapped rows."""
        return np.column_stack(self._each(features))

    def _each(self, features: Features) -> list[FloatArray]:
        """Return each column, reading those not read before."""
        missing = [feature for feature in features if feature not in self._columns]
        if missing:
            if self.table.arrays is not None and self.row_map.bound == math.inf:
                # Entries are mapped one by one.
                blocks = [self.row_map.of_entries(missing)(self.table.arrays[0][:, missing])]
            else:
                some = _SomeColumns(self.row_map, self.row_map.reusing_room(), missing)
                blocks = [np.asarray(x) for x, _ in self.table.blocks(map_x=some)]
            found = np.concatenate([np.empty((0, len(missing))), *blocks])
            self._columns |= {feature: np.ascontiguousarray(found[:, i]) for i, feature in enumerate(missing)}
        return [self._columns[feature] for feature in features]

    def residuals(self, features: Features, theta: FloatArray) -> FloatArray:
        """Return the residuals of outcomes under coefficients (k, l), entry by entry in one order of operations."""
        left = self.outcomes.copy()
        for column, row in zip(self._each(features), theta, strict=True):
            for outcome, coefficient in enumerate(row):
                left[:, outcome] -= column * coefficient
        return left

    def sum(self, statistic: Statistic) -> Any:
        """Return a statistic of the rows."""
        return statistic(self)

    def people(self, features: Features, theta: FloatArray) -> People:
        """Return the rows of some features, with the residuals as outcomes, for their fit."""
        if self._people is None or self._people[0] != features or self._people[1] is not theta:
            arrays = self.columns(features), self.residuals(features, theta)
            table = io.Table(len(features), self.outcomes.shape[1], arrays=arrays)
            self._people = features, theta, People(table, self.groups, self.max_rows, self.n_threads)
        return self._people[2]


@dataclass(frozen=True)
class PursuedParts:
    """The data owner's rows in parts, each of which is read again for every sum: not private."""

    table: io.Table
    #: Reads the rows of a part, and its ids if people have several rows.
    read: Callable[..., PursuedRows]
    groups: Any = None

    def sum(self, statistic: Statistic) -> Any:
        """Add up a statistic of every part's rows."""
        return self.table.reduce(partial(_of_part, statistic, self.read), _added, groups=self.groups)


@dataclass(frozen=True)
class _SomeColumns:
    """Maps rows, of which some columns are kept."""

    row_map: RowMap
    room: MapIntoRoom
    features: list[int]
    reads_columns: ClassVar[bool] = True

    def __call__(self, rows: Rows) -> FloatArray:
        if not (isinstance(rows, SparseBlock) and self.row_map.keeps_zeros):
            return self.room(rows)[:, self.features]
        entries = self.row_map.of_sparse(rows)
        places = np.full(entries.shape[1], -1)
        places[self.features] = np.arange(len(self.features))
        chosen = places[entries.indices] >= 0
        found = np.zeros((len(rows), len(self.features)))
        found[entries.rows[chosen], places[entries.indices[chosen]]] = entries.data[chosen]
        return found


def _all_finite(rows: NDArray[Any]) -> bool:
    # A finite sum has finite terms, and takes no memory.
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isfinite(rows.sum(dtype=np.float64)) or np.isfinite(rows).all())


def _added(one: Any, other: Any) -> Any:
    """Add sums over parts; nobody is in two of them."""
    return sum_of_parts(one, other) if isinstance(one, Gram) else operator.add(one, other)


def _of_part(statistic: Statistic, read: Callable[..., PursuedRows], table: io.Table, groups: Any) -> Any:
    if table.is_read_once or table.is_unordered:
        table = table.held()
    return statistic(read(table, groups=groups))


class Chosen(NamedTuple):
    """Features, in the order of their picks if these are made one by one, and estimates, from releases."""

    features: Features
    #: Coefficients of these features (k, l).
    theta: FloatArray
    #: Of every outcome, if there is one.
    intercept: FloatArray | None = None
    #: Share of the signal that the releases show to be off.
    error: float = 0.0


@dataclass(frozen=True)
class FeaturePick(SingleRelease):
    """The mechanism: the exponential mechanism over features, for their sums with clipped residuals."""

    #: The guarantee of a pick alone: its epsilon is the bounded range.
    privacy: Privacy
    rate: float
    #: Features and outcomes, and the features that are no candidates.
    shape: Shape
    picked: Features = ()
    unit: Unit = "row"

    @classmethod
    def calibrate(
        cls,
        privacy: Privacy,
        part: float,
        shape: Shape,
        n_rows: int | None,
        picked: Features = (),
        max_rows: int | None = None,
    ) -> Self:
        """Calibrate for a bound on a row's part in a feature's sums; `n_rows` is None if it is private."""
        rate = _rate_of_pick(privacy, part, shape[1], n_rows, max_rows)
        return cls(privacy, rate, shape, picked, "row" if max_rows is None else "person")

    @property
    def scales(self) -> dict[str, float]:
        """Difference of scores that multiplies odds by e."""
        return {"feature": 1.0 / self.rate}

    def seeds(self, statistic: FixedPoint) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self.privacy, self.rate, self.shape, self.picked

    def draw(self, statistic: FixedPoint, source: BitSource) -> Drawn:
        """Pick a feature by its exact sums (n_features, n_outcomes)."""
        if statistic.shape != self.shape:
            raise ValueError(f"the sums have the shape {statistic.shape}, the pick was calibrated for {self.shape}")
        scores = np.sqrt(np.sum(np.square(statistic.to_float64()), axis=1))
        candidates = np.delete(np.arange(self.shape[0]), self.picked)
        pick = noise.ExponentialPick(self.rate, source)
        pick.update(-scores[candidates])
        feature = np.array(candidates[pick.index], np.int64)
        length, values = self.privacy.epsilon, {"feature": feature}
        return Drawn("exponential mechanism", values, mu=range_mu(length), log_range=length, unit=self.unit)


@remembered
def _rate_of_pick(privacy: Privacy, part: float, n_outcomes: int, n_rows: int | None, max_rows: int | None) -> float:
    """Return the largest rate of a pick that keeps to a range of log probabilities, for a part of each row."""
    error = score_error(MOST_ROWS_IF_PRIVATE if n_rows is None else n_rows, part, n_outcomes)
    of_person = part if max_rows is None else part * max_rows * ROUND_UP
    return score_rate(privacy.epsilon, 2.0 * of_person, error, adjacency=privacy.adjacency)


@dataclass(frozen=True)
class Pursuit(Mechanism[Chosen]):
    """The mechanism: rounds of releases, calibrated for declared bounds and for earlier releases.

    Parameters
    ----------
    privacy : Privacy
        Guarantee of all releases together.
    size : int
        Features to pick.
    shape : tuple of int
        Features and outcomes.
    entry_bound, row_bound : float
        Largest size of an entry and L2 norm of a row, after mapping; the latter may be infinite.
    outcome_bound : float
        Largest L2 norm of a person's outcomes.
    n_rows : int, optional
        None if it is private.
    selection_share : float
        Share of the budget for the picks.
    by_mu : bool
        Whether the budget is a part of one shared by mu. All of it must then be Gaussian.
    max_rows : int, optional
        Most rows of a person, if people have several.
    constant : float
        A public number beside the features, whose coefficient is the intercept; 0 for none.
    """

    privacy: Privacy
    size: int
    shape: Shape
    entry_bound: float
    row_bound: float
    outcome_bound: float
    n_rows: int | None
    selection_share: float
    by_mu: bool = False
    max_rows: int | None = None
    constant: float = 0.0

    def __post_init__(self) -> None:
        # Here, as the fit comes after releases.
        check_most_rows(self.max_rows)

    def stages(self) -> Stages[Chosen]:
        """Yield one query after the other."""
        parts, bins = self._parts, self._bins
        picked: Features = ()
        fixed = (_CONSTANT,) if self.constant else ()
        theta = np.zeros((len(fixed), self.shape[1]))
        if fixed:
            options = {"clip": self.outcome_bound, "features": (), "theta": np.zeros((0, self.shape[1]))}
            theta = yield from self._step(0, fixed, options)
        for number in range(1, self.size + 1):
            counts = NoisySum.of_counts(parts.sizes, 1, bins.n_bins, unit=self.unit)
            features = (*fixed, *picked)
            released = yield _query(
                f"sizes of residuals, round {number}", counts, _count, bins=bins, features=features, theta=theta
            )
            sizes = released.values["sum"][0, bins.largest_code :]
            clip = bins.size(quantile_bin(sizes, UNCLIPPED, self.n_rows).place)
            pick = self.pick(clip, picked)
            of_residuals: dict[str, Any] = {"clip": clip, "features": features, "theta": theta}
            released = yield _query(f"feature {number}", pick, _score, entry_bound=self.entry_bound, **of_residuals)
            picked = (*picked, int(released.values["feature"]))
            # The new feature has no coefficients yet.
            theta = np.vstack([theta, np.zeros((1, theta.shape[1]))])
            if number == self.size:
                break
            wide = quantile_bin(sizes, _UNCLIPPED_IN_STEPS, self.n_rows)
            step = yield from self._step(number, (*fixed, *picked), of_residuals | {"clip": bins.size(wide.place)})
            # Only residuals that are not clipped contribute to the curvature.
            theta = theta + step / wide.share
        of_fit = partial(_of_fit, columns=(*fixed, *picked), theta=theta)
        refined = yield from within(self.fit.stages(), of_fit)

        def solve() -> Chosen:
            found, n_fixed = theta + refined().solution.coef.T, len(fixed)
            return Chosen(picked, found[n_fixed:], self.constant * found[0] if fixed else None)

        return solve

    def _step(
        self, number: int, columns: Features, of_residuals: dict[str, Any]
    ) -> Generator[Query, Release, FloatArray]:
        """Ask for moments of some columns and clipped residuals, and solve for these."""
        part, radius = self._parts.moments, self._row_length(number)
        assert part is not None
        moments = self._moments(part, radius, of_residuals["clip"], len(columns))
        name = f"moments of residuals, round {number}"
        released = yield _query(name, moments, _sum_residuals, radius=radius, columns=columns, **of_residuals)
        return ridge_from_moments(noisy_moments(released, moments, self.n_rows)).coef.T

    def pick(self, clip: float, picked: Features = ()) -> FeaturePick:
        """Return the mechanism that picks a feature by clipped residuals."""
        part = part_bound(self.entry_bound, clip, self.shape[1])
        privacy = Privacy(self._parts.pick, 0.0, self.privacy.adjacency)
        return FeaturePick.calibrate(privacy, part, self.shape, self.n_rows, picked, self.max_rows)

    @property
    def unit(self) -> Unit:
        """Whose data the noise protects."""
        return "row" if self.max_rows is None else "person"

    @cached_property
    def fit(self) -> StagedRegression:
        """The mechanism that fits all picked features."""
        radius, shape = self._row_length(self.size), (self.size + bool(self.constant), self.shape[1])
        return StagedRegression(
            self._parts.fit,
            shape,
            (radius, self.outcome_bound),
            RowMap(bound=radius),
            RowMap(bound=self.outcome_bound),
            max_rows=self.max_rows,
            public=Public(self.n_rows),
        )

    @property
    def scales(self) -> dict[str, float]:
        """Scales of the pick, for a clip of the largest outcome; and of the fit."""
        return {**self.pick(self.outcome_bound).scales, **self.fit.scales}

    @cached_property
    def _parts(self) -> _Parts:
        """Split the budget: the fit also gets the part that steps do not need."""
        steps = self.size - 1 + bool(self.constant)
        length, rest, _ = split_with_picks(self.privacy, self.selection_share, self.size, by_mu=self.by_mu)
        shares = [_SIZES / self.size] * self.size + [_STEPS / max(steps, 1)] * steps
        shares.append(_FIT if steps else _FIT + _STEPS)
        each = split_budget(rest, shares)
        return _Parts(each[0], length, each[self.size] if steps else None, each[-1])

    @property
    def _bins(self) -> LogarithmicBins:
        last = max(-780, min(math.ceil(2.0 * math.log2(self.outcome_bound)), 800))
        return LogarithmicBins(last - _TOLD_APART, last)

    def radius(self, n_features: int) -> float:
        """Return the largest norm of a row of this many features."""
        return min(math.sqrt(n_features) * self.entry_bound, self.row_bound)

    def _row_length(self, n_features: int) -> float:
        """Return the largest norm of such a row with the constant beside it."""
        return math.hypot(self.radius(n_features), self.constant)

    def _moments(self, part: Privacy, radius: float, clip: float, n_features: int) -> JointMoments:
        shape = n_features, self.shape[1]
        radii = rounded_bound(radius, shape[0]), rounded_bound(clip, shape[1])
        people = None
        if self.max_rows is not None:
            people = DeclaredPeople.of(self.max_rows, (None, None), radius, clip, shape)
        return JointMoments.calibrate(part, radii, shape, weights_of(_BLOCKS, shape, *radii), people=people)


class _Parts(NamedTuple):
    """The budget: of each round's releases, and of the fit."""

    sizes: Privacy
    #: The range of each pick.
    pick: float
    moments: Privacy | None
    fit: Privacy


def _query(name: str, mechanism: SingleRelease, statistic: Callable[..., Any], **options: Any) -> Query:
    """Ask for a statistic of rows, or of each part of them."""
    statistic = partial(_summed, partial(statistic, **options))
    return Query(name, mechanism, statistic, options.get("clip", math.inf))


def _summed(statistic: Statistic, rows: PursuedRows | PursuedParts) -> Any:
    return rows.sum(statistic)


def _of_fit(query: Query, columns: Features, theta: FloatArray) -> Query:
    """Change a query of the fit: from outcomes to their residuals so far, and from all columns to the picked ones."""
    statistic = partial(_summed, partial(_of_people, query.statistic, columns, theta))
    return Query(f"fit, {query.name}", query.mechanism, statistic, query.clip)


def _of_people(statistic: Callable[[People], Any], columns: Features, theta: FloatArray, rows: PursuedRows) -> Any:
    """Return a statistic of people with the picked columns, and with residuals for outcomes."""
    return statistic(rows.people(columns, theta))


def _count(rows: PursuedRows, bins: LogarithmicBins, features: Features, theta: FloatArray) -> FixedPoint:
    residuals, sizes = rows.residuals(features, theta), NormHistograms(rows=True, bins=bins)
    first = None if rows.max_rows is None else 1
    table = io.Table(residuals.shape[1], 0, arrays=(residuals, None))
    return size_counts(table, sizes, groups=rows.groups, max_rows=first, n_threads=rows.n_threads)


def _score(rows: PursuedRows, entry_bound: float, clip: float, features: Features, theta: FloatArray) -> FixedPoint:
    residuals = rows.counting(rows.residuals(features, theta))
    return residual_scores(rows.table, residuals, rows.row_map, entry_bound, clip, rows.n_threads)


def _sum_residuals(
    rows: PursuedRows, radius: float, clip: float, columns: Features, features: Features, theta: FloatArray
) -> Gram:
    arrays = rows.columns(columns), rows.residuals(features, theta)
    table = io.Table(len(columns), arrays[1].shape[1], arrays=arrays)
    return gram(table, bound_x=radius, bound_y=clip, **rows.options)
