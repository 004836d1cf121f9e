"""Do 95% limits of `MultiOutcomeRidge` hold, coefficient by coefficient? Coverage over redrawn tables.

    python -m benchmarks.ridge_limits [--tables costs,counts] [--fits 60] [--people 1500,3000] [--epsilon 1]
    python -m benchmarks.ridge_limits --tables half_hidden

Prints a line a cell: the share of coefficients with limits; of these the share held, and that of the coefficient with
the lowest; the standard error over the root mean square error, bias included, on average; and that error, of
predictions, over the outcomes' standard deviation. What is sought is least squares in a million rows, weighted as they
are. Tables of `HALF_HIDDEN` have columns that noise half hides, whose limits are hardest: they run if named, each or
as "half_hidden". Limits were chosen on these and on those of `CHOSEN_ON`, named "chosen_on". They are judged on those
of `JUDGED`, named "judged".
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings

import numpy as np

from benchmarks.standard_errors import told_of_limits
from dpfast import MultiOutcomeRidge, UtilityWarning

DELTA = 1e-6
_SOUGHT = 1_000_000


def _related(g, n, d, root):
    """Return normal columns, each correlated with the one before."""
    Z = g.normal(size=(n, d))
    for column in range(1, d):
        Z[:, column] = root * Z[:, column - 1] + math.sqrt(1.0 - root**2) * Z[:, column]
    return Z


def _indicators(g, n, *shares):
    return (g.random((n, len(shares))) < shares).astype(float)


def _coefficients(size):
    """Return the same ones every time."""
    return np.random.default_rng(77).normal(size=size) / math.sqrt(size)


def _gamma_counts(g, rate, shape):
    return g.poisson(rate * g.gamma(shape, 1.0 / shape, size=len(rate))).astype(float)


def costs(g, n):
    """Costs: a lognormal factor, spread and mean grow together."""
    X = np.column_stack([_related(g, n, 4, 0.5), _indicators(g, n, 0.3)])
    return X, np.exp(X @ [0.35, -0.2, 0.0, 0.15, 0.4] + 0.9 * g.normal(size=n))


def gamma(g, n):
    """Payments: a gamma factor of shape 1.5."""
    X = np.column_stack([_related(g, n, 3, 0.2), np.minimum(g.exponential(size=n), 5.0)])
    return X, np.exp(X @ [0.3, 0.3, -0.2, 0.2]) * g.gamma(1.5, 1.0 / 1.5, size=n)


def counts(g, n):
    """Visits: overdispersed counts."""
    X = np.column_stack([_related(g, n, 5, 0.3), _indicators(g, n, 0.5)])
    return X, _gamma_counts(g, np.exp(X @ [0.4, 0.2, 0.0, -0.3, 0.1, 0.3] + 0.3), 1.2)


def poisson(g, n):
    """Rare events: counts with the mean .6."""
    X = _related(g, n, 5, 0.0)
    return X, g.poisson(np.exp(X @ [0.5, 0.3, 0.0, -0.2, 0.1] - 0.7)).astype(float)


def rare(g, n):
    """Two indicators of 2%, one of which has a larger spread; errors skewed."""
    X = np.column_stack([_related(g, n, 3, 0.3), _indicators(g, n, 0.02, 0.02, 0.4)])
    spread = 1.0 + 1.5 * X[:, 3]
    return X, X @ [0.5, -0.3, 0.0, 1.5, 1.0, 0.4] + spread * (g.gamma(2.0, 0.7, size=n) - 1.4)


def groups(g, n):
    """Levels of unequal shares with costs of their own."""
    level = g.choice(6, size=n, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    X = np.column_stack([np.eye(6)[level][:, 1:], g.normal(size=n)])
    return X, np.exp(np.array([0.0, 0.3, -0.3, 0.5, 0.0, 0.8])[level] + 0.2 * X[:, -1] + 0.8 * g.normal(size=n))


def heavy(g, n):
    """Student's errors of 2.5 degrees, their spread growing with one column."""
    X = _related(g, n, 6, 0.6)
    return X, X @ [1.0, -0.5, 0.0, 0.5, 0.0, 0.3] + np.exp(0.3 * X[:, 0]) * g.standard_t(2.5, size=n)


