"""SyntheticControl by the paper's own algorithms: one target, one release, and what is refused."""

import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dpfast import Ledger, Privacy, SyntheticControl
from dpfast.ledger import BudgetExceeded
from dpfast.privacy import UnsoundCalibrationWarning, UtilityWarning
from dpfast.synthetic_control.donor_weights import output_half_width

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.privacy.UtilityWarning")

N_PRE, N_POST = 6, 3
VARIANTS = [
    ("output", "sound", 1e-6),
    ("output", "sound", 0.0),
    ("objective", "sound", 1e-6),
    ("objective", "sound", 0.0),
    ("output", "paper", 0.0),
    ("objective", "paper", 1e-6),
    ("objective", "paper", 0.0),
]


def panel(n=8, seed=0):
    rng = np.random.default_rng(seed)
    donors = 50.0 + 40.0 * rng.uniform(-1, 1, (n, N_PRE + N_POST))
    return donors, donors.mean(axis=0) + rng.normal(size=N_PRE + N_POST)


def fitted(mechanism="output", delta=1e-6, epsilon=2.0, calibration="sound", target=None, **parameters):
    donors, own = panel()
    model = SyntheticControl(
        epsilon,
        delta,
        bound=(0.0, 100.0),
        mechanism=mechanism,
        calibration=calibration,
        random_state=parameters.pop("random_state", 1),
        **parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsoundCalibrationWarning)
        return model.fit(donors, N_PRE, own if target is None else target)


@pytest.mark.parametrize(("mechanism", "calibration", "delta"), VARIANTS)
def test_a_fit_spends_what_was_asked_and_predicts_for_its_target(mechanism, calibration, delta):
    _, target = panel()
    ledger = Ledger(Privacy(3.0, 1e-5), composition="basic")
    model = fitted(mechanism, delta, calibration=calibration, ledger=ledger)
    assert ledger.spent == model.privacy_spent_ == Privacy(2.0, delta)
    (release,) = ledger.releases
    assert release is model.releases_[0]
    assert release.calibration == calibration
    assert release.guaranteed == ((mechanism, calibration) != ("objective", "paper"))
    assert release.reproducible
    predicted = model.predict(target[:N_PRE])
    assert predicted.shape == (N_POST,)
    assert model.predict([target[:N_PRE]]).shape == (1, N_POST)
    # In the units of the input: the middle of the range, plus half its width times the scaled prediction.
    weights = release.values["weights"]
    scaled = (
        release.values["donors"].T @ weights
        if calibration == "paper"
        else release.values["projection"] * np.abs(weights).max()
    )
    np.testing.assert_allclose(model.prediction_, 50.0 + 50.0 * scaled, rtol=1e-12)
    # No outcome leaves the declared range.
    assert np.array_equal(predicted, np.clip(model.prediction_, 0.0, 100.0))
    assert np.array_equal(model.weights_, weights)
    with pytest.raises(BudgetExceeded):
        clone(model).fit(*panel()[:1], N_PRE, target)
    assert np.array_equal(fitted(mechanism, delta, calibration=calibration).predict(target[:N_PRE]), predicted)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_with_a_large_budget_it_is_the_estimate_without_noise(mechanism):
    donors, target = panel()
    scaled, own = (donors - 50.0) / 50.0, (target - 50.0) / 50.0
    # A ridge so large that the weights stay within the L1 ball.
    ridge = 60.0
    x = scaled[:, :N_PRE]
    weights = np.linalg.solve(x @ x.T + 0.5 * ridge * np.eye(len(x)), x @ own[:N_PRE])
    assert np.abs(weights).sum() < 1.0
    model = fitted(mechanism, epsilon=1e9, ridge=ridge)
    np.testing.assert_allclose(model.weights_, weights, atol=1e-3)
    np.testing.assert_allclose(model.predict(target[:N_PRE]), 50.0 + 50.0 * scaled[:, N_PRE:].T @ weights, atol=0.05)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_without_noise_every_mechanism_is_the_textbook_estimate(mechanism):
    donors, target = panel()
    model = fitted(mechanism, epsilon=math.inf)
    x, ridge = donors[:, :N_PRE], float(N_PRE)
    weights = np.linalg.solve(x @ x.T + 0.5 * ridge * np.eye(len(x)), x @ target[:N_PRE])
    np.testing.assert_allclose(model.predict(target[:N_PRE]), donors[:, N_PRE:].T @ weights, rtol=1e-9)
    # Nothing depends on one target then.
    assert model.predict(np.ones((2, N_PRE))).shape == (2, N_POST)


@pytest.mark.parametrize(("mechanism", "calibration", "delta"), VARIANTS)
def test_a_second_target_is_refused(mechanism, calibration, delta):
    _, target = panel()
    model = fitted(mechanism, delta, calibration=calibration)
    for other in (target[:N_PRE] + 1.0, np.array([target[:N_PRE], target[:N_PRE]])):
        with pytest.raises(ValueError, match="released for that target, and another one's are another release"):
            model.predict(other)
    for targets in (np.array([target, target]), None):
        with pytest.raises(ValueError, match="a second target's weights are a release of their own"):
            clone(model).fit(panel()[0], N_PRE, targets)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("calibration", ["sound", "paper"])
