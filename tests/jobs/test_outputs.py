"""What jobs write: the same results in every format, whole or not at all, and nothing that was not released."""

import csv
import html.parser
import json
import re
import struct
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from jobs.examples import JOB_TYPES, write_job

from dpfast import Ledger, MultiOutcomeRidge, Privacy, Release, plotting
from dpfast.cli import main
from dpfast.io import summaries
from dpfast.jobs import Job, outputs, report
from dpfast.jobs.job_types import Output
from dpfast.privacy.guarantee import plain_words

pd = pytest.importorskip("pandas")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("matplotlib")

JOB = """
[input]
path = "table.csv"
[features]
"a|b <i>$x_{{$</i>" = {{ low = -1, high = 1 }}
[outcomes]
"y" = "number"
[estimator]
kind = "multi_outcome_ridge"
bound_y = 1.0
fit_intercept = true
refine = 0
{estimator}
[privacy]
epsilon = 1.0
delta = 1e-6
{privacy}
[output]
folder = "fit"
{output}
"""
NAME = "a|b <i>$x_{$</i>"
LEDGER = 'ledger = { path = "people.json", epsilon = 2.0, delta = 1e-5 }'
REPORTS = {"model.json", "report.md", "report.html", "report.json"}


@pytest.fixture
def job(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, 400)
    pd.DataFrame({NAME: x, "y": x / 2}).to_csv(tmp_path / "table.csv", index=False)

    def write(estimator="", privacy="", output=""):
        path = tmp_path / "job.toml"
        path.write_text(JOB.format(estimator=estimator, privacy=privacy, output=output))
        return str(path)

    return write


def names(folder):
    return {path.name for path in folder.iterdir()}