def several(g, n):
    """Three outcomes: normal, a cost, a count."""
    X = _related(g, n, 5, 0.4)
    signal = X @ np.array([[0.5, 0.3, 0.3], [0.0, 0.2, -0.2], [-0.4, 0.0, 0.0], [0.2, 0.0, 0.3], [0.0, -0.2, 0.1]])
    cost = 0.7 * np.exp(signal[:, 1] + 0.8 * g.normal(size=n))
    return X, np.column_stack([signal[:, 0] + g.normal(size=n), cost, _gamma_counts(g, np.exp(signal[:, 2]), 2.0)])


def mostly_zero(g, n):
    """Claims: 70% have none."""
    X = np.column_stack([_related(g, n, 4, 0.2), _indicators(g, n, 0.15)])
    has = g.random(n) < 1.0 / (1.0 + np.exp(1.0 - X @ [0.4, 0.0, 0.3, -0.2, 0.8]))
    return X, has * np.exp(X @ [0.2, 0.1, 0.0, 0.1, 0.3] + 0.7 * g.normal(size=n))


def lognormal_errors(g, n):
    """Skewed errors that are independent of the rows: clipping biases the constant alone."""
    X = _related(g, n, 6, 0.4)
    return X, X @ [0.6, 0.4, 0.0, -0.5, 0.3, 0.0] + np.exp(0.9 * g.normal(size=n))


def normal(g, n):
    """Normal errors: nothing is biased."""
    X = np.column_stack([_related(g, n, 5, 0.5), _indicators(g, n, 0.3)])
    return X, X @ [0.6, -0.4, 0.2, 0.0, 0.0, 0.5] + g.normal(size=n)


def propensity(g, n):
    """A treatment whose effect varies, with weights that are inverse propensities, from .2 to 1 of the largest."""
    X = _related(g, n, 3, 0.3)
    chance = np.clip(1.0 / (1.0 + np.exp(0.6 - 0.9 * X[:, 0])), 0.2, 0.8)
    treated = (g.random(n) < chance).astype(float)
    outcome = X @ [0.5, 0.3, 0.0] + treated * (0.5 + 0.4 * X[:, 0]) + 0.8 * g.standard_t(6, size=n)
    return np.column_stack([X, treated]), outcome, 0.2 / np.where(treated > 0.0, chance, 1.0 - chance)


def survey(g, n):
    """Costs of a survey: lognormal weights that depend on a rare group, cut at 3 times their median."""
    X = np.column_stack([_related(g, n, 3, 0.3), _indicators(g, n, 0.05)])
    weights = np.exp(0.6 * g.normal(size=n) + 0.5 * X[:, 3] + 0.3 * X[:, 0])
    outcome = np.exp(X @ [0.3, -0.2, 0.0, 0.4] + 0.7 * g.normal(size=n))
    return X, outcome, np.minimum(weights / 3.0, 1.0)


def ar9_30(g, n):
    """Thirty columns, autoregressive by .9."""
    X = _related(g, n, 30, 0.9)
    return X, X @ _coefficients(30) + g.normal(size=n)


def powers(g, n):
    """Four powers of three even numbers."""
    x = g.uniform(-1.0, 1.0, size=(n, 3))
    X = np.column_stack([x, x**2, x**3, x**4])
    return 3.0 * X, 2.0 * X @ _coefficients(12) + 0.7 * g.normal(size=n)


def share16(g, n):
    """Sixteen columns that share a factor."""
    X = 0.6 * g.normal(size=(n, 16)) + 0.8 * g.normal(size=(n, 1))
    return X, X @ [0.4, -0.4, 0.2, *np.zeros(12), 0.1] + g.normal(size=n)


