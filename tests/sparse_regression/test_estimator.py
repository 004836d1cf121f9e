"""SparseRegression as its users see it: the best subset without privacy, calibrated with it, nothing left behind."""

import contextlib
import itertools
import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LinearRegression

from dpfast import BudgetExceeded, Ledger, Privacy, SparseRegression, UnsoundCalibrationWarning, io
from dpfast.noise import resolve_source
from dpfast.privacy import compose_mu, gaussian_mu, keeps_to, picks_range, split_mu
from dpfast.statistics import LassoSelector

TRUTH = {2: 0.9, 5: -0.7, 11: 0.6}


def table(n=20_000, p=14, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(n, p))
    return x, x[:, list(TRUTH)] @ list(TRUTH.values()) + 0.2 * rng.normal(size=n)


def model(epsilon=4.0, delta=1e-6, **parameters):
    parameters = {"n_nonzero": 3, "selector": "sample_aggregate"} | parameters
    if parameters.get("adjacency") == "add_remove" and parameters["selector"] not in ("exponential", "pursuit"):
        parameters = {"n_blocks": 100} | parameters
    return SparseRegression(epsilon, delta, **parameters)


SELECTORS = ["exponential", "sample_aggregate", "pursuit"]


# Without privacy.


def test_infinite_epsilon_is_the_best_subset_in_the_box():
    rng = np.random.default_rng(1)
    for _ in range(5):
        x, y = 30.0 * rng.normal(size=(40, 7)), 60.0 * rng.normal(size=40)
        fits = {one: optimize.lsq_linear(x[:, one], y, (-1.0, 1.0)) for one in itertools.combinations(range(7), 3)}
        best = min(fits, key=lambda one: fits[one].cost)
        fitted = model(math.inf, 0.0, selector="exponential").fit(x, y)
        assert tuple(fitted.support_) == best
        np.testing.assert_allclose(fitted.coef_[list(best)], fits[best].x, atol=1e-7)
        assert "none" in fitted.releases_[0].guarantee


def test_infinite_epsilon_counts_votes_as_they_are():
    x, y = table(2000)
    fitted = model(math.inf, selector="sample_aggregate", random_state=0).fit(100.0 * x, 100.0 * y)
    assert fitted.support_.tolist() == list(TRUTH)
    least = np.linalg.lstsq(x[:, list(TRUTH)], y)[0]
    np.testing.assert_allclose(fitted.coef_[list(TRUTH)], least, atol=1e-8)


# With privacy.


def all_keep_to(fitted):
    costs, mus, ranges = zip(*((one.privacy, one.mu, one.log_range) for one in fitted.releases_), strict=True)
    return keeps_to(costs, mus, fitted.privacy_spent_, ranges)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("selector", SELECTORS)
def test_many_people_give_support_and_coefficients(selector, delta, adjacency):
    x, y = table()
    fitted = model(delta=delta, selector=selector, adjacency=adjacency, random_state=0).fit(x, y)
    assert fitted.support_.tolist() == list(TRUTH)
    np.testing.assert_allclose(fitted.coef_[list(TRUTH)], list(TRUTH.values()), atol=0.05)
    assert np.count_nonzero(fitted.coef_) == 3
    np.testing.assert_allclose(fitted.predict(x[:9]), x[:9] @ fitted.coef_ + fitted.intercept_)
    assert fitted.privacy_spent_ == Privacy(4.0, delta, adjacency)
    if selector == "pursuit":
        assert all_keep_to(fitted)
        assert [one.mechanism for one in fitted.releases_].count("exponential mechanism") == 3
        return
    choice, coefficients = fitted.releases_
    assert choice.privacy.epsilon + coefficients.privacy.epsilon == pytest.approx(4.0)
    assert choice.privacy.delta + coefficients.privacy.delta == pytest.approx(delta)
    assert (choice.mechanism == "exponential mechanism") == (selector == "exponential")


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_pursuit_within_bounds_that_are_found(delta, adjacency):
    """How many sizes are told apart hangs on what is found: no fit of the catalogue, whose shapes are public."""
    x, y = table()
    fitted = model(
        selector="pursuit", delta=delta, adjacency=adjacency, bound_x="private", bound_y="private", random_state=0
    ).fit(10.0 * x, y)
    assert fitted.support_.tolist() == list(TRUTH)
    assert (fitted.bound_x_, fitted.bound_y_) == (32.0, 2.0)
    assert all_keep_to(fitted)
    # Beside counts that have their share of mu, all of it is a Gaussian release.
    if delta:
        assert compose_mu(one.mu for one in fitted.releases_) <= gaussian_mu(4.0, delta)


