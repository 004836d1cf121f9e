"""How accurate private classifiers are, and how often sparse regression finds its features, beside their rivals.

Every table of rows is bounded as one does without a look at it: scaled by its public limits, less a quarter of these,
and then shortened to norm 1; 70% of the rows learn, the others judge; there is no intercept. Ours takes its defaults
and sees no setting. Rivals take the best of their settings in hindsight, by mean accuracy on the held-out rows
themselves, for each table and epsilon. At delta = 1e-5:

- Noisy gradient descent on all rows, composed exactly: number and size of steps, the length that slopes or gradients
  are shortened to, the last iterate or the mean of the second half; on the softmax loss for many classes.
- Output perturbation (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1) with analytic Gaussian noise; the penalty.
- diffprivlib's LogisticRegression, Chaudhuri, Monteleoni and Sarwate's objective perturbation, pure epsilon; C.
- MultiOutcomeRidge on indicators, for many classes; whether they are centred, and how many steps refine.
- DP-SGD, Poisson sampling by a PLD accountant, which is for add/remove: the share sampled and the rest as for descent.
  Ours beside it is under add/remove too.

A difference to the best rival is over the same splits, with its standard error; one below what is allowed is marked.
``--fixed`` adds ours with its loss and method fixed. ``sparse`` is a table of its own, by selector.

Run ``python -m benchmarks.classification --diffprivlib ENV/bin/python``: an hour on one processor; ``--rivals FILE``
keeps what rivals reached, which is most of it, and reads it from there. ``--only TABLE`` takes one, and ``--quick``
takes seconds. papers/diffprivlib_logistic.py says how to make ENV; dp-accounting, statsmodels and Pillow are wanted.
What is not there is left out.
"""

import argparse
import functools
import itertools
import json
import math
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from scipy.special import expit, softmax
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import clipped_descent, show, within
from benchmarks.bench_sparse_regression import table as sparse_table
from dpfast import MultiOutcomeRidge, ObjectivePerturbationClassifier, SparseRegression, UtilityWarning
from dpfast.demo import images, measurements
from dpfast.privacy import gaussian_scale
from dpfast.solvers import CappedLogisticLoss

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
CENTRE = 0.25
DESCENT, OUTPUT, DIFFPRIVLIB = "noisy descent", "output perturbation", "diffprivlib"
RIDGE, DPSGD = "MultiOutcomeRidge", "DP-SGD"
OURS, OURS_UNBOUNDED = "ours", "ours, add/remove"
FIXED = {
    "objective": {"method": "objective"},
    "gradient": {"method": "gradient"},
    "logistic": {"loss": "logistic", "method": "objective"},
    "hinge": {"loss": "hinge"},
    "capped": {"loss": CappedLogisticLoss(0.25)},
    "pure": {"delta": 0.0},
}
# Grids of rivals; a step is its size over 4/n, one over the curvature of the logistic loss.
STEPS, SPEEDS, LENGTHS = (3, 8, 20, 50), (64.0, 16.0, 4.0, 1.0), (0.125, 0.25, 0.5, 1.0)
SAMPLED = ((0.5, 20), (0.2, 30), (0.2, 100), (0.05, 100))
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
INVERSE_PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
# Small tables are learnt from several times a split. Settings are tried once a split, or on few splits where rows times
# outcomes are many; the best of these then meet noise of their own, so that little of what they reach is luck.
DRAWS, MANY, TRIED, KEPT = 2, 5_000, 8, 3


class Task:
    """Bounded rows, classes from 0, and runs: splits into learning and held-out rows, the same ones over and over."""

    def __init__(self, name, x, classes, splits, draws=1, allowed=0.003):
        self.name, self.n_splits, self.allowed = name, splits, allowed
        self.x = within(x - CENTRE, 1.0 - 2.0**-40)
        self.classes = np.asarray(classes, np.int64)
        self.n_classes = int(self.classes.max()) + 1
        self.n_outcomes = 1 if self.n_classes == 2 else self.n_classes
        rows = np.arange(len(x))
        self.splits = draws * [train_test_split(rows, test_size=0.3, random_state=run) for run in range(splits)]
        self.held_out = np.zeros((len(x), len(self.splits)), np.bool_)
        for run, (_, held_out) in enumerate(self.splits):
            self.held_out[held_out, run] = True
        # What rivals' descents take: single precision, and for two classes signs, so that one column is the table's.
        self.single = self.x.astype(np.float32)
        self.norms = np.linalg.norm(self.single, axis=1)
        # The largest slope of the loss in the margins.
        self.slope = 1.0 if self.n_outcomes == 1 else math.sqrt(2.0)

    def learning(self, run):
        rows = self.splits[run][0]
        return self.x[rows], self.classes[rows]

    def judged(self, run):
        rows = self.splits[run][1]
        return self.x[rows], self.classes[rows]

    def accuracies(self, coefficients):
        """Return a share of held-out rows for each run, from coefficients of shape (runs, features, outcomes)."""
        found = []
        for run, theta in enumerate(coefficients):
            x, classes = self.judged(run)
            margins = x @ theta
            chosen = margins.argmax(axis=1) if self.n_outcomes > 1 else margins[:, 0] > 0.0
            found.append(np.mean(chosen == classes))
        return np.array(found)


