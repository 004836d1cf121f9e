"""A parameter of a kind that is not accepted is refused before anything is spent, by a message that names it."""

import inspect
import math
import re
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, people
from matplotlib.figure import Figure

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    PolicyEvaluation,
    Privacy,
    PrivateStandardScaler,
    SparseRegression,
    SyntheticControl,
    datasets,
    describe,
    plotting,
    private_bounds,
    select,
)


class Thing:
    """What no parameter is."""


#: Numbers that no float or no size of an array equals, or whose digits Python does not print.
NUMBERS = [10**400, -(10**400), 10**5000, -(10**5000), np.uint64(2**63), Fraction(1, 3), Decimal("0.1")]
#: None of them is a number, a word, a pair of numbers or a declaration by name that a fit would take.
HOSTILE = [
    *("no such word", b"no", {}, {1, 2}, [[1], [2, 3]], 1j, math.nan, Thing()),
    *(np.array("no"), np.array(2), np.array([1.0, 2.0, 3.0]), np.array([]), (None, None, None)),
    *(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), pd.Series([1.0, 2.0], index=["a", "b"])),
    *NUMBERS,
]


@pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning")
@pytest.mark.parametrize("name", FITS)
def test_what_a_parameter_cannot_be_is_refused_by_its_name_at_no_cost(name):
    fit = FITS[name]
    x, y = people(60)
    mistakes = []
    for parameter in inspect.signature(type(fit.estimator)).parameters:
        for given in HOSTILE[list(FITS).index(name) % 2 :: 2]:  # and another fit of this estimator the rest
            ledger = Ledger(Privacy(1e3, 1e-2, fit.estimator.adjacency))
            try:
                fit(x, y, **{"ledger": ledger, parameter: given})
            except Exception as error:
                # Python's own words name no remedy.
                said = isinstance(error, TypeError | ValueError) and parameter in str(error)
                if not said or "float()" in str(error) or "unsized" in str(error) or ledger.releases:
                    mistakes.append((parameter, type(given), str(error)))
    assert not mistakes


ROWS = people(30, width=2)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PLANNED = BUDGET | {"n": 1000, "target": 0.1}
RIDGE = {"bound_x": 2.0, "bound_y": 1.0}
OF_VISITS = {"m": 1000, "n_states": 4, "target": 0.1, "visited": 0.5, "spread": 0.3, "gamma": 0.9, "horizon": 20}
OF_PANEL = {"n_pre": 9, "n_periods": 12, "spread": 0.2, "variation": 0.3, "decay": 4.0}
FUNCTIONS = [
    (MultiOutcomeRidge.plan, PLANNED | RIDGE | {"n_features": 3, "n_outcomes": 1, "score": 0.5, "max_rows": 2}),
    (
        ObjectivePerturbationClassifier.plan,
        PLANNED | {"n_features": 3, "spread": 0.2, "bound_x": 2.0, "classes": [0, 1]},
    ),
    (SparseRegression.plan, PLANNED | {"n_features": 9, "n_nonzero": 2, "signal": 0.5, "score": 0.5}),
    (PolicyEvaluation.plan, BUDGET | OF_VISITS | {"lag": 1, "truncated": 0.5}),
    # Without noise, as a plan with it takes long.
    (SyntheticControl.plan, PLANNED | OF_PANEL | {"epsilon": math.inf}),
    (PrivateStandardScaler.plan, PLANNED | {"n_features": 3, "box_x": (-1.0, 1.0)}),
    (private_bounds, BUDGET | {"X": ROWS[0], "groups": np.arange(30), "max_rows": 1, "random_state": 0}),
    (describe, BUDGET | {"table": pd.DataFrame({"a": ROWS[1]}), "columns": {"a": (-1.0, 1.0)}, "n_bins": 8}),
    (
        partial(select, [MultiOutcomeRidge(**BUDGET, **RIDGE)], *ROWS),
        BUDGET | {"bound_y": 1.0, "test_size": 0.25, "refit_share": 0.5, "random_state": 0},
    ),
    (MultiOutcomeRidge(**BUDGET, **RIDGE, random_state=0).fit(*ROWS).summary, {"level": 0.9, "residual_std": 1.0}),
    (datasets.chain_trajectories, {"m": 3, "n_states": 4, "stay": 0.5, "seed": 1}),
    (datasets.synthetic_control_panel, {"n": 4, "n_pre": 5, "n_post": 3, "seed": 1}),
]


@pytest.mark.parametrize(("function", "usual"), FUNCTIONS)
def test_a_number_that_a_function_cannot_take_is_refused_by_its_name(function, usual):
    function(**usual)
    mistakes = []
    for parameter in [name for name, value in usual.items() if isinstance(value, int | float)]:
        for given in [*NUMBERS, -1, math.nan, math.inf, 5e-324, 1.7e308, True, "1", 1j, np.array(2)]:
            try:
                function(**{**usual, parameter: given})
            except Exception as error:
                said = isinstance(error, TypeError | ValueError) and parameter in str(error)
                if not said or "float()" in str(error):
                    mistakes.append((parameter, type(given), str(error)))
    assert not mistakes


