"""Noise with the exact law of the ideal mechanism, seen through a public grid.

A release is round_g(S + N), with S the statistic as an exact dyadic number, N the real-valued noise and g a public
power of two. Rounding is post-processing, so the guarantee of S + N holds exactly for the release, in floating point
too (docs/proofs/noise.md). Double arithmetic with a proved margin decides almost every draw. The rest are decided by
revealing further bits against rigorous bounds (exact.py). The center S is split into exact numbers of grid cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, Words
from dpfast.io.sources import borrowed
from dpfast.kernels import gaussian_noise as kernel
from dpfast.kernels import limbs
from dpfast.kernels.columns import FixedPoint, in_c_order
from dpfast.noise.exact import decide_offset, exponential_magnitude, exponential_tail, gaussian_magnitude, gaussian_tail
from dpfast.noise.source import BLOCK_WORDS, BitSource, SecureSource, check_source

#: The center that noise is added to: the exact numbers that it holds.
Center: TypeAlias = float | FloatArray | FixedPoint | None

#: A default grid has between 2**20 and 2**21 steps per unit of scale: rounding adds 1e-13 of the noise's variance.
_DEFAULT_STEPS_EXPONENT = 20
#: Up to 2 to this many steps per unit of scale the margins of double arithmetic stay small against a step.
_FAST_STEPS_EXPONENT = 24
#: At most this many steps per unit of scale: beyond, double arithmetic would decide few draws. At 2**24 it decides all
#: but a millionth, at the finest grid all but an eighth of Gaussian ones, in time for the few that need it.
_FINEST_STEPS_EXPONENT = 38
MAX_STEPS = 2.0**_FINEST_STEPS_EXPONENT
#: Exponents of grids whose cells, and their numbers up to 2**53, are normal doubles.
_EXPONENT_LIMIT = 900


class NoiseGrid:
    """The multiples of ``2**exponent``, with the number of steps in a unit of the noise's scale.

    It is not cached, as scales may be private if the step is given.
    """

    def __init__(self, scale: float, step: float | None = None) -> None:
        if type(scale) is not float or not 0.0 < scale < math.inf:  # most are told without a call
            scale = check.positive("scale", scale)
        self.scale: Final = scale
        if step is None:
            step = default_grid(scale)
        elif type(step) is not float:
            step = check.real("grid", step)
        mantissa, exponent = math.frexp(step)
        if mantissa != 0.5:
            raise ValueError(f"grid must be a positive power of two, not {step!r}")
        self.exponent: Final = exponent - 1
        if abs(self.exponent) > _EXPONENT_LIMIT:
            raise ValueError(f"grid must lie between 2**-{_EXPONENT_LIMIT} and 2**{_EXPONENT_LIMIT}, not {step!r}")
        self.step: Final = step
        # Exact, as the step is a power of two.
        if self.scale > MAX_STEPS * self.step:
            raise ValueError(f"grid must be at least scale / 2**38 = {self.scale / MAX_STEPS!r}, not {step!r}")
        # Exact except for quotients below 2^-1022, with an error below every margin.
        self.steps: Final = self.scale / self.step

    @property
    def exact_steps(self) -> Fraction:
        """The steps of a unit of the noise's scale, for the rare draws that double arithmetic leaves open."""
        return Fraction(self.scale) / Fraction(self.step)


def default_grid(scale: float) -> float:
    """Return the default grid of noise of a public scale, from the scale alone.

    Examples
    --------
    >>> from dpfast.noise import default_grid
    >>> default_grid(3.0) == 2.0**-19  # the power of two in (scale/2**21, scale/2**20]
    True
    """
    if type(scale) is not float or not 0.0 < scale < math.inf:
        scale = check.positive("scale", scale)
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - _DEFAULT_STEPS_EXPONENT)


