"""What class probabilities are worth: log loss and accuracy on held-out rows, beside the base rate and no privacy.

    python -m benchmarks.probabilities [fits]

"before" is a fixed function of the margins (``probabilities="link"``), with the whole budget for the coefficients. The
tables marked "tuned" are of the kinds that the constants of `dpfast.convex_erm.calibration` were chosen on.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dpfast import ObjectivePerturbationClassifier, UtilityWarning

SETTINGS = ((500, 1.0), (1_000, 0.3), (1_000, 1.0), (4_000, 1.0))
_ROWS, _HELD_OUT = 8_000, 3_000


def made(seed: int, offsets: list[float], slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and classes of a multinomial logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(_ROWS, 6)) / 4.0
    scores = 4.0 * slope * X[:, : len(offsets)] + offsets
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield names, rows and classes."""
    yield "even, tuned", *made(0, [0.0, 0.0, 0.0], 1.0)
    yield "84% of one class, no signal, tuned", *made(0, [2.0, 0.0, -1.0], 0.0)
    yield "five classes of 1 to 74%, tuned", *made(0, [3.0, 1.0, 0.0, -1.0, -2.0], 1.0)
    digits, classes = load_digits(return_X_y=True)
    yield "digits, 10 classes", digits / 16.0 - 0.5, classes
    for shares in ([0.7, 0.3], [0.25] * 4, [0.8, 0.15, 0.05], [0.5, 0.2, 0.1, 0.1, 0.05, 0.05]):
        X, classes = make_classification(
            _ROWS, 12, n_informative=8, n_classes=len(shares), weights=shares, class_sep=0.8, random_state=1
        )
        yield f"clusters, {'/'.join(f'{share:g}'.lstrip('0') for share in shares)}", X / np.abs(X).max(axis=0), classes
    rng = np.random.default_rng(5)
    skewed = rng.lognormal(size=(_ROWS, 5))
    scores = np.column_stack([2.0 * skewed[:, 0], 3.0 * skewed[:, 1] - 6.0, -skewed[:, 2] - 3.0]) / 4.0
    yield "skewed columns", skewed / 8.0, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def main(fits: int) -> None:
    """Print a line for every cell."""
    warnings.simplefilter("ignore", UtilityWarning)
    print("table | people | epsilon | calibrated | before | base rate | no privacy | accuracy | before")
    for name, X, classes in tables():
        bound, labels = float(np.quantile(np.linalg.norm(X, axis=1), 0.9)), np.unique(classes)
        for n, epsilon in SETTINGS:
            if n > len(X) - len(X) // 5:
                continue
            found = []
            for seed in range(fits):
                order = np.random.default_rng(seed).permutation(len(X))
                learning, held_out = order[:n], order[-min(_HELD_OUT, len(X) // 5) :]
                own = {"bound_x": bound, "classes": labels, "random_state": seed}
                models = [
                    ObjectivePerturbationClassifier(epsilon, 1e-6, probabilities=how, **own)
                    for how in ("calibrated", "link")
                ]
                models.append(LogisticRegression(max_iter=2_000))
                rates = np.bincount(classes[learning], minlength=len(labels)) + 0.5
                base = np.broadcast_to(rates / rates.sum(), (len(held_out), len(labels)))
                losses = [log_loss(classes[held_out], base, labels=labels)]
                accuracies = []
                for model in models:
                    model.fit(X[learning], classes[learning])
                    losses.append(log_loss(classes[held_out], model.predict_proba(X[held_out]), labels=labels))
                    accuracies.append(model.score(X[held_out], classes[held_out]))
                found.append([*losses, *accuracies])
            base, calibrated, before, exact, accuracy, accuracy_before, _ = np.mean(found, axis=0)
            print(
                f"{name} | {n} | {epsilon:g} | {calibrated:.2f} | {before:.2f} | {base:.2f} | {exact:.2f} | "
                f"{accuracy:.3f} | {accuracy_before:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
