"""Regression and classification by objective perturbation, as a user sees them."""

import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor, QuantileRegressor
from sklearn.metrics import mean_poisson_deviance

from dpfast import (
    BudgetExceeded,
    Ledger,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    UnsoundCalibrationWarning,
)
from dpfast.convex_erm.estimator import column_of
from dpfast.releases.objective_bounds import ObjectivePerturbation
from dpfast.solvers import (
    Box,
    CallableLoss,
    ElasticNet,
    L1Ball,
    L2Ball,
    Lasso,
    LogisticLoss,
    PoissonLoss,
    Ridge,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)

BALL = L2Ball(2.0)


def regressor(epsilon=1.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 1.0, "bound_y": 1.0, "constraint": BALL, "fit_intercept": False, "random_state": 0}
    return ObjectivePerturbationRegressor(epsilon, delta, **(defaults | parameters))


def classifier(epsilon=1.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 1.0, "classes": [0, 1], "fit_intercept": False, "random_state": 0}
    return ObjectivePerturbationClassifier(epsilon, delta, **(defaults | parameters))


def table(n=20_000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.55, 0.55, (n, d))
    return X, np.clip(X @ np.linspace(-1.0, 1.0, d) + 0.1 * rng.normal(size=n), -1.0, 1.0)


def optimum(loss, X, y, constraint, l1, l2):
    """The least objective by a general solver, each parameter split into its positive and its negative part."""
    d = X.shape[1]
    signs = np.hstack([np.eye(d), -np.eye(d)])

    def objective(parts):
        theta = signs @ parts
        value = loss.value(X @ theta, y).sum() + l1 * parts.sum() + 0.5 * l2 * theta @ theta
        return value, signs.T @ (X.T @ loss.derivative(X @ theta, y) + l2 * theta) + l1

    conditions = []
    if isinstance(constraint, L2Ball):
        limit = {"fun": lambda p: constraint.radius**2 - (signs @ p) @ (signs @ p)}
        conditions = [{"type": "ineq", **limit, "jac": lambda p: -2.0 * signs.T @ (signs @ p)}]
    elif isinstance(constraint, L1Ball):
        conditions = [{"type": "ineq", "fun": lambda p: constraint.radius - p.sum(), "jac": lambda p: -np.ones(2 * d)}]
    elif isinstance(constraint, Box):
        low, high = constraint.bounds(d)
        conditions = [
            {"type": "ineq", "fun": lambda p: signs @ p - low, "jac": lambda p: signs},
            {"type": "ineq", "fun": lambda p: high - signs @ p, "jac": lambda p: -signs},
        ]
    start = np.full(2 * d, 0.05)
    found = minimize(
        objective, start, jac=True, method="SLSQP", bounds=[(0.0, None)] * (2 * d), constraints=conditions,
        options={"ftol": 1e-15, "maxiter": 2000},
    )  # fmt: skip
    # Its constraints hold to some 1e-9 only.
    theta = signs @ found.x if constraint is None else constraint.project(signs @ found.x)
    return loss.value(X @ theta, y).sum() + l1 * np.abs(theta).sum() + 0.5 * l2 * theta @ theta


