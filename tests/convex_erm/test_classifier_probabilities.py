"""Probabilities by noisy counts of margins: what they cost, what they are worth, and how a fit tells them."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.metrics import log_loss

from dpfast import Ledger, ObjectivePerturbationClassifier, Privacy, noise
from dpfast.convex_erm import classifier as classifier_module
from dpfast.convex_erm.calibration import zero_of
from dpfast.convex_erm.mechanism import Calibrated, FewCounts
from dpfast.privacy import UtilityWarning, gaussian_delta, gaussian_mu, keeps_to
from dpfast.solvers import L2Ball

ADJACENCIES = ["replace_one", "add_remove"]
# What a row counts for in the histogram of classes, in what noise is for: the squared length, or the sum of sizes.
MOVED = {"Gaussian": np.square, "Laplace": float}
METHODS = [("objective", 1e-6), ("gradient", 1e-6), ("objective", 0.0)]


def classifier(epsilon=1.0, delta=1e-6, **parameters):
    defaults = {"bound_x": 4.0, "classes": [0, 1], "random_state": 0}
    return ObjectivePerturbationClassifier(epsilon, delta, **(defaults | parameters))


def table(n, seed=0, slope=1.0, offset=0.0, classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    if classes == 2:
        return X, (rng.random(n) < expit(slope * (X @ [1.0, -1.0, 0.5, 0.0, 0.0, 0.0]) + offset)).astype(int)
    scores = slope * X[:, :classes] + rng.gumbel(size=(n, classes))
    return X, scores.argmax(axis=1)


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        return model.fit(*data)


def histograms(classes):
    return 1 if classes == 2 else classes


def base_rate(labels):
    rates = np.bincount(labels) / len(labels)
    return -float(rates @ np.log(rates))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("method", "delta"), METHODS)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_classifier_and_the_counts_keep_to_the_budget(adjacency, method, delta, classes):
    """Gaussian steps and counts by mu, others by sums; and the ledger says so, too."""
    whole = Privacy(1.0, delta, adjacency)
    ledger = Ledger(Privacy(1.0, 1e-6, adjacency))
    options = {"method": method, "classes": range(classes), "adjacency": adjacency, "ledger": ledger}
    model = quietly(classifier(1.0, delta, **options), *table(1_000, classes=classes))
    costs, mus = [one.privacy for one in model.releases_], [one.mu for one in model.releases_]
    assert keeps_to(costs, mus, whole)
    if method == "gradient":
        assert math.hypot(*mus) == pytest.approx(gaussian_mu(*whole.target), rel=1e-5)
    else:
        assert sum(cost.epsilon for cost in costs) == pytest.approx(1.0)
        assert sum(cost.delta for cost in costs) == pytest.approx(delta)
    assert model.privacy_spent_ == whole
    counts = model.releases_[-1]
    assert "counts of margins by class" in counts.name
    spent = (counts.mu / gaussian_mu(*whole.target)) ** 2 if method == "gradient" else counts.privacy.epsilon
    further = 0.625 if classes == 2 else 1.0
    assert spent == pytest.approx(0.1 * (1.0 + MOVED[counts.mechanism](further) / histograms(classes)), rel=1e-4)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("method", "delta"), METHODS)
@pytest.mark.parametrize("classes", [2, 3])
def test_noise_of_counts_hides_one_cell_or_two_of_each_histogram(adjacency, method, delta, classes):
    options = {"method": method, "adjacency": adjacency, "classes": range(classes)}
    model = quietly(classifier(1.0, delta, **options), *table(1_000, classes=classes))
    counts = model.releases_[-1]
    further = 0.625 if classes == 2 else 1.0
    moved = (2.0 if adjacency == "replace_one" else 1.0) * (histograms(classes) + MOVED[counts.mechanism](further))
    if counts.mechanism == "Gaussian":
        target = counts.privacy
        reached = gaussian_delta(counts.scales["sum"], target.epsilon, math.sqrt(moved))
        assert 0.99 * target.delta < reached <= target.delta
    else:
        assert counts.privacy.delta == 0.0
        assert counts.scales["sum"] == pytest.approx(math.sqrt(2.0) * moved / counts.privacy.epsilon, rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("classes", [2, 3])
def test_counts_of_classes_are_taken_for_those_of_the_table(adjacency, classes, monkeypatch):
    """In rows, six deviations or less off; how many there are is taken from counts where it is private."""
    seen, calibrated = [], classifier_module.calibrated_log_odds

    def see(*args, **options):
        seen.append(args[3])
        return calibrated(*args, **options)

    monkeypatch.setattr(classifier_module, "calibrated_log_odds", see)
    X, y = table(3_000, offset=2.0, classes=classes)
    for weights in ({}, {"class_weight": {0: 0.5, 1: 1.0}}):
        options = {"classes": range(classes), "adjacency": adjacency, "method": "gradient", **weights}
        model = quietly(classifier(20.0, **options), X, y)
        found, further = seen.pop(), 0.625 if classes == 2 else 1.0
        assert found.deviation == pytest.approx(model.releases_[-1].scales["sum"] / further)
        rows = np.bincount(y) * np.array([0.5 if weights else 1.0, 1.0, 1.0])[:classes]
        assert np.abs(found.counts - rows).max() < 6.0 * found.deviation < 30.0
        assert found.n_rows == (3_000 if adjacency == "replace_one" and not weights else None)


@pytest.mark.parametrize(("method", "delta"), METHODS)
def test_counts_have_the_noise_that_they_are_said_to(method, delta):
    """Of rows that are all alike one cell has all of them: the others' noise, over fits. One in 10^6 would be off."""
    X, y = np.ones((50, 2)), np.ones(50, int)
    drawn = []
    for seed in range(12):
        model = quietly(classifier(1.0, delta, method=method, adjacency="add_remove", random_state=seed), X, y)
        counts = model.releases_[-1]
        values = counts.values["sum"][0]
        drawn += (values[: len(values) // 2] / counts.scales["sum"]).tolist()
    law = stats.norm() if counts.mechanism == "Gaussian" else stats.laplace(scale=math.sqrt(0.5))
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("method", ["objective", "gradient"])
@pytest.mark.parametrize("classes", [2, 3])
def test_no_neighbour_moves_counts_further_whatever_coefficients_were_released(adjacency, method, classes):
    X, y = table(80, classes=classes)
    options = {"method": method, "classes": range(classes), "adjacency": adjacency, "class_weight": {0: 0.3}}
    # With this budget there are enough people for bins of margins.
    model, privacy = classifier(**options), Privacy(30.0, 1e-6, adjacency)
    rng = np.random.default_rng(3)
    moved = []
    for _ in range(8):
        i, label = rng.integers(80), rng.integers(classes)
        other = np.delete(X, i, axis=0), np.delete(y, i)
        if adjacency == "replace_one":
            X_other, y_other = X.copy(), y.copy()
            X_other[i], y_other[i] = rng.normal(size=6) * 10.0 ** rng.uniform(-2, 2), label
            other = X_other, y_other
        tables = [model._sum(privacy, noise.SeededSource(0), *one) for one in ((X, y), other)]
        assert isinstance(tables[0].mechanism, Calibrated)
        stages = tables[0].mechanism.stages()
        query = next(stages)
        while "counts" not in query.name:
            drawn = query.mechanism.release(
                query.statistic(tables[0].statistic), noise.SeededSource(rng.integers(99)), ""
            )
            query = stages.send(drawn)
        sums = [query.statistic(one.statistic).to_float64() for one in tables]
        assert sums[0].shape == query.mechanism.shape
        moved.append(np.linalg.norm(sums[0] - sums[1]))
    several = histograms(classes) + (0.625 if classes == 2 else 1.0) ** 2
    most = math.sqrt(several * (2.0 if adjacency == "replace_one" else 1.0))
    assert max(moved) <= most * (1.0 + 1e-12)
    assert max(moved) > 0.99 * math.sqrt(histograms(classes))


def test_what_is_counted_and_how_follows_public_numbers():
    X, y = table(900)
    for adjacency in ADJACENCIES:
        models = [
            quietly(classifier(method="objective", adjacency=adjacency, random_state=seed), rows, labels)
            for seed, (rows, labels) in enumerate([(X, y), (0.0 * X, 0 * y), (-X, 1 - y)])
        ]
        assert (
            len({str(model.releases_[-1].scales) + str(model.releases_[-1].values["sum"].shape) for model in models})
            == 1
        )
    private = [quietly(classifier(adjacency="add_remove", method="objective"), X[:n], y[:n]) for n in (5, 900)]
    assert private[0].releases_[-1].scales == private[1].releases_[-1].scales
    assert private[0].releases_[-1].values["sum"].shape == private[1].releases_[-1].values["sum"].shape


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.7, -1.5), (0.0, -0.9), (1.0, -3.0)])
@pytest.mark.parametrize(
    ("adjacency", "method", "fit_intercept"),
    [
        ("replace_one", "objective", False),
        ("replace_one", "objective", True),
        ("add_remove", "gradient", True),
    ],
)
def test_probabilities_are_worth_more_than_the_base_rate(slope, offset, adjacency, method, fit_intercept):
    """Also where margins are mostly an intercept: a table that tells nothing gets its base rate."""
    X, y = table(24_000, 1, slope, offset)
    tests = X[4_000:], y[4_000:]
    losses, right = [], []
    for seed in range(6):
        options = {"adjacency": adjacency, "method": method, "fit_intercept": fit_intercept}
        model = quietly(classifier(random_state=seed, **options), X[:4_000], y[:4_000])
        losses.append(log_loss(tests[1], model.predict_proba(tests[0]), labels=[0, 1]))
        right.append(model.score(*tests))
    truth = expit(slope * (tests[0] @ [1.0, -1.0, 0.5, 0.0, 0.0, 0.0]) + offset)
    best = -np.mean(np.where(tests[1] == 1, np.log(truth), np.log1p(-truth)))
    assert np.mean(losses) < min(best + 0.03, 1.02 * base_rate(tests[1]))
    assert np.mean(right) > max(np.mean(tests[1]), 1.0 - np.mean(tests[1])) - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.5, 0.0])
