"""How tables become losses: rows and outcomes within the bounds that noise is for, moments in twice the precision."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpfast import io
from dpfast.releases.objective_bounds import TableLoss, loss_of_moments
from dpfast.solvers import LogisticLoss, SmoothedHuber, SquaredLoss
from dpfast.statistics import gram


def test_moments_are_kept_to_twice_the_precision():
    rng = np.random.default_rng(5)
    rows, y = rng.uniform(-0.5, 0.5, (5000, 3)), rng.uniform(-1, 1, 5000)
    exact = gram(rows, y, bound_x=1.0, bound_y=1.0, sums=True)
    for constant in (0.0, 0.5):
        loss = loss_of_moments(exact, TableLoss(SquaredLoss(), 1.0, 1.0, constant).sizes(3), constant)
        x = rng.normal(size=(2, loss.n)) * np.array([[1.0], [2.0**-54]])
        unit = Fraction(2) ** exact.exact_xx.exponent
        moments = [[Fraction(exact.exact_xx.integer((i, j))) * unit for j in range(3)] for i in range(3)]
        cross_unit, sum_unit = (Fraction(2) ** one.exponent for one in (exact.exact_xy, exact.exact_x_sum))
        cross = [Fraction(exact.exact_xy.integer((i, 0))) * cross_unit for i in range(3)]
        if constant:
            sums = [Fraction(exact.exact_x_sum.integer(i)) * sum_unit for i in range(3)]
            a = Fraction(constant)
            moments = [[*row, a * total] for row, total in zip(moments, sums, strict=True)]
            moments.append([*(a * total for total in sums), a * a * 5000])
            cross.append(a * Fraction(exact.exact_y_sum.integer(0)) * Fraction(2) ** exact.exact_y_sum.exponent)
        point = [Fraction(high) + Fraction(low) for high, low in x.T.tolist()]
        gradient = loss.gradient(x)
        error = [
            Fraction(gradient[0, i]) + Fraction(gradient[1, i]) + cross[i]
            - sum(m * t for m, t in zip(moments[i], point, strict=True))
            for i in range(loss.n)
        ]  # fmt: skip
        norm = float(np.linalg.norm(x[0]))
        assert math.sqrt(sum(float(e) ** 2 for e in error)) <= loss.gradient_error(norm)
        assert loss.gradient_error(norm) < 1e-20
        assert np.linalg.norm(gradient[0]) <= loss.gradient_bound(norm)


def test_rows_beyond_their_bound_are_scaled_onto_it():
    X = np.array([[3.0, 4.0], [0.0, 0.5], [1e200, 1e200], [0.6, 0.8]])
    rows, y, _ = TableLoss(SmoothedHuber(), 1.0, 1.0, 0.5).bounded(X, np.array([[2.0], [-0.5], [-7.0], [0.0]]))
    np.testing.assert_allclose(rows, [[0.6, 0.8, 0.5], [0, 0.5, 0.5], [0.5**0.5, 0.5**0.5, 0.5], [0.6, 0.8, 0.5]])
    assert np.linalg.norm(rows[:, :2], axis=1).max() <= 1.0 + 2.0**-30
    assert rows[3, :2].tolist() == X[3].tolist()
    assert y[:, 0].tolist() == [1.0, -0.5, -1.0, 0.0]


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_no_row_is_longer_than_the_bound_that_noise_is_for(constant):
    """In exact arithmetic, for rows within a few roundings of their bound and far beyond it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3))
    near = 1.0 + rng.uniform(-1.0, 1.0, (2000, 1)) * 10.0 ** rng.uniform(-16.0, 2.0, (2000, 1))
    rows *= 0.7 * near / np.linalg.norm(rows, axis=1, keepdims=True)
    summed = TableLoss(SmoothedHuber(), 0.7, 1.0, constant)
    bounded, _, _ = summed.bounded(rows, np.zeros((2000, 1)))
    limit = Fraction(summed.sizes(3)["row_bound"]) ** 2
    lengths = [sum(Fraction(entry) ** 2 for entry in row) for row in bounded.tolist()]
    assert max(lengths) <= limit
    # A bound without slack would not hold: some are beyond it.
    assert max(lengths) > Fraction(0.7) ** 2 + Fraction(constant) ** 2


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_no_row_or_outcome_of_moments_is_beyond_the_bounds_that_noise_is_for(constant):
    """One row's exact moments give it back, on its grid, where it may have been rounded upwards."""
    rng, beyond = np.random.default_rng(1), 0
    for _ in range(200):
        bound_x, bound_y = rng.uniform(0.5, 2.0, 2)
        x = rng.normal(size=(1, 2))
        one = gram(10.0 * x, [10.0], bound_x=bound_x, bound_y=bound_y, sums=True)
        bounds = TableLoss(SquaredLoss(), bound_x, bound_y, constant).sizes(2)
        row, outcome = (
            [total.integer(i) * Fraction(2) ** total.exponent for i in range(total.shape[0])]
            for total in (one.exact_x_sum, one.exact_y_sum)
        )
        length = sum(entry**2 for entry in row) + Fraction(constant) ** 2
        assert length <= Fraction(bounds["row_bound"]) ** 2
        assert abs(outcome[0]) <= Fraction(bounds["outcome_bound"])
        beyond += abs(outcome[0]) > Fraction(bound_y)
    assert beyond > 20


def test_the_moments_of_some_columns_are_those_of_a_table_of_them():
    rng = np.random.default_rng(2)
    rows, y = rng.uniform(-0.5, 0.5, (50, 4)), rng.uniform(-1, 1, 50)
    sizes = TableLoss(SquaredLoss(), 1.0).sizes(4)
    whole, part = (gram(x, y, bound_x=1.0, bound_y=1.0, sums=True) for x in (rows, rows[:, [3, 1]]))
    point = rng.normal(size=(2, 3))
    some = loss_of_moments(whole, sizes, 0.5, columns=np.array([3, 1]))
    assert np.array_equal(some.gradient(point), loss_of_moments(part, sizes, 0.5).gradient(point))


def test_every_column_of_outcomes_has_a_loss():
    rng = np.random.default_rng(3)
    X, signs = rng.uniform(-0.5, 0.5, (30, 2)), np.sign(rng.normal(size=(30, 3)))
    summed = TableLoss(LogisticLoss(), 1.0)
    losses, n_rows = summed.of_table(io.open_table([X[:7], X[7:]], signs))
    assert (len(losses), n_rows) == (3, 30)
    for column, loss in zip(signs.T, losses, strict=True):
        (alone,), _ = summed.of_table(io.open_table(X, column))
        point = rng.normal(size=(2, 2))
        assert np.array_equal(loss.gradient(point), alone.gradient(point))
