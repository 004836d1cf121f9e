"""Losses: derivatives, two continuous ones, bounds that hold and are reached."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfast.solvers import (
    CallableLoss,
    CappedLogisticLoss,
    GeneralisedLinear,
    LogisticLoss,
    LossBounds,
    PoissonLoss,
    SmoothedHinge,
    SmoothedHuber,
    SmoothedQuantile,
    SquaredLoss,
)

LOSSES = [
    SquaredLoss(),
    LogisticLoss(),
    LogisticLoss(2.5),
    CappedLogisticLoss(),
    CappedLogisticLoss(0.9),
    SmoothedHinge(0.5),
    SmoothedHinge(2.0),
    SmoothedHuber(1.0),
    SmoothedHuber(2.0, 0.3),
    SmoothedQuantile(0.5, 0.5),
    SmoothedQuantile(0.9, 1.0),
    PoissonLoss(0.5),
    PoissonLoss(2.0),
]


def outcome(loss, y):
    if loss.is_classification:
        # Of weight 1, or less.
        return np.where(y < 0, -1.0, 1.0) * np.where((np.abs(y) > 0.125) & (np.abs(y) < 0.5), np.abs(y), 1.0)
    return abs(y) if loss.is_of_counts else y


def ends(loss):
    """Least and largest outcome within the bound 1."""
    return (0.0, 1.0) if loss.is_of_counts else (-1.0, 1.0)


def width_of_bend(loss):
    """D of a capped logistic loss, from p at the start of its smoothing."""
    slope = 1.0 / (1.0 + np.exp(loss._start))
    return 2.0 * (loss.cap - slope) / (slope * (1.0 - slope))


def bends(loss):
    """Where formulas meet, for y = 1."""
    if isinstance(loss, SmoothedHinge):
        return [1.0 - loss.width, 1.0 + loss.width]
    if isinstance(loss, CappedLogisticLoss):
        return [loss._start, loss._start - width_of_bend(loss)]
    if isinstance(loss, SmoothedQuantile):
        return [1.0 - loss.width, 1.0 + loss.width]
    if isinstance(loss, PoissonLoss):
        return [loss._start, loss._start + 2.0 / 3.0]
    if isinstance(loss, SmoothedHuber):
        return [1.0 + s * (loss.threshold + t * loss.width) for s in (1, -1) for t in (1, -1)]
    return [0.0]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@given(z=st.floats(-20, 20), y=st.floats(-3, 3))
def test_derivatives_are_those_of_the_value(loss, z, y):
    y, step = outcome(loss, y), 1e-5
    slope = (loss.value(z + step, y) - loss.value(z - step, y)) / (2 * step)
    curvature = (loss.derivative(z + step, y) - loss.derivative(z - step, y)) / (2 * step)
    assert loss.derivative(z, y) == pytest.approx(slope, abs=1e-8 * (1 + abs(z)) ** 2)
    # The third derivative is bounded by 6 or so at the bends tried here.
    assert loss.second_derivative(z, y) == pytest.approx(curvature, abs=1e-4)
    assert loss.second_derivative(z, y) >= 0.0


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_two_derivatives_are_continuous_where_formulas_meet(loss):
    for smoothing in bends(loss):
        for function, steepest in ((loss.value, 9.0), (loss.derivative, 2.0), (loss.second_derivative, 7.0)):
            left, right = function(smoothing - 1e-9, 1.0), function(smoothing + 1e-9, 1.0)
            assert abs(left - right) <= 2e-9 * steepest


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("name", ["value", "derivative", "second_derivative"])
def test_predictions_and_outcomes_of_any_layout_broadcast(loss, name):
    function, z = getattr(loss, name), np.linspace(-3.0, 3.0, 24).reshape(4, 6)
    y = np.ones((4, 1), dtype=np.float32)
    expected = np.array([[float(function(value, 1.0)) for value in row] for row in z])
    for layout in (z, np.asfortranarray(z), np.repeat(z, 2, axis=1)[:, ::2], np.broadcast_to(z, (4, 6)), z.tolist()):
        np.testing.assert_allclose(function(layout, y), expected, rtol=1e-14)
        assert function(layout, y).dtype == np.float64
    assert function(z, np.ones((3, 1, 1))).shape == (3, 4, 6)
    assert function(np.empty((0, 2)), 1.0).shape == (0, 2)
    assert function([1, 2], 1).dtype == np.float64
    assert np.shape(function(1.0, 1.0)) == ()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_have_the_sign_that_is_said(loss):
    """In the margin, over all outcomes: noise is for one sign or for both."""
    z = np.concatenate([-np.geomspace(1e-9, 1e3, 999), [0.0], np.geomspace(1e-9, 1e3, 999)])
    slopes = [y * loss.derivative(z, y) for y in ((0.25, 1.0) if loss.is_of_counts else (-1.0, -0.25, 1.0))]
    assert (np.max(slopes) <= 0.0) == loss.slope_sign
    assert loss.slope_sign is loss.is_classification


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_bounds_hold_and_are_reached(loss):
    z = np.append(np.linspace(-3.0, 3.0, 60_001), [z for z in bends(loss) if abs(z) <= 3.0])
    slopes, curvatures = [], []
    for y in ends(loss):
        slopes.append(np.abs(loss.derivative(z, y)).max())
        curvatures.append(loss.second_derivative(z, y).max())
    assert max(slopes) <= loss.derivative_bound(3.0) <= max(slopes) * (1 + 1e-9)
    assert max(curvatures) <= loss.second_derivative_bound() <= max(curvatures) * (1 + 1e-9)


@pytest.mark.parametrize("most", [-40.0, -1.0, 0.5, 1.7, 2.0, 3.0, 800.0])
def test_the_curvature_of_counts_is_bounded_for_small_predictions(most):
    loss = PoissonLoss(8.0)
    largest = loss.second_derivative(
        np.append(np.linspace(most - 5.0, most, 60_001), min(most, loss._start)), 1.0
    ).max()
    assert largest <= loss.second_derivative_bound(most) <= largest * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_curvature_fades_where_it_is_said(loss):
    """Privacy takes it to vanish where the slope is steepest."""
    if not loss.curvature_fades:
        return
    z = np.linspace(-80.0, 80.0, 160_001)
    slopes, curvatures = -loss.derivative(z, 1.0), loss.second_derivative(z, 1.0)
    assert loss.derivative_bound(np.inf) == 1.0
    largest = 4.0 * loss.second_derivative_bound() * slopes * (1.0 - slopes)
    assert (curvatures <= largest + 2.0**-50).all()


def test_a_shift_moves_margins():
    z = np.linspace(-9.0, 9.0, 37)
    for function in ("value", "derivative", "second_derivative"):
        shifted, plain = (getattr(loss, function) for loss in (LogisticLoss(2.0), LogisticLoss()))
        np.testing.assert_allclose(shifted(z, -1.0), plain(z + 2.0, -1.0), rtol=1e-14)
        np.testing.assert_allclose(shifted(z, 1.0), plain(z - 2.0, 1.0), rtol=1e-14)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_bounds_at_small_reach(loss):
    z = np.linspace(-1e-3, 1e-3, 101)
    bound = loss.derivative_bound(1e-3, outcome_bound=1.0)
    assert max(np.abs(loss.derivative(z, y)).max() for y in ends(loss)) <= bound


def test_away_from_their_bends_they_are_hinge_and_huber():
    hinge, huber = SmoothedHinge(0.5), SmoothedHuber(1.0, 0.5)
    z = np.array([-3.0, 0.0, 0.5, 1.5, 4.0])
    np.testing.assert_allclose(hinge.value(z, 1.0), np.maximum(1.0 - z, 0.0), atol=1e-15)
    assert huber.derivative([-9.0, -0.2, 0.3, 9.0], 0.0).tolist() == [-1.0, -0.2, 0.3, 1.0]
    assert huber.value(0.3, 0.0) == pytest.approx(0.045)


def test_the_smoothed_quantile_is_the_quantile_loss_away_from_its_bend():
    loss, residual = SmoothedQuantile(0.8, 0.25), np.array([-3.0, -0.25, 0.25, 4.0])
    np.testing.assert_allclose(loss.value(1.0 - residual, 1.0), [0.6, 0.05, 0.2, 3.2], atol=1e-15)
    np.testing.assert_allclose(loss.derivative(1.0 - residual, 1.0), [0.2, 0.2, -0.8, -0.8], rtol=1e-15)
    assert loss.derivative_bound(np.inf) == pytest.approx(0.8, rel=1e-13)


def test_the_poisson_loss_is_that_of_a_rate_until_it_is_near_the_largest():
    loss, z = PoissonLoss(20.0), np.linspace(-800.0, 40.0, 8401)
    rate, plain = loss.mean(z), np.array([math.exp(one) for one in z])  # of C, as the kernel's
    below = z <= np.log(15.0)
    assert np.array_equal(rate[below], plain[below])
    assert np.array_equal(loss.value(z, 3.0)[below], (plain - 3.0 * z)[below])
    assert (np.diff(rate) >= 0.0).all()
    assert rate[-1] == 20.0
    assert (rate[~below] >= 15.0).all()
    assert loss.derivative_bound(np.inf, 20.0) == pytest.approx(20.0, rel=1e-13)
    # Clipped counts that are larger than the largest rate.
    assert loss.derivative_bound(np.inf, 30.0) == pytest.approx(30.0, rel=1e-13)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_scaled_loss_has_the_same_shape_in_other_units(loss):
    scaled, z = loss.scaled(8.0), np.linspace(-3.0, 3.0, 61)
    y = outcome(loss, np.linspace(-1.0, 1.0, 61))
    if isinstance(loss, PoissonLoss):
        np.testing.assert_allclose(scaled.mean(z + np.log(8.0)), 8.0 * loss.mean(z), rtol=1e-13)
    elif isinstance(loss, SmoothedHuber | SmoothedQuantile):
        expected = loss.derivative(z, y) * (8.0 if isinstance(loss, SmoothedHuber) else 1.0)
        np.testing.assert_allclose(scaled.derivative(8.0 * z, 8.0 * y), expected, atol=1e-15)
    else:
        assert scaled is loss


def test_logistic_loss_far_out():
    loss = LogisticLoss()
    assert loss.value([1000.0, -1000.0], 1.0).tolist() == [0.0, 1000.0]
    assert loss.derivative([1000.0, -1000.0], 1.0).tolist() == [0.0, -1.0]
    assert loss.derivative(-40.0, -1.0) == pytest.approx(np.exp(-40.0), rel=1e-14)
    assert loss.derivative_bound(1e6) == 1.0


@pytest.mark.parametrize("cap", [2.0**-20, 0.1, 0.25, 0.5, 0.7, 0.99])
def test_a_capped_logistic_loss_is_the_logistic_loss_until_its_slope_is_near_the_cap(cap):
    loss, margins = CappedLogisticLoss(cap), np.linspace(-40.0, 40.0, 4001)
    plain = np.abs(LogisticLoss().derivative(margins, 1.0))
    slopes = np.abs(loss.derivative(margins, 1.0))
    assert slopes.max() == loss.derivative_bound(40.0) == loss.derivative_bound(np.inf) == cap
    assert np.diff(slopes).max() <= 0.0
    if cap <= 0.5:
        assert (slopes <= plain * (1.0 + 1e-12)).all()
    assert (slopes >= np.minimum(plain, 0.75 * cap * (1.0 - 1e-12))).all()
    straight = plain <= 0.75 * cap
    assert np.array_equal(slopes[straight], plain[straight])
    assert np.array_equal(loss.value(margins, 1.0)[straight], LogisticLoss().value(margins, 1.0)[straight])
    assert width_of_bend(loss) >= 2.0 / 3.0


def test_rows_at_the_boundary_keep_the_slope_that_the_cap_allows():
    for cap in (0.1, 0.25, 0.35):
        assert CappedLogisticLoss(cap).derivative(0.0, 1.0) == -cap


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.is_classification], ids=str)
def test_probabilities_are_those_at_which_the_margin_has_the_least_expected_loss(loss):
    margins = np.linspace(-6.0, 6.0, 121)
    p = loss.probability(margins)
    assert (np.diff(p) >= 0.0).all()
    np.testing.assert_allclose(p + p[::-1], 1.0, rtol=1e-14)
    expected = p * loss.value(margins[:, None], 1.0) + (1.0 - p) * loss.value(margins[:, None], -1.0)
    # Rows are margins that are tried, columns the probabilities that go with each.
    assert (np.diag(expected) <= expected.min(axis=0) + 1e-14).all()


def test_the_probability_of_the_logistic_loss_is_the_logistic_function():
    margins = np.array([-600.0, -40.0, -1.0, 0.0, 2.0, 600.0])
    np.testing.assert_allclose(LogisticLoss().probability(margins), 1.0 / (1.0 + np.exp(-margins)), rtol=1e-14)
    with pytest.raises(TypeError, match="SquaredLoss is a loss of regression"):
        SquaredLoss().probability(0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothedHinge(0.0), "width must be positive"),
        (lambda: SmoothedHinge(np.inf), "width must be positive"),
        (lambda: SmoothedHinge(1e-40), "width must lie between"),
        (lambda: SmoothedHinge(np.nextafter(2.0**-7, 0.0)), r"width must lie between 2\*\*-7 and"),
        (lambda: SmoothedHuber(4.0, np.nextafter(2.0**-5, 0.0)), "width must be at least 0.0078125 of threshold, 4.0"),
        (lambda: LogisticLoss(-1.0), "shift must be at least 0"),
        (lambda: LogisticLoss(65.0), "shift must be at most 64"),
        (lambda: CappedLogisticLoss(1.0), "cap must be at least .* the slope of LogisticLoss"),
        (lambda: CappedLogisticLoss(1e-9), "cap must be at least"),
        (lambda: CappedLogisticLoss(-0.5), "cap must be positive"),
        (lambda: SmoothedQuantile(1.0, 0.1), "level must lie between 0 and 1"),
        (lambda: SmoothedQuantile(0.0, 0.1), "level must be positive"),
        (lambda: SmoothedQuantile(0.5, 0.0), "width must be positive"),
        (lambda: PoissonLoss(-3.0), "largest must be positive"),
        (lambda: SmoothedHuber(-1.0), "threshold must be positive"),
        (lambda: SmoothedHuber(1.0, 1.0), "width must be below threshold"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_narrowest_bends_are_accepted():
    assert SmoothedHinge(2.0**-7).width == 2.0**-7
    assert SmoothedHuber(4.0, 2.0**-5).width == 2.0**-5


def given_loss(**changes):
    """Log cosh of the residual."""
    parts = {
        "loss": lambda z, y: np.logaddexp(z - y, y - z) - np.log(2.0),
        "slope": lambda z, y: np.tanh(z - y),
        "curvature": lambda z, y: 1.0 - np.tanh(z - y) ** 2,
        "slope_bound": 1.0,
        "curvature_bound": 1.0,
    }
    return CallableLoss(**(parts | changes))


def as_given(loss, outcome_bound, reach=np.inf):
    bounds = {
        "slope_bound": loss.derivative_bound(reach, outcome_bound),
        "curvature_bound": loss.second_derivative_bound(),
    }
    return CallableLoss(loss.value, loss.derivative, loss.second_derivative, **bounds)


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_functions_that_keep_to_their_bounds_are_probed_in_vain(size):
    given_loss().probe(size)
    for loss in (SmoothedHuber(size, size / 128), SmoothedQuantile(0.9, size / 128)):
        for reach in (np.inf, 10.0 * size, 1e-3 * size):
            as_given(loss, size).probe(size, reach)
    # Bounds that hold within a constraint alone.
    as_given(SquaredLoss(), size, 3.0 * size).probe(size, 3.0 * size)


def tukey(z, y):
    """Slope of Tukey's biweight."""
    return (z - y) * np.maximum(1.0 - (z - y) ** 2, 0.0) ** 2


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (given_loss(slope_bound=0.99), "slope must keep to slope_bound: it is larger at z = "),
        (given_loss(curvature_bound=0.9), "curvature must keep to curvature_bound: it is larger"),
        (given_loss(slope=lambda z, y: 0.5 * np.tanh(z - y)), "slope must be the derivative of loss"),
        (given_loss(slope=lambda z, y: np.tanh(y - z)), "slope must be the derivative of loss"),
        (
            given_loss(curvature=lambda z, y: 0.5 - 0.5 * np.tanh(z - y) ** 2),
            "curvature must be the derivative of slope",
        ),
        # The curvature that is given keeps to its bound; that of the slope does not.
        (given_loss(curvature=lambda z, y: 0.0 * z, curvature_bound=0.1), "curvature must be the derivative of slope"),
        (given_loss(loss=lambda z, y: np.log(np.cosh(z - y))), "loss must be finite"),
        (
            given_loss(
                loss=lambda z, y: -((np.maximum(1.0 - (z - y) ** 2, 0.0)) ** 3) / 6.0,
                slope=tukey,
                curvature=lambda z, y: np.where(
                    np.abs(z - y) < 1.0, (1.0 - (z - y) ** 2) * (1.0 - 5.0 * (z - y) ** 2), 0.0
                ),
            ),
            "loss must be convex: its curvature is negative",
        ),
        (as_given(SquaredLoss(), 1.0, 3.0), "slope must keep to slope_bound"),
    ],
)
def test_functions_that_contradict_their_bounds_are_found_out(loss, message):
    with pytest.raises(ValueError, match=message):
        loss.probe()


