"""What a bound of this package is, two numbers, and what all of them are checked by."""

from __future__ import annotations

from typing import NamedTuple

from dpfast import _arguments as check


class Bound(NamedTuple):
    """An upper bound in two versions: as the paper has it, where it may be too low, and as it is proved here."""

    printed: float
    corrected: float


def probability(name: str, value: object) -> float:
    """Return a number in (0, 1)."""
    number = check.real(name, value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} must lie in (0, 1), got {number!r}")
    return number
