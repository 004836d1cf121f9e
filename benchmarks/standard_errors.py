"""How often limits of logistic, Huber, quantile and Poisson fits cover, and what they cost what predicts.

    python -m benchmarks.standard_errors [logistic|huber|quantile|poisson|counts] [fits]

Tables have three correlated columns, a skewed one, an indicator that 2% have and one that 40% have; in half of them the
model is wrong: what is sought then is what the loss finds in 1.6 million rows. Tables of counts have four columns, and
rates about 0.8: alike, of 5% of the people 25 times as large, or times log-normal, gamma or two-point factors. No
constant was chosen on any, but for what a last step of counts may change (solvers/sandwich.py), on poisson and counts.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.special import expit

from dpfast import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor, UtilityWarning

CELLS = ((5_000, 3.0), (20_000, 1.0))
LOSSES = ("logistic", "huber", "quantile", "poisson")
COUNTS = ("alike", "few rates of 25", "log-normal rates", "negative binomial", "zero-inflated")
CELLS_OF_COUNTS = ((2_000, 1.0), (2_000, 3.0), (10_000, 1.0), (10_000, 3.0))
_ZERO = 3  # of estimates, where the model is true


def table(rng: np.random.Generator, n: int, loss: str, *, wrong: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up rows and outcomes."""
    if loss in COUNTS:
        return counts(rng, n, loss)
    Z = rng.normal(size=(n, 6))
    Z[:, 1] = 0.7 * Z[:, 0] + 0.714 * Z[:, 1]
    Z[:, 2] = 0.5 * Z[:, 1] + 0.866 * Z[:, 2]
    Z[:, 3] = np.minimum(rng.lognormal(0.0, 0.8, size=n), 8.0) / 2.0 - 0.7
    Z[:, 4] = rng.random(n) < 0.02
    Z[:, 5] = rng.random(n) < 0.4
    X = Z / 4.0
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    z = X @ [1.5, -1.0, 0.0, 0.8, 1.0, -0.7] + 0.2
    if wrong:
        z = 1.2 * np.sin(2.2 * z) + 4.0 * X[:, 0] * X[:, 5] - 0.5 * (X[:, 3] > 0.1)
    if loss == "logistic":
        return X, (rng.random(n) < expit(z)).astype(float)
    if loss == "poisson":
        spread = rng.gamma(2.0, 0.5, size=n) if wrong else 1.0
        return X, np.minimum(rng.poisson(np.exp(z - 0.3) * spread), 8).astype(float)
    noise = 0.15 * rng.standard_t(4, size=n)
    if wrong:
        noise = (rng.exponential(size=n) - 1.0) * 0.2 * (1.0 + 4.0 * np.abs(X[:, 0]))
    return X, np.clip(0.4 * z + noise, -1.5, 1.5)


