"""Convex penalties that are added to a loss: L1, squared L2, both, or any with a proximal map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast.solvers.constraints import LARGEST


@runtime_checkable
class Proximable(Protocol):
    """A closed convex function with a proximal map; may be infinite outside a convex set."""

    def value(self, x: FloatArray) -> float:
        """Value at x."""

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Minimiser of ||x - v||^2/2 + step value(x)."""

    def prox_error(self, norm: float, step: float) -> float:
        """Upper bound on the L2 distance of the result of `prox` from the exact minimiser, where ||v|| <= norm."""


@dataclass(frozen=True)
class ElasticNet:
    """The penalty l1 ||x||_1 + l2 ||x||_2^2 / 2.

    Parameters
    ----------
    l1, l2 : float
        At least 0, at most 2**200.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.solvers import ElasticNet
    >>> ElasticNet(1.0, 1.0).prox(np.array([3.0, -0.5]), 1.0)
    array([ 1., -0.])
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        for name in ("l1", "l2"):
            object.__setattr__(self, name, penalty_weight(name, getattr(self, name)))

    def value(self, x: FloatArray) -> float:
        """Value at x."""
        return float(self.l1 * np.abs(x).sum() + 0.5 * self.l2 * (x @ x))

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Minimiser of ||x - v||^2/2 + step value(x): soft-thresholding, then scaling."""
        return np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0) / (1.0 + step * self.l2)

    def prox_error(self, norm: float, step: float) -> float:
        """Upper bound on the L2 distance of the result of `prox` from the exact minimiser, where ||v|| <= norm.

        Entries that are not zero exceed step l1, so rounding it counts no more than rounding v.
        """
        return 2.0**-50 * norm


class Lasso(ElasticNet):
    """The penalty weight ||x||_1, weight at least 0, at most 2**200."""

    def __init__(self, weight: float) -> None:
        super().__init__(penalty_weight("weight", weight), 0.0)

    @property
    def weight(self) -> float:
        """Factor of the norm."""
        return self.l1

    def __repr__(self) -> str:
        return f"Lasso(weight={self.l1!r})"


class Ridge(ElasticNet):
    """The penalty weight ||x||_2^2 / 2, weight at least 0, at most 2**200."""

    def __init__(self, weight: float) -> None:
        super().__init__(0.0, penalty_weight("weight", weight))

    @property
    def weight(self) -> float:
        """Factor of half the squared norm."""
        return self.l2

    def __repr__(self) -> str:
        return f"Ridge(weight={self.l2!r})"


def penalty_weight(name: str, value: object) -> float:
    """Return a float from 0 to 2**200."""
    number = check.nonnegative(name, value)
    if number > LARGEST:
        raise ValueError(f"{name} must be at most 2**200, got {number!r}")
    return number
