"""A range of donors' outcomes that is found: how far one donor moves its counts, and what the fit does with it."""

import math

import numpy as np
import pytest

from dpfast import Ledger, Privacy, SyntheticControl
from dpfast.datasets import synthetic_control_panel
from dpfast.synthetic_control.steps import range_counts

T0 = 10


def panel(n=2000):
    donors, target, signal = synthetic_control_panel(n, T0, seed=0)
    return 100.0 + 50.0 * donors, 100.0 + 50.0 * target, 100.0 + 50.0 * signal


def test_a_donor_moves_one_bin_of_each_histogram():
    rng = np.random.default_rng(0)
    for _ in range(50):
        donors = rng.normal(size=(6, 4)) * 10.0 ** rng.uniform(-9.0, 9.0, (6, 1))
        donors[rng.random(donors.shape) < 0.3] = np.nan
        change = range_counts(donors).to_float64() - range_counts(donors[1:]).to_float64()
        assert np.abs(change).sum(axis=1).tolist() == change.sum(axis=1).tolist() == [1.0, 1.0]
        parts = [range_counts(np.asfortranarray(row[None])).to_float64() for row in donors]
        np.testing.assert_array_equal(sum(parts), range_counts(donors).to_float64())


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_panel_in_any_units_is_predicted(adjacency):
    donors, target, signal = panel()
    model = SyntheticControl(1.0, 1e-6, bound="private", adjacency=adjacency, center="private", random_state=0)
    model.fit(donors, T0, target)
    low, high = model.bound_
    assert 64.0 <= low <= np.quantile(donors.min(axis=1), 0.01) * 1.05
    assert np.quantile(donors.max(axis=1), 0.99) / 1.05 <= high <= 256.0
    assert np.abs(model.predict(target[:T0]) / signal[T0:] - 1.0).max() < 0.05
    assert len(model.releases_) == (6 if adjacency == "replace_one" else 7)
    assert model.placebo(7).shape[0] == 3
    ends = model.interval(target[:T0])
    assert np.all((low <= ends[0]) & (ends[0] <= ends[1]) & (ends[1] <= high))


def test_what_follows_is_the_fit_within_the_range_that_was_found():
    donors, target, _ = panel(500)
    options = {"random_state": 1, "row_bound": None}
    model = SyntheticControl(1.0, 1e-6, bound="private", **options).fit(donors, T0)
    rest = model.releases_[1].privacy
    given = SyntheticControl(rest.epsilon, rest.delta, bound=model.bound_, **options).fit(donors, T0)
    np.testing.assert_array_equal(model.coef_, given.coef_)
    np.testing.assert_array_equal(model.interval(target[:T0]), given.interval(target[:T0]))


def test_weights_are_paid_for_by_the_rest_of_the_sum(tmp_path):
    donors, target, _ = panel(300)
    ledger = Ledger(Privacy(1.0, 1e-6))
    model = SyntheticControl(1.0, 1e-6, bound="private", mechanism="output", ledger=ledger)
    with pytest.warns(UserWarning, match="mostly noise|a guess"):
        model.fit(donors, T0, target[:T0])
    assert math.fsum(one.privacy.epsilon for one in model.releases_) <= 1.0
    assert ledger.spent.epsilon == pytest.approx(1.0)
    model.save(tmp_path / "model.json")
    loaded = SyntheticControl.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.interval(target[:T0]), model.interval(target[:T0]))


def test_what_the_rest_of_a_fit_refuses_is_refused_before_a_range_is_paid_for():
    """So that a misspelt option costs nothing, as with a declared range."""
    donors, _, _ = panel(40)
    ledger = Ledger(Privacy(1.0, 1e-6))
    wrong = [
        {"center": "target"},
        {"center": [1.0]},
        {"basis": 99},
        {"basis": np.ones((2, 2))},
        {"mechanism": "output"},
    ]
    for options in wrong:
        for bound in ("private", 1.0):
            with pytest.raises(ValueError, match=next(iter(options))):
                SyntheticControl(1.0, 1e-6, bound=bound, ledger=ledger, **options).fit(donors, T0)
            assert ledger.spent.epsilon == 0.0


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_no_panel_raises_for_what_is_found_of_it(delta, nonnegative):
    for donors in (np.zeros((9, 3)), np.full((9, 3), 1e300), np.full((9, 3), -1e-300), np.ones((1, 3))):
        model = SyntheticControl(1.0, delta, bound="private", nonnegative=nonnegative, adjacency="add_remove")
        assert np.isfinite(model.fit(donors, 2).predict(np.ones(2))).all()


def test_a_range_to_be_found_is_refused_where_there_is_none():
    donors, _, _ = panel(50)
    private = SyntheticControl(1.0, 1e-6, bound="private")
    with pytest.raises(ValueError, match="repeatedly"):
        private.fit_repeatedly(donors, T0, 2)
    with pytest.raises(ValueError, match="plan"):
        SyntheticControl.plan(50, 10, 13, epsilon=1.0, delta=1e-6, bound="private")
    with pytest.raises(ValueError, match="calibration"):
        SyntheticControl(1.0, bound="private", mechanism="output", calibration="paper").fit(donors, T0)
    with pytest.raises(TypeError, match="bound"):
        SyntheticControl(1.0, 1e-6, bound="public").fit(donors, T0)
