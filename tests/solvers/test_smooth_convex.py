"""Smooth problems: distances against many digits, every loss with every set and penalty against a general solver."""

import mpmath as mp
import numpy as np
import pytest
from reference import constrained as reference
from scipy import optimize

from dpfast.solvers import (
    Box,
    CappedLogisticLoss,
    ElasticNet,
    GeneralisedLinear,
    L1Ball,
    L2Ball,
    Lasso,
    LogisticLoss,
    PoissonLoss,
    Ridge,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
    constraints,
    minimise_smooth,
    quadratic,
    smallest_smooth_tolerance,
    smooth_convex,
)

LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "shifted": LogisticLoss(3.0),
    "capped": CappedLogisticLoss(0.2),
    "hinge": SmoothedHinge(0.5),
    "huber": SmoothedHuber(0.5, 0.2),
    "quantile": SmoothedQuantile(0.8, 0.3),
    "poisson": PoissonLoss(2.0),
}
CONSTRAINTS = {
    "none": None,
    "l1": L1Ball(0.5),
    "l2": L2Ball(0.5),
    "box": Box(0.2),
    "shifted_box": Box(low=[0.1, -1.0, -0.2], high=[0.3, 0.0, 0.5]),
}
PENALTIES = {"ridge": Ridge(0.5), "elastic_net": ElasticNet(0.7, 0.3)}


def observations(loss, n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None] * (1 + 1e-12)
    y = rows @ rng.normal(size=d) + 0.5 * rng.normal(size=n)
    y = np.abs(y) if loss.is_of_counts else y
    return rows, np.where(y < 0, -1.0, 1.0) if loss.is_classification else np.clip(y, -1.0, 1.0)


def function_of(loss, **sizes):
    rows, y = observations(loss, **sizes)
    return GeneralisedLinear(rows, y, loss, row_bound=1.0), rows, y


def reach(constraint):
    return {"reach": 100.0} if constraint is None else {}


def objective(rows, y, loss, linear, penalty, x):
    return loss.value(rows @ x, y).sum() + linear @ x + penalty.value(x)


def general_solver(rows, y, loss, linear, penalty, constraint):
    """SLSQP on x = p - q, p and q nonnegative; the value at the nearest point of the set, which it leaves a little."""
    n = rows.shape[1]

    def value(z):
        x = z[:n] - z[n:]
        return loss.value(rows @ x, y).sum() + linear @ x + penalty.l1 * z.sum() + 0.5 * penalty.l2 * x @ x

    def gradient(z):
        x = z[:n] - z[n:]
        g = rows.T @ loss.derivative(rows @ x, y) + linear + penalty.l2 * x
        return np.concatenate([g, -g]) + penalty.l1

    both = np.hstack([np.eye(n), -np.eye(n)])
    limits = []
    if isinstance(constraint, L1Ball):
        limits = [{"type": "ineq", "fun": lambda z: constraint.radius - z.sum(), "jac": lambda z: -np.ones(2 * n)}]
    if isinstance(constraint, L2Ball):
        limits = [{"type": "ineq", "fun": lambda z: constraint.radius**2 - np.sum((both @ z) ** 2)}]
    if isinstance(constraint, Box):
        low, high = constraint.bounds(n)
        limits = [{"type": "ineq", "fun": lambda z: np.concatenate([both @ z - low, high - both @ z])}]
    middle = np.full(n, 0.05) if constraint is None else constraint.project(np.full(n, 0.05))
    found = optimize.minimize(
        value, np.concatenate([np.maximum(middle, 0), np.maximum(-middle, 0)]), jac=gradient,
        bounds=[(0, None)] * (2 * n), constraints=limits, method="SLSQP", options={"maxiter": 2000, "ftol": 1e-15},
    )  # fmt: skip
    x = found.x[:n] - found.x[n:]
    return objective(rows, y, loss, linear, penalty, x if constraint is None else constraint.project(x))


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_objective_equals_a_general_solvers(loss, constraint, penalty):
    function, rows, y = function_of(loss)
    for scale in (0.0, 3.0):
        linear = scale * np.random.default_rng(1).normal(size=3)
        found = minimise_smooth(
            function, linear=linear, constraint=constraint, penalty=penalty, tolerance=1e-12, **reach(constraint)
        )
        assert found.distance_bound <= 1e-12
        value = objective(rows, y, loss, linear, penalty, found.x)
        assert value == pytest.approx(general_solver(rows, y, loss, linear, penalty, constraint), abs=1e-8)


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_squared_loss_is_a_quadratic(constraint):
    function, rows, y = function_of(SquaredLoss())
    matrix = rows.T @ rows
    matrix = (matrix + matrix.T) / 2
    for penalty in PENALTIES.values():
        ours = minimise_smooth(function, constraint=constraint, penalty=penalty, tolerance=1e-12, **reach(constraint))
        quadratic = reference.minimised(
            matrix + 1e-3 * np.eye(3), -rows.T @ y, constraint=constraint or L2Ball(100.0),
            penalty=ElasticNet(penalty.l1, penalty.l2 - 1e-3), strong_convexity=1e-3, smoothness=41.0, tolerance=1e-10,
        )  # fmt: skip
        np.testing.assert_allclose(ours.x, quadratic.x, atol=1e-10)


