"""Certificate of the table of quantile polynomials: the margin that decides a draw in double is proved, piece by piece.

Computed z against z(p), over a piece [a, b] of p, by the triangle inequality:
- interpolation at Chebyshev nodes: max |z^(8)| 2 (h/4)^8 / 8!, h = b - a. With w = Phi^-1, w^(n) = P_n(w)/phi(w)^n,
  P_1 = 1, P_(n+1) = P_n' + n w P_n: nonnegative coefficients, so the largest derivative is at p = a;
- rounded coefficients, against the exact interpolant;
- Horner's rule in double: 2 * 7 roundings, each relative to sum |c_k| 2^-k;
- the word: its bits not yet revealed (p within 2^-64) and its rounding to 53 bits, times |z'| = 1/phi(z).
"""

import importlib.util
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from dpfast.kernels.columns import FixedPoint
from dpfast.kernels.draws import draw_about, gaussian_offsets, quantile_table
from dpfast.noise.samplers import TABLE_ERROR

# Loaded by its place: the folder of tools stays off the path.
specification = importlib.util.spec_from_file_location(
    "make_gaussian_table", Path(__file__).resolve().parents[2] / "tools" / "make_gaussian_table.py"
)
tool = importlib.util.module_from_spec(specification)
specification.loader.exec_module(tool)

UNIT = mp.mpf(2) ** -53


@pytest.fixture(scope="module")
def exact_table():
    return tool.table()


def largest_derivative(order, p):
    """|d^order z / dp^order| at p, the largest over all larger p up to 1/2."""
    z = tool.quantile(p, float(mp.sqrt(-2 * mp.log(p))) - 0.5)
    coefficients = [mp.mpf(1)]
    for n in range(1, order):
        derivative = [*[k * c for k, c in enumerate(coefficients)][1:], mp.mpf(0), mp.mpf(0)]
        times_z = [mp.mpf(0), *[n * c for c in coefficients]]
        coefficients = [a + b for a, b in zip(derivative, times_z, strict=False)]
    return sum(c * z**k for k, c in enumerate(coefficients)) / tool.density(z) ** order, z


def piece_error(octave, piece, exact, stored):
    """A bound on |computed z - z(p)| over one piece, and the largest z in it."""
    low, high = tool.piece_ends(octave, piece)
    n = tool.DEGREE + 1
    eighth, z = largest_derivative(n, low)
    interpolation = eighth * 2 * ((high - low) / 4) ** n / mp.factorial(n)
    coefficients = sum(abs(c - mp.mpf(float(s))) * mp.mpf(2) ** -k for k, (c, s) in enumerate(zip(exact, stored)))  # noqa: B905
    size = sum(abs(mp.mpf(float(s))) * mp.mpf(2) ** -k for k, s in enumerate(stored))
    horner = 2 * n * UNIT * 1.01 * size
    slope = 1 / tool.density(z + mp.mpf(2) ** -20)
    word = slope * (mp.mpf(2) ** -64 + high * UNIT)
    return interpolation + coefficients + horner + word, z


def test_derivatives_are_those_of_the_quantile():
    with mp.workprec(400):
        p = mp.mpf("0.013")
        numeric = mp.diff(lambda q: tool.quantile(q, 2.2), p, 3)
    with mp.workprec(tool.PRECISION):
        assert abs(abs(numeric) - largest_derivative(3, p)[0]) < mp.mpf(10) ** -12 * abs(numeric)


def test_every_piece_is_within_the_margin(exact_table):
    stored = quantile_table()[tool.PIECES : -1]
    assert len(stored) == tool.OCTAVES * tool.PIECES
    worst = mp.mpf(0)
    with mp.workprec(tool.PRECISION):
        for octave in range(1, tool.OCTAVES + 1):
            for piece in range(tool.PIECES):
                row = (tool.OCTAVES - octave) * tool.PIECES + piece
                error, z = piece_error(octave, piece, exact_table[octave - 1][piece], stored[row])
                # The product steps * z and the sum with the fraction are each rounded once more.
                worst = max(worst, error + 2 * UNIT * z)
    assert worst < TABLE_ERROR


