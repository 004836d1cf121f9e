"""Scores of supports: against a plain twin, exact arithmetic, and their proved error."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from reference.support_scores import support_scores
from scipy import optimize

from dpfast.kernels.support_scores import score_supports
from dpfast.solvers import SupportScores, score_error
from dpfast.solvers.best_subset import BLOCK_SUPPORTS, exact_box_minimum, support_at


def moments(n, p, kind="plain", seed=0):
    """Moments of rows of which some fit only with coefficients beyond the box."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) / math.sqrt(p)
    if kind == "duplicates":
        x[:, p // 2 :] = x[:, : p - p // 2]
    if kind == "scales":
        x *= 10.0 ** rng.uniform(-4, 0, size=p)
    if kind == "correlated":
        x = 0.999 * x[:, :1] + 0.001 * x
    y = x @ rng.normal(size=p) * 2.0 + 0.1 * rng.normal(size=n)
    return x.T @ x, x.T @ y


def all_scores(xx, xy, size, n_threads=1, ridge=1e-6, tolerance=1e-8):
    scores = SupportScores(xx, xy, size, ridge=ridge, tolerance=tolerance)
    return np.concatenate(list(scores.blocks(n_threads)))


@pytest.mark.parametrize("kind", ["plain", "duplicates", "scales", "correlated"])
@pytest.mark.parametrize(("p", "size"), [(1, 1), (6, 1), (6, 6), (8, 3), (7, 4)])
def test_scores_are_those_of_the_plain_twin(p, size, kind):
    xx, xy = moments(50, p, kind)
    np.testing.assert_allclose(all_scores(xx, xy, size), support_scores(xx, xy, size, 1e-6), rtol=1e-12, atol=1.1e-8)


def test_scores_are_least_sums_of_squares():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(80, 7)), 5.0 * rng.normal(size=80)
    got = all_scores(x.T @ x, x.T @ y, 3, ridge=1e-9) + y @ y / 2.0
    supports = itertools.combinations(range(7), 3)
    wanted = [optimize.lsq_linear(x[:, one], y, bounds=(-1.0, 1.0), tol=1e-13).cost for one in supports]
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads_and_blocks_do_not_matter(n_threads):
    xx, xy = moments(100, 62, seed=2)
    assert math.comb(62, 4) > 4 * BLOCK_SUPPORTS
    one, several = (
        np.concatenate(list(SupportScores(xx, xy, 4, ridge=1e-6, tolerance=1e-8).blocks(n))) for n in (1, n_threads)
    )
    assert np.array_equal(one, several)
    start, n = 123_456, 1000
    part = np.empty(n)
    score_supports(xx, xy, 1e-6, 1e-8, support_at(start, 62, 4), part)
    assert np.array_equal(part, one[start : start + n])


def test_supports_are_numbered_in_lexicographic_order():
    for p, size in ((1, 1), (7, 3), (9, 8)):
        for index, one in enumerate(itertools.combinations(range(p), size)):
            assert tuple(support_at(index, p, size)) == one


def test_progress_is_told():
    xx, xy = moments(100, 62)
    told = []
    list(
        SupportScores(xx, xy, 4, ridge=1e-6, tolerance=1e-8).blocks(
            progress=lambda done, total: told.append((done, total))
        )
    )
    total = math.comb(62, 4)
    assert told[0] == (BLOCK_SUPPORTS, total)
    assert told[-1] == (total, total)


def test_no_certificate_means_exact_arithmetic():
    """A tolerance that no double computation meets: every score is NaN in the kernel, and exact all the same."""
    xx, xy = moments(60, 6, "duplicates", seed=3)
    raw = np.empty(math.comb(6, 3))
    score_supports(xx, xy, 1e-9, 1e-300, support_at(0, 6, 3), raw)
    assert np.isnan(raw).any()
    exact = all_scores(xx, xy, 3, ridge=1e-9, tolerance=1e-300)
    np.testing.assert_allclose(exact, support_scores(xx, xy, 3, 1e-9), rtol=1e-6)
    np.testing.assert_allclose(exact, all_scores(xx, xy, 3, ridge=1e-9, tolerance=1e-9), rtol=1e-9, atol=1e-9)


def test_the_exact_minimum_is_optimal():
    """No point of a grid is better, and the twin finds no less."""
    rng = np.random.default_rng(4)
    for n in (1, 2, 3):
        for _ in range(10):
            factor = rng.integers(-3, 4, size=(n, n)).astype(object)
            matrix = [
                [Fraction(int(v)) for v in row] for row in factor @ factor.T + np.eye(n, dtype=int).astype(object)
            ]
            vector = [Fraction(int(v)) for v in rng.integers(-12, 13, size=n)]
            least, _ = exact_box_minimum(matrix, vector)
            twin = support_scores(np.array(matrix, float), np.array(vector, float), n, 0.0)[0]
            assert float(least) == pytest.approx(twin, rel=1e-12)
            for point in itertools.product([Fraction(k, 2) for k in range(-2, 3)], repeat=n):
                value = sum(point[i] * matrix[i][j] * point[j] for i in range(n) for j in range(n)) / 2
                assert least <= value - sum(v * t for v, t in zip(vector, point, strict=True))


