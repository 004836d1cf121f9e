"""Private matching pursuit: what one person moves in every stage, what is drawn, and what is found."""

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from dpfast import Privacy, io
from dpfast.kernels.columns import FixedPoint
from dpfast.noise import SeededSource, resolve_source
from dpfast.privacy import gaussian_mu, keeps_to, picks_delta, range_mu
from dpfast.releases.mechanism import NoisySum, release
from dpfast.releases.pursuit import FeaturePick, PursuedRows, Pursuit
from dpfast.statistics.rows import RowMap

ADJACENCIES = ["replace_one", "add_remove"]
CLIPPED = RowMap(np.array([-1.0]), np.array([1.0]))


def table(n=3000, p=12, outcomes=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, p))
    theta = np.zeros((p, outcomes))
    theta[[2, 5]] = [[0.9], [-0.6]]
    return x, x @ theta + 0.2 * rng.normal(size=(n, outcomes))


def pursuit(privacy, shape, size=2, n_rows=None, row_bound=math.inf, share=0.5, **options):
    entry_bound = min(1.0, row_bound)
    return Pursuit(privacy, size, shape, entry_bound, row_bound, 2.0, n_rows, share, **options)


def rows_of(x, y, row_bound=math.inf, **options):
    row_map = CLIPPED if row_bound == math.inf else RowMap(bound=row_bound)
    return PursuedRows(io.open_table(x, y), row_map, RowMap(bound=2.0), 1, **options)


def log_odds(pick, sums):
    scores = np.linalg.norm(sums.to_float64(), axis=1)
    candidates = [j for j in range(len(scores)) if j not in pick.picked]
    return log_softmax(pick.rate * scores[candidates])


def moved_mu(mechanism, one, other):
    """Gaussian-DP parameter of what a stage makes of two neighbours; of a pure one its epsilon, of a pick its range."""
    if isinstance(mechanism, FeaturePick):
        return float(np.ptp(log_odds(mechanism, one) - log_odds(mechanism, other)))
    if isinstance(mechanism, NoisySum):
        change = one.to_float64() - other.to_float64()
        if mechanism.law == "Laplace":
            return np.abs(change).sum() / mechanism.scale
        return np.linalg.norm(change) / mechanism.scale
    scales = mechanism.scales
    blocks = [getattr(one, name) - getattr(other, name) for name in scales]
    if mechanism.law == "L2-Laplace":
        units = [scale / mechanism.deviations.xx for scale in scales.values()]
        return math.hypot(*(np.linalg.norm(b) / u for b, u in zip(blocks, units, strict=True))) / mechanism.joint_scale
    return math.hypot(*(np.linalg.norm(block) / scale for block, scale in zip(blocks, scales.values(), strict=True)))


def budgeted_mu(mechanism):
    if isinstance(mechanism, FeaturePick):
        return mechanism.privacy.epsilon
    return gaussian_mu(*mechanism.privacy.target) if mechanism.privacy.delta else mechanism.privacy.epsilon


def all_keep_to(releases, privacy):
    ranges = [one.log_range for one in releases]
    return keeps_to([one.privacy for one in releases], [one.mu for one in releases], privacy, ranges)


PEOPLE = [
    (np.ones(12), 1e9),
    (-np.ones(12), 1e9),
    (np.ones(12), -5.0),
    (np.r_[np.ones(6), -np.ones(6)] * 1e9, 1e9),
    (np.r_[-np.ones(6), np.ones(6)], 1e9),
    (np.where(np.arange(12) == 2, 1.0, 0.0), 3.0),
    (np.zeros(12), 0.0),
]


@pytest.mark.parametrize(("row_bound", "constant"), [(math.inf, 0.0), (1.5, 0.0), (math.inf, 0.25), (1.5, 0.75)])
@pytest.mark.parametrize("outcomes", [1, 2])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_stage_moves_beyond_its_part_of_the_budget(adjacency, delta, outcomes, row_bound, constant):
    """Whatever was released before, and whoever takes whose place; for picks of extreme people no less either."""
    x, y = table(outcomes=outcomes)
    privacy = Privacy(2.0, delta, adjacency)
    n = len(x) + 1 if adjacency == "replace_one" else None
    mechanism = pursuit(privacy, (12, outcomes), n_rows=n, row_bound=row_bound, constant=constant)
    public, rows = adjacency == "replace_one", partial(rows_of, row_bound=row_bound, constant=constant)
    tables = [rows(np.vstack([x, row]), np.vstack([y, np.full(outcomes, out)])) for row, out in PEOPLE]
    pairs = list(itertools.combinations(tables, 2)) if public else [(rows(x, y), one) for one in tables]
    stages = mechanism.stages()
    stage, releases, most = next(stages), [], {}
    while True:
        moved = [moved_mu(stage.mechanism, *map(stage.statistic, pair)) for pair in pairs]
        assert max(moved) <= budgeted_mu(stage.mechanism) * (1.0 + 1e-9), stage.name
        most[stage.name] = max(moved) / budgeted_mu(stage.mechanism)
        releases.append(stage.mechanism.release(stage.statistic(tables[0]), resolve_source(None), stage.name))
        allowed = releases[-1].log_range or releases[-1].mu
        assert allowed is None or allowed <= budgeted_mu(stage.mechanism) * (1.0 + 1e-9)
        try:
            stage = stages.send(releases[-1])
        except StopIteration:
            break
    assert all_keep_to(releases, privacy)
    if row_bound == math.inf:
        # About an intercept, no size of these few people is at both ends of what is picked.
        assert most["feature 1"] > (0.5 if constant else 0.999)
        assert most["sizes of residuals, round 1"] > 0.999
    if constant and public:
        assert most["moments of residuals, round 0"] > 0.4


