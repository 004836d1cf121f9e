"""Columns of a table as numbers, by a public declaration: booleans, categories with declared levels, missing values.

Levels, constants and policies are declared, never taken from the rows, so that encoding costs no privacy. Messages name
columns; they never name rows, counts or values of a table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeGuard, TypeVar

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast._redacted import redact_errors
from dpfast.io.arrow import ArrowStream, arrow_families, one_ahead, parquet_batches, parquet_schema
from dpfast.io.csv_files import NULL_WORDS, csv_batches, csv_names
from dpfast.io.frames import MISSING, UNDECLARED, Batch, Entries, Family, LevelCodes, frame_batches, frame_families
from dpfast.io.sources import check_no_dask, file_format, is_arrow, is_dask, is_frame, is_path, table_files, tables_of
from dpfast.kernels.columns import CodedBlock, CodeLayout, ColumnBlock, Rows, kept

if TYPE_CHECKING:
    from pandas import DataFrame

    from dpfast.io.transforms import Interaction, Transform

ACCEPTED = (
    "a pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a "
    "Polars LazyFrame, a path to a .parquet or .csv file, a glob or a folder of them, or an iterable of these"
)


@dataclass(frozen=True)
class Part:
    """A frame, a stream of Arrow's or a file."""

    label: str  # for messages
    names: list[str]
    #: What columns hold; None for text files, which hold whatever is declared.
    families: Mapping[str, Family] | None
    #: From the columns wanted, and what is declared of them, to batches, each with the share that has been read.
    batches: Callable[[Mapping[str, str]], Generator[tuple[Batch, float], None, None]]
    size: int = 0  # bytes, of a file
    #: Told of the bytes that are read, where the reader names nobody else.
    progress: Callable[[int], object] | None = None

    def read(
        self,
        wanted: Mapping[str, str],
        made: Callable[[Batch], Any] = lambda batch: batch,
        progress: Callable[[int], object] | None = None,
    ) -> Iterator[Any]:
        """Iterate over what is made of each batch, and report the bytes of a file that are read.

        A file's next one is made meanwhile, by a thread. Whose thread may ask other tables is not known.
        """
        progress, n_read = progress or self.progress, 0
        every = ((made(batch), share) for batch, share in self.batches(wanted))
        for one, share in one_ahead(every) if self.size > 0 else every:
            yield one
            if progress is not None and self.size > 0:
                before, n_read = n_read, int(share * self.size)
                progress(n_read - before)


def table_parts(table: Any, *, in_order: bool = True) -> Iterator[Part]:
    """Iterate over the parts of a table of named columns, reading schemas only.

    Where rows may come in any order, a Dask frame is computed part by part.
    """
    if not in_order and is_dask(table) and isinstance(getattr(table, "npartitions", None), int):
        for part in table.to_delayed():
            yield from table_parts(redact_errors(part.compute, "a partition of the Dask frame could not be computed"))
    elif isinstance(table, DeclaredFiles):
        yield from map(table.declared, table_parts(table.files))
    elif is_path(table):
        yield from map(_file_part, table_files(table, "the table"))
    elif is_frame(table) and table.ndim == 2:
        yield Part("the frame", list(table.columns), frame_families(table), partial(frame_batches, table))
    elif is_arrow(table):
        stream = ArrowStream(table, "the table")
        names, families = list(stream.schema.names), arrow_families(stream.schema)
        yield Part("the table", names, families, stream.batches)
    elif is_dask(table):
        if in_order:
            check_no_dask(table)
        raise TypeError(f"the table is a {type(table).__qualname__} of Dask's: give a Dask frame, or compute it first")
    elif isinstance(table, Iterable) and not (isinstance(table, str | bytes | dict | set) or hasattr(table, "shape")):
        for item in tables_of(table, "the table"):
            yield from table_parts(item, in_order=in_order)
    else:
        kind = f"{type(table).__module__}.{type(table).__qualname__}"
        raise TypeError(f"the table is a {kind}, which has no named columns; accepted: {ACCEPTED}")


parts_in_turn = partial(table_parts, in_order=False)


