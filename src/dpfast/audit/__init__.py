"""Attacks on our own guarantees, and on broken ones of the literature: lower bounds on epsilon, beside the claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

import numpy as np

from dpfast import registry
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, Events, Finding, claimed, claims
from dpfast.audit.literature import broken_attacks
from dpfast.estimator.base import Summed
from dpfast.ledger import BudgetExceeded, Ledger, Release
from dpfast.multi_outcome import MultiOutcomeRidge
from dpfast.noise import BitSource
from dpfast.privacy import Adjacency, Privacy

__all__ = [
    "Attack",
    "Finding",
    "all_attacks",
    "broken_attacks",
    "one_claim_each",
]

#: Parts of the names of attacks that describe the claim, not the mechanism, besides "beside a delta".
_OF_CLAIMS = {*get_args(Adjacency), "Gaussian", "Laplace", "L2-Laplace", "Gaussian objective", "L2-Laplace objective"}

# Number of attempts. If they cost nothing, the mean of the numbers drawn would tell neighbours apart.
_ATTEMPTS = 100


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
    yield from map(_attack_on_transcript, claims(privacy))


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


class _Telling(MultiOutcomeRidge):
    """A regression that fails after its draw, and puts the number drawn in its error."""

    def _release(self, summed: Summed, source: BitSource) -> tuple[tuple[Release, ...], Callable[[], Any]]:
        ((released,), _) = super()._release(summed, source)
        raise ArithmeticError(float(released.values["xy"].sum()))


def _attack_on_transcript(privacy: Privacy) -> Attack:
    """Attack the transcript of attempts that fail and report their draw, under a ledger with budget for one of them."""
    tables = [(np.array([[0.0], [1.0]]), np.array([0.0, sign])) for sign in (1.0, -1.0)]
    if privacy.adjacency == "add_remove":
        tables[1] = tables[0][0][:1], tables[0][1][:1]
    estimator = _Telling(
        bound_x=1.0, bound_y=1.0, ridge=1.0, refine=0, n_threads=1, fit_intercept=False, **claimed(privacy)
    )

    def seen(neighbour: bool) -> FloatArray:
        n_attempts, told = _transcript(estimator, privacy, tables[neighbour])
        mean = float(np.mean(told)) if told else 0.0
        return np.array([n_attempts > 1, mean > 0.0, mean > 0.5, mean < -0.5], np.float64)

    delta = " beside a delta" if privacy.delta > 0.0 else ""
    return Attack(f"transcript of attempts{delta}, {privacy.adjacency}", privacy, Events(), seen, (estimator,))


def _transcript(
    estimator: MultiOutcomeRidge, privacy: Privacy, table: tuple[FloatArray, FloatArray]
) -> tuple[int, list[float]]:
    """Return the number of attempts admitted, and the numbers in their errors."""
    model = estimator.set_params(ledger=Ledger(privacy))
    n_attempts, told = 0, []
    for _ in range(_ATTEMPTS):
        try:
            model.fit(*table)
        except BudgetExceeded:
            break
        except Exception as error:
            told += [one for one in error.args if isinstance(one, float)]
        n_attempts += 1
    return n_attempts, told
