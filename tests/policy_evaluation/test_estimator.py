"""Private policy evaluation: textbook without noise, what is spent and seen, bad input, plans, pictures."""

import math
import pickle
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from reference.trajectories import episodes_of, first_visits
from scipy import special
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpfast import BudgetExceeded, Ledger, PolicyEvaluation, Privacy, UnsoundCalibrationWarning, UtilityWarning
from dpfast.datasets.decision_processes import adjacent_pairs, chain_trajectories, chain_values
from dpfast.policy_evaluation.mechanism import Problem, WeightedMeans, usual_lag, visit_moments
from dpfast.releases.mechanism import DataDependentGaussian
from dpfast.statistics import ReturnGrid, Trajectories

METHODS = ("lsw", "lsl", "sufficient_statistics")
WALKS = Trajectories(*chain_trajectories(2000, n_states=8, seed=0))
FEATURES = adjacent_pairs(8)


def estimator(method="lsw", epsilon=2.0, delta=1e-5, **changes):
    options = {"gamma": 0.9, "return_range": (0.0, 1.0), "method": method, "random_state": 0}
    return PolicyEvaluation(epsilon, delta, **(options | changes))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", [None, FEATURES])
@pytest.mark.parametrize("ridge", [None, 30.0])
def test_without_noise_it_is_the_textbook_estimator(method, features, ridge):
    """Least squares over states (lsw), or over all trajectories and the states each visits."""
    if method == "lsw" and ridge is not None:
        pytest.skip("lsw has no ridge")
    weights = np.linspace(0.5, 1.5, 8)
    walks = WALKS[:40]
    model = estimator(method, math.inf, features=features, ridge=ridge, weights=weights).fit(walks)
    phi = np.eye(8) if features is None else features
    visits = [item for walk in episodes_of(walks) for item in first_visits(*walk, 0.9).items()]
    states, returns = np.array([s for s, _ in visits]), np.array([value for _, value in visits])
    if method == "lsw":
        means = np.array([returns[states == s].mean() for s in range(8)])
        states, returns = np.arange(8), means
    root = np.sqrt(weights[states])
    rows, target = root[:, None] * phi[states], root * returns
    system = rows.T @ rows + 0.5 * (ridge or 0.0) * np.eye(phi.shape[1])
    assert model.coef_ == pytest.approx(np.linalg.solve(system, rows.T @ target), rel=1e-9)
    assert model.value_ == pytest.approx(phi @ model.coef_, rel=1e-12)
    assert model.releases_[0].guarantee == "none: exact, no noise"
    assert not hasattr(model, "value_std_")


def test_states_that_nobody_visits_are_zero_without_noise():
    walks = Trajectories([1], [2.0], [0, 1], 3)
    for method in METHODS:
        assert estimator(method, math.inf).fit(walks).value_.tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", [None, FEATURES, lambda state: FEATURES[state]])
def test_much_data_gives_the_exact_values(method, features):
    walks = Trajectories(*chain_trajectories(50_000, n_states=8, seed=1))
    options = {"features": features, "ridge": _RIDGES[method], "weights": np.ones(8)}
    exact = estimator(method, math.inf, **options).fit(walks)
    model = estimator(method, 50.0 if method != "lsl" else 5000.0, 0.01, **options).fit(walks)
    assert model.value_ == pytest.approx(exact.value_, abs=0.01)
    assert model.value_ == pytest.approx(chain_values(0.9, n_states=8), abs=0.11)


