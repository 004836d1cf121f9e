"""MultiOutcomeRidge with n_subsample: what it refuses, releases, keeps, plans, and how it is saved."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpfast import (
    BudgetExceeded,
    Ledger,
    MultiOutcomeRidge,
    Privacy,
    Release,
    UnsoundCalibrationWarning,
    noise,
    statistics,
)
from dpfast.cli import main
from dpfast.papers.primo import primo_printed_sampled_scales, primo_printed_scales
from dpfast.privacy import subsampled_moment_delta
from dpfast.releases.moments import JointMoments
from dpfast.solvers import MomentNoise, NoisyMoments, automatic_ridge, ridge_from_moments
from dpfast.solvers.ridge import ReducedMoments
from dpfast.statistics import rounded_bound

BUDGET = Privacy(5.0, 0.5)


def table(n=400, d=3, outcomes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(n, d)) / math.sqrt(d)
    return x, np.clip(x @ rng.normal(size=(d, outcomes)) * 0.3 + 0.1, -0.7, 0.7)


BOUNDS = {"bound_x": 1.0, "bound_y": 1.0, "fit_intercept": False}


def model(epsilon=1.0, delta=1e-6, **parameters):
    return MultiOutcomeRidge(epsilon, delta, **(BOUNDS | {"n_subsample": 100} | parameters))


# What is released, and what is not.


def test_one_release_says_how_it_was_sampled():
    ledger = Ledger(BUDGET, composition="basic")
    fitted = model(ledger=ledger).fit(*table())
    (release,) = fitted.releases_
    assert ledger.releases == fitted.releases_
    assert fitted.privacy_spent_ == ledger.spent == Privacy(1.0, 1e-6)
    assert (release.sample, release.mu, release.mechanism) == ((100, 400), None, "Gaussian")
    assert {name: value.shape for name, value in release.values.items()} == {"xx": (3, 3), "xy": (3, 2)}
    assert "xx of a secret sample of 100 of 400 rows" in release.summary()
    assert release.guaranteed
    assert not release.reproducible
    radii = rounded_bound(1.0, 3), rounded_bound(1.0, 2)
    claimed = subsampled_moment_delta(
        type(model()._chosen_mechanism(3, 2, Privacy(1.0, 1e-6), n_rows=400).calibration.deviations)(**release.scales),
        1.0,
        100,
        400,
        *radii,
        n_features=3,
        n_outcomes=2,
    )
    assert 0.99e-6 < claimed <= 1e-6


def test_no_trace_of_the_sample_stays(monkeypatch):
    """Neither on the fitted estimator nor in what it writes is there an array with an entry a sampled row."""
    drawn = []

    def spy(*arguments):
        drawn.append(noise.discrete.sample_without_replacement(*arguments))
        return drawn[-1]

    monkeypatch.setattr("dpfast.multi_outcome.estimator.noise.sample_without_replacement", spy)
    fitted = model().fit(*table())
    (rows,) = drawn
    assert len(set(rows.tolist())) == 100
    attributes = set(vars(fitted)) - set(fitted.get_params())
    assert attributes == {
        "coef_",
        "intercept_",
        "coef_std_",
        "ridge_",
        "n_steps_",
        "_lacks_sums",
        "_is_weighted",
        "releases_",
        "privacy_spent_",
        "n_features_in_",
        "residual_std_",
        "_inference_states",
        "_expected_error",
        "_n_public",
        "_textbook",
        "_single_outcome",
    }
    sizes = [np.size(value) for value in vars(fitted).values()]
    sizes += [array.size for array in fitted.releases_[0].values.values()]
    assert max(sizes) < 100
    assert fitted.coef_std_.min() > 0.0


def test_a_seed_repeats_the_sample_and_the_noise_and_secure_fits_differ():
    x, y = table()
    one, again, other = (model(random_state=seed).fit(x, y) for seed in (3, 3, 4))
    assert np.array_equal(one.coef_, again.coef_)
    assert not np.array_equal(one.coef_, other.coef_)
    assert one.releases_[0].reproducible
    assert not np.array_equal(model().fit(x, y).coef_, model().fit(x, y).coef_)


@pytest.mark.parametrize("kind", ["float32", "fortran", "strided", "list", "frame", "two blocks", "npy"])
def test_every_table_in_memory_gives_the_same_release(kind, tmp_path):
    x, y = (part.astype(np.float32).astype(np.float64) for part in table())
    halves = [pd.DataFrame(x[:, :2]).add_prefix("a"), pd.DataFrame(x[:, 2:]).add_prefix("b")]
    np.save(tmp_path / "x.npy", x)
    given = {
        "float32": (x.astype(np.float32), y.astype(np.float32)),
        "fortran": (np.asfortranarray(x), np.asfortranarray(y)),
        "strided": (np.repeat(x, 2, axis=0)[::2], np.repeat(y, 2, axis=1)[:, ::2]),
        "list": (x.tolist(), y.tolist()),
        "frame": (pd.DataFrame(x, columns=list("abc")), pd.DataFrame(y)),
        "two blocks": (pd.concat(halves, axis=1), pd.DataFrame(y)),
        "npy": (tmp_path / "x.npy", y),
    }[kind]
    expected = model(random_state=2).fit(x, y).coef_
    for threads in (1, 2):
        assert np.array_equal(model(random_state=2, n_threads=threads).fit(*given).coef_, expected)


def test_all_rows_sampled_is_the_full_sums_with_their_noise():
    """At s = n the sample is the table: nothing is multiplied, and the noise is the joint calibration's."""
    x, y = table()
    every = model(n_subsample=400).fit(x, y).releases_[0]
    plain = model(n_subsample=None, refine=0).fit(x, y).releases_[0]
    assert every.scales == pytest.approx(dict(plain.scales), rel=1e-6)
    exact = statistics.gram(x, y, bound_x=1.0, bound_y=1.0)
    precise = model(1e9, 0.4, n_subsample=400).fit(x, y).releases_[0].values
    # Noise at this budget is below 1e-3: ten of it.
    np.testing.assert_allclose(precise["xy"], exact.xy, atol=1e-2)
    np.testing.assert_allclose(precise["xx"], exact.xx, atol=1e-2)


