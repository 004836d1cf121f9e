"""More epsilon, more delta or more people never makes the error that is expected worse: as planned, and as measured.

Public settings are drawn at random. As measured, by more than four standard deviations of the difference of two means:
that fails by chance once in 30,000 pairs.
"""

import itertools
import math
import sys
from typing import NamedTuple

import numpy as np
import pytest

from dpfast import registry
from dpfast.estimator.plan import least
from dpfast.solvers import L2Ball

DELTAS = (0.0, 1e-12, 1e-9, 1e-6, 1e-4)
#: Of a plan's rounding, relative.
SLACK = 1e-4

FROM_PURE = "delta from 0"
#: Noise is Gaussian wherever delta is above 0, though of few coordinates, or beside a small delta, L2-Laplace noise is
#: less: a plan for a small delta can be worse than for none.
GAUSSIAN_ALWAYS = {FROM_PURE: "noise is Gaussian wherever delta is above 0"}
#: What does not hold yet, and why: to be taken out by whoever mends it.
KNOWN = {
    "MultiOutcomeRidge": GAUSSIAN_ALWAYS,
    "PolicyEvaluation": GAUSSIAN_ALWAYS,
    "ObjectivePerturbationRegressor": GAUSSIAN_ALWAYS,
    "ObjectivePerturbationClassifier": {
        **GAUSSIAN_ALWAYS,
        "people": "what decides between descent and objective perturbation is not the error that is planned",
        "epsilon": "so for large ones",
        "delta": "so for large ones",
    },
    # In 5 of 200 settings, by 1.4 at most: a path or lengths that begin to be bought do not pay at once.
    "SyntheticControl": dict.fromkeys(("epsilon", "delta", "people"), "what is bought first begins with thresholds"),
    "SparseRegression, exponential": GAUSSIAN_ALWAYS,
    "SparseRegression, sample_aggregate": GAUSSIAN_ALWAYS,
    "PrivateStandardScaler": GAUSSIAN_ALWAYS,
}
#: Plans that take long.
LONG = ("SparseRegression, exponential", "SparseRegression, sample_aggregate")


class Setting(NamedTuple):
    size: str
    n: int
    epsilon: float
    delta: float
    parameters: dict

    def changed(self, rng):
        """The same with more of one thing at a time."""
        more = {"epsilon": self._replace(epsilon=self.epsilon * rng.choice([1.02, 1.3, 3.0]))}
        larger = [delta for delta in DELTAS if delta > self.delta]
        if larger:
            name = FROM_PURE if self.delta == 0.0 else "delta"
            more[name] = self._replace(delta=float(rng.choice(larger)))
        more["people"] = self._replace(n=math.ceil(self.n * rng.choice([1.02, 2.0, 10.0])) + 1)
        return more


def scaled(rng, low, high):
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def one_of(rng, *values):
    return values[rng.integers(len(values))]


def ridge(rng):
    bounds = {"bound_x": scaled(rng, 0.3, 30.0), "bound_y": scaled(rng, 0.3, 30.0)}
    widths = {"n_features": one_of(rng, 1, 3, 10, 40), "n_outcomes": one_of(rng, 1, 2, 8)}
    return {**widths, **bounds, "refine": one_of(rng, 0, "auto"), "fit_intercept": one_of(rng, True, False)}


def control(rng):
    return {"n_pre": one_of(rng, 3, 10, 40), "n_periods": 50, "bound": (-1.0, 1.0)}


def policy(rng):
    horizon, gamma = one_of(rng, 5, 30), one_of(rng, 0.5, 0.9, 0.99)
    return {"n_states": one_of(rng, 2, 10, 100), "gamma": gamma, "reward_range": (0.0, 1.0), "horizon": horizon}


def scores(rng):
    return {"n_features": one_of(rng, 5, 60), "n_nonzero": one_of(rng, 1, 2), "selector": "exponential"}


def votes(rng):
    return {**scores(rng), "selector": "sample_aggregate", "n_blocks": one_of(rng, 3, 5)}


def pursuit(rng):
    return {"n_features": one_of(rng, 5, 60, 300), "n_nonzero": one_of(rng, 1, 2, 4), "selector": "pursuit"}


def regressor(rng):
    bounds = {"bound_x": scaled(rng, 0.3, 30.0), "bound_y": scaled(rng, 0.3, 30.0), "constraint": L2Ball(2.0)}
    return {"n_features": one_of(rng, 1, 3, 10, 40), **bounds, "loss": one_of(rng, "squared", "huber")}


def classifier(rng):
    classes = tuple(range(one_of(rng, 2, 3, 10)))
    return {"n_features": one_of(rng, 1, 3, 10, 40), "bound_x": scaled(rng, 0.3, 30.0), "classes": classes}


def scaler(rng):
    return {"n_features": one_of(rng, 1, 3, 10), "box_x": (0.0, 1.0)}


#: Public settings of every estimator, and between how many people.
SETTINGS = {
    "MultiOutcomeRidge": (ridge, 20, 200_000),
    "SyntheticControl": (control, 5, 3_000),
    "PolicyEvaluation": (policy, 20, 200_000),
    "SparseRegression": (pursuit, 20, 200_000),
    "SparseRegression, exponential": (scores, 20, 200_000),
    "SparseRegression, sample_aggregate": (votes, 100, 200_000),
    "ObjectivePerturbationRegressor": (regressor, 20, 200_000),
    "ObjectivePerturbationClassifier": (classifier, 20, 200_000),
    "PrivateStandardScaler": (scaler, 20, 200_000),
}


