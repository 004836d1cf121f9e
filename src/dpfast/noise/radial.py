"""L2-Laplace noise: density proportional to exp(-||v|| / scale), exactly, through a public grid.

The direction is that of a Gaussian vector. The radius is Gamma with the dimension as its shape (docs/proofs/noise.md):
a sum of that many exponential variables. Both come from uniform variables in closed form (Box and Muller 1958). Double
arithmetic looks at one word per uniform, and further bits can follow it. Coordinates left undecided are enclosed in
intervals of as many digits as necessary.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, Words
from dpfast.noise.exact import Interval, LazyUniform, contexts, cosine, digits_for, pi, sine
from dpfast.noise.samplers import BitSource, Cells, Center, NoiseGrid, Stream, cells_of, check_source

from .samplers import Offsets, in_cells, laplace, logarithm_error

_HALF = Fraction(1, 2)
#: Relative roundings of a few products, quotients and square roots in a row.
_RELATIVE = 2.0**-50
#: Error of the cosine or sine of 2 pi u: u rounded to 53 bits, the angle's roundings, 4 units in the last place.
_TRIGONOMETRIC = 2.0**-48
#: First-order error analysis is trusted below this relative error of the radius or the norm, with 1% to spare.
_FIRST_ORDER = 2.0**-10


def l2_laplace(
    scale: float, dim: int, source: BitSource, *, center: Center = None, grid: float | None = None
) -> FloatArray:
    """Return `center` plus a vector of density proportional to ``exp(-||v||/scale)``, exactly, on a public grid.

    Privacy: on a statistic of L2 sensitivity Delta the release is (Delta/scale)-DP, with no delta and no
    floating-point term.

    Parameters
    ----------
    scale : float
        Scale of the radius, whose mean is ``dim * scale``, in the units of `center`. Public.
    dim : int
        Length of the vector, at least 1.
    source : BitSource
        Source of the random bits.
    center : None, ndarray of float64 or FixedPoint, shape (dim,), optional
        Center that the noise is added to, taken as the exact numbers it holds. Zero if None.
    grid : float, optional
        A power of two, chosen from public values only; at least ``scale / 2**38``. Default: about ``scale / 2**20``.

    Returns
    -------
    ndarray of float64, shape (dim,)
        Multiples of the grid (correctly rounded if they have more than 53 bits).

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially Private Empirical Risk Minimization", JMLR 12, 2011,
    Algorithm 1.
    M. Hardt and K. Talwar, "On the Geometry of Differential Privacy", STOC 2010, section 4 (K-norm mechanism).

    Examples
    --------
    >>> from dpfast.noise import SeededSource, l2_laplace
    >>> l2_laplace(0.5, 4, SeededSource(0)).shape
    (4,)
    """
    dim = check.positive_integer("dim", dim)
    if dim == 1:
        return laplace(scale, 1, source, center=center, grid=grid)
    public = NoiseGrid(scale, grid)
    cells = cells_of(center, (dim,), public)
    stream = check_source(source).open()
    uniforms = _Uniforms(dim, stream)
    offsets, undecided = _draw_double(uniforms, cells.split(0, dim), public.steps)
    for i in undecided.tolist():
        offsets[i] = _decide(uniforms, i, cells, public.exact_steps)
    released = np.empty(dim)
    cells.join(offsets, 0, released)
    return released


class _Uniforms:
    """The words behind one vector: `dim` of the radius, then of the magnitudes and of the angles of Gaussian pairs."""

    def __init__(self, dim: int, stream: Stream) -> None:
        self.dim = dim
        self.n_pairs = (dim + 1) // 2
        self._stream = stream
        self.words = stream.words(dim + 2 * self.n_pairs)
        self._revealed: dict[int, LazyUniform] = {}
        self._ratios: dict[int, Interval] = {}

    def split(self) -> list[Words]:
        """Return the words of the radius, the magnitudes and the angles."""
        return np.split(self.words, [self.dim, self.dim + self.n_pairs])

    def reveal(self, index: int, n_words: int) -> LazyUniform:
        """Return one uniform with at least `n_words` words revealed, more while all of them are zero."""
        if index not in self._revealed:
            self._revealed[index] = LazyUniform(int(self.words[index]), 64, self._stream.branch(index))
        uniform = self._revealed[index]
        while uniform.n_bits < 64 * n_words or uniform.prefix == 0:
            uniform.reveal()
        return uniform

    def exponential_sum(self, indices: range, n_words: int) -> Interval:
        """Enclose minus the sum of the logarithms of some uniforms: minus the logarithm of their product."""
        digits = digits_for(64 * n_words)
        down, up = contexts(digits)
        low = high = Decimal(1)
        n_bits = 0
        for index in indices:
            uniform = self.reveal(index, n_words)
            low, high = down.multiply(low, uniform.prefix), up.multiply(high, uniform.prefix + 1)
            n_bits += uniform.n_bits
        return Interval.of(n_bits, digits) * Interval.of(2, digits).ln() - Interval(low, high, digits).ln()

    def gaussian(self, coordinate: int, n_words: int) -> Interval:
        """Enclose one coordinate of the Gaussian vector: even ones are cosines of their pair, odd ones sines."""
        pair, is_sine = divmod(coordinate, 2)
        low, high = self.reveal(self.dim + self.n_pairs + pair, n_words).bounds()
        digits = digits_for(64 * n_words)
        two = Interval.of(2, digits)
        angle = two * pi(digits) * Interval.of(low, digits, high)
        magnitude = self.dim + pair
        radius = (two * self.exponential_sum(range(magnitude, magnitude + 1), n_words)).sqrt()
        return radius * (sine(angle) if is_sine else cosine(angle))

    def radius_over_norm(self, n_words: int) -> Interval:
        """Enclose the radius over the norm of the Gaussian vector."""
        if n_words not in self._ratios:
            radius = self.exponential_sum(range(self.dim), n_words)
            whole_pairs = range(self.dim, self.dim + self.dim // 2)
            square = Interval.of(2, radius.digits) * self.exponential_sum(whole_pairs, n_words)
            if self.dim % 2:
                last = self.gaussian(self.dim - 1, n_words)
                square = square + last * last
            self._ratios[n_words] = radius / square.sqrt()
        return self._ratios[n_words]


class _Approximation(NamedTuple):
    """Doubles, and bounds on their distance from the exact numbers."""

    value: FloatArray
    error: FloatArray

    def total(self) -> _Approximation:
        """Return the sum, as arrays without dimensions, which divide by zero quietly."""
        return _Approximation(np.float64(math.fsum(self.value)), np.float64(np.sum(self.error)))  # type: ignore[arg-type]


def _draw_double(uniforms: _Uniforms, fractions: FloatArray | None, steps: float) -> Offsets:
    """Draw in double, as a law's `draw` does."""
    radius_words, magnitude_words, angle_words = uniforms.split()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        radius = _exponentials(radius_words).total()
        halves = _exponentials(magnitude_words)
        gaussians = _gaussian_vector(halves, angle_words, uniforms.dim)
        square = _squared_norm(halves, gaussians)
        relative_error = radius.error / radius.value + square.error / square.value + _RELATIVE
        per_norm = steps * (radius.value / np.sqrt(square.value))
        draws = per_norm * gaussians.value
        errors = 1.01 * per_norm * (gaussians.error + np.abs(gaussians.value) * relative_error)
        return in_cells(draws, fractions, errors if relative_error < _FIRST_ORDER else math.inf)


