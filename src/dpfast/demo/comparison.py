"""Private fits beside the one without privacy, and the table that shows them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.privacy import UtilityWarning

#: Number of fits; a table shows their mean and spread.
REPEATS = 10


class Line(NamedTuple):
    """Results of fits of one estimator to one table."""

    estimator: str
    data: str
    people: int
    #: The estimate.
    quantity: str
    epsilon: float
    delta: float
    #: Mean and standard deviation of the fits.
    estimate: float
    spread: float
    no_privacy: float
    #: Root mean square difference of the fits from the one without privacy.
    error: float
    #: Of a fit, on average.
    seconds: float
    #: What half of the fits or more warn of.
    caution: str


@dataclass(frozen=True)
class Comparison:
    """An estimator, its data, and the number to compare."""

    data: str
    people: int
    quantity: str
    #: Fits, of a budget.
    fit: Callable[[float, float], Any]
    value: Callable[[Any], float]

    def line(self, epsilon: float, delta: float) -> tuple[Line, list[Any]]:
        """Fit with and without privacy; return the private fits too."""
        exact = self.value(self.fit(math.inf, 0.0))
        with warnings.catch_warnings(record=True) as caught:
            # Every fit warns by itself; once is enough here.
            warnings.simplefilter("always", UtilityWarning)
            began = time.perf_counter()
            models = [self.fit(epsilon, delta) for _ in range(REPEATS)]
            seconds = (time.perf_counter() - began) / REPEATS
        found = np.array([self.value(model) for model in models])
        return Line(
            type(models[0]).__name__,
            self.data,
            self.people,
            self.quantity,
            epsilon,
            delta,
            float(np.mean(found)),
            float(np.std(found)),
            exact,
            float(np.sqrt(np.mean((found - exact) ** 2))),
            seconds,
            # What a few fits say of their noise is chance, and untrue of the table.
            str(caught[0].message) if 2 * len(caught) >= REPEATS else "",
        ), models

    def curve(self, epsilons: Sequence[float], delta: float) -> FloatArray:
        """Return the results of private fits, a row a repeat and a column an epsilon."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            return np.array([[self.value(self.fit(one, delta)) for one in epsilons] for _ in range(REPEATS)])


def printed(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a table of text, and below it the warnings of fits."""
    cautions = list(dict.fromkeys(line.caution for line in lines if line.caution))
    rows = [("estimator", "estimate", "people", "eps", "private", "no privacy", "error", "seconds")]
    for line in lines:
        mark = f" [{cautions.index(line.caution) + 1}]" if line.caution else ""
        estimate = f"{_short(line.estimate)} ± {_short(line.spread, 2)}"
        what = f"{line.data}: {line.quantity}"
        numbers = estimate, _short(line.no_privacy), f"{_short(line.error, 2)}{mark}", f"{line.seconds:.3f}"
        rows.append((line.estimator, what, f"{line.people:,}", f"{line.epsilon:g}", *numbers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    for number, caution in enumerate(cautions, start=1):
        yield f"[{number}] {caution}"


def _short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if abs(value) < 10.0**digits else f"{value:,.0f}"
