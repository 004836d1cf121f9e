"""Panels, tables of units by periods, as arrays with labels: from an array, a wide frame or a long one.

The caller gives the orientation of a table. A long frame's periods are those of its treated units, which are public.
Labels of donors are only told apart: they decide nothing and are not kept. No message names one or says anything of a
value: membership in the panel may itself be protected.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast._redacted import redact_errors
from dpfast.io.arrow import ArrowStream
from dpfast.io.blocks import blocks
from dpfast.io.columns import Part, table_parts
from dpfast.io.engines import DaskPartitions
from dpfast.io.frames import MISSING, frame_blocks
from dpfast.io.partitions import Partitions
from dpfast.io.people import numbered_column
from dpfast.io.sources import as_matrix, is_arrow, is_dask, is_frame, is_sparse, sparse_blocks, zero_copy_view
from dpfast.io.states import StateEncoder
from dpfast.kernels.columns import Rows, kept

Orientation: TypeAlias = Literal["units_by_periods", "periods_by_units"]
_WAYS = "; donors are rows, or columns with orientation='periods_by_units'"


@dataclass(frozen=True)
class Panel:
    """A table of units by periods: a row a unit, NaN where an entry is missing, and labels of the periods in order.

    The intervention comes after `n_pre` periods. The labels are a pandas Index, where the table has any. The values are
    an array, or partitions whose parts are. Further columns may come before the periods: predictors.
    """

    values: Any
    n_pre: int
    periods: Any = None
    n_predictors: int = 0

    @property
    def n_periods(self) -> int:
        """Number of periods."""
        columns = self.values.n_features if isinstance(self.values, Partitions) else self.values.shape[1]
        return int(columns) - self.n_predictors


def open_panel(
    table: object,
    n_pre: object,
    name: str = "donors",
    *,
    orientation: Orientation = "units_by_periods",
    may_miss: bool = False,
    may_be_empty: bool = False,
    predictors: Sequence[str] = (),
) -> Panel:
    """Read a panel from an array, a DataFrame or a table of Arrow's, which lies as `orientation` says: never inferred.

    `predictors` are columns beside the periods (rows, where units are columns), which come first in the panel: taken by
    their names from a table that has names, else the first ones.

    Labels of units are not looked at; there may be no unit where their number is private (`may_be_empty`). The
    intervention comes after `n_pre` periods, or just before the period that it labels. Messages call the table `name`.
    ValueError or TypeError if the panel is ragged or has entries that are no finite numbers (NaN is one, if it
    `may_miss` entries). The same if labels of periods come twice or out of order, or if `n_pre` leaves no period on one
    side.

    Examples
    --------
    >>> from dpfast.io import open_panel
    >>> open_panel([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]], 2, orientation="periods_by_units").values.shape
    (2, 3)
    """
    check.choice("orientation", orientation, get_args(Orientation))
    transposed = orientation == "periods_by_units"
    parts = DaskPartitions(table) if is_dask(table) else table
    if isinstance(parts, Partitions):
        if transposed:
            raise ValueError(f"orientation must be 'units_by_periods' for {name} in parts, which hold units each")
        n_columns = parts.n_features
        mapped = parts.mapped(partial(_panel_part, name, may_miss, n_columns), n_columns, 0)
        return Panel(mapped, check_n_pre(n_pre, n_columns - len(predictors), name), None, len(predictors))
    periods = None
    if is_frame(table) or is_arrow(table):
        table, periods = _read_named(table, name, transposed, predictors)
    elif isinstance(table, list | tuple) and len({len(row) for row in table if hasattr(row, "__len__")}) > 1:
        raise ValueError(f"{name} must have one value for each unit and period: its rows have different lengths")
    if is_sparse(table):
        (table,) = map(np.asarray, sparse_blocks(table, name, whole=True))
    matrix = as_matrix(table, name)
    values = np.array(matrix.T if transposed else matrix, np.float64, order="C")
    check_values(values, name, may_miss=may_miss, cure="fill it, or declare the observation_rate")
    if len(values) == 0 and not may_be_empty:
        raise ValueError(f"{name} must have at least one unit, got none")
    cut = intervention_at(n_pre, periods, values.shape[1] - len(predictors), name)
    return Panel(values, cut, periods, len(predictors))


def _panel_part(name: str, may_miss: bool, n_periods: int, x: Any, y: Any, ids: Any) -> tuple[FloatArray, None, None]:
    """Make an array of a part of a panel."""
    if y is not None:
        raise ValueError(f"{name} must hold all periods, and nothing beside them")
    read = [kept(block) for block, _ in blocks(x)] or [np.empty((0, n_periods))]
    values = np.array(read[0] if len(read) == 1 else np.concatenate(read), np.float64, order="C")
    if values.shape[1] != n_periods:
        raise ValueError(f"parts of {name} must all have the same periods")
    check_values(values, name, may_miss=may_miss, cure="fill it, or declare the observation_rate")
    return values, None, None


def open_long_panel(
    table: Any,
    unit: str,
    time: str,
    value: str,
    treated: object,
    n_pre: object,
    *,
    predictors: Sequence[str] = (),
    may_miss: bool = False,
    may_be_empty: bool = False,
) -> tuple[Panel, FloatArray]:
    """Read a panel with a row for each unit and period, in any order, and take treated units out of the donors.

    `treated` is the label of a unit, or a list of labels, each a row of the target. Any table with names and types of
    columns is read some rows at a time; a CSV file has no types. The treated units' periods are those of the panel, in
    the order of their values (of their categories, if these are declared to be ordered). A donor's rows of other
    periods are left out, and one that is not listed is missing. Donors come in the order of their first rows.
    `predictors` are further columns, which come first in the panel: of each a unit has the mean of what its rows before
    the intervention say, missing entries left out. It depends on that unit's rows alone.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpfast.io import open_long_panel
    >>> frame = pd.DataFrame({"who": ["a", "a", "b", "b"], "year": [1, 2, 2, 1], "sales": [1.0, 2.0, 4.0, 3.0]})
    >>> donors, target = open_long_panel(frame, "who", "year", "sales", "b", 1)
    >>> donors.values.tolist(), target.tolist()
    ([[1.0, 2.0]], [3.0, 4.0])
    """
    if not isinstance(treated, Hashable | list | np.ndarray) or (isinstance(treated, np.ndarray) and treated.ndim != 1):
        raise TypeError(f"treated must be the label of a unit, or a list of labels, got {type(treated).__name__}")
    several = isinstance(treated, list | tuple | np.ndarray)
    own = list(treated) if several else [treated]  # type: ignore[call-overload]
    for name, one in [("unit", unit), ("time", time), ("value", value), *(("treated", label) for label in own)]:
        check.label(name, one)
    check_columns((unit, time, value), predictors)
    columns = {value: "value"} | dict.fromkeys(predictors, "predictors")
    units, times, codes, numbers, own_times = _read_long(table, unit, time, columns, own)
    for label in own:
        if not isinstance(label, Hashable) or label not in units:
            raise ValueError(f"treated must be one of the units in column {unit!r}, got {label!r}")
    rows = [units[label] for label in own]
    if len(set(rows)) < max(len(rows), 1):
        raise ValueError("treated must have at least one unit, and each once")
    labels = optional("pandas", "a panel with labels").concat(own_times)
    periods = _periods_of(labels.drop_duplicates() if several else labels, time)
    shape = len(units), len(periods)
    places = StateEncoder(periods.tolist()).codes([*times, None])[codes[1]]
    read = places >= 0
    cells = (codes[0].astype(np.int64) * shape[1] + places)[read]
    times_listed = np.bincount(cells, minlength=shape[0] * shape[1])
    if times_listed.max() > 1:
        raise ValueError("frame must have one row for each unit and period: a pair of them occurs more than once")
    if not may_miss and times_listed.min() == 0:
        raise ValueError("frame must have one row for each unit and period of the treated: a pair of them is missing")
    every = np.full((1 + len(predictors), *shape), np.nan)
    every.reshape(len(every), -1)[:, cells] = numbers[read].T
    cut = intervention_at(n_pre, periods, len(periods), f"column {value!r}")
    panel = {name: _mean_of(one[:, :cut]) for name, one in zip(predictors, every[1:], strict=True)}
    panel |= {value: every[0]}
    cure = "fill it" if predictors else "fill it, or declare the observation_rate"
    for name, one in panel.items():
        check_values(one[rows], f"the treated unit in column {name!r}")
        donors = np.delete(one, rows, axis=0)
        check_values(donors, f"column {name!r}", may_miss=may_miss, cure=cure)
    if len(donors) == 0 and not may_be_empty:
        raise ValueError(f"column {value!r} must have at least one unit, got none")
    values = np.column_stack(list(panel.values()))
    panel_of_donors = Panel(np.delete(values, rows, axis=0), cut, periods, len(predictors))
    return panel_of_donors, values[rows] if several else values[rows[0]]


def check_columns(long: tuple[str, ...], predictors: Iterable[str]) -> None:
    """Refuse a column of a long table, unit, time or value, in two roles."""
    if len(set(long)) < 3:
        raise ValueError("unit, time and value must be three columns")
    if both := set(long) & set(predictors):
        raise ValueError(f"predictors must not be unit, time or value as well, got {sorted(both)}")


def _mean_of(columns: FloatArray) -> FloatArray:
    """Return the mean of each row without what is missing: added in the order of columns, exact where all are alike."""
    mean, count = np.full(len(columns), np.nan), np.zeros(len(columns))
    for column in columns.T:
        count += ~np.isnan(column)
        further = np.where(count > 1, mean + (column / count - mean / count), column)
        mean = np.where(np.isnan(column), mean, further)
    return mean


_Numbers = dict[Hashable, int]


def _read_long(
    table: Any, unit: str, time: str, values: dict[str, str], treated: list[Any]
) -> tuple[_Numbers, _Numbers, NDArray[np.int32], FloatArray, list[Any]]:
    """Read the rows of a long table as numbers, once, some at a time; besides their values, units and times are kept.

    Returned are the units and the times by number, the numbers of both in each row (the last time is that of a missing
    one), the values, and the times of the treated units, as pandas Series.
    """
    units, times = _Numbers(), _Numbers()
    found: list[tuple[NDArray[Any], ...]] = [(np.empty((2, 0), np.int32), np.empty((0, len(values))))]
    own_times = []
    for part in table_parts(table):
        _check_long(part, {unit: "unit", time: "time"}, values)
        for batch in part.read({unit: "text", time: "text"} | dict.fromkeys(values, "number")):
            whose = numbered_column(batch, unit, units)
            places, labels = batch.distinct(time)
            numbers = [*(_numbered_time(label, times) for label in labels), -1]
            when = np.array(numbers, np.int32)[np.where(places == MISSING, len(labels), places)]
            found.append((np.stack([whose.astype(np.int32), when]), np.column_stack([*map(batch.numbers, values)])))
            # A label that is not hashable is nobody's: it is refused where it is looked for.
            known = [units[label] for label in treated if isinstance(label, Hashable) and label in units]
            if (own := np.isin(whose, known)).any():
                own_times.append(batch.series(time, own))
    codes, rows = zip(*found, strict=True)
    return units, times, np.concatenate(codes, axis=1), np.concatenate(rows), own_times


def _numbered_time(label: Any, times: dict[Hashable, int]) -> int:
    try:
        return times.setdefault(label, len(times))
    except TypeError:
        return -1


def _check_long(part: Part, labels: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Refuse a part of a long table without its columns, given with the arguments that name them, or without types."""
    for name, argument in {**labels, **values}.items():
        if name not in part.names:
            raise ValueError(f"{argument} must be a column of frame, got {name!r}")
    if part.families is None:
        raise TypeError(f"{part.label} does not say which columns hold numbers or dates: read it into a frame first")
    for name in values:
        family = part.families.get(name)
        if family is None or family.name not in ("number", "any"):
            raise TypeError(f"column {name!r} has entries that are not numbers: use .astype(float)")


