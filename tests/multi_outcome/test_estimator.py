"""MultiOutcomeRidge as its users see it: exact without privacy, calibrated with it, and leaving nothing else behind."""

import copy
import math
import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from neighbours import climb, row_in_ball
from scipy import linalg, stats
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge

from dpfast import (
    BudgetExceeded,
    Ledger,
    MultiOutcomeRidge,
    Privacy,
    UnsoundCalibrationWarning,
    UtilityWarning,
    statistics,
)
from dpfast.privacy import gaussian_delta, gaussian_mu, moment_mu
from dpfast.solvers import LabelFactor, positive_semidefinite
from dpfast.solvers.inference import InferenceState
from dpfast.statistics.rows import centred

BOX = (np.array([-1.0, 0.0, 2.0]), np.array([1.0, 3.0, 2.5]))


def table(n=400, d=3, outcomes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(n, d)) / math.sqrt(d)
    y = np.clip(x @ rng.normal(size=(d, outcomes)) * 0.3 + 0.1, -0.7, 0.7)
    return x, y


def model(epsilon=1.0, delta=1e-6, **parameters):
    return MultiOutcomeRidge(
        epsilon, delta, **({"bound_x": 1.0, "bound_y": 1.0, "refine": 0, "fit_intercept": False} | parameters)
    )


# Without privacy: the textbook estimator.


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("ridge", ["auto", 0.0, 2.5])
def test_infinite_epsilon_is_scikit_learns_ridge(fit_intercept, ridge):
    x, y = table()
    x, y = 40.0 * x + 3.0, 40.0 * y  # far beyond the bounds: nothing is clipped
    ours = model(math.inf, 0.0, ridge=ridge, fit_intercept=fit_intercept, nonnegative=True, box_x=(0, 1)).fit(x, y)
    theirs = (
        Ridge(alpha=ridge, fit_intercept=fit_intercept)
        if ridge == 2.5
        else LinearRegression(fit_intercept=fit_intercept)
    ).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-10)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_ * np.ones(2), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-9)
    assert np.all(ours.coef_std_ == 0.0)
    assert "none" in ours.releases_[0].guarantee


