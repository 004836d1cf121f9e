import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom

from dpfast.datasets.decision_processes import markov_trajectories
from dpfast.papers import Bound
from dpfast.papers.policy_evaluation import (
    Visits,
    expected_inverse_count,
    expected_inverse_square_count,
    expected_smooth_inverse_square,
    largest_decayed_count,
    largest_decayed_inverse_square,
    lsl_excess_risk,
    lsl_excess_risk_of_counts,
    lsw_excess_risk,
    lsw_excess_risk_simple,
    printed_smooth_gaussian,
)
from dpfast.privacy import SmoothGaussian, UnsoundCalibrationWarning, smooth_gaussian_delta

CHAIN = 0.5 * np.eye(5) + 0.4 * np.eye(5, k=1)  # a step of 10% ends the trajectory
START = np.array([0.7, 0.0, 0.3, 0.0, 0.0])


def lsw_psi(counts, weights, beta):
    """The largest k with any effect is the largest count."""
    k = np.arange(counts.max() + 1)[:, None]
    return np.max(np.exp(-beta * k[:, 0]) * np.sum(weights / np.maximum(counts - k, 1) ** 2, axis=1))


def lsl_psi(counts, rho, phi, ridge, beta, m):
    norm = np.linalg.norm(phi, 2)
    k = np.arange(m + 1)[:, None]
    inside = np.sqrt(np.sum(rho * np.minimum(counts + k, m), axis=1))
    phi_k = (norm * rho.max() / math.sqrt(2 * ridge) * inside + np.linalg.norm(rho)) ** 2
    return np.max(np.exp(-beta * k[:, 0]) * phi_k)


def chain_visits(n, seed):
    data = markov_trajectories(CHAIN, n, start=START, horizon=1000, seed=seed)
    return Visits.observed(data.states, data.offsets, 5)


def sample_counts(m, n, rng):
    """Counts of n data sets of m trajectories of the chain, from the law of the visited sets."""
    counts = np.empty((n, 5))
    for row in range(n):
        visited = np.zeros((m, 5), bool)
        state = rng.choice(5, m, p=START)
        alive = np.ones(m, bool)
        while alive.any():
            visited[alive, state[alive]] = True
            u = rng.random(m)
            state, alive = np.where(u < 0.5, state, state + 1), alive & (u < 0.9)
            alive &= state < 5
            state = np.minimum(state, 4)
        counts[row] = visited.sum(axis=0)
    return counts


@pytest.mark.parametrize("a", [1.0, 2.0, 7.0, 300.0])
@pytest.mark.parametrize("b", [1e-4, 0.005, 0.3, 1.0, 1.9, 3.0])
def test_lemma_10_is_the_maximum(a, b):
    x = np.linspace(0.0, a - 1.0, 100_001)
    values = np.exp(-b * x) / (a - x) ** 2
    assert largest_decayed_inverse_square(a, b).corrected == pytest.approx(values.max(), rel=1e-12)


def test_lemma_10_as_printed_is_the_minimum():
    a, b = 100.0, 0.1
    x = np.linspace(0.0, a - 1.0, 1_000_001)
    printed = largest_decayed_inverse_square(a, b).printed
    assert printed == pytest.approx(np.min(np.exp(-b * x) / (a - x) ** 2), rel=1e-9)
    assert printed == pytest.approx(math.e**2 / 4 * b**2 * math.exp(-a * b), rel=1e-12)
    assert largest_decayed_inverse_square(10.0, 0.1) == Bound(0.01, math.exp(-0.9))
    assert largest_decayed_inverse_square(2.0, 3.0) == Bound(math.exp(-5.0), 0.25)


@pytest.mark.parametrize("a", [0.0, 1.0, 30.0, 100.0])
@pytest.mark.parametrize("b", [1e-4, 0.004, 0.005, 0.02, 0.4, 3.0, 60.0])
def test_lemma_17_is_the_maximum(a, b):
    m = 100.0
    x = np.linspace(0.0, m - a, 1_000_001)
    assert largest_decayed_count(a, b, m).corrected == pytest.approx(np.max(np.exp(-2 * b * x) * (a + x)), rel=1e-5)


def test_lemma_17_as_printed():
    assert largest_decayed_count(10.0, 1.0, 100.0).printed == 10.0
    assert largest_decayed_count(9.0, 6.0, 10.0).printed == pytest.approx(10.0 * math.exp(-12.0))
    assert largest_decayed_count(9.0, 4.6, 10.0).printed == pytest.approx(math.exp(81.8) / 9.2)
    assert largest_decayed_count(90.0, 46.0, 100.0).printed == math.inf


