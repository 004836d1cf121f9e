"""Every mechanism there is, under attack."""

from __future__ import annotations

from collections.abc import Iterator

from dpfast.audit.attacks import Attack
from dpfast.audit.donor_attacks import donor_attacks
from dpfast.audit.minimiser_attacks import minimiser_attacks
from dpfast.audit.moment_attacks import moment_attacks
from dpfast.audit.policy_attacks import policy_attacks
from dpfast.audit.support_attacks import support_attacks
from dpfast.privacy import Privacy


def all_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Every mechanism that can make the claim, attacked in turn.

    Parameters
    ----------
    privacy : Privacy
        Claim.
    """
    yield from moment_attacks(privacy)
    yield from donor_attacks(privacy)
    yield from policy_attacks(privacy)
    yield from minimiser_attacks(privacy)
    yield from support_attacks(privacy)
