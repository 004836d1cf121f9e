"""Whatever programs could import, they still can: the modules and names of version 0.1.0, and where they are now."""

import importlib
from pathlib import Path

import pytest

import dpfast
from dpfast import _moved

# A module a line, and the names that it lists as public.
OLD = (Path(__file__).parent / "data" / "public_names.txt").read_text().splitlines()


@pytest.mark.parametrize("line", OLD, ids=lambda line: line.split()[0])
def test_an_old_module_is_imported_with_its_names(line):
    module, *names = line.split()
    found = importlib.import_module(module)
    assert [name for name in names if not hasattr(found, name)] == []


def test_a_moved_module_is_the_one_that_there_is():
    for old, new in _moved.MOVED.items():
        assert importlib.import_module(old) is importlib.import_module(new)
        assert importlib.import_module(new).__spec__.name == new


def test_modules_of_a_package_that_has_moved_are_not_loaded_again():
    """A package under its old name has a path of its own, on which they would be found."""
    found = importlib.import_module("dpfast.objective_perturbation.estimator")
    assert found is importlib.import_module("dpfast.convex_erm.estimator")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dpfast.objective_perturbation.nothing")


def test_what_has_not_moved_is_not_found_under_another_name():
    package = Path(dpfast.__file__).parent
    for old in _moved.MOVED:
        path = package.parent / Path(*old.split("."))
        assert not path.with_suffix(".py").exists(), old
        assert not (path / "__init__.py").exists(), old
