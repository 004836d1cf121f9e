"""Lazy imports: a package shows names of other modules and loads them on first use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
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
        setattr(shown, name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(shown), *homes})

    return get, names
