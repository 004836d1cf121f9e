"""Fixed costs: fits of 200 rows, and how much longer they take than scikit-learn's own estimator."""

import statistics
from functools import partial
from typing import ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import dpfast
from benchmarks.timing import often, seconds

N, D = 200, 20
ROUNDS = 30
RNG = np.random.default_rng(0)
X = RNG.uniform(-0.2, 0.2, (N, D))
Y = np.clip(X @ RNG.normal(size=D), -1.0, 1.0)
LABELS = (Y > 0.0).astype(int)
PANEL = RNG.uniform(size=(N, 20))
EPISODES = [[(state, 0.5) for state in states] for states in RNG.integers(0, 10, (N, 8)).tolist()]
#: Where 200 rows are enough for steps.
CALM = 20.0


def fits():
    """Return each fit by its name."""
    linear = {"bound_x": 1.0, "bound_y": 1.0}
    classes, ball = {"classes": [0, 1]}, {"constraint": dpfast.L2Ball(2.0)}
    trajectories = dpfast.Trajectories.from_episodes(EPISODES, n_states=10)
    return {
        "ridge": partial(dpfast.MultiOutcomeRidge(1.0, 1e-6, refine=0, **linear).fit, X, Y),
        "ridge with two steps": partial(dpfast.MultiOutcomeRidge(CALM, 1e-6, refine=2, **linear).fit, X, Y),
        "squared loss": partial(
            dpfast.ObjectivePerturbationRegressor(1.0, 1e-6, loss="squared", **ball, **linear).fit, X, Y
        ),
        "descent": partial(dpfast.ObjectivePerturbationRegressor(1.0, 1e-6, loss="huber", **linear).fit, X, Y),
        "classifier": partial(dpfast.ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, **classes).fit, X, LABELS),
        "pursuit": partial(dpfast.SparseRegression(1.0, 1e-6, n_nonzero=2).fit, X, Y),
        "donors": partial(dpfast.SyntheticControl(1.0, 1e-6, bound=(0.0, 1.0)).fit, PANEL, 10),
        "visits": partial(dpfast.PolicyEvaluation(1.0, 1e-6, gamma=0.9, horizon=8).fit, trajectories),
        "scaler": partial(dpfast.PrivateStandardScaler(1.0, 1e-6, box_x=(-0.2, 0.2)).fit, X),
    }


class Fit:
    params: ClassVar = list(fits())
    param_names = ("fit",)

    def setup(self, name):
        self.fit = fits()[name]

    def time_fit(self, name):
        self.fit()


class BesideScikitLearn:
    params: ClassVar = ["ridge", "squared loss", "classifier", "scaler"]
    param_names = ("fit",)
    unit = "ms"

    def setup(self, name):
        self.ours = fits()[name]
        regression, classifier, scaler = Ridge().fit, LogisticRegression().fit, StandardScaler().fit
        others = {"classifier": partial(classifier, X, LABELS), "scaler": partial(scaler, X)}
        self.theirs = others.get(name, partial(regression, X, Y))

    def track_milliseconds_more(self, name):
        """Median over alternating rounds of what a fit takes more, after one of each."""
        self.ours(), self.theirs()
        return 1e3 * statistics.median(seconds(self.ours) - seconds(self.theirs) for _ in range(often(ROUNDS)))
