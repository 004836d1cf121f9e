"""The data owner's rows, as fits in stages read them, and the statistics of these stages: not private.

Every statistic is an exact sum over people, or a count of them. Its map, radius and clip are public by then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import io
from dpfast._threads import resolve_n_threads
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.statistics import Gram, gram
from dpfast.statistics.residuals import ResidualStep, residual_sizes, residual_sums
from dpfast.statistics.rows import RowMap
from dpfast.statistics.sizes import HalfOctaves, Sizes, size_counts


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
    def first_rows(self) -> People:
        """The same people, each with their first row alone."""
        return self if self.max_rows is None else replace(self, max_rows=1, first=None)

    def count_rows(self) -> int:
        """Count the rows that count."""
        if self.groups is None or self.max_rows is None:
            return self.table.count_rows()
        if self.table.partitions is not None:
            counted: int = self.table.reduce(partial(_count_of_people, max_rows=self.max_rows), add, groups=self.groups)
            return counted
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


def count_lengths(people: People, sizes: Sizes, row_map: RowMap) -> FixedPoint:
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


def sum_length_octaves(people: People, octaves: HalfOctaves, row_map: RowMap) -> FixedPoint:
    """Return the sum of people's half-octaves by the norm of their rows, counted from the middle one."""
    counts = count_lengths(people, Sizes(rows=True, bins=octaves), row_map)
    middle = octaves.largest_code // 2
    codes = range(octaves.largest_code + 1)
    of_each = (counts.integer((0, octaves.largest_code + code)) * (code - middle) for code in codes)
    return FixedPoint.from_integers([sum(of_each)], 0)


def sum_residuals(people: People, step: ResidualStep, clip: float, unit: float | None = None) -> FixedPoint:
    """Return the exact sum of parts and, as a last entry if requested, the number clipped, in a unit."""
    summed = residual_sums(people.table, step, clip, **people.residual_options)
    products = summed.products
    if unit is None:
        return products
    shift = math.frexp(unit)[1] - 1 - products.exponent
    return products.followed_by(summed.n_beyond << shift)


def sum_squares(people: People, step: ResidualStep, limit: float) -> FixedPoint:
    """Sum squared residuals, each person's clipped."""
    squares = residual_sums(people.table, step, limit, bound_squares=limit**2, **people.residual_options).squares
    assert squares is not None
    return squares
