"""Attacks on the mean of rows: one row becomes its negative."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from dpfast.mean_of_rows.estimator import MeanOfRows

from dpfast._arrays import FloatArray
from dpfast.attack import Attack, claimed, claims, probe, shift_law
from dpfast.privacy import Privacy


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack `MeanOfRows` with both laws of noise."""
    for claim in claims(privacy):
        if claim.adjacency == "replace_one":
            yield _attack(claim)


def _attack(privacy: Privacy) -> Attack:
    estimator = MeanOfRows(bound=1.0, **claimed(privacy))
    tables = [np.vstack([row, np.zeros((9, 2))]) for row in ([1.0, 0.0], [-1.0, 0.0])]
    record = probe(lambda: estimator.fit(tables[0]).releases_[0])
    # Of L2-Laplace noise the deviation of a coordinate is recorded.
    scale = record.scales["sum"] / (1.0 if record.mechanism == "Gaussian" else math.sqrt(3.0))

    def seen(neighbour: bool) -> FloatArray:
        table = tables[neighbour]
        return np.asarray(estimator.fit(table).releases_[0].values["sum"] - table.sum(axis=0))

    law = shift_law(record.mechanism, (np.array([-2.0, 0.0]),), (scale,))
    return Attack.on("MeanOfRows", record, law, seen, estimator)
