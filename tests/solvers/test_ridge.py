"""Ridge on noisy moments: against the normal equations, against finite differences, against simulation."""

import itertools

import numpy as np
import pytest
from scipy import linalg
from sklearn.linear_model import Ridge

from dpfast.solvers import (
    MomentNoise,
    NoisyMoments,
    Shrinkage,
    automatic_diagonal_ridge,
    automatic_ridge,
    positive_semidefinite,
    ridge_from_moments,
)
from dpfast.solvers.ridge import ReducedMoments, eigh, hidden_columns, qr

EXACT = MomentNoise(0.0, 0.0, 0.0)


def table(n=200, d=5, outcomes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) + rng.normal(size=d)
    y = x @ rng.normal(size=(d, outcomes)) + rng.normal(size=(n, outcomes)) + 2.0
    return x, y


def moments(x, y, noise=EXACT, center=None):
    z = x if center is None else x - center
    return NoisyMoments(z.T @ z, z.T @ y, noise, z.sum(axis=0), y.sum(axis=0), float(len(x)))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("center", [None, np.linspace(-1.0, 2.0, 5)])
@pytest.mark.parametrize("ridge", [0.0, 0.5, 30.0])
@pytest.mark.parametrize("units", [None, np.geomspace(0.2, 30.0, 5)])
def test_exact_moments_give_scikit_learns_ridge(units, ridge, center, fit_intercept):
    x, y = table()
    summed = moments(x if units is None else x / units, y, center=center)
    ours = ridge_from_moments(summed, ridge, center=center, units=units, fit_intercept=fit_intercept)
    theirs = Ridge(alpha=ridge, fit_intercept=fit_intercept).fit(x, y)
    np.testing.assert_allclose(ours.coef, theirs.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_ * np.ones(3), rtol=1e-8, atol=1e-10)
    assert ours.ridge == ridge


@pytest.mark.parametrize("units", [None, np.geomspace(0.2, 30.0, 5)])
def test_each_column_has_its_own_ridge_and_one_may_have_none(units):
    x, y = table()
    own = np.array([0.5, 30.0, 0.0, 2.0, 0.0])
    ours = ridge_from_moments(moments(x if units is None else x / units, y), own, units=units)
    np.testing.assert_allclose(ours.coef.T, linalg.solve(x.T @ x + np.diag(own), x.T @ y), rtol=1e-8)
    assert ours.ridge == 30.0


def test_singular_moments_without_penalty_give_the_minimum_norm_solution():
    x, y = table(n=3, d=5)
    ours = ridge_from_moments(moments(x, y), 0.0)
    np.testing.assert_allclose(ours.coef.T, linalg.lstsq(x, y)[0], atol=1e-8)


def test_positive_semidefinite_is_the_nearest_one():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(6, 6))
    matrix += matrix.T
    repaired = positive_semidefinite(matrix)
    assert np.array_equal(repaired, repaired.T)
    assert linalg.eigvalsh(repaired)[0] >= -1e-12
    distance = linalg.norm(matrix - repaired)
    # Higham 1988: the distance is the norm of the negative eigenvalues, and no other such matrix is nearer.
    assert distance == pytest.approx(linalg.norm(np.minimum(linalg.eigvalsh(matrix), 0.0)))
    for _ in range(200):
        factor = linalg.sqrtm(repaired + 1e-12 * np.eye(6)).real + 0.05 * rng.normal(size=(6, 6))
        assert linalg.norm(matrix - factor @ factor.T) >= distance - 1e-5


