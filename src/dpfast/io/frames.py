"""Tables with named columns, as batches of rows: the common part, and pandas' frames.

pandas is not imported to read one: whoever has a frame has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray

Codes = NDArray[np.int64]
#: Places in declared levels.
LevelCodes = NDArray[np.int32]

# Places of entries that are in no list of levels.
UNDECLARED, MISSING = -1, -2

CODES_BEYOND = "column {0!r} holds codes that its dictionary does not have, or its dictionary is damaged"


@dataclass(frozen=True)
class Family:
    """The kind of a column's entries by type; "any" for an empty column, "object" if each entry has its own."""

    name: Literal["number", "text", "object", "any", "other"]
    dtype: str


class Entries(Protocol):
    """Some rows of named columns of numbers and of text."""

    def __len__(self) -> int: ...

    def numbers(self, name: str) -> FloatArray:
        """Return a column of numbers or booleans; missing entries are NaN."""

    def codes(self, name: str, levels: Sequence[str]) -> LevelCodes:
        """Return a column of text as places in `levels`, or `MISSING` or `UNDECLARED`."""


class Batch(Entries, Protocol):
    """Some rows of named columns, of people and times too."""

    def distinct(self, name: str) -> tuple[Codes, list[Hashable]]:
        """Return a column as places in a list of its values, in which few come twice; missing ones are `MISSING`."""

    def plain(self, name: str, *, may_miss: bool = False) -> NDArray[Any]:
        """Return a column in its own dtype; missing entries are refused, or NaN in a column of numbers."""

    def series(self, name: str, rows: NDArray[np.bool_]) -> Any:
        """Return some entries of a column as a pandas Series."""


def check_numeric(table: str, columns: Iterable[tuple[object, object, bool]]) -> None:
    """Refuse a table with columns, of a name and a type, that are not of numbers."""
    # A Series comes without its name.
    refused = [f"{name} ({kind})" if name != "" else kind for name, kind, is_number in columns if not is_number]
    if refused:
        shown = ", ".join(map(str, refused[:5]))
        raise TypeError(
            f"{table} has columns that are not numbers: {shown}; leave them out, make floats of decimals, make days of "
            "dates, or declare categories by dpfast.io.Columns and fit what its encode makes"
        )


_VALUES_PER_BLOCK = 1 << 20


def frame_as_array(frame: Any, name: str, *, may_copy: bool) -> NDArray[Any] | None:
    """Return a frame as an array, or None; a copy only if `may_copy`, as if not all columns share one NumPy dtype."""
    dtypes = _checked_dtypes(frame, name)
    if not all(isinstance(dtype, np.dtype) and dtype == dtypes[0] for dtype in dtypes):
        # One entry may have made the dtype of its column: what is done with the table must not depend on it.
        return np.concatenate(list(frame_blocks(frame, name))) if may_copy else None
    # A frame of several blocks has no array behind it: to_numpy copies, and two copies share no memory.
    has_array = np.may_share_memory(frame.iloc[:1].to_numpy(), frame.iloc[:1].to_numpy())
    if not (has_array or may_copy or len(frame) == 0):
        return None
    return np.asarray(frame.to_numpy())


def frame_blocks(frame: Any, name: str) -> Iterator[FloatArray]:
    """Iterate over blocks of rows as float64, missing values as NaN."""
    _checked_dtypes(frame, name)
    n_columns = 1 if frame.ndim == 1 else frame.shape[1]
    step = max(1, _VALUES_PER_BLOCK // max(1, n_columns))
    for start in range(0, max(1, len(frame)), step):
        yield frame.iloc[start : start + step].to_numpy(dtype=np.float64, na_value=np.nan)


def _checked_dtypes(frame: Any, name: str) -> list[Any]:
    columns = [("", frame.dtype)] if frame.ndim == 1 else list(zip(frame.columns, frame.dtypes, strict=True))
    check_numeric(name, ((column, dtype, is_number(dtype)) for column, dtype in columns))
    return [dtype for _, dtype in columns]


def is_number(dtype: Any) -> bool:
    """Whether a dtype of pandas' is one of real numbers, booleans among them."""
    types = sys.modules["pandas"].api.types
    return bool(types.is_any_real_numeric_dtype(dtype) or types.is_bool_dtype(dtype))


@dataclass(frozen=True)
class FrameBatch:
    """Some rows of named columns."""

    frame: Any
    #: By column and declared levels, the places of a categorical's categories: batches of one frame share them.
    of_categories: dict[tuple[str, tuple[str, ...]], LevelCodes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    def numbers(self, name: str) -> FloatArray:
        """Return a column of numbers or booleans; missing entries are NaN."""
        column = self.frame[name]
        if column.dtype == object:
            return _numbers_among(column, name)
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))

    def codes(self, name: str, levels: Sequence[str]) -> LevelCodes:
        """Return a column of text as places in `levels`, or `MISSING` or `UNDECLARED`."""
        pandas = sys.modules["pandas"]
        column = self.frame[name]
        if isinstance(column.dtype, pandas.CategoricalDtype):
            declared = name, tuple(levels)
            if declared not in self.of_categories:
                self.of_categories[declared] = _places(column.cat.categories.to_series(), levels)
            return places_of_codes(column.cat.codes.to_numpy(), self.of_categories[declared], name)
        if getattr(column.dtype, "storage", None) == "pyarrow":
            return arrow_places(sys.modules["pyarrow"].array(column.array), levels)
        return _places(column, levels)

    def distinct(self, name: str) -> tuple[Codes, list[Hashable]]:
        """Return a column as places in a list of its values, objects one by one; missing entries are `MISSING`."""
        column = self.frame[name]
        if column.dtype == object:
            # pandas matches 1 and np.int8(1) or does not, by what lies beside them.
            return np.where(column.isna(), MISSING, np.arange(len(column))), column.tolist()
        codes, values = sys.modules["pandas"].factorize(column)
        return np.where(codes < 0, MISSING, codes).astype(np.int64), values.tolist()

    def plain(self, name: str, *, may_miss: bool = False) -> NDArray[Any]:
        """Return a column in its own dtype; missing entries are refused, or NaN in a column of numbers."""
        column = self.frame[name]
        if not column.isna().any():
            return np.asarray(column.to_numpy())
        if not may_miss:
            raise ValueError(f"column {name!r} has missing entries")
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))

    def series(self, name: str, rows: NDArray[np.bool_]) -> Any:
        """Return some entries of a column as a pandas Series."""
        return self.frame[name][rows]


