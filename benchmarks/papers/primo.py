"""PRIMO's regimes, measured (Figure 1 of the paper): many outcomes on one table of features, for every mechanism.

1. Error against the number of outcomes l at fixed n and d: one release an outcome with its budget composed in three
   ways, the shared covariance (ReuseCov), and for public labels the projection. "PRIMO for free" holds while the error
   is that of one outcome.
2. The crossover of projection and no projection, which theory puts at n = l sqrt(d).
3. Run time against l.
4. A genotype-like table: features 0/1/2, thousands of public outcomes.

Errors are excess prediction risks over least squares, a share of what least squares explains, averaged over outcomes.
Run ``python benchmarks/papers/primo.py --output DIR``: CSV files and plots. ``--quick`` takes a minute.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from scipy import linalg

from dpfast import MultiOutcomeRidge
from dpfast.solvers import LabelFactor

EPSILON, DELTA = 1.0, 1e-6
MECHANISMS = {
    "independent, basic": {"mechanism": "independent", "composition": "basic"},
    "independent, advanced": {"mechanism": "independent", "composition": "advanced"},
    "independent, mu": {"mechanism": "independent", "composition": "mu"},
    "ReuseCov": {},
    "projection (public labels)": {"mechanism": "projection", "public_labels": True},
}


def gaussian_table(rng, n, d, outcomes):
    """Rows in the unit ball; outcomes whose rows have norm at most sqrt(outcomes), so that each keeps its size."""
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1).max()
    y = x @ rng.normal(size=(d, outcomes))
    y /= y.std(axis=0)
    y += rng.normal(size=y.shape)
    return x, np.clip(y / 6.0, -1.0, 1.0)


def genotype_table(rng, n, d, outcomes):
    """Minor-allele counts 0/1/2 about their mean, outcomes driven by a few positions each."""
    frequency = rng.uniform(0.05, 0.5, size=d)
    x = rng.binomial(2, frequency, size=(n, d)) - 2.0 * frequency
    x /= 2.0 * np.sqrt(d)
    effects = rng.normal(size=(d, outcomes)) * (rng.random((d, outcomes)) < 5.0 / d)
    y = x @ effects
    y = y / np.maximum(y.std(axis=0), 1e-12) + rng.normal(size=y.shape)
    return x, np.clip(y / 6.0, -1.0, 1.0)


class Judge:
    """Excess prediction risk over least squares, relative to what least squares explains, mean over outcomes."""

    def __init__(self, x, y):
        self.xx, xy = x.T @ x, x.T @ y
        self.truth = linalg.solve(self.xx, xy, assume_a="pos")
        self.explained = np.sum(self.truth * xy, axis=0)

    def __call__(self, model):
        gap = model.coef_.T - self.truth
        return float(np.mean(np.sum(gap * (self.xx @ gap), axis=0) / self.explained))


def fitted(x, y, seed, **parameters):
    bounds = {"bound_x": 1.0, "bound_y": float(np.sqrt(y.shape[1]))}
    return MultiOutcomeRidge(EPSILON, DELTA, random_state=seed, **(bounds | parameters)).fit(x, y)


def errors_against_outcomes(rng, n, d, counts, repeats):
    for outcomes in counts:
        x, y = gaussian_table(rng, n, d, outcomes)
        judge = Judge(x, y)
        for name, parameters in MECHANISMS.items():
            start = time.perf_counter()
            risks = [judge(fitted(x, y, seed, **parameters)) for seed in range(repeats)]
            seconds = (time.perf_counter() - start) / repeats
            yield {"n": n, "d": d, "outcomes": outcomes, "mechanism": name, "risk": np.mean(risks), "seconds": seconds}


def crossover(rng, n, d, ratios, repeats):
    """Error of X'Y itself with and without projection, at l sqrt(d) = ratio * n."""
    for ratio in ratios:
        outcomes = max(1, round(ratio * n / np.sqrt(d)))
        x, y = gaussian_table(rng, n, d, outcomes)
        exact = x.T @ y
        row = {"n": n, "d": d, "outcomes": outcomes, "l sqrt(d) / n": outcomes * np.sqrt(d) / n}
        factor = LabelFactor.from_labels(y)
        released = [fitted(x, y, seed).releases_[0].values["xy"] for seed in range(repeats)]
        row["no projection"] = np.mean([np.mean((xy - exact) ** 2) for xy in released])
        row["projection"] = np.mean([np.mean((factor.project(xy, 1.0) - exact) ** 2) for xy in released])
        row["signal"] = np.mean(exact**2)
        yield row


def genotypes(rng, n, d, outcomes, repeats):
    x, y = genotype_table(rng, n, d, outcomes)
    judge = Judge(x, y)
    for name in ("ReuseCov", "projection (public labels)"):
        risks = [judge(fitted(x, y, seed, **MECHANISMS[name])) for seed in range(repeats)]
        yield {"n": n, "d": d, "outcomes": outcomes, "mechanism": name, "risk": np.mean(risks)}


def write(rows, path):
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{path.name}")
    for row in rows:
        print(
            "  "
            + ", ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )
    return rows


def plot(panels, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    for panel, (title, horizontal, vertical, curves) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for label, points in curves.items():
            panel.loglog(*zip(*points, strict=True), marker="o", markersize=3, label=label)
        panel.set(title=title, xlabel=horizontal, ylabel=vertical)
        panel.legend(fontsize=7)
    figure.savefig(path, dpi=120)


def curves(rows, key, horizontal, vertical):
    lines = {}
    for row in rows:
        lines.setdefault(row[key], []).append((row[horizontal], row[vertical]))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("primo"))
    parser.add_argument("--quick", action="store_true", help="smaller tables and fewer repeats")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    repeats = 2 if options.quick else 10
    counts = (1, 10, 100, 1000) if options.quick else (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    ratios = (0.1, 1.0, 10.0) if options.quick else (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    by_outcomes = write(errors_against_outcomes(rng, 20_000, 20, counts, repeats), options.output / "outcomes.csv")
    crossing = write(crossover(rng, 2000, 64, ratios, repeats), options.output / "crossover.csv")
    write(genotypes(rng, 2000, 100, 500 if options.quick else 5000, repeats), options.output / "genotypes.csv")
    names = ("no projection", "projection", "signal")
    plot(
        [
            ("error", "outcomes", "relative excess risk", curves(by_outcomes, "mechanism", "outcomes", "risk")),
            ("run time", "outcomes", "seconds", curves(by_outcomes, "mechanism", "outcomes", "seconds")),
            (
                "projection",
                "l sqrt(d) / n",
                "squared error of X'Y",
                {name: [(row["l sqrt(d) / n"], row[name]) for row in crossing] for name in names},
            ),
        ],
        options.output / "primo.png",
    )


if __name__ == "__main__":
    main()