# Tables.


def tables(quick: bool) -> dict[str, Any]:
    """Return what makes each task, by its short name."""
    if quick:
        return {"cancer": cancer, "ten": ten_digits, "100k": synthetic(5_000, 2)}
    real = {"cancer": cancer, "digits": two_digits, "halves": halves, "affairs": affairs, "pictures": pictures}
    return real | {"ten": ten_digits, "100k": synthetic(100_000, 10), "1M": synthetic(1_000_000, 3)}


def cancer(runs):
    return Task("breast cancer, n = 569, d = 30", *measurements(), runs, DRAWS)


def two_digits(runs):
    rows, digits = images()
    chosen = np.isin(digits, (3, 8))
    return Task("digits 3 and 8, n = 357, d = 64", rows[chosen], digits[chosen] == 3, runs, DRAWS)


def halves(runs):
    """Digits below five against the others."""
    rows, digits = images()
    return Task("digits 0-4 and 5-9, n = 1,797, d = 64", rows, digits < 5, runs)


def ten_digits(runs):
    return Task("ten digits, n = 1,797, d = 64", *images(), runs)


def affairs(runs):
    """Which of 6,366 women who answered a magazine had an affair: eight answers, scaled by what may be answered."""
    if find_spec("statsmodels") is None:
        return None
    from statsmodels.datasets import fair

    answers = fair.load_pandas().data.to_numpy(np.float64)
    low, high = np.array([1, 17, 0, 0, 1, 9, 1, 1]), np.array([5, 45, 25, 6, 4, 20, 6, 6])
    return Task("affairs, n = 6,366, d = 8", (answers[:, :8] - low) / (high - low), answers[:, 8] > 0.0, runs)


def pictures(runs):
    """Which of two photographs a patch of 4 by 4 pixels in three colours is from."""
    if find_spec("PIL") is None:
        return None
    rng, patches = np.random.default_rng(5), []
    for image in datasets.load_sample_images().images:
        windows = np.lib.stride_tricks.sliding_window_view(image, (4, 4, 3)).reshape(-1, 48)
        patches.append(windows[np.sort(rng.choice(len(windows), 10_000, replace=False))])
    x = np.concatenate(patches) / 255.0
    return Task("patches of pictures, n = 20,000, d = 48", x, np.repeat([0, 1], 10_000), runs)


def synthetic(n, runs):
    def drawn(_):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n, 50))
        classes = x @ rng.normal(size=50) + 3.0 * rng.logistic(size=n) > 0.0
        return Task(f"synthetic, n = {n:,}, d = 50", x / math.sqrt(50) + CENTRE, classes, runs, allowed=0.002)

    return drawn


# Rivals: settings, and the accuracy of each of the first runs with a setting; several where one fit makes several.


