"""Gaussian and Laplace noise through a grid: the exact law on given bits, for any centre, at any vector level."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from margins import decided_exactly
from reference import gaussian_offsets as twin
from scipy import stats

from dpfast.kernels.columns import FixedPoint
from dpfast.kernels.draws import gaussian_offsets, quantile_table, split_cells, vector_level
from dpfast.noise import SecureSource, SeededSource, default_grid, gaussian, grid_for_scales, laplace, samplers
from dpfast.noise.samplers import GaussianLaw, LaplaceLaw, release

LAWS = {"gaussian": GaussianLaw(), "laplace": LaplaceLaw()}
LEVELS = [level for level in (0, 1, 2) if vector_level(level) == level]
#: Every statistical test here rejects the right law with at most this probability.
FALSE_REJECT = 1e-7


def exact_release(law, word, scale, center, grid):
    """round_g(center + noise) in 400-bit arithmetic from the first word alone, or None if that does not settle it."""
    with mp.workprec(400):
        p = (mp.mpf(word & (2**63 - 1)) + 0.5) / mp.mpf(2) ** 63
        if law == "gaussian":
            z = mp.findroot(lambda x: mp.log(mp.erfc(x / mp.sqrt(2))) - mp.log(p), float(stats.norm.isf(float(p / 2))))
            slope = mp.exp(z * z / 2) * 4
        else:
            z, slope = -mp.log(p), 1 / p
        sign = -1 if word >> 63 else 1
        steps = mp.mpf(scale) / mp.mpf(grid)
        cells = mp.mpf(center.numerator) / center.denominator / mp.mpf(grid) + sign * steps * z
        cell = int(mp.floor(cells + mp.mpf(0.5)))
        if abs(cells + 0.5 - mp.nint(cells + 0.5)) <= steps * slope * mp.mpf(2) ** -63:
            return None
    return float(Fraction(cell) * Fraction(grid))


CENTERS = {
    "origin": [0.0] * 12,
    "ordinary": [1.0, -1.0, 0.1, -0.3, 12345.678, -0.5, 2.0**-21, 7.5e-10, 1e6, -1e6, 3.0, 0.25],
    "huge": [1e300, -1e300, 2.0**52 + 1, -(2.0**53) - 2, 2.0**60, 1e18, -1e18, 1e22, 2.0**51 + 0.5, 4e15, -4e15, 1e17],
    "tiny": [5e-324, -5e-324, 1e-300, -1e-300, 2.0**-1022, 1e-200, -1e-30, 1e-17, -0.0, 1e-100, -1e-12, 1e-310],
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("centers", CENTERS)
@pytest.mark.parametrize(("scale", "grid"), [(1.0, None), (3.7, 2.0**-18), (0.013, 2.0), (5e6, None), (1e-9, 2.0**-53)])
def test_releases_are_exact_on_given_bits(law, centers, scale, grid):
    center = np.array(CENTERS[centers])
    step = grid or 2.0 ** (math.floor(math.log2(scale)) - 20)
    released = release(LAWS[law], scale, 12, SeededSource(11), center=center, grid=grid)
    words = SeededSource(11).words(12)
    expected = [exact_release(law, int(w), scale, Fraction(float(c)), step) for w, c in zip(words, center, strict=True)]
    settled = [i for i, value in enumerate(expected) if value is not None]
    assert len(settled) >= 10
    assert [released[i] for i in settled] == [expected[i] for i in settled]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [1.0, 0.7, 1e-12, 3e8])
@pytest.mark.parametrize("grid_steps", [2.0**-40, 0.25, 2.0**10, 2.0**20, 2.0**37])
def test_widening_the_margin_changes_nothing(law, scale, grid_steps):
    """Every draw through the exact decision gives what double arithmetic gave."""
    grid = 2.0 ** math.floor(math.log2(scale / grid_steps))
    center = np.random.default_rng(1).normal(size=40) * 10 * scale
    arguments = {"center": center, "grid": grid}
    fast = release(LAWS[law], scale, 40, SeededSource(2), **arguments)
    with decided_exactly():
        exact = release(LAWS[law], scale, 40, SeededSource(2), **arguments)
    assert np.array_equal(fast, exact)


@pytest.mark.parametrize("exponent", [-200, -90, -64, -40, -22, -20, 0, 10, 90])
def test_fixed_point_centers_are_exact(exponent):
    """Units far finer and far coarser than the grid, and integers of either sign beyond 64 bits."""
    integers = [0, 1, -1, 12345, -(2**63), 2**63, 2**64 - 1, 2**90 + 1, -(2**90) - 3, 2**126 + 5, -(2**126), 7]
    center = FixedPoint.from_integers(integers, exponent)
    fast = gaussian(1.5, 12, SeededSource(4), center=center)
    with decided_exactly():
        exact = gaussian(1.5, 12, SeededSource(4), center=center)
    assert np.array_equal(fast, exact)
    words = SeededSource(4).words(12)
    expected = [
        exact_release("gaussian", int(w), 1.5, Fraction(i) * Fraction(2) ** exponent, 2.0**-20)
        for w, i in zip(words, integers, strict=True)
    ]
    assert list(fast) == expected


def test_fixed_point_and_double_centers_of_one_value_agree():
    integers = np.random.default_rng(0).integers(-(2**40), 2**40, 20_000)
    as_fixed = FixedPoint.from_integers(integers, -30)
    as_double = integers * 2.0**-30
    releases = [gaussian(0.3, 20_000, SeededSource(1), center=c, grid=2.0**-20) for c in (as_fixed, as_double)]
    assert np.array_equal(*releases)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (), (700,)])
@pytest.mark.parametrize("exponent", [-90, -40, -20, 0, 10])
def test_a_repeated_center_is_the_center_repeated(exponent, shape):
    """Below 2**53 cells, beyond them, on grids finer and coarser than the centre's unit, across blocks of words."""
    rng = np.random.default_rng(3)
    integers = rng.integers(-(2**62), 2**62, size=shape)
    center = FixedPoint.from_integers(integers, exponent)
    size = (30, *shape)
    tiled = FixedPoint.from_integers(np.broadcast_to(integers, size), exponent)
    one, other = (gaussian(700.0, size, SeededSource(5), center=c) for c in (center, tiled))
    assert np.array_equal(one, other)
    if len(shape) == 2:
        with decided_exactly():
            assert np.array_equal(one, release(GaussianLaw(), 700.0, size, SeededSource(5), center=center))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (), (9000,)])
