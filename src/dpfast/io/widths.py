"""The widths of a part of a table, learned from its first block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpfast.io.blocks import blocks
from dpfast.io.trajectories import Trajectories

Widths = tuple[int, int]


def widths_of_part(x: Any, y: Any, ids: Any = None) -> Widths | None:
    """Return the columns of x and of y, or the states of trajectories and 0; None if there is no block."""
    first = x[0] if isinstance(x, Sequence) and len(x) > 0 else x
    if isinstance(first, Trajectories):
        return first.n_states, 0
    if isinstance(x, Sequence) and len(x) == 0:
        return None
    block = next(blocks(x, y), None)
    return None if block is None else (block[0].shape[1], 0 if block[1] is None else block[1].shape[1])


def common_widths(one: Widths, other: Widths) -> Widths:
    """Return the widths of two parts, which must be the same."""
    if one != other:
        raise ValueError("parts of the table must have the same columns")
    return one
