"""What a bound of this package is: two numbers."""

from typing import NamedTuple


class Bound(NamedTuple):
    """An upper bound in two versions.

    Parameters
    ----------
    printed : float
        As the paper has it; it may be too low.
    corrected : float
        Proved here.
    """

    printed: float
    corrected: float
