"""PRIMO's regimes, measured (Figure 1 of the paper): many outcomes on one table of features, for every mechanism.

- ``outcomes``: error and run time against the number of outcomes l at fixed n and d, where the noise in X'Y soon
  dominates: one release an outcome with its budget composed in three ways, the shared covariance (ReuseCov), for public
  labels the projection, and the fit without privacy.
- ``free``: the same where coefficients are large for their outcomes, so that the noise in X'X dominates: "PRIMO for
  free", an error that hardly grows with l. Printed: up to which l it stays within 1.1 and 2 times that of one outcome.
- ``crossover``: squared error of X'Y with and without projection. Theory puts the crossover at n = l sqrt(d), up to the
  constant of the Gaussian mechanism.
- ``genotypes``: allele counts 0/1/2 and thousands of public phenotypes.
- ``subsampling``: error and run time against the share s/n of rows that X'X is summed over (Algorithm 4), ours and as
  printed, whose noise is too small for its claim: its ``guaranteed`` flag says so. Beside ours, the penalty that would
  have been best for each draw.

Outcomes are signs with E[y | x] = x'w, so that the true coefficients w are known. Errors are excess risks of predicting
rows that were not fitted, over those of w, as a share of what w explains, averaged over outcomes: 1 is no better than
predicting zero. Run ``python benchmarks/papers/primo.py --output DIR``: a CSV file and a plot for each. ``--quick``
takes half a minute, the full run some ten minutes. BLAS keeps to one thread, which is steadier where cores are shared.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

from dpfast import MultiOutcomeRidge
from dpfast.privacy import UnsoundCalibrationWarning
from dpfast.solvers import LabelFactor, positive_semidefinite

EPSILON, DELTA = 1.0, 1e-6
RISK = "relative excess risk"
SHARED = "ReuseCov"
PROJECTED = "projection (public labels)"
OURS, PRINTED = "SubSampReuseCov", "as printed"
MECHANISMS = {
    "independent, basic": {"mechanism": "independent", "composition": "basic"},
    "independent, advanced": {"mechanism": "independent", "composition": "advanced"},
    "independent, mu": {"mechanism": "independent", "composition": "mu"},
    SHARED: {},
    PROJECTED: {"mechanism": "projection", "public_labels": True},
    "not private": {"epsilon": np.inf},
}


class Table(NamedTuple):
    """Features and signs to fit, features to be judged on, true coefficients, and the bound on a row."""

    x: np.ndarray
    y: np.ndarray
    new_x: np.ndarray
    truth: np.ndarray
    bound: float


class Panel(NamedTuple):
    """Curves of one plot: label to points."""

    title: str
    horizontal: str
    vertical: str
    curves: dict


def signs(rng, x, truth):
    """Outcomes of +1 and -1 with mean x'w, which lies in [-1, 1]; a block of outcomes at a time."""
    y = np.empty((len(x), truth.shape[1]), np.int8)
    for start in range(0, truth.shape[1], 64):
        block = slice(start, start + 64)
        mean = x @ truth[:, block]
        y[:, block] = np.where(2.0 * rng.random(mean.shape) - 1.0 < mean, 1, -1)
    return y


def table(rng, n, d, outcomes, lengths=(0.7, 1.0), shared=0.0):
    """Rows in the unit ball, with a share of their length in one direction that no outcome depends on.

    Outcomes vary with the other directions as much as signs can: the larger `shared`, the larger their coefficients.
    """
    z = rng.normal(size=(2 * n, d - 1))
    z *= (rng.uniform(*lengths, size=2 * n) * np.sqrt(1.0 - shared) / np.linalg.norm(z, axis=1))[:, None]
    x = np.column_stack([z, np.sqrt(shared) * rng.choice([-1.0, 1.0], size=2 * n)])
    truth = rng.normal(size=(d, outcomes))
    truth[-1] = 0.0
    truth /= np.linalg.norm(truth, axis=0) * np.sqrt(1.0 - shared)
    return Table(x[:n], signs(rng, x[:n], truth), x[n:], truth, 1.0)


