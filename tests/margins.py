"""Draws that are decided exactly, each of them: what double arithmetic says of them must be the same."""

import math
from contextlib import contextmanager

import pytest

from dpfast.noise import discrete, samplers


@contextmanager
def decided_exactly():
    """Leave no draw to doubles: of a margin as wide as a cell, or as a decision."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samplers, "ROUNDING", 1.0)
        patch.setattr(discrete, "_ACCEPTANCE_ERROR", 1.0)
        patch.setattr(discrete, "_MARGIN", math.inf)
        yield
