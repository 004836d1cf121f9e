"""The pages of proofs: what their tables name is there, and nothing that adds noise is missing from them."""

import ast
import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import dpfast
from dpfast import noise, privacy
from dpfast.releases.mechanism import Mechanism

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "proofs"
PAGES = [*sorted(FOLDER.glob("*.md")), ROOT / "docs" / "defects.md", ROOT / "docs" / "threat_model.md"]
LINK = re.compile(r"\[`([^`\]]+)`\]\(([^)]+)\)")

# Names of privacy that no proof is about: words and warnings.
WARNINGS = {"LargeDeltaWarning", "UnsoundCalibrationWarning", "UtilityWarning"}
WORDS = {"Adjacency", "Calibration", "Composition", "Privacy", "Unit"} | WARNINGS


def rows(page):
    """Return the rows of a page's tables that name a function or a test."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and LINK.search(line)]


def links(page):
    text = page.read_text(encoding="utf-8")
    return [(name, (page.parent / target).resolve()) for name, target in LINK.findall(text)]


def resolved(name):
    """Return what a dotted name below dpfast is, and the module that it is looked up in."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        path = ".".join(["dpfast", *parts[:size]])
        try:
            found = module = importlib.import_module(path)
        except ModuleNotFoundError as missing:
            if not path.startswith(str(missing.name)):
                raise
            continue
        for part in parts[size:]:
            found = getattr(found, part)
        return found, module
    raise AttributeError(name)


@cache
def names_of_tests(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def named():
    """Return the last names of all functions and classes in the tables."""
    found = {name for page in PAGES for row in rows(page) for name, _ in LINK.findall(row) if "::" not in name}
    return {name.rpartition(".")[2] for name in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_functions_and_tests_in_the_tables_are_where_they_are_said_to_be(page):
    found = links(page)
    assert found, "a page of proofs has a table of functions and tests"
    for name, path in found:
        assert path.is_file(), (name, path)
        file, _, test = name.partition("::")
        if test:
            assert path.name == file, name
            assert test in names_of_tests(path), name
        else:
            _, module = resolved(name)
            assert Path(inspect.getfile(module)).parts[-2:] == path.parts[-2:], name


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_every_function_in_a_table_has_a_test_beside_it(page):
    for row in rows(page):
        names = [name for name, _ in LINK.findall(row)]
        assert any("::" in name for name in names) == any("::" not in name for name in names), row


def test_every_calibration_stands_in_a_table():
    samplers = {name for name in noise.__all__ if name[0].islower()} - {"resolve_source"}
    assert (set(privacy.__all__) - WORDS | samplers) - named() == set()


def mechanisms():
    """Return every class of the package that is a mechanism: it says what it costs, and releases."""
    wanted = {name for name in vars(Mechanism) if not name.startswith("_")}
    found = {}
    for info in pkgutil.walk_packages(dpfast.__path__, "dpfast."):
        if ".kernels" in info.name or info.name.endswith("__main__"):
            continue
        for name, kind in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            has = {one for base in kind.__mro__ for one in (*vars(base), *getattr(base, "__annotations__", {}))}
            if kind.__module__ == info.name and wanted <= has and not inspect.isabstract(kind):
                found[name] = kind
    return found


def test_every_mechanism_stands_in_a_table():
    kinds = mechanisms()
    assert {"JointMoments", "NoisySum", "ObjectivePerturbation", "HeldOutPick"} <= set(kinds)
    assert set(kinds) - named() == set()
