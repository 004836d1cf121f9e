"""The guarantee, (epsilon, delta) under one notion of neighbouring tables: in plain words, and as laws of noise.

The words are for readers who do not know epsilon. The laws are used by several mechanisms; their moments follow from
public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpfast import _arguments as check
from dpfast._html import card, facts

Adjacency = Literal["replace_one", "add_remove"]

Calibration = Literal["sound", "paper"]

#: Whose data a guarantee is for: a row of the fitted table, or all rows of one person in it.
Unit = Literal["row", "person"]


class UnsoundCalibrationWarning(UserWarning):
    """A requested printed algorithm misses the guarantee printed with it."""


class UtilityWarning(UserWarning):
    """Public sizes alone show that the answer will be mostly noise."""


class LargeDeltaWarning(UserWarning):
    """The public number of people shows that delta permits to publish somebody's record as it is."""


class ReleasedUtilityWarning(UtilityWarning):
    """The releases show that the answer will be mostly noise: computed from them alone, it reveals nothing else."""


#: Relative slack: a ledger's sums may be this much above its budget, and calibrations aim as much below their target.
SLACK = 2.0**-40


@dataclass(frozen=True)
class Privacy:
    """An (epsilon, delta) differential-privacy guarantee under one notion of neighbouring tables.

    Parameters
    ----------
    epsilon : float
        Bound on the log likelihood ratio; positive, ``inf`` for no privacy at all.
    delta : float, default 0.0
        Probability mass to which the bound need not apply, in [0, 1); 0 is pure differential privacy.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Which tables are neighbours: one record replaced (the number of records is public), or one record more or
        less (the number of records is private).

    Raises
    ------
    TypeError
        If epsilon or delta is not a real number.
    ValueError
        If epsilon is not positive, delta is outside [0, 1) or the adjacency is unknown.

    Examples
    --------
    >>> from dpfast import Privacy
    >>> Privacy(1.0, 1e-6)
    Privacy(epsilon=1.0, delta=1e-06, adjacency='replace_one')
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = "replace_one"

    def __post_init__(self) -> None:
        epsilon = check.positive_or_inf("epsilon", self.epsilon)
        delta = check.real("delta", self.delta)
        if not 0.0 <= delta < 1.0:
            raise ValueError(f"delta must be in [0, 1), got {delta!r}")
        check.choice("adjacency", self.adjacency, check.ADJACENCIES)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def target(self) -> tuple[float, float]:
        """Epsilon and delta to calibrate for: below the guarantee by the slack of a ledger's sums."""
        return self.epsilon * (1.0 - SLACK), self.delta * (1.0 - SLACK)

    @property
    def finite_target(self) -> tuple[float, float]:
        """The same; refuses a guarantee with infinite epsilon, which needs no noise."""
        if math.isinf(self.epsilon):
            raise ValueError("epsilon must be finite: without noise there is nothing to calibrate")
        return self.target

    @classmethod
    def of_sum(cls, epsilon: float, delta: float, adjacency: Adjacency) -> Privacy:
        """Return a sum of guarantees; unlike a single one it may be zero."""
        privacy = object.__new__(cls)
        for name, value in (("epsilon", epsilon), ("delta", delta), ("adjacency", adjacency)):
            object.__setattr__(privacy, name, value)
        return privacy

    def _repr_html_(self) -> str:
        said = {
            "epsilon": f"{self.epsilon:.6g}",
            "delta": f"{self.delta:.6g}",
            "neighbours": NEIGHBOURS[self.adjacency],
        }
        return card("Privacy", facts([*said.items(), ("meaning", plain_words(self))]))

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.6g}, delta {self.delta:.6g}, {self.adjacency.replace('_', '-')}"


#: Independent normal coordinates, or one vector whose length is Gamma distributed and whose direction is uniform.
Law = Literal["Gaussian", "L2-Laplace"]


def law_for(privacy: Privacy) -> Law:
    """Return the law to use for a guarantee: the pure one if delta is 0."""
    return "Gaussian" if privacy.delta > 0.0 else "L2-Laplace"


def coordinate_deviation(law: Law, scale: float, dim: int) -> float:
    """Return the standard deviation of one of `dim` coordinates."""
    return scale if law == "Gaussian" else scale * math.sqrt(dim + 1.0)


def expected_length(law: Law, scale: float, dim: int) -> float:
    """Bound the expected length of noise of `dim` coordinates; that of L2-Laplace noise is this."""
    return scale * (math.sqrt(dim) if law == "Gaussian" else dim)


NEIGHBOURS = {
    "replace_one": "one person's record is replaced by any other; the number of people is public",
    "add_remove": "one person's record comes or goes; the number of people is private",
}
_SUBJECTS = {
    "replace_one": "what a person's record says",
    "add_remove": "whether a person's record is in the table, and what it says,",
}
UNITS = {
    "row": "a row of the table that was fitted (in a panel a donor, among trajectories a trajectory)",
    "person": "a person, with all of their rows",
}


def plain_words(cost: Privacy) -> str:
    """Return a guarantee, or a sum of guarantees, as a sentence."""
    if math.isinf(cost.epsilon):
        return "no privacy protection: the results are exact"
    if cost.epsilon == cost.delta == 0.0:
        return "nothing has been released"
    # Rounded up: a promise must not sound better than it is.
    excess = math.expm1(cost.epsilon) if cost.epsilon < 700.0 else math.inf
    factor = f"e^{cost.epsilon:.6g}" if excess > 1e6 else f"{1.0 + _up_to_digits(excess, 3):.10g}"
    sentence = f"{_SUBJECTS[cost.adjacency]} changes the odds of any conclusion by a factor of at most {factor}"
    return sentence if cost.delta == 0.0 else f"{sentence}, except with probability about {cost.delta:.2g}"


def _up_to_digits(value: float, digits: int) -> float:
    """Round a number that is not negative up to some significant digits."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / unit) * unit
