"""What every mechanism is to those who use it, and the one place where its law becomes a draw."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.privacy.law import Law

Found = TypeVar("Found")


class Mechanism(Protocol):
    """A calibrated mechanism: a frozen function of public numbers, until it is given a statistic."""

    @property
    def privacy(self) -> Privacy:
        """What one release costs."""

    @property
    def guaranteed(self) -> bool:
        """Whether it is proved to give that; printed calibrations may not."""

    @property
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise, by what it is added to; public."""

    def release(self, statistic: Any, source: noise.BitSource, name: str) -> Release:
        """Add the noise to what the data owner summed: the only place where that turns into something public."""


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


class Query(NamedTuple):
    """One release of several: what it is called, its noise, and what is summed of the data owner's rows for it."""

    name: str
    mechanism: Any
    statistic: Callable[[Any], Any]
    #: What everybody's part in that is clipped to, where earlier releases decide it.
    clip: float = math.inf


# What the releases tell is computed when it is asked for: a fit has committed by then.
Stages: TypeAlias = Generator[Query, Release, Callable[[], Found]]


class Staged(ABC, Generic[Found]):
    """A mechanism of several releases, each fitted to those before.

    What is computed between them is written once, as a generator of queries: a fit answers them with the data, and a
    solution with what was released. Queries depend on earlier releases and public numbers, nothing else.
    """

    @abstractmethod
    def stages(self) -> Stages[Found]:
        """Ask for one release after the other, and return what computes what they tell."""

    def release(self, statistic: Any, source: noise.BitSource, name: str) -> tuple[Release, ...]:
        """Draw the noise of every stage; seeded noise is that of its name."""
        releases: list[Release] = []

        def answer(query: Query) -> Release:
            releases.append(query.mechanism.release(query.statistic(statistic), source, f"{name}: {query.name}"))
            return releases[-1]

        answered(self.stages(), answer)
        return tuple(releases)

    def solve(self, releases: Iterable[Release]) -> Found:
        """Return what was released tells."""
        left = iter(releases)
        return answered(self.stages(), lambda _: next(left))()


def answered(stages: Stages[Found], answer: Callable[[Query], Release]) -> Callable[[], Found]:
    """Answer every query, and return what computes what the releases tell."""
    query = next(stages)
    while True:
        try:
            query = stages.send(answer(query))
        except StopIteration as last:
            found: Callable[[], Found] = last.value
            return found
