"""A family that is new costs its folder and a line: two are written as the documentation says, and put into a copy."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dpfast

ROOT = Path(__file__).parents[1]
PACKAGE = Path(dpfast.__file__).parent
#: Families as they lie in a tree: the folder of each, its tests, its pages, and the job that it writes.
NEW = ROOT / "tests" / "new_family"
NAMES = {"mean_of_rows": "MeanOfRows", "column_quantiles": "ColumnQuantiles"}
#: A page is listed after another one: by the tables of contents.
LISTED = {"docs/api/index.md": ("common", [*NAMES]), "docs/proofs/index.md": ("selection", ["column_quantiles"])}
#: Tests of all families at once, which are not named after one.
OF_ALL = [
    "demo_shows_every",
    "every_family_lists",
    "every_mechanism_stands",
    "every_page_is_in_the_table",
    "job_for_every",
    "line_that_draws_noise",
    "long_file_has_a_test",
    "reference_holds_every",
    "what_is_listed_are_checks",
]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(tree):
    """Copy what is tested, and what tests read, as a tree."""
    package, made = tree / "src" / "dpfast", shutil.ignore_patterns("__pycache__", "_build", "auto_gallery")
    shutil.copytree(PACKAGE, package, ignore=made)
    compiled = [f"kernels.{stub.stem}" for stub in (PACKAGE / "kernels").glob("*.pyi")]
    for name in [*compiled, "_transaction"]:  # of an editable install they lie elsewhere
        file = import_module(f"dpfast.{name}").__file__
        shutil.copy2(file, package / "kernels" if name in compiled else package)
    for folder in ("docs", "examples", "tests", "tools"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=made)
    shutil.copy2(ROOT / "pyproject.toml", tree)
    return package


@pytest.mark.slow
def test_a_new_family_is_a_folder_and_a_line(tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    package = copied(tree)
    before = contents(package)

    shutil.copytree(NEW, tree, dirs_exist_ok=True)
    with (package / "__init__.pyi").open("a") as registry:
        registry.writelines(f"from dpfast.{family} import {name} as {name}\n" for family, name in NAMES.items())
    after = contents(package)
    touched = {path for path in after if after[path] != before.get(path)} | (before.keys() - after.keys())
    assert {Path(path).parts[0] for path in touched} == {"__init__.pyi", *NAMES}
    for page, (last, pages) in LISTED.items():
        text = (tree / page).read_text("utf-8")
        (tree / page).write_text(text.replace(f"\n{last}\n", "\n".join(["", last, *pages, ""]), 1), "utf-8")

    monkeypatch.syspath_prepend(ROOT / "tools")
    import_module("building").put_first(tree / "src")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])}
    theirs = " or ".join([*NAMES, *NAMES.values(), *OF_ALL])
    run = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--basetemp", tmp_path / "run"]
    examples = ["--doctest-modules", *(f"src/dpfast/{family}" for family in NAMES)]
    for selected in (["-k", theirs], examples):
        done = subprocess.run([*run, *selected], cwd=tree, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-5000:]
