"""Weights of rows in classifiers and regressors: each person's part is at most what it is without weights."""

import math
import re

import numpy as np
import pytest
from neighbours import climb, row_in_ball
from sklearn.linear_model import LogisticRegression

from dpfast import BudgetExceeded, Ledger, ObjectivePerturbationClassifier, ObjectivePerturbationRegressor, Privacy, io
from dpfast.io import ProcessPartitions
from dpfast.solvers import CallableLoss, ElasticNet, L2Ball
from dpfast.statistics.residuals import residual_sums

MOST = 4.0
REGRESSIONS = {
    "squares": {"constraint": L2Ball(20.0)},
    "Huber": {"loss": "huber"},
    "a quantile": {"loss": "quantile"},
    "counts": {"loss": "poisson"},
}


def classifier(epsilon=1.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 2.0, "classes": [0, 1], "max_weight": MOST, "random_state": 0}
    return ObjectivePerturbationClassifier(epsilon, delta, **(defaults | parameters))


def regressor(epsilon=1.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 2.0, "bound_y": 4.0, "max_weight": MOST, "random_state": 0}
    return ObjectivePerturbationRegressor(epsilon, delta, **(defaults | parameters))


def table(n=400, seed=0):
    """Rows within bounds, outcomes, labels, and weights of which some are beyond the largest that counts."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, 3))
    linear = 0.3 + x @ [0.8, -0.5, 0.0]
    y = np.clip(linear + 0.3 * rng.standard_t(3, n), -4.0, 4.0)
    return x, y, (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * linear))).astype(int), rng.exponential(2.0, n)


def released(model):
    return [value.tobytes() for one in model.releases_ for value in one.values.values()]


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_weighted_classes_are_those_of_the_textbook(fit_intercept):
    x, _, labels, weights = table()
    model = classifier(math.inf, loss="logistic", ridge=2.0, fit_intercept=False).fit(x, labels, sample_weight=weights)
    # A ridge is added to the loss in units of the largest weight.
    textbook = LogisticRegression(C=1.0 / 2.0, fit_intercept=False, tol=1e-12, max_iter=10_000)
    np.testing.assert_allclose(model.coef_, textbook.fit(x, labels, weights / MOST).coef_, rtol=1e-6)
    model = classifier(math.inf, fit_intercept=fit_intercept).fit(x, labels, sample_weight=weights)
    textbook = LogisticRegression(C=1e12, fit_intercept=fit_intercept, tol=1e-12, max_iter=10_000)
    np.testing.assert_allclose(model.coef_, textbook.fit(x, labels, weights).coef_, rtol=1e-6)
    np.testing.assert_allclose(model.intercept_, textbook.intercept_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", REGRESSIONS)
@pytest.mark.parametrize("penalty", [None, ElasticNet(0.05, 0.1)], ids=str)
def test_without_noise_a_weight_is_a_number_of_copies(name, penalty):
    x, y, _, weights = table()
    y = np.abs(y) if name == "counts" else y
    copies = np.minimum(np.ceil(weights), MOST).astype(int)
    options = REGRESSIONS[name] | {"penalty": penalty, "ridge": 0.5}
    model = regressor(math.inf, **options).fit(x, y, sample_weight=copies)
    # The ridge and the penalty are next to the sum of shares.
    many = {"penalty": penalty and ElasticNet(MOST * penalty.l1, MOST * penalty.l2), "ridge": MOST * 0.5}
    other = regressor(math.inf, **options | many).fit(np.repeat(x, copies, axis=0), np.repeat(y, copies))
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, other.intercept_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_errors_of_weighted_rows_are_those_of_the_sandwich(name):
    """Of H^-1 J H^-1, H a weighted sum of curvatures, and J one of squared weights times squared scores."""
    x, y, _, weights = table(2_000)
    y = np.abs(y) if name == "counts" else y
    model = regressor(math.inf, inference=True, **REGRESSIONS[name]).fit(x, y, sample_weight=weights)
    loss, design = model._resolved_loss, np.column_stack([np.ones(len(x)), x])
    margins = design @ model.estimate_
    curved = design.T @ (design * (weights * loss.second_derivative(margins, y))[:, None])
    scored = design * (weights * loss.derivative(margins, y))[:, None]
    inverse = np.linalg.inv(curved)
    np.testing.assert_allclose(model.covariance_, inverse @ scored.T @ scored @ inverse, rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_descent_divides_by_a_released_sum_of_weights_and_by_no_number_of_people(adjacency):
    """Weights are private also where the number of people is not."""
    x, y, _, weights = table(4_000)
    model = regressor(8.0, loss="huber", method="gradient", adjacency=adjacency).fit(x, y, sample_weight=weights)
    (counted,) = (one for one in model.releases_ if one.name.endswith("numbers of people and rows"))
    shares = np.minimum(weights, MOST).sum() / MOST
    assert abs(counted.values["sum"][0] - shares) < 8.0 * counted.scales["sum"] + 2.0
    assert shares < 0.8 * 4_000


@pytest.mark.parametrize("options", [{"method": "objective"}, {"method": "gradient"}, {"classes": [0, 1, 2]}], ids=str)
def test_weights_as_large_as_they_may_be_change_no_bit_and_those_of_0_leave_rows_out(options):
    x, _, labels, weights = table()
    alone = classifier(**options).fit(x, labels)
    assert released(classifier(**options).fit(x, labels, sample_weight=np.full(400, MOST))) == released(alone)
    assert released(classifier(**options).fit(x, labels, sample_weight=np.full(400, 1e9))) == released(alone)
    one, other = (
        classifier(**options).fit(x, np.where(weights > 2.0, labels, flipped), sample_weight=weights * (weights > 2.0))
        for flipped in (labels, 1 - labels)
    )
    # Of either label they add a slope of 0.
    assert released(one) == released(other) != released(alone)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_keep_to_their_weights(name):
    x, y, _, weights = table(4_000)
    y = np.abs(y) if name == "counts" else y
    options = {"method": "objective", "random_state": 1} | REGRESSIONS[name]
    if name != "squares":  # whose rows have the constant among them, on another grid
        most = regressor(**options).fit(x, y, sample_weight=np.full(4_000, MOST))
        assert released(most) == released(regressor(**options).fit(x, y))
    exact = regressor(math.inf, **options).fit(x, y, sample_weight=np.minimum(weights, MOST))
    found = regressor(1e3, **options).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(found.coef_, exact.coef_, atol=0.05)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", ["Huber", "a quantile", "counts"])
def test_descent_is_of_the_weighted_loss(name, adjacency):
    """Of rows, and of people with several; weights that depend on the outcome move all of the coefficients."""
    x, y, _, _ = table(20_000)
    weights = np.where(y > 0.3 + x @ [0.2, -0.2, 0.5], 2.0 * MOST, 0.3)
    y = np.abs(y) if name == "counts" else y
    options, owners = REGRESSIONS[name] | {"adjacency": adjacency}, np.repeat(np.arange(10_000), 2)
    exact = regressor(math.inf, **REGRESSIONS[name]).fit(x, y, sample_weight=np.minimum(weights, MOST))
    plain = regressor(math.inf, **REGRESSIONS[name]).fit(x, y)
    assert np.linalg.norm(exact.coef_ - plain.coef_) > 0.1
    for people in ({}, {"groups": owners, "max_rows": 2}):
        found = regressor(30.0, **options).fit(x, y, **people, sample_weight=weights)
        assert found.method_ == "gradient"
        assert found.privacy_spent_ == Privacy(30.0, 1e-6, adjacency)
        np.testing.assert_allclose(found.coef_, exact.coef_, atol=0.04)
        np.testing.assert_allclose(found.intercept_, exact.intercept_, atol=0.06)


@pytest.mark.parametrize("name", ["Huber", "counts"])
def test_errors_of_a_weighted_descent_are_about_those_it_makes(name):
    """Six deviations: by chance once in 500 million."""
    x, y, _, weights = table(20_000)
    y = np.abs(y) if name == "counts" else y
    exact = regressor(math.inf, inference=True, **REGRESSIONS[name]).fit(x, y, sample_weight=np.minimum(weights, MOST))
    found = regressor(8.0, inference=True, **REGRESSIONS[name]).fit(x, y, sample_weight=weights)
    errors = np.sqrt(np.diag(found.covariance_))
    assert np.all(np.abs(found.estimate_ - exact.estimate_) < 6.0 * errors)
    assert np.all(errors < 6.0 * np.sqrt(np.diag(exact.covariance_)))


@pytest.mark.parametrize("name", [*REGRESSIONS, "classes"])
def test_no_neighbour_moves_the_gradient_of_weighted_losses_beyond_its_bound(name):
    """Uphill from random rows, outcomes, weights and parameters: never beyond what noise is for, and near it."""
    model = regressor(method="objective", fit_intercept=False, **REGRESSIONS.get(name, {}))
    if name == "classes":
        model = classifier(method="objective", probabilities="link", loss="logistic", fit_intercept=False)
    model.__dict__["_weighted"] = True
    mechanism = model._sum(Privacy(1.0, 1e-6), None, np.eye(2), [0, 1], shares=np.ones(2)).mechanism.perturbation
    bound = mechanism.bounds.gradient_change

    def part(theta, row, outcome, weight):
        x, y = row[None], np.array([int(outcome > 0.0) if name == "classes" else outcome])
        shares = io.shares_of(x, y, [abs(weight)], MOST)
        people = model._opened(x, y, shares)
        (loss,), _ = model._table_loss(2).of_table(people, 1)
        share = min(abs(weight), MOST) / MOST
        # Rows of squares are rounded to a grid.
        rounded = 1e-5 * (name == "squares")
        assert np.trace(loss.local_model(theta)[2]) <= share * mechanism.bounds.curvature * (1.0 + 1e-9) + rounded
        gradient = loss.gradient(np.stack([theta, np.zeros(2)]))[0]
        assert np.linalg.norm(gradient) <= share * mechanism.bounds.gradient * (1.0 + 1e-9) + 100.0 * rounded
        return gradient

    def moved(p):
        theta = p[:2] if model.constraint is None else row_in_ball(p[:2], model.constraint.radius)
        parts = [part(theta, row_in_ball(one[:2], 8.0), 8.0 * one[2], 8.0 * one[3]) for one in (p[2:6], p[6:])]
        return float(np.linalg.norm(parts[0] - parts[1]))

    worst, _ = climb(moved, 10, np.random.default_rng(0), restarts=6)
    assert worst <= bound
    far = np.zeros(2) if model.constraint is None else np.array([model.constraint.radius, 0.0])
    ends = np.concatenate([far, [1.0, 0.0, -1.0, 1.0], [-1.0, 0.0, 1.0 if name == "classes" else -1.0, 1.0]])
    assert max(worst, moved(ends)) > 0.45 * bound


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_weight_moves_what_a_step_of_descent_adds_up_to_beyond_its_clip(n_classes):
    """The slope is weighted before the part is clipped: a share v leaves at most v times the longest."""
    model, rng = classifier(classes=range(n_classes), method="gradient"), np.random.default_rng(0)
    steps = model._sum(Privacy(1.0, 1e-6), None, np.eye(3), [0, 1, 1]).mechanism.classifier.steps
    most, longest = (1.0 if n_classes == 2 else math.sqrt(2.0)) * steps.row_bound, 0.0
    for weight in (0.0, 0.1, 1.0, MOST, 100.0):
        for _ in range(20):
            row, theta = rng.normal(size=(1, 3)) * 10.0 ** rng.uniform(-1.0, 2.0), 3.0 * rng.normal(size=steps.shape)
            shares = io.shares_of(row, None, [weight], MOST)
            people = model._as_descended(model._opened(row, [rng.integers(n_classes)], shares))
            part = residual_sums(people, steps._first_step.at(theta), steps._clip).products.to_float64()
            length = float(np.linalg.norm(part))
            assert length <= min(steps._bound, min(weight, MOST) / MOST * most * (1.0 + 1e-6) + 1e-5)
            longest = max(longest, length)
    assert longest > 0.8 * steps._bound


@pytest.mark.parametrize("method", ["objective", "gradient"])
def test_what_is_told_of_weighted_classes_is_of_the_weighted_rows(method):
    x, _, labels, _ = table(20_000)
    # As many of either class, by weight.
    weights = np.where(labels == 1, MOST * (1.0 - labels.mean()) / labels.mean(), MOST)
    exact = classifier(math.inf, inference=True).fit(x, labels, sample_weight=weights)
    found = classifier(4.0, method=method, inference=True).fit(x, labels, sample_weight=weights)
    errors = np.sqrt(np.diag(found.covariance_))
    assert np.all(np.abs(found.estimate_ - exact.estimate_) < 6.0 * errors)
    shares = weights / weights.sum()
    assert shares @ found.predict_proba(x)[:, 1] == pytest.approx(shares @ labels, abs=0.03)
    # The sum of p (1 - p) is one of weighted rows, and what weights add up to is not released.
    for model in (exact, found):
        assert model.marginal_effects().isna().all().all()
        assert "mean of p (1 - p) is not known" in model.marginal_effects().attrs["note"]


def test_people_with_several_rows_have_weights_too():
    x, _, labels, weights = table()
    owners, options = np.repeat(np.arange(200), 2), {"method": "gradient", "delta": 1e-6}
    one = classifier(**options).fit(x, labels, owners, 2, np.full(400, MOST))
    assert released(one) == released(classifier(**options).fit(x, labels, owners, 2))
    two = classifier(**options).fit(x, labels, groups=owners, max_rows=2, sample_weight=weights)
    assert released(two) != released(one)


def test_weights_go_with_limits_of_columns():
    x, y, labels, weights = table(4_000)
    box, far = (np.array([90.0, -2.0, 0.0]), np.array([110.0, 2.0, 1.0])), np.array([10.0, 2.0, 0.5])
    rows = x * far + (box[0] + box[1]) / 2.0
    for make, outcomes in ((classifier, labels), (regressor, y)):
        options = {"loss": "huber"} if make is regressor else {}
        exact = make(math.inf, bound_x=None, box_x=box, **options).fit(rows, outcomes, sample_weight=weights)
        plain = make(math.inf, **options).fit(x, outcomes, sample_weight=weights)
        np.testing.assert_allclose(exact.coef_ * far, plain.coef_, rtol=1e-5)
    found = regressor(100.0, bound_x=None, box_x=box, loss="huber").fit(rows, y, sample_weight=weights)
    np.testing.assert_allclose(found.coef_ * far, exact.coef_ * far, atol=0.05)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (classifier(max_weight=None), {}, "sample_weight needs max_weight"),
        (regressor(loss="huber", max_weight=None), {}, "sample_weight needs max_weight"),
        (classifier(max_weight=0.0), {}, "max_weight must be positive"),
        (classifier(), {"sample_weight": np.full(400, -1.0)}, "finite numbers of at least 0"),
        (classifier(), {"sample_weight": np.full(400, np.nan)}, "finite numbers of at least 0"),
        (classifier(), {"sample_weight": np.ones(399)}, "X and sample_weight have different numbers of rows"),
        (
            regressor(loss="huber"),
            {"sample_weight": np.ones(399)},
            "X and sample_weight have different numbers of rows",
        ),
        (
            regressor(loss=CallableLoss(np.square, np.sign, np.abs, slope_bound=1.0, curvature_bound=1.0)),
            {},
            "sample_weight does not go with a loss given by functions",
        ),
    ],
    ids=str,
)
def test_weights_that_cannot_be_had_are_refused_before_anything_is_spent(make, given, message):
    x, _, labels, weights = table()
    ledger = Ledger(Privacy(1.0, 1e-6))
    with pytest.raises(ValueError, match=re.escape(message)):
        make.set_params(ledger=ledger).fit(x, labels, **{"sample_weight": weights} | given)
    assert ledger.spent.epsilon == 0.0


def test_weights_of_tables_in_parts_are_refused():
    x, _, labels, weights = table()
    for model in (classifier(), regressor(loss="huber")):
        with pytest.raises(TypeError, match="sample_weight goes with tables that are read here"):
            model.fit(ProcessPartitions([(x, labels)]), sample_weight=weights)


def test_no_weight_is_read_unless_the_fit_can_be_paid():
    x, _, labels, _ = table()
    with pytest.raises(BudgetExceeded):
        classifier(2.0, ledger=Ledger(Privacy(1.0, 1e-6))).fit(x, labels, sample_weight=np.full(400, np.nan))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_rows_that_can_be_read_once_have_weights_too(name):
    x, y, _, weights = table()
    options = REGRESSIONS[name]
    once = regressor(**options).fit(iter([(x[:150], y[:150]), (x[150:], y[150:])]), sample_weight=weights)
    assert released(once) == released(regressor(**options).fit(x, y, sample_weight=weights))
    with pytest.raises(ValueError, match="X and sample_weight have different numbers of rows"):
        regressor(**options).fit(iter([(x, y)]), sample_weight=weights[1:])
