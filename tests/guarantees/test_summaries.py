"""What every fit owes those who publish it: a table of what was estimated, by name, and pages that show no more."""

import sys

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, people

from dpfast.io import write_table

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning", "ignore::dpfast.UnsoundCalibrationWarning")
#: What columns are called where they hold the same.
KNOWN = {"estimate", "mean", "coef", "std_privacy", "std_error", "low", "high", "p_value"}
OWN = {"observed", "effect", "variance", "scale"}


def fitted(name, **parameters):
    return FITS[name](*people(60), **parameters)


@pytest.mark.parametrize("name", FITS)
def test_every_fit_is_summed_up_in_a_frame_by_what_was_estimated(name, tmp_path):
    model = fitted(name)
    if not hasattr(model, "summary"):
        return  # batches of repeated fits
    table = model.summary()
    assert type(table) is pd.DataFrame
    assert len(table) > 0
    assert table.index.is_unique
    assert all(level is not None for level in table.index.names)
    assert set(table.columns) <= KNOWN | OWN
    assert table.columns[0] in ("estimate", "mean", "coef", "observed")
    known = table.dropna()
    if "low" in table and len(known):
        center = known["estimate" if "estimate" in known else "mean"]
        assert np.all((known["low"] <= center) & (center <= known["high"]))
    pd.testing.assert_frame_equal(model.summary(), table)
    write_table(table, tmp_path / "table.csv")


@pytest.mark.parametrize("name", [*FITS][::9])
def test_no_summary_without_a_fit_or_without_pandas(name, monkeypatch):
    fit = FITS[name]
    with pytest.raises(ValueError, match="not fitted yet"):
        fit.new().summary()
    model = fitted(name)
    if hasattr(model, "summary"):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match=r"pip install 'dpfast\[pandas\]'"):
            model.summary()
