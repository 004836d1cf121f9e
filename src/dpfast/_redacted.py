"""Nothing said of people's rows by other code: NumPy's warnings, errors of libraries and of callers' functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Terminated(KeyboardInterrupt):
    """The process was asked to end, as schedulers do; it says nothing else, and so may be raised anew."""

    #: What a command then returns, as shells have it.
    status, said = 143, "terminated"


def suppress_float_warnings(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function that reads people's rows, or predicts from them.

    One row is enough for an overflow: meanwhile there is no warning of one, and no FloatingPointError where the caller
    requested these. What overflows ends beyond a bound, or is refused. And NumPy's MemoryError tells a table's shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast._redacted import suppress_float_warnings
    >>> with np.errstate(all="raise"):
    ...     print(suppress_float_warnings(np.multiply)(1e308, 10.0))
    inf
    """
    silent = np.errstate(all="ignore")(function)

    @wraps(function)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return silent(*args, **kwargs)
        except MemoryError:
            pass
        raise MemoryError("too little memory for the table")

    return wrapper


def redact_errors(read: Callable[[], Result], problem: str, kind: type[Exception] = ValueError) -> Result:
    """Call `read`; if it raises anything, raise `problem` in its place, or an interrupt without words.

    The error is raised when the other one has been dealt with: it has neither cause nor context, which a traceback or a
    log would print.

    Examples
    --------
    >>> from dpfast._redacted import redact_errors
    >>> try:
    ...     redact_errors(lambda: float("secret"), "X holds text")
    ... except ValueError as error:
    ...     print(error, error.__context__)
    X holds text None
    """
    try:
        return read()
    except MemoryError:
        error: BaseException = MemoryError("too little memory for the table")
    except Terminated:
        error = Terminated()
    except (KeyboardInterrupt, GeneratorExit):
        # It ends what goes on, whatever it says.
        error = KeyboardInterrupt()
    except SystemExit:
        error = SystemExit(1)
    except Exception:
        error = kind(problem)
    raise error
