"""Constrained minimisers and projections against what one would write instead.

Ratios are their time over ours. Ours stop at a proved distance of 1e-9; theirs at residuals that are
no proof (scikit-learn's logistic regression at its default tolerance).
"""

import statistics

import numpy as np
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from benchmarks.timing import median_ratio, seconds, sized
from dpfast.solvers import (
    Box,
    GeneralisedLinear,
    L1Ball,
    L2Ball,
    LogisticLoss,
    Ridge,
    minimise_factored,
    minimise_smooth,
)


def donors(n, n_periods, noise, seed=0):
    """Synthetic control's objective: 2 XX' + ridge I, -2Xy + noise, over the unit L1 ball."""
    rng = np.random.default_rng(seed)
    x = 0.7 * rng.uniform(-1, 1, (n, 3)) @ rng.uniform(-1, 1, (3, n_periods)) / 3 + rng.uniform(
        -0.3, 0.3, (n, n_periods)
    )
    vector = -2.0 * x @ x[:5].mean(axis=0) + noise * rng.normal(size=n)
    ridge = float(n_periods)
    return x, vector, ridge, 2.0 * n * n_periods + ridge


def sorted_projection(y, radius):
    if np.abs(y).sum() <= radius:
        return y
    descending = np.sort(np.abs(y))[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, len(y) + 1)
    return np.sign(y) * np.maximum(np.abs(y) - thresholds[descending > thresholds][-1], 0.0)


def accelerated_projected_gradient(x, vector, ridge):
    """FISTA in NumPy with the exact largest eigenvalue, stopped by the length of its steps."""
    step = 1.0 / (2.0 * np.linalg.norm(x, 2) ** 2 + ridge)
    f = ahead = np.zeros(len(vector))
    momentum = (1.0 - np.sqrt(step * ridge)) / (1.0 + np.sqrt(step * ridge))
    for _ in range(100_000):
        following = sorted_projection(ahead - step * (2.0 * x @ (x.T @ ahead) + ridge * ahead + vector), 1.0)
        ahead, moved = following + momentum * (following - f), np.linalg.norm(following - ahead)
        f = following
        if moved <= 1e-9 * step * ridge:
            break
    return f


class SyntheticControlWeights:
    params = ([(100, 20), (1000, 100), (10_000, 100)], [0.0, 10.0])
    param_names = ("n_and_periods", "noise")

    def setup(self, size, noise):
        self.x, self.vector, self.ridge, self.smoothness = donors(*size, noise)

    def solve(self):
        return minimise_factored(
            self.x,
            self.ridge,
            self.vector,
            constraint=L1Ball(1.0),
            smoothness=self.smoothness,
            tolerance=1e-9,
        )

    def time_solve(self, size, noise):
        self.solve()

    def track_ratio_numpy_accelerated(self, size, noise):
        return median_ratio(
            self.solve, lambda: accelerated_projected_gradient(self.x, self.vector, self.ridge), rounds=3
        )

    track_ratio_numpy_accelerated.unit = "times faster"


