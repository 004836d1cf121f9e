"""A few executions of every fuzz target, and a target for every kernel and parser; see tools/fuzz.py."""

import re
from pathlib import Path

import pytest
from fuzz_targets import all_targets

import dpfast

PACKAGE = Path(dpfast.__file__).parent
TARGETS = all_targets()
COVERED = {module for target in TARGETS.values() for module in target.covers}
EXECUTIONS = 25


@pytest.mark.parametrize("name", TARGETS)
def test_executions_find_nothing(name):
    for execution in range(EXECUTIONS):
        TARGETS[name].execute(0, execution)


def test_every_kernel_has_a_target():
    # In an installed package kernels are .so files beside their interfaces.
    kernels = {path.stem for path in (PACKAGE / "kernels").iterdir() if path.suffix in (".pyi", ".py")} - {"__init__"}
    assert {f"kernels.{kernel}" for kernel in kernels} <= COVERED


def test_every_parser_has_a_target():
    reads = re.compile(
        r"\b(json\.load|tomllib\.load|np\.load|open_memmap|csv\.reader|open_csv|ParquetFile|read_schema)"
        r"|\b(read_document|array_from_lists|Release\.from_dict)\("
    )
    paths = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if reads.search(path.read_text())]
    # The data set reads a file of the package's own.
    parsers = {".".join(path.with_suffix("").parts) for path in paths} - {"datasets.tables"}
    assert len(parsers) >= 8
    assert parsers <= COVERED
