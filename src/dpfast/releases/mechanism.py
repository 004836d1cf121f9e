"""What every mechanism is to those who use it, and the one driver that draws, records and answers for all of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Calibration, Privacy, Unit
from dpfast.privacy.guarantee import Law

Found = TypeVar("Found", covariant=True)


class Query(NamedTuple):
    """One release of a mechanism: what it is called, its noise, and what is summed of the data owner's rows for it."""

    #: Follows the name of the fit in records; empty where the fit has no other.
    name: str
    mechanism: SingleRelease
    statistic: Callable[..., Any]
    #: What everybody's part in that is clipped to, where earlier releases decide it.
    clip: float = math.inf
    #: Where the statistic is of a secret sample: what its bits are bound to; it is then given a source of them, too.
    sampled_by: tuple[object, ...] | None = None


# What the releases tell is computed when it is asked for: a fit has committed by then.
Stages: TypeAlias = Generator[Query, Release, Callable[[], Found]]


class Mechanism(ABC, Generic[Found]):
    """A calibrated mechanism: a frozen function of public numbers, until a driver answers its queries.

    What is computed between releases is written once, as a generator of queries, each of which depends on earlier
    releases and public numbers. The generator never holds the data: `release` answers its queries with them, and
    `solve` with what was released.
    """

    if TYPE_CHECKING:  # at run time a dataclass would take a property for the default of its field

        @property
        def privacy(self) -> Privacy:
            """What all of its releases cost together."""

        @property
        def guaranteed(self) -> bool:
            """Whether they are proved to keep to that; printed calibrations may not."""
    else:
        guaranteed = True

    @property
    @abstractmethod
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise, by what it is added to; public."""

    @abstractmethod
    def stages(self) -> Stages[Found]:
        """Ask for one release after the other, and return what computes what they tell."""

    def seeded_for(self, source: noise.BitSource) -> noise.BitSource:
        """Bind seeded noise to what is public of all releases."""
        return source

    def solve(self, releases: Iterable[Release]) -> Found:
        """Return what was released tells: post-processing."""
        left = iter(releases)
        return answered(self.stages(), lambda _: next(left))()


class Drawn(NamedTuple):
    """The outcome of a draw: what leaves, and what the record says of it."""

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
            """Whether its noise is the sound one, or a paper's."""
    else:
        calibration = "sound"

    @abstractmethod
    def seeds(self, statistic: Any) -> tuple[object, ...]:
        """Return the public numbers that seeded noise is bound to, besides the name."""

    @abstractmethod
    def draw(self, statistic: Any, source: noise.BitSource) -> Drawn:
        """Add the noise to the statistic; only the driver calls it."""

    def bound(self, source: noise.BitSource, name: str, statistic: Any) -> noise.BitSource:
        """Return the source that noise under this name is drawn from."""
        return source.bound(name, *self.seeds(statistic))

    def stages(self) -> Stages[Release]:
        """Ask for the release."""
        released = yield Query("", self, given)
        return lambda: released

    def release(self, statistic: Any, source: noise.BitSource, name: str) -> Release:
        """Add the noise to what the data owner summed."""
        (released,) = release(self, statistic, source, name)
        return released


Single = TypeVar("Single", bound=SingleRelease)


@dataclass(frozen=True)
class Named(Mechanism[Release], Generic[Single]):
    """A single release as the whole of a fit, by what its record calls it."""

    what: str
    single: Single

    @cached_property
    def privacy(self) -> Privacy:
        """What it costs."""
        return self.single.privacy

    @cached_property
    def guaranteed(self) -> bool:
        """Whether it is proved to keep to that."""
        return self.single.guaranteed

    @property
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise."""
        return self.single.scales

    def stages(self) -> Stages[Release]:
        """Ask for the release."""
        released = yield Query(self.what, self.single, given)
        return lambda: released


def release(mechanism: Mechanism[Any], data: Any, source: noise.BitSource, name: str) -> tuple[Release, ...]:
    """Answer the queries of a mechanism with the data, and return the releases."""
    return run(mechanism, data, source, name)[0]


def run(
    mechanism: Mechanism[Found], data: Any, source: noise.BitSource, name: str
) -> tuple[tuple[Release, ...], Callable[[], Found]]:
    """Answer the queries of a mechanism with the data: the only place where these turn into something public.

    Returns the releases, and what computes what they tell, as `Mechanism.solve` does from the releases alone.

    A reservation that pays for the source is marked as drawn before the first bit, and holds each release before the
    mechanism sees it: from there on it is paid for, whatever happens next. Seeded noise is that of its name.
    """
    source = mechanism.seeded_for(source)
    releases: list[Release] = []

    def answer(query: Query) -> Release:
        full, asked = f"{name}: {query.name}" if query.name else name, query.mechanism
        bits = () if query.sampled_by is None else (source.bound(f"{full}: sample", *query.sampled_by),)
        statistic = query.statistic(data, *bits)
        own = asked.bound(source, full, statistic)
        drawn = asked.draw(statistic, own)
        releases.append(
            Release(
                full + drawn.remark,
                drawn.law,
                asked.privacy,
                drawn.values,
                asked.scales,
                mu=drawn.mu,
                grid=drawn.grid,
                calibration=asked.calibration,
                guaranteed=asked.guaranteed,
                reproducible=own.reproducible,
                sample=drawn.sample,
                unit=drawn.unit,
                part=drawn.part,
                log_range=drawn.log_range,
            )
        )
        return own.record(releases[-1])

    tell = answered(mechanism.stages(), answer)
    return tuple(releases), tell


def within(stages: Stages[Found], changed: Callable[[Query], Query]) -> Stages[Found]:
    """Ask for the stages of a mechanism as a part of another one, which changes their queries."""
    query = next(stages)
    while True:
        released = yield changed(query)
        try:
            query = stages.send(released)
        except StopIteration as last:
            found: Callable[[], Found] = last.value
            return found


def answered(stages: Stages[Found], answer: Callable[[Query], Release]) -> Callable[[], Found]:
    """Answer every query, and return what computes what the releases tell."""
    query = next(stages)
    while True:
        try:
            query = stages.send(answer(query))
        except StopIteration as last:
            found: Callable[[], Found] = last.value
            return found


def given(statistic: Any) -> Any:
    """Release what was summed beforehand."""
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
        shape = center.shape if repeats is None else (repeats, *center.shape)
        return coordinates(scale, shape, source, center=center, grid=grid)
    (size,) = center.shape
    draws = [noise.l2_laplace(scale, size, source, center=center, grid=grid) for _ in range(repeats or 1)]
    return draws[0] if repeats is None else np.array(draws)


def draw_columns(law: Law, scale: float, centers: FloatArray, source: noise.BitSource) -> FloatArray:
    """Draw about every column of a matrix: at once where coordinates are independent."""
    if law == "L2-Laplace":
        return np.column_stack([draw(law, scale, np.ascontiguousarray(column), source) for column in centers.T])
    return draw(law, scale, centers, source)