def test_infinite_epsilon_is_minimum_norm_where_singular():
    x, y = table(n=2)
    np.testing.assert_allclose(model(math.inf).fit(x, y).coef_.T, linalg.lstsq(x, y)[0], atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_infinite_epsilon_from_sums_keeps_their_grid(fit_intercept):
    x, y = table()
    sums = statistics.gram(x, y, bound_x=1.0, bound_y=1.0, sums=True)
    ours = model(math.inf, fit_intercept=fit_intercept).fit_gram(sums)
    np.testing.assert_allclose(ours.coef_, LinearRegression(fit_intercept=fit_intercept).fit(x, y).coef_, rtol=1e-4)
    if not fit_intercept:
        np.testing.assert_allclose(ours.coef_.T, linalg.solve(sums.xx, sums.xy), rtol=1e-9)


# The noise: drawn with the calibrated law, on the exact sums.

ROUTES = {
    "plain": {},
    "nonnegative": {"nonnegative": True},
    "intercept": {"fit_intercept": True},
    "box": {"box_x": BOX, "bound_x": None},
    "box and intercept": {"box_x": BOX, "bound_x": None, "fit_intercept": True},
    "paper": {"calibration": "paper"},
}


def exact_sums(parameters, x, y):
    """What the release of a route is centred on, computed row by row."""
    if "box_x" in parameters:
        x = centred(*BOX)[0](x)
    if parameters.get("nonnegative"):
        x, y = np.maximum(x, 0.0), np.maximum(y, 0.0)
    sums = {"xx": x.T @ x, "xy": x.T @ y, "x": x.sum(axis=0), "y": y.sum(axis=0), "n": float(len(x))}
    # Few people get the mean outcome alone where delta is 0.
    return sums | {"sum": sums["y"]}


ROUTES_OF_LAWS = [(route, delta) for route in ROUTES for delta in (1e-6, 0.0) if route != "paper" or delta]


@pytest.mark.parametrize(
    ("route", "delta", "adjacency"),
    [
        # A relation changes how large noise is, on record and drawn alike: each route and law has one of them here.
        pytest.param(*way, adjacency, marks=[] if (i + j) % 2 == 0 else [pytest.mark.slow])
        for i, way in enumerate(ROUTES_OF_LAWS)
        for j, adjacency in enumerate(["replace_one", "add_remove"])
    ],
)
def test_noise_has_the_calibrated_law(route, delta, adjacency):
    parameters = ROUTES[route] | {"adjacency": adjacency}
    x, y = table(n=40)
    exact = exact_sums(parameters, x, y)
    releases = [model(1.0, delta, random_state=seed, **parameters).fit(x, y).releases_[0] for seed in range(150)]
    upper = np.triu_indices(3, 1)
    for name in releases[0].values:
        scale = releases[0].scales[name]
        noise = np.array([release.values[name] - exact[name] for release in releases])
        # Rounding rows to the grid moves a sum by less than 1e-5, nothing beside the noise.
        if name == "xx":
            assert all(np.array_equal(value.values["xx"], value.values["xx"].T) for value in releases)
            off = noise[:, *upper] / (scale if delta == 0.0 or route == "paper" else scale / math.sqrt(2.0))
            noise = np.concatenate([np.diagonal(noise, axis1=1, axis2=2), off * scale], axis=1)
        standard = (noise / scale).ravel()
        if delta > 0.0:
            # Kolmogorov-Smirnov over at most five blocks of 22 cases: false-reject rate 1e-6 each.
            assert stats.kstest(standard, "norm").pvalue > 1e-6, name
        else:
            # Coordinates of one draw are uncorrelated with unit variance; heavy tails widen the standard error of the
            # mean square to about 3/sqrt(N) at N draws: six of them.
            assert np.mean(standard**2) == pytest.approx(1.0, abs=6.0 * 3.0 / math.sqrt(150)), name


def test_pure_noise_has_one_gamma_radius_over_all_blocks():
    x, y = table(n=40)
    exact = exact_sums({}, x, y)
    radii = []
    for seed in range(400):
        release = model(1.0, 0.0, random_state=seed).fit(x, y).releases_[0]
        stretch = 2.0 ** round(math.log2(release.scales["xx"] / release.scales["xy"]))
        entries = (release.values["xx"] - exact["xx"])[np.triu_indices(3)]
        crossed = stretch * (release.values["xy"] - exact["xy"])
        radii.append(np.linalg.norm(np.concatenate([entries, crossed.ravel()])))
    dimension = 6 + 6
    scale = release.scales["xx"] / math.sqrt(dimension + 1.0)
    assert stats.kstest(np.array(radii) / scale, stats.gamma(dimension).cdf).pvalue > 1e-6  # false-reject rate


def test_the_release_is_marked():
    x, y = table()
    seeded, secure = model(random_state=3).fit(x, y).releases_[0], model().fit(x, y).releases_[0]
    assert seeded.reproducible
    assert not secure.reproducible
    assert "seed" in seeded.guarantee
    assert secure.privacy == Privacy(1.0, 1e-6)
    assert gaussian_delta(1.0 / secure.mu, 1.0) <= 1e-6 * (1 + 1e-11)
    assert all(math.log2(step) == round(math.log2(step)) for step in secure.grid.values())
    values = secure.values["xy"] / secure.grid["xy"]
    assert np.array_equal(values, np.rint(values))


def test_a_seed_repeats_and_secure_noise_does_not():
    x, y = table()
    assert np.array_equal(model(random_state=3).fit(x, y).coef_, model(random_state=3).fit(x, y).coef_)
    assert not np.array_equal(model(random_state=3).fit(x, y).coef_, model(random_state=4).fit(x, y).coef_)
    assert not np.array_equal(model().fit(x, y).coef_, model().fit(x, y).coef_)


# Accuracy, and the errors that are reported.


@pytest.mark.parametrize("route", [name for name in ROUTES if name not in {"paper"}])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_many_people_give_the_coefficients(route, adjacency):
    rng = np.random.default_rng(5)
    parameters = ROUTES[route] | {"adjacency": adjacency, "bound_y": 4.0}
    low, high = BOX if "box_x" in parameters else (np.zeros(3), np.full(3, 0.57))
    x = rng.uniform(low, high, size=(300_000, 3))
    truth = np.array([[0.5, 0.2, 0.1], [0.0, 0.3, 0.6]])
    constant = np.array([0.4, 0.7]) if parameters.get("fit_intercept") else np.zeros(2)
    fitted = model(2.0, random_state=0, **parameters).fit(x, x @ truth.T + constant)
    assert np.all(np.abs(fitted.coef_ - truth) < 6.0 * fitted.coef_std_ + 1e-3)
    assert np.max(fitted.coef_std_) < 0.3
    np.testing.assert_allclose(fitted.predict(x[:50]), x[:50] @ truth.T + constant, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("route", ["plain", "intercept", "box", "box and intercept"])
def test_coef_std_is_the_spread_of_repeated_fits(route):
    rng = np.random.default_rng(6)
    parameters = ROUTES[route] | {"ridge": 100.0}
    low, high = BOX if "box_x" in parameters else (np.full(3, -0.57), np.full(3, 0.57))
    x = rng.uniform(low, high, size=(20_000, 3))
    y = np.clip(x @ rng.normal(size=(3, 2)) * 0.2, -0.7, 0.7)
    fits = [model(4.0, random_state=seed, **parameters).fit(x, y) for seed in range(400)]
    spread = np.std([fit.coef_ for fit in fits], axis=0)
    claimed = np.mean([fit.coef_std_ for fit in fits], axis=0)
    # 400 draws: relative standard error 3.5%; five of them over 24 comparisons, and 3% of second order.
    np.testing.assert_allclose(claimed, spread, rtol=0.2)


def test_centring_a_box_lowers_the_noise():
    d = 10
    rng = np.random.default_rng(7)
    x = rng.uniform(size=(5000, d))
    y = x[:, :1] / 2.0

    def error(**parameters):
        fits = (model(1.0, bound_x=math.sqrt(d), random_state=s, **parameters).fit(x, y) for s in range(40))
        return np.mean([np.mean((fit.predict(x) - y) ** 2) for fit in fits])

    assert error(box_x=(0.0, 1.0)) < 0.5 * error()


def visits(n=20_000):
    """The design of examples/job.toml in natural units: age 18 to 100 and a 0/1 column."""
    rng = np.random.default_rng(18)
    x = np.column_stack([np.clip(rng.normal(55.0, 16.0, n), 18.0, 100.0), rng.random(n) < 0.25])
    return x, x @ [0.25, 4.0] + 6.0 + rng.normal(0.0, 3.0, n)


NATURAL = {"bound_x": None, "box_x": (np.array([18.0, 0.0]), np.array([100.0, 1.0])), "bound_y": 60.0}


def test_features_in_natural_units_are_fitted_as_well_as_rescaled_ones():
    x, y = visits()
    explained = LinearRegression().fit(x, y).score(x, y)
    for seed in range(5):
        fitted = model(random_state=seed, fit_intercept=True, **NATURAL).fit(x, y)
        assert fitted.score(x, y) > explained - 0.02 > 0.64
        # Half a unit is thrice what noise moves it by: false-reject rate 1e-6 with its deviations.
        assert np.all(np.abs(fitted.coef_[0] - [0.25, 4.0]) < 5.0 * fitted.coef_std_[0] + [0.01, 0.25])


@pytest.mark.parametrize(
    "options", [{}, {"ridge": 0.0}, {"fit_intercept": True}, {"adjacency": "add_remove"}, {"refine": 2}]
)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_units_do_not_matter(options, delta):
    x, y = visits(2_000)
    low, high = NATURAL["box_x"]
    factor = np.array([3.7, 0.0123])
    # Without an intercept another origin is another model.
    shift = np.array([-7.1, 11.3]) if "fit_intercept" in options else np.zeros(2)
    parameters = NATURAL | options | {"random_state": 3}
    one = model(1.0, delta, **parameters).fit(x, y)
    other = model(1.0, delta, **parameters | {"box_x": (factor * low + shift, factor * high + shift)}).fit(
        factor * x + shift, y
    )
    np.testing.assert_allclose(other.predict(factor * x + shift), one.predict(x), rtol=1e-9)
    np.testing.assert_allclose(other.coef_std_ * factor, one.coef_std_, rtol=1e-9)
    assert other.ridge_ == pytest.approx(one.ridge_, rel=1e-9)


@pytest.mark.parametrize("refine", ["auto", 0, 1])
@pytest.mark.parametrize("bound", [1e-60, 1e30])
def test_limits_that_are_too_wide_for_a_bound_are_refused_before_anything_is_spent(bound, refine):
    half_width, ledger = 1e80 * bound, Ledger(Privacy(1.0, 1e-6))
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 2))
    model = MultiOutcomeRidge(
        1.0, 1e-6, bound_y=1.0, box_x=(np.full(2, -half_width), np.full(2, half_width)), bound_x=bound, refine=refine
    )
    with pytest.raises(ValueError, match="must lie between 1e-70 and 1e70"):
        model.set_params(ledger=ledger).fit(rows * half_width, rows[:, 0])
    assert ledger.spent.epsilon == 0.0


def test_a_ridge_that_is_given_is_for_coefficients_in_the_units_of_the_features():
    x, y = visits(50_000)
    fitted = model(1e6, 1e-6, ridge=2e4, **NATURAL).fit(x, y)
    np.testing.assert_allclose(fitted.coef_[0], Ridge(2e4, fit_intercept=False).fit(x, y).coef_, rtol=1e-3)
    assert fitted.ridge_ == 2e4


