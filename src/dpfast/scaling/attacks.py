"""Attacks on the released sums of standardising, and on the counts used to find limits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.attack import Attack, claimed, claims
from dpfast.estimator.bounded_attacks import counts_attacks, stage_attack
from dpfast.privacy import Privacy
from dpfast.scaling.estimator import PrivateStandardScaler
from dpfast.statistics.norm_histograms import NormHistograms

_N_FEATURES = 2


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack sums of features and of their squares, and the counts that limits are found by."""
    for claim in claims(privacy):
        # The pair of entries that are farthest apart in the sums, near enough.
        one, other = np.full((1, _N_FEATURES), 0.9), np.full((1, _N_FEATURES), 0.0)
        tables = [one, other] if claim.adjacency == "replace_one" else [np.vstack([other, np.ones_like(one)]), other]
        for copies in (1, 3):
            yield _attack(PrivateStandardScaler(box_x=(-1.0, 1.0), **claimed(claim)), tables, copies)
    found = partial(PrivateStandardScaler, box_x="private")
    yield from counts_attacks("entries to standardise", found, NormHistograms(entries=True), privacy)


def _attack(estimator: PrivateStandardScaler, people: list[FloatArray], copies: int) -> Attack:
    """Attack the sums of people who have so many copies of a row each."""
    owners = [(np.repeat(np.arange(len(rows)), copies), copies) if copies > 1 else () for rows in people]
    tables = [(np.repeat(rows, copies, axis=0), *own) for rows, own in zip(people, owners, strict=True)]
    return stage_attack("sums of features and squares" + (" of people's rows" if copies > 1 else ""), estimator, tables)