LOSSES = [
    SquaredLoss(),
    SmoothedHuber(0.5),
    SmoothedQuantile(0.7, 0.3),
    PoissonLoss(2.0),
    LogisticLoss(),
    SmoothedHinge(0.4),
]
SETS = [None, L2Ball(0.7), L1Ball(0.8), Box(low=[-0.3, 0.0, -1.0, -0.2], high=0.4)]
PENALTIES = [None, Lasso(2.0), ElasticNet(1.0, 3.0), Ridge(4.0)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_without_noise_it_is_the_optimum(loss):
    """Within 1e-8 of a general solver's least objective, or below it, for every constraint and penalty."""
    X, y = table(120, 4)
    y = np.sign(y) if loss.is_classification else np.abs(y) if loss.is_of_counts else y
    for constraint, penalty in itertools.product(SETS, PENALTIES):
        parameters = {"loss": loss, "constraint": constraint, "penalty": penalty}
        if loss.is_classification:
            model = classifier(math.inf, 0.0, classes=[-1.0, 1.0], **parameters).fit(X, y)
        else:
            model = regressor(math.inf, 0.0, **parameters).fit(X, y)
        theta = model.coef_.ravel()
        l1, l2 = (penalty.l1, penalty.l2) if penalty else (0.0, 0.0)
        value = loss.value(X @ theta, y).sum() + l1 * np.abs(theta).sum() + 0.5 * l2 * theta @ theta
        outside = 0.0 if constraint is None else np.linalg.norm(constraint.project(theta) - theta)
        assert outside <= 1e-15 * np.linalg.norm(theta), (constraint, penalty)
        assert value <= optimum(loss, X, y, constraint, l1, l2) + 1e-8, (constraint, penalty)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_regression_finds_its_coefficients(loss, delta, adjacency, fit_intercept):
    X, y = table(100_000)
    y = y / 2.0 + (0.25 if fit_intercept else 0.0)
    model = regressor(2.0, delta, loss=loss, adjacency=adjacency, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(model.coef_, [-0.5, 0.0, 0.5], atol=0.03)
    assert model.intercept_ == pytest.approx(0.25 if fit_intercept else 0.0, abs=0.02)
    assert model.privacy_spent_ == Privacy(2.0, delta, adjacency)
    assert model.score(X, y) > 0.6
    assert model.releases_[0].guaranteed


def counts(n=20_000):
    X, _ = table(n)
    return X, np.random.default_rng(1).poisson(np.exp(X @ [1.0, 0.0, -0.5] + 1.0)).astype(float)


def test_without_noise_counts_and_quantiles_are_those_of_the_textbook():
    X, y = counts(4_000)
    plain = {"constraint": None, "fit_intercept": True}
    ours = regressor(math.inf, 0.0, loss="poisson", bound_y=30.0, **plain).fit(X, y)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10).fit(X, y)
    np.testing.assert_allclose([*ours.coef_, ours.intercept_], [*theirs.coef_, theirs.intercept_], atol=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-6)
    # Larger counts than the bound are not clipped.
    small = regressor(math.inf, 0.0, loss="poisson", bound_y=2.0, **plain).fit(X, y)
    np.testing.assert_allclose(small.predict(X), theirs.predict(X), atol=1e-6)
    X, y = table(4_000)
    for level in (0.5, 0.8):
        ours = regressor(math.inf, 0.0, loss=SmoothedQuantile(level, 0.01), **plain).fit(X, y)
        theirs = QuantileRegressor(quantile=level, alpha=0.0).fit(X, y)
        np.testing.assert_allclose([*ours.coef_, ours.intercept_], [*theirs.coef_, theirs.intercept_], atol=2e-3)


@pytest.mark.parametrize("loss", ["squared", "huber", "quantile", "poisson"])
@pytest.mark.parametrize("scale", [0.0, 1e-40])
def test_without_noise_rows_that_say_nothing_have_no_coefficient(loss, scale):
    X, y = np.full((3, 2), scale), np.array([1.0, 0.0, 1.0])
    assert np.abs(regressor(math.inf, 0.0, loss=loss, fit_intercept=False).fit(X, y).coef_).max() * scale < 1e-6


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("bound_y", [8.0, 12.0, "private"])
def test_counts_have_the_means_that_they_are_predicted_to_have(adjacency, bound_y):
    X, y = counts()
    options = {"constraint": None, "fit_intercept": True, "adjacency": adjacency, "bound_y": bound_y}
    model = regressor(2.0, loss="poisson", **options).fit(X, y)
    np.testing.assert_allclose([*model.coef_, model.intercept_], [1.0, 0.0, -0.5, 1.0], atol=0.15)
    linear = X @ model.coef_ + model.intercept_
    largest = model.bound_y_
    few = np.exp(linear) < 0.75 * largest
    np.testing.assert_allclose(model.predict(X)[few], np.exp(linear[few]), rtol=1e-12)
    # Never above what counts may be, however far a row is.
    assert model.predict([[60.0, 0.0, 0.0]]) == pytest.approx(largest)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_generous_bound_on_counts_costs_little(adjacency):
    """The noise is in proportion to the bound: with 100 in place of 8 predictions were worse than one constant."""
    X, _ = table(3_000)
    y = np.random.default_rng(1).poisson(np.exp(X @ [1.0, 0.0, -0.5])).astype(float)
    options = {"constraint": None, "fit_intercept": True, "adjacency": adjacency, "loss": "poisson"}

    def losses(bound_y):
        models = [regressor(1.0, bound_y=bound_y, random_state=seed, **options).fit(X, y) for seed in range(10)]
        found = {len(model.releases_) for model in models}, max(getattr(model, "bound_y_", 0.0) for model in models)
        return np.mean([mean_poisson_deviance(y, model.predict(X)) for model in models]), *found

    constant = mean_poisson_deviance(y, np.full(len(y), y.mean()))
    little, *_ = losses(8.0)
    for bound_y in (100.0, 1000.0):
        loss, many, found = losses(bound_y)
        assert loss < min(constant, little + 0.2 * (constant - mean_poisson_deviance(y, np.exp(X @ [1.0, 0.0, -0.5]))))
        assert (min(many) > 2, found < 20.0) == (True, True)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
def test_counts_are_predicted_far_better_than_by_a_constant_by_both_methods():
    """With a generous bound, of deviance."""
    X, _ = table(3_000)
    rates = np.exp(X @ [1.0, 0.0, -0.5])
    y = np.random.default_rng(1).poisson(rates).astype(float)
    options = {"constraint": None, "fit_intercept": True, "loss": "poisson", "bound_y": 100.0}
    best, constant = mean_poisson_deviance(y, rates), mean_poisson_deviance(y, np.full(len(y), y.mean()))

    def lost(method):
        models = [regressor(1.0, method=method, random_state=seed, **options).fit(X, y) for seed in range(10)]
        return np.mean([mean_poisson_deviance(y, model.predict(X)) for model in models]) - best

    assert lost("gradient") < 0.1 * (constant - best)
    # 0.28 with the convexity for parameters five times as long.
    assert lost("objective") < 0.1 * (constant - best)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
def test_few_counts_have_their_mean_alone():
    X, y = counts(40)
    models = [
        regressor(0.3, loss="poisson", bound_y=8.0, constraint=None, fit_intercept=True, random_state=seed)
        for seed in range(20)
    ]
    for model in models:
        model.fit(X, y)
        assert (model.method_, model.coef_.tolist()) == ("gradient", [0.0, 0.0, 0.0])
        assert np.all((model.predict(X) > 0.0) & (model.predict(X) <= 8.0))


def test_counts_without_an_intercept_do_not_descend():
    """Their mean would not be that of their rates, which steps are sized by."""
    X, y = counts(40)
    options = {"loss": "poisson", "bound_y": 8.0, "constraint": None, "fit_intercept": False}
    with pytest.raises(ValueError, match="of counts with an intercept"):
        regressor(method="gradient", **options).fit(X, y)
    assert regressor(**options)._descends is False


@pytest.mark.parametrize(("named", "own"), [("poisson", PoissonLoss(8.0)), ("huber", SmoothedHuber(2.0))])
def test_a_plan_leaves_out_what_a_smaller_bound_costs(named, own):
    """A loss of the user's own keeps the declared bound, and has the whole budget."""
    options = {"epsilon": 1.0, "delta": 1e-6, "bound_x": 1.0, "bound_y": 8.0}
    found, kept = (ObjectivePerturbationRegressor.plan(3_000, 3, loss=loss, **options) for loss in (named, own))
    assert 1.02 < found.expected_error / kept.expected_error < 1.2


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("bound_y", [5.0, 20.0, "private"])
def test_counts_below_zero_count_as_zero(bound_y):
    """With noise; without, where messages may tell of a table, they are refused."""
    X, y = counts(400)
    fits = [
        regressor(loss="poisson", bound_y=bound_y, constraint=None).fit(X, other) for other in (y, np.where(y, y, -3.0))
    ]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    with pytest.raises(ValueError, match="outcomes must be 0 or more for a loss of counts"):
        regressor(math.inf, 0.0, loss="poisson", bound_y=5.0, constraint=None).fit(X, y - 1.0)


@pytest.mark.parametrize("level", [0.25, 0.5])
def test_a_quantile_has_its_share_of_outcomes_below(level):
    X, y = table()
    loss = "quantile" if level == 0.5 else SmoothedQuantile(level, 0.05)
    model = regressor(2.0, loss=loss, constraint=None, fit_intercept=True).fit(X, y)
    assert np.mean(y <= model.predict(X)) == pytest.approx(level, abs=0.05)


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_a_named_loss_follows_the_units_of_the_outcome(loss):
    """What noise moves coefficients by is the same part of them."""
    X, y = table(200)
    moved, errors = [], []
    for unit in (1.0, 1024.0):
        model = regressor(loss=loss, constraint=None, bound_y=unit, method="objective").fit(X, y * unit)
        moved.append(model.releases_[-1].scales["objective"] / model.ridge_ / unit)
        options = {"epsilon": 1.0, "delta": 1e-6, "bound_x": 1.0, "bound_y": unit, "loss": loss}
        for method in ("objective", "gradient"):
            errors.append(ObjectivePerturbationRegressor.plan(1000, 3, method=method, **options).expected_error)
    assert moved[1] == pytest.approx(moved[0], rel=1e-6)
    assert errors[2:] == pytest.approx(errors[:2], rel=1e-6)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_any_table_and_any_threads_give_the_same_bits(loss, tmp_path):
    X, y = table(5000)
    reference = regressor(loss=loss, fit_intercept=True).fit(X, y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    np.save(tmp_path / "x.npy", X)
    fits = [
        regressor(loss=loss, fit_intercept=True, n_threads=2).fit(X, y),
        regressor(loss=loss, fit_intercept=True, n_threads=1).fit(np.asfortranarray(X), y),
        regressor(loss=loss, fit_intercept=True).fit(frame, pd.Series(y)),
        regressor(loss=loss, fit_intercept=True).fit(tmp_path / "x.npy", y),
        regressor(loss=loss, fit_intercept=True).fit([X[:100], X[100:]], [y[:100, None], y[100:, None]]),
    ]
    for model in fits:
        assert np.array_equal(model.coef_, reference.coef_)
        assert model.intercept_ == reference.intercept_
    assert fits[2].feature_names_in_.tolist() == ["a", "b", "c"]


def test_an_intercept_is_a_constant_feature():
    """The power of two next to the bound, its coefficient last; a fit with that column at hand is the same."""
    X, y = table(2000)
    # So little noise that it does not show: the two calibrations differ in the last digits, and so share no draw.
    inner = regressor(1e6, loss="huber", fit_intercept=True, bound_x=0.9).fit(X, y)
    outer = regressor(1e6, loss="huber", bound_x=math.hypot(0.9, 1.0)).fit(
        np.column_stack([X * np.minimum(1.0, 0.9 / np.linalg.norm(X, axis=1))[:, None], np.ones(2000)]), y
    )
    np.testing.assert_allclose(np.append(inner.coef_, inner.intercept_), outer.coef_, atol=1e-4)


def test_rows_and_outcomes_beyond_their_bounds_count_as_those_on_them():
    X, y = table(3000)
    long = X.copy()
    long[:, :] *= 5.0
    on_the_bound = long * np.minimum(1.0, 1.0 / np.linalg.norm(long, axis=1))[:, None]
    for loss in ("squared", "huber"):
        fits = [regressor(loss=loss).fit(rows, y * 3.0) for rows in (long, on_the_bound)]
        np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=2e-3)


def test_a_larger_ridge_is_kept_and_a_small_one_raised():
    X, y = table(500)
    assert regressor(ridge=200.0).fit(X, y).ridge_ == 200.0
    raised = regressor(ridge=1e-9).fit(X, y)
    assert raised.ridge_ > 1.0
    assert raised.ridge_ < regressor(ridge="auto").fit(X, y).ridge_ < 200.0
    assert regressor(math.inf, ridge="auto").fit(X, y).ridge_ == 0.0
    assert regressor(math.inf, ridge=3.0).fit(X, y).ridge_ == 3.0


@pytest.mark.parametrize(("loss", "delta"), [(SmoothedHuber(), 1e-6), (SmoothedHuber(), 0.0), ("squared", 0.0)])
def test_the_printed_noise_warns_where_it_is_too_little(loss, delta):
    X, y = table(500)
    printed = {"calibration": "paper", "loss": loss, "delta": delta}
    with pytest.warns(UnsoundCalibrationWarning, match="the printed calibration does not give"):
        assert not regressor(**printed).fit(X, y).releases_[0].guaranteed
    release = regressor(**printed, adjacency="add_remove").fit(X, y).releases_[0]
    assert release.guaranteed
    sound = regressor(loss=loss, delta=delta, adjacency="add_remove").fit(X, y).releases_[0]
    assert release.scales["objective"] > sound.scales["objective"]


def test_the_printed_gaussian_noise_is_enough_for_squared_loss():
    """It is a third more than one record needs, and two records do not move the gradient by as much more."""
    release = regressor(calibration="paper").fit(*table(500)).releases_[0]
    assert release.guaranteed
    assert release.scales["objective"] > regressor(ridge=1e-9).fit(*table(500)).releases_[0].scales["objective"]


def test_the_ledger_pays_once():
    X, y = table(500)
    ledger = Ledger(Privacy(1.5, 1e-5))
    model = regressor(ledger=ledger).fit(X, y)
    assert ledger.spent.epsilon == pytest.approx(1.0)
    assert ledger.releases[0].name.startswith("ObjectivePerturbationRegressor: coefficients (epsilon ")
    before = model.coef_
    with pytest.raises(BudgetExceeded):
        clone(model).fit(X, y)
    bad = y.copy()
    bad[7] = np.nan
    unseeded = {"ledger": ledger, "random_state": None}
    for one in (regressor(0.4, **unseeded), regressor(0.4, **unseeded, loss="huber")):
        with pytest.raises(ValueError, match="NaN"):
            one.fit(X, bad)
        assert not hasattr(one, "coef_")
    with pytest.raises(ValueError, match="y holds labels outside the declared classes"):
        classifier(0.4, **unseeded).fit(X, np.arange(500) % 3)
    assert ledger.spent.epsilon == pytest.approx(1.0)
    assert model.coef_ is before


def test_nothing_private_stays_on_a_fitted_model():
    """What is kept is what was released, and public numbers."""
    X, y = table(500)
    model = regressor(fit_intercept=True).fit(X, y)
    fitted = {name for name in vars(model) if name not in model.get_params()}
    assert fitted == {
        "coef_",
        "intercept_",
        "method_",
        "ridge_",
        "releases_",
        "privacy_spent_",
        "_n_public",
        "_weighted",
        "n_features_in_",
    }
    released = model.releases_[0].values["coef"]
    assert np.array_equal(np.append(model.coef_, model.intercept_ / model._constant(1.0)), released)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).coef_, model.coef_)


