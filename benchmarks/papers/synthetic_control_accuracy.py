"""Accuracy of private synthetic control at epsilon = 1, delta = 1e-6, and what each of its options gains.

On fresh panels of the paper's generator (Rho, Cummings, Misra 2023, Appendix A.1), through the public class alone:
root mean square error against the target's signal after the intervention, relative to that signal's root mean square,
averaged over panels. Gains are the default's error over an option's, on the same panels; the gain's standard error is
by the delta method, paired. An option is a public declaration about the panel that is true of the generator:

- any length: rows may be as long as the range allows; no budget is spent on finding their lengths.
- mean: donors are summed about their mean path, released first.
- nonnegative: outcomes are at least 0.
- row bound: no scaled donor is longer than 5t/(5T + 1), t = 1, ..., T, plus a little noise.
- target, target and row bound: donors are summed about the public target, whose slope theirs differ from by at most 2.
- basis: paths before the intervention are straight lines.
- two components, noise components: the largest eigenvalues of X'X alone.
- small and large ridge: lambda = 0 and 10 T0 in the place of T0.

Run ``python benchmarks/papers/synthetic_control_accuracy.py --output DIR``: a CSV, and a table on standard output, in
about four minutes. ``--quick`` takes a few seconds. The bars of the default are in the table.
"""

import argparse
import csv
import math
import warnings
from pathlib import Path

import numpy as np

from dpfast import SyntheticControl, UtilityWarning
from dpfast.datasets import synthetic_control_panel

EPSILON, DELTA, N_POST = 1.0, 1e-6, 3
# Panels drawn at each size, and the error that the default may have at most.
SIZES = {(1_000, 10): (400, 0.06), (10_000, 10): (100, 0.007), (1_000, 100): (100, 0.05), (10_000, 100): (40, 0.007)}


def options(n_pre):
    """Name every option's parameters, from the generator's public constants."""
    times = np.arange(1, n_pre + N_POST + 1) / (5 * (n_pre + N_POST) + 1)
    longest, spread = (tuple(np.linalg.norm(part) for part in np.split(slope * times, [n_pre])) for slope in (5, 2))
    # Noise of variance 0.1 makes a path longer by a fraction of its own length: what is clipped matters little.
    noise = math.sqrt(0.1) / (5 * (n_pre + N_POST) + 1)
    row = tuple(np.hypot(norm, noise * math.sqrt(k)) for norm, k in zip(longest, (n_pre, N_POST), strict=True))
    near = tuple(np.hypot(norm, 1.5 * noise * math.sqrt(k)) for norm, k in zip(spread, (n_pre, N_POST), strict=True))
    return {
        "default": {},
        "any length": {"row_bound": None},
        "mean": {"center": "private"},
        "nonnegative": {"nonnegative": True},
        "row bound": {"row_bound": row},
        "nonnegative, row bound": {"nonnegative": True, "row_bound": row},
        "target": {"center": "target"},
        "target, row bound": {"center": "target", "row_bound": near},
        "basis": {"basis": 2},
        "basis, row bound": {"basis": 2, "row_bound": row},
        "basis, target, row bound": {"basis": 2, "center": "target", "row_bound": near},
        "two components": {"n_components": 2},
        "noise components": {"n_components": "noise"},
        "small ridge": {"ridge": 0.0},
        "large ridge": {"ridge": 10.0 * n_pre},
        "add-remove": {"adjacency": "add_remove"},
        "no privacy": {"epsilon": math.inf},
    }


def relative_errors(n, n_pre, panels, parameters):
    """Fit every panel anew, and return one relative root mean square error for each."""
    errors = []
    for seed in range(panels):
        donors, target, signal = synthetic_control_panel(n, n_pre, N_POST, seed=seed)
        model = SyntheticControl(**{"epsilon": EPSILON, "delta": DELTA, "random_state": seed} | parameters)
        predicted = model.fit(donors, n_pre, target=target).predict(target[:n_pre])
        errors.append(np.linalg.norm(predicted - signal[n_pre:]) / np.linalg.norm(signal[n_pre:]))
    return np.array(errors)


def rows(share):
    for (n, n_pre), (panels, bar) in SIZES.items():
        panels = max(4, int(share * panels))
        for name, parameters in options(n_pre).items():
            errors = relative_errors(n, n_pre, panels, parameters)
            if name == "default":
                default = errors
            gain = default.mean() / errors.mean()
            yield {
                "n": n,
                "T0": n_pre,
                "option": name,
                "panels": panels,
                "relative_rmse": errors.mean(),
                "standard_error": errors.std(ddof=1) / math.sqrt(panels),
                "bar": bar if name == "default" else "",
                "gain": gain,
                "gain_standard_error": (default - gain * errors).std(ddof=1) / math.sqrt(panels) / errors.mean(),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("synthetic_control_accuracy"))
    parser.add_argument("--quick", action="store_true", help="a twentieth of the panels")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", UtilityWarning)
    path = arguments.output / "synthetic_control_accuracy.csv"
    with path.open("w", newline="") as file:
        writer = None
        for row in rows(0.05 if arguments.quick else 1.0):
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(row))
                writer.writeheader()
            writer.writerow(row)
            bar = f"  (bar {row['bar']})" if row["bar"] else ""
            print(
                f"n = {row['n']:6,}, T0 = {row['T0']:3}  {row['option']:26}"
                f"{row['relative_rmse']:8.4f} +- {row['standard_error']:.4f}"
                f"   gain {row['gain']:5.2f} +- {row['gain_standard_error']:.2f}{bar}",
                flush=True,
            )
    print(path)


if __name__ == "__main__":
    main()
