"""Nothing said of people's rows by NumPy, whatever its caller has asked it to say."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def quiet(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate what reads people's rows, or predicts from them.

    One row is enough for an overflow: meanwhile there is no warning of one, and no FloatingPointError where the caller
    asked for these. What overflows ends beyond a bound, or is refused. And NumPy's MemoryError tells a table's shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast._quiet import quiet
    >>> with np.errstate(all="raise"):
    ...     print(quiet(np.multiply)(1e308, 10.0))
    inf
    """

    @wraps(function)
    def quietly(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            with np.errstate(all="ignore"):
                return function(*args, **kwargs)
        except MemoryError:
            pass
        raise MemoryError("too little memory for the table")

    return quietly
