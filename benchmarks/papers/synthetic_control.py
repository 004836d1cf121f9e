"""Private synthetic control, measured on the paper's panels (Rho, Cummings, Misra 2023), for every mechanism.

- Figure 2: error against lambda (epsilon = 100 in all) and against epsilon (lambda = T0), on four sizes.
- Figures 4 and 6: the same at n = T0 = 10, all mechanisms together.
- Figure 5: theory against practice there: Theorems 3.2 and 3.5 as printed, and corrected.
- The arXiv version's figure on Gaussian noise (delta > 0) in the place of L2-Laplace noise, and what both do to ours.

Errors are RMSE = E||y_hat - m_post||/sqrt(T - T0), in units where all outcomes lie in [-1, 1], with its standard error
over repeated runs on one panel, as in the paper; plots show 95% intervals, and a dotted line where the error is as
large as the signal. A cross-sectional release serves every lambda, so that its errors along a curve are not
independent. Run ``python benchmarks/papers/synthetic_control.py --output DIR``: CSV files and plots, from the paper's
500 runs in about three minutes. ``--quick`` takes a few seconds.
"""

import argparse
import csv
import itertools
import math
import warnings
from functools import cache
from pathlib import Path

import numpy as np

from dpfast import Privacy, SyntheticControl, UnsoundCalibrationWarning, UtilityWarning, noise
from dpfast.datasets import synthetic_control_panel
from dpfast.papers import synthetic_control as theory
from dpfast.synthetic_control.donor_weights import BoundedPanel, PanelBounds, algorithm, prediction, ridge_weights

SIZES = ((10, 10), (10, 100), (100, 10), (100, 100))  # n, T0
RIDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
EPSILONS = (2, 4, 10, 20, 40, 100, 200)
DELTA = 1e-6
N_POST = 3
ALGORITHMS = {
    "printed output": ("output", "paper"),
    "printed objective": ("objective", "paper"),
    "sound output": ("output", "sound"),
    "sound objective": ("objective", "sound"),
}
METHODS = ("no privacy", *ALGORITHMS, "cross-section")


class Case:
    """One panel, on which every mechanism is run many times."""

    def __init__(self, n, n_pre):
        self.n, self.n_pre = n, n_pre
        self.donors, self.target, self.signal = synthetic_control_panel(n, n_pre, N_POST, seed=n + 1000 * n_pre)
        self.target_pre = self.target[:n_pre]
        self.bounds = PanelBounds.of(n, N_POST, self.target_pre)
        self.panel = BoundedPanel.of(self.donors, self.target_pre, self.bounds)
        self.seeds = itertools.count(1_000_000 * SIZES.index((n, n_pre)))
        self.weights = cache(lambda ridge: ridge_weights(self.panel.pre, self.target_pre, ridge))
        self.moments = cache(self._moments)

    def _moments(self, epsilon, delta, repeats):
        model = SyntheticControl(epsilon, delta, random_state=next(self.seeds))
        (batch,) = model.fit_repeatedly(self.donors, self.n_pre, repeats)
        return batch

    def predictions(self, method, epsilon, delta, ridge, repeats):
        """Return predictions of shape (repeats, N_POST)."""
        if method == "no privacy":
            return (self.panel.post.T @ self.weights(ridge))[np.newaxis]
        if method == "cross-section":
            return self.moments(epsilon, delta, repeats).predict(self.target_pre, ridge)
        chosen = algorithm(*ALGORITHMS[method], Privacy(epsilon, delta), self.bounds, ridge)
        source = noise.SeededSource(next(self.seeds))
        if method == "sound output":
            weights, projections = chosen.repeat(self.panel, source, repeats, exact=self.weights(ridge))
            return (projections * np.abs(weights).max(axis=0)).T
        return np.array([prediction(chosen.release(self.panel, source, method)) for _ in range(repeats)])

    def row(self, method, epsilon, delta, ridge, repeats):
        predicted = self.predictions(method, epsilon, delta, float(ridge), repeats)
        errors = np.sqrt(np.mean((predicted - self.signal[self.n_pre :]) ** 2, axis=1))
        return {
            "n": self.n,
            "T0": self.n_pre,
            "lambda": ridge,
            "epsilon": epsilon,
            "delta": delta,
            "method": method,
            "repeats": len(errors),
            "rmse": np.mean(errors),
            "standard_error": np.std(errors) / math.sqrt(len(errors)),
            "signal": np.sqrt(np.mean(self.signal[self.n_pre :] ** 2)),
        }

    def facts(self, ridge):
        """What the theorems take as given; slopes are recovered from the panel, noise moving them by about 1/1000."""
        times = np.arange(1, self.n_pre + N_POST + 1)
        slopes, slope = (series @ times / (times @ times) for series in (self.donors, self.signal))
        weights = self.weights(float(ridge))
        return {
            "signal_norm": float(np.linalg.norm(np.outer(slopes, times[self.n_pre :]), 2)),
            "weights_error": float(np.linalg.norm(weights - slopes * slope / (slopes @ slopes))),
            "largest_weight": float(np.abs(weights).max()),
            "noise_std": math.sqrt(0.1) / (5 * len(times) + 1),
        }


def lambda_sweep(cases, ridges, repeats):
    for case in cases:
        for ridge in ridges:
            for method in METHODS:
                yield case.row(method, 100, 0.0, ridge, repeats)


def epsilon_sweep(cases, epsilons, repeats):
    for case in cases:
        for epsilon in epsilons:
            for method in METHODS:
                yield case.row(method, epsilon, 0.0, case.n_pre, repeats)


