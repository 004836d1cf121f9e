"""Predictions as frames, on request by `set_output`, with the index of the table predicted from.

Arrays are returned otherwise, also for frames: scikit-learn's stacking, calibration, transformed targets and scorers
of probabilities slice and reshape what an estimator predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._optional import optional

Container = Literal["default", "pandas", "polars"]


def with_output(config: dict[str, str], predict: Container) -> dict[str, str]:
    """Return the configuration of `set_output` with this setting; ImportError if the library is not installed."""
    if check.choice("predict", predict, get_args(Container)) != "default":
        _library(predict)
    return config | {"predict": predict}


def presented(
    config: dict[str, str],
    values: NDArray[Any],
    given: Any,
    names: Sequence[Any] | None,
    name: Any = None,
    rows: Any = None,
) -> Any:
    """Return predictions from `given` as requested: several columns by their names, one by its own.

    Their rows are those of `given`, unless they have labels of their own.
    """
    container = config.get("predict", "default")
    if container == "default":
        return values
    library = _library(cast("Container", container))
    columns = [str(k) for k in range(values.shape[1])] if values.ndim == 2 and names is None else names
    if container == "polars":
        if values.ndim == 1:
            return library.Series("" if name is None else str(name), values)
        assert columns is not None
        return library.DataFrame({str(one): values[:, k] for k, one in enumerate(columns)})
    index = getattr(given, "index", None) if rows is None else library.Index(rows)
    index = index if isinstance(index, library.Index) else None
    if values.ndim == 1:
        return library.Series(values, index=index, name=name)
    return library.DataFrame(values, index=index, columns=range(values.shape[1]) if names is None else columns)


def check_output(config: object) -> None:
    """Refuse a value that `set_output` cannot have set: a name read from a file would be imported."""
    if not isinstance(config, dict) or not config.keys() <= {"predict", "transform"}:
        raise ValueError("_sklearn_output_config must say what predictions and transformed rows are returned as")
    for name, container in config.items():
        check.choice(name, container, get_args(Container))


def _library(name: Container) -> Any:
    return optional(name, f"predict={name!r}")


def outcome_names(names: NDArray[np.object_] | None, single: bool) -> tuple[Sequence[Any] | None, Any]:
    """Return the names of columns, and of a single one."""
    if names is None:
        return None, None
    return (None, names[0]) if single else (list(names), None)
