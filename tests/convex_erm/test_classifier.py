"""Classification as a user sees it: the loss and the ridge that are chosen, margins, probabilities, classes."""

import math
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dpfast import Ledger, ObjectivePerturbationClassifier, Privacy, UtilityWarning, io
from dpfast.convex_erm.mechanism import fitting
from dpfast.solvers import CappedLogisticLoss, L2Ball, Lasso, LogisticLoss
from dpfast.statistics.residuals import residual_sums


def classifier(epsilon=1.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 1.0, "classes": [0, 1], "fit_intercept": False, "random_state": 0}
    return ObjectivePerturbationClassifier(epsilon, delta, **(defaults | parameters))


def table(n=20_000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.55, 0.55, (n, d))
    return X, np.clip(X @ np.linspace(-1.0, 1.0, d) + 0.1 * rng.normal(size=n), -1.0, 1.0)


LOSSES = ["auto", "logistic", "hinge", CappedLogisticLoss(0.5)]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_classification_finds_its_classes(loss, delta):
    X, y = table(20_000)
    labels = np.where(y > 0.1, "yes", "no")
    model = classifier(1.0, delta, classes=["yes", "no"], loss=loss, fit_intercept=True).fit(X, labels)
    assert model.classes_.tolist() == ["no", "yes"]
    best = LogisticRegression().fit(X, labels).score(X, labels)
    assert model.score(X, labels) > best - 0.02
    assert model.decision_function(X).shape == (20_000,)
    assert model.coef_.shape == (1, 3)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    told = probabilities[:, 0] != 0.5
    assert np.array_equal((probabilities[:, 1] > 0.5)[told], (model.predict(X) == "yes")[told])
    # No worse than half of the way from guessing to knowing the frequencies at margins.
    if not isinstance(loss, CappedLogisticLoss):
        assert log_loss(labels, probabilities) < 0.75 * math.log(2.0)


def test_more_than_two_classes_share_the_budget():
    X, y = table(60_000)
    labels = np.digitize(y, [-0.3, 0.3])
    ledger = Ledger(Privacy(3.0, 3e-6))
    options = {"classes": [0, 1, 2], "method": "objective", "fit_intercept": True}
    model = classifier(3.0, 3e-6, ledger=ledger, **options).fit(X, labels)
    assert [release.name.split(": ")[1][:12] for release in model.releases_] == 3 * ["coefficients"] + ["counts of ma"]
    assert model.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert sum(release.privacy.epsilon for release in model.releases_) == pytest.approx(3.0)
    assert sum(release.privacy.delta for release in model.releases_) == pytest.approx(3e-6)
    assert model.privacy_spent_ == Privacy(3.0, 3e-6)
    assert ledger.remaining.epsilon == pytest.approx(0.0)
    assert model.score(X, labels) > 0.55
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    # Noise of each class is its own.
    released = [release.values["coef"] for release in model.releases_[:3]]
    assert not np.allclose(released[0] + released[2] + released[1], 0.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_descent_tells_classes_apart_and_says_how_surely(n_classes, fit_intercept):
    X, y = table(20_000)
    edges = [0.2] if n_classes == 2 else [-0.3, 0.3]
    labels = np.digitize(y + (0.3 if fit_intercept else 0.0), edges)
    options = {"classes": list(range(n_classes)), "fit_intercept": fit_intercept, "random_state": 0}
    model = classifier(2.0, method="gradient", **options).fit(X, labels)
    exact = classifier(math.inf, 0.0, **options).fit(X, labels)
    assert (model.method_, exact.method_, model.ridge_) == ("gradient", "objective", 0.0)
    assert model.coef_.shape == exact.coef_.shape
    assert model.intercept_.shape == exact.intercept_.shape
    assert model.score(X, labels) > exact.score(X, labels) - 0.01
    assert np.any(model.intercept_) == fit_intercept
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(chances.argmax(axis=1), model.predict(X))


def test_descent_does_not_depend_on_the_units_of_rows():
    X, y = table(2_000)
    options = {"classes": [False, True], "method": "gradient", "fit_intercept": True, "random_state": 0}
    one = classifier(bound_x=1.5, **options).fit(X, y > 0.0)
    other = classifier(bound_x=1.5 * 2.0**40, **options).fit(X * 2.0**40, y > 0.0)
    np.testing.assert_array_equal(one.coef_, other.coef_ * 2.0**40)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)


def test_descent_is_not_told_a_private_number_of_people():
    X, y = table(400)
    model = classifier(classes=[False, True], method="gradient", adjacency="add_remove").fit(X, y > 0.0)
    assert "number of people" in model.releases_[0].name
    summed = model._sum(Privacy(1.0, 1e-6, "add_remove"), None, X, y > 0.0)
    assert summed.mechanism.classifier.steps.n_rows is None
    assert summed.expected is None