def levels_interaction(g, n):
    """Four levels, a normal column, and its product with a level of 25%."""
    levels = np.eye(4)[g.choice(4, size=n, p=[0.55, 0.25, 0.13, 0.07])][:, 1:]
    x = g.normal(size=n)
    X = np.column_stack([levels, x, levels[:, 0] * x])
    return X, X @ [0.4, -0.3, 0.8, 0.5, -0.6] + (1.0 + 0.4 * levels[:, 2]) * g.normal(size=n)


def rare_slope(g, n):
    """An indicator of 3%, three normal columns, and the product of the first one with the indicator."""
    x, has = _related(g, n, 3, 0.3), _indicators(g, n, 0.03)
    X = np.column_stack([has, x, has[:, 0] * x[:, 0]])
    return X, X @ [0.6, 0.5, -0.3, 0.0, 0.9] + g.normal(size=n)


def two_indicators(g, n):
    """Two indicators of 30%, two normal columns, and products of the first indicator with the other and a column."""
    has, x = _indicators(g, n, 0.3, 0.3), g.normal(size=(n, 2))
    X = np.column_stack([has, x, has[:, 0] * has[:, 1], has[:, 0] * x[:, 0]])
    return X, X @ [0.5, -0.4, 0.4, 0.0, 0.9, -0.5] + g.normal(size=n)


def squared(g, n):
    """Three normal columns, and the square of the first one, in its possible range: 0 to 25."""
    x = _related(g, n, 3, 0.4)
    outcome = x @ [0.4, -0.3, 0.0] + 0.3 * x[:, 0] ** 2 + g.gamma(2.0, 0.7, size=n)
    return np.column_stack([x, x[:, 0] ** 2 / 2.5 - 5.0]), outcome


def near_duplicates(g, n):
    """Three normal columns, and the first two once more with errors of a fifth of their deviation."""
    x = g.normal(size=(n, 3))
    X = np.column_stack([x, x[:, :2] + 0.2 * g.normal(size=(n, 2))])
    return X, X @ [0.6, 0.0, -0.4, 0.4, 0.5] + g.normal(size=n)


def narrow(g, n):
    """Three normal columns, and one of a seventh of their deviation, correlated by .5 with the first."""
    x = g.normal(size=(n, 3))
    X = np.column_stack([x, 0.15 * (0.5 * x[:, 0] + math.sqrt(0.75) * g.normal(size=n))])
    return X, X @ [0.5, -0.3, 0.0, 1.5] + g.normal(size=n)


def product(g, n):
    """Two normal columns, a fifth of their product, and an indicator of 30%."""
    x = _related(g, n, 2, 0.4)
    X = np.column_stack([x, x[:, 0] * x[:, 1] / 5.0, _indicators(g, n, 0.3)])
    return X, X @ [0.4, 0.0, 1.5, 0.3] + g.normal(size=n)


def age(g, n):
    """An even age from 0 to 5, its square over 5, a normal column, and an indicator of 40%."""
    x = g.uniform(0.0, 5.0, size=n)
    X = np.column_stack([x, x**2 / 5.0, g.normal(size=n), _indicators(g, n, 0.4)])
    return X, X @ [0.6, -0.5, 0.3, 0.4] + g.normal(size=n)


def duplicate(g, n):
    """Four normal columns, and the first once more with errors of a tenth of its deviation."""
    x = g.normal(size=(n, 4))
    X = np.column_stack([x, x[:, 0] + 0.1 * g.normal(size=n)])
    return X, X @ [0.8, -0.3, 0.2, 0.0, -0.5] + g.normal(size=n)


def triples(g, n):
    """A number measured three times, with errors of three tenths of its deviation, and two other columns."""
    X = np.column_stack([g.normal(size=(n, 1)) + 0.3 * g.normal(size=(n, 3)), g.normal(size=(n, 2))])
    return X, X @ [0.7, 0.0, 0.0, -0.4, 0.3] + g.normal(size=n)


