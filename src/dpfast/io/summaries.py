"""Tables of estimates: one form for all objects with a `summary`, as pandas' frame and as columns of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfast import _arguments as check
from dpfast.io.writing import Columns, tabulated

if TYPE_CHECKING:
    from pandas import DataFrame


def normal_reach(level: float) -> float:
    """Return how many standard deviations normal limits of a level are from their middle."""
    from scipy.special import ndtri

    return float(ndtri((1.0 + check.share("level", level)) / 2.0))


@dataclass(frozen=True)
class Estimates:
    """Columns of estimates by the names of their items, and the header above them."""

    #: Levels of the index, and columns, by name; of equal length.
    index: Columns
    columns: Columns
    #: What readers must know of all rows: the frame's ``attrs``.
    header: Mapping[str, Any] = field(default_factory=dict)

    def frame(self) -> DataFrame:
        """Return them as a frame that prints its header and every column."""
        plain = tabulated(self.index, self.columns)
        # Once pandas is known to be there.
        from dpfast.io.summary_frame import SummaryFrame

        table = SummaryFrame(plain)
        table.attrs.update({name: one for name, one in self.header.items() if one is not None})
        return table

    def written(self) -> dict[str, Any]:
        """Return them as files have them: index first, and None where nothing is known."""
        return {name: list(labels) for name, labels in self.index.items()} | {
            name: [_known(one) for one in np.asarray(column).tolist()] for name, column in self.columns.items()
        }


def header_lines(attrs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a header, each with its label first."""
    if "estimator" in attrs:
        yield "estimator", str(attrs["estimator"])
    if "n" in attrs:
        yield "n", f"{attrs['n']:,} {attrs.get('unit', 'people')}"
    if "guarantee" in attrs:
        yield "guarantee", str(attrs["guarantee"])
    if "level" in attrs:
        yield "limits", f"{100.0 * attrs['level']:g}%" + (f", target: {attrs['target']}" if "target" in attrs else "")
    if "r_squared" in attrs:
        told = attrs["r_squared"]
        each = [f"{one:.3f}" if len(told) == 1 else f"{name} {one:.3f}" for name, one in told.items()]
        yield "R-squared", ", ".join(each)
    if "note" in attrs:
        yield "note", str(attrs["note"])


def _known(entry: Any) -> Any:
    return None if isinstance(entry, float) and entry != entry else entry