@pytest.mark.parametrize("method", ["objective", "gradient"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_few_people_lose_little_to_the_base_rate(method, slope, fit_intercept):
    X, y = table(5_000, 2, slope, -1.0)
    options = {"method": method, "fit_intercept": fit_intercept}
    models = (quietly(classifier(random_state=seed, **options), X[:300], y[:300]) for seed in range(24))
    losses = [log_loss(y[300:], model.predict_proba(X[300:])) for model in models]
    assert np.mean(losses) < 1.1 * base_rate(y[300:])


def counted(classes, n, adjacency="replace_one"):
    """Fit, and return the releases of counts by the ends of their names; all keep to the budget together."""
    X, y = table(n, classes=classes) if classes == 2 else clusters(n, classes)
    model = quietly(classifier(classes=range(classes), adjacency=adjacency, method="gradient"), X, y)
    assert math.hypot(*(one.mu for one in model.releases_)) == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-5)
    return {one.name.split(": ")[-1]: one for one in model.releases_ if {"counts", "score"} & set(one.name.split())}


@pytest.mark.parametrize(("classes", "n"), [(2, 60), (8, 800)])
def test_few_people_are_counted_by_class_and_scored_by_the_link(classes, n):
    """With the noise of one person who leaves a class for another, and one end of the scores for the other."""
    counts = counted(classes, n)
    assert list(counts) == ["counts of classes", "score of the link"]
    for one, moved in zip(counts.values(), (math.sqrt(2.0), 2.0), strict=True):
        reached = gaussian_delta(one.scales["sum"], one.privacy.epsilon, moved)
        assert 0.99 * one.privacy.delta < reached <= one.privacy.delta


@pytest.mark.parametrize(("classes", "n", "share"), [(3, 500, 0.8 / 9), (4, 800, 0.05), (10, 1_300, 0.012)])
def test_few_people_of_more_classes_pay_less_for_counts(classes, n, share):
    """Noise in slopes costs more accuracy the more classes there are."""
    counts = counted(classes, n)
    assert sum(one.mu**2 for one in counts.values()) == pytest.approx(share * gaussian_mu(1.0, 1e-6) ** 2, rel=1e-3)


def test_a_handful_of_people_pay_more_for_counts_and_two_fifths_at_most():
    whole = gaussian_mu(1.0, 1e-6) ** 2
    for classes, usual in ((2, 0.15), (3, 0.8 / 9), (10, 0.012)):
        shares = []
        for people in (1, 10, 20, 40, 10**6):
            noises, rest = FewCounts.split(Privacy(1.0, 1e-6), classes, people)
            paid = sum(one.mu**2 for one in noises)
            assert paid + gaussian_mu(rest.epsilon, rest.delta) ** 2 <= whole * (1.0 + 1e-6)
            shares.append(paid / whole)
        assert shares[0] == pytest.approx(0.4, rel=1e-3)
        assert shares[-1] == pytest.approx(usual, rel=1e-3)
        assert shares == sorted(shares, reverse=True)
        assert shares[1] > 1.1 * shares[-1]


@pytest.mark.parametrize(("classes", "n"), [(5, 400), (7, 800)])
def test_several_classes_keep_the_accuracy_of_the_link_and_its_loss_where_they_are_apart(classes, n):
    X, y = clusters(n + 3_000, classes, apart=3.0)
    (X, y), tests = (X[:n], y[:n]), (X[n:], y[n:])
    found = []
    for seed in range(12):
        own = {"bound_x": 10.0, "classes": range(classes), "random_state": seed}
        models = [quietly(classifier(probabilities=how, **own), X, y) for how in ("calibrated", "link")]
        losses = [log_loss(tests[1], one.predict_proba(tests[0])) for one in models]
        found.append([*losses, models[0].score(*tests) - models[1].score(*tests)])
    loss, loss_of_link, gain = np.mean(found, axis=0)
    assert loss < 1.1 * loss_of_link
    assert gain > -0.003


@pytest.mark.parametrize(
    ("classes", "n", "adjacency"), [(2, 500, "replace_one"), (8, 8_000, "replace_one"), (8, 800, "add_remove")]
)
def test_more_people_and_private_numbers_are_counted_by_margin(classes, n, adjacency):
    assert list(counted(classes, n, adjacency)) == ["counts of margins by class"]


def clusters(n, classes, seed=0, apart=0.5):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return apart * np.random.default_rng(0).normal(size=(classes, 10))[y] + rng.normal(size=(n, 10)), y


@pytest.mark.parametrize("classes", [2, 5])
def test_no_neighbour_moves_counts_or_scores_of_few_people_by_more_than_a_row(classes):
    rng = np.random.default_rng(3)
    (X, y), privacy = clusters(60, classes), Privacy(1.0, 1e-6)
    model, moved = classifier(classes=range(classes), method="gradient", class_weight={0: 0.3}), ([], [])
    for _ in range(8):
        i, X_other, y_other = rng.integers(60), X.copy(), y.copy()
        X_other[i], y_other[i] = rng.normal(size=10) * 10.0 ** rng.uniform(-2, 2), rng.integers(classes)
        tables = [model._sum(privacy, noise.SeededSource(0), *one) for one in ((X, y), (X_other, y_other))]
        stages = tables[0].mechanism.stages()
        query, drawn = next(stages), None
        while query is not None:
            if {"counts", "score"} & set(query.name.split()):
                sums = [query.statistic(one.statistic).to_float64() for one in tables]
                assert sums[0].shape == query.mechanism.shape
                if "counts" in query.name:  # a row counts for its weight
                    assert sums[0].sum() == pytest.approx(np.where(y == 0, 0.3, 1.0).sum(), abs=1e-4)
                moved["counts" in query.name].append(np.linalg.norm(sums[0] - sums[1]))
            source = noise.SeededSource(rng.integers(99))
            drawn = query.mechanism.release(query.statistic(tables[0].statistic), source, "")
            try:
                query = stages.send(drawn)
            except StopIteration:
                query = None
    assert [len(one) for one in moved] == [8, 8]
    assert 0.2 < max(moved[0]) <= 2.0
    assert 1.0 < max(moved[1]) <= math.sqrt(2.0)


@pytest.mark.parametrize("classes", [8, 10])
def test_many_classes_of_few_rows_are_calibrated(classes):
    """Counts of bins for each class cost accuracy, and the link alone is too sure of itself."""
    X, y = clusters(100 * classes + 3_000, classes)
    (X, y), tests = (X[:-3_000], y[:-3_000]), (X[-3_000:], y[-3_000:])
    losses, gains = [], []
    for seed in range(8):
        own = {"bound_x": 6.0, "classes": range(classes), "random_state": seed}
        calibrated, link = (quietly(classifier(0.5, probabilities=how, **own), X, y) for how in ("calibrated", "link"))
        losses.append([log_loss(tests[1], one.predict_proba(tests[0])) for one in (calibrated, link)])
        gains.append(calibrated.score(*tests) - np.mean(calibrated._margins(tests[0]).argmax(axis=1) == tests[1]))
    loss, loss_of_link = np.mean(losses, axis=0)
    assert loss < min(0.98 * loss_of_link, math.log(classes))
    assert np.mean(gains) > -0.01


def test_few_people_of_several_classes_are_warned_of_noise_by_what_the_link_is_worth():
    """Slopes of many entries hide a signal that probabilities show; and where there is none, nobody is told of one."""
    X, y = clusters(600, 7)
    said = {}
    for name, labels in (("signal", y), ("none", np.random.default_rng(1).permutation(y))):
        said[name] = []
        for seed in range(12):
            with warnings.catch_warnings(record=True) as raised:
                warnings.simplefilter("always")
                classifier(classes=range(7), bound_x=4.0, random_state=seed).fit(X, labels)
            said[name].append(any("as released" in str(one.message) for one in raised))
    assert np.mean(said["signal"]) < 0.2
    assert np.mean(said["none"]) > 0.8


@pytest.mark.parametrize(
    ("shares", "n", "most"),
    [([0.9, 0.1], 70, 1.3), ([0.6, 0.3, 0.08, 0.02], 400, 1.1), ([0.8, 0.1, 0.06, 0.04], 100, 1.25)],
)
def test_few_people_get_their_rates(shares, n, most):
    """Of classes that nothing tells apart, with n mu of about 16 to 90: little more than the rates' own loss."""
    losses, rng = [], np.random.default_rng(8)
    for seed in range(20):
        y = rng.choice(len(shares), size=n, p=shares)
        own = {"classes": range(len(shares)), "random_state": seed, "bound_x": 3.0}
        model = quietly(classifier(**own), rng.normal(size=(n, 6)), y)
        chances = np.log(model.predict_proba(rng.normal(size=(2_000, 6)))).mean(axis=0)
        losses.append(-np.dot(shares, chances))
    assert np.mean(losses) < -most * np.dot(shares, np.log(shares))


@pytest.mark.parametrize(("method", "delta"), METHODS)
def test_several_classes_are_calibrated(method, delta):
    X, y = table(24_000, 3, 1.5, classes=3)
    options = {"classes": [0, 1, 2], "method": method}
    losses = []
    for probabilities in ("calibrated", "link"):
        model = classifier(1.0, delta, probabilities=probabilities, **options).fit(X[:4_000], y[:4_000])
        losses.append(log_loss(y[4_000:], model.predict_proba(X[4_000:])))
        assert hasattr(model, "log_odds_") == (probabilities == "calibrated")
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))
        np.testing.assert_array_equal(model.decision_function(X).argmax(axis=1), model.predict(X))
    assert losses[0] < losses[1] + 0.005


