"""The interface of every mechanism, the one driver that draws and records its releases, and the two plainest of them.

*Sums.* Of bounded contributions of people: histograms, means, residuals times rows. One person moves the sum by a
vector of bounded length, and the noise is in proportion to it. The caller decides the contributions, and sums them
exactly.

*Data-dependent noise.* The scale of Gaussian noise is from a smooth bound on the statistic's local sensitivity. The
release is N(f(X), s(X)**2), s = alpha (S(X) + 2 tau), with S a bound on the local sensitivity of f whose square is
beta-smooth. `dpfast.privacy.smooth_gaussian` proves the guarantee for alpha and beta. f is computed in floating point,
to within tau for any data. The noise's scale is private: nothing in a release depends on it but the values themselves.
The grid comes from the least and the greatest scale that any data could have, and no scale is recorded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Release
from dpfast.ledger.entries import now
from dpfast.noise import BitSource, default_grid
from dpfast.privacy import (
    Calibration,
    Privacy,
    SmoothGaussian,
    Unit,
    gaussian_mu,
    l2_laplace_scale,
    laplace_scale,
    scale_for_mu,
    smooth_gaussian,
    smooth_gaussian_delta,
    split_budget,
)
from dpfast.privacy.guarantee import ROUND_UP, Law, coordinate_deviation, quotient_up, remembered
from dpfast.releases import printed

Found = TypeVar("Found", covariant=True)
Result = TypeVar("Result")


class Query(NamedTuple):
    """One release of a mechanism: its name, its noise, and the statistic to sum over the data owner's rows."""

    #: Follows the name of the fit in records; empty if the fit has no other.
    name: str
    mechanism: SingleRelease
    statistic: Callable[..., Any]
    #: Clip of each person's contribution, if earlier releases decide it.
    clip: float = math.inf
    #: For a statistic of a secret sample: the context of its random bits. It is then given a source of them, too.
    sampled_by: tuple[object, ...] | None = None


# The solution is computed only when it is requested: by then a fit has committed.
Stages: TypeAlias = Generator[Query, Release, Callable[[], Found]]


class Mechanism(ABC, Generic[Found]):
    """A calibrated mechanism: a frozen function of public numbers, until a driver answers its queries.

    The computation between releases is written once, as a generator of queries. Each query depends on earlier releases
    and public numbers. The generator never holds the data: `release` answers its queries with the data, and `solve`
    with the releases.
    """

    if TYPE_CHECKING:  # at run time a dataclass would take a property for the default of its field

        @property
        def privacy(self) -> Privacy:
            """Joint cost of all of its releases."""

        @property
        def guaranteed(self) -> bool:
            """Whether the releases are proved to be within that cost; printed calibrations may not be."""
    else:
        guaranteed = True

    @property
    @abstractmethod
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise, by statistic; public."""

    @abstractmethod
    def stages(self) -> Stages[Found]:
        """Yield one query after the other, and return a function that computes the solution."""

    def seeded_for(self, source: noise.BitSource) -> noise.BitSource:
        """Bind seeded noise to the public numbers of all releases."""
        return source

    def solve(self, releases: Iterable[Release]) -> Found:
        """Return the solution from releases: post-processing."""
        left = iter(releases)
        return answered(self.stages(), lambda _: next(left))()


class Around(Mechanism[Found]):
    """A mechanism around another one, whose cost and noise are all that it has."""

    @property
    @abstractmethod
    def inner(self) -> Mechanism[Any]:
        """The other one."""

    @cached_property
    def privacy(self) -> Privacy:
        """Its cost."""
        return self.inner.privacy

    @cached_property
    def guaranteed(self) -> bool:
        """Whether it is proved to be within that cost."""
        return self.inner.guaranteed

    @property
    def scales(self) -> Mapping[str, float]:
        """Scales of its noise."""
        return self.inner.scales


class Drawn(NamedTuple):
    """The outcome of a draw: the released values and their record."""

    #: The law of the noise.
    law: str
    values: Mapping[str, NDArray[Any]]
    grid: Mapping[str, float] = {}
    mu: float | None = None
    unit: Unit = "row"
    sample: tuple[int, int] | None = None
    part: str | None = None
    #: Follows the name.
    remark: str = ""
    log_range: float | None = None


class SingleRelease(Mechanism[Release]):
    """A mechanism of one release: noise for a statistic."""

    if TYPE_CHECKING:

        @property
        def calibration(self) -> Calibration:
            """Whether its noise is the sound one, or the printed one."""
    else:
        calibration = "sound"

    @abstractmethod
    def seeds(self, statistic: Any) -> tuple[object, ...]:
        """Return the public numbers that seeded noise is bound to, besides the name."""

    @abstractmethod
    def draw(self, statistic: Any, source: noise.BitSource) -> Drawn:
        """Add the noise to the statistic; only the driver calls it."""

    def bound(self, source: noise.BitSource, name: str, statistic: Any) -> noise.BitSource:
        """Return the source to draw the noise under this name from."""
        return source.bound(name, *self.seeds(statistic))

    def stages(self) -> Stages[Release]:
        """Yield the query of the release."""
        released = yield Query("", self, given)
        return lambda: released

    def release(self, statistic: Any, source: noise.BitSource, name: str) -> Release:
        """Add the noise to the data owner's sums."""
        (released,) = release(self, statistic, source, name)
        return released


