"""Probabilities of classes: exact counts of rows by margin and by class, and what their noisy counts say.

*Counts* are in histograms in each of which a row is in one cell. Margins of a row are its products with coefficients,
after it is clipped to a norm, and an offset each. One margin has one histogram: the cell is the bin of the margin, and
the side of the row's outcome. Several margins, a class each, have a histogram for each class: the cell is the bin of
the gap from the largest other margin to that of the class, and whether the row is of the class. One further histogram
is of classes alone: after the bins on the side of a class stands how many rows are of it, each in eighths. A row counts
for the weight of its class, at most 1, to the nearest multiple of 2^-20: sums are of integers. The result for a row
depends on that row alone, to the bit. Products are those of RowMap, and all else is comparisons and differences within
the row.

*Probabilities* are the posterior mean of a logistic calibration. Margins u are in a public unit. With two classes, the
second has the log-odds ``s u + o``. A priori, the logarithm of s is normal about a value expected from the released
margins. The offset o is that of an unknown base rate, expit(o): of Jeffreys' law, which expects rare classes as well as
frequent ones, and as probably near 0. With several classes, each has such log-odds against all others. Then u is its
margin minus the largest other margin, and classes share the slope s. Either each has an offset o of Jeffreys' law, or
all have the same one: then the most probable class is that of the largest margin, as without calibration. Both are as
probable a priori. If margins are uninformative, offsets of their own leave every class its base rate.

*The boundary.* Of two classes, an offset that is smaller than its posterior deviation is mostly noise, and where slopes
are flat it moves the boundary far. Then log-odds keep the sign of the margin: where they had the other they are near 0.

A bin's two counts are those of its rows, a binomial part of them of the class, with noise of a known deviation added to
each. The number of rows in a bin is integrated out, over an exponential law and the range beyond it, up to all rows. If
it were taken as known, or as any real number, bins of pure noise would influence the rate, strongly so with few people.
The posterior is a function of noisy counts and public numbers.

*Base rates.* Counts of many bins leave their sum, the base rate, uncertain: its noise grows with the root of their
number. So classes are counted without regard to margins, too. A line says how many are to be expected: the sum over
bins of their rows times the rate there. Rows of bins are known but for noise, between their noisy counts and an even
share. So a flat line must meet the count of its class, and a steep one as nearly as rows of bins are known.

If rates are unknown, few people leave them so. Two tables of n people, of which r n and q n are of a class, are told
apart by a mu-GDP release no better than unit normals n mu |r - q| apart. For 1% and 10%, and n mu of 17 or less, one of
the two has more than 1.1 times the logarithmic loss of its rate, whatever is released.

The constants were chosen on eight tables of people and pictures and nine that were made, of 200 to 5,000 rows, at
epsilon .3, 1 and 3, by the logarithmic loss on held-out rows; the rule for the boundary on 16 others.

*Few people.* Where a class has few rows for the noise, a histogram for each class tells little. Then there are two
other releases: a histogram of classes, and, once their rates are estimated, a sum of scores of the link. The link is
``expit(s u)``, of a public slope s, over the sum for all classes. Probabilities are a mixture: ``(1 - w)`` times the
rates plus w times the link. Each rate is the posterior mean of its count, with Dirichlet laws of several
concentrations: classes may be even, or some rare. Even ones are as probable a priori as all others: else noise in
counts would outweigh margins in the choice of the most probable class.

*The weight w.* The score of a row of class y is link/rate - 1, over the largest size of it that any class has there, if
that is above 1. If rates are true and margins tell nothing, scores are 0 on average, whatever the rows. Where w of the
rows' classes follow the link, the mean is w times the one expected of a true link. The released steps of the descent
say the same again, at no cost: a step's sum, times the coefficients it was taken at, is that of classes less
probabilities, times margins (`NoisyDescent.weight_in_steps`). What is expected needs the law of margins: that of rows
even over directions, known up to a factor. w is the posterior mean. Its law a priori is concentrated near 0 and near 1:
without evidence, rates are nearly as good as a constant, and the link of well-separated classes loses much by a small
weight of rates.

The slope and the laws of rates were chosen on 58 tables of 2 to 10 classes with 200 to 1,500 people, the law of w and
the shares of the budget on 16 that were made, of 300 to 1,000 people at epsilon .3 and 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, expit, log_expit, ndtri

from dpfast import _arguments as check
from dpfast import io
from dpfast._arrays import FloatArray, IntArray
from dpfast.kernels.columns import FixedPoint, Rows
from dpfast.statistics.rows import RowMap

_LOG2_UNITS = 20
# Eighths of a row that one counts for in the histogram of classes, for two classes, and for several.
_EIGHTHS = 5, 8


def gaps(margins: FloatArray) -> FloatArray:
    """Return by how much each margin (n, l) is above the largest of the others in its row; a single one is its own."""
    if margins.shape[1] == 1:
        return margins
    every, largest = np.arange(len(margins)), margins.argmax(axis=1)
    others = margins.copy()
    others[every, largest] = -np.inf
    above = np.broadcast_to(margins[every, largest][:, None], margins.shape).copy()
    above[every, largest] = others.max(axis=1)
    return np.asarray(margins - above)


@dataclass(frozen=True, eq=False)
class MarginCells:
    """Which cells a row is in, all of it public."""

    #: Its basis are the coefficients (d, l).
    row_map: RowMap
    offset: FloatArray
    #: Where bins end; another has what is above the last one.
    edges: FloatArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Histograms, whether a row is of the class, and bins."""
        return len(self.offset), 2, len(self.edges) + 1

    def of(self, x: Rows, y: Rows, n_threads: int | None = 1) -> IntArray:
        """Return the cells of rows (n, l), one a histogram: `y` is positive in the column of their class alone."""
        n_histograms, sides, bins = self.shape
        place = np.searchsorted(self.edges, gaps(_margins(self, x, n_threads)), side="right")
        return (sides * np.arange(n_histograms) + (np.asarray(y) > 0.0)) * bins + place