def _places(column: Any, levels: Sequence[str]) -> LevelCodes:
    # A dict takes a third of the time of an index of pandas.
    places = _Places({level: place for place, level in enumerate(levels)})
    entries = column.tolist()
    try:
        codes = np.fromiter(map(places.__getitem__, entries), np.int32, len(entries))
    except Exception:  # an entry's own
        codes = np.fromiter(map(places.of_any, entries), np.int32, len(entries))
    if len(codes) > 0 and codes.min() < 0:
        left = np.flatnonzero(codes < 0)
        codes[left[column.iloc[left].isna().to_numpy()]] = MISSING
    return codes


class _Places(dict[object, int]):
    """Places of levels; `UNDECLARED` for anything else."""

    def __missing__(self, _: object) -> int:
        return UNDECLARED

    def of_any(self, entry: object) -> int:
        """Look up an entry that may not be hashable, or raise an error of its own: it is no level then."""
        try:
            return self[entry]
        except Exception:
            return UNDECLARED


def arrow_places(column: Any, levels: Sequence[str]) -> LevelCodes:
    """Return a column of Arrow's as places in `levels`, or `MISSING` or `UNDECLARED`."""
    pyarrow = sys.modules["pyarrow"]
    if pyarrow.types.is_null(column.type):
        return np.full(len(column), MISSING, np.int32)
    places = sys.modules["pyarrow.compute"].index_in(column, value_set=pyarrow.array(levels, column.type))
    codes: LevelCodes = places.fill_null(UNDECLARED).to_numpy(zero_copy_only=False).astype(np.int32)
    if column.null_count:
        codes[arrow_nulls(column)] = MISSING
    return codes


def arrow_nulls(column: Any) -> NDArray[np.bool_]:
    """Return which entries of a column of Arrow's are missing."""
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)


def places_of_codes(codes: NDArray[Any], places: LevelCodes, name: str, *, least: int = -1) -> LevelCodes:
    """Return the places of entries that are codes of a dictionary, -1 if missing, from the places of its entries."""
    if len(codes) > 0 and not least <= int(codes.min()) <= int(codes.max()) < len(places):
        # A table of another process may say what is not so.
        raise ValueError(CODES_BEYOND.format(name))
    # -1 is the last place.
    return np.append(places, np.int32(MISSING))[codes.astype(np.intp)]


def frame_families(frame: Any) -> dict[str, Family]:
    """Return the family of each column, from the dtypes alone."""
    columns = zip(frame.columns, frame.dtypes, strict=True)
    return {name: Family(_family(dtype), str(dtype)) for name, dtype in columns}


def frame_batches(frame: Any, names: Sized) -> Generator[tuple[FrameBatch, float], None, None]:
    """Iterate over rows of a frame with some columns wanted; the frame is no file."""
    step = max(1, _VALUES_PER_BLOCK // max(1, len(names)))
    of_categories: dict[tuple[str, tuple[str, ...]], LevelCodes] = {}
    for start in range(0, len(frame), step):
        yield FrameBatch(frame.iloc[start : start + step], of_categories), 0.0


def _numbers_among(column: Any, name: str) -> FloatArray:
    """Return numbers and booleans stored as objects because of missing entries; nothing else."""
    values = np.full(len(column), np.nan)
    for row, (entry, missing) in enumerate(zip(column, column.isna(), strict=True)):
        if missing:
            continue
        if not isinstance(entry, Real | np.bool_):
            raise TypeError(f"column {name!r} holds entries that are not numbers: use .astype(float)")
        try:
            values[row] = float(entry)
        except OverflowError:
            values[row] = np.inf
    return values


def _family(dtype: Any) -> Literal["number", "text", "object", "other"]:
    types = sys.modules["pandas"].api.types
    if types.is_object_dtype(dtype):
        return "object"
    kind = dtype.categories.dtype if isinstance(dtype, sys.modules["pandas"].CategoricalDtype) else dtype
    if is_number(kind):
        return "number"
    return "text" if types.is_string_dtype(kind) or types.is_object_dtype(kind) else "other"