Single = TypeVar("Single", bound=SingleRelease)


@dataclass(frozen=True)
class Named(Around[Release], Generic[Single]):
    """A single release as the whole of a fit, with its name in the record."""

    what: str
    single: Single

    @property
    def inner(self) -> Single:
        """The release."""
        return self.single

    def stages(self) -> Stages[Release]:
        """Yield the query of the release."""
        released = yield Query(self.what, self.single, given)
        return lambda: released


def release(mechanism: Mechanism[Any], data: Any, source: noise.BitSource, name: str) -> tuple[Release, ...]:
    """Answer the queries of a mechanism with the data, and return the releases."""
    return run(mechanism, data, source, name)[0]


@suppress_float_warnings
def run(
    mechanism: Mechanism[Found], data: Any, source: noise.BitSource, name: str
) -> tuple[tuple[Release, ...], Callable[[], Found]]:
    """Answer the queries of a mechanism with the data: the only place where data turn into something public.

    Returns the releases, and a function that computes the solution, as `Mechanism.solve` does from the releases alone.

    A reservation that pays for the source is marked as drawn before the first bit. It holds each release before the
    mechanism sees it: from there on it is paid for, whatever happens next. Seeded noise is bound to the release's name.
    """
    source, time = mechanism.seeded_for(source), now()
    releases: list[Release] = []
    payer = source.payer

    def answer(query: Query) -> Release:
        full, requested = f"{name}: {query.name}" if query.name else name, query.mechanism
        bits = () if query.sampled_by is None else (source.bound(f"{full}: sample", *query.sampled_by),)
        statistic = query.statistic(data, *bits)
        # A secure source is bound to nothing.
        own = requested.bound(source, full, statistic) if source.reproducible else source
        drawn = requested.draw(statistic, own)
        released = Release(
            full + drawn.remark,
            drawn.law,
            requested.privacy,
            drawn.values,
            requested.scales,
            mu=drawn.mu,
            grid=drawn.grid,
            calibration=requested.calibration,
            guaranteed=requested.guaranteed,
            reproducible=own.reproducible,
            time=time,
            sample=drawn.sample,
            unit=drawn.unit,
            part=drawn.part,
            log_range=drawn.log_range,
        )
        if payer is not None:
            payer.add(released)
        releases.append(released)
        return released

    tell = answered(mechanism.stages(), answer)
    return tuple(releases), tell


def within(stages: Stages[Found], changed: Callable[[Query], Query]) -> Stages[Found]:
    """Run the stages of a mechanism as a part of another one, with its queries changed."""
    query = next(stages)
    while True:
        released = yield changed(query)
        try:
            query = stages.send(released)
        except StopIteration as last:
            found: Callable[[], Found] = last.value
            return found


