"""The printed algorithms and error bounds of the papers, as they are printed and corrected; one module a paper.

Only `dpfast.releases.printed` imports this package, for ``calibration="paper"``.
"""

from typing import NamedTuple

from dpfast.registry import lazy

_MODULES = ("convex_erm", "policy_evaluation", "primo", "sparse_regression", "synthetic_control")

__all__ = ["Bound", "convex_erm", "policy_evaluation", "primo", "sparse_regression", "synthetic_control"]

__getattr__, __dir__ = lazy(__name__, dict.fromkeys(_MODULES, __name__))


class Bound(NamedTuple):
    """An upper bound in two versions: as the paper has it, where it may be too low, and as it is proved here."""

    printed: float
    corrected: float