class Descent:
    """Descent on all rows, each step a Gaussian mechanism of sensitivity twice the length."""

    name, adjacency = DESCENT, "replace_one"

    def settings(self, task, quick):
        shortened = ("slopes",) if np.median(task.norms) > 0.99 else ("slopes", "gradients")
        steps, speeds, lengths = (STEPS[1:2], SPEEDS[1:2], LENGTHS) if quick else (STEPS, SPEEDS, LENGTHS)
        if len(task.x) > 10 * MANY:
            # All come near what there is without noise: fewer say as much.
            steps, speeds, lengths = steps[1:], speeds[1:3], lengths[2:]
        yield from itertools.product(steps, speeds, lengths, shortened)

    def run(self, task, epsilon, setting, runs):
        steps, speed, length, shortened = setting
        deviation = 2.0 * length * math.sqrt(steps) * gaussian_scale(epsilon, DELTA)
        return self._descended(task, runs, steps, speed, length, shortened, deviation)

    def _descended(self, task, runs, steps, speed, length, shortened, deviation, sampled=1.0):
        rng, shape = np.random.default_rng(runs), (runs, task.n_outcomes)
        learning = ~task.held_out[:, :runs]

        def slopes_of(margins):
            if task.n_outcomes == 1:
                signs = np.where(task.classes == 1, 1.0, -1.0).astype(np.float32)[:, None]
                return -signs * expit(-signs * margins)
            slopes = softmax(margins.reshape(-1, *shape), axis=2)
            slopes[np.arange(len(slopes)), :, task.classes] -= 1.0
            return slopes.reshape(margins.shape)

        def kept():
            return learning if sampled == 1.0 else learning & (rng.random(learning.shape, np.float32) < sampled)

        found = clipped_descent(
            task.single, slopes_of, shape, rng, steps=steps, length=length * task.slope,
            size=4.0 * speed / (sampled * len(task.splits[0][0])), deviation=deviation * task.slope,
            norms=1.0 if shortened == "slopes" else task.norms, kept=kept,
        )  # fmt: skip
        for kind, theta in zip(("last", "averaged"), found, strict=True):
            yield kind, task.accuracies(theta)


class SampledDescent(Descent):
    """The same on a random sample of rows in each step."""

    name, adjacency = DPSGD, "add_remove"

    def settings(self, task, quick):
        samples, speeds, lengths = SAMPLED, SPEEDS[1:], LENGTHS[1:]
        if quick or len(task.x) > 10 * MANY:
            samples, speeds, lengths = samples[2:], speeds[:2], lengths[1:]
        if quick:
            samples, speeds, lengths = samples[:1], speeds[:1], lengths[:1]
        yield from itertools.product(samples, speeds, lengths, ("gradients",))

    def run(self, task, epsilon, setting, runs):
        (sampled, steps), speed, length, shortened = setting
        deviation = length * noise_of_sampled(sampled, steps, epsilon)
        return self._descended(task, runs, steps, speed, length, shortened, deviation, sampled)


@functools.cache
def noise_of_sampled(sampled, steps, epsilon):
    """Return the noise multiplier of steps on samples, from a PLD accountant."""
    from dp_accounting import ExplicitBracketInterval, calibrate_dp_mechanism, dp_event
    from dp_accounting.pld import PLDAccountant

    def event(multiplier):
        step = dp_event.PoissonSampledDpEvent(sampled, dp_event.GaussianDpEvent(multiplier))
        return dp_event.SelfComposedDpEvent(step, steps)

    accountant = functools.partial(PLDAccountant, value_discretization_interval=1e-3)
    return calibrate_dp_mechanism(accountant, event, epsilon, DELTA, ExplicitBracketInterval(0.2, 100.0), tol=1e-3)


class OutputPerturbation:
    name, adjacency = OUTPUT, "replace_one"

    def settings(self, task, quick):
        yield from PENALTIES[2:3] if quick else PENALTIES

    def run(self, task, epsilon, penalty, runs):
        """Two minimisers of neighbours are at most twice the largest slope over the penalty apart."""
        found = exact(task, runs, penalty)
        noise = np.random.default_rng(runs).normal(size=found.shape)
        yield "", task.accuracies(found + gaussian_scale(epsilon, DELTA, 2.0 * task.slope / penalty) * noise)


@functools.lru_cache(maxsize=len(PENALTIES) + 1)
def exact(task, runs, penalty):
    """Return minimisers without privacy, shape (runs, features, outcomes)."""
    found = []
    for run in range(min(runs, task.n_splits)):
        model = LogisticRegression(C=1.0 / penalty, fit_intercept=False, tol=1e-6, max_iter=1000)
        found.append(model.fit(*task.learning(run)).coef_.T)
    return np.resize(found, (runs, *found[0].shape))


