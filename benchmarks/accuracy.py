"""How accurate the estimators are, beside their rivals at the rivals' best settings in hindsight.

Every part prints a table; ``--only PART`` runs one of them:

- ``regression``: excess relative mean squared error over least squares, mean (x'(theta - theta_LS))^2 / mean y^2, of
  MultiOutcomeRidge with its defaults and no settings, on tables drawn and real (scikit-learn's own). All methods see
  the same rows, within the same declared bounds.
- ``units``: the job file's own design, features in natural units: R^2, and how often the coefficient of a 0/1 column is
  within two of its standard deviations of that of least squares.
- ``primo``: many outcomes on one table, as in papers/primo_accuracy.py and papers/primo.py.
- ``control``: synthetic control on the paper's generator, as in papers/synthetic_control_accuracy.py.
- ``policy``: policy evaluation on games and on the paper's chain, as in papers/policy_accuracy.py: errors over visited
  states, and over visits, and what those of before are divided by.
- ``plans``: the score that `plan` lets expect where that without privacy is known, beside the one that comes.

Budgets are epsilon = 1 and delta = 1e-5 under add/remove, unless a line says otherwise. Rivals take the setting with
the best mean error out of a grid, chosen on the data themselves at no cost of privacy; only the noise is paid for:

- Clipped gradient descent on all rows: per-row gradients shortened to a length, Gaussian noise composed exactly
  (mu^2 adds up); number and size of steps, length. Beside it, the mean of the second half of its iterates.
- AdaSSP (Wang 2018, Algorithm 2) with analytic Gaussian noise: shares of mu^2, bounds on rows and outcomes tighter than
  the declared ones, a multiple of its ridge.
- diffprivlib's LinearRegression (pure epsilon, the only budget it offers; replace-one): bounds tighter than declared.
  It imports with scikit-learn 1.6 and no newer one, and is left out where it does not import.

``python benchmarks/accuracy.py`` takes some fifteen minutes on one processor, ``--quick`` less than one.
"""

import argparse
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    UtilityWarning,
)
from dpfast.privacy import gaussian_scale
from dpfast.solvers import L2Ball

EPSILON, DELTA = 1.0, 1e-5
OURS = {"refine=0": {"refine": 0}, "ours": {"refine": "auto"}}
DESCENT, AVERAGED = "clipped descent", "averaged descent"
ADASSP, DIFFPRIVLIB = "AdaSSP", "diffprivlib"
# Settings of a rival that are tried on few repeats, and the best of these on all of them.
TRIED, KEPT = 4, 5


class Table(NamedTuple):
    """Rows and outcomes within their declared bounds; for ours, rows in natural units with their limits instead."""

    name: str
    x: np.ndarray
    y: np.ndarray
    bound_x: float
    bound_y: float
    natural: tuple[np.ndarray, dict[str, Any]] | None = None


class Exact:
    """Least squares on a table, and errors in excess of it."""

    def __init__(self, table: Table):
        self.table = table
        self.coef = linalg.lstsq(table.x, table.y)[0]
        self.predicted = table.x @ self.coef
        self.second_moment = table.x.T @ table.x / len(table.x)
        self.power = float(np.mean(np.sum(table.y**2, axis=1)))

    def excess(self, theta: np.ndarray) -> np.ndarray:
        """Return the excess of coefficients of shape (..., features, outcomes)."""
        gap = theta - self.coef
        return np.sum(gap * (self.second_moment @ gap), axis=(-2, -1)) / self.power

    def excess_of_predictions(self, predicted: np.ndarray) -> float:
        gap = predicted.reshape(self.predicted.shape) - self.predicted
        return float(np.mean(np.sum(gap**2, axis=1))) / self.power


# Tables.


