"""Ours beside the best public algorithms, each written from its paper: errors, their ratio, and its standard error.

    python -m benchmarks.rivals                     all parts
    python -m benchmarks.rivals --only sparse       one of them
    python -m benchmarks.rivals --quick             few repeats and settings

Rivals are given what they do not pay for: the setting, of a grid, with the least mean error on the very table, chosen
after the fact. What they release has the noise that its guarantee asks for. Neighbours are add/remove, as in the
rivals' papers; ours has its defaults, and no setting. Errors are mean squares of differences from the predictions of
least squares (of plain matching pursuit, where features are chosen), over the variance of the outcomes. Regressions
have an intercept: to rivals a column of ones is given.

- *Averaged descent*: gradients clipped row by row, noise of mu/sqrt(steps), the mean of the second half of the
  iterates (Abadi and others 2016; Shamir and Zhang 2013).
- *Boosted AdaSSP*: X'X and its least eigenvalue once, then X' clip(residuals) again and again, each solved with the
  same ridge (Tang and others 2023, "Improved differentially private regression via gradient boosting", Algorithm 1).
- *AdaSSP*: X'X, its least eigenvalue and X'y, once, and the ridge that those ask for (Wang 2018).
- *Constant*: the mean of the outcomes, released for the whole budget.
- *Oracle*: **not private**. X'X is known exactly, and the scores of whitened rows at least squares, clipped by the best
  of a grid, are released in one step for the whole budget: what nobody can know of a table is given away.
- *TukeyEM*: least squares on disjoint parts, and the exponential mechanism for their approximate Tukey depth, behind a
  test of whether that is private (Amin, Joseph, Ribero and Vassilvitskii 2023, "Easy differentially private linear
  regression", Algorithms 1 and 2), with the Laplace noise that the test needs: 2/epsilon (their code draws epsilon/2:
  docs/defects.md); its neighbours have one row replaced, as its parts have public sizes.
- *Top features*: peeling of the features with the largest |x'y|, one exponential pick each, by the composition of
  `dpfast.privacy.picks_range`; then AdaSSP on those (as in Thakurta and Smith 2013, and Amin and others 2024).
- *Pursuit in hindsight*: matching pursuit as ours, with the best clips and shares of a grid, quantiles of exact
  residuals at no cost, in place of counts that choose them; the features so far are fitted by AdaSSP.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from sklearn import datasets
from threadpoolctl import threadpool_limits

from dpfast import MultiOutcomeRidge, SparseRegression, UtilityWarning
from dpfast.privacy import gaussian_mu, picks_range

DELTA = 1e-6
EPSILONS = (0.3, 1.0, 3.0)
# Settings are tried on few repeats, and the best of them on all.
TRIED, KEPT = 4, 4


class Table(NamedTuple):
    """Rows with entries in [-1, 1] and outcomes in [-1, 1]: public bounds."""

    name: str
    x: np.ndarray
    y: np.ndarray
    #: Features to choose.
    size: int = 3


def _scaled(columns: np.ndarray) -> np.ndarray:
    low, high = columns.min(axis=0), columns.max(axis=0)
    return (2.0 * columns - low - high) / np.where(high > low, high - low, 1.0)


def _levels(shares: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Indicators of a category, the first level dropped."""
    drawn = rng.choice(len(shares), n, p=shares / shares.sum())
    return (drawn[:, None] == np.arange(1, len(shares))).astype(float)


def _drawn(rng: np.random.Generator, x: np.ndarray, noise: float, name: str, shape: Any = None) -> Table:
    """A table whose outcomes are linear, of the given noise over signal; `shape` turns them, if they are skewed."""
    signal = x @ (rng.normal(size=x.shape[1]) / np.maximum(x.std(axis=0), 1e-9))
    signal = (signal - signal.mean()) / signal.std()
    y = signal + noise * rng.normal(size=len(x))
    return Table(f"{name}, {len(x):,} x {x.shape[1]}", _scaled(x), _scaled(y if shape is None else shape(y)))


