"""Sums of curvatures and scores: what one person moves, whatever coefficients were released, and what they are."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from neighbours import climb, row_in_ball
from scipy import stats

from dpfast import Privacy, io, noise
from dpfast.privacy import compose_mu, gaussian_mu, keeps_to
from dpfast.releases import sandwich
from dpfast.releases.mechanism import answered
from dpfast.releases.objective_bounds import TableLoss
from dpfast.releases.sandwich import Sandwich, WeightedRows, exact_errors, sum_weighted
from dpfast.solvers import LogisticLoss, PoissonLoss, SmoothedHuber, SmoothedQuantile
from dpfast.statistics import rounded_bound

LOSSES = {
    "logistic": TableLoss(LogisticLoss(), 1.0, 1.0, 0.25),
    "Huber": TableLoss(SmoothedHuber(0.5), 2.0, 3.0),
    "quantile": TableLoss(SmoothedQuantile(0.8, 0.25), 1.0, 1.0, 0.5),
    "counts": TableLoss(PoissonLoss(8.0), 0.5, 8.0, 0.125),
}
ADJACENCIES = ["replace_one", "add_remove"]
KINDS = sandwich.KINDS
owned = partial(SimpleNamespace, n_threads=None)


def size(table_loss, features=2):
    return features + (table_loss.constant > 0.0)


def outcome(table_loss, parameter):
    if table_loss.loss.is_classification:
        return np.sign(parameter) or 1.0
    return table_loss.bound_y * np.tanh(parameter)


def summed(table_loss, theta, kind, rows, outcomes):
    """Return the exact sums of a table, as one vector: of a symmetric matrix with its Frobenius norm."""
    one = Sandwich(Privacy(1.0, 1e-6), table_loss, len(theta))
    _, radius = one.moments(one.privacy, theta, kind)
    weighed = WeightedRows(table_loss, theta, kind)
    gram = sum_weighted(owned(table=io.open_table(rows, np.asarray(outcomes)[:, None])), weighed, radius)
    return gram.xx, np.zeros(len(theta)) if gram.exact_x_sum is None else gram.exact_x_sum.to_float64()


def table(n, table_loss, seed=0, features=2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features)) * rng.choice([0.2, 1.0, 30.0], size=(n, 1))
    return x, np.array([outcome(table_loss, one) for one in rng.normal(size=n)])


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOSSES)
def test_nobody_moves_the_sums_by_more_than_their_noise_is_for(name, kind, adjacency):
    """Climbed, at several coefficients: what a person moves, in units of the noise, is at most the part's mu."""
    table_loss, privacy = LOSSES[name], Privacy(1.0, 1e-6, adjacency)
    d = size(table_loss)
    others = table(3, table_loss)

    def moved(parameters, theta):
        scales = Sandwich(privacy, table_loss, d).moments(privacy, theta, kind)[0].scales
        people = [
            (row_in_ball(3.0 * one[:2], table_loss.bound_x), outcome(table_loss, 2.0 * one[2]))
            for one in parameters.reshape(2, 3)
        ]
        tables = [(np.vstack([others[0], x]), np.append(others[1], y)) for x, y in people]
        if adjacency == "add_remove":
            tables[1] = others
        sums = [summed(table_loss, theta, kind, *one) for one in tables]
        xx, x = sums[0][0] - sums[1][0], sums[0][1] - sums[1][1]
        return math.hypot(np.linalg.norm(xx) / scales["xx"], np.linalg.norm(x) / scales.get("x", math.inf))

    rng, mu = np.random.default_rng(1), gaussian_mu(*privacy.target)
    worst = 0.0
    for theta in (np.zeros(d), 3.0 * rng.normal(size=d)):
        worst = max(worst, climb(partial(moved, theta=theta), 6, rng, restarts=2, screened=40)[0])
    assert worst <= mu
    # The longest row, at the steepest place of the curvature, is found.
    assert worst >= (0.9 if name == "logistic" and kind == "curvatures" else 0.3) * mu


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_persons_part_depends_on_that_person_alone(name, kind):
    """In blocks of any length, and beside any others, to the bit."""
    table_loss = LOSSES[name]
    x, y = table(40, table_loss, features=5)
    theta = np.random.default_rng(2).normal(size=size(table_loss, 5))
    weighed = WeightedRows(table_loss, theta, kind)
    rows, *_ = weighed(x, y[:, None], None)
    for layout in (np.asfortranarray(x), x[::-1][::-1], np.repeat(x, 2, axis=0)[::2]):
        np.testing.assert_array_equal(weighed(layout, y[:, None], None)[0], rows)
    for length in (1, 2, 3):
        parts = [weighed(x[i : i + length], y[i : i + length, None], None)[0] for i in range(0, 40, length)]
        np.testing.assert_array_equal(np.vstack(parts), rows)


