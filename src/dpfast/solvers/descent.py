"""Noisy gradient descent on classification losses: steps, sizes and clips from public numbers; pure functions.

A row has the margins z = theta'x and the slope r, minus the loss's derivative in z. The norm of x r' is clipped to half
of its value for the longest row at theta = 0. Noise is proportional to that clip. Beyond it a loss is nearly linear:
rows on the wrong side have no larger gradients than uncertain rows.

Steps go on until their accumulated noise, undamped, would reach a fixed norm in the difference of two classes'
coefficients, in units of the inverse of the longest row. That is the norm of coefficients able to separate classes.
While slopes hardly change, n equal steps have the same effect as one step of their sum, noise included. So only the sum
of sizes matters, and it depends on the noise alone, not on the number of people. More steps follow the slopes as they
change. Losses here have second derivatives of at most h, so a step of n h B^2/2 times less than 1 never overshoots, for
any rows of length B; larger ones take the least momentum with which descent is stable (the heavy ball's bound). With
few people there are few steps. With many there are as many as needed, up to a limit reached only with many people.

Late iterates are averaged, to reduce the noise of the last steps (Polyak and Juditsky 1992). These rules have the same
constants for all tables, sizes and budgets. They were within 1% of the best of 200 settings on digits, two to ten of
them, cancer, wine, pictures and simulated rows, n = 100 to 70,000, epsilon = 0.5 to 4.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from dpfast._arrays import FloatArray

Link = Literal["logistic", "softmax"]

#: Length of the noise gathered in the difference of two classes' coefficients, over the inverse of the longest row.
_GATHERED = 15.0
#: Slopes are clipped to this share of their value at coefficients of 0.
_CLIPPED = 0.5
#: The clip of a person with several rows grows as this power of the most rows of one.
_SEVERAL = 0.5
#: Fewest and most steps.
_FEW, _MANY = 30, 80
#: Size of a step times the largest curvature that rows can have: what more steps are taken for, and most.
_STIFF, _STIFFEST = 20.0, 50.0
#: Share of the steps whose results are averaged.
_AVERAGED = 0.5


class Descent(NamedTuple):
    """A schedule of steps."""

    n_steps: int
    #: Factor of a step for sums of slopes times rows.
    size: float
    momentum: float

    @property
    def first_averaged(self) -> int:
        """How many steps are taken before iterates are averaged."""
        return int(self.n_steps * (1.0 - _AVERAGED))


class Position(NamedTuple):
    """Where descent is, how fast it goes, and the sum of late iterates."""

    theta: FloatArray
    velocity: FloatArray
    late: FloatArray

    @classmethod
    def start(cls, shape: tuple[int, int]) -> Position:
        """Return the position before the first step."""
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))


def first_slope(link: Link, n_outcomes: int) -> float:
    """Return the length of a row's slope where coefficients are 0."""
    return 0.5 if link == "logistic" else math.sqrt(1.0 - 1.0 / n_outcomes)


def clip(link: Link, n_outcomes: int, row_bound: float, max_rows: int = 1) -> float:
    """Return the norm to clip a person's rows times slopes to, for rows of norm at most `row_bound`."""
    stretch: float = float(max_rows) ** _SEVERAL
    return _CLIPPED * first_slope(link, n_outcomes) * row_bound * stretch


def schedule(link: Link, shape: tuple[int, int], row_bound: float, people: float, deviation: float) -> Descent:
    """Choose steps for about this many people.

    `deviation` is that of the noise in an entry of one sum, clipped to `clip` and released with the whole budget.
    """
    features, outcomes = shape
    # Of two outcomes' coefficients; a logistic loss has their difference.
    length = _GATHERED * (1.0 if link == "logistic" else first_slope(link, outcomes))
    total = length / (row_bound * deviation * math.sqrt(features))
    curvature = _curvature(link) * row_bound**2 * max(people, 1.0)
    n_steps = int(min(max(total * curvature / _STIFF, _FEW), _MANY))
    size = min(total / n_steps, _STIFFEST / curvature)
    stiffness = max(0.5 * size * curvature, 1.0)
    return Descent(n_steps, size, (stiffness - 1.0) / (stiffness + 1.0))


def stepped(position: Position, descent: Descent, number: int, slopes: FloatArray) -> Position:
    """Take a step, the `number`-th from 0, along a noisy sum of slopes times rows."""
    velocity = descent.momentum * position.velocity + slopes
    theta = position.theta + descent.size * (1.0 - descent.momentum) * velocity
    late = position.late + theta if number >= descent.first_averaged else position.late
    return Position(theta, velocity, late)


def averaged(position: Position, descent: Descent) -> FloatArray:
    """Return the mean of late iterates, once all steps are taken."""
    return position.late / (descent.n_steps - descent.first_averaged)


def agreement(link: Link, shape: tuple[int, int], row_bound: float, people: float, deviation: float) -> float:
    """Return the correlation to expect of margins with those sought, of classes that these tell apart, and only just.

    Rows are even over directions: the mean slope times row is the clip's share ``sqrt(2/(pi D))`` long, and noise of
    that `deviation` in each of D entries.
    """
    features, outcomes = shape
    # Two of several classes are separated by their people alone.
    of_two = people if link == "logistic" else 2.0 * people / outcomes
    signal = clip(link, outcomes, row_bound) * math.sqrt(2.0 / (math.pi * features)) * max(of_two, 1.0)
    return 1.0 / math.hypot(1.0, deviation * math.sqrt(features) / signal)


def _curvature(link: Link) -> float:
    """Return the largest eigenvalue of a loss's second derivative in the margins."""
    return 0.25 if link == "logistic" else 0.5