@dataclass(frozen=True)
class DeclaredFiles:
    """Files with columns of "number", "boolean", "text" or "id", by declaration: a file's own types decide nothing.

    An id may be text or a number, and is read as text.
    """

    files: Sequence[Path]
    kinds: Mapping[str, str]
    progress: Callable[[int], object] | None = None

    def declared(self, part: Part) -> Part:
        """Return a part of the files as declared."""
        kinds = {name: "text" if kind == "id" else kind for name, kind in self.kinds.items()}
        families = {name: Family("text" if kind == "text" else "number", kind) for name, kind in kinds.items()}
        batches = part.batches
        return replace(
            part,
            families=families,
            batches=lambda wanted: batches({name: kinds[name] for name in wanted}),
            progress=self.progress,
        )

    def batches(self) -> Iterator[Batch]:
        """Iterate over batches of rows."""
        for part in table_parts(self):
            yield from part.read(self.kinds)


def _file_part(file: Path) -> Part:
    kind = file_format(file, "the table")
    if kind == "npy":
        raise TypeError(f"the table is {str(file)!r}, which has no named columns; accepted: {ACCEPTED}")
    size = file.stat().st_size
    if kind == "csv":
        return Part(repr(str(file)), csv_names(file), None, partial(csv_batches, file), size)
    schema = parquet_schema(file)
    return Part(repr(str(file)), schema.names, arrow_families(schema), partial(parquet_batches, file), size)


REFUSE: Literal["refuse"] = "refuse"
_Made = TypeVar("_Made")
_EXACT_INTEGERS = 2**53

#: The least and the largest number that a column holds.
Limits: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class _Single:
    """A column that becomes one of the same name."""

    name: str

    holds: ClassVar[str]
    is_coded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_name(self.name)

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of its encoded columns."""
        return (self.name,)


@dataclass(frozen=True)
class Number(_Single):
    """A column of real numbers.

    Parameters
    ----------
    name : str
        The table's column.
    missing : "refuse" or float, default "refuse"
        What stands for a missing entry.
    low, high : float, optional
        Declared limits, both or neither, for `Columns.box` and `dpfast.describe`; entries stay as they are here.

    Examples
    --------
    >>> from dpfast.io import Number
    >>> Number("age", missing=50.0, low=18.0, high=90.0).encoded_names
    ('age',)
    """

    missing: float | Literal["refuse"] = REFUSE
    low: float | None = None
    high: float | None = None

    holds: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.missing, tuple | list):
            raise TypeError(f"missing of column {self.name!r} must be a number; limits are low=18, high=90")
        if self.missing != REFUSE and not math.isfinite(check.real(f"missing of column {self.name!r}", self.missing)):
            raise ValueError(f"missing of column {self.name!r} must be 'refuse' or a finite number")
        if (self.low, self.high) == (None, None):
            return
        if self.low is None or self.high is None:
            raise ValueError(f"low and high of column {self.name!r} go together, such as low=18, high=90")
        low, high = (check.real(f"{side} of column {self.name!r}", getattr(self, side)) for side in ("low", "high"))
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low of column {self.name!r} must be below high, and both finite")
        if self.missing != REFUSE and not low <= self.missing <= high:
            raise ValueError(f"missing of column {self.name!r} must be from low to high, or it would be clipped")

    @property
    def limits(self) -> tuple[Limits, ...] | None:
        """Limits of the encoded column; None if not declared."""
        return None if self.low is None or self.high is None else ((float(self.low), float(self.high)),)

    def ends(self, needed_by: str) -> Limits:
        """Return low and high, which "a box needs", say; ValueError if they are not declared."""
        if self.low is None or self.high is None:
            raise ValueError(f"column {self.name!r} is declared without low and high, which {needed_by}")
        return float(self.low), float(self.high)

    def encode(self, batch: Entries) -> list[FloatArray]:
        """Return the encoded column. It is the table's own if no entry is missing."""
        return [_filled(self.name, batch.numbers(self.name), self.missing)]


@dataclass(frozen=True)
class Boolean(_Single):
    """A column of booleans, or of zeros and ones, as 0 and 1; its parameters are those of `Number`."""

    missing: bool | Literal["refuse"] = REFUSE

    holds: ClassVar[str] = "boolean"
    limits: ClassVar[tuple[Limits, ...]] = ((0.0, 1.0),)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.missing != REFUSE:
            check.boolean(f"missing of column {self.name!r}", self.missing)

    def encode(self, batch: Entries) -> list[FloatArray]:
        """Return its encoding: a column."""
        values = _filled(self.name, batch.numbers(self.name), self.missing)
        if not np.all((values == 0.0) | (values == 1.0)):
            raise ValueError(f"column {self.name!r} is declared boolean, but holds other numbers than 0 and 1")
        return [values]