def test_many_people_give_the_coefficients():
    rng = np.random.default_rng(5)
    x = rng.uniform(-0.57, 0.57, size=(300_000, 3))
    truth = np.array([[0.5, 0.2, 0.1], [0.0, 0.3, 0.6]])
    fitted = model(2.0, random_state=0, n_subsample=100_000).fit(x, x @ truth.T)
    # Sampling error on top of the noise: about sqrt((1 - s/n) d/s) of the coefficients, below 1%.
    assert np.all(np.abs(fitted.coef_ - truth) < 6.0 * fitted.coef_std_ + 0.03)
    assert np.max(fitted.coef_std_) < 0.05


def test_coef_std_is_the_spread_of_the_noise_alone():
    """Rows that are all alike but for sign have the same sum in every sample: what is left is privacy noise."""
    rng = np.random.default_rng(6)
    x = rng.choice([-1.0, 1.0], size=(4000, 1)) * np.array([[0.6, 0.3]])
    y = x @ np.array([[0.5, 0.1], [0.2, 0.4]])
    fits = [model(4.0, random_state=seed, ridge=400.0, n_subsample=1000).fit(x, y) for seed in range(80)]
    spread = np.std([fit.coef_ for fit in fits], axis=0)
    # 80 draws: relative standard error 7.9%; five of them over 4 comparisons.
    np.testing.assert_allclose(np.mean([fit.coef_std_ for fit in fits], axis=0), spread, rtol=0.4)


