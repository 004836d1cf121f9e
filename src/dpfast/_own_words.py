"""Errors of other libraries, and of callers' functions, replaced by our own: theirs may quote or count rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_own_words(read: Callable[[], T], problem: str, kind: type[Exception] = ValueError) -> T:
    """Call `read`; if it raises anything, raise `problem` in its place, or an interrupt without words.

    The error is raised when the other one has been dealt with: it has neither cause nor context, which a traceback or a
    log would print.

    Examples
    --------
    >>> from dpfast._own_words import in_own_words
    >>> try:
    ...     in_own_words(lambda: float("secret"), "X holds text")
    ... except ValueError as error:
    ...     print(error, error.__context__)
    X holds text None
    """
    try:
        return read()
    except MemoryError:
        error: BaseException = MemoryError("too little memory for the table")
    except (KeyboardInterrupt, GeneratorExit):
        # It ends what goes on, whatever it says.
        error = KeyboardInterrupt()
    except SystemExit:
        error = SystemExit(1)
    except Exception:
        error = kind(problem)
    raise error
