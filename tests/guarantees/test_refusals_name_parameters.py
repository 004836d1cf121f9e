"""A parameter of a kind that is not accepted is refused before anything is spent, by a message that names it."""

import inspect
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, people

from dpfast import Ledger, Privacy


class Thing:
    """What no parameter is."""


#: None of them is a number, a word, a pair of numbers or a declaration by name that a fit would take.
HOSTILE = [
    *("no such word", b"no", {}, {1, 2}, [[1], [2, 3]], 1j, math.nan, Thing()),
    *(np.array("no"), np.array([1.0, 2.0, 3.0]), np.array([]), (None, None, None)),
]


@pytest.mark.parametrize("name", FITS)
def test_what_a_parameter_cannot_be_is_refused_by_its_name_at_no_cost(name):
    fit = FITS[name]
    x, y = people(60)
    mistakes = []
    for parameter in inspect.signature(type(fit.estimator)).parameters:
        for given in HOSTILE:
            ledger = Ledger(Privacy(1e3, 1e-2, fit.estimator.adjacency))
            try:
                fit(x, y, **{"ledger": ledger, parameter: given})
            except Exception as error:
                # Python's own words name no remedy.
                said = isinstance(error, TypeError | ValueError) and parameter in str(error)
                if not said or "float()" in str(error) or "unsized" in str(error) or ledger.releases:
                    mistakes.append((parameter, given, error))
    assert not mistakes


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