def within(rows: np.ndarray, bound: float) -> np.ndarray:
    """Shorten rows to a bound."""
    rows = rows.reshape(len(rows), -1)
    return rows * np.minimum(1.0, bound / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def bounded(name: str, x: np.ndarray, y: np.ndarray, bound_x: float, bound_y: float, **more: Any) -> Table:
    return Table(name, within(x, bound_x), within(y, bound_y), bound_x, bound_y, **more)


def gaussian(rng, n, d, *, loose=1.0, condition=1.0, signal=1.0, noise=0.3, name=""):
    """Features whose second moment has eigenvalues from 1 to 1/condition; outcomes that depend on all of them alike."""
    direction = rng.normal(size=d)
    z = rng.normal(size=(n, d))
    y = signal * (z @ (direction / np.linalg.norm(direction))) + noise * rng.normal(size=n)
    scales = np.geomspace(1.0, 1.0 / condition, d) ** 0.5
    x = z * scales
    bounds = 1.3 * float(np.linalg.norm(scales)), 4.0 * math.hypot(signal, noise)
    x, y = within(x, bounds[0]), within(y, bounds[1])
    title = f"n = {n:,}, d = {d}{name}"
    return bounded(title, x, y, loose * bounds[0], loose * bounds[1])


def skewed(rng, n, d):
    """Lognormal features and a constant; bounds that one row in a thousand passes."""
    x = np.exp(rng.normal(size=(n, d)))
    y = x @ rng.uniform(0.0, 1.0, size=d) / d + 0.3 * np.exp(rng.normal(size=n))
    x = np.column_stack([np.ones(n), x])
    return bounded(f"lognormal, n = {n:,}, d = {d + 1}", x, y, 10.0 * math.sqrt(d), 10.0)


def heavy(rng, n, d):
    x = rng.standard_t(3, size=(n, d))
    y = x @ rng.normal(size=d) / math.sqrt(d) + rng.standard_t(3, size=n)
    return bounded(f"heavy tails, n = {n:,}, d = {d}", x, y, 30.0, 30.0)


def dummies(rng, n, factors, levels):
    """A constant and indicators of the levels of some factors, of which some are rare."""
    weights = np.geomspace(1.0, 0.05, levels)
    blocks = [np.eye(levels)[rng.choice(levels, n, p=weights / weights.sum())][:, 1:] for _ in range(factors)]
    x = np.column_stack([np.ones(n), *blocks])
    y = x @ rng.normal(size=x.shape[1]) / 2.0 + rng.normal(size=n) / 2.0
    return bounded(f"indicators, n = {n:,}, d = {x.shape[1]}", x, y, math.sqrt(1.0 + factors), 5.0)


def job_rows(rng, n):
    """Rows and one outcome of the design in examples/job.toml: age, smoker, two sites of three; days in hospital."""
    age, smoker = rng.uniform(18.0, 100.0, n), rng.random(n) < 0.3
    site = rng.integers(3, size=n)
    x = np.column_stack([age, smoker, site == 1, site == 2]).astype(float)
    y = x @ np.array([0.12, 4.0, 1.0, -1.0]) + 2.4 * rng.normal(size=n)
    return x, np.clip(y, -30.0, 30.0)


JOB_LIMITS = (np.array([18.0, 0.0, 0.0, 0.0]), np.array([100.0, 1.0, 1.0, 1.0]))


def job(rng, n):
    """Give rivals each column rescaled by hand to [-1, 1], and a constant."""
    x, y = job_rows(rng, n)
    low, high = JOB_LIMITS
    scaled = np.column_stack([(2.0 * x - low - high) / (high - low), np.ones(n)])
    natural = x, {"bound_x": None, "box_x": JOB_LIMITS, "fit_intercept": True}
    return bounded(f"natural units, n = {n:,}, d = 5", scaled, y, math.sqrt(5.0), 30.0, natural=natural)


def diabetes(rng):
    """Disease progression of 442 patients from ten features, which come with norm 1 each."""
    x, y = datasets.load_diabetes(return_X_y=True)
    x = np.column_stack([x * math.sqrt(len(x)), np.ones(len(x))])
    return bounded("diabetes (real), n = 442, d = 11", x, (y - 175.0) / 175.0, 5.0, 1.0)


def digits(rng):
    """One-vs-rest for ten digits on their pixels and a constant."""
    x, labels = datasets.load_digits(return_X_y=True)
    x = np.column_stack([x / 16.0, np.ones(len(x))])
    y = np.where(labels[:, None] == np.arange(10), 1.0, -1.0)
    return bounded("digits (real), n = 1,797, d = 65, l = 10", x, y, 6.0, math.sqrt(10.0))


def breast_cancer(rng):
    """Malignant or benign from thirty measures of cells, in logarithms over a published typical value."""
    x, labels = datasets.load_breast_cancer(return_X_y=True)
    x = np.log1p(x)
    x = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(len(x))])
    return bounded("breast cancer (real), n = 569, d = 31", x, 2.0 * labels - 1.0, 8.0, 1.0)


