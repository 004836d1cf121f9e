"""Multi-outcome regression on two real tables: accuracy against epsilon beside the fit without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast.ledger import Ledger
from dpfast.multi_outcome import MultiOutcomeRidge
from dpfast.plotting import saved, score_curves
from dpfast.privacy import Privacy, UtilityWarning

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-6
REPEATS = 20

# What is publicly known of the measurements, not read off the table: round upper limits of the 30 features (radius in
# pixels, texture, perimeter, area, smoothness, ...; means, then standard errors, then worst values).
_CANCER_LIMITS = np.concatenate(
    [
        [30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1],
        [3, 5, 25, 500, 0.03, 0.15, 0.4, 0.05, 0.1, 0.03],
        [40, 50, 250, 4000, 0.3, 1.0, 1.2, 0.3, 0.7, 0.2],
    ]
)


@dataclass(frozen=True)
class Task:
    """A table, what is declared of it, and how a prediction is judged."""

    title: str
    rows: FloatArray
    classes: NDArray[np.int64]
    declared: dict[str, Any]


def tasks() -> tuple[Task, Task]:
    """Return the demonstration's tables, which come with scikit-learn."""
    digits, digit = load_digits(return_X_y=True)
    cancer, benign = load_breast_cancer(return_X_y=True)
    return (
        Task(
            "Handwritten digits: ten outcomes on 64 pixels",
            digits / 16.0,
            digit,
            {"bound_x": 4.0, "bound_y": 1.0, "nonnegative": True},
        ),
        Task(
            "Breast cancer: two outcomes on 30 measurements",
            cancer / _CANCER_LIMITS,
            benign,
            {"bound_x": 3.0, "bound_y": 1.0, "nonnegative": True},
        ),
    )


def accuracy(model: MultiOutcomeRidge, rows: FloatArray, classes: NDArray[np.int64]) -> float:
    """Share of rows whose largest predicted outcome is their class."""
    return float(np.mean(np.argmax(model.predict(rows), axis=1) == np.unique(classes).searchsorted(classes)))


def show(output: Path) -> None:
    """Fit, print and plot."""
    curves = []
    for task in tasks():
        print(f"\n{task.title}")
        exact, private, ledger = compare(task)
        curves.append((task.title, exact, private))
        print(f"  {'epsilon':>8}  accuracy on held-out people (mean of {REPEATS} fits)")
        for epsilon, value in zip(EPSILONS, private.mean(axis=0), strict=True):
            print(f"  {epsilon:8g}  {value:.3f}")
        print(f"  {'exact':>8}  {exact:.3f}  (no privacy)")
    print("\nThe record of the last table's first round of fits, for its data-protection officer:\n")
    print(ledger.report())
    if find_spec("matplotlib") is not None:
        figure = optional("matplotlib.figure", "a picture").Figure(figsize=(10.0, 3.6), layout="constrained")
        for axes, (title, exact, private) in zip(figure.subplots(1, len(curves), sharey=True), curves, strict=True):
            score_curves(EPSILONS, private, exact=exact, ax=axes, title=title)
        print(f"\nPlot: {saved(axes, output, 'dpfast-demo.png')}")


def compare(task: Task) -> tuple[float, FloatArray, Ledger]:
    """Fit without and with privacy; return all accuracies, and the ledger of one round of private fits."""
    train_x, test_x, train, test = train_test_split(task.rows, task.classes, test_size=0.3, random_state=0)
    train_y = np.asarray(train[:, None] == np.unique(task.classes), np.float64)
    exact = MultiOutcomeRidge(float("inf"), ridge=1.0, **task.declared).fit(train_x, train_y)
    values = np.empty((REPEATS, len(EPSILONS)))
    ledgers = [Ledger(Privacy(sum(EPSILONS), DELTA * len(EPSILONS))) for _ in range(REPEATS)]
    with warnings.catch_warnings(record=True) as caught:
        # Every fit says so of its own; once is enough here.
        warnings.simplefilter("always", UtilityWarning)
        for repeat in _progress(range(REPEATS)):
            for column, epsilon in enumerate(EPSILONS):
                model = MultiOutcomeRidge(epsilon, DELTA, ledger=ledgers[repeat], **task.declared).fit(train_x, train_y)
                values[repeat, column] = accuracy(model, test_x, test)
    if caught:
        print(f"  As the fits at small epsilon say: {caught[0].message}")
    return accuracy(exact, test_x, test), values, ledgers[0]


def _progress(steps: Iterable[int]) -> Iterator[int]:
    if find_spec("tqdm") is None:
        yield from steps
        return
    tqdm = optional("tqdm", "a progress bar").tqdm
    yield from tqdm(steps, desc="  fitting", leave=False)
