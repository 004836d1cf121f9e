"""Records on a support are within the bounds that both stages are calibrated for, and convexity costs least."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfast import Privacy, statistics
from dpfast.releases.objective_bounds import ObjectivePerturbation
from dpfast.releases.pursuit import UNCLIPPED
from dpfast.sparse_regression.mechanism import (
    R2,
    SIGNAL,
    SPREAD,
    TYPICAL_COEFFICIENT,
    PursuitFit,
    bounds_on_support,
    error_of_coefficients,
    top_entries,
    whole_row_bound,
)


@pytest.mark.parametrize("size", [1, 3, 12])
def test_top_entries_are_within_their_bound(size):
    rng = np.random.default_rng(4)
    top = top_entries(size)
    rows = rng.normal(size=(200, 12)) * 10.0 ** rng.uniform(-3, 150, size=(200, 1))
    rows[:20] = 1.0
    mapped = top(rows)
    norms = np.linalg.norm(np.sort(np.abs(mapped), axis=1)[:, -size:], axis=1)
    assert norms.max() <= math.sqrt(size) * (1.0 + 1e-13)
    assert np.linalg.norm(mapped, axis=1).max() <= whole_row_bound(size, 12)
    within = np.linalg.norm(np.sort(np.abs(rows), axis=1)[:, -size:], axis=1) <= math.sqrt(size)
    assert np.array_equal(mapped[within], rows[within])
    assert within[:20].all()
    np.testing.assert_allclose(norms[~within], math.sqrt(size), rtol=1e-13)


@pytest.mark.parametrize("bound_x", [None, 0.7])
def test_records_rounded_to_their_grid_are_within_the_bounds(bound_x):
    """Rounding lengthens half of what is clipped: the bounds are on what is summed, not on what was declared."""
    rng = np.random.default_rng(5)
    for bound_y in rng.uniform(0.1, 10.0, 40).tolist():
        bounds = bounds_on_support(2, 2, bound_x, bound_y, None)
        x = np.array([rng.normal(size=2)])
        x *= (math.sqrt(2.0) if bound_x is None else bound_x) / np.linalg.norm(x)
        limit = whole_row_bound(2, 2) if bound_x is None else bound_x
        sums = statistics.gram(x, np.array([[bound_y]]), bound_x=limit, bound_y=bound_y, sums=True)
        assert sums.exact_y_sum.to_float64()[0] <= bounds.outcome_bound
        assert math.sqrt(np.trace(sums.xx)) <= bounds.row_bound


def test_rows_that_are_not_finite_stay_refused():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="X"):
            statistics.gram(np.array([[1.0, value, 0.0]]), np.ones(1), bound_x=2.0, bound_y=1.0, map_x=top_entries(2))


@pytest.mark.parametrize("size", [1, 3, 40])
def test_record_bounds_hold_for_rows_as_they_are_summed(size):
    """One row's exact moments give back the row, on its grid: any support of it is within the declared length."""
    rng = np.random.default_rng(5)
    p = 40
    top, whole = top_entries(size), whole_row_bound(size, p)
    mapped_bounds, ball_bounds = (bounds_on_support(size, p, bound_x, 2.0, 9) for bound_x in (None, 1.5))
    rows = np.concatenate(
        [np.ones((1, p)), rng.choice([-1.0, 1.0], size=(20, p)) * (1 - 1e-9), rng.normal(size=(20, p))]
    )
    for row in rows:
        for bounds, options in ((mapped_bounds, {"bound_x": whole, "map_x": top}), (ball_bounds, {"bound_x": 1.5})):
            one = statistics.gram(row[None], np.array([9.0]), bound_y=2.0, **options)
            squares = np.sort(np.diagonal(one.xx))[-size:]
            assert math.fsum(squares) <= bounds.row_bound**2
            assert math.fsum(np.sqrt(squares)) <= bounds.prediction
            assert abs(one.xy[:, 0]).max() <= bounds.outcome_bound * math.sqrt(squares.max()) * (1 + 1e-15)
    assert mapped_bounds.row_bound < math.sqrt(size) * 1.00001


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_where_the_number_of_people_is_private_no_other_convexity_costs_less(epsilon, delta):
    """The noise and the pull on coefficients of 1/2 together, at the scale that each convexity leaves epsilon for."""
    bounds = bounds_on_support(3, 3, None, 3.0, None)
    cost = error_of_coefficients(bounds)
    privacy = Privacy(epsilon, delta, "add_remove")

    def costs(ridge):
        own = ObjectivePerturbation.calibrate(privacy, bounds, ridge, cost=cost).noise_scales
        return cost(own.coordinate_scale(3), own.strong_convexity), own.strong_convexity

    least, chosen = costs("auto")
    for factor in (0.7, 0.9, 1.1, 1.5):
        other, used = costs(factor * chosen)
        assert used != chosen
        assert other >= least * (1.0 - 1e-6)
    assert error_of_coefficients(bounds_on_support(3, 3, None, 3.0, 100)) is None


def test_a_private_number_of_rows_costs_next_to_nothing_in_finishing_noise():
    for epsilon in (0.1, 4.0):
        chosen = ObjectivePerturbation.calibrate(
            Privacy(epsilon, 0.0, "add_remove"), bounds_on_support(3, 3, None, 3.0, None)
        )
        assert chosen.scales["coef"] < 1e-6


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("outcome", [0.3, 30.0])
def test_a_pursuit_expects_residuals_within_the_bound_on_outcomes(outcome, delta):
    """Of outcomes that predictions explain by half, or of outcomes at the bound; pure noise costs more."""
    n, size = 10**9, 2
    mechanism = PursuitFit(Privacy(1.0, delta), size, (12, 1), 1.0, math.inf, outcome, n, 0.5)
    found = mechanism.errors(n, 12)
    prediction = math.sqrt(SPREAD) * mechanism.radius(size) * TYPICAL_COEFFICIENT
    assert (found.prediction, found.bound) == (prediction, outcome)
    residual = math.sqrt(1.0 - R2) * min(prediction / math.sqrt(R2), outcome)
    lost = mechanism.fit.expected_loss(n, 0.0, worse=1.0 if delta > 0.0 else 350.0)
    assert found.moved == pytest.approx(residual * math.sqrt(lost))
    assert 0.0 < found.moved < 0.1 * prediction
    # The clip that leaves out few normal residuals is as large.
    few = mechanism.errors(100, 12)
    odds = UNCLIPPED * 100 * SPREAD * mechanism.radius(size) ** 2 / size * SIGNAL
    odds /= mechanism.pick(math.sqrt(2.0) * residual * stats.norm.ppf(0.5 + UNCLIPPED / 2.0)).scales["feature"]
    assert few.missed == pytest.approx(1.0 / (1.0 + math.exp(odds) / 10.0))
