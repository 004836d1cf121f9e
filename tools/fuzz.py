"""Run fuzz targets, each for a given time, and print what was found.

    python tools/fuzz.py --seconds 600                    # every target
    python tools/fuzz.py --seconds 60 gram_sums read_csv  # some of them
    python tools/fuzz.py --seed 7 --execution 1234 read_csv  # one execution again

Under tools/sanitize.py reads and writes out of bounds, and undefined behaviour, end the process: a finding too. Each
target runs in a process of its own, which is watched: a process that dies, or an execution that takes longer than the
limit, is reported by its number, and the next execution begins in a new process. Targets stand in tests/fuzz_targets.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fuzz_targets import Target, all_targets

_PROGRESS = struct.Struct("qqd")  # the execution under way, executions so far, and when this one began
_MOST_MEMORY = 8 << 30
_MOST_RESTARTS = 20


@dataclass
class Outcome:
    """What became of a target."""

    executions: int = 0
    findings: list[str] = field(default_factory=list)


class Progress:
    """Numbers that a process shares with the one that watches it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _PROGRESS.size)

    def write(self, execution: int, done: int) -> None:
        """Note that an execution begins."""
        self._memory[:] = _PROGRESS.pack(execution, done, time.monotonic())

    def read(self) -> tuple[int, int, float]:
        """Return the execution under way, how many are done, and when it began."""
        execution, done, began = _PROGRESS.unpack(self._memory[:])
        return execution, done, began


def run_for(target: Target, seed: int, first: int, deadline: float, progress: Progress, findings: int) -> None:
    """Execute until the deadline, in the watched process; write each kind of finding once."""
    ignored: list[BaseException | None] = []
    sys.unraisablehook = lambda event: ignored.append(event.exc_value)  # a bounds check where nothing can be raised
    seen = set()
    for done, execution in enumerate(count(first)):
        progress.write(execution, done)
        if time.monotonic() >= deadline:
            return
        try:
            target.execute(seed, execution)
            while ignored:
                raise AssertionError("an exception was ignored") from ignored.pop()
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind = type(error), place.filename, place.lineno
            if kind not in seen:
                seen.add(kind)
                text = f"execution {execution}: {''.join(traceback.format_exception(error, limit=-12))}"
                os.write(findings, text.encode(errors="replace") + b"\0")


def fuzz(target: Target, seed: int, seconds: float, limit: float) -> Outcome:
    """Run a target for so many seconds."""
    outcome, first, deadline = Outcome(), 0, time.monotonic() + seconds
    for _ in range(_MOST_RESTARTS):
        progress = Progress()
        progress.write(first, 0)
        sys.stdout.flush()
        with tempfile.TemporaryFile(buffering=0) as findings:
            child = os.fork()
            if child == 0:
                warnings.simplefilter("ignore")
                run_for(target, seed, first, deadline, progress, findings.fileno())
                os._exit(0)
            status = watch(child, progress, limit)
            findings.seek(0)
            outcome.findings += [text.decode() for text in findings.read().split(b"\0") if text]
        execution, done, _ = progress.read()
        outcome.executions += done
        if status == 0:
            break
        how = f"took longer than {limit:g} s" if status is None else f"died, status {status}"
        outcome.findings.append(f"execution {execution}: {how}")
        first = execution + 1
        if time.monotonic() >= deadline:
            break
    return outcome


def watch(child: int, progress: Progress, limit: float) -> int | None:
    """Wait for a process; return its status, or None after killing it because an execution took too long."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() - progress.read()[2] > limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)


def main() -> int:
    """Parse the command line, fuzz, print a line for each target and every finding."""
    targets = all_targets()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *targets], help="default: all of them")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each target (default: 5)")
    parser.add_argument("--limit", type=float, default=20.0, help="most seconds of one execution (default: 20)")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--execution", type=int, help="run this one alone, here")
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if options.seed is None else options.seed
    chosen = options.targets or list(targets)
    if options.execution is not None:
        for name in chosen:
            targets[name].execute(seed, options.execution)
        return 0
    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # its shadow memory needs the whole address space
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    n_findings = 0
    for name in chosen:
        outcome = fuzz(targets[name], seed, options.seconds, options.limit)
        n_findings += len(outcome.findings)
        print(f"{name:24} {outcome.executions:10,} executions, {len(outcome.findings)} findings, seed {seed}")
        for finding in outcome.findings:
            print(f"  --seed {seed} --execution {finding.removeprefix('execution ')}", flush=True)
    print(f"{n_findings} findings")
    return 1 if n_findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