def slopes(g, n):
    """Five levels, a normal column, and its products with levels of 20% and 10%."""
    levels = np.eye(5)[g.choice(5, size=n, p=[0.4, 0.2, 0.2, 0.1, 0.1])][:, 1:]
    x = g.normal(size=n)
    X = np.column_stack([levels, x, levels[:, 0] * x, levels[:, 2] * x])
    return X, X @ [0.3, -0.2, 0.0, 0.6, 0.4, 0.7, -0.8] + g.normal(size=n)


def rare_pair(g, n):
    """Indicators of 25% and 20%, their product, and two normal columns, one larger by the second."""
    has, x = _indicators(g, n, 0.25, 0.2), g.normal(size=(n, 2))
    X = np.column_stack([has, has[:, 0] * has[:, 1], x[:, 0], x[:, 1] + has[:, 1]])
    return X, X @ [0.4, 0.3, -1.2, 0.5, -0.4] + g.normal(size=n)


def skewed(g, n):
    """Two normal columns, a lognormal one of which few values are large, and a rare count."""
    x = _related(g, n, 2, 0.3)
    X = np.column_stack([x, 0.2 * np.exp(0.8 * g.normal(size=n)), g.poisson(0.08, size=n)])
    return X, X @ [0.4, -0.2, 1.2, 0.8] + g.normal(size=n)


def opposite(g, n):
    """Three normal columns, and the first once more with errors of an eighth: coefficients of opposite signs."""
    x = g.normal(size=(n, 3))
    X = np.column_stack([x, x[:, 0] + 0.125 * g.normal(size=n)])
    return X, X @ [1.0, 0.3, -0.4, -0.9] + g.normal(size=n)


def level_slopes(g, n):
    """Four levels, two related columns, and the product of the second with a level of 15%."""
    levels = np.eye(4)[g.choice(4, size=n, p=[0.4, 0.3, 0.15, 0.15])][:, 1:]
    x = _related(g, n, 2, 0.3)
    X = np.column_stack([levels, x, levels[:, 1] * x[:, 1]])
    return X, X @ [0.3, -0.5, 0.2, 0.4, -0.3, 0.9] + g.normal(size=n)


def narrow_age(g, n):
    """An age of deviation .4 about 2, a normal column, one that follows the age, and an indicator of 45%."""
    x = 2.0 + 0.4 * g.normal(size=n)
    X = np.column_stack([x, g.normal(size=n), x + 0.5 * g.normal(size=n), _indicators(g, n, 0.45)])
    return X, X @ [0.8, -0.3, 0.5, 0.0] + g.normal(size=n)


def rare_slopes(g, n):
    """Indicators of 6% and 10%, two normal columns, and the product of each indicator with one of them."""
    has, x = _indicators(g, n, 0.06, 0.1), g.normal(size=(n, 2))
    X = np.column_stack([has, x, has * x])
    return X, X @ [0.5, -0.6, 0.3, -0.2, -1.0, 0.7] + g.normal(size=n)


def sums(g, n):
    """Two normal columns, their sum with errors of a fifth, and another column."""
    x = g.normal(size=(n, 3))
    X = np.column_stack([x, x[:, 0] + x[:, 1] + 0.2 * g.normal(size=n)])
    return X, X @ [-0.6, 0.5, 0.3, 0.7] + g.normal(size=n)


def small_group(g, n):
    """A group of half a percent, and nothing else."""
    X = _indicators(g, n, 0.005)
    return X, X @ [1.0] + g.normal(size=n)


def proxies(g, n):
    """A number measured twice with errors of a quarter, effects of opposite signs; two columns and a level of 20%."""
    x = g.normal(size=(n, 1))
    X = np.column_stack([x + 0.25 * g.normal(size=(n, 2)), _related(g, n, 2, -0.5), _indicators(g, n, 0.2)])
    return X, X @ [0.9, -0.6, 0.3, 0.0, 0.5] + g.normal(size=n)


TABLES = (costs, gamma, counts, poisson, rare, groups, heavy, several, mostly_zero, lognormal_errors, normal)
WEIGHTED = (propensity, survey)
HALF_HIDDEN = (ar9_30, powers, share16, levels_interaction, rare_slope, two_indicators, squared, near_duplicates)
CHOSEN_ON = (narrow, product, age, duplicate, triples, slopes, rare_pair, skewed)
JUDGED = (opposite, level_slopes, narrow_age, rare_slopes, sums, proxies, small_group)


