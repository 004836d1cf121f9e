"""Steps in twice the working precision: against exact arithmetic, at every vector level."""

import mpmath as mp
import numpy as np
import pytest
from reference import constrained as reference
from reference.projections import exactly_onto_l1_ball

from dpfast.kernels.descent import QuadraticSteps, add
from dpfast.solvers import Box, L1Ball, L2Ball
from dpfast.solvers.constraints import QuadraticBounds

UNIT = 2.0**-53
LEVELS = (0, 1, 2)


def pair(rng, n, scale=1.0):
    high = scale * rng.normal(size=n)
    return np.stack([high, high * rng.uniform(-UNIT, UNIT, n)])


def exact(x):
    return [mp.mpf(float(a)) + mp.mpf(float(b)) for a, b in x.T]


def test_a_sum_of_vectors_has_twice_the_precision():
    rng = np.random.default_rng(3)
    a, other, total = pair(rng, 200), pair(rng, 200, 1e-3), np.empty((2, 200))
    # The first parts cancel in the second half.
    b = np.where(np.arange(200) < 100, other, -a * [[1.0], [0.5]])
    add(a, b, total)
    assert np.array_equal(total[0], total[0] + total[1])
    with mp.workprec(300):
        for found, one, two in zip(exact(total), exact(a), exact(b), strict=True):
            assert abs(found - (one + two)) <= 3.1 * UNIT**2 * abs(one + two)
    with pytest.raises(IndexError, match="one length"):
        add(a, b[:, 1:].copy(), total)


def steps_on(problem, level=-1):
    array, transposed, linear, diagonal, weight, step, name, radius, bounds = problem
    return QuadraticSteps(
        array, transposed, linear, diagonal=diagonal, weight=weight, step=step, set_name=name, radius=radius,
        bounds=bounds, level=level,
    )  # fmt: skip


def problem(rng, n, k, name, weight=0.0):
    if k:
        array = rng.normal(size=(n, k)) / np.sqrt(n * k)
        transposed, smoothness = np.ascontiguousarray(array.T), 2 * np.linalg.norm(array, 2) ** 2 * (1 + 1e-12) + 0.25
    else:
        array, _, _ = reference.definite_matrix(rng, n, 1e6)
        transposed, smoothness = None, 1.26
    bounds = (np.full(n, -0.3), np.full(n, 0.4)) if name == "box" else None
    return array, transposed, rng.normal(size=n), (0.25, 1e-18), weight, 1.0 / smoothness, name, 0.7, bounds


def exact_gradient(problem, x):
    array, transposed, linear, diagonal = problem[:4]
    a = mp.matrix(array.tolist())
    y = mp.matrix(exact(x))
    image = a * y if transposed is None else 2 * (a * (a.T * y))
    return [
        image[i] + (mp.mpf(diagonal[0]) + mp.mpf(diagonal[1])) * y[i] + mp.mpf(linear[i]) for i in range(len(linear))
    ]


def exact_step(problem, x):
    weight, step, name, radius, bounds = problem[4:]
    gradient = exact_gradient(problem, x)
    y = [a - mp.mpf(step) * g for a, g in zip(exact(x), gradient, strict=True)]
    y = [mp.sign(a) * max(abs(a) - mp.mpf(step) * mp.mpf(weight), 0) for a in y]
    if name == "box":
        return [min(max(a, mp.mpf(low)), mp.mpf(high)) for a, low, high in zip(y, *bounds, strict=True)]
    if name == "l2_ball":
        norm = mp.sqrt(mp.fsum(a * a for a in y))
        return y if norm <= radius else [a * mp.mpf(radius) / norm for a in y]
    if name == "l1_ball" and mp.fsum(abs(a) for a in y) > radius:
        descending = sorted((abs(a) for a in y), reverse=True)
        thresholds = [(mp.fsum(descending[: i + 1]) - mp.mpf(radius)) / (i + 1) for i in range(len(y))]
        threshold = next(t for a, t in reversed(list(zip(descending, thresholds, strict=True))) if a > t)
        return [mp.sign(a) * max(abs(a) - threshold, 0) for a in y]
    return y


def norm_of_error(computed, exact_values):
    return float(mp.sqrt(mp.fsum((a - b) ** 2 for a, b in zip(exact(computed), exact_values, strict=True))))


def bounds_of(problem):
    array, transposed, linear, _, weight, step, name, radius, box = problem
    constraint = {
        "box": Box(low=-0.3, high=0.4) if box else None,
        "l2_ball": L2Ball(radius),
        "l1_ball": L1Ball(radius),
        "whole_space": L2Ball(10.0),
    }[name]
    k = 0 if transposed is None else array.shape[1]
    return QuadraticBounds.of(len(linear), k, constraint, weight, 0.25, 1.0 / step)


