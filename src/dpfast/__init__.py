"""Differentially private estimators with exact sums, exact noise and proved calibration.

Public names are imported when they are first used, so that importing dpfast loads nothing else. They are listed in
``__init__.pyi``, for readers, type checkers and Python alike.
"""

from dpfast.registry import HOMES, lazy

__all__ = sorted(HOMES)

_FOLDERS = ("audit", "datasets", "io", "ledger", "noise", "papers", "privacy", "releases", "solvers", "statistics")

# The version is in pyproject.toml alone.
_HOMES = HOMES | dict.fromkeys(_FOLDERS, "dpfast") | {"__version__": "dpfast._version"}

__getattr__, __dir__ = lazy(__name__, _HOMES)