def genotype_table(rng, n, d, outcomes):
    """Allele counts about their mean; each phenotype is driven by a few positions. Frequencies are public."""
    frequency = rng.uniform(0.05, 0.5, size=d)
    x = rng.binomial(2, frequency, size=(2 * n, d)) - 2.0 * frequency
    truth = rng.normal(size=(d, outcomes)) * (rng.random((d, outcomes)) < 5.0 / d)
    truth[rng.integers(d, size=outcomes), np.arange(outcomes)] += 1.0
    truth /= np.abs(x @ truth).max(axis=0)
    bound = np.sqrt(1.5 * np.sum(2.0 * frequency * (1.0 - frequency)))
    return Table(x[:n], signs(rng, x[:n], truth), x[n:], truth, bound)


def fitted(data, columns, seed, **parameters):
    y = data.y if columns is None else np.ascontiguousarray(data.y[:, columns])
    bounds = {"bound_x": data.bound, "bound_y": float(np.sqrt(y.shape[1]))}
    options = {"epsilon": EPSILON, "delta": DELTA, "random_state": seed} | bounds | parameters
    start = time.perf_counter()
    model = MultiOutcomeRidge(**options).fit(data.x, y)
    return model, time.perf_counter() - start


def risks_against_outcomes(data, counts, quick):
    """Mean risk of an outcome, over fits of randomly chosen outcomes."""
    rng = np.random.default_rng(1)
    new_xx = data.new_x.T @ data.new_x
    explained = np.sum(data.truth * (new_xx @ data.truth), axis=0)
    for outcomes in counts:
        repeats = int(np.clip((30 if quick else 300) / outcomes, 2, 100))
        chosen = [rng.choice(data.y.shape[1], outcomes, replace=False) for _ in range(repeats)]
        for name, parameters in MECHANISMS.items():
            risks, seconds = [], []
            for seed, columns in enumerate(chosen):
                model, taken = fitted(data, columns, seed, **parameters)
                gap = model.coef_.T - data.truth[:, columns]
                risks.append(np.mean(np.sum(gap * (new_xx @ gap), axis=0) / explained[columns]))
                seconds.append(taken)
            yield {
                "n": len(data.x),
                "d": data.x.shape[1],
                "outcomes": outcomes,
                "mechanism": name,
                "risk": float(np.mean(risks)),
                "standard error": float(np.std(risks) / np.sqrt(repeats)),
                "seconds": float(np.median(seconds)),
            }


def with_cost(rows):
    """Add cost(l), the risk relative to one outcome's, and print how far it stays small."""
    rows = list(rows)
    alone = {row["mechanism"]: row["risk"] for row in rows if row["outcomes"] == 1}
    for row in rows:
        row["cost"] = row["risk"] / alone[row["mechanism"]]
    for name in MECHANISMS:
        costs = [(row["outcomes"], row["cost"]) for row in rows if row["mechanism"] == name]
        within = {limit: max(reached(costs, limit)) for limit in (1.1, 2.0)}
        print(
            f"  {name}: within 1.1 times one outcome's error up to l = {within[1.1]}, within 2 up to l = {within[2.0]}"
        )
    return rows


def reached(costs, limit):
    """Numbers of outcomes up to the first whose cost is above the limit."""
    for outcomes, cost in costs:
        if cost > limit:
            return
        yield outcomes