def test_the_matrix_of_squares_is_factored_once(monkeypatch):
    function, *_ = function_of(SquaredLoss())
    factor, calls = quadratic.linalg.eigh, []
    monkeypatch.setattr(quadratic.linalg, "eigh", lambda *args, **options: calls.append(0) or factor(*args, **options))
    ball = L2Ball(0.05)
    found = minimise_smooth(function, constraint=ball, penalty=Ridge(0.5), tolerance=1e-12)
    assert np.linalg.norm(found.x) == pytest.approx(0.05)
    assert len(calls) == 1


def exact_logistic_minimiser(rows, y, linear, ridge):
    """Newton's method with 60 digits, without a constraint."""
    with mp.workdps(60):
        a, x = mp.matrix(rows.tolist()), mp.matrix(rows.shape[1], 1)
        for _ in range(60):
            z = a * x
            wrong = [1 / (1 + mp.exp(mp.mpf(s) * t)) for s, t in zip(y, z, strict=True)]
            gradient = a.T * mp.matrix([-mp.mpf(s) * w for s, w in zip(y, wrong, strict=True)])
            gradient += mp.matrix(linear.tolist()) + mp.mpf(ridge) * x
            weighted = mp.matrix(a.rows, a.cols)
            for i, w in enumerate(wrong):
                for j in range(a.cols):
                    weighted[i, j] = w * (1 - w) * a[i, j]
            step = mp.lu_solve(a.T * weighted + mp.mpf(ridge) * mp.eye(a.cols), gradient)
            x -= step
            if mp.norm(step) < mp.mpf(10) ** -50:
                return list(x)
    raise AssertionError("no convergence")


@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_the_distance_bound_is_true_without_a_constraint(ridge):
    function, rows, y = function_of(LogisticLoss(), n=25, d=2)
    linear = np.array([0.5, -0.25])
    exact = exact_logistic_minimiser(rows, y, linear, ridge)
    constants = {"penalty": Ridge(ridge), "reach": 1e3}
    for tolerance in (1e-3, 1e-8, smallest_smooth_tolerance(function, **constants)):
        found = minimise_smooth(function, linear=linear, tolerance=tolerance, **constants)
        with mp.workdps(60):
            distance = mp.norm(mp.matrix([mp.mpf(float(a)) - b for a, b in zip(found.x, exact, strict=True)]))
        assert distance <= found.distance_bound <= tolerance