class Ridge:
    """Least squares on indicators of the classes, or on what they are more than a share in all of them."""

    name, adjacency = RIDGE, "replace_one"

    def settings(self, task, quick):
        yield from [(True, "auto")] if quick else itertools.product((True, False), ("auto", 0, 3, 10))

    def run(self, task, epsilon, setting, runs):
        centred, refine = setting
        share = 1.0 / task.n_classes if centred else 0.0
        indicators = np.eye(task.n_classes) - share
        bound = float(np.linalg.norm(indicators[0]))
        found = []
        for run in range(runs):
            x, classes = task.learning(run)
            model = MultiOutcomeRidge(
                epsilon,
                DELTA,
                bound_x=1.0,
                bound_y=bound,
                refine=refine,
                adjacency="replace_one",
                random_state=run,
                fit_intercept=False,
            )
            found.append(model.fit(x, indicators[classes]).coef_.T)
        yield "", task.accuracies(found)


class Diffprivlib:
    """All fits at once in another interpreter."""

    name, adjacency = DIFFPRIVLIB, "replace_one"

    def __init__(self, python):
        self.python = python

    def settings(self, task, quick):
        # Some seconds a fit for many rows.
        yield from INVERSE_PENALTIES[:: 1 if len(task.x) < MANY else 2]

    def run(self, task, epsilon, inverse_penalty, runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "x.npy", task.x)
            np.save(folder / "y.npy", task.classes)
            np.save(folder / "splits.npy", [learning for learning, _ in task.splits])
            fits = [{"epsilon": epsilon, "C": inverse_penalty, "split": run} for run in range(runs)]
            (folder / "fits.json").write_text(json.dumps({"bound_x": 1.0, "fits": fits}))
            script = Path(__file__).parent / "papers" / "diffprivlib_logistic.py"
            threads = {"OPENBLAS_NUM_THREADS": "1"}
            subprocess.run([self.python, str(script), str(folder)], check=True, env=os.environ | threads)
            yield "", task.accuracies(np.load(folder / "coefficients.npy").transpose(0, 2, 1))


def rivals(task: Task, diffprivlib: str | None) -> Iterator[Any]:
    yield Descent()
    yield OutputPerturbation()
    if task.n_classes > 2:
        yield Ridge()
    if diffprivlib is not None:
        yield Diffprivlib(diffprivlib)
    if find_spec("dp_accounting") is not None:
        yield SampledDescent()


def best(rival: Any, task: Task, epsilon: float, quick: bool) -> dict[str, Any]:
    """Return the accuracies of a rival's best setting, and the setting."""

    def ranked(settings, runs):
        found = []
        for setting in settings:
            for kind, accuracies in rival.run(task, epsilon, setting, runs):
                found.append((float(np.mean(accuracies)), len(found), setting, f"{setting} {kind}", accuracies))
        return sorted(found, reverse=True)

    runs, settings = len(task.splits), list(rival.settings(task, quick))
    tried = min(task.n_splits, TRIED) if len(task.x) * task.n_outcomes > MANY else task.n_splits
    if tried < runs and len(settings) > KEPT:
        settings = list(dict.fromkeys(one[2] for one in ranked(settings, tried)))[:KEPT]
    _, _, _, setting, accuracies = ranked(settings, runs)[0]
    return {"setting": setting, "accuracies": list(accuracies)}


# Tables that are printed.


def ours(task, epsilon, adjacency, **options):
    found = []
    for run in range(len(task.splits)):
        model = ObjectivePerturbationClassifier(
            epsilon, **{"delta": DELTA} | options, bound_x=1.0, classes=np.arange(task.n_classes), adjacency=adjacency,
            random_state=run,
        ).fit(*task.learning(run))  # fmt: skip
        found.append(model.score(*task.judged(run)))
    return np.array(found)


def without_privacy(task):
    return float(np.mean(task.accuracies(exact(task, task.n_splits, 1.0))))


