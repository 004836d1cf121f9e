"""Panels, tables of units by periods, as arrays with labels: from an array, a wide frame or a long one.

Which way round a frame lies is decided by its labels alone, never by its values, and where labels do not tell it is
refused. No message says anything of a value, or names a donor: who is in the panel may be what is protected.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast.io.blocks import as_matrix
from dpfast.io.frames import frame_blocks, is_frame

FloatArray = NDArray[np.float64]

# A year, a date, a year with its quarter, month or week, or a counted period.
_PERIOD = re.compile(
    r"\d{1,4}([-/. ]?(q[1-4]|[hmw]?\d{1,2})([-/.]\d{1,4})?)?"
    r"|(t|p|y|q|m|w|d|day|week|month|quarter|year|period|time)[ _-]?\d+",
    re.IGNORECASE,
)
_WAYS = "pass units by periods, or label the periods by years, dates or 't1', 't2', ... so that it can be turned"


@dataclass(frozen=True)
class Panel:
    """A table of units by periods.

    Parameters
    ----------
    values : ndarray of shape (n_units, n_periods)
        A row a unit; NaN where an entry is missing and that was allowed.
    units : sequence of labels, optional
        Names of the units, where the table has any.
    periods : index of length n_periods, optional
        Labels of the periods, in order: a pandas Index, where the table has any.
    """

    values: FloatArray
    units: Sequence[Any] | None = None
    periods: Any = None


def open_panel(table: object, n_pre: object, name: str = "donors", *, may_miss: bool = False) -> Panel:
    """Read a panel of units by periods.

    Parameters
    ----------
    table : array or DataFrame
        Units by periods; a frame of periods by units is turned, if its labels say that it is one.
    n_pre : int
        Number of periods before the intervention: at least one, and fewer than there are.
    name : str
        What messages call the table.
    may_miss : bool
        Whether missing entries (NaN) are allowed.

    Returns
    -------
    Panel

    Raises
    ------
    ValueError, TypeError
        If the table is ragged, has entries that are no finite numbers, labels twice or out of order, or labels that
        do not tell units from periods; if `n_pre` leaves no period on one side.

    Examples
    --------
    >>> from dpfast.io import open_panel
    >>> open_panel([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], 2).values.shape
    (2, 3)
    """
    units, periods = None, None
    if is_frame(table):
        table, units, periods = _read_frame(table, name)
    elif isinstance(table, list | tuple) and len({len(row) for row in table if hasattr(row, "__len__")}) > 1:
        raise ValueError(f"{name} must have one value for each unit and period: its rows have different lengths")
    values = as_matrix(table, name).astype(np.float64)
    check_values(values, name, may_miss=may_miss, cure="fill it, or declare the observation_rate")
    if len(values) == 0:
        raise ValueError(f"{name} must have at least one unit, got none")
    check_n_pre(n_pre, values.shape[1], name)
    return Panel(values, units, periods)


def open_long_panel(
    frame: Any, unit: str, time: str, value: str, treated: object, n_pre: object, *, may_miss: bool = False
) -> tuple[Panel, FloatArray]:
    """Read a panel with a row for each unit and period, and take the treated unit out of the donors.

    Parameters
    ----------
    frame : DataFrame
        In any order of rows.
    unit, time, value : str
        The columns that hold the unit, the period and the outcome.
    treated : label
        The unit that is the target.
    n_pre, may_miss
        As for `open_panel`; where entries may be missing, a pair that is not listed is missing.

    Returns
    -------
    Panel
        The donors.
    ndarray of shape (n_periods,)
        The target.

    Raises
    ------
    ValueError, TypeError
        If a column is missing or is not of numbers, a pair of unit and period occurs twice or (unless entries may be
        missing) not at all, or `treated` is no unit.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpfast.io import open_long_panel
    >>> frame = pd.DataFrame({"who": ["a", "a", "b", "b"], "year": [1, 2, 2, 1], "sales": [1.0, 2.0, 4.0, 3.0]})
    >>> donors, target = open_long_panel(frame, "who", "year", "sales", "b", 1)
    >>> donors.values.tolist(), target.tolist()
    ([[1.0, 2.0]], [3.0, 4.0])
    """
    if not is_frame(frame) or frame.ndim != 2:
        raise TypeError(f"frame must be a pandas DataFrame, got {type(frame).__name__}")
    for argument, column in (("unit", unit), ("time", time), ("value", value)):
        if column not in frame.columns:
            raise ValueError(f"{argument} must be a column of frame, got {column!r}")
    if len({unit, time, value}) < 3:
        raise ValueError("unit, time and value must be three columns")
    if bool(frame[[unit, time]].isna().to_numpy().any()):
        raise ValueError("frame has rows without a unit or a time")
    if bool(frame.duplicated([unit, time]).any()):
        raise ValueError("frame must have one row for each unit and period: a pair of them occurs more than once")
    if isinstance(treated, list | tuple | set | np.ndarray):
        raise TypeError(f"treated must be the label of one unit, got {type(treated).__name__}")
    wide = frame.pivot(index=unit, columns=time, values=value)
    if len(frame) < wide.size and not may_miss:
        raise ValueError("frame must have one row for each unit and period: a pair of them is missing")
    if treated not in wide.index:
        raise ValueError(f"treated must be one of the units in column {unit!r}, got {treated!r}")
    values = _numbers(wide, f"column {value!r}")
    row = wide.index.get_loc(treated)
    check_values(values[row], f"the treated unit in column {value!r}")
    donors = open_panel(np.delete(values, row, axis=0), n_pre, f"column {value!r}", may_miss=may_miss)
    return Panel(donors.values, list(wide.index.delete(row)), wide.columns), values[row]


def target_rows(target: ArrayLike, lengths: dict[str, int], name: str = "target") -> FloatArray:
    """Return public series of targets as an array of shape (n_targets, n_periods), or (n_periods,) for one of them.

    Parameters
    ----------
    target : array, Series or DataFrame
        A series, or a table of targets by periods.
    lengths : dict of str to int
        Accepted numbers of periods, with what they are called in messages.
    name : str
        What messages call it.

    Returns
    -------
    ndarray of shape (n_targets, n_periods) or (n_periods,)

    Raises
    ------
    ValueError, TypeError
        If it is a label, is ragged, has an entry that is no finite number, or another number of periods.
    """
    if isinstance(target, str | bytes):
        raise TypeError(
            f"{name} must be a series of numbers, got a label: a donor's record is private and cannot be a target"
        )
    try:
        rows = np.asarray(target)
    except ValueError:
        raise ValueError(f"{name} has series of different lengths") from None
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be of real numbers, got dtype {rows.dtype}")
    if rows.ndim not in (1, 2) or rows.shape[-1] not in lengths.values():
        accepted = " or ".join(f"{length} ({meaning})" for meaning, length in lengths.items())
        raise ValueError(f"{name} must have as many periods as the donors, {accepted}, got shape {rows.shape}")
    rows = rows.astype(np.float64)
    check_values(rows, name)
    return rows


def check_n_pre(n_pre: object, n_periods: int, name: str = "donors") -> int:
    """Return the number of periods before the intervention, if there is one on either side of it."""
    number = check.integer("n_pre", n_pre)
    if not 1 <= number < n_periods:
        raise ValueError(
            f"n_pre must leave a period before and after the intervention: at least 1 and below the {n_periods} "
            f"periods of {name}, got {number}"
        )
    return number


def check_no_donor(target: object, units: Sequence[Any] | None) -> None:
    """Refuse a target that goes by the name of a donor."""
    if isinstance(target, str | int) and not isinstance(target, bool):
        names: list[Any] = [target]
    elif getattr(target, "ndim", 0) == 2:
        names = list(getattr(target, "index", []))
    else:
        names = [name for name in [getattr(target, "name", None)] if name is not None]
    if units is not None and not set(names).isdisjoint(units):
        raise ValueError(
            "target must not be one of the donors, whose records are private: take it out of them, and pass its series"
        )


def period_labels(periods: Any) -> NDArray[Any]:
    """Return labels of periods as an array that can be saved: numbers, dates or strings."""
    array = np.asarray(periods)
    return array if array.dtype.kind in "iufM" else np.asarray([str(label) for label in periods])


def check_values(
    values: FloatArray,
    name: str,
    *,
    may_miss: bool = False,
    cure: str = "a target must be observed throughout",
) -> None:
    """Refuse infinities, and missing entries unless they are allowed."""
    if np.any(np.isinf(values)):
        raise ValueError(f"{name} contains infinity")
    if not may_miss and np.any(np.isnan(values)):
        raise ValueError(f"{name} contains NaN: {cure}")


def _read_frame(frame: Any, name: str) -> tuple[NDArray[Any], Sequence[Any] | None, Any]:
    """Return values of units by periods, with names of units and labels of periods."""
    if frame.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, units by periods, got a Series")
    values = _numbers(frame, name)
    rows, columns = frame.index, frame.columns
    for labels in (rows, columns):
        if labels.nlevels > 1:
            raise ValueError(f"{name} must have labels of one level: use fit_long for a panel in rows")
    if not rows.is_unique or not columns.is_unique:
        raise ValueError(f"{name} must have each unit and each period once: a label occurs more than once")
    rows_tell, columns_tell = _evidence_of_periods(rows), _evidence_of_periods(columns)
    if _is_unlabelled(columns) and not rows_tell:
        return values, None if _is_unlabelled(rows) else list(rows), None
    if rows_tell == columns_tell:
        which = (
            "that may be periods both for its rows and for" if rows_tell else "of periods neither for its rows nor for"
        )
        raise ValueError(f"{name} has labels {which} its columns: {_WAYS}")
    periods, units = columns, rows
    if rows_tell > columns_tell:
        periods, units, values = rows, columns, values.T
    if not periods.is_monotonic_increasing and not all(isinstance(label, str) for label in periods):
        raise ValueError(f"{name} must have its periods in order: sort them first")
    return values, None if _is_unlabelled(units) else list(units), periods


def _numbers(frame: Any, name: str) -> FloatArray:
    try:
        return np.concatenate(list(frame_blocks(frame, name)))
    except TypeError:
        # Without the names of columns, which may be those of donors.
        raise TypeError(f"{name} has entries that are not numbers") from None


def _is_unlabelled(labels: Any) -> bool:
    """Whether labels are what pandas gives a table without any: 0, 1, 2, ..."""
    return isinstance(labels, sys.modules["pandas"].RangeIndex) and labels.start == 0 and labels.step == 1


def _evidence_of_periods(labels: Any) -> int:
    """Return 2 for dates, years and text that reads like them, 1 for other evenly spaced integers, 0 for the rest."""
    pandas = sys.modules["pandas"]
    if _is_unlabelled(labels) or len(labels) == 0:
        return 0
    if isinstance(labels, pandas.DatetimeIndex | pandas.PeriodIndex):
        return 2
    if pandas.api.types.is_integer_dtype(labels):
        numbers = labels.to_numpy()
        if len(np.unique(np.diff(numbers))) > 1:
            return 0
        return 2 if numbers.min() >= 1000 and numbers.max() < 3000 else 1
    return 2 * all(isinstance(label, str) and _PERIOD.fullmatch(label.strip()) is not None for label in labels)
