"""What one person moves in an objective: no further than the noise is for, and as far as that where it is exact."""

import numpy as np
import pytest
from neighbours import climb, row_in_ball

from dpfast.releases.objective_bounds import ObjectiveBounds
from dpfast.solvers import (
    Box,
    CappedLogisticLoss,
    L1Ball,
    L2Ball,
    LogisticLoss,
    PoissonLoss,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)

LOSSES = [
    SquaredLoss(),
    SmoothedHuber(0.5),
    SmoothedQuantile(0.8, 0.3),
    PoissonLoss(0.7),
    LogisticLoss(),
    CappedLogisticLoss(0.3),
    SmoothedHinge(0.3),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.kind)
def test_nobody_moves_gradient_and_curvature_further(loss):
    """Hill-climbed in three dimensions, the parameters at will within the ball; tight under add/remove."""
    region = L2Ball(1.5)
    bounds = ObjectiveBounds(loss, 3, 2.0, 0.7 if not loss.is_classification else 1.0, region, None, 1)

    def record(parameters):
        y = np.tanh(parameters[3]) * bounds.outcome_bound
        if loss.is_of_counts:
            y = abs(y)
        return row_in_ball(parameters[:3], 2.0), np.sign(y) if loss.is_classification else y

    def gradient(parameters):
        x, y = record(parameters)
        return float(np.linalg.norm(x) * abs(loss.derivative(x @ region.project(parameters[4:7]), y)))

    def curvature(parameters):
        x, y = record(parameters)
        return float(x @ x * loss.second_derivative(x @ region.project(parameters[4:7]), y))

    rng = np.random.default_rng(0)
    for change, bound in ((gradient, bounds.gradient), (curvature, bounds.curvature)):
        largest, _ = climb(change, 7, rng, restarts=6, screened=60)
        assert largest <= bound
        assert largest > 0.97 * bound


def test_a_replaced_record_moves_the_gradient_within_a_plane():
    """Twice the bound of one, reached by rows of opposite sign; never left, whatever the parameters."""
    rng = np.random.default_rng(1)
    loss, bounds = LogisticLoss(), ObjectiveBounds(LogisticLoss(), 4, 1.0, 1.0, L2Ball(2.0), None, 1)
    rows = [row_in_ball(rng.normal(size=4), 1.0) for _ in range(2)]
    plane = np.linalg.qr(np.column_stack(rows))[0]
    for theta in L2Ball(2.0).project(rng.normal(size=(50, 4)) * 3.0):
        h = rows[0] * loss.derivative(rows[0] @ theta, 1.0) - rows[1] * loss.derivative(rows[1] @ theta, -1.0)
        assert np.linalg.norm(h - plane @ (plane.T @ h)) < 1e-14
        assert np.linalg.norm(h) <= 2.0 * bounds.gradient


def squared_bounds(size=3, length=1.0, outcome=1.0, constraint=None):
    return ObjectiveBounds(SquaredLoss(), size, length, outcome, constraint or Box(1.0), None, 9)


def moved(bounds, parameters):
    """The change of the gradient between two records, for parameters anywhere in the set."""
    size = bounds.n_features
    theta = bounds.constraint.project(3.0 * parameters[:size])

    def gradient(record):
        x = row_in_ball(record[:size], bounds.row_bound)
        return x * (x @ theta - np.clip(record[size], -bounds.outcome_bound, bounds.outcome_bound))

    records = parameters[size:].reshape(2, size + 1)
    return float(np.linalg.norm(gradient(records[0]) - gradient(records[1])))


@pytest.mark.parametrize("constraint", [Box(1.0), L2Ball(0.7), L1Ball(0.7), Box(low=-0.5, high=2.0)])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("length", "outcome"), [(1.0, 0.1), (1.0, 2.0), (1.7, 1.7)])
def test_a_replaced_record_of_squared_loss_moves_the_gradient_as_far_as_the_noise_is_for(
    length, outcome, size, constraint
):
    """Random pairs and the best that climbing finds: never beyond, and over a ball of two dimensions or more as far."""
    bounds = squared_bounds(size, length, outcome, constraint)
    rng = np.random.default_rng(2)
    n = 3 * size + 2
    assert max(moved(bounds, one) for one in rng.normal(size=(300, n)) * 3.0) <= bounds.gradient_change
    largest, _ = climb(lambda one: moved(bounds, one), n, rng, restarts=10, screened=100)
    assert largest <= bounds.gradient_change
    assert bounds.gradient_change < 2.0 * bounds.gradient
    # Corners are found less closely.
    assert size == 1 or not isinstance(constraint, L2Ball) or largest > 0.99 * bounds.gradient_change


