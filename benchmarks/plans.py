"""Do plans say what the error will be, and do warnings of a regression come where it is mostly noise?

    python -m benchmarks.plans [judged|tuned|panels] [--fits 8] [--people 300,800,4000,30000] [--epsilon 0.5,2]
        [--set NAME=VALUE]

Prints a line a cell: the measured error of predictions over the planned one, for true guesses of spreads and R^2, that
error over the outcomes' standard deviation, and the share of fits that warned. Then the share of cells within 1.5 times
the plan; and how often fits warned that lost more than 1.25 of the warned share of the signal, and less than 0.8 of it.
Constants were chosen on the tables called tuned. Of panels the error is what privacy adds to the mean square error, as
a root, over the signal's root mean square.
"""

from __future__ import annotations

import argparse
import ast
import math
import warnings

import numpy as np

from dpfast import MultiOutcomeRidge, SyntheticControl, UtilityWarning

DELTA = 1e-6
# Warned of is a loss of this part of the signal's square.
WARNED = MultiOutcomeRidge._WARNED_ERROR


def outcomes(rng, rows, coefficients, errors):
    """Return a signal of standard deviation 1 and errors about it: normal, of a standard deviation, or as given."""
    signal = rows @ coefficients
    own = errors if isinstance(errors, np.ndarray) else errors * rng.normal(size=len(rows))
    return rows, (signal - signal.mean()) / signal.std() + own


def alike(d, correlation):
    """Return a root of the covariance of equally correlated features."""
    return np.linalg.cholesky((1.0 - correlation) * np.eye(d) + correlation)


def levels(rng, n, number):
    return np.eye(number)[rng.integers(number, size=n)][:, 1:]


def standardised(errors):
    return (errors - errors.mean()) / errors.std()


TUNED = {
    "normal": lambda g, n: outcomes(g, g.normal(size=(n, 8)), np.arange(1.0, 9.0), 1.0),
    "correlated .9": lambda g, n: outcomes(g, g.normal(size=(n, 8)) @ alike(8, 0.9).T, g.normal(size=8), 1.0),
    "condition 1000": lambda g, n: outcomes(
        g, g.normal(size=(n, 8)) * np.logspace(0.0, -1.5, 8), np.logspace(0.0, 1.5, 8), 1.0
    ),
    "rare .05": lambda g, n: outcomes(g, 1.0 * (g.random((n, 8)) < 0.05), np.ones(8), 1.0),
    "12 levels": lambda g, n: outcomes(g, levels(g, n, 12), np.linspace(-1.0, 1.0, 11), 1.0),
    "skewed rows": lambda g, n: outcomes(g, np.minimum(np.exp(0.8 * g.normal(size=(n, 8))), 8.0), np.ones(8), 1.0),
    "t3 errors": lambda g, n: outcomes(g, g.normal(size=(n, 8)), np.ones(8), g.standard_t(3, size=n) / math.sqrt(3.0)),
    "lognormal errors": lambda g, n: outcomes(
        g, g.normal(size=(n, 8)), np.ones(8), standardised(np.exp(g.normal(size=n)))
    ),
    "normal, 20": lambda g, n: outcomes(g, g.normal(size=(n, 20)), np.ones(20), 2.0),
    "normal, 3": lambda g, n: outcomes(g, g.normal(size=(n, 3)), np.ones(3), 0.5),
}


def in_series(g, n):
    rows = g.normal(size=(n, 12))
    for column in range(1, 12):
        rows[:, column] = 0.5 * rows[:, column - 1] + math.sqrt(0.75) * rows[:, column]
    return outcomes(g, rows, g.normal(size=12), 1.5)


def in_pairs(g, n):
    rows = g.normal(size=(n, 4))
    return outcomes(g, np.hstack([rows, rows + 0.2 * g.normal(size=(n, 4))]), g.normal(size=8), 1.0)


def counts(g, n):
    rows = 0.5 * g.normal(size=(n, 4))
    return rows, 1.0 * g.poisson(np.exp(1.0 + 0.5 * rows.sum(axis=1)))