def test_a_repeated_center_of_doubles_is_the_center_repeated(shape):
    center = np.random.default_rng(3).normal(size=shape) * 1e4
    size = (30, *shape)
    tiled = np.array(np.broadcast_to(center, size))
    one, other = (gaussian(7.0, size, SeededSource(5), center=c) for c in (center, tiled))
    assert np.array_equal(one, other)


def test_a_repeated_center_of_doubles_is_decided_exactly():
    center = np.random.default_rng(3).normal(size=5) * 1e4
    drawn = release(GaussianLaw(), 7.0, (20, 5), SeededSource(5), center=center)
    with decided_exactly():
        decided = release(GaussianLaw(), 7.0, (20, 5), SeededSource(5), center=center)
    assert np.array_equal(drawn, decided)


@pytest.mark.parametrize("shape", [(300,), (3, 100), (9000,)])
@pytest.mark.parametrize(("exponent", "grid"), [(-90, None), (-40, None), (-10, None), (0, None), (-40, 2.0**-28)])
def test_draws_at_once_are_those_of_one_step_after_the_other(exponent, shape, grid):
    """On the finest grid double arithmetic leaves an eighth of the draws undecided."""
    integers = np.random.default_rng(4).integers(-(2**62), 2**62, size=shape)
    center = FixedPoint.from_integers(integers, exponent)
    at_once = gaussian(700.0, shape, SeededSource(6), center=center, grid=grid)
    stepwise = release(GaussianLaw(), 700.0, shape, SeededSource(6), center=center, grid=grid)
    assert np.array_equal(at_once, stepwise)


