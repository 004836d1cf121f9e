"""What every mechanism is to those who use it, and the one place where its law becomes a draw."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.privacy.law import Law

_Stage = TypeVar("_Stage")
_Told = TypeVar("_Told")


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


def answered(stages: Generator[_Stage, Release, _Told], answer: Callable[[_Stage], Release]) -> _Told:
    """Answer every stage of several releases, each fitted to those before, and return what they tell."""
    stage = next(stages)
    while True:
        try:
            stage = stages.send(answer(stage))
        except StopIteration as last:
            told: _Told = last.value
            return told
