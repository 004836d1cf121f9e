"""Attacks on our own promises: lower bounds on epsilon, to be held against the claim."""

from __future__ import annotations

from collections.abc import Iterator

from dpfast import registry
from dpfast.attack import Attack, Finding, epsilon_lower_bound, mu_lower_bound
from dpfast.privacy import Privacy

__all__ = ["Attack", "Finding", "all_attacks", "epsilon_lower_bound", "mu_lower_bound"]


def all_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Every mechanism that can make the claim, attacked in turn: each family says how, in its ``attacks.py``.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by Gaussian noise alone, and its adjacency by neither: both are attacked.
    """
    for family in registry.parts("attacks"):
        yield from family.attacks(privacy)