def test_predictions_that_reach_less_far_than_rows_and_parameters_do_not_bound_the_move():
    """Entries within 1 over the L1 ball: |x'theta| <= 1, and B (1 + 2Y) would be too little; B (R + 2Y) is more."""
    x, z, theta = np.ones(5), np.array([1.0, -1.0, -1.0, -1.0, -1.0]), np.eye(5)[0]
    moved = np.linalg.norm(x * (x @ theta + 1.0) - z * (z @ theta + 1.0))
    bounds = squared_bounds(5, np.sqrt(5.0), 1.0, L1Ball(1.0))
    assert bounds.row_bound * 3.0 < moved == pytest.approx(8.0)
    assert moved <= bounds.gradient_change < bounds.row_bound * (bounds.prediction + 2.0) < 2.0 * bounds.gradient
    # By the corners of an L1 ball and of a box, rows of any direction move it as far as over an L2 ball.
    for region, corner, across in (
        (L1Ball(1.0), theta, np.eye(5)[1]),
        (Box(5.0**-0.5), np.full(5, 5.0**-0.5), np.array([1.0, -1.0, 0.0, 0.0, 0.0]) / np.sqrt(2.0)),
    ):
        around, reach = squared_bounds(5, np.sqrt(5.0), 1.0, region), np.sqrt(5.0)
        cosine = 2.0 * reach / (1.0 + np.hypot(1.0, np.sqrt(8.0) * reach))
        ends = [np.sqrt(5.0) * (cosine * corner + s * np.sqrt(1.0 - cosine**2) * across) for s in (1, -1)]
        gradients = [end * (end @ corner + 1.0) for end in ends]
        assert np.linalg.norm(gradients[0] - gradients[1]) == pytest.approx(around.gradient_change, rel=1e-9)


@pytest.mark.parametrize(("rho", "outcome"), [(0.1, 1.0), (1.0, 1.0), (5.0, 0.5)])
def test_the_move_of_squared_loss_keeps_to_a_disk(rho, outcome):
    """About what the outcomes say, of the radius by which the parameters turn it: climbed, neither is ever larger."""
    bounds = squared_bounds(3, 1.3, outcome, L2Ball(rho))
    longest, turning = bounds.gradient_changes["disk"]

    def parts(parameters):
        (x, z), y = (row_in_ball(parameters[i : i + 3], 1.3) for i in (0, 3)), np.tanh(parameters[6:])
        centre = outcome * np.linalg.norm(y[1] * z - y[0] * x)
        return centre, rho * np.linalg.norm(np.outer(x, x) - np.outer(z, z), 2)

    rng = np.random.default_rng(4)
    farthest, _ = climb(lambda one: sum(parts(one)), 8, rng, restarts=4, screened=60)
    widest, _ = climb(lambda one: parts(one)[1], 8, rng, restarts=2, screened=20)
    assert 0.98 * longest < farthest <= longest
    assert 0.98 * turning < widest <= turning


@pytest.mark.parametrize("ratio", [1e-6, 0.3, 1.0, 4.0, 1e6])
def test_the_worst_records_of_squared_loss_reach_the_bound(ratio):
    """Rows at their bound, symmetric about the parameters, outcomes at their end: B (R sin 2d + 2 Y sin d)."""
    reach, outcome = 1.0, ratio
    bounds = squared_bounds(2, 1.0, outcome, L2Ball(reach))
    half = np.linspace(0.0, np.pi / 2.0, 200_001)
    best = half[np.argmax(reach * np.sin(2.0 * half) + 2.0 * outcome * np.sin(half))]
    theta = np.array([reach, 0.0])
    ends = [x * (x @ theta + outcome) for x in (np.array([np.cos(d), np.sin(d)]) for d in (best, -best))]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(bounds.gradient_change, rel=1e-8)
    assert np.linalg.norm(ends[0] - ends[1]) <= bounds.gradient_change * (1.0 + 1e-15)