def target_rows(
    target: ArrayLike,
    lengths: dict[str, int],
    name: str = "target",
    periods: NDArray[Any] | None = None,
    predictors: Sequence[str] = (),
) -> FloatArray:
    """Return public series of targets as an array of shape (n_targets, n_periods), or (n_periods,) for one of them.

    `lengths` are the accepted numbers of periods, by their names in messages. `periods` are the labels of the periods,
    as from `period_labels`. The labels of a Series or DataFrame have to equal them, unless they are just places. The
    `predictors` come first, in the place of their names in a Series or DataFrame.
    """
    if predictors and is_frame(target):
        return _labelled_rows(target, lengths, name, periods, predictors)
    lengths = {meaning: length + len(predictors) for meaning, length in lengths.items()}
    if isinstance(target, str | bytes):
        raise TypeError(
            f"{name} must be a series of numbers, got a label: a donor's record is private and cannot be a target"
        )
    rows = redact_errors(partial(np.asarray, zero_copy_view(target, name)), f"{name} has series of different lengths")
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be of real numbers, got dtype {rows.dtype}")
    if rows.ndim not in (1, 2) or rows.shape[-1] not in lengths.values():
        accepted = " or ".join(f"{length} ({meaning})" for meaning, length in lengths.items())
        first = f" (with {len(predictors)} predictors, which come first)" if predictors else ""
        raise ValueError(
            f"{name} must have as many periods as the donors, {accepted}{first}, got shape {rows.shape}{_WAYS}"
        )
    if is_frame(target) and periods is not None:
        _check_same_periods(target, periods[: rows.shape[-1]], name)
    rows = rows.astype(np.float64)
    check_values(rows, name)
    return rows


