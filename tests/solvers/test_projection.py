"""Projection of X'Y under public labels: against the problem written out in full, and by what makes it a projection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, optimize

from dpfast.solvers import (
    LabelFactor,
    MomentNoise,
    NoisyMoments,
    quadratic_over_ball,
    ridge_from_moments,
)
from dpfast.solvers import projection as module


def project(xy, labels, bound):
    return LabelFactor.from_labels(labels).project(xy, bound)


SHAPES = [(7, 3, 4), (4, 3, 7), (5, 2, 5), (1, 2, 3), (6, 1, 1)]


def instance(n, d, outcomes, seed=0, rank=None):
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=(n, outcomes))
    if rank is not None:
        labels = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, outcomes))
    return rng.normal(size=(d, outcomes)) * rng.choice([0.3, 3.0, 30.0]), labels, float(rng.uniform(0.3, 2.0))


def random_member(rng, labels, d, bound):
    """A point of the set, from its definition."""
    x = rng.normal(size=(len(labels), d))
    return (np.sqrt(len(labels)) * bound * rng.uniform() ** 0.1 * x / linalg.norm(x)).T @ labels


def dense_projection(xy, labels, bound):
    """The same problem without its structure: vec(X) in a ball, the full matrix C = I (x) Y' decomposed."""
    d = xy.shape[0]
    c = np.kron(np.eye(d), labels.T)
    values, vectors = linalg.eigh(c.T @ c)
    values = np.maximum(values, 0.0)
    linear = vectors.T @ c.T @ xy.ravel()
    positive = values > 1e-10 * values.max()
    x = np.zeros(len(values))
    radius = np.sqrt(len(labels)) * bound
    x[positive] = quadratic_over_ball(values[positive], linear[positive], radius)
    return (c @ vectors @ x).reshape(xy.shape)