@pytest.mark.parametrize("name", LOSSES)
def test_the_sums_are_those_of_the_losses_derivatives(name):
    """Of clipped rows and outcomes, in NumPy, one by one; of counts the largest curvatures are clipped, too."""
    table_loss = LOSSES[name]
    x, y = table(200, table_loss)
    theta = np.random.default_rng(4).normal(size=size(table_loss))
    rows = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True) / table_loss.bound_x, 1.0)
    if table_loss.constant:
        rows = np.column_stack([rows, np.full(len(rows), table_loss.constant)])
    clipped = np.clip(y, 0.0 if table_loss.loss.is_of_counts else -math.inf, table_loss.bound_y)
    margins = rows @ theta
    curvatures = table_loss.loss.second_derivative(margins, clipped)
    scores = -table_loss.loss.derivative(margins, clipped)
    xx, _ = summed(table_loss, theta, "curvatures", x, y)
    one = Sandwich(Privacy(1.0, 1e-6), table_loss, len(theta))
    _, radius = one.moments(one.privacy, theta, "curvatures")
    lengths = np.maximum(np.sqrt(curvatures) * np.linalg.norm(rows, axis=1), 1e-12)
    kept = np.minimum(radius / lengths, 1.0) ** 2
    assert kept.min() >= (0.5 if table_loss.loss.is_of_counts else 1.0) * (1.0 - 1e-12)
    np.testing.assert_allclose(xx, (rows * (kept * curvatures)[:, None]).T @ rows, rtol=1e-4, atol=1e-3)
    xx, total = summed(table_loss, theta, "scores", x, y)
    np.testing.assert_allclose(xx, (rows * scores[:, None] ** 2).T @ rows, rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(total, rows.T @ scores, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("theta", [(0.0, 0.0, 0.0), (1.0, -2.0, 4.0), (2.0, 0.0, -8.0), (30.0, 10.0, 9.0)], ids=str)
@pytest.mark.parametrize("constant", [0.125, 0.0])
def test_the_noise_of_counts_is_for_the_largest_rate_there_may_be(theta, constant):
    """Of rows as long as they may be, the one of largest curvature is clipped to half of it, and not beyond."""
    table_loss = TableLoss(PoissonLoss(8.0), 0.5, 8.0, constant)
    theta = np.array(theta if constant else theta[:2])
    length = float(np.linalg.norm(theta[:2]))
    along = theta[:2] / length if length > 0.0 else np.array([1.0, 0.0])
    angles = np.linspace(0.0, 2.0 * math.pi, 20_001)
    rows = 0.5 * np.vstack([[along], np.column_stack([np.cos(angles), np.sin(angles)])])
    weighed, *_ = WeightedRows(table_loss, theta, "curvatures")(rows, np.ones((len(rows), 1)), None)
    longest = np.linalg.norm(weighed, axis=1).max()
    one = Sandwich(Privacy(1.0, 1e-6), table_loss, len(theta))
    _, radius = one.moments(one.privacy, theta, "curvatures")
    assert longest <= math.sqrt(2.0) * radius * (1.0 + 1e-12)
    assert math.sqrt(2.0) * radius <= longest * (1.0 + 1e-3)


def test_rates_near_0_leave_rows_a_clip():
    """However small rates at the coefficients are: a thousandth of the loss's, so that rows can be rounded."""
    table_loss = TableLoss(PoissonLoss(8.0), 0.5, 8.0, 0.125)
    one = Sandwich(Privacy(1.0, 1e-6), table_loss, 3)
    for last in (-200.0, -1e5, -1e100):
        _, radius = one.moments(one.privacy, np.array([0.0, 0.0, last]), "curvatures")
        assert radius == pytest.approx(2.0**-10 * math.sqrt(6.0) * one.length)


@pytest.mark.parametrize("start", [0.0, 40.0, -1e6, 1e9])
@pytest.mark.parametrize("size_of_sums", [0.0, 1.0, -1.0, 1e6, 1e12])
@pytest.mark.parametrize("constant", [0.125, 0.0])
def test_no_sums_make_steps_of_counts_fail(start, size_of_sums, constant):
    """Whatever is released: every step is asked for, the coefficients are finite, and so are the errors."""
    table_loss = TableLoss(PoissonLoss(8.0), 0.5, 8.0, constant)
    one, rng, requested = Sandwich(Privacy(1.0, 1e-6), table_loss, 3), np.random.default_rng(0), []

    def answer(query):
        requested.append(query)
        matrix, vector = rng.normal(size=(3, 3)), rng.normal(size=3)
        scales = query.mechanism.scales
        sums = {"xx": size_of_sums * scales["xx"] * (matrix + matrix.T)}
        if "x" in scales:
            sums["x"] = size_of_sums * scales["x"] * vector
        return SimpleNamespace(values=sums, scales=scales)

    found = answered(one.stages(np.array([0.0, start, -start])), answer)()
    assert len(requested) == 2 * len(sandwich._SHARES)
    assert np.isfinite(found.theta).all()
    assert np.isfinite(found.covariance).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_is_steeper_than_it_says_moves_no_more(name, kind, monkeypatch):
    """Queries clip rows to what their noise is for, whatever the loss's bounds are: privacy does not rely on these."""
    table_loss = LOSSES[name]
    for bound in ("derivative_bound", "second_derivative_bound"):
        monkeypatch.setattr(type(table_loss.loss), bound, lambda *numbers: 1e-3)
    privacy, d = Privacy(1.0, 1e-6, "add_remove"), size(table_loss)
    query = Sandwich(privacy, table_loss, d)._query("sums", privacy, np.full(d, 0.01), kind)
    gram = query.statistic(owned(table=io.open_table(table(1, table_loss, seed=8)[0], np.full((1, 1), 0.05))))
    scales, x = query.mechanism.scales, 0.0 if gram.exact_x_sum is None else gram.exact_x_sum.to_float64()
    moved = math.hypot(np.linalg.norm(gram.xx) / scales["xx"], np.linalg.norm(x) / scales.get("x", math.inf))
    assert 0.9 < moved / gaussian_mu(*privacy.target) <= 1.0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_all_sums_together_use_the_budget_up(delta, adjacency):
    privacy, table_loss = Privacy(1.0, delta, adjacency), LOSSES["logistic"]
    x, y = table(300, table_loss)
    releases = []

    def answer(query):
        data = owned(table=io.open_table(x, y[:, None]))
        releases.append(query.mechanism.release(query.statistic(data), noise.SeededSource(0), query.name))
        return releases[-1]

    answered(Sandwich(privacy, table_loss, 3).stages(np.zeros(3)), answer)()
    assert [one.name for one in releases] == [f"{kind}, step {step}" for step in (1, 2, 3, 4) for kind in KINDS]
    costs, mus = [one.privacy for one in releases], [one.mu for one in releases]
    assert keeps_to(costs, mus, privacy)
    if delta > 0.0:
        assert compose_mu(mus) == pytest.approx(gaussian_mu(*privacy.target), rel=1e-5)
    else:
        assert sum(one.epsilon for one in costs) == pytest.approx(1.0)
        assert {one.mechanism for one in releases} == {"L2-Laplace"}


def test_sums_have_the_noise_that_they_are_said_to():
    """Of rows of zeros all is noise, of the recorded deviations. One run in 10^6 would be off."""
    privacy, table_loss = Privacy(1.0, 1e-6), TableLoss(LogisticLoss(), 1.0)
    data = owned(table=io.open_table(np.zeros((4, 6)), np.ones((4, 1))))
    drawn = []
    for seed in range(8):
        source = noise.SeededSource(seed)

        def answer(query, source=source):
            released = query.mechanism.release(query.statistic(data), source, query.name)
            drawn.extend(np.diag(released.values["xx"]) / released.scales["xx"])
            if "x" in released.values:
                drawn.extend(released.values["x"] / released.scales["x"])
            return released

        answered(Sandwich(privacy, table_loss, 6).stages(np.ones(6)), answer)
    assert stats.kstest(drawn, stats.norm().cdf).pvalue > 1e-6


@pytest.mark.parametrize("name", LOSSES)
def test_rows_are_held_to_what_the_noise_is_for(name):
    """The radius bounds every row before its clip, of counts but for half the curvature; rounding included."""
    table_loss = LOSSES[name]
    x, y = table(500, table_loss, seed=6)
    theta = np.random.default_rng(7).normal(size=size(table_loss))
    own = Sandwich(Privacy(1.0, 1e-6), table_loss, len(theta))
    for kind in KINDS:
        _, radius = own.moments(own.privacy, theta, kind)
        longest = np.linalg.norm(WeightedRows(table_loss, theta, kind)(x, y[:, None], None)[0], axis=1).max()
        room = math.sqrt(2.0) if table_loss.loss.is_of_counts and kind == "curvatures" else 1.0
        assert longest <= room * rounded_bound(radius, len(theta))


def test_parts_of_a_table_are_summed_as_the_whole():
    table_loss = LOSSES["logistic"]
    x, y = table(60, table_loss)
    theta = np.ones(3)
    for kind in KINDS:
        whole = sum_weighted(owned(table=io.open_table(x, y[:, None])), WeightedRows(table_loss, theta, kind), 1.0)
        halves = [
            sum_weighted(owned(table=io.open_table(x[part], y[part, None])), WeightedRows(table_loss, theta, kind), 1.0)
            for part in (slice(0, 17), slice(17, None))
        ]
        assert whole == halves[0] + halves[1]


def test_without_noise_a_minimiser_has_the_textbooks_errors():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3))
    outcomes = np.where(rng.random(400) < 1.0 / (1.0 + np.exp(-rows @ [1.0, 0.0, -1.0])), 1.0, -1.0)
    theta = np.zeros(3)
    for _ in range(30):
        p = 1.0 / (1.0 + np.exp(-rows @ theta))
        hessian = (rows * (p * (1.0 - p))[:, None]).T @ rows
        theta = theta + np.linalg.solve(hessian, rows.T @ ((outcomes > 0.0) - p))
    scored = rows * ((outcomes > 0.0) - p)[:, None]
    bread = np.linalg.inv(hessian)
    # Shrunk coefficients are no minimiser yet: steps make them one.
    for start in (theta, 0.9 * theta):
        found = exact_errors(LogisticLoss(), start, rows, outcomes)
        np.testing.assert_allclose(found.theta, theta, atol=1e-9)
        np.testing.assert_allclose(found.covariance, bread @ scored.T @ scored @ bread, rtol=1e-6)
        assert found.known.all()


def test_every_sum_moves_the_coefficients_by_one_step():
    """The same sums at all coefficients: each of them moves by 1/4, that of the errors among them."""
    one = Sandwich(Privacy(1.0, 1e-6), LOSSES["logistic"], 3)
    values = {"curvatures": {"xx": 2.0 * np.eye(3)}, "scores": {"xx": np.eye(3), "x": np.full(3, 0.5)}}
    stages, answer, requested = one.stages(np.zeros(3)), None, []
    while True:
        try:
            query = stages.send(answer)
        except StopIteration as end:
            found = end.value()
            break
        requested.append(query.name)
        answer = SimpleNamespace(values=values[query.name.partition(",")[0]], scales={"xx": 1e-9, "x": 1e-9})
    assert len(requested) == 2 * len(sandwich._SHARES) == len(set(requested))
    np.testing.assert_allclose(found.theta, 0.25 * len(sandwich._SHARES))