def test_methods_are_chosen_by_public_numbers():
    X, y = table(20_000)
    three = np.digitize(y, [-0.3, 0.3])
    for options, labels, rows, method in (
        ({}, y > 0.0, 20_000, "objective"),
        ({}, y > 0.0, 20, "gradient"),
        ({"loss": "hinge"}, y > 0.0, 20, "objective"),
        ({"adjacency": "add_remove"}, y > 0.0, 5, "objective"),
        ({"classes": [0, 1, 2]}, three, 2_000, "gradient"),
        ({"classes": [0, 1, 2], "constraint": L2Ball(2.0)}, three, 2_000, "objective"),
        ({"classes": [0, 1, 2], "delta": 0.0}, three, 2_000, "objective"),
        ({"classes": [0, 1, 2], "loss": "hinge"}, three, 2_000, "objective"),
    ):
        estimator = classifier(**({"classes": [False, True], "random_state": 0} | options))
        with catch_warnings():
            simplefilter("ignore", UtilityWarning)
            assert estimator.fit(X[:rows], labels[:rows]).method_ == method


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta > 0"),
        ({"constraint": L2Ball(2.0)}, "without a constraint"),
        ({"loss": "hinge"}, "loss='auto' or 'logistic'"),
        ({"ridge": 1.0}, "ridge='auto'"),
        ({"calibration": "paper"}, "calibration='sound'"),
    ],
)
def test_descent_refuses_what_it_does_not_know(options, message):
    X, y = table(100)
    with pytest.raises(ValueError, match=message):
        classifier(classes=[False, True], method="gradient", **options).fit(X, y > 0.0)
    with pytest.raises(ValueError, match="method"):
        classifier(classes=[False, True], method="newton").fit(X, y > 0.0)


def test_the_shift_and_the_ridge_follow_public_numbers_alone():
    X, y = table(300)
    labels = (y > 0.0).astype(int)
    one, other = (classifier(method="objective").fit(rows, labels) for rows in (X, np.zeros_like(X)))
    assert (one.shift_, one.ridge_) == (other.shift_, other.ridge_)
    private = [classifier(adjacency="add_remove", method="objective").fit(X[:n], labels[:n]) for n in (50, 300)]
    assert (private[0].shift_, private[0].ridge_) == (private[1].shift_, private[1].ridge_)
    assert private[0].releases_[0].scales == private[1].releases_[0].scales


def test_the_shift_ends_where_rows_tell_more_than_noise():
    privacy = Privacy(1.0, 1e-6)
    few, some, many = (fitting(privacy, 10, n) for n in (100, 2_500, 10**8))
    assert few == (6.0, 1.0)
    assert few.shift > some.shift > many.shift == 0.0
    assert few.convexity > some.convexity > many.convexity == 0.125
    assert fitting(Privacy(8.0, 1e-6), 10, 2_500).shift < some.shift < fitting(Privacy(0.1, 1e-6), 10, 2_500).shift
    # Less noise a coordinate than Gaussian noise has in a few dimensions, more in many.
    assert fitting(Privacy(1.0), 10, 2_500).shift < some.shift
    assert fitting(Privacy(1.0), 100, 25_000).shift > fitting(Privacy(1.0, 1e-6), 100, 25_000).shift
    assert fitting(Privacy(1.0, 1e-6, "add_remove"), 10, None) == (4.0, 1.0)


def test_where_noise_is_large_curvature_costs_nothing():
    X, y = table(100)
    model = classifier(2.0, method="objective", probabilities="link").fit(X, (y > 0.0).astype(int))
    mechanism = model._calibrated(Privacy(2.0, 1e-6), 3, 100)
    own = mechanism.noise_scales
    assert own.curvature_epsilon < 1e-6
    assert own.noise_epsilon == pytest.approx(2.0 - own.finishing_epsilon, rel=1e-6)
    assert model.ridge_ == pytest.approx(mechanism.bounds.free_convexity(own.noise_epsilon), rel=1e-5)


def test_what_is_asked_for_is_not_chosen():
    """A ridge is kept, and a set, printed noise or no noise at all go with the logistic loss itself."""
    X, y = table(2000)
    labels = (y > 0.0).astype(int)
    assert classifier(ridge=40.0).fit(X, labels).ridge_ == pytest.approx(40.0)
    assert classifier(penalty=Lasso(1.0)).fit(X, labels).shift_ > 0.0
    bounded, named = (classifier(loss=loss, constraint=L2Ball(3.0)).fit(X, labels) for loss in ("auto", "logistic"))
    assert not hasattr(bounded, "shift_")
    assert bounded.ridge_ == named.ridge_
    exact = [classifier(math.inf, loss=loss).fit(X, labels).coef_ for loss in ("auto", LogisticLoss())]
    assert np.array_equal(*exact)