def exact_scalar_minimiser(rows, y, linear, ridge, weight, low, high):
    """Bisection on the subgradient with 60 digits."""

    def slope(x):
        z = [mp.mpf(float(r)) * x for r in rows[:, 0]]
        losses = mp.fsum(-s * mp.mpf(float(r)) / (1 + mp.exp(s * t)) for r, s, t in zip(rows[:, 0], y, z, strict=True))
        return losses + mp.mpf(linear) + mp.mpf(ridge) * x

    with mp.workdps(60):
        if abs(slope(mp.mpf(0))) <= weight:
            return min(max(mp.mpf(0), mp.mpf(low)), mp.mpf(high))
        shift = mp.mpf(weight) * (1 if slope(mp.mpf(0)) < 0 else -1)
        left, right = mp.mpf(low), mp.mpf(high)
        for _ in range(200):
            middle = (left + right) / 2
            left, right = (middle, right) if slope(middle) + shift < 0 else (left, middle)
        return right


@pytest.mark.parametrize("constraint", [L1Ball(0.5), L2Ball(0.5), Box(0.5)])
@pytest.mark.parametrize("linear", [0.0, 1.0, -9.0, 100.0, 1e9, -1e60])
def test_the_distance_bound_is_true_in_one_dimension(constraint, linear):
    function, rows, y = function_of(LogisticLoss(), n=12, d=1)
    for weight in (0.0, 2.0):
        exact = exact_scalar_minimiser(rows, y, linear, 0.25, weight, -0.5, 0.5)
        found = minimise_smooth(
            function, linear=[linear], constraint=constraint, penalty=ElasticNet(weight, 0.25), tolerance=1e-14
        )
        with mp.workdps(60):
            assert abs(mp.mpf(float(found.x[0])) - exact) <= found.distance_bound <= 1e-14


@pytest.fixture
def never_certified(monkeypatch):
    """Leave the guaranteed way alone with its number of steps."""
    certified = constraints.Certificate.certified

    def blind(self, x):
        found, on_boundary = certified(self, x)
        return constraints.Minimiser(found.x, np.inf), on_boundary

    monkeypatch.setattr(smooth_convex._Steps, "guesses", lambda self, start: iter(()))
    monkeypatch.setattr(constraints.Certificate, "certified", blind)


@pytest.mark.parametrize("constraint", [L1Ball(0.5), L2Ball(0.5), Box(0.2), None])
def test_the_number_of_guaranteed_steps_is_enough(constraint, never_certified, monkeypatch):
    function, _, _ = function_of(LogisticLoss(), n=25, d=2)
    arguments = {"constraint": constraint, "penalty": ElasticNet(0.1, 0.1), **reach(constraint)}
    found = minimise_smooth(function, tolerance=1e-9, **arguments)
    assert found.distance_bound <= 1e-9
    monkeypatch.undo()
    exact = minimise_smooth(function, tolerance=1e-13, **arguments)
    assert np.linalg.norm(found.x - exact.x) <= 1e-9


@pytest.mark.parametrize(
    "loss",
    [SmoothedHinge(2.0**-7), SmoothedHuber(1.0, 2.0**-7), SmoothedQuantile(0.8, 2.0**-7), CappedLogisticLoss()],
    ids=repr,
)
@pytest.mark.parametrize("constraint", [L1Ball(2.0), L2Ball(2.0), Box(1.0)], ids=repr)
def test_no_vector_takes_more_steps_than_the_public_constants_say(loss, constraint, monkeypatch):
    """Vectors that put the minimiser on a corner of bends: what the fast way does is limited, and so is the other."""
    rng = np.random.default_rng(11)
    rows, y = observations(loss, n=12, d=2)
    penalty, tolerance, worst = ElasticNet(0.05, 0.1), 1e-10, 0
    function = GeneralisedLinear(rows, y, loss, row_bound=1.0)
    count = []
    gradient = GeneralisedLinear.gradient
    monkeypatch.setattr(GeneralisedLinear, "gradient", lambda self, x: count.append(1) or gradient(self, x))
    # Each guess is refined so many times, with two gradients each.
    most_fast = 2 * (smooth_convex._NEWTON_STEPS + 1) * constraints._REFINEMENTS
    steps = smooth_convex._Problem.of(function, constraint, penalty, None).bounds.n_guaranteed_steps(tolerance)
    most = most_fast + steps + steps // constraints._STEPS_PER_CERTIFICATE + 3
    assert most < 20_000
    for case in range(40):
        corner = np.linalg.solve(rows[rng.choice(12, 2, replace=False)] + 1e-9 * np.eye(2), rng.choice([-1.0, 1.0], 2))
        corner = constraint.project(corner + 2.0**-7 * rng.normal(size=2))
        bent = gradient(function, np.array([corner, np.zeros(2)])).sum(axis=0) + 0.1 * corner
        linear = [-bent, -bent + 0.05 * rng.uniform(-1, 1, 2), np.zeros(2), 1e100 * rng.normal(size=2)][case % 4]
        count.clear()
        found = minimise_smooth(function, linear=linear, constraint=constraint, penalty=penalty, tolerance=tolerance)
        assert found.distance_bound <= tolerance
        worst = max(worst, len(count))
    assert 0 < worst <= most