@pytest.mark.parametrize("kind", ["plain", "duplicates", "scales", "correlated"])
def test_the_error_bound_holds_for_exact_moments(kind):
    """Integer moments beyond 53 bits, rounded to double: computed less exact lies where it is proved to."""
    rng = np.random.default_rng(5)
    size, p = 3, 6
    x, y = np.rint(rng.normal(size=(40, p)) * 2**28), np.rint(rng.normal(size=40) * 2**29)
    if kind == "duplicates":
        x[:, 3:] = x[:, :3]
    if kind == "scales":
        x[:, ::2] = np.rint(x[:, ::2] / 2**20)
    if kind == "correlated":
        x = np.rint(x[:, :1] + x / 2**16)
    rows, outcomes = x.astype(object).astype(int).astype(object), y.astype(int).astype(object)
    exact_xx, exact_xy = rows.T @ rows, rows.T @ outcomes
    unit, ridge = Fraction(1, 2**56), 2.0**-10
    xx = np.array([[float(Fraction(int(v)) * unit) for v in row] for row in exact_xx])
    xy = np.array([float(Fraction(int(v)) * unit) for v in exact_xy])
    curvature = max(np.abs(xx[np.ix_(one, one)]).sum() for one in itertools.combinations(range(p), size)) + size * ridge
    gradient = np.sort(np.abs(xy))[-size:].sum()
    tolerance = 1e-9
    half = score_error(size, curvature * (1 + 1e-9), gradient * (1 + 1e-9), tolerance)
    got = all_scores(xx, xy, size, ridge=ridge, tolerance=tolerance)
    for score, one in zip(got, itertools.combinations(range(p), size), strict=True):
        matrix = [[Fraction(int(exact_xx[i, j])) * unit + (Fraction(ridge) if i == j else 0) for j in one] for i in one]
        exact, _ = exact_box_minimum(matrix, [Fraction(int(exact_xy[i])) * unit for i in one])
        error = Fraction(float(score)) - exact
        assert abs(error - Fraction(tolerance) / 2) <= Fraction(half)


@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize(
    ("curvature", "gradient", "tolerance"), [(3.7, 0.2, 1e-9), (1e300, 1e-300, 0.0), (0.1, 7.0, 0.3)]
)
def test_the_error_bound_is_the_proofs_rounded_up(size, curvature, gradient, tolerance):
    """Errors of tables come nowhere near it, so that they would not tell a bound that is a thousandth of it."""
    exact = Fraction(tolerance) / 2 + Fraction(8 * (size + 2), 2**53) * (Fraction(curvature) + Fraction(gradient))
    assert exact <= Fraction(score_error(size, curvature, gradient, tolerance)) <= exact * (1 + Fraction(1, 2**47))


@pytest.mark.parametrize("kind", ["Fortran", "strided", "read-only", "float32", "lists"])
def test_arrays_of_many_kinds(kind):
    xx, xy = (np.rint(64.0 * values) for values in moments(50, 6))
    wanted = all_scores(xx, xy, 3)
    match kind:
        case "Fortran":
            given = np.asfortranarray(xx), xy
        case "strided":
            given = np.repeat(np.repeat(xx, 2, axis=0), 3, axis=1)[::2, ::3], np.repeat(xy, 2)[::2]
        case "read-only":
            given = xx.copy(), xy.copy()
            for array in given:
                array.flags.writeable = False
        case "float32":
            given = xx.astype(np.float32), xy.astype(np.float32)
        case _:
            given = xx.tolist(), xy.tolist()
    assert np.array_equal(all_scores(*given, 3), wanted)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SupportScores(np.eye(3), np.ones(2), 1, ridge=1.0, tolerance=1.0), ValueError, "xx and xy must have"),
        (lambda: SupportScores(np.eye(3), np.ones((3, 1)), 1, ridge=1.0, tolerance=1.0), ValueError, "xx and xy"),
        (lambda: SupportScores(np.eye(3) * math.nan, np.ones(3), 1, ridge=1.0, tolerance=1.0), ValueError, "finite"),
        (
            lambda: SupportScores(np.triu(np.ones((3, 3))), np.ones(3), 1, ridge=1.0, tolerance=1.0),
            ValueError,
            "symmetric",
        ),
        (lambda: SupportScores(np.eye(3), np.ones(3), 4, ridge=1.0, tolerance=1.0), ValueError, "size must be at most"),
        (lambda: SupportScores(np.eye(3), np.ones(3), 0, ridge=1.0, tolerance=1.0), ValueError, "size"),
        (lambda: SupportScores(np.eye(3), np.ones(3), 1, ridge=0.0, tolerance=1.0), ValueError, "ridge"),
        (lambda: SupportScores(np.eye(3), np.ones(3), 1, ridge=1.0, tolerance=-1.0), ValueError, "tolerance"),
        (lambda: score_error(0, 1.0, 1.0, 1.0), ValueError, "size"),
        (lambda: score_error(1, math.nan, 1.0, 1.0), ValueError, "curvature"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-5])
def test_no_score_is_further_from_its_minimum_than_the_tolerance(tolerance):
    """A point that is merely brought into the box may be anywhere: it counts only where its gap certifies it."""
    xx, xy = moments(50, 12)
    above = all_scores(xx, 1.5 * xy, 4, tolerance=tolerance) - support_scores(xx, 1.5 * xy, 4, 1e-6)
    assert above.min() >= -1e-9
    assert above.max() <= tolerance * (1.0 + 1e-9)