def test_a_column_between_equal_limits_is_fitted_with_the_others():
    x, y = visits()
    x = np.column_stack([x, np.full(len(x), 7.0)])
    low, high = (np.append(side, 7.0) for side in NATURAL["box_x"])
    for fit_intercept in (False, True):
        fitted = model(random_state=0, fit_intercept=fit_intercept, **NATURAL | {"box_x": (low, high)}).fit(x, y)
        assert fitted.score(x, y) > 0.64


def test_declared_nonnegativity_lowers_the_noise():
    options = {"epsilon": 1.0, "delta": 1e-6, "bound_x": 1.0, "bound_y": 1.0, "refine": 0}
    plain = MultiOutcomeRidge.plan(10_000, 10, 3, **options)
    nonnegative = MultiOutcomeRidge.plan(10_000, 10, 3, **options, nonnegative=True)
    assert nonnegative.expected_error < plain.expected_error


def test_the_plan_agrees_with_simulation():
    rng = np.random.default_rng(8)
    d, n = 6, 40_000
    x = rng.normal(size=(n, d))
    x *= 0.5 / np.linalg.norm(x, axis=1)[:, None]  # spread 1/4, even over directions
    coefficients = rng.normal(size=(d, 1))
    y = x @ coefficients
    y /= np.sqrt(np.mean(y**2))  # outcomes at their bound in the mean square
    plan = MultiOutcomeRidge.plan(
        n, d, 1, epsilon=1.0, delta=1e-6, bound_x=1.0, bound_y=1.0, refine=0, fit_intercept=False
    )
    sums = statistics.gram(x, y, bound_x=1.0, bound_y=1.0)
    exact = model(math.inf).fit_gram(sums).predict(x)
    fits = (model(ridge=0.0, random_state=seed).fit_gram(sums).predict(x) for seed in range(60))
    measured = math.sqrt(np.mean([np.mean((fit - exact) ** 2) for fit in fits]))
    assert plan.expected_error / 2.0 < measured < 2.0 * plan.expected_error
    assert MultiOutcomeRidge.plan(
        plan.needed_n, d, 1, epsilon=1.0, delta=1e-6, bound_x=1.0, bound_y=1.0, refine=0, fit_intercept=False
    ).expected_error == pytest.approx(0.1, rel=0.01)


# Sums, blocks and the budget.


def test_fit_gram_is_fit():
    x, y = table()
    total = statistics.GramAccumulator(3, 2, bound_x=1.0, bound_y=1.0)
    for start in range(0, 400, 64):
        total.update(x[start : start + 64], y[start : start + 64])
    one, other = model(random_state=1).fit(x, y), model(random_state=1).fit_gram(total.gram())
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.coef_std_, other.coef_std_)


@pytest.mark.parametrize("kind", ["float32", "fortran", "strided", "list", "frame", "blocks", "list of blocks"])
def test_every_kind_of_table_gives_the_same_release(kind):
    x, y = table()
    x, y = x.astype(np.float32).astype(np.float64), y.astype(np.float32).astype(np.float64)
    given = {
        "float32": (x.astype(np.float32), y.astype(np.float32)),
        "fortran": (np.asfortranarray(x), np.asfortranarray(y)),
        "strided": (np.repeat(x, 2, axis=0)[::2], np.repeat(y, 2, axis=1)[:, ::2]),
        "list": (x.tolist(), y.tolist()),
        "frame": (pd.DataFrame(x, columns=list("abc")), pd.DataFrame(y)),
        "blocks": (iter([x[:100], x[100:]]), iter([y[:100], y[100:]])),
        "list of blocks": ([x[:100], x[100:]], [y[:100], y[100:]]),
    }[kind]
    expected = model(random_state=2).fit(x, y).coef_
    for threads in (1, 2):
        # An iterator is read once.
        if kind == "blocks" and threads == 2:
            break
        assert np.array_equal(model(random_state=2, n_threads=threads).fit(*given).coef_, expected)


def test_the_ledger_pays_once_a_fit():
    ledger = Ledger(Privacy(2.0, 3e-6), composition="basic")
    x, y = table()
    one = model(ledger=ledger).fit(x, y)
    assert ledger.spent == one.privacy_spent_ == Privacy(1.0, 1e-6)
    assert ledger.releases == one.releases_
    clone(one).fit(x, y)
    with pytest.raises(BudgetExceeded):
        model(0.5, ledger=ledger).fit(x, y)
    assert ledger.spent == Privacy(2.0, 2e-6)


class Untouchable:
    """A table that fails the test when it is read."""

    shape = (10, 3)
    ndim = 2

    def __array__(self, *args, **kwargs):
        raise AssertionError("data was read")

    def __iter__(self):
        raise AssertionError("data was read")


def test_an_empty_budget_is_noticed_before_data_is_read():
    with pytest.raises(BudgetExceeded):
        model(ledger=Ledger(Privacy(0.5, 1e-6))).fit(Untouchable(), Untouchable())