@pytest.mark.parametrize("rank", [None, 1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_dense_problem(shape, rank):
    for seed in range(10):
        xy, labels, bound = instance(*shape, seed, rank)
        expected = dense_projection(xy, labels, bound)
        np.testing.assert_allclose(project(xy, labels, bound), expected, atol=1e-10 * linalg.norm(xy))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_generic_solver_finds_the_same_point(shape):
    xy, labels, bound = instance(*shape, seed=20)
    n, d, _ = shape
    xy = 10.0 * xy  # outside, so that the constraint counts
    radius = np.sqrt(n) * bound

    def distance(x):
        residual = x.reshape(n, d).T @ labels - xy
        return np.sum(residual**2) / 2, (labels @ residual.T).ravel()

    constraint = {"type": "ineq", "fun": lambda x: radius**2 - x @ x, "jac": lambda x: -2 * x}
    result = optimize.minimize(
        distance,
        np.full(n * d, 1e-3),
        jac=True,
        method="SLSQP",
        constraints=constraint,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = project(xy, labels, bound)
    assert np.sum((ours - xy) ** 2) / 2 <= result.fun * (1 + 1e-9)
    np.testing.assert_allclose(ours, result.x.reshape(n, d).T @ labels, atol=2e-4 * linalg.norm(ours))


@given(st.integers(0, 10_000), st.sampled_from(SHAPES), st.sampled_from([None, 1, 2]))
def test_no_point_of_the_set_gets_farther(seed, shape, rank):
    """The variational inequality <G - PG, M - PG> <= 0 for all M of the set, and what follows from it."""
    xy, labels, bound = instance(*shape, seed, rank)
    factor = LabelFactor.from_labels(labels)
    projected = factor.project(xy, bound)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        member = random_member(rng, labels, shape[1], bound)
        slack = 1e-9 * linalg.norm(xy) * (linalg.norm(member) + linalg.norm(projected))
        assert np.sum((xy - projected) * (member - projected)) <= slack
        assert linalg.norm(projected - member) <= linalg.norm(xy - member) + 1e-9 * linalg.norm(member)
        np.testing.assert_allclose(factor.project(member, bound), member, atol=1e-9 * linalg.norm(member))
    again = factor.project(projected, bound)
    np.testing.assert_allclose(again, projected, atol=1e-9 * linalg.norm(projected))


def test_full_rank_labels_leave_what_is_inside_as_it_is():
    _, labels, bound = instance(7, 3, 4)
    xy = 0.01 * random_member(np.random.default_rng(0), labels, 3, bound)
    projected = project(xy, labels, bound)
    assert np.array_equal(projected, xy)
    assert projected is not xy


def test_components_outside_the_row_space_are_dropped():
    labels = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    projected = project(np.array([[0.5, 0.1, 7.0]]), labels, bound=1.0)
    np.testing.assert_allclose(projected, [[0.3, 0.3, 0.0]], rtol=1e-14)
    assert LabelFactor.from_labels(labels).rank == 1


def test_labels_of_zeros_leave_nothing():
    assert not project(np.ones((2, 3)), np.zeros((5, 3)), 1.0).any()


@pytest.mark.parametrize("shape", [(50, 3, 8), (8, 3, 50)])
def test_blocks_and_types_of_labels_do_not_matter(shape, monkeypatch):
    xy, labels, bound = instance(*shape, seed=4)
    labels = np.rint(3 * labels)
    expected = project(xy, labels, bound)
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 30)
    for same in (labels, labels.astype(np.int8), labels.astype(np.float32), np.asfortranarray(labels), labels[::-1]):
        projected = project(xy.astype(np.float64), same, bound)
        np.testing.assert_allclose(projected, expected, rtol=1e-9, atol=1e-12 * linalg.norm(expected))
        factor = LabelFactor.from_labels(same)
        assert (factor.rank, factor.n_rows, factor.n_outcomes) == (8, shape[0], shape[2])


def test_noise_is_reduced_as_the_set_is_thin():
    """n = 100, d = 4, l = 400: mean squared error falls at least threefold; noise of the mechanism's size."""
    rng = np.random.default_rng(5)
    n, d, outcomes, sigma = 100, 4, 400, 8.0
    x, labels = (
        a / linalg.norm(a, axis=1, keepdims=True) for a in (rng.normal(size=(n, d)), rng.normal(size=(n, outcomes)))
    )
    exact = x.T @ labels
    noisy = exact + sigma * rng.normal(size=exact.shape)
    assert 3 * np.mean((project(noisy, labels, 1.0) - exact) ** 2) < np.mean((noisy - exact) ** 2)


def released(rng, x, y, noise):
    """Moments with noise, as a release gives them."""
    upper = np.triu(rng.normal(scale=noise.off_diagonal, size=(x.shape[1],) * 2), 1)
    xx = x.T @ x + upper + upper.T + np.diag(rng.normal(scale=noise.diagonal, size=x.shape[1]))
    return NoisyMoments(xx, x.T @ y + rng.normal(scale=noise.cross, size=(x.shape[1], y.shape[1])), noise)


@pytest.mark.parametrize(("n", "outcomes", "rank"), [(30, 6, 6), (6, 30, 6), (30, 6, 2), (6, 30, 2)])
def test_shrinkage_is_that_of_the_projection(n, outcomes, rank):
    """Against S = Y'Y (Y'Y + nu I)^-1 in full, nu from what the projection did."""
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, outcomes))
    moments = released(rng, rng.normal(size=(n, 3)), labels, MomentNoise(1.0, 0.7, 30.0))
    projected = LabelFactor.from_labels(labels).project_moments(moments, 0.2)
    yy = labels.T @ labels
    # (P - G) Y'Y = -nu P: one number explains every entry.
    nu = -np.sum((projected.xy - moments.xy) @ yy * projected.xy) / np.sum(projected.xy**2)
    s = np.linalg.lstsq(yy + nu * np.eye(outcomes), yy)[0]
    assert nu > 0.0
    np.testing.assert_allclose(projected.xy, moments.xy @ s, atol=1e-9 * linalg.norm(moments.xy))
    shrinkage = projected.shrinkage
    np.testing.assert_allclose(np.sort(shrinkage.factors), linalg.eigvalsh(s)[-rank:], rtol=1e-9)
    np.testing.assert_allclose(shrinkage.lengths, linalg.norm(s, axis=0), rtol=1e-9)
    np.testing.assert_allclose(shrinkage.overlap, projected.xy @ moments.xy.T, atol=1e-9 * linalg.norm(moments.xy) ** 2)
    assert projected.noise == moments.noise


