"""Quadratics over balls and spheres: optimality conditions, other solvers, every form of input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import linalg, optimize

from dpfast.solvers import projection, quadratic_over_ball, quadratic_over_sphere

SOLVERS = (quadratic_over_ball, quadratic_over_sphere)


def with_multiplier(solver, *problem):
    """Return what a solver returns, and the multiplier of its constraint."""
    x, multiplier = projection._minimise(*problem, sphere=solver is quadratic_over_sphere, n_threads=1)
    assert np.array_equal(x, solver(*problem))
    return x, multiplier


def objective(eigenvalues, coefficients, x):
    return np.sum(eigenvalues * x**2 / 2 - coefficients * x, axis=-1)


def problems(n, terms, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, terms)), rng.normal(size=(n, terms)), np.exp(2 * rng.normal(size=n))


def brentq_minimiser(eigenvalues, coefficients, radius, sphere):
    """What one would write in scipy, for generic problems."""
    lowest = eigenvalues.min()
    if not sphere and lowest > 0 and linalg.norm(coefficients / eigenvalues) <= radius:
        return coefficients / eigenvalues

    def excess(shift):
        return 1 / radius - 1 / linalg.norm(coefficients / (eigenvalues - lowest + shift))

    high = linalg.norm(coefficients) / radius
    return coefficients / (eigenvalues - lowest + optimize.brentq(excess, 1e-12 * high, 2 * high, xtol=1e-15 * high))


@pytest.mark.parametrize("sphere", [False, True])
def test_agrees_with_brentq(sphere):
    eigenvalues, coefficients, radii = problems(200, 10)
    eigenvalues[:50] = np.abs(eigenvalues[:50])
    ours = SOLVERS[sphere](eigenvalues, coefficients, radii)
    for x, *problem in zip(ours, eigenvalues, coefficients, radii, strict=True):
        np.testing.assert_allclose(x, brentq_minimiser(*problem, sphere), rtol=1e-8, atol=1e-8 * problem[2])


floats = st.floats(-1e6, 1e6).map(lambda x: 0.0 if abs(x) < 1e-6 else x)
quadratics = st.integers(1, 8).flatmap(
    lambda n: st.tuples(arrays(float, n, elements=floats), arrays(float, n, elements=floats), st.floats(1e-6, 1e6))
)


@given(quadratics)
def test_optimality_conditions_hold(problem):
    """Necessary and sufficient for a global minimiser (Hager 2001, Lemma 2.1, and its analogue for the ball)."""
    eigenvalues, coefficients, radius = problem
    for solver in SOLVERS:
        x, multiplier = with_multiplier(solver, *problem)
        scale = np.abs(eigenvalues) + abs(multiplier)
        residual = (eigenvalues + multiplier) * x - coefficients
        assert (np.abs(residual) <= 1e-14 * (scale * np.abs(x) + np.abs(coefficients))).all()
        assert multiplier + eigenvalues.min() >= -1e-15 * abs(eigenvalues.min())
        if solver is quadratic_over_ball:
            assert multiplier >= 0.0
            assert linalg.norm(x) <= radius * (1 + 1e-15)
        if solver is quadratic_over_sphere or multiplier > 0.0:
            assert linalg.norm(x) == pytest.approx(radius, rel=1e-15)


@pytest.mark.parametrize("solver", SOLVERS)
def test_nothing_on_a_fine_grid_is_better(solver):
    angles, lengths = np.linspace(0, 2 * np.pi, 2001), np.linspace(0, 1, 101)[:, None, None]
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    for eigenvalues, coefficients, radii in [problems(50, 2, seed=1), (np.ones((9, 2)), np.ones((9, 2)), np.ones(9))]:
        for a, c, r in zip(eigenvalues, coefficients, radii, strict=True):
            points = r * circle * (lengths if solver is quadratic_over_ball else 1.0)
            best = objective(a, c, solver(a, c, r))
            assert best <= objective(a, c, points).min() + 1e-12
            assert best >= objective(a, c, points).min() - 1e-3 * r * (r + 1) * 5


def test_hard_case():
    x, multiplier = with_multiplier(quadratic_over_ball, [2.0, -1.0, -1.0], [3.0, 0.0, 0.0], 2.0)
    np.testing.assert_allclose(x, [1.0, 3.0**0.5, 0.0], rtol=1e-15)
    assert multiplier == 1.0
    # Both signs are minimisers: flipping the free component changes nothing.
    values = [objective(np.array([2.0, -1.0, -1.0]), np.array([3.0, 0.0, 0.0]), x * s) for s in ([1, 1, 1], [1, -1, 1])]
    assert values[0] == values[1]


def test_without_coefficients():
    assert quadratic_over_ball([1.0, 2.0], [0.0, 0.0], 3.0).tolist() == [0.0, 0.0]
    assert quadratic_over_ball([0.0, 2.0], [0.0, 0.0], 3.0).tolist() == [0.0, 0.0]
    assert quadratic_over_ball([1.0, -2.0], [0.0, 0.0], 3.0).tolist() == [0.0, 3.0]
    assert quadratic_over_sphere([2.0, 1.0, 1.0], [0.0, 0.0, 0.0], 3.0).tolist() == [0.0, 3.0, 0.0]


def test_interior_is_the_unconstrained_minimum():
    x, multiplier = with_multiplier(quadratic_over_ball, [3.0, 7.0], [1.0, -1.0], 1e12)
    assert x.tolist() == [1.0 / 3.0, -1.0 / 7.0]
    assert multiplier == 0.0


def test_conventions_of_the_literature():
    """Hager's z'Az - 2b'z has our minimiser, z'Az - b'z that of half the coefficients; both in the original basis."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(4, 4)), rng.normal(size=4)
    a += a.T
    values, vectors = linalg.eigh(a)
    for factor, coefficients in ((2.0, vectors.T @ b), (1.0, vectors.T @ b / 2)):
        z = vectors @ quadratic_over_sphere(values, coefficients, 1.5)
        directions = rng.normal(size=(20_000, 4))
        points = 1.5 * directions / linalg.norm(directions, axis=1, keepdims=True)
        others = np.einsum("ni,ij,nj->n", points, a, points) - factor * points @ b
        assert z @ a @ z - factor * b @ z <= others.min()