def outcomes(quick):
    n, d = (2000, 4) if quick else (5000, 8)
    counts = (1, 10, 100, 500) if quick else (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    rows = with_cost(risks_against_outcomes(table(np.random.default_rng(0), n, d, max(counts)), counts, quick))
    setting = f"n = {n:,}, d = {d}"
    return rows, [
        Panel(f"error, {setting}", "outcomes l", RISK, curves(rows, "outcomes", "risk")),
        Panel("cost(l): error over that of l = 1", "outcomes l", "cost(l)", curves(rows, "outcomes", "cost")),
        Panel(f"run time, {setting}", "outcomes l", "seconds a fit", curves(rows, "outcomes", "seconds")),
    ]


def free(quick):
    n, d = (20_000, 4) if quick else (50_000, 8)
    counts = (1, 10, 100) if quick else (1, 3, 10, 30, 100, 300, 1000)
    data = table(np.random.default_rng(0), n, d, max(counts), lengths=(0.999, 1.0), shared=0.99)
    rows = with_cost(risks_against_outcomes(data, counts, quick))
    return rows, [
        Panel(f"error, n = {n:,}, d = {d}", "outcomes l", RISK, curves(rows, "outcomes", "risk")),
        Panel("cost(l): error over that of l = 1", "outcomes l", "cost(l)", curves(rows, "outcomes", "cost")),
    ]


def crossover(quick):
    """Compare the errors of X'Y at l sqrt(d) = ratio * n; 8 is l = 2,000 at n = 2,000 and d = 64."""
    shapes = (
        {(2000, 64): (0.1, 1.0, 10.0)}
        if quick
        else {
            (2000, 64): (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 8.0, 10.0, 30.0),
            (20_000, 16): (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
        }
    )
    rows, panels = [], []
    for (n, d), ratios in shapes.items():
        for ratio in ratios:
            count = max(1, round(ratio * n / np.sqrt(d)))
            data = table(np.random.default_rng(0), n, d, count)
            exact = data.x.T @ data.y
            factor = LabelFactor.from_labels(data.y)
            errors = []
            for seed in range(2 if quick else 10):
                released = fitted(data, None, seed)[0].releases_[0].values["xy"]
                errors.append([np.mean((xy - exact) ** 2) for xy in (released, factor.project(released, 1.0))])
            plain, projected = (float(error) for error in np.mean(errors, axis=0))
            row = {"n": n, "d": d, "outcomes": count, "l sqrt(d) / n": ratio, "no projection": plain}
            row |= {"projection": projected, "gain": plain / projected, "signal": float(np.mean(exact**2))}
            rows.append(row)
        points = {
            name: [(row["l sqrt(d) / n"], row[name]) for row in rows if (row["n"], row["d"]) == (n, d)]
            for name in ("no projection", "projection", "signal")
        }
        panels.append(Panel(f"n = {n:,}, d = {d}", "l sqrt(d) / n", "mean squared entry of X'Y", points))
    return rows, panels


def genotypes(quick):
    n, d, counts = (5000, 10, (100, 500)) if quick else (20_000, 20, (10, 30, 100, 300, 1000, 3000))
    data = genotype_table(np.random.default_rng(0), n, d, max(counts))
    rows = list(risks_against_outcomes(data, counts, quick))
    title = f"allele counts of {n:,} people at {d} positions"
    return rows, [Panel(title, "phenotypes", RISK, curves(rows, "outcomes", "risk"))]


def best_risk(release, share, risk):
    """Least risk over penalties, of the released moments as they stand for all rows."""
    values, vectors = linalg.eigh(positive_semidefinite(release.values["xx"] / share))
    rotated = vectors.T @ release.values["xy"]
    return min(
        risk(vectors @ (rotated / (values + penalty)[:, None])) for penalty in values[-1] * np.geomspace(1e-6, 1e3, 91)
    )


def sampled_risks(data, share, quick, calibration):
    """Risks, those at the best penalties, and seconds of one processor, of repeated fits to one share of the rows."""
    new_xx = data.new_x.T @ data.new_x
    explained = np.sum(data.truth * (new_xx @ data.truth), axis=0)

    def risk(coefficients):
        gap = coefficients - data.truth
        return float(np.mean(np.sum(gap * (new_xx @ gap), axis=0) / explained))

    risks, best, seconds = [], [], []
    options = {"n_subsample": round(share * len(data.x)), "calibration": calibration, "n_threads": 1}
    for seed in range(3 if quick else 20):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsoundCalibrationWarning)
            start = time.process_time()
            model, _ = fitted(data, None, seed, **options)
            taken = time.process_time() - start
        release = model.releases_[0]
        risks.append(risk(model.coef_.T))
        best.append(best_risk(release, share, risk))
        seconds.append(taken)
    return release, risks, best, seconds


def subsampling(quick):
    """Compare at d much above l: elsewhere X'Y, which sums all rows, takes most of the time."""
    n, d, count = (50_000, 50, 4) if quick else (200_000, 100, 4)
    data = table(np.random.default_rng(0), n, d, count)
    rows = []
    for share in (1.0, 0.1) if quick else (1.0, 0.7, 0.5, 0.2, 0.1, 0.05, 0.02):
        for name, calibration in ((OURS, "sound"), (PRINTED, "paper")):
            release, risks, best, seconds = sampled_risks(data, share, quick, calibration)
            rows.append(
                {"n": n, "d": d, "outcomes": count, "s / n": share, "calibration": name}
                | {"guaranteed": release.guaranteed, "noise of X'X": release.scales["xx"] / share}
                | {"risk": float(np.mean(risks)), "standard error": float(np.std(risks) / np.sqrt(len(risks)))}
                | {"risk at the best ridge": float(np.mean(best)), "processor seconds": float(np.median(seconds))}
            )

    def against(horizontal, vertical):
        lines = {}
        for row in rows:
            label = row["calibration"] if row["guaranteed"] else f"{row['calibration']}, not guaranteed"
            lines.setdefault(label, []).append((row[horizontal], row[vertical]))
        return lines

    hindsight = {f"{OURS}, best ridge": against("s / n", "risk at the best ridge")[OURS]}
    setting = f"n = {n:,}, d = {d}, l = {count}"
    return rows, [
        Panel(f"error, {setting}", "s / n", RISK, against("s / n", "risk") | hindsight),
        Panel("run time on one processor", "s / n", "seconds a fit", against("s / n", "processor seconds")),
        Panel("error against time", "seconds a fit", RISK, against("processor seconds", "risk")),
    ]


SECTIONS = (outcomes, free, crossover, genotypes, subsampling)


def curves(rows, horizontal, vertical):
    lines = {name: [] for name in MECHANISMS}
    for row in rows:
        lines[row["mechanism"]].append((row[horizontal], row[vertical]))
    return lines


def write(rows: Iterable[dict], path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        shown = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print("  " + ", ".join(shown))


def plot(panels, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(panels), 4.8), layout="constrained")
    handles = {}
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        for (label, points), marker in zip(panel.curves.items(), "osD^vx", strict=False):
            # The projection coincides with no projection where it does nothing: let both be seen.
            style = {"linestyle": ":" if label.startswith("projection") else "-", "marker": marker, "markersize": 5}
            (handles[label],) = axes.loglog(*zip(*points, strict=True), label=label, **style)
        if panel.vertical == RISK:
            handles["predicting zero"] = axes.axhline(1.0, color="grey", linestyle="--", linewidth=1)
        axes.set(title=panel.title, xlabel=panel.horizontal, ylabel=panel.vertical)
        axes.grid(visible=True, which="major", alpha=0.3)
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(4, 2 * len(panels)), fontsize=9
    )
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("results", "primo"))
    parser.add_argument("--quick", action="store_true", help="smaller tables and fewer repeats")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for section in SECTIONS:
        start = time.perf_counter()
        print(f"\n{section.__name__}")
        with threadpool_limits(1):
            rows, panels = section(options.quick)
        write(rows, options.output / f"{section.__name__}.csv")
        plot(panels, options.output / f"{section.__name__}.png")
        print(f"  {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