def test_a_pursuit_of_several_outcomes_picks_for_all_of_them():
    x, y = table()
    other = 0.8 * x[:, 7]
    fitted = model(selector="pursuit", n_nonzero=4, random_state=0).fit(x, np.c_[y, other])
    assert fitted.support_.tolist() == [2, 5, 7, 11]
    np.testing.assert_allclose(
        fitted.coef_[:, fitted.support_], [[0.9, -0.7, 0.0, 0.6], [0.0, 0.0, 0.8, 0.0]], atol=0.05
    )
    assert fitted.predict(x[:3]).shape == (3, 2)
    exact = model(math.inf, selector="pursuit", n_nonzero=4).fit(x, np.c_[y, other])
    assert exact.support_.tolist() == [2, 5, 7, 11]
    least = np.linalg.lstsq(np.c_[np.ones(len(x)), x[:, exact.support_]], np.c_[y, other])[0]
    np.testing.assert_allclose(np.c_[exact.intercept_, exact.coef_[:, exact.support_]].T, least, atol=1e-9)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("outcomes", [1, 2])
def test_an_intercept_makes_up_for_what_is_not_centred(delta, adjacency, outcomes):
    x, y = table()
    low, high = np.linspace(10.0, 30.0, 14), np.linspace(50.0, 200.0, 14)
    half = (high - low) / 2.0
    rows, y = low + half * (x + 1.0), y + 2.0 if outcomes == 1 else np.c_[y + 2.0, -y]
    parameters = {"selector": "pursuit", "delta": delta, "adjacency": adjacency, "bound_y": 6.0, "random_state": 0}
    fitted = model(box_x=(low, high), **parameters).fit(rows, y)
    assert fitted.support_.tolist() == list(TRUTH)
    assert np.mean((fitted.predict(rows) - y) ** 2) < 0.06
    in_half_widths = np.atleast_2d(fitted.coef_ * half)[0, list(TRUTH)]
    np.testing.assert_allclose(in_half_widths, list(TRUTH.values()), atol=0.05)
    told = fitted.summary()["estimate"]
    assert told.index.get_level_values("feature")[0] == "(intercept)"
    np.testing.assert_array_equal(told.to_numpy()[:: 1 + len(TRUTH)], np.ravel(fitted.intercept_))
    without = model(box_x=(low, high), fit_intercept=False, **parameters).fit(rows, y)
    assert np.all(np.ravel(without.intercept_) == 0.0)
    assert np.mean((without.predict(rows) - y) ** 2) > 0.08


def test_an_intercept_takes_out_means_without_privacy_too():
    x, y = table(2_000)
    fitted = model(math.inf, selector="pursuit", box_x=(0.0, 50.0)).fit(20.0 * x + 30.0, y + 5.0)
    assert fitted.support_.tolist() == list(TRUTH)
    least = LinearRegression().fit(20.0 * x[:, list(TRUTH)] + 30.0, y + 5.0)
    assert fitted.intercept_ == pytest.approx(least.intercept_, rel=1e-9)
    np.testing.assert_allclose(fitted.coef_[fitted.support_], least.coef_, rtol=1e-9)
    other = model(math.inf, selector="exponential").fit(x, y)
    assert other.intercept_ == 0.0
    for selector in ("exponential", "sample_aggregate"):
        with pytest.raises(ValueError, match="fit_intercept goes with selector='pursuit'"):
            model(selector=selector, fit_intercept=True).fit(x, y)
    with pytest.raises(TypeError, match=r"fit_intercept \(if it is not 'auto'\)"):
        model(selector="pursuit", fit_intercept="yes").fit(x, y)