@pytest.mark.parametrize(
    ("delta", "row_bound", "constant"), [(1e-6, math.inf, 0.0), (0.0, math.inf, 0.25), (1e-6, 1.5, 0.25)]
)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_person_moves_a_stage_beyond_its_part_of_the_budget(adjacency, delta, row_bound, constant):
    """With all their rows, of which three count: alike, opposed, few or many."""
    x, y = table(n=200)
    mechanism = pursuit(Privacy(4.0, delta, adjacency), (12, 1), row_bound=row_bound, max_rows=3, constant=constant)
    persons = [[one] * k for one in PEOPLE for k in (1, 3)] + [PEOPLE[:3], PEOPLE[3:5] * 2, PEOPLE[::-1]]

    def with_person(person):
        own = np.array([row for row, _ in person]).reshape(-1, 12), np.array([[out] for _, out in person])
        whose = np.append(1 + np.arange(len(x)) // 2, np.zeros(len(person), int))
        both = np.vstack([x, own[0]]), np.vstack([y, own[1].reshape(-1, 1)])
        return rows_of(*both, row_bound, groups=whose, max_rows=3, constant=constant)

    tables = [with_person(person) for person in persons]
    public = adjacency == "replace_one"
    pairs = [(tables[1], one) for one in tables[2:]] if public else [(with_person([]), one) for one in tables]
    stages = mechanism.stages()
    stage, releases, most = next(stages), [], {}
    while True:
        moved = [moved_mu(stage.mechanism, *map(stage.statistic, pair)) for pair in pairs]
        assert max(moved) <= budgeted_mu(stage.mechanism) * (1.0 + 1e-9), stage.name
        assert getattr(stage.mechanism, "unit", "person") == "person"
        most[stage.name] = max(moved) / budgeted_mu(stage.mechanism)
        releases.append(stage.mechanism.release(stage.statistic(tables[0]), resolve_source(None), stage.name))
        assert releases[-1].unit == "person"
        try:
            stage = stages.send(releases[-1])
        except StopIteration:
            break
    assert all_keep_to(releases, mechanism.privacy)
    assert most["sizes of residuals, round 1"] > 0.999
    if row_bound == math.inf:
        assert most["feature 1"] > 0.999


def test_rows_beyond_the_most_are_in_no_sum():
    x, y = table(n=40)
    whose = np.arange(40) % 10
    kept = np.arange(40) < 20
    tables = [rows_of(x, y, groups=whose, max_rows=2), rows_of(x[kept], y[kept], groups=whose[kept], max_rows=2)]
    tables.append(rows_of(np.where(kept[:, None], x, 9.0), np.where(kept[:, None], y, -9.0), groups=whose, max_rows=2))
    mechanism = pursuit(Privacy(4.0, 1e-6), (12, 1), max_rows=2)
    stages = mechanism.stages()
    stage = next(stages)
    for _ in range(3):
        first, *others = (stage.statistic(one) for one in tables)
        for other in others:
            if isinstance(first, FixedPoint):
                np.testing.assert_array_equal(first.to_float64(), other.to_float64())
            else:
                assert first == other
        stage = stages.send(stage.mechanism.release(first, resolve_source(1), stage.name))


def test_more_rows_of_a_person_than_sums_have_room_for_are_refused_at_once():
    with pytest.raises(ValueError, match="max_rows must be at most"):
        pursuit(Privacy(1.0, 1e-6), (12, 1), max_rows=1 << 20)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_pick_has_the_odds_of_its_scores(adjacency):
    """A part of m moves scores by 2 m in either direction, or by m; of what was picked there is nothing."""
    pick = FeaturePick.calibrate(Privacy(3.0, 0.0, adjacency), 0.5, (4, 2), 1000, picked=(1,))
    length = pick.rate * 0.5 * (4.0 if adjacency == "replace_one" else 2.0)
    assert length == pytest.approx(3.0, rel=1e-6)
    assert length <= 3.0
    sums = FixedPoint.from_integers([[3, 4], [900, 0], [0, 6], [7, 0]], -2)
    drawn = [pick.release(sums, SeededSource(seed), "a pick").values["feature"] for seed in range(3000)]
    counts = np.bincount(np.array(drawn), minlength=4)
    odds = np.exp(pick.rate * np.array([1.25, 1.5, 1.75]))
    assert counts[1] == 0
    # Fails by chance once in a million seeds: they are fixed.
    assert stats.chisquare(counts[[0, 2, 3]], 3000 * odds / odds.sum()).pvalue > 1e-6
    release = pick.release(sums, SeededSource(0), "a pick")
    assert (release.mu, release.log_range, release.reproducible) == (range_mu(3.0), 3.0, True)
    assert release.privacy == Privacy(3.0, 0.0, adjacency)
    assert not pick.release(sums, resolve_source(None), "a pick").reproducible


def test_a_pick_allows_for_the_rounding_of_norms():
    privacies = [Privacy(1.0, 0.0, one) for one in ADJACENCIES]
    exact = [FeaturePick.calibrate(one, 1.0, (3, 1), 1) for one in privacies]
    many = [FeaturePick.calibrate(one, 1.0, (3, 1000), 2**30) for one in privacies]
    private = [FeaturePick.calibrate(one, 1.0, (3, 1000), None) for one in privacies]
    assert [one.rate for one in private] == [one.rate for one in many]
    for one, other, length in zip(exact, many, (4.0, 2.0), strict=True):
        assert 1.0 / one.rate == pytest.approx(length, rel=1e-12)
        assert 1.0 / other.rate - 1.0 / one.rate == pytest.approx(4.0 * 2**30 * 1008 * 2.0**-53, rel=1e-3)


def test_sums_of_another_shape_are_refused():
    pick = FeaturePick.calibrate(Privacy(1.0), 1.0, (3, 1), 10)
    with pytest.raises(ValueError, match="shape"):
        pick.release(FixedPoint.zeros((4, 1), 0), SeededSource(0), "a pick")


@pytest.mark.parametrize("outcomes", [1, 2])
def test_what_is_solved_is_a_function_of_the_releases(outcomes):
    x, y = table(outcomes=outcomes)
    mechanism = pursuit(Privacy(2.0, 1e-6), (12, outcomes), n_rows=len(x))
    # With other seeds, one fit in a hundred is off by more than is allowed here.
    releases = release(mechanism, rows_of(x, y), SeededSource(0), "pursuit")
    assert len({one.name for one in releases}) == len(releases)
    first, again = (mechanism.solve(releases) for _ in range(2))
    assert first.features == again.features
    assert np.array_equal(first.theta, again.theta)
    assert sorted(first.features) == [2, 5]
    wanted = {2: 0.9, 5: -0.6}
    np.testing.assert_allclose(first.theta, [[wanted[one]] * outcomes for one in first.features], atol=0.05)


def test_a_feature_is_found_that_another_hides():
    """Of two that are alike, once the first is picked, the third that matters comes before the second."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1.0, 1.0, (8000, 6))
    x[:, 1] = 0.95 * x[:, 0] + 0.05 * x[:, 1]
    y = x[:, :1] + 0.3 * x[:, 3:4]
    mechanism = pursuit(Privacy(4.0, 1e-6), (6, 1), n_rows=8000)
    releases = release(mechanism, rows_of(x, y), SeededSource(1), "pursuit")
    assert [int(one.values["feature"]) for one in releases if "feature" in one.values] in ([0, 3], [1, 3])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_all_of_the_budget_is_used(delta, size, share):
    mechanism = pursuit(Privacy(1.0, delta), (12, 1), size, 3000, share=share)
    parts = mechanism._parts
    each = [parts.sizes] * size + [parts.moments] * (size - 1) + [parts.fit]
    spent = [gaussian_mu(*one.target) ** 2 if delta else one.epsilon for one in each]
    if delta == 0.0:
        assert sum(spent) == pytest.approx(1.0 - share, rel=1e-6)
        assert size * parts.pick == pytest.approx(share, rel=1e-6)
        return
    mu = math.sqrt(sum(spent))
    assert 0.97 * delta < picks_delta(1.0, parts.pick, size, mu) <= delta
    shared = replace(mechanism, by_mu=True)._parts
    assert size * range_mu(shared.pick) ** 2 == pytest.approx(share * gaussian_mu(1.0, delta) ** 2, rel=1e-5)


@pytest.mark.parametrize("entries", [[math.inf, -math.inf], [math.nan, 0.0]])
def test_rows_that_are_not_finite_are_refused_without_a_warning(entries):
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        rows_of(np.array([entries, [1.0, 0.0]]), np.ones((2, 1)))


def test_rows_whose_sum_is_beyond_floats_are_taken():
    assert rows_of(np.full((2, 2), 1e308), np.ones((2, 1))).outcomes.tolist() == [[1.0], [1.0]]
