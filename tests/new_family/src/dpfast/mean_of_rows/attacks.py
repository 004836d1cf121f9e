"""Attacks on the mean of rows: one row becomes its negative."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from dpfast.mean_of_rows.estimator import MeanOfRows

from dpfast.attack import Attack, claimed, claims
from dpfast.estimator.bounded_attacks import stage_attack
from dpfast.privacy import Privacy


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack `MeanOfRows` with both laws of noise."""
    for claim in claims(privacy):
        if claim.adjacency == "replace_one":
            tables = [(np.vstack([row, np.zeros((9, 2))]),) for row in ([1.0, 0.0], [-1.0, 0.0])]
            yield stage_attack("MeanOfRows", MeanOfRows(bound=1.0, **claimed(claim)), tables)
