"""Small tables: a real panel, and made-up ones.

California's Proposition 99 is the panel that synthetic control is known by; its origin is stated beside the file. The
paper on private synthetic control draws panels, and regressions on few features are drawn likewise.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
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


SLOPE_MEAN, SLOPE_REACH = 4.0, 1.0
NOISE_VARIANCE, NOISE_REACH = 0.1, 1.0


class SyntheticPanel(NamedTuple):
    """Donors, a row each, a target, and the target without its noise, to compare a prediction with."""

    donors: FloatArray
    target: FloatArray
    signal: FloatArray


def synthetic_control_panel(
    n: int, n_pre: int, n_post: int = 3, *, seed: int | np.random.Generator | None = None
) -> SyntheticPanel:
    """Draw a panel of linear trends with random slopes, without any effect of the intervention.

    Unit i has the signal ``slope_i * t`` at t = 1, ..., T; slopes are Gaussian with mean 4 and variance 1, truncated to
    [3, 5]. Outcomes add independent Gaussian noise of variance 0.1 truncated to [-1, 1] (mean and variance are those
    before truncation). All is divided by ``5 T + 1``, which no outcome can exceed: a public number.

    Parameters
    ----------
    n : int
        Number of donors.
    n_pre, n_post : int
        Periods before and after the intervention; the paper always takes 3 after it.
    seed : int, numpy.random.Generator or None
        Of the data; None for another panel each time.

    Returns
    -------
    SyntheticPanel
        Donors, target and signal, all in [-1, 1].

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    Rho, S., Cummings, R., Misra, V. (2023). Differentially Private Synthetic Control. AISTATS. Appendix A.1.

    Examples
    --------
    >>> from dpfast.datasets import synthetic_control_panel
    >>> donors, target, signal = synthetic_control_panel(100, 10, seed=0)
    >>> donors.shape, target.shape, signal.shape
    ((100, 13), (13,), (13,))
    """
    n = check.positive_integer("n", n)
    n_periods = check.positive_integer("n_pre", n_pre) + check.positive_integer("n_post", n_post)
    rng = generator(seed)
    slopes = SLOPE_MEAN + truncated_gaussian(rng, n + 1, 1.0, SLOPE_REACH)
    signals = np.outer(slopes, np.arange(1, n_periods + 1))
    outcomes = signals + truncated_gaussian(rng, signals.shape, NOISE_VARIANCE, NOISE_REACH)
    most = (SLOPE_MEAN + SLOPE_REACH) * n_periods + NOISE_REACH
    return SyntheticPanel(outcomes[1:] / most, outcomes[0] / most, signals[0] / most)


def generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    """Return the generator that is given, or the one of a seed."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(check.optional(partial(check.integer_of_at_least, least=0), "seed", seed))


def sparse_regression_rows(n: int, n_features: int, coefficients: Mapping[int, float]) -> tuple[FloatArray, FloatArray]:
    """Draw rows evenly from [-1, 1], always the same, and outcomes of few of their features with Gaussian noise."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1.0, 1.0, (n, n_features))
    return rows, rows[:, list(coefficients)] @ list(coefficients.values()) + 0.2 * rng.normal(size=n)


def truncated_gaussian(
    rng: np.random.Generator, shape: int | tuple[int, ...], variance: float, reach: float
) -> FloatArray:
    """Draw from N(0, variance) given that it lies in [-reach, reach], by inverting its distribution function."""
    deviation = np.sqrt(variance)
    low, high = ndtr([-reach / deviation, reach / deviation])
    return np.asarray(np.clip(deviation * ndtri(rng.uniform(low, high, shape)), -reach, reach))