class Dense:
    params = ([20, 200], ["l1", "l2", "box"])
    param_names = ("n", "problem")

    def setup(self, n, problem):
        rng = np.random.default_rng(1)
        self.rows = rng.normal(size=(3 * n, n)) * np.geomspace(0.03, 1, n)
        self.outcome = self.rows @ (rng.normal(size=n) * (rng.random(n) < 0.3)) + rng.normal(size=3 * n)
        self.matrix, self.vector = self.rows.T @ self.rows + np.eye(n), -self.rows.T @ self.outcome
        self.matrix = (self.matrix + self.matrix.T) / 2
        self.smoothness = 1.001 * float(np.linalg.norm(self.matrix, 2))
        self.constraint = {"l1": L1Ball(1.0), "l2": L2Ball(1.0), "box": Box(0.3)}[problem]
        self.factor = np.ascontiguousarray(self.rows.T / np.sqrt(2.0))

    def solve(self):
        return minimise_factored(
            self.factor,
            1.0,
            self.vector,
            constraint=self.constraint,
            smoothness=self.smoothness,
            tolerance=1e-9,
        )

    def theirs(self, problem):
        n = len(self.vector)
        if problem == "box":
            factor = np.linalg.cholesky(self.matrix).T
            target = np.linalg.solve(factor.T, -self.vector)
            return optimize.lsq_linear(factor, target, (-0.3, 0.3), tol=1e-12).x
        if problem == "l2":
            limits = [{"type": "ineq", "fun": lambda z: 1.0 - z @ z, "jac": lambda z: -2.0 * z}]
            start, bounds, spread = np.zeros(n), None, np.eye(n)
        else:
            limits = [{"type": "ineq", "fun": lambda z: 1.0 - z.sum(), "jac": lambda z: -np.ones(2 * n)}]
            start, bounds, spread = np.zeros(2 * n), [(0, None)] * (2 * n), np.hstack([np.eye(n), -np.eye(n)])
        return optimize.minimize(
            lambda z: 0.5 * (spread @ z) @ self.matrix @ (spread @ z) + self.vector @ (spread @ z),
            start,
            jac=lambda z: spread.T @ (self.matrix @ (spread @ z) + self.vector),
            bounds=bounds,
            constraints=limits,
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        ).x

    def time_solve(self, n, problem):
        self.solve()

    def track_ratio_scipy_or_sklearn(self, n, problem):
        if n > 100 and problem in ("l1", "l2"):
            return float("nan")  # SLSQP would take minutes
        return median_ratio(self.solve, lambda: self.theirs(problem), rounds=3)

    track_ratio_scipy_or_sklearn.unit = "times faster"


class Projection:
    params = ([100, 100_000], [1.0, 1e3])
    param_names = ("n", "radius")

    def setup(self, n, radius):
        self.y = np.random.default_rng(2).normal(size=n)

    def time_project(self, n, radius):
        L1Ball(radius).project(self.y)

    def track_ratio_sorting(self, n, radius):
        return median_ratio(lambda: L1Ball(radius).project(self.y), lambda: sorted_projection(self.y, radius), rounds=9)

    track_ratio_sorting.unit = "times faster"


class Logistic:
    """Ridge logistic regression on a table, over a ball that does not bind, where scikit-learn has the same problem."""

    params = ([10_000, sized(1_000_000)], [10, 50])
    param_names = ("n_rows", "n_features")

    def setup(self, n, d):
        rng = np.random.default_rng(3)
        self.rows = rng.normal(size=(n, d))
        self.rows /= 1.000001 * np.linalg.norm(self.rows, axis=1, keepdims=True)
        wrong = 1.0 / (1.0 + np.exp(3.0 * self.rows @ rng.normal(size=d)))
        self.outcome = np.where(rng.random(n) < wrong, -1.0, 1.0)

    def solve(self):
        loss = GeneralisedLinear(self.rows, self.outcome, LogisticLoss(), row_bound=1.0)
        return minimise_smooth(loss, constraint=L2Ball(100.0), penalty=Ridge(1.0), tolerance=1e-9)

    def time_solve(self, n, d):
        self.solve()

    def track_ratio_sklearn(self, n, d):
        model = LogisticRegression(C=1.0, fit_intercept=False)
        return median_ratio(self.solve, lambda: model.fit(self.rows, self.outcome), rounds=3)

    track_ratio_sklearn.unit = "times faster"


def main():
    for group in (SyntheticControlWeights, Dense, Projection, Logistic):
        for first in group.params[0]:
            for second in group.params[1]:
                bench = group()
                bench.setup(first, second)
                track = next(name for name in dir(bench) if name.startswith("track"))
                ours = next(name for name in dir(bench) if name.startswith("time"))
                getattr(bench, ours)(first, second)
                milliseconds = 1e3 * statistics.median(
                    seconds(lambda b=bench, o=ours, f=first, s=second: getattr(b, o)(f, s)) for _ in range(5)
                )
                try:
                    ratio = f"{getattr(bench, track)(first, second):.2f} {track.removeprefix('track_')}"
                except NotImplementedError as reason:
                    ratio = str(reason)
                print(f"{group.__name__} {first} {second}: {milliseconds:.3g} ms, {ratio}")


if __name__ == "__main__":
    main()
