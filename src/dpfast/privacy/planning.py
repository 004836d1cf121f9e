"""What an estimate will cost, said before any data is touched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Expected error of a private fit, from public sizes and bounds alone.

    Parameters
    ----------
    n : int
        Number of people.
    expected_error : float
        Root mean squared error of the predictions that privacy adds, as a fraction of `relative_to`; 1 means that
        the answer would be nothing but noise.
    target : float
        The error that `needed_n` is for.
    needed_n : int or None
        Smallest number of people for which the expected error is at most `target`; None if no number is enough.
    scales : mapping of str to float
        Noise scale of every released block.
    relative_to : str, default "the outcomes' bound"
        What the errors are fractions of; that is the declared bound on an outcome row.
    """

    n: int
    expected_error: float
    target: float
    needed_n: int | None
    scales: Mapping[str, float]
    relative_to: str = "the outcomes' bound"

    @classmethod
    def from_error(cls, n: int, error: float, target: float, scales: Mapping[str, float]) -> Plan:
        """Plan for an error that falls as 1/n, as that of noise on sums does."""
        return cls(n, min(error, 1.0), target, max(1, math.ceil(n * error / target)), scales)

    def __str__(self) -> str:
        error = f"with {self.n:,} people privacy adds an error of {self.expected_error:.2g} of {self.relative_to}; "
        if self.needed_n is None:
            return f"{error}no number of people is enough for {self.target:.2g}"
        return f"{error}{self.needed_n:,} people are needed for {self.target:.2g}"