@pytest.mark.parametrize("method", ["objective", "gradient"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_several_classes_that_nothing_tells_apart_get_their_rates(method, fit_intercept):
    """Their intercepts are far apart, or there are none: frequent classes are predicted, and nobody is sure of them."""
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(24_000, 6)), rng.choice(3, size=24_000, p=[0.85, 0.11, 0.04])
    options = {"classes": [0, 1, 2], "method": method, "fit_intercept": fit_intercept}
    models = [quietly(classifier(random_state=seed, **options), X[:4_000], y[:4_000]) for seed in range(4)]
    losses = [log_loss(y[4_000:], model.predict_proba(X[4_000:])) for model in models]
    assert np.mean(losses) < 1.1 * base_rate(y[4_000:])
    assert np.mean([model.score(X[4_000:], y[4_000:]) for model in models]) > 0.84


def test_the_boundary_is_where_both_classes_are_as_probable():
    X, y = table(3_000, offset=-1.5)
    model = classifier(fit_intercept=True).fit(X, y)
    margins = (X * np.minimum(1.0, 4.0 / np.linalg.norm(X, axis=1))[:, None]) @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), margins - zero_of(model.log_odds_), atol=1e-9)
    chances = model.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(chances > 0.5, model.decision_function(X) > 0.0)
    np.testing.assert_array_equal(chances > 0.5, model.predict(X) == 1)
    order = np.argsort(margins)
    assert np.all(np.diff(chances[order]) >= 0.0)
    # Rows are held to their bound, as they were in the fit.
    np.testing.assert_allclose(model.predict_proba(1e6 * X[:5]), model.predict_proba(1e9 * X[:5]))