@pytest.mark.parametrize("place", ["x", "y"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("route", ROUTES)
def test_a_failed_fit_spends_nothing_and_keeps_the_estimator(route, value, place):
    ledger = Ledger(Privacy(2.0, 2e-6), composition="basic")
    x, y = table()
    (x if place == "x" else y)[17, 1] = value
    estimator = model(ledger=ledger, **ROUTES[route])
    with pytest.raises(ValueError, match="NaN or infinity") as caught:
        estimator.fit(x, y)
    assert "17" not in str(caught.value)
    assert ledger.remaining == Privacy(2.0, 2e-6)
    with pytest.raises(NotFittedError):
        estimator.predict(x)
    estimator.fit(*table())
    kept = estimator.coef_
    with pytest.raises(ValueError, match="NaN or infinity"):
        estimator.fit(x, y)
    assert estimator.coef_ is kept


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": "1"}, TypeError, "epsilon"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"delta": -1e-9}, ValueError, "delta"),
        ({"adjacency": "swap"}, ValueError, "adjacency"),
        ({"bound_x": 0.0}, ValueError, "bound_x"),
        ({"bound_x": -1.0}, ValueError, "bound_x"),
        ({"bound_x": math.inf}, ValueError, "bound_x"),
        ({"bound_x": math.nan}, ValueError, "bound_x"),
        ({"bound_x": None}, TypeError, "bound_x"),
        ({"bound_x": "1"}, TypeError, "bound_x"),
        ({"bound_y": 0.0}, ValueError, "bound_y"),
        ({"bound_y": None}, TypeError, "bound_y"),
        ({"ridge": -1.0}, ValueError, "ridge"),
        ({"ridge": math.nan}, ValueError, "ridge"),
        ({"ridge": "none"}, (TypeError, ValueError), "ridge"),
        ({"ridge": None}, TypeError, "ridge"),
        ({"mechanism": "laplace"}, ValueError, "mechanism"),
        ({"calibration": "printed"}, ValueError, "calibration"),
        ({"fit_intercept": 1}, TypeError, "fit_intercept"),
        ({"nonnegative": "yes"}, TypeError, "nonnegative"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"random_state": 1.5}, TypeError, "random_state"),
        ({"random_state": np.random.default_rng(0)}, TypeError, "random_state"),
        ({"n_threads": 0}, ValueError, "n_threads"),
        ({"n_threads": 1.5}, TypeError, "n_threads"),
        ({"ledger": 1.0}, TypeError, "ledger"),
        ({"refine": -1}, ValueError, "refine"),
        ({"refine": 21}, ValueError, "refine must be at most 20"),
        ({"refine": 1.5}, TypeError, "refine"),
        ({"refine": "many"}, TypeError, "refine"),
        ({"refine": 1, "mechanism": "independent"}, ValueError, "refine must be 0 or 'auto'"),
        ({"refine": 1, "calibration": "paper"}, ValueError, "refine must be 0 or 'auto'"),
        ({"refine": 1, "n_subsample": 3}, ValueError, "refine must be 0 or 'auto'"),
        ({"box_x": 1.0}, TypeError, "box_x"),
        ({"box_x": (0.0, 1.0, 2.0)}, ValueError, "box_x must be two: all lows, and all highs, got 3"),
        ({"box_x": (0.0, math.inf)}, ValueError, "box_x"),
        ({"box_x": (1.0, 0.0)}, ValueError, "box_x"),
        ({"box_x": (1.0, 1.0)}, ValueError, "box_x"),
        ({"box_x": (np.zeros(2), 1.0)}, ValueError, "box_x"),
        ({"calibration": "paper", "delta": 0.0}, ValueError, "delta"),
        ({"calibration": "paper", "mechanism": "independent"}, ValueError, "mechanism"),
        ({"composition": "zcdp"}, ValueError, "composition"),
        ({"mechanism": "independent", "delta": 0.0}, ValueError, "delta"),
        ({"mechanism": "independent", "nonnegative": True}, ValueError, "nonnegative"),
        ({"calibration": "paper", "nonnegative": True}, ValueError, "nonnegative"),
        ({"calibration": "paper", "box_x": (0.0, 1.0)}, ValueError, "box_x"),
    ],
)
def test_a_bad_parameter_is_refused_by_name_before_anything_is_spent(parameters, error, words):
    ledger = Ledger(Privacy(5.0, 0.5))
    with pytest.raises(error, match=words):
        model(**({"ledger": ledger} | parameters)).fit(*table())
    assert ledger.remaining == Privacy(5.0, 0.5)
    assert not ledger.releases


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.ones(5), np.ones(5)),
        (np.ones((5, 2, 1)), np.ones(5)),
        (np.ones((5, 2)), np.ones(4)),
        (np.ones((5, 2)), None),
        (np.ones((5, 0)), np.ones(5)),
        (np.ones((5, 2)), np.ones((5, 0))),
        (np.array([["a", "b"]]), np.ones(1)),
        (np.ones((5, 2)) * 1j, np.ones(5)),
        (None, np.ones(5)),
        ("no such file", np.ones(5)),
        (3.0, np.ones(5)),
    ],
)
def test_a_bad_table_is_refused_before_anything_is_spent(x, y):
    ledger = Ledger(Privacy(5.0, 0.5))
    with pytest.raises((ValueError, TypeError, FileNotFoundError)):
        model(ledger=ledger).fit(x, y)
    assert ledger.remaining == Privacy(5.0, 0.5)


def test_sums_with_other_bounds_are_refused():
    x, y = table()
    sums = statistics.gram(x, y, bound_x=2.0, bound_y=1.0)
    with pytest.raises(ValueError, match="bound_x"):
        model().fit_gram(sums)
    with pytest.raises(ValueError, match="need the rows"):
        model(bound_x=2.0, nonnegative=True).fit_gram(sums)
    with pytest.raises(TypeError, match="Gram"):
        model().fit_gram(x)
    with pytest.raises(ValueError, match="outcomes"):
        model(bound_x=2.0).fit_gram(statistics.gram(x, bound_x=2.0))


@pytest.mark.parametrize("mechanism", [{"mechanism": "independent"}, {"n_subsample": 100}, {"calibration": "paper"}])
def test_where_no_intercept_can_be_fitted_it_is_said(mechanism):
    x, y = table()
    with pytest.warns(UtilityWarning, match="no intercept is fitted: the paper's algorithm has none"):
        one = model(random_state=0, fit_intercept=True, **mechanism).fit(x, y)
    other = model(random_state=0, **mechanism).fit(x, y)
    assert np.array_equal(one.coef_, other.coef_)
    assert not np.any(one.intercept_)
    assert "(intercept)" not in one.summary().index.get_level_values("feature")


def test_sums_without_those_of_columns_have_no_intercept(tmp_path):
    x, y = table()
    sums = statistics.gram(x, y, bound_x=1.0, bound_y=1.0)
    one = model(random_state=0, fit_intercept=True)
    with pytest.warns(UtilityWarning, match="no intercept is fitted: the gram has no column sums"):
        one.fit_gram(sums)
    assert np.array_equal(one.coef_, model(random_state=0).fit_gram(sums).coef_)
    assert "(intercept)" not in one.summary().index.get_level_values("feature")
    one.save(tmp_path / "model.json")
    pd.testing.assert_frame_equal(MultiOutcomeRidge.load(tmp_path / "model.json").summary(), one.summary())
    assert np.any(one.fit(x, y).intercept_)


def test_rows_beyond_a_bound_are_scaled_onto_it():
    x, y = table()
    inside = x / np.linalg.norm(x, axis=1)[:, None]
    # Rounding to the grid may differ in the last cell; the release differs by no more than that.
    far, near = (model(random_state=0).fit(rows, y).releases_[0].values["xx"] for rows in (1e6 * x, inside))
    np.testing.assert_allclose(far, near, atol=400 * 1e-6)