@pytest.mark.parametrize("loss", [SmoothedHinge(2.0**-7), SmoothedHuber(1.0, 2.0**-7), SmoothedQuantile(0.8, 2.0**-7)])
def test_a_model_that_reaches_far_is_followed_a_short_way(loss, monkeypatch):
    """Bends are narrow and the ridge small: a first step is thousands of times too long, and no reason to give up."""
    monkeypatch.setattr(smooth_convex._Steps, "accelerate", lambda *arguments: pytest.fail("the guaranteed way"))
    for ridge in (1e-1, 1e-2, 1e-4, 1e-6):
        for seed in range(4):
            function, *_ = function_of(loss, n=400, seed=seed)
            arguments = {"constraint": L2Ball(1e4), "penalty": Ridge(ridge), "tolerance": 1e-3}
            assert minimise_smooth(function, **arguments).distance_bound <= 1e-3


class LogCosh:
    """A function that is known in double precision."""

    n, strong_convexity, smoothness = 3, 0.0, 1.0

    def gradient(self, x):
        return np.stack([np.tanh(x.sum(axis=0) - 1.0), np.zeros(3)])

    def gradient_error(self, norm):
        return 1e-15 * (2.0 * norm + 4.0)

    def gradient_bound(self, norm):
        return 2.0

    def local_model(self, x):
        return float(np.log(np.cosh(x - 1.0)).sum()), np.tanh(x - 1.0), np.diag(1.0 / np.cosh(x - 1.0) ** 2)


def test_the_tolerance_cannot_be_below_what_a_functions_errors_allow():
    function = LogCosh()
    assert smallest_smooth_tolerance(function, constraint=L2Ball(2.0), penalty=Ridge(0.1)) > 1e-13
    found = minimise_smooth(function, constraint=L2Ball(2.0), penalty=Ridge(0.1), tolerance=1e-9)
    root = optimize.brentq(lambda t: np.tanh(t - 1.0) + 0.1 * t, 0.0, 1.0, xtol=1e-14)
    assert np.linalg.norm(found.x - root) <= found.distance_bound <= 1e-9
    with pytest.raises(ValueError, match="tolerance must be at least"):
        minimise_smooth(function, constraint=L2Ball(2.0), penalty=Ridge(0.1), tolerance=1e-15)


class GroupLasso:
    """||x||_2, of whose prox the closed form is known."""

    def value(self, x):
        return float(np.linalg.norm(x))

    def prox(self, v, step):
        norm = np.linalg.norm(v)
        return np.zeros_like(v) if norm <= step else (1.0 - step / norm) * v

    def prox_error(self, norm, step):
        return 1e-15 * norm


