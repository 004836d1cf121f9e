"""Private linear classifiers at one budget: ours beside diffprivlib, output perturbation and noisy gradient descent.

Accuracy on held-out people and time to fit against epsilon, at delta = 1e-6 and under replace-one, on breast cancer, on
two digits that are hard to tell apart, and on a million synthetic rows. All methods see the same rows: scaled by the
public limits that the demonstration has, less a quarter of these, and then shortened to norm 1; there is no intercept.
Ours takes its defaults. Every other method takes the best of its settings in hindsight, by mean accuracy on the
held-out people themselves, for each table and epsilon:

- diffprivlib: LogisticRegression, which is Chaudhuri, Monteleoni and Sarwate's objective perturbation, pure epsilon
  (it has no delta); C.
- Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1), with analytic Gaussian noise; the penalty.
- Noisy gradient descent on all rows, composed exactly as Gaussian mechanisms; number and size of steps.

Run ``python benchmarks/papers/convex_erm_comparison.py --output DIR --diffprivlib ENV/bin/python``: a CSV and plots;
diffprivlib_logistic.py says how to make ENV, and without it that method is left out. ``--quick``: less than a minute.
"""

import argparse
import csv
import functools
import itertools
import json
import math
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from dpfast import ObjectivePerturbationClassifier
from dpfast.demo.regression import tasks
from dpfast.privacy import gaussian_scale

DELTA = 1e-6
BOUND = 1.0
DIGITS = (3, 8)
CENTRE = 0.25
# Settings: all of them on the small tables, every third on a million rows.
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
STEPS = tuple(itertools.product((5, 20, 80), (16.0, 4.0, 1.0)))
INVERSE_PENALTIES = (0.1, 0.03, 0.01, 1.0, 0.3, 10.0)


class Task:
    """Bounded rows, classes -1 and 1, and a split into learning and held-out people for each run."""

    def __init__(self, name, x, y, epsilons, repeats, step=1):
        self.name, self.y, self.epsilons, self.step = name, y, epsilons, step
        norms = np.sqrt(np.einsum("ij,ij->i", x, x))
        self.x = x * np.minimum(1.0, BOUND * (1.0 - 2.0**-40) / np.maximum(norms, 2.0**-40))[:, None]
        rows = np.arange(len(x))
        self.splits = [train_test_split(rows, test_size=0.3, random_state=run) for run in range(repeats)]

    def learning(self, run):
        rows = self.splits[run][0]
        return self.x[rows], self.y[rows]

    def accuracy(self, coefficients, run):
        held_out = self.splits[run][1]
        return np.mean((self.x[held_out] @ coefficients > 0.0) == (self.y[held_out] > 0.0))


def tables(repeats, million_repeats, million_rows):
    digits, cancer = tasks()
    epsilons = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    yield Task("breast cancer", cancer.rows - CENTRE, np.where(cancer.classes == 1, 1.0, -1.0), epsilons, repeats)
    two = np.isin(digits.classes, DIGITS)
    classes = np.where(digits.classes[two] == DIGITS[0], 1.0, -1.0)
    yield Task("digits {} and {}".format(*DIGITS), digits.rows[two] - CENTRE, classes, epsilons, repeats)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(million_rows, 50))
    y = np.where(x @ rng.normal(size=50) + 3.0 * rng.logistic(size=million_rows) > 0.0, 1.0, -1.0)
    yield Task(f"{million_rows:,} rows", x / math.sqrt(50), y, (0.01, 0.1, 1.0), million_repeats, step=3)


def timed(fit, *arguments):
    start = time.perf_counter()
    coefficients = fit(*arguments)
    return coefficients, time.perf_counter() - start


@functools.cache
def exact(task, run, penalty):
    """Coefficients without privacy, and seconds: output perturbation starts from the same ones at every epsilon."""
    model = LogisticRegression(C=1.0 / penalty, fit_intercept=False, tol=1e-8, max_iter=1000)
    fitted, seconds = timed(model.fit, *task.learning(run))
    return fitted.coef_[0], seconds


def ours(task, run, epsilon, delta, loss):
    model = ObjectivePerturbationClassifier(
        epsilon, delta, bound_x=BOUND, classes=(-1.0, 1.0), loss=loss, random_state=run
    )
    fitted, seconds = timed(model.fit, *task.learning(run))
    return fitted.coef_[0], seconds


def output_perturbation(task, run, epsilon, penalty):
    """Two minimisers of neighbours are at most 2 BOUND/penalty apart: the slope of the loss is at most 1."""
    coefficients, seconds = exact(task, run, penalty)
    scale = gaussian_scale(epsilon, DELTA, 2.0 * BOUND / penalty)
    return coefficients + np.random.default_rng(run).normal(scale=scale, size=coefficients.size), seconds


def noisy_gradient_descent(task, run, epsilon, settings):
    return timed(_descend, *task.learning(run), epsilon, run, *settings)