LABELLED = ROWS[0], np.arange(30) % 2


def classified():
    return ObjectivePerturbationClassifier(**BUDGET, bound_x=2.0, classes=[0, 1], random_state=0).fit(*LABELLED)


NO_NUMBERS = [np.array(["a", "b"]), [[1], [2, 3]], 10**400, "no such word", {}, Thing(), 1j]
THREE = {"low": [0.0, 1.0, 2.0], "high": [2.0, 3.0, 4.0]}
ARRAYS = [
    (plotting.roc, {"outcomes": [0, 1, 1], "scores": [0.1, 0.5, 0.9]}),
    (plotting.calibration, {"outcomes": [0, 1, 1], "probabilities": [0.1, 0.5, 0.9]}),
    (partial(plotting.plan_curves, errors={"a": [1.0, 2.0]}), {"x": [1, 2]}),
    (plotting.score_curves, {"x": [1, 2], "scores": [[1.0, 2.0]]}),
    (partial(plotting.synthetic_control_gaps, [1, 2, 3], 2), THREE | {"gap": [1.0, 2.0, 3.0]}),
    (
        partial(plotting.synthetic_control_paths, [1, 2, 3], 2),
        THREE | {"observed": [1.0, 2.0, 3.0], "fitted": [1.0, 2.0, 3.0]},
    ),
    (plotting.value_function, {"values": [1.0, 2.0], "std": [1.0, 1.0], "reference": [0.0, 1.0]}),
    (partial(plotting.placebo_distribution, ratio=1.5), {"ends": [1.0, 2.0, 3.0], "counts": [3, 2, 1, 0]}),
    (
        plotting.coefficients,
        {"features": ["a", "b"], "outcomes": ["y"], "values": [[1.0, 2.0]], "reference": [[0.0, 1.0]]},
    ),
    (
        MultiOutcomeRidge(**BUDGET, **RIDGE, random_state=0).fit(*ROWS).plot,
        {"feature_names": ["a", "b"], "outcome_names": ["y"], "reference": [[0.0, 1.0]]},
    ),
    (
        partial(PolicyEvaluation.plan, **BUDGET | OF_VISITS),
        {"visited": [0.5] * 4, "value_spread": 0.1, "truncated": 0.5},
    ),
    (lambda n: PolicyEvaluation.plot_plan(n, 4, **BUDGET, gamma=0.9), {"n": [1000, 2000]}),
    (lambda positive: classified().plot_calibration(*LABELLED, positive=positive), {"positive": 1}),
    (
        partial(datasets.markov_trajectories, m=2, horizon=3),
        {"transitions": [[0.5, 0.5], [0.0, 0.0]], "start": [1.0, 0.0], "rewards": [0.0, 1.0]},
    ),
]


@pytest.mark.parametrize(("function", "usual"), ARRAYS)
def test_what_holds_no_numbers_or_names_is_refused_by_its_name(function, usual):
    function(**usual)
    mistakes = []
    for parameter in usual:
        # Two words, or lists, can be two names.
        for given in NO_NUMBERS[2 * ("name" in parameter or parameter == "features") :]:
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**{**usual, parameter: given})
            if not re.search(rf"\b{parameter}\b", str(caught.value)) or "float()" in str(caught.value):
                mistakes.append((parameter, type(given), str(caught.value)))
    assert not mistakes


@pytest.mark.parametrize(
    ("function", "usual"), [pair for pair in ARRAYS if "ax" in inspect.signature(pair[0]).parameters]
)
@pytest.mark.parametrize("parameter", ["title", "unit"])
def test_words_of_a_picture_are_refused_before_anything_is_drawn(function, usual, parameter):
    axes = Figure().subplots()
    for given in (1, b"no", np.array(["a"]), math.nan):
        before = len(axes.get_children())
        with pytest.raises(TypeError, match=f"{parameter} must be a string"):
            function(**usual, ax=axes, **{parameter: given})
        assert len(axes.get_children()) == before


OF_ROWS = [name for name, fit in FITS.items() if fit.table in ("blocks", "rows")]


def test_columns_of_one_name_are_refused_by_every_fit_of_rows():
    x, y = people(60)
    for name in OF_ROWS:
        table = pd.DataFrame(x, columns=list("abcdefghij")[: x.shape[1]])
        table.columns = ["age"] * 2 + list(table.columns[2:])
        with pytest.raises(ValueError, match="one name"):
            FITS[name](table, y)


def test_no_rows_have_no_predictions():
    x, y = people(60)
    methods = ("predict", "predict_proba", "decision_function", "transform")
    for name in OF_ROWS:
        fitted = FITS[name](x, y)
        for method in filter(partial(hasattr, fitted), methods):
            assert len(getattr(fitted, method)(x[:0])) == 0, (name, method)
            assert len(getattr(fitted, method)(x[:1])) == 1, (name, method)
