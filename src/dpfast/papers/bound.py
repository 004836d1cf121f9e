"""A bound of this package: two numbers."""

from typing import NamedTuple


class Bound(NamedTuple):
    """An upper bound in two versions: as the paper has it, where it may be too low, and as it is proved here."""

    printed: float
    corrected: float