@dataclass(frozen=True, eq=False)
class ClassCells:
    """One cell a class."""

    n_classes: int

    @property
    def shape(self) -> tuple[int]:
        """Classes."""
        return (self.n_classes,)

    def of(self, x: Rows, y: Rows, n_threads: int | None = 1) -> IntArray:
        """Return the class of each row (n, 1), of outcomes as for `MarginCells`."""
        outcomes = np.asarray(y)
        own = outcomes[:, 0] > 0.0 if outcomes.shape[1] == 1 else outcomes.argmax(axis=1)
        return np.asarray(own[:, None], np.int64)


@dataclass(frozen=True, eq=False)
class LinkScore:
    """By how much the link favours a row's class, beside its rate, from -1 to 1: 0 on average if rates are true."""

    #: Its basis are the coefficients (d, l).
    row_map: RowMap
    offset: FloatArray
    #: Of the link, by margins.
    slope: float
    #: Of classes.
    rates: FloatArray

    def of(self, x: Rows, y: Rows, n_threads: int | None = 1) -> FloatArray:
        """Return the score of each row (n,), of outcomes as for `MarginCells`."""
        own = ClassCells(len(self.rates)).of(x, y)
        return np.take_along_axis(self._scores(_margins(self, x, n_threads))[1], own, axis=1)[:, 0]

    def expected(self, bound: float) -> tuple[float, float]:
        """Return the mean score if the link is true, and the mean square if rates are, of rows even over directions."""
        link, scores = self._scores(even_margins(np.asarray(self.row_map.basis), bound) + self.offset)
        return float(np.mean(np.sum(link * scores, axis=1))), float(np.mean(scores**2 @ self.rates))

    def probabilities(self, margins: FloatArray) -> FloatArray:
        """Return the link (n, classes)."""
        return self._scores(margins)[0]

    def _scores(self, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the link (n, classes), and the score of each class."""
        if margins.shape[1] == 1:
            margins = np.column_stack([-0.5 * margins, 0.5 * margins])
        link = expit(self.slope * gaps(margins))
        total = link[:, 0]
        for others in link.T[1:]:  # in one order for each row, whatever the layout
            total = total + others
        link = link / total[:, None]
        above = link / self.rates - 1.0
        return link, above / np.maximum(np.abs(above).max(axis=1, keepdims=True), 1.0)


def _margins(cells: MarginCells | LinkScore, x: Rows, n_threads: int | None) -> FloatArray:
    """Return the margins of rows (n, l)."""
    margins = np.empty((len(x), len(cells.offset)))
    if not cells.row_map.into(x, margins, n_threads):
        raise check.not_finite("X")
    return margins + cells.offset


def weight_of_class(n_histograms: int) -> float:
    """Return how much a row counts for in the histogram of classes, beside so many of margins."""
    return _EIGHTHS[n_histograms > 1] / 8.0


def margin_counts(
    table: io.Table, cells: MarginCells, n_threads: int | None = None, *, groups: Any = None
) -> FixedPoint:
    """Count the rows of a table in every cell, exactly: (n_histograms, 2 (n_bins + 1)), a side's bins, then its class.

    Outcomes are as large as a row counts.

    Of the people that rows belong to, `groups`, the first row of each counts.

    Not private: in each histogram a person adds at most 1 to one cell, and `weight_of_class` in that of classes.
    """
    counts = _counted(table, cells, n_threads, groups)
    classes = counts.sum(axis=2)
    if cells.shape[0] > 1:
        classes[:, 0] = 0  # others than the class are in its neighbours' counts
    eighths = np.concatenate([8 * counts, _EIGHTHS[cells.shape[0] > 1] * classes[:, :, None]], axis=2)
    return FixedPoint.from_integers(eighths.reshape(cells.shape[0], -1), -_LOG2_UNITS - 3)


def cell_counts(table: io.Table, cells: ClassCells, n_threads: int | None = None) -> FixedPoint:
    """Count the rows of a table in the cells of one histogram, exactly: (1, n_cells).

    Not private: a person adds at most 1 to one cell.
    """
    return FixedPoint.from_integers(_counted(table, cells, n_threads)[None], -_LOG2_UNITS)


def score_sum(table: io.Table, score: LinkScore, n_threads: int | None = None) -> FixedPoint:
    """Add up the scores of the rows of a table, each times how much the row counts, to the nearest multiple of 2^-20.

    Not private: a person adds at most 1, of either sign.
    """
    return FixedPoint.from_integers(_scored(table, score, n_threads), -_LOG2_UNITS)


def _scored(table: io.Table, score: LinkScore, n_threads: int | None, groups: None = None) -> IntArray:
    """Return the sum of scores in units, as an integer (1, 1)."""
    if table.partitions is not None:
        return table.reduce(partial(_scored, score=score, n_threads=n_threads or 1), operator.add, groups=groups)
    total = np.zeros((1, 1), np.int64)
    for x, y in table.blocks():
        assert y is not None
        scores = np.minimum(np.abs(y).max(axis=1), 1.0) * score.of(x, y, n_threads)
        total += np.rint(np.ldexp(scores, _LOG2_UNITS)).astype(np.int64).sum()
    return total


def _counted(table: io.Table, cells: MarginCells | ClassCells, n_threads: int | None, groups: Any = None) -> IntArray:
    """Return units of rows in cells, as integers."""
    if table.partitions is not None:
        return table.reduce(partial(_counted, cells=cells, n_threads=n_threads or 1), operator.add, groups=groups)
    if groups is not None:
        first = io.people(groups, 1)
        rows = np.arange(first.n_rows) if first.order is None else first.order
        table = io.open_table(*(np.asarray(one)[rows] for one in table.whole()))
    counts = np.zeros(cells.shape, np.int64)
    for x, y in table.blocks():
        assert y is not None
        # Fewer than 2^32 numbers of up to 2^20 units add up exactly, in any order.
        units = np.rint(np.ldexp(np.minimum(np.abs(y).max(axis=1), 1.0), _LOG2_UNITS))
        places = cells.of(x, y, n_threads)
        weights = units.repeat(places.shape[1])
        counts += np.bincount(places.ravel(), weights, counts.size).astype(np.int64).reshape(counts.shape)
    return counts


#: Of bins, in units of the margin: those of 16 bins on both sides of 0, and of the coarser ones of fewer people.
_LIMITS = {
    16: (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
    10: (0.25, 1.0, 2.0, 4.0),
    4: (1.0,),
    2: (),
}
# People over the deviation of a count from which on there are so many bins.
_ENOUGH = {16: 60.0, 10: 25.0, 4: 15.0}
_IF_UNKNOWN = 10
# Margins beyond are as these, where the mean over a bin is taken: at these places of it.
_OUTERMOST = 6.0
# Where bins about an offset of margins end.
_ABOUT_OFFSET = np.array([-_OUTERMOST, -1.0, 0.0, 1.0, _OUTERMOST])
# Where margins are mostly an offset, it is so many units.
_FARTHEST_OFFSET = 0.5
#: Where gaps are mostly that between intercepts, it is so many.
FARTHEST_GAP = 3.0
_PLACES = np.array([0.1, 0.5, 0.9])
# Usual slopes, of margins over how much they agree with those sought, and of gaps; and deviations of their logarithms.
_USUAL, _LEAST_AGREEMENT, _SPREAD = 1.3, 0.1, 1.1
_TYPICAL_OF_GAPS = 1.0
# Deviation of offsets near 0: as probable as any others.
_NEAR = 0.3
# Least slope of log-odds that keep the sign of the margin: they increase.
_LEAST_SLOPE = 1e-6
# Lines that are less likely than the likeliest by more are left out.
_NEGLIGIBLE = 1e-5
_SLOPES = np.linspace(-5.0, 4.2, 56)
_OFFSETS = np.linspace(-6.0, 6.0, 61)
_LEAST_RATE = 1e-5
# Rates of a bin, as log-odds.
_LOG_ODDS = np.linspace(-12.0, 12.0, 193)
# Of the law of how many rows a bin has: the exponential's mean in even shares, and its density at 0 over that of the
# even law up to all rows. Quantiles of rows that are so many deviations of noise about the sum of a bin's counts.
_MEAN_SHARE, _OVER_UNIFORM, _WIDTH = 1.5, 20.0, 5.0
_QUANTILES = (np.arange(32) + 0.5) / 32.0
# Margins at which a curve is given: dense near 0, and beyond it goes straight on. No line is beyond 600 there.
_KNOTS = np.sinh(np.linspace(-4.2, 4.2, 97)) / 4.0
#: Points of a curve.
N_POINTS = len(_KNOTS)
# Of few people: the slope of the link in units of margins, for the agreement of margins with those sought.
_SLOPE_OF_LINK = 1.5
# The weight's law a priori, for two classes and for several: one beta law is near 0, powers of w and of 1 - w, another,
# as probable as `_TRUST`, near 1. Weights are even in log-odds.
_NEAR_0, _NEAR_1, _TRUST = ((0.02, 3.0), (0.02, 5.0)), (1.5, 0.005), (0.05, 0.1)
#: Root mean square of rows over their bound.
SPREAD_OF_ROWS = 0.6
# Points at which scores are expected, and factors of what is expected, all as probable: rows in clusters score less.
_N_POINTS, _FACTORS = 256, np.geomspace(0.25, 1.25, 6)
_WEIGHTS = expit(np.linspace(-6.0, 16.0, 111))
# Concentrations of Dirichlet laws of rates, and odds of each: with the last classes are nearly even.
_CONCENTRATIONS, _PROBABLE = np.array([0.5, 3.0, 30.0, 300.0]), np.array([1.0, 1.0, 1.0, 3.0])
_RATES = np.concatenate([np.geomspace(1e-4, 0.1, 60), np.linspace(0.1, 0.9995, 120)[1:]])


class Classes(NamedTuple):
    """Noisy numbers of rows of each class, the deviation of noise, and the number of all rows, if it is public."""

    counts: FloatArray
    deviation: float
    n_rows: float | None = None

    @property
    def people(self) -> float:
        """Return the number of all rows: as counted, where it is private."""
        return max(float(self.counts.sum()), self.deviation) if self.n_rows is None else max(self.n_rows, 1.0)

    def log_likelihood(self, number: int, rates: FloatArray, spread: FloatArray) -> FloatArray:
        """Return logarithms of how likely rates of a class, that are known up to a variance, make its count."""
        n, several = self.people, len(self.counts)
        apart = self.counts[number] - n * rates
        # Of all classes the sum is known, or it is what rates are of.
        noise = (1.0 - rates) ** 2 + (several - 1.0) * rates**2
        if self.n_rows is not None:
            apart = apart - (self.counts.sum() - n) / several
            noise = np.full_like(rates, 1.0 - 1.0 / several)
        variance = noise * self.deviation**2 + n * rates * (1.0 - rates) + n**2 * spread
        return np.asarray(-0.5 * (apart**2 / variance + np.log(variance)))


def limits(people: float | None, deviation: float) -> FloatArray:
    """Return the ends of bins of margins, for this many people and this noise."""
    enough = (bins for bins, ratio in _ENOUGH.items() if people is not None and people >= ratio * deviation)
    above = np.array(_LIMITS[_IF_UNKNOWN if people is None else next(enough, 2)])
    return np.concatenate([-above[::-1], [0.0], above])


def placed(edges: FloatArray, unit: float, offset: float | None = None) -> FloatArray:
    """Return the edges of bins of margins, the outermost too, from edges in a unit as `limits` gives them.

    With an `offset` of margins (an intercept) a few edges are added about it. If rows lie about the origin of the
    features, margins lie about the offset. If rows lie far from it, the offset brings margins back to 0.
    """
    ends = unit * np.concatenate([[-_OUTERMOST], edges, [_OUTERMOST]])
    if offset is None:
        return ends
    if len(edges) == 1:  # few people have two bins
        return np.array([min(ends[0], 2.0 * offset), offset, max(ends[-1], 2.0 * offset)])
    return np.sort(np.concatenate([ends, offset + unit * _ABOUT_OFFSET]))


def unit_of(counts: FloatArray, ends: FloatArray, unit: float, offset: float | None = None) -> float:
    """Return the unit for the usual slopes and offsets of log-odds: that of margins, if they lie about 0.

    If noisy counts show more rows near a large `offset` than near 0, margins are uninformative beside it. The same
    holds if people are so few that there are only two bins.
    """
    if offset is None:
        return unit
    middles = (ends[:-1] + ends[1:]) / 2.0
    about_offset = np.abs(middles - offset) < np.abs(middles)
    rows = counts.sum(axis=0)
    is_offset = len(rows) == 2 or rows @ about_offset > rows @ ~about_offset
    return max(unit, abs(offset) / _FARTHEST_OFFSET) if is_offset else unit


def calibrated_log_odds(
    counts: FloatArray,
    deviation: float,
    ends: FloatArray,
    classes: Classes,
    agreement: float,
    unit: float = 1.0,
) -> FloatArray:
    """Return margins and the log-odds of each class at them (1 + n, N_POINTS), to be interpolated.

    `counts` (n, 2, n_bins) are noisy numbers of rows of other classes and of the n-th, of this deviation, in bins with
    these ends, and `classes` are counted beside them. `agreement` is the correlation of margins with those sought that
    is expected. Margins are given in units of which `unit` is one.
    """
    agreement = max(agreement, _LEAST_AGREEMENT)
    usual = _USUAL * agreement if len(counts) == 1 else _TYPICAL_OF_GAPS * math.sqrt(agreement)
    slopes = -0.5 * ((_SLOPES - math.log(usual)) / _SPREAD)[:, None] ** 2
    near, any_offset = _laws_of_offsets()
    own = range(len(classes.counts))[-len(counts) :]  # of two classes the second
    each = [_log_likelihood(one, deviation, ends, classes, k) for one, k in zip(counts, own, strict=True)]
    if len(each) == 1:
        lines = slopes + np.logaddexp(near, any_offset) + each[0]
        return np.array([unit * _KNOTS, _on_the_side_of_margins(_mean_log_odds(lines), lines)])
    same = slopes + any_offset + sum(each)  # as probable, before
    # Classes share the slope: of each, its own offset is integrated out.
    shares = [_log_sum_exp(any_offset + one, axis=-1, keepdims=True) for one in each]
    shared = slopes + sum(shares)
    curves = [
        _mean_log_odds(np.logaddexp(same, shared - share + any_offset + one))
        for one, share in zip(each, shares, strict=True)
    ]
    return np.array([unit * _KNOTS, *curves])


def slope_of_link(agreement: float, unit: float) -> float:
    """Return the slope of the link of few people, for margins with this unit: at least that of the loss."""
    return max(_SLOPE_OF_LINK * (1.0 + agreement) / unit, 1.0)


def estimated_rates(classes: Classes) -> FloatArray:
    """Return the posterior means of the rates of classes, which add up to 1."""
    others = len(classes.counts) - 1
    near = _CONCENTRATIONS[:, None]
    prior = (near - 1.0) * np.log(_RATES) + (near * others - 1.0) * np.log1p(-_RATES)
    prior += np.log(np.gradient(_RATES)) - betaln(near, near * others)
    zero = np.zeros_like(_RATES)
    logs = np.array([prior + classes.log_likelihood(k, _RATES, zero) for k in range(others + 1)])
    each = _log_sum_exp(logs, axis=-1)  # (classes, concentrations)
    means = np.exp(logs - each[:, :, None]) @ _RATES
    evidence = each.sum(axis=0)
    rates = means @ (_PROBABLE * np.exp(evidence - evidence.max()))
    return np.asarray(rates / rates.sum())


def weight_of_link(
    score: float,
    deviation: float,
    people: float,
    expected: tuple[float, float],
    shown: tuple[float, float],
    *,
    several: bool,
) -> float:
    """Return the posterior mean of the weight of the link in a mixture with rates.

    `score` is the noisy sum of scores, with noise of this deviation, and `expected` what `LinkScore` expects of a row.
    `shown` is the weight that steps show, and its variance.
    """
    mean, square = expected
    variance = deviation**2 + people * square
    logs = _log_sum_exp(-0.5 * (score - people * mean * _FACTORS[:, None] * _WEIGHTS) ** 2 / variance, axis=0)
    logs += _law_of_weights(several) - 0.5 * (shown[0] - _WEIGHTS) ** 2 / shown[1]
    weights = np.exp(logs - logs.max())
    return float(weights @ _WEIGHTS / weights.sum())


def mixed_log_odds(rates: FloatArray, weight: float, slope: float, unit: float) -> FloatArray:
    """Return margins and the log-odds of each class at them, as `calibrated_log_odds`, of rates mixed with a link."""
    own = (rates if len(rates) > 2 else rates[1:])[:, None]
    odds = slope * unit * _KNOTS
    of_class = (1.0 - weight) * own + weight * expit(odds)
    others = (1.0 - weight) * (1.0 - own) + weight * expit(-odds)
    return np.array([unit * _KNOTS, *(np.log(of_class) - np.log(others) + _LEAST_SLOPE * _KNOTS)])


def interpolated(curve: Sequence[FloatArray] | FloatArray, margins: FloatArray) -> FloatArray:
    """Return the log-odds of a class at margins: straight between those of its curve, and on beyond its ends."""
    at, odds = curve
    inner = np.interp(margins, at, odds)
    low, high = ((odds[i + 1] - odds[i]) / (at[i + 1] - at[i]) for i in (0, -2))
    below, above = np.minimum(margins - at[0], 0.0), np.maximum(margins - at[-1], 0.0)
    return np.asarray(inner + low * below + high * above)


def zero_of(curve: FloatArray) -> float:
    """Return the margin at which both classes are as probable."""
    at, odds = curve
    i = int(np.clip(np.searchsorted(odds, 0.0) - 1, 0, len(at) - 2))
    return float(at[i] - odds[i] * (at[i + 1] - at[i]) / (odds[i + 1] - odds[i]))


def _on_the_side_of_margins(odds: FloatArray, lines: FloatArray) -> FloatArray:
    """Return log-odds with the sign of the margin, unless the offset of lines is larger than its deviation."""
    weights = np.exp(lines - lines.max()).sum(axis=0)
    mean, square = weights @ _OFFSETS / weights.sum(), weights @ _OFFSETS**2 / weights.sum()
    if 2.0 * mean**2 >= square:
        return odds
    return np.where(_KNOTS >= 0.0, np.maximum(odds, 0.0), np.minimum(odds, 0.0)) + _LEAST_SLOPE * _KNOTS


def _mean_log_odds(log_weights: FloatArray) -> FloatArray:
    """Return the log-odds, at the knots, of the mean probability over lines (slopes, offsets)."""
    weights = np.exp(log_weights - log_weights.max())
    weights[weights <= _NEGLIGIBLE] = 0.0
    # Either side by itself, so that neither is 1 less a little: of the class, what is of others at the opposite margin
    # and offset.
    both = np.array([weights, weights[:, ::-1]]).reshape(2, -1)
    others, own = both @ _of_others()
    return np.asarray(np.log(own[::-1]) - np.log(others))


def even_margins(coef: FloatArray, bound: float) -> FloatArray:
    """Return margins without intercepts (n, l), by coefficients (d, l), of rows that are even over directions."""
    root = np.linalg.qr(coef, mode="r")
    return np.asarray(_even_points(len(root)) @ root * (SPREAD_OF_ROWS * bound / math.sqrt(len(coef))))


@cache
def _even_points(n_dimensions: int) -> FloatArray:
    """Return points of a standard normal law, even over directions (Roberts 2018)."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1.0 + ratio) ** (1.0 / (n_dimensions + 1.0))
    each = np.arange(1, _N_POINTS + 1)[:, None] * ratio ** -np.arange(1.0, n_dimensions + 1.0)
    return np.asarray(ndtri((0.5 + each) % 1.0))


@cache
def _law_of_weights(several: bool) -> FloatArray:
    """Return logarithms of the law of weights a priori."""
    powers = np.array([_NEAR_0[several], _NEAR_1])
    laws = powers[:, :1] * np.log(_WEIGHTS) + powers[:, 1:] * np.log1p(-_WEIGHTS)
    laws += np.log([[1.0 - _TRUST[several]], [_TRUST[several]]]) - _log_sum_exp(laws, axis=1, keepdims=True)
    return np.asarray(_log_sum_exp(laws, axis=0))


@cache
def _laws_of_offsets() -> FloatArray:
    """Return logarithms of the two laws of offsets: (near 0 or any, offsets)."""
    laws = np.array([-0.5 * (_OFFSETS / _NEAR) ** 2, 0.5 * (log_expit(_OFFSETS) + log_expit(-_OFFSETS))])
    return np.asarray(laws - _log_sum_exp(laws, axis=-1, keepdims=True))


@cache
def _of_others() -> FloatArray:
    """Return the probability of other classes on each line, at each knot: (slopes x offsets, knots)."""
    lines = np.exp(_SLOPES)[:, None, None] * _KNOTS + _OFFSETS[:, None]
    return np.ascontiguousarray(expit(-lines).reshape(-1, len(_KNOTS)))


def _log_sum_exp(logs: FloatArray, axis: int, *, keepdims: bool = False) -> FloatArray:
    """Return the logarithm of a sum of exponentials of finite numbers: SciPy's takes several times as long."""
    most = logs.max(axis, keepdims=True)
    found: FloatArray = np.log(np.exp(logs - most).sum(axis, keepdims=True)) + most
    return found if keepdims else np.squeeze(found, axis)


def _log_likelihood(
    counts: FloatArray, deviation: float, ends: FloatArray, classes: Classes, number: int
) -> FloatArray:
    """Return logarithms of how likely lines (slopes, offsets) make the counts (2, n_bins) of a class, and its sum."""
    places = ends[:-1, None] + np.diff(ends)[:, None] * _PLACES
    slopes, people, rows = np.exp(_SLOPES)[:, None], classes.people, counts.sum(axis=0)
    total, rates = np.zeros((len(_SLOPES), len(_OFFSETS))), []
    for middles, likelihood in zip(places.tolist(), _of_rates(counts, deviation, people), strict=True):
        first, second, third = (expit(slopes * middle + _OFFSETS) for middle in middles)
        rates.append(np.clip((first + second + third) / 3.0, _LEAST_RATE, 1.0 - _LEAST_RATE))
        total += np.interp(np.log(rates[-1]) - np.log1p(-rates[-1]), _LOG_ODDS, likelihood)
    even, noise = people / len(rows), 2.0 * deviation**2
    kept = even**2 / (even**2 + noise)
    shares = (even + kept * (rows - rows.mean())) / people
    each = np.array(rates)
    mean = np.clip(np.tensordot(shares, each, 1), _LEAST_RATE, 1.0 - _LEAST_RATE)
    spread = kept * noise / people**2 * np.sum((each - mean) ** 2, axis=0)
    return np.asarray(total + classes.log_likelihood(number, mean, spread))


def _of_rates(counts: FloatArray, deviation: float, people: float) -> FloatArray:
    """Return logarithms (n_bins, rates): how many rows a bin has is integrated out."""
    # Of the sum of a bin's counts the variance is that of noise alone, of their difference it is the binomial's, too.
    zero, one = counts
    n_bins, rate, noise = len(one), expit(_LOG_ODDS)[:, None], 2.0 * deviation**2
    # Rows are as near to the sum as noise lets them be: a grid in any other unit may pass all of them by.
    near, width = np.clip(zero + one, 0.0, people), _WIDTH * math.sqrt(noise)
    low, high = np.maximum(near - width, 0.0), np.minimum(near + width, people)
    rows = low[:, None] + (high - low)[:, None] * _QUANTILES
    together = (zero + one)[:, None] - rows
    shares = rows * (n_bins / people)
    logs = np.log(_OVER_UNIFORM * np.exp(-shares / _MEAN_SHARE) + 1.0) - 0.5 * together**2 / noise
    binomial = noise + 4.0 * rows[:, None, :] * (rate * (1.0 - rate))
    apart = (one - zero)[:, None, None] - rows[:, None, :] * (2.0 * rate - 1.0)
    return np.asarray(_log_sum_exp(logs[:, None, :] - 0.5 * (apart**2 / binomial + np.log(binomial)), axis=2))
