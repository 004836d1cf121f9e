"""Exclusive locks on open files: those of POSIX where the system has them, elsewhere (Windows) those of portalocker.

Both are released by the system when a process dies, and belong to an opening of the file: threads exclude each other as
processes do.
"""

from __future__ import annotations

import importlib
from io import FileIO
from typing import Any


def _posix() -> Any:
    try:
        return importlib.import_module("fcntl")
    except ImportError:
        return None


_fcntl = _posix()


def lock(file: FileIO) -> None:
    """Wait until nobody else has the lock, and take it."""
    if _fcntl is not None:
        _fcntl.flock(file, _fcntl.LOCK_EX)
    else:
        portalocker = _portable()
        portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE)


def unlock(file: FileIO) -> None:
    """Let others have the lock: not by closing alone, as a child forked meanwhile has the descriptor too."""
    if _fcntl is not None:
        _fcntl.flock(file, _fcntl.LOCK_UN)
    else:
        _portable().unlock(file)


def _portable() -> Any:
    try:
        return importlib.import_module("portalocker")
    except ImportError as error:
        raise ImportError("portalocker is not installed, which locks ledger files: pip install portalocker") from error
