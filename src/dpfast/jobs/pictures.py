"""Pictures of a job's results as PNG and SVG: drawn without pyplot, under settings of their own.

Names of features are drawn as they are: a dollar sign in one begins no formula, which may be none. Files say nothing of
when they were made, and the same results give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from dpfast._optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def drawn(figures: Callable[[], Mapping[str, Axes]], formats: Iterable[str]) -> dict[str, dict[str, bytes]]:
    """Return the bytes of every figure in every format."""
    style = optional("matplotlib.style", "a picture")
    settings = {"text.parse_math": False, "text.usetex": False, "svg.hashsalt": "dpfast", "font.family": "DejaVu Sans"}
    with style.context(["default", settings]), warnings.catch_warnings():
        # Such as of a letter that no font has: nobody can do anything about it once the release is paid for.
        warnings.simplefilter("ignore")
        return {name: {one: _saved(axes, one) for one in formats} for name, axes in figures().items()}


def _saved(axes: Axes, file_format: str) -> bytes:
    sink = io.BytesIO()
    axes.figure.canvas.figure.savefig(sink, format=file_format, dpi=150, metadata=_METADATA[file_format])
    # XML has no place for control characters, which names may hold.
    return sink.getvalue() if file_format == "png" else _CONTROLS.sub(b"", sink.getvalue())
