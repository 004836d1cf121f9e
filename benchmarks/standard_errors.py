"""How often limits of logistic, Huber, quantile and Poisson fits cover, and what they cost what predicts.

    python -m benchmarks.standard_errors [logistic|huber|quantile|poisson] [fits]

Tables have three correlated columns, a skewed one, an indicator that 2% have and one that 40% have; in half of them the
model is wrong: what is sought then is what the loss finds in 1.6 million rows. No constant was chosen on them.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.special import expit

from dpfast import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor, UtilityWarning

CELLS = ((5_000, 3.0), (20_000, 1.0))
LOSSES = ("logistic", "huber", "quantile", "poisson")
_ZERO = 3  # of estimates, where the model is true


def table(rng: np.random.Generator, n: int, loss: str, *, wrong: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up rows and outcomes."""
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


def model(loss: str, epsilon: float, *, inference: bool = True):
    """Return an estimator."""
    method = "objective" if loss == "poisson" else "gradient"
    own = {"bound_x": 1.0, "fit_intercept": True, "inference": inference, "method": method}
    if np.isinf(epsilon):
        own["method"] = "auto"
    if loss == "logistic":
        return ObjectivePerturbationClassifier(epsilon, 1e-6, classes=[0, 1], **own)
    bound = 8.0 if loss == "poisson" else 1.5
    return ObjectivePerturbationRegressor(epsilon, 1e-6, loss=loss, bound_y=bound, **own)


def _error(fitted, X: np.ndarray, sought: np.ndarray) -> float:
    """Return how far predictions are off, about their mean, at the best multiple of them: 0 to 1."""
    found = X @ np.ravel(fitted.coef_)
    return float(np.sqrt(1.0 - min(np.corrcoef(found, X @ sought[1:])[0, 1], 1.0) ** 2))


def told_of_limits(off: np.ndarray, said: np.ndarray, held: np.ndarray) -> str:
    """Return the share of known errors, of limits that hold, the least of a coefficient, and errors said over made.

    All have a fit in each row, and NaN in `off` or `said` where nothing is known.
    """
    known = ~np.isnan(off + said)
    often = known.sum(axis=0) >= len(off) // 4
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
        for wrong in (False, True):
            tables = (table(np.random.default_rng(99 + i), 400_000, loss, wrong=wrong) for i in range(4))
            sought = np.mean([model(loss, np.inf).fit(*one).estimate_ for one in tables], axis=0)
            for n, epsilon in CELLS:
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
                    f"{loss:8} {'wrong' if wrong else 'true':5} {n:6} {epsilon:g}: {shares}; "
                    f"{np.nan if wrong else chance:.3f}; "
                    f"{with_errors / without:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    asked = tuple(one for one in sys.argv[1:] if one in LOSSES)
    main(asked or LOSSES, int(next((one for one in sys.argv[1:] if one.isdigit()), "100")))
