"""Standard errors of classifiers and regressors: what they cost, what they are, and where they are not known."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from dpfast import (
    L2Ball,
    Ledger,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    UtilityWarning,
)
from dpfast.privacy import compose_mu, gaussian_mu, keeps_to
from dpfast.solvers import CallableLoss, CappedLogisticLoss, PoissonLoss, SmoothedHuber, SmoothedQuantile, SquaredLoss

ADJACENCIES = ["replace_one", "add_remove"]
METHODS = [("gradient", 1e-6), ("objective", 1e-6), ("objective", 0.0)]
TRUE = np.array([1.5, -1.0, 0.0, 0.5])
LOSSES = {
    "Huber": SmoothedHuber(0.5),
    "quantile": SmoothedQuantile(0.5, 0.25),
    "counts": PoissonLoss(1e6),
    "squared": SquaredLoss(),
}


def table(n, seed=0, offset=0.2):
    """Correlated columns, an indicator, a skewed one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    X[:, 2] = rng.random(n) < 0.3
    X[:, 3] = np.minimum(rng.exponential(size=n), 4.0) - 1.0
    X /= 4.0
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    return X, X @ TRUE + offset, rng


def labelled(n, seed=0, offset=0.2):
    X, z, rng = table(n, seed, offset)
    return X, (rng.random(n) < expit(z)).astype(int)


def outcomes(n, loss, seed=0):
    X, z, rng = table(n, seed)
    return X, rng.poisson(np.exp(z)).astype(float) if loss.is_of_counts else z + 0.3 * rng.standard_t(5, size=n)


def classifier(epsilon=3.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 1.0, "classes": [0, 1], "fit_intercept": True, "inference": True, "random_state": 0}
    return ObjectivePerturbationClassifier(epsilon, delta, **(defaults | parameters))


def regressor(epsilon=3.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 1.0, "bound_y": 3.0, "fit_intercept": True, "inference": True, "random_state": 0}
    return ObjectivePerturbationRegressor(epsilon, delta, **(defaults | parameters))


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        return model.fit(*data)


def sandwich(rows, scores, curvatures):
    bread = np.linalg.inv((rows * curvatures[:, None]).T @ rows)
    scored = rows * scores[:, None]
    return bread @ scored.T @ scored @ bread


def errors(model):
    return np.sqrt(np.diag(model.covariance_))


