"""A few executions of every fuzz target, and a target for every kernel; see tools/fuzz.py."""

from pathlib import Path

import pytest
from fuzz import all_targets

import dpfast

PACKAGE = Path(dpfast.__file__).parent
TARGETS = all_targets()
EXECUTIONS = 25


@pytest.mark.parametrize("name", TARGETS)
def test_executions_find_nothing(name):
    for execution in range(EXECUTIONS):
        TARGETS[name].execute(0, execution)


def test_every_kernel_has_a_target():
    # In an installed package kernels are .so files beside their interfaces.
    kernels = {path.stem for path in (PACKAGE / "kernels").iterdir() if path.suffix in (".pyi", ".py")} - {"__init__"}
    covered = {module for target in TARGETS.values() for module in target.covers}
    assert {f"kernels.{kernel}" for kernel in kernels} <= covered