def test_nobody_is_told_that_rows_were_clipped(capsys):
    x, y = table(n=5_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model().fit(1e6 * x, y)
    assert capsys.readouterr() == ("", "")


# What is left on the estimator, and scikit-learn's conventions.


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_nothing_but_released_values_is_kept(adjacency):
    x, y = table()
    fitted = model(adjacency=adjacency, fit_intercept=True).fit(x, y)
    known = {"coef_", "intercept_", "coef_std_", "ridge_", "n_steps_", "releases_", "privacy_spent_"}
    known |= {"n_features_in_", "residual_std_", "_inference_states", "_textbook", "_n_public", "_expected_error"}
    assert set(vars(fitted)) - set(fitted.get_params()) == known | {"_single_outcome", "_lacks_sums", "_is_weighted"}
    # Everything is a function of the release: solve again from it.
    (told,) = fitted._inference_states
    assert fitted._expected_error == 1.0 / max(InferenceState(**told).signal_to_noise, 1.0)
    again = pickle.loads(pickle.dumps(fitted.releases_[0]))
    assert set(again.values) == {"xx", "xy", "x", "y"} | ({"n"} if adjacency == "add_remove" else set())


def test_repr_shows_parameters_only():
    x, y = table()
    assert repr(model(random_state=0).fit(x, y)) == repr(model(random_state=0))


def test_names_and_shapes():
    x, y = table()
    frame = pd.DataFrame(x, columns=["age", "dose", "weight"])
    fitted = model(random_state=0).fit(frame, pd.Series(y[:, 0]))
    assert list(fitted.feature_names_in_) == ["age", "dose", "weight"]
    assert fitted.coef_.shape == fitted.coef_std_.shape == (1, 3)
    assert fitted.predict(frame).shape == (400,)
    assert model(random_state=0).fit(frame, y[:, :1]).predict(frame).shape == (400, 1)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["dose", "age", "weight"]])
    with pytest.raises(ValueError, match="features"):
        fitted.predict(x[:, :2]) if False else model().fit(x, y).predict(x[:, :2])
    with pytest.raises(NotFittedError):
        model().predict(x)


def test_a_new_fit_forgets_the_names_of_the_old_table():
    x, y = table()
    fitted = model(random_state=0).fit(pd.DataFrame(x, columns=list("abc")), y)
    for refit in (lambda: fitted.fit(x[:, :2], y), lambda: fitted.fit(iter([x[:, :2]]), iter([y]))):
        assert refit().n_features_in_ == 2
        assert not hasattr(fitted, "feature_names_in_")
        assert fitted.predict(x[:, :2]).shape == (400, 2)
        fitted.fit(pd.DataFrame(x, columns=list("abc")), y)


def test_copies_keep_the_fit_and_clones_do_not():
    x, y = table()
    fitted = model(random_state=0).fit(x, y)
    assert np.array_equal(copy.deepcopy(fitted).coef_, fitted.coef_)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).coef_, fitted.coef_)
    assert not hasattr(clone(fitted), "coef_")
    assert fitted.score(x, y) <= 1.0


# The printed algorithm.