@pytest.mark.parametrize("d", [5, 40])
def test_a_matrix_is_what_its_eigenvalues_and_eigenvectors_make_of_it(d):
    rng = np.random.default_rng(4)
    diagonal = np.diag(np.append(rng.normal(size=d - 3), [2.0, 2.0, -0.0]))
    dense = rng.normal(size=(d, d))
    nearly = diagonal.copy()
    nearly[0, -1] = nearly[-1, 0] = 1e-3
    # What stands off the diagonal makes up for a zero on it.
    swapped = np.diag(np.ones(d))
    swapped[:2, :2] = [[1.0, 1.0], [1.0, 0.0]]
    for matrix in (diagonal, dense + dense.T, nearly, swapped):
        values, vectors = eigh(matrix)
        assert np.all(np.diff(values) >= 0.0)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(d), atol=1e-12)
        np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=1e-12)
    diagonal[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        eigh(diagonal)


@pytest.mark.parametrize("shape", [(5, 5), (5, 9), (9, 5), (140, 140)])
def test_a_qr_decomposition_is_scipys_to_the_bit(shape):
    matrix = np.random.default_rng(5).normal(size=shape)
    for one, other in zip(qr(matrix[:, ::-1]), linalg.qr(matrix[:, ::-1], mode="economic"), strict=True):
        assert np.array_equal(one, other)
    matrix[0, 0] = np.inf
    with pytest.raises(ValueError, match="inf"):
        qr(matrix)


def symmetric_noise(rng, d, noise):
    upper = np.triu(rng.normal(scale=noise.off_diagonal, size=(d, d)), 1)
    return upper + upper.T + np.diag(rng.normal(scale=noise.diagonal, size=d))


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_coefficient_std_is_the_spread_under_the_noise(fit_intercept, centred):
    rng = np.random.default_rng(2)
    x, y = table(n=4000, seed=3)
    center = np.linspace(-1.0, 2.0, 5) if centred else None
    noise = MomentNoise(9.0, 5.0, 7.0, x=6.0, y=5.0, n=4.0)
    exact = moments(x, y, noise, center)
    expected = ridge_from_moments(exact, 10.0, center=center, fit_intercept=fit_intercept).coef_std
    draws = 4000
    coefs = np.array(
        [
            ridge_from_moments(
                NoisyMoments(
                    exact.xx + symmetric_noise(rng, 5, noise),
                    exact.xy + rng.normal(scale=noise.cross, size=exact.xy.shape),
                    noise,
                    exact.x + rng.normal(scale=noise.x, size=5),
                    exact.y + rng.normal(scale=noise.y, size=3),
                    exact.n + rng.normal(scale=noise.n),
                ),
                10.0,
                center=center,
                fit_intercept=fit_intercept,
            ).coef
            for _ in range(draws)
        ]
    )
    # A sample standard deviation of N draws has relative error 1/sqrt(2N) = 1.1%: five of them for 60 comparisons
    # (false-reject rate 3e-5), and 1.5% for the second-order terms at this noise.
    np.testing.assert_allclose(coefs.std(axis=0), expected, rtol=5.0 / np.sqrt(2 * draws) + 0.015)


def test_coefficient_std_knows_how_x_y_was_shrunk():
    rng = np.random.default_rng(11)
    x, y = table(n=4000, seed=3)
    turn = linalg.qr(rng.normal(size=(3, 3)))[0]
    factors = np.array([0.9, 0.5, 0.1])
    s = (turn * factors) @ turn.T
    noise, shrinkage = MomentNoise(9.0, 5.0, 90.0), Shrinkage(factors, linalg.norm(s, axis=0), np.eye(5))
    exact = moments(x, y @ s, noise)
    draws = 4000

    def fit(xx, xy):
        return ridge_from_moments(NoisyMoments(xx, xy, noise, shrinkage=shrinkage), 10.0)

    coefs = [
        fit(exact.xx + symmetric_noise(rng, 5, noise), exact.xy + rng.normal(scale=90.0, size=(5, 3)) @ s).coef
        for _ in range(draws)
    ]
    # As above, for 15 comparisons: false-reject rate 1e-5, and 1.5% for second-order terms.
    expected = fit(exact.xx, exact.xy).coef_std
    np.testing.assert_allclose(np.std(coefs, axis=0), expected, rtol=5.0 / np.sqrt(2 * draws) + 0.015)


def test_automatic_ridge_weighs_shrinkage():
    """Nothing shrunk is as if nothing was said; X'Y cut to half its length needs a smaller penalty."""
    x, y = table()
    exact = moments(x, y, MomentNoise(30.0, 21.0, 30.0))
    plain = automatic_ridge(ReducedMoments(exact.xx, exact.xy, None, exact.noise))
    squared = exact.xy @ exact.xy.T
    same = Shrinkage(np.ones(3), np.ones(3), squared)
    assert automatic_ridge(ReducedMoments(exact.xx, exact.xy, None, exact.noise), same) == plain
    half = Shrinkage(np.full(3, 0.5), np.full(3, 0.5), 0.5 * squared)
    assert automatic_ridge(ReducedMoments(exact.xx, exact.xy / 2.0, None, exact.noise), half) < plain


@pytest.mark.parametrize(("d", "outcomes"), [(4, 1), (4, 300), (20, 1), (20, 300)])
def test_coefficients_of_nothing_but_noise_are_shrunk(d, outcomes):
    """In noise 1,000 times the size of a table, no signal shows: most fits are (next to) zero.

    Each is by a probability of some 5/6, so the median of 100 is but for one time in 1e9.
    """
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(200, d)), rng.normal(size=(200, outcomes))
    noise = MomentNoise(2e5, 2e5 / 2**0.5, 2e5)
    exact = moments(x, y)
    fits = [
        ridge_from_moments(
            NoisyMoments(
                exact.xx + symmetric_noise(rng, d, noise),
                exact.xy + rng.normal(scale=noise.cross, size=exact.xy.shape),
                noise,
            )
        )
        for _ in range(100)
    ]
    assert np.median([np.sum(fit.coef**2) for fit in fits]) < 1e-6


