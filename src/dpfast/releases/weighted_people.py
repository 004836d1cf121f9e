"""Weighted sums for fits in stages: of rows whose weights are written in bits.

A row's weight, a share of the largest that counts, is rounded to a multiple m of 2^-b, m < 2^b. The rows whose m has
bit j are a table of their own, and a weighted sum is that of 2^(j - b) times the sums over these tables.

*Privacy.* Let C be what a person may add to a statistic without weights: parts within a clip, a cell of a histogram,
products of a row. A person adds c_j of C, or nothing, to the sum over the rows with bit j. So with weights they add the
sum of 2^(j - b) c_j. The factors add up to less than 1: this is a point of the convex hull of C and 0. A norm of a
difference is convex, so over pairs of points of a hull it is the largest at pairs of C and 0. Under add/remove the
noise is for the longest of C. Under replace-one it is for the longest difference of two of C; 0 is of C, or, in counts,
nearer to all of C than these are to each other. So a person moves a weighted sum by no more than the noise is for,
however many rows they have, and by as much if their weight is the largest, up to a factor of 1 - 2^-b. All sums are
exact integers. The rounding looks at one weight at a time. The sum of the weights takes the place of the number of
people. It is private where that number is public, and a noisy one is released as it is where that number is private.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from dpfast import io
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.releases.mechanism import Query
from dpfast.releases.moments import WeightedMoments
from dpfast.releases.people import People
from dpfast.statistics import Gram
from dpfast.statistics.gram import sum_of_parts

#: Steps of a thousandth; a sum takes as long as five without weights, or as ten if all are the largest.
BITS = 10


@dataclass(frozen=True)
class WeightedPeople:
    """The data owner's rows by the bits of their weights, the largest bit first: not private."""

    by_bit: tuple[People, ...]

    @classmethod
    def of(cls, people: People, first: Callable[[People], Gram]) -> Self:
        """Return people whose last outcomes are weights of at most 1, with their first sums."""
        rows, outcomes = people.table.whole()
        groups = None
        if people.groups is not None:
            assert people.max_rows is not None
            whose = io.people(people.groups, people.max_rows)
            whose.check_length(len(rows))
            groups = np.repeat(np.arange(len(whose.offsets) - 1), np.diff(whose.offsets))
            if whose.order is not None:
                rows, outcomes = rows[whose.order], outcomes[whose.order]
        multiples = np.rint(np.asarray(outcomes[:, -1], np.float64) * (2**BITS - 1)).astype(np.int64)
        by_bit = []
        for bit in reversed(range(BITS)):
            has = (multiples >> bit) % 2 == 1
            table = io.open_table(rows[has], outcomes[has, :-1])
            part = replace(people, table=table, groups=None if groups is None else groups[has])
            by_bit.append(replace(part, first=first(part)))
        return cls(tuple(by_bit))


def weighted(query: Query) -> Query:
    """Ask a query about people of the same about `WeightedPeople`."""
    return query._replace(statistic=partial(_weighted_sum, statistic=query.statistic))


def _weighted_sum(people: WeightedPeople, statistic: Callable[[People], Any]) -> FixedPoint | WeightedMoments:
    total, *others = map(statistic, people.by_bit)
    # A person may have rows of several bits: of sums over people the hull has the bound, too.
    add = sum_of_parts if isinstance(total, Gram) else operator.add
    for other in others:
        total = add(add(total, total), other)
    if not isinstance(total, Gram):
        return _share(total)
    x_sum = None if total.exact_x_sum is None else _share(total.exact_x_sum)
    return WeightedMoments(_share(total.exact_xx), x_sum, total.unit)


def _share(total: FixedPoint) -> FixedPoint:
    return replace(total, exponent=total.exponent - BITS)
