"""What is released before the donors' moments, their mean path and the lengths of their rows: all in one budget."""

import math

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from scipy import stats

from dpfast import Privacy, SyntheticControl
from dpfast.datasets import synthetic_control_panel
from dpfast.kernels.half_octaves import HalfOctaves
from dpfast.noise import SeededSource
from dpfast.privacy import gaussian_mu
from dpfast.privacy.composition import keeps_to
from dpfast.releases.mechanism import release
from dpfast.synthetic_control.mechanism import DonorRows, sum_donors
from dpfast.synthetic_control.steps import Donors, DonorSteps, count_lengths, count_ratios, typical_length

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")

N_PRE, N_POST = 4, 2
T = N_PRE + N_POST
ADJACENCIES = ["replace_one", "add_remove"]
OPTIONS = {
    "lengths": {"center": None},
    "mean": {"center": "private", "row_bound": None},
    "mean, lengths": {"center": "private", "row_bound": "private"},
    "mean, lengths, nonnegative": {"center": "private", "row_bound": "private", "nonnegative": True},
    "ranks": {"center": None, "row_bound": None, "placebo_share": 0.3},
    "mean, lengths, ranks": {"placebo_share": 0.3},
}


def steps_of(adjacency="replace_one", delta=1e-6, n=40, nonnegative=False, epsilon=1.0, **options):
    rows = DonorRows(0.0, 1.0, N_PRE, N_POST, nonnegative=nonnegative)
    private = {"center": "private", "row_bound": "private"} | options
    n_donors = n if adjacency == "replace_one" else None
    return DonorSteps(Privacy(epsilon, delta, adjacency), rows, n_donors=n_donors, **private)


def released(steps, donors, seed=0):
    return release(steps, Donors(np.asarray(donors, np.float64), 1), SeededSource(seed), "fit")


def panel(n=40, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, T))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("name", OPTIONS)
def test_all_steps_together_cost_what_was_asked(name, delta, adjacency):
    steps = steps_of(adjacency, delta, **OPTIONS[name])
    releases = released(steps, panel())
    assert [one.name.startswith("fit: ") for one in releases] == [True] * len(steps.parts)
    assert len({one.name for one in releases}) == len(releases)
    assert keeps_to([one.privacy for one in releases], [one.mu for one in releases], steps.privacy)
    # And no less, but for rounding.
    if delta:
        together = math.sqrt(math.fsum(one.mu**2 for one in releases))
        assert together == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)
    else:
        assert math.fsum(one.privacy.epsilon for one in releases) == pytest.approx(1.0, rel=1e-6)


def moved(steps, one, other, adjacency):
    here, there = ([*panel(3), one], [*panel(3), other] if adjacency == "replace_one" else panel(3))
    change = steps.sum_paths(np.asarray(here)).to_float64() - steps.sum_paths(np.asarray(there)).to_float64()
    return float(np.linalg.norm(change))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_no_donor_moves_the_sum_of_paths_further_than_is_calibrated(nonnegative, adjacency):
    steps = steps_of(adjacency, nonnegative=nonnegative)
    most = steps.path_noise.scale * steps.path_noise.mu
    rng = np.random.default_rng(1)

    def change(values):
        return moved(steps, *3.0 * values.reshape(2, T), adjacency)

    assert climb(change, 2 * T, rng, restarts=1, screened=20)[0] <= most
    # It is attained by a donor at one end of the range throughout, who goes to the other, or away.
    ends = moved(steps, np.ones(T), np.full(T, -1.0), adjacency)
    assert most * (1.0 - 1e-9) <= ends <= most


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_donor_moves_the_counts_of_lengths_further_than_is_calibrated(adjacency):
    steps = steps_of(adjacency, center=None)
    rows = steps.rows.ways(None, None)[0]
    rng = np.random.default_rng(2)
    largest = 0.0
    for _ in range(200):
        one, other = rng.normal(size=(2, T)) * 10.0 ** rng.uniform(-9.0, 1.0, (2, 1))
        here, there = ([*panel(3), one], [*panel(3), other] if adjacency == "replace_one" else panel(3))
        counts = [count_lengths(np.asarray(table), rows, 1).to_float64() for table in (here, there)]
        assert counts[0].sum() == 8.0
        largest = max(largest, float(np.linalg.norm(counts[0] - counts[1])))
    assert largest == (2.0 if adjacency == "replace_one" else math.sqrt(2.0))
    assert largest <= steps.length_noise.scale * steps.length_noise.mu <= largest * (1.0 + 1e-9)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_noise_of_every_step_has_the_calibrated_law(adjacency, delta):
    steps, donors = steps_of(adjacency, delta, n=6), panel(6)
    noises = {"path": [], "lengths": []}
    for seed in range(150):
        path, lengths, _ = released(steps, donors, seed)
        noises["path"].append(path.values["sum"] - steps.sum_paths(donors).to_float64())
        exact = count_lengths(donors, steps._unbounded({"path": path}), 1).to_float64()
        noises["lengths"].append((lengths.values["sum"] - exact)[:, ::8])
        assert path.scales == steps.path_noise.scales
    for name, mechanism in (("path", steps.path_noise), ("lengths", steps.length_noise)):
        standard = np.ravel(noises[name]) / mechanism.deviation
        if mechanism.law == "L2-Laplace":
            # Uncorrelated with unit variance; six standard errors of the mean square, as tails are heavy.
            assert np.mean(standard**2) == pytest.approx(1.0, abs=6.0 * 3.0 / math.sqrt(150))
        else:
            law = "norm" if mechanism.law == "Gaussian" else stats.laplace(scale=math.sqrt(0.5)).cdf
            # Kolmogorov-Smirnov: false-reject rate 1e-6 in each of eight cases.
            assert stats.kstest(standard, law).pvalue > 1e-6


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_with_a_large_budget_the_centre_is_the_mean_and_the_norms_are_typical(nonnegative, adjacency):
    donors = 0.5 + 0.2 * panel(400)
    steps = steps_of(adjacency, n=400, nonnegative=nonnegative, epsilon=1e9)
    rows = steps.section(released(steps, donors)).rows
    np.testing.assert_allclose(rows.center, donors.mean(axis=0), atol=1e-3)
    for part, bound in zip(
        np.split(donors - rows.center, [N_PRE], axis=1), (rows.bound_pre, rows.bound_post), strict=True
    ):
        longer = np.mean(np.linalg.norm(part, axis=1) > bound)
        further = np.mean(np.linalg.norm(part, axis=1) > bound / math.sqrt(2.0))
        assert longer <= 0.5 < further + 0.01