def test_rows_below_the_table_are_never_decided():
    table = quantile_table()
    assert np.isnan(table[: tool.PIECES]).all()
    assert not table[-1].any()


def test_the_committed_header_is_what_the_tool_writes(exact_table):
    if not tool.HEADER.exists():
        pytest.skip("the source tree is not here")
    assert tool.HEADER.read_text() == tool.render(exact_table)


def kernel_quantile(words):
    """z as the kernel computes it: steps of 2^-44 are far finer than the margin."""
    offsets, ambiguous = np.empty(len(words)), np.empty(len(words), np.intp)
    gaussian_offsets(words, None, 2.0**44, 0.0, offsets, ambiguous)
    return offsets * 2.0**-44


def test_the_kernel_agrees_with_mpmath():
    rng = np.random.default_rng(0)
    octaves = rng.integers(1, tool.OCTAVES + 1, 600)
    words = np.array([(1 << (63 - o)) | int(rng.integers(1 << (63 - o))) for o in octaves], np.uint64)
    # The ends of octaves and pieces, and the words that round up to one half.
    words = np.concatenate(
        [words, np.array([1 << 43, 1 << 62, (1 << 62) + (1 << 58), (1 << 62) - 1, (1 << 63) - 1], "u8")]
    )
    computed = kernel_quantile(words)
    with mp.workprec(tool.PRECISION):
        for word, z in zip(words, computed, strict=True):
            p = (mp.mpf(int(word)) + 0.5) / mp.mpf(2) ** 64
            exact = tool.quantile(p, float(z))
            assert abs(exact - mp.mpf(float(z))) < TABLE_ERROR / 2 + 2.0**-45


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000])
@pytest.mark.parametrize("shift", [-62, -7, 0, 1, 30, 62])
def test_draws_about_integers_are_split_drawn_and_joined(n, shift):
    rng = np.random.default_rng(n)
    integers = [int(value) << 10 for value in rng.integers(-(2**53), 2**53, n)]
    exact, words = FixedPoint.from_integers(integers, 0), rng.integers(2**60, 2**63, n, dtype=np.uint64)
    if shift > 0:
        cells = [(value + (1 << shift - 1)) >> shift for value in integers]
        fractions = [(value - (cell << shift)) / (1 << shift) for value, cell in zip(integers, cells, strict=True)]
    else:
        cells, fractions = [value << -shift for value in integers], [0.0] * n
    offsets, released = np.empty(n), np.empty(n)
    gaussian_offsets(words, np.array(fractions), 1e6, 0.0, offsets, np.empty(n, np.intp))
    assert draw_about(exact.high, exact.low, words, shift, 1e6, 0.0, -20, released)
    joined = [float(cell + int(offset)) * 2.0**-20 for cell, offset in zip(cells, offsets, strict=True)]
    assert released.tolist() == joined


def test_draws_about_integers_are_left_to_others_where_one_is_undecided_or_leaves_128_bits():
    def is_done(integer, shift, margin, offset_up=True):
        words = np.full(301, 2**62, np.uint64) | np.uint64(0 if offset_up else 2**63)
        # In the last block of draws, or in one before.
        first, last = (
            draw_about(exact.high, exact.low, words, shift, 1e6, margin, 0, np.empty(301))
            for exact in (FixedPoint.from_integers(one, 0) for one in ([integer, *[0] * 300], [*[0] * 300, integer]))
        )
        assert first == last
        return first

    assert is_done(2**126, 1, 0.0)
    assert not is_done(2**126, 1, 0.5)
    assert is_done(2**127 - 1 - 2**30, 0, 0.0)
    assert not is_done(2**127 - 1, 0, 0.0)
    assert not is_done(-(2**127), 0, 0.0, offset_up=False)
    assert not is_done(2**127 - 1, 5, 0.0)
    assert is_done(2**100, -20, 0.0)
    assert not is_done(2**100, -27, 0.0)
    assert not is_done(-(2**100) - 1, -27, 0.0)
    assert not is_done(0, 63, 0.0)
    assert not is_done(0, -63, 0.0)
    words = np.zeros(2, np.uint64)
    with pytest.raises(IndexError):
        draw_about(np.zeros(1, np.int64), words, words, 0, 1.0, 0.0, 0, np.empty(2))