def test_any_proximable_penalty():
    rows, y = observations(SquaredLoss())
    loss = GeneralisedLinear(rows, y, SquaredLoss(), row_bound=1.0)
    found = minimise_smooth(loss, ridge=1.0, penalty=GroupLasso(), reach=10.0, tolerance=1e-7)
    gradient = rows.T @ (rows @ found.x - y) + found.x
    np.testing.assert_allclose(gradient, -found.x / np.linalg.norm(found.x), atol=1e-6)
    with pytest.raises(TypeError, match="GroupLasso as penalty is supported without a constraint only"):
        minimise_smooth(loss, penalty=GroupLasso(), constraint=L2Ball(1.0), tolerance=1e-8)


def test_constants_are_not_taken_from_the_data():
    """The tolerance promised and the number of steps are the same for any table of one size."""
    loss = LogisticLoss()
    bounds = []
    for seed in range(3):
        function, _, _ = function_of(loss, seed=seed)
        problem = smooth_convex._Problem.of(function, L2Ball(1.0), Ridge(1.0), None)
        bounds.append((problem.bounds.smallest_tolerance(), problem.bounds.n_guaranteed_steps(1e-9)))
    assert bounds[0] == bounds[1] == bounds[2]
    assert isinstance(problem.bounds, constraints.ProximalBounds)


def test_threads_do_not_matter():
    rows, y = observations(LogisticLoss(), n=30_000, d=20)
    found = [
        minimise_smooth(
            GeneralisedLinear(rows, y, LogisticLoss(), row_bound=1.0, n_threads=k), constraint=L1Ball(3.0),
            penalty=Ridge(1.0), tolerance=1e-10,
        )
        for k in (1, 2)
    ]  # fmt: skip
    assert np.array_equal(found[0].x, found[1].x)
    assert found[0].distance_bound == found[1].distance_bound


FUNCTION = function_of(LogisticLoss())[0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"constraint": None}, TypeError, "reach must be given without a constraint, and only then"),
        ({"reach": 1.0}, TypeError, "reach must be given without a constraint, and only then"),
        ({"penalty": None}, ValueError, "must be strongly convex"),
        ({"penalty": Lasso(1.0)}, ValueError, "must be strongly convex"),
        ({"penalty": 1.0}, TypeError, "penalty must be ElasticNet, Lasso, Ridge, another Proximable or None"),
        ({"penalty": Ridge(1e-20)}, ValueError, "at most 2\\*\\*45 times"),
        ({"constraint": "l2"}, TypeError, "constraint must be L2Ball, L1Ball, Box or None"),
        ({"linear": [1.0]}, ValueError, "linear must have as many entries as the function, 3, got 1"),
        ({"linear": [1.0, np.nan, 0.0]}, ValueError, "linear must be finite"),
        ({"linear": [1.0, 1e200, 0.0]}, ValueError, "linear must have entries of at most"),
        ({"tolerance": 1e-18}, ValueError, "tolerance must be at least"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be positive"),
    ],
)
def test_bad_input_is_named(change, error, message):
    arguments = {"constraint": L2Ball(1.0), "penalty": Ridge(1.0), "tolerance": 1e-9, **change}
    with pytest.raises(error, match=message):
        minimise_smooth(FUNCTION, **arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": np.ones(3)}, ValueError, "rows must have 2 dimensions"),
        ({"outcomes": np.ones(2)}, ValueError, "rows and outcomes must be equally many"),
        ({"outcomes": [1.0, 1.5, -1.0]}, ValueError, "outcomes must be from -1 to 1 for a loss of classification"),
        ({"rows": [[np.nan], [1.0], [1.0]]}, ValueError, "rows must be finite"),
        ({"loss": "logistic"}, TypeError, "loss must be a GeneralisedLinearLoss"),
        ({"row_bound": 0.0}, ValueError, "row_bound must be positive"),
        ({"n_threads": 0}, ValueError, "n_threads must be a positive integer"),
    ],
)
def test_bad_observations_are_named(change, error, message):
    arguments = {"rows": np.ones((3, 1)), "outcomes": [1.0, 1.0, -1.0], "loss": LogisticLoss(), "row_bound": 1.0}
    with pytest.raises(error, match=message):
        GeneralisedLinear(**{**arguments, **change})
