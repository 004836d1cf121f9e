"""Whose each row of a table is: a column of ids, read on its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import IntArray
from dpfast.io.columns import check_named_once
from dpfast.io.ids import numbered_column
from dpfast.io.parts import Part, table_parts


class RowOwners:
    """The owner of each row, as a number; read when an array is made of it. Not private.

    An id is compared as it stands: as text in a CSV file, where " 7" and "07" are two people, as a number or as text
    where the table has types. It takes an integer of memory for each row, and the distinct ids.

    Parameters
    ----------
    table : table
        As for `Columns.encode`, but for one that can be read once only.
    name : str
        The column of ids.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpfast.io import RowOwners
    >>> np.asarray(RowOwners(pd.DataFrame({"patient": ["b", "a", "b"]}), "patient"))
    array([0, 1, 0])
    """

    def __init__(self, table: Any, name: str) -> None:
        self.source = table
        self._name = check.text("name", name)

    def check(self) -> None:
        """Refuse a table whose parts lack the column, or hold ids of different kinds; no rows are read."""
        kinds = {kind for part in table_parts(self.source) if (kind := self._kind(part)) != "any"}
        if len(kinds) > 1:
            raise TypeError(f"column {self._name!r} holds text in some parts of the table and numbers in others")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read the column; ValueError if an id is missing, TypeError if one is not to be compared."""
        return self._read()[0].astype(dtype or np.int64, copy=False)

    def distinct(self) -> Iterable[Hashable]:
        """Return the ids that there are, each once, in the order of their first rows. Internal."""
        return self._read()[1]

    def _read(self) -> tuple[IntArray, dict[Hashable, int]]:
        self.check()
        numbers: dict[Hashable, int] = {}
        found = [np.empty(0, np.int64)]
        for part in table_parts(self.source):
            for batch, _ in part.read({self._name: "text"}):
                found.append(numbered_column(batch, self._name, numbers))
        return np.concatenate(found), numbers

    def _kind(self, part: Part) -> str:
        check_named_once(self._name, part, [self._name])
        if part.families is None:
            return "text"
        family = part.families[self._name]
        if family.name == "other":
            raise TypeError(f"column {self._name!r} of {part.label} holds {family.dtype}; ids are numbers or text")
        return "text" if family.name == "object" else family.name

    def __repr__(self) -> str:
        return f"<RowOwners by {self._name!r}: not private>"