def answered(stages: Generator[Query, Release, Result], answer: Callable[[Query], Release]) -> Result:
    """Answer every query, and return what stages do: the function that computes the solution."""
    released: Any = None  # begins
    while True:
        try:
            query = stages.send(released)
        except StopIteration as last:
            result: Result = last.value
            return result
        # Not within the block: an answer that raises StopIteration ends no stages.
        released = answer(query)


def given(statistic: Any) -> Any:
    """Return sums made beforehand, as the statistic to release."""
    return statistic


def draw(
    law: Law | Literal["Laplace"],
    scale: float,
    center: FloatArray | FixedPoint,
    source: noise.BitSource,
    grid: float | None = None,
    repeats: int | None = None,
) -> FloatArray:
    """Draw noise of a law about exact numbers, once or along a new first axis; L2-Laplace noise is one vector."""
    if law != "L2-Laplace":
        coordinates = noise.gaussian if law == "Gaussian" else noise.laplace
        of_center = center.high.shape if isinstance(center, FixedPoint) else center.shape
        shape = of_center if repeats is None else (repeats, *of_center)
        return coordinates(scale, shape, source, center=center, grid=grid)
    (size,) = center.shape
    draws = [noise.l2_laplace(scale, size, source, center=center, grid=grid) for _ in range(repeats or 1)]
    return draws[0] if repeats is None else np.array(draws)


def draw_columns(law: Law, scale: float, centers: FloatArray, source: noise.BitSource) -> FloatArray:
    """Draw about every column of a matrix: all at once if coordinates are independent."""
    if law == "L2-Laplace":
        return np.column_stack([draw(law, scale, np.ascontiguousarray(column), source) for column in centers.T])
    return draw(law, scale, centers, source)