@pytest.mark.parametrize("epsilon", [50.0, math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_values_whose_noise_is_not_known_say_that_they_have_no_limits(method, epsilon):
    model = estimator(method, epsilon, 0.0 if math.isinf(epsilon) else 0.01, random_state=0).fit(WALKS)
    note = model.summary().attrs.get("note") or ""
    assert ("no limits" in note) == (method != "sufficient_statistics" and math.isfinite(epsilon))


_RIDGES = {"lsw": None, "lsl": 1000.0, "sufficient_statistics": 0.5}


@pytest.mark.parametrize("method", METHODS)
def test_a_shift_of_all_returns_shifts_the_values(method):
    """Same seed, same noise: the fit is of what is above the lower end, wherever it is."""
    rng = np.random.default_rng(0)
    returns = rng.random((200, 3))

    def fit(low):
        # A single state a trajectory: its return is its reward.
        walks = Trajectories(np.arange(600) % 3, (returns + low).ravel(), np.arange(601), 3)
        limits = (low, low + 1.0)
        return estimator(method, return_range=limits, horizon=1, gamma=1.0).fit(walks)

    base, shifted = fit(0.0), fit(-4.0)
    # But for grids: 2^-20 of the noise, which is below 1 here.
    assert shifted.value_ == pytest.approx(base.value_ - 4.0, abs=1e-5)
    offsets = {"lsw": 0.0, "lsl": -4.0, "sufficient_statistics": pytest.approx(base.offset_ - 4.0, abs=1e-5)}
    assert shifted.offset_ == offsets[method]


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
def test_the_default_range_is_that_of_rewards_discount_and_horizon():
    for changes, limits in (
        ({"return_range": None, "gamma": 0.5}, (0.0, 2.0)),
        ({"return_range": None, "reward_range": (-1.0, 1.0), "gamma": 1.0, "horizon": 7}, (-7.0, 7.0)),
    ):
        one = estimator(**changes).fit(WALKS)
        other = estimator(**(changes | {"return_range": limits})).fit(WALKS)
        assert np.array_equal(one.value_, other.value_)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", [None, FEATURES])
def test_blocks_order_and_threads_change_no_bit(method, features):
    whole = estimator(method, features=features, n_threads=1).fit(WALKS)
    blocks = estimator(method, features=features, n_threads=2).fit([WALKS[1200:], WALKS[:1200]])
    assert np.array_equal(whole.value_, blocks.value_)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_the_release_depends_on_the_data(method):
    """Two data sets, for lsw with noise of sizes 30 times apart: all else that can be seen of the fits is equal."""
    rng = np.random.default_rng(0)
    rare = Trajectories(np.where(rng.random(2000) < 0.01, 1, 0), rng.random(2000), np.arange(2001), 2)
    even = Trajectories(np.arange(2000) % 2, rng.random(2000), np.arange(2001), 2)
    seen = []
    for walks in (rare, even):
        model = estimator(method, random_state=None, ridge=_RIDGES[method]).fit(walks)
        record = model.releases_[0].to_dict(values=False)
        del record["time"]
        public = {name: value for name, value in vars(model).items() if name not in _DERIVED}
        seen.append((record, public, sorted(vars(model)), repr(model), repr(model.releases_)))
    assert seen[0] == seen[1]


# The offset is the pooled return, or public: see the test before.
_DERIVED = {"value_", "coef_", "offset_", "value_std_", "releases_"}


def test_noise_that_depends_on_the_data_has_no_public_deviation():
    for method in METHODS:
        model = estimator(method).fit(WALKS)
        assert hasattr(model, "value_std_") == (method == "sufficient_statistics")
        assert bool(model.releases_[0].scales) == (method == "sufficient_statistics")


def test_a_second_fit_forgets_the_first():
    model = estimator("sufficient_statistics").fit(WALKS)
    model.set_params(method="lsw").fit(WALKS)
    assert not hasattr(model, "value_std_")


@pytest.mark.parametrize("method", METHODS)
def test_it_spends_what_was_asked_and_no_more(method):
    ledger = Ledger(Privacy(3.0, 3e-5), composition="basic")
    model = estimator(method, ledger=ledger, random_state=None).fit(WALKS)
    assert model.privacy_spent_ == Privacy(2.0, 1e-5)
    assert ledger.spent.epsilon == 2.0
    assert len(model.releases_) > 1 or model.releases_[0].guarantee == str(Privacy(2.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        clone(model).fit(WALKS)
    bad = Trajectories([0], [0.5], [0, 1], 8)
    with pytest.raises(TypeError, match="trajectories must yield Trajectories"):
        clone(model).set_params(epsilon=1.0).fit([bad, "no trajectories"])
    assert ledger.remaining.epsilon == 1.0
    assert not ledger.reservations


def test_what_is_no_trajectories_is_told_the_call_that_makes_them():
    steps = [[(0, 0.0), (2, 1.0)]] * 50
    frame = pd.DataFrame({"who": [1, 1], "state": [0, 2], "reward": [0.0, 1.0]})
    ledger = Ledger(Privacy(2.0, 1e-5))
    for given, told in (
        (frame, r"got DataFrame: .* Trajectories.from_frame\(table, trajectory="),
        (pa.table(frame), "got Table: .* Trajectories.from_frame"),
        ("steps.csv", "got str: .* Trajectories.from_frame"),
        (steps, r"got list: .* by Trajectories.from_episodes, .* fit\(episodes, states="),
        ([([0, 2], [0.0, 1.0])], "got tuple: .* by Trajectories.from_episodes"),
    ):
        with pytest.raises(TypeError, match=told):
            estimator(ledger=ledger).fit(given)
    assert ledger.spent.epsilon == 0.0
    assert not ledger.reservations
    estimator(random_state=0).fit(steps, states=8, truncated=False)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_comes_back_from_its_file(method, tmp_path):
    walks = Trajectories.from_episodes([[("ill", 0.0), ("well", 1.0)]] * 300, states=["well", "ill", ("dead", 1)])
    options = {"weights": np.array([1.0, 2.0, 1.0]), "return_range": (0.0, 1.0)}
    model = estimator(method, features=[[1.0], [1.0], [0.5]], **options).fit(walks)
    model.save(tmp_path / "model.json")
    again = PolicyEvaluation.load(tmp_path / "model.json")
    assert again.value_.tolist() == model.value_.tolist()
    assert again.predict(["ill", ("dead", 1)]).tolist() == model.value_[[1, 2]].tolist()
    assert again.releases_[0].to_dict() == model.releases_[0].to_dict()
    assert pickle.loads(pickle.dumps(model)).value_.tolist() == model.value_.tolist()


@pytest.mark.parametrize(
    ("name", "value"), [("value_", [1.0]), ("offset_", "0"), ("ridge_", -1.0), ("_states", ("a",)), ("releases_", ())]
)
def test_files_that_no_fit_wrote_are_refused(name, value, tmp_path):
    model = estimator("sufficient_statistics").fit(WALKS)
    if name == "releases_":
        value = [model.releases_[0]]
    setattr(model, name, value)
    model.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="does not hold a valid PolicyEvaluation"):
        PolicyEvaluation.load(tmp_path / "model.json")


def test_predict():
    model = estimator()
    with pytest.raises(NotFittedError):
        model.predict([0])
    model.fit(WALKS)
    assert model.predict([7, 0]).tolist() == model.value_[[7, 0]].tolist()
    for states in ([8], [-1]):
        with pytest.raises(ValueError, match="states must be among the 8 declared ones"):
            model.predict(states)
    with pytest.raises(TypeError, match="states must be a 1-D array of integers"):
        model.predict([0.5])


def test_features_may_be_a_function_of_states_as_they_were_declared():
    walks = Trajectories.from_episodes([[("ill", 0.0), ("well", 1.0)]] * 300, states=["well", "ill"])
    by_name = estimator(features=lambda state: [1.0, float(state == "ill")]).fit(walks)
    table = estimator(features=[[1.0, 0.0], [1.0, 1.0]]).fit(walks)
    assert np.array_equal(by_name.coef_, table.coef_)


def test_dp_lsw_on_the_chain_of_the_paper():
    """Expected excess risk at m = 1,000, epsilon = delta = 0.1: 10^-3.3 where printed constants give 10^5.5.

    It is the variance of the noise times the number of coordinates; all 1,000 visit all states.
    """
    chain = Problem(None, np.full(40, 1 / 40), ReturnGrid.for_range(0.0, 1.0), None)
    privacy, logs = Privacy(0.1, 0.1), {}
    for constants in ("sound", "icml", "paper"):
        statistic = WeightedMeans(chain, 1000, printed=constants != "sound")
        mechanism = DataDependentGaussian.calibrate(privacy, statistic, constants)
        scale = mechanism.scale(statistic.sensitivity_of_counts(np.full(40, 1000), mechanism.smoothness))
        logs[constants] = math.log10((scale * statistic.spread) ** 2)
    assert logs["sound"] < -3.2
    assert logs["icml"] == pytest.approx(5.5, abs=0.1)
    assert logs["paper"] > logs["icml"]


@pytest.mark.parametrize("of", ["fit", "plan"])
def test_printed_constants_that_miss_their_claim_warn_once_and_at_the_callers_line(of):
    options = {"gamma": 0.5, "return_range": (0, 1), "weights": [1.0, 1.0], "horizon": 1, "calibration": "icml"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if of == "fit":
            PolicyEvaluation(300.0, 1e-6, method="lsw", **options).fit(Trajectories([0, 1], [1.0, 1.0], [0, 1, 2], 2))
        else:
            PolicyEvaluation.plan(2, 2, epsilon=300.0, delta=1e-6, method="lsw", **options)
    found = [one for one in caught if issubclass(one.category, UnsoundCalibrationWarning)]
    assert [one.filename for one in found] == [__file__]


def test_printed_constants_warn_only_where_they_miss_their_claim():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = estimator("lsl", 1.0, calibration="icml").fit(WALKS)
        assert model.releases_[0].guaranteed
        assert model.releases_[0].calibration == "paper"
        assert "conference's constants" in model.releases_[0].name
    assert not any(issubclass(one.category, UnsoundCalibrationWarning) for one in caught)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
def test_the_printed_algorithm_has_its_floor():
    floor = 1 / 8
    estimator("lsl", 1.0, calibration="paper", ridge=1.01 * floor).fit(WALKS)
    with pytest.raises(ValueError, match=r"ridge must be above \|\|Phi\|\|\^2 max\(weights\)"):
        estimator("lsl", 1.0, calibration="paper", ridge=floor).fit(WALKS)
    estimator("lsl", 1.0, ridge=1e-3).fit(WALKS)


_SUMS = {"method": "sufficient_statistics"}
BAD = [
    ({"gamma": 0.0}, ValueError, r"gamma must lie in \(0, 1\], got 0.0"),
    ({"gamma": 1.5}, ValueError, r"gamma must lie in \(0, 1\], got 1.5"),
    ({"gamma": 1.0}, ValueError, "gamma = 1 needs a horizon: without one, returns are unbounded"),
    ({"gamma": math.nan}, ValueError, r"gamma must lie in \(0, 1\], got nan"),
    ({"horizon": 0}, ValueError, "horizon must be at least 1, got 0"),
    ({"lag": 1}, ValueError, "lag needs a horizon"),
    ({"lag": 9, "horizon": 9}, ValueError, "lag must be below horizon, 9, got 9"),
    ({"lag": 1.5, "horizon": 9}, TypeError, "lag must be an integer"),
    ({"method": "lsl", "ridge": 0.0}, ValueError, "ridge must be positive and finite, got 0.0"),
    ({"method": "lsl", "ridge": -1.0}, ValueError, "ridge must be positive and finite, got -1.0"),
    ({"method": "sufficient_statistics", "ridge": 0}, ValueError, "ridge must be positive and finite, got 0.0"),
    ({"method": "lsl", "ridge": 1e60}, ValueError, "ridge must lie between 1e-50 and 1e"),
    ({"ridge": 1.0}, ValueError, "ridge must be None with method='lsw', which has none"),
    ({"delta": 0.0}, ValueError, "delta must be above 0 with method='lsw'.*'sufficient_statistics' takes 0"),
    ({"adjacency": "add_remove"}, ValueError, "adjacency must be 'replace_one' with method='lsw'"),
    ({"method": "lstd"}, ValueError, "method must be 'sufficient_statistics' or 'lsw' or 'lsl', got 'lstd'"),
    ({"calibration": "printed"}, ValueError, "calibration must be 'sound' or 'paper' or 'icml'"),
    ({"epsilon": 6.0, "calibration": "paper"}, ValueError, "epsilon must be at most 5 with calibration='paper'"),
    (
        {"method": "sufficient_statistics", "calibration": "icml"},
        ValueError,
        "calibration must be 'sound' with method='sufficient_statistics'",
    ),
    ({"block_bounds": (1.0, 1.0)}, ValueError, "block_bounds go with method='sufficient_statistics'"),
    ({"method": "sufficient_statistics", "block_bounds": 1.0}, TypeError, r"block_bounds must be a pair \(xx, xy\)"),
    ({"shrinkage": 1}, TypeError, "shrinkage must be"),
    ({"shrinkage": True}, ValueError, "shrinkage goes with method='sufficient_statistics' without features and ridge"),
    (_SUMS | {"shrinkage": True, "ridge": 1.0}, ValueError, "shrinkage goes with"),
    (_SUMS | {"shrinkage": True, "features": np.eye(8)}, ValueError, "shrinkage goes with"),
    (_SUMS | {"shrinkage": True, "block_bounds": (1.0, 1.0)}, ValueError, "shrinkage and block_bounds exclude"),
    (_SUMS | {"shrinkage": True, "weights": np.arange(8.0)}, ValueError, "shrinkage needs equal weights"),
    ({"return_range": (1.0, 0.0)}, ValueError, "return_range must be finite and increasing"),
    ({"return_range": (0.0, 0.0)}, ValueError, r"return_range must be a pair \(low, high\), low below high"),
    ({"return_range": None, "reward_range": (0.0, math.inf)}, ValueError, "reward_range must be finite"),
    ({"features": np.ones(8)}, ValueError, "features must be a 2-D array of real numbers with one entry for each of 8"),
    ({"features": np.ones((7, 2))}, ValueError, "features must be a 2-D array .* for each of 8 states"),
    ({"features": np.full((8, 1), np.nan)}, ValueError, "features must be finite, and 0 or between"),
    ({"features": np.zeros((8, 1))}, ValueError, "features must not all be 0"),
    ({"weights": np.ones(7)}, ValueError, "weights must be a 1-D array of real numbers .* for each of 8 states"),
    ({"weights": np.zeros(8)}, ValueError, "weights must be at least 0 and not all 0"),
    ({"weights": -np.ones(8)}, ValueError, "weights must be at least 0 and not all 0"),
    ({"ledger": 3}, TypeError, "ledger must be a dpfast.Ledger or None, got int"),
    ({"n_threads": 0}, ValueError, "n_threads"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), BAD)
def test_bad_parameters(changes, kind, message):
    ledger = Ledger(Privacy(10.0, 0.1, changes.get("adjacency", "replace_one")))
    model = estimator(**({"ledger": ledger} | changes))
    with pytest.raises(kind, match=message):
        model.fit(WALKS)
    assert ledger.spent.epsilon == 0.0
    assert not hasattr(model, "value_")


@pytest.mark.parametrize(
    ("arrays", "kind", "message"),
    [
        (([0, 1], [0.0, 1.0], [0, 0, 2]), ValueError, "a trajectory is empty"),
        (([0, 9], [0.0, 1.0], [0, 2]), ValueError, "a trajectory .*has a state that is none of the 3 declared"),
        (([0, 1], [0.0, 1.0], [0, 1]), ValueError, "offsets must begin with 0 and end with the number of steps"),
        (([0, 1], [0.0, math.inf], [0, 1, 2]), ValueError, "a trajectory .*has a reward that is not finite"),
        (([0, 1], [0.0], [0, 2]), ValueError, "states and rewards have different lengths"),
    ],
)
def test_bad_trajectories(arrays, kind, message):
    with pytest.raises(kind, match=message):
        Trajectories(*arrays, n_states=3)


@pytest.mark.parametrize("nothing", [[], None, "walks", np.zeros(3)])
def test_no_trajectories(nothing):
    with pytest.raises((TypeError, ValueError), match="trajectories must"):
        estimator().fit(nothing)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_expects_the_error_that_privacy_adds(method):
    """Of 40 fits where all visit all states: the error's mean square is right to within 2 times, or an upper bound."""
    walks = Trajectories(*chain_trajectories(3000, n_states=8, seed=2))
    options = {"gamma": 0.9, "return_range": (0.0, 1.0), "method": method}
    plan = PolicyEvaluation.plan(3000, 8, visited=1.0, epsilon=1.0, delta=1e-5, **options)
    exact = estimator(method, math.inf).fit(walks).value_
    errors = [estimator(method, 1.0, random_state=seed).fit(walks).value_ - exact for seed in range(40)]
    found = math.sqrt(np.mean(np.square(errors)))
    assert 0.5 * plan.expected_error < found < 2.0 * plan.expected_error
    assert bool(plan.scales) == (method == "sufficient_statistics")
    enough = PolicyEvaluation.plan(plan.needed_n, 8, visited=1.0, epsilon=1.0, delta=1e-5, **options)
    fewer = PolicyEvaluation.plan(round(plan.needed_n * 0.9), 8, visited=1.0, epsilon=1.0, delta=1e-5, **options)
    assert enough.expected_error <= 0.1 < fewer.expected_error


def test_a_plan_says_what_it_cannot_know():
    """Its error grows by no more than the part of a return that is beyond the horizon; without one nothing is."""
    options = {"epsilon": 1.0, "delta": 1e-6, "gamma": 0.9, "visited": 0.5}
    short, long = (PolicyEvaluation.plan(2000, 8, horizon=horizon, **options) for horizon in (5, 100))
    whole = PolicyEvaluation.plan(2000, 8, **options)
    assumed, most = short.notes
    assert "beyond the range" in assumed
    assert str(short).count("\n") == 2
    assert whole.notes == {assumed: 0.0}
    assert short.notes[most] - short.expected_error > 0.5
    assert 0.0 < long.notes[most] - long.expected_error < 0.1
    assert PolicyEvaluation.plan(2000, 8, horizon=5, truncated=0.0, **options).notes[most] < short.notes[most]


def test_a_hopeless_plan_and_a_hopeless_fit_warn():
    options = {"epsilon": 0.1, "delta": 1e-6, "gamma": 0.9, "return_range": (0, 1)}
    with pytest.warns(UtilityWarning, match="with 10 trajectories at epsilon 0.1.*mostly noise"):
        PolicyEvaluation.plan(10, 8, **options)
    for method in METHODS:
        with pytest.warns(UtilityWarning, match="with 10 trajectories at epsilon 0.1.*mostly noise"):
            PolicyEvaluation(**options, method=method).fit(WALKS[:10])
    assert PolicyEvaluation.plan(10, 8, epsilon=math.inf, gamma=0.9).expected_error == 0.0


@pytest.mark.parametrize("visited", [0.0, 1.5, -1.0])
def test_bad_plans(visited):
    with pytest.raises(ValueError, match="visited must"):
        PolicyEvaluation.plan(10, 8, visited=visited, epsilon=1.0, delta=1e-6, gamma=0.9)


def test_the_number_of_trajectories_is_not_looked_at_where_it_is_private():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = estimator("sufficient_statistics", 0.05, adjacency="add_remove").fit(WALKS[:3])
    assert model.privacy_spent_.adjacency == "add_remove"
    # Only what was released is spoken of, and what was not declared.
    assert [str(one.message)[:11] for one in caught] == ["every traje", "as released"]


def test_undeclared_ends_are_spoken_of_before_anything_is_spent_and_once():
    ledger = Ledger(Privacy(1.0, 1e-5))
    plain = {"gamma": 0.9, "return_range": (0, 1)}
    episodes = [[(0, 0.0), (1, 1.0)]] * 400
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="every trajectory is taken")
        with pytest.raises(UtilityWarning, match="declare truncated"):
            PolicyEvaluation(1.0, 1e-6, ledger=ledger, **plain).fit(episodes, states=2)
        assert ledger.spent.epsilon == 0.0
        for declared in (False, True, [False, True] * 200):
            PolicyEvaluation(1.0, 1e-6, **plain).fit(episodes, states=2, truncated=declared)
        PolicyEvaluation(1.0, 1e-6, horizon=2, **plain).fit(episodes, states=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PolicyEvaluation(1.0, 1e-6, **plain).fit(episodes, states=2)
    assert sum("every trajectory" in str(one.message) for one in caught) == 1


def test_flags_of_listed_episodes_are_those_of_trajectories():
    episodes = [[(0, 0.5), (1, 1.0)], [(1, 0.0)]] * 300
    flags = [True, False] * 300
    model = PolicyEvaluation(1.0, 1e-6, gamma=0.9, return_range=(0, 10), random_state=0)
    flagged = Trajectories.from_episodes(episodes, 2, truncated=flags)
    assert flagged.truncated.tolist() == flags
    expected = model.fit(flagged).value_
    np.testing.assert_array_equal(model.fit(episodes, states=2, truncated=flags).value_, expected)
    for given in ({"truncated": flags}, {"states": 2, "truncated": flags}):
        with pytest.raises(ValueError, match=r"truncated goes with|states go with"):
            model.fit(flagged, **given)
    with pytest.raises(ValueError, match="truncated must have one entry a trajectory"):
        model.fit(episodes, states=2, truncated=flags[1:])


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_released_visits_that_are_few_warn(adjacency):
    """All of 1,000 people visit one state of 40 each: that is not known before."""
    walks = Trajectories(np.arange(1000) % 40, np.full(1000, 0.5), np.arange(1001), 40)
    with pytest.warns(UtilityWarning, match="as released at .*: mostly noise"):
        estimator("sufficient_statistics", 1.0, adjacency=adjacency, ridge=1.0).fit(walks)
    # In stages far fewer are enough, of whom most visit one state.
    fewer = Trajectories(np.arange(400) % 40, np.full(400, 0.5), np.arange(401), 40)
    with pytest.warns(UtilityWarning, match="as released at .*: mostly noise"):
        estimator("sufficient_statistics", 0.3 if adjacency == "replace_one" else 0.2, adjacency=adjacency).fit(fewer)


def test_values_of_lsw_far_beyond_the_range_warn():
    """One state in eight is hardly ever visited, which sets the noise of all."""
    rare = Trajectories(np.where(np.arange(8000) % 8 == 7, 6, np.arange(8000) % 8), np.zeros(8000), np.arange(8001), 8)
    with pytest.warns(UtilityWarning, match="as released at .*: mostly noise"):
        estimator("lsw", 1.0).fit(rare)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator("lsw", 1.0).fit(WALKS)


def test_pure_privacy_from_sufficient_statistics():
    model = estimator("sufficient_statistics", 5.0, 0.0).fit(WALKS)
    assert model.releases_[0].mechanism == "L2-Laplace"
    assert model.value_ == pytest.approx(chain_values(0.9, n_states=8), abs=0.2)


def test_smaller_block_bounds_give_less_noise():
    usual, smaller = (
        estimator("sufficient_statistics", block_bounds=bounds, ridge=1.0).fit(WALKS).releases_[0].scales["xx"]
        for bounds in (None, (0.1, 0.1))
    )
    assert smaller < usual


def test_plots_show_what_was_released():
    band = estimator("sufficient_statistics").fit(WALKS)
    axes = band.plot(level=0.95)
    assert axes.lines[0].get_ydata().tolist() == band.value_.tolist()
    low = [bar[0, 1] for bar in axes.collections[0].get_segments()]
    np.testing.assert_allclose(low, band.value_ - special.ndtri(0.975) * band.value_std_)
    smooth = estimator().fit(WALKS)
    assert not smooth.plot().collections
    (image,) = smooth.plot(shape=(2, 4)).images
    # Whatever was released, so that two maps can be compared.
    assert image.get_clim() == (0.0, 1.0)
    assert image.get_array().tolist() == smooth.value_.reshape(2, 4).tolist()
    with pytest.raises(ValueError, match="shape must be two numbers whose product is that of the states, 8"):
        smooth.plot(shape=(3, 3))


def test_values_are_clipped_to_the_range_of_returns():
    """Of 3 people at epsilon = .05 most are beyond it, with any method, without clipping."""
    for method in METHODS:
        with pytest.warns(UtilityWarning):
            model = estimator(method, 0.05, ridge=None if method == "lsw" else 1e-3).fit(WALKS[:3])
        unclipped = model.offset_ + model.coef_
        assert np.any((unclipped < 0.0) | (unclipped > 1.0))
        assert model.value_.tolist() == np.clip(unclipped, 0.0, 1.0).tolist()


def test_at_once_states_are_summed_about_the_middle_of_the_range_with_the_least_noise():
    model = PolicyEvaluation(1.0, 1e-5, gamma=0.9, return_range=(0.0, 1.0), ridge=1.0).fit(WALKS)
    scales = model.releases_[0].scales
    public = Problem(None, np.full(8, 1 / 8), ReturnGrid.for_range(0.0, 1.0), None)
    assert scales == visit_moments(public, Privacy(1.0, 1e-5)).scales
    # All may visit all 8 states: mu^2 is 8 p in place of 16 (p + ...), as one with a feature too many pays.
    featured = visit_moments(replace(public, block_bounds=(10.0, 10.0)), Privacy(1.0, 1e-5)).scales
    assert featured["xy"] / scales["xy"] > 1.7
    assert featured["xx"] / scales["xx"] > 1.9


def test_shrinkage_is_of_what_was_released():
    plain, shrunk = (
        estimator("sufficient_statistics", 0.5, **changes).fit(WALKS[:200])
        for changes in ({"ridge": 1.0}, {"shrinkage": True})
    )
    for name in ("xx", "xy"):
        assert np.array_equal(plain.releases_[0].values[name], shrunk.releases_[0].values[name])
    assert shrunk.ridge_ == 0.0
    assert not np.array_equal(plain.value_, shrunk.value_)
    assert np.all(shrunk.value_std_ > 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_lag_leaves_out_late_visits_and_with_them_noise(method):
    """Of six steps, each in a state of its own, the first two count, with the rewards of all."""
    walk = Trajectories(np.arange(6), np.ones(6), [0, 6], 8)
    exact = estimator(method, math.inf, horizon=6, lag=4).fit(walk)
    returns = [sum(0.9**t for t in range(6 - start)) for start in (0, 1)]
    assert exact.value_.tolist() == pytest.approx([*returns, 0, 0, 0, 0, 0, 0])
    scales = [visit_moments(problem_of(lag), Privacy(1.0, 1e-5)).scales["xy"] for lag in (0, 4)]
    assert scales[1] < 0.8 * scales[0]


def problem_of(lag):
    return Problem(None, np.full(8, 1 / 8), ReturnGrid.for_range(0.0, 1.0), 6, lag=lag)


def test_the_usual_lag_is_from_public_numbers():
    assert usual_lag(0.95, 100, 1.0) == usual_lag(0.95, 100, 0.1) == 20
    assert usual_lag(0.95, 400, 10.0) == round(20 * (1 + math.log(10.0)))
    assert usual_lag(0.95, 40, 1.0) == 10
    assert usual_lag(0.95, None, 1.0) == usual_lag(1.0, 40, 1.0) == 0
    fits = [
        estimator("sufficient_statistics", horizon=40, lag=lag, ridge=1.0).fit(WALKS).value_ for lag in (None, 10, 0)
    ]
    assert np.array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])
    # Tails that are filled need none.
    filled = [estimator("sufficient_statistics", horizon=40, lag=lag).fit(WALKS).value_ for lag in (None, 10, 0)]
    assert np.array_equal(filled[0], filled[2])
    assert not np.array_equal(filled[0], filled[1])


def test_episodes_are_fitted_as_their_trajectories_are():
    """Minari's datasets and episodes, and lists of steps, with states as they are declared."""
    rng = np.random.default_rng(0)
    walks = [rng.integers(0, 3, 4).tolist() for _ in range(300)]
    rewards = [rng.uniform(size=3).tolist() for _ in walks]
    minari = [
        SimpleNamespace(
            observations=np.array(walk), rewards=np.array(own), terminations=[0, 0, 1], truncations=[0, 0, 0]
        )
        for walk, own in zip(walks, rewards, strict=True)
    ]
    steps = [list(zip(walk[:-1], own, strict=True)) for walk, own in zip(walks, rewards, strict=True)]

    def fitted(data, **given):
        return PolicyEvaluation(1.0, 1e-6, gamma=0.9, random_state=0).fit(data, **given).value_

    of_minari = fitted(Trajectories.from_minari(minari, states=range(3)))
    spaces = pytest.importorskip("gymnasium").spaces
    dataset = SimpleNamespace(iterate_episodes=lambda: iter(minari), observation_space=spaces.Discrete(3))
    np.testing.assert_array_equal(fitted(dataset), of_minari)
    np.testing.assert_array_equal(fitted(minari, states=3), of_minari)
    one = fitted(minari[0], states=3)
    np.testing.assert_array_equal(one, fitted(minari[:1], states=3))
    of_steps = fitted(Trajectories.from_episodes(steps, 3))
    np.testing.assert_array_equal(fitted(steps, states=3), of_steps)
    np.testing.assert_array_equal(fitted(iter(steps), states=[0, 1, 2]), of_steps)
    for data, given, message in (
        (minari, {}, "episodes of Minari by from_minari"),
        (steps, {}, "lists of steps .* by Trajectories.from_episodes"),
        (steps, {"states": 2}, "state"),
        (Trajectories.from_episodes(steps, 3), {"states": 3}, "has its own"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            fitted(data, **given)
