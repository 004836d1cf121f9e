"""Every mechanism there is, under attack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from dpfast.audit.attacks import Attack, moment_attack, primitive_attacks, sampled_moment_attack, smooth_gaussian_attack
from dpfast.audit.minimisers import minimiser_attacks
from dpfast.audit.policy import policy_evaluation_attack
from dpfast.audit.supports import support_attacks
from dpfast.audit.weights import weight_attacks
from dpfast.privacy import Adjacency, Privacy


def all_attacks(privacy: Privacy, weaken: float = 1.0) -> Iterator[Attack]:
    """Every mechanism that can make the claim, attacked in turn.

    Parameters
    ----------
    privacy : Privacy
        Claim.
    weaken : float, default 1.0
        Divides the noise, to see that a broken mechanism is caught.
    """
    yield from primitive_attacks(privacy, weaken)
    for adjacency in get_args(Adjacency):
        for delta in (privacy.delta, 0.0):
            yield moment_attack(Privacy(privacy.epsilon, delta, adjacency), weaken)
    yield smooth_gaussian_attack(privacy, weaken)
    yield sampled_moment_attack(Privacy(privacy.epsilon, privacy.delta), weaken)
    yield from weight_attacks(privacy, weaken)
    yield policy_evaluation_attack(Privacy(privacy.epsilon, privacy.delta), weaken)
    yield from minimiser_attacks(Privacy(privacy.epsilon, privacy.delta, "add_remove"), weaken)
    yield from support_attacks(privacy, weaken)
