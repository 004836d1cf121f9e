"""With delta 0 few people get the mean outcome: who decides, what it costs, what one person moves."""

import warnings

import numpy as np
import pytest

from dpfast import MultiOutcomeRidge, UtilityWarning

FEW = {"epsilon": 1.0, "delta": 0.0, "box_x": (-3.0, 3.0), "bound_y": 2.0, "random_state": 0}


def _fit(X, Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        return MultiOutcomeRidge(**FEW | parameters).fit(X, Y)


def _table(n, outcomes=2):
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, 4)), rng.normal(size=(n, outcomes))


@pytest.mark.parametrize("outcomes", [1, 2, 5])
def test_a_person_moves_the_sum_as_far_as_its_noise_is_for_and_no_further(outcomes):
    X, Y = _table(60, outcomes)
    farthest = np.full(outcomes, 9.0)
    Y[0] = farthest
    one, other = (_fit(X, outcome) for outcome in (Y, np.vstack([-farthest, Y[1:]])))
    # The same seed draws the same noise.
    moved = np.linalg.norm(one.releases_[0].values["sum"] - other.releases_[0].values["sum"])
    (deviation,) = one.releases_[0].scales.values()
    # Of an entry of L2-Laplace noise.
    hidden = deviation / np.sqrt(outcomes + 1.0) * FEW["epsilon"]
    assert moved == pytest.approx(2.0 * 2.0, rel=1e-6)
    assert moved <= hidden <= moved * (1.0 + 1e-6)


def test_only_few_people_get_the_mean_and_the_number_and_the_calibration_decide():
    names = [
        _fit(*_table(n), epsilon=epsilon).releases_[0].name for n, epsilon in ((60, 1.0), (60, 100.0), (5_000, 1.0))
    ]
    assert [name.rpartition(": ")[2] for name in names] == [
        "mean of outcomes",
        "moments of features and outcomes",
        "moments of features and outcomes",
    ]
    X, Y = _table(60)
    assert _fit(100.0 * X, -Y).releases_[0].name == names[0]


@pytest.mark.parametrize(("n", "last"), [(60, "mean of outcomes"), (5_000, "moments of features and outcomes")])
def test_a_private_number_is_released_before_it_decides_and_all_shares_add_up(n, last):
    X, Y = _table(n)
    model = _fit(X, Y + 1.0, adjacency="add_remove")
    names = [one.name.rpartition(": ")[2] for one in model.releases_]
    again = ["number of people, once more"] if n == 60 else []
    assert names == ["number of people", *again, last]
    assert sum(one.privacy.epsilon for one in model.releases_) == pytest.approx(1.0, rel=1e-12)
    assert sum(one.privacy.epsilon for one in model.releases_) <= 1.0
    # One person more moves the number by 1: Laplace noise hides it with its part of epsilon.
    for one in model.releases_[:-1]:
        (deviation,) = one.scales.values()
        assert deviation == pytest.approx(np.sqrt(2.0) / one.privacy.epsilon, rel=1e-9)
    other = _fit(np.vstack([X, X[:1]]), np.vstack([Y, Y[:1]]) + 1.0, adjacency="add_remove")
    moved = [b.values["sum"] - a.values["sum"] for a, b in zip(model.releases_[:-1], other.releases_[:-1], strict=True)]
    np.testing.assert_allclose(moved, 1.0, atol=1e-6)


def test_a_few_private_people_lose_no_more_than_a_constant_does():
    rng, errors = np.random.default_rng(0), []
    for seed in range(8):
        X, y = rng.uniform(-3.0, 3.0, (300, 6)), rng.gamma(0.8, 1.0, 300)
        model = _fit(X, y, bound_y=15.0, adjacency="add_remove", random_state=seed)
        errors.append(np.mean((y - model.predict(X)) ** 2) / np.var(y))
    assert np.mean(errors) < 1.1


def test_of_fewer_people_the_sum_of_outcomes_has_less_of_the_noise():
    scales = [_fit(*_table(n)).releases_[-1].scales for n in (900, 30_000)]
    # The noise of two blocks differs by a power of two.
    assert [one["y"] / one["xy"] for one in scales] == [0.5, 1.0]


def test_the_whole_budget_is_spent_on_the_mean_which_all_predictions_are():
    X, Y = _table(60)
    model = _fit(X, Y + 1.0)
    (release,) = model.releases_
    assert release.privacy == model.privacy_spent_
    assert np.array_equal(model.coef_, np.zeros((2, 4)))
    mean = np.clip(release.values["sum"] / 60.0, -2.0, 2.0)
    np.testing.assert_allclose(model.predict(X), np.broadcast_to(mean, (60, 2)), rtol=1e-12)