def grid_for_scales(least_scale: float, greatest_scale: float) -> float:
    """Return a grid for noise whose scale is private, and known to lie between two public numbers.

    A grid computed from the scale itself would reveal it. Rounding noise of the least scale to this grid adds 1e-13 of
    its variance if the greatest is at most 8 times as large, and below 1e-4 up to 2e5 times.

    The two scales are those for the most and the least favourable data possible. The grid is the power of two in
    ``(least_scale/2**21, least_scale/2**20]``, or the smallest of at least ``greatest_scale/2**24`` if that is larger.

    Examples
    --------
    >>> from dpfast.noise import grid_for_scales
    >>> grid_for_scales(1.0, 2.0) == 2.0**-20, grid_for_scales(1.0, 1024.0) == 2.0**-14
    (True, True)
    """
    greatest = check.positive("greatest_scale", greatest_scale)
    least = check.positive("least_scale", least_scale)
    if least > greatest:
        raise ValueError(f"least_scale must be at most greatest_scale, {greatest!r}, got {least!r}")
    return max(default_grid(least), _power_at_least(greatest, _FAST_STEPS_EXPONENT))


def finest_grid(scale: float) -> float:
    """Return the finest grid that noise of a public scale can be seen through, from the scale alone."""
    return _power_at_least(check.positive("scale", scale), _FINEST_STEPS_EXPONENT)