def test_an_intercept_costs_little_on_a_table_about_0():
    """At a quarter of an entry's bound: 0.907 against 0.911, medians of 40 fits. Each fit has a chance below 1/2 of its
    median; of 15 no more than two below the lowest tenth's bound but once in 10**4."""
    x, y = table(500)
    fits = [model(1.0, 1e-5, selector="pursuit", random_state=seed).fit(x, y).score(x, y) for seed in range(15)]
    assert np.sort(fits)[7] > 0.8


def test_the_budget_of_a_pursuit_is_shared_as_asked():
    x, y = table(3000)
    fitted = model(1.0, 0.0, selector="pursuit", n_nonzero=2, selection_share=0.25).fit(x, y)
    picks = [one for one in fitted.releases_ if "feature" in one.values]
    assert [one.privacy.epsilon for one in picks] == [pytest.approx(0.125)] * 2
    fitted = model(1.0, 1e-6, selector="pursuit", n_nonzero=2, selection_share=0.25).fit(x, y)
    picks = [one for one in fitted.releases_ if "feature" in one.values]
    others = [one for one in fitted.releases_ if one.log_range is None]
    assert sum(one.mu**2 for one in others) == pytest.approx(0.75 * gaussian_mu(1.0, 1e-6) ** 2, rel=1e-6)
    target = Privacy(1.0, 1e-6).target
    longest = picks_range(*target, 2, split_mu(gaussian_mu(*target), [0.75, 0.25])[0])
    assert [one.log_range for one in picks] == [longest] * 2


def test_a_ledger_is_told_what_a_pursuit_costs_beside_other_fits():
    """By mu it costs more than its epsilon and delta alone would say, as its picks are composed by their range."""
    x, y = table(500)
    ledger = Ledger(Privacy(4.0, 1e-3))
    one = model(1.0, 1e-6, selector="pursuit", ledger=ledger)
    cost, mu = one._cost()
    assert cost == Privacy(1.0, 1e-6)
    assert mu > 1.1 * gaussian_mu(1.0, 1e-6)
    one.fit(x, y)
    assert compose_mu(release.mu for release in one.releases_) == pytest.approx(mu, rel=1e-6)
    assert compose_mu(release.mu for release in one.releases_) <= mu
    pick = next(release for release in one.releases_ if release.log_range is not None)
    longer = replace(pick, log_range=1.05 * pick.log_range)
    with Ledger(Privacy(1.0, 1e-6)).reserve(cost) as held:
        with pytest.raises(ValueError, match="cost more than the reserved"):
            held.commit(*one.releases_, one.releases_[1])
        with pytest.raises(ValueError, match="cost more than the reserved"):
            held.commit(longer, *one.releases_[2:], one.releases_[0])
        # A record whose other costs are larger is no pick of that range.
        with pytest.raises(ValueError, match="cost more than the reserved"):
            held.commit(replace(one.releases_[1], mu=3.0, privacy=Privacy(2.0), log_range=1e-6))
        held.commit(*reversed(one.releases_))


def test_a_pursuit_knows_no_number_of_people_that_is_private():
    x, y = table(200)
    estimators = [model(selector="pursuit", adjacency=one) for one in ("add_remove", "replace_one")]
    summed = [one._sum(one._checked(), resolve_source(None), x, y, None) for one in estimators]
    assert [one.mechanism.n_rows for one in summed] == [None, 200]
    assert summed[0].expected is None
    assert summed[1].expected is not None