def _exponentials(words: Words) -> _Approximation:
    """Return minus the logarithm of uniforms given by their first 64 bits."""
    prefixes = words.astype(np.float64)
    values = -np.log((prefixes + 0.5) * 2.0**-64)
    # The bits to come move the uniform within (prefix, prefix + 1) 2^-64.
    return _Approximation(values, logarithm_error(values) + 1.001 / prefixes)


def _gaussian_vector(halves: _Approximation, angle_words: Words, dim: int) -> _Approximation:
    """Return a Gaussian vector from half the squared lengths of its pairs and their angles."""
    lengths = np.sqrt(2.0 * halves.value)
    # The difference of square roots is that of the squares over their sum.
    length_errors = 2.0 * halves.error / lengths + _RELATIVE * lengths
    angles = (2.0 * np.pi) * ((angle_words.astype(np.float64) + 0.5) * 2.0**-64)
    pairs = np.column_stack([lengths * np.cos(angles), lengths * np.sin(angles)])
    return _Approximation(pairs.ravel()[:dim], np.repeat(length_errors + _TRIGONOMETRIC * lengths, 2)[:dim])


def _squared_norm(halves: _Approximation, gaussians: _Approximation) -> _Approximation:
    """Return the squared norm: twice the halves of the whole pairs, and the square of an unpaired last coordinate."""
    n_whole, has_last = divmod(len(gaussians.value), 2)
    whole = _Approximation(halves.value[:n_whole], halves.error[:n_whole]).total()
    if not has_last:
        return _Approximation(2.0 * whole.value, 2.0 * whole.error)
    last, last_error = np.abs(gaussians.value[-1]), gaussians.error[-1]
    return _Approximation(
        2.0 * whole.value + last * last, 2.0 * whole.error + 2.0 * last * last_error + last_error * last_error
    )


def _decide(uniforms: _Uniforms, coordinate: int, cells: Cells, steps: Fraction) -> int:
    """Return the offset of one coordinate, revealing bits until its interval lies in one cell."""
    n_words = 1
    while True:
        digits = digits_for(64 * n_words)
        noise = uniforms.radius_over_norm(n_words) * uniforms.gaussian(coordinate, n_words) * Interval.of(steps, digits)
        shifted = noise + Interval.of(cells.fraction(coordinate) + _HALF, digits)
        low, high = math.floor(shifted.low), math.floor(shifted.high)
        if low == high:
            return low
        n_words += 1
