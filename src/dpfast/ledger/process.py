"""Which process holds a reservation, and whether it is known to have ended."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """One process, told apart from every other that had or will have its number.

    Where the system has no /proc, a process is known by its number alone, and one whose number was given to another
    passes for running.
    """

    host: str  # name of the machine; machines that share a file must have different names
    namespace: int  # of process numbers, which differs between containers; 0 where there is none
    boot: str  # identifies the machine's uptime; empty where it is not known
    pid: int
    started: int  # in clock ticks of that uptime; 0 where it is not known

    @classmethod
    def here(cls) -> Process:
        """Return the process that asks."""
        return _process(os.getpid())

    def ended(self) -> bool:
        """Whether it is certain that the process is gone; of another machine or container that is never certain."""
        here = self.here()
        if (self.host, self.namespace) != (here.host, here.namespace):
            return False
        if self.boot != here.boot:
            return True
        if os.name != "posix":
            return False  # where signal 0 is no question
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        state, started = _state(self.pid)
        return state in ("Z", "X") or (bool(started) and started != self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@functools.cache
def _process(pid: int) -> Process:
    # A forked child has another number, so it does not find what its parent's cache holds.
    namespace, boot = 0, ""
    with contextlib.suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    return Process(platform.node(), namespace, boot, pid, _state(pid)[1])


def _state(pid: int) -> tuple[str, int]:
    """Return a process's state and start, fields 3 and 22 of /proc/PID/stat (proc(5)); empty where hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name, in parentheses, may itself hold blanks and parentheses.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "", 0
    return fields[0].decode(), int(fields[19])
