"""Which names and families there are: read off the package's stub, ``__init__.pyi``, where each stands once.

A family is a folder with an ``estimator.py``; nothing outside its folder names it but a line of the stub. What else
there is to know of it, it says itself, in modules of fixed names: ``attacks.py`` has ``attacks(privacy)``, attacks on
each of its mechanisms; ``job.py``, where it has one, is a `dpfast.jobs.kinds.Kind`.
"""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_HERE = Path(__file__).parent


def _homes() -> dict[str, str]:
    stub = ast.parse((_HERE / "__init__.pyi").read_text())
    imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {name.name: str(line.module) for line in imports for name in line.names}


#: The module of every public name.
HOMES = _homes()

#: The family of every estimator.
ESTIMATORS = {
    name: home.removeprefix("dpfast.")
    for name, home in HOMES.items()
    if (_HERE / home.removeprefix("dpfast.") / "estimator.py").is_file()
}

#: The folders of the families.
FAMILIES = tuple(sorted(set(ESTIMATORS.values())))


def estimator(name: str) -> type[Any]:
    """Return a public estimator by its name."""
    found: type[Any] = getattr(import_module(f"dpfast.{ESTIMATORS[name]}"), name)
    return found


def parts(name: str) -> list[ModuleType]:
    """Return that module of every family that has one."""
    modules = [f"dpfast.{family}.{name}" for family in FAMILIES]
    return [import_module(module) for module in modules if find_spec(module) is not None]
