"""The documentation, as far as it can be held to the code without building it: its code runs, its links lead on."""

import math
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from pages import DOCS, ROOT, leads_somewhere, links, python_blocks, run, written_pages
from scipy.stats import norm

import dpfast
from dpfast.cli import main
from dpfast.privacy import gaussian_mu

PAGES = written_pages()
#: A comment of MyST, for a page that takes more than two seconds.
SLOW = "% slow\n"
#: Characters that the column of a page has room for, on a screen of 1280 pixels.
WIDE = 92
JOINED = re.DOTALL | re.MULTILINE
TREE = re.compile(r"^```{toctree}\n(.*?)^```$", JOINED)


def marked(page):
    marks = [pytest.mark.slow] if SLOW in page.read_text(encoding="utf-8") else []
    return pytest.param(page, id=str(page.relative_to(DOCS)), marks=marks)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if python_blocks(page)])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)  # of benchmarks
    try:
        run(page, tmp_path)
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_code_does_not_scroll(page):
    blocks = re.findall(r"^```(?:python|toml|console)\n(.*?)^```$", page.read_text(encoding="utf-8"), JOINED)
    assert [line for block in blocks for line in block.splitlines() if len(line) > WIDE] == []


def test_jobs_are_taken_by_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jobs = [job for page in PAGES for job in re.findall(r"^```toml\n(.*?)^```$", page.read_text("utf-8"), JOINED)]
    assert jobs
    for job in jobs:
        Path("job.toml").write_text(job, encoding="utf-8")
        assert main(["plan", "job.toml"]) == 0


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert [link for link in links(page) if not leads_somewhere(link, page)] == []


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    named = re.findall(r"(?<![\w/])(?:tests|src|tools|benchmarks|docs)/[\w./<>*-]+", page.read_text(encoding="utf-8"))
    paths = {name.rstrip(".") for name in named if not re.search(r"[<>]|/_build", name)}
    assert [path for path in sorted(paths) if not list(ROOT.glob(path))] == []


def test_a_link_that_leads_nowhere_is_seen():
    page = DOCS / "index.md"
    assert leads_somewhere("start.md", page)
    assert not leads_somewhere("stop.md", page)
    assert not leads_somewhere("start.md#no-such-heading", page)
    assert not leads_somewhere("auto_gallery/plot_nothing.rst", page)


def test_every_page_is_in_the_table_of_contents_of_its_folder():
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for tree in re.findall(
            r"^```{toctree}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            for entry in re.findall(r"^(?!:)(?:.*<(.+)>|(\S+))$", tree, re.MULTILINE):
                name = entry[0] or entry[1]
                base = DOCS if name.startswith("/") else page.parent
                listed.add(base / f"{name.removeprefix('/').removesuffix('.md')}.md")
    assert [str(page) for page in PAGES if page not in listed] == []


def test_the_reference_holds_every_public_name():
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    whole = set(re.findall(r"\.\. automodule:: ([\w.]+)", reference))
    single = set(re.findall(r"\.\. (?:auto(?:class|function|exception)|py:data):: ([\w.]+)", reference))
    packages = [f"dpfast.{folder}" for folder in dpfast._FOLDERS if folder not in ("releases", "papers")]
    packages += ["dpfast.jobs", "dpfast.plotting", "dpfast.selection", "dpfast.scaling", "dpfast.convex_erm"]
    names = {f"dpfast.{name}" for name in dpfast.__all__}
    for package in map(import_module, packages):
        listed = set(getattr(package, "__all__", ())) - set(dpfast.__all__)
        if package.__name__ in whole:  # Sphinx shows what has a docstring of its own: not types and constants
            listed = {name for name in listed if not hasattr(getattr(package, name), "__qualname__")}
        names |= {f"{package.__name__}.{name}" for name in listed}
    assert names - single - {"dpfast.statistics.StateEncoder"} == set()  # which is io's


def test_the_home_page_shows_the_first_fit(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    table = import_module("first_fit").fit().summary()
    rows = re.findall(r"^\| (\S+) \| (-?\d.*) \|$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: [float(cell) for cell in cells.split(" | ")] for name, cells in rows}
    wanted = table.drop(columns="std_privacy").T.to_dict("list")
    assert list(shown) == list(wanted)
    for name, numbers in wanted.items():
        assert shown[name] == pytest.approx(numbers, abs=0.011)
    low, high = (f"{wanted['bmi'][place]:.2f}" for place in (2, 3))
    estimate, error = (f"{wanted['bmi'][place]:.2f}" for place in (0, 1))
    said = f"of body mass index: {estimate}, standard error {error}, limits {low} to {high}"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_speed_of_the_first_screens_is_that_of_the_page_of_performance():
    row = r"^\| 1,000,000 rows of 20 \| 1 \| NumPy `X.T @ X` \| ([\d.]+) ms \| .* \*\*([\d.]+)\*\*"
    time, times = re.search(row, (DOCS / "performance.md").read_text(encoding="utf-8"), re.MULTILINE).groups()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"in {float(time):.0f} ms, {float(times):.1f} times as fast as NumPy's" in readme
    assert f"in {float(time):.0f} ms](performance.md)" in (DOCS / "index.md").read_text(encoding="utf-8")


def test_the_figures_of_what_an_attacker_gains():
    page = (DOCS / "concepts" / "epsilon.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| 5 \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    delta, wrongly = 1e-6, 0.05
    for epsilon, gaussian, most in (map(float, row) for row in rows):
        power = norm.cdf(norm.ppf(wrongly) + gaussian_mu(epsilon, delta))
        bounds = math.exp(epsilon) * wrongly + delta, 1 - math.exp(-epsilon) * (1 - wrongly - delta)
        assert (gaussian, most) == pytest.approx((100 * power, 100 * min(bounds)), abs=0.0501)


def test_the_delta_of_a_family_of_four():
    told = f"{1e-6 * sum(math.exp(j) for j in range(4)):.2e}".replace("e-0", "e-")
    assert f"a family of 4 at (1, 1e-6) has (4, {told})" in (DOCS / "threat_model.md").read_text(encoding="utf-8")
