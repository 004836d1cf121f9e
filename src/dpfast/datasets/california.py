"""California's Proposition 99: the panel that synthetic control is known by. The origin is stated beside the file."""

from __future__ import annotations

import csv
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpfast._optional import optional

if TYPE_CHECKING:
    from pandas import DataFrame


class Panel(NamedTuple):
    """A panel as arrays: a row a unit, their names, and the periods' labels in order."""

    values: NDArray[np.float64]
    units: tuple[str, ...]
    periods: NDArray[np.int64]


def california_prop99() -> DataFrame | Panel:
    """Per-capita cigarette sales of 39 states of the USA, 1970 to 2000, in packs a year.

    California raised its tax in January 1989 (Proposition 99), so that 19 years come before the intervention. The
    other 38 states had no large tobacco program of their own.

    Returns
    -------
    pandas.DataFrame of shape (39, 31), or Panel
        States by years, sorted by name; arrays where pandas is not installed.

    References
    ----------
    Abadie, A., Diamond, A., Hainmueller, J. (2010). Synthetic control methods for comparative case studies. Journal of
    the American Statistical Association 105(490), 493-505. Data: Orzechowski, W., Walker, R. C., The Tax Burden on
    Tobacco.

    Examples
    --------
    >>> from dpfast.datasets import california_prop99
    >>> panel = california_prop99()
    >>> panel.shape
    (39, 31)
    >>> float(panel.loc["California", 1988])
    90.09999847
    """
    text = files("dpfast.datasets").joinpath("california_prop99.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    table = np.array(rows, np.float64)
    panel = Panel(np.ascontiguousarray(table[:, 1:].T), tuple(header[1:]), table[:, 0].astype(np.int64))
    if find_spec("pandas") is None:
        return panel
    pd = optional("pandas", "a labelled panel")
    states, years = pd.Index(panel.units, name="state"), pd.Index(panel.periods, name="year")
    return pd.DataFrame(panel.values, index=states, columns=years)
