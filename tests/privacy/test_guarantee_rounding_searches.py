"""Searches that are remembered: done once for the same public numbers, and again for any others."""

import math

import pytest

from dpfast import Privacy
from dpfast.privacy import (
    best_beta,
    donors,
    moment_scales,
    objective,
    objective_noise,
    split_budget,
    subsampled_moment_scales,
)
from dpfast.privacy.donors import donor_objective_noise
from dpfast.privacy.guarantee import remembered
from dpfast.releases.objective_bounds import ObjectiveBounds
from dpfast.solvers import LogisticLoss


def of_objective(**changed):
    numbers = {"changes": {"line": 1.0}, "curvature": 0.25, "strong_convexity": 0.1, "dim": 5} | changed
    return objective_noise(Privacy(numbers.pop("epsilon", 1.0), 1e-6), **numbers)


def of_donors(**changed):
    numbers = {"gradient": 1.0, "curvature": 1.0, "ridge": 0.1, "projection_sensitivity": 1.0} | changed
    return donor_objective_noise(Privacy(numbers.pop("epsilon", 1.0), 1e-6), **numbers, n_donors=3, n_pre=4, n_post=2)


def of_moments(**changed):
    numbers = {"mu": 1.0, "bound_x": 1.0, "bound_y": 1.0, "weights": {"xx": 1.0, "x": 1.0, "xy": 2.0}} | changed
    return moment_scales(**numbers, adjacency="replace_one", n_features=3)


def of_sample(**changed):
    numbers = {"epsilon": 1.0, "delta": 1e-6, "n_sampled": 50, "n_total": 500, "bound_x": 1.0, "bound_y": 1.0}
    return subsampled_moment_scales(**numbers | {"n_features": 3} | changed)


def of_parts(**changed):
    numbers = {"epsilon": 1.0, "shares": [0.25, 0.75], "composition": "mu"} | changed
    return split_budget(Privacy(numbers["epsilon"], 1e-6), numbers["shares"], numbers["composition"])


TWO_SEGMENTS = {"changes": {"two segments": 1.0}}
OVERRIDES = {
    of_objective: [
        {"epsilon": 2.0},
        {"changes": {"line": 2.0}},
        {"changes": {"plane": 1.0}},
        {"curvature": 1.0},
        {"dim": 6},
        {"strong_convexity": 9.0},
        {"radius": 2.0},
        {"least_curvature_share": 0.9},
        {"finishing_share": 0.1},
        TWO_SEGMENTS,
        TWO_SEGMENTS | {"curvature_fades": True},
    ],
    of_donors: [{"epsilon": 2.0}, {"gradient": 2.0}, {"curvature": 2.0}, {"ridge": 5.0}],
    of_moments: [{"mu": 2.0}, {"bound_x": 2.0}, {"bound_y": 2.0}, {"weights": {"xx": 1.0, "x": 1.0, "xy": 1.0}}],
    of_sample: [
        {"epsilon": 2.0},
        {"delta": 1e-5},
        {"n_sampled": 51},
        {"n_total": 501},
        {"bound_x": 2.0},
        {"bound_y": 2.0},
        {"weights": {"xx": 1.0, "xy": 2.0}},
        {"n_features": 1},
        {"nonnegative": True},
    ],
    of_parts: [{"epsilon": 2.0}, {"shares": [0.75, 0.25]}, {"composition": "basic"}],
}


@pytest.mark.parametrize("search", OVERRIDES, ids=lambda search: search.__name__)
def test_any_other_number_is_another_search(search):
    found = [search(), *(search(**changed) for changed in OVERRIDES[search])]
    assert len(set(map(repr, found))) == len(found)
    assert [search(), *(search(**changed) for changed in OVERRIDES[search])] == found


@pytest.mark.parametrize(("search", "module"), [(of_objective, objective), (of_donors, donors)])
def test_the_same_numbers_are_searched_once(search, module, monkeypatch):
    expected = search(epsilon=0.75)

    def refused(*_):
        raise AssertionError

    monkeypatch.setattr(module, "least_at", refused)
    assert search(epsilon=0.75) == expected
    with pytest.raises(AssertionError):
        search(epsilon=0.875)


def test_a_cost_of_the_callers_is_asked_each_time():
    wanted = 1.0

    def cost(deviation, convexity):
        return abs(math.log(convexity / wanted)) if deviation < math.inf else math.inf

    assert of_objective(cost=cost).strong_convexity == pytest.approx(1.0, rel=1e-3)
    wanted = 2.0
    assert of_objective(cost=cost).strong_convexity == pytest.approx(2.0, rel=1e-3)


def test_a_variance_of_the_callers_is_asked_each_time():
    steepness = 1e-3

    def variance(beta):
        return 1.0 + steepness / beta

    first = best_beta(1.0, 1e-6, 3, variance)
    steepness = 1e3
    assert best_beta(1.0, 1e-6, 3, variance) > first


def test_costs_of_the_same_numbers_are_equal_and_of_others_are_not():
    numbers = [(3, 1.0, 9), (3, 1.0, 9), (4, 1.0, 9), (3, 2.0, 9), (3, 1.0, 8)]
    costs = [ObjectiveBounds(LogisticLoss(), d, bound, 1.0, n_rows=n).typical_excess(0.5) for d, bound, n in numbers]
    assert costs[0] == costs[1]
    assert len(set(costs)) == 4


def test_an_answer_that_raises_is_not_remembered():
    calls = []

    @remembered
    def search(number):
        calls.append(number)
        raise ValueError("no such number")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such"):
            search(1)
    assert calls == [1, 1]