@pytest.mark.parametrize(
    ("epsilon", "adjacency", "warns"),
    [(1.0, "replace_one", False), (6.0, "replace_one", False), (8.0, "replace_one", True), (8.0, "add_remove", False)],
)
def test_the_printed_algorithm_warns_where_it_misses_its_claim(epsilon, adjacency, warns):
    x, y = table()
    printed = model(epsilon, adjacency=adjacency, calibration="paper", random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        release = printed.fit(x, y).releases_[0]
    found = [warning.category for warning in caught if not issubclass(warning.category, UtilityWarning)]
    assert found == ([UnsoundCalibrationWarning] if warns else [])
    assert release.guaranteed is not warns
    assert ("does not reach" in release.guarantee) is warns
    constant = 2.0 * math.sqrt(2.0 * math.log(2.5 / 1e-6)) / epsilon
    assert release.scales["xx"] == pytest.approx(constant, rel=1e-5)
    assert release.scales["xy"] == pytest.approx(constant, rel=1e-5)


# People with several rows.


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_person_with_fifty_rows_is_protected_as_one(delta, adjacency):
    rng = np.random.default_rng(11)
    others = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    ids = np.concatenate([np.arange(20), np.full(50, 99)])
    privacy = Privacy(1.0, delta, adjacency)
    route = model(1.0, delta, adjacency=adjacency, fit_intercept=True)._chosen_mechanism(3, 2, privacy, 50)
    limit = route.calibration.mu if delta > 0.0 else 1.0
    far = 0.0
    for trial in range(60):
        # The whole person changes: random rows, and fifty equal rows turned into their worst opposites.
        spread = 0.0 if trial % 2 else 1.0
        tables = []
        for sign in (1.0, -1.0):
            x = spread * rng.normal(size=(50, 3)) + (5.0, 5.0 * sign * (trial % 3), 0.0)
            y = spread * rng.normal(size=(50, 2)) + (sign * 5.0, 0.0)
            both = np.vstack([others[0], x]), np.vstack([others[1], y])
            sums = {"bound_x": 1.0, "bound_y": 1.0, "sums": True, "max_rows": 50}
            tables.append(statistics.gram(*both, **sums, groups=ids))
        if adjacency == "add_remove":
            tables[1] = statistics.gram(*others, **sums, groups=ids[:20])
        far = max(far, units_apart(*tables, route.calibration))
    assert 0.5 * limit < far <= limit


def exact_block(sums, name):
    if name == "n":
        return np.float64(sums.n_rows)
    blocks = {"xx": sums.exact_xx, "xy": sums.exact_xy, "x": sums.exact_x_sum, "y": sums.exact_y_sum}
    return blocks[name].to_float64()


def units_apart(first, second, calibration):
    """How far exact sums are apart in units of the noise; for a joint draw, of its scale."""
    squared = 0.0
    for name in calibration.scales:
        pair = [exact_block(sums, name) for sums in (first, second)]
        scale = calibration.scales[name]
        change = pair[0] - pair[1]
        if calibration.law == "L2-Laplace":
            scale = calibration.joint_scale / 2.0 ** round(math.log2(calibration.scales["xx"] / scale))
            change = change[np.triu_indices(3)] if name == "xx" else change
        squared += np.sum(change**2) / scale**2
    return math.sqrt(squared)


def test_people_with_several_rows_fit_and_pay_for_them():
    x, y = table(n=600)
    ids = np.repeat(np.arange(200), 3)
    one = model(random_state=0).fit(x, y).releases_[0]
    three = model(random_state=0).fit(x, y, groups=ids, max_rows=3).releases_[0]
    assert three.scales["xx"] == pytest.approx(3.0 * one.scales["xx"], rel=1e-9)
    sums = statistics.gram(x, y, bound_x=1.0, bound_y=1.0, groups=ids, max_rows=3)
    assert np.array_equal(model(random_state=0).fit_gram(sums).releases_[0].values["xx"], three.values["xx"])
    fitted = model(random_state=0, fit_intercept=True).fit(x, y, groups=ids, max_rows=3)
    assert set(fitted.releases_[0].values) == {"xx", "x", "xy", "y", "n"}
    only_first = model(random_state=0).fit(x, y, groups=ids, max_rows=1)
    assert np.array_equal(only_first.coef_, model(random_state=0).fit(x[::3], y[::3]).coef_)


@pytest.mark.parametrize(
    ("block_bounds", "delta", "adjacency"),
    [
        ((3.0, None), 1e-6, "replace_one"),
        ((None, 2.0), 0.0, "replace_one"),
        ((3.0, 2.0), 1e-6, "replace_one"),
        ((3.0, 2.0), 1e-6, "add_remove"),
        pytest.param((11.9, 5.0), 0.0, "add_remove", marks=pytest.mark.slow),
        ((100.0, 100.0), 1e-6, "replace_one"),
    ],
)
def test_a_person_within_block_bounds_is_protected(block_bounds, delta, adjacency):
    """Hill-climbed people of up to twelve rows, summed as fit sums them, move the release by its budget at most."""
    bounded = model(1.0, delta, adjacency=adjacency, block_bounds=block_bounds)
    calibration = bounded._chosen_mechanism(3, 1, Privacy(1.0, delta, adjacency), 12).calibration
    unit = calibration.people
    sums = {"bound_x": 1.0, "bound_y": 1.0, "max_rows": 12, "bound_xx": unit.bound_xx, "bound_xy": unit.bound_xy}
    limits = [math.inf if bound is None else bound for bound in (unit.bound_xx, unit.bound_xy)]
    rng = np.random.default_rng(12)

    def person(parameters):
        rows = np.resize(parameters.reshape(2, 4), (12, 4))
        x, y = (np.array([row_in_ball(row, 1.0) for row in part]) for part in (rows[:, :3], rows[:, 3:]))
        return x, y

    def block(parameters):
        x, y = person(parameters)
        xx, xy = x.T @ x, x.T @ y
        factor = min(1.0, limits[0] / max(np.linalg.norm(xx), 1e-9), limits[1] / max(np.linalg.norm(xy), 1e-9))
        return factor * xx / calibration.scales["xx"], factor * xy / calibration.scales["xy"]

    def change(parameters):
        return sum(np.sum((a - b) ** 2) for a, b in zip(block(parameters[:8]), block(parameters[8:]), strict=True))

    _, worst = climb(change, 16, rng, restarts=1, screened=10)
    others = rng.normal(size=(20, 3)), rng.normal(size=(20, 1))

    def table_with(*people):
        tables = [np.vstack(parts) for parts in zip(others, *people, strict=True)]
        return statistics.gram(*tables, **sums, groups=[*range(20), *[99] * 12 * len(people)])

    pairs = [(worst[:8], worst[8:]), *(rng.normal(size=(2, 8)) for _ in range(10))]
    for ours, theirs in pairs:
        first = table_with(person(ours))
        second = table_with(person(theirs)) if adjacency == "replace_one" else table_with()
        assert units_apart(first, second, calibration) <= (calibration.mu if delta > 0.0 else 1.0)


def test_block_bounds_lower_the_noise_and_clip_people():
    rng = np.random.default_rng(14)
    x = rng.normal(size=(6000, 3))
    x /= np.linalg.norm(x, axis=1)[:, None]
    y = 0.5 * x[:, :2]
    ids = np.repeat(np.arange(200), 30)
    plain = model(random_state=0).fit(x, y, groups=ids, max_rows=30)
    # Thirty unit rows even over three directions add up to X'X of norm 30/sqrt(3).
    bounded = model(random_state=0, block_bounds=(18.0, None)).fit(x, y, groups=ids, max_rows=30)
    assert bounded.releases_[0].scales["xx"] < 0.7 * plain.releases_[0].scales["xx"]
    bounds = {"bound_x": 1.0, "bound_y": 1.0}
    sums = statistics.gram(x, y, **bounds, groups=ids, max_rows=30, bound_xx=18.0)
    again = model(random_state=0, block_bounds=(18.0, None)).fit_gram(sums)
    assert np.array_equal(again.coef_, bounded.coef_)
    # Bounds that rows imply ask for no more than the rows do.
    implied = model(random_state=0, block_bounds=(30.0, 30.0)).fit(x, y, groups=ids, max_rows=30)
    assert np.array_equal(implied.coef_, plain.coef_)
    with pytest.raises(ValueError, match="block_bounds"):
        model(block_bounds=(17.0, None)).fit_gram(sums)
    with pytest.raises(ValueError, match="block_bounds"):
        model(block_bounds=(18.0, None)).fit_gram(statistics.gram(x, y, **bounds))


def test_a_plan_knows_of_people_with_several_rows():
    plan = partial(
        MultiOutcomeRidge.plan,
        2000,
        9,
        2,
        epsilon=1.0,
        delta=1e-6,
        bound_x=1.0,
        bound_y=1.0,
        refine=0,
        fit_intercept=False,
    )
    plain, bounded = plan(max_rows=36), plan(max_rows=36, block_bounds=(3.0, 3.0))
    # As many times the rows as there is noise: one row a person is the same.
    assert plain.expected_error == pytest.approx(plan().expected_error, rel=1e-6)
    # Rows of mean squared norm 1/4, even over nine directions, fill the block bound 36/4/3.
    assert bounded.expected_error < 0.2 * plain.expected_error
    # A bound below what people have costs them: half as large, half the rows count and half the noise is added.
    assert plan(max_rows=36, block_bounds=(1.5, 1.5)).expected_error == pytest.approx(bounded.expected_error, rel=0.1)
    with pytest.raises(ValueError, match="max_rows"):
        plan(block_bounds=(3.0, 3.0))


@pytest.mark.parametrize(
    ("block_bounds", "more", "error", "message"),
    [
        (3.0, {}, TypeError, r"block_bounds must be a pair \(bound_xx, bound_xy\), got float"),
        ((3.0,), {}, TypeError, "block_bounds must be a pair"),
        ((3.0, -1.0), {}, ValueError, "block_bounds' bound_xy must be positive"),
        ((0.0, None), {}, ValueError, "bound_xx must be positive"),
        ((None, math.nan), {}, ValueError, "bound_xy"),
        ((3.0, None), {"fit_intercept": True}, ValueError, "constant column"),
    ],
)
def test_bad_block_bounds_are_named(block_bounds, more, error, message):
    x, y = table()
    with pytest.raises(error, match=message):
        model(block_bounds=block_bounds, **more).fit(x, y, groups=np.arange(400), max_rows=1)


def test_block_bounds_need_groups():
    with pytest.raises(ValueError, match="groups and max_rows"):
        model(block_bounds=(3.0, None)).fit(*table())


@pytest.mark.parametrize(
    ("parameters", "more"),
    [
        ({}, {"groups": np.arange(400)}),
        ({}, {"max_rows": 3}),
        ({}, {"groups": np.arange(400), "max_rows": 0}),
        ({}, {"groups": np.arange(399), "max_rows": 2}),
        ({"calibration": "paper"}, {"groups": np.arange(400), "max_rows": 2}),
        ({"mechanism": "independent"}, {"groups": np.arange(400), "max_rows": 2}),
        ({"epsilon": math.inf}, {"groups": np.arange(400), "max_rows": 2}),
    ],
)
def test_bad_groups_are_refused_and_cost_nothing(parameters, more):
    ledger = Ledger(Privacy(math.inf, 0.5))
    with pytest.raises(ValueError, match=r"groups|max_rows"):
        model(**({"ledger": ledger} | parameters)).fit(*table(), **more)
    assert ledger.spent.epsilon == 0.0


# Public labels.


def test_projection_lowers_the_error_of_many_outcomes():
    rng = np.random.default_rng(10)
    n, d, outcomes = 400, 10, 400
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1)[:, None]
    y = np.sign(x @ rng.normal(size=(d, outcomes)))
    parameters = {"bound_y": math.sqrt(outcomes), "random_state": 0}
    exact = linalg.lstsq(x, y)[0]

    def risk(**more):
        gap = model(10.0, **parameters, **more).fit(x, y).coef_.T - exact
        return np.sum((x @ gap) ** 2) / np.sum((x @ exact) ** 2)

    plain, projected = risk(), risk(mechanism="projection", public_labels=True)
    assert projected < 0.5 * plain