def _labelled_rows(
    target: Any, lengths: dict[str, int], name: str, periods: NDArray[Any] | None, predictors: Sequence[str]
) -> FloatArray:
    """Return series of targets with their predictors, which are taken by their labels, first."""
    axis, labels = target.ndim - 1, target.axes[-1]
    places, rest = _predictors_first(labels, predictors, name)
    chosen, later = target.take(places, axis=axis), target.take(rest, axis=axis)
    later = later.set_axis(labels[rest].infer_objects(), axis=axis)
    series = target_rows(later, lengths, name, periods)
    values = target_rows(chosen, {"predictors": len(predictors)}, name)
    return np.concatenate([values, series], axis=-1)


def _predictors_first(labels: Any, predictors: Sequence[str], name: str) -> tuple[list[int], list[int]]:
    """Return the places of predictors among the labels of columns, a pandas Index, and those of all others."""
    found = list(labels)
    for one in predictors:
        if found.count(one) != 1:
            raise ValueError(f"{name} must have an entry {one!r}, once: it is declared in predictors")
    places = [found.index(one) for one in predictors]
    return places, [place for place in range(len(found)) if place not in places]


def _check_same_periods(target: Any, periods: NDArray[Any], name: str) -> None:
    """Refuse a target with labels of other periods, or of these in another order."""
    are_places = periods.dtype.kind == "i" and np.array_equal(periods, np.arange(len(periods)))
    if are_places or np.array_equal(period_labels(target.axes[-1]), periods):
        return
    axis = "index" if target.ndim == 1 else "columns"
    raise ValueError(
        f"{name} must have the donors' periods as its {axis}, in their order: reindex it (or pass {name}.to_numpy(), "
        "if values at the same place belong together)"
    )