@dataclass(frozen=True)
class Category:
    """A column of categories, one indicator for each declared level.

    Parameters
    ----------
    name : str
        The table's column.
    levels : sequence of str, or of int
        All levels, in the order of their indicators; text for columns of text, integers for columns of numbers.
    drop_first : bool, default False
        Leave the first level without an indicator, as regressions with an intercept want it.
    missing : "refuse", str or int, default "refuse"
        The level that stands for a missing entry.
    undeclared : {"refuse", "zeros"}, default "refuse"
        What becomes of an entry that is no declared level. "zeros" is no indicator at all; with `drop_first` that is
        the same as the first level.

    Examples
    --------
    >>> from dpfast.io import Category
    >>> Category("site", ("Bern", "Basel", "Genf"), drop_first=True).encoded_names
    ('site=Basel', 'site=Genf')
    """

    name: str
    levels: tuple[str, ...] | tuple[int, ...]
    drop_first: bool = False
    missing: str | int = REFUSE
    undeclared: Literal["refuse", "zeros"] = REFUSE

    is_coded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "levels", _checked_levels(self.name, self.levels))
        check.boolean(f"drop_first of column {self.name!r}", self.drop_first)
        check.choice(f"undeclared of column {self.name!r}", self.undeclared, (REFUSE, "zeros"))
        if self.drop_first and len(self.levels) < 2:
            raise ValueError(f"column {self.name!r} has one level, which drop_first leaves out")
        if REFUSE in self.levels:
            raise ValueError(f"column {self.name!r} has the level 'refuse', which means something else in `missing`")
        if self.missing != REFUSE and (isinstance(self.missing, bool) or self.missing not in self.levels):
            raise ValueError(f"missing of column {self.name!r} must be 'refuse' or a declared level: {self._listed}")

    @property
    def _listed(self) -> str:
        return ", ".join(map(repr, self.levels))

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the indicators."""
        return tuple(f"{self.name}={level}" for level in self.levels[self.drop_first :])

    @property
    def limits(self) -> tuple[Limits, ...]:
        """Limits of the indicators."""
        return ((0.0, 1.0),) * len(self.encoded_names)

    @property
    def holds(self) -> str:
        """The required family of the table's column."""
        return "text" if isinstance(self.levels[0], str) else "number"

    def encode(self, batch: Entries) -> list[FloatArray]:
        """Return its encoding: an indicator for each level."""
        return list(np.asarray(CodedBlock(np.empty((len(batch), 0)), [self.places(batch)], _layout([self]))).T)

    def places(self, batch: Entries) -> LevelCodes:
        """Return the places of entries among the indicators; those without one have a place below 0."""
        codes = self.codes(batch)
        if len(codes) == 0 or codes.min() >= 0:
            return codes - np.int32(1) if self.drop_first else codes
        missing = codes == MISSING
        if missing.any():
            if self.missing == REFUSE:
                raise ValueError(_MISSING.format(self.name))
            codes[missing] = self.levels.index(self.missing)
        if self.undeclared == REFUSE and np.any(codes == UNDECLARED):
            raise ValueError(
                f"column {self.name!r} holds a level that is not declared: add it to levels, or declare "
                "undeclared='zeros' for none of them"
            )
        return codes - np.int32(self.drop_first)

    def codes(self, batch: Entries) -> LevelCodes:
        """Return a column as places in the levels; missing and undeclared entries are below 0."""
        if self.holds == "text":
            return batch.codes(self.name, [str(level) for level in self.levels])
        values = batch.numbers(self.name)
        levels = np.asarray(self.levels, np.float64)
        order = np.argsort(levels)
        places = np.searchsorted(levels, values, sorter=order)
        codes = order[np.minimum(places, len(levels) - 1)].astype(np.int32)
        codes[levels[codes] != values] = UNDECLARED
        codes[np.isnan(values)] = MISSING
        return codes


Column: TypeAlias = Number | Boolean | Category


