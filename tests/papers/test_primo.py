import math

import numpy as np
import pytest
from neighbours import climb, row_in_ball

from dpfast.papers.primo import primo_printed_delta, primo_printed_scales
from dpfast.privacy import classic_gaussian_scale, gaussian_delta, xx_sensitivity, xy_sensitivity


def test_scales_are_the_printed_ones():
    scales = primo_printed_scales(0.5, 1e-5, bound_x=2.0, bound_y=3.0)
    constant = 2 * math.sqrt(2 * math.log(2.5 / 1e-5)) / 0.5
    assert scales.xx == pytest.approx(constant * 4.0, rel=1e-14)
    assert scales.xy == pytest.approx(constant * 6.0, rel=1e-14)
    assert scales.released == ("xx", "xy")


@pytest.mark.parametrize(("epsilon", "ratio"), [(1.0, 0.0091), (6.0, 0.567), (8.0, 1.81), (10.0, 5.24)])
def test_whole_algorithm_breaks_its_claim_only_at_large_epsilon(epsilon, ratio):
    assert primo_printed_delta(epsilon, 1e-6) / 1e-6 == pytest.approx(ratio, rel=5e-3)
    assert primo_printed_delta(epsilon, 1e-6, "add_remove") < 1e-6


def test_sub_releases_break_theirs():
    # docs/defects.md: each is claimed to be (epsilon/2, delta/2)-DP.
    scales = primo_printed_scales(1.0, 1e-6, 1.0, 1.0)
    options = {"adjacency": "replace_one", "n_features": 3}
    covariance = gaussian_delta(scales.xx, 0.5, xx_sensitivity(1.0, **options))
    association = gaussian_delta(scales.xy, 0.5, xy_sensitivity(1.0, 1.0, **options))
    assert covariance / 0.5e-6 == pytest.approx(4.8, abs=0.05)
    assert association / 0.5e-6 == pytest.approx(477, abs=1)


def test_joint_mu_is_reached_with_noise_on_the_upper_triangle():
    """Noise of one size on the upper triangle: hill-climbed neighbours reach mu**2 = 4.5/c**2 and do not pass it."""
    upper = np.triu_indices(3)

    def change(p):
        z, v, y, w = (row_in_ball(q, 1.0) for q in np.split(p, [3, 6, 8]))
        covariance = (np.outer(z, z) - np.outer(v, v))[upper]
        association = np.outer(z, y) - np.outer(v, w)
        return math.sqrt(np.sum(covariance**2) + np.sum(association**2))

    found, _ = climb(change, 10, np.random.default_rng(0))
    assert 1 - 1e-6 <= found / math.sqrt(4.5) <= 1 + 1e-14
    constant = classic_gaussian_scale(0.5, 0.5e-6)
    assert primo_printed_delta(1.0, 1e-6) == pytest.approx(gaussian_delta(constant, 1.0, math.sqrt(4.5)), rel=1e-10)


def test_turning_the_rows_makes_their_change_diagonal():
    """The proof of primo_printed_delta: eigenvectors of xx' - vv' turn both rows and leave the rest as it is."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, v = rng.normal(size=(2, 4))
        y, w = rng.normal(size=(2, 3))
        _, turn = np.linalg.eigh(np.outer(x, x) - np.outer(v, v))
        turned_x, turned_v = turn.T @ x, turn.T @ v
        change = np.outer(turned_x, turned_x) - np.outer(turned_v, turned_v)
        assert np.allclose(change, np.diag(np.diag(change)), atol=1e-12)
        before, after = np.outer(x, y) - np.outer(v, w), np.outer(turned_x, y) - np.outer(turned_v, w)
        assert np.linalg.norm(after) == pytest.approx(np.linalg.norm(before), rel=1e-12)


def test_no_noise():
    assert primo_printed_scales(math.inf, 1e-6, 1.0, 1.0).xx == 0.0
    assert primo_printed_delta(math.inf, 1e-6) == 0.0


@pytest.mark.parametrize("arguments", [(0.0, 1e-6), (-1.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (math.nan, 1e-6)])
def test_bad_budgets_are_refused(arguments):
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        primo_printed_delta(*arguments)


@pytest.mark.parametrize("bounds", [(1e200, 1.0), (1e-200, 1.0), (1e154, 1e200), (1e-150, 1e-200)])
def test_scales_beyond_floats_are_refused(bounds):
    """A scale of 0 would mean no noise, an infinite one that its block is not released."""
    with pytest.raises(ValueError, match="outside the range of floats"):
        primo_printed_scales(1.0, 1e-6, *bounds)


def test_bad_bounds_are_refused():
    with pytest.raises(ValueError, match="bound_y"):
        primo_printed_scales(1.0, 1e-6, 1.0, 0.0)
    with pytest.raises(ValueError, match="adjacency"):
        primo_printed_delta(1.0, 1e-6, "both")
