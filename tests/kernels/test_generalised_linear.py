"""Sums of losses over rows: against NumPy, against many digits, at every vector level."""

import mpmath as mp
import numpy as np
import pytest
from reference.losses import numpy_loss

from dpfast.kernels.descent import LossSums, local_losses
from dpfast.solvers import (
    CappedLogisticLoss,
    GeneralisedLinear,
    LogisticLoss,
    PoissonLoss,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)

LOSSES = [
    SquaredLoss(),
    LogisticLoss(),
    LogisticLoss(2.5),
    CappedLogisticLoss(0.25),
    CappedLogisticLoss(0.9),
    SmoothedHinge(0.5),
    SmoothedHuber(1.0, 0.25),
    SmoothedQuantile(0.8, 0.5),
    PoissonLoss(3.0),
]
LEVELS = (0, 1, 2)


def table(n, d, loss, seed=0):
    rng = np.random.default_rng(seed)
    rows, y = rng.normal(size=(n, d)), outcomes_of(loss, rng.normal(size=n))
    return rows, y, rng.normal(size=d)


def outcomes_of(loss, y):
    if loss.is_classification:
        # Of weight 1, or less.
        return np.sign(y) * np.where(np.abs(y) < 0.5, np.abs(y), 1.0)
    return np.abs(y) if loss.is_of_counts else y


def sums(rows, outcomes, loss, level=-1):
    return LossSums(rows, outcomes, kind=loss.kind, level=level, **loss.parameters())


def exact_derivative(loss, z, y):
    if isinstance(loss, LogisticLoss):
        return -y / (1 + mp.exp(mp.sign(y) * z - mp.mpf(loss.shift)))
    if isinstance(loss, CappedLogisticLoss):
        cap, start = (mp.mpf(loss.parameters()[name]) for name in ("threshold", "start"))
        p = 1 / (1 + mp.exp(start))
        u = mp.sign(y) * z
        rest = max(1 - (start - u) * p * (1 - p) / (2 * (cap - p)), mp.mpf(0))
        return -y * (1 / (1 + mp.exp(u)) if u >= start else cap - (cap - p) * rest**2)
    if isinstance(loss, PoissonLoss):
        largest, start = (mp.mpf(loss.parameters()[name]) for name in ("threshold", "start"))
        rate = mp.exp(start)
        rest = max(1 - (z - start) * rate / (2 * (largest - rate)), mp.mpf(0))
        return (mp.exp(z) if z <= start else largest - (largest - rate) * rest**2) - y
    if isinstance(loss, SmoothedQuantile):
        h = mp.mpf(loss.width)
        t = min(max((y - z + h) / (2 * h), mp.mpf(0)), mp.mpf(1))
        return (1 - t) ** 2 * (1 + 2 * t) - mp.mpf(loss.level)
    if isinstance(loss, SmoothedHinge):
        h = mp.mpf(loss.width)
        t = min(max((mp.sign(y) * z - 1 + h) / (2 * h), mp.mpf(0)), mp.mpf(1))
        return -y * (1 - t) ** 2 * (1 + 2 * t)
    if isinstance(loss, SmoothedHuber):
        r, c, h = z - y, mp.mpf(loss.threshold), mp.mpf(loss.width)
        w = min(c + h - abs(r), 2 * h)
        return r if w == 2 * h else mp.sign(r) * (c - max(w, 0) ** 2 / (4 * h))
    return z - y


def exact_gradient(rows, outcomes, loss, theta):
    theta = [mp.mpf(float(a)) + mp.mpf(float(b)) for a, b in theta.T]
    total = [mp.mpf(0)] * len(theta)
    for row, y in zip(rows, outcomes, strict=True):
        row = [mp.mpf(float(x)) for x in row]
        derivative = exact_derivative(loss, mp.fsum(x * t for x, t in zip(row, theta, strict=True)), mp.mpf(float(y)))
        total = [a + derivative * x for a, x in zip(total, row, strict=True)]
    return total


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 3), (300, 8), (50, 17), (3000, 2)])
def test_models_are_numpys(loss, n, d):
    rows, y, theta = table(n, d, loss)
    z, gradient, hessian = rows @ theta, np.empty(d), np.empty((d, d))
    value = sums(rows, y, loss).model(theta, 0, n, gradient, hessian)
    values, slopes, curvatures = numpy_loss(loss, z, y)
    assert value == pytest.approx(values.sum(), rel=1e-12)
    np.testing.assert_allclose(gradient, rows.T @ slopes, atol=1e-12 * n)
    expected = rows.T @ (curvatures[:, None] * rows)
    np.testing.assert_allclose(np.triu(hessian), np.triu(expected), atol=1e-12 * n)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@mp.workdps(60)
