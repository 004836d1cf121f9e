"""Rows to predict from are refused without a word of what stands in them."""

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, people

from dpfast.estimator.bounded import columns_of

ROWS, OUTCOMES = people(200, width=3)
#: One of each estimator of rows that predicts from others.
FITTED = {
    type(fit.estimator).__name__: fit
    for fit in reversed(FITS.values())
    if fit.table in ("blocks", "rows") and hasattr(fit.estimator, "predict")
}
FITTED = {name: fit(ROWS, OUTCOMES) for name, fit in FITTED.items()}
SECRET = "731.25"
REFUSED = {
    "one row": [731.25, 1.0, 2.0],
    "text": [[1.0, "731.25 mg", 2.0]],
    "text in an array of objects": np.array([[1.0, "731.25 mg", 2.0]], object),
    "text in a frame": pd.DataFrame({"a": [1.0], "b": ["731.25 mg"], "c": [2.0]}),
    "nothing in a frame": pd.DataFrame({"a": [1.0], "b": [None], "c": ["731.25"]}),
    "complex": np.array([[731.25 + 1j, 1.0, 2.0]]),
    "not a number": [[731.25, np.nan, 2.0]],
    "infinite": [[731.25, np.inf, 2.0]],
    "ragged": [[731.25, 1.0, 2.0], [1.0]],
    "too narrow": [[731.25, 1.0]],
}


@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
@pytest.mark.parametrize("rows", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("model", FITTED.values(), ids=FITTED)
def test_refusals_quote_no_entry(model, rows):
    with pytest.raises(ValueError, match=r"\bX\b|array") as raised:
        model.predict(rows)
    error = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("model", FITTED.values(), ids=FITTED)
def test_tables_of_numbers_of_any_kind_predict_alike(model):
    expected = model.predict(ROWS[:5])
    for rows in (ROWS[:5].tolist(), ROWS[:5].astype(object), np.asfortranarray(ROWS[:5])):
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-12)
        else:
            np.testing.assert_array_equal(model.predict(rows), expected)


def test_columns_of_arrow_have_their_names():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"age": [1.0], "dose": [2.0]})
    for X in (table, table.to_batches()[0], pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches())):
        found = columns_of(X)
        assert list(found["feature_names_in_"]) == ["age", "dose"]
        assert found["n_features_in_"] == 2
