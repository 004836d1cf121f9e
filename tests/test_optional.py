"""Libraries that are not always there: imported by one function, which says which extra brings them."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import dpfast
from dpfast import MultiOutcomeRidge, SyntheticControl
from dpfast._optional import LIBRARIES, optional
from dpfast.datasets import california_prop99
from dpfast.datasets.decision_processes import gymnasium_values
from dpfast.datasets.tables import Panel
from dpfast.io import open_table
from dpfast.statistics import Trajectories

PACKAGE = Path(dpfast.__file__).parent


def imports(tree):
    """Names of modules that are imported as the code runs, and not for type checkers."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (one.name for one in node.names)
            case ast.ImportFrom(level=0):
                yield node.module
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str() as name), *_]):
                yield name
        yield from imports(node)


def test_optional_libraries_are_imported_by_one_function_alone():
    elsewhere = {*LIBRARIES, "distributed", "polars", "duckdb", "h5py"}
    found = {
        path: {name.partition(".")[0] for name in imports(ast.parse(path.read_text()))}
        for path in PACKAGE.rglob("*.py")
    }
    assert len(found) > 150
    assert [path for path, roots in found.items() if roots & elsewhere] == []


def test_every_extra_that_is_named_brings_its_library():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for module, library in LIBRARIES.items():
        brought = {re.split(r"[\[<>=~ ]", one)[0] for one in project["optional-dependencies"][library.extra]}
        assert module.replace("_", "-") in brought, library


@pytest.mark.parametrize("module", LIBRARIES)
def test_one_that_is_missing_is_answered_with_its_extra(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    library = LIBRARIES[module]
    message = f"^what is done needs {library.name}, which is not installed: pip install 'dpfast\\[{library.extra}\\]'$"
    for name in (module, f"{module}.something"):
        with pytest.raises(ImportError, match=message):
            optional(name, "what is done")


def fitted_control():
    return SyntheticControl(1.0, 1e-6).fit(np.random.default_rng(0).uniform(-1, 1, (500, 6)), 4)


USES = {
    "an effect": ("pandas", lambda: fitted_control().effect(np.zeros(6))),
    "a picture": ("matplotlib", lambda: fitted_control().plot(np.zeros(6))),
    "a file": ("pyarrow", lambda: open_table("nowhere.parquet").whole()),
    "a game": ("gymnasium", lambda: gymnasium_values("taxi", 0.9)),
    "an export": ("dp_accounting", lambda: dpfast.Ledger(dpfast.Privacy(1.0)).to_dp_accounting()),
    "walks": (
        "pyarrow",
        lambda: list(Trajectories.iter_sorted("nowhere.parquet", 3, trajectory="a", state="b", reward="c")),
    ),
}


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("use", USES)
def test_what_needs_it_says_so(use, monkeypatch, tmp_path):
    module, run = USES[use]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nowhere.parquet").touch()
    for loaded in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'dpfast\[{LIBRARIES[module].extra}\]'"):
        run()


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
def test_arrays_are_fitted_without_any_of_them(monkeypatch):
    for loaded in [name for name in sys.modules if name.partition(".")[0] in LIBRARIES]:
        monkeypatch.setitem(sys.modules, loaded, None)
    for module in LIBRARIES:
        monkeypatch.setitem(sys.modules, module, None)
    panel = california_prop99()
    assert isinstance(panel, Panel)
    rows = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=2.0, bound_y=1.0, fit_intercept=False).fit(rows, rows[:, 0])
    assert model.predict(rows).shape == (200,)
    assert SyntheticControl(1.0, 1e-6).fit(panel.values, 19).n_pre_ == 19