def test_entries_beyond_one_count_as_one_in_a_pursuit():
    """A seed repeats to the bit, so that nothing of what is beyond is left; longer rows are scaled onto their bound."""
    x, y = table(2000)
    far = np.where(np.abs(x) > 0.9, np.sign(x) * 1e300, x)
    near = np.where(np.abs(x) > 0.9, np.sign(x), x)
    fits = [model(selector="pursuit", random_state=0).fit(one, 5.0 * y) for one in (far, near)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    capped = model(selector="pursuit", random_state=0).fit(near, np.clip(5.0 * y, -3.0, 3.0))
    assert np.array_equal(fits[0].coef_, capped.coef_)
    fits = [model(selector="pursuit", bound_x=0.5, random_state=0).fit(one, y) for one in (8.0 * x, 16.0 * x)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=0.2, atol=0.05)


def test_bounds_are_held_to():
    """Rows and outcomes a million times beyond their bounds count as rows at them."""
    x, y = table()
    far_x, far_y = x.copy(), y.copy()
    far_x[:5] *= 1e6
    far_y[:5] = 1e9
    for selector in SELECTORS:
        for bounds in ({}, {"bound_x": 2.0, "bound_y": 2.0}):
            one, other = (
                model(100.0, selector=selector, random_state=0, **bounds).fit(*data)
                for data in ((x, y), (far_x, far_y))
            )
            assert np.array_equal(one.support_, other.support_)
            np.testing.assert_allclose(one.coef_, other.coef_, atol=0.02)


@pytest.mark.slow
def test_few_people_get_no_more_than_noise():
    """One person's outcome at tiny epsilon: the support is any of all, within what chance allows."""
    x = np.eye(6)[:1] * 6.0
    picked = [
        model(1e-3, n_nonzero=1, selector="exponential", random_state=seed).fit(x, [1.0]).support_[0]
        for seed in range(300)
    ]
    # Binomial(300, 1/6): more than 95 of one kind has probability below 1e-8.
    assert np.bincount(picked, minlength=6).max() < 95
    assert np.bincount(picked, minlength=6).min() > 10


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_seed_repeats_whatever_the_threads_and_secure_noise_does_not(selector):
    x, y = table(4000)
    fits = [model(selector=selector, random_state=7, n_threads=n).fit(x, y) for n in (1, 2)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].releases_[0].reproducible
    secure = [model(selector=selector).fit(x, y) for _ in range(2)]
    assert not np.array_equal(secure[0].coef_, secure[1].coef_)
    assert not secure[0].releases_[1].reproducible


def test_nothing_but_releases_stays():
    x, y = table(3000)
    for selector in SELECTORS[:2]:
        fitted = model(selector=selector).fit(x, y)
        left = set(vars(fitted)) - set(fitted.get_params())
        solved = {"support_", "coef_", "intercept_"}
        assert left == solved | {"releases_", "privacy_spent_", "n_features_in_", "_n_public"}
        assert fitted.intercept_ == 0.0
        released = fitted.releases_[1].values["coef"]
        assert np.array_equal(fitted.coef_[fitted.support_], released)


def test_the_budget_may_be_shared_unevenly():
    choice, coefficients = model(selection_share=0.25).fit(*table(3000)).releases_
    assert choice.privacy.epsilon == 1.0
    assert coefficients.privacy.epsilon == 3.0
    # Laplace noise leaves delta to the coefficients.
    assert coefficients.privacy.delta == 1e-6


def test_another_selector_plugs_in():
    x, y = table(4000)

    def correlated(x, y, size):
        return np.argsort(-np.abs(x.T @ y))[:size]

    for selector in (correlated, LassoSelector(penalty=5.0)):
        # All blocks agree. Noise on votes hides that in 2 of 10,000 fits: the seed is fixed.
        fitted = model(selector=selector, n_blocks=40, random_state=0).fit(x, y)
        assert fitted.support_.tolist() == list(TRUTH)


def test_a_selector_that_fails_on_some_rows_says_nothing(recwarn, capsys):
    x, y = table(4000)

    def fails(x, y, size):
        if x[0, 0] < 0.0:
            warnings.warn(f"rows {x}", stacklevel=1)
            raise ValueError(f"rows {x}")
        return [2, 5, 11]

    fitted = model(20.0, selector=fails, n_blocks=40, random_state=0).fit(x, y)
    votes = np.rint(fitted.releases_[0].values["votes"])
    assert votes[0] > 5
    assert votes[11] > 5
    assert not recwarn
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("selector", SELECTORS[:2])
def test_the_printed_calibration(selector):
    x, y = table()
    fitted = model(calibration="paper", selector=selector, adjacency="add_remove", random_state=0).fit(x, y)
    assert [one.calibration for one in fitted.releases_] == ["paper", "paper"]
    assert all(one.guaranteed for one in fitted.releases_)
    assert fitted.support_.tolist() == list(TRUTH)
    pure = model(calibration="paper", selector=selector, delta=0.0)
    with pytest.warns(UnsoundCalibrationWarning, match="does not give"):
        pure.fit(x, y)
    assert "none" in pure.releases_[1].guarantee
    ours = model(selector=selector, adjacency="add_remove").fit(x, y).releases_
    for sound, printed in zip(ours, fitted.releases_, strict=True):
        name = "objective" if "objective" in sound.scales else next(iter(sound.scales))
        assert sound.scales[name] <= printed.scales[name] * (1 + 1e-12)


# As one of the family.


@pytest.mark.parametrize("kind", ["frame", "float32", "column", "Fortran"])
@pytest.mark.parametrize("selector", SELECTORS)
def test_tables_of_many_kinds(selector, kind):
    x, y = table(3000)
    wanted = model(selector=selector, random_state=0).fit(x, y)
    if kind == "frame":
        given = pd.DataFrame(x, columns=[f"f{i}" for i in range(14)]), pd.Series(y)
    else:
        given = {"float32": (x.astype(np.float32), y), "column": (x, y[:, None]), "Fortran": (np.asfortranarray(x), y)}[
            kind
        ]
    warned = pytest.warns(DataConversionWarning) if kind == "column" else contextlib.nullcontext()
    with warned:
        fitted = model(selector=selector, random_state=0).fit(*given)
    assert np.array_equal(fitted.support_, wanted.support_)
    # What a pursuit's later noise is drawn for hangs on the last bits of what was released before.
    np.testing.assert_allclose(fitted.coef_, wanted.coef_, atol=0.02 if selector == "pursuit" else 1e-4)
    if kind == "frame":
        assert fitted.feature_names_in_.tolist() == list(given[0].columns)
        np.testing.assert_allclose(fitted.predict(given[0]), x @ fitted.coef_ + fitted.intercept_)


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_stream_of_blocks_is_fitted_as_the_table_is(selector):
    x, y = table(3000)
    stream = ((x[i : i + 700], y[i : i + 700]) for i in range(0, 3000, 700))
    whole = model(selector=selector, random_state=0).fit(x, y)
    assert np.array_equal(model(selector=selector, random_state=0).fit(stream, None).coef_, whole.coef_)


def test_votes_say_that_they_need_the_table_in_memory():
    dask_array = pytest.importorskip("dask.array")
    x, y = (dask_array.from_array(one, chunks=1000) for one in table(3000))
    with pytest.raises(TypeError, match="must be held in memory"):
        model().fit(x, y)


def test_progress_is_told():
    told = []
    model(selector="exponential").fit(*table(1000), progress=lambda *counts: told.append(counts))
    assert told == [(math.comb(14, 3), math.comb(14, 3))]


def test_a_ledger_pays_and_a_failed_fit_does_not():
    ledger = Ledger(Privacy(5.0, 1e-5))
    x, y = table(2000)
    estimator = model(ledger=ledger)
    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(np.where(x > 0.999, np.nan, x), y)
    with pytest.raises(ValueError, match=r"NaN|finite"):
        model(ledger=ledger, selector="exponential").fit(np.where(x > 0.999, np.nan, x), y)
    assert ledger.remaining == Privacy(5.0, 1e-5)
    with pytest.raises(NotFittedError):
        estimator.predict(x)
    estimator.fit(x, y)
    assert len(ledger.releases) == 2
    with pytest.raises(BudgetExceeded):
        clone(estimator).fit(x, y)


def test_saved_and_loaded(tmp_path):
    for selector in SELECTORS:
        fitted = model(selector=selector, random_state=0).fit(*table(2000))
        fitted.save(tmp_path / "model.json")
        loaded = SparseRegression.load(tmp_path / "model.json")
        assert np.array_equal(loaded.coef_, fitted.coef_)
        assert loaded.support_.tolist() == fitted.support_.tolist()
        assert np.array_equal(pickle.loads(pickle.dumps(fitted)).coef_, fitted.coef_)
    with pytest.raises(TypeError, match="selector cannot be saved"):
        model(selector=LassoSelector()).save(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coef_", np.ones(14)),
        ("support_", np.array([2, 5, 99])),
        ("support_", np.array([2, 5])),
        ("privacy_spent_", 1.0),
        ("releases_", (1,)),
        ("n_features_in_", 13),
    ],
)
def test_a_model_that_no_fit_can_have_produced_is_refused(tmp_path, name, value):
    fitted = model(random_state=0).fit(*table(2000))
    setattr(fitted, name, value)
    fitted.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="does not hold a valid"):
        SparseRegression.load(tmp_path / "model.json")