@pytest.mark.parametrize("m", [1, 2, 30, 500])
@pytest.mark.parametrize("p", [1e-3, 0.2, 0.9, 1.0])
def test_lemma_11_against_the_binomial_law(m, p):
    k = np.arange(m + 1)
    law = binom.pmf(k, m, p)
    assert expected_inverse_count(m, p) == pytest.approx(np.sum(law / (k + 1)), rel=1e-10)
    exact = np.sum(law[1:] / k[1:] ** 2)
    assert exact * (1 - 1e-9) <= expected_inverse_square_count(m, p) <= 6 * exact * (1 + 1e-9)


@pytest.mark.parametrize("m", [1, 5, 100, 2000])
@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("beta", [1e-3, 0.05, 0.7, 2.0])
def test_lemma_12_holds_as_corrected(m, p, beta):
    k = np.arange(m + 1)
    largest = np.maximum(1.0 / np.maximum(k, 1) ** 2, np.exp(-beta * np.maximum(k - 1.0, 0.0)))
    exact = np.sum(binom.pmf(k, m, p) * largest)
    bound = expected_smooth_inverse_square(m, p, beta)
    assert exact * (1 - 1e-9) <= bound.corrected <= 1.0


def test_lemma_12_fails_as_printed():
    """100 sure visits at beta = 0.01: the maximum is exp(-0.99) = 0.37, the printed bound 0.0007."""
    bound = expected_smooth_inverse_square(100, 1.0, 0.01)
    assert bound.printed < 0.001 < math.exp(-0.99) < bound.corrected < 0.38


def test_lemma_18_against_simulation():
    """False-reject rate below 1e-6: 5.5 standard errors of 65 means."""
    m, n = 6, 4000
    visits = chain_visits(400_000, seed=1)
    counts = sample_counts(m, n, np.random.default_rng(2))
    moments = visits.moments(m)
    found = [
        (counts, moments.mean),
        (counts == 0, moments.unvisited),
        (counts[:, :, None] * counts[:, None, :], moments.products),
        (counts[:, :, None] * (counts[:, None, :] == 0), moments.visited_without),
    ]
    for draws, expected in found:
        error = draws.std(axis=0) / math.sqrt(n) + 1e-3 * m
        assert (np.abs(draws.mean(axis=0) - expected) <= 5.5 * error).all()


def test_visits_of_the_chain_are_exact_where_they_can_be_worked_out():
    """A state leads to the next with probability 0.4/0.5; 5.5 standard errors."""
    visits = chain_visits(100_000, seed=3)
    exact = [0.7, 0.7 * 0.8, 0.3 + 0.7 * 0.64, 0.8 * (0.3 + 0.448), 0.64 * (0.3 + 0.448)]
    assert np.abs(visits.single - exact).max() <= 5.5 * 0.5 / math.sqrt(100_000)
    assert visits.pairs[0, 4] == pytest.approx(0.7 * 0.8**4, abs=5.5 * 0.5 / math.sqrt(100_000))


def test_visits_observed_count_a_trajectory_once():
    visits = Visits.observed([2, 2, 0, 1], np.array([0, 2, 4]), 3)
    assert np.array_equal(visits.pairs, [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.5]])


@pytest.mark.parametrize("orthonormal", [False, True])
def test_theorem_13_holds_as_corrected_and_fails_as_printed(orthonormal):
    """Mean over 300 simulated data sets; the bounds differ from it by far more than its error."""
    rng = np.random.default_rng(5)
    phi, weights = rng.normal(size=(5, 2)), rng.uniform(0.5, 1.0, 5)
    visits = chain_visits(20_000, seed=6)
    root = np.sqrt(weights)[:, None] * phi
    factor = 2 if orthonormal else np.linalg.norm(np.linalg.pinv(root), 2) ** 2 * np.linalg.norm(root) ** 2
    for m, beta, printed_holds in [(100, 0.005, False), (20, 0.2, False), (400, 0.5, True)]:
        psi = [lsw_psi(counts, weights, beta) for counts in sample_counts(m, 300, rng)]
        risk = (3.0 * 2.0) ** 2 * factor * np.mean(psi)
        arguments = {"m": m, "alpha": 3.0, "beta": beta, "return_width": 2.0, "orthonormal": orthonormal}
        bound = lsw_excess_risk(visits.single, weights, phi, **arguments)
        simple = lsw_excess_risk_simple(visits.single, weights, phi, **arguments)
        assert risk <= bound.corrected <= simple.corrected
        assert (risk <= bound.printed) == printed_holds
        assert bound.printed <= simple.printed