def test_the_link_leaves_the_whole_budget_to_the_coefficients():
    X, y = table(500)
    for options in (
        {"probabilities": "link"},
        {"calibration": "paper", "loss": "logistic", "constraint": L2Ball(5.0), "adjacency": "add_remove"},
    ):
        model = quietly(classifier(method="objective", **options), X, y)
        assert len(model.releases_) == 1
        assert model.releases_[0].privacy.epsilon == 1.0
        assert not hasattr(model, "log_odds_")
    exact = classifier(math.inf, ridge=1.0).fit(X, y)
    assert not hasattr(exact, "log_odds_")
    np.testing.assert_allclose(exact.predict_proba(X)[:, 1], expit(X @ exact.coef_[0] + exact.intercept_))
    with pytest.raises(ValueError, match="probabilities must be 'calibrated' or 'link'"):
        classifier(probabilities="platt").fit(X, y)


def test_weighted_rows_are_counted_for_their_weight():
    X, y = table(20_000, offset=-1.0)
    model = classifier(2.0, class_weight={1: 4.0}).fit(X, y)
    counts = model.releases_[-1].values["sum"].reshape(2, -1)[:, :-1].sum(axis=1)
    assert counts == pytest.approx([0.25 * np.sum(y == 0), np.sum(y == 1)], rel=0.1)
    weights = np.where(y == 1, 1.0, 0.25)
    chances = model.predict_proba(X)[:, 1]
    assert weights @ chances == pytest.approx(weights @ y, rel=0.05)


