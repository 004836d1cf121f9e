"""Values from noisy sums per state: exact without noise, nearer than quotients with it, and how near."""

import math
import tracemalloc

import numpy as np
import pytest

from dpfast.solvers.ridge import MomentNoise
from dpfast.solvers.state_values import (
    Earlier,
    Estimate,
    Lost,
    StateSums,
    _Errors,
    _led,
    _quotient_reach,
    _tail_and_pooled,
    _Tails,
    fitted_values,
    ridge_values,
    shrunken_values,
)

LIMITS = (-0.5, 0.5)
NONE = MomentNoise(0.0, 0.0, 0.0)
NOISE = MomentNoise(30.0, 0.0, 20.0)
RNG = np.random.default_rng(0)
COUNTS = np.round(np.geomspace(3.0, 5000.0, 60))
VALUES = -0.3 + 0.1 * RNG.normal(size=60)


def noisy(repeats, values=VALUES):
    rng = np.random.default_rng(1)
    for _ in range(repeats):
        yield COUNTS + rng.normal(0.0, NOISE.diagonal, 60), COUNTS * values + rng.normal(0.0, NOISE.cross, 60)


def total(found):
    return found.pooled + found.above


def test_without_noise_they_are_the_means():
    for found in (
        ridge_values(COUNTS, COUNTS * VALUES, NONE, LIMITS, None),
        shrunken_values(COUNTS, COUNTS * VALUES, NONE, LIMITS),
    ):
        assert total(found) == pytest.approx(VALUES, rel=1e-12)
        assert found.deviation.tolist() == [0.0] * 60
    assert ridge_values(COUNTS, COUNTS * VALUES, NONE, LIMITS, None).pooled == pytest.approx(
        COUNTS @ VALUES / COUNTS.sum()
    )


def test_a_ridge_draws_values_towards_the_pooled_return():
    pooled = COUNTS @ VALUES / COUNTS.sum()
    found = ridge_values(COUNTS, COUNTS * VALUES, NONE, LIMITS, 7.0)
    assert total(found) == pytest.approx(pooled + COUNTS / (COUNTS + 7.0) * (VALUES - pooled), rel=1e-12)
    assert ridge_values(COUNTS, COUNTS * VALUES, NONE, LIMITS, 1e12).above == pytest.approx(np.zeros(60), abs=1e-6)
    assert found.ridge == 7.0


def test_states_without_visits_are_worth_the_pooled_return():
    none = np.zeros(3)
    assert total(ridge_values(none, none, NONE, LIMITS, None)).tolist() == [0.0] * 3
    # Which cannot be told from an end of the range, nor from the other.
    assert total(ridge_values(none, none, NOISE, LIMITS, None)).tolist() == [-0.5] * 3
    assert total(shrunken_values(none, none, NOISE, LIMITS)).tolist() == [0.0] * 3


def test_the_error_is_far_below_that_of_quotients():
    errors = {"ridge": 0.0, "shrunken": 0.0, "quotients": 0.0}
    for visits, returns in noisy(40):
        values = {
            "ridge": total(ridge_values(visits, returns, NOISE, LIMITS, None)),
            "shrunken": total(shrunken_values(visits, returns, NOISE, LIMITS)),
            "quotients": np.clip(returns / np.maximum(visits, 1.0), *LIMITS),
        }
        for name, found in values.items():
            errors[name] += float(np.mean((np.clip(found, *LIMITS) - VALUES) ** 2)) / 40
    assert errors["shrunken"] < errors["ridge"] < 0.5 * errors["quotients"]
    # Knowing the mean and nothing else would give this.
    assert errors["shrunken"] < 0.8 * np.var(VALUES)


def test_of_values_that_are_all_alike_little_is_kept():
    alike = np.full(60, 0.2)
    squares = [np.mean((total(shrunken_values(*sums, NOISE, LIMITS)) - 0.2) ** 2) for sums in noisy(40, alike)]
    assert np.sqrt(np.mean(squares)) < 0.03


@pytest.mark.parametrize("solver", [lambda *sums: ridge_values(*sums, 5.0), shrunken_values], ids=["ridge", "shrunken"])
def test_deviations_are_those_of_states_visited_often(solver):
    """To first order: over 400 draws, to within five standard errors and a tenth, as c and t^2 are estimated too."""
    often = COUNTS > 500.0
    found = [solver(*sums, NOISE, LIMITS) for sums in noisy(400)]
    spread = np.std([total(one)[often] for one in found], axis=0)
    stated = np.mean([one.deviation[often] for one in found], axis=0)
    assert spread == pytest.approx(stated, rel=5.0 / np.sqrt(800.0) + 0.1)