@pytest.mark.parametrize("k", [0, 3, 20])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
def test_gradients_are_as_accurate_as_claimed(n, k):
    rng = np.random.default_rng(n + k)
    with mp.workdps(60):
        given = problem(rng, n, k, "whole_space")
        for scale in (1.0, 1e-8):
            x, gradient = pair(rng, n, scale), np.empty((2, n))
            # A vector that cancels the product to some 1e-16 shows the errors of both.
            given = (
                *given[:2],
                -np.array([float(g) for g in exact_gradient((*given[:2], 0 * given[2], given[3]), x)]),
                *given[3:],
            )
            steps_on(given).gradient(x, gradient)
            claimed = bounds_of(given).gradient_error(np.linalg.norm(x[0]), np.linalg.norm(given[2]))
            assert norm_of_error(gradient, exact_gradient(given, x)) <= claimed
            assert claimed <= 1e-25 * (scale + np.linalg.norm(given[2]))


@pytest.mark.parametrize("weight", [0.0, 0.3])
@pytest.mark.parametrize("name", ["whole_space", "box", "l2_ball", "l1_ball"])
def test_steps_are_as_accurate_as_claimed(name, weight):
    rng = np.random.default_rng(3)
    with mp.workdps(60):
        for n, k in [(1, 0), (2, 0), (9, 0), (9, 2), (30, 40)]:
            given = problem(rng, n, k, name, weight)
            for _ in range(5):
                x, stepped = pair(rng, n, rng.choice([1e-6, 0.3, 10.0])), np.empty((2, n))
                on_boundary = steps_on(given).step(x, stepped)
                expected = exact_step(given, x)
                claimed = bounds_of(given).step_error(np.linalg.norm(x[0]), np.linalg.norm(given[2]))
                assert norm_of_error(stepped, expected) <= claimed
                if name in ("l1_ball", "l2_ball"):
                    norm = mp.norm(mp.matrix(expected), 1 if name == "l1_ball" else 2)
                    assert on_boundary == (abs(norm - mp.mpf(given[7])) < 1e-40)


@pytest.mark.parametrize("n", [1, 5, 8, 33])
def test_steps_that_tie_in_the_l1_ball(n):
    """Equal entries, and a step that lands exactly on the sphere."""
    identity = np.eye(n)
    for linear in (-np.ones(n), np.where(np.arange(n) % 2, 1.0, -1.0), -np.full(n, 0.5 / n)):
        given = (0.0 * identity, None, linear, (1.0, 0.0), 0.0, 1.0, "l1_ball", 0.5, None)
        stepped = np.empty((2, n))
        steps_on(given).step(np.zeros((2, n)), stepped)
        expected = exactly_onto_l1_ball(-linear, 0.5)
        with mp.workdps(60):
            assert norm_of_error(stepped, [mp.mpf(x.numerator) / x.denominator for x in expected]) <= 1e-31


@pytest.mark.parametrize("name", ["whole_space", "box", "l2_ball", "l1_ball"])
def test_accelerated_steps_are_steps_and_extrapolations(name):
    rng = np.random.default_rng(4)
    given = problem(rng, 6, 0, name, 0.1)
    steps, momentum = steps_on(given), 0.75
    x, last = pair(rng, 6), pair(rng, 6)
    expected, before = x.sum(axis=0), last.sum(axis=0)
    for _ in range(3):
        ahead = expected + momentum * (expected - before)
        out = np.empty((2, 6))
        steps.step(np.stack([ahead, np.zeros(6)]), out)
        before, expected = expected, out.sum(axis=0)
    steps.accelerate(momentum, 3, x, last)
    np.testing.assert_allclose(x.sum(axis=0), expected, atol=1e-14)
    np.testing.assert_allclose(last.sum(axis=0), before, atol=1e-14)


@pytest.mark.parametrize("k", [0, 5])
@pytest.mark.parametrize("n", [1, 7, 8, 65])
@pytest.mark.parametrize("name", ["whole_space", "box", "l2_ball", "l1_ball"])
def test_levels_give_the_same_bits(name, n, k):
    rng = np.random.default_rng(n)
    given, start = problem(rng, n, k, name, 0.05), pair(rng, n)
    results = []
    for level in LEVELS:
        x, last = start.copy(), np.zeros((2, n))
        steps_on(given, level).accelerate(0.5, 20, x, last)
        results.append(x)
    assert all(np.array_equal(results[0], other) for other in results[1:])