def test_automatic_ridge_is_zero_without_noise_and_grows_with_it():
    x, y = table()
    exact = moments(x, y)
    scales = (0.0, 1e-3, 1.0, 30.0, 1e5)
    penalties = [
        automatic_ridge(ReducedMoments(exact.xx, exact.xy, None, MomentNoise(s, s / 2**0.5, s))) for s in scales
    ]
    assert penalties[0] == 0.0
    assert all(a < b for a, b in itertools.pairwise(penalties))


def test_automatic_ridge_is_close_to_the_best_penalty_in_hindsight():
    rng = np.random.default_rng(4)
    losses, best = [], []
    for _ in range(60):
        d = int(rng.integers(4, 30))
        x = rng.normal(size=(1500, d)) * np.arange(1, d + 1.0) ** -rng.choice([0.0, 0.5, 1.0])
        y = x @ rng.normal(size=(d, 2)) + rng.normal(size=(1500, 2))
        noise = MomentNoise(40.0, 40.0 / 2**0.5, 40.0)
        xx, xy = x.T @ x, x.T @ y
        noisy = NoisyMoments(xx + symmetric_noise(rng, d, noise), xy + rng.normal(scale=40.0, size=xy.shape), noise)
        truth = linalg.solve(xx, xy)

        def risk(coef, truth=truth, xx=xx):
            return np.einsum("ld,de,le->", coef - truth.T, xx, coef - truth.T)

        losses.append(risk(ridge_from_moments(noisy).coef))
        best.append(min(risk(ridge_from_moments(noisy, p).coef) for p in np.geomspace(1e-1, 1e5, 60)))
    assert np.sum(losses) < 1.25 * np.sum(best)


