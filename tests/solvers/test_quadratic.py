"""Quadratics over balls and boxes: the promised distance against 400 digits, hard cases, the guaranteed way, input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import constrained as reference
from scipy import optimize

from dpfast.solvers import (
    Box,
    ElasticNet,
    L1Ball,
    L2Ball,
    Lasso,
    Ridge,
    constraints,
    minimise_factored,
    quadratic,
)
from dpfast.solvers.quadratic import QuadraticProblem

CONSTRAINTS = {
    "l1": L1Ball(0.5),
    "l2": L2Ball(0.5),
    "box": Box(0.2),
    "shifted_box": Box(low=[0.1, -1.0, -0.2], high=[0.3, 0.0, 0.5]),
}
PENALTIES = {"none": None, "lasso": Lasso(0.2), "ridge": Ridge(0.5), "elastic_net": ElasticNet(0.1, 0.3)}


def solved(matrix, vector, constraint, penalty, low, high, tolerance=1e-13):
    return reference.minimised(
        matrix,
        vector,
        constraint=constraint,
        penalty=penalty,
        strong_convexity=low,
        smoothness=high,
        tolerance=tolerance,
    )


def weights(penalty):
    return (0.0, 0.0) if penalty is None else (penalty.l1, penalty.l2)


def objective(matrix, vector, penalty, x):
    l1, l2 = weights(penalty)
    return 0.5 * x @ matrix @ x + vector @ x + l1 * np.abs(x).sum() + 0.5 * l2 * x @ x


@pytest.fixture
def never_certified(monkeypatch):
    """Leave the guaranteed way alone with its number of steps."""
    certified = constraints.Certificate.certified

    def blind(self, x):
        found, on_boundary = certified(self, x)
        return constraints.Minimiser(found.x, np.inf), on_boundary

    monkeypatch.setattr(quadratic, "guesses", lambda problem: iter(()))
    monkeypatch.setattr(constraints.Certificate, "certified", blind)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_the_distance_bound_is_true_and_not_loose(constraint, penalty):
    rng = np.random.default_rng(1)
    for condition in (1.0, 1e2, 1e5):
        matrix, low, high = reference.definite_matrix(rng, 3, condition)
        vector = rng.normal(size=3) * rng.choice([1e-3, 1.0, 30.0])
        found = solved(matrix, vector, constraint, penalty, low, high)
        distance = reference.distance(found.x, reference.exact_minimiser(matrix, vector, constraint, *weights(penalty)))
        size = max(np.linalg.norm(found.x), 1e-3)
        assert distance <= found.distance_bound <= 1.0001e-13
        # A loose tolerance is met by the first guess, and yet the bound is near what can be proved in double precision.
        assert found.distance_bound <= 1e-15 * condition * max(size, 1.0)


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_the_number_of_guaranteed_steps_is_enough(constraint, never_certified):
    rng = np.random.default_rng(2)
    for condition, penalty in ((1e2, None), (1e4, Lasso(0.01))):
        matrix, low, high = reference.definite_matrix(rng, 3, condition)
        vector = rng.normal(size=3)
        found = solved(matrix, vector, constraint, penalty, low, high, 1e-9)
        exact = reference.exact_minimiser(matrix, vector, constraint, *weights(penalty))
        assert reference.distance(found.x, exact) <= found.distance_bound <= 1.0001e-9


def chain(n, condition):
    """Nesterov's worst function of first-order methods: e_1 reaches the other coordinates one step at a time."""
    second = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    matrix = (condition - 1.0) / 4.0 * second + np.eye(n)
    return matrix, (1.0 - condition) / 4.0 * np.eye(n)[0], 1.0, condition