# Plans.


@pytest.mark.slow
@pytest.mark.parametrize("selector", SELECTORS)
def test_a_plan_is_near_the_truth(selector):
    """Root mean squared error of predictions beside least squares on the true support, over ten fits."""
    plan = SparseRegression.plan(20_000, 14, epsilon=2.0, delta=1e-6, n_nonzero=3, selector=selector, spread=1.0 / 3.0)
    errors = []
    for seed in range(10):
        x, y = table(seed=seed)
        fitted = model(2.0, selector=selector, random_state=seed).fit(x, y)
        exact = np.zeros(14)
        exact[list(TRUTH)] = np.linalg.lstsq(x[:, list(TRUTH)], y)[0]
        errors.append(np.mean((x @ (fitted.coef_ - exact)) ** 2))
    assert 0.3 < math.sqrt(np.mean(errors)) / (3.0 * plan.expected_error) < 3.0
    of_choice = {"exponential": {"support"}, "sample_aggregate": {"votes"}, "pursuit": {"feature", "sum"}}
    assert set(plan.scales) == of_choice[selector] | (set() if selector == "pursuit" else {"objective", "coef"})


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("selector", SELECTORS)
def test_the_number_needed_is_the_least(selector, adjacency):
    parameters = {"n_nonzero": 3, "selector": selector, "adjacency": adjacency, "epsilon": 1.0, "delta": 1e-6}
    if adjacency == "add_remove" and selector == "sample_aggregate":
        parameters["n_blocks"] = 200
    needed = SparseRegression.plan(10_000, 60, **parameters).needed_n
    assert SparseRegression.plan(needed, 60, **parameters).expected_error <= 0.1
    assert SparseRegression.plan(needed - 1, 60, **parameters).expected_error > 0.1