def column_of(argument: str, name: str, declared: object) -> Column:
    """Return the column that is declared by name: by limits, levels, "boolean", or as a column."""
    if isinstance(declared, Number | Boolean | Category):
        if declared.name != name:
            raise ValueError(f"{argument}[{name!r}] declares another column, {declared.name!r}")
        return declared
    if isinstance(declared, str) and declared == "boolean":
        return Boolean(name)
    if isinstance(declared, str) or not isinstance(declared, Sequence | np.ndarray):
        raise TypeError(
            f"{argument}[{name!r}] must be limits, (low, high), a list of levels, 'boolean', or a Number, Boolean or "
            f"Category; got {declared!r}"
        )
    if len(declared) == 2 and all(type(entry) is bool for entry in declared):
        return Boolean(name)
    if len(declared) != 2 or any(isinstance(entry, str) for entry in declared):
        return Category(name, tuple(declared))
    if not isinstance(declared, tuple):
        raise ValueError(
            f"{argument}[{name!r}] is ambiguous: write ({declared[0]!r}, {declared[1]!r}) for limits, or declare a "
            "dpfast.io.Category for two levels"
        )
    return Number(name, REFUSE, *check.limits(f"{argument}[{name!r}]", declared))


class Derived:
    """The base of columns of numbers that are made of declared ones: `dpfast.io.transforms` has them."""


if TYPE_CHECKING:
    Feature: TypeAlias = Column | Transform | Interaction
else:
    Feature = Column | Derived


def sources_of(column: Feature) -> tuple[Column, ...]:
    """Return the table's columns that one is, or is made of."""
    return (column,) if isinstance(column, Number | Boolean | Category) else column.sources


def is_coded(column: object) -> TypeGuard[Category | Interaction]:
    """Whether a column stays codes."""
    return bool(getattr(column, "is_coded", False))