@pytest.mark.parametrize("solver", [lambda *sums: ridge_values(*sums, 1e4), shrunken_values], ids=["ridge", "shrunken"])
def test_deviations_of_values_drawn_all_the_way_to_the_pooled_return_are_those_of_its_own_noise(solver):
    """Four alike states under noise of a range far too wide: what is left of each value is the pooled return."""
    visits, noise = np.full(4, 3000.0), MomentNoise(3.0, 0.0, 600.0)
    returns = np.random.default_rng(2).normal(3000.0 * 0.1, noise.cross, size=(400, 4))
    found = [
        solver(visits, each, noise, (-50.0, 50.0) if solver is shrunken_values else (-2.0, 2.0)) for each in returns
    ]
    spread = np.std([total(one) for one in found], axis=0)
    assert np.sqrt(np.mean([one.deviation**2 for one in found], axis=0)) == pytest.approx(spread, rel=0.35)
    assert np.min([one.deviation for one in found]) > 0.7 * 0.1


def test_the_pooled_return_stays_within_the_range():
    few = np.full(4, 1e-3)
    assert ridge_values(few, np.full(4, 900.0), NOISE, LIMITS, None).pooled == 0.5
    assert shrunken_values(few, np.full(4, -900.0), NOISE, LIMITS).pooled == -0.5


def test_an_end_of_the_range_that_the_pooled_return_cannot_be_told_from_takes_its_place():
    """60 states of 100 visits: the noise of the pooled return is 20 sqrt(60)/6000 = .026 or so."""
    visits = np.full(60, 100.0)
    for value, expected in ((-0.46, -0.5), (-0.3, -0.3), (0.3, 0.3), (0.46, 0.5), (0.0, 0.0)):
        assert ridge_values(visits, visits * value, NOISE, LIMITS, None).pooled == pytest.approx(expected)
    assert ridge_values(visits, visits * -0.46, NONE, LIMITS, None).pooled == pytest.approx(-0.46)


def stage(counts, values, *, deviation=1e-9, within=0.0, discounts=0.0, rng=None):
    """Sums over visits as released, of states with these values and returns that have so much variance about them."""
    counts, values = np.asarray(counts, np.float64), np.asarray(values, np.float64)
    noise = np.zeros((4, len(counts))) if rng is None else deviation * rng.normal(size=(4, len(counts)))
    sampled = np.zeros(len(counts)) if rng is None else np.sqrt(within * counts) * rng.normal(size=len(counts))
    sums = counts, values * counts + sampled, counts * (values**2 + within), counts * discounts
    small = np.array([1.0, 1.0, 4.0, 4.0])[:, None]
    return StateSums(*(np.array(sums) + small * noise), deviation, 4.0 * deviation)


UNKNOWN = Estimate(0.0, 1.0)
NOTHING = Earlier(UNKNOWN, UNKNOWN, Estimate(0.0, 1e-12), 0.0)
WHOLE = (-1.0, 1.0)


def test_fitted_without_noise_they_are_the_means():
    found = fitted_values(stage(1e6 * COUNTS, VALUES), WHOLE, WHOLE, NOTHING, Lost())
    assert found.pooled + found.above == pytest.approx(VALUES, abs=1e-5)


def test_fitted_tails_are_worth_what_all_visits_are():
    """Half of every return was cut and filled with 0: returns are half of their values, which are alike."""
    earlier = NOTHING._replace(discount=Estimate(0.5, 1e-6))
    found = fitted_values(stage(COUNTS, np.full(60, 0.2), discounts=0.5), WHOLE, WHOLE, earlier, Lost())
    assert found.pooled + found.above == pytest.approx(np.full(60, 0.4), abs=1e-3)
    # What is known of tails from elsewhere counts instead.
    earlier = earlier._replace(tail=Estimate(-0.2, 1e-8))
    found = fitted_values(stage(COUNTS, np.full(60, 0.2), discounts=0.5), WHOLE, WHOLE, earlier, Lost())
    assert found.pooled + found.above == pytest.approx(np.full(60, 0.1), abs=0.02)


def test_fitted_states_without_visits_are_worth_the_pooled_return_and_not_known():
    found = fitted_values(stage([1000.0] * 9 + [0.0], [0.1] * 10, deviation=5.0), WHOLE, WHOLE, NOTHING, Lost())
    assert abs(found.above[-1]) < 1e-9
    assert found.deviation[-1] > 0.5
    assert np.all(found.deviation[:-1] < 0.05)