def check_n_pre(n_pre: object, n_periods: int, name: str = "donors") -> int:
    """Return the number of periods before the intervention, if there is one on either side of it."""
    number = check.integer("n_pre", n_pre)
    if not 1 <= number < n_periods:
        raise ValueError(
            f"n_pre must leave a period before and after the intervention: at least 1 and below the {n_periods} "
            f"periods of {name}, got {number}"
        )
    return number


def intervention_at(n_pre: object, periods: Any, n_periods: int, name: str = "donors") -> int:
    """Return the number of periods before the intervention, from itself or the label of the first period after it.

    A whole number in the possible range is that number, whatever labels there are. Anything else is looked up among the
    labels, a pandas Index, if there are any. Text may stand for a date, as a year for its first period; and a number
    for text that is it, as all labels of files are.
    """
    counts = isinstance(n_pre, int | np.integer) and 1 <= n_pre < n_periods
    if periods is None or n_periods < 2 or counts or isinstance(n_pre, bool | np.bool_):
        return check_n_pre(n_pre, n_periods, name)
    if isinstance(n_pre, int | np.integer) and periods.inferred_type == "string":
        n_pre = str(n_pre)
    try:
        place = periods.get_loc(n_pre) if isinstance(n_pre, Hashable) and not isinstance(n_pre, slice) else None
    except Exception:  # pandas has several of its own, such as InvalidIndexError
        place = None
    number = place.start if isinstance(place, slice) else place
    if isinstance(number, int | np.integer) and number >= 1:
        return int(number)
    ways = _WAYS if name == "donors" else ""
    raise ValueError(
        f"n_pre must be a number of periods, at least 1 and below the {n_periods} of {name}, or the label of the first "
        f"period after the intervention (of the second, or a later one): got {n_pre!r}{ways}"
    )