@pytest.mark.parametrize(
    "outcomes", [25, 250, pytest.param(2000, marks=pytest.mark.slow), pytest.param(2500, marks=pytest.mark.slow)]
)
def test_projection_lowers_the_squared_error_of_cross_moments(outcomes):
    """At n = 2,000, d = 64 and l sqrt(d)/n = 0.1, 1, 8 and 10, from one release with and without projection.

    Errors are means over 1,600 entries and more: the factor of 3 is far from chance.
    """
    rng = np.random.default_rng(13)
    x = rng.normal(size=(2000, 64))
    x /= np.linalg.norm(x, axis=1).max()
    y = x @ rng.normal(size=(64, outcomes))
    y = np.clip((y / y.std(axis=0) + rng.normal(size=y.shape)) / 6.0, -1.0, 1.0)
    released = model(bound_y=math.sqrt(outcomes), public_labels=True).fit(x, y).releases_[0].values["xy"]
    exact = x.T @ y
    error = np.mean((LabelFactor.from_labels(y).project(released, 1.0) - exact) ** 2)
    assert 3.0 * error < np.mean((released - exact) ** 2)


def test_projection_is_a_function_of_the_release_and_the_labels():
    x, y = table(outcomes=6)
    release = model(random_state=0, public_labels=True).fit(x, y).releases_[0]
    projected = model(random_state=0, public_labels=True, mechanism="projection", ridge=2.0).fit(x, y)
    assert np.array_equal(projected.releases_[0].values["xy"], release.values["xy"])
    xy = LabelFactor.from_labels(y).project(release.values["xy"], 1.0)
    expected = linalg.solve(positive_semidefinite(release.values["xx"]) + 2.0 * np.eye(3), xy)
    np.testing.assert_allclose(projected.coef_.T, expected, rtol=1e-6)


def test_projection_needs_public_labels_as_a_whole():
    x, y = table()
    with pytest.raises(ValueError, match="public_labels"):
        model(mechanism="projection").fit(x, y)
    with pytest.raises(ValueError, match="adjacency"):
        model(mechanism="projection", public_labels=True, adjacency="add_remove").fit(x, y)
    projection = model(mechanism="projection", public_labels=True)
    with pytest.raises(TypeError, match="array"):
        projection.fit(iter([x]), iter([y]))
    with pytest.raises(ValueError, match="use fit"):
        projection.fit_gram(statistics.gram(x, y, bound_x=1.0, bound_y=1.0))


# The naive baseline.


@pytest.mark.parametrize("composition", ["basic", "advanced", "mu"])
def test_independent_fits_release_every_covariance_anew(composition):
    x, y = table(outcomes=4)
    fits = [model(mechanism="independent", composition=composition, random_state=s).fit(x, y) for s in range(60)]
    release = fits[0].releases_[0]
    assert release.values["xx"].shape == (4, 3, 3)
    assert fits[0].coef_.shape == fits[0].coef_std_.shape == (4, 3)
    exact = exact_sums({}, x, y)
    drawn = np.array([fit.releases_[0].values["xx"] - exact["xx"] for fit in fits])[:, :, [0, 1, 2], [0, 1, 2]]
    # Kolmogorov-Smirnov: false-reject rate 1e-6; the copies are independent of each other.
    assert stats.kstest((drawn / release.scales["xx"]).ravel(), "norm").pvalue > 1e-6
    assert abs(np.corrcoef(drawn[:, 0].ravel(), drawn[:, 1].ravel())[0, 1]) < 0.4
    assert gaussian_delta(1.0, 1.0, release.mu) <= 1e-6


def test_sharing_the_covariance_beats_paying_for_it_once_an_outcome():
    def plan(**parameters):
        return MultiOutcomeRidge.plan(100_000, 10, 50, epsilon=1.0, delta=1e-6, bound_x=1.0, bound_y=1.0, **parameters)

    errors = [plan(mechanism="independent", composition=name).expected_error for name in ("mu", "advanced", "basic")]
    assert plan().expected_error < errors[0] < errors[1] < errors[2] or errors[1] == errors[2] == 1.0


def test_the_sound_calibration_beats_the_printed_one_made_sound():
    """At (1, 1e-6), the classic constants, half the budget each, sensitivities sqrt(2) and 2, with the best ridge."""
    rng = np.random.default_rng(9)
    d, outcomes, n = 15, 8, 50_000
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1).max()
    y = x @ rng.normal(size=(d, outcomes)) + 0.2 * rng.normal(size=(n, outcomes))
    y /= np.linalg.norm(y, axis=1).max()
    sums = statistics.gram(x, y, bound_x=1.0, bound_y=1.0)
    truth = linalg.solve(sums.xx, sums.xy)
    constant = 2.0 * math.sqrt(2.0 * math.log(2.5 / 1e-6))

    def risk(theta):
        return float(np.sum((theta - truth) * (sums.xx @ (theta - truth))))

    def printed():
        upper = np.triu(rng.normal(scale=math.sqrt(2.0) * constant, size=(d, d)))
        xx = sums.xx + upper + np.triu(upper, 1).T
        xy = sums.xy + rng.normal(scale=2.0 * constant, size=(d, outcomes))
        return min(risk(linalg.solve(xx + ridge * np.eye(d), xy)) for ridge in (0.0, *np.geomspace(1.0, 1e4, 30)))

    ours = np.mean([risk(model(random_state=seed).fit_gram(sums).coef_.T) for seed in range(60)])
    assert np.mean([printed() for _ in range(60)]) > 4.0 * ours


def test_sums_are_not_taken_for_a_table():
    """`fit_gram` alone checks which bounds they were accumulated with."""
    sums = statistics.gram(np.eye(3), np.ones((3, 1)), bound_x=9.0, bound_y=9.0)
    with pytest.raises(TypeError):
        MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, fit_intercept=False).fit(sums, None)