def test_moments_within_the_set_stay_as_they_are():
    labels = np.eye(4)[:, :2]
    moments = NoisyMoments(np.eye(3), np.full((3, 2), 0.1), MomentNoise(1.0, 0.7, 1.0))
    assert LabelFactor.from_labels(labels).project_moments(moments, 1.0) is moments


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["separate", "common"])
@pytest.mark.parametrize(("n", "d", "outcomes"), [(500, 4, 10), (5000, 4, 100), (5000, 16, 100), (5000, 64, 10)])
def test_a_projected_fit_is_no_worse_than_a_plain_one(n, d, outcomes, kind):
    """Noise of (epsilon, delta) = (1, 1e-6); outcomes with noise of their own, or with a large one in common.

    Forty paired draws: six standard errors have a false-reject rate below 1e-6. One per cent is what a penalty chosen
    on other data may lose. Were the noise left after a projection counted as none, risks would rise by up to 3 times.
    """
    rng = np.random.default_rng(7)
    x = rng.normal(size=(n, d))
    x /= linalg.norm(x, axis=1).max()
    y = x @ rng.normal(size=(d, outcomes))
    y /= y.std(axis=0)
    own = rng.normal(size=y.shape)
    y += own if kind == "separate" else 0.3 * own + 2.0 * rng.normal(size=(n, 1))
    y = np.clip(y / 6.0, -1.0, 1.0)
    xx, factor = x.T @ x, LabelFactor.from_labels(y)
    truth = linalg.solve(xx, x.T @ y, assume_a="pos")
    noise = MomentNoise(8.0, 8.0 / 2**0.5, 8.0 * outcomes**0.5)

    def risk(moments):
        gap = ridge_from_moments(moments).coef.T - truth
        return np.sum(gap * (xx @ gap))

    draws = [released(rng, x, y, noise) for _ in range(40)]
    plain = np.array([risk(moments) for moments in draws])
    projected = np.array([risk(factor.project_moments(moments, 1.0)) for moments in draws])
    error = np.std(projected - plain) / np.sqrt(len(draws))
    assert projected.mean() <= 1.01 * plain.mean() + 6.0 * error


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.ones((2, 3)), np.ones((4, 2)), 1.0), ValueError, "one column an outcome"),
        ((np.ones(3), np.ones((4, 3)), 1.0), ValueError, "xy must have 2 dimensions and at least one entry"),
        ((np.full((2, 3), np.nan), np.ones((4, 3)), 1.0), ValueError, "xy must be finite"),
        ((np.ones((2, 3)), np.full((4, 3), np.inf), 1.0), ValueError, "labels must be finite"),
        ((np.ones((2, 3)), np.ones((0, 3)), 1.0), ValueError, "labels must be a non-empty"),
        ((np.ones((2, 3)), [["a"]], 1.0), TypeError, "labels must hold real numbers"),
        ((np.full((2, 3), 1e200), np.ones((4, 3)), 1.0), ValueError, "xy must be small enough"),
        ((np.full((2, 3), 1e308), np.full((4, 3), -1e150), 1.0), ValueError, "xy must be small enough"),
        ((np.ones((2, 3)), np.ones((4, 3)), 0.0), ValueError, "bound must be positive"),
        ((np.ones((2, 3)), np.ones((4, 3)), "1"), TypeError, "bound must be a real number"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        project(*arguments)
