"""Tables whose columns have names, as batches of rows: what is common to pandas, Arrow, Parquet and CSV."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import FloatArray

Codes = NDArray[np.int64]

# Places of entries that are in no list of levels.
UNDECLARED, MISSING = -1, -2


@dataclass(frozen=True)
class Family:
    """What a column holds, as its type says; "any" where nothing is in it, "object" where each entry has its own."""

    name: Literal["number", "text", "object", "any", "other"]
    dtype: str


class Batch(Protocol):
    """Some rows of named columns."""

    def __len__(self) -> int: ...

    def numbers(self, name: str) -> FloatArray:
        """Return a column of numbers or booleans; missing entries are NaN."""

    def codes(self, name: str, levels: Sequence[str]) -> Codes:
        """Return a column of text as places in `levels`, or `MISSING` or `UNDECLARED`."""

    def distinct(self, name: str) -> tuple[Codes, list[Hashable]]:
        """Return a column as places in a list of its values, in which few come twice; missing ones are `MISSING`."""

    def series(self, name: str, rows: NDArray[np.bool_]) -> Any:
        """Return some entries of a column as a pandas Series."""


def check_numeric(table: str, columns: Iterable[tuple[object, object, bool]]) -> None:
    """Refuse a table with columns, of a name and a type, that are not of numbers."""
    # A Series comes without its name.
    refused = [f"{name} ({kind})".lstrip() for name, kind, is_number in columns if not is_number]
    if refused:
        raise TypeError(
            f"{table} has columns that are not numbers: {', '.join(refused[:5])}; "
            "leave them out, make days of dates, or declare categories by dpfast.io.Columns"
        )