def test_fitted_states_that_noise_alone_may_have_visited_are_worth_about_the_pooled_return():
    """One in 160 states without visits has a count of 2.5 deviations. Its mean is noise: held near it, .44 off."""
    sums = stage([1000.0] * 9 + [12.5], [*np.linspace(-0.3, 0.3, 9), 0.9], deviation=5.0)
    found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
    assert abs(found.above[-1]) < 0.2
    assert 1.96 * found.deviation[-1] > 0.8


def test_no_more_people_went_on_to_hardly_seen_states_if_discounts_are_larger():
    """Noise may hide that 1% of the people were in a state, or that discounts are .05 larger: .058 if both counted."""
    sums = stage([1e4] * 5 + [0.0], [0.1] * 6, deviation=100.0, within=0.01)
    sums = sums._replace(discounts=np.array([2e2] * 5 + [0.0]))
    earlier = NOTHING._replace(tail=Estimate(0.1, 1e-6), discount=Estimate(0.02, 1e-6), filled=0.1)
    found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
    assert np.all(1.96 * found.deviation[:5] < 0.045)


def test_fitted_values_are_drawn_from_their_own_means_by_a_few_of_their_errors_at_most():
    """One state of sixty is far from all others, which are alike: no others may take more than that from it."""
    values = np.zeros(60)
    values[7] = 0.8
    sums = stage(np.full(60, 200.0), values, deviation=10.0, rng=np.random.default_rng(0))
    found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
    own, error = sums.returns[7] / sums.counts[7], 10.0 * math.sqrt(1.0 + 0.8**2) / 200.0
    assert found.pooled + found.above[7] > own - 1.5 * error
    assert found.deviation[7] > error


def test_fitted_values_that_may_all_be_alike_are_drawn_nearly_all_the_way():
    """Held within one own error of own means, they would be off by .39 of it; fewer than 1 in 1,000 runs are beyond."""
    rng, off = np.random.default_rng(9), []
    for _ in range(40):
        sums = stage(np.full(60, 200.0), np.full(60, 0.1), deviation=10.0, rng=rng)
        found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
        off.append(found.pooled + found.above - 0.1)
    assert np.sqrt(np.mean(np.square(off))) < 0.34 * 10.0 / 200.0


def test_where_noise_makes_counts_certain_the_return_of_all_visits_counts_too():
    """Thirty states alike, with counts of 1.3 deviations of noise: the mean of quotients alone is off by .2, about."""
    rng, off, above = np.random.default_rng(10), [], []
    for _ in range(60):
        sums = stage(np.full(30, 4.0), np.full(30, -0.95), deviation=3.0, within=0.01, rng=rng)
        found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
        off.append(found.pooled + 0.95)
        above.append(found.above)
    assert np.sqrt(np.mean(np.square(off))) < 0.21
    assert np.sqrt(np.mean(np.square(above))) < 0.045