@pytest.mark.parametrize("draw", [gaussian, laplace])
def test_draws_about_integers_are_those_about_doubles(draw):
    integers = np.random.default_rng(5).integers(-(2**40), 2**40, size=300)
    exact = FixedPoint.from_integers(integers, -20)
    about_doubles = draw(700.0, (300,), SeededSource(6), center=exact.to_float64())
    assert np.array_equal(draw(700.0, (300,), SeededSource(6), center=exact), about_doubles)


def test_a_margin_of_a_cell_leaves_no_draw_about_integers_to_doubles(monkeypatch):
    decided, decide = [], samplers.decide_offset
    monkeypatch.setattr(samplers, "decide_offset", lambda word, *args: decided.append(word) or decide(word, *args))
    center = FixedPoint.from_integers(np.arange(40), -20)
    at_once = gaussian(3.0, (40,), SeededSource(6), center=center)
    assert len(decided) == 0
    with decided_exactly():
        assert np.array_equal(at_once, gaussian(3.0, (40,), SeededSource(6), center=center))
    assert len(decided) == 40


def test_a_center_on_a_tie_moves_to_either_side():
    """A centre half way between grid points, noise far below its resolution in double: both cells, never a hang."""
    released = gaussian(2.0**-80, 200, SeededSource(0), center=0.5, grid=1.0)
    assert set(released) == {0.0, 1.0}
    # Binomial(200, 1/2) lies outside 60..140 with probability 2e-8.
    assert 60 <= released.sum() <= 140


