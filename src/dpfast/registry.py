"""The names and families: read off stubs, ``__init__.pyi``, with each name there once; and lazy imports of names.

A family is a folder with an ``estimator.py``; nothing outside its folder names it but a line of the stub. The family
itself gives the rest, in modules of fixed names. ``attacks.py`` has ``attacks(privacy)``, attacks on each of its
mechanisms. ``job.py``, if present, has ``JOB_TYPES``, each a `dpfast.jobs.job_types.JobType`. ``demo.py``, if present,
has ``lines()`` of the demonstration's table.

A package shows names of other modules, and loads them on first use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


def stub_homes(path: str) -> dict[str, str]:
    """Return the module of each name of a package, read off the stub beside its file.

    Its lines have the form ``from module import name as name``; importing ast would take longer than all of this.
    """
    with open(os.path.join(os.path.dirname(path), "__init__.pyi"), encoding="utf-8") as stub:
        imports = [line.split() for line in stub if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in imports}


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that shows the names of `homes`, each with its module.

    A module of the package itself has the package as its home.
    """
    shown = sys.modules[package]

    class Package(ModuleType):
        """Keeps names from modules of the same spelling, which Python sets on the package once they are imported."""

        def __setattr__(self, name: str, value: Any) -> None:
            if not isinstance(value, ModuleType) or homes.get(name, package) == package:
                super().__setattr__(name, value)

    shown.__class__ = Package

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        found = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        from dpfast._arguments import explaining

        found = explaining(found)
        setattr(shown, name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(shown), *homes})

    return get, names


_HERE = os.path.dirname(__file__)

#: The module of every public name.
HOMES = stub_homes(__file__)

_FOLDERS = {name: home.removeprefix("dpfast.") for name, home in HOMES.items()}
#: The family of every estimator.
ESTIMATORS = {name: one for name, one in _FOLDERS.items() if os.path.isfile(os.path.join(_HERE, one, "estimator.py"))}

#: The folders of the families.
FAMILIES = tuple(sorted(set(ESTIMATORS.values())))


def estimator(name: str) -> type[Any]:
    """Return a public estimator by its name."""
    found: type[Any] = getattr(import_module(f"dpfast.{ESTIMATORS[name]}"), name)
    return found


@cache
def parts(name: str) -> tuple[ModuleType, ...]:
    """Return the modules of that name, from all families and other folders with public names."""
    from importlib.util import find_spec

    folders = {home.split(".")[1] for home in HOMES.values()}
    modules = [f"dpfast.{folder}.{name}" for folder in sorted(folders)]
    return tuple(import_module(module) for module in modules if find_spec(module) is not None)
