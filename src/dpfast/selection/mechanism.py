"""Selection of one of several released models by its cost on held-out people, by the exponential mechanism.

The cost of a classifier on a held-out person is 1 for an error and 0 otherwise. The cost of a regressor is the squared
error as a share of the squared bound on outcomes, 1 at most, rounded down to multiples of 2^-20. (A prediction of 0
never exceeds 1.) A cost is a function of that person's row and of the model, to the bit: predictions of a row do not
depend on other rows. So costs are numbers in [0, 1], and their sums are exact. A person who joins moves the sums of all
models by amounts in [0, 1], an interval of length 1. A person who replaces another moves them by amounts in [-1, 1], an
interval of length 2. The exponential mechanism with the rate epsilon/length is epsilon-DP (privacy.support_noise),
given any models; these are released. It has a mu too (privacy.guarantee), and so composes with a Gaussian last fit.

*Two parts, one price.* The split does not depend on the rows' content. If the number of rows is public, a uniform
sample of fixed size is held out; if it is private, each row is held out by an independent coin. Models are fitted on
the others. Let neighbouring tables differ in one person, and let the split be the same for both: under add/remove, the
same split of all others, and the same coin of that person. If the person is held out, the models have the same law on
both tables, and the pick has its epsilon given any models. If not, the models' releases together have their cost,
composed in sequence, and the pick is a function of them and of unchanged rows. The law of the split is the same for
both tables. So, averaged over splits, the whole costs at most the larger of the two. The split is secret nonetheless:
no output, not even an error, reveals who was held out.

*People with several rows.* People are split, with all of their rows. The law of a uniform sample, and of coins, is the
same for any order of people. A person's cost is the mean over their counted rows, rounded down. It is a number from 0
to 1, and a function of the model and that person's rows. So both proofs hold with the person for the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from dpfast import noise
from dpfast._arrays import FloatArray, IntArray
from dpfast.io.states import StateEncoder
from dpfast.privacy import Privacy, Unit, range_mu, score_rate
from dpfast.releases.mechanism import Drawn, SingleRelease

Scoring = Literal["accuracy", "squared_error"]

#: The parts of the rows, as records name them.
FITTED, HELD_OUT = "fitted", "held-out"

#: A person's cost is a multiple of one over this.
_UNITS = 1 << 20
# Coins are fair to one part in this number.
_COINS = 1 << 16


@dataclass(frozen=True)
class HeldOutPick(SingleRelease):
    """Picks a model with probability proportional to exp(-rate * its cost of held-out people)."""

    #: The guarantee, with delta 0.
    privacy: Privacy
    #: Of the exponential mechanism.
    rate: float
    unit: Unit = "row"

    @classmethod
    def calibrate(cls, privacy: Privacy, *, unit: Unit = "row") -> Self:
        """Calibrate for costs in [0, 1] of every one of these."""
        epsilon, _ = privacy.finite_target
        pure = Privacy(privacy.epsilon, 0.0, privacy.adjacency)
        return cls(pure, score_rate(epsilon, 1.0, adjacency=privacy.adjacency), unit)

    @property
    def scales(self) -> dict[str, float]:
        """Difference of costs, in people, that multiplies odds by e."""
        return {"index": 1.0 / self.rate}

    def lost(self, n_models: int, n_held_out: int) -> float:
        """Return the most that the pick is expected to cost beyond the best one, for each held-out person.

        The expected cost is at most the least, plus log(number of models)/rate: with Z the sum of exp(-rate * cost),
        the pick's entropy is rate * (its expected cost) + log Z, at most log(number), and Z at least its largest term.
        """
        return math.log(n_models) / self.rate / n_held_out

    def seeds(self, statistic: Sequence[int]) -> tuple[object, ...]:
        """Return the values that a seeded pick is bound to."""
        return self, len(statistic)

    def draw(self, statistic: Sequence[int], source: noise.BitSource) -> Drawn:
        """Pick by exact costs, in units of 2^-20."""
        pick = noise.ExponentialPick(self.rate, source)
        # Exact: sums of fewer than 2^33 people are below 2^53 units.
        pick.update(np.array(statistic, np.float64) / _UNITS)
        mu = range_mu(self.privacy.epsilon)
        return Drawn("exponential mechanism", {"index": np.array(pick.index)}, mu=mu, part=HELD_OUT, unit=self.unit)


def count_held_out(n_rows: int, share: float) -> int:
    """Return how many are held out of a public number of rows."""
    return min(max(1, round(share * n_rows)), n_rows - 1)


def held_out(n_rows: int, share: float, source: noise.BitSource, *, public_count: bool) -> IntArray:
    """Draw the held-out rows: a fixed number if the number of rows is public, else each by an independent coin."""
    if public_count:
        return noise.sample_without_replacement(n_rows, count_held_out(n_rows, share), source)
    coins = noise.random_blocks(n_rows, _COINS, source, equal=False)
    return np.flatnonzero(coins < round(share * _COINS))


def cost_of_labels(model: Any, labels: Sequence[Any], rows: Any, whose: IntArray | None = None) -> int:
    """Sum the cost of a classifier, in units: one for each person misclassified.

    `whose` has the number of each row's person, if people own several.
    """
    encoder = StateEncoder(model.classes_.tolist())
    said = encoder.codes(np.asarray(model.predict(rows)))
    return _of_people(np.where(encoder.codes(labels) != said, _UNITS, 0), whose)


def cost_of_outcomes(model: Any, outcomes: FloatArray, rows: Any, bound_y: float, whose: IntArray | None = None) -> int:
    """Sum squared errors of outcomes within a bound on their norm, as shares of that squared and at most 1, in units.

    Outcome by outcome: a person's errors are added up in an order that no other row changes.
    """
    predicted = np.asarray(model.predict(rows), np.float64).reshape(outcomes.shape)
    squares = np.zeros(len(outcomes))
    for truth, said in zip(np.atleast_2d(outcomes.T), np.atleast_2d(predicted.T), strict=True):
        squares += ((np.clip(truth, -bound_y, bound_y) - np.clip(said, -bound_y, bound_y)) / bound_y) ** 2
    # An error beyond the bound, and a prediction that overflowed, are as wrong as can be.
    shares = np.where(squares < 1.0, squares, 1.0)
    return _of_people(np.floor(shares * _UNITS).astype(np.int64), whose)


def _of_people(costs: IntArray, whose: IntArray | None) -> int:
    """Sum costs of rows, or the mean of each person's, rounded down."""
    if whose is None:
        return int(costs.sum())
    _, places, sizes = np.unique(whose, return_inverse=True, return_counts=True)
    sums = np.zeros(len(sizes), np.int64)
    np.add.at(sums, places, costs)
    return int((sums // sizes).sum())
