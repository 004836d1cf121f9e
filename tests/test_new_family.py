"""A family that is new costs its folder and a line: it is written as the documentation says, and put into a copy."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dpfast

TESTS = Path(__file__).parent
PACKAGE = Path(dpfast.__file__).parent
LINE = "from dpfast.mean_of_rows import MeanOfRows as MeanOfRows\n"
#: What every family owes: these find the new one by the registry.
SHARED = [
    "guarantees/test_commit_order.py",
    "guarantees/test_estimator_conventions.py",
    "guarantees/test_hostile_tables.py",
    "guarantees/test_interrupts.py",
    "guarantees/test_labels_decide_nothing.py",
    "guarantees/test_only_releases_leave.py",
    "guarantees/test_rows_stand_alone.py",
    "audit/test_audit.py",
    "audit/test_audit_coverage.py",
    "estimator/test_base_spending.py",
    "test_catalogue.py",
    "test_cli.py",
]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_new_family_is_a_folder_and_a_line(tmp_path, monkeypatch):
    package = tmp_path / "dpfast"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    compiled = [f"kernels.{stub.stem}" for stub in (PACKAGE / "kernels").glob("*.pyi")]
    for name in [*compiled, "_transaction"]:  # of an editable install they lie elsewhere
        file = import_module(f"dpfast.{name}").__file__
        shutil.copy2(file, package / "kernels" if name in compiled else package)
    before = contents(package)

    shutil.copytree(TESTS / "new_family" / "mean_of_rows", package / "mean_of_rows")
    with (package / "__init__.pyi").open("a") as registry:
        registry.write(LINE)
    after = contents(package)
    touched = {path for path in after if after[path] != before.get(path)} | (before.keys() - after.keys())
    assert {Path(path).parts[0] for path in touched} == {"__init__.pyi", "mean_of_rows"}

    monkeypatch.syspath_prepend(TESTS.parent / "tools")
    import_module("building").put_first(tmp_path)
    on_path = [str(tmp_path), str(TESTS / "new_family" / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, on_path))}
    run = f"{sys.executable} -m pytest -q -n 0 -p no:cacheprovider --basetemp {tmp_path / 'run'}".split()
    for tests in (["new_family/checks.py"], ["-k", "MeanOfRows", *SHARED]):
        names = [str(TESTS / name) if name.endswith(".py") else name for name in tests]
        done = subprocess.run(
            [*run, *names], cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-5000:]
