"""L2-Laplace noise: Gamma radius, uniform direction, exact on given bits."""

import math
from fractions import Fraction
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from margins import decided_exactly
from scipy import stats

from dpfast.kernels.columns import FixedPoint
from dpfast.noise import SecureSource, SeededSource, l2_laplace, laplace
from dpfast.noise.radial import _Approximation, _exponentials, _gaussian_vector, _squared_norm

FALSE_REJECT = 1e-7


def vectors(dim, n, seed, scale=1.0):
    """Draws of one seeded source, one call each."""
    source = SeededSource(seed)
    return np.array([l2_laplace(scale, dim, source) for _ in range(n)])


def radius_probability(radii, dim):
    return stats.kstest(radii, stats.gamma(dim).cdf).pvalue


def check_distribution(dim, seed):
    draws = vectors(dim, 2000, seed)
    radii = np.linalg.norm(draws, axis=1)
    assert radius_probability(radii, dim) > FALSE_REJECT
    # A coordinate of a uniform direction: its square is Beta(1/2, (dim - 1)/2), its sign is fair.
    for coordinate in (0, dim - 1):
        cosines = draws[:, coordinate] / radii
        assert stats.kstest(cosines**2, stats.beta(0.5, (dim - 1) / 2).cdf).pvalue > FALSE_REJECT
        assert stats.binomtest(int((cosines > 0).sum()), len(cosines)).pvalue > FALSE_REJECT
    # The direction does not depend on the radius.
    assert stats.spearmanr(radii, draws[:, 0]).pvalue > FALSE_REJECT
    assert stats.spearmanr(draws[:, 0], draws[:, 1]).pvalue > FALSE_REJECT


@pytest.mark.parametrize("dim", [2, 3, 10, 101])
def test_radius_and_direction_have_their_laws(dim):
    check_distribution(dim, 0)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 5])
@pytest.mark.parametrize("seed", range(25))
def test_radius_and_direction_have_their_laws_for_any_seed(dim, seed):
    check_distribution(dim, seed)


@pytest.mark.parametrize("dim", [2, 10])
def test_a_one_dimensional_radius_would_be_caught(dim):
    """What two public implementations draw: an exponential radius. And one degree of freedom too few or too many."""
    rng = np.random.default_rng(0)
    for shape in (1, dim - 1, dim + 1):
        if shape != dim:
            assert radius_probability(rng.gamma(shape, size=2000), dim) < FALSE_REJECT


def exact_vector(words, dim, scale):
    """The vector from the first 64 bits of every uniform, in 300 bits."""
    n_pairs = (dim + 1) // 2
    uniforms = [(mp.mpf(int(w)) + 0.5) / mp.mpf(2) ** 64 for w in words]
    radius = -mp.fsum(mp.log(u) for u in uniforms[:dim])
    gaussians = []
    for magnitude, turn in zip(uniforms[dim : dim + n_pairs], uniforms[dim + n_pairs :], strict=True):
        length = mp.sqrt(-2 * mp.log(magnitude))
        gaussians += [length * mp.cos(2 * mp.pi * turn), length * mp.sin(2 * mp.pi * turn)]
    gaussians = gaussians[:dim]
    norm = mp.sqrt(mp.fsum(g * g for g in gaussians))
    return [mp.mpf(scale) * radius * g / norm for g in gaussians]