def estimator(name):
    return registry.estimator(name.split(",")[0])


def drawn(name, seed):
    rng = np.random.default_rng(seed)
    parameters, low, high = SETTINGS[name]
    size = "m" if name == "PolicyEvaluation" else "n"
    given = {**parameters(rng), "adjacency": one_of(rng, "replace_one", "add_remove")}
    setting = Setting(size, int(scaled(rng, low, high)), scaled(rng, 0.1, 10.0), float(rng.choice(DELTAS)), given)
    return setting, setting.changed(rng)


@pytest.fixture
def no_searches(monkeypatch):
    """Do without the number of people that would be needed: it takes most of the time, and is not asked for."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dpfast.") and getattr(module, "least", None) is least:
            monkeypatch.setattr(module, "least", lambda enough, most=1: 1)


def planned(name, setting):
    given = {setting.size: setting.n, "epsilon": setting.epsilon, "delta": setting.delta, **setting.parameters}
    return estimator(name).plan(**given).expected_error


def test_settings_are_given_of_every_estimator_that_plans():
    own = {name for name in registry.ESTIMATORS if registry.ESTIMATORS[name] != "mean_of_rows"}
    assert {name.split(",")[0] for name in SETTINGS} <= own


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        *((name, range(6)) for name in SETTINGS if name not in LONG),
        *(pytest.param(name, range(6, 60 if name in LONG else 200), marks=pytest.mark.slow) for name in SETTINGS),
    ],
)
def test_more_never_makes_a_plan_worse(name, seeds, no_searches):
    known = KNOWN.get(name, {})
    for seed in seeds:
        setting, more = drawn(name, seed)
        error = planned(name, setting)
        for what, other in more.items():
            if what not in known:
                assert planned(name, other) <= error * (1.0 + SLACK), (what, setting, other)


# As measured: squared errors of predictions in excess of the truth's, as a share of its mean square.


def linear(rng, n, n_features, n_nonzero):
    x = rng.uniform(-1.0, 1.0, (n, n_features))
    theta = np.zeros(n_features)
    theta[rng.choice(n_features, n_nonzero, replace=False)] = rng.choice([-1.0, 1.0], n_nonzero) * 0.7
    return x, x @ theta, x @ theta + 0.2 * rng.normal(size=n)


def measured(name, setting, fits):
    errors, own = [], {key: value for key, value in setting.parameters.items() if key[:2] != "n_"}
    for seed in range(fits):
        x, signal, y = linear(np.random.default_rng(seed), setting.n, *MEASURED[name][1])
        model = estimator(name)(setting.epsilon, setting.delta, **own, **MEASURED[name][0])
        if name == "ObjectivePerturbationClassifier":
            labels = signal > 0.0
            errors.append(1.0 - float(np.mean(model.fit(x, y > 0.0).predict(x) == labels)))
        else:
            errors.append(float(np.mean((model.fit(x, y).predict(x).ravel() - signal) ** 2) / np.mean(signal**2)))
    return np.array(errors)


#: Parameters, and features, of which some are not 0.
MEASURED = {
    "SparseRegression": ({"n_nonzero": 3}, (60, 3)),
    "MultiOutcomeRidge": ({"bound_x": 2.0, "bound_y": 2.0}, (4, 4)),
    "ObjectivePerturbationRegressor": ({"bound_x": 2.0, "bound_y": 2.0, "constraint": L2Ball(2.0)}, (4, 4)),
    "ObjectivePerturbationClassifier": ({"bound_x": 2.0, "classes": (False, True)}, (4, 4)),
}
CASES = [
    ("epsilon", (500, 0.7, 1e-6), (500, 1.0, 1e-6)),
    ("people", (500, 1.0, 1e-6), (700, 1.0, 1e-6)),
    ("delta", (500, 1.0, 1e-9), (500, 1.0, 1e-6)),
    (FROM_PURE, (500, 1.0, 0.0), (500, 1.0, 1e-9)),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning", "ignore::dpfast.privacy.guarantee.ReleasedUtilityWarning")
@pytest.mark.parametrize(("what", "less", "more"), CASES)
@pytest.mark.parametrize("name", MEASURED)
def test_more_never_makes_fits_worse(name, what, less, more):
    if what in KNOWN.get(name, {}):
        pytest.skip(KNOWN[name][what])
    errors = [measured(name, Setting("n", *one, {}), 200) for one in (less, more)]
    means, noise = [one.mean() for one in errors], math.hypot(*(one.std() / math.sqrt(len(one)) for one in errors))
    assert means[1] <= means[0] + 4.0 * noise, (means, noise)


@pytest.mark.slow
def test_more_delta_never_makes_supports_worse():
    """Which was so for few people, as picks beside a delta had a shorter range than pure ones."""

    def found(delta):
        right = []
        for seed in range(200):
            x, signal, y = linear(np.random.default_rng(seed), 500, 60, 3)
            model = estimator("SparseRegression")(1.0, delta, n_nonzero=3).fit(x, y)
            truth = np.flatnonzero(np.abs(np.linalg.lstsq(x, signal)[0]) > 0.1)
            right.append(np.isin(model.support_, truth).mean())
        return np.array(right)

    shares = [found(delta) for delta in (0.0, 1e-9, 1e-6)]
    for less, more in itertools.pairwise(shares):
        noise = math.hypot(less.std(), more.std()) / math.sqrt(200)
        assert more.mean() >= less.mean() - 4.0 * noise
