"""Predictors: further columns of a donor's row, beside its outcomes before the intervention.

A predictor is declared with public limits. It enters a row in the outcomes' units: clipped to its limits, which become
the range of the outcomes, times its weight. So a row is bounded as it is without predictors, by the same norms, and its
noise is calibrated in the same way. Each entry is computed from this entry and public numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.io.partitions import Partitions


@dataclass(frozen=True)
class Predictors:
    """Predictors as declared, by name: limits and weights, of shape (n_predictors,)."""

    names: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    weights: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, declared: object) -> Self:
        """Read a declaration, ValueError or TypeError if it is none; None stands for no predictors."""
        if declared is None:
            declared = {}
        if not isinstance(declared, Mapping):
            raise TypeError(
                "predictors must be a dict of (low, high) or (low, high, weight) by name, got "
                f"{type(declared).__name__}"
            )
        rows = []
        for name, numbers in declared.items():
            if not isinstance(name, str):
                raise TypeError(f"predictors must have text for names, got {type(name).__name__}")
            called = f"predictors[{name!r}]"
            if not isinstance(numbers, tuple | list) or len(numbers) not in (2, 3):
                raise ValueError(f"{called} must be (low, high), or (low, high, weight), got {numbers!r}")
            low, high = check.limits(called, tuple(numbers[:2]))
            if low == high:
                raise ValueError(f"{called} must have its low below its high, got ({low!r}, {high!r})")
            weight = check.positive(f"weight of {called}", numbers[2] if len(numbers) == 3 else 1.0)
            if weight > 1.0:
                raise ValueError(
                    f"weight of {called} must be at most 1, which is that of an outcome before the intervention, got "
                    f"{weight!r}"
                )
            rows.append((low, high, weight))
        return cls(tuple(declared), *np.array(rows, np.float64).reshape(-1, 3).T)

    def mapping(self, offset: float, half_width: float, least: float) -> PredictorMap:
        """Return the map of rows whose outcomes are `offset` + `half_width` times something from `least` to 1."""
        width = self.weights * (half_width * (1.0 - least))
        return PredictorMap(self, offset + half_width * least * self.weights, width)


@dataclass(frozen=True)
class PredictorMap:
    """Maps rows whose first columns are predictors, and back: those columns between their units and the outcomes'."""

    predictors: Predictors
    #: In units of the outcomes: the image of the low limit, and of the distance to the high one.
    start: FloatArray
    width: FloatArray

    def __call__(self, rows: FloatArray, *, clips: bool = False) -> FloatArray:
        """Return rows in units of the outcomes; of donors, whose predictors are clipped to their limits."""
        known = self.predictors
        mapped = np.array(rows, np.float64)
        values = mapped[..., : len(known)]
        with np.errstate(all="ignore"):  # a warning would be about a row
            values = np.clip(values, known.low, known.high) if clips else values
            # Halved first: the width of what doubles hold is none of them.
            shares = (values / 2.0 - known.low / 2.0) / (known.high / 2.0 - known.low / 2.0)
            mapped[..., : len(known)] = self.start + self.width * shares
        return mapped

    def of_donors(self, donors: FloatArray | Partitions) -> FloatArray | Partitions:
        """Map donors, or those of each part."""
        if isinstance(donors, Partitions):
            return donors.mapped(_OfParts(self), donors.n_features, 0)
        return self(donors, clips=True)

    def back(self, rows: FloatArray) -> FloatArray:
        """Return rows in the units of their predictors."""
        known = self.predictors
        shares = (rows[..., : len(known)] - self.start) / self.width
        unmapped = rows.copy()
        unmapped[..., : len(known)] = 2.0 * (known.low / 2.0 + shares * (known.high / 2.0 - known.low / 2.0))
        return unmapped


@dataclass(frozen=True)
class _OfParts:
    """Maps the donors of a part."""

    mapping: PredictorMap

    def __call__(self, x: FloatArray, y: Any, ids: Any) -> tuple[FloatArray, Any, Any]:
        return self.mapping(x, clips=True), y, ids


@dataclass(frozen=True)
class _Outcomes:
    """Takes the outcomes of a part."""

    n_predictors: int

    def __call__(self, x: FloatArray, y: Any, ids: Any) -> tuple[FloatArray, Any, Any]:
        return x[:, self.n_predictors :], y, ids


def outcomes_of(donors: FloatArray | Partitions, n_predictors: int) -> FloatArray | Partitions:
    """Return the outcomes of donors whose first columns are predictors."""
    if isinstance(donors, Partitions):
        return donors.mapped(_Outcomes(n_predictors), donors.n_features - n_predictors, 0)
    return donors[:, n_predictors:]