class Columns:
    """The declaration of a table: its columns of features and outcomes, in this order, and their encoding.

    Parameters
    ----------
    features : sequence of str, Number, Boolean, Category, Log, Polynomial, Spline or Interaction
        A plain name is a `Number` without missing values.
    outcomes : sequence, optional
        Likewise; leave them out to encode rows whose outcomes are to be predicted.

    Attributes
    ----------
    feature_names, outcome_names : tuple of str
        Columns after encoding: those of X and of Y.

    Raises
    ------
    TypeError, ValueError
        If there are no features, or a column is declared twice.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpfast import MultiOutcomeRidge
    >>> from dpfast.io import Boolean, Category, Columns
    >>> frame = pd.DataFrame({"site": ["Bern", "Basel", None], "smoker": [True, False, True], "days": [3.0, 1.0, 2.0]})
    >>> columns = Columns([Category("site", ("Basel", "Bern"), missing="Bern"), Boolean("smoker")], ["days"])
    >>> columns.feature_names
    ('site=Basel', 'site=Bern', 'smoker')
    >>> [x.tolist() for x, y in columns.encode(frame) if len(x)]
    [[[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]]
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.5, bound_y=10.0).fit(columns.encode(frame), None)
    >>> model.coef_.shape
    (1, 3)
    """

    def __init__(self, features: Iterable[str | Feature], outcomes: Iterable[str | Feature] = ()) -> None:
        self.features = _declared("features", features)
        self.outcomes = _declared("outcomes", outcomes)
        if not self.features:
            raise ValueError("features must name at least one column")
        _check_unique("column", [one.name for one in (*self.features, *self.outcomes)])
        self.declared = _sources(self.features, self.outcomes)
        self._layout = _layout(self.features)
        self.feature_names = tuple(chain.from_iterable(column.encoded_names for column in self.features))
        self.outcome_names = tuple(chain.from_iterable(column.encoded_names for column in self.outcomes))
        _check_unique("encoded column", [*self.feature_names, *self.outcome_names])

    @classmethod
    def from_formula(cls, formula: str, limits: Mapping[str, Any] | None = None) -> Columns:
        """Return the declaration of a formula, as ``days ~ age + C(sex, levels=['f', 'm']) + age:smoker``.

        Privacy: formula and limits are public, and no table is looked at: levels, knots and scales are never taken from
        rows. A term that would is refused.

        Parameters
        ----------
        formula : str
            Outcomes, ``~``, and features, in the language of R and formulaic, which parses it. Terms are columns by
            name (in backticks, where it is no name of Python's), ``C(name, levels=[...])``, ``log(name)``,
            ``poly(name, degree)`` and ``bs(name, knots=[...], degree=3)``, as `Category`, `Log`, `Polynomial` and
            `Spline` have them; and interactions of these, ``a:b``, or ``a*b`` with both. The intercept is the
            estimator's own. So, as in R, a category leaves out its first level where the formula has the rest of its
            term, or it stands alone.
        limits : mapping, optional
            Declarations of columns, by name: ``(low, high)`` of a number, a list of levels of a category; or a
            `Number`, `Boolean` or `Category`, for example with `missing`. Other columns are numbers without limits.

        Returns
        -------
        Columns

        Raises
        ------
        TypeError, ValueError
            If the formula cannot be read, or has an unknown term or one without a declaration. The message names it,
            and the accepted terms.
        ImportError
            If formulaic is not installed.

        Examples
        --------
        >>> from dpfast.io import Boolean, Columns
        >>> limits = {"age": (18, 90), "smoker": Boolean("smoker")}
        >>> columns = Columns.from_formula("days ~ age + C(sex, levels=['f', 'm']) + age:smoker", limits)
        >>> columns.limits
        {'age': (18.0, 90.0), 'sex=m': (0.0, 1.0), 'age:smoker': (0.0, 90.0)}
        >>> columns.outcome_names
        ('days',)
        """
        from dpfast.io.transforms import declared_by

        return cls(*declared_by(formula, {} if limits is None else limits))

    @property
    def limits(self) -> dict[str, Limits]:
        """Limits of encoded features, by name, where they are known: declared of numbers, 0 and 1 of indicators."""
        known = [(one.encoded_names, one.limits) for one in self.features if one.limits is not None]
        return dict(chain.from_iterable(zip(*both, strict=True) for both in known))

    @property
    def box(self) -> tuple[FloatArray, FloatArray]:
        """Limits of all encoded features, for `box_x`: lows and highs; ValueError if a number has none."""
        limits = self.limits
        for name in self.feature_names:
            if name not in limits:
                raise ValueError(f"column {name!r} is declared without low and high, which a box needs")
        low, high = (np.array(side) for side in zip(*map(limits.__getitem__, self.feature_names), strict=True))
        return low, high

    @property
    def names(self) -> tuple[str, ...]:
        """The table's columns that are declared."""
        return tuple(column.name for column in self.declared)

    def encode(self, table: Any, progress: Callable[[int], object] | None = None) -> EncodedTable:
        """Return a table of named columns as blocks of numbers, for an estimator's X (with None for Y).

        Parameters
        ----------
        table : table
            A pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a
            Polars LazyFrame, a Dask frame, a path to a ``.parquet`` or ``.csv`` file, a glob or a folder of them, or an
            iterable of these. Only declared columns are read, some rows at a time. A query, of DuckDB or a LazyFrame,
            is executed anew for each pass: it must give the same rows, in any order, and each from one person's
            records alone (no LIMIT, no sampling, no ranks among people).
        progress : callable, optional
            Called with the number of bytes read since it was last called. For the owner of the data: batches have a
            fixed number of rows, so the steps tell how many there are.

        Returns
        -------
        EncodedTable
            An iterable of (X, Y) blocks; nothing is read before it is iterated over.
        """
        return EncodedTable(self, table, progress)

    def transform(self, table: Any) -> DataFrame:
        """Return a table's features, encoded, as rows to predict for, or to fit with outcomes that are given apart.

        Privacy: rows of people are as private after encoding as before; no level or constant is taken from them.

        Parameters
        ----------
        table : table
            As for `encode`. It needs no outcomes.

        Returns
        -------
        pandas.DataFrame
            A row a row and a column a feature, by name: with the index of a frame. Rows of a query come in no fixed
            order.

        Raises
        ------
        TypeError, ValueError
            If the table lacks a declared column, or holds other values there than are declared.
        ImportError
            If pandas is not installed.

        Examples
        --------
        >>> import pandas as pd
        >>> from dpfast.io import Category, Columns
        >>> columns = Columns(["age", Category("site", ("Bern", "Basel"), drop_first=True)])
        >>> columns.transform(pd.DataFrame({"age": [40.0], "site": ["Basel"]}, index=["Ann"]))
              age  site=Basel
        Ann  40.0         1.0
        """
        pandas = optional("pandas", "a frame of rows")
        rows = np.concatenate([kept(features) for features, _ in Columns(self.features).encode(table)])
        index = table.index if is_frame(table) else None
        frame: DataFrame = pandas.DataFrame(rows, index, list(self.feature_names))
        return frame

    def check(self, table: Any) -> None:
        """Refuse a table that lacks a declared column, or holds another kind of values there; no rows are read.

        Not for iterators, which it would use up.
        """
        for part in parts_in_turn(table):
            self.check_part(part)

    def check_part(self, part: Part) -> None:
        """Refuse a part of a table that lacks a declared column, or holds another kind of values there."""
        for column in self.declared:
            check_named_once(column.name, part, self.names)
            if part.families is None:
                _check_readable_as_text(column, part)
                continue
            family = part.families[column.name]
            if family.name not in ("any", "object", "text" if column.holds == "text" else "number"):
                is_date = "date" in family.dtype or "timestamp" in family.dtype
                raise TypeError(
                    f"column {column.name!r} of {part.label} holds {family.dtype}; declared as "
                    f"{type(column).__name__}, it must hold {_HOLDS[column.holds]}{_DAYS * is_date}"
                )

    def __repr__(self) -> str:
        both = (self.outcome_names, self.feature_names) if self.outcomes else (self.feature_names,)
        return f"<Columns {' ~ '.join(', '.join(names[:8]) + ', ...' * (len(names) > 8) for names in both)}>"

    def _encode_batch(self, batch: Entries, checks: bool) -> tuple[Rows, ColumnBlock | None]:
        def encoded(one: Feature) -> list[FloatArray]:
            is_plain = isinstance(one, Number) and one.missing == REFUSE
            return [batch.numbers(one.name)] if is_plain and not checks else one.encode(batch)

        numbers = chain.from_iterable(encoded(one) for one in self.features if not is_coded(one))
        outcomes = chain.from_iterable(map(encoded, self.outcomes))
        codes = [one.places(batch) for one in filter(is_coded, self.features)]
        return _block(list(numbers), codes, self._layout), ColumnBlock(outcomes) if self.outcomes else None