@pytest.mark.parametrize("shape", [(1, 40_000), (400, 1)], ids=["outcomes", "features"])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_noise_is_for_rows_as_long_as_rounding_makes_them(adjacency, shape):
    """Rounding lengthens a row by half a unit of the grid in every entry: much, where entries are many."""
    privacy = Privacy(1.0, 1e-6, adjacency)
    scales = model(1.0, 1e-6, adjacency=adjacency)._chosen_mechanism(*shape, privacy).calibration.deviations
    radii = [statistics.rounded_bound(1.0, n) for n in shape]
    sizes = {"adjacency": adjacency, "n_features": shape[0], "n_outcomes": shape[1]}
    target = gaussian_mu(*privacy.target)
    assert moment_mu(scales, *radii, **sizes) <= target
    assert max(radii) > 1.0 + 1e-13


@pytest.mark.parametrize("options", [{}, {"fit_intercept": True}, {"refine": 0}])
@pytest.mark.parametrize("bounds", [(1e308, 1.0), (1e-308, 1.0), (1.0, 1e308), (1e308, 1e308), (1e-100, 1e100)])
def test_bounds_at_the_ends_of_floats_are_fitted_or_refused_before_anything_is_spent(bounds, options):
    ledger = Ledger(Privacy(1.0, 1e-6))
    extreme = MultiOutcomeRidge(1.0, 1e-6, bound_x=bounds[0], bound_y=bounds[1], ledger=ledger, **options)
    said = ""
    try:
        extreme.fit(*table(n=300))
    except ValueError as error:
        said = str(error)
    assert "bound" in said or ledger.releases
    assert not ledger.reservations
    assert not (said and ledger.releases)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_an_intercept_keeps_to_the_range_of_outcomes_however_few_people_are_counted(adjacency):
    """At the mean row predictions are mean outcomes: no row is beyond its bound, nor is the mean of any."""
    x, y = table(n=20)
    for seed in range(40):
        fitted = model(adjacency=adjacency, fit_intercept=True, random_state=seed).fit(x, y)
        lengths = np.linalg.norm(fitted.coef_, axis=1)
        assert np.all(np.abs(fitted.intercept_) <= 1.0 + 1e-9 + lengths)


def test_no_dtype_of_a_column_decides_how_many_steps_there_are():
    """One person who is not a whole number makes a column one of floats, and the frame one array."""
    rng = np.random.default_rng(5)
    counts, outcome = rng.integers(-2, 3, (3_000, 2)), rng.normal(size=3_000)
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=4.0, bound_y=4.0, random_state=0, fit_intercept=False)
    mixed = pd.DataFrame({"a": counts[:, 0], "b": counts[:, 1].astype(float)})
    assert len(set(mixed.dtypes)) == 2
    for table in (mixed, mixed.astype(float), mixed.to_numpy(float)):
        for y in (outcome, outcome.tolist(), pd.Series(outcome)):
            fitted = model.fit(table, y)
            assert fitted.n_steps_ > 3
            assert fitted.coef_.tobytes() == model.fit(counts, outcome).coef_.tobytes()


@pytest.mark.parametrize("penalty", [0.0, 3.0, 30.0])
def test_a_declared_ridge_is_that_of_the_table_whatever_its_columns_correlate(penalty):
    rng = np.random.default_rng(0)
    x = (0.9 * rng.normal(size=(20_000, 1)) + 0.436 * rng.normal(size=(20_000, 4))) * [0.125, 0.1, 0.05, 0.02]
    y = 1.0 + x @ [4.0, -2.4, 6.0, 9.0] + 0.5 * rng.normal(size=20_000)
    options = {"bound_x": 1.0, "bound_y": 6.0, "ridge": penalty, "random_state": 0}
    private, exact = (MultiOutcomeRidge(epsilon, 1e-6, **options).fit(x, y).coef_ for epsilon in (100.0, np.inf))
    np.testing.assert_allclose(private, exact, atol=0.06)


def warned_and_lost(rows, outcomes, epsilon, fits=12, **limits):
    """Return how often fits warn, and the part of the signal that each loses."""
    columns = np.column_stack([np.ones(len(rows)), rows])
    exact, warned, lost = columns @ np.linalg.lstsq(columns, outcomes)[0], 0, []
    for seed in range(fits):
        model = MultiOutcomeRidge(epsilon, 1e-6, random_state=seed, **limits)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            off = model.fit(rows, outcomes).predict(rows) - exact
        warned += any(issubclass(one.category, UtilityWarning) for one in found)
        lost.append(np.sum((off - off.mean(axis=0)) ** 2) / np.sum((exact - exact.mean(axis=0)) ** 2))
    return warned, np.array(lost)


def test_few_people_are_warned_where_noise_hides_the_signal():
    """Costs that are mostly zero: public numbers promise two thirds of the signal, releases show hardly any."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(500, 6))
    mean = np.exp(0.5 + rows @ [1.0, 0.5, 0.0, 1.0, 0.5, 0.0])
    costs = np.where(rng.random(500) < 0.6, 0.0, np.minimum(rng.gamma(1.5, mean), 60.0))
    warned, lost = warned_and_lost(rows, costs, 1.0, box_x=(0.0, 1.0), bound_y=60.0)
    assert np.median(lost) > 0.8
    assert warned >= 9
    answers = np.clip(np.round(4.0 + rng.normal(size=(500, 1)) + rng.normal(size=(500, 4))), 1.0, 7.0)
    warned, lost = warned_and_lost(answers, answers[:, 0] + answers[:, 1], 1.0, box_x=(1.0, 7.0), bound_y=14.0)
    assert np.median(lost) < 0.2
    assert warned <= 1


def test_ten_digits_that_lose_a_fifth_are_not_called_noise():
    """Shrinkage removes nearly all noise where X'X hides most directions."""
    pixels, digits = load_digits(return_X_y=True)
    warned, lost = warned_and_lost(pixels, np.eye(10)[digits], 2.0, fits=4, box_x=(0.0, 16.0), bound_y=1.0)
    assert max(lost) < 0.35
    assert warned == 0
    warned, lost = warned_and_lost(pixels, np.eye(10)[digits], 0.5, fits=2, box_x=(0.0, 16.0), bound_y=1.0)
    assert min(lost) > 0.6
    assert warned == 2


def test_digits_that_are_told_apart_are_not_called_noise():
    """Of 64 pixels X'X leaves many directions hidden; predictions are 40% off those without noise."""
    pixels, digits = load_digits(return_X_y=True)
    fitted = MultiOutcomeRidge(4.0, 1e-6, box_x=(0.0, 16.0), bound_y=1.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        fitted.fit(pixels, np.eye(10)[digits])
    assert np.mean(np.argmax(fitted.predict(pixels), axis=1) == digits) > 0.8
