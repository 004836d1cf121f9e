"""One form of tables of estimates: what stands above them, and that no column is left out."""

import pickle

import numpy as np
import pandas as pd
import pytest

from dpfast.io.summaries import Estimates

HEADER = {"estimator": "Ridge", "n": 20_000, "unit": "people", "guarantee": "epsilon 1, delta 1e-06, replace-one"}
HEADER |= {"level": 0.95, "target": "population", "r_squared": {"days|<b>": 0.5, "cost": 0.25}, "note": None}
LINES = [
    "estimator  Ridge",
    "n          20,000 people",
    "guarantee  epsilon 1, delta 1e-06, replace-one",
    "limits     95%, target: population",
    "R-squared  days|<b> 0.500, cost 0.250",
]


def table(rows=3, columns=12):
    values = {f"column_{j}": np.arange(float(rows)) + j for j in range(columns)}
    values["column_1"][0] = np.nan
    return Estimates({"feature": [f"<i>{k}_" for k in range(rows)]}, values, HEADER)


def test_the_header_is_printed_above_every_column():
    frame = table().frame()
    lines = str(frame).splitlines()
    assert lines[:5] == LINES
    assert lines[5].split() == [f"column_{j}" for j in range(12)]
    assert repr(frame) == str(frame)
    assert len(str(table(500).frame()).splitlines()) < 30
    assert "note" not in frame.attrs


def test_selections_and_roundings_keep_it_and_what_drops_attrs_prints_as_any_frame():
    frame = table().frame()
    for kept in (frame.round(1), frame[["column_0", "column_2"]], frame.loc["<i>1_":], frame.iloc[:1], frame.copy()):
        assert str(kept).splitlines()[:5] == LINES
        assert kept.attrs == frame.attrs
    assert isinstance(frame["column_0"], pd.Series)
    assert str(pickle.loads(pickle.dumps(frame))) == str(frame)
    plain = pd.DataFrame(frame)
    pd.testing.assert_frame_equal(plain, frame, check_frame_type=False)
    bare = frame.copy()
    bare.attrs.clear()
    assert str(bare) == bare.to_string()


def test_a_notebook_shows_the_same_with_everything_escaped():
    page = table().frame()._repr_html_()
    assert all(f"column_{j}<" in page for j in range(12))
    assert "20,000 people" in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_markdown_needs_nothing_and_escapes_what_it_gives_a_meaning_to():
    lines = table(2, 2).frame().to_markdown().splitlines()
    assert lines[-6] == r"- R-squared: days\|\<b\> 0.500, cost 0.250"
    assert lines[-5:] == [
        "",
        r"| feature | column\_0 | column\_1 |",
        "| --- | --- | --- |",
        r"| \<i\>0\_ | 0 |  |",
        r"| \<i\>1\_ | 1 | 2 |",
    ]


def test_latex_has_its_header_in_comments():
    lines = table(2, 2).frame().to_latex().splitlines()
    assert lines[:5] == [f"% {line}" for line in LINES]
    assert lines[5:7] == [r"\begin{tabular}{lrr}", r"\toprule"]


def test_arguments_are_those_of_pandas():
    frame = table(2, 2).frame()
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        frame.to_latex(nothing=True)
    with pytest.raises(ImportError, match="tabulate"):
        frame.to_markdown(index=False)


def test_files_have_the_same_columns_and_nothing_where_nothing_is_known():
    written, frame = table().written(), table().frame()
    assert list(written) == ["feature", *frame.columns]
    assert written["column_1"] == [None, 2.0, 3.0]