def test_intervals_for_output_are_about_the_prediction(delta, calibration):
    if calibration == "paper" and delta:
        pytest.skip("Algorithm 2 has no Gaussian form")
    _, target = panel()
    model = fitted(delta=delta, calibration=calibration)
    low, high = model.interval(target[:N_PRE], 0.9)
    narrow = model.interval(target[:N_PRE], 0.5)
    predicted = model.predict(target[:N_PRE])
    assert np.all((low <= narrow[0]) & (narrow[0] <= predicted) & (predicted <= narrow[1]) & (narrow[1] <= high))
    assert np.all((low >= 0.0) & (high <= 100.0))
    chosen = model._algorithm(model.privacy_spent_, len(model.weights_), N_POST, (target[:N_PRE] - 50.0) / 50.0)
    half = output_half_width(chosen, model.releases_[0], 0.9)
    np.testing.assert_allclose(low, np.clip(model.prediction_ - 50.0 * half, 0.0, 100.0))
    np.testing.assert_allclose(high, np.clip(model.prediction_ + 50.0 * half, 0.0, 100.0))
    assert {"low", "high"} <= set(model.effect(level=0.9).columns)
    assert "0.9" in model.report() or "90" in model.report()
    assert model.plot().lines
    assert model.plot_gap().lines


def test_intervals_are_not_offered_for_objective():
    _, target = panel()
    model = fitted("objective")
    with pytest.raises(ValueError, match="interval is not offered with mechanism='objective'"):
        model.interval(target[:N_PRE])
    assert "low" not in model.effect().columns
    assert "epsilon 2" in model.report()
    assert model.plot().lines
    assert model.plot_gap().lines


@pytest.mark.parametrize(("mechanism", "calibration", "delta"), VARIANTS)
def test_a_saved_fit_comes_back(mechanism, calibration, delta, tmp_path):
    _, target = panel()
    model = fitted(mechanism, delta, calibration=calibration)
    model.save(tmp_path / "model.json")
    back = SyntheticControl.load(tmp_path / "model.json")
    assert np.array_equal(back.predict(target[:N_PRE]), model.predict(target[:N_PRE]))
    if mechanism == "output":
        assert np.array_equal(back.interval(target[:N_PRE]), model.interval(target[:N_PRE]))


def test_nothing_private_is_kept():
    donors, _ = panel()
    model = fitted("output")
    held = {id(value) for value in vars(model).values()}
    assert id(donors) not in held
    allowed = {"weights_", "prediction_", "target_", "periods_"}
    assert {name for name, value in vars(model).items() if isinstance(value, np.ndarray)} == allowed


def test_a_fit_by_another_mechanism_forgets_the_one_before():
    donors, target = panel()
    model = fitted("output").set_params(mechanism="cross_section").fit(donors, N_PRE, target)
    assert not hasattr(model, "weights_")
    assert model.predict(np.ones((2, N_PRE))).shape == (2, N_POST)
    model.set_params(mechanism="objective").fit(donors, N_PRE, target)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(("mechanism", "calibration", "delta"), VARIANTS)
def test_plans(mechanism, calibration, delta):
    parameters = {"mechanism": mechanism, "calibration": calibration, "delta": delta}
    noisy = SyntheticControl.plan(38, 19, 31, epsilon=1.0, **parameters)
    assert noisy.expected_error == 1.0
    assert noisy.needed_n is None
    assert "no number of people is enough" in str(noisy)
    assert set(noisy.scales) == set(fitted(mechanism, delta, calibration=calibration).releases_[0].scales)
    if calibration == "sound" and mechanism == "output":
        clear = SyntheticControl.plan(3, 19, 31, epsilon=1e4, **parameters)
        assert clear.expected_error < 0.1
        assert clear.needed_n == 1


@pytest.mark.filterwarnings("default::dpfast.privacy.UtilityWarning")
def test_it_says_beforehand_that_the_answer_is_noise():
    with pytest.warns(UtilityWarning, match="mostly noise"):
        fitted("output", epsilon=1.0)


def test_the_printed_objective_perturbation_warns():
    donors, target = panel()
    model = SyntheticControl(2.0, mechanism="objective", calibration="paper", bound=(0.0, 100.0))
    with pytest.warns(UnsoundCalibrationWarning, match="the printed calibration does not give"):
        model.fit(donors, N_PRE, target)
    assert model.releases_[0].guarantee.startswith("none")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"adjacency": "add_remove"}, "adjacency must be 'replace_one'"),
        ({"center": 1.0}, "center must not be given"),
        ({"n_components": 2}, "n_components must not be given"),
        ({"basis": 2}, "basis must not be given"),
        ({"observation_rate": 0.5}, "observation_rate must not be given"),
        ({"split": (1.0, 1.0)}, "split must not be given with mechanism='output', calibration='sound'"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"calibration": "paper"}, "delta must be 0 for the printed output perturbation"),
        ({"mechanism": "objective", "split": (1.0, 1.0)}, "split must not be given with mechanism='objective'"),
        ({"mechanism": "objective", "calibration": "paper", "split": (2.0, 1.0)}, "split must add up to epsilon"),
        ({"mechanism": "cross_section", "split": (1.0, 1.0)}, "split must not be given"),
        ({"mechanism": "cross_section", "calibration": "paper"}, "calibration must be 'sound'"),
    ],
)
def test_bad_input_is_refused_and_costs_nothing(parameters, message):
    ledger = Ledger(Privacy(5.0, 1e-3))
    if parameters.get("adjacency") == "add_remove":
        ledger = Ledger(Privacy(5.0, 1e-3, "add_remove"))
    with pytest.raises(ValueError, match=message):
        fitted(ledger=ledger, **parameters)
    assert ledger.releases == ()
    assert ledger.remaining == ledger.budget


def test_moments_are_not_released_in_the_name_of_weights():
    with pytest.raises(ValueError, match="mechanism must be 'cross_section' to release moments repeatedly"):
        SyntheticControl(1.0, 1e-6, mechanism="output").fit_repeatedly(panel()[0], N_PRE, 5)


def test_a_target_at_the_middle_is_refused():
    with pytest.raises(ValueError, match="target must not be at the middle of the declared range"):
        fitted(target=np.full(N_PRE + N_POST, 50.0))