def test_without_noise_a_logistic_fit_has_the_textbooks_errors():
    """HC0 of maximum likelihood, an intercept as scikit-learn has it, and odds ratios."""
    X, y = labelled(2_000)
    model = classifier(math.inf, 0.0, random_state=None).fit(X, y)
    rows, theta = np.column_stack([np.ones(len(X)), X]), np.zeros(5)
    for _ in range(30):
        p = expit(rows @ theta)
        theta = theta + np.linalg.solve((rows * (p * (1.0 - p))[:, None]).T @ rows, rows.T @ (y - p))
    p = expit(rows @ theta)
    expected = sandwich(rows, y - p, p * (1.0 - p))
    np.testing.assert_allclose(model.estimate_, theta, atol=1e-6)
    np.testing.assert_allclose(model.covariance_, expected, rtol=1e-6)
    textbook = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1_000).fit(X, y)
    np.testing.assert_allclose(model.estimate_[0], textbook.intercept_[0], atol=1e-6)
    np.testing.assert_allclose(model.intercept_, textbook.intercept_, atol=1e-6)
    summary = model.summary()
    deviation = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(summary["std_error"], deviation, rtol=1e-6)
    np.testing.assert_allclose(summary["high"], theta + stats.norm.ppf(0.975) * deviation, atol=1e-6)
    np.testing.assert_allclose(summary["p_value"], 2.0 * stats.norm.sf(np.abs(theta) / deviation), atol=1e-6)
    np.testing.assert_allclose(summary["odds_ratio_low"], np.exp(summary["low"]), rtol=1e-12)
    assert "note" not in summary.attrs
    effects = model.marginal_effects()
    np.testing.assert_allclose(effects["estimate"], np.mean(p * (1.0 - p)) * theta[1:], atol=1e-6)
    np.testing.assert_allclose(effects["std_error"], np.mean(p * (1.0 - p)) * deviation[1:], rtol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_without_noise_a_regression_has_the_sandwich(name):
    loss = LOSSES[name]
    X, y = outcomes(2_000, loss)
    model = regressor(math.inf, 0.0, loss=loss, bound_y=20.0, random_state=None).fit(X, y)
    rows, theta = np.column_stack([np.ones(len(X)), X]), np.zeros(5)
    for _ in range(200):
        z = rows @ theta
        hessian = (rows * loss.second_derivative(z, y)[:, None]).T @ rows
        theta = theta - 0.7 * np.linalg.solve(hessian, rows.T @ loss.derivative(z, y))
    expected = sandwich(rows, loss.derivative(z, y), loss.second_derivative(z, y))
    np.testing.assert_allclose(model.estimate_, theta, atol=1e-6)
    np.testing.assert_allclose(model.covariance_, expected, rtol=1e-5, atol=1e-9)
    assert ("rate_ratio" in model.summary()) == loss.is_of_counts


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("method", "delta"), METHODS)
def test_the_fit_and_the_sums_keep_to_the_budget_and_use_it_up(adjacency, method, delta):
    """Gaussian ones by mu; after a minimiser, which has no mu, by sums of epsilons and of deltas."""
    whole = Privacy(1.0, delta, adjacency)
    ledger = Ledger(Privacy(1.0, 1e-6, adjacency))
    options = {"method": method, "adjacency": adjacency, "ledger": ledger, "random_state": None}
    model = quietly(classifier(1.0, delta, **options), *labelled(400))
    assert model.method_ == method
    assert model.privacy_spent_ == whole
    sums, fit = model.releases_[-8:], model.releases_[:-8]
    assert all("step" in one.name and ("curvatures" in one.name or "scores" in one.name) for one in sums)
    part = Privacy(0.4, 0.4 * delta, adjacency)
    if method == "gradient":
        mus = [one.mu for one in model.releases_]
        assert keeps_to([one.privacy for one in model.releases_], mus, whole)
        assert compose_mu(mus) == pytest.approx(gaussian_mu(*whole.target), rel=1e-5)
        assert compose_mu(mus[-8:]) ** 2 == pytest.approx(0.4 * compose_mu(mus) ** 2, rel=1e-5)
        return
    assert keeps_to([one.privacy for one in sums], [one.mu for one in sums], part)
    assert sum(one.privacy.epsilon for one in fit) == pytest.approx(0.6)
    assert sum(one.privacy.delta for one in fit) == pytest.approx(0.6 * delta)
    if delta > 0.0:
        assert compose_mu([one.mu for one in sums]) == pytest.approx(gaussian_mu(*part.target), rel=1e-5)


def test_two_classes_descend_where_they_can_and_regression_as_before():
    """By default: Gaussian steps share mu with the sums."""
    assert quietly(classifier(), *labelled(300)).method_ == "gradient"
    assert quietly(classifier(delta=0.0), *labelled(300)).method_ == "objective"
    assert quietly(regressor(loss="poisson"), *outcomes(300, LOSSES["counts"])).method_ == "gradient"
    assert quietly(regressor(loss="poisson", delta=0.0), *outcomes(300, LOSSES["counts"])).method_ == "objective"


@pytest.mark.parametrize(("method", "delta"), METHODS)
def test_ridge_and_shrinkage_are_undone(method, delta):
    """Estimates of many people are near what they are of, where coefficients that predict are not; 4 errors off."""
    X, y = labelled(30_000)
    model = classifier(6.0, delta, method=method, **({"ridge": 300.0} if method == "objective" else {})).fit(X, y)
    assert not np.isnan(model.estimate_).any()
    assert np.all(np.abs(model.estimate_ - [0.2, *TRUE]) < 4.0 * errors(model))
    if method == "objective":
        assert np.abs(model.coef_[0, 0]) < 0.9 * model.estimate_[1]