@pytest.mark.parametrize(
    ("parameters", "descends"),
    [
        ({"loss": "huber"}, True),
        ({"loss": SmoothedQuantile(0.9, 0.1), "adjacency": "add_remove"}, True),
        ({"loss": "quantile", "bound_x": "private", "bound_y": "private"}, True),
        ({"loss": "huber", "method": "objective"}, False),
        ({"loss": "huber", "delta": 0.0}, False),
        ({"loss": "huber", "ridge": 1.0}, False),
        ({"loss": "huber", "penalty": Lasso(0.1)}, False),
        ({"loss": "huber", "constraint": L1Ball(1.0)}, False),
        ({"loss": PoissonLoss(1.0), "epsilon": 8.0}, True),
        ({"loss": "poisson", "fit_intercept": False}, False),
        ({"loss": "poisson", "delta": 0.0}, False),
        ({"loss": "squared", "constraint": L1Ball(1.0)}, False),
    ],
)
def test_descent_is_taken_wherever_it_goes(parameters, descends):
    X, y = table(500)
    model = regressor(**{"constraint": None, "fit_intercept": True} | parameters).fit(X, y)
    assert model.method_ == ("gradient" if descends else "objective")
    assert (len(model.releases_) > 5) == descends
    assert (model.ridge_ == 0.0) == descends
    is_counted = descends and parameters.get("adjacency") == "add_remove"
    assert ("numbers of people" in model.releases_[0].name) == is_counted
    told = {"bound_x": 1.0, "bound_y": 1.0, "epsilon": 1.0, "delta": 1e-6}
    bounds = ("bound_x", "bound_y")
    plan = ObjectivePerturbationRegressor.plan(
        5_000, 3, **told | {name: one for name, one in parameters.items() if name not in bounds}
    )
    assert ("sum" in plan.scales) == descends
    assert 0.0 < plan.expected_error < 0.5
    if not descends and parameters.get("method") is None:
        with pytest.raises(ValueError, match="method='gradient'"):
            regressor(**{"constraint": None} | parameters | {"method": "gradient"}).fit(X, y)