def test_a_slope_that_falls_between_close_points_is_found_out():
    """Where no pair of them meets the fall, that of the loss with it."""

    def fallen(z):
        return z > 1003.21

    loss = given_loss(
        loss=lambda z, y: given_loss().loss(z, y) - 0.4 * np.maximum(z - 1003.21, 0.0),
        slope=lambda z, y: np.tanh(z - y) - 0.4 * fallen(z),
    )
    with pytest.raises(ValueError, match="loss must be convex: its slope falls at z = "):
        loss.probe()


@pytest.mark.parametrize("kind", [ValueError, KeyError, StopIteration, MemoryError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["loss", "slope", "curvature"])
def test_what_a_given_loss_raises_is_not_passed_on(name, kind):
    def function(z, y):
        raise kind("the outcome .4242 of somebody")

    loss = given_loss(**{name: function})
    method = {"loss": loss.value, "slope": loss.derivative, "curvature": loss.second_derivative}[name]
    with pytest.raises((ValueError, MemoryError, SystemExit, KeyboardInterrupt)) as raised:
        method(np.zeros(3), np.ones(3))
    assert ".4242" not in str(raised.value)
    assert raised.value.__context__ is None
    assert issubclass(kind, Exception) or type(raised.value) is kind


def test_the_shape_a_given_loss_returns_is_refused_without_the_number_of_rows():
    with pytest.raises(ValueError, match=r"^loss must return an array of the shape that it was given$"):
        given_loss(loss=lambda z, y: 0.0).value(np.zeros(17), np.ones(17))


def exact_slope(loss, z, y):
    """The first derivative of the loss that has these doubles for parameters."""
    one = mp.mpf(1)
    if isinstance(loss, SquaredLoss):
        return z - y
    if isinstance(loss, LogisticLoss):
        return -y / (1 + mp.exp(mp.sign(y) * z - loss.shift))
    if isinstance(loss, SmoothedHinge):
        u = (mp.sign(y) * z - 1) / loss.width
        return -y * (mp.mpf(1) / 2 - 3 * max(min(u, one), -one) / 4 + max(min(u, one), -one) ** 3 / 4)
    if isinstance(loss, SmoothedQuantile):
        u = max(min((z - y) / mp.mpf(loss.width), one), -one)
        return one / 2 + 3 * u / 4 - u**3 / 4 - mp.mpf(loss.level)
    largest, start = (loss.largest, loss._start) if isinstance(loss, PoissonLoss) else (loss.cap, loss._start)
    if isinstance(loss, PoissonLoss):
        rate, beyond = mp.exp(mp.mpf(start)), z - mp.mpf(start)
        left, smoothing = largest - rate, 2 * (largest - rate) / rate
        return (mp.exp(z) if beyond <= 0 else largest - left * max(1 - beyond / smoothing, 0) ** 2) - y
    margin, slope = mp.sign(y) * z, 1 / (1 + mp.exp(mp.mpf(start)))
    below, left = mp.mpf(start) - margin, largest - slope
    smoothing = 2 * left / (slope * (1 - slope))
    return -y * (1 / (1 + mp.exp(margin)) if below <= 0 else largest - left * max(1 - below / smoothing, 0) ** 2)


SMOOTH = [
    *(SmoothedQuantile(level, width) for level in (0.5, 0.9, 0.5 + 2.0**-40) for width in (1e-3, 1.0, 1e12, 1e24)),
    *(LogisticLoss(shift) for shift in (0.0, 6.0, 40.0)),
    *(CappedLogisticLoss(cap) for cap in (2.0**-20, 0.25, 0.9, 1.0 - 2.0**-40)),
    *(SmoothedHinge(width) for width in (0.01, 1.0)),
    *(PoissonLoss(largest) for largest in (1e-6, 2.0, 1e9)),
    SquaredLoss(),
]


@pytest.mark.parametrize("loss", SMOOTH, ids=str)
def test_no_slope_is_beyond_its_bound_by_rounding(loss):
    """In twenty more digits: slopes may be what is left of numbers that are nearly alike."""
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-9.0, 2.0, size=(100, 2)) * rng.integers(0, 2, size=(100, 2))
    with mp.workdps(36):
        for reach, bound in sizes.tolist():
            outcomes = (1.0, -1.0) if loss.is_classification else (0.0, bound) if loss.is_of_counts else (bound, -bound)
            most = loss.derivative_bound(reach, bound)
            for side, y in itertools.product((-1, 1), outcomes):
                assert abs(exact_slope(loss, mp.mpf(side * reach), mp.mpf(y))) <= most


@pytest.mark.parametrize("loss", [SmoothedHuber(0.5), PoissonLoss(8.0)], ids=lambda loss: loss.kind)
def test_a_sum_of_losses_has_the_bounds_of_its_numbers(loss):
    """What is proved of the largest table is proved of this one: of outcomes of this size."""
    sizes = {"row_bound": 2.0, "outcome_bound": 50.0}
    bounds = LossBounds(9, 3, loss, **sizes)
    summed = GeneralisedLinear(np.ones((9, 3)), np.ones(9), loss, **sizes)
    for bound in ("gradient_error", "gradient_bound"):
        assert getattr(summed, bound)(1.5) == getattr(bounds, bound)(1.5)
    assert summed.smoothness == bounds.smoothness
    assert bounds.gradient_error(1.5) > LossBounds(9, 3, loss, row_bound=2.0).gradient_error(1.5)
