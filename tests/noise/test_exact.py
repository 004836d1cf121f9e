"""Rigorous intervals and tails against mpmath, and the exact decision against many revealed bits."""

import decimal
import itertools
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpfast.noise import exact
from dpfast.noise.exact import (
    Interval,
    LazyUniform,
    decide_offset,
    exponential_magnitude,
    exponential_tail,
    gaussian_magnitude,
    gaussian_tail,
)

HALF = Fraction(1, 2)


def real(fraction):
    return mp.mpf(fraction.numerator) / fraction.denominator


def exact_gaussian_tail(x):
    return mp.erfc(x / mp.sqrt(2))


TAILS = {
    "gaussian": (gaussian_tail, exact_gaussian_tail, gaussian_magnitude),
    "laplace": (exponential_tail, lambda x: mp.exp(-x), exponential_magnitude),
}


@pytest.mark.parametrize("law", TAILS)
@given(x=st.fractions(0, 40, max_denominator=10**12), bits=st.sampled_from([64, 95, 200, 400]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_tails_are_enclosed_tightly(law, x, bits):
    tail, exact, _ = TAILS[law]
    with mp.workprec(bits + 3000):
        low, high = tail(x, bits)
        assert low <= exact(real(x)) * mp.mpf(2) ** bits <= high
    assert high - low <= 2


@pytest.mark.parametrize("places", [2, 4, 7, 12])
def test_the_series_of_the_normal_tail_is_enclosed_at_any_precision(places):
    """Where few bits are kept each rounding shows; u is known to lie from an integer to the next, in their unit."""
    unit = 1 << places
    for u in {*range(min(12 * unit, 300)), *range(unit, 12 * unit, 1 + unit // 20)}:
        low, high = exact._density_times_sum(u, places)
        roots = [mp.sqrt(mp.mpf(end) / unit) for end in (u, u + 1)]
        most, least = (mp.erf(root) / root / mp.sqrt(2) if root else mp.sqrt(2 / mp.pi) for root in roots)
        assert low <= least * unit**2 < most * unit**2 <= high


@given(x=st.fractions(-6, 6, max_denominator=10**9), digits=st.sampled_from([20, 50]))
@settings(max_examples=60, deadline=None, derandomize=True)
@example(x=Fraction(1, 2500), digits=20)
def test_functions_of_intervals_enclose(x, digits):
    value = Interval.of(x, digits)
    positive = value * value + Interval.of(1, digits)
    with mp.workdps(digits + 30):
        y = real(x)
        for interval, truth in [
            (value.exp(), mp.exp(y)),
            (positive.ln(), mp.log(1 + y * y)),
            (positive.sqrt(), mp.sqrt(1 + y * y)),
            (value / positive, y / (1 + y * y)),
            (value - positive, y - 1 - y * y),
            (exact.cosine(value), mp.cos(y)),
            (exact.sine(value), mp.sin(y)),
            (exact.pi(digits), mp.pi),
        ]:
            # Ends are decimal: mpmath rounds them, and the exact value, some 30 digits further on.
            slack = mp.mpf(10) ** -(digits + 20)
            assert mp.mpf(str(interval.low)) - slack <= truth <= mp.mpf(str(interval.high)) + slack
            assert float(interval.high - interval.low) < 10.0 ** (6 - digits)


@given(st.lists(st.fractions(-6, 6, max_denominator=10**9), min_size=4, max_size=4), st.integers(-(10**40), 10**40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_products_and_whole_numbers_are_enclosed(ends, whole):
    one, other = (Interval.of(min(pair), 20, max(pair)) for pair in (ends[:2], ends[2:]))
    product, least, most = one * other, *np.sort([a * b for a in ends[:2] for b in ends[2:]])[[0, -1]]
    assert Fraction(product.low) <= least <= most <= Fraction(product.high)
    number = Interval.of(whole, 20)
    assert Fraction(number.low) <= whole <= Fraction(number.high)
    assert number.high - number.low <= max(1, abs(whole)) * decimal.Decimal("1e-19")


def test_division_by_an_interval_around_zero_is_refused():
    with pytest.raises(ZeroDivisionError):
        Interval.of(1, 20) / Interval(-Interval.of(1, 20).low, Interval.of(1, 20).high, 20)


def test_a_lazy_uniform_reveals_until_it_can_tell():
    third = lambda bits: ((1 << bits) // 3, (1 << bits) // 3 + 1)  # noqa: E731
    # One third is 0.010101...: the digits below agree with it for 64 + 128 places, then exceed it.
    digits = iter([0x5555555555555555, 0x5555555555555555, 0x6000000000000000])
    uniform = LazyUniform(0x5555555555555555, 64, lambda: next(digits))
    assert not uniform.below(third)
    assert uniform.n_bits == 64 * 4


@pytest.mark.parametrize("law", TAILS)
@pytest.mark.parametrize("sign", [0, 1])
def test_decisions_on_a_knifes_edge(law, sign):
    """The centre is put so that a cell's boundary lies within 2^-80 of the draw, on either side: far below double."""
    tail, exact, magnitude = TAILS[law]
    rng = np.random.default_rng(7)
    steps = Fraction(2**20 + 12345)
    for _ in range(25):
        words = [int(w) for w in rng.integers(0, 2**64, 3, dtype=np.uint64)]
        words[0] = words[0] & (2**63 - 1) | sign << 63
        with mp.workprec(400):
            p = (mp.mpf(words[0] & (2**63 - 1)) + mp.mpf(words[1]) / mp.mpf(2) ** 64) / mp.mpf(2) ** 63
            z = mp.findroot(lambda x, p=p: mp.log(exact(x)) - mp.log(p), magnitude(float(p)))
            draw = real(steps) * (-z if sign else z)
            boundary = mp.floor(draw) + mp.mpf(0.5)
            gap = int(mp.nint((boundary - draw) * mp.mpf(2) ** 300))
        for nudge in (-1, 1):
            fraction = Fraction(gap, 2**300) + Fraction(nudge, 2**80)
            revealed = iter([words[1], *[words[2]] * 20])
            offset = decide_offset(words[0], revealed.__next__, fraction, steps, tail, magnitude)
            assert offset == int(mp.floor(draw)) + (1 if nudge > 0 else 0)


def test_ties_are_resolved_by_further_bits():
    """At p whose first 63 digits are those of the tail at the boundary, only the digits to come decide."""
    low, _ = exponential_tail(HALF, 63)
    outcomes = {
        decide_offset(low, lambda bits=bits: bits, Fraction(0), Fraction(1), exponential_tail, exponential_magnitude)
        for bits in (0, 2**64 - 1)
    }
    assert outcomes == {0, 1}


@pytest.mark.parametrize("law", TAILS)
def test_the_smallest_words_are_decided(law):
    tail, exact, magnitude = TAILS[law]
    more = iter([0, 1 << 63, *[12345] * 20])
    offset = decide_offset(0, more.__next__, Fraction(1, 3), Fraction(1000), tail, magnitude)
    with mp.workprec(300):
        x = (mp.mpf(offset) - mp.mpf(1) / 3) / 1000
        half_step = mp.mpf(1) / 2000
        p = mp.mpf(2) ** -128
        assert exact(x + half_step) < p * (1 + mp.mpf(2) ** -40)
        assert exact(x - half_step) > p


HOSTILE_CONTEXTS = [
    decimal.Context(prec=1, rounding=decimal.ROUND_DOWN),
    decimal.Context(prec=28, Emin=-5, Emax=5, clamp=1),
    decimal.Context(traps=[decimal.Inexact, decimal.Rounded, decimal.Subnormal, decimal.FloatOperation]),
]


def exact_decisions():
    """Everything that decimals decide, computed anew."""
    for cached in (exact.contexts, exact.pi):
        cached.cache_clear()
    angle = Interval.of(Fraction(-31, 10), 40)
    half = Interval.of(Fraction(1, 2), 40)
    yield from (exact.pi(40), exact.sine(angle), exact.cosine(angle), angle * half / half - half)
    yield from (half.exp(), half.ln(), half.sqrt(), half.scaled(95))
    for tail, _, magnitude in TAILS.values():
        yield [tail(Fraction(x, 7), 95) for x in (0, 1, 40)]
        for word in (1, 2**63 - 1, 2**63, 2**64 - 1):
            yield decide_offset(word, lambda: 12345, Fraction(1, 3), Fraction(10**7), tail, magnitude)


@pytest.mark.parametrize("context", HOSTILE_CONTEXTS)
def test_no_decimal_context_of_the_callers_is_used(context, monkeypatch):
    expected = list(exact_decisions())
    monkeypatch.setattr(decimal.DefaultContext, "clamp", context.clamp)
    with decimal.localcontext(context):
        assert list(exact_decisions()) == expected
        assert not any(decimal.getcontext().flags.values())


@given(st.fractions(), st.fractions(0, 10), st.integers(5, 50))
def test_a_range_is_enclosed_from_end_to_end(low, width, digits):
    interval = Interval.of(low, digits, low + width)
    assert Fraction(interval.low) <= low <= low + width <= Fraction(interval.high)


def test_pi_is_enclosed_with_what_its_series_leaves_out(monkeypatch):
    """The least and the greatest that truncated terms allow are both within."""
    seen = []
    of = Interval.of.__func__
    monkeypatch.setattr(Interval, "of", classmethod(lambda cls, *given: seen.append(given) or of(cls, *given)))
    exact.pi.__wrapped__(30)
    ((least, digits, greatest),) = seen
    assert digits == 30
    with mp.workdps(60):
        assert real(least) < mp.pi < real(greatest)
    assert greatest - least == Fraction(2 * 80 * 40, 10**40)


@pytest.mark.parametrize("guess", [lambda p: 0.0, lambda p: 9.0, lambda p: 1.01 * gaussian_magnitude(p)])
@pytest.mark.parametrize("word", [3 << 60, (1 << 63) + (5 << 59), 12345 << 44, (1 << 63) + (1 << 20)])
def test_a_poor_guess_costs_time_only(word, guess):
    def decided(magnitude):
        return decide_offset(
            word, itertools.repeat(7).__next__, Fraction(1, 3), Fraction(1000), gaussian_tail, magnitude
        )

    assert decided(guess) == decided(gaussian_magnitude)
