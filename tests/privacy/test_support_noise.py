"""How much one record moves scores and votes: never more than the calibrations say, and as much in the worst case."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpfast.privacy import (
    Privacy,
    gaussian_delta,
    loss_range,
    score_rate,
    vote_noise,
)
from dpfast.solvers import SupportScores

SIZE, FEATURES = 2, 4


def scores(x, y, size=SIZE):
    computed = SupportScores(x.T @ x, x.T @ y, size, ridge=1e-9, tolerance=1e-11)
    return np.concatenate(list(computed.blocks()))


def log_probabilities(x, y, rate, size=SIZE):
    return special.log_softmax(-rate * scores(x, y, size))


def table(rng, n, length, bound_y):
    """Rows with norms up to `length` on their two largest entries, outcomes up to the bound."""
    x = rng.uniform(-1.0, 1.0, size=(n, FEATURES))
    top = np.sort(np.abs(x), axis=1)[:, -SIZE:]
    x *= length * rng.uniform(0.5, 1.0, size=(n, 1)) / np.linalg.norm(top, axis=1, keepdims=True)
    return x, bound_y * rng.choice([-1.0, 1.0, 0.3], size=n)


def neighbours(rng, x, y, length, bound_y, adjacency):
    if adjacency == "add_remove":
        return x[1:], y[1:]
    record = table(rng, 1, length, bound_y)
    return np.concatenate([record[0], x[1:]]), np.concatenate([record[1], y[1:]])


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("length", "bound_y"), [(1.0, 3.0), (1.0, 0.5), (2.0, 2.0)])
def test_the_law_changes_by_no_more_than_epsilon(length, bound_y, adjacency):
    """Random neighbours, and neighbours climbed to from them."""
    rng = np.random.default_rng(0)
    rate = score_rate(1.0, loss_range(bound_y, math.sqrt(SIZE) * length), 1e-9, adjacency=adjacency)

    def loss(x, y, record):
        changed = (
            (x[1:], y[1:]) if record is None else (np.concatenate([record[0], x[1:]]), np.append(record[1], y[1:]))
        )
        return np.abs(log_probabilities(x, y, rate) - log_probabilities(*changed, rate)).max()

    largest = 0.0
    for _ in range(25):
        x, y = table(rng, int(rng.integers(2, 6)), length, bound_y)
        record = None if adjacency == "add_remove" else table(rng, 1, length, bound_y)
        found = loss(x, y, record)
        for _ in range(40):
            other, outcome = table(rng, len(x), length, bound_y)
            kept = rng.random(len(x)) < 0.6
            climbed = np.where(kept[:, None], x, other), np.where(kept, y, outcome)
            if (better := loss(*climbed, record)) > found:
                (x, y), found = climbed, better
        largest = max(largest, found)
    assert 0.1 < largest <= 1.0


def held(length, bound_y):
    """Two features whose coefficients many records hold where a record's losses are least and largest."""
    many = 1e4
    return np.array([[many, 0.0], [0.0, many]]), np.array([min(1.0, bound_y / length) * many, -many])


def with_record(table, record, outcome):
    return np.concatenate([table[0], [record]]), np.append(table[1], outcome)


@pytest.mark.parametrize(("length", "bound_y"), [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)])
def test_the_range_is_attained(length, bound_y):
    table = held(length, bound_y)
    more = with_record(table, [length, length], bound_y)
    change = np.diff(scores(*more, size=1) - scores(*table, size=1))[0]
    # The record moves the coefficients that it wants to move by 1e-8 of its size.
    assert change == pytest.approx(loss_range(bound_y, length), rel=1e-6)


def test_the_range_is_attained_twice_by_a_replacement():
    one, other = (with_record(held(1.0, 1.0), [sign, sign], 1.0) for sign in (1.0, -1.0))
    change = np.diff(scores(*one, size=1) - scores(*other, size=1))[0]
    assert change == pytest.approx(2.0 * loss_range(1.0, 1.0), rel=1e-6)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_higher_rate_is_caught(adjacency):
    """At the tight case the law changes by all of epsilon, so by more at a rate that is a tenth too high."""
    rate = score_rate(1.0, loss_range(1.0, 1.0), 1e-9, adjacency=adjacency)
    before = with_record(held(1.0, 1.0), [-1.0, -1.0], 1.0) if adjacency == "replace_one" else held(1.0, 1.0)
    after = with_record(held(1.0, 1.0), [1.0, 1.0], 1.0)
    # A record that both tables share makes the second support improbable, by the same factor.
    improbable = np.array([0.0, 40.0])
    losses = []
    for factor in (1.0, 1.1):
        logs = [special.log_softmax(-factor * rate * scores(*one, size=1) - improbable) for one in (before, after)]
        losses.append(np.abs(logs[0] - logs[1]).max())
    assert 0.999 < losses[0] <= 1.0 < losses[1]


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_calibrations_are_rounded_towards_privacy(epsilon, bound_y, reach):
    own = loss_range(bound_y, reach)
    y, t = Fraction(bound_y), Fraction(reach)
    exact = 2 * y * t if t <= y else (y + t) ** 2 / 2
    assert exact <= Fraction(own) <= exact * (1 + Fraction(1, 2**52))
    for adjacency, records in (("replace_one", 2), ("add_remove", 1)):
        rate = score_rate(epsilon, own, 0.25, adjacency=adjacency)
        assert Fraction(rate) * (records * Fraction(own) + 1) <= Fraction(epsilon)
        assert Fraction(rate) * (records * Fraction(own) + 1) >= Fraction(epsilon) * (1 - Fraction(1, 2**51))


@pytest.mark.parametrize(
    ("size", "features", "mechanism"), [(1, 50, "Laplace"), (3, 60, "Laplace"), (20, 60, "Gaussian")]
)
def test_votes_take_the_lesser_noise(size, features, mechanism):
    noise = vote_noise(Privacy(1.0, 1e-6), size, features)
    assert noise.mechanism == mechanism
    if mechanism == "Laplace":
        assert noise.scale == pytest.approx(2.0 * size, rel=1e-11)
        assert noise.privacy == Privacy(1.0)
        assert 2.0 * size / noise.scale <= 1.0
    else:
        assert noise.scale < math.sqrt(2.0) * 2.0 * size
        assert gaussian_delta(noise.scale, 1.0, math.sqrt(2.0 * size)) <= 1e-6
        assert noise.mu == pytest.approx(math.sqrt(2.0 * size) / noise.scale)


def test_supports_of_nearly_all_features_differ_in_few():
    assert vote_noise(Privacy(1.0), 5, 6).scale == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: loss_range(0.0, 1.0), ValueError, "bound_y"),
        (lambda: loss_range(1.0, math.inf), ValueError, "reach"),
        (lambda: score_rate(math.inf, 1.0, adjacency="add_remove"), ValueError, "epsilon"),
        (lambda: score_rate(1.0, 1.0, -1.0, adjacency="add_remove"), ValueError, "error"),
        (lambda: score_rate(1.0, 1.0, adjacency="both"), ValueError, "adjacency"),
        (lambda: vote_noise(Privacy(1.0), 0, 5), ValueError, "size"),
        (lambda: vote_noise(Privacy(math.inf), 1, 5), ValueError, "epsilon"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