@pytest.mark.parametrize("loss", ["huber", "quantile", "poisson", "squared"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_regressions_are_near_what_they_are_of(loss, adjacency):
    """With this seed within 4 standard errors, of those that are known."""
    X, z, rng = table(20_000, 3)
    y = rng.poisson(np.exp(z)).astype(float) if loss == "poisson" else z + 0.3 * rng.uniform(-1.0, 1.0, size=len(z))
    options = {"constraint": L2Ball(4.0)} if loss == "squared" else {}
    model = quietly(
        regressor(6.0, loss=loss, adjacency=adjacency, bound_y=8.0 if loss == "poisson" else 3.0, **options), X, y
    )
    known = ~np.isnan(model.estimate_)
    assert known.sum() >= 3
    assert np.all(np.abs(model.estimate_ - [0.2, *TRUE])[known] < 4.0 * errors(model)[known])
    assert np.all(errors(model)[known] < 1.0)


def test_few_people_have_no_errors_and_the_table_says_why():
    model = quietly(classifier(1.0), *labelled(200))
    table = model.summary()
    assert table.isna().all(axis=None)
    assert "noise in the sum of curvatures" in table.attrs["note"]
    assert "noise" in model.marginal_effects().attrs["note"] or "intercept" in model.marginal_effects().attrs["note"]
    np.testing.assert_array_equal(np.isnan(model.covariance_), True)


@pytest.mark.parametrize("method", ["gradient", "objective"])
@pytest.mark.parametrize("rate", [1e-4, 0.05, 40.0])
def test_rare_and_frequent_counts_have_limits_that_hold_or_none_and_the_table_says_why(method, rate):
    """With these seeds within 4 errors; of 3,000 people at a rate of 1e-4 nothing is known."""
    X, z, rng = table(3_000)
    y = np.minimum(rng.poisson(rate * np.exp(z - 0.2)), 4.0 * max(rate, 1.0))
    model = quietly(regressor(3.0, loss="poisson", bound_y=4.0 * max(rate, 1.0), method=method), X, y)
    summary, known = model.summary(), ~np.isnan(model.estimate_)
    off = np.abs(model.estimate_ - [math.log(rate), *TRUE])
    assert np.all(off[known] < 4.0 * errors(model)[known])
    assert rate > 1e-4 or not known.any()
    if not known.all():
        assert "not known" in summary.attrs["note"]
        assert "more than noise, or steps still long" in summary.attrs["note"]


def test_marginal_effects_need_an_intercept_and_a_number_of_people():
    X, y = labelled(20_000)
    assert not classifier().fit(X, y).marginal_effects().isna().any(axis=None)
    assert not classifier(adjacency="add_remove").fit(X, y).marginal_effects().isna().any(axis=None)
    for options in ({"fit_intercept": False}, {"method": "objective", "adjacency": "add_remove"}):
        effects = classifier(**options).fit(X, y).marginal_effects()
        assert effects.isna().all(axis=None)
        assert "intercept" in effects.attrs["note"]
    with pytest.raises(ValueError, match="inference=True"):
        classifier(inference=False).fit(X, y).marginal_effects()


@pytest.mark.parametrize("loss", ["huber", "quantile", "poisson"])
def test_the_table_needs_no_bound_that_was_given(loss):
    X, z, rng = table(4_000, 3)
    y = rng.poisson(np.exp(z)).astype(float) if loss == "poisson" else z
    model = quietly(regressor(6.0, loss=loss, bound_x="private", bound_y="private"), X, y)
    assert ("rate_ratio" in model.summary().columns) == (loss == "poisson")


def test_limits_follow_the_level():
    model = classifier().fit(*labelled(20_000))
    wide, narrow = model.summary(level=0.99), model.summary(level=0.5)
    assert np.all(wide["low"] < narrow["low"])
    assert np.all(wide["high"] > narrow["high"])
    with pytest.raises(ValueError, match="level"):
        model.summary(level=1.0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (classifier(loss="hinge"), "'auto' or 'logistic'"),
        (classifier(loss=CappedLogisticLoss()), "'auto' or 'logistic'"),
        (classifier(classes=[0, 1, 2]), "two classes"),
        (classifier(calibration="paper", loss="logistic", adjacency="add_remove"), "calibration='sound'"),
        (classifier(inference=1), "inference"),
        (
            regressor(loss=CallableLoss(np.abs, np.sign, np.zeros_like, slope_bound=1.0, curvature_bound=1.0)),
            "functions",
        ),
    ],
)
def test_what_errors_do_not_go_with_is_refused_before_anything_is_spent(model, words):
    with pytest.raises((ValueError, TypeError), match=words):
        model.fit(*labelled(50))
    assert not hasattr(model, "releases_")


def test_labels_found_in_a_table_must_be_two():
    X, _ = labelled(60)
    with pytest.raises(ValueError, match="two classes"):
        classifier(math.inf, 0.0, classes=None, random_state=None).fit(X, np.arange(60) % 3)


@pytest.mark.parametrize("model", [classifier, regressor])
def test_a_plan_knows_that_errors_have_a_share(model):
    sizes = {"n": 5_000, "n_features": 5, "epsilon": 1.0, "delta": 1e-6, "bound_x": 1.0}
    own = {"classes": [0, 1]} if model is classifier else {"bound_y": 1.0, "loss": "huber"}
    plans = [type(model()).plan(**sizes, **own, method="gradient", inference=inference) for inference in (False, True)]
    assert 1.05 * plans[0].expected_error < plans[1].expected_error < 2.0 * plans[0].expected_error


def test_a_saved_model_has_its_errors_and_a_broken_one_is_refused(tmp_path):
    model = classifier().fit(*labelled(20_000))
    model.save(tmp_path / "model.json")
    np.testing.assert_array_equal(
        ObjectivePerturbationClassifier.load(tmp_path / "model.json").covariance_, model.covariance_
    )
    model.covariance_ = -model.covariance_
    model.save(tmp_path / "broken.json")
    with pytest.raises(ValueError, match="covariance_"):
        ObjectivePerturbationClassifier.load(tmp_path / "broken.json")


def test_a_picture_draws_estimates_and_their_limits():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    model = classifier().fit(*labelled(20_000))
    axes = model.plot(feature_names=["a", "b", "c", "d"])
    assert "95% limits: noise and sampling" in [text.get_text() for text in axes.get_legend().get_texts()]
    (drawn,) = [
        line for line in axes.lines if len(line.get_xdata()) == 4 and line.get_marker() not in ("|", "None", None)
    ]
    np.testing.assert_allclose(drawn.get_xdata(), model.estimate_[1:])


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.5, 5.0])
def test_limits_of_counts_cover_or_are_not_given(rate):
    """Of 60 fits, from far starts where counts are rare: below .9 on average in one run of 10^5, were it .95."""
    covered = []
    for seed in range(60):
        X, z, rng = table(12_000, seed)
        y = rng.poisson(rate * np.exp(z - 0.2)).astype(float)
        model = quietly(regressor(3.0, loss="poisson", bound_y=20.0 * max(rate, 0.1), random_state=None), X, y)
        known = ~np.isnan(model.estimate_)
        off = np.abs(model.estimate_ - [math.log(rate), *TRUE])
        covered += (off < 1.96 * errors(model))[known].tolist()
    assert len(covered) > 50
    assert np.mean(covered) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("make", [classifier, regressor])
