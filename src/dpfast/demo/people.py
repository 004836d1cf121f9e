"""Tables of people: digits they wrote, measurements of tumours, and how far a disease had gone after a year.

The declared limits are publicly known, not read from the tables: round limits of every measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from dpfast._arrays import FloatArray
from dpfast.convex_erm import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.datasets.made_up import sparse_regression_rows
from dpfast.demo.comparison import Comparison, Line
from dpfast.multi_outcome import MultiOutcomeRidge
from dpfast.sparse_regression import SparseRegression

DELTA = 1e-6
#: Of curves.
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)

# Upper limits of the 30 features (radius in pixels, texture, perimeter, area, smoothness, ...; means, then standard
# errors, then worst values); none is below 0.
_TUMOURS = np.concatenate(
    [
        [30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1],
        [3, 5, 25, 500, 0.03, 0.15, 0.4, 0.05, 0.1, 0.03],
        [40, 50, 250, 4000, 0.3, 1.0, 1.2, 0.3, 0.7, 0.2],
    ]
)
# Age, sex, body mass index, blood pressure and six blood values; and the score of the disease.
_PATIENTS = np.array([[18, 1, 15, 60, 80, 30, 10, 1.5, 3, 50], [90, 2, 45, 140, 350, 260, 110, 10, 6.5, 150]])
_SCORES = 10.0, 360.0
# Body mass index, blood pressure and, as a logarithm, triglycerides.
_KNOWN_TO_MATTER = [2, 3, 8]

#: Of the made-up table: which features count, and how much.
MADE_UP = {7: 0.9, 20: -0.6, 41: 0.5}


def parted(rows: FloatArray, labels: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Hold three of ten people out: rows and labels of the people to fit on, then those of the others."""
    own, others, own_labels, other_labels = train_test_split(rows, labels, test_size=0.3, random_state=0)
    return own, own_labels, others, other_labels


def images() -> tuple[FloatArray, NDArray[np.int64]]:
    """Return 64 pixels from 0 to 1, and the digit that somebody wrote."""
    pixels, written = load_digits(return_X_y=True)
    return pixels / 16.0, written


def measurements() -> tuple[FloatArray, NDArray[np.int64]]:
    """Return 30 measurements of tumours from 0 to 1, and whether these are benign."""
    measured, benign = load_breast_cancer(return_X_y=True)
    return measured / _TUMOURS, benign


def digits() -> Comparison:
    """Classify digits by ten outcomes on 64 pixels."""
    rows, labels, other_rows, other_labels = parted(*images())
    outcomes = np.asarray(labels[:, None] == np.arange(10), np.float64)

    def fit(epsilon: float, delta: float) -> MultiOutcomeRidge:
        ridge: Any = {"ridge": 1.0} if np.isinf(epsilon) else {}
        model = MultiOutcomeRidge(epsilon, delta, bound_x=4.0, bound_y=1.0, nonnegative=True, **ridge)
        return model.fit(rows, outcomes)

    def accuracy(model: MultiOutcomeRidge) -> float:
        return float(accuracy_score(other_labels, np.argmax(model.predict(other_rows), axis=1)))

    return Comparison("digits", len(rows), "accuracy", fit, accuracy)


def tumours() -> Comparison:
    """Classify malignant tumours by 30 measurements."""
    measured, benign = measurements()
    rows, labels, other_rows, other_labels = parted(2.0 * measured - 1.0, benign)

    def fit(epsilon: float, delta: float) -> ObjectivePerturbationClassifier:
        method: Any = "auto" if np.isinf(epsilon) else "gradient"
        model = ObjectivePerturbationClassifier(epsilon, delta, bound_x=3.5, classes=[0, 1], method=method)
        return model.fit(rows, labels)

    def accuracy(model: ObjectivePerturbationClassifier) -> float:
        return float(model.score(other_rows, other_labels))

    return Comparison("breast cancer", len(rows), "accuracy", fit, accuracy)


def patients() -> tuple[FloatArray, FloatArray]:
    """Return what was measured within -1 and 1, and the score of the disease about the middle of its limits."""
    measured, score = load_diabetes(return_X_y=True, scaled=False)
    low, high = _PATIENTS
    return np.clip(2.0 * (measured - low) / (high - low) - 1.0, -1.0, 1.0), score - sum(_SCORES) / 2.0


def _explained(rows: FloatArray, outcomes: FloatArray, model: Any) -> float:
    return float(r2_score(outcomes, model.predict(rows)))


def disease() -> Comparison:
    """Explain the score by three measurements, robustly."""
    rows, score = patients()
    rows = rows[:, _KNOWN_TO_MATTER]

    def fit(epsilon: float, delta: float) -> ObjectivePerturbationRegressor:
        bounds = {"bound_x": np.sqrt(3.0), "bound_y": (_SCORES[1] - _SCORES[0]) / 2.0}
        model = ObjectivePerturbationRegressor(epsilon, delta, loss="huber", **bounds)
        return model.fit(rows, score)

    return Comparison("diabetes, 3 features", len(rows), "R2", fit, partial(_explained, rows, score))


def disease_by_few() -> Comparison:
    """Explain the score by three measurements of ten, which are chosen privately too."""
    rows, score = patients()

    def fit(epsilon: float, delta: float) -> SparseRegression:
        bounds: dict[str, Any] = {"box_x": (-1.0, 1.0), "bound_y": (_SCORES[1] - _SCORES[0]) / 2.0}
        return SparseRegression(epsilon, delta, n_nonzero=3, **bounds).fit(rows, score)

    return Comparison("diabetes, 3 of 10", len(rows), "R2", fit, partial(_explained, rows, score))


def made_up() -> Comparison:
    """Find three features among sixty that make an outcome."""
    rows, outcomes = sparse_regression_rows(4_000, 60, MADE_UP)

    def fit(epsilon: float, delta: float) -> SparseRegression:
        return SparseRegression(epsilon, delta, n_nonzero=3, box_x=(-1.0, 1.0)).fit(rows, outcomes)

    return Comparison("made up, 3 of 60", len(rows), "R2", fit, partial(_explained, rows, outcomes))


def lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield the results of fits, and the fits."""
    yield digits().line(4.0, DELTA)
    yield tumours().line(1.0, DELTA)
    yield disease().line(4.0, DELTA)
    yield disease_by_few().line(4.0, DELTA)
    yield made_up().line(1.0, DELTA)
