#!/usr/bin/env python
"""Weaken the package one line at a time and see whether the tests notice.

Every entry of ``tools/weakenings/*.toml`` is a way to be wrong about privacy that still looks right: a factor left out
of a sensitivity, a margin set to zero, a row that is not clipped. Each is applied to a copy of the package, and the
tests that must notice are run on it. A weakening that no test notices is a hole in the tests; one whose text is no
longer found, or found twice, is stale and says nothing: both fail.

    python tools/weaken.py                     all of them
    python tools/weaken.py --part ci           those marked ``ci``
    python tools/weaken.py --only S01 K07      these
    python tools/weaken.py --shard 2/4         the second quarter
    python tools/weaken.py --dry-run           only look for the texts

Needed beside ``dpfast[test]``: meson, ninja, Cython and a C compiler, for the kernels.

An entry states: ``id``; ``defect``, its class; ``file`` under src/dpfast; ``edits``, each of an ``old`` text, the
``new`` one and, where the old one occurs several times on purpose, which of them (``nth``, from 0); ``reason``, what is
lost; ``tests``, the files (or single tests) under tests/ that must notice; ``ci = true`` for a representative of its
class; or, in place of ``tests``, ``equivalent``: why it changes nothing that is promised.
"""

import argparse
import compileall
import math
import os
import py_compile
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path

from building import ROOT, call, put_first

PACKAGE = Path("src", "dpfast")
KERNELS = (".pyx", ".pxd", ".c", ".h")
# Imported once, before the tests of any weakening: each is then run in a fork that need not import them.
PRELOADED = ("pytest", "hypothesis", "numpy", "scipy.stats", "scipy.optimize", "sklearn.base", "pandas", "pyarrow")
PRELOADED += ("mpmath", "threadpoolctl", "dask.array", "dask.dataframe", "cryptography.hazmat.primitives.ciphers.aead")


class Stale(Exception):
    """The text to be weakened is not there, or not there once."""


@dataclass(frozen=True, eq=False)
class Weakening:
    id: str
    defect: str
    file: str
    edits: tuple[dict, ...]
    reason: str
    tests: tuple[str, ...] = ()
    ci: bool = False
    equivalent: str | None = None

    def __post_init__(self):
        if bool(self.tests) == bool(self.equivalent):
            raise ValueError(f"{self.id}: give either tests or why it is equivalent")

    @property
    def in_kernel(self) -> bool:
        return self.file.endswith(KERNELS)

    def applied(self, text: str) -> str:
        """Return the text weakened; an old text that is missing or ambiguous is stale."""
        for edit in self.edits:
            parts = text.split(edit["old"])
            found, nth = len(parts) - 1, edit.get("nth")
            if nth is None and found != 1:
                raise Stale(f"{edit['old']!r} occurs {found} times")
            if nth is not None and not nth < found:
                raise Stale(f"{edit['old']!r} occurs {found} times, the one numbered {nth} is asked for")
            split = (nth or 0) + 1
            text = edit["old"].join(parts[:split]) + edit["new"] + edit["old"].join(parts[split:])
        return text