@pytest.mark.parametrize("spectrum", [np.ones(20), 0.7 ** np.arange(20)])
def test_the_automatic_penalty_counts_the_sampling_error(spectrum):
    """Where sampling is the larger error, the penalty that knows of it comes nearer to the best one in hindsight."""
    rng = np.random.default_rng(1)
    n, s, d = 20_000, 300, 20
    x = rng.normal(size=(n, d)) * np.sqrt(spectrum)
    x /= np.max(np.linalg.norm(x, axis=1))
    xx, xy = x.T @ x, x.T @ (x @ rng.normal(size=(d, 1)) + 0.05 * rng.normal(size=(n, 1)))
    best_of_all, risks = np.linalg.solve(xx, xy), []
    quiet = MomentNoise(1e-3 * n / s, 7e-4 * n / s, 1e-2)
    aware = MomentNoise(1e-3 * n / s, 7e-4 * n / s, 1e-2, sampling=(1 - s / n) / s)
    for _ in range(12):
        rows = rng.choice(n, s, replace=False)
        sampled = n / s * x[rows].T @ x[rows]

        def risk(penalty, sampled=sampled):
            error = ridge_from_moments(NoisyMoments(sampled, xy, quiet), penalty).coef.T - best_of_all
            return np.sum(error * (xx @ error))

        chosen = [automatic_ridge(ReducedMoments(sampled, xy, None, noise)) for noise in (quiet, aware)]
        risks.append([*map(risk, chosen), min(map(risk, np.geomspace(1e-3, 1e6, 60)))])
    without, with_sampling, least = np.mean(risks, axis=0)
    assert with_sampling < without
    assert with_sampling < 1.5 * least


# Refusals, before anything is spent.


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"n_subsample": 0}, ValueError, "n_subsample"),
        ({"n_subsample": -3}, ValueError, "n_subsample"),
        ({"n_subsample": 2.5}, TypeError, "n_subsample"),
        ({"n_subsample": True}, TypeError, "n_subsample"),
        ({"n_subsample": "100"}, TypeError, "n_subsample"),
        ({"n_subsample": 401}, ValueError, "n_subsample must be at most the number of rows, 400, got 401"),
        ({"delta": 0.0}, ValueError, "delta must be above 0 with n_subsample"),
        ({"mechanism": "independent"}, ValueError, "mechanism must be 'gaussian' with n_subsample"),
        ({"mechanism": "projection", "public_labels": True}, ValueError, "mechanism must be 'gaussian'"),
        ({"adjacency": "add_remove", "ledger": None}, ValueError, "adjacency must be 'replace_one' with n_subsample"),
        ({"nonnegative": True}, ValueError, "n_subsample has no nonnegative"),
        ({"box_x": (0.0, 1.0)}, ValueError, "n_subsample has no box_x"),
    ],
)
def test_what_has_no_proof_is_refused_by_name(parameters, error, words):
    ledger = Ledger(BUDGET)
    estimator = model(**({"ledger": ledger} | parameters))
    with pytest.raises(error, match=words):
        estimator.fit(*table())
    assert ledger.remaining == BUDGET
    assert not ledger.releases
    with pytest.raises(NotFittedError):
        estimator.predict(table()[0])


def test_groups_and_sums_are_refused():
    ledger = Ledger(BUDGET)
    x, y = table()
    with pytest.raises(ValueError, match="groups do not go with n_subsample"):
        model(ledger=ledger).fit(x, y, groups=np.arange(400), max_rows=1)
    with pytest.raises(ValueError, match="n_subsample needs the rows"):
        model(ledger=ledger).fit_gram(statistics.gram(x, y, bound_x=1.0, bound_y=1.0))
    assert ledger.remaining == BUDGET


@pytest.mark.parametrize("kind", ["blocks", "dask", "empty"])
def test_tables_that_cannot_be_sampled_are_refused(kind):
    ledger = Ledger(BUDGET)
    x, y = table()
    error, words = TypeError, "arrays, .npy files or frames with n_subsample"
    if kind == "blocks":
        x, y = iter([x]), iter([y])
    elif kind == "dask":
        array = pytest.importorskip("dask.array")
        x, y = (array.from_array(part, chunks=(100, -1)) for part in (x, y))
    else:
        x, y, error, words = x[:0], y[:0], ValueError, "X has no rows"
    with pytest.raises(error, match=words):
        model(ledger=ledger).fit(x, y)
    assert ledger.remaining == BUDGET


