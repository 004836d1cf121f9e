"""What is released but for its noise: no neighbour passes the local bound, and floating point errs by tau at most."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp
from neighbours import climb
from walks import FEATURES, WEIGHTS, problem, statistics_of, summed, walks

from dpfast import Privacy
from dpfast.policy_evaluation.mechanism import Problem, RidgeFit, WeightedMeans, usual_ridge
from dpfast.statistics import ReturnGrid

PRIVACY = Privacy(1.0, 1e-5)
# At so large a beta nothing but k = 0 counts: the smooth sensitivity is the local one.
LOCAL = 80.0


STATISTICS = list(statistics_of(4))


@pytest.mark.parametrize("statistic", STATISTICS, ids=range(len(STATISTICS)))
def test_no_neighbour_is_beyond_the_local_bound(statistic):
    """One of four trajectories is replaced by any other; masks are random, returns are climbed over."""
    public, worst = statistic.problem, 0.0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        visited = rng.random((5, 4)) < (0.9 if seed == 0 else 0.5)
        visited[np.arange(5), rng.integers(0, 4, 5)] = True
        if seed == 0:
            visited[3:] = True
        if public.horizon == 1:
            visited = np.eye(4, dtype=bool)[rng.integers(0, 4, 5)]

        def change(parameters, visited=visited):
            values = 1.5 * parameters.reshape(5, 4)
            one, other = (summed(walks(visited[kept], values[kept]), public) for kept in ([0, 1, 2, 3], [0, 1, 2, 4]))
            bound = statistic.sensitivity_of_counts(one.counts, LOCAL)
            moved = np.linalg.norm(statistic.center(one) - statistic.center(other))
            return moved / (bound + 2.0 * statistic.tau)

        worst = max(worst, climb(change, 20, rng, restarts=1, screened=40)[0])
    assert 0.0 < worst <= 1.0


@pytest.mark.parametrize("weights", [np.full(4, 0.25), WEIGHTS])
@pytest.mark.parametrize("features", [None, FEATURES])
@pytest.mark.parametrize("m", [3, 500])
def test_smoothness_is_the_best_where_all_states_are_visited_alike(weights, features, m):
    """By all states, not by the one that stands for them."""
    public = Problem(features, weights, ReturnGrid.for_range(0.0, 2.0), 2)
    for statistic in (WeightedMeans(public, m), RidgeFit(public, m, usual_ridge(public, m, PRIVACY))):
        counts = public.usual_counts(m)
        variance = statistic.usual_variance(public.usual_count(m))
        ratios = [
            statistic.sensitivity_of_counts(counts, beta) ** 2 / variance(beta) for beta in (1e-4, 0.01, 0.1, 2.0)
        ]
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)


@pytest.mark.parametrize("features", [None, np.diag([1.0, 2.0, 1.0, 0.5])])
def test_the_bound_of_weighted_means_is_attained(features):
    """All visit all states, and one has all its returns moved from one end of the range to the other."""
    statistic = WeightedMeans(problem(features), 3)
    visited, values = np.ones((3, 4), bool), np.zeros((3, 4))
    ends = [values + np.array([[0.0], [0.0], [end]]) for end in (-0.5, 1.0)]
    low, high = (summed(walks(visited, end), statistic.problem) for end in ends)
    moved = np.linalg.norm(statistic.center(high) - statistic.center(low))
    assert moved == pytest.approx(statistic.sensitivity_of_counts(low.counts, LOCAL), rel=1e-9)


def test_the_bound_of_the_ridge_fit_is_attained_for_a_large_ridge():
    """Then the fit is Phi' rho times the sums, over lambda/2."""
    statistic = RidgeFit(problem(), 3, 1e9)
    visited, values = np.ones((3, 4), bool), np.zeros((3, 4))
    ends = [values + np.array([[0.0], [0.0], [end]]) for end in (-0.5, 1.0)]
    low, high = (summed(walks(visited, end), statistic.problem) for end in ends)
    moved = np.linalg.norm(statistic.center(high) - statistic.center(low))
    assert moved == pytest.approx(statistic.sensitivity_of_counts(low.counts, LOCAL), rel=1e-4)