def _descend(x, y, epsilon, run, steps, speed):
    """Return the mean of the second half of the steps; each is a Gaussian mechanism of sensitivity 2 BOUND."""
    scale = 2.0 * BOUND * math.sqrt(steps) * gaussian_scale(epsilon, DELTA)
    noise = np.random.default_rng(run).normal(scale=scale, size=(steps, x.shape[1]))
    size = speed * 4.0 / (len(x) * BOUND**2)
    theta, late = np.zeros(x.shape[1]), []
    for step in range(steps):
        slopes = -y * expit(-y * (x @ theta))
        theta = theta - size * (slopes @ x + noise[step])
        late.append(theta)
    return np.mean(late[steps // 2 :], axis=0)


# method: fit, settings of which the best is taken.
METHODS = {
    "ours, hinge": (lambda *arguments: ours(*arguments, "hinge"), (DELTA,)),
    "ours, hinge, pure": (lambda *arguments: ours(*arguments, "hinge"), (0.0,)),
    "ours, logistic": (lambda *arguments: ours(*arguments, "logistic"), (DELTA,)),
    "ours, logistic, pure": (lambda *arguments: ours(*arguments, "logistic"), (0.0,)),
    "output perturbation": (output_perturbation, PENALTIES),
    "noisy gradient descent": (noisy_gradient_descent, STEPS),
}


def measured(task):
    """Yield method, epsilon, setting, accuracies and seconds."""
    for (method, (fit, settings)), epsilon in itertools.product(METHODS.items(), task.epsilons):
        for setting in settings[:: task.step]:
            found = []
            for run in range(len(task.splits)):
                coefficients, seconds = fit(task, run, epsilon, setting)
                found.append((task.accuracy(coefficients, run), seconds))
            yield method, epsilon, setting, np.array(found)


def measured_diffprivlib(task, python):
    """The same in another interpreter."""
    cases = list(itertools.product(task.epsilons, INVERSE_PENALTIES[:: task.step]))
    fits = [{"epsilon": epsilon, "C": c, "split": run} for epsilon, c in cases for run in range(len(task.splits))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", task.x)
        np.save(folder / "y.npy", task.y)
        np.save(folder / "splits.npy", [learning for learning, _ in task.splits])
        (folder / "fits.json").write_text(json.dumps({"bound_x": BOUND, "fits": fits}))
        script = Path(__file__).with_name("diffprivlib_logistic.py")
        threads = {"OPENBLAS_NUM_THREADS": "1"} if len(task.x) < 10_000 else {}
        subprocess.run([python, str(script), str(folder)], check=True, env=os.environ | threads)
        coefficients, seconds = np.load(folder / "coefficients.npy"), np.load(folder / "seconds.npy")
    accuracies = [task.accuracy(own, fit["split"]) for own, fit in zip(coefficients, fits, strict=True)]
    found = np.stack([accuracies, seconds], axis=1).reshape(len(cases), len(task.splits), 2)
    for (epsilon, c), values in zip(cases, found, strict=True):
        yield "diffprivlib", epsilon, c, values


def without_privacy(task):
    found = []
    for run in range(len(task.splits)):
        coefficients, seconds = exact(task, run, 1.0)
        found.append((task.accuracy(coefficients, run), seconds))
    for epsilon in task.epsilons:
        yield "no privacy", epsilon, 1.0, np.array(found)


def rows(task, diffprivlib):
    """One row for each method and epsilon: the setting that is best in hindsight."""
    results = list(without_privacy(task)) + list(measured(task))
    if diffprivlib is not None:
        results += measured_diffprivlib(task, diffprivlib)
    exact.cache_clear()
    best = {}
    for result in results:
        key = result[:2]
        if key not in best or result[3][:, 0].mean() > best[key][3][:, 0].mean():
            best[key] = result
    for (method, epsilon), (_, _, setting, values) in best.items():
        yield {
            "table": task.name,
            "method": method,
            "epsilon": epsilon,
            "accuracy": values[:, 0].mean(),
            "standard error": values[:, 0].std(ddof=1) / math.sqrt(len(values)),
            "median seconds": np.median(values[:, 1]),
            "best setting": setting,
        }


def plot(found, path):
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["table"] for row in found))
    drawn = Figure(figsize=(4.6 * len(names), 7.2), layout="constrained")
    axes = drawn.subplots(2, len(names), squeeze=False)
    for column, name in enumerate(names):
        for method in dict.fromkeys(row["method"] for row in found):
            own = [row for row in found if row["table"] == name and row["method"] == method]
            epsilons = [row["epsilon"] for row in own]
            style = {"color": "black", "linestyle": "--"} if method == "no privacy" else {"marker": "o"}
            errors = [2 * row["standard error"] for row in own]
            accuracies = [row["accuracy"] for row in own]
            axes[0, column].errorbar(epsilons, accuracies, errors, markersize=3, label=method, **style)
            axes[1, column].plot(epsilons, [row["median seconds"] for row in own], markersize=3, **style)
        axes[0, column].set(title=name, xscale="log", ylabel="accuracy on held-out people")
        axes[1, column].set(xscale="log", yscale="log", xlabel="epsilon", ylabel="seconds a fit")
        for panel in axes[:, column]:
            panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
            panel.set_xticks([], minor=True)
    axes[0, 0].legend(fontsize=7)
    drawn.savefig(path, dpi=120)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("convex_erm"))
    parser.add_argument("--repeats", type=int, default=50, help="seeds on the small tables")
    parser.add_argument("--diffprivlib", help="an interpreter that has diffprivlib 0.6.6")
    parser.add_argument("--quick", action="store_true", help="few seeds, and fewer rows than a million")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    repeats, million_repeats, million_rows = (3, 2, 50_000) if options.quick else (options.repeats, 3, 1_000_000)

    found = []
    for task in tables(repeats, million_repeats, million_rows):
        # More threads only slow small tables down.
        with threadpool_limits(1 if len(task.x) < 10_000 else None, user_api="blas"):
            measurements = list(rows(task, options.diffprivlib))
        for row in measurements:
            found.append(row)
            if row["epsilon"] == 1.0:
                print("{table:15s} {method:24s} {accuracy:.3f} +- {standard error:.3f}  "
                      "{median seconds:.4f} s  {best setting}".format(**row), flush=True)  # fmt: skip
    path = options.output / "comparison.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    print(path)
    plot(found, options.output / "comparison.png")


if __name__ == "__main__":
    main()