def picture(rng, n):
    """Grey values of a photograph's pixels from the 24 around them, and a constant."""
    grey = datasets.load_sample_image("china.jpg").mean(axis=2) / 127.5 - 1.0
    patches = np.lib.stride_tricks.sliding_window_view(grey, (5, 5)).reshape(-1, 25)
    chosen = patches[rng.choice(len(patches), n, replace=False)]
    x = np.column_stack([np.delete(chosen, 12, axis=1), np.ones(n)])
    return bounded(f"picture (real), n = {n:,}, d = 25", x, chosen[:, 12], 5.0, 1.0)


def tables(quick: bool) -> Iterator[Table]:
    """Draw the tables, one after another."""
    rng = np.random.default_rng(0)
    yield gaussian(rng, 2_000, 5)
    yield gaussian(rng, 10_000, 20)
    if not quick:
        yield gaussian(rng, 10_000, 20, condition=100.0, name=", condition 100")
        yield gaussian(rng, 100_000, 20, loose=10.0, name=", bounds ten times loose")
        yield gaussian(rng, 10_000, 20, signal=0.14, noise=1.0, name=", weak signal")
        yield skewed(rng, 20_000, 10)
        yield heavy(rng, 10_000, 10)
        yield dummies(rng, 20_000, 4, 6)
        yield job(rng, 20_000)
    yield diabetes(rng)
    if not quick:
        yield digits(rng)
        yield breast_cancer(rng)
        try:
            yield picture(rng, 20_000)
        except ImportError:
            print("Pillow does not import here: the picture is left out")


# Rivals: each takes a table, what is exact of it, repeats and a seed for one setting, and returns the excess of every
# repeat. Settings may be anything the data say: they are chosen in hindsight.


def descent_settings(exact: Exact, quick: bool) -> Iterator[tuple]:
    x, y = exact.table.x, exact.table.y
    norms = np.linalg.norm(x, axis=1)
    left = norms * np.linalg.norm(y - exact.predicted, axis=1)
    most = float(np.max(norms * np.linalg.norm(y, axis=1)))
    lengths = {float(np.quantile(left, q)) for q in ((0.9,) if quick else (0.3, 0.6, 0.8, 0.95, 1.0))} | {most / 2.0}
    largest = float(linalg.eigvalsh(exact.second_moment)[-1])
    steps, sizes = ((5, 20), (1.0,)) if quick else ((1, 3, 6, 12, 25, 50, 100), (0.1, 0.3, 0.6, 1.0, 1.8, 4.0))
    # 0 lengths occur where least squares is exact for most rows; steps of no length go nowhere.
    for taken, size, length in itertools.product(steps, sizes, sorted(lengths - {0.0})):
        yield taken, size / largest, length