@pytest.mark.parametrize("within", [0.0, 0.04])
@pytest.mark.parametrize("deviation", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("between", [0.0, 0.02, 0.2])
def test_fitted_limits_hold(deviation, between, within):
    """95% ones in 92% of states or more: of 40 draws of 60 states the standard error is below 1%. But not by width."""
    rng, held, errors, halves = np.random.default_rng(3), [], [], []
    for _ in range(40):
        values = 0.1 + between * rng.normal(size=60)
        sums = stage(np.round(np.geomspace(30.0, 5000.0, 60)), values, deviation=deviation, within=within, rng=rng)
        found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
        off = found.pooled + found.above - values
        held.append(np.abs(off) <= 1.96 * found.deviation)
        errors.append(off)
        halves.append(1.96 * found.deviation)
    assert np.mean(held) > 0.92
    # Without sampling, and hardly any noise, there is no error to be wide of.
    if between == 0.2 and (deviation, within) != (1.0, 0.0):
        wide = np.mean(halves, axis=0) / np.sqrt(np.mean(np.square(errors), axis=0))
        assert np.median(wide[30:]) < 1.4 * 1.96


@pytest.mark.parametrize("apart", [0.1, 0.2, 0.4])
def test_limits_hold_of_a_state_that_is_visited_less_and_unlike_the_others(apart):
    """In 90% or more of 400 draws, less two standard errors of 1.5%; the spread of the others does not tell of it."""
    rng, values, held = np.random.default_rng(4), np.full(7, 0.02), []
    values[:6] += 0.005 * rng.normal(size=6)
    values[6] += apart
    for _ in range(400):
        sums = stage([330.0] * 6 + [80.0], values, deviation=10.0, within=0.01, rng=rng)
        found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
        held.append(np.abs(found.pooled + found.above - values)[6] <= 1.96 * found.deviation[6])
    assert np.mean(held) > 0.87


@pytest.mark.parametrize("discount", [0.2, 0.4])
@pytest.mark.parametrize("visits", [400.0, 800.0, 1600.0])
def test_limits_hold_of_a_rarely_visited_state_that_is_reached_late(visits, discount):
    """In 90% or more of 400 draws, less two standard errors of 1.5%: of the others .05 of a return was cut."""
    rng, held = np.random.default_rng(6), []
    counts, cut = np.array([10_000.0] * 5 + [visits]), np.array([0.05] * 5 + [discount])
    values = np.array([-0.2, -0.1, 0.0, 0.1, 0.2, 0.5])
    earlier = Earlier(Estimate(0.0, 1e-4), Estimate(0.0, 1e-4), Estimate(0.06, 1e-4), 0.0)
    for _ in range(400):
        sums = stage(counts, values * (1.0 - cut), deviation=40.0, within=0.01, discounts=cut, rng=rng)
        found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
        held.append(np.abs(found.pooled + found.above - values)[5] <= 1.96 * found.deviation[5])
    assert np.mean(held) > 0.87


@pytest.mark.parametrize("deviation", [1.0, 40.0, 400.0, 4e4])
def test_limits_reach_no_farther_than_the_range_but_for_people_beyond_it(deviation):
    rng, counts = np.random.default_rng(7), np.array([1000.0] * 5 + [30.0, 0.0])
    sums = stage(counts, np.linspace(-0.5, 0.7, 7), deviation=deviation, within=0.1, discounts=0.3, rng=rng)
    earlier = NOTHING._replace(discount=Estimate(0.3, 1e-4))
    found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
    values = found.pooled + found.above
    assert np.all(1.96 * found.deviation <= 1.001 * np.maximum(values + 1.0, 1.0 - values))
    wider = fitted_values(sums, WHOLE, WHOLE, earlier, Lost(people=((1e9, math.inf),)))
    assert np.all(np.isinf(wider.deviation))


@pytest.mark.parametrize("visits", [0.0, 10.0, 20.0, 40.0, 80.0])
def test_limits_hold_of_a_state_unlike_the_others_that_may_hardly_be_visited(visits):
    """In 90% or more of 400 draws, less two standard errors of 1.5%: its count has a noise of 20."""
    rng, held, values = np.random.default_rng(5), [], np.full(12, 0.02)
    values[11] = 0.9
    for _ in range(400):
        sums = stage([900.0] * 11 + [visits], values, deviation=20.0, within=0.01, rng=rng)
        found = fitted_values(sums, WHOLE, WHOLE, NOTHING, Lost())
        held.append(np.abs(found.pooled + found.above - values)[11] <= 1.96 * found.deviation[11])
    assert np.mean(held) > 0.87


def test_limits_of_a_quotient_reach_all_values_that_noise_does_not_exclude():
    """By a grid of values; all within the range where the count may be 0."""
    rng, grid = np.random.default_rng(6), np.linspace(-1.0, 1.0, 20_001)
    counts, values = rng.uniform(-20.0, 150.0, 200), rng.uniform(-1.0, 1.0, 200)
    returns, rest = counts * rng.uniform(-0.8, 0.8, 200), rng.uniform(0.0, 300.0, 200)
    for lost in (0.0, 15.0):
        found = _quotient_reach(values, counts, returns, (100.0, rest, lost), (np.full(200, -1.0), np.full(200, 1.0)))
        off = np.abs(returns[:, None] - np.multiply.outer(counts, grid)) - lost
        possible = off <= 1.96 * np.sqrt(100.0 * (1.0 + grid**2) + rest[:, None])
        possible |= (counts <= 19.6)[:, None]
        far = np.abs(grid - values[:, None])
        assert found == pytest.approx(np.max(np.where(possible, far, 0.0), axis=1), abs=2e-4)


@pytest.mark.parametrize("value", [0.02, -0.02])
@pytest.mark.parametrize(("hidden", "end"), [(10.0, 1.0), (20.0, 1.5), (1000.0, 2.0)])
def test_returns_that_noise_hides_beyond_the_reach_are_in_limits_of_rare_states(hidden, end, value):
    """Of a state without visits limits are the reach, more by what is hidden, and no more than the range."""
    sums = stage([9000.0] * 10 + [70.0, 0.0], np.full(12, value), deviation=20.0, within=0.01)
    found, plain = (fitted_values(sums, LIMITS, (-2.0, 2.0), NOTHING, one) for one in (Lost(hidden=hidden), Lost()))
    assert 1.96 * found.deviation[11] == pytest.approx(end + abs(found.pooled + found.above[11]), rel=1e-4)
    assert 1.96 * found.deviation[10] > 1.96 * plain.deviation[10] + 0.9 * min(hidden / 70.0, 1.0)
    assert found.deviation[:10].tolist() == plain.deviation[:10].tolist()


@pytest.mark.parametrize("stay", [0.5, 1.0])
def test_limits_are_no_wider_than_errors_where_most_was_cut_and_last_states_are_told(stay):
    """By less than twice: two classes, whose visitors went on to the same, or to both, with a discount of .85."""
    rng, errors, halves = np.random.default_rng(8), [], []
    values, visits = np.array([0.5] * 4 + [-0.3] * 4), np.full(8, 20_000)
    going = stay * np.kron(np.eye(2), np.full((4, 4), 0.25)) + (1.0 - stay) * 0.125
    for _ in range(60):
        sums = stage(visits, values, deviation=60.0, within=0.01, discounts=0.85, rng=rng)
        ends = 0.85 * rng.multinomial(visits, going).T + 240.0 * rng.normal(size=(8, 8))
        sums = sums._replace(returns=sums.returns - 0.85 * visits * (going @ values), ends=ends)
        earlier = NOTHING._replace(tail=Estimate(0.0, 1e-2), discount=Estimate(0.85, 1e-6))
        found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
        errors.append(found.pooled + found.above - values)
        halves.append(1.96 * found.deviation)
    assert np.mean(np.abs(errors) <= halves) > 0.92
    assert np.median(halves) < 2.0 * 1.96 * np.sqrt(np.mean(np.square(errors)))


def test_limits_without_tails_do_not_depend_on_what_tails_could_be_worth():
    """Noise takes nothing for tails where there are none."""
    sums = stage(COUNTS, VALUES, deviation=10.0, within=0.01, rng=np.random.default_rng(0))
    near, far = (fitted_values(sums, WHOLE, whole, NOTHING, Lost()) for whole in (WHOLE, (-50.0, 50.0)))
    assert far.deviation == pytest.approx(near.deviation, rel=1e-2)


@pytest.mark.parametrize("other", [0.01, 1.0, 50.0])
def test_evidence_that_shares_noise_is_no_surer_for_being_joined(other):
    one, two = Estimate(1.0, 0.25), Estimate(3.0, other)
    joined = one.joined(two)
    assert joined.value == one.merged(two).value
    assert one.merged(two).variance < joined.variance <= max(one.variance, two.variance) + 1e-12
    assert one.joined(one).variance == pytest.approx(one.variance)


def test_what_is_brought_together_again_and_again_is_no_surer_than_its_parts():
    """The earlier pooled return is in what the sums are compared with, twice: as so many witnesses it halves errors."""
    known = Estimate(0.1, 0.04)
    earlier = Earlier(known, known, Estimate(0.3, 1e-12), 0.1)
    for tail, pooled in (
        _tail_and_pooled(known, discount, earlier, 0.0, WHOLE) for discount in (Estimate(0.0, 1e-12), earlier.discount)
    ):
        assert tail.variance >= 0.04 * (1.0 - 1e-6)
        assert pooled.variance >= 0.04 * (1.0 - 1e-6)


def test_what_was_clipped_is_in_the_deviations():
    sums = stage(COUNTS, VALUES, within=0.01)
    plain, lighter, beyond = (
        fitted_values(sums, WHOLE, WHOLE, NOTHING, lost).deviation for lost in (Lost(), Lost(0.3), Lost(returns=40.0))
    )
    assert np.all(lighter > 0.3 * np.abs(VALUES))
    assert np.all(beyond[COUNTS > 100] > 30.0 / COUNTS[COUNTS > 100])
    assert np.all(plain < lighter)


def test_returns_beyond_the_range_bias_a_state_as_if_all_who_have_them_visited_it():
    lost = Lost(people=((30.0, 0.5), (10.0, 2.0)))
    assert lost.bias(np.array([10.0, 20.0, 100.0])) == pytest.approx([2.5, 1.5, 0.35])
    sums = stage(COUNTS, VALUES, within=0.01)
    plain, wider = (fitted_values(sums, WHOLE, WHOLE, NOTHING, one).deviation for one in (Lost(), lost))
    assert 1.96 * wider == pytest.approx(lost.bias(COUNTS) + 1.645 * plain, rel=1e-6)
    farther = Lost(people=((30.0, math.inf),))
    assert np.all(np.isinf(fitted_values(sums, WHOLE, WHOLE, NOTHING, farther).deviation))


def followed(rng, n_states, *, counts=1e5, most=0.7):
    """Values, and the released sums of states whose visitors were truncated in others: without noise."""
    values, visits = rng.uniform(-0.8, 0.8, n_states), np.round(rng.uniform(0.5, 1.0, n_states) * counts)
    going = rng.dirichlet(np.full(n_states, 0.3), n_states) * rng.uniform(0.1, most, (n_states, 1))
    sums = stage(visits, values, deviation=1e-6 * counts, within=0.01)
    seen = visits * (values - going @ values)
    ends = (visits[:, None] * going).T
    return values, sums._replace(returns=seen, discounts=ends.sum(axis=0), ends=ends)


def test_last_states_tell_what_tails_are_worth():
    """Without them all tails are worth about the same, which is far off, and said to be."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        values, sums = followed(rng, rng.integers(3, 12))
        earlier = NOTHING._replace(discount=Estimate(float(np.sum(sums.discounts) / np.sum(sums.counts)), 1e-6))
        found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
        assert found.pooled + found.above == pytest.approx(values, abs=0.02)
        assert np.all(found.deviation < 0.02)
        blind = fitted_values(sums._replace(ends=np.zeros((0, 0))), WHOLE, WHOLE, earlier, Lost())
        off = np.abs(blind.pooled + blind.above - values)
        assert np.all(off <= 1.96 * blind.deviation)
        assert np.max(off) > 0.03


def test_errors_are_passed_on_by_any_number_of_tails():
    rng = np.random.default_rng(7)
    parts, going = rng.uniform(0.1, 0.9, 6), rng.dirichlet(np.ones(6), 6)
    once = parts[:, None] * going
    assert _led(parts, going) == pytest.approx(sum(np.linalg.matrix_power(once, k) for k in range(400)))
    assert _led(parts, np.zeros((6, 6))) == pytest.approx(np.eye(6))


def test_a_value_is_sampled_by_where_its_people_went_on_too():
    """A hundred went on to .5 or to -.5, with a discount of .8: nothing else is uncertain."""
    sums = stage([100.0, 1e4, 1e4], [0.0, 0.5, -0.5], deviation=1e-3, within=1e-6)
    ends = np.array([[0.0] * 3, [40.0, 0.0, 0.0], [40.0, 0.0, 0.0]])
    sums = sums._replace(discounts=ends.sum(axis=0), ends=ends)
    found = fitted_values(sums, WHOLE, WHOLE, NOTHING._replace(discount=Estimate(0.004, 1e-6)), Lost())
    assert found.deviation[0] == pytest.approx(math.sqrt(0.8 * 0.5**2 / 100.0), rel=0.05)


def test_limits_count_that_a_discount_may_be_more_than_noise_shows():
    """Of a rare state none is released, with an error of .22: all of it may be missing, if people stay as they are."""
    sums = stage([1e4] * 5 + [300.0], [0.5] * 4 + [-0.9, -0.1], deviation=17.0, within=0.01)
    sums = sums._replace(discounts=np.array([1e3] * 5 + [0.0]))
    earlier = NOTHING._replace(tail=Estimate(0.5, 1e-6), discount=Estimate(0.09, 1e-6), filled=0.5)
    found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
    most = 1.645 * 4.0 * 17.0 / 300.0
    assert 1.96 * found.deviation[5] > most / (1.0 - most) * (0.5 - (found.pooled + found.above[5]))


def test_noise_in_discounts_is_an_error_like_others_and_not_a_bias():
    """Values that are .5 from the tail have limits of .044, and if people stay discounts have some that move them .03.

    The discount itself moves them by .01. All together would be .068.
    """
    values = np.repeat([0.5, -0.5], 10)
    sums = stage([1e3] * 20, values, deviation=20.0, within=0.01)._replace(discounts=np.full(20, 20.0))
    earlier = NOTHING._replace(tail=Estimate(0.0, 1e-6), discount=Estimate(0.02, 1e-4))
    found, without = (fitted_values(sums, WHOLE, WHOLE, one, Lost()).deviation for one in (earlier, NOTHING))
    assert np.all(1.96 * without > 0.043)
    assert np.all(1.96 * found < 0.062)
    assert np.all(1.96 * found > 0.01 + math.hypot(1.645 / 1.96 * 0.043, 0.02))


def test_a_value_drawn_to_the_farthest_has_that_and_its_own_mean_s_error():
    """Which is half of it where values may all be alike."""
    found = fitted_values(
        stage([330.0] * 6 + [80.0], [0.02] * 6 + [0.4], deviation=10.0, within=0.01), WHOLE, WHOLE, NOTHING, Lost()
    )
    moved = 0.4 - float(found.pooled + found.above[6])
    assert found.deviation[6] == pytest.approx(math.hypot(moved, 0.5 * moved), rel=0.01)


def test_tails_of_a_state_at_their_value_may_be_worth_something_else():
    """If people stay, its value is certain: they may go on to others, which are .5 from it."""
    values = np.array([0.5, -0.5] * 10 + [0.0])
    sums = stage([1e5] * 21, values, deviation=1.0, within=1e-6)._replace(discounts=np.full(21, 0.3 * 1e5))
    earlier = NOTHING._replace(tail=Estimate(0.0, 1e-9), discount=Estimate(0.3, 1e-9))
    found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
    assert found.above[20] + found.pooled == pytest.approx(0.0, abs=0.01)
    assert found.deviation[20] > 0.5 * 0.3 * 0.5


def test_last_states_that_noise_hides_do_not_narrow_limits():
    """Two classes that people stay in, shrunk: how far tails are is not told by how far values seem."""
    visits, values = np.full(8, 2e3), np.array([0.5] * 4 + [-0.3] * 4)
    going = np.kron(np.eye(2), np.full((4, 4), 0.25))
    sums = stage(visits, values, deviation=60.0, within=0.01, discounts=0.7)
    sums = sums._replace(returns=sums.returns - 0.7 * visits * (going @ values))
    earlier = NOTHING._replace(tail=Estimate(0.0, 1e-2), discount=Estimate(0.7, 1e-6))
    noisy, none = (
        fitted_values(sums._replace(ends=ends), WHOLE, WHOLE, earlier, Lost()).deviation
        for ends in (0.7 * (visits[:, None] * going).T, np.zeros((0, 0)))
    )
    assert np.all(noisy > none)
    assert np.min(none) > 0.9 * np.max(none)


def tails(cut, deviation, *, told, longest=0.0):
    """Errors of four states' values by tails with one discount, whose mean has a variance of .04."""
    ends = np.full((4, 4), 250.0 * cut) if told else np.zeros((0, 0))
    sums = stage([1000.0] * 4, [0.0] * 4, deviation=deviation, discounts=cut)._replace(ends=ends)
    known = _Tails.of(sums, sums.discounts, sums.counts, np.full(4, True))
    none, cuts = np.zeros(4), (np.ones(4), np.full(4, cut), np.zeros(4))
    onward = known.onward(none, Estimate(0.0, 0.04), 0.0, 1.0)
    return known.with_tails(onward, _Errors(none, none, none), cuts, (0.04, none, none, none + longest), (2.0, 2.0))


def test_the_error_of_one_tail_is_in_the_values_of_all_states_that_are_filled_with_it():
    for cut in (0.0, 0.2, 0.5):
        found = tails(cut, 1.0, told=False)
        assert found.deviation == pytest.approx(np.full(4, 0.2 * cut))
        assert found.bias == pytest.approx(np.zeros(4), abs=1e-9)
        assert tails(cut, 1.0, told=True).deviation == pytest.approx(np.zeros(4))


def test_what_tails_may_change_is_said_whichever_bound_limits_are_made_of():
    """If people stay it is .3, and .4 from any state that is seen: the smaller is said, though only one is a bias."""
    found = tails(0.2, 1.0, told=False, longest=0.3)
    assert found.unseen == pytest.approx(np.full(4, 0.3))
    assert found.bias == pytest.approx(np.zeros(4), abs=1e-9)
    assert found.estimated == pytest.approx(np.full(4, 0.04))
    assert np.all(found.deviation > 2.0 * found.estimated)


def test_tails_with_large_discounts_are_known_only_where_last_states_are_told_well():
    """The noise in all of a state's discounts by last state is 4 sqrt(4) of the deviation, of a thousand visits."""
    assert tails(0.8, 1.0, told=True).bias == pytest.approx(np.zeros(4), abs=1e-9)
    for deviation, told in ((1.0, False), (30.0, True)):
        assert tails(0.8, deviation, told=told).bias == pytest.approx(np.full(4, 0.8 * 2.0))
    assert tails(0.92, 0.1, told=True).bias == pytest.approx(np.full(4, 0.92 * 2.0))


def test_noise_of_all_last_states_does_not_hide_tails_of_which_it_is_a_small_part():
    """It is .13 of a visit, and of tails of .85: where people went on is known, and how many by another number."""
    assert tails(0.85, 10.0, told=True).bias == pytest.approx(np.zeros(4), abs=1e-9)
    known = _Tails.of(
        stage([1000.0] * 4, [0.0] * 4, deviation=10.0)._replace(ends=np.full((4, 4), 212.5)),
        np.full(4, 850.0),
        np.full(4, 1000.0),
        np.full(4, True),
    )
    for discount, error, told in ((0.85, 0.03, True), (0.85, 0.07, False), (0.93, 0.03, False), (0.3, 1.0, True)):
        assert np.all(known.resolved(np.full(4, discount), np.full(4, error)) == told)


def test_no_matrix_of_states_is_formed_where_last_states_are_not_told():
    """They may be a hundred thousand, and the budget is spent by then."""
    n_states = 2_000
    sums = stage(np.full(n_states, 100.0), np.zeros(n_states), deviation=1.0, discounts=0.5)
    tracemalloc.start()
    fitted_values(sums, WHOLE, WHOLE, NOTHING._replace(discount=Estimate(0.5, 1e-6)), Lost())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_states**2


def test_tails_of_states_that_are_hardly_followed_may_be_worth_anything():
    """All people are truncated in the last of three states: what comes next nobody saw."""
    counts, going = np.full(3, 1e4), np.zeros((3, 3))
    going[:, 2] = 0.4, 0.6, 0.9
    sums = stage(counts, np.zeros(3), deviation=1.0, within=0.01)
    sums = sums._replace(discounts=1e4 * going.sum(axis=1), ends=1e4 * going.T)
    earlier = NOTHING._replace(tail=Estimate(0.0, 1e-6), discount=Estimate(0.63, 1e-6))
    found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
    assert np.all(1.96 * found.deviation > [0.4, 0.6, 0.9])
    # Followed for longer, all are known to be worth what they are; or if they went on to others.
    for longer in (going * np.array([1.0, 1.0, 0.5])[:, None], going[:, [2, 1, 0]] * [[1.0], [1.0], [0.0]]):
        near = sums._replace(discounts=1e4 * longer.sum(axis=1), ends=1e4 * longer.T)
        assert np.all(1.96 * fitted_values(near, WHOLE, WHOLE, earlier, Lost()).deviation < 0.1)
    # Unless a state where people may be is not visited enough.
    rare = sums._replace(counts=np.array([1e4, 1e4, 1.0]))
    assert fitted_values(rare, WHOLE, WHOLE, earlier, Lost()).deviation[0] > 0.2


def test_limits_include_what_tails_may_be_worth_if_last_states_are_not_known():
    """Two classes of states that people never change between, and a tail of all."""
    values, discounts = np.array([0.5] * 30 + [-0.5] * 30), 0.1
    sums = stage(np.full(60, 1000.0), values, deviation=1.0)
    filled = sums._replace(returns=sums.returns - discounts * 1000.0 * values, discounts=np.full(60, 100.0))
    earlier = NOTHING._replace(tail=Estimate(0.0, 1e-8), discount=Estimate(discounts, 1e-6))
    found = fitted_values(filled, WHOLE, WHOLE, earlier, Lost())
    off = np.abs(found.pooled + found.above - values)
    assert np.all(off > 0.04)
    assert np.all(off <= 1.96 * found.deviation)
    assert np.all(1.96 * found.deviation < 0.07)
    assert found.unseen == pytest.approx(0.05, rel=0.2)


def test_limits_of_values_known_well_do_not_widen_by_how_far_others_are():
    """Values are up to .5 apart and known to .01; a tenth was cut, and where people went on is not known."""
    values, discounts = np.linspace(-0.5, 0.5, 40), 0.1
    sums = stage(np.full(40, 1000.0), values, deviation=10.0)
    sums = sums._replace(returns=sums.returns - discounts * 1000.0 * values, discounts=np.full(40, 100.0))
    earlier = NOTHING._replace(tail=Estimate(0.0, 1e-8), discount=Estimate(discounts, 1e-6))
    found = fitted_values(sums, WHOLE, WHOLE, earlier, Lost())
    off = np.abs(found.pooled + found.above - values)
    assert np.all(off <= 1.96 * found.deviation)
    middle = np.abs(values) < 0.1
    assert np.all(1.96 * found.deviation[middle] < 0.04)