@pytest.mark.parametrize("place", ["x", "y"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_refused_whether_it_is_sampled_or_not(place, value):
    ledger = Ledger(BUDGET)
    x, y = table()
    (x if place == "x" else y)[17, 1] = value
    # A sample of one row misses it 399 times of 400: the refusal must not depend on it.
    for seed in range(3):
        with pytest.raises(ValueError, match="contains NaN or infinity") as caught:
            model(ledger=ledger, n_subsample=1, random_state=seed).fit(x, y)
        assert "17" not in str(caught.value)
    assert ledger.remaining == BUDGET


def test_an_empty_budget_is_noticed_before_data_is_read():
    class Untouchable:
        shape = (10, 3)
        ndim = 2

        def __array__(self, *args, **kwargs):
            raise AssertionError("data was read")

    with pytest.raises(BudgetExceeded):
        model(ledger=Ledger(Privacy(0.5, 1e-6))).fit(Untouchable(), Untouchable())


def test_without_noise_it_is_the_textbook_estimator_of_all_rows():
    x, y = table()
    one, other = (model(math.inf, n_subsample=size).fit(x, y) for size in (10, None))
    assert np.array_equal(one.coef_, other.coef_)


# Algorithm 4 as printed.


def test_the_printed_algorithm_warns_and_claims_nothing():
    x, y = table()
    estimator = model(calibration="paper")
    with pytest.warns(UnsoundCalibrationWarning, match="does not give"):
        release = estimator.fit(x, y).releases_[0]
    assert (release.guaranteed, release.calibration, release.sample) == (False, "paper", (100, 400))
    assert "none" in release.guarantee
    radii = rounded_bound(1.0, 3), rounded_bound(1.0, 2)
    printed = primo_printed_sampled_scales(1.0, 1e-6, 100, 400, *radii)
    assert release.scales == {"xx": printed.xx, "xy": printed.xy}
    every = primo_printed_scales(1.0, 1e-6, *radii)
    # docs/defects.md: too small by about n/s; s/n for the mean's sensitivity, s/n and 2 for the printed epsilon.
    assert printed.xx / every.xx == pytest.approx(2 * (100 / 400) ** 2, rel=1e-12)
    weights = {"xx": 1.0, "xy": 1.0}
    sound = JointMoments.calibrate_sampled(Privacy(1.0, 1e-6), radii, (3, 2), weights, (100, 400)).scales
    assert printed.xx < 0.5 * sound["xx"]


# Plans.


def plan(n=20_000, d=10, outcomes=3, **parameters):
    sizes = {"epsilon": 1.0, "delta": 1e-6, "refine": 0} | BOUNDS
    return MultiOutcomeRidge.plan(n, d, outcomes, **(sizes | parameters))


def test_the_plan_says_what_sampling_costs_and_buys():
    plain, half, tenth = plan(), plan(n_subsample=10_000), plan(n_subsample=2_000)
    assert plain.notes == {}
    assert plain.expected_error < half.expected_error < tenth.expected_error
    assert half.notes["fraction of the arithmetic saved"] == pytest.approx(0.5 * 11 / (11 + 6))
    assert tenth.notes["fraction of the arithmetic saved"] == pytest.approx(0.9 * 11 / (11 + 6))
    ratio = "noise in xx over that without sampling"
    assert 1.0 < half.notes[ratio] < tenth.notes[ratio]
    assert tenth.notes[ratio] == pytest.approx(10 * tenth.scales["xx"] / plain.scales["xx"])
    errors = [tenth.notes[name] for name in ("error of the noise", "error of sampling")]
    assert tenth.expected_error == pytest.approx(math.hypot(*errors))
    assert "fraction of the arithmetic saved: 0.32" in str(half)


@pytest.mark.parametrize("target", [0.02, 0.1])
def test_the_number_of_people_needed_is_for_the_same_fraction(target):
    few = plan(n_subsample=2_000, target=target)
    enough = plan(few.needed_n, n_subsample=round(few.needed_n / 10), target=target)
    assert enough.expected_error == pytest.approx(target, rel=0.01)


def test_the_plan_agrees_with_simulation():
    rng = np.random.default_rng(8)
    d, n, s = 6, 40_000, 4_000
    x = rng.normal(size=(n, d))
    x *= 0.5 / np.linalg.norm(x, axis=1)[:, None]  # spread 1/4, even over directions
    y = x @ rng.normal(size=(d, 1))
    y /= np.sqrt(np.mean(y**2))  # outcomes at their bound in the mean square
    # The bound on outcomes is that of the plan, and above those of any row: nothing is clipped.
    y, bounds = y / 3.0, {"bound_x": 1.0, "bound_y": 1.0}
    assumed = {"spread": (0.25, 1.0 / 9.0), "score": 1.0}
    expected = MultiOutcomeRidge.plan(n, d, 1, epsilon=1.0, delta=1e-6, n_subsample=s, **bounds, **assumed)
    sampling = expected.notes["error of sampling"]
    exact = model(math.inf).fit(x, y).predict(x)
    big = {"epsilon": 1e6, "delta": 0.1, "ridge": 0.0, "n_subsample": s}
    fits = (model(**big, random_state=seed).fit(x, y).predict(x) for seed in range(20))
    # Without noise to speak of, the error is that of sampling: rows are of one length, as the plan assumes.
    assert math.sqrt(np.mean([np.mean((fit[:, None] - exact[:, None]) ** 2) for fit in fits])) == pytest.approx(
        sampling, rel=0.25
    )
    fits = (model(ridge=0.0, random_state=seed, n_subsample=s).fit(x, y).predict(x) for seed in range(20))
    measured = math.sqrt(np.mean([np.mean((fit - exact) ** 2) for fit in fits]))
    assert 0.5 * expected.expected_error < measured < 2.0 * expected.expected_error


def test_a_plan_refuses_what_a_fit_refuses():
    with pytest.raises(ValueError, match="n_subsample must be at most the number of rows, 50"):
        plan(50, n_subsample=51)
    with pytest.raises(ValueError, match="adjacency"):
        plan(n_subsample=5, adjacency="add_remove")
    assert plan(n_subsample=2_000, calibration="paper").expected_error > 0.0
    assert plan(calibration="paper").expected_error > plan().expected_error


def test_the_command_line_plans_a_sample(capsys):
    sizes = ["--rows", "20000", "--features", "10", "--bound-x", "1", "--bound-y", "1", "--delta", "1e-6"]
    assert main(["plan", *sizes, "--subsample", "2000"]) == 0
    shown = capsys.readouterr().out
    assert "fraction of the arithmetic saved" in shown
    assert "noise in xx over that without sampling" in shown
    assert main(["plan", *sizes, "--subsample", "30000"]) == 2
    assert "n_subsample" in capsys.readouterr().err


# Files.


def test_a_sampled_model_comes_back_to_the_bit(tmp_path):
    fitted = model(ledger=Ledger(BUDGET)).fit(*table())
    fitted.save(tmp_path / "model.json")
    again = MultiOutcomeRidge.load(tmp_path / "model.json")
    assert (again.n_subsample, again.releases_[0].sample) == (100, (100, 400))
    assert again.releases_[0].to_dict() == fitted.releases_[0].to_dict()
    assert np.array_equal(again.coef_, fitted.coef_)
    assert clone(again).n_subsample == 100


def test_a_ledger_file_remembers_that_it_was_sampled(tmp_path):
    model(ledger=Ledger(BUDGET, tmp_path / "people.json")).fit(*table())
    (release,) = Ledger(BUDGET, tmp_path / "people.json").releases
    assert release.sample == (100, 400)
    assert "secret sample" in Ledger(BUDGET, tmp_path / "people.json").report()


@pytest.mark.parametrize("sample", [[5], [0, 3], [4, 3], [1.5, 3], "ab", 3])
def test_a_record_with_an_impossible_sample_is_refused(sample):
    record = model().fit(*table()).releases_[0].to_dict()
    with pytest.raises((ValueError, TypeError)):
        Release.from_dict(record | {"sample": sample})


def test_samples_of_all_sizes_are_accepted():
    x, y = table(n=5)
    for size, delta in itertools.product((1, 2, 5), (1e-6, 0.3)):
        assert model(1.0, delta, n_subsample=size).fit(x, y).releases_[0].sample == (size, 5)


def test_people_of_several_rows_are_not_sampled_by_rows():
    """Amplification is for a person who is one row: several of them may be in the sample."""
    x, y = np.zeros((6, 2)), np.zeros((6, 1))
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, n_subsample=2, fit_intercept=False)
    with pytest.raises(ValueError, match="groups do not go with n_subsample"):
        model.fit(x, y, groups=[0, 0, 1, 1, 2, 2], max_rows=2)
