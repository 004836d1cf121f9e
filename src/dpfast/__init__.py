"""Differentially private estimators with exact sums, exact noise and proved calibration.

Public names are imported when they are first used, so that importing dpfast loads nothing else. They are listed in
``__init__.pyi``, for readers, type checkers and Python alike.
"""

from dpfast import _moved
from dpfast._lazy import lazy
from dpfast.registry import HOMES

__version__ = "0.1.0"

__all__ = sorted(HOMES)

_FOLDERS = ("audit", "datasets", "io", "ledger", "noise", "papers", "privacy", "releases", "solvers", "statistics")

_moved.install()
__getattr__, __dir__ = lazy(__name__, HOMES | {name: f"dpfast.{name}" for name in _FOLDERS} | _moved.TOP)
