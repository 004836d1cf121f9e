"""An attack on what describes a table: one person goes from one end of everything to the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, claims, probe, shift_law
from dpfast.description.mechanism import Histogram, TableCounts, count_rows
from dpfast.io import Category, Number
from dpfast.io.frames import Batch, Codes, LevelCodes
from dpfast.ledger import Release
from dpfast.privacy import Privacy
from dpfast.releases.mechanism import release

_COLUMNS = Number("age", low=0.0, high=1.0), Category("site", (0, 1)), Category("arm", (0, 1))


@dataclass(frozen=True)
class _People:
    """Rows of numbers by name: a batch that needs no library of tables."""

    columns: Mapping[str, Sequence[float]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def numbers(self, name: str) -> FloatArray:
        """Return a column."""
        return np.array(self.columns[name], np.float64)

    def codes(self, name: str, levels: Sequence[str]) -> LevelCodes:
        """No column is text."""
        raise NotImplementedError

    def distinct(self, name: str) -> tuple[Codes, list[Hashable]]:
        """No column is an owner's."""
        raise NotImplementedError

    def series(self, name: str, rows: NDArray[np.bool_]) -> Any:
        """No column is a time."""
        raise NotImplementedError


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack the counts and sums of a number, two categories and their pairs."""
    histograms = [*(Histogram.of(column, 4) for column in _COLUMNS), Histogram.of_pairs(*_COLUMNS[1:])]
    one: Batch = _People({"age": [0.0], "site": [0.0], "arm": [0.0]})
    other: Batch = _People({"age": [1.0], "site": [1.0], "arm": [1.0]})
    both: Batch = _People({"age": [0.0, 1.0], "site": [0.0, 1.0], "arm": [0.0, 1.0]})
    for claim in claims(privacy):
        tables = (one, other) if claim.adjacency == "replace_one" else (both, one)
        yield _attack(TableCounts.calibrate(claim, histograms), tables)


def _attack(mechanism: TableCounts, tables: tuple[Batch, Batch]) -> Attack:
    sums = [count_rows(mechanism.histograms, [table]).sums for table in tables]
    exact = [one.to_float64() for one in sums]
    moved = np.flatnonzero(exact[0] != exact[1])

    def describe(neighbour: bool) -> Release:
        (released,) = release(mechanism, sums[neighbour], noise.SecureSource(), "describe")
        return released

    def seen(neighbour: bool) -> FloatArray:
        noisy: FloatArray = describe(neighbour).values["sum"][moved] - exact[neighbour][moved]
        return noisy

    record = probe(lambda: describe(False))
    # Of Laplace noise the record states the standard deviation.
    scale = record.scales["sum"] / (1.0 if record.mechanism == "Gaussian" else np.sqrt(2.0))
    law = shift_law(record.mechanism, (exact[0][moved] - exact[1][moved],), (float(scale),))
    return replace(Attack.on("description of a table", record, law, seen, None), estimators=())