def period_labels(periods: Any) -> NDArray[Any]:
    """Return labels of periods as an array that can be saved: numbers, dates or strings."""
    array = np.asarray(periods)
    return array if array.dtype.kind in "iufM" else np.asarray([str(label) for label in periods])


def check_values(
    values: FloatArray, name: str, *, may_miss: bool = False, cure: str = "a target must be observed throughout"
) -> None:
    """Refuse infinities, and missing entries unless they are allowed."""
    if np.any(np.isinf(values)):
        raise ValueError(f"{name} contains infinity")
    if not may_miss and np.any(np.isnan(values)):
        raise ValueError(f"{name} contains NaN: {cure}")


def _read_named(table: Any, name: str, transposed: bool, predictors: Sequence[str]) -> tuple[FloatArray, Any]:
    """Return values as they lie, predictors first, with labels of periods; those of units are not looked at."""
    if is_frame(table):
        if table.ndim != 2:
            raise ValueError(f"{name} must be two-dimensional, units by periods, got a Series")
        values = _joined(frame_blocks(table, name), name)
        periods = table.index if transposed else table.columns
    else:
        stream = ArrowStream(table, name)
        values = _joined(stream.blocks(), name)
        if transposed:  # rows of Arrow's have no labels
            return values, None
        periods = optional("pandas", "a panel with labels").Index(stream.schema.names)
    if periods.nlevels > 1:
        raise ValueError(f"{name} must have periods labelled on one level: use fit_long for a panel in rows")
    if predictors:
        places, rest = _predictors_first(periods, predictors, name)
        values, periods = np.take(values, places + rest, axis=int(not transposed)), periods[rest].infer_objects()
    if not periods.is_unique:
        raise ValueError(f"{name} must have each period once: a label of its {_AXIS[transposed]} occurs more than once")
    # A column, such as an age or an id, is no period for being there. No message names one: it may be a person's.
    labels, is_ordered = periods.tolist(), getattr(periods, "ordered", False)
    are_text = {isinstance(label, str) for label in labels}
    in_time = None if len(are_text) > 1 else _is_in_time(labels)
    if in_time is None and not is_ordered:
        raise ValueError(_UNKNOWN.format(name, _AXIS[transposed]))
    says_itself = True in are_text and not is_ordered
    if in_time is False or not (says_itself or periods.is_monotonic_increasing):
        raise ValueError(_UNORDERED.format(name, _AXIS[transposed]))
    return values, periods


_AXIS = {False: "columns", True: "rows"}
_UNKNOWN = (
    "{0} must have {1} of periods alone, labelled by numbers, dates, names of months, text that differs in its numbers "
    "only ('week 1', 'week 2'), or an ordered category: leave out other {1}, or name them in predictors (or say in "
    "orientation that the other axis holds periods)"
)
_UNORDERED = (
    "{} must have its periods in order: sort its {} first, by the dates or numbers that text says (or say in "
    "orientation that the other axis holds periods)"
)