def claims(g, n):
    rows = np.column_stack([g.normal(size=(n, 3)), g.random((n, 2)) < (0.2, 0.5)])
    chances = 1.0 / (1.0 + np.exp(0.8 - rows @ [0.5, 0.0, -0.3, 0.7, 0.0]))
    sizes = g.gamma(2.0, 1.2 * np.exp(rows @ [0.15, 0.0, 0.1, 0.2, 0.0]))
    return rows, np.minimum((g.random(n) < chances) * sizes, 20.0)


JUDGED = {
    "uniform, 5": lambda g, n: outcomes(g, g.uniform(-1.0, 1.0, (n, 5)), np.array([1.0, -1.0, 0.5, 0.0, 0.0]), 0.7),
    "in series, 12": in_series,
    "binary .3, 10": lambda g, n: outcomes(g, 1.0 * (g.random((n, 10)) < 0.3), g.normal(size=10), 1.0),
    "6 levels and 2": lambda g, n: outcomes(g, np.hstack([levels(g, n, 6), g.normal(size=(n, 2))]), np.ones(7), 1.0),
    "t4 rows": lambda g, n: outcomes(g, np.clip(g.standard_t(4, size=(n, 6)), -6.0, 6.0), np.ones(6), 1.0),
    "Laplace errors": lambda g, n: outcomes(g, g.normal(size=(n, 6)), np.arange(6.0), g.laplace(size=n)),
    "counts": counts,
    "claims, most zero": claims,
    "normal, 30": lambda g, n: outcomes(g, g.normal(size=(n, 30)), g.normal(size=30), 1.0),
    "normal, 2": lambda g, n: outcomes(g, g.normal(size=(n, 2)), np.ones(2), 2.0),
    "in pairs": in_pairs,
}


def walks(g, number, periods):
    return np.cumsum(g.normal(size=(number, periods)), axis=1) / math.sqrt(periods / 2.0)


def in_steps(g, n, periods):
    paths = g.normal(size=(n, periods))
    for period in range(1, periods):
        paths[:, period] = 0.9 * paths[:, period - 1] + math.sqrt(0.19) * paths[:, period]
    return paths


def in_seasons(g, n, periods):
    angle = 2.0 * math.pi * np.arange(periods) / 6.0
    return g.uniform(0.5, 1.5, (n, 1)) * (1.0 + 0.3 * np.sin(angle)) + 0.2 * g.uniform(size=(n, 1)) * np.cos(angle)


def with_trend(g, n, periods):
    trend = np.linspace(0.6, 1.0, periods) * (1.0 + 0.2 * g.normal(size=(n, 1)))
    return trend + 0.1 * g.normal(size=(n, 2)) @ walks(g, 2, periods)


def with_level(g, n, periods):
    return 1.0 + 0.5 * g.uniform(-1.0, 1.0, (n, 1)) * walks(g, 1, periods) + 0.3 * g.uniform(-1.0, 1.0, (n, 1))


#: What donors follow, the noise about it, and how much they differ from their mean path.
PANELS = {
    "three walks": (lambda g, n, t: g.normal(size=(n, 3)) @ walks(g, 3, t), 0.1, 1.0),
    "trend": (with_trend, 0.03, 0.25),
    "in steps of .9": (in_steps, 0.05, 1.0),
    "in seasons": (in_seasons, 0.05, 0.33),
    "level and walk": (with_level, 0.05, 0.35),
}


def panel_cell(name, n, parameters, fits, periods=20, targets=2_000):
    """Return what privacy adds to the error of predictions, and the plan of it, both over the signal."""
    draw, noise, variation = PANELS[name]
    g = np.random.default_rng(2)
    signal = draw(g, n + targets, periods)
    outcomes = signal + noise * g.normal(size=signal.shape)
    own = {"bound": float(np.quantile(np.abs(outcomes), 0.999))}
    spread, n_pre = float(np.mean(outcomes**2)) / own["bound"] ** 2, periods // 2
    plan = SyntheticControl.plan(n, n_pre, periods, spread=spread, variation=variation, **own, **parameters)

    def squared(**options):
        fit = SyntheticControl(**own, **options).fit(outcomes[:n], n_pre)
        return float(np.mean((fit.predict(outcomes[n:, :n_pre]) - signal[n:, n_pre:]) ** 2))

    exact = squared(epsilon=math.inf, ridge=1e-3)
    added = max(np.mean([squared(**parameters) for _ in range(fits)]) - exact, 0.0)
    return math.sqrt(added / np.mean(signal[:, n_pre:] ** 2)), plan.expected_error