def test_the_number_of_guaranteed_steps_is_enough_in_the_worst_case_and_a_sixth_of_it_is_not(
    never_certified, monkeypatch
):
    matrix, vector, low, high = chain(400, 1e3)
    exact = np.linalg.solve(matrix, -vector)
    constraint = L2Ball(1.001 * np.linalg.norm(exact))
    found = solved(matrix, vector, constraint, None, low, high, 1e-6)
    assert np.linalg.norm(found.x - exact) <= found.distance_bound <= 1e-6
    enough = constraints.QuadraticBounds.n_guaranteed_steps
    monkeypatch.setattr(constraints.QuadraticBounds, "n_guaranteed_steps", lambda self, tau: enough(self, tau) // 6)
    short = solved(matrix, vector, constraint, None, low, high, 1e-6)
    assert np.linalg.norm(short.x - exact) > 1e-6


@pytest.mark.parametrize("name", ["l1", "l2", "box"])
def test_the_guaranteed_way_serves_ill_conditioned_problems(name, monkeypatch):
    """With certificates, without guesses."""
    monkeypatch.setattr(quadratic, "guesses", lambda problem: iter(()))
    rng = np.random.default_rng(3)
    matrix, low, high = reference.definite_matrix(rng, 3, 1e8)
    vector = rng.normal(size=3)
    found = solved(matrix, vector, CONSTRAINTS[name], None, low, high, 1e-10)
    exact = reference.exact_minimiser(matrix, vector, CONSTRAINTS[name])
    assert reference.distance(found.x, exact) <= found.distance_bound <= 1e-10


@given(st.integers(0, 2**32), st.sampled_from(list(CONSTRAINTS)), st.sampled_from(list(PENALTIES)))
def test_random_problems_meet_the_smallest_tolerance(seed, constraint, penalty):
    rng = np.random.default_rng(seed)
    constraint, penalty = CONSTRAINTS[constraint], PENALTIES[penalty]
    matrix, low, high = reference.definite_matrix(rng, 3, 10.0 ** rng.uniform(0, 6))
    vector = np.round(rng.normal(size=3) * 10.0 ** rng.uniform(-3, 3), rng.integers(0, 4))
    constants = {"constraint": constraint, "penalty": penalty, "strong_convexity": low, "smoothness": high}
    found = reference.minimised(matrix, vector, **constants)
    exact = reference.exact_minimiser(matrix, vector, constraint, *weights(penalty))
    assert reference.distance(found.x, exact) <= found.distance_bound <= 1e-13


@pytest.mark.parametrize("constraint", [L1Ball(1.0), L2Ball(1.0), Box(0.1)])
@pytest.mark.parametrize("penalty", [None, Lasso(0.05)])
def test_optimality_at_sizes_that_exact_faces_do_not_reach(constraint, penalty):
    """The objective beats every feasible point nearby, and a general solver's."""
    rng = np.random.default_rng(4)
    n = 30
    matrix, low, high = reference.definite_matrix(rng, n, 1e3)
    vector = rng.normal(size=n) / 10
    found = solved(matrix, vector, constraint, penalty, low, high, 1e-12)
    value = objective(matrix, vector, penalty, found.x)
    for _ in range(300):
        other = found.x + rng.normal(size=n) * 10.0 ** rng.uniform(-6, 0)
        other = constraint.project(other)
        assert objective(matrix, vector, penalty, other) >= value - 1e-15


def general_solver(matrix, vector, constraint, penalty):
    """SLSQP on x = p - q, p and q nonnegative, where every norm is smooth."""
    n = len(vector)

    def value(z):
        return (
            objective(matrix, vector, None, z[:n] - z[n:])
            + weights(penalty)[0] * z.sum()
            + (0.5 * weights(penalty)[1] * np.sum((z[:n] - z[n:]) ** 2))
        )

    def gradient(z):
        x = z[:n] - z[n:]
        g = matrix @ x + vector + weights(penalty)[1] * x
        return np.concatenate([g, -g]) + weights(penalty)[0]

    limits = []
    if isinstance(constraint, L1Ball):
        limits = [{"type": "ineq", "fun": lambda z: constraint.radius - z.sum(), "jac": lambda z: -np.ones(2 * n)}]
    if isinstance(constraint, L2Ball):
        limits = [{"type": "ineq", "fun": lambda z: constraint.radius**2 - np.sum((z[:n] - z[n:]) ** 2)}]
    if isinstance(constraint, Box):
        low, high = constraint.bounds(n)
        both = np.hstack([np.eye(n), -np.eye(n)])
        limits = [{"type": "ineq", "fun": lambda z: np.concatenate([both @ z - low, high - both @ z])}]
    start = np.full(2 * n, 0.05)
    if isinstance(constraint, Box):
        middle = constraint.project(np.zeros(n))
        start = np.concatenate([np.maximum(middle, 0), np.maximum(-middle, 0)])
    found = optimize.minimize(
        value, start, jac=gradient, bounds=[(0, None)] * (2 * n), constraints=limits, method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-15},
    )  # fmt: skip
    return found.fun


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_objective_equals_a_general_solvers(constraint, penalty):
    rng = np.random.default_rng(5)
    matrix, low, high = reference.definite_matrix(rng, 3, 50.0)
    vector = rng.normal(size=3)
    found = solved(matrix, vector, constraint, penalty, low, high)
    value = objective(matrix, vector, penalty, found.x)
    assert value == pytest.approx(general_solver(matrix, vector, constraint, penalty), abs=1e-8)


