"""What states are called: the public mapping from any hashable objects to the integers from 0."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import IntArray
from dpfast.io.named import MISSING, Batch


class StateEncoder:
    """The public mapping from states, any hashable objects, to the integers from 0.

    Parameters
    ----------
    states : iterable of hashable
        All states there are, in the order of their numbers. Public: declared, not taken from the data.

    Raises
    ------
    ValueError, TypeError
        If a state is not hashable or is listed twice, or there are none.

    Examples
    --------
    >>> from dpfast.statistics import StateEncoder
    >>> encoder = StateEncoder(["well", "ill", "dead"])
    >>> encoder.codes(["ill", "well", "lost"])
    array([ 1,  0, -1])
    >>> encoder.states[1]
    'ill'
    """

    def __init__(self, states: Iterable[Hashable]) -> None:
        if not isinstance(states, Iterable) or getattr(states, "ndim", 1) == 0:
            raise TypeError(f"states must list all states there are, got {type(states).__name__}")
        self.states = tuple(states)
        if not self.states:
            raise ValueError("states must list at least one state, got none")
        try:
            self._numbers = {state: number for number, state in enumerate(self.states)}
        except TypeError:
            raise TypeError("states must be hashable") from None
        if any(isinstance(state, float) and state != state for state in self.states):
            raise ValueError("states must be equal to themselves, got NaN: declare None for missing ones")
        if len(self._numbers) < len(self.states):
            raise ValueError("states must be distinct, got one twice")

    def __len__(self) -> int:
        return len(self.states)

    def codes(self, values: Iterable[Any]) -> IntArray:
        """Return the number of each state, -1 for one that is not declared or not hashable."""
        if not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
            raise TypeError(f"states must be a list of states, got {type(values).__name__}")
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuSU" and values.ndim == 1:
            distinct, places = np.unique(values, return_inverse=True)
            return np.array([self._number(value) for value in distinct.tolist()], np.int64)[places]
        return np.array([self._number(value) for value in values], np.int64)

    def codes_in(self, batch: Batch, name: str) -> IntArray:
        """Return the number of each entry of a column, found by that entry alone; a missing one is None."""
        places, values = batch.distinct(name)
        return self.codes([*values, None])[np.where(places == MISSING, len(values), places)]

    def _number(self, value: Any) -> int:
        try:
            return self._numbers.get(value, -1)
        except TypeError:
            return -1

    def __eq__(self, other: object) -> bool:
        return self.states == other.states if isinstance(other, StateEncoder) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.states)

    def __repr__(self) -> str:
        return f"<StateEncoder of {len(self)} states>"


def declared_states(n_states: int | None, states: Iterable[Hashable] | None) -> tuple[int, StateEncoder | None]:
    """Return the number of states, and their encoder where they were listed; one of the two must be declared."""
    if (n_states is None) == (states is None):
        raise ValueError(
            "either n_states or states must be given: which states there are is public, and never taken from the data"
        )
    if states is None:
        return check.positive_integer("n_states", n_states), None
    encoder = states if isinstance(states, StateEncoder) else StateEncoder(states)
    return len(encoder), encoder
