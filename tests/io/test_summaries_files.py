import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from dpfast.io import summaries, write_table

#: What a format gives a meaning to, in one name.
HOSTILE = 'a,"b"\n50% & $x_1$ #{~^}\\input|<b> \x00=1+1 é'


def test_tables_hold_floats_to_the_bit_and_dates_as_they_are_said():
    values = np.array([0.1, 1e-310, -0.0, np.pi, np.inf, np.nan])
    dates = np.datetime64("2020-01-31") + np.arange(6)
    table = {"value": values, "day": dates, "label": [1, "a", None, 2.5, "b", True]}
    read = list(csv.DictReader(summaries.csv_bytes(table).decode().splitlines()))
    assert np.array([float(row["value"]) for row in read]).tobytes() == values.tobytes()
    assert read[0]["day"] == "2020-01-31"
    assert [row["label"] for row in read] == ["1", "a", "", "2.5", "b", "True"]
    import pyarrow as pa
    from pyarrow import parquet

    back = parquet.read_table(pa.BufferReader(summaries.parquet_bytes(table))).to_pydict()
    assert np.array(back["value"]).tobytes() == values.tobytes()
    assert back["label"] == ["1", "a", None, "2.5", "b", "True"]
    rows = json.loads(summaries.json_bytes(table), parse_constant=pytest.fail)
    assert [row["value"] for row in rows[:4]] == values[:4].tolist()
    assert (rows[4]["value"], rows[5]["value"]) == ({"float": "inf"}, None)


def frame():
    index = pd.MultiIndex.from_tuples([("days", "age"), ("days", HOSTILE)], names=["outcome", "feature"])
    return pd.DataFrame({"estimate": [0.1, -2.5e-7], "low": [np.nan, 1.0], "n": [1, 2]}, index=index)


@pytest.mark.parametrize("ending", ["csv", "parquet", "json"])
def test_pandas_reads_what_is_written_of_a_frame(ending, tmp_path):
    path = tmp_path / f"table.{ending}"
    path.write_text("an older file")
    write_table(frame(), path)
    read, expected = getattr(pd, f"read_{ending}")(path), frame().reset_index()
    if ending == "csv":
        # What ends a line, or a text, is a space there.
        expected["feature"] = expected["feature"].str.replace("[\n\0]", " ", regex=True)
    pd.testing.assert_frame_equal(read, expected, check_exact=True)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_index_without_a_name_is_left_out(tmp_path):
    write_table(pd.DataFrame({"a": [1]}), str(tmp_path / "a.csv"))
    assert (tmp_path / "a.csv").read_text() == "a\n1\n"


@pytest.mark.parametrize("dtype", [float, "Float64", object])
def test_what_is_missing_in_a_frame_is_left_empty(dtype, tmp_path):
    from pyarrow import parquet

    table = pd.DataFrame({"a": pd.Series([0.5, np.nan], dtype=dtype), "b": [1, 2]})
    for ending in ("csv", "parquet"):
        write_table(table, tmp_path / f"table.{ending}")
    assert (tmp_path / "table.csv").read_text() == "a,b\n0.5,1\n,2\n"
    assert parquet.read_table(tmp_path / "table.parquet").to_pydict()["a"] == [0.5, None]


def test_latex_is_a_booktabs_table_with_everything_escaped(tmp_path):
    write_table(frame(), tmp_path / "table.tex")
    lines = (tmp_path / "table.tex").read_text().splitlines()
    assert lines[:3] == [r"\begin{tabular}{llrrr}", r"\toprule", r"outcome & feature & estimate & low & n \\"]
    assert lines[4] == r"days & age & 0.1 &  & 1 \\"
    hostile = (
        r"a,\"b\" 50\% \& \$x\_1\$ \#\{\textasciitilde{}\textasciicircum{}\}\textbackslash{}input"
        r"\textbar{}\textless{}b\textgreater{} =1+1 é"
    ).replace('\\"', '"')
    assert lines[5] == rf"days & {hostile} & $-2.5 \cdot 10^{{-7}}$ & 1 & 2 \\"
    assert lines[6:] == [r"\bottomrule", r"\end{tabular}"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX")
@pytest.mark.slow
def test_latex_compiles(tmp_path):
    write_table(frame(), tmp_path / "table.tex")
    page = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
    (tmp_path / "page.tex").write_text(page)
    subprocess.run(["pdflatex", "-halt-on-error", "page.tex"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    path.write_text("an older file")
    with pytest.raises(ValueError, match=r"\.csv, \.parquet, \.json, \.tex, \.md, got 'table.xlsx'"):
        write_table(frame(), tmp_path / "table.xlsx")
    with pytest.raises(TypeError, match="must be a pandas DataFrame or columns by name, got a list"):
        write_table([1, 2], tmp_path / "table.csv")
    with pytest.raises(ValueError, match="different names"):
        write_table(frame().rename(columns={"n": "feature"}), path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'dpfast\[arrow\]'"):
        write_table(frame(), path)
    assert path.read_text() == "an older file"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_no_cell_and_no_name_of_csv_is_a_formula_or_moves_a_cursor(tmp_path):
    table = {"=cmd": ["\x1b[31mred", "-1", "-a"], "value": [-1.5, None, 2.0], "@n": [-1, 2, 3]}
    write_table(table, tmp_path / "table.csv")
    text = (tmp_path / "table.csv").read_text()
    assert text == "'=cmd,value,'@n\n [31mred,-1.5,-1\n-1,,2\n'-a,2.0,3\n"