def tables(quick: bool) -> Iterator[Table]:
    """Yield drawn tables and those that scikit-learn carries: few people, near collinear, rare levels, skewed."""
    rng = np.random.default_rng(0)
    yield _drawn(rng, rng.uniform(-1.0, 1.0, (2_000, 5)), 0.5, "independent")
    if quick:
        return
    for name, load in {
        "diabetes": datasets.load_diabetes,
        "breast cancer": datasets.load_breast_cancer,
        "wine": datasets.load_wine,
    }.items():
        x, y = load(return_X_y=True)
        yield Table(f"{name}, {len(x):,} x {x.shape[1]}", _scaled(x), _scaled(np.asarray(y, float)))
    x, y = datasets.load_digits(return_X_y=True)
    yield Table(f"digits, even or odd, {len(x):,} x 64", _scaled(x), 2.0 * (y % 2) - 1.0)
    common = rng.normal(size=(800, 1))
    yield _drawn(rng, 3.0 * common + rng.normal(size=(800, 8)), 1.0, "correlated")
    yield _drawn(rng, rng.normal(size=(1_200, 6)), 1.0, "costs", lambda y: np.minimum(np.exp(y), 20.0))
    x = rng.uniform(-1.0, 1.0, 5_000)
    yield _drawn(rng, x[:, None] ** np.arange(1, 7), 0.5, "powers")
    turned = linalg.qr(rng.normal(size=(20, 20)))[0]
    steep = rng.normal(size=(20_000, 20)) * np.geomspace(1.0, 0.03, 20) @ turned
    yield _drawn(rng, steep, 0.5, "steep spectrum")
    x = np.column_stack([rng.normal(size=(3_000, 3)), _levels(1.0 / np.arange(1, 13), 3_000, rng)])
    yield _drawn(rng, x, 1.0, "twelve levels")
    x = (rng.random((8_000, 8)) < np.geomspace(0.005, 0.5, 8)).astype(float)
    yield _drawn(rng, x, 1.0, "indicators of .5 to 50%")
    x = np.column_stack([_levels(1.0 / np.arange(1, 21), 20_000, rng) for _ in range(2)])
    yield _drawn(rng, x, 2.0, "two of twenty levels")
    yield _drawn(rng, rng.normal(size=(5_000, 5)), 1.0, "many zeros", lambda y: np.clip(y - 1.0, 0.0, 4.0))
    yield _drawn(rng, rng.gamma(0.5, size=(20_000, 10)), 1.0, "skewed features")
    yield _drawn(rng, rng.uniform(-1.0, 1.0, (20_000, 20)), 0.5, "independent")


def sparse_tables(quick: bool) -> Iterator[Table]:
    """Yield tables of more features: drawn, and diabetes with squares and products."""
    for n, p, size in ((500, 60, 3),) if quick else ((500, 60, 3), (2_000, 200, 5)):
        rng = np.random.default_rng(1)
        x = rng.uniform(-1.0, 1.0, (n, p))
        theta = np.zeros(p)
        theta[rng.choice(p, size, replace=False)] = rng.choice([-1.0, 1.0], size) * rng.uniform(0.5, 1.0, size) / 2.0
        yield Table(f"drawn, {n:,} x {p}", x, np.clip(x @ theta + 0.1 * rng.normal(size=n), -1.0, 1.0), size)
    if quick:
        return
    x, y = datasets.load_diabetes(return_X_y=True)
    x = _scaled(x)
    x = np.column_stack([x, *(x[:, i] * x[:, j] for i in range(10) for j in range(i, 10))])
    yield Table("diabetes and products, five times", np.tile(x, (5, 1)), np.tile(_scaled(y), 5))