@pytest.mark.parametrize("constraint", [L1Ball(0.7), L2Ball(0.7), Box(0.1)])
@pytest.mark.parametrize("shape", [(3, 2), (40, 7), (7, 40), (1, 1), (60, 1)])
def test_a_factor_is_its_matrix(shape, constraint):
    rng = np.random.default_rng(6)
    factor, vector = rng.normal(size=shape), rng.normal(size=shape[0])
    matrix = 2.0 * factor @ factor.T + 0.5 * np.eye(shape[0])
    matrix = (matrix + matrix.T) / 2
    low, high = 0.5 - 1e-12, np.linalg.norm(matrix, 2) * (1 + 1e-12)
    formed = solved(matrix, vector, constraint, None, low, high, 1e-12)
    found = minimise_factored(factor, 0.5, vector, constraint=constraint, smoothness=high, tolerance=1e-12)
    np.testing.assert_allclose(found.x, formed.x, atol=1e-12)


@pytest.mark.parametrize("size", [1e3, 1e30, 1e120])
@pytest.mark.parametrize("name", ["l1", "l2", "box", "shifted_box"])
def test_vectors_far_beyond_the_set(name, size):
    """Only differences of the large entries matter over the L1 ball, signs over a box, directions over the L2 ball."""
    rng = np.random.default_rng(7)
    matrix, low, high = reference.definite_matrix(rng, 3, 1e3)
    ulp = np.spacing(size)
    for vector in (
        size * rng.normal(size=3),
        np.array([size, -size, size]),
        np.array([size, size + ulp, -size + 2 * ulp]),
        np.array([size, -0.1, 0.2]),
    ):
        for penalty in (None, Lasso(0.5)):
            found = solved(matrix, vector, CONSTRAINTS[name], penalty, low, high)
            exact = reference.exact_minimiser(matrix, vector, CONSTRAINTS[name], *weights(penalty))
            assert reference.distance(found.x, exact) <= found.distance_bound <= 1e-13


@pytest.mark.parametrize("exponent", [-150, 150])
def test_other_units_are_the_same_problem(exponent):
    matrix, low, high = reference.definite_matrix(np.random.default_rng(8), 3, 100.0)
    vector = np.array([1.0, -0.5, 0.3])
    plain = reference.minimised(
        matrix, vector, constraint=L1Ball(0.5), strong_convexity=low, smoothness=high, tolerance=1e-13
    )
    scale = 2.0**exponent
    scaled = reference.minimised(
        matrix,
        scale * vector,
        constraint=L1Ball(0.5 * scale),
        strong_convexity=low,
        smoothness=high,
        tolerance=1e-13 * scale,
    )
    np.testing.assert_allclose(scaled.x / scale, plain.x, rtol=1e-13)


def test_ends_and_ties():
    constants = {"strong_convexity": 1.0, "smoothness": 1.0, "tolerance": 1e-14}
    for vector, expected in [
        ([0.0, 0.0], [0.0, 0.0]),
        ([-3.0, 0.0], [1.0, 0.0]),
        ([-3.0, -3.0], [0.5, 0.5]),
        ([-1.0, 0.0], [1.0, 0.0]),
        ([0.25, -0.75], [-0.25, 0.75]),
        ([1.5, 0.5], [-1.0, 0.0]),
    ]:
        found = reference.minimised(np.eye(2), vector, constraint=L1Ball(1.0), **constants)
        np.testing.assert_allclose(found.x, expected, atol=1e-15)
    assert reference.minimised([[1.0]], [5.0], constraint=L1Ball(2.0), **constants).x.tolist() == [-2.0]


def test_a_vertex_that_is_barely_the_minimiser():
    """The multiplier of the second coordinate is 0 to the last bit, a little less, a little more."""
    for nudge in (0.0, 2.0**-52, -(2.0**-52)):
        matrix, vector = np.diag([1.0, 1e-4]), np.array([-3.0, -2.0 + nudge])
        constants = {"strong_convexity": 1e-4, "smoothness": 1.0, "tolerance": 1e-12}
        found = reference.minimised(matrix, vector, constraint=L1Ball(1.0), **constants)
        assert reference.distance(found.x, reference.exact_minimiser(matrix, vector, L1Ball(1.0))) <= 1e-12


def test_many_donors_without_forming_their_matrix():
    rng = np.random.default_rng(9)
    donors = rng.uniform(-1, 1, (10_000, 100))
    vector = -2.0 * donors @ donors[:5].mean(axis=0)
    constants = {"constraint": L1Ball(1.0), "smoothness": 2e6 + 100.0, "tolerance": 1e-9}
    found = minimise_factored(donors, 100.0, vector, **constants)
    assert found.distance_bound <= 1e-9
    assert np.abs(found.x).sum() <= 1.0 + 1e-12


