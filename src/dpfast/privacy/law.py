"""The laws of noise that several mechanisms use, and what public numbers say of them."""

from __future__ import annotations

import math
from typing import Literal

from dpfast.privacy.guarantee import Privacy

#: Independent normal coordinates, or one vector whose length is Gamma distributed and whose direction is uniform.
Law = Literal["Gaussian", "L2-Laplace"]


def law_for(privacy: Privacy) -> Law:
    """Return the law that gives a guarantee: the pure one where delta is 0."""
    return "Gaussian" if privacy.delta > 0.0 else "L2-Laplace"


def coordinate_deviation(law: Law, scale: float, dim: int) -> float:
    """Return the standard deviation of one of `dim` coordinates."""
    return scale if law == "Gaussian" else scale * math.sqrt(dim + 1.0)


def expected_length(law: Law, scale: float, dim: int) -> float:
    """Bound the expected length of noise of `dim` coordinates; that of L2-Laplace noise is this."""
    return scale * (math.sqrt(dim) if law == "Gaussian" else dim)
