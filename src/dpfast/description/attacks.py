"""An attack on what describes a table: one person goes from one end of everything to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, claims, sum_attack
from dpfast.description.mechanism import Histogram, TableCounts, count_rows
from dpfast.io import Category, Number
from dpfast.io.frames import LevelCodes
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.mechanism import release

_COLUMNS = Number("age", low=0.0, high=1.0), Category("site", (0, 1)), Category("arm", ("a", "b"))


@dataclass(frozen=True)
class _People:
    """Rows by name, which need no library of tables."""

    ages: Sequence[float]
    arms: Sequence[str]

    def __len__(self) -> int:
        return len(self.ages)

    def numbers(self, name: str) -> FloatArray:
        """Return a column: who is old is of the other site."""
        return np.array(self.ages, np.float64)

    def codes(self, name: str, levels: Sequence[str]) -> LevelCodes:
        """Return the arms as places in the levels."""
        return np.array([levels.index(arm) for arm in self.arms], np.int32)


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack the counts and sums of a number, two categories and their pairs."""
    histograms = [*(Histogram.of(column, 4) for column in _COLUMNS), Histogram.of_pairs(*_COLUMNS[1:])]
    one, other, both = _People([0.0], ["a"]), _People([1.0], ["b"]), _People([0.0, 1.0], ["a", "b"])
    for claim in claims(privacy):
        tables = (one, other) if claim.adjacency == "replace_one" else (both, one)
        yield _attack(TableCounts.calibrate(claim, histograms), tables)


def _attack(mechanism: TableCounts, tables: tuple[_People, _People]) -> Attack:
    sums = [count_rows(mechanism.histograms, [table]).sums for table in tables]

    def describe(neighbour: bool) -> Release:
        (released,) = release(mechanism, sums[neighbour], noise.SecureSource(), "describe")
        return released

    return sum_attack("description of a table", None, describe, [one.to_float64() for one in sums])
