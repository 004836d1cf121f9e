"""Attacks on our own guarantees, and on broken ones of the literature: lower bounds on epsilon, beside the claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from dpfast import registry
from dpfast.attack import Attack, Finding, epsilon_lower_bound, mu_lower_bound
from dpfast.audit import transcripts
from dpfast.audit.literature import broken_attacks
from dpfast.privacy import Adjacency, Privacy

__all__ = [
    "Attack",
    "Finding",
    "all_attacks",
    "broken_attacks",
    "epsilon_lower_bound",
    "mu_lower_bound",
    "one_claim_each",
]

#: Parts of the names of attacks that describe the claim, not the mechanism, besides "beside a delta".
_OF_CLAIMS = {*get_args(Adjacency), "Gaussian", "Laplace", "L2-Laplace", "Gaussian objective", "L2-Laplace objective"}


def all_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Yield an attack on every mechanism that can make the claim; each family defines them in its ``attacks.py``.

    The last attacks are on the transcript of attempts, beside their releases: errors, refusals, and the number of
    attempts.

    Parameters
    ----------
    privacy : Privacy
        Claim. Only Gaussian noise uses its delta. Its adjacency is ignored: both relations are attacked.
    """
    for family in registry.parts("attacks"):
        yield from family.attacks(privacy)
    yield from transcripts.attacks(privacy)


def one_claim_each(attacks: Iterable[Attack]) -> list[Attack]:
    """Choose the first attack on every mechanism, among those that differ in noise and relation alone.

    Parameters
    ----------
    attacks : iterable of Attack
        Those of `all_attacks`.

    Returns
    -------
    list of Attack
    """
    first: dict[tuple[str, ...], Attack] = {}
    for attack in attacks:
        parts = attack.name.replace(" beside a delta", "").split(", ")
        first.setdefault(tuple(part for part in parts if part not in _OF_CLAIMS), attack)
    return list(first.values())
