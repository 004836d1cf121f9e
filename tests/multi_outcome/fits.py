"""Fits of multi-outcome regression."""

import math

import numpy as np
import pandas as pd
from catalogue import Fit, of_people, of_rows

from dpfast import MultiOutcomeRidge
from dpfast.statistics import GramAccumulator, gram

BOUNDS = {"bound_x": 1.0, "bound_y": 1.0}


def ridge(**parameters):
    return MultiOutcomeRidge(1.0, 1e-6, **BOUNDS | {"refine": 0, "fit_intercept": False} | parameters)


def two(y):
    """A second outcome of each person."""
    with np.errstate(all="ignore"):
        other = 0.5 * y
    return pd.concat([y, other], axis=1, keys=["first", "second"]) if hasattr(y, "index") else np.c_[y, other]


def weighed(one, x, y):
    """Weights within 2, and some beyond, as the rows have them."""
    weights = 3.0 * np.clip(np.nan_to_num(np.asarray(x, np.float64)[:, 0]), 0.0, 1.0)
    return one.fit(x, two(y), sample_weight=pd.Series(weights, x.index) if hasattr(x, "index") else weights)


def accumulated(x, y):
    """Sums of the people in two halves."""
    middle = len(x) // 2
    first, second = (
        GramAccumulator(x.shape[1], 1, **BOUNDS).update(*(getattr(table, "iloc", table)[part] for table in (x, y)))
        for part in (slice(middle), slice(middle, None))
    )
    return first.merge(second).gram()


FITS = {
    "ridge": of_rows(ridge(), two),
    "ridge of one outcome": of_rows(ridge()),
    "ridge with a penalty": of_rows(ridge(ridge=0.5), two),
    "ridge with an intercept": of_rows(ridge(fit_intercept=True), two),
    "ridge in a box": of_rows(ridge(bound_x=None, box_x=(-0.6, 0.7)), two),
    "ridge with a bound for each outcome": of_rows(ridge(bound_y=[0.5, 1.0]), two),
    "ridge, refined, with a bound for each outcome": of_rows(ridge(refine=1, bound_y=[0.5, 1.0]), two, releases=None),
    "ridge in a far box": of_rows(ridge(bound_x=8.0, box_x=(2.0, 4.0)), two),
    "ridge with an intercept in a box": of_rows(ridge(fit_intercept=True, box_x=(-1.0, 1.0), bound_x=None), two),
    "ridge within bounds that are found": of_rows(
        ridge(bound_x="private", bound_y="private"), two, table="rows", releases=2
    ),
    "ridge in a box that is found": of_rows(
        ridge(bound_x=None, box_x="private", nonnegative=True, fit_intercept=True), two, table="rows", releases=2
    ),
    "ridge of nonnegative rows": of_rows(ridge(nonnegative=True), two),
    "ridge, projection": of_rows(
        ridge(mechanism="projection", public_labels=True), two, table="rows", public_outcomes=True, any_order=False
    ),
    "ridge of each outcome": of_rows(ridge(mechanism="independent"), two),
    "ridge of each outcome, basic": of_rows(ridge(mechanism="independent", composition="basic"), two),
    "ridge of each outcome, advanced": of_rows(ridge(mechanism="independent", composition="advanced"), two),
    "ridge, sample": of_rows(ridge(n_subsample=8), two, table="rows", any_order=False),
    "ridge, as printed": of_rows(ridge(calibration="paper"), two),
    "ridge of weighed rows": Fit(ridge(max_weight=2.0), weighed),
    "ridge of weighed rows, with an intercept": Fit(ridge(max_weight=2.0, fit_intercept=True), weighed),
    "ridge of weighed rows in a far box": Fit(
        ridge(max_weight=2.0, fit_intercept=True, bound_x=8.0, box_x=(2.0, 4.0), adjacency="add_remove"), weighed
    ),
    "ridge of people": of_people(ridge()),
    "ridge of people, with an intercept": of_people(ridge(fit_intercept=True)),
    "ridge of people, clipped by person": of_people(ridge(block_bounds=(0.5, 0.5))),
    "ridge of people, in a box that is found": of_people(ridge(bound_x="private", box_x="private"), releases=2),
    "ridge, projection, steps left to choose": of_rows(
        ridge(refine="auto", mechanism="projection", public_labels=True),
        two,
        table="rows",
        public_outcomes=True,
        any_order=False,
    ),
    "ridge, refined": of_rows(ridge(refine=2), two, releases=None),
    "ridge, refined, with an intercept in a box": of_rows(
        ridge(refine=1, fit_intercept=True, box_x=(-1.0, 1.0), bound_x=None), two, releases=None
    ),
    "ridge of people, refined": of_people(ridge(refine=1), releases=None),
    "ridge of sums": Fit(ridge(), lambda one, x, y: one.fit_gram(gram(x, two(y), **BOUNDS))),
    "ridge of accumulated sums": Fit(ridge(), lambda one, x, y: one.fit_gram(accumulated(x, y))),
}

#: What scikit-learn's checks of conventions are run on.
CONVENTIONS = [
    MultiOutcomeRidge(math.inf, bound_x=1.0, bound_y=1.0, max_weight=10.0, fit_intercept=False),
    MultiOutcomeRidge(1.0, 1e-6, bound_x=100.0, bound_y=100.0, max_weight=10.0, fit_intercept=False),
]

#: Public numbers that an estimator plans from, as flags of the command line.
PLANS = {
    "MultiOutcomeRidge": "--n 1000 --n-features 3 --n-outcomes 2 --bound-x 1 --bound-y 1 --subsample 500",
}