def _power_at_least(scale: float, steps_exponent: int) -> float:
    """Return the least power of two on which a scale takes at most ``2**steps_exponent`` steps."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - (mantissa == 0.5) - steps_exponent)


class _Origin:
    """Zeros; its methods are those of all cells."""

    def __init__(self, grid: NoiseGrid) -> None:
        self._grid = grid

    def split(self, start: int, stop: int) -> None:
        """Return the fractions of some entries in double (None for zeros), to within 2**-54."""

    def fraction(self, index: int) -> Fraction:
        """Return one fraction exactly. Its entry has been split before."""
        return Fraction(0)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        """Fill `released` (out) with the base cells plus offsets, correctly rounded to double."""
        kernel.join_cells(None, offsets, self._grid.step, released)


class _DoubleCells:
    """The dyadic rationals in an array of doubles."""

    def __init__(self, values: FloatArray, grid: NoiseGrid) -> None:
        self._grid = grid
        self._values = values
        self._nearest = np.empty(0)

    def split(self, start: int, stop: int) -> FloatArray:
        if len(self._nearest) != stop - start:
            self._nearest = np.empty(stop - start)
            self._fractions = np.empty(stop - start)
        kernel.split_cells(self._values[start:stop], self._grid.step, self._nearest, self._fractions)
        self._start = start
        return self._fractions

    def repeated(self, copies: int) -> Cells:
        """Return the cells of these numbers, repeated this many times."""
        return _RepeatedCells(self, len(self._values), self._grid)

    def fraction(self, index: int) -> Fraction:
        left_over = Fraction(float(self._values[index])) - Fraction(float(self._nearest[index - self._start]))
        return left_over / Fraction(self._grid.step)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        kernel.join_cells(self._nearest, offsets, self._grid.step, released)


class _FixedPointCells:
    """Exact 128-bit sums: whole cells are kept in 128 bits; the rest is rounded to double only for the first decision.

    Entry i is ``integer * 2**exponent``; on a coarser grid ``2**(exponent + shift)`` its cell is the integer shifted
    right, half a cell added first.
    """

    def __init__(self, values: FixedPoint, grid: NoiseGrid) -> None:
        self._grid = grid
        if not (values.high.ndim == 1 and values.high.flags.carray and values.low.flags.carray):
            values = values.in_a_row()
        self._values = values
        self._shift = grid.exponent - values.exponent
        self._unit = 1 << max(self._shift, 0)
        #: Both limbs, or integers of any length.
        self._cells: tuple[NDArray[np.int64], Words] | NDArray[np.object_]

    def split(self, start: int, stop: int) -> FloatArray:
        values = self._values if (start, stop) == (0, len(self._values.high)) else self._values[start:stop]
        if 1 <= self._shift <= 62:
            size = len(values.high)
            self._cells, fractions = (np.empty(size, np.int64), np.empty(size, np.uint64)), np.empty(size)
            limbs.split_cells(values.high, values.low, self._shift, *self._cells, fractions)
            return fractions
        integers = [high * 2**64 + low for high, low in zip(values.high.tolist(), values.low.tolist(), strict=True)]
        if self._shift <= 0:
            self._cells = np.array([integer << -self._shift for integer in integers], object)
            return np.zeros(stop - start)
        split = [self._split_integer(integer) for integer in integers]
        self._cells = np.array([cell for cell, _ in split], object)
        # Python divides integers with one correct rounding, however long they are.
        return np.array([left_over / self._unit for _, left_over in split])

    def _split_integer(self, integer: int) -> tuple[int, int]:
        """Return the cell of an integer, by the rounding of the kernel, and the remaining part of a unit."""
        cell = (integer + self._unit // 2) // self._unit
        return cell, integer - cell * self._unit

    def repeated(self, copies: int) -> Cells:
        """Return the cells of these numbers, repeated this many times."""
        # Cells below 2**53 are exact in double, and sums with offsets are then rounded as correctly as in 128 bits.
        if np.all(np.abs(self._values.to_float64()) < 2.0**53 * self._grid.step):
            return _RepeatedCells(self, self._values.shape[0], self._grid)
        high, low = np.tile(self._values.high, copies), np.tile(self._values.low, copies)
        return _FixedPointCells(FixedPoint(high, low, self._values.exponent), self._grid)

    def fraction(self, index: int) -> Fraction:
        return (
            Fraction(self._split_integer(self._values.integer(index))[1], self._unit)
            if self._shift > 0
            else Fraction(0)
        )

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        if isinstance(self._cells, tuple):
            limbs.join_cells(*self._cells, offsets, self._grid.exponent, released)
        else:
            released[:] = _to_doubles((self._cells + offsets.astype(np.int64)).tolist(), self._grid.exponent)


class _RepeatedCells:
    """A few numbers repeated: split once, and laid out so that every block of draws finds its part in one slice."""

    def __init__(self, once: _DoubleCells | _FixedPointCells, length: int, grid: NoiseGrid) -> None:
        self._grid = grid
        self._once = once
        self._length = length
        fractions, nearest = once.split(0, length), np.empty(length)
        once.join(np.full(length, -0.0), 0, nearest)
        copies = 1 + -(-BLOCK_WORDS // length)
        self._fractions, self._nearest = np.tile(fractions, copies), np.tile(nearest, copies)

    def split(self, start: int, stop: int) -> FloatArray:
        self._start = start % self._length
        return self._fractions[self._start : self._start + stop - start]

    def fraction(self, index: int) -> Fraction:
        return self._once.fraction(index % self._length)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        nearest = self._nearest[self._start : self._start + len(offsets)]
        kernel.join_cells(nearest, offsets, self._grid.step, released)


#: Exact numbers in units of a grid: base cells, and the remaining fractions of a cell in [-1/2, 1/2].
Cells: TypeAlias = _Origin | _DoubleCells | _FixedPointCells | _RepeatedCells


def _to_doubles(cells: list[int], exponent: int) -> list[float]:
    try:
        return [math.ldexp(float(cell), exponent) for cell in cells]
    except OverflowError:
        if len(cells) == 1:
            return [math.copysign(math.inf, cells[0])]
        return [_to_doubles([cell], exponent)[0] for cell in cells]


def cells_of(center: Center, shape: tuple[int, ...], grid: NoiseGrid) -> Cells:
    """Return the cells of a release's center; an array of the last axes, such as a scalar, is repeated along the first.

    TypeError or ValueError if it is not of doubles, not finite, or of another shape.
    """
    if center is None:
        return _Origin(grid)
    if isinstance(center, FixedPoint):
        actual = center.high.shape
        exact: _DoubleCells | _FixedPointCells = _FixedPointCells(center, grid)
    else:
        values = np.asarray(
            float(center) if type(center) is int and abs(center) <= 2**53 else borrowed(center, "center")
        )
        if values.dtype != np.float64:
            cure = "counts below 2**53 are exact as float64"
            raise TypeError(f"center must be None, float64 or FixedPoint, not {values.dtype}: {cure}")
        if not np.isfinite(values).all():
            raise ValueError("center must be finite")
        actual, exact = values.shape, _DoubleCells(in_c_order(values).ravel(), grid)
    leading = len(shape) - len(actual)
    if actual != shape and (leading < 0 or actual != shape[leading:] or 0 in actual):
        raise ValueError(f"center has shape {actual}, and the release {shape}")
    copies = math.prod(shape[:leading])
    return exact if copies == 1 else exact.repeated(copies)


Size: TypeAlias = int | tuple[int, ...]
#: Offsets from the base cells, and the indices of those that double arithmetic does not decide.
Offsets: TypeAlias = tuple[FloatArray, NDArray[np.intp]]

_SIGN = np.uint64(1 << 63)

#: Bound on |computed z - z(p)| for every word of the Gaussian table, proved by tests/kernels/test_gaussian_noise.py.
TABLE_ERROR = 2.0**-42
#: Roundings in units of one cell: of the sum of noise and fraction, of the fraction itself, of 1/2 less the margin.
ROUNDING = 2.0**-51


@dataclass(frozen=True)
class GaussianLaw:
    """The standard normal law, drawn by the kernel at a vector level of cpu.h (the best one if negative)."""

    level: int = -1

    tail = staticmethod(gaussian_tail)
    magnitude = staticmethod(gaussian_magnitude)

    def draw(self, words: Words, fractions: FloatArray | None, steps: float, widening: float) -> Offsets:
        """Draw about the fractions of base cells, with this many cells per unit of scale, by the kernel's table."""
        offsets = np.empty(len(words))
        ambiguous = np.empty(len(words), np.intp)
        margin = TABLE_ERROR * steps + ROUNDING + widening
        n_ambiguous = kernel.gaussian_offsets(words, fractions, steps, margin, offsets, ambiguous, self.level)
        return offsets, ambiguous[:n_ambiguous]


