"""What every fit does before it reads any data: it reserves its cost."""

from __future__ import annotations

import math
from typing import Protocol

from dpfast.ledger import Ledger, Reservation
from dpfast.privacy import Privacy, Unit


class Spender(Protocol):
    """An estimator: its ledger and its seed."""

    ledger: Ledger | None
    random_state: int | None


def reserve(model: Spender, privacy: Privacy, unit: Unit = "row") -> Reservation:
    """Hold, from ``with`` on, what a fit costs, in the estimator's ledger or, where it has none, in one of its own.

    Parameters
    ----------
    model : Spender
        The estimator. A fit without noise draws nothing from its seed.
    privacy : Privacy
        The cost.
    unit : {"row", "person"}, default "row"
        Whose data the guarantee is for.

    Returns
    -------
    Reservation
    """
    seed = None if math.isinf(privacy.epsilon) else model.random_state
    return (model.ledger or Ledger(privacy)).reserving(privacy, unit=unit, random_state=seed)
