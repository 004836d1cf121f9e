"""Other libraries' errors, replaced by our own: theirs may quote what stands in a table, or count its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_own_words(read: Callable[[], T], problem: str, kind: type[Exception] = ValueError) -> T:
    """Call `read`; if it raises anything, raise `problem` in its place.

    The error is raised when the other one has been dealt with: it has neither cause nor context, which a traceback or a
    log would print.

    Examples
    --------
    >>> from dpfast.io.own_words import in_own_words
    >>> try:
    ...     in_own_words(lambda: float("secret"), "X holds text")
    ... except ValueError as error:
    ...     print(error, error.__context__)
    X holds text None
    """
    try:
        return read()
    except MemoryError:
        error: Exception = MemoryError("too little memory for the table")
    except Exception:
        error = kind(problem)
    raise error