def test_a_fit_without_counts_or_limits_has_none_of_the_fit_before():
    X, y = table(300)
    model = quietly(classifier(box_x=(-0.1, 0.1), random_state=0), X, y)
    assert hasattr(model, "log_odds_")
    plain = {"probabilities": "link", "box_x": None, "random_state": 0}
    model, alone = quietly(model.set_params(**plain), X, y), quietly(classifier(**plain), X, y)
    assert not hasattr(model, "log_odds_")
    assert vars(model).keys() == vars(alone).keys()
    np.testing.assert_array_equal(model.decision_function(X), alone.decision_function(X))


@pytest.mark.parametrize("n", [60, 1_000])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_saved_model_keeps_its_probabilities(tmp_path, classes, n):
    X, y = table(n, classes=classes)
    model = quietly(classifier(classes=list(range(classes))), X, y)
    model.save(tmp_path / "model.json")
    loaded = ObjectivePerturbationClassifier.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    name, wrong = "log_odds_", -model.log_odds_
    setattr(model, name, wrong)
    model.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match=f"{name} must"):
        ObjectivePerturbationClassifier.load(tmp_path / "model.json")


@pytest.mark.parametrize("bound", [2.0**-60, 2.0**60])
def test_probabilities_do_not_depend_on_the_unit_of_rows(bound):
    X, y = table(400)
    chances = [
        quietly(classifier(bound_x=4.0 * unit, method="gradient"), unit * X, y).predict_proba(unit * X)
        for unit in (1.0, bound)
    ]
    np.testing.assert_allclose(*chances, rtol=1e-9)


def test_coefficients_of_nothing_leave_the_base_rate():
    """A strong penalty: all margins are 0, and so is their unit."""
    X, y = table(4_000, offset=-1.0)
    model = quietly(classifier(4.0, constraint=L2Ball(2.0**-199), loss="logistic"), X, y)
    assert model.predict_proba(X)[:, 1] == pytest.approx(y.mean(), abs=0.05)