def plans_of_panels(people, epsilons, fits, given):
    """Print a line a cell, and how many are as planned."""
    ratios = []
    for n in people:
        for epsilon in epsilons:
            for name in PANELS:
                added, planned = panel_cell(name, n, given | {"epsilon": epsilon}, fits)
                ratios.append(added / planned)
                print(f"{name:18}{n:7}{epsilon:6g}{ratios[-1]:9.2f}{added:10.3f}", flush=True)
    tell(ratios)


def tell(ratios):
    within = np.mean([1.0 / 1.5 <= ratio <= 1.5 for ratio in ratios])
    print(f"within 1.5 times the plan: {within:.0%} of {len(ratios)} cells, median {np.median(ratios):.2f}")


def fitted(parameters, rows, y):
    """Return the predictions of a fit, and whether it warned."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        predicted = MultiOutcomeRidge(**parameters).fit(rows, y).predict(rows)
    return predicted, any(issubclass(one.category, UtilityWarning) for one in found)


def cell(rows, y, parameters, fits):
    """Return the measured error, the planned one, and of every fit what it lost and whether it warned."""
    low, high, bound = rows.min(axis=0), rows.max(axis=0), float(np.abs(y).max())
    columns = np.column_stack([np.ones(len(rows)), rows])
    exact = columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    parameters = parameters | {"box_x": (low, high), "bound_y": bound}
    mapped = 2.0 * (rows - rows.mean(axis=0)) / (high - low)
    spread = float(np.mean(mapped**2)), float(np.var(y)) / bound**2
    score = max(1.0 - float(np.var(y - exact) / np.var(y)), 0.01)
    plan = MultiOutcomeRidge.plan(*rows.shape, spread=spread, score=score, **parameters)
    off = [(predicted - exact, warned) for predicted, warned in (fitted(parameters, rows, y) for _ in range(fits))]
    error = math.sqrt(np.mean([one**2 for one, _ in off]))
    return error, plan.expected_error * bound, [(np.var(one) / np.var(exact), warned) for one, warned in off]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="?", choices=("judged", "tuned", "panels"), default="judged")
    parser.add_argument("--fits", type=int, default=8)
    parser.add_argument("--people", default="300,800,4000,30000")
    parser.add_argument("--epsilon", default="0.5,2")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the estimator")
    options = parser.parse_args()
    given = {"delta": DELTA} | {
        name: ast.literal_eval(value) for name, value in (one.split("=", 1) for one in options.set)
    }
    people, epsilons = map(int, options.people.split(",")), [float(one) for one in options.epsilon.split(",")]
    if options.tables == "panels":
        warnings.simplefilter("ignore", UtilityWarning)
        plans_of_panels(people, epsilons, options.fits, given)
        return
    print(f"{'':18}{'people':>7}{'eps':>6}{'of plan':>9}{'of spread':>10}{'warned':>8}")
    ratios, losses = [], []
    for n in people:
        for epsilon in epsilons:
            rng = np.random.default_rng(7)
            for name, draw in (JUDGED if options.tables == "judged" else TUNED).items():
                rows, y = draw(rng, n)
                error, planned, found = cell(rows, y, given | {"epsilon": epsilon}, options.fits)
                ratios.append(error / planned)
                losses += found
                warned = np.mean([warned for _, warned in found])
                print(f"{name:18}{n:7}{epsilon:6g}{ratios[-1]:9.2f}{error / y.std():10.3f}{warned:8.2f}", flush=True)
    tell(ratios)
    lost, warned = map(np.array, zip(*losses, strict=True))
    for what, chosen in (("more than 1.25", lost > 1.25 * WARNED), ("less than 0.8", lost < 0.8 * WARNED)):
        share = f"{warned[chosen].mean():.1%}" if chosen.any() else "none"
        print(f"lost {what} of what is warned of: {chosen.sum()} fits, {share} warned")


if __name__ == "__main__":
    main()
