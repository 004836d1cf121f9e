"""What error privacy adds to a regression, from public numbers."""

from __future__ import annotations

import math

from dpfast.estimator.plan import Plan
from dpfast.multi_outcome.mechanism import Route


def planned(
    route: Route, of_all: Route, n: int, shape: tuple[int, int], bound_y: float, target: float, spread: float
) -> Plan:
    """Plan for n people whose rows have a mean squared norm of `spread` of their squared bound, even over directions.

    E r'(X'X)^-1 r/n with X'X = (n spread radius^2/d) I, r the noise in X'Y - X'X theta: `mechanism._costs` has it. The
    route of all rows is compared with where the route takes a sample.
    """
    features, _ = shape
    rows = n * _counting_rows(route, features, bound_y, spread)
    error = math.sqrt(features * route.cost) / (spread * route.frame.radius * rows * bound_y)
    if route.calibration.sample is None:
        return Plan.from_error(n, error, target, route.scales)
    # The error of (n/s) X_s'X_s theta is a sum over the sample of rows times predictions. Its mean square in the
    # norm of (X'X)^-1 is (1 - s/n)(d/s) bound_y^2 a person, for rows whose d directions are equally long.
    sampling_error = math.sqrt(route.calibration.noise.sampling * features)
    notes = {"error of the noise": error, "error of sampling": sampling_error} | _cost_of_sampling(route, of_all, shape)
    return Plan.from_error(n, error, target, route.scales, sampling_error=sampling_error, notes=notes)


def _counting_rows(route: Route, features: int, bound_y: float, spread: float) -> float:
    """Rows of a person, as planned, less what the bounds on their block scale them down by."""
    unit = route.calibration.people
    if unit is None:
        return 1.0
    # Rows even over as many directions as they can be; outcomes at their bound, explained by rows at theirs.
    norm = unit.max_rows * spread * route.frame.radius / math.sqrt(min(unit.max_rows, features))
    limits = ((unit.bound_xx, route.frame.radius), (unit.bound_xy, bound_y))
    factors = [bound / (norm * length) for bound, length in limits if bound is not None]
    return unit.max_rows * min([1.0, *factors])


def _cost_of_sampling(route: Route, of_all: Route, shape: tuple[int, int]) -> dict[str, float]:
    """Compare X'X of a sample with that of all rows: what it costs in noise, and saves in arithmetic."""
    features, outcomes = shape
    factor = route.calibration.xx_factor
    products_of_xx, products_of_xy = features * (features + 1) / 2, features * outcomes
    saved = (1.0 - 1.0 / factor) * products_of_xx / (products_of_xx + products_of_xy)
    return {
        "noise in xx over that without sampling": factor * route.scales["xx"] / of_all.scales["xx"],
        "noise in xy over that without sampling": route.scales["xy"] / of_all.scales["xy"],
        "fraction of the arithmetic saved": saved,
    }