def test_too_few_blocks_are_never_enough():
    votes = {"selector": "sample_aggregate", "n_blocks": 5}
    assert SparseRegression.plan(10_000, 60, epsilon=1.0, n_nonzero=3, **votes).needed_n is None
    assert SparseRegression.plan(10, 60, epsilon=math.inf, n_nonzero=3).expected_error == 0.0


def test_the_ends_of_the_range_of_bounds_are_taken():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    for least, most in ((2.0**-100, 2.0**100), (2.0**100, 2.0**-100)):
        fitted = model(selector="pursuit", bound_x=least, bound_y=most, random_state=0).fit(x, y)
        assert np.isfinite(fitted.predict(x)).all()


# Bad input.


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_nonzero": 0}, ValueError, "n_nonzero"),
        ({"n_nonzero": 2.5}, TypeError, "n_nonzero"),
        ({"n_nonzero": 15}, ValueError, "n_nonzero must be at most the number of features, 14"),
        ({"bound_x": 0.0}, ValueError, "bound_x"),
        ({"bound_y": math.inf}, ValueError, "bound_y"),
        ({"bound_x": math.nextafter(2.0**-100, 0.0)}, ValueError, "bound_x must lie between"),
        ({"bound_y": math.nextafter(2.0**100, math.inf)}, ValueError, "bound_y must lie between"),
        ({"selector": "lasso"}, ValueError, "selector"),
        ({"selector": 3}, ValueError, "selector"),
        ({"selector": lambda X, y: [0]}, ValueError, "selector must select features of any table"),
        ({"n_blocks": 0}, ValueError, "n_blocks"),
        ({"n_blocks": 100}, ValueError, "n_blocks=100 leaves 2 of 200 rows a block, fewer than n_nonzero=3"),
        ({"n_blocks": 10, "selector": "exponential"}, ValueError, "n_blocks must not be given"),
        ({"adjacency": "add_remove", "n_blocks": None}, ValueError, "n_blocks must be given under add_remove"),
        ({"n_blocks": 10, "selector": "pursuit"}, ValueError, "n_blocks must not be given with selector='pursuit'"),
        ({"calibration": "paper", "selector": "pursuit"}, ValueError, "calibration must be 'sound'"),
        ({"selector": "exponential", "max_supports": 300}, ValueError, "makes 364 supports, max_supports is 300"),
        ({"selector": "exponential", "max_supports": 0}, ValueError, "max_supports"),
        ({"selection_share": 1.0}, ValueError, "selection_share"),
        ({"selection_share": "half"}, TypeError, "selection_share"),
        ({"adjacency": "swap"}, ValueError, "adjacency"),
        ({"calibration": "printed"}, ValueError, "calibration"),
        ({"calibration": "paper", "bound_x": 1.0}, ValueError, "bound_x and bound_y must be left out"),
        ({"random_state": 0.5}, TypeError, "random_state"),
        ({"n_threads": 0}, ValueError, "n_threads"),
        ({"ledger": Privacy(1.0)}, TypeError, "ledger"),
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"delta": 1.0}, ValueError, "delta"),
    ],
)
def test_bad_parameters_are_refused(parameters, error, message):
    ledger = Ledger(Privacy(10.0, 1e-3, "replace_one"))
    with pytest.raises(error, match=message):
        model(**({"ledger": ledger} | parameters)).fit(*table(200))
    assert not ledger.releases