def test_a_direction_that_all_rows_share_does_not_speak_for_the_others():
    """Outcomes independent of the common direction: the risk stays within twice that of the best penalty."""
    rng = np.random.default_rng(13)
    z = 0.2 * rng.normal(size=(5000, 6))
    x = np.column_stack([z, np.ones(5000)])
    xx, truth = x.T @ x, np.append(rng.normal(size=6), 0.0)[:, None]
    noise = MomentNoise(8.0, 8.0 / 2**0.5, 8.0)
    losses, best = [], []
    for _ in range(40):
        noisy = NoisyMoments(
            xx + symmetric_noise(rng, 7, noise), xx @ truth + rng.normal(scale=8.0, size=(7, 1)), noise
        )

        def risk(coef):
            return float(np.sum((coef.T - truth) * (xx @ (coef.T - truth))))

        losses.append(risk(ridge_from_moments(noisy).coef))
        best.append(min(risk(ridge_from_moments(noisy, p).coef) for p in np.geomspace(1e-2, 1e4, 60)))
    assert np.sum(losses) < 2.0 * np.sum(best)


def test_a_column_of_zeros_does_not_drown_the_others():
    """Small coefficients, known well from many rows: the risk stays within three times that of the best penalty."""
    rng = np.random.default_rng(14)
    xx = 2e4 * np.diag([0.0, *np.ones(7)])
    truth = np.append(0.0, 0.05 * rng.normal(size=7))[:, None]
    noise = MomentNoise(8.0, 8.0 / 2**0.5, 8.0)
    losses, best = [], []
    for _ in range(40):
        noisy = NoisyMoments(
            xx + symmetric_noise(rng, 8, noise), xx @ truth + rng.normal(scale=8.0, size=(8, 1)), noise
        )

        def risk(coef):
            return float(np.sum((coef.T - truth) * (xx @ (coef.T - truth))))

        losses.append(risk(ridge_from_moments(noisy).coef))
        best.append(min(risk(ridge_from_moments(noisy, p).coef) for p in np.geomspace(1e-2, 1e4, 60)))
    assert np.sum(losses) < 3.0 * np.sum(best)


def test_moments_that_are_all_zero_are_shrunk():
    zeros = NoisyMoments(np.zeros((3, 3)), np.zeros((3, 2)), MomentNoise(1.0, 0.7, 1.0))
    solution = ridge_from_moments(zeros)
    assert solution.ridge > 0.0
    assert not solution.coef.any()


def test_an_intercept_needs_the_sums():
    with pytest.raises(ValueError, match="sums x and y"):
        ridge_from_moments(NoisyMoments(np.eye(2), np.ones((2, 1)), EXACT), 1.0, fit_intercept=True)


def test_inputs_are_not_written_to():
    x, y = table()
    exact = moments(x, y)
    for array in (exact.xx, exact.xy):
        array.flags.writeable = False
    ridge_from_moments(exact, 1.0)


def test_the_penalty_of_a_diagonal_is_that_of_the_matrix():
    rng = np.random.default_rng(8)
    for scale in (0.1, 3.0, 40.0):
        diagonal, xy = rng.uniform(-2.0, 50.0, 12), rng.uniform(0.0, 30.0, 12)
        noise = MomentNoise(scale, 0.0, 0.5 * scale)
        penalty = automatic_diagonal_ridge(diagonal, xy, noise)
        assert penalty == pytest.approx(
            automatic_ridge(ReducedMoments(np.diag(diagonal), xy[:, None], None, noise)), rel=1e-12
        )
        assert penalty > 0.0
    assert automatic_diagonal_ridge(diagonal, xy, MomentNoise(0.0, 0.0, 1.0)) == 0.0


@pytest.mark.parametrize(
    ("squares", "noise", "hidden"),
    [
        ([20.0, 0.5, 2.0, 2.6], 1.0, [False, True, True, False]),
        ([4.0, 1.5, 3.0, -1.0], 1.0, [False] * 4),  # which may all be alike
        ([9.0, 0.0, 1.0, 1.0], 0.0, [False] * 4),  # which are known
        ([1e12, 1.0, 3.0, 3e12], [1e10, 1.0, 1.0, 1e13], [False, True, False, False]),
    ],
)
def test_columns_are_hidden_that_are_noise_and_certainly_below_another(squares, noise, hidden):
    np.testing.assert_array_equal(hidden_columns(np.array(squares), np.array(noise)), hidden)