@pytest.mark.parametrize("m", [1, 7, 10**6])
def test_statistics_are_within_tau_of_exact_ones(m):
    """Against the solution in 60 digits of the same integers."""
    rng = np.random.default_rng(m)
    limits = (-0.3, 0.7)
    grid = ReturnGrid.for_range(*limits)
    counts = rng.integers(0, m + 1, 4)
    units = np.array([int(count * share * grid.largest) for count, share in zip(counts, rng.random(4), strict=True)])
    sums = summed(walks(np.ones((1, 4), bool), np.zeros((1, 4))), problem(limits=limits))
    sums = type(sums)(counts, units, m, grid, 1.0, 4)
    exact = [Fraction(int(u)) / Fraction(2) ** grid.exponent for u in units]
    with mp.workdps(60):
        for features in (None, FEATURES):
            public = problem(features, limits=limits)
            means = WeightedMeans(public, m)
            expected = [
                mp.mpf(grid.low) + _mp(total / int(v)) if v else mp.mpf(means.default)
                for total, v in zip(exact, counts, strict=True)
            ]
            rows = np.diag(means._rows) if features is None else means._rows
            assert _distance(means.center(sums), mp.matrix(rows.tolist()) * mp.matrix(expected)) <= means.tau
            ridge = 0.4
            fit = RidgeFit(public, m, ridge)
            phi = mp.matrix(np.eye(4).tolist() if features is None else features.tolist())
            weighted = mp.diag([mp.mpf(w) for w in WEIGHTS])
            system = phi.T * weighted * mp.diag([int(v) for v in counts]) * phi
            system += mp.mpf(ridge) / 2 * mp.eye(fit.dim)
            solution = mp.lu_solve(system, phi.T * weighted * mp.matrix([_mp(total) for total in exact]))
            assert _distance(fit.center(sums), solution) <= fit.tau
            # Of no account against the noise.
            assert fit.tau < 1e-6 * fit.sensitivity_of_counts(counts, 0.01)


def _mp(fraction):
    return mp.mpf(fraction.numerator) / fraction.denominator


def _distance(computed, exact):
    return float(mp.norm(mp.matrix(computed.tolist()) - exact))


@pytest.mark.parametrize("features", [None, FEATURES, np.random.default_rng(0).normal(size=(4, 3))])
@pytest.mark.parametrize("printed", [False, True])
def test_the_norm_of_the_rows_is_no_longer_than_claimed(features, printed):
    statistic = WeightedMeans(problem(features), 1, printed)
    rows = np.diag(statistic._rows) if features is None else statistic._rows
    with mp.workdps(40):
        scaled = mp.matrix(rows.tolist()) * mp.diag([1 / mp.sqrt(mp.mpf(w)) for w in WEIGHTS])
        longest = max(mp.svd_r(scaled, compute_uv=False))
        assert longest <= statistic._norm <= longest * (1 + 1e-12)


def test_orthonormal_coordinates_give_the_least_squares_coefficients():
    public = problem(FEATURES)
    sums = summed(walks(np.eye(4, dtype=bool), np.arange(16.0).reshape(4, 4) / 16.0), public)
    root = np.sqrt(WEIGHTS)
    expected = np.linalg.lstsq(root[:, None] * FEATURES, root * sums.means(0.0))[0]
    for printed in (False, True):
        statistic = WeightedMeans(public, 4, printed)
        assert statistic.coefficients(statistic.center(sums)) == pytest.approx(expected, rel=1e-12)
    # Features that depend on each other: the shortest coefficients.
    double = problem(np.hstack([FEATURES, FEATURES]))
    statistic = WeightedMeans(double, 4)
    assert statistic.dim == 2
    assert statistic.coefficients(statistic.center(sums)) == pytest.approx(np.tile(expected / 2, 2), rel=1e-12)


def test_the_usual_ridge_grows_like_the_root_of_the_number_of_trajectories():
    public = problem(FEATURES)
    ridges = [usual_ridge(public, m, PRIVACY) for m in (100, 400, 1600)]
    assert ridges[1:] == pytest.approx([2 * ridges[0], 4 * ridges[0]])
    assert usual_ridge(public, 1, PRIVACY, printed=True) > public.floor


def test_refused():
    with pytest.raises(ValueError, match=r"ridge must be above \|\|Phi\|\|\^2 max\(weights\).*got 0.1; .*'sound'"):
        RidgeFit(problem(FEATURES), 10, 0.1, printed=True)
    with pytest.raises(ValueError, match="too small for 1000000000000 trajectories to be solved for in double"):
        RidgeFit(problem(FEATURES), 10**12, 1e-6)
    with pytest.raises(ValueError, match="weights must be positive for the printed algorithm"):
        WeightedMeans(problem(weights=[1.0, 0.0, 1.0, 1.0]), 1, printed=True)
    with pytest.raises(ValueError, match="full column rank, weighted, for the printed algorithm"):
        WeightedMeans(problem(np.ones((4, 2))), 1, printed=True)
    with pytest.raises(ValueError, match="features must not be 0 in all states that have a weight"):
        WeightedMeans(problem(np.eye(4)[:, :1], weights=[0.0, 1.0, 1.0, 1.0]), 1)


