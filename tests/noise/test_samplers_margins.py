"""Where double arithmetic cannot be sure of a draw it says so, and no two draws left open share further bits."""

import mpmath as mp
import numpy as np
import pytest
from margins import decided_exactly

from dpfast.noise import ExponentialPick, SeededSource, discrete, radial, samplers
from dpfast.noise.samplers import GaussianLaw, LaplaceLaw, Stream, logarithm_error, release

STEPS = 2.0**20
MAGNITUDES = {
    # Of a uniform p: the Gaussian of that two-sided tail, the exponential of that tail.
    "Gaussian": (GaussianLaw(), lambda p: mp.sqrt(2) * mp.erfinv(1 - p)),
    "Laplace": (LaplaceLaw(), lambda p: -mp.log(p)),
}


def towards_the_edge(exact):
    """Return the fraction, a double within half a cell, that takes a number nearest to the edge of a cell."""
    with mp.workprec(200):
        return float(mp.floor(exact) + 0.5 - exact)


@pytest.mark.parametrize("law", MAGNITUDES)
def test_a_draw_at_the_edge_of_a_cell_is_left_open(law):
    """To 2^-53 of a cell, which no double sum resolves: every one of them must go to the exact decision."""
    kernel, magnitude = MAGNITUDES[law]
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, 300, dtype=np.uint64)
    with mp.workprec(200):
        exact = [
            (-1 if word >> 63 else 1) * STEPS * magnitude((mp.mpf(word & (2**63 - 1)) + 0.5) / 2**63)
            for word in words.tolist()
        ]
        fractions = np.array([towards_the_edge(number) for number in exact])
        assert max(abs(mp.frac(x + mp.mpf(f)) - 0.5) for x, f in zip(exact, fractions.tolist(), strict=True)) < 2.0**-50
    _, undecided = kernel.draw(words, fractions, STEPS)
    assert len(undecided) == len(words)
    # Away from the edge next to nothing is left open.
    assert len(kernel.draw(words, fractions / 2.0, STEPS)[1]) < 3


@pytest.mark.parametrize("law", MAGNITUDES)
def test_a_uniform_that_may_be_zero_is_left_open_without_a_word(law):
    words = np.array([0, 1 << 63, 1, 2**63 - 1, 2**64 - 1], np.uint64)
    _, undecided = MAGNITUDES[law][0].draw(words, None, STEPS)
    assert {0, 1, 2} <= set(undecided.tolist())


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_a_coordinate_at_the_edge_of_a_cell_is_left_open(dim):
    for seed in range(10):
        uniforms = radial._Uniforms(dim, SeededSource(seed).open())
        ratio = uniforms.radius_over_norm(2)
        with mp.workprec(200):
            exact = []
            for coordinate in range(dim):
                number = ratio * uniforms.gaussian(coordinate, 2)
                exact.append(mp.mpf(STEPS) * (mp.mpf(str(number.low)) + mp.mpf(str(number.high))) / 2)
            fractions = np.array([towards_the_edge(number) for number in exact])
        _, undecided = radial._draw_double(uniforms, fractions, STEPS)
        assert len(undecided) == dim


def test_logarithms_are_within_their_bound():
    """Against 60 digits, from the least uniform to those next to 1; a bound of 0 would be wrong of most."""
    rng = np.random.default_rng(0)
    small = 2 ** rng.integers(0, 62, 200) + rng.integers(0, 2**20, 200)
    prefixes = np.concatenate([small, 2**62 + (2**62 - 2 ** rng.integers(0, 60, 200))]).astype(np.uint64)
    computed = -np.log((prefixes.astype(np.float64) + 0.5) * 2.0**-63)
    with mp.workdps(60):
        errors = [
            abs(mp.mpf(value) + mp.log((mp.mpf(prefix) + 0.5) / mp.mpf(2) ** 63))
            for value, prefix in zip(computed.tolist(), prefixes.tolist(), strict=True)
        ]
        # What rounding the prefix to a double moves is within the uniform's own unit where that is the larger.
        allowed = [
            mp.mpf(bound) + mp.mpf(1) / prefix
            for bound, prefix in zip(logarithm_error(computed).tolist(), prefixes.tolist(), strict=True)
        ]
    assert all(error <= bound for error, bound in zip(errors, allowed, strict=True))
    assert np.mean([error > mp.mpf(1) / prefix for error, prefix in zip(errors, prefixes.tolist(), strict=True)]) > 0.2


@pytest.fixture
def branches(monkeypatch):
    """Every further stream of bits that is opened: the stream it belongs to, and its number."""
    opened = []
    branch = Stream.branch

    def recorded(stream, index):
        opened.append((stream, index))
        return branch(stream, index)

    monkeypatch.setattr(Stream, "branch", recorded)
    # Several blocks a call.
    monkeypatch.setattr(samplers, "BLOCK_WORDS", 16)
    monkeypatch.setattr(discrete, "BLOCK_WORDS", 16)
    return opened


def pick(source):
    race = ExponentialPick(1.0, source)
    for start in (0.0, 0.3, 0.1):
        race.update(start + np.arange(10.0) / 10.0)
    return race.index


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: samplers.gaussian(1.0, 50, source),
        lambda source: samplers.laplace(1.0, (5, 10), source),
        lambda source: radial.l2_laplace(1.0, 9, source),
        lambda source: discrete.discrete_gaussian(1.0, 40, source),
        lambda source: discrete.discrete_gaussian(1000.0, 400, source),
        pick,
    ],
    ids=["Gaussian", "Laplace", "L2-Laplace", "discrete Gaussian", "discrete Gaussian of wide columns", "pick"],
)
def test_no_two_draws_share_the_bits_that_decide_them(branches, draw):
    with decided_exactly():
        draw(SeededSource(0))
    assert len(branches) >= 9
    assert len({id(stream) for stream, _ in branches}) == 1
    assert len({index for _, index in branches}) == len(branches)
    assert min(index for _, index in branches) >= 0


@pytest.mark.parametrize("law", [GaussianLaw(), LaplaceLaw()], ids=lambda law: type(law).__name__)
def test_a_draw_that_is_decided_exactly_is_about_its_own_center(law, monkeypatch):
    """Every center has another fraction of a cell, in blocks of words: by double or exactly, draws are the same."""
    monkeypatch.setattr(samplers, "BLOCK_WORDS", 16)
    center = np.random.default_rng(4).uniform(-3.0, 3.0, 40)
    quickly = release(law, 1.0, 40, SeededSource(6), center=center, grid=0.25)
    with decided_exactly():
        exactly = release(law, 1.0, 40, SeededSource(6), center=center, grid=0.25)
    assert quickly.tolist() == exactly.tolist()
