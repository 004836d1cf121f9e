"""A lock on an open file, which the system takes back when the process dies; it may be held by one run at a time."""

from __future__ import annotations

import contextlib
import os
import sys
from io import FileIO
from pathlib import Path


def locked(path: Path) -> FileIO:
    """Open a file, made with its folder if there is none, and lock it; BlockingIOError if somebody else has it."""
    while True:
        path.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            file = opened.enter_context(FileIO(path, "a+"))
            try:
                _lock(file)
            except (BlockingIOError, PermissionError):
                raise BlockingIOError(
                    f"another run is writing {str(path.parent)!r}: wait until it has ended, then start this one again"
                ) from None
            # Whoever had it may have removed it: others would lock one that is made anew.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                opened.pop_all()
                return file


def _lock(file: FileIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(file: FileIO) -> None:
    """Let others have the lock: not by closing alone, as a child forked meanwhile has the descriptor too."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()