def test_split_cells_is_exact():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.normal(size=500) * 10.0 ** rng.integers(-30, 30, 500), CENTERS["huge"], [0.5, 1.5, -2.5]]
    )
    nearest, fractions = np.empty_like(values), np.empty_like(values)
    split_cells(values, 0.25, nearest, fractions)
    assert np.all(np.abs(fractions) <= 0.5)
    for value, whole, fraction in zip(values, nearest, fractions, strict=True):
        assert Fraction(whole) + Fraction(fraction) / 4 == Fraction(value)
        assert (Fraction(whole) * 4).denominator == 1


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 255, 256, 257, 1000])
@pytest.mark.parametrize("with_fractions", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_its_twin_to_the_bit(n, with_fractions, level):
    rng = np.random.default_rng(n)
    words = rng.integers(0, 2**64, n, dtype=np.uint64)
    words[::7] >>= np.uint64(20)  # the last octave and below
    words[::11] |= np.uint64(2**63 - 1)
    fractions = rng.uniform(-0.5, 0.5, n)
    offsets, ambiguous = np.empty(n), np.empty(n, np.intp)
    count = gaussian_offsets(words, fractions if with_fractions else None, 1e6, 0.01, offsets, ambiguous, level)
    expected, open_ones = twin.gaussian_offsets(words, fractions * with_fractions, 1e6, 0.01, quantile_table())
    assert np.array_equal(ambiguous[:count], open_ones)
    decided = np.setdiff1d(np.arange(n), open_ones)
    assert np.array_equal(offsets[decided], expected[decided])
    assert len(decided) > 0.5 * n - 1


def test_levels_release_the_same():
    center = np.random.default_rng(0).normal(size=30_000)
    releases = [release(GaussianLaw(level), 2.0, 30_000, SeededSource(9), center=center) for level in (-1, *LEVELS)]
    assert all(np.array_equal(releases[0], other) for other in releases)


FROZEN = {
    "gaussian": ["0x1.54ae800000000p-2", "-0x1.4127b00000000p+1", "0x1.4826c00000000p-2"],
    "laplace": ["0x1.3536c00000000p-2", "-0x1.1a7f200000000p+2", "0x1.2879000000000p-2"],
}


def test_seeded_releases_are_frozen():
    assert [x.hex() for x in gaussian(1.0, 3, SeededSource(0))] == FROZEN["gaussian"]
    assert [x.hex() for x in laplace(1.0, 3, SeededSource(0))] == FROZEN["laplace"]


def grid_chi_square(released, center, grid, distribution):
    """The chi-square probability of counts of grid cells, about 60 of them between 3 scales either side."""
    cells = np.rint(released / grid).astype(int)
    inside = np.arange(math.floor(-3 / grid), math.ceil(3 / grid) + 1)
    edges = (inside[:-1] + 0.5) * grid - center
    expected = np.diff(np.concatenate([[0.0], distribution.cdf(edges), [1.0]])) * len(released)
    observed = np.bincount(np.searchsorted(inside[:-1], cells), minlength=len(expected))
    return stats.chisquare(observed, expected * len(released) / expected.sum()).pvalue


DISTRIBUTIONS = {"gaussian": (gaussian, stats.norm), "laplace": (laplace, stats.laplace)}


def check_distribution(law, seed):
    draw, distribution = DISTRIBUTIONS[law]
    n = 100_000
    fine = draw(1.0, n, SeededSource(seed))
    assert stats.kstest(fine, distribution.cdf).pvalue > FALSE_REJECT
    coarse = draw(1.0, n, SeededSource(seed), center=0.03, grid=0.125)
    assert grid_chi_square(coarse, 0.03, 0.125, distribution) > FALSE_REJECT
    # Neighbours are uncorrelated: a normal statistic.
    correlation = np.corrcoef(fine[:-1], fine[1:])[0, 1] * np.sqrt(n)
    assert abs(correlation) < stats.norm.isf(FALSE_REJECT / 2)


@pytest.mark.parametrize("law", DISTRIBUTIONS)
def test_the_distribution_is_right(law):
    check_distribution(law, 0)


@pytest.mark.slow
@pytest.mark.parametrize("law", DISTRIBUTIONS)
@pytest.mark.parametrize("seed", range(25))
def test_the_distribution_is_right_for_any_seed(law, seed):
    check_distribution(law, seed)


def test_the_chi_square_would_see_a_shift_of_a_tenth_of_a_cell():
    coarse = gaussian(1.0, 1_000_000, SeededSource(0), center=0.03, grid=0.125)
    assert grid_chi_square(coarse, 0.03 + 0.125 / 10, 0.125, stats.norm) < FALSE_REJECT


def test_open_draws_are_as_rare_as_designed():
    """About 2 (2^-42 steps + 2^-51), and 2^-20 for words below the table: 2e-6 at 2^20.5 steps."""
    words = SeededSource(0).words(100_000)
    _, undecided = GaussianLaw().draw(words, None, 2.0**20.5)
    # Poisson(0.2) exceeds 6 with probability 2e-9.
    assert len(undecided) <= 6


def test_the_default_grid_follows_the_scale_alone():
    for scale, exponent in [(1.0, -20), (1.99, -20), (2.0, -19), (0.5, -21), (3e-7, -42)]:
        released = gaussian(scale, 50, SecureSource())
        assert np.array_equal(released, np.rint(released * 2.0**-exponent) * 2.0**exponent)
        odd = np.rint(released * 2.0**-exponent) % 2
        assert 0 < odd.sum() < 50


@pytest.mark.parametrize("least", [1.0, 0.3, 2.0**-40, 1e9])
@pytest.mark.parametrize("ratio", [1.0, 7.9, 8.0, 16.0, 1000.0, 2.0**24, 1e9])
def test_one_grid_serves_all_scales_between(least, ratio):
    greatest = least * ratio
    grid = grid_for_scales(least, greatest)
    assert grid >= default_grid(least)
    assert greatest / 2.0**24 <= grid <= max(default_grid(least), 2.0 * greatest / 2.0**24)
    gaussian(greatest, 4, SeededSource(0), grid=grid)


def test_a_grid_for_scales_needs_them_in_order():
    with pytest.raises(ValueError, match="least_scale must be at most greatest_scale"):
        grid_for_scales(2.0, 1.0)
    with pytest.raises(ValueError, match="greatest_scale"):
        grid_for_scales(1.0, math.inf)


def test_a_grid_may_be_an_integer():
    one, other = (gaussian(3.0, 100, SeededSource(0), grid=grid) for grid in (1, 1.0))
    assert one.tobytes() == other.tobytes()


def test_the_default_grid_is_public():
    assert default_grid(1.0) == 2.0**-20
    assert default_grid(1.999) == 2.0**-20
    with pytest.raises(ValueError, match="scale must be positive"):
        default_grid(0.0)


def test_shapes_and_empty_releases():
    assert gaussian(1.0, (2, 3), SecureSource()).shape == (2, 3)
    assert gaussian(1.0, 0, SecureSource()).shape == (0,)
    assert gaussian(1.0, (), SecureSource()).shape == ()
    exact = FixedPoint.from_integers(np.zeros((2, 3), np.int64), 0)
    assert gaussian(1.0, (2.0, 3.0), SecureSource(), center=exact).shape == (2, 3)  # not an error after the draw
    strided = np.arange(12.0).reshape(3, 4).T
    strided.flags.writeable = False
    assert np.array_equal(
        gaussian(1.0, (4, 3), SeededSource(0), center=strided),
        gaussian(1.0, (4, 3), SeededSource(0), center=np.ascontiguousarray(strided)),
    )


@pytest.mark.parametrize("draw", [gaussian, laplace])
@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (ValueError, "scale must be positive and finite", {"scale": 0.0}),
        (ValueError, "scale must be positive and finite", {"scale": -1.0}),
        (ValueError, "scale must be positive and finite", {"scale": math.inf}),
        (ValueError, "scale must be positive and finite", {"scale": math.nan}),
        (TypeError, "scale must be a real number", {"scale": "1"}),
        (TypeError, "scale must be a real number", {"scale": np.ones(3)}),
        (ValueError, "grid must be a positive power of two", {"grid": 0.3}),
        (ValueError, "grid must be a positive power of two", {"grid": -0.5}),
        (ValueError, "grid must be a positive power of two", {"grid": 0.0}),
        (ValueError, "grid must be at least scale / 2\\*\\*38", {"grid": 2.0**-39}),
        (ValueError, "grid must lie between", {"scale": 1e-300}),
        (TypeError, "size must be an integer", {"size": 2.5}),
        (ValueError, "size must be at least 0", {"size": (2, -1)}),
        (TypeError, "source must be a SecureSource or a SeededSource", {"source": np.random.default_rng(0)}),
        (TypeError, "center must be None, float64 or FixedPoint", {"center": np.zeros(3, np.float32)}),
        (TypeError, "center must be None, float64 or FixedPoint", {"center": "abc"}),
        (ValueError, "center has shape", {"center": np.zeros(4)}),
        (ValueError, "center must be finite", {"center": np.array([0.0, math.nan, 1.0])}),
    ],
)
def test_bad_arguments_are_refused(draw, error, match, changes):
    arguments = {"scale": 1.0, "size": 3, "source": SecureSource()} | changes
    with pytest.raises(error, match=match):
        draw(**arguments)


def test_the_environment_caps_the_vector_level(monkeypatch):
    monkeypatch.setenv("DPFAST_CPU", "baseline")
    assert vector_level() == 0
    monkeypatch.setenv("DPFAST_CPU", "avx2")
    assert vector_level() == min(1, LEVELS[-1])
    monkeypatch.setenv("DPFAST_CPU", "anything else")
    assert vector_level() == LEVELS[-1]


def test_the_kernel_refuses_arrays_that_are_too_short():
    words = np.zeros(4, np.uint64)
    with pytest.raises(IndexError, match="as long as words"):
        gaussian_offsets(words, None, 4.0, 0.0, np.empty(3), np.empty(4, np.intp))
