"""Private synthetic control, measured on the paper's panels (Rho, Cummings, Misra 2023), for every mechanism.

- Figure 2: error against lambda (epsilon = 100 in all) and against epsilon (lambda = T0), on four sizes.
- Figures 4 and 6: the same at n = T0 = 10, all mechanisms together.
- Figure 5: theory against practice there: Theorems 3.2 and 3.5 as printed, and corrected.
- The arXiv version's figure on Gaussian noise (delta > 0) in the place of L2-Laplace noise, and what both do to ours.

Errors are RMSE = E||y_hat - m_post||/sqrt(T - T0), in units where all outcomes lie in [-1, 1], with a 95% interval over
repeated runs on one panel, as in the paper. The signal's own root mean square is in the files too, for scale.
Run ``python benchmarks/papers/synthetic_control.py --output DIR``: CSV files and plots. ``--quick`` takes a minute;
the paper's 500 runs of everything take about two hours, ``--repeats 50`` a tenth of that.
"""

import argparse
import csv
import math
import warnings
from pathlib import Path

import numpy as np

from dpfast import SyntheticControl, UnsoundCalibrationWarning, UtilityWarning
from dpfast.datasets import synthetic_control_panel
from dpfast.theory import synthetic_control as theory

SIZES = ((10, 10), (10, 100), (100, 10), (100, 100))  # n, T0
RIDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
EPSILONS = (2, 4, 10, 20, 40, 100, 200)
DELTA = 1e-6
N_POST = 3
METHODS = {
    "no privacy": {},
    "printed output": {"mechanism": "output", "calibration": "paper"},
    "printed objective": {"mechanism": "objective", "calibration": "paper"},
    "sound output": {"mechanism": "output"},
    "sound objective": {"mechanism": "objective"},
    "cross-section": {"mechanism": "cross_section"},
}


class Case:
    """One panel, on which every mechanism is run many times."""

    def __init__(self, n, n_pre):
        self.n, self.n_pre = n, n_pre
        self.donors, self.target, self.signal = synthetic_control_panel(n, n_pre, N_POST, seed=n + 1000 * n_pre)

    def errors(self, method, epsilon, delta, ridge, repeats):
        """||y_hat - m_post||/sqrt(T - T0) in each run."""
        if method == "no privacy":
            epsilon, delta, repeats = math.inf, 0.0, 1
        pre, post = self.target[: self.n_pre], self.signal[self.n_pre :]
        found = []
        for run in range(repeats):
            seed = 1_000_000 * SIZES.index((self.n, self.n_pre)) + run
            model = SyntheticControl(epsilon, delta, ridge=float(ridge), random_state=seed, **METHODS[method])
            predicted = model.fit(self.donors, self.n_pre, target=pre).predict(pre)
            found.append(np.sqrt(np.mean((predicted - post) ** 2)))
        return np.array(found)

    def row(self, method, epsilon, delta, ridge, repeats):
        errors = self.errors(method, epsilon, delta, ridge, repeats)
        half = 1.96 * np.std(errors) / math.sqrt(len(errors))
        return {
            "n": self.n,
            "T0": self.n_pre,
            "lambda": ridge,
            "epsilon": epsilon,
            "delta": delta,
            "method": method,
            "rmse": np.mean(errors),
            "low": np.mean(errors) - half,
            "high": np.mean(errors) + half,
            "signal": np.sqrt(np.mean(self.signal[self.n_pre :] ** 2)),
        }

    def facts(self, ridge):
        """What the theorems take as given; slopes are recovered from the panel, noise moving them by about 1/1000."""
        times = np.arange(1, self.n_pre + N_POST + 1)
        slopes, slope = (series @ times / (times @ times) for series in (self.donors, self.signal))
        pre = self.donors[:, : self.n_pre]
        kernel = pre.T @ pre + ridge / 2 * np.eye(self.n_pre)
        weights = pre @ np.linalg.solve(kernel, self.target[: self.n_pre])
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
    figure = Figure(figsize=(4.0 * columns, 3.4 * -(-len(panels) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).ravel()
    for panel in axes[len(panels) :]:
        panel.remove()
    for panel, (title, key, curves) in zip(axes, panels, strict=False):
        for label, (rows, value) in curves.items():
            horizontal = [row[key] for row in rows]
            (line,) = panel.loglog(horizontal, [row[value] for row in rows], marker="o", markersize=3, label=label)
            if value == "rmse":
                # A few runs of heavy tails give intervals that reach below 0, where this scale does not.
                limits = ([max(row[end], row["rmse"] / 10) for row in rows] for end in ("low", "high"))
                panel.fill_between(horizontal, *limits, color=line.get_color(), alpha=0.2, linewidth=0)
        panel.set(title=title, xlabel=key, ylabel="RMSE")
        panel.legend(fontsize=6)
    figure.savefig(path, dpi=120)
    print(path)


def by_size(rows, **wanted):
    return {f"n = {n}, T0 = {n_pre}": (pick(rows, n=n, T0=n_pre, **wanted), "rmse") for n, n_pre in SIZES}


def by_method(rows, **wanted):
    return {method: (pick(rows, method=method, **wanted), "rmse") for method in METHODS if pick(rows, method=method)}


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
    ours = ("no privacy", "sound output", "sound objective", "cross-section")
    for name, methods in (("figure2.png", printed), ("figure2_others.png", ours)):
        panels = [(method, key, by_size(rows, method=method)) for key, rows in sweeps for method in methods]
        plot(panels, options.output / name)
    plot([("n = T0 = 10, epsilon = 100", "lambda", by_method(over_ridges, **small))], options.output / "figure4.png")
    values = {"measured": "rmse", "as printed": "bound as printed", "corrected": "bound corrected"}
    panels = [
        (method, "lambda", {label: (pick(theories, method=method), key) for label, key in values.items()})
        for method in printed
    ]
    plot(panels, options.output / "figure5.png")
    plot([("n = T0 = 10, lambda = 10", "epsilon", by_method(over_epsilons, **small))], options.output / "figure6.png")
    panels = [
        (f"{method}, delta = {delta:g}", "epsilon", by_size(gaussian, method=method, delta=delta))
        for method in ("printed objective", "sound output", "sound objective", "cross-section")
        for delta in (0.0, DELTA)
    ]
    plot(panels, options.output / "gaussian.png")


if __name__ == "__main__":
    main()