@dataclass(frozen=True)
class NoisySum(SingleRelease):
    """The mechanism: noise for a sum that one person moves by a bounded amount."""

    privacy: Privacy
    law: Law | Literal["Laplace"]
    scale: float
    #: Standard deviation of an entry.
    deviation: float
    shape: tuple[int, ...]
    #: Mu of the release, if the noise is Gaussian.
    mu: float | None = None
    unit: Unit = "row"

    @classmethod
    def calibrate(cls, privacy: Privacy, bound: float, shape: tuple[int, ...], *, unit: Unit = "row") -> Self:
        """Noise for a sum of vectors of length `bound` at most, one a person: replaced, one moves it twice as far."""
        return cls._of(privacy, _times_moved(privacy) * bound, None, shape, unit)

    @classmethod
    def moved_by(
        cls,
        privacy: Privacy,
        replaced: float,
        alone: float,
        shape: tuple[int, ...],
        *,
        in_l1: tuple[float, float] | None = None,
        unit: Unit = "row",
    ) -> Self:
        """Noise for a sum, given the most that a person moves it when replaced, and when they come or go.

        `in_l1` has both in the L1 norm, for independent noise if delta is 0.
        """
        place = 0 if privacy.adjacency == "replace_one" else 1
        return cls._of(privacy, (replaced, alone)[place], None if in_l1 is None else in_l1[place], shape, unit)

    def with_count(self, bound: float, unit_of_count: float) -> Self:
        """Noise of this cost and shape for a sum and, as its last entry, a count of people in units of a given size.

        A person adds a vector of length `bound` at most, and one unit or none: replaced, one moves the count by a unit
        at most while the sum moves by twice the bound.
        """
        moved = math.hypot(_times_moved(self.privacy) * bound, unit_of_count) * ROUND_UP
        if self.mu is None:
            return self._of(self.privacy, moved, None, self.shape, self.unit)
        scale = quotient_up(sensitivity=moved, mu=self.mu)
        return type(self)(self.privacy, "Gaussian", scale, scale, self.shape, self.mu, self.unit)

    @classmethod
    def of_counts(
        cls, privacy: Privacy, n_histograms: int, n_bins: int, *, further: float = 0.0, unit: Unit = "row"
    ) -> Self:
        """Noise for histograms (n_histograms, n_bins); a person counts once in each, in one bin.

        Replaced, a person leaves one bin of each and enters another. Some bins may be those of one further histogram,
        in which a person counts for `further`.
        """
        moved = _times_moved(privacy)
        in_l2, in_l1 = math.sqrt(moved * (n_histograms + further**2)), moved * (n_histograms + further)
        return cls._of(privacy, in_l2 * ROUND_UP, float(in_l1), (n_histograms, n_bins), unit)

    @classmethod
    def counts_within(
        cls,
        privacy: Privacy,
        is_gaussian: bool,
        share: float,
        n_histograms: int,
        n_bins: int,
        *,
        further: float = 0.0,
        unit: Unit = "row",
    ) -> tuple[Self, Privacy]:
        """Return noise `of_counts` for a share of a budget, and the rest of the budget for other releases.

        `is_gaussian` says whether all of these will be Gaussian, if delta is above 0. Gaussian releases, or pure ones,
        share the budget by `split_budget`. Any others compose by the sums of epsilons and deltas, and then the counts
        are Gaussian, or pure, whichever has less noise.
        """
        shares = share, 1.0 - share
        splits = [split_budget(privacy, shares)]
        if privacy.delta > 0.0 and not is_gaussian:
            pure, rest = split_budget(Privacy(privacy.epsilon, 0.0, privacy.adjacency), shares)
            splits = [
                split_budget(privacy, shares, "basic"),
                (pure, Privacy(rest.epsilon, privacy.delta, rest.adjacency)),
            ]
        ways = [(cls.of_counts(part, n_histograms, n_bins, further=further, unit=unit), rest) for part, rest in splits]
        return min(ways, key=lambda way: way[0].deviation)

    @classmethod
    @remembered
    def _of(cls, privacy: Privacy, moved: float, moved_l1: float | None, shape: tuple[int, ...], unit: Unit) -> Self:
        """Calibrate for the most that one person moves, in the Euclidean norm and, if known, in the L1 norm.

        If delta is 0, entries that are moved one or two at a time get independent noise.
        """
        if privacy.delta > 0.0:
            mu = _mu_of(privacy)
            scale = scale_for_mu(mu, moved)
            return cls(privacy, "Gaussian", scale, scale, shape, mu, unit)
        epsilon, _ = privacy.finite_target
        if moved_l1 is not None:
            scale = laplace_scale(epsilon, moved_l1)
            return cls(privacy, "Laplace", scale, math.sqrt(2.0) * scale, shape, None, unit)
        scale = l2_laplace_scale(epsilon, moved)
        deviation = coordinate_deviation("L2-Laplace", scale, math.prod(shape))
        return cls(privacy, "L2-Laplace", scale, deviation, shape, None, unit)

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviation of the noise in an entry."""
        return {"sum": self.deviation}

    def seeds(self, statistic: FixedPoint) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self.privacy, self.law, self.scale, self.shape

    def draw(self, statistic: FixedPoint, source: BitSource) -> Drawn:
        """Add the noise to the exact sum."""
        if statistic.high.shape != self.shape:
            raise ValueError(f"the sum has the shape {statistic.shape}, the noise was calibrated for {self.shape}")
        grid = default_grid(self.scale)
        if self.law == "Gaussian":
            drawn = noise.gaussian(self.scale, self.shape, source, center=statistic, grid=grid)
        else:
            exact = statistic.in_a_row() if self.law == "L2-Laplace" else statistic
            drawn = draw(self.law, self.scale, exact, source, grid).reshape(self.shape)
        drawn.setflags(write=False)  # handed over to the record
        return Drawn(self.law, {"sum": drawn}, {"sum": grid}, self.mu, self.unit)


@remembered
def _mu_of(privacy: Privacy) -> float:
    """Return the mu of a budget: of the steps of a fit, which share one, it is found once."""
    return gaussian_mu(*privacy.finite_target)


def _times_moved(privacy: Privacy) -> int:
    """Return how many people's contributions to a sum change between neighbours: of one replaced, two."""
    return 2 if privacy.adjacency == "replace_one" else 1