def listed() -> list[Weakening]:
    """Return all weakenings, file by file."""
    weakenings = []
    for path in sorted((ROOT / "tools" / "weakenings").glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["weakening"]:
            weakenings.append(Weakening(**{k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}))
    repeated = [name for name, times in Counter(w.id for w in weakenings).items() if times > 1]
    if repeated:
        raise ValueError(f"ids used twice: {', '.join(repeated)}")
    return weakenings


class Workspace:
    """A copy of the tree, its build, and a package for every job to weaken."""

    def __init__(self, folder: Path, jobs: int):
        self.tree, self.build = folder / "tree", folder / "build"
        self._copy_tree()
        if not (self.build / "build.ninja").exists():
            call("meson", "setup", self.build, self.tree)
        self.compile()
        self._built = {path: path.read_bytes() for path in self._extensions()}
        self.packages = [self._package(folder / f"package{job}") for job in range(jobs)]

    def _copy_tree(self) -> None:
        command = ("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = {name for name in subprocess.check_output(command, text=True).split("\0") if (ROOT / name).is_file()}
        for path in [path for path in self.tree.rglob("*") if path.is_file()]:
            if path.relative_to(self.tree).as_posix() not in names:
                path.unlink()
        for name in names:
            copy, content = self.tree / name, (ROOT / name).read_bytes()
            if not copy.exists() or copy.read_bytes() != content:  # what stands keeps its time, and its build
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)

    def _package(self, folder: Path) -> Path:
        """Return a folder to be put on the path, with a package of its own."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.tree / PACKAGE, folder / "dpfast", ignore=shutil.ignore_patterns("__pycache__"))
        for path, content in self._built.items():
            (folder / "dpfast" / path.relative_to(self.build / PACKAGE)).write_bytes(content)
        compileall.compile_dir(folder, quiet=2)
        put_first(folder)
        return folder

    def _extensions(self) -> list[Path]:
        return sorted((self.build / PACKAGE).rglob("*.so"))

    def compile(self) -> None:
        call("meson", "compile", "-C", self.build)

    def weaken(self, weakening: Weakening, package: Path) -> None:
        text = weakening.applied((self.tree / PACKAGE / weakening.file).read_text())
        if not weakening.in_kernel:
            file = package / "dpfast" / weakening.file
            file.write_text(text)
            Path(cache_from_source(file)).unlink()  # it may have the size and the second of the weakened file
            return
        source = self.tree / PACKAGE / weakening.file
        whole = source.read_text()
        source.write_text(text)
        try:
            self.compile()
            for path, content in self._built.items():
                if path.read_bytes() != content:
                    (package / "dpfast" / path.relative_to(self.build / PACKAGE)).write_bytes(path.read_bytes())
        finally:
            source.write_text(whole)

    def mend(self, weakening: Weakening, package: Path) -> None:
        if not weakening.in_kernel:
            file = package / "dpfast" / weakening.file
            shutil.copy2(self.tree / PACKAGE / weakening.file, file)
            py_compile.compile(str(file))
            return
        for path, content in self._built.items():
            copy = package / "dpfast" / path.relative_to(self.build / PACKAGE)
            if copy.read_bytes() != content:
                copy.unlink()  # a file that a process has mapped must not be written into
                copy.write_bytes(content)


# In place of an exit status.
_HANGS, _TIMED_OUT = 100, 101


@dataclass
class Run:
    """Tests on one package, in a process of their own: up to the first that fails, or these alone and all of them."""

    tests: tuple[str, ...]
    tree: Path
    package: Path
    log: Path
    timeout: float
    alone: bool = False
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    status: int | None = None  # the exit status; a negative one is the signal that ended the process

    def __post_init__(self):
        self._current = self.log.with_suffix(".test")
        self._failed = self.log.with_suffix(".failed")
        self._current.unlink(missing_ok=True)
        self._failed.unlink(missing_ok=True)
        sys.stdout.flush()
        self._process = os.fork()
        if self._process == 0:
            status = 99
            try:
                status = int(self._pytest())
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)

    def _pytest(self) -> int:
        os.setsid()
        # A shell's background jobs ignore it, and tests of interrupts send it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(self.tree)
        inherited = os.environ.get("PYTHONPATH")
        # Derandomised, and a failing example is not shrunk: what one run notices, every run does.
        os.environ |= {"CI": "true", "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self.package), inherited)))
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self.package))
        exec((self.package / "sitecustomize.py").read_text(), {})

        class Watch:
            @staticmethod
            def pytest_collection_modifyitems(items):
                if self.alone:
                    # A parameter that the weakening changed has another name here: then all of the test's.
                    found = {item.nodeid for item in items}
                    names = {f"tests/{name}" for name in self.tests}
                    names = {name if name in found else name.partition("[")[0] for name in names}
                    items[:] = [i for i in items if names & {i.nodeid, i.nodeid.partition("[")[0]}]

            @staticmethod
            def pytest_runtest_logstart(nodeid):
                self._current.write_text(nodeid)

            @staticmethod
            def pytest_runtest_logreport(report):
                if report.failed:
                    with self._failed.open("a") as file:
                        file.write(f"{report.nodeid.removeprefix('tests/')}\n")

        import pytest

        options = ["-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", "--basetemp", f"{self.package}-tmp"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that were preloaded
        files = sorted({name.partition("::")[0] for name in self.tests})
        options += [f"tests/{name}" for name in files] if self.alone else ["-x", *(f"tests/{n}" for n in self.tests)]
        return pytest.main(options, plugins=[Watch])

    def ended(self) -> bool:
        if self.status is None:
            process, status = os.waitpid(self._process, os.WNOHANG)
            self.seconds = time.monotonic() - self.started
            if process:
                self.status = os.waitstatus_to_exitcode(status)
            elif self.seconds > self.timeout:
                self._end_group()
                os.waitpid(self._process, 0)
                # One test that hangs has noticed something; many that took long have not come to it.
                hangs = self._current.exists() and time.time() - self._current.stat().st_mtime > 0.5 * self.timeout
                self.status = _HANGS if hangs else _TIMED_OUT
            if self.status is not None:
                self._end_group()  # what the tests may have started
        return self.status is not None

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)

    @property
    def outcome(self) -> str:
        # A failed test, a crash in it, or one that does not end: on the whole package it passes, as `void` sees.
        if self.last_test and (self.status in (1, _HANGS) or self.status < 0):
            return "killed"
        return {0: "survived", 4: "stale", 5: "stale", _TIMED_OUT: "timed out"}.get(self.status, "broken")

    @property
    def last_test(self) -> str:
        """The test that was run last: with -x, the one that failed."""
        return self._current.read_text().removeprefix("tests/") if self._current.exists() else ""

    @property
    def failed(self) -> list[str]:
        """The tests that failed, or did not end."""
        failed = self._failed.read_text().splitlines() if self._failed.exists() else []
        return failed if self.status in (0, 1) else [*failed, f"{self.last_test or 'collection'} ({self.outcome})"]


def ordered(chosen: list[Weakening]) -> list[Weakening]:
    """Shuffle by the commit: what a deadline leaves out is something else the next time.

    Kernels come together, first or last: a build holds up the other jobs.
    """
    commit = subprocess.check_output(("git", "-C", str(ROOT), "rev-parse", "HEAD"), text=True)
    order = random.Random(commit)
    shuffled = order.sample(chosen, len(chosen))
    return sorted(shuffled, key=lambda weakening: weakening.in_kernel, reverse=order.random() < 0.5)


def weaken(
    chosen: list[Weakening], workspace: Workspace, timeout: float, deadline: float, logs: Path
) -> dict[str, list[str]]:
    """Run the tests of each weakening; return the ids of each outcome, and the tests that noticed."""
    waiting, free, running = list(reversed(chosen)), list(workspace.packages), {}
    end = time.monotonic() + deadline
    outcomes: dict[str, list[str]] = {"noticing": []}

    def tell(outcome, weakening, seconds, detail):
        outcomes.setdefault(outcome, []).append(weakening.id)
        print(f"{outcome:9} {weakening.id:5} {seconds:6.1f} s  {detail}", flush=True)

    while waiting or running:
        if time.monotonic() > end and waiting:
            outcomes["not tried in time"] = [weakening.id for weakening in waiting]
            waiting.clear()
        while waiting and free:
            weakening, package = waiting.pop(), free.pop()
            try:
                workspace.weaken(weakening, package)
            except Stale as error:
                free.append(package)
                tell("stale", weakening, 0.0, f"{weakening.file}: {error}")
                continue
            except RuntimeError as error:
                workspace.mend(weakening, package)
                free.append(package)
                (logs / f"{weakening.id}.log").write_text(str(error))
                tell("broken", weakening, 0.0, f"{weakening.file} does not build")
                continue
            log = logs / f"{weakening.id}.log"
            running[weakening] = Run(weakening.tests, workspace.tree, package, log, timeout)
        for weakening, run in list(running.items()):
            if run.ended():
                del running[weakening]
                workspace.mend(weakening, run.package)
                free.append(run.package)
                if run.outcome == "killed":
                    outcomes["noticing"].append(run.last_test)
                detail = run.last_test if run.outcome == "killed" else f"{weakening.file}: {weakening.reason}"
                tell(run.outcome, weakening, run.seconds, detail)
        time.sleep(0.02)
    return outcomes


def void(tests: list[str], workspace: Workspace, timeout: float, logs: Path) -> list[str]:
    """Return the tests that fail on the whole package: what they noticed was not the weakening."""
    names, packages = sorted(set(tests)), workspace.packages
    parts = [part for k in range(len(packages)) if (part := tuple(names[k :: len(packages)]))]
    runs = [
        Run(part, workspace.tree, package, logs / f"whole{k}.log", timeout + 10.0 * len(part), alone=True)
        for k, (part, package) in enumerate(zip(parts, packages, strict=False))
    ]
    while not all(run.ended() for run in runs):
        time.sleep(0.05)
    return sorted({name for run in runs for name in run.failed})


def shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 2/4")
    return int(part), int(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="these, or those of a pattern such as K*")
    parser.add_argument("--part", choices=("ci",), help="only those marked for continuous integration")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="the I-th of N parts of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many to test at once (default: 1)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for the tests of one (default: 300)")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds after which none is begun any more")
    parser.add_argument("--folder", type=Path, help="where to build and to log; kept for the next time")
    parser.add_argument("--dry-run", action="store_true", help="only see that every text is found")
    options = parser.parse_args()

    chosen = listed()
    if options.only:
        chosen = [w for w in chosen if any(fnmatchcase(w.id, pattern) for pattern in options.only)]
    if options.part:
        chosen = [w for w in chosen if w.ci]
    chosen = chosen[options.shard[0] - 1 :: options.shard[1]]
    stale = 0
    for weakening in chosen:
        try:
            weakening.applied((ROOT / PACKAGE / weakening.file).read_text())
            for name in weakening.tests:
                if not (ROOT / "tests" / name.partition("::")[0]).exists():
                    raise Stale(f"there is no tests/{name}")
        except (Stale, FileNotFoundError) as error:
            stale += 1
            print(f"stale     {weakening.id:5} {weakening.file}: {error}")
    if options.dry_run or not chosen:
        print(f"{len(chosen)} weakenings, {stale} stale")
        return int(bool(stale) or not chosen)

    started = time.monotonic()
    for name in PRELOADED:
        import_module(name)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="weaken-"))).resolve()
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        workspace = Workspace(folder, options.jobs)
        print(f"built in {time.monotonic() - started:.0f} s", flush=True)
        applied = ordered([w for w in chosen if not w.equivalent])
        outcomes = weaken(applied, workspace, options.timeout, options.deadline, folder / "logs")
        failing = void(outcomes.pop("noticing"), workspace, options.timeout, folder / "logs")
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    for name in failing:
        print(f"fails on the whole package too: {name}")
    if left := outcomes.get("not tried in time"):
        print(f"{len(left)} of {len(applied)} not tried in time: {' '.join(sorted(left))}")
    counts = ", ".join(f"{len(ids)} {outcome}" for outcome, ids in sorted(outcomes.items()))
    equivalent = len(chosen) - len(applied)
    print(f"{len(applied)} weakenings: {counts}; {equivalent} equivalent; {(time.monotonic() - started) / 60:.1f} min")
    return int(bool(failing) or not set(outcomes) <= {"killed", "not tried in time"})


if __name__ == "__main__":
    sys.exit(main())
