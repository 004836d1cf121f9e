"""The data owner's rows, as fits in stages read them, and the statistics of these stages: not private.

Every statistic is an exact sum over people, or a count of them. Its map, radius and clip are public by then.

*Weights* are written in bits. A row's weight, a share of the largest that counts, is rounded to a multiple m of 2^-b, m
< 2^b. The rows whose m has bit j are a table of their own, and a weighted sum is that of 2^(j - b) times the sums over
these tables.

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

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dpfast import io
from dpfast._threads import resolve_n_threads
from dpfast.kernels.columns import FixedPoint
from dpfast.releases.mechanism import Query
from dpfast.releases.moments import WeightedMoments
from dpfast.statistics import Gram, gram
from dpfast.statistics.norm_histograms import LogarithmicBins, NormHistograms, size_counts
from dpfast.statistics.residuals import ResidualStep, ThreadSums, residual_sizes, residual_sums
from dpfast.statistics.rows import RowMap, sum_of_parts


@dataclass(frozen=True)
class People:
    """The data owner's rows, their groups, and the sums read first: not private."""

    table: io.Table
    groups: ArrayLike | io.PersonIds | None = None
    max_rows: int | None = None
    n_threads: int | None = None
    #: Sums of rows and outcomes as declared.
    first: Gram | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of sums of rows."""
        return {"groups": self.groups, "max_rows": self.max_rows, "n_threads": self.n_threads}

    @cached_property
    def residual_options(self) -> dict[str, Any]:
        """Options of sums of residuals."""
        threads = {"n_threads": self.n_threads}
        if self.table.partitions is None:
            threads = {"n_threads": resolve_n_threads(self.n_threads)}
        if self.groups is None or self.max_rows is None:
            return threads
        is_known = isinstance(self.groups, io.PersonIds)
        whose = self.groups if is_known else io.people(self.groups, self.max_rows)
        return {"whose": whose, "max_rows": self.max_rows} | threads

    @cached_property
    def kept(self) -> list[ThreadSums]:
        """What read rows for the last sum of residuals, to do so for the next."""
        return []

    @cached_property
    def first_rows(self) -> People:
        """The same people, each with their first row alone."""
        return self if self.max_rows is None else replace(self, max_rows=1, first=None)

    def count_rows(self) -> int:
        """Count the rows that count."""
        if self.groups is None or self.max_rows is None:
            return self.table.count_rows()
        if self.table.partitions is not None:
            return int(self.table.reduce(partial(_count_of_people, max_rows=self.max_rows), add, groups=self.groups))
        return int(self.residual_options["whose"].offsets[-1])


def sum_rows(
    people: People,
    row_map: RowMap,
    outcome_map: RowMap,
    radii: tuple[float, float],
    *,
    sums: bool = True,
    bound_xx: float | None = None,
    bound_xy: float | None = None,
) -> Gram:
    """Sum rows and outcomes, mapped and clipped."""
    return gram(
        people.table,
        bound_x=radii[0],
        bound_y=radii[1],
        bound_xx=bound_xx,
        bound_xy=bound_xy,
        map_x=_unless_bare(row_map),
        map_y=_unless_bare(outcome_map),
        sums=sums,
        **people.options,
    )


def _unless_bare(row_map: RowMap) -> RowMap | None:
    """Leave out a map that only clips rows: the sums and counts clip them too."""
    is_bare = row_map.low is row_map.center is row_map.scale is row_map.basis is None
    return None if is_bare else row_map


def _first(people: People, first: Any) -> Gram:
    exact: Gram = first(people) if people.first is None else people.first
    return exact


def _count_of_people(table: io.Table, groups: Any, max_rows: int) -> int:
    return int(io.people(groups, max_rows).offsets[-1])


def count_people(people: People, first: Any, most: int) -> FixedPoint:
    """Count people or, if they have several rows, `most` times these, and rows."""
    exact = _first(people, first)
    return FixedPoint.from_integers(
        [exact.n_rows] if exact.n_people is None else [exact.n_people * most, exact.n_rows], 0
    )


def sum_outcomes(people: People, first: Any) -> FixedPoint:
    """Sum outcomes."""
    exact = _first(people, first).exact_y_sum
    assert exact is not None
    return exact


def sum_rows_and_outcomes(people: People, first: Any, stretch: float) -> FixedPoint:
    """Return sums of rows and, times a power of two, of outcomes, on the finer grid of both."""
    exact = _first(people, first)
    x, y = exact.exact_x_sum, exact.exact_y_sum
    assert x is not None
    assert y is not None
    exponent = math.frexp(stretch)[1] - 1 + y.exponent
    finest = min(x.exponent, exponent)
    integers = [x.integer(i) << (x.exponent - finest) for i in range(x.shape[0])]
    integers += [y.integer(i) << (exponent - finest) for i in range(y.shape[0])]
    return FixedPoint.from_integers(integers, finest)


def count_lengths(people: People, sizes: NormHistograms, row_map: RowMap) -> FixedPoint:
    """Count people by the norm of their rows."""
    return size_counts(people.table, sizes, map_x=row_map, **people.options)


def count_residuals(people: People, step: ResidualStep, octaves: tuple[int, int], *, of_first_rows: bool) -> FixedPoint:
    """Count people by the size of their part of a sum, or of their first row's."""
    people = people.first_rows if of_first_rows else people
    counts = residual_sizes(people.table, step, octaves, **people.residual_options)
    return FixedPoint.from_integers(counts[None, :], 0)


def sum_octaves(people: People, step: ResidualStep, octaves: tuple[int, int]) -> FixedPoint:
    """Return the sum of people's half-octaves, counted from the middle one."""
    counts = residual_sizes(people.table, step, octaves, **people.residual_options)
    places = np.arange(len(counts)) - len(counts) // 2
    return FixedPoint.from_integers([int(counts @ places)], 0)


def sum_length_octaves(people: People, octaves: LogarithmicBins, row_map: RowMap) -> FixedPoint:
    """Return the sum of people's half-octaves by the norm of their rows, counted from the middle one."""
    counts = count_lengths(people, NormHistograms(rows=True, bins=octaves), row_map)
    middle = octaves.largest_code // 2
    codes = range(octaves.largest_code + 1)
    of_each = (counts.integer((0, octaves.largest_code + code)) * (code - middle) for code in codes)
    return FixedPoint.from_integers([sum(of_each)], 0)


def sum_residuals(people: People, step: ResidualStep, clip: float, unit: float | None = None) -> FixedPoint:
    """Return the exact sum of parts and, as a last entry if requested, the number clipped, in a unit."""
    return residual_sums(people.table, step, clip, kept=people.kept, unit=unit, **people.residual_options).products


def sum_squares(people: People, step: ResidualStep, limit: float) -> FixedPoint:
    """Sum squared residuals, each person's clipped."""
    squares = residual_sums(people.table, step, limit, bound_squares=limit**2, **people.residual_options).squares
    assert squares is not None
    return squares


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