def test_a_mean_that_is_noise_is_taken_to_the_middle_of_the_range():
    steps = steps_of(n=5, nonnegative=True)
    center = steps.section(released(steps, np.full((5, T), 0.9))).rows.center
    assert np.all((center >= 0.0) & (center <= 1.0))
    np.testing.assert_allclose(center, 0.5, atol=0.5)
    far = [steps.section(released(steps, np.full((5, T), 0.9), seed)).rows.center - 0.5 for seed in range(20)]
    # Without shrinkage entries would be at the ends.
    assert np.mean(np.abs(far)) < 0.25


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
    np.testing.assert_allclose(solution.ratios(series), [by_hand(solution, one) for one in series], rtol=1e-9)
    # Beyond the range a series counts as at its end; and one that is predicted without error has a ratio too.
    np.testing.assert_array_equal(solution.ratios(9.0 * series), solution.ratios(np.clip(9.0 * series, -1.0, 1.0)))
    assert np.isfinite(solution.ratios(solution.rows.path[None, :])).all()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_donor_moves_the_counts_of_errors_further_than_is_calibrated(adjacency):
    steps = steps_of(adjacency, placebo_share=0.3)
    solution = steps.solve(released(steps, panel()))
    rng = np.random.default_rng(3)
    largest = 0.0
    for _ in range(100):
        one, other = rng.normal(size=(2, T)) * 10.0 ** rng.uniform(-6.0, 1.0, (2, T))
        here, there = ([*panel(3), one], [*panel(3), other] if adjacency == "replace_one" else panel(3))
        counts = [count_ratios(np.asarray(table), solution, 1).to_float64() for table in (here, there)]
        assert counts[0].sum() == 4.0
        largest = max(largest, float(np.linalg.norm(counts[0] - counts[1])))
    assert largest == (math.sqrt(2.0) if adjacency == "replace_one" else 1.0)
    assert largest <= steps.error_noise.scale * steps.error_noise.mu <= largest * (1.0 + 1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_tails_count_donors_with_a_ratio_as_large(adjacency):
    steps, donors = steps_of(adjacency, epsilon=1e9, n=500, placebo_share=0.3), panel(500)
    releases = released(steps, donors)
    ratios = np.sort(steps.solve(releases).ratios(donors))
    found, deviation, n = steps.tail(releases, ratios)
    # A bin is a quarter of an octave wide, and counted as a whole.
    exact, wider = (np.array([np.sum(ratios >= one) for one in room * ratios]) for room in (1.0, 2.0**-0.25))
    assert np.all((found >= exact - 0.01) & (found <= wider + 0.01))
    assert n == pytest.approx(500, abs=0.01)
    assert np.all(np.diff(deviation) <= 0.0)


def test_tails_follow_from_what_was_released():
    steps, again = steps_of(placebo_share=0.3), steps_of(placebo_share=0.3)
    releases = released(steps, panel())
    for one, other in zip(steps.tail(releases, np.ones(1)), again.tail(releases, np.ones(1)), strict=True):
        np.testing.assert_array_equal(one, other)


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
    assert len(fitted.releases_) == 3
    with pytest.raises(ValueError, match="placebo_ranks needs noisy counts of donors' errors"):
        SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, target).placebo_ranks()


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


def test_typical_lengths_are_read_off_noisy_counts():
    bins = HalfOctaves(-40, 0)
    sizes = np.exp2(np.random.default_rng(0).normal(-6.0, 1.0, 2001))
    counts = np.zeros(bins.n_bins)
    for size in sizes:
        counts[bins.largest_code + max(0, math.ceil(2.0 * math.log2(size)) + 40)] += 1
    found = typical_length(counts, bins, 1.0, len(sizes))
    assert np.median(sizes) <= found <= math.sqrt(2.0) * np.median(sizes)
    noisy = counts + 20.0 * np.random.default_rng(1).normal(size=len(counts))
    assert found / 2.0 <= typical_length(noisy, bins, 1.0, len(sizes)) <= 2.0 * found
    # No larger than rows can be, and the least size where no bin is reached.
    assert typical_length(counts, bins, 1e-3, len(sizes)) == 1e-3
    assert typical_length(0.0 * counts, bins, 1.0, 10.0) == bins.size(0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", OPTIONS)
def test_how_donors_were_summed_follows_from_what_was_released(name, adjacency):
    steps = steps_of(adjacency, **OPTIONS[name])
    releases = released(steps, panel())
    again = steps_of(adjacency, **OPTIONS[name]).section(releases)
    # Neither the moments nor what comes after them are of influence on it.
    before = steps.section(releases[: list(steps.parts).index("moments")])
    np.testing.assert_array_equal(again.rows.path, before.rows.path)
    assert (again.rows.bound_pre, again.rows.bound_post) == (before.rows.bound_pre, before.rows.bound_post)
    assert steps.released(releases)["moments"].scales == again.scales


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