def test_other_losses_and_more_people_are_bounded_as_before():
    """Twice a record's gradient where one replaces another, once where one comes: along a line."""
    for loss in LOSSES[1:]:
        replaced = ObjectiveBounds(loss, 3, 1.0, 1.0, L2Ball(1.0), None, 9)
        assert replaced.gradient_change == 2.0 * replaced.gradient
        pair = "two segments" if loss.slope_sign else "two lines"
        assert replaced.gradient_changes == {pair: 2.0 * replaced.gradient}
        one_more = ObjectiveBounds(loss, 3, 1.0, 1.0, L2Ball(1.0))
        assert one_more.gradient_changes == {"segment" if loss.slope_sign else "line": one_more.gradient}
    one_more = ObjectiveBounds(SquaredLoss(), 3, 1.0, 1.0, L2Ball(1.0))
    assert one_more.gradient_changes == {"line": one_more.gradient}
    single = squared_bounds(1)
    disk = (single.gradient_change, pytest.approx(1.0))
    assert single.gradient_changes == {"disk": disk, "line": single.gradient_change}


def test_curvature_fades_only_where_the_steepest_slope_may_be_met():
    """Within a set the bound on slopes is less than 1, and a record there may have curvature all the same."""
    fades = {
        loss: [ObjectiveBounds(loss, 3, 1.0, 1.0, region, n_rows=9).curvature_fades for region in (None, L2Ball(1.0))]
        for loss in (LogisticLoss(), LogisticLoss(2.0), SmoothedHinge(0.5), SmoothedHuber(1.0))
    }
    assert list(fades.values()) == [[True, False], [True, False], [False, False], [False, False]]
    bounds = ObjectiveBounds(LogisticLoss(2.0), 3, 2.0, 1.0, n_rows=9)
    assert bounds.curvature == pytest.approx(1.0)
    assert bounds.free_convexity(1.0) == pytest.approx(8.0 * bounds.curvature)
    alone = ObjectiveBounds(LogisticLoss(2.0), 3, 2.0, 1.0)
    assert alone.free_convexity(1.0) == pytest.approx(4.0 * bounds.curvature)


def test_a_box_of_other_features_is_refused():
    with pytest.raises(ValueError, match="2"):
        squared_bounds(size=3, constraint=Box(low=[-1.0, -1.0], high=[1.0, 2.0]))


def test_without_a_constraint_the_minimiser_of_the_steepest_table_is_within_reach():
    """All outcomes are far above all predictions: the slopes of all rows add up to the ridge's."""
    bounds = ObjectiveBounds(SmoothedHuber(0.5), 1, 1.0, 100.0, None, None, 50)
    theta = 8.0
    slope = -50 * SmoothedHuber(0.5).derivative(np.array([theta]), np.array([100.0]))[0]
    convexity = slope / theta
    assert theta <= bounds.reach(convexity, 0.0) <= theta * (1.0 + 1e-9)
    assert bounds.reach(convexity, 1.0) >= theta + 10.0 / convexity


class Distance:
    """5 times the distance from a point away from the origin, whose proximal map is said to err in proportion."""

    point = np.array([3.0, -4.0])

    def value(self, x):
        return 5.0 * float(np.linalg.norm(x - self.point))

    def prox(self, v, step):
        away = self.point - v
        return v + away * min(1.0, 5.0 * step / np.linalg.norm(away))

    def prox_error(self, norm, step):
        return 1e-3 * step


@pytest.mark.parametrize(("convexity", "farthest"), [(0.5, 5.0), (2.0, 2.5)])
def test_the_minimiser_of_a_penalty_is_within_reach_of_rows_without_influence(convexity, farthest):
    reach = ObjectiveBounds(LogisticLoss(), 2, 1e-9, 1.0, None, Distance(), 1).reach(convexity, 0.0)
    # Closed form: towards the point by 5 / convexity, and no further than there.
    assert farthest + 1e-3 / convexity <= reach <= farthest + 1e-3 / convexity + 1e-6