class Page(html.parser.HTMLParser):
    """What a browser would see: tags that are balanced, text, and what is loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.loaded, self.tables, self.tags = [], [], [], [], set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.loaded += [value for name, value in attributes if name in ("src", "href")]
        if tag == "tr":
            self.tables.append([])
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1].append(data)
        self.text.append(data)


def test_every_format_holds_the_same_numbers(job, tmp_path):
    assert main(["fit", job()]) == 0
    folder = tmp_path / "fit"
    assert names(folder) == REPORTS | {f"coefficients.{one}" for one in ("csv", "parquet", "png", "svg")}
    model = MultiOutcomeRidge.load(folder / "model.json")
    with (folder / "coefficients.csv").open(newline="", encoding="utf-8") as file:
        constant, row = csv.DictReader(file)
    assert (constant["feature"], row["feature"]) == ("(intercept)", NAME)
    summary = model.summary()
    for name in ("estimate", "std_error", "low", "high"):
        assert [float(constant[name]), float(row[name])] == summary[name].tolist()
    # The residual variance is not known.
    assert row["p_value"] == constant["p_value"] == ""
    table = parquet.read_table(folder / "coefficients.parquet").to_pydict()
    assert list(table) == list(row)
    assert [table["low"][0], table["low"][1]] == [float(constant["low"]), float(row["low"])]
    record = json.loads((folder / "report.json").read_text())
    assert record["tables"] == {"coefficients": list(row)}
    assert set(record["files"]) == names(folder)
    assert record["guarantee"] == str(model.privacy_spent_)
    page = Page((folder / "report.html").read_text())
    shown = {cells[1]: cells for cells in page.tables}
    assert shown[NAME][2] == f"{summary['estimate'].iloc[1]:.5g}"
    assert not page.tags & {"script", "link", "i"}
    assert len(page.loaded) == 1
    assert page.loaded[0].startswith("data:image/svg+xml;base64,")
    assert NAME in "".join(page.text)
    before_the_job = "".join(page.text).partition("sha256")[0]
    assert "what a person's record says changes the probability of any result" in before_the_job
    in_markdown = (folder / "report.md").read_text()
    assert in_markdown.count(r"a\|b \<i\>\$x\_\{\$\</i\>") == 2
    assert "<i>" not in in_markdown.replace(r"\<i\>", "")


def test_pictures_are_files_of_their_format_and_say_nothing_of_when(job, tmp_path):
    assert main(["fit", job(estimator="random_state = 1")]) == 0
    made = {one: (tmp_path / "fit" / f"coefficients.{one}").read_bytes() for one in ("png", "svg")}
    assert made["png"].startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", made["png"][16:24])
    assert 300 < width < 3000
    assert 150 < height < 3000
    assert b"<svg" in made["svg"]
    assert b"dc:date" not in made["svg"]
    assert main(["fit", job(estimator="random_state = 1"), "--force"]) == 0
    assert made == {one: (tmp_path / "fit" / f"coefficients.{one}").read_bytes() for one in made}


def test_a_ledger_of_several_jobs_is_drawn_and_said_to_have_room_for_more(job, tmp_path):
    path = job(privacy=LEDGER, output='formats = ["csv", "svg"]')
    earlier = Release("a count", "geometric", Privacy(0.1), {}, {})
    Ledger(Privacy(2.0, 1e-5), tmp_path / "people.json").spend(earlier)
    assert main(["fit", path, "--quiet"]) == 0
    ledger, folder = Ledger.open(tmp_path / "people.json"), tmp_path / "fit"
    assert names(folder) == REPORTS | {"coefficients.csv", "coefficients.svg", "ledger.svg"}
    model = MultiOutcomeRidge.load(folder / "model.json")
    assert json.loads((folder / "report.json").read_text())["affords"] == ledger.affords(model)
    text = (folder / "report.html").read_text()
    assert len(Page(text).loaded) == 2
    assert f"room for</th><td>{ledger.affords(model)}<" in text
    assert "a count: geometric noise" in text
    assert "![ledger](ledger.svg)" in (folder / "report.md").read_text()


def test_the_first_page_is_for_those_who_answer_for_the_data(job, tmp_path):
    earlier = Release("a count: of all", "geometric", Privacy(0.1), {}, {})
    Ledger(Privacy(2.0, 1e-5), tmp_path / "people.json").spend(earlier)
    assert main(["fit", job(privacy=LEDGER, output='formats = ["csv"]\nplots = false'), "--quiet"]) == 0
    first, line, rest = (tmp_path / "fit" / "report.md").read_text().partition("\n---\n")
    assert line
    assert [title for title in first.splitlines() if title.startswith("## ")] == [
        "## What was promised",
        "## What was spent",
        "## What could void it",
    ]
    model = MultiOutcomeRidge.load(tmp_path / "fit" / "model.json")
    assert f"- what: {plain_words(model.privacy_spent_)}" in first.replace("\\", "")
    assert "| a count | 1 |" in first
    assert f"| MultiOutcomeRidge | {len(model.releases_)} |" in first
    assert "are not in the ledger 'people.json'" in first
    assert "voided" not in first
    # The engineer's words stay below the line.
    for word in ("sha256", "mu^2", "scale", "ridge lambda", "bound_y"):
        assert word not in first
    assert "sha256" in rest


def test_a_seed_voids_the_first_page(job, tmp_path):
    assert main(["fit", job(estimator="random_state = 1"), "--quiet"]) == 0
    first, _, _ = (tmp_path / "fit" / "report.md").read_text().partition("\n---\n")
    assert "- what: nothing: see what could void it" in first
    assert "- voided: the noise came from a seed" in first
    assert "ledger of its own" in first


def test_what_was_expected_stands_beside_what_was_released(job, tmp_path):
    path = job(output='formats = ["csv"]\nplots = false\n[plan]\npeople = 400')
    assert main(["fit", path, "--quiet"]) == 0
    record = json.loads((tmp_path / "fit" / "report.json").read_text())
    planned = Job.read(tmp_path / "job.toml").plan()
    assert record["expected"]["n"] == planned.n == 400
    assert record["expected"]["expected_error"] == planned.expected_error
    page = "".join(Page((tmp_path / "fit" / "report.html").read_text()).text)
    assert f"expected from public numbers{str(planned).splitlines()[0]}" in page
    assert page.count("error as released") == 2


def test_the_number_of_people_that_is_expected_with_is_not_taken_for_that_of_the_table(job, tmp_path):
    path = job(output='formats = ["csv"]\nplots = false')
    assert main(["fit", path, "--quiet"]) == 0
    planned = Job.read(tmp_path / "job.toml").plan()
    page = "".join(Page((tmp_path / "fit" / "report.html").read_text()).text)
    assert planned.n == planned.needed_n
    assert f"expected from public numbers, if there are just enough people{str(planned).splitlines()[0]}" in page


def test_formats_are_chosen(job, tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "drawn", lambda figures, formats: {"coefficients": dict.fromkeys(formats, b"")})
    assert main(["fit", job(output='formats = ["parquet"]\nplots = true')]) == 0
    assert names(tmp_path / "fit") == REPORTS | {"coefficients.parquet"}
    assert Page((tmp_path / "fit" / "report.html").read_text()).loaded
    assert main(["fit", job(output="plots = false"), "--force"]) == 0
    assert names(tmp_path / "fit") == REPORTS | {"coefficients.csv", "coefficients.parquet"}
    assert not Page((tmp_path / "fit" / "report.html").read_text()).loaded


@pytest.mark.parametrize(
    ("output", "missing", "message"),
    [
        (
            'formats = ["csv", "parquet"]',
            "pyarrow.parquet",
            "needs PyArrow, which is not installed: pip install 'dpfast[arrow]'",
        ),
        (
            "plots = true",
            "matplotlib.figure",
            "plots = true, which needs matplotlib, which is not installed: pip install 'dpfast[p",
        ),
        (
            'formats = ["csv", "png"]',
            "matplotlib.figure",
            "formats holds 'png', which needs matplotlib, which is not installed",
        ),
        (
            'formats = ["xlsx"]',
            "",
            "must hold one of 'csv', 'parquet', 'json', 'tex', 'md', 'png', 'svg', got 'xlsx'",
        ),
        ('formats = ["png"]', "", "formats must hold one of 'csv', 'parquet', 'json', 'tex'"),
        ('formats = ["csv", "svg"]\nplots = false', "", "formats holds a format of pictures, but plots = false"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_spent(
    output, missing, message, job, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["fit", job(output=output, privacy=LEDGER)]) == 2
    assert message in capsys.readouterr().err
    assert names(tmp_path) == {"table.csv", "job.toml"}


def test_by_default_there_is_what_installed_libraries_write(monkeypatch):
    def written():
        output = Output(folder="fit")
        return output.tables, output.pictures, output.is_drawn

    assert written() == (["csv", "parquet"], ["png", "svg"], True)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert written() == (["csv", "parquet"], [], False)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert written() == (["csv"], [], False)


@pytest.mark.parametrize("broken", [(summaries, "csv_bytes"), (outputs, "drawn"), (outputs, "as_html")])
def test_a_release_whose_results_cannot_be_written_is_kept_as_a_model(broken, job, tmp_path, capsys, monkeypatch):
    module, name = broken

    def fail(*_):
        raise KeyError("secret")

    monkeypatch.setattr(module, name, fail)
    monkeypatch.setitem(summaries.WRITERS, "csv", summaries.csv_bytes)
    assert main(["fit", job(privacy=LEDGER, output="plots = false" if name != "drawn" else "")]) == 1
    error = capsys.readouterr().err
    assert "was made and paid for, but its outputs are incomplete, with the model in" in error
    assert "secret" not in error
    assert not (tmp_path / "fit").exists()
    (partial,) = (path for path in tmp_path.iterdir() if path.name.startswith(".fit."))
    model = MultiOutcomeRidge.load(partial / "model.json")
    assert Ledger.open(tmp_path / "people.json").costs == (model.privacy_spent_,)
    # Nor is it paid for a second time.
    monkeypatch.undo()
    path = str(tmp_path / "job.toml")
    assert main(["check", path]) == 0
    assert "its release has been made, and a fit completes it for nothing" in capsys.readouterr().out
    monkeypatch.setattr(MultiOutcomeRidge, "fit", None)
    assert main(["fit", path]) == 0
    assert capsys.readouterr().out.startswith("completed what an earlier run had paid for; spent epsilon 1, ")
    assert np.array_equal(MultiOutcomeRidge.load(tmp_path / "fit" / "model.json").coef_, model.complete().coef_)
    assert len(Ledger.open(tmp_path / "people.json").costs) == 1
    assert names(tmp_path) == {"table.csv", "job.toml", "people.json", "people.json-journal", "fit"}


def test_under_add_remove_nothing_tells_how_many_rows_there_were(job, tmp_path, monkeypatch):
    """Two tables of other lengths and the same sums: from one seed, every byte of what is written is the same."""
    monkeypatch.setattr("dpfast.ledger.ledger.now", lambda: "2026-01-01T00:00:00+00:00")
    path = job(estimator='random_state = 1\nadjacency = "add_remove"', output='formats = ["csv"]')
    text = (tmp_path / "job.toml").read_text().replace("fit_intercept = true", "fit_intercept = false")
    (tmp_path / "job.toml").write_text(text)
    written = []
    for extra in (0, 300):
        x = np.r_[np.random.default_rng(0).uniform(-1, 1, 400), np.zeros(extra)]
        pd.DataFrame({NAME: x, "y": x / 2}).to_csv(tmp_path / "table.csv", index=False)
        assert main(["fit", path, "--force", "--quiet"]) == 0
        written.append({one.name: one.read_bytes() for one in (tmp_path / "fit").iterdir()})
    assert "report.html" in written[0]
    assert written[0] == written[1]


def test_a_disk_that_is_full_leaves_the_former_results_whole(job, tmp_path, capsys, monkeypatch):
    path = job(output='formats = ["csv"]\nplots = false')
    assert main(["fit", path, "--quiet"]) == 0
    former = {one.name: one.read_bytes() for one in (tmp_path / "fit").iterdir()}
    write = outputs.replace_file
    for name in former.keys() - {"model.json"}:

        def full(path, content, temporary, name=name):
            if path.endswith(name):
                raise OSError(28, "No space left on device", path)
            write(path, content, temporary)

        monkeypatch.setattr(outputs, "replace_file", full)
        assert main(["fit", path, "--force", "--quiet"]) == 1
        assert "No space left on device" in capsys.readouterr().err
        assert {one.name: one.read_bytes() for one in (tmp_path / "fit").iterdir()} == former


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOB_TYPES)
def test_every_kind_of_job_writes_every_format_from_its_template_on(kind, tmp_path):
    assert main(["fit", str(write_job(tmp_path, kind)), "--quiet"]) == 0
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    record = json.loads((folder / "report.json").read_text())
    assert set(record["files"]) == names(folder)
    assert record["kind"] == kind
    pictured = {path.stem for path in folder.glob("*.png")}
    assert pictured == {path.stem for path in folder.glob("*.svg")}
    assert bool(pictured) == (kind not in ("describe", "private_standard_scaler"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    assert len(Page((folder / "report.html").read_text()).loaded) == len(pictured)
    for name, columns in record["tables"].items():
        with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        table = parquet.read_table(folder / f"{name}.parquet").to_pydict()
        assert list(table) == columns == list(rows[0])
        for column, entries in table.items():
            texts = [row[column] for row in rows]
            assert texts == ["" if one is None else str(one) for one in entries]


def test_an_interrupt_while_results_are_written_loses_none(job, tmp_path, monkeypatch):
    calls = []

    def interrupted_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return report.as_html(*arguments)

    monkeypatch.setattr(outputs, "as_html", interrupted_once)
    assert main(["fit", job(output="plots = false")]) == 130
    assert names(tmp_path / "fit") == REPORTS | {"coefficients.csv", "coefficients.parquet"}
    assert names(tmp_path) == {"table.csv", "job.toml", "fit"}


def test_pictures_leave_the_settings_of_their_user_alone():
    import matplotlib
    from matplotlib.figure import Figure

    def figures():
        assert not matplotlib.rcParams["text.parse_math"]
        return {"one": Figure()}

    with matplotlib.rc_context({"figure.facecolor": "red", "svg.hashsalt": "mine"}):
        before = dict(matplotlib.rcParams)
        drawn = report.drawn(figures, ["svg"])
        assert dict(matplotlib.rcParams) == before
    assert b"#ff0000" not in drawn["one"]["svg"]


@pytest.mark.parametrize(
    "name", ["a--b -->", "]]></svg><script>", "\x01\x1b[31m=1", "$\\frac{", "\n\n# new |", "名前", ""]
)
def test_any_name_leaves_pictures_and_reports_well_formed(name):
    def figures():
        return {"one": plotting.coefficients([name, "x"], [name], np.array([[1.0, 2.0]]))}

    ElementTree.fromstring(report.drawn(figures, ["svg"])["one"]["svg"])
    parts = [report.Part(name, [(name, name)], name, tables={"one": {name: [name], "x": [1.0]}}, verbatim=name)]
    page = Page(report.as_html(name, parts))
    assert not page.tags & {"svg", "script"}
    assert page.tables[-1][-1] == "1"
    lines = report.as_markdown(name, parts, []).splitlines()
    assert all(line.isprintable() for line in [*lines, *report.as_html(name, parts).splitlines()])
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")] == [3, 3, 3]


def test_long_tables_are_cut_in_reports_and_say_so():
    table = {"state": range(100), "value": np.arange(100.0)}
    parts = [report.Part("Results", tables={"values": table})]
    page = Page(report.as_html("x", parts))
    assert len(page.tables) == 1 + report.MOST_ROWS
    assert "values (the first 60 of 100 rows)" in page.text
    assert report.as_markdown("x", parts, []).count("\n| ") == 2 + report.MOST_ROWS


def test_a_report_says_what_the_header_of_a_summary_says_of_empty_cells(job, tmp_path):
    """Tables of a job have no header: its reports have the reason in its place."""
    assert main(["fit", job(), "--quiet"]) == 0
    table = MultiOutcomeRidge.load(tmp_path / "fit" / "model.json").summary()
    assert table["p_value"].isna().all()
    record = json.loads((tmp_path / "fit" / "report.json").read_text())
    assert record["results"]["note"] == table.attrs["note"]
    page = "".join(Page((tmp_path / "fit" / "report.html").read_text()).text)
    assert table.attrs["note"] in page