def test_weights_multiply_losses(loss):
    rows, y, theta = table(40, 5, loss)
    weights = np.random.default_rng(1).uniform(0.0, 1.0, 40)
    weights[:3] = 0.0, 1.0, 2.0**-60
    parts = [local_model(loss, rows, y, theta, weights, level) for level in (-1, *LEVELS)]
    _, slopes, curvatures = weights * numpy_loss(loss, rows @ theta, y)
    np.testing.assert_allclose(parts[0][1], rows.T @ slopes, atol=1e-12)
    expected = rows.T @ (curvatures[:, None] * rows)
    np.testing.assert_allclose(np.triu(parts[0][2]), np.triu(expected), atol=1e-12)
    point = np.stack([theta, 2.0**-54 * theta])
    exact = [mp.mpf(0)] * 5
    for row, outcome, weight in zip(rows, y, weights, strict=True):
        own = exact_gradient(row[None], outcome[None], loss, point)
        exact = [a + mp.mpf(float(weight)) * b for a, b in zip(exact, own, strict=True)]
    gradient = np.empty((2, 5))
    LossSums(rows, y, weights, kind=loss.kind, **loss.parameters()).precise_gradient(point, 0, 40, gradient)
    error = [mp.mpf(float(a)) + mp.mpf(float(b)) - c for a, b, c in zip(*gradient, exact, strict=True)]
    bound = GeneralisedLinear(rows, y, loss, row_bound=8.0, outcome_bound=8.0, weights=weights)
    assert mp.norm(error) <= bound.gradient_error(float(np.linalg.norm(theta)))
    for part in parts[1:]:
        for one, other in zip(part, parts[0], strict=True):
            np.testing.assert_array_equal(one, other)


def local_model(loss, rows, y, theta, weights, level):
    n = len(theta)
    gradient, hessian = np.empty(n), np.empty((n, n))
    sums = LossSums(rows, y, weights, kind=loss.kind, level=level, **loss.parameters())
    return sums.model(theta, 0, len(rows), gradient, hessian), gradient, np.triu(hessian)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_losses_of_arrays_are_numpys(loss):
    rng = np.random.default_rng(3)
    y, z = outcomes_of(loss, rng.normal(size=2000)), rng.uniform(-4.0, 4.0, 2000)
    parts = np.empty((3, 2000))
    local_losses(z, y, parts, kind=loss.kind, **loss.parameters())
    for part, expected in zip(parts, numpy_loss(loss, z, y), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize(("n", "d", "size"), [(1, 1, 1.0), (20, 3, 1.0), (6, 19, 5.0), (30, 2, 1e-3), (1100, 1, 0.3)])
def test_precise_gradients_are_as_accurate_as_claimed(loss, n, d, size):
    rows, y, theta = table(n, d, loss, seed=n)
    theta = size * np.stack([theta, theta * 2.0**-55])
    function = GeneralisedLinear(
        rows, y, loss, row_bound=np.linalg.norm(rows, axis=1).max() * 1.01, outcome_bound=np.abs(y).max()
    )
    computed = function.gradient(theta)
    with mp.workdps(60):
        exact = exact_gradient(rows, y, loss, theta)
        error = mp.sqrt(
            mp.fsum((mp.mpf(float(a)) + mp.mpf(float(b)) - e) ** 2 for a, b, e in zip(*computed, exact, strict=True))
        )
    claimed = function.gradient_error(np.linalg.norm(theta[0]))
    assert error <= claimed
    assert claimed <= 1e-22 * function.gradient_bound(np.linalg.norm(theta[0]))


@pytest.mark.parametrize("loss", LOSSES[1:], ids=str)
def test_precise_derivatives_over_the_whole_range(loss):
    """One row each; logistic tails keep their relative accuracy, bends their absolute one."""
    rng = np.random.default_rng(5)
    points = np.concatenate(
        [rng.uniform(-4, 4, 60), rng.uniform(-600, 600, 20), [0.5, 1.0, 1.5, 0.75, 1.25, -0.25, 0.0]]
    )
    for z in points:
        for y in (-1.0, 1.0, -0.3):
            gradient, theta = np.empty((2, 1)), np.array([[z], [z * 2.0**-56]])
            sums(np.ones((1, 1)), np.array([y]), loss).precise_gradient(theta, 0, 1, gradient)
            with mp.workdps(60):
                exact = exact_gradient([[1.0]], [y], loss, theta)[0]
                error = abs(mp.mpf(gradient[0, 0]) + mp.mpf(gradient[1, 0]) - exact)
                relative = 0 if isinstance(loss, LogisticLoss) else 2.0**-100 * (abs(z) + 3)
                assert error <= 2.0**-90 * abs(exact) + relative


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_ranges_add_up_and_threads_do_not_matter(loss):
    rows, y, theta = table(20_000, 20, loss)
    pair = np.stack([theta, np.zeros(20)])
    functions = [GeneralisedLinear(rows, y, loss, row_bound=10.0, outcome_bound=9.0, n_threads=k) for k in (1, 2, 3)]
    gradients = [function.gradient(pair) for function in functions]
    models = [function.local_model(theta) for function in functions]
    for gradient, model in zip(gradients[1:], models[1:], strict=True):
        assert np.array_equal(gradients[0], gradient)
        assert all(np.array_equal(a, b) for a, b in zip(models[0], model, strict=True))
    np.testing.assert_allclose(gradients[0].sum(axis=0), models[0][1], rtol=1e-10, atol=1e-9)
    np.testing.assert_array_equal(models[0][2], models[0][2].T)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("d", [1, 8, 11])
def test_levels_give_the_same_bits(loss, d):
    rows, y, theta = table(1500, d, loss)
    results = []
    for level in LEVELS:
        gradient, hessian, precise = np.empty(d), np.empty((d, d)), np.empty((2, d))
        value = sums(rows, y, loss, level).model(theta, 0, 1500, gradient, hessian)
        sums(rows, y, loss, level).precise_gradient(np.stack([theta, 1e-17 * theta]), 0, 1500, precise)
        results.append(np.concatenate([[value], gradient, precise.ravel()]))
    assert all(np.array_equal(results[0], other) for other in results[1:])
