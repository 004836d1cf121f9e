"""Names of states: the public mapping from any hashable objects to the integers from 0.

Gymnasium's observation spaces become finitely many states, by declarations and by nothing observed. An observation is
taken apart into integers: those of a `Discrete`, `MultiDiscrete` or `MultiBinary` space as they are, for each entry of
a `Box` the number of its bin, and for a `Tuple` or `Dict` those of its parts, one after another. A state is the tuple
of these; of a `Discrete` space alone it is the integer, counted from its `start`. Every part is looked up on its own:
what lies outside of its space is no state, and never the name of another one. An entry of a `Box` beyond its outermost
edges is in the first or the last bin, as rows are clipped to their bounds; NaN is in none.

Gymnasium is not imported: whoever has a space has done so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from operator import index
from typing import Any, NamedTuple

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast._redacted import redact_errors
from dpfast.io.frames import MISSING, Batch


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
            raise check.mistyped("states", "a list of all states there are (a number of them is n_states)", states)
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
        raise ValueError("either n_states or states must be given: states are public, and never taken from the data")
    if states is None:
        return check.positive_integer("n_states", n_states), None
    encoder = states if isinstance(states, StateEncoder) else StateEncoder(states)
    return len(encoder), encoder


Encode = Callable[[Any], int]

#: Each is a name in a table of all of them.
_MOST_STATES = 1 << 22

_NO_STATE = "an observation does not have the form of its space"
_SPACES = "Discrete, MultiDiscrete, MultiBinary, Box, or a Tuple or Dict of these"


class _Space(NamedTuple):
    """A space, taken apart: the way from an observation to its integers, and what each of them may be."""

    read: Callable[[Any], Iterator[int]]
    names: list[range]


def _integers(n: int, seen: Any) -> Iterator[int]:
    for value, _ in zip(np.asarray(seen).ravel().tolist(), range(n), strict=True):
        yield index(value)


def _bins(edges: Sequence[FloatArray], seen: Any) -> Iterator[int]:
    """Yield the number of each entry's bin between inner edges, -1 for NaN."""
    for value, inner in zip(np.asarray(seen, np.float64).ravel().tolist(), edges, strict=True):
        yield -1 if math.isnan(value) else int(np.searchsorted(inner, value, side="right"))


def _parts(parts: Mapping[Any, _Space], seen: Any) -> Iterator[int]:
    """Yield the integers of several spaces, by their places or by their keys."""
    if len(seen) != len(parts):
        raise ValueError
    for key, part in parts.items():
        yield from part.read(seen[key])


def declared_observations(
    space: Any, states: Iterable[Hashable] | None, encode: Callable[[Any], Hashable] | None, bins: Any = None
) -> tuple[int, StateEncoder | None, Encode]:
    """Return the number of states, their encoder if they have names, and the way from an observation to a number."""
    if states is not None:
        if bins is not None:
            raise ValueError(
                "bins and states exclude each other: with states, encode returns the state of an observation"
            )
        number, encoder = declared_states(None, states)
        assert encoder is not None
        return number, encoder, lambda seen: int(encoder.codes([seen if encode is None else encode(seen)])[0])
    if encode is not None:
        raise ValueError("encode needs states: all that it may return")
    declared = _declared(space, iter(_declared_edges(space, bins)))

    def state_of(seen: Any) -> tuple[int, ...]:
        return redact_errors(lambda: tuple(declared.read(seen)), _NO_STATE, TypeError)

    if "Discrete" in _kinds(space):
        (own,) = declared.names
        return len(own), None, lambda seen: state_of(seen)[0] - own.start
    number = math.prod(map(len, declared.names))
    if number > _MOST_STATES:
        raise ValueError(
            f"the observation space has {number} states, and at most {_MOST_STATES} are possible: use fewer bins, "
            "or list the states to distinguish in `states`"
        )
    encoder = StateEncoder(product(*declared.names))
    return number, encoder, lambda seen: int(encoder.codes([state_of(seen)])[0])


def _box_limits(space: Any) -> Iterator[tuple[float, float]]:
    """Yield the limits of every entry of the Boxes that a space has."""
    kinds = _kinds(space)
    if "Box" in kinds:
        yield from zip(np.ravel(space.low).tolist(), np.ravel(space.high).tolist(), strict=True)
    for part in space.spaces.values() if "Dict" in kinds else space.spaces if "Tuple" in kinds else ():
        yield from _box_limits(part)


def _declared_edges(space: Any, bins: Any) -> list[FloatArray]:
    """Return the inner edges of the bins of every entry of a Box."""
    limits = list(_box_limits(space))
    is_listed = isinstance(bins, Sequence) and not isinstance(bins, str | bytes)
    if limits and bins is None:
        raise ValueError(
            "bins are needed for a Box: for every entry a number of bins between its limits, or the edges between bins"
        )
    n_given = len(bins) if is_listed else len(limits) or int(bins is not None)
    if n_given != len(limits):
        much = "fewer" if n_given < len(limits) else "more"
        raise ValueError(f"bins must have one item for every entry of the Boxes there are, got {much}")
    several = bins if is_listed else [bins] * n_given
    return [_inner_edges(one, float(low), float(high)) for one, (low, high) in zip(several, limits, strict=True)]


def _inner_edges(bins: Any, low: float, high: float) -> FloatArray:
    if isinstance(bins, np.ndarray | list | tuple):
        edges = redact_errors(lambda: np.array(bins, np.float64), "bins must hold numbers: the edges between bins")
        if edges.ndim != 1 or not np.isfinite(edges).all() or not np.all(edges[1:] > edges[:-1]):
            raise ValueError("bins must hold finite edges that increase")
        return edges
    number = check.positive_integer("bins", bins)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            "bins must list edges for an entry of a Box without finite limits: no number of bins divides it evenly"
        )
    # Not by differences, which may overflow.
    shares = np.arange(1, number) / number
    return low * (1.0 - shares) + high * shares


def _kinds(space: Any) -> set[str]:
    return {kind.__name__ for kind in type(space).__mro__}


def _declared(space: Any, inner_edges: Iterator[FloatArray]) -> _Space:
    kinds = _kinds(space)
    if "Discrete" in kinds:
        return _Space(partial(_integers, 1), [range(int(space.start), int(space.start) + int(space.n))])
    if "MultiDiscrete" in kinds:
        sizes = np.ravel(space.nvec).tolist()
        starts = np.ravel(getattr(space, "start", np.zeros(len(sizes), int))).tolist()
        names = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        return _Space(partial(_integers, len(names)), names)
    if "MultiBinary" in kinds:
        size = math.prod(space.shape)
        return _Space(partial(_integers, size), [range(2)] * size)
    if "Box" in kinds:
        edges = list(islice(inner_edges, np.size(space.low)))
        return _Space(partial(_bins, edges), [range(len(inner) + 1) for inner in edges])
    if kinds & {"Tuple", "Dict"}:
        listed = space.spaces.items() if "Dict" in kinds else enumerate(space.spaces)
        parts = {key: _declared(part, inner_edges) for key, part in listed}
        return _Space(partial(_parts, parts), [one for part in parts.values() for one in part.names])
    raise TypeError(
        f"observations are {type(space).__name__}, and states are made of {_SPACES}: list all states there are in "
        "`states`, and say in `encode` which one an observation is"
    )
