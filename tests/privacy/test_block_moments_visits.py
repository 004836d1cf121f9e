"""Sums per state: the largest change over all pairs of people by brute force, the least noise, and what is refused."""

import math
from itertools import pairwise, product

import pytest

from dpfast.privacy import MomentScales
from dpfast.privacy.block_moments import VisitLimits, visit_moment_mu, visit_moment_scales

SIZES = [(s, k) for s in range(1, 6) for k in range(1, s + 1)]
SCALES = [(1.0, 1.0), (0.3, 1.0), (0.5, 1.0), (1.0, 0.1), (50.0, 1.0)]
ADJACENCIES = ("replace_one", "add_remove")


def people(limits):
    """All there can be whose returns, about the middle, are at an end of their range: None where a state is unseen."""
    ends = (limits.reach - limits.width, limits.reach)
    for visits in product((None, *ends), repeat=limits.n_states):
        if sum(visit is not None for visit in visits) <= limits.most_visited:
            yield visits


def squared_distance(one, other, limits, scales):
    total = 0.0
    for here, there in zip(one, other, strict=True):
        visits = limits.visit * ((here is not None) - (there is not None))
        total += (visits / scales.xx) ** 2 + (((here or 0.0) - (there or 0.0)) / scales.xy) ** 2
    return total


@pytest.mark.parametrize(("n_states", "most_visited"), SIZES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_bound_is_the_largest_change_over_all_pairs_of_people(n_states, most_visited, adjacency):
    """Every pair there is with returns at the ends of the range; the change is convex in each return."""
    limits = VisitLimits(n_states, most_visited, visit=0.7, width=2.0, reach=1.0)
    # By symmetry between states the first person visits the first ones.
    first = [one for one in people(limits) if all(a is not None or b is None for a, b in pairwise(one))]
    others = [(None,) * n_states] if adjacency == "add_remove" else list(people(limits))
    for xx, xy in SCALES:
        scales = MomentScales(xx=xx, xy=xy)
        worst = max(squared_distance(one, other, limits, scales) for one in first for other in others)
        assert visit_moment_mu(scales, limits, adjacency=adjacency) == pytest.approx(math.sqrt(worst), rel=1e-12)
        assert visit_moment_mu(scales, limits, adjacency=adjacency) >= math.sqrt(worst) * (1.0 - 1e-15)


def test_each_corner_is_the_worst_somewhere():
    """At S = 5, K = 3: all states visited by one of them, three by both, or one by both and the others by one."""
    limits = VisitLimits(5, 3, visit=1.0, width=1.0, reach=0.5)

    def squared(xx):
        return visit_moment_mu(MomentScales(xx=xx, xy=1.0), limits, adjacency="replace_one") ** 2

    for xx, expected in ((0.5, 5 * 4.25), (4.0, 3.0), (1.5, 1 + 4 * (1 / 2.25 + 0.25))):
        assert squared(xx) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n_states", "most_visited"), [(1, 1), (5, 3), (5, 5), (48, 40), (500, 40), (16, 9)])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("weight", [1e-3, 1.0 / 12.0, 1.0, 30.0])
@pytest.mark.parametrize("mu", [0.2, 5.0])
def test_the_noise_is_the_least_that_meets_the_budget(n_states, most_visited, adjacency, weight, mu):
    limits = VisitLimits(n_states, most_visited, visit=0.3, width=7.0, reach=3.5)
    weights = {"xx": weight * 7.0**2 / 0.3**2, "xy": 1.0}
    scales = visit_moment_scales(mu, limits, weights, adjacency=adjacency)
    assert mu * (1.0 - 1e-12) < visit_moment_mu(scales, limits, adjacency=adjacency) <= mu
    for step in range(-60, 61):
        other = MomentScales(xx=scales.xx * 1.05**step, xy=scales.xy)
        other = other.times(visit_moment_mu(other, limits, adjacency=adjacency) / mu)
        assert other.cost(weights) >= scales.cost(weights) * (1.0 - 1e-9)


def test_no_noise_and_no_budget():
    limits = VisitLimits(3, 2, visit=1.0, width=1.0, reach=0.5)
    assert visit_moment_mu(MomentScales(xx=0.0, xy=1.0), limits, adjacency="replace_one") == math.inf
    assert visit_moment_mu(MomentScales(xx=1.0, xy=0.0), limits, adjacency="add_remove") == math.inf
    assert visit_moment_scales(math.inf, limits, adjacency="replace_one") == MomentScales(xx=0.0, xy=0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"most_visited": 4}, "most_visited must be at most n_states, 3, got 4"),
        ({"reach": 0.4}, "reach must be at least half of width"),
        ({"width": 0.0}, "width must be positive"),
        ({"visit": math.nan}, "visit must be"),
        ({"n_states": 0, "most_visited": 1}, "n_states must be at least 1"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        VisitLimits(**({"n_states": 3, "most_visited": 2, "visit": 1.0, "width": 1.0, "reach": 0.5} | changes))


def test_refused_weights():
    limits = VisitLimits(3, 2, visit=1.0, width=1.0, reach=0.5)
    with pytest.raises(ValueError, match="weights must name xx and xy"):
        visit_moment_scales(1.0, limits, {"xy": 1.0}, adjacency="replace_one")
    wide = VisitLimits(3, 2, visit=1.0, width=1e200, reach=1e200)
    with pytest.raises(ValueError, match="leave the range of floats"):
        visit_moment_scales(1.0, wide, adjacency="replace_one")