def test_input_is_neither_changed_nor_returned():
    rng = np.random.default_rng(10)
    factor, vector = rng.normal(size=(4, 3)), np.ones(4)
    given_factor, given_vector = factor.copy(), vector.copy()
    factor.flags.writeable = vector.flags.writeable = False
    constants = {"constraint": L1Ball(0.5), "smoothness": 2.0 * np.sum(factor**2) + 1.0, "tolerance": 1e-12}
    found = minimise_factored(np.asfortranarray(factor), 1.0, vector, **constants)
    assert np.array_equal(factor, given_factor)
    assert np.array_equal(vector, given_vector)
    assert found.x.flags.writeable


GOOD = {"factor": np.eye(2), "vector": np.ones(2), "diagonal": 1.0, "smoothness": 3.0, "tolerance": 1e-12}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"factor": np.ones((3, 1))}, ValueError, "factor and vector must have one length"),
        ({"vector": np.ones(3)}, ValueError, "factor and vector must have one length"),
        ({"factor": np.ones(2)}, ValueError, "factor must have 2 dimensions"),
        ({"factor": [[1.0, np.nan], [np.nan, 1.0]]}, ValueError, "factor must be finite"),
        ({"factor": np.eye(2, dtype=complex)}, TypeError, "factor must hold real numbers"),
        ({"vector": [1.0, np.inf]}, ValueError, "vector must be finite"),
        ({"vector": [1.0, 1e200]}, ValueError, "vector must have entries of at most"),
        ({"vector": []}, ValueError, "vector must have 1 dimensions and at least one entry"),
        ({"diagonal": 0.0}, ValueError, "diagonal must be positive"),
        ({"diagonal": 4.0}, ValueError, "strong_convexity must be at most smoothness"),
        ({"diagonal": 1e-20}, ValueError, "at most 2\\*\\*45 times"),
        ({"smoothness": np.inf}, ValueError, "smoothness must be positive and finite"),
        ({"smoothness": "1"}, TypeError, "smoothness must be a real number"),
        ({"tolerance": 0.0}, ValueError, "tolerance must be positive"),
        ({"tolerance": 1e-17}, ValueError, "tolerance must be at least .* for these constants"),
        ({"constraint": Box(low=[0.0] * 3, high=1.0)}, ValueError, "the box has 3 coordinates, the problem 2"),
    ],
)
def test_bad_input_is_named(change, error, message):
    with pytest.raises(error, match=message):
        minimise_factored(**{**GOOD, "constraint": L1Ball(1.0), **change})


def test_what_overflows_on_the_way_is_not_the_callers_concern(monkeypatch):
    """Guesses out of the range of floats, or none at all, lead to the guaranteed way."""
    matrix, low, high = reference.definite_matrix(np.random.default_rng(11), 3, 10.0)
    vector = np.array([1.0, -2.0, 0.5])
    expected = reference.exact_minimiser(matrix, vector, L1Ball(0.5))

    def huge(problem):
        yield np.full(3, 1e308)
        yield np.full(3, np.nan)
        raise np.linalg.LinAlgError

    monkeypatch.setattr(quadratic, "guesses", huge)
    found = solved(matrix, vector, L1Ball(0.5), None, low, high)
    assert reference.distance(found.x, expected) <= found.distance_bound <= 1e-13


@pytest.mark.parametrize("name", ["l1", "l2", "box", "shifted_box"])
def test_the_guaranteed_way_serves_large_vectors(name, never_certified):
    rng = np.random.default_rng(12)
    matrix, low, high = reference.definite_matrix(rng, 3, 100.0)
    for vector in (1e6 * rng.normal(size=3), np.array([1e60, -1e60, 0.1])):
        found = solved(matrix, vector, CONSTRAINTS[name], Lasso(0.1), low, high, 1e-12)
        exact = reference.exact_minimiser(matrix, vector, CONSTRAINTS[name], 0.1)
        assert reference.distance(found.x, exact) <= found.distance_bound <= 1e-12


def test_a_step_that_is_kept_is_that_of_its_point_and_length():
    problem = QuadraticProblem(np.eye(2), None, 0.0, np.zeros(2), 0.0, Box(10.0), None)
    first, other = np.ones(2), np.full(2, 3.0)
    for x, step in ((first, 0.5), (first, 0.5), (first, 0.25), (other, 0.25)):
        np.testing.assert_array_equal(problem.proximal(x, step)[1], (1.0 - step) * x)
