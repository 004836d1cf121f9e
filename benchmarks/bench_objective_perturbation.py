"""Objective perturbation: fits of a million rows against scikit-learn's without privacy, in one process; accuracy."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split

from benchmarks.timing import fastest_ratio
from dpfast import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.solvers import L2Ball

N, D = 1_000_000, 50
# Round limits of the thirty measurements, as one knows them without the patients at hand.
_LIMITS = [30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1, 3, 5, 22, 550, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03]
_LIMITS += [40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25]


def _table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.2, 0.2, (N, D))
    return X, X @ rng.normal(size=D) / 3.0 + 0.1 * rng.normal(size=N)


class MillionRows:
    params = (["squared", "huber", "logistic", "hinge"],)
    param_names = ("loss",)
    timeout = 600

    def setup(self, loss):
        self.X, self.y = _table()
        shared = {"bound_x": 1.0, "loss": loss}
        if loss in ("logistic", "hinge"):
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


class Accuracy:
    """Mean accuracy on a quarter held out, at epsilon 1 and delta 1e-5, over 50 seeds."""

    params = (["breast cancer", "digits 3 and 8"], ["logistic", "hinge"], ["replace_one", "add_remove"])
    param_names = ("table", "loss", "adjacency")
    timeout = 600

    def setup(self, table, loss, adjacency):
        if table == "breast cancer":
            X, self.y = load_breast_cancer(return_X_y=True)
            self.X, self.bound = X / _LIMITS - 0.5, 1.5
        else:
            X, y = load_digits(return_X_y=True)
            kept = (y == 3) | (y == 8)
            self.X, self.y, self.bound = X[kept] / 16.0 - 0.5, (y[kept] == 8).astype(int), 3.5

    def track_accuracy(self, table, loss, adjacency):
        scores = []
        for seed in range(50):
            train, test, y_train, y_test = train_test_split(self.X, self.y, test_size=0.25, random_state=seed)
            model = ObjectivePerturbationClassifier(
                1.0,
                1e-5,
                bound_x=self.bound,
                classes=[0, 1],
                loss=loss,
                adjacency=adjacency,
                fit_intercept=True,
                random_state=seed,
            )
            scores.append(model.fit(train, y_train).score(test, y_test))
        return float(np.mean(scores))