def _joined(blocks: Iterator[Rows], name: str) -> FloatArray:
    try:
        return np.concatenate(list(map(kept, blocks)))
    except TypeError:
        # Without the names of columns, which may be those of donors.
        raise TypeError(
            f"{name} has entries that are not numbers: a row is a donor, a column a period (a table with a row for "
            "each donor and period is for fit_long)"
        ) from None


def _periods_of(column: Any, name: str) -> Any:
    """Return the periods of one unit's rows as an index, in order: the same whatever other units made of the dtype."""
    pandas = optional("pandas", "a panel with labels")
    if column.isna().any():
        raise ValueError(f"the treated unit has a row without a time in column {name!r}")
    is_ordered = isinstance(column.dtype, pandas.CategoricalDtype) and column.dtype.ordered
    labels = pandas.Index(_labels(column.sort_values() if is_ordered else column), tupleize_cols=False)
    if not is_ordered:
        try:
            labels = labels.sort_values()
        except TypeError:
            raise TypeError(f"the treated unit has times in column {name!r} that cannot be put in order") from None
        # None is of text without an order of its own: the column is declared to hold times.
        if _is_in_time(labels.tolist()) is False:
            raise ValueError(
                f"times in column {name!r} are text that does not sort like the dates or numbers in it: convert it "
                "to dates (pandas.to_datetime), numbers or an ordered category first"
            )
    if not labels.is_unique:
        raise ValueError("frame must have one row for each unit and period: a pair of them occurs more than once")
    if isinstance(labels, pandas.DatetimeIndex):
        # Columns of dates differ in resolution, and what one entry needs would show in all.
        labels = labels.as_unit("ns" if labels.nanosecond.any() else "us")
    return labels


_YEAR = """
    january february march april may june
    july august september october november december
"""
#: Months by their names, and by the first three or four letters of these.
_MONTHS = {name[:letters]: number for number, name in enumerate(_YEAR.split()) for letters in (3, 4, len(name))}


def _is_in_time(labels: list[Any]) -> bool | None:
    """Whether labels of periods are in the order of their dates or numbers; None for text that does not say."""
    if not labels or not all(isinstance(label, str) for label in labels):
        return True
    if not any(re.search(r"[0-9]", label) for label in labels):
        # No dates without a number, but perhaps months, of at most a year.
        names = [label.casefold().rstrip(".") for label in labels]
        if not all(name in _MONTHS for name in names):
            return None
        return sum((_MONTHS[after] - _MONTHS[name]) % 12 for name, after in pairwise(names)) < 12
    whole = [tuple(map(int, re.findall(r"[0-9]{1,18}", label))) for label in labels]
    if all(re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", label) for label in labels):
        # "2023.10" may be October.
        return labels == sorted(labels, key=float) or whole == sorted(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        to_datetime = optional("pandas", "a panel with labels").to_datetime
        dates = to_datetime(labels, errors="coerce", format="mixed", utc=True)
    if not dates.isna().any():
        return bool(dates.is_monotonic_increasing)
    signed = [re.fullmatch(r"([^0-9]*?)([+-]?[0-9]{1,18})", label) for label in labels]
    relative = [(one[1], int(one[2])) for one in signed if one is not None]
    if len(relative) == len(labels) and len({prefix for prefix, _ in relative}) == 1 and relative == sorted(relative):
        # "t-2", "t-1", "t0".
        return True
    if len({re.sub(r"[0-9]+", "", label) for label in labels}) > 1:
        return None
    # The year may come last, as in "Q1 2023".
    return whole == sorted(whole) or whole == sorted(whole, key=lambda parts: parts[::-1])


def _labels(column: Any) -> list[Hashable]:
    """Return the entries of a column; whole numbers are integers, also where a gap elsewhere made floats of them."""
    return [int(one) if isinstance(one, float) and one.is_integer() else one for one in column.tolist()]