@dataclass(frozen=True)
class LaplaceLaw:
    """The Laplace law of density exp(-|z|)/2: minus the logarithm of p, with a sign."""

    tail = staticmethod(exponential_tail)
    magnitude = staticmethod(exponential_magnitude)

    def draw(self, words: Words, fractions: FloatArray | None, steps: float, widening: float) -> Offsets:
        """Draw by NumPy's logarithm."""
        prefixes = (words & ~_SIGN).astype(np.float64)
        # The unrevealed bits move p within (prefix, prefix + 1) 2^-63, so its logarithm by at most 1/prefix.
        magnitudes = -np.log((prefixes + 0.5) * 2.0**-63)
        with np.errstate(divide="ignore"):
            errors = logarithm_error(magnitudes) + 1.0 / prefixes
        draws = steps * np.where(words & _SIGN, -magnitudes, magnitudes)
        return in_cells(draws, fractions, 1.001 * steps * errors + widening)


_GAUSSIAN, _LAPLACE = GaussianLaw(), LaplaceLaw()
#: A symmetric law of unit scale: a draw in double, and the tail for the exact decision.
Law: TypeAlias = GaussianLaw | LaplaceLaw


def in_cells(draws: FloatArray, fractions: FloatArray | None, margins: FloatArray | float) -> Offsets:
    """Round draws about the fractions of base cells; `margins` bound their errors, except that of this addition."""
    if fractions is not None:
        draws = draws + fractions
    offsets = np.rint(draws)
    return offsets, np.flatnonzero(~(np.abs(draws - offsets) <= 0.5 - (margins + ROUNDING)))