class EncodedTable:
    """The blocks that `Columns.encode` describes; read anew each time it is iterated over."""

    def __init__(self, columns: Columns, table: Any, progress: Callable[[int], object] | None = None) -> None:
        self.columns = columns
        self.source = table
        self._progress = progress

    def __iter__(self) -> Iterator[tuple[FloatArray, FloatArray | None]]:
        """Iterate over (X, Y) blocks; Y is None where no outcomes are declared. The first has no rows."""
        return ((np.asarray(x), None if y is None else np.asarray(y)) for x, y in self.blocks(checks=True))

    def blocks(self, *, checks: bool = False) -> Iterator[tuple[Rows, ColumnBlock | None]]:
        """Iterate over the same blocks, for sums to read in place: columns not moved, categories as codes.

        Sums refuse NaN and infinity in columns of numbers. A pass that `checks` costs as much again as the sums, and
        names the column.
        """
        columns = self.columns
        no_rows = [np.empty(0)]
        y = ColumnBlock(no_rows * len(columns.outcome_names)) if columns.outcomes else None
        layout = columns._layout
        yield _block(no_rows * len(layout.places), no_rows * len(layout.levels), layout), y
        yield from self._read(partial(columns._encode_batch, checks=checks or len(layout.levels) > 0))

    def batches(self) -> Iterator[Batch]:
        """Iterate over the rows as the table has them."""
        return self._read(lambda batch: batch)

    def _read(self, made: Callable[[Batch], _Made]) -> Iterator[_Made]:
        """Yield what is made of each batch, and report the bytes that are read."""
        # Text is always of declared levels.
        wanted = {one.name: "levels" if one.holds == "text" else one.holds for one in self.columns.declared}
        for part in parts_in_turn(self.source):
            self.columns.check_part(part)
            yield from part.read(wanted, made, self._progress)

    def __repr__(self) -> str:
        n_features, n_outcomes = len(self.columns.feature_names), len(self.columns.outcome_names)
        return f"<EncodedTable of {n_features} features, {n_outcomes} outcomes: not private>"


_HOLDS = {"number": "numbers", "boolean": "booleans, or zeros and ones", "text": "text"}
_DAYS = "; make days since a public date of dates"
_MISSING = "column {0!r} has missing entries; declare what stands for them, missing=..."


def _block(numbers: list[FloatArray], codes: list[Any], layout: CodeLayout) -> ColumnBlock | CodedBlock:
    """Leave categories as codes; whether there are any is declared."""
    if not codes:
        return ColumnBlock(numbers)
    return CodedBlock(ColumnBlock(numbers) if numbers else np.empty((len(codes[0]), 0)), codes, layout)