def test_a_fit_by_descent_is_saved_and_solved_from_its_releases_alone(tmp_path):
    X, y = table(800)
    model = regressor(loss="huber", constraint=None, fit_intercept=True).fit(X, y)
    model.save(tmp_path / "model.json")
    loaded = ObjectivePerturbationRegressor.load(tmp_path / "model.json")
    assert loaded.method_ == "gradient"
    loaded.method_ = "guess"
    with pytest.raises(ValueError, match="method_ must be"):
        loaded._check_fitted()
    np.testing.assert_array_equal(loaded.predict(X[:5]), model.predict(X[:5]))
    found = {name for name in vars(model) if name not in model.get_params()}
    kept = {"coef_", "intercept_", "method_", "ridge_", "releases_", "privacy_spent_", "n_features_in_", "_n_public"}
    assert found == kept | {"bound_y_", "caution_", "_weighted"}


def models():
    X, y = table(400)
    labels = (y > 0.0).astype(int)
    yield regressor(penalty=Lasso(0.5), fit_intercept=True).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    yield regressor(loss=SmoothedHuber(0.3, 0.1), constraint=Box(low=-1.0, high=[1.0, 2.0, 3.0])).fit(X, y)
    yield regressor(math.inf, constraint=L1Ball(0.5), penalty=ElasticNet(0.1, 0.2)).fit(X, y)
    yield classifier(loss=SmoothedHinge(0.2), penalty=Ridge(3.0), constraint=None).fit(X, labels)
    yield classifier(classes=["a", "b", "c"]).fit(X, np.array(["a", "b", "c"])[np.arange(400) % 3])
    yield classifier(classes=np.array([3, 4]), loss=LogisticLoss())