def logarithm_error(magnitudes: FloatArray) -> FloatArray:
    """Bound the error of -log(p) in double: p rounded to 53 bits, and 4 units in the last place of the logarithm."""
    return 2.0**-52 + 2.0**-49 * magnitudes


def gaussian(
    scale: float, size: Size, source: BitSource, *, center: Center = None, grid: float | None = None
) -> FloatArray:
    """Return ``center + N(0, scale**2)``, rounded to a public grid, with exactly that law.

    Privacy: the release is a post-processing of the ideal Gaussian mechanism of standard deviation `scale`, so it is
    (epsilon, delta)-DP whenever that mechanism is; there is no floating-point term to add.

    Parameters
    ----------
    scale : float
        Standard deviation, in the units of `center`. Public.
    size : int or tuple of int
        Shape of the release.
    source : BitSource
        Source of the random bits.
    center : None, float, ndarray of float64 or FixedPoint, optional
        Center that the noise is added to, taken as the exact numbers it holds. Zero if None. An array with the shape of
        the release's last axes is repeated along its first ones.
    grid : float, optional
        A power of two, chosen from public values only; at least ``scale / 2**38``. Default: about ``scale / 2**20``.

    Returns
    -------
    ndarray of float64
        Multiples of the grid (correctly rounded if they have more than 53 bits).

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    B. Balle and Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018.
    I. Mironov, "On Significance of the Least Significant Bits for Differential Privacy", CCS 2012, on why noise must
    not be a plain double.

    Examples
    --------
    >>> from dpfast.noise import SeededSource, gaussian
    >>> release = gaussian(2.0, 3, SeededSource(0), center=10.0, grid=2.0**-4)
    >>> release * 16 == (release * 16).round()
    array([ True,  True,  True])
    """
    return release(_GAUSSIAN, scale, size, source, center=center, grid=grid)


def laplace(
    scale: float, size: Size, source: BitSource, *, center: Center = None, grid: float | None = None
) -> FloatArray:
    """Return `center` plus Laplace noise of density ``exp(-|z|/scale)/(2 scale)``, rounded to a public grid, exactly.

    Privacy: entries drawn independently make a release of L1 sensitivity Delta (Delta/scale)-DP. Arguments, errors and
    the result are those of `gaussian`, except that the scale is the mean magnitude.

    References
    ----------
    C. Dwork, F. McSherry, K. Nissim and A. Smith, "Calibrating Noise to Sensitivity in Private Data Analysis",
    TCC 2006, Example 1.
    """
    return release(_LAPLACE, scale, size, source, center=center, grid=grid)


def release(
    law: Law,
    scale: float,
    size: Size,
    source: BitSource,
    *,
    center: Center = None,
    grid: float | None = None,
    widening: float = 0.0,
) -> FloatArray:
    """Return independent draws of a symmetric law about `center`, through a grid.

    `widening` is added to the margin, in cells: 1 sends every draw through the exact decision, and must not change the
    release.
    """
    public = NoiseGrid(scale, grid)
    if type(size) is tuple and isinstance(center, FixedPoint) and size == center.high.shape:
        shape = center.high.shape  # most are told without a call
    else:
        shape = check.shape("size", size)
    cells = cells_of(center, shape, public)
    stream = (source if type(source) is SecureSource else check_source(source)).open()
    released = np.empty(shape)
    flat = released.reshape(-1)
    for start in range(0, flat.size, BLOCK_WORDS):
        stop = min(start + BLOCK_WORDS, flat.size)
        words = stream.words(stop - start)
        offsets, undecided = law.draw(words, cells.split(start, stop), public.steps, widening)
        for i in undecided.tolist():
            more, fraction = stream.branch(start + i), cells.fraction(start + i)
            offsets[i] = decide_offset(int(words[i]), more, fraction, public.exact_steps, law.tail, law.magnitude)
        cells.join(offsets, start, flat[start:stop])
    return released
