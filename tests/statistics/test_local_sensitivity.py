"""Smooth sensitivity: every k in 40 digits, never below it; smoothness; cost that does not grow with counts."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.trajectories import largest_over_all_k, largest_over_all_k_lsl

from dpfast.kernels import first_visits
from dpfast.privacy import smooth_gaussian
from dpfast.statistics import (
    SMOOTH_SENSITIVITY_ERROR,
    smooth_sensitivity,
    smooth_sensitivity_lsl,
)

LSL = {"n_trajectories": 60, "feature_norm": 1.3, "ridge": 4.0}

counts_and_weights = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([0.0, 1e-9, 0.02, 0.1, 0.1, 1.0, 30.0])), min_size=1, max_size=12
).filter(lambda pairs: any(w > 0.0 for _, w in pairs))
betas = st.sampled_from([1e-6, 1e-3, 0.02, 0.05, 0.1, 0.3, 1.0, 4.0, 50.0])


def assert_is_just_above(found, exact):
    assert exact <= found <= exact * (1 + SMOOTH_SENSITIVITY_ERROR)


@settings(max_examples=150)
@given(pairs=counts_and_weights, beta=betas, top=st.sampled_from([None, 1, 2, 5, 100]))
def test_lsw_equals_every_k_in_many_digits(pairs, beta, top):
    counts, weights = map(list, zip(*pairs, strict=True))
    assert_is_just_above(
        smooth_sensitivity(counts, weights, beta, top=top), largest_over_all_k(counts, weights, beta, top)
    )


@settings(max_examples=150)
@given(
    pairs=counts_and_weights,
    beta=betas,
    top=st.sampled_from([None, 1, 3, 100]),
    slope=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_lsl_equals_every_k_in_many_digits(pairs, beta, top, slope):
    counts, weights = map(list, zip(*[p for p in pairs if p[1] > 0.0], strict=True))
    exact = largest_over_all_k_lsl(counts, weights, beta, 60, slope, 4.0, top)
    options = LSL | {"feature_norm": slope}
    assert_is_just_above(smooth_sensitivity_lsl(counts, weights, beta, **options, top=top), exact)


@pytest.mark.parametrize("beta", [1e-4, 1e-2, 0.5])
def test_large_counts_of_both_kinds(beta):
    """Counts to 3,000 over 200 states: hundreds of candidates, every one looked at by the twin."""
    rng = np.random.default_rng(0)
    counts, weights = rng.integers(0, 3000, 200), rng.random(200)
    every_k = [math.exp(-k * beta) * math.fsum(weights / np.maximum(counts - k, 1.0) ** 2) for k in range(counts.max())]
    assert smooth_sensitivity(counts, weights, beta) == pytest.approx(max(every_k), rel=1e-13)
    tops = [
        math.exp(-k * beta) * math.fsum(np.sort(weights / np.maximum(counts - k, 1.0) ** 2)[-20:])
        for k in range(counts.max())
    ]
    assert smooth_sensitivity(counts, weights, beta, top=20) == pytest.approx(max(tops), rel=1e-13)


def neighbours(rng, counts, most):
    """Counts after one trajectory is replaced: two sets of at most `most` states lose and gain one."""
    changed = counts.copy()
    for sign in (-1, 1):
        visited = rng.permutation(len(counts))[: rng.integers(0, most + 1)]
        changed[visited] += sign
    return np.clip(changed, 0, None)


@pytest.mark.parametrize("seed", range(20))
def test_neighbours_differ_by_beta_at_most(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        n, horizon = int(rng.integers(2, 30)), int(rng.integers(1, 4))
        counts = rng.integers(0, 40, n) * rng.integers(0, 2, n)
        changed = neighbours(rng, counts, horizon)
        weights, beta = rng.random(n) + 1e-3, 10.0 ** rng.uniform(-3, 1)
        m = 1 + int(max(counts.max(), changed.max()))
        options = LSL | {"n_trajectories": m}
        for function in (
            lambda v, weights=weights, beta=beta: smooth_sensitivity(v, weights, beta),
            lambda v, weights=weights, beta=beta, top=2 * horizon: smooth_sensitivity(v, weights, beta, top=top),
            lambda v, weights=weights, beta=beta, options=options: smooth_sensitivity_lsl(v, weights, beta, **options),
        ):
            moved = abs(math.log(function(counts)) - math.log(function(changed)))
            assert moved <= beta + SMOOTH_SENSITIVITY_ERROR + 1e-14


def test_smoothness_is_attained():
    """Equal counts, and decay slow enough for the maximum to lie beyond k = 0: one change each moves it by beta."""
    counts, weights = np.full(5, 30), np.full(5, 0.2)
    moved = math.log(smooth_sensitivity(counts - 1, weights, 0.05)) - math.log(
        smooth_sensitivity(counts, weights, 0.05)
    )
    assert moved == pytest.approx(0.05, rel=1e-9)


def test_states_without_weight_and_the_order_of_states_do_not_matter():
    rng = np.random.default_rng(1)
    counts, weights = rng.integers(0, 50, 30), rng.random(30)
    expected = smooth_sensitivity(counts, weights, 0.1)
    order = rng.permutation(30)
    assert smooth_sensitivity(counts[order], weights[order], 0.1) == pytest.approx(expected, rel=1e-13)
    assert smooth_sensitivity([*counts, 0, 1], [*weights, 0.0, 0.0], 0.1) == expected


def test_equal_weights_leave_only_the_smallest_counts_for_the_top():
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 500, 300)
    exact = largest_over_all_k(np.sort(counts)[:7].tolist(), [0.25] * 7, 0.03)
    assert_is_just_above(smooth_sensitivity(counts, np.full(300, 0.25), 0.03, top=7), exact)


@pytest.mark.parametrize("beta", [1e-5, 1e-3, 0.1])
def test_work_does_not_grow_with_counts(beta, monkeypatch):
    rng = np.random.default_rng(3)
    calls = []
    counted = first_visits.sum_inverse_squares
    monkeypatch.setattr(first_visits, "sum_inverse_squares", lambda *a: calls.append(None) or counted(*a))
    weights = np.full(2000, 1.0 / 2000)
    for scale in (10**4, 10**7, 10**12):
        calls.clear()
        smooth_sensitivity(rng.integers(0, scale, 2000), weights, beta)
        assert len(calls) < 1000


@pytest.mark.parametrize("n", [1, 7, 8, 9, 511, 512, 513, 5000, 100_000])
def test_the_kernel_errs_less_than_it_says(n):
    rng = np.random.default_rng(n)
    weights, counts = rng.random(n) * 10.0 ** rng.integers(-8, 8, n), rng.integers(0, 1000, n).astype(float)
    terms = weights.astype(np.longdouble) / np.maximum(counts - 3, 1).astype(np.longdouble) ** 2
    exact = math.fsum(terms.astype(float)) + math.fsum((terms - terms.astype(float)).astype(float))
    assert abs(first_visits.sum_inverse_squares(weights, counts, 3.0) - exact) <= 2.0**-46 * exact


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        (([1, 2], [0.5, 0.5], 0.0), {}, ValueError, "beta must be positive"),
        (([1, 2], [0.5, 0.5], math.inf), {}, ValueError, "beta must be positive"),
        (([1.0, 2.0], [0.5, 0.5], 1.0), {}, TypeError, "counts must be a 1-D array of integers"),
        (([], [], 1.0), {}, TypeError, "counts must be a 1-D array of integers"),
        (([1, -2], [0.5, 0.5], 1.0), {}, ValueError, "counts must lie between"),
        (([1, 2], [0.5], 1.0), {}, ValueError, "different lengths: 2 and 1"),
        (([1, 2], [0.0, 0.0], 1.0), {}, ValueError, "not all be 0"),
        (([1, 2], [0.5, -0.5], 1.0), {}, ValueError, "weights must be 0 or lie"),
        (([1, 2], [0.5, math.nan], 1.0), {}, ValueError, "weights must be 0 or lie"),
        (([1, 2], ["a", "b"], 1.0), {}, TypeError, "weights must be a 1-D array of real"),
        (([1, 2], [0.5, 0.5], 1.0), {"top": 0}, ValueError, "top must be at least 1"),
    ],
)
def test_refused(arguments, options, kind, message):
    with pytest.raises(kind, match=message):
        smooth_sensitivity(*arguments, **options)
    with pytest.raises(kind, match=message):
        smooth_sensitivity_lsl(*arguments, **LSL | options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_trajectories": 7}, "counts must not be above n_trajectories"),
        ({"n_trajectories": 0}, "n_trajectories must be at least 1"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"feature_norm": -1.0}, "feature_norm must be positive"),
        ({"feature_norm": 1e120}, "feature_norm must lie between"),
    ],
)
def test_lsl_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        smooth_sensitivity_lsl([8, 1], [0.5, 0.5], 1.0, **LSL | changes)


def test_counts_up_to_the_largest_are_taken_and_no_others():
    assert smooth_sensitivity([2**53, 0], [1.0, 1.0], 0.1) > 0.0
    for count in (2**53 + 1, -1):
        with pytest.raises(ValueError, match="between 0 and 2"):
            smooth_sensitivity([count, 1], [1.0, 1.0], 0.1)


def test_weights_up_to_either_limit_are_taken_and_no_others():
    for weight, beyond in ((1e-100, 0.0), (1e100, math.inf)):
        for bounded in (smooth_sensitivity, partial(smooth_sensitivity_lsl, **LSL)):
            bounded([8, 1], [weight, weight], 1.0)
            with pytest.raises(ValueError, match="weights must be 0 or lie between"):
                bounded([8, 1], [weight, math.nextafter(weight, beyond)], 1.0)
    for name in ("feature_norm", "ridge"):
        for limit in (1e-100, 1e100):
            smooth_sensitivity_lsl([8, 1], [0.5, 0.5], 1.0, **LSL | {name: limit})


def test_calibrations_allow_for_the_error_of_both_neighbours():
    beta = 0.01
    calibrated = smooth_gaussian(1.0, 1e-6, 3, beta)
    assert 0.0 < 2.0 * SMOOTH_SENSITIVITY_ERROR <= beta - calibrated.smoothness() <= 1e-9
