"""What the package as a whole gives families that are in its registry."""

import subprocess
import sys
from pathlib import Path

import pytest

import dpfast
from dpfast import registry

FAMILIES = {"MeanOfRows": "mean_of_rows", "ColumnQuantiles": "column_quantiles"}


@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_in_the_registry(name):
    assert registry.ESTIMATORS[name] == FAMILIES[name]
    assert name in dpfast.__all__


def test_the_import_rule_holds_with_column_quantiles_and_mean_of_rows():
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--config", str(Path(__file__).parents[2] / "pyproject.toml"), "--no-cache"]
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
