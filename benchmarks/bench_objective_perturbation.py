"""Objective perturbation: fits of a million rows against scikit-learn's without privacy, in one process."""

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.timing import fastest_ratio, sized
from dpfast import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.solvers import CappedLogisticLoss, L2Ball

N, D = sized(1_000_000), 50


def _table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.2, 0.2, (N, D))
    return X, X @ rng.normal(size=D) / 3.0 + 0.1 * rng.normal(size=N)


class MillionRows:
    params = (["squared", "huber", "quantile", "poisson", "logistic", "capped logistic", "hinge"],)
    param_names = ("loss",)
    timeout = 600

    def setup(self, loss):
        self.X, self.y = _table()
        shared = {"bound_x": 1.0, "loss": CappedLogisticLoss() if loss == "capped logistic" else loss}
        if loss in ("logistic", "capped logistic", "hinge"):
            self.y = (self.y > 0.0).astype(int)
            self.ours = ObjectivePerturbationClassifier(1.0, 1e-6, classes=[0, 1], **shared)
            self.theirs = LogisticRegression(fit_intercept=False)
        else:
            self.ours = ObjectivePerturbationRegressor(1.0, 1e-6, bound_y=1.0, constraint=L2Ball(5.0), **shared)
            self.theirs = Ridge(fit_intercept=False)

    def time_fit(self, loss):
        self.ours.fit(self.X, self.y)

    def track_ratio_to_scikit_learn(self, loss):
        """Against logistic regression for classification, ridge regression otherwise."""
        return fastest_ratio(lambda: self.theirs.fit(self.X, self.y), lambda: self.ours.fit(self.X, self.y), 1)


class DefaultClassifier:
    """The defaults, on a table of usual size: objective perturbation for two classes, descent for ten; and either."""

    params = ([2, 10], ["auto", "objective", "gradient"])
    param_names = ("classes", "method")

    def setup(self, n_classes, method):
        rng = np.random.default_rng(0)
        self.X = rng.uniform(-0.2, 0.2, (sized(100_000), 20))
        margins = self.X @ rng.normal(size=(20, n_classes)) + 0.1 * rng.gumbel(size=(len(self.X), n_classes))
        self.y = margins.argmax(axis=1)
        self.ours = ObjectivePerturbationClassifier(
            1.0, 1e-5, bound_x=1.0, classes=range(n_classes), method=method, fit_intercept=False
        )
        self.theirs = LogisticRegression(fit_intercept=False)

    def time_fit(self, n_classes, method):
        self.ours.fit(self.X, self.y)

    def track_ratio_to_scikit_learn(self, n_classes, method):
        return fastest_ratio(lambda: self.theirs.fit(self.X, self.y), lambda: self.ours.fit(self.X, self.y), 3)
