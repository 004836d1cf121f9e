"""An attacker's view of a mechanism in stages, with two neighbouring tables known: the noise of every stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.ledger import Release
from dpfast.releases.mechanism import Mechanism


def summed_stages(
    mechanism: Mechanism[Any], data: Sequence[Any], releases: tuple[Release, ...], chosen: Callable[[str], bool]
) -> Iterator[tuple[Release, list[FloatArray]]]:
    """Yield the release of every chosen stage, and its sums on either table.

    An attacker knows that, as it depends on earlier releases alone.
    """
    stages = mechanism.stages()
    stage = next(stages)
    for release in releases:
        if chosen(stage.name):
            yield release, [stage.statistic(one).to_float64() for one in data]
        if release is not releases[-1]:
            stage = stages.send(release)


def along_stages(stages: Iterator[tuple[Release, list[FloatArray]]], at: int) -> tuple[FloatArray, FloatArray]:
    """Return the noise of stages in units of what differs, and how much differs in units of recorded noise.

    Where nothing differs, noise tells nothing: 0.
    """
    seen, apart = [], []
    for release, sums in stages:
        moved = sums[1] - sums[0]
        length = float(np.linalg.norm(moved))
        seen.append(float(np.sum((release.values["sum"] - sums[at]) * moved)) / length**2 if length > 0.0 else 0.0)
        apart.append(length / release.scales["sum"])
    return np.array(seen), np.array(apart)