@given(st.floats(-1e90, 1e90), st.floats(1e-9, 2.0), st.booleans())
@example(-1.0, 1.0, False)
@example(-20.0, 1.0, False)
@example(-1.0 / 3.0, 1.0, True)
@example(-3.0, 0.3, False)
@example(-1.0 / 3.0, 1e-9, False)
@example(-0.7, 1e-9, False)
@example(-0.1, 3e-9, False)
@example(-5.3, 7e-9, False)
@example(0.0, 1.0, True)
@example(7.0, 0.5, False)
def test_the_default_of_unvisited_states_is_no_further_than_a_return_can_be(low, share, printed):
    """In exact arithmetic: from the default to any return on the grid it is at most the width that is calibrated."""
    high = low + max(share * abs(low), 1e-90)
    if not high - low >= 1e-100:
        return
    grid = ReturnGrid.for_range(low, high)
    default = WeightedMeans(Problem(None, np.ones(2), grid, None), 1, printed).default
    least, greatest = Fraction(grid.low), Fraction(grid.low) + Fraction(grid.width)
    assert least <= Fraction(default) <= greatest
    # 0 where it is within, else the nearest end, to the last bit.
    if least <= 0 <= greatest:
        assert default == 0.0
    elif default < 0.0:
        assert Fraction(math.nextafter(default, math.inf)) > greatest
    else:
        assert default == grid.low


@pytest.mark.parametrize("kind", ["lsw", "lsl"])
def test_one_who_goes_and_one_who_comes_may_visit_twice_as_many_states(kind):
    """A trajectory of one state, with the largest return, is replaced by one of another: both states move."""
    public = problem(weights=np.full(4, 0.25), limits=(0.0, 1.0), horizon=1)
    statistic = WeightedMeans(public, 3) if kind == "lsw" else RidgeFit(public, 3, 1e9)
    visited = np.eye(4, dtype=bool)[[2, 2, 0, 1]]
    one, other = (summed(walks(visited[kept], np.ones((3, 4))), public) for kept in ([0, 1, 2], [0, 1, 3]))
    moved = np.linalg.norm(statistic.center(one) - statistic.center(other))
    for counts in (one.counts, other.counts):
        assert 0.7 < moved / (statistic.sensitivity_of_counts(counts, LOCAL) + 2.0 * statistic.tau) <= 1.0


@pytest.mark.parametrize("features", [None, FEATURES])
def test_tau_of_weighted_means_covers_every_rounding(features):
    """In exact arithmetic: that of each mean, of its product with an entry of a row, and of their sum."""
    statistic = WeightedMeans(problem(features), 1)
    grid, n_terms = statistic.problem.grid, 1 if features is None else 4
    rows = statistic._rows[:, None] if features is None else statistic._rows
    norm = math.sqrt(math.fsum(math.fsum(abs(row)) ** 2 for row in rows))
    reach = max(abs(grid.low), abs(grid.high))
    a_mean = (n_terms + 1) * Fraction(1, 2**53) * Fraction(reach) + Fraction(grid.mean_error)
    assert Fraction(statistic.tau) >= a_mean * Fraction(norm)


@pytest.mark.parametrize("ridge", [1e-3, 0.3, 0.5, 20.0])
def test_tau_of_the_ridge_fit_grows_as_the_ridge_falls(ridge):
    """Eight units of rounding of the longest solution, sqrt(visits / (2 ridge)) times the width of returns."""
    public = problem(None)
    statistic = RidgeFit(public, 9, ridge)
    visits = 9 * sum(sorted(map(Fraction, public.weights.tolist()))[::-1][: public.most_visited])
    squared = 64 * Fraction(1, 2**106) * Fraction(public.grid.width) ** 2 * visits / (2 * Fraction(ridge))
    assert squared <= Fraction(statistic.tau) ** 2 <= squared * Fraction(101, 100)


@pytest.mark.parametrize("m", [1, 10**6])
def test_the_usual_ridge_of_the_printed_noise_is_above_what_that_needs(m):
    public, privacy = problem(), Privacy(1e3, 0.5)
    beyond = usual_ridge(public, m, privacy)
    assert usual_ridge(public, m, privacy, printed=True) == pytest.approx(public.floor + beyond)