def test_limits_cover(make):
    """Of 60 fits with four coefficients and an intercept: below .9 on average in one run of 10^5, were it .95."""
    covered = []
    for seed in range(60):
        if make is classifier:
            X, y = labelled(8_000, seed)
            model = classifier(random_state=None)
        else:
            X, z, rng = table(8_000, seed)
            y, model = z + 0.3 * rng.uniform(-1.0, 1.0, size=len(z)), regressor(loss="huber", random_state=None)
        model = quietly(model, X, y)
        known = ~np.isnan(model.estimate_)
        covered += (np.abs(model.estimate_ - [0.2, *TRUE]) < 1.96 * errors(model))[known].tolist()
    assert len(covered) > 200
    assert np.mean(covered) > 0.9


def test_an_intercept_is_not_known_beside_a_feature_that_noise_hides():
    """It has what the feature contributes on average: limits of 46 were 42 to 50, and the true one was 20."""
    rng = np.random.default_rng(0)
    age, income = rng.uniform(20.0, 80.0, 10_000), rng.lognormal(10.5, 0.6, 10_000).clip(max=260_000.0)
    y = (20.0 + 0.5 * age + 3e-4 * income + rng.normal(0.0, 8.0, 10_000)).clip(-150.0, 150.0)
    model = ObjectivePerturbationRegressor(
        1.0, 1e-6, bound_x=260_000.0, bound_y=150.0, loss="huber", inference=True, random_state=0
    )
    told = model.fit(np.column_stack([age, income]), y).summary()
    assert np.isnan(told.loc[["(intercept)", 0]].to_numpy(float)).all()
    assert told.loc[1, "low"] < 3e-4 < told.loc[1, "high"]


def test_marginal_effects_of_hidden_features_say_that_noise_hides_them():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1.0, 1.0, (50, 3)), rng.integers(0, 2, 50)
    model = ObjectivePerturbationClassifier(0.1, 1e-6, box_x=(-1.0, 1.0), classes=[0, 1], inference=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    for table in (model.marginal_effects(), model.summary()):
        assert table.attrs["note"].startswith("NaN: noise in the sum of curvatures hides")
        assert "coef_ has coefficients" in table.attrs["note"]


def test_coefficients_without_errors_are_said_to_be_no_log_odds():
    """Of a classifier they are scores: whoever wants odds ratios has to ask for them."""
    X, y = labelled(2_000)
    for options in ({}, {"loss": "hinge"}, {"delta": 0.0}):
        table = quietly(classifier(inference=False, **options), X, y).summary()
        assert table.attrs["note"].startswith("scores, not log-odds")
        assert "inference=True releases log-odds" in str(table)
    X, y = outcomes(2_000, LOSSES["Huber"])
    assert "log-odds" not in quietly(regressor(inference=False, loss=LOSSES["Huber"]), X, y).summary().attrs["note"]