def test_the_fitted_loss_is_ahead_where_noise_is_large():
    """On little data the logistic loss and the hinge hide more than they tell."""
    rng = np.random.default_rng(5)
    weights = rng.normal(size=30)
    X = rng.normal(size=(1400, 30)) / math.sqrt(30.0)
    labels = (X @ weights > 0.0).astype(int)

    def score(loss, seed):
        model = classifier(0.5, 1e-5, loss=loss, method="objective", random_state=seed).fit(X[:400], labels[:400])
        return model.score(X[400:], labels[400:])

    scores = {loss: np.mean([score(loss, seed) for seed in range(12)]) for loss in ("auto", "logistic", "hinge")}
    assert scores["auto"] > max(scores["logistic"], scores["hinge"]) + 0.02


def test_a_saved_model_keeps_its_shift(tmp_path):
    X, y = table(500)
    model = classifier(method="objective").fit(X, (y > 0.0).astype(int))
    model.save(tmp_path / "model.json")
    loaded = ObjectivePerturbationClassifier.load(tmp_path / "model.json")
    assert loaded.shift_ == model.shift_ > 0.0
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_an_intercept_is_found_beside_rows_that_have_a_mean():
    """At a quarter of the bound a constant feature asks for hardly more noise, and less convexity lets it grow."""
    rng = np.random.default_rng(3)
    X = 0.15 * rng.normal(size=(4000, 5)) + 0.25
    labels = (X @ [1.0, -1.0, 0.5, 0.0, 0.5] > 0.3).astype(int)
    assert 0.3 < labels.mean() < 0.5
    found = [classifier(1.0, fit_intercept=True, random_state=seed).fit(X, labels) for seed in range(6)]
    assert np.mean([model.score(X, labels) for model in found]) > 0.9
    assert found[0]._table_loss(3).constant == 0.25


