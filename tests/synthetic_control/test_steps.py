"""What is released before the donors' moments, their mean path and the lengths of their rows: all in one budget."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from scipy import stats

from dpfast import Privacy, SyntheticControl
from dpfast.datasets import synthetic_control_panel
from dpfast.noise import SeededSource
from dpfast.privacy import gaussian_mu
from dpfast.privacy.composition import keeps_to
from dpfast.releases.mechanism import NoisySum, release, run
from dpfast.statistics import rounded_bound
from dpfast.statistics.norm_histograms import LogarithmicBins
from dpfast.synthetic_control.mechanism import CrossSection, DonorRows, sum_donors
from dpfast.synthetic_control.steps import (
    DECAY,
    SPREAD,
    VARIATION,
    Donors,
    DonorSteps,
    count_donors,
    count_lengths,
    count_part_lengths,
    count_ratios,
    length_bins,
    sum_paths,
    typical_length,
    unexplained_variance,
    usual_error,
)

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")

N_PRE, N_POST = 4, 2
T = N_PRE + N_POST
ADJACENCIES = ["replace_one", "add_remove"]
OPTIONS = {
    "lengths": {"center": None},
    "mean": {"center": "private", "row_bound": None},
    "mean, lengths": {"center": "private"},
    "mean, if it pays": {},
    "mean, if it pays, nonnegative": {"nonnegative": True},
    "ranks": {"center": None, "row_bound": None, "placebo_share": 0.3},
    "mean, if it pays, ranks": {"placebo_share": 0.3},
}
NUMBER, LENGTHS, PATH = "number of donors", "lengths of donors", "mean path of donors"
ABOUT, PARTS = "lengths of donors about their mean path", "lengths of donors before and after the intervention"
MOMENTS, ERRORS = "moments of donors before and across the intervention", "errors of donors' predictions"


def steps_of(adjacency="replace_one", delta=1e-6, n=40, nonnegative=False, epsilon=1.0, **options):
    rows = DonorRows(0.0, 1.0, N_PRE, N_POST, nonnegative=nonnegative)
    private = {"center": "auto" if options.get("row_bound", "") == "" else None, "row_bound": "private"} | options
    n_donors = n if adjacency == "replace_one" else None
    return DonorSteps(Privacy(epsilon, delta, adjacency), rows, n_donors=n_donors, **private)


def released(steps, donors, seed=0):
    return release(steps, Donors(np.asarray(donors, np.float64), 1), SeededSource(seed), "fit")


def names(releases):
    return [one.name.removeprefix("fit: ") for one in releases]


def panel(n=40, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, T))


def near(n=4000, seed=0):
    """Donors near a common path."""
    return np.random.default_rng(seed).normal(0.4, 0.02, (n, T))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("donors", [panel(), near()], ids=["few", "many"])
def test_all_steps_together_cost_what_was_asked(donors, name, delta, adjacency):
    steps = steps_of(adjacency, delta, len(donors), **OPTIONS[name])
    releases = released(steps, donors)
    assert [one.name.startswith("fit: ") for one in releases] == [True] * len(releases)
    assert len({one.name for one in releases}) == len(releases)
    assert keeps_to([one.privacy for one in releases], [one.mu for one in releases], steps.privacy)
    # And no less, but for rounding.
    if delta:
        together = math.sqrt(math.fsum(one.mu**2 for one in releases))
        assert together == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)
    else:
        assert math.fsum(one.privacy.epsilon for one in releases) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_step_is_taken_where_there_are_donors_enough_for_it(adjacency):
    counted = [NUMBER] if adjacency == "add_remove" else []
    few, many = (names(released(steps_of(adjacency, n=n), near(n))) for n in (40, 4000))
    assert few == [*counted, LENGTHS, MOMENTS]
    assert many == [*counted, LENGTHS, PATH, ABOUT, PARTS, MOMENTS]
    # Where delta is 0 shares are of epsilon itself.
    assert names(released(steps_of(adjacency, 0.0, 4000), near(4000)))[-1] == MOMENTS
    # Asked for, the mean path is released in any case; without a length it is summed as the range allows.
    requested = names(released(steps_of(adjacency, center="private"), near(40)))
    assert requested == [*counted, LENGTHS, PATH, MOMENTS]
    assert names(released(steps_of(adjacency, center=None, row_bound=(1.0, 1.0)), near(40))) == [MOMENTS]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_rule_looks_at_donors_or_their_number_where_that_is_private(adjacency):
    """Shares, and how many releases there are, follow from what was released: the same releases, the same queries."""
    steps, donors = steps_of(adjacency, n=4000), near()
    releases = released(steps, donors)
    again = names(releases), [one.privacy for one in releases]
    other = released_alike(steps, near(10 if adjacency == "add_remove" else 4000, seed=1), releases)
    assert other == again


def released_alike(steps, donors, releases):
    """Ask a mechanism's queries, read the data for each, and answer it with what was released of other donors."""
    stages, requested, left = steps.stages(), [], iter(releases)
    query = next(stages)
    while True:
        query.statistic(Donors(donors, 1))
        requested.append((query.name, query.mechanism.privacy))
        try:
            query = stages.send(next(left))
        except StopIteration:
            return [name for name, _ in requested], [privacy for _, privacy in requested]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("least", "origin", "bound"), [(-1.0, 0.0, math.sqrt(T)), (0.0, 0.5, 0.5 * math.sqrt(T)), (-1.0, 0.0, 0.3)]
)
def test_no_donor_moves_the_sum_of_paths_further_than_is_calibrated(least, origin, bound, adjacency):
    rows = DonorRows(0.0, 1.0, N_PRE, N_POST, nonnegative=least == 0.0)
    noise = NoisySum.calibrate(Privacy(1.0, 1e-6, adjacency), rounded_bound(bound, T), (T,))
    most = noise.scale * noise.mu
    rng = np.random.default_rng(1)

    def moved(one, other):
        here, there = ([*panel(3), one], [*panel(3), other] if adjacency == "replace_one" else panel(3))
        sums = [sum_paths(np.asarray(table), rows, origin, bound, 1).to_float64() for table in (here, there)]
        return float(np.linalg.norm(sums[0] - sums[1]))

    assert climb(lambda values: moved(*3.0 * values.reshape(2, T)), 2 * T, rng, restarts=1, screened=20)[0] <= most
    # It is attained by a donor at one end of the range throughout, who goes to the other, or away.
    ends = moved(np.ones(T), np.full(T, least))
    assert most * (1.0 - 1e-5) <= ends <= most


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_mean_path_and_counts_are_drawn_for_what_a_donor_moves(adjacency):
    """What the steps calibrate is the noise of the tests above and below: for these bounds, these histograms."""
    twice = 2.0 if adjacency == "replace_one" else 1.0
    releases = dict(zip(names(each := released(steps_of(adjacency, n=4000), near())), each, strict=True))
    moves = {one: releases[one].scales["sum"] * releases[one].mu for one in releases if one != MOMENTS}
    assert moves[LENGTHS] == pytest.approx(math.sqrt(twice), rel=1e-9)
    assert moves[ABOUT] == pytest.approx(math.sqrt(twice), rel=1e-9)
    assert moves[PARTS] == pytest.approx(math.sqrt(2.0 * twice), rel=1e-9)
    # Half an octave above rows of length .4 sqrt(6), .98.
    assert moves[PATH] == pytest.approx(twice * 1.0, rel=1e-5)
    if adjacency == "add_remove":
        assert moves[NUMBER] == pytest.approx(1.0, rel=1e-9)
    for nonnegative, farthest in ((False, 1.0), (True, 0.5)):
        # Without a norm that is certain: rows as long as the range allows, about its middle.
        few = released(steps_of(adjacency, n=6, nonnegative=nonnegative, center="private"), panel(6))
        (path,) = [one for one in few if one.name == f"fit: {PATH}"]
        assert path.scales["sum"] * path.mu == pytest.approx(twice * farthest * math.sqrt(T), rel=1e-5)
    ranked = released(steps_of(adjacency, placebo_share=0.3), panel())[-1]
    assert ranked.scales["sum"] * ranked.mu == pytest.approx(math.sqrt(twice), rel=1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_donor_moves_the_counts_of_lengths_further_than_is_calibrated(adjacency):
    rows = DonorRows(0.0, 1.0, N_PRE, N_POST).ways(None, None)[0]
    bins, rng = length_bins(rows), np.random.default_rng(2)
    center = np.linspace(-0.5, 0.5, T)
    histograms = {
        1.0: lambda table: count_lengths(table, rows, center, bins, 1),
        2.0: lambda table: count_part_lengths(table, rows, bins, 1),
    }
    for number, counted in histograms.items():
        largest = 0.0
        for _ in range(100):
            one, other = rng.normal(size=(2, T)) * 10.0 ** rng.uniform(-9.0, 1.0, (2, 1))
            here, there = ([*panel(3), one], [*panel(3), other] if adjacency == "replace_one" else panel(3))
            counts = [counted(np.asarray(table)).to_float64() for table in (here, there)]
            assert counts[0].sum() == 4.0 * number
            largest = max(largest, float(np.linalg.norm(counts[0] - counts[1])))
        assert largest == pytest.approx(math.sqrt(number * (2.0 if adjacency == "replace_one" else 1.0)))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_noise_of_every_step_has_the_calibrated_law(adjacency, delta):
    steps, donors = steps_of(adjacency, delta, n=6, center="private"), panel(6)
    rows = steps.rows.ways(None, None)[0]
    exact = {
        NUMBER: count_donors(donors).to_float64(),
        LENGTHS: count_lengths(donors, rows, None, length_bins(rows), 1).to_float64(),
        # Of so few donors no length is certain: they are summed as the range allows.
        PATH: sum_paths(donors, rows, 0.0, math.sqrt(T), 1).to_float64(),
    }
    noises = {name: [] for name in exact if name != NUMBER or adjacency == "add_remove"}
    for seed in range(100):
        releases = released(steps, donors, seed)
        by_name = dict(zip(names(releases), releases, strict=True))
        for name, found in noises.items():
            one = by_name[name]
            found.append((one.values["sum"] - exact[name]).ravel()[::8] / one.scales["sum"])
            law = one.mechanism
            if law == "Gaussian" or name == LENGTHS:
                assert law == ("Gaussian" if delta else "Laplace")
    for name, found in noises.items():
        standard = np.ravel(found)
        if not delta and name != LENGTHS:
            # Uncorrelated with unit variance; six standard errors of the mean square, as tails are heavy.
            assert np.mean(standard**2) == pytest.approx(1.0, abs=6.0 * 3.0 / 10.0)
        else:
            law = "norm" if delta else stats.laplace(scale=math.sqrt(0.5)).cdf
            # Kolmogorov-Smirnov: false-reject rate 1e-6 in each of eight cases.
            assert stats.kstest(standard, law).pvalue > 1e-6


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("center", ["auto", "private"])
def test_with_a_large_budget_the_centre_is_the_mean_and_the_norms_are_typical(center, nonnegative, adjacency):
    donors = 0.5 + 0.2 * panel(400)
    steps = steps_of(adjacency, n=400, nonnegative=nonnegative, epsilon=1e9, center=center)
    rows = steps.solve(released(steps, donors)).rows
    # The few that are longer than half of them are held to that length as the mean is taken.
    np.testing.assert_allclose(rows.center, donors.mean(axis=0), atol=0.02)
    for part, bound in zip(
        np.split(donors - rows.center, [N_PRE], axis=1), (rows.bound_pre, rows.bound_post), strict=True
    ):
        longer = np.mean(np.linalg.norm(part, axis=1) > bound)
        further = np.mean(np.linalg.norm(part, axis=1) > bound / math.sqrt(2.0))
        # Without noise to speak of a twentieth are clipped_to_norm.
        assert longer <= 0.05 < further + 0.01


def test_donors_far_from_their_mean_are_summed_about_the_middle():
    """Where half the length about the middle is not saved, the mean path was for nothing: its share is small then."""
    steps, donors = steps_of(n=4000), 0.3 * panel(4000)
    releases = released(steps, donors)
    rows = steps.solve(releases).rows
    assert names(releases) == [LENGTHS, PATH, ABOUT, PARTS, MOMENTS]
    assert rows.center is None
    assert releases[-1].mu ** 2 > 0.9 * math.fsum(one.mu**2 for one in releases)
    assert np.all(rows.path == 0.0)


def test_lengths_that_are_not_certain_leave_rows_as_long_as_the_range_allows():
    rng = np.random.default_rng(0)
    for seed in range(20):
        steps = steps_of(n=20)
        rows = steps.solve(released(steps, 1e-3 * rng.normal(size=(20, T)), seed)).rows
        # Never the least size, which is no scale; noise may stand for donors of any length but short ones.
        assert rows.bound_pre > 0.1
    zeros = steps_of(n=4000)
    rows = zeros.solve(released(zeros, np.zeros((4000, T)))).rows
    assert (rows.bound_pre, rows.bound_post) == pytest.approx((math.sqrt(N_PRE), math.sqrt(N_POST)))


def test_a_mean_that_is_noise_is_taken_to_the_middle_of_the_range():
    steps = steps_of(n=5, nonnegative=True, center="private")
    centers = [steps.solve(released(steps, np.full((5, T), 0.9), seed)).rows.center for seed in range(30)]
    assert np.all((np.array(centers) >= 0.0) & (np.array(centers) <= 1.0))
    # The six entries of pure noise are that short a third of the time: not in one of thirty fits, once in 100,000.
    assert any(np.all(center == 0.5) for center in centers)


def test_rows_beyond_their_norms_are_scaled_by_one_factor():
    """What a donor says of the prediction stays: its later periods are the same multiple of its earlier ones."""
    rows = DonorRows(0.0, 1.0, N_PRE, N_POST).ways(None, (0.5, 3.0))[0]
    pre, post = np.full((1, N_PRE), 0.8), np.full((1, N_POST), 0.4)
    sums = sum_donors(np.hstack([pre, post]), rows, 1)
    np.testing.assert_allclose(sums.xy, sums.xx[:, :N_POST] / 2.0, rtol=1e-5)
    assert np.trace(sums.xx) == pytest.approx(0.25, rel=1e-5)


def test_nothing_shrinks_towards_what_happened_to_the_target():
    """Summed about the target's own path, moments are brought back: its effect is not that of its own outcomes."""
    donors, target, signal = synthetic_control_panel(3000, 10, seed=0)
    changed = target + np.r_[np.zeros(10), [0.5, 0.5, 0.5]]
    for own in (target, changed):
        for epsilon in (1e6, math.inf):
            fit = SyntheticControl(epsilon, 1e-6, center="target", random_state=0).fit(donors, 10, own)
            np.testing.assert_allclose(fit.predict(own[:10]), signal[10:], atol=0.05)
            assert np.all(fit.center_ == 0.0)


# Donors' own errors, and a target's rank among them.


def by_hand(solution, series):
    pre, post = series[:N_PRE], series[N_PRE:]
    path, earlier = solution.rows.path[N_PRE:], pre - solution.rows.path[:N_PRE]
    after = post - path - solution.coef @ earlier
    before = earlier - solution.pre_coef @ earlier
    return math.sqrt(np.mean(after**2) / np.mean(before**2))


def test_ratios_are_of_root_mean_squared_errors():
    steps = steps_of(placebo_share=0.3)
    solution = steps.solve(released(steps, panel()))
    series = panel(7, seed=5)
    np.testing.assert_allclose(
        solution.errors_of_series.ratios(series), [by_hand(solution, one) for one in series], rtol=1e-9
    )
    # Beyond the range a series counts as at its end; and one that is predicted without error has a ratio too.
    np.testing.assert_array_equal(
        solution.errors_of_series.ratios(9.0 * series),
        solution.errors_of_series.ratios(np.clip(9.0 * series, -1.0, 1.0)),
    )
    assert np.isfinite(solution.errors_of_series.ratios(solution.rows.path[None, :])).all()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_donor_moves_the_counts_of_errors_further_than_is_calibrated(adjacency):
    steps = steps_of(adjacency, placebo_share=0.3)
    errors = steps.solve(released(steps, panel())).errors_of_series
    rng = np.random.default_rng(3)
    largest = 0.0
    for _ in range(100):
        one, other = rng.normal(size=(2, T)) * 10.0 ** rng.uniform(-6.0, 1.0, (2, T))
        here, there = ([*panel(3), one], [*panel(3), other] if adjacency == "replace_one" else panel(3))
        counts = [count_ratios(np.asarray(table), errors, 1).to_float64() for table in (here, there)]
        assert counts[0].sum() == 4.0
        largest = max(largest, float(np.linalg.norm(counts[0] - counts[1])))
    assert largest == (math.sqrt(2.0) if adjacency == "replace_one" else 1.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_tails_count_donors_with_a_ratio_as_large(adjacency):
    steps, donors = steps_of(adjacency, epsilon=1e9, n=500, placebo_share=0.3), panel(500)
    solution = steps.solve(released(steps, donors))
    ratios = np.sort(solution.errors_of_series.ratios(donors))
    found, deviation = solution.errors.tail(ratios)
    # A bin is a quarter of an octave wide, and counted as a whole.
    exact, wider = (np.array([np.sum(ratios >= one) for one in room * ratios]) for room in (1.0, 2.0**-0.25))
    assert np.all((found >= exact - 0.01) & (found <= wider + 0.01))
    assert solution.number == pytest.approx(500, abs=0.01)
    assert np.all(np.diff(deviation) <= 0.0)


def test_norms_are_read_off_noisy_counts():
    """Donors whose median length is near the edge of a bin: noise decides on which side it is read."""
    donors = np.random.default_rng(0).lognormal(-2.0, 1.0, (500, 1)) * np.ones((500, T))
    bounds = set()
    for seed in range(20):
        steps, again = (steps_of(n=500, center=None, epsilon=2.0) for _ in range(2))
        releases, tell = run(steps, Donors(donors, 1), SeededSource(seed), "fit")
        rows, other = tell().rows, again.solve(releases).rows
        assert (rows.bound_pre, rows.bound_post) == (other.bound_pre, other.bound_post)
        bounds.add(rows.bound_pre)
    assert len(bounds) > 1


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n", [40, 2000])
def test_all_that_is_told_follows_from_what_was_released(n, name, adjacency):
    steps, donors = steps_of(adjacency, n=n, **OPTIONS[name]), near(n)
    releases, tell = run(steps, Donors(donors, 1), SeededSource(0), "fit")
    one, other = tell(), steps_of(adjacency, n=n, **OPTIONS[name]).solve(releases)
    for part in ("coef", "pre_coef", "xx", "xy", "number", "ridge", "error"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
    np.testing.assert_array_equal(one.rows.path, other.rows.path)
    assert (one.rows.bound_pre, one.rows.bound_post) == (other.rows.bound_pre, other.rows.bound_post)
    if one.errors is not None:
        np.testing.assert_array_equal(one.errors.counts, other.errors.counts)
    assert releases[names(releases).index(MOMENTS)].scales == one.section.scales


def test_a_target_that_was_changed_is_the_last_among_donors():
    donors, target, _ = synthetic_control_panel(10_000, 10, seed=0)
    estimator = SyntheticControl(1.0, 1e-6, placebo_share=0.1, random_state=0)
    fitted = estimator.fit(donors, 10, target)
    others = synthetic_control_panel(200, 10, seed=1).donors
    unchanged = fitted.placebo_ranks(others)
    # As any rank: of 200 the share is known to 0.03, and noise in one count adds to it for all of them.
    assert abs(unchanged["p_value"].median() - 0.5) < 0.2
    assert np.all((unchanged["low"] <= unchanged["p_value"]) & (unchanged["p_value"] <= unchanged["high"]))
    changed = fitted.placebo_ranks(target + np.r_[np.zeros(10), 0.2, 0.2, 0.2])
    assert float(changed["high"].max()) < 0.1
    assert changed["ratio"].iloc[0] > 2.0 * unchanged["ratio"].median()
    assert len(fitted.releases_) == 6
    with pytest.raises(ValueError, match="placebo_ranks needs noisy counts of donors' errors"):
        SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, target).placebo_ranks()


def test_ranks_among_few_donors_are_limits_alone():
    """Noise in counts of few is larger than they are: the least p-value would be as frequent as any."""
    donors, target, _ = synthetic_control_panel(38, 10, seed=0)
    table = SyntheticControl(1.0, 1e-6, placebo_share=0.1, random_state=0).fit(donors, 10, target).placebo_ranks()
    assert np.isnan(table["p_value"]).all()
    assert table["high"].min() > 0.5


def test_limits_of_ranks_count_the_noise_in_a_private_number_of_donors(monkeypatch):
    """With nine tenths for ranks the number has a thousandth of the budget: it is known to a sixth or worse."""
    donors, target, _ = synthetic_control_panel(300, 10, seed=0)
    options = {"placebo_share": 0.9, "row_bound": (1.0, 1.0), "random_state": 0}
    private = SyntheticControl(1.0, 1e-6, adjacency="add_remove", **options).fit(donors, 10, target)
    off = private.releases_[0].scales["sum"]
    assert private._released.number_deviation == off > 50.0
    table = private.placebo_ranks()
    released = private._released
    monkeypatch.setattr(SyntheticControl, "_released", released._replace(number_deviation=0.0))
    sure = private.placebo_ranks()
    assert np.all(table["high"] - table["low"] > sure["high"] - sure["low"])
    monkeypatch.undo()
    public = SyntheticControl(1.0, 1e-6, **options).fit(donors, 10, target)
    assert public._released.number_deviation == 0.0


def test_an_interval_without_a_penalty_is_finite():
    donors, target, _ = synthetic_control_panel(1_000, 10, seed=0)
    found = [SyntheticControl(1.0, 1e-6, ridge=ridge, random_state=0).fit(donors, 10) for ridge in (0.0, 1e-300, 1e-6)]
    none, tiny, small = (np.array(one.interval(target[:10])) for one in found)
    assert np.all(np.isfinite(none))
    np.testing.assert_allclose(none, tiny)
    np.testing.assert_allclose(none, small, rtol=1e-4)


def test_norms_that_nothing_can_be_summed_for_are_refused_before_anything_is_drawn():
    donors, _, _ = synthetic_control_panel(50, 10, seed=0)
    for options in ({"placebo_share": 0.2}, {"center": "private"}, {"bound": "private"}, {}):
        for adjacency in ("replace_one", "add_remove"):
            one = SyntheticControl(1.0, 1e-6, row_bound=(1e-80, 1.0), adjacency=adjacency, **options)
            with pytest.raises(ValueError, match="row_bound must hold numbers of at least 1e-70"):
                one.fit(donors, 10)


def test_a_summary_states_what_all_steps_promise_and_dates_as_dates():
    donors, target, _ = synthetic_control_panel(2000, 10, seed=0)
    frame = pd.DataFrame(donors, columns=pd.date_range("2001", periods=13, freq="YS"))
    fitted = SyntheticControl(1.0, 1e-6, random_state=0).fit(frame, "2011", target)
    text = fitted.report()
    assert "calibrated for epsilon 1, delta 1e-06" in text
    assert "From 2011-01-01 to 2013-01-01 (3 periods)" in text
    assert fitted.n_pre_ == 10
    own = np.sqrt(np.mean((target[:10] - fitted.center_[:10] - fitted.pre_coef_ @ (target - fitted.center_)[:10]) ** 2))
    assert fitted.pre_fit() == pytest.approx(own)
    assert f"Root mean squared error before the intervention: {own:.4g}." in text


def test_what_no_other_period_tells_is_the_noise_about_factors():
    rng = np.random.default_rng(6)
    paths, squares = rng.normal(size=(2, 30)), np.linspace(0.1, 0.4, 30) ** 2
    factors = rng.normal(size=(4000, 2)) @ paths
    noisy = factors + np.sqrt(squares) * rng.normal(size=factors.shape)
    told = 1.0 / np.diag(np.linalg.inv(paths.T @ paths + np.diag(squares)))
    # A variance of 4,000 draws has a standard error of 2.2%; the draws are always the same.
    np.testing.assert_allclose(unexplained_variance(noisy), told, rtol=0.1)
    np.testing.assert_array_equal(unexplained_variance(factors), 0.0)
    np.testing.assert_array_equal(unexplained_variance(noisy[:20]), 0.0)


def test_typical_lengths_are_read_off_noisy_counts():
    bins = LogarithmicBins(-40, 0)
    sizes = np.exp2(np.random.default_rng(0).normal(-6.0, 1.0, 2001))
    counts = np.zeros(bins.n_bins)
    for size in sizes:
        counts[bins.largest_code + max(0, math.ceil(2.0 * math.log2(size)) + 40)] += 1
    found = typical_length(counts, bins, len(sizes), 0.0)
    assert np.median(sizes) <= found <= math.sqrt(2.0) * np.median(sizes)
    noisy = counts + 20.0 * np.random.default_rng(1).normal(size=len(counts))
    assert found / 2.0 <= typical_length(noisy, bins, len(sizes), 20.0) <= 2.0 * found
    # Nothing where noise is as large as all that is there, or no bin but the least is reached.
    assert typical_length(counts, bins, len(sizes), 300.0) is None
    assert typical_length(0.0 * counts, bins, 10.0, 0.0) is None
    least = 0.0 * counts
    least[bins.largest_code] = 10.0
    assert typical_length(least, bins, 10.0, 0.0) is None


def test_at_most_so_many_rows_are_beyond_a_typical_length():
    """So few rows that often just that share is beyond an edge."""
    bins, rng = LogarithmicBins(-5, 0), np.random.default_rng(0)
    for few in (0.25, 0.5):
        for _ in range(40):
            codes = rng.integers(1, 6, 8)
            counts = np.bincount(bins.largest_code + codes, minlength=bins.n_bins).astype(float)
            edge = min(code for code in range(1, 6) if np.sum(codes > code) <= few * len(codes))
            assert typical_length(counts, bins, len(codes), 0.0, few) == bins.size(edge)


def test_no_norm_is_read_off_the_noise_in_empty_bins():
    """Of 2,001 rows 1,000 have a norm, the others are zero: the median passes somewhere in between."""
    bins = LogarithmicBins(-40, 0)
    counts = np.zeros(bins.n_bins)
    counts[-8:-3], counts[bins.largest_code] = 200.0, 1001.0
    draws = 20.0 * np.random.default_rng(2).normal(size=(2_000, len(counts)))
    found = [typical_length(counts + one, bins, 2001, 20.0) for one in draws]
    # The noise is fixed. A norm is one of those that are there, 2^-1.5 to 2^-3.5, or within three half-octaves of them.
    assert sum(norm is not None for norm in found) > 1_000
    assert min(norm for norm in found if norm is not None) >= 2.0**-5


def test_loose_ranges_cost_little_once_lengths_are_found():
    donors, target, signal = synthetic_control_panel(2000, 10, seed=0)
    errors = {}
    for bound in (1.0, 10.0):
        fits = [SyntheticControl(1.0, 1e-6, bound=bound, random_state=seed).fit(donors, 10) for seed in range(20)]
        errors[bound] = np.mean([np.abs(fit.predict(target[:10]) - signal[10:]).mean() for fit in fits])
    # Twenty fits each; without it the error is ten times as large and more.
    assert errors[10.0] < 1.6 * errors[1.0]


def test_costs_of_noise_in_sums_of_restored_donors():
    """A target along the middle of the box, of which the donors predict half the middle."""
    _, rows = DonorRows(0.0, 1.0, 6, 3, nonnegative=True).ways(None, None)
    assert rows.restored
    costs, (pre, post) = rows.costs(), np.split(rows.center, [6])
    target = math.sqrt(6.0 / (pre @ pre)) * pre
    predicted = np.outer(pre, post) / (2.0 * pre @ pre)

    def missed(n=0.0, y=(0.0, 0.0, 0.0)):
        blocks = {"xx": np.zeros((6, 6)), "xy": np.zeros((6, 3)), "x": np.zeros(6), "y": np.asarray(y)}
        xx, xy = rows.about_path(blocks, n)
        return target @ (xy - xx @ predicted)

    assert costs["n"] == pytest.approx(np.mean(missed(n=1.0) ** 2))
    assert costs["y"] == pytest.approx(missed(y=np.eye(3)[0])[0] ** 2)


def test_of_what_is_hidden_a_part_counts_as_missed():
    """All of it is no prediction's error: some is noise. None of it is none either."""
    (rows,) = DonorRows(0.0, 1.0, N_PRE, N_POST).ways(None, None)
    section, seen = CrossSection.calibrate(Privacy(1.0, 1e-6), rows), np.array([1e12])
    assert section.expected_error(seen, 0.0) == pytest.approx(0.0, abs=1e-6)
    errors = [section.expected_error(seen, 0.0, hidden) for hidden in 1e12 * np.array([0.1, 1.0, 10.0])]
    # Of all that is hidden these would be the roots of 1/11, 1/2 and 10/11.
    assert np.all(np.square(errors) < 0.6 * np.array([1 / 11, 1 / 2, 10 / 11]))
    assert np.all(np.square(errors) > 0.3 * np.array([1 / 11, 1 / 2, 10 / 11]))


def test_a_plan_draws_anew_each_time_and_leaves_out_the_worst():
    """The first draw alone is never nearer than the better one of two, and many draws are not all the same."""
    errors = np.array([[steps_of(n=400).planned(400, near(60, k), draws)[1] for draws in (1, 2, 4)] for k in range(8)])
    assert np.all(errors[:, 1] <= errors[:, 0])
    assert np.any(errors[:, 1] < errors[:, 0])
    assert np.all(errors[:, 2] != errors[:, 0])


def test_the_error_of_a_fit_is_the_same_whether_it_was_found_before_or_not():
    """What cannot be told from what it becomes later, an array or a list, is computed each time."""
    changing = [{"center": np.full(T, 0.2)}, {"row_bound": [1.0, 0.5]}, {"n_components": np.array(2)}]
    for options in [*OPTIONS.values(), *changing]:
        steps = steps_of(n=400, **options)
        expected = steps.planned(400, steps.guessed(SPREAD, VARIATION, DECAY), draws=0)[1]
        assert usual_error(steps) == usual_error(steps_of(n=400, **options)) == expected
        assert usual_error(steps_of(n=40, **options)) != expected


def test_a_plan_for_donors_of_nothing_but_noise_counts_part_of_it_as_signal():
    steps = steps_of(n=1000, center=None, row_bound=None)
    assert 0.2 < steps.planned(1000, panel(300))[1] < 0.5


@pytest.mark.parametrize(("nonnegative", "least"), [(False, -1.0), (True, 0.0)])
def test_donors_that_are_made_up_are_within_the_range(nonnegative, least):
    made = steps_of(nonnegative=nonnegative).guessed(1.0, 1.0, 4.0)
    assert np.all((made >= least) & (made <= 1.0))


def test_donors_that_are_made_up_have_the_spread_they_are_to_have():
    """About the centre, about their mean path, and in all periods of that."""
    for spread, variation, decay in itertools.product((0.001, 0.01), (0.1, 0.5), (1.0, math.inf)):
        made = steps_of(center=None, row_bound=None).guessed(spread, variation, decay)
        assert np.mean(made**2) == pytest.approx(spread)
        np.testing.assert_allclose(made.mean(axis=0), math.sqrt(spread * (1.0 - variation**2)))
        assert np.mean(made.var(axis=0)) == pytest.approx(spread * variation**2)
