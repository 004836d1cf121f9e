"""The paper's bounds of sparse regression: their formulas, their order, and laws that they must hold for."""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpfast.papers import sparse_regression as theory

SIZES = {"n": 50_000, "n_features": 60, "n_nonzero": 3}
TAIL = {"delta": 1e-6, "strong_convexity": 0.2, "regularisation": 6.0, "norm": 1.5, "gamma": 0.05}


@pytest.mark.parametrize("n_blocks", [30, 60, 120])
def test_votes_that_agree_are_recovered_as_often_as_theorem_8_says(n_blocks):
    p, s, epsilon, repeats = 20, 2, 1.0, 20_000
    rng = np.random.default_rng(n_blocks)
    counts = rng.laplace(scale=2.0 * s / epsilon, size=(repeats, p)) + n_blocks * (np.arange(p) < s)
    missed = np.sum(counts[:, :s].min(axis=1) < counts[:, s:].max(axis=1))
    bound = theory.recovery_failure(n_features=p, n_nonzero=s, epsilon=epsilon, n_blocks=n_blocks)
    assert bound.corrected <= bound.printed
    # More misses than this have a probability below 1e-6 if the bound holds.
    assert missed <= stats.binom.isf(1e-6, repeats, bound.corrected)
    probability = theory.recovery_probability(n_features=p, n_nonzero=s, epsilon=epsilon, n_blocks=n_blocks)
    assert probability == pytest.approx(1.0 - bound.printed)
    if bound.printed < 1.0:
        assert bound.printed == pytest.approx(p * math.exp(-epsilon * n_blocks / (4 * s)))
        assert bound.corrected == pytest.approx(bound.printed / 2.0)


@pytest.mark.parametrize("gamma", [0.3, 0.01])
def test_the_exponential_mechanism_keeps_to_theorems_6_and_34(gamma):
    """Exact laws over scores of all supports, with risk that is worst for a bound: one best, many at one distance."""
    n, p, s, epsilon, alpha = 1000, 8, 3, 1.0, 18.0
    arguments = {"n": n, "n_features": p, "n_nonzero": s, "epsilon": epsilon, "loss_bound": alpha}
    tail = theory.selection_risk_tail(**arguments, gamma=gamma)
    mean = theory.selection_risk(**arguments).corrected
    assert tail.corrected <= tail.printed
    for distance in np.geomspace(1e-3, 3.0, 40):
        risks = np.append(0.0, np.full(math.comb(p, s) - 1, distance))
        law = special.softmax(-epsilon / (2.0 * alpha) * n * risks)
        assert law[risks >= tail.corrected].sum() <= gamma
        assert law @ risks <= mean


def test_tails_are_sums_of_their_parts():
    bound = theory.exponential_risk_tail(**SIZES, epsilon=1.0, gradient=10.4, loss_bound=18.0, **TAIL)
    choice = theory.selection_risk_tail(**SIZES, epsilon=0.5, loss_bound=18.0, gamma=0.025)
    assert bound.printed - bound.corrected == pytest.approx(choice.printed - choice.corrected)
    fit = 16 * 3 * 10.4**2 * (8 * math.log(2e6) + 2) * math.log(40) / (50_000 * (6.0 + 50_000 * 0.2)) + 3e-5 * 2.25 * 2
    assert bound.printed == pytest.approx(4 * 18 * 3 * math.log(2 * 60 / 0.05) / 50_000 + fit)


def test_theorem_44_is_theorem_35s_fit_at_the_papers_gradient():
    """Of 35's second part with log(1/gamma) for log(2/gamma), only Psi for n Psi differs."""
    voted = theory.voted_risk_tail(n=50_000, n_nonzero=3, epsilon=1.0, **TAIL)
    twice = theory.exponential_risk_tail(
        **SIZES, epsilon=1.0, gradient=2.0 * 3**1.5, loss_bound=1e-12, **(TAIL | {"gamma": 2.0 * TAIL["gamma"]})
    )
    assert voted.corrected == pytest.approx(twice.corrected)
    assert voted.corrected < voted.printed


def test_rates_fall_with_rows_and_grow_with_sizes():
    at = {"epsilon": 1.0, "delta": 1e-6, "strong_convexity": 0.2}
    assert theory.exponential_risk_rate(**SIZES, **at) > theory.exponential_risk_rate(**(SIZES | {"n": 10**6}), **at)
    assert theory.exponential_risk_rate(**SIZES, **at) < theory.exponential_risk_rate(
        **(SIZES | {"n_features": 999}), **at
    )
    assert theory.voted_risk_rate(n=10**4, n_nonzero=3, **at) > theory.voted_risk_rate(n=10**5, n_nonzero=3, **at)
    wanted = 9 / 1e4 * (9 * math.log(1e6) / (1e4 * 0.2) + 1.0)
    assert theory.voted_risk_rate(n=10**4, n_nonzero=3, **at) == pytest.approx(wanted)
    rows = {"n_features": 60, "noise_std": 0.1, "strong_convexity": 0.5, "smallest": 0.5}
    few, many = (theory.rows_for_recovery(n_nonzero=s, **rows) for s in (3, 6))
    assert many == pytest.approx(4.0 * few)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.selection_risk(n=1, n_features=2, n_nonzero=3, epsilon=1.0, loss_bound=1.0), "n_nonzero"),
        (lambda: theory.selection_risk(n=0, n_features=2, n_nonzero=1, epsilon=1.0, loss_bound=1.0), "n must"),
        (lambda: theory.selection_risk(**SIZES, epsilon=0.0, loss_bound=1.0), "epsilon"),
        (lambda: theory.selection_risk_tail(**SIZES, epsilon=1.0, loss_bound=1.0, gamma=1.0), "gamma"),
        (lambda: theory.recovery_failure(n_features=5, n_nonzero=2, epsilon=1.0, n_blocks=0), "n_blocks"),
        (lambda: theory.voted_risk_rate(n=9, n_nonzero=2, epsilon=1.0, delta=0.0, strong_convexity=1.0), "delta"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