def compared(task, kept, options) -> None:
    """Print a row for each epsilon under replace-one, and under add/remove."""
    others = {"replace_one": [], "add_remove": []}
    for rival in rivals(task, options.diffprivlib):
        others[rival.adjacency].append(rival)
    rows = {adjacency: [] for adjacency in others}
    for epsilon, (adjacency, chosen) in itertools.product(EPSILONS[1:2] if options.quick else EPSILONS, others.items()):
        if not chosen:
            continue
        own = ours(task, epsilon, adjacency)
        reached = {}
        for rival in chosen:
            key = f"{task.name}; {rival.name}; {epsilon:g}; {len(own)} runs"
            if key not in kept:
                kept[key] = best(rival, task, epsilon, options.quick)
                if options.rivals:
                    options.rivals.write_text(json.dumps(kept))
            reached[rival.name] = kept[key]
        leader = max(reached, key=lambda name: np.mean(reached[name]["accuracies"]))
        ahead = own - np.array(reached[leader]["accuracies"])
        each = ahead.reshape(-1, task.n_splits).mean(axis=0)
        error = np.std(each, ddof=1) / math.sqrt(len(each))
        mark = " BELOW" if np.mean(ahead) < -task.allowed else ""
        row = {f"{task.name}, {adjacency}: epsilon": f"{epsilon:g}", "no privacy": f"{without_privacy(task):.3f}"}
        row |= {OURS: f"{np.mean(own):.3f}"}
        if options.fixed and adjacency == "replace_one":
            row |= {
                f"ours, {name}": f"{np.mean(ours(task, epsilon, adjacency, **one)):.3f}" for name, one in FIXED.items()
            }
        row |= {name: f"{np.mean(one['accuracies']):.3f}" for name, one in reached.items()}
        row |= {"ours less best rival": f"{np.mean(ahead):+.4f} +- {error:.4f}{mark}"}
        rows[adjacency].append(row | {"best rival (setting)": f"{leader} ({reached[leader]['setting']})"})
    for found in rows.values():
        if found:
            show(found, whole=True)
            print()


def selectors() -> list[Any]:
    """Return the names that SparseRegression takes for its selector."""
    hint = get_type_hints(SparseRegression)["selector"]
    return list(itertools.chain(*(get_args(one) for one in get_args(hint) if get_origin(one) is Literal)))


SPARSE = (
    # title, rows, features, features that count, correlation of every pair of features.
    ("3 of 60, n = 1,000", 1_000, 60, 3, 0.0),
    ("3 of 60, n = 1,000, pairs correlated .6", 1_000, 60, 3, 0.6),
    ("3 of 60, n = 4,000", 4_000, 60, 3, 0.0),
    ("3 of 200, n = 4,000", 4_000, 200, 3, 0.0),
    ("5 of 60, n = 4,000", 4_000, 60, 5, 0.0),
)
RUNS = 100


def sparse(quick: bool) -> None:
    """Print how often each selector finds the support, the share found of it, and the error of coefficients."""
    rows = []
    for (title, n, p, s, correlation), selector in itertools.product(SPARSE[:1] if quick else SPARSE, selectors()):
        runs = 2 if quick else RUNS
        found, recalled, errors = [], [], []
        for run in range(runs):
            x, y, coefficients = sparse_table(n, p, s, run, correlation)
            model = SparseRegression(1.0, DELTA, n_nonzero=s, selector=selector, random_state=run).fit(x, y)
            hits = np.count_nonzero(coefficients[model.support_])
            found.append(hits == s)
            recalled.append(hits / s)
            errors.append(np.linalg.norm(model.coef_ - coefficients))
        default = " (default)" if selector == SparseRegression.selector else ""
        row = {"epsilon = 1": title, "selector": f"{selector}{default}", "runs": runs}
        row |= {"support found": f"{np.mean(found):.0%}", "recall": f"{np.mean(recalled):.2f}"}
        rows.append(row | {"error of coefficients": f"{np.mean(errors):.3f}"})
    show(rows, whole=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", action="append", choices=(*tables(False), "sparse"), help="may be given several times"
    )
    parser.add_argument("--runs", type=int, default=50, help="seeds of the tables that are not of many rows")
    parser.add_argument("--rivals", type=Path, help="keep what rivals reached in this file, and take it from there")
    parser.add_argument("--diffprivlib", help="an interpreter that has diffprivlib 0.6.6")
    parser.add_argument("--fixed", action="store_true", help="ours with its loss or method fixed too")
    parser.add_argument("--quick", action="store_true", help="two seeds, few settings, one epsilon")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UtilityWarning)
    kept = json.loads(options.rivals.read_text()) if options.rivals and options.rivals.exists() else {}
    with threadpool_limits(1):
        for name, make in tables(options.quick).items():
            if options.only is not None and name not in options.only:
                continue
            task = make(2 if options.quick else options.runs)
            if task is None:
                print(f"{name}: what it reads is not here, and it is left out\n")
                continue
            compared(task, kept, options)
            exact.cache_clear()
        if options.only is None or "sparse" in options.only:
            sparse(options.quick)


if __name__ == "__main__":
    main()