def test_theorem_13_counts_states_that_nobody_visits():
    bound = lsw_excess_risk([0.0, 1.0], [0.3, 0.7], np.eye(2), m=10**6, alpha=1.0, beta=0.5, return_width=1.0)
    assert bound.corrected == pytest.approx((0.3 + 0.7) / 0.3 * 0.3, rel=1e-6)
    assert bound.printed == pytest.approx(bound.corrected, rel=1e-9)


def test_lemma_16_against_noise_drawn():
    """The objective is quadratic: its mean over noise, to 5.5 standard errors."""
    rng = np.random.default_rng(7)
    phi, rho, m, ridge = rng.normal(size=(5, 3)), rng.uniform(0.1, 1.0, 5), 40, 6.0
    counts = sample_counts(m, 1, rng)[0]
    noise = 0.3 * rng.standard_normal((40_000, 3))
    excess = (rho * counts / m * (noise @ phi.T) ** 2).sum(axis=1) + ridge / (2 * m) * (noise**2).sum(axis=1)
    expected = lsl_excess_risk_of_counts(counts, rho, phi, m=m, ridge=ridge, variance=0.09)
    assert abs(excess.mean() - expected) <= 5.5 * excess.std() / math.sqrt(len(excess))


def test_theorem_19_holds_as_corrected():
    rng = np.random.default_rng(8)
    phi, rho = rng.normal(size=(5, 2)), rng.uniform(0.5, 1.0, 5)
    visits = chain_visits(50_000, seed=9)
    norm = np.linalg.norm(phi, 2)
    for m, beta, ridge in [(100, 0.005, 5.0), (20, 0.2, 50.0), (200, 0.4, 500.0)]:
        unit = 2 * 3.0 * 2.0 * norm / ridge
        risks = [
            lsl_excess_risk_of_counts(
                c, rho, phi, m=m, ridge=ridge, variance=unit**2 * lsl_psi(c, rho, phi, ridge, beta, m)
            )
            for c in sample_counts(m, 200, rng)
        ]
        bound = lsl_excess_risk(visits, rho, phi, m=m, ridge=ridge, alpha=3.0, beta=beta, return_width=2.0)
        assert np.mean(risks) <= bound.corrected <= 50 * np.mean(risks)


@pytest.mark.slow
def test_theorem_19_as_printed_against_its_own_proof():
    """The line of the proof before expectations are taken, averaged over data sets; printed terms are exact there."""
    rng = np.random.default_rng(10)
    phi, rho = rng.normal(size=(5, 2)), rng.uniform(0.5, 1.0, 5)
    visits = chain_visits(400_000, seed=11)
    m, beta, ridge = 3, 0.1, 60.0
    norm, squares = np.linalg.norm(phi, 2), np.sum(phi**2, axis=1)
    c = 2 * 3.0 * 2.0 * norm / (ridge - norm**2 * rho.max())
    counts = sample_counts(m, 20_000, rng)
    first = ridge * 2 / (2 * m) + counts @ (rho * squares) / m
    shown = counts + (counts == 0) / (2 * math.e * beta)
    second = 2 * rho @ rho + norm**2 * rho.max() ** 2 / ridge * (shown @ rho)
    draws = c**2 * first * second
    bound = lsl_excess_risk(visits, rho, phi, m=m, ridge=ridge, alpha=3.0, beta=beta, return_width=2.0)
    # 5.5 standard errors, and what the visit probabilities' own errors may add.
    assert abs(draws.mean() - bound.printed) <= 5.5 * draws.std() / math.sqrt(len(draws)) + 5e-3 * bound.printed


def test_the_bound_on_psi_behind_theorem_19_fails_as_printed():
    """Line (42): many trajectories, a state seen once; the smooth count is 1/(e beta), the printed bound 1."""
    beta, m = 0.01, 1000
    k = np.arange(m)
    largest = np.max(np.exp(-beta * k) * np.minimum(1 + k, m))
    assert largest > 30.0
    assert largest <= 1 + 1 / (math.e * beta)