Constants = Literal["sound", "paper", "icml"]

# Margin for rounding errors of bounds computed in a few operations, or by sums of positive numbers.
SLACK = 1.0 + 2.0**-20


class SmoothStatistic(Protocol):
    """A statistic, and bounds on its sensitivity."""

    #: Number of coordinates that get noise.
    dim: int
    #: Bound, for any data, on the Euclidean norm of the error of `center`.
    tau: float

    def center(self, sums: Any) -> FloatArray:
        """Return the statistic of the data owner's sums, (dim,). **Not private**."""

    def smooth_sensitivity(self, sums: Any, beta: float) -> float:
        """Return a bound on the local sensitivity whose square is beta-smooth, rounded up. **Not private**."""

    def extreme_sensitivities(self, beta: float) -> tuple[float, float]:
        """Return the least and the greatest such bound over all possible data: public."""

    def beta(self, privacy: Privacy) -> float:
        """Choose the smoothness, from public numbers."""


AnyStatistic = TypeVar("AnyStatistic", bound=SmoothStatistic)


@dataclass(frozen=True)
class DataDependentGaussian(SingleRelease, Generic[AnyStatistic]):
    """The mechanism: a statistic, and noise per unit of its sensitivity, from public numbers alone."""

    privacy: Privacy
    statistic: AnyStatistic
    smooth: SmoothGaussian
    constants: Constants = "sound"

    @classmethod
    def calibrate(cls, privacy: Privacy, statistic: AnyStatistic, constants: Constants = "sound") -> Self:
        """Calibrate with the exact constants, or with the printed ones; these may miss the delta printed for them."""
        if constants == "sound":
            smooth = smooth_gaussian(*privacy.target, statistic.dim, statistic.beta(privacy))
        else:
            constants_of = printed("policy_evaluation", "printed_constants")
            smooth = constants_of(privacy.epsilon, privacy.delta, statistic.dim, constants)
        return cls(privacy, statistic, smooth, constants)

    @cached_property
    def guaranteed(self) -> bool:
        """Whether the noise gives the claimed delta."""
        delta = smooth_gaussian_delta(self.smooth.alpha, self.smooth.beta, self.privacy.epsilon, self.statistic.dim)
        return delta <= self.privacy.delta

    @property
    def scales(self) -> dict[str, float]:
        """Empty: no scale is public."""
        return {}

    @property
    def smoothness(self) -> float:
        """The beta required of bounds on the sensitivity, already reduced by the effect of rounding."""
        return self.smooth.smoothness()

    @cached_property
    def extreme_scales(self) -> tuple[float, float]:
        """The least and the greatest scale of the noise over all possible data: public."""
        least, greatest = map(self.scale, self.statistic.extreme_sensitivities(self.smoothness))
        return least, greatest * SLACK

    def scale(self, smooth_sensitivity: float) -> float:
        """Return the scale of the noise for data with this bound on the sensitivity; as private as the bound."""
        return self.smooth.scale(smooth_sensitivity, self.statistic.tau)

    @cached_property
    def calibration(self) -> Calibration:
        """Whether the constants are exact, or a paper's."""
        return "sound" if self.constants == "sound" else "paper"

    def seeds(self, statistic: Any) -> tuple[object, ...]:
        """Return the context that seeded noise is bound to."""
        return self.smooth, self.privacy, self.constants, self.extreme_scales, self.statistic.dim

    def draw(self, statistic: Any, source: noise.BitSource) -> Drawn:
        """Add the noise to the statistic of the data owner's sums; the values are "coordinates"."""
        grid = noise.grid_for_scales(*self.extreme_scales)
        scale = self.scale(self.statistic.smooth_sensitivity(statistic, self.smoothness))
        released = draw("Gaussian", scale, self.statistic.center(statistic), source, grid)
        return Drawn("data-dependent Gaussian", {"coordinates": released}, {"coordinates": grid})
