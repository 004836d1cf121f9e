"""The gallery's scripts: short lessons that anybody can run, of what everybody can import."""

import ast
import runpy
import warnings
from pathlib import Path

import pytest
from looks import MOST, legend_shares, series_that_are_not_seen

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.rglob("plot_*.py"))


def name_of(script):
    return str(script.relative_to(GALLERY))


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_a_script_has_a_title_and_imports_nothing_private(script):
    tree = ast.parse(script.read_text(encoding="utf-8"))
    title, rule, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert set(rule) == {"="}
    assert len(rule) == len(title)
    imported = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (*(getattr(node, "module", None) or "").split("."), *(one.name for one in node.names))
    ]
    assert not [name for name in imported if name.startswith("_")]
    assert not {"benchmarks", "tests"} & set(imported)


def test_every_figure_of_the_papers_is_there():
    names = {script.stem for script in SCRIPTS}
    figures = {f"plot_synthetic_control_figure_{number}" for number in (1, 2, 3, 4, 5, 6, "arxiv_6")}
    figures |= {"plot_primo_figure_1", "plot_policy_evaluation_figure_1"}
    assert figures | {"plot_convex_erm_table_1", "plot_convex_erm_table_2"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_a_script_runs_alone_and_draws(script, monkeypatch):
    """Warnings are errors, but for those that a script expects by name."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.setattr(pyplot, "show", lambda: None)
    try:
        with warnings.catch_warnings():
            runpy.run_path(str(script), run_name="__main__")
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        assert figures
        for figure in figures:
            figure.draw_without_rendering()
            assert any(ax.has_data() or ax.images for ax in figure.axes)
            assert not series_that_are_not_seen(figure)
            assert all(share <= MOST for share in legend_shares(figure))
            assert all(ax.get_xlabel() for ax in figure.axes if ax.lines and ax.get_subplotspec().is_last_row())
    finally:
        pyplot.close("all")
