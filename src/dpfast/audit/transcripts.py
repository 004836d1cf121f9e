"""An attack on transcripts: returned values, errors and ledger entries of attempts, beside their releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.attack import Attack, Events, claimed, claims
from dpfast.estimator.base import Summed
from dpfast.ledger import BudgetExceeded, Ledger, Release
from dpfast.multi_outcome import MultiOutcomeRidge
from dpfast.noise import BitSource
from dpfast.privacy import Privacy

# Number of attempts. If they cost nothing, the mean of the numbers drawn would tell neighbours apart.
_ATTEMPTS = 100


class _Telling(MultiOutcomeRidge):
    """A regression that fails after its draw, and puts the number drawn in its error."""

    def _release(self, summed: Summed, source: BitSource) -> tuple[tuple[Release, ...], Callable[[], Any]]:
        ((released,), _) = super()._release(summed, source)
        raise ArithmeticError(float(released.values["xy"].sum()))


def attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack the transcript of attempts that fail and report their draw, under a ledger with budget for one of them."""
    for claim in claims(privacy):
        yield _attack(claim)


def _attack(privacy: Privacy) -> Attack:
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
