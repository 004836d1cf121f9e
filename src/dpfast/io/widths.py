"""What is known of a table in parts from a part's first block: widths, and names of columns where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dpfast.io.blocks import blocks
from dpfast.io.columns import EncodedTable
from dpfast.io.streams import is_arrow, stream_names
from dpfast.io.trajectories import Trajectories


class Widths(NamedTuple):
    """Columns of features, or states of trajectories, and of outcomes; names of either, if all of them have one."""

    n_features: int
    n_outcomes: int
    feature_names: tuple[str, ...] | None = None
    outcome_names: tuple[str, ...] | None = None


def widths_of_part(x: Any, y: Any, ids: Any = None) -> Widths | None:
    """Return the widths of a part; None if it has no block."""
    first = x[0] if isinstance(x, Sequence) and len(x) > 0 else x
    if isinstance(first, Trajectories):
        return Widths(first.n_states, 0)
    if isinstance(x, Sequence) and len(x) == 0:
        return None
    # Labels of classes are no numbers, and have a shape.
    shape = getattr(y, "shape", None)
    block = next(blocks(x, y if shape is None else None), None)
    if block is None:
        return None
    shape = shape if block[1] is None else block[1].shape
    n_outcomes = 0 if shape is None else 1 if len(shape) == 1 else shape[1]
    return Widths(block[0].shape[1], n_outcomes, names_of(x), outcome_names_of(x, y))


def names_of(x: Any) -> tuple[str, ...] | None:
    """Return the names of features that a frame, of pandas or Dask, or encoded table has, if all are text."""
    names = x.columns.feature_names if isinstance(x, EncodedTable) else getattr(x, "columns", ())
    return tuple(names) if len(names) > 0 and all(isinstance(name, str) for name in names) else None


def outcome_names_of(x: Any, y: Any) -> tuple[str, ...] | None:
    """Return the names of outcomes, which may be declared with the features, if all have one and it is text."""
    names: Sequence[Any]
    if y is None:
        names = x.columns.outcome_names if isinstance(x, EncodedTable) else ()
    elif is_arrow(y):
        names = stream_names(y) or ()
    elif hasattr(y, "columns"):
        names = y.columns
    else:
        # Of a column, which can be a frame: what else has a name, as paths and Dask's arrays, is not named for one.
        names = [y.name] if hasattr(y, "to_frame") else ()
    return tuple(names) if len(names) > 0 and all(isinstance(name, str) and name for name in names) else None


def common_widths(one: Widths, other: Widths) -> Widths:
    """Return the widths of two parts, which must be the same."""
    if one != other:
        raise ValueError("parts of the table must have the same columns")
    return one