def _layout(columns: Sequence[Feature]) -> CodeLayout:
    firsts = np.cumsum([0, *(len(column.encoded_names) for column in columns)]).tolist()
    spans = [(first, stop, is_coded(one)) for first, stop, one in zip(firsts, firsts[1:], columns, strict=False)]
    return CodeLayout(
        firsts[-1],
        tuple(place for first, stop, of_codes in spans if not of_codes for place in range(first, stop)),
        tuple(first for first, _, of_codes in spans if of_codes),
        tuple(stop - first for first, stop, of_codes in spans if of_codes),
    )


def _filled(name: str, values: FloatArray, missing: float | Literal["refuse"]) -> FloatArray:
    """Return numbers with a constant for missing ones; no copy if none is missing."""
    with np.errstate(invalid="ignore", over="ignore"):
        # A finite sum has finite terms: one pass, in place of a mask for every column.
        if math.isfinite(values.sum()):
            return values
    absent = np.isnan(values)
    if absent.any():
        if missing == REFUSE:
            raise ValueError(_MISSING.format(name))
        values = np.where(absent, missing, values)
    if not np.isfinite(values).all():
        raise ValueError(f"column {name!r} holds infinite numbers")
    return values


def _declared(argument: str, columns: Iterable[str | Feature]) -> tuple[Feature, ...]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"{argument} must be a sequence of columns, got {type(columns).__name__}")
    declared = tuple(Number(column) if isinstance(column, str) else column for column in columns)
    for column in declared:
        if not isinstance(column, Number | Boolean | Category | Derived):
            raise TypeError(
                f"{argument} must hold str, Number, Boolean, Category or transforms, got {type(column).__name__}"
            )
    return declared


def _sources(features: Sequence[Feature], outcomes: Sequence[Feature]) -> tuple[Column, ...]:
    """Return the table's columns that are read, each once."""
    found: list[dict[str, Column]] = []
    for columns in (features, outcomes):
        own = dict[str, Column]()
        for one in chain.from_iterable(map(sources_of, columns)):
            first = own.setdefault(one.name, one)
            if first.holds != one.holds:
                kinds = type(first).__name__, type(one).__name__
                raise ValueError(f"column {one.name!r} is declared as {kinds[0]}, and as {kinds[1]} of other values")
        found.append(own)
    for name in found[0]:
        if name in found[1]:
            raise ValueError(f"column {name!r} is declared as a feature and as an outcome")
    return tuple(chain.from_iterable(own.values() for own in found))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a column must be a non-empty str, got {name!r}")


def _check_unique(what: str, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]!r} is declared twice")


def _checked_levels(name: str, levels: object) -> tuple[Any, ...]:
    if isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
        raise TypeError(f"levels of column {name!r} must be a non-empty sequence, got {levels!r}")
    if not all(type(level) is str for level in levels):
        if not all(type(level) is int for level in levels):
            raise TypeError(f"levels of column {name!r} must be all text or all integers")
        if max(abs(level) for level in levels) >= _EXACT_INTEGERS:
            raise ValueError(f"levels of column {name!r} must be below 2**53, up to which doubles hold integers")
    if len(set(levels)) < len(levels):
        raise ValueError(f"levels of column {name!r} must differ from each other")
    return tuple(levels)


def _check_readable_as_text(column: Column, part: Part) -> None:
    """Refuse levels that a text file writes as it writes a missing cell."""
    for level in column.levels if isinstance(column, Category) else ():
        if level in NULL_WORDS:
            raise ValueError(f"level {level!r} of column {column.name!r} is what {part.label} has for missing cells")


def check_named_once(name: str, part: Part, declared: Sequence[str]) -> None:
    """Refuse a part without exactly one column of a declared name."""
    if part.names.count(name) == 1:
        return
    if name in part.names:
        raise ValueError(f"{part.label} has more than one column {name!r}")
    # A name of the table's may be a person's, as of a file without a line of names: none is quoted.
    if part.families is None and not any(other in part.names for other in declared):
        raise ValueError(
            f"{part.label} has none of the declared columns in its first line, which must name them letter by letter, "
            "with commas between"
        )
    where = " in its first line" if part.families is None else ""
    alike = any(isinstance(one, str) and one.strip().casefold() == name.strip().casefold() for one in part.names)
    letters = ": one there has other capitals or spaces" if alike else ""
    raise ValueError(f"{part.label} has no column {name!r}{where}{letters}")
