"""Excess risk of private regressions of eight outcomes at one budget, ours beside the alternatives.

Gaussian features are scaled into the unit ball, outcome rows likewise. Every method sees the same exact moments and is
judged by the excess empirical risk over least squares, summed over outcomes, relative to the risk that least squares
explains. "Printed, made sound" is PRIMO's Algorithm 1 with the classic constant at half the budget each and the
sensitivities sqrt(2) and 2 that replace-one needs, and, for each draw, the best ridge in hindsight. AdaSSP is Wang
(2018), Algorithm 2, with one call for all outcomes; its own adjacency is add/remove, so it is run under both, with
sensitivities to match.

Run ``python benchmarks/papers/primo_accuracy.py --output DIR``: a CSV, a plot, and the ratios on standard output.
"""

import argparse
import csv
import math
import warnings
from pathlib import Path

import numpy as np
from scipy import linalg

from dpfast import MultiOutcomeRidge, statistics

EPSILON, DELTA = 1.0, 1e-6
FEATURES, OUTCOMES = 15, 8


def table(rng, n):
    x = rng.normal(size=(n, FEATURES))
    x /= np.linalg.norm(x, axis=1).max()
    y = x @ rng.normal(size=(FEATURES, OUTCOMES))
    y += 0.5 * y.std() * rng.normal(size=y.shape)
    return x, y / np.linalg.norm(y, axis=1).max()


def symmetric(rng, scale):
    upper = np.triu(rng.normal(scale=scale, size=(FEATURES, FEATURES)))
    return upper + np.triu(upper, 1).T


def printed_made_sound(sums, rng, risk):
    constant = 2.0 * math.sqrt(2.0 * math.log(2.5 / DELTA)) / EPSILON
    xx = sums.xx + symmetric(rng, math.sqrt(2.0) * constant)
    xy = sums.xy + rng.normal(scale=2.0 * constant, size=sums.xy.shape)
    ridges = (0.0, *np.geomspace(1.0, 1e5, 60))
    return min(risk(linalg.solve(xx + ridge * np.eye(FEATURES), xy)) for ridge in ridges)


def ada_ssp(sums, rng, risk, adjacency):
    moved = {"add_remove": (1.0, 1.0, 1.0), "replace_one": (1.0, math.sqrt(2.0), 2.0)}[adjacency]
    root, share = math.sqrt(math.log(6.0 / DELTA)), EPSILON / 3.0
    smallest = linalg.eigvalsh(sums.xx)[0] + moved[0] * root / share * rng.normal() - moved[0] * root**2 / share
    wanted = moved[1] * math.sqrt(FEATURES * math.log(2.0 * FEATURES**2 / 0.05)) * root / share
    xx = sums.xx + symmetric(rng, moved[1] * root / share)
    xy = sums.xy + rng.normal(scale=moved[2] * root / share, size=sums.xy.shape)
    return risk(linalg.solve(xx + max(0.0, wanted - max(smallest, 0.0)) * np.eye(FEATURES), xy))


def diffprivlib_risk(x, y, risk):
    """Pure epsilon, the only budget it offers; features and outcomes bounded by their public boxes."""
    from diffprivlib.models import LinearRegression

    model = LinearRegression(epsilon=EPSILON, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), fit_intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return risk(model.fit(x, y).coef_.T)


def methods(x, y, rng, repeats):
    sums = statistics.gram(x, y, bound_x=1.0, bound_y=1.0)
    truth = linalg.solve(sums.xx, sums.xy)
    explained = float(np.sum(truth * sums.xy))

    def risk(theta):
        return float(np.sum((theta - truth) * (sums.xx @ (theta - truth)))) / explained

    def ours(adjacency, seed):
        model = MultiOutcomeRidge(
            EPSILON, DELTA, bound_x=1.0, bound_y=1.0, adjacency=adjacency, random_state=seed, fit_intercept=False
        )
        return risk(model.fit_gram(sums).coef_.T)

    yield "dpfast, replace-one", [ours("replace_one", seed) for seed in range(repeats)]
    yield "printed made sound, best ridge, replace-one", [printed_made_sound(sums, rng, risk) for _ in range(repeats)]
    yield "AdaSSP, replace-one", [ada_ssp(sums, rng, risk, "replace_one") for _ in range(repeats)]
    yield "dpfast, add-remove", [ours("add_remove", seed) for seed in range(repeats)]
    yield "AdaSSP, add-remove", [ada_ssp(sums, rng, risk, "add_remove") for _ in range(repeats)]
    try:
        yield "diffprivlib, pure", [diffprivlib_risk(x, y, risk) for _ in range(min(repeats, 5))]
    except ImportError:
        print("diffprivlib does not import here: left out")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("primo-accuracy"))
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    sizes = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
    results = []
    for n in sizes:
        for name, risks in methods(*table(rng, n), rng, options.repeats):
            results.append((n, name, np.mean(risks), np.std(risks) / math.sqrt(len(risks))))
        means = {name: mean for size, name, mean, _ in results if size == n}
        print(f"n = {n:,}: dpfast {means['dpfast, replace-one']:.3g}, ratios to it: ", end="")
        others = {name: mean for name, mean in means.items() if "dpfast" not in name}
        print(", ".join(f"{name} {mean / means[_peer(name)]:.3g}" for name, mean in others.items()))
    with (options.output / "primo_accuracy.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["n", "method", "relative_excess_risk", "standard_error"])
        writer.writerows(results)
    plot(results, sizes, options.output / "primo_accuracy.png")


def _peer(name):
    return "dpfast, add-remove" if name.endswith("add-remove") else "dpfast, replace-one"


def plot(results, sizes, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    panel = figure.subplots()
    for method in dict.fromkeys(name for _, name, _, _ in results):
        panel.loglog(sizes, [mean for _, name, mean, _ in results if name == method], marker="o", label=method)
    panel.set_xlabel("people")
    panel.set_ylabel("relative excess risk")
    panel.set_title(f"{FEATURES} features, {OUTCOMES} outcomes, epsilon {EPSILON:g}, delta {DELTA:g}")
    panel.legend(fontsize=8)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
