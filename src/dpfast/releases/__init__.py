"""From sums of people's records to releases: the noise of each release, and its record.

Here is the only access to `dpfast.papers`: printed calibrations are found on request, and nothing else needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def printed(paper: str, name: str) -> Callable[..., Any]:
    """Return a printed calibration, by its name in the module of its paper; ImportError if that is left out."""
    try:
        module = import_module(f"dpfast.papers.{paper}")
    except ModuleNotFoundError as missing:
        if missing.name not in ("dpfast.papers", f"dpfast.papers.{paper}"):
            raise
        raise ImportError(
            "calibration must be 'sound' here: printed calibrations are in dpfast.papers, which is not installed"
        ) from None
    calibration: Callable[..., Any] = getattr(module, name)
    return calibration