def descent(exact: Exact, setting: tuple, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """Run all repeats at once, to the last iterate."""
    return exact.excess(_descended(exact, setting, repeats, rng)[0])


def averaged(exact: Exact, setting: tuple, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """The same, to the mean of the second half of the iterates."""
    return exact.excess(_descended(exact, setting, repeats, rng)[1])


def _descended(exact: Exact, setting: tuple, repeats: int, rng: np.random.Generator) -> list[np.ndarray]:
    steps, size, length = setting
    x, y = exact.table.x, exact.table.y
    targets = np.tile(y, (1, repeats))
    return clipped_descent(
        x, lambda predicted: predicted - targets, (repeats, y.shape[1]), rng,
        steps=steps, size=size / len(x), length=length, norms=np.linalg.norm(x, axis=1),
        deviation=length * math.sqrt(steps) * gaussian_scale(EPSILON, DELTA),
    )  # fmt: skip


def clipped_descent(
    x: np.ndarray,
    slopes_of: Callable[[np.ndarray], np.ndarray],
    shape: tuple[int, int],
    rng: np.random.Generator,
    *,
    steps: int,
    size: float,
    length: float,
    deviation: float,
    norms: np.ndarray | float = 1.0,
    kept: Callable[[], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Descend for all repeats at once: last iterates, and means of the second half, shape (repeats, d, outcomes).

    `slopes_of` turns predictions, shape (n, repeats * outcomes), into slopes of the loss in them; a row's, times its
    norm, are shortened to `length`. `kept` returns which rows count in a step, shape (n, repeats).
    """
    (n, d), (repeats, outcomes) = x.shape, shape
    norms = np.reshape(norms, (-1, 1))
    theta, total = np.zeros((2, d, repeats * outcomes), x.dtype)
    for step in range(steps):
        slopes = slopes_of(x @ theta)
        each = slopes.reshape(n, repeats, outcomes)
        lengths = norms * (np.sqrt(np.einsum("nro,nro->nr", each, each)) if outcomes > 1 else np.abs(slopes))
        factors = np.minimum(1.0, length / np.maximum(lengths, 1e-30))
        if kept is not None:
            factors *= kept()
        slopes *= np.repeat(factors, outcomes, axis=1) if outcomes > 1 else factors
        theta += size * (deviation * rng.standard_normal(theta.shape, x.dtype) - x.T @ slopes)
        if 2 * step >= steps - 1:
            total += theta
    means = total / (steps - math.ceil((steps - 1) / 2))
    return [one.reshape(d, repeats, outcomes).transpose(1, 0, 2) for one in (theta, means)]


def adassp_settings(exact: Exact, quick: bool) -> Iterator[tuple]:
    x, y = exact.table.x, exact.table.y

    def bounds(rows, declared):
        norms = np.linalg.norm(rows, axis=1)
        return sorted({declared} | {float(np.quantile(norms, q)) for q in ((0.9,) if quick else (0.5, 0.8, 0.95, 1.0))})

    shares = ((1 / 3, 1 / 3, 1 / 3), (0.1, 0.45, 0.45), (0.05, 0.25, 0.7), (0.05, 0.7, 0.25))
    ridges = (0.0, 0.03, 0.1, 0.3, 1.0)
    for bound_x, bound_y in itertools.product(bounds(x, exact.table.bound_x), bounds(y, exact.table.bound_y)):
        clipped_x, clipped_y = within(x, bound_x), within(y, bound_y)
        sums = clipped_x.T @ clipped_x, clipped_x.T @ clipped_y
        for part, ridge in itertools.product(shares, ridges):
            yield sums, bound_x, bound_y, part, ridge


def adassp(exact: Exact, setting: tuple, repeats: int, rng: np.random.Generator) -> np.ndarray:
    (xx, xy), bound_x, bound_y, shares, factor = setting
    d, scale, failure = len(xx), gaussian_scale(EPSILON, DELTA), 0.05
    smallest, noise_xx, noise_xy = (scale / math.sqrt(share) for share in shares)
    noise_xx, noise_xy = noise_xx * bound_x**2, noise_xy * bound_x * bound_y
    wanted = noise_xx * math.sqrt(d * math.log(2.0 * d**2 / failure))
    eigenvalue = float(linalg.eigvalsh(xx)[0])
    found = []
    for _ in range(repeats):
        low = eigenvalue + smallest * bound_x**2 * (rng.normal() - math.sqrt(2.0 * math.log(1.0 / failure)))
        ridge = factor * max(0.0, wanted - max(low, 0.0))
        upper = np.triu(noise_xx * rng.normal(size=(d, d)))
        noisy = xx + upper + np.triu(upper, 1).T + ridge * np.eye(d)
        found.append(linalg.solve(noisy, xy + noise_xy * rng.normal(size=xy.shape), assume_a="sym"))
    return exact.excess(np.array(found))


def diffprivlib_settings(exact: Exact, quick: bool) -> Iterator[tuple]:
    yield from itertools.product((1.0,) if quick else (1.0, 0.5, 0.2, 0.1), repeat=2)


def diffprivlib(exact: Exact, setting: tuple, repeats: int, rng: np.random.Generator) -> np.ndarray:
    """Fit on bounds of every entry, as it wants them: shares of the declared bounds of a row."""
    from diffprivlib.models import LinearRegression

    x, y = exact.table.x, exact.table.y
    bound_x, bound_y = setting[0] * exact.table.bound_x, setting[1] * exact.table.bound_y
    found = []
    for _ in range(min(repeats, TRIED)):
        seed = int(rng.integers(1 << 31))
        boxes = {"bounds_X": (-bound_x, bound_x), "bounds_y": (-bound_y, bound_y)}
        model = LinearRegression(epsilon=EPSILON, **boxes, fit_intercept=False, random_state=seed)
        model.fit(x, y)
        found.append(model.coef_.reshape(y.shape[1], -1).T)
    return exact.excess(np.array(found))


class Rival(NamedTuple):
    settings: Callable[[Exact, bool], Iterator[tuple]]
    run: Callable[[Exact, tuple, int, np.random.Generator], np.ndarray]

    def best(self, exact: Exact, repeats: int, quick: bool) -> tuple[float, str]:
        """Return the least mean excess over settings, and the setting."""
        tried = []
        for setting in self.settings(exact, quick):
            found = _mean(self.run(exact, setting, min(TRIED, repeats), np.random.default_rng(1)))
            tried = sorted([*tried, (found, setting)], key=lambda one: one[0])[:KEPT]
        rng = np.random.default_rng(2)
        error, setting = min(((_mean(self.run(exact, one, repeats, rng)), one) for _, one in tried), key=lambda x: x[0])
        # Predicting zero is a setting too: no step.
        nothing = float(exact.excess(np.zeros_like(exact.coef)))
        named = [f"{one:.3g}" for one in setting if isinstance(one, float | int)]
        return (error, " ".join(named)) if error <= nothing else (nothing, "zero")


def rivals() -> dict[str, Rival]:
    found = {DESCENT: Rival(descent_settings, descent), AVERAGED: Rival(descent_settings, averaged)}
    found |= {ADASSP: Rival(adassp_settings, adassp)}
    try:
        import_module("diffprivlib.models")
    except ImportError:
        print("diffprivlib does not import here: it is left out")
    else:
        found[DIFFPRIVLIB] = Rival(diffprivlib_settings, diffprivlib)
    return found


def ours(exact: Exact, repeats: int, **options: Any) -> float:
    """Return the mean excess of MultiOutcomeRidge."""
    table = exact.table
    rows, own = table.natural or (table.x, {"bound_x": table.bound_x})
    found = []
    for seed in range(repeats):
        model = MultiOutcomeRidge(
            EPSILON, DELTA, **own, bound_y=table.bound_y, adjacency="add_remove", random_state=seed, **options
        )
        found.append(exact.excess_of_predictions(model.fit(rows, table.y).predict(rows)))
    return _mean(found)


def _mean(found) -> float:
    """Return the mean, of which a repeat that failed makes infinity."""
    mean = float(np.mean(found))
    return mean if math.isfinite(mean) else math.inf


# Parts.


def regression(quick: bool) -> None:
    repeats = 4 if quick else 20
    others = rivals()
    rows = []
    for table in tables(quick):
        start, exact = time.perf_counter(), Exact(table)
        own = {name: ours(exact, repeats, **options) for name, options in OURS.items()}
        found = {name: rival.best(exact, repeats, quick) for name, rival in others.items()}
        leader = min(found, key=lambda name: found[name][0])
        ratio = own["ours"] / found[leader][0]
        row = {"table": table.name, "R^2": 1.0 - _unexplained(exact)} | own
        row |= {name: error for name, (error, _) in found.items()}
        rows.append(row | {"ours / best rival": ratio, "best rival (setting)": f"{leader} ({found[leader][1]})"})
        show(rows, time.perf_counter() - start)
    names = list(others)
    for left_out in ([], [AVERAGED]):
        best = [min(row[name] for name in names if name not in left_out) for row in rows]
        reached = sum(row["ours"] <= 1.5 * error for row, error in zip(rows, best, strict=True))
        without = f", but for {AVERAGED}" if left_out else ""
        print(f"ahead of every rival{without}, or within 1.5 times: {reached} of {len(rows)} tables")


def _unexplained(exact: Exact) -> float:
    return float(np.mean(np.sum((exact.table.y - exact.predicted) ** 2, axis=1))) / exact.power


def units(quick: bool) -> None:
    repeats = 10 if quick else 100
    x, y = job_rows(np.random.default_rng(0), 20_000)
    design = np.column_stack([x, np.ones(len(x))])
    exact = linalg.lstsq(design, y)[0]
    rows = [{"method": "least squares", "R^2": 1.0 - np.var(y - design @ exact) / np.var(y), "smoker": exact[1]}]
    for name, options in OURS.items():
        squares, within_two, smoker, deviations = [], [], [], []
        for seed in range(repeats):
            model = MultiOutcomeRidge(
                EPSILON, DELTA, bound_x=None, box_x=JOB_LIMITS, bound_y=30.0, fit_intercept=True,
                adjacency="add_remove", random_state=seed, **options,
            ).fit(x, y)  # fmt: skip
            squares.append(1.0 - np.mean((y - model.predict(x)) ** 2) / np.var(y))
            smoker.append(model.coef_[0, 1])
            deviations.append(model.coef_std_[0, 1])
            within_two.append(abs(smoker[-1] - exact[1]) <= 2.0 * deviations[-1])
        measures = {"R^2": _mean(squares), "smoker": _mean(smoker), "standard deviation": _mean(deviations)}
        rows.append({"method": name} | measures | {"within two": _mean(within_two)})
    show(rows, whole=True)


def primo(quick: bool) -> None:
    from papers import primo, primo_accuracy

    repeats, rows = 2 if quick else 20, []
    n = 10_000 if quick else 50_000
    x, y = primo_accuracy.table(np.random.default_rng(0), n)
    truth = linalg.lstsq(x, y)[0]
    explained = float(np.sum((x @ truth) ** 2))
    title = f"Gaussian, n = {n:,}, d = 15, l = 8, delta = 1e-6, {{}}: excess over explained"
    for adjacency in ("replace_one", "add_remove"):
        row = {"table": title.format(adjacency.replace("_", "-"))}
        for name, options in OURS.items():
            found = []
            for seed in range(repeats):
                model = MultiOutcomeRidge(
                    1.0, 1e-6, bound_x=1.0, bound_y=1.0, adjacency=adjacency, random_state=seed, **options
                ).fit(x, y)
                found.append(float(np.sum((x @ (model.coef_.T - truth)) ** 2)) / explained)
            row[name] = _mean(found)
        rows.append(row)
    n, d, count = (5_000, 20, 20) if quick else (20_000, 60, 100)
    data = primo.genotype_table(np.random.default_rng(0), n, d, count)
    explained = np.sum((data.new_x @ data.truth) ** 2, axis=0)
    for adjacency in ("replace_one", "add_remove"):
        row = {"table": f"genotypes, n = {n:,}, d = {d}, l = {count}, delta = 1e-6, {adjacency}: share lost"}
        for name, options in OURS.items():
            found = []
            for seed in range(repeats):
                model, _ = primo.fitted(data, None, seed, adjacency=adjacency, **options)
                lost = np.sum((data.new_x @ (model.coef_.T - data.truth)) ** 2, axis=0)
                found.append(float(np.mean(lost / explained)))
            row[name] = _mean(found)
        rows.append(row)
    show(rows, whole=True)


def control(quick: bool) -> None:
    from papers import synthetic_control_accuracy as paper

    rows = []
    for (n, n_pre), (_, bar) in paper.SIZES.items():
        panels, chosen = 4 if quick else 40, paper.options(n_pre)
        row = {"panel": f"n = {n:,}, T0 = {n_pre}, delta = 1e-6, replace-one", "at most": bar}
        for name in ("default", "mean", "target"):
            row[name] = _mean(paper.relative_errors(n, n_pre, panels, chosen[name]))
        rows.append(row)
    show(rows, whole=True)


def policy(quick: bool) -> None:
    from papers import policy_accuracy as games

    show(list(games.table("add_remove", *((games.SIZES[:1], 2, games.GAMES[:1]) if quick else ()))), whole=True)


def plans(quick: bool) -> None:
    """Plan with the score that least squares reaches, and the mean squared norm that rows have."""
    repeats, rows = 2 if quick else 10, []
    for table in tables(quick):
        exact = Exact(table)
        score = 1.0 - _unexplained(exact)
        features, own = table.natural or (table.x, {"bound_x": table.bound_x})
        public = {"epsilon": EPSILON, "delta": DELTA, "bound_y": table.bound_y, "adjacency": "add_remove"} | own
        spread = float(np.mean(np.sum(table.x**2, axis=1))) / table.bound_x**2
        row = {"table": table.name, "without privacy": score}
        sizes = len(features), features.shape[1], table.y.shape[1]
        for refine in (0, "auto"):
            options = {"refine": refine}
            plan = MultiOutcomeRidge.plan(*sizes, score=score, spread=spread, **public, **options)
            row[f"planned, refine={refine}"] = plan.expected_score
            row[f"got, refine={refine}"] = score - ours(exact, repeats, **options)
        if table.y.shape[1] == 1 and table.natural is None:
            options = public | {"constraint": L2Ball(2.0 * float(np.linalg.norm(exact.coef)))}
            plan = ObjectivePerturbationRegressor.plan(*sizes[:2], score=score, spread=spread, **options)
            fits = (
                ObjectivePerturbationRegressor(**options, random_state=seed).fit(table.x, table.y[:, 0])
                for seed in range(repeats)
            )
            lost = _mean([exact.excess_of_predictions(fit.predict(table.x)) for fit in fits])
            row |= {"planned, objective": plan.expected_score, "got, objective": score - lost}
        rows.append(row)
    show(rows, whole=True)
    classes = []
    for name, (x, y, bound_x) in _classes(quick).items():
        options = {"epsilon": EPSILON, "delta": DELTA, "bound_x": bound_x, "classes": np.unique(y)}
        exact = LogisticRegression(C=1e4, max_iter=1000, fit_intercept=False).fit(x, y).score(x, y)
        plan = ObjectivePerturbationClassifier.plan(*x.shape, score=exact, **options)
        fits = (ObjectivePerturbationClassifier(**options, random_state=seed).fit(x, y) for seed in range(repeats))
        found = _mean([fit.score(x, y) for fit in fits])
        scores = {"without privacy": exact, "planned": plan.expected_score, "got": found}
        classes.append({"classes, replace-one": name} | scores)
    show(classes, whole=True)


def _classes(quick: bool) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Return tables of classes, within bounds on their rows."""
    found = {}
    rng = np.random.default_rng(0)
    for n, d in ((1_000, 5),) if quick else ((1_000, 5), (10_000, 20)):
        x = within(rng.normal(size=(n, d)), 1.3 * math.sqrt(d))
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * x @ np.full(d, d**-0.5)))
        found[f"Gaussian, n = {n:,}, d = {d}"] = x, y.astype(int), 1.3 * math.sqrt(d)
    cancer = breast_cancer(rng)
    found[cancer.name] = cancer.x, (cancer.y[:, 0] > 0.0).astype(int), cancer.bound_x
    pixels = digits(rng)
    found[pixels.name] = pixels.x, pixels.y.argmax(axis=1), pixels.bound_x
    return found


PARTS = {"regression": regression, "units": units, "primo": primo, "control": control, "policy": policy, "plans": plans}


def show(rows: list[dict], seconds: float = 0.0, *, whole: bool = False) -> None:
    """Print the last row, the first one under its heading, or all of them."""
    if whole or len(rows) == 1:
        names = list(dict.fromkeys(name for row in rows for name in row))
        print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
    for row in rows if whole else rows[-1:]:
        cells = [f"{one:.3g}" if isinstance(one, float) else str(one) for one in row.values()]
        timed = f"  ({seconds:.0f} s)" if seconds else ""
        print("| " + " | ".join(cells) + " |" + timed, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="a part; may be given several times")
    parser.add_argument("--quick", action="store_true", help="few repeats and settings, and small tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UtilityWarning)
    warnings.filterwarnings("ignore", category=Warning, module="diffprivlib")
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        for name in options.only or PARTS:
            print(f"\n## {name}\n")
            PARTS[name](options.quick)


if __name__ == "__main__":
    main()