def _pursued(x: np.ndarray, y: np.ndarray, size: int) -> np.ndarray:
    picked: list[int] = []
    left = y
    for _ in range(size):
        scores = np.abs(x.T @ left)
        scores[picked] = -1.0
        picked.append(int(np.argmax(scores)))
        left = y - x[:, picked] @ linalg.lstsq(x[:, picked], y)[0]
    theta = np.zeros(x.shape[1])
    theta[picked] = linalg.lstsq(x[:, picked], y)[0]
    return theta


# Rivals: coefficients of one run, of a table, epsilon, a setting and a generator of noise.

Run = Callable[[Table, float, Any, np.random.Generator], np.ndarray]


def _clipped(values: np.ndarray, most: float) -> np.ndarray:
    return np.clip(values, -most, most)


def descent(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """Averaged clipped descent: a row's gradient has the length `clip` at most, and so has what a person adds."""
    steps, size, clip = setting
    x, y, (n, d) = table.x, table.y, table.x.shape
    noise = clip * math.sqrt(steps) / gaussian_mu(epsilon, DELTA)
    norms = np.maximum(np.linalg.norm(x, axis=1), 1e-12)
    theta, total, kept = np.zeros(d), np.zeros(d), 0
    for step in range(steps):
        gradients = x.T @ (_clipped((x @ theta - y) * norms, clip) / norms)
        theta = theta - size / n * (gradients + noise * rng.normal(size=d))
        if 2 * step >= steps - 1:
            total, kept = total + theta, kept + 1
    return total / kept


def descent_settings(table: Table, quick: bool) -> Iterator[Any]:
    x, y = table.x, table.y
    largest = float(linalg.eigvalsh(x.T @ x / len(x))[-1])
    left = np.linalg.norm(x, axis=1) * np.abs(y - x @ linalg.lstsq(x, y)[0])
    steps, sizes, quantiles = (
        ((10,), (1.0,), (0.9,)) if quick else ((3, 10, 30, 100), (0.3, 1.0, 2.0), (0.3, 0.7, 0.95))
    )
    for taken, size, q in itertools.product(steps, sizes, quantiles):
        yield taken, size / largest, float(np.quantile(left, q))


def _noisy_moments(x: np.ndarray, mus: tuple[float, float], rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return noisy X'X and AdaSSP's ridge for rows of entries in [-1, 1]: a person adds a matrix of norm d at most."""
    d = x.shape[1]
    xx, failure = x.T @ x, 0.05
    least = float(linalg.eigvalsh(xx)[0]) + d / mus[0] * (rng.normal() - math.sqrt(2.0 * math.log(1.0 / failure)))
    upper = np.triu(d / mus[1] * rng.normal(size=(d, d)))
    wanted = d / mus[1] * math.sqrt(d * math.log(2.0 * d**2 / failure))
    return xx + upper + np.triu(upper, 1).T, max(0.0, wanted - max(least, 0.0))


def boosted(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """Boosted AdaSSP: every round releases X' clip(residuals), of which a person adds sqrt(d) clip at most."""
    rounds, clip, part, factor = setting
    x, y, d = table.x, table.y, table.x.shape[1]
    mu = gaussian_mu(epsilon, DELTA)
    shares = 0.05, (1.0 - part) * 0.95, part * 0.95
    smallest, of_xx, of_rounds = (mu * math.sqrt(share) for share in shares)
    xx, ridge = _noisy_moments(x, (smallest, of_xx), rng)
    values, vectors = linalg.eigh(xx)
    inverse = (vectors / np.maximum(values + factor * ridge, 1e-3 * len(x))) @ vectors.T
    noise = math.sqrt(d) * clip * math.sqrt(rounds) / of_rounds
    theta = np.zeros(d)
    for _ in range(rounds):
        theta = theta + inverse @ (x.T @ _clipped(y - x @ theta, clip) + noise * rng.normal(size=d))
    return theta


def boosted_settings(table: Table, quick: bool) -> Iterator[Any]:
    left = np.abs(table.y - table.x @ linalg.lstsq(table.x, table.y)[0])
    clips = [float(np.quantile(left, q)) for q in ((0.9,) if quick else (0.5, 0.8, 0.95))] + [1.0]
    rounds, parts, factors = ((1, 5), (0.5,), (1.0,)) if quick else ((1, 3, 10, 30), (0.3, 0.7), (0.1, 0.3, 1.0))
    yield from itertools.product(rounds, clips, parts, factors)


def distance_to_unsafety(log_volumes: np.ndarray, epsilon: float, delta: float, t: int) -> int:
    """Return a bound on how many models lie between these and some for which depths above t are not private.

    `log_volumes[i]` is of the region of depth i + 1 at least. The largest k with, for some g > 0, volumes
    V(t - k - 1)/V(t + k + g + 1) exp(-epsilon g/2) of at most delta/(8 e^epsilon), less one: -1 where none is.
    """
    threshold = math.log(delta / 8.0) - epsilon
    for k in range(t - 1):
        beyond = log_volumes[t + k + 1 :]
        if not len(beyond):
            return k - 1
        g = np.arange(1, len(beyond) + 1)
        if not np.any(log_volumes[t - k - 2] - beyond - epsilon * g / 2.0 <= threshold):
            return k - 1
    return t - 2


def tukey(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """TukeyEM: half of epsilon tests, half picks a depth; zeros where the test fails."""
    x, y, (n, d), half = table.x, table.y, table.x.shape, epsilon / 2.0
    parts = np.array_split(rng.permutation(n), setting)
    models = np.array([linalg.lstsq(x[part], y[part])[0] for part in parts])
    ordered = np.sort(models + 1e-10 * rng.random(models.shape), axis=0)
    widths = (ordered[::-1] - ordered)[: setting // 2]
    log_volumes = np.log(np.maximum(widths, 1e-300)).sum(axis=1)
    t = setting // 4
    distance = distance_to_unsafety(log_volumes, half, DELTA, t)
    if distance + rng.laplace(scale=1.0 / half) <= math.log(1.0 / (2.0 * DELTA)) / half:
        return np.zeros(d)
    # A shell of a depth, and a point of it: of the box of that depth, outside of the next.
    deep = log_volumes[t - 1 :]
    shells = deep + np.log1p(-np.append(np.exp(np.diff(deep)), 0.0).clip(0.0, 1.0 - 1e-15))
    scores = shells + half * np.arange(len(deep))
    depth = t - 1 + int(np.argmax(scores + rng.gumbel(size=len(scores))))
    while True:
        point = rng.uniform(ordered[depth], ordered[-1 - depth])
        deeper = depth + 1
        if deeper >= len(log_volumes) or not np.all((ordered[deeper] <= point) & (point <= ordered[-1 - deeper])):
            return point


def tukey_settings(table: Table, quick: bool) -> Iterator[Any]:
    n, d = table.x.shape
    yield from (m for m in ((100, 400) if quick else (100, 200, 400, 1_000, 2_000)) if m * d <= n)


def _on(table: Table, features: np.ndarray, left: np.ndarray) -> Table:
    return Table("", table.x[:, features], left)


def top_features(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """Peel by |x'clip(y)|, then AdaSSP: half of mu^2 or so for either, picks by the range that is left them."""
    share, clip = setting
    mu = gaussian_mu(epsilon, DELTA)
    rest = mu * math.sqrt(1.0 - share)
    rate = picks_range(epsilon, DELTA, table.size, rest) / (2.0 * clip)
    scores = rate * np.abs(table.x.T @ _clipped(table.y, clip)) + rng.gumbel(size=table.x.shape[1])
    features = np.argsort(-scores)[: table.size]
    theta = np.zeros(table.x.shape[1])
    theta[features] = _adassp(_on(table, features, table.y), rest, 1.0, rng)
    return theta


def _adassp(table: Table, mu: float, clip: float, rng: np.random.Generator) -> np.ndarray:
    d = table.x.shape[1]
    xx, ridge = _noisy_moments(table.x, (mu * math.sqrt(0.1), mu * math.sqrt(0.45)), rng)
    noise = math.sqrt(d) * clip / (mu * math.sqrt(0.45))
    values, vectors = linalg.eigh(xx)
    inverse = (vectors / np.maximum(values + 0.3 * ridge, 1e-3 * len(table.x))) @ vectors.T
    return inverse @ (table.x.T @ _clipped(table.y, clip) + noise * rng.normal(size=d))


def top_settings(table: Table, quick: bool) -> Iterator[Any]:
    quantiles = (0.5,) if quick else (0.3, 0.5, 0.7, 0.9)
    clips = [float(np.quantile(np.abs(table.y), q)) for q in quantiles]
    yield from itertools.product((0.5,) if quick else (0.3, 0.5, 0.7), clips)


def hindsight(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """Matching pursuit: clips are quantiles of the exact sizes of residuals, at no cost."""
    share, of_steps, quantile = setting
    mu, size = gaussian_mu(epsilon, DELTA), table.size
    rest = mu * math.sqrt(1.0 - share)
    length = picks_range(epsilon, DELTA, size, rest)
    theta, picked = np.zeros(0), np.zeros(0, int)
    for number in range(size):
        left = table.y - table.x[:, picked] @ theta
        clip = max(float(np.quantile(np.abs(left), quantile)), 1e-3)
        scores = length / (2.0 * clip) * np.abs(table.x.T @ _clipped(left, clip)) + rng.gumbel(size=table.x.shape[1])
        scores[picked] = -np.inf
        picked, theta = np.append(picked, int(np.argmax(scores))), np.append(theta, 0.0)
        last = number == size - 1
        part = rest * math.sqrt(1.0 - of_steps if last else of_steps / max(size - 1, 1))
        clip = max(float(np.quantile(np.abs(left), 0.9)), 1e-3)
        theta = theta + _adassp(_on(table, picked, left), part, clip, rng)
    found = np.zeros(table.x.shape[1])
    found[picked] = theta
    return found


def hindsight_settings(table: Table, quick: bool) -> Iterator[Any]:
    yield from ((0.5, 0.3, 0.4),) if quick else itertools.product((0.3, 0.5, 0.7), (0.2, 0.4), (0.3, 0.4, 0.6))


def adassp(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """AdaSSP for the whole budget, with outcomes held to `setting`."""
    return _adassp(table, gaussian_mu(epsilon, DELTA), setting, rng)


def adassp_settings(table: Table, quick: bool) -> Iterator[Any]:
    quantiles = (1.0,) if quick else (0.8, 0.95, 1.0)
    yield from (float(np.quantile(np.abs(table.y), q)) for q in quantiles)


def constant(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """The mean alone: the last column is the constant."""
    theta = np.zeros(table.x.shape[1])
    theta[-1] = table.y.mean() + rng.normal() / (len(table.y) * gaussian_mu(epsilon, DELTA))
    return theta


def oracle(table: Table, epsilon: float, setting: Any, rng: np.random.Generator) -> np.ndarray:
    """One step from the exact least squares, where the rest of the scores is 0: noise, and the bias of the clip."""
    x, y = table.x, table.y
    best = linalg.lstsq(x, y)[0]
    values, vectors = linalg.eigh(x.T @ x / len(x))
    kept = values > 1e-9 * values[-1]
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    rows = x @ whiten
    scores = rows * (y - x @ best)[:, None]
    sizes = np.linalg.norm(scores, axis=1)
    clip = float(np.quantile(sizes, setting))
    total = (scores * np.minimum(1.0, clip / np.maximum(sizes, 1e-300))[:, None]).mean(axis=0)
    noise = clip / (len(x) * gaussian_mu(epsilon, DELTA)) * rng.normal(size=rows.shape[1])
    return best + whiten @ (total + noise)


def oracle_settings(table: Table, quick: bool) -> Iterator[Any]:
    yield from (0.9,) if quick else (0.5, 0.8, 0.95, 0.99)


RIVALS: dict[str, dict[str, tuple[Run, Callable[[Table, bool], Iterator[Any]]]]] = {
    "regression": {
        "averaged descent": (descent, descent_settings),
        "boosted AdaSSP": (boosted, boosted_settings),
        "AdaSSP": (adassp, adassp_settings),
        "TukeyEM": (tukey, tukey_settings),
        "constant": (constant, lambda table, quick: iter([()])),
        "oracle": (oracle, oracle_settings),
    },
    "sparse": {
        "top features": (top_features, top_settings),
        "pursuit in hindsight": (hindsight, hindsight_settings),
    },
}


def ours(part: str, table: Table, epsilon: float) -> np.ndarray:
    """Return coefficients of one fit of ours, in a regression that of the constant last."""
    given: dict[str, Any] = {"bound_y": 1.0, "adjacency": "add_remove"}
    if part == "sparse":
        return SparseRegression(epsilon, DELTA, n_nonzero=table.size, **given).fit(table.x, table.y).coef_
    fitted = MultiOutcomeRidge(epsilon, DELTA, box_x=(-1.0, 1.0), **given).fit(table.x[:, :-1], table.y)
    return np.append(fitted.coef_.ravel(), fitted.intercept_)


def errors(table: Table, best: np.ndarray, fits: list[np.ndarray]) -> np.ndarray:
    gaps = np.array([table.x @ (theta - best) for theta in fits])
    return np.mean(gaps**2, axis=1) / table.y.var()


def compared(part: str, table: Table, epsilon: float, repeats: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a line a rival, each at its best setting; of which predicting zero is one."""
    if part == "regression":
        table = table._replace(x=np.column_stack([table.x, np.ones(len(table.x))]))
    x, y = table.x, table.y
    best = _pursued(x, y, table.size) if part == "sparse" else linalg.lstsq(x, y)[0]
    own = errors(table, best, [ours(part, table, epsilon) for _ in range(repeats)])
    for name, (run, settings) in RIVALS[part].items():
        rng, zero = np.random.default_rng(0), np.zeros(len(best))
        tried = [(errors(table, best, [zero]).mean(), None)]
        for setting in settings(table, quick):
            tried.append(
                (errors(table, best, [run(table, epsilon, setting, rng) for _ in range(TRIED)]).mean(), setting)
            )
        tried = [tried[0], *sorted(tried[1:], key=lambda one: one[0])[:KEPT]]
        found = [
            errors(
                table, best, [zero if setting is None else run(table, epsilon, setting, rng) for _ in range(repeats)]
            )
            for _, setting in tried
        ]
        theirs = min(found, key=np.mean)
        ratio = own.mean() / theirs.mean()
        spread = [one.std() / (math.sqrt(repeats) * one.mean()) for one in (own, theirs)]
        yield {
            "table": table.name,
            "epsilon": epsilon,
            "rival": name,
            "ours": own.mean(),
            "theirs": theirs.mean(),
            "ratio": ratio,
            "standard error": ratio * math.hypot(*spread),
        }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=tuple(RIVALS), help="a part; may be given several times")
    parser.add_argument("--quick", action="store_true", help="few repeats and settings, and small tables")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", UtilityWarning)
    with threadpool_limits(1):
        for part in options.only or RIVALS:
            print(f"\n## {part}, delta = {DELTA:g}, add/remove\n")
            header = "table", "epsilon", "rival", "ours", "theirs", "ratio", "standard error"
            print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
            for table in (sparse_tables if part == "sparse" else tables)(options.quick):
                for epsilon in EPSILONS[1:2] if options.quick else EPSILONS:
                    for row in compared(part, table, epsilon, 4 if options.quick else 40, options.quick):
                        cells = [f"{one:.3g}" if isinstance(one, float) else one for one in row.values()]
                        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
