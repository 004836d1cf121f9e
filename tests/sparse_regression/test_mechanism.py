"""Coefficients of a support: the solver's error bound, the noise's law, and exactly what one record can tell."""

import math
from fractions import Fraction

import numpy as np
import pytest
from neighbours import climb, row_in_ball
from scipy import integrate, stats

from dpfast import Privacy
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.noise import SeededSource
from dpfast.releases.selection import MOST_ROWS, RecordBounds
from dpfast.solvers.best_subset import exact_box_minimum
from dpfast.sparse_regression.mechanism import SupportRegression, _gradient_change


def calibrated(epsilon=1.0, delta=1e-6, adjacency="replace_one", size=1, n=100, printed=False):
    bounds = RecordBounds(size, math.sqrt(size), float(size))
    make = SupportRegression.printed if printed else SupportRegression.calibrate
    return make(Privacy(epsilon, delta, adjacency), bounds, n)


def fixed(values, exponent=-30):
    return FixedPoint.from_integers([round(float(value) * 2.0**-exponent) for value in values], exponent)


@pytest.mark.parametrize("kind", ["inside", "at bounds", "collinear", "huge noise"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_computed_minimiser_is_within_its_tolerance(size, kind):
    """Against rational arithmetic on the exact moments and the noise before it was rounded."""
    rng = np.random.default_rng(0)
    regression = calibrated(size=size, n=1000)
    m = Fraction(regression.calibrated.strong_convexity)
    for _ in range(5):
        rows = rng.integers(-(2**26), 2**26, size=(1000, size)).astype(object)
        if kind == "collinear":
            rows[:, 1:] = rows[:, :1]
        truth = 0.4 if kind == "inside" else 3.0
        unit = Fraction(1, 2**26)
        exact_xx = [[Fraction(int(rows[:, i] @ rows[:, j])) * unit**2 for j in range(size)] for i in range(size)]
        exact_xy = [sum(row[j] for j in range(size)) * Fraction(truth) for row in exact_xx]
        factor = 1e12 if kind == "huge noise" else 1.0
        noise = [
            Fraction(float(b)) * Fraction(1, 3) for b in regression.scales["objective"] * factor * rng.normal(size=size)
        ]
        grid = Fraction(regression._grid)
        linear = np.array([float(round((b - g) / grid) * grid) for b, g in zip(noise, exact_xy, strict=True)])
        xx = np.array([[float(v) for v in row] for row in exact_xx])
        found = regression.minimise(xx, linear)
        for i in range(size):
            exact_xx[i][i] += m
        _, exact = exact_box_minimum(exact_xx, [g - b for b, g in zip(noise, exact_xy, strict=True)])
        distance = sum((Fraction(float(a)) - b) ** 2 for a, b in zip(found, exact, strict=True))
        assert distance <= Fraction(regression.tolerance) ** 2


def one_feature_law(regression, x, y):
    """Density inside (-1, 1) and the probabilities of -1 and 1 of the exact minimiser, one feature."""
    convexity = x @ x + regression.calibrated.strong_convexity
    law = stats.norm if regression.calibrated.mechanism == "Gaussian" else stats.laplace
    noise = law(scale=regression.calibrated.scale)
    g = x @ y
    return lambda t: convexity * noise.pdf(g - convexity * t), noise.sf(g + convexity), noise.cdf(g - convexity)


def hockey_stick(one, other, epsilon):
    """Exact delta between two laws with atoms at the bounds."""
    ratio = math.exp(epsilon)
    inside = integrate.quad(lambda t: max(0.0, one[0](t) - ratio * other[0](t)), -1.0, 1.0, limit=2000, epsabs=1e-13)[0]
    return inside + sum(max(0.0, a - ratio * b) for a, b in zip(one[1:], other[1:], strict=True))


def worst_tables(adjacency):
    """Pairs of tables with records at the bounds: one feature, |x| <= 1, |y| <= 1."""
    for others in (0, 1, 3):
        rest = np.ones(others), np.full(others, 0.5)
        for x, y in ((1.0, 1.0), (1.0, -1.0), (1.0, 0.0), (0.5, 1.0)):
            full = np.append(rest[0], x), np.append(rest[1], y)
            if adjacency == "add_remove":
                yield full, rest
            else:
                for replaced in ((1.0, -y), (0.0, 0.0), (-0.5, 1.0)):
                    yield full, (np.append(rest[0], replaced[0]), np.append(rest[1], replaced[1]))


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("delta", [1e-3, 0.0])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_exactly_what_one_record_can_tell(adjacency, delta, printed):
    """Interior density and atoms at the bounds, without the noise that hides the solver's error and its epsilon."""
    regression = calibrated(1.0, delta, adjacency, printed=printed)
    epsilon = 1.0 - regression.calibrated.finishing_epsilon
    worst = 0.0
    for pair in worst_tables(adjacency):
        one, other = (one_feature_law(regression, *table) for table in pair)
        worst = max(worst, hockey_stick(one, other, epsilon), hockey_stick(other, one, epsilon))
    assert worst <= delta + 1e-12
    # The printed noise is for one record more or less; no table of one feature shows that it is too small.
    assert regression.guaranteed == (not printed or adjacency == "add_remove")


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_fraction_of_the_noise_is_caught(adjacency):
    """The same divergence, at a quarter of the noise."""
    regression = calibrated(1.0, 1e-3, adjacency)
    object.__setattr__(regression.calibrated, "scale", regression.calibrated.scale / 4.0)
    worst = max(
        hockey_stick(*(one_feature_law(regression, *table) for table in pair), 1.0) for pair in worst_tables(adjacency)
    )
    assert worst > 2e-3


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_the_noise_has_the_calibrated_law(delta):
    """What it takes to give the released coefficient; the noise at the end is nothing beside it."""
    regression = calibrated(2.0, delta, n=4000)
    xx, g = np.array([[4000.0]]), 1000.0
    source = SeededSource(1)
    coefs = [regression.release(xx, fixed([g]), source, "coefficients").values["coef"][0] for _ in range(1500)]
    convexity = xx[0, 0] + regression.calibrated.strong_convexity
    noise = (g - convexity * np.array(coefs)) / regression.calibrated.scale
    assert regression.scales["coef"] * convexity < 1e-2 * regression.calibrated.scale
    law = "norm" if delta > 0.0 else "laplace"
    assert stats.kstest(noise, law).pvalue > 1e-6  # false-reject rate; the noise at the end moves it by 1e-4 at most


def test_the_finishing_noise_is_what_the_tolerance_asks_for():
    regression = calibrated(size=3)
    own = regression.calibrated
    assert regression.scales["coef"] * own.finishing_epsilon >= 2.0 * regression.tolerance
    total = own.noise_epsilon + own.curvature_epsilon + own.finishing_epsilon
    assert 0.999 < total <= 1.0


def test_a_private_number_of_rows_costs_little():
    """Rounding errors for as many rows as there may be leave the finishing noise small."""
    assert calibrated(adjacency="add_remove", size=3, n=MOST_ROWS).scales["coef"] < 0.02
    assert calibrated(adjacency="add_remove", size=3, n=10**6).scales["coef"] < 1e-4


def test_the_release_is_within_the_box_and_marked():
    regression = calibrated(0.1, size=2)
    release = regression.release(np.eye(2), fixed([0.0, 0.0]), SeededSource(0), "coefficients")
    assert np.abs(release.values["coef"]).max() <= 1.0
    assert release.privacy == Privacy(0.1, 1e-6)
    assert release.reproducible
    assert "hides a solver's error" in release.name


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("length", "outcome"), [(1.0, 0.2), (1.0, 2.0)])
def test_the_gradient_moves_no_more_than_it_is_calibrated_for(adjacency, length, outcome):
    """Climbing over pairs of records and coefficients in the box; one record alone reaches its bound."""
    size = 3
    bounds = RecordBounds(size, length, outcome)

    def gradient(parameters, theta):
        x = row_in_ball(parameters[:size], length)
        return x * (x @ theta - np.clip(parameters[size], -outcome, outcome))

    def change(parameters):
        theta = np.clip(parameters[:size], -1.0, 1.0)
        moved = gradient(parameters[size : 2 * size + 1], theta)
        if adjacency == "replace_one":
            moved = moved - gradient(parameters[2 * size + 1 :], theta)
        return float(np.linalg.norm(moved))

    largest, _ = climb(change, 3 * size + 2, np.random.default_rng(2))
    bound, geometry = _gradient_change(adjacency, bounds)
    assert largest <= bound
    assert largest > (0.7 if adjacency == "replace_one" else 1.0 - 1e-6) * bound
    assert geometry == {"replace_one": "plane", "add_remove": "line"}[adjacency]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("size", [1, 3])
def test_the_tolerance_counts_every_rounding_before_the_solver(adjacency, size):
    """In exact arithmetic, as the head of the module derives it: those of A, of A + m I and of b - g, over m."""
    most = 10**6 if adjacency == "replace_one" else MOST_ROWS
    regression = calibrated(0.5, 1e-6, adjacency, size, most)
    m, unit = Fraction(regression.calibrated.strong_convexity), Fraction(1, 2**53)
    rows = most * Fraction(regression.bounds.curvature)
    reached = (rows + m) * Fraction(math.sqrt(size))
    moved = Fraction(math.sqrt(size)) * (Fraction(regression._grid) / 2 + unit * (2 * reached + rows))
    assert Fraction(regression.tolerance) >= moved / m
    assert Fraction(regression.scales["coef"]) * Fraction(regression.calibrated.finishing_epsilon) >= 2 * moved / m