def gaussian_noise(cases, epsilons, repeats):
    for case in cases:
        for epsilon in epsilons:
            for delta in (0.0, DELTA):
                for method in ("printed objective", "sound output", "sound objective", "cross-section"):
                    yield case.row(method, epsilon, delta, case.n_pre, repeats)


def theory_against_practice(case, measured):
    """Add both versions of the theorems' bounds to the printed mechanisms' rows of a sweep."""
    for row in measured:
        ridge, half = float(row["lambda"]), row["epsilon"] / 2
        sizes = {"n_donors": case.n, "n_pre": case.n_pre, "n_post": N_POST, "ridge": ridge}
        if row["method"] == "printed output":
            bound = theory.output_rmse(half, half, **sizes, **case.facts(ridge))
        elif row["method"] == "printed objective":
            c = theory.curvature(case.n, case.n_pre).corrected
            bound = theory.objective_rmse(half, half, 0.0, **sizes, curvature=c, **case.facts(ridge))
        else:
            continue
        yield row | {"bound as printed": bound.printed, "bound corrected": bound.corrected}


def write(rows, path):
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(path)
    return rows


def pick(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def plot(panels, path):
    """Draw one panel for each (title, horizontal key, {label: (rows, vertical key)})."""
    from matplotlib.figure import Figure

    columns = min(4, len(panels))
    figure = Figure(figsize=(4.0 * columns + 1.0, 3.8 * -(-len(panels) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False, sharey=True).ravel()
    for panel in axes[len(panels) :]:
        panel.remove()
    for panel, (title, key, curves) in zip(axes, panels, strict=False):
        for number, (label, (rows, value)) in enumerate(curves.items()):
            horizontal, vertical = [row[key] for row in rows], np.array([row[value] for row in rows])
            style = {"marker": "osv^Dx"[number], "markersize": 4, "linewidth": 1.2}
            (line,) = panel.loglog(horizontal, vertical, label=label, **style)
            if value == "rmse":
                half = 1.96 * np.array([row["standard_error"] for row in rows])
                # A few runs of heavy tails give intervals that reach below 0, where this scale does not.
                low = np.maximum(vertical - half, vertical / 10)
                panel.fill_between(horizontal, low, vertical + half, color=line.get_color(), alpha=0.2, linewidth=0)
            for signal in {row["signal"] for row in rows}:
                panel.axhline(signal, color=line.get_color() if len(panels) > 1 else "black", lw=0.6, ls=":")
        panel.set(title=title, xlabel=key)
        panel.tick_params(axis="y", labelleft=True)
    for panel in axes[::columns]:
        panel.set_ylabel("RMSE")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 1 + columns), fontsize=9)
    figure.savefig(path, dpi=120)
    print(path)


def by_size(rows, **wanted):
    return {f"n = {n}, T0 = {n_pre}": (pick(rows, n=n, T0=n_pre, **wanted), "rmse") for n, n_pre in SIZES}


def by_method(rows):
    return {method: (pick(rows, method=method), "rmse") for method in METHODS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("synthetic_control"))
    parser.add_argument("--repeats", type=int, default=500, help="runs of each mechanism on each panel")
    parser.add_argument("--quick", action="store_true", help="few repeats, ridges and budgets")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    # Most of what is measured here is what these warn of.
    warnings.simplefilter("ignore", UtilityWarning)
    warnings.simplefilter("ignore", UnsoundCalibrationWarning)
    repeats = 5 if options.quick else options.repeats
    ridges, epsilons = (RIDGES[::4], EPSILONS[::3]) if options.quick else (RIDGES, EPSILONS)

    cases = [Case(*size) for size in SIZES]
    over_ridges = write(lambda_sweep(cases, ridges, repeats), options.output / "lambda.csv")
    over_epsilons = write(epsilon_sweep(cases, epsilons, repeats), options.output / "epsilon.csv")
    gaussian = write(gaussian_noise(cases, epsilons, repeats), options.output / "gaussian.csv")
    small = {"n": 10, "T0": 10}
    theories = write(theory_against_practice(cases[0], pick(over_ridges, **small)), options.output / "theory.csv")

    sweeps = (("lambda", over_ridges), ("epsilon", over_epsilons))
    printed = ("printed output", "printed objective")
    ours = ("sound output", "sound objective", "cross-section", "no privacy")
    for name, methods in (("figure2.png", printed), ("figure2_others.png", ours)):
        panels = [
            (f"{method}, by {key}", key, by_size(rows, method=method)) for key, rows in sweeps for method in methods
        ]
        plot(panels, options.output / name)
    plot(
        [("n = T0 = 10, epsilon = 100", "lambda", by_method(pick(over_ridges, **small)))],
        options.output / "figure4.png",
    )
    values = {"measured": "rmse", "as printed": "bound as printed", "corrected": "bound corrected"}
    panels = [
        (method, "lambda", {label: (pick(theories, method=method), key) for label, key in values.items()})
        for method in printed
    ]
    plot(panels, options.output / "figure5.png")
    plot(
        [("n = T0 = 10, lambda = 10", "epsilon", by_method(pick(over_epsilons, **small)))],
        options.output / "figure6.png",
    )
    panels = [
        (f"{method}, delta = {delta:g}", "epsilon", by_size(gaussian, method=method, delta=delta))
        for method in ("printed objective", "sound output", "sound objective", "cross-section")
        for delta in (0.0, DELTA)
    ]
    plot(panels, options.output / "gaussian.png")


if __name__ == "__main__":
    main()
