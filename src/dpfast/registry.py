"""The names and families: read off the package's stub, ``__init__.pyi``, with each name there once.

A family is a folder with an ``estimator.py``; nothing outside its folder names it but a line of the stub. The family
itself gives the rest, in modules of fixed names. ``attacks.py`` has ``attacks(privacy)``, attacks on each of its
mechanisms. ``job.py``, if present, has ``KINDS``, each a `dpfast.jobs.kinds.Kind`. ``demo.py``, if present, has
``lines()`` of the demonstration's table.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from dpfast._lazy import stub_homes

_HERE = os.path.dirname(__file__)


def _is_family(home: str) -> bool:
    return os.path.isfile(os.path.join(_HERE, home.removeprefix("dpfast."), "estimator.py"))


#: The module of every public name.
HOMES = stub_homes(__file__)

#: The family of every estimator.
ESTIMATORS = {name: home.removeprefix("dpfast.") for name, home in HOMES.items() if _is_family(home)}

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