@pytest.mark.parametrize("method", ["objective", "gradient"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_of_one_change_no_bit_and_larger_ones_draw_the_boundary_away(method, n_classes):
    X, y = table(3_000)
    labels = np.digitize(y, [0.2] if n_classes == 2 else [-0.3, 0.3])
    options = {"method": method, "classes": range(n_classes), "fit_intercept": True}
    plain, even, scaled, weighted = (
        classifier(2.0, class_weight=weights, **options).fit(X, labels)
        for weights in (None, {0: 1.0}, dict.fromkeys(range(n_classes), 7.0), {1: 6.0})
    )
    for same in (even, scaled):
        np.testing.assert_array_equal(plain.coef_, same.coef_)
        np.testing.assert_array_equal(plain.intercept_, same.intercept_)
    assert np.mean(weighted.predict(X) == 1) > np.mean(plain.predict(X) == 1) + 0.02
    # Noise is for the heaviest class, whatever it weighs.
    assert [release.scales for release in weighted.releases_] == [release.scales for release in plain.releases_]


@pytest.mark.parametrize("weights", [{1: 5.0}, {0: 3.0, 1: 0.25}])
def test_without_noise_weights_are_those_of_the_textbook(weights):
    X, y = table(400)
    labels = (y > 0.1).astype(int)
    model = classifier(math.inf, 0.0, classes=None, loss="logistic", ridge=2.0, class_weight=weights).fit(X, labels)
    # Next to the heaviest: the ridge is as much larger.
    C = 1.0 / (2.0 * max(weights.values()))
    textbook = LogisticRegression(C=C, class_weight=weights, fit_intercept=False, tol=1e-12, max_iter=10_000)
    np.testing.assert_allclose(model.coef_, textbook.fit(X, labels).coef_, rtol=1e-6)


@pytest.mark.parametrize("method", ["objective", "gradient"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_neighbour_moves_what_weighted_rows_add_up_to_beyond_the_bound(method, n_classes):
    """Random neighbours and parameters, and from the best of them uphill; a row replaced by its negative comes near."""
    privacy, rng = Privacy(1.0, 1e-6), np.random.default_rng(0)
    model = classifier(method=method, classes=range(n_classes), class_weight={0: 0.2, 1: 7.0})
    whole = model._sum(privacy, None, np.eye(3), [0, 1, 1]).mechanism.classifier
    mechanism = whole.steps if method == "gradient" else whole.perturbation
    bound = mechanism._bound if method == "gradient" else max(mechanism.bounds.gradient_changes.values()) / 2.0
    curvature = 0.0 if method == "gradient" else mechanism.bounds.curvature

    def part(theta, row, label):
        """What a row adds; minus it at most so long, and next to the heaviest class."""
        people = model._opened(row[np.newaxis], [label])
        weight = (7.0 if label == 1 else 0.2 if label == 0 else 1.0) / 7.0
        if method == "gradient":
            outcomes = people.whole()[1]
            people = io.open_table(row[np.newaxis], outcomes if n_classes == 2 else np.maximum(outcomes, 0.0))
            sums = residual_sums(people, mechanism._first_step.at(theta), mechanism._clip).products.to_float64()
            assert np.linalg.norm(sums) <= bound
            # No longer than slopes of this weight are, without the clip.
            most = 1.0 if n_classes == 2 else math.sqrt(2.0)
            assert np.linalg.norm(sums) <= weight * most * mechanism.row_bound * (1.0 + 1e-6)
            return sums
        losses, _ = model._table_loss(people.n_features).of_table(people, 1, lambda _: mechanism.bounds.loss)
        column = losses[-1]
        gradient = column.gradient(np.stack([theta[:, 0], np.zeros(3)]))[0]
        assert np.linalg.norm(gradient) <= weight * bound
        assert np.trace(column.local_model(theta[:, 0].copy())[2]) <= weight * curvature * (1.0 + 1e-12)
        return gradient

    def moved(point):
        theta, rows, labels = point
        return np.linalg.norm(part(theta, rows[0], labels[0]) - part(theta, rows[1], labels[1]))

    shape = mechanism.shape if method == "gradient" else (3, 1)
    starts = [
        (0.1 * size * rng.normal(size=shape), size * rng.normal(size=(2, 3)), rng.integers(n_classes, size=2))
        for size in (0.1, 1.0, 10.0)
        for _ in range(20)
    ]
    row = np.array([2.0, 1.0, 0.0])
    starts.append((np.zeros(shape), np.array([row, -row]), np.array([1, 1])))
    best = max(starts, key=moved)
    for _ in range(150):
        theta, rows, labels = best
        step = 10.0 ** rng.uniform(-3.0, 0.0)
        kept = rng.random(2) < 0.8
        nearby = (
            theta + 0.1 * step * rng.normal(size=shape),
            rows + step * rng.normal(size=(2, 3)),
            np.where(kept, labels, rng.integers(n_classes, size=2)),
        )
        best = max(best, nearby, key=moved)
    assert 0.9 * 2.0 * bound < moved(best) <= 2.0 * bound


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ("balanced", ValueError, "how often labels occur"),
        ({2: 1.0}, ValueError, "declared classes alone, got one of 2"),
        ({1: 0.0}, ValueError, r"class_weight\[1\] must be positive and finite"),
        ({1: math.inf}, ValueError, r"class_weight\[1\] must be positive and finite"),
        ({1: "heavy"}, TypeError, r"class_weight\[1\] must be a real number"),
        ({0: 1e-200, 1: 1e200}, ValueError, r"2\*\*-100"),
        ([1.0, 2.0], TypeError, "class_weight must be a mapping from classes to weights or None, got list"),
    ],
)
def test_bad_weights_are_refused_before_anything_is_spent(weights, error, message, epsilon):
    X, y = table(50)
    ledger = Ledger(Privacy(math.inf, 1e-6))
    with pytest.raises(error, match=message):
        classifier(epsilon, class_weight=weights, ledger=ledger).fit(X, (y > 0.0).astype(int))
    assert ledger.spent.epsilon == 0.0


def test_weights_are_saved_with_the_labels_they_are_of(tmp_path):
    X, y = table(200)
    model = classifier(class_weight={1: 3.0}).fit(X, (y > 0.0).astype(int))
    model.save(tmp_path / "model.json")
    again = ObjectivePerturbationClassifier.load(tmp_path / "model.json")
    assert again.class_weight == {1: 3.0}
    assert type(next(iter(again.class_weight))) is int


def test_many_classes_without_noise_state_delta_once():
    X, y = table(200)
    ledger = Ledger(Privacy(math.inf, 1e-6))
    model = classifier(math.inf, 1e-6, classes=[0, 1, 2], ledger=ledger).fit(X, np.digitize(y, [-0.3, 0.3]))
    assert [release.privacy.delta for release in model.releases_] == [1e-6, 0.0, 0.0]
    assert len({release.name for release in model.releases_}) == 3
    assert ledger.spent == model.privacy_spent_ == Privacy(math.inf, 1e-6)


@pytest.mark.parametrize("bound", [2.0**-64, 2.0**64])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_smallest_and_the_largest_bound_are_computed_with(bound, adjacency):
    X, y = table(50)
    for epsilon in (0.01, 10.0):
        for intercept in (False, True):
            options = {"method": "objective", "adjacency": adjacency, "fit_intercept": intercept}
            with catch_warnings():
                simplefilter("ignore", UtilityWarning)
                classifier(epsilon, bound_x=bound, **options).fit(bound * X, (y > 0.0).astype(int))
