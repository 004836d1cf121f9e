"""Expected error of an estimate, before any data is touched."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from dpfast._documents import Fact, card, facts
from dpfast._optional import optional
from dpfast.io.summaries import printed_whole

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Plan:
    """Expected error of a private fit, from public sizes and bounds alone.

    Parameters
    ----------
    n : int
        Number of people.
    expected_error : float
        Root mean squared error that privacy adds to the predictions, as a fraction of `relative_to`; 1 means an answer
        of nothing but noise.
    target : float
        The error that `needed_n` is for.
    needed_n : int or None
        Smallest number of people for which the expected error is at most `target`; None if no number is enough.
    scales : mapping of str to float
        Noise scale of every released block.
    relative_to : str, default "the outcomes' bound"
        The unit of the errors: the declared bound on an outcome row.
    notes : mapping of str to float
        Cost and benefit of the chosen options, in words; empty if there is nothing to compare.
    score : float, optional
        Assumed score without privacy: R^2, or the accuracy of classes.
    expected_score : float, optional
        The score to expect with privacy if that is so; a negative R^2 is worse than predicting the mean.
    """

    n: int
    expected_error: float
    target: float
    needed_n: int | None
    scales: Mapping[str, float]
    relative_to: str = "the outcomes' bound"
    notes: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    expected_score: float | None = None

    @classmethod
    def of_sums(
        cls, n: int, target: float, scales: Mapping[str, float], max_rows: int | None, relative_to: str
    ) -> Self:
        """Plan means of rows of n people, each with `max_rows`, whose sums have noise of these scales."""
        noise_of_row = scales["sum"] / (max_rows or 1)
        needed = max(1, math.ceil(noise_of_row / target))
        return cls(n, min(noise_of_row / n, 1.0), target, needed, scales, relative_to)

    def summary(self) -> DataFrame:
        """Tabulate the plan in one row, so that ``pandas.concat`` of several compares them.

        Returns
        -------
        pandas.DataFrame
            Columns ``n``, ``expected_error``, ``target``, ``needed_n`` (missing if no number is enough),
            ``relative_to``, and ``score`` and ``expected_score``, missing where none was assumed.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        names = ("n", "expected_error", "target", "needed_n", "relative_to", "score", "expected_score")
        pandas = optional("pandas", "summary")
        row = printed_whole(pandas.DataFrame({name: [getattr(self, name)] for name in names}))
        return row.astype({"needed_n": "Int64", "score": "float64", "expected_score": "float64"})

    def _repr_html_(self) -> str:
        enough = "no number is enough" if self.needed_n is None else f"{self.needed_n:,}"
        scores = None if self.expected_score is None else f"{self.expected_score:.2g}, {self.score:.2g} without privacy"
        said: list[Fact] = [
            ("people", f"{self.n:,}"),
            ("error that privacy adds", f"{self.expected_error:.2g} of {self.relative_to}"),
            (f"people needed for {self.target:.2g}", enough),
            ("score", scores),
            *((name, f"{value:.2g}") for name, value in self.notes.items()),
            ("noise scales", ", ".join(f"{name} {scale:.4g}" for name, scale in self.scales.items()) or None),
        ]
        return card("Plan", facts(said))

    def __str__(self) -> str:
        line = f"with {self.n:,} people privacy adds an error of {self.expected_error:.2g} of {self.relative_to}"
        if self.needed_n == self.n:
            line = f"{self.n:,} people are needed for an added error of {self.expected_error:.2g} of {self.relative_to}"
        elif self.needed_n is None:
            line += f"; no number of people is enough for {self.target:.2g}"
        else:
            line += f"; {self.needed_n:,} people are needed for {self.target:.2g}"
        if self.expected_score is not None:
            line += f"; a score of {self.score:.2g} without privacy becomes {self.expected_score:.2g}"
        return "\n".join([line, *(f"  {name}: {value:.2g}" for name, value in self.notes.items())])


def least(enough: Callable[[int], bool], most: int = 1 << 50) -> int | None:
    """Return the least number of people that is enough, by doubling and bisection; None if it is above `most`.

    A ValueError, of too few people for the algorithm, counts as not enough.
    """

    def tried(people: int) -> bool:
        try:
            return enough(people)
        except ValueError:
            return False

    high = 1
    while not tried(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    return bisect_left(range(high), True, high // 2 + 1, key=tried)