def test_models_are_saved_to_the_bit(tmp_path):
    for number, model in enumerate(models()):
        path = tmp_path / f"{number}.json"
        model.save(path)
        loaded = type(model).load(path)
        assert repr(loaded.get_params()["constraint"]) == repr(model.constraint)
        assert repr(loaded.loss) == repr(model.loss)
        assert repr(loaded.penalty) == repr(model.penalty)
        if hasattr(model, "coef_"):
            X = np.ones((2, 3))
            X = pd.DataFrame(X, columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else X
            assert np.array_equal(loaded.predict(X), model.predict(X))
            assert loaded.privacy_spent_ == model.privacy_spent_
            assert loaded.releases_[0].name == model.releases_[0].name


def test_a_model_with_functions_of_its_own_cannot_be_saved(tmp_path):
    loss = CallableLoss(np.multiply, np.multiply, np.multiply, slope_bound=1.0, curvature_bound=1.0)
    with pytest.raises(TypeError, match="loss cannot be saved: a CallableLoss"):
        regressor(loss=loss).save(tmp_path / "model.json")


def test_damaged_models_are_refused(tmp_path):
    X, y = table(400)
    for name, value in [("coef_", np.full(3, np.nan)), ("ridge_", -1.0), ("n_features_in_", 4), ("releases_", 1.0)]:
        model = regressor().fit(X, y)
        setattr(model, name, value)
        model.save(tmp_path / "model.json")
        with pytest.raises(ValueError, match="does not hold a valid ObjectivePerturbationRegressor"):
            ObjectivePerturbationRegressor.load(tmp_path / "model.json")
    three = classifier().fit(X, (y > 0).astype(int))
    three.classes_ = np.arange(3)
    three.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match=r"coef_ must be an array of float64 of shape \(3, 3\)"):
        ObjectivePerturbationClassifier.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: regressor(constraint=None), ValueError, r"constraint must be given with SquaredLoss\(\)"),
        (lambda: regressor(constraint=3.0), TypeError, "constraint must be L2Ball, L1Ball, Box or None"),
        (lambda: regressor(constraint=L2Ball(0.0)), ValueError, "radius must be positive"),
        (lambda: regressor(constraint=L1Ball(-1.0)), ValueError, "radius must be positive"),
        (lambda: regressor(constraint=Box(low=[0.0] * 4, high=[1.0] * 4)), ValueError, "the box has 4 coordinates"),
        (
            lambda: regressor(loss="logistic"),
            ValueError,
            "loss must be 'squared' or 'huber' or 'quantile' or 'poisson'",
        ),
        (
            lambda: regressor(loss=LogisticLoss()),
            ValueError,
            "loss must be one of 'squared', 'huber', 'quantile', 'poisson'",
        ),
        (
            lambda: regressor(loss=SmoothedQuantile(0.5, 0.05), bound_y=10.0),
            ValueError,
            "must be smoother where outcomes",
        ),
        # What is refused only next to bounds that were found would tell of them, unpaid.
        (
            lambda: regressor(loss=SmoothedQuantile(0.5, 0.1), bound_y="private"),
            ValueError,
            "loss must be 'quantile' or",
        ),
        (
            lambda: regressor(
                loss=CallableLoss(*[lambda z, y: 0.0 * z] * 3, slope_bound=1.0, curvature_bound=1.0),
                bound_x="private",
            ),
            ValueError,
            "loss must not be given by functions with bound_x='private'",
        ),
        (
            lambda: regressor(
                loss=CallableLoss(
                    np.multiply, lambda z, y: y + 0.0 * z, np.multiply, slope_bound=0.5, curvature_bound=1.0
                )
            ),
            ValueError,
            "slope must keep to slope_bound",
        ),
        (lambda: regressor(penalty="l1"), TypeError, "penalty must be Lasso"),
        (lambda: regressor(ridge=-1.0), ValueError, "ridge must be at least 0"),
        (lambda: regressor(ridge="best"), TypeError, r"ridge \(if it is not 'auto'\) must be a real number, got str"),
        (lambda: regressor(bound_x=0.0), ValueError, "bound_x must be positive"),
        (lambda: regressor(bound_x=1e200), ValueError, r"bound_x must lie between 2\*\*-64 and 2\*\*64, got 1e\+200"),
        (lambda: regressor(bound_y=1e-30), ValueError, "bound_y must lie between"),
        (lambda: classifier(bound_x=1e200), ValueError, "bound_x must lie between"),
        (lambda: classifier(bound_x=1e200, method="gradient"), ValueError, "bound_x must lie between"),
        (lambda: regressor(bound_y=math.inf), ValueError, "bound_y must be positive and finite"),
        (lambda: regressor(0.0), ValueError, "epsilon must be positive"),
        (lambda: regressor(delta=1.0), ValueError, "delta must be in"),
        (lambda: regressor(adjacency="swap"), ValueError, "adjacency must be"),
        (lambda: regressor(calibration="exact"), ValueError, "calibration must be 'sound' or 'paper'"),
        (lambda: regressor(fit_intercept=1), TypeError, "fit_intercept must be True or False"),
        (lambda: regressor(ledger=1.0), TypeError, "ledger must be a dpfast.Ledger or None, got float"),
        (lambda: classifier(classes=None), ValueError, "classes must be declared"),
        (lambda: classifier(classes=[1]), ValueError, "classes must be at least 2 different labels, got 1"),
        (lambda: classifier(classes=[1, 1]), ValueError, "classes must be at least 2 different labels"),
        (lambda: classifier(classes=[[0, 1]]), ValueError, "classes must be a list of labels"),
        (lambda: classifier(loss="squared"), ValueError, "loss must be 'auto' or 'logistic' or 'hinge'"),
        (lambda: classifier(loss=SquaredLoss()), ValueError, "loss must be one of 'auto', 'logistic', 'hinge'"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_read(make, error, message):
    X, y = table(50)
    with pytest.raises(error, match=message):
        make().fit(X, (y > 0).astype(int))


def test_bad_tables_are_refused():
    X, y = table(50)
    labels = (y > 0).astype(int)
    for model, outcomes in ((regressor(), y), (regressor(loss="huber"), y), (classifier(), labels)):
        with pytest.raises(ValueError, match="requires y to be passed"):
            model.fit(X, None)
        with pytest.raises(ValueError, match="rows"):
            model.fit(X, outcomes[:-1])
        with pytest.raises(ValueError, match="rows"):
            model.fit(X[:0], outcomes[:0])
    with pytest.raises(ValueError, match="y must have one column, got 2"):
        regressor().fit(X, pd.DataFrame({"a": y, "b": y}))
    # No position, no value: a message tells nothing of a person.
    with pytest.raises(ValueError, match=r"^y holds labels outside the declared classes: declare in classes [^0-9]*$"):
        classifier().fit(X, np.where(np.arange(50) == 9, 7, labels))


def test_plans_follow_public_numbers():
    """Errors fall with the number of people; the number that is needed has the error wanted."""
    for kind, parameters in (
        (ObjectivePerturbationRegressor, {"bound_y": 1.0, "constraint": BALL}),
        (ObjectivePerturbationClassifier, {"classes": [0, 1, 2], "method": "objective"}),
        (ObjectivePerturbationClassifier, {"classes": [0, 1, 2], "method": "gradient"}),
    ):
        parameters |= {"epsilon": 1.0, "delta": 1e-6, "bound_x": 1.0}
        plan = kind.plan(10_000, 5, target=0.05, **parameters)
        assert kind.plan(100_000, 5, **parameters).expected_error < plan.expected_error
        assert kind.plan(plan.needed_n, 5, **parameters).expected_error == pytest.approx(0.05, rel=5e-3)
        assert kind.plan(plan.needed_n, 5, **parameters).expected_error <= 0.05
        assert kind.plan(plan.needed_n - 1, 5, **parameters).expected_error > 0.05
        assert kind.plan(10_000, 5, target=1e-9, **(parameters | {"epsilon": 1e-5})).needed_n is None
        assert "people privacy adds an error" in str(plan)
        assert kind.plan(10, 5, **(parameters | {"epsilon": math.inf})).expected_error == 0.0
        with pytest.raises(ValueError, match="n must be at least 1"):
            kind.plan(0, 5, **parameters)


def test_a_plan_foresees_the_error():
    """On rows whose size and spread are as assumed, within a factor of two."""
    n, d = 20_000, 4
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X *= 0.5 / np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ np.full(d, 1.0)
    errors = []
    for seed in range(20):
        model = regressor(0.5, constraint=L2Ball(3.0), random_state=seed).fit(X, y)
        errors.append(np.mean((model.predict(X) - y) ** 2))
    plan = ObjectivePerturbationRegressor.plan(
        n, d, epsilon=0.5, delta=1e-6, bound_x=1.0, bound_y=1.0, constraint=L2Ball(3.0), fit_intercept=False
    )
    assert 0.5 < math.sqrt(np.mean(errors)) / plan.expected_error < 2.0


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", SmoothedHuber(0.25), "logistic"])
def test_rows_with_their_intercept_are_within_the_bound_that_noise_is_for(loss, fit_intercept, monkeypatch):
    """A single row at its bound, as it enters the loss: neither noise nor solver may take it for shorter."""
    taken = []
    draw = ObjectivePerturbation.draw

    def recorded(self, function, source):
        taken.append((self.bounds, function))
        return draw(self, function, source)

    monkeypatch.setattr(ObjectivePerturbation, "draw", recorded)
    row = np.array([[0.48, 0.64]])
    make = classifier if loss == "logistic" else regressor
    label, options = ([1], {"method": "objective"}) if loss == "logistic" else ([0.5], {})
    make(bound_x=0.8, loss=loss, fit_intercept=fit_intercept, **options).fit(row, label)
    ((bounds, function),) = taken
    origin = np.zeros((2, bounds.n_features))
    # The gradient at 0 is the slope there times the row.
    slope = 0.5 if isinstance(loss, str) else loss.derivative(np.zeros(1), np.array([0.5]))[0]
    length = np.linalg.norm(function.gradient(origin)[0]) / abs(slope)
    # The constant feature is the power of two nearest to a quarter of the bound on rows, or twice that in a ball of 2.
    constant = 0.25 if loss == "logistic" else 0.5
    assert length == pytest.approx(math.hypot(0.8, constant if fit_intercept else 0.0), rel=1e-5)
    assert length <= bounds.row_bound * (1.0 + 1e-12)
    if loss != "squared":
        assert function.row_bound == bounds.row_bound


@pytest.mark.parametrize("loss", [SmoothedHuber(3e4), SmoothedHuber(540.0), SmoothedQuantile(0.99, 2.0**60)])
def test_a_loss_far_wider_than_outcomes_is_planned_as_a_square(loss):
    options = {"epsilon": 1.0, "delta": 1e-6, "bound_x": 1.0, "bound_y": 1.0, "method": "gradient"}
    plan = ObjectivePerturbationRegressor.plan(1000, 3, loss=loss, **options)
    assert 0.0 < plan.expected_error <= 1.0
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (60, 3))
    fitted = ObjectivePerturbationRegressor(1.0, 1e-6, bound_x=1.0, bound_y=1.0, loss=loss, fit_intercept=False).fit(
        x, x[:, 0]
    )
    assert np.all(np.isfinite(fitted.coef_))


def test_outcomes_are_those_of_their_container_whatever_it_is():
    """Labels that are text are read as they are; what has memory to lend and no array of its own lends it."""
    pa = pytest.importorskip("pyarrow")

    class Tensor:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    numbers, words = np.array([1.0, -1.0, 0.5]), ["no", "yes", "no"]
    for lent in (numbers, numbers.tolist(), pd.Series(numbers), pa.array(numbers), Tensor(numbers)):
        np.testing.assert_array_equal(column_of(lent), numbers)
    for labels in (words, np.array(words), np.array(words, object), pd.Series(words), pa.array(words)):
        assert column_of(labels).tolist() == words