@pytest.mark.parametrize("dim", [2, 3, 8, 33])
@pytest.mark.parametrize("scale", [1.0, 3.3e-5])
def test_vectors_are_exact_on_given_bits(dim, scale):
    center = np.random.default_rng(dim).normal(size=dim) * 100 * scale
    grid = 2.0 ** (math.floor(math.log2(scale)) - 20)
    released = l2_laplace(scale, dim, SeededSource(dim), center=center)
    words = SeededSource(dim).words(dim + 2 * ((dim + 1) // 2))
    with mp.workprec(300):
        for value, noise, c in zip(released, exact_vector(words, dim, scale), center, strict=True):
            cells = (mp.mpf(float(c)) + noise) / mp.mpf(grid)
            # The bits to come move nothing by more than 2^-30 of a cell here.
            if abs(cells - mp.floor(cells) - 0.5) > mp.mpf(2) ** -30:
                assert value == float(mp.nint(cells)) * grid


@pytest.mark.parametrize("dim", [2, 3, 4, 17])
@pytest.mark.parametrize("grid", [None, 0.5, 2.0**-23, 2.0**-38, 2.0**40])
def test_widening_the_margin_changes_nothing(dim, grid):
    for seed in range(4):
        center = np.random.default_rng(seed).normal(size=dim) * 100
        fast = l2_laplace(1.0, dim, SeededSource(seed), center=center, grid=grid)
        with decided_exactly():
            exact = l2_laplace(1.0, dim, SeededSource(seed), center=center, grid=grid)
        assert np.array_equal(fast, exact)


def test_a_fixed_point_center_is_exact():
    integers = [2**70 + 3, -(2**70) - 1, 5]
    center = FixedPoint.from_integers(integers, -60)
    fast = l2_laplace(1.0, 3, SeededSource(0), center=center)
    with decided_exactly():
        exact = l2_laplace(1.0, 3, SeededSource(0), center=center)
    assert np.array_equal(fast, exact)
    noise = l2_laplace(1.0, 3, SeededSource(0), grid=2.0**-20)
    assert np.allclose(fast, center.to_float64() + noise, rtol=0, atol=2.0**-19)


def test_one_dimension_is_laplace():
    assert l2_laplace(2.0, 1, SeededSource(5)) == laplace(2.0, 1, SeededSource(5))


def test_extreme_words_are_decided():
    """A radius whose uniform starts with 64 zeros, and magnitudes that round to one, go to intervals and come back."""
    from dpfast.noise.radial import _draw_double, _Uniforms

    uniforms = _Uniforms(4, SeededSource(0).open())
    uniforms.words[:] = [0, 2**64 - 1, 2**64 - 1, 1, 2**64 - 1, 2**64 - 1, 0, 2**62]
    _, undecided = _draw_double(uniforms, None, 2.0**20)
    assert list(undecided) == [0, 1, 2, 3]
    assert uniforms.reveal(0, 1).prefix > 0
    ratio = uniforms.radius_over_norm(3)
    assert 0 < ratio.low <= ratio.high
    assert float((ratio.high - ratio.low) / ratio.low) < 1e-15


def test_bits_are_revealed_until_a_cell_is_decided():
    """Cells so small that no first word decides: the offset is that of many more words."""
    from dpfast.noise.exact import Interval, digits_for
    from dpfast.noise.radial import _decide, _Uniforms

    uniforms, steps = _Uniforms(3, SeededSource(0).open()), Fraction(2) ** 100
    for coordinate in range(3):
        decided = _decide(uniforms, coordinate, SimpleNamespace(fraction=lambda _: Fraction(0)), steps)
        exact = uniforms.radius_over_norm(8) * uniforms.gaussian(coordinate, 8) * Interval.of(steps, digits_for(512))
        assert {math.floor(Fraction(end) + Fraction(1, 2)) for end in (exact.low, exact.high)} == {decided}


def test_seeded_vectors_are_frozen():
    released = l2_laplace(1.0, 3, SeededSource(0))
    assert [x.hex() for x in released] == ["-0x1.4a68200000000p-1", "0x1.2a22780000000p+1", "-0x1.1bb6a00000000p+0"]


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (ValueError, "scale must be positive and finite", {"scale": 0.0}),
        (ValueError, "dim must be at least 1", {"dim": 0}),
        (ValueError, "dim must be at least 1", {"dim": -2}),
        (TypeError, "dim must be an integer", {"dim": (3,)}),
        (TypeError, "source must be", {"source": None}),
        (ValueError, "center has shape", {"center": np.zeros(2)}),
        (ValueError, "grid must be a positive power of two", {"grid": 3.0}),
    ],
)
def test_bad_arguments_are_refused(error, match, changes):
    with pytest.raises(error, match=match):
        l2_laplace(**({"scale": 1.0, "dim": 3, "source": SecureSource()} | changes))


@pytest.mark.parametrize("dim", [2, 3, 5, 8])
def test_the_error_of_a_squared_norm_covers_its_corners(dim):
    """Errors of very different sizes, in exact arithmetic: a last coordinate on its own has its own."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n_pairs = (dim + 1) // 2
        halves = _Approximation(1.0 + rng.random(n_pairs), 10.0 ** rng.uniform(-6, -1, n_pairs))
        gaussians = _Approximation(rng.normal(size=dim), 10.0 ** rng.uniform(-6, -1, dim))
        square = _squared_norm(halves, gaussians)
        most = 2 * sum(Fraction(v) + Fraction(e) for v, e in zip(*(part[: dim // 2] for part in halves), strict=True))
        if dim % 2:
            most += (Fraction(abs(gaussians.value[-1])) + Fraction(gaussians.error[-1])) ** 2
        assert abs(Fraction(float(square.value)) + Fraction(float(square.error)) - most) < Fraction(1, 10**14)


def test_the_error_of_an_exponential_covers_all_bits_to_come():
    """At either end of what a first word leaves open, in many digits; where few bits are set that is most of it."""
    words = np.array([1, 2, 3, 50, 2**20 + 1, 2**40, 2**63, 2**64 - 2**11], np.uint64)
    found = _exponentials(words)
    with mp.workdps(60):
        for word, value, error in zip(words.tolist(), found.value.tolist(), found.error.tolist(), strict=True):
            exact = [-mp.log(mp.mpf(end) / mp.mpf(2) ** 64) for end in (word, word + 1)]
            assert max(abs(one - value) for one in exact) <= error < 2.0 / word + 2.0**-44


@pytest.mark.parametrize("dim", [4, 5])
def test_the_error_of_a_gaussian_vector_covers_all_bits_to_come(dim):
    words = np.array([3, 2**30 + 7, 2**63], np.uint64)[: (dim + 1) // 2]
    angles = np.array([2**61, 2**62 + 2**50, 5], np.uint64)[: len(words)]
    found = _gaussian_vector(_exponentials(words), angles, dim)
    assert found.value.shape == found.error.shape == (dim,)
    with mp.workdps(60):
        unit = mp.mpf(2) ** -64
        for coordinate, (value, error) in enumerate(zip(found.value.tolist(), found.error.tolist(), strict=True)):
            turn = mp.cos if coordinate % 2 == 0 else mp.sin
            word, angle = int(words[coordinate // 2]), int(angles[coordinate // 2])
            for end, shift in [(word, 0), (word, 1), (word + 1, 0), (word + 1, 1)]:
                exact = mp.sqrt(-2 * mp.log(end * unit)) * turn(2 * mp.pi * (angle + shift) * unit)
                assert abs(exact - mp.mpf(value)) <= error
