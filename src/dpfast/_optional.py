"""Optional libraries: each is imported only at its use, and has an extra of dpfast that brings it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Library(NamedTuple):
    """The usual name of a library, and the extra that brings it."""

    name: str
    extra: str

    @property
    def missing(self) -> str:
        """The message if it is missing."""
        return f"{self.name}, which is not installed: pip install 'dpfast[{self.extra}]'"


#: By the name that is imported.
LIBRARIES = {
    "dask": Library("Dask", "dask"),
    "dp_accounting": Library("dp-accounting", "accounting"),
    "formulaic": Library("formulaic", "formula"),
    "gymnasium": Library("Gymnasium", "gym"),
    "matplotlib": Library("matplotlib", "plot"),
    "minari": Library("Minari", "minari"),
    "pandas": Library("pandas", "pandas"),
    "polars": Library("Polars", "polars"),
    "pyarrow": Library("PyArrow", "arrow"),
    "pyspark": Library("PySpark", "spark"),
    "tqdm": Library("tqdm", "demo"),
}


def optional(module: str, user: str) -> Any:
    """Import a module of an optional library.

    Parameters
    ----------
    module : str
        Its whole name.
    user : str
        What needs it, in the singular: the subject of the message.

    Raises
    ------
    ImportError
        If it cannot be imported; the message names the extra to install.

    Examples
    --------
    >>> from dpfast._optional import optional
    >>> optional("matplotlib.figure", "a picture").Figure.__name__
    'Figure'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{user} needs {LIBRARIES[module.partition('.')[0]].missing}") from error
