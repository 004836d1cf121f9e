"""A family that is new costs its folder and a line: it is written as CONTRIBUTING.md says, and put into a copy."""

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
#: Tests of what holds for every family, which find it by the registry.
SHARED = (
    "audit/test_audit_coverage.py",
    "test_catalogue.py",
    "guarantees/test_commit_order.py",
    "guarantees/test_only_releases_leave.py",
    "estimator/test_base_spending.py",
    "test_package.py::test_public_names_import",
    "test_package.py::test_only_noise_draws_randomness",
)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_new_family_is_a_folder_and_a_line(tmp_path, monkeypatch):
    package = tmp_path / "dpfast"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for stub in (PACKAGE / "kernels").glob("*.pyi"):  # of an editable install kernels lie elsewhere
        shutil.copy2(import_module(f"dpfast.kernels.{stub.stem}").__file__, package / "kernels")
    before = contents(package)

    shutil.copytree(TESTS / "new_family" / "mean_of_rows", package / "mean_of_rows")
    with (package / "__init__.pyi").open("a") as registry:
        registry.write(LINE)
    after = contents(package)
    touched = {path for path in after if after[path] != before.get(path)} | (before.keys() - after.keys())
    assert {Path(path).parts[0] for path in touched} == {"__init__.pyi", "mean_of_rows"}

    monkeypatch.syspath_prepend(TESTS.parent / "tools")
    import_module("building").put_first(tmp_path)
    own = TESTS / "new_family" / "tests"
    path = os.pathsep.join(filter(None, (str(tmp_path), str(own), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += [str(TESTS / "new_family" / "checks.py"), *(str(TESTS / name) for name in SHARED)]
    command += [
        "--basetemp",
        str(tmp_path / "checks"),
        "-k",
        "mean or Mean or coverage or checks or public_names or noise",
    ]
    done = subprocess.run(
        command, cwd=TESTS.parent, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