@pytest.mark.parametrize("selector", SELECTORS)
def test_bad_tables_are_refused(selector):
    x, y = table(200)
    bad = [
        ((x, None), "y to be passed"),
        ((x[:100], y), "rows"),
        ((x[:0], y[:0]), "no rows|minimum of 1"),
        ((np.where(x > 0.99, np.inf, x), y), "infinity|finite|NaN"),
        ((x, np.where(y > 1.0, np.nan, y)), "NaN|finite"),
        ((x[:, :2], y), "n_nonzero must be at most the number of features, 2"),
    ]
    if selector != "pursuit":
        bad.append(((x, np.stack([y, y], axis=1)), "one column"))
    for given, message in bad:
        with pytest.raises(ValueError, match=message):
            model(selector=selector).fit(*given)


def test_rows_beyond_the_bound_of_a_support_count_as_those_on_it():
    """One feature: a row on the support is an entry, and is clipped."""
    rng = np.random.default_rng(0)
    X, y = 3.0 * rng.normal(size=(200, 2)), rng.normal(size=200)
    coefficients = []
    for rows in (X, np.clip(X, -1.0, 1.0)):
        model = SparseRegression(1.0, 1e-6, n_nonzero=1, n_blocks=5, selector=lambda x, y, size: [0], random_state=0)
        coefficients.append(model.fit(rows, y).coef_.tolist())
    assert coefficients[0] == coefficients[1]


def test_under_add_remove_a_selector_is_tried_out_on_as_many_rows_whatever_the_table():
    """A number that followed the table's would tell it, by an error or by the time that it takes."""
    tried = []
    for n in (40, 400):
        sizes = []

        def selector(x, y, size, sizes=sizes):
            sizes.append(len(x))
            return [0]

        X = np.random.default_rng(0).uniform(-1.0, 1.0, (n, 3))
        SparseRegression(1.0, n_nonzero=1, n_blocks=4, selector=selector, adjacency="add_remove", random_state=0).fit(
            X, X[:, 0]
        )
        tried.append(sizes[0])
    assert tried[0] == tried[1]


def raw(n=2_000, seed=0):
    """Features in units of their own, of which two matter, with the limits that are declared of them."""
    rng = np.random.default_rng(seed)
    unit = rng.uniform(-1.0, 1.0, size=(n, 4))
    frame = pd.DataFrame(unit * [40.0, 1.0, 1e4, 0.01], columns=["bmi", "arm", "cost", "dose"])
    limits = {"dose": (-0.01, 0.01), "bmi": (-40, 20), "arm": (-1, 1), "cost": (-1e4, 1e4)}
    return frame, limits, unit, 0.9 * unit[:, 2] - 0.6 * unit[:, 3]