def drawn(table, seed, n):
    """Return rows within a box, outcomes within a bound, their weights, if any, and how they are declared."""
    X, Y, *weights = table(np.random.default_rng(seed), n)
    Y = Y.reshape(n, -1)
    wide, *_ = table(np.random.default_rng(1), 20_000)
    is_indicator = np.isin(wide, (0.0, 1.0)).all(axis=0)
    low, high = np.where(is_indicator, 0.0, -5.0), np.where(is_indicator, 1.0, 5.0)
    bound = 40.0
    X, Y = (
        np.clip(X, low, high),
        Y * np.minimum(1.0, bound / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-9)),
    )
    declared = {"box_x": (low, high), "bound_y": bound, "fit_intercept": True}
    return X, Y, weights[0] if weights else None, declared | ({"max_weight": 1.0} if weights else {})


def sought(table):
    """Return least squares in many rows, shape (l, d + 1), the constant last."""
    X, Y, weights, _ = drawn(table, 2, _SOUGHT)
    roots = np.ones((len(X), 1)) if weights is None else np.sqrt(weights)[:, None]
    return np.linalg.lstsq(roots * np.column_stack([X, np.ones(len(X))]), roots * Y, rcond=None)[0].T


def fitted(table, seed, n, epsilon):
    """Return estimates, standard errors, lower and upper limits: arrays (l, d)."""
    X, Y, weights, declared = drawn(table, seed, n)
    model = MultiOutcomeRidge(epsilon, DELTA, **declared).fit(X, Y, sample_weight=weights)
    told = model.summary(level=0.95)
    outcomes, width = Y.shape[1], X.shape[1] + 1
    return model.coef_.reshape(outcomes, -1), *(
        told[name].to_numpy().reshape(outcomes, width)[:, 1:] for name in ("std_error", "low", "high")
    )


def cell(table, n, epsilon, fits):
    """Return estimates, standard errors, lower and upper limits: (fits, l, d) each."""
    return [np.array(part) for part in zip(*(fitted(table, 1_000 + s, n, epsilon) for s in range(fits)), strict=True)]


def main():
    """Print a line for every cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(table.__name__ for table in (*TABLES, *WEIGHTED)))
    parser.add_argument("--fits", type=int, default=60)
    parser.add_argument("--people", default="450,1500,3000,10000")
    parser.add_argument("--epsilon", default="0.3,1,3")
    requested = parser.parse_args()
    warnings.simplefilter("ignore", UtilityWarning)
    people, epsilons = (part.split(",") for part in (requested.people, requested.epsilon))
    print("table, people, epsilon: known; covered, least; error said over made; error")
    names = requested.tables.split(",")
    sets = {"half_hidden": HALF_HIDDEN, "chosen_on": CHOSEN_ON, "judged": JUDGED}
    for table in (*TABLES, *WEIGHTED, *HALF_HIDDEN, *CHOSEN_ON, *JUDGED):
        if table.__name__ not in names and not any(table in some and name in names for name, some in sets.items()):
            continue
        truth = sought(table)[:, :-1]
        X, Y, *_ = drawn(table, 3, 20_000)
        size = np.atleast_2d(np.cov(X.T))
        for n, epsilon in itertools.product(map(int, people), map(float, epsilons)):
            found, said, low, high = cell(table, n, epsilon, requested.fits)
            off, held = found - truth, (low <= truth) & (truth <= high)
            shares = told_of_limits(*(part.reshape(requested.fits, -1) for part in (off, said, held)))
            print(f"{table.__name__:16} {n:6} {epsilon:g}: {shares}; ", end="")
            errors = np.einsum("flj,jk,flk->l", off, size, off) / requested.fits / Y.var(axis=0)
            print(f"{np.sqrt(errors.mean()):.3f}", flush=True)


if __name__ == "__main__":
    main()
