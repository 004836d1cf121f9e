"""Attacks on quantiles: one row moves the scores of two candidates apart, as far as can be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from dpfast.column_quantiles.estimator import ColumnQuantiles

from dpfast._arrays import FloatArray
from dpfast.attack import Attack, OddsShift, claimed, claims, probe
from dpfast.privacy import Privacy


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack `ColumnQuantiles` under both relations, and where it is given a delta that it has no use for."""
    for claim in claims(privacy):
        yield _attack(claim)


def _attack(privacy: Privacy) -> Attack:
    estimator = ColumnQuantiles(candidates=[0.0, 1.0], **claimed(privacy))
    # Scores are (0, 100) and (100, 0) of two rows, the first replaced; (50, 50) and (100, 0) of one, and one more.
    first = [[0.0]] if privacy.adjacency == "replace_one" else np.empty((0, 1))
    tables = [np.vstack([[[0.5]], first]), np.array([[0.5], [2.0]])]
    record = probe(lambda: estimator.fit(tables[0]).releases_[0])
    moved = 200.0 if privacy.adjacency == "replace_one" else 100.0

    def seen(neighbour: bool) -> FloatArray:
        return np.asarray(estimator.fit(tables[neighbour]).quantiles_)

    name = f"ColumnQuantiles{' beside a delta' if privacy.delta else ''}"
    return Attack.on(name, record, OddsShift(moved / record.scales["quantiles"]), seen, estimator)