@pytest.mark.parametrize("kind", ["frame", "columns", "array", "blocks"])
def test_entries_are_scaled_by_declared_limits(kind, tmp_path):
    frame, limits, unit, y = raw()
    known = SparseRegression(1.0, 1e-6, n_nonzero=2, box_x=(-1, 1), random_state=0)
    expected = known.fit(np.clip(unit, -1.0, [0.5, 1.0, 1.0, 1.0]), y)
    by_place = tuple(np.array([limits[name][side] for name in frame], float) for side in (0, 1))
    columns = io.Columns([io.Number(name, low=limits[name][0], high=limits[name][1]) for name in frame], ["y"])
    box = {"frame": limits, "columns": columns.box, "array": by_place, "blocks": by_place}[kind]
    table = {
        "frame": (frame, y),
        "columns": (columns.encode(frame.assign(y=y)), None),
        "array": (frame.to_numpy(), y),
        "blocks": ([(frame.to_numpy()[:700], y[:700]), (frame.to_numpy()[700:], y[700:])], None),
    }[kind]
    model = SparseRegression(1.0, 1e-6, n_nonzero=2, box_x=box, random_state=0).fit(*table)
    assert model.support_.tolist() == expected.support_.tolist() == [2, 3]
    np.testing.assert_allclose(model.coef_ * [40.0, 1.0, 1e4, 0.01], expected.coef_, rtol=1e-9, atol=1e-12)
    assert model.coef_[2] == pytest.approx(0.9e-4, rel=0.2)
    model.save(tmp_path / "model.json")
    rows = frame if kind in ("frame", "columns") else frame.to_numpy()
    np.testing.assert_array_equal(SparseRegression.load(tmp_path / "model.json").predict(rows), model.predict(rows))


def test_no_entry_is_larger_than_one_once_it_is_scaled():
    rng = np.random.default_rng(0)
    high = np.concatenate([rng.uniform(0.0, 1e3, 500), 10.0 ** rng.uniform(-200, 200, 500), np.arange(1.0, 500.0)])
    one = SparseRegression(1.0, 1e-6, n_nonzero=1, box_x=(-0.5 * high, high))
    mapped = one._row_map(len(high))(np.array([high, 3.0 * high, -high, np.nextafter(high, 0.0)]))
    assert np.abs(mapped).max() == 1.0
    assert np.all(mapped[0] > 1.0 - 1e-15)


def test_a_table_says_that_nobody_declared_limits_whatever_the_entries_are():
    frame, limits, unit, y = raw(400)

    def note(rows, **declared):
        return SparseRegression(1.0, 1e-6, n_nonzero=1, **declared).fit(rows, y).summary().attrs["note"]

    for rows in (unit / 10.0, frame.to_numpy()):
        assert "entries of X are clipped to [-1, 1]" in note(rows)
        assert "Declare box_x" in note(rows)
        assert "private_bounds(X, ..., box=True)" in note(rows)
    for declared in ({"box_x": limits}, {"bound_x": 2.0}, {"bound_x": "private"}, {"selector": "exponential"}):
        assert "note" not in SparseRegression(1.0, 1e-6, n_nonzero=1, **declared).fit(frame, y).summary().attrs


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bound_x": 1.0}, "box_x, .* go with selector='pursuit' .* and without bound_x"),
        ({"selector": "exponential"}, "box_x, .* go with selector='pursuit'"),
        ({"box_x": "private"}, "box_x must be limits, got 'private'"),
        ({"box_x": (0, [1, 2, 3])}, "box_x must have a low and a high for each of 4 features, got 3 of each"),
        ({"box_x": {"bmi": (-1, 1)}}, "box_x must have every column of X"),
    ],
)
def test_limits_that_do_not_fit_are_refused(given, words):
    frame, _, _, y = raw(100)
    with pytest.raises((ValueError, TypeError), match=words):
        SparseRegression(1.0, 1e-6, **({"n_nonzero": 1, "box_x": (-1, 1)} | given)).fit(frame, y)


def test_without_noise_features_compete_in_their_declared_units():
    frame, limits, _, y = raw()
    frame["cost"] /= 1e9
    limits["cost"] = (-1e-5, 1e-5)
    model = SparseRegression(math.inf, n_nonzero=1, box_x=limits).fit(frame, y)
    assert model.support_.tolist() == [2]
    assert model.coef_[2] == pytest.approx(0.9e5, rel=0.05)
