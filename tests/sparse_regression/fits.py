"""Fits of sparse regression: a support is released, then coefficients on it."""

import math
from dataclasses import replace

from catalogue import of_people, of_rows

from dpfast import SparseRegression


def support(selector, *, table="blocks", any_order=True, releases=2, **parameters):
    estimator = SparseRegression(1.0, 1e-6, selector=selector, **{"n_nonzero": 1} | parameters)
    releases = None if releases is None else releases + ("private" in parameters.values())
    return of_rows(estimator, table=table, any_order=any_order, releases=releases)


def pursuit(**parameters):
    # Sizes, a pick and, but for the last, moments a round; then as many as the fit asks for.
    return support("pursuit", releases=None, **parameters)


def votes(**parameters):
    return support("sample_aggregate", table="rows", any_order=False, **parameters)


BOUNDS = {"bound_x": 1.0, "bound_y": 1.0}
FITS = {
    "pursuit of one": pursuit(),
    "pursuit of two": pursuit(n_nonzero=2, adjacency="add_remove"),
    "pursuit within bounds": pursuit(n_nonzero=2, **BOUNDS),
    "pursuit of people": of_people(pursuit().estimator, releases=None),
    "pursuit of people within bounds that are found": of_people(
        pursuit(bound_x="private", bound_y="private", adjacency="add_remove").estimator, releases=None
    ),
    "pursuit by default": replace(pursuit(), estimator=SparseRegression(1.0, 1e-6, n_nonzero=1)),
    "support by scores": support("exponential"),
    "support of two by scores": support("exponential", n_nonzero=2),
    "support by scores with bounds": support("exponential", n_nonzero=2, **BOUNDS),
    "support by scores within bounds that are found": support(
        "exponential", table="rows", bound_x="private", bound_y="private"
    ),
    "support by scores, as printed": support("exponential", calibration="paper"),
    "support by votes": votes(n_blocks=3),
    "support of two by votes": votes(n_nonzero=2, n_blocks=4),
    "support by votes with bounds": votes(n_nonzero=2, n_blocks=3, **BOUNDS),
    "support by votes within a bound that is found": votes(n_blocks=3, bound_x="private"),
    "support by votes of as many blocks as are best": votes(),
    "support by votes, as printed": votes(n_blocks=3, calibration="paper"),
}

CONVENTIONS = [
    SparseRegression(1.0, 1e-6, n_nonzero=1, bound_x=100.0, bound_y=100.0),
    SparseRegression(math.inf, n_nonzero=1, selector="exponential"),
    SparseRegression(math.inf, n_nonzero=1),
]

#: Public numbers that an estimator plans from, as flags of the command line.
PLANS = {
    "SparseRegression": "--rows 1000 --features 3 --n-nonzero 1 --selector exponential --signal 1",
}