def test_printed_bound_needs_the_printed_floor_on_the_ridge():
    visits = Visits(np.ones((2, 2)))
    options = {"m": 10, "alpha": 1.0, "beta": 0.1, "return_width": 1.0}
    assert lsl_excess_risk(visits, [1.0, 1.0], np.eye(2), ridge=1.0, **options).printed == math.inf
    assert lsl_excess_risk(visits, [1.0, 1.0], np.eye(2), ridge=1.1, **options).printed < math.inf
    assert lsl_excess_risk(visits, [1.0, 1.0], np.eye(2), ridge=1.0, **options).corrected < math.inf


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Visits(np.ones((2, 3))), ValueError, "square"),
        (lambda: Visits(np.full((2, 2), 1.5)), ValueError, "probabilities"),
        (lambda: Visits([[0.5, 0.1], [0.2, 0.5]]), ValueError, "symmetric"),
        (lambda: Visits.observed([0.5], [0, 1], 2), TypeError, "states must be integers"),
        (lambda: Visits.observed([0, 1], [0, 0, 2], 2), ValueError, "offsets must increase"),
        (lambda: Visits.observed([0, 2], [0, 2], 2), ValueError, "none of the 2 declared"),
        (lambda: largest_decayed_inverse_square(0.5, 1.0), ValueError, "a must be at least 1"),
        (lambda: largest_decayed_count(5.0, 1.0, 4.0), ValueError, "a must be at most m"),
        (lambda: expected_inverse_count(3, 0.0), ValueError, r"p must lie in \(0, 1\]"),
        (lambda: expected_smooth_inverse_square(3, 1.1, 0.1), ValueError, r"p must lie in \[0, 1\]"),
        (lambda: expected_smooth_inverse_square(3, 1.0, 2.5), ValueError, "beta must be at most 2"),
        (
            lambda: lsw_excess_risk_simple([1.0], [1.0], [[1.0]], m=3, alpha=1.0, beta=0.6, return_width=1.0),
            ValueError,
            "beta must be at most 0.5",
        ),
        (
            lambda: lsw_excess_risk([1.0, 1.0], [1.0, 1.0], np.ones((2, 2)), m=3, alpha=1.0, beta=1, return_width=1.0),
            ValueError,
            "full column rank",
        ),
        (
            lambda: lsw_excess_risk([1.0], [1.0, 1.0], np.eye(2), m=3, alpha=1.0, beta=1, return_width=1.0),
            ValueError,
            "visits must be of shape",
        ),
        (
            lambda: lsl_excess_risk_of_counts([4.0], [1.0], [[1.0]], m=3, ridge=1.0, variance=1.0),
            ValueError,
            "counts must be at most m",
        ),
        (
            lambda: lsl_excess_risk([1.0], [1.0], [[1.0]], m=3, ridge=1.0, alpha=1.0, beta=0.1, return_width=1.0),
            TypeError,
            "visits must be Visits",
        ),
    ],
)
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("source", ["paper", "icml"])
def test_printed_constants_hold_over_their_range(source):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epsilon in (0.01, 0.1, 1.0, 5.0):
            for delta in (0.1, 1e-6, 1e-12):
                for dim in (1, 10, 10_000):
                    printed = printed_smooth_gaussian(epsilon, delta, dim, source)
                    assert smooth_gaussian_delta(printed.alpha, printed.beta, epsilon, dim) <= delta


def test_printed_constants_are_the_printed_ones():
    assert printed_smooth_gaussian(math.inf, 1e-6, 3) == SmoothGaussian(0.0, math.inf)
    assert printed_smooth_gaussian(1.0, 1e-6, 10).alpha == pytest.approx(82.7, abs=0.05)
    paper = printed_smooth_gaussian(0.5, 1e-5, 9)
    root = math.sqrt(2 * math.log(4e5))
    assert paper.alpha == pytest.approx(15 * root / 0.5, rel=1e-14)
    assert paper.beta == pytest.approx(2 * math.log(2) * 0.5 / (5 * (3 + root) ** 2), rel=1e-14)
    icml = printed_smooth_gaussian(0.5, 1e-5, 9, "icml")
    assert icml.alpha == pytest.approx(5 * math.sqrt(2 * math.log(2e5)) / 0.5, rel=1e-14)
    assert icml.beta == pytest.approx(0.5 / (4 * (9 + math.log(2e5))), rel=1e-14)


def test_printed_constants_warn_where_they_fail():
    """Beyond the lemma's epsilon <= 5 the conference's alpha falls like 1/epsilon and its beta grows with epsilon."""
    with pytest.warns(UnsoundCalibrationWarning, match=r"give delta = .* where 1e-06 is claimed"):
        printed = printed_smooth_gaussian(300.0, 1e-6, 2, "icml")
    in_many = printed_smooth_gaussian(300.0, 1e-6, 40, "icml")
    assert smooth_gaussian_delta(printed.alpha, printed.beta, 300.0, 2) == pytest.approx(0.135, abs=5e-4)
    assert smooth_gaussian_delta(in_many.alpha, in_many.beta, 300.0, 40) < 1e-6
    with pytest.raises(ValueError, match="epsilon must be at most 5"):
        printed_smooth_gaussian(5.1, 1e-6, 2)
    with pytest.raises(ValueError, match="source"):
        printed_smooth_gaussian(1.0, 1e-6, 2, "journal")