@pytest.mark.parametrize("solver", SOLVERS)
def test_batches_are_their_problems(solver):
    eigenvalues, coefficients, radii = problems(40, 7, seed=3)
    x, multipliers = with_multiplier(solver, eigenvalues, coefficients, radii)
    assert x.shape == (40, 7)
    assert multipliers.shape == (40,)
    for i in range(40):
        one, multiplier = with_multiplier(solver, eigenvalues[i], coefficients[i], radii[i])
        assert one.shape == (7,)
        assert multiplier.shape == ()
        assert np.array_equal(one, x[i])
        assert multiplier == multipliers[i]


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_is_given_once_is_shared(solver):
    eigenvalues, coefficients, radii = problems(6, 5, seed=4)
    tiled = np.tile(eigenvalues[0], (6, 1)), np.tile(coefficients[0], (6, 1)), np.full(6, radii[0])
    assert np.array_equal(solver(eigenvalues[0], coefficients, radii), solver(tiled[0], coefficients, radii))
    assert np.array_equal(solver(eigenvalues[0], coefficients[0], radii), solver(tiled[0], tiled[1], radii))
    assert np.array_equal(solver(eigenvalues, coefficients, radii[0]), solver(eigenvalues, coefficients, tiled[2]))
    assert np.array_equal(solver(eigenvalues[:1], coefficients, radii[:1]), solver(tiled[0], coefficients, tiled[2]))


@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_do_not_matter(solver):
    eigenvalues, coefficients, radii = problems(9000, 10, seed=5)
    one = solver(eigenvalues, coefficients, radii, n_threads=1)
    for n_threads in (2, 3):
        assert np.array_equal(one, solver(eigenvalues, coefficients, radii, n_threads=n_threads))


@pytest.mark.parametrize("solver", SOLVERS)
def test_forms_of_input(solver):
    eigenvalues, coefficients, radii = problems(12, 6, seed=6)
    eigenvalues, coefficients = np.float64(np.float32(eigenvalues)), np.float64(np.float32(coefficients))
    expected = solver(eigenvalues, coefficients, radii)
    assert np.array_equal(solver(np.float32(eigenvalues), np.float32(coefficients), radii), expected)
    assert np.array_equal(solver(np.asfortranarray(eigenvalues), coefficients, radii), expected)
    wide = np.repeat(np.repeat(coefficients, 2, axis=0), 3, axis=1)
    assert np.array_equal(solver(eigenvalues, wide[::2, ::3], np.repeat(radii, 2)[::2]), expected)
    coefficients.flags.writeable = False
    assert np.array_equal(solver(eigenvalues.tolist(), coefficients, radii.tolist()), expected)
    assert solver(np.empty((0, 6)), coefficients[0], 1.0).shape == (0, 6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1.0, np.nan], [1.0, 1.0], 1.0), ValueError, "eigenvalues must be finite"),
        (([1.0, 1.0], [1.0, np.inf], 1.0), ValueError, "coefficients must be finite"),
        (([1.0], [1.0], np.inf), ValueError, "radius must be finite"),
        (([1.0], [1.0], 0.0), ValueError, "radius must be positive"),
        (([1.0], [1.0], [1.0, -1.0]), ValueError, "radius must be positive"),
        (([1.0, 1.0], [1.0], 1.0), ValueError, "equally many terms"),
        (([], [], 1.0), ValueError, "equally many terms"),
        ((np.ones((2, 3)), np.ones((4, 3)), 1.0), ValueError, "equally many problems"),
        ((np.ones((2, 3)), np.ones(3), np.ones(3)), ValueError, "equally many problems"),
        ((1.0, [1.0], 1.0), ValueError, "eigenvalues must have 1 or 2 dimensions"),
        (([1.0], [1.0], [[1.0]]), ValueError, "radius must have 0 or 1 dimensions"),
        ((["a"], [1.0], 1.0), TypeError, "eigenvalues must hold real numbers"),
        (([1.0], [1.0j], 1.0), TypeError, "coefficients must hold real numbers"),
    ],
)
def test_bad_input_is_named(solver, arguments, error, message):
    with pytest.raises(error, match=message):
        solver(*arguments)
