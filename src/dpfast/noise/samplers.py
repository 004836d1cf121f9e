"""Noise with the exact law of the ideal mechanism, seen through a public grid.

A release is round_g(S + N), with S the statistic as an exact dyadic number, N the real-valued noise and g a public
power of two. Rounding is post-processing, so the guarantee of S + N holds exactly for the release, in floating point
too (docs/proofs/noise.md). Double arithmetic with a proved margin decides almost every draw. The rest are decided by
revealing further bits against rigorous bounds (exact.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, Words
from dpfast.kernels import gaussian_noise as kernel

from .exact import Tail, decide_offset, exponential_magnitude, exponential_tail, gaussian_magnitude, gaussian_tail
from .grid import Center, NoiseGrid, cells_of
from .source import BLOCK_WORDS, BitSource, check_source

Size: TypeAlias = int | tuple[int, ...]
#: Offsets from the base cells, and the indices of those that double arithmetic does not decide.
Offsets: TypeAlias = tuple[FloatArray, NDArray[np.intp]]

_SIGN = np.uint64(1 << 63)

#: Bound on |computed z - z(p)| for every word of the Gaussian table, proved by tests/kernels/test_gaussian_noise.py.
TABLE_ERROR = 2.0**-42
#: Roundings in units of one cell: of the sum of noise and fraction, of the fraction itself, of 1/2 less the margin.
ROUNDING = 2.0**-51


class _Law(Protocol):
    """A symmetric law of unit scale: a draw in double, and the tail for the exact decision."""

    @property
    def tail(self) -> Tail: ...

    def magnitude(self, p: float, /) -> float: ...

    def draw(self, words: Words, fractions: FloatArray | None, steps: float, widening: float) -> Offsets:
        """Draw about the fractions of base cells, with this many cells per unit of scale."""


@dataclass(frozen=True)
class GaussianLaw:
    """The standard normal law, drawn by the kernel at a vector level of cpu.h (the best one if negative)."""

    level: int = -1

    tail = staticmethod(gaussian_tail)
    magnitude = staticmethod(gaussian_magnitude)

    def draw(self, words: Words, fractions: FloatArray | None, steps: float, widening: float) -> Offsets:
        """Draw by the kernel's table."""
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
    law: _Law,
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
    shape = check.shape("size", size)
    cells = cells_of(center, shape, public)
    stream = check_source(source).open()
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