def counts(rng: np.random.Generator, n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up rows and counts."""
    X = rng.normal(size=(n, 4)) / 3.0
    coefficients, rate = np.array([0.8, -0.5, 0.0, 0.4]), np.exp(-0.2)
    if kind == "alike":
        coefficients *= 0.3
    if kind == "few rates of 25":
        few = rng.random(n) < 0.05
        X[:, 3] = np.where(few, 0.8, 0.3 * X[:, 3])
        coefficients[3], rate = 0.0, np.where(few, 7.5, 0.3)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    if kind == "log-normal rates":
        rate *= rng.lognormal(-0.32, 0.8, size=n)
    if kind == "negative binomial":
        rate *= rng.gamma(1.0, 1.0, size=n)
    if kind == "zero-inflated":
        rate *= 1.6 * (rng.random(n) < 0.6)
    return X, np.minimum(rng.poisson(rate * np.exp(X @ coefficients)), bound_of(kind)).astype(float)


def bound_of(loss: str) -> float:
    """Return the bound on outcomes."""
    return 20.0 if loss == COUNTS[1] else 12.0 if loss in COUNTS else 8.0 if loss == "poisson" else 1.5


def model(loss: str, epsilon: float, *, inference: bool = True):
    """Return an estimator."""
    of_counts = loss == "poisson" or loss in COUNTS
    method = "objective" if of_counts else "gradient"
    own = {"bound_x": 1.0, "fit_intercept": True, "inference": inference, "method": method}
    if np.isinf(epsilon):
        own["method"] = "auto"
    if loss == "logistic":
        return ObjectivePerturbationClassifier(epsilon, 1e-6, classes=[0, 1], **own)
    named = "poisson" if of_counts else loss
    return ObjectivePerturbationRegressor(epsilon, 1e-6, loss=named, bound_y=bound_of(loss), **own)


def _error(fitted, X: np.ndarray, sought: np.ndarray) -> float:
    """Return how far predictions are off, about their mean, at the best multiple of them: 0 to 1."""
    found = X @ np.ravel(fitted.coef_)
    return float(np.sqrt(1.0 - min(np.corrcoef(found, X @ sought[1:])[0, 1], 1.0) ** 2))


def told_of_limits(off: np.ndarray, said: np.ndarray, held: np.ndarray) -> str:
    """Return the share of known errors, of limits that hold, the least of a coefficient, and errors said over made.

    All have a fit in each row, and NaN in `off` or `said` where nothing is known.
    """
    known = ~np.isnan(off + said)
    often = known.sum(axis=0) >= max(len(off) // 4, 1)
    each, sizes = [], []
    for j in np.flatnonzero(often):
        k = known[:, j]
        each.append(held[k, j].mean())
        sizes.append(np.sqrt(np.mean(said[k, j] ** 2) / np.mean(off[k, j] ** 2)))
    return (
        f"{known.mean():.2f}; {held[known].mean() if known.any() else np.nan:.3f}, {min(each, default=np.nan):.2f}; "
        f"{np.mean(sizes) if sizes else np.nan:.2f}"
    )


def main(losses: tuple[str, ...], fits: int) -> None:
    """Print a line for every cell."""
    warnings.simplefilter("ignore", UtilityWarning)
    print("loss, model, people, epsilon: known; covered, least; error said over made; p < .05 of zeros; cost")
    for loss in losses:
        for wrong in (False,) if loss in COUNTS else (False, True):
            tables = (table(np.random.default_rng(99 + i), 400_000, loss, wrong=wrong) for i in range(4))
            sought = np.mean([model(loss, np.inf).fit(*one).estimate_ for one in tables], axis=0)
            for n, epsilon in CELLS_OF_COUNTS if loss in COUNTS else CELLS:
                found, said, cost = [], [], []
                for seed in range(fits):
                    X, y = table(np.random.default_rng(1_000 + seed), n, loss, wrong=wrong)
                    fitted = model(loss, epsilon).fit(X, y)
                    found.append(fitted.estimate_)
                    said.append(np.sqrt(np.diag(fitted.covariance_)))
                    if seed < fits // 4:
                        plain = model(loss, epsilon, inference=False).fit(X, y)
                        cost.append([_error(one, X, sought) for one in (fitted, plain)])
                off, said = np.array(found) - sought, np.array(said)
                known = ~np.isnan(off)
                shares = told_of_limits(off, said, np.abs(off) < 1.96 * said)
                zero = known[:, _ZERO]
                chance = (
                    np.mean(np.abs(np.array(found)[zero, _ZERO]) > 1.96 * said[zero, _ZERO]) if zero.any() else np.nan
                )
                with_errors, without = np.median(cost, axis=0)
                print(
                    f"{loss:17} {'wrong' if wrong else 'true':5} {n:6} {epsilon:g}: {shares}; "
                    f"{np.nan if wrong else chance:.3f}; "
                    f"{with_errors / without:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    requested = COUNTS if "counts" in sys.argv[1:] else tuple(one for one in sys.argv[1:] if one in LOSSES)
    main(requested or LOSSES, int(next((one for one in sys.argv[1:] if one.isdigit()), "100")))
