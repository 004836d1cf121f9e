#!/usr/bin/env python
"""Weaken the package one place at a time and see whether the tests notice.

A weakening is a mutant: a way to be wrong about privacy that still looks right. The operators of ``operators.py`` make
them from the syntax trees of the files named in CRITICAL; what no operator makes, and kernels, stand by hand in
``tools/weakenings/*.toml``. Each is applied to a copy of the package, and the tests that run the function it is in are
run on it. A weakening that no test notices is a hole in the tests, unless ``tools/survivors.toml`` gives the reason.

    python tools/weaken.py --part ci                    those by hand that are marked ``ci``
    python tools/weaken.py --sample 1                   a sample, one of each file
    python tools/weaken.py --only 'noise/source.py:*'   these; K07 is one of those by hand
    python tools/weaken.py --shard 2/40                 the second of forty parts of all
    python tools/weaken.py --dry-run --only 'noise/*'   only list them

For mutants every fast test is first run once on a copy that records which functions it runs: ten minutes, as long as
continuous integration has. With ``--folder`` the record is kept, and only tests that have changed, or whose subject
has, are run anew.

mutmut mutates only Python, keeps every mutant in one process's module, and knows no operators of one's own; cosmic-ray
runs one command for all mutants, whatever function they are in. Neither builds kernels, drops noise or a commit, nor
sees whether what failed also fails on the whole package.

Needed beside ``dpfast[test]``: meson, ninja, Cython and a C compiler, for the kernels.

An entry by hand states: ``id``; ``file`` under src/dpfast; ``edits``, each of an ``old`` text, the ``new`` one and,
where the old one occurs several times on purpose, which of them (``nth``, from 0); ``reason``, what is lost; ``tests``,
the files or single tests under tests/ that must notice; ``ci = true`` for one to be tried in each run of CI.
"""

import argparse
import ast
import hashlib
import json
import marshal
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
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType

import operators
from building import ROOT, call, put_first

PACKAGE = Path("src", "dpfast")
KERNELS = (".pyx", ".pxd", ".c", ".h")
CRITICAL = "privacy/* noise/* releases/* statistics/* ledger/* io/* kernels/* jobs/* attack/* estimator/* scaling/*"
CRITICAL += " selection/* description/* convex_erm/* _*.py */mechanism.py */estimator.py multi_outcome/weighed.py"
CRITICAL += " policy_evaluation/private_range.py policy_evaluation/staged.py synthetic_control/outcome_range.py"
CRITICAL += " synthetic_control/steps.py synthetic_control/donor_weights.py"
CRITICAL += " solvers/certificates.py solvers/constraints.py solvers/bounds.py solvers/loss*.py"
# What draws nothing and releases nothing: attacks, templates, texts. Of `printed`, tests run a copy of the source.
SPARED = "*/attacks.py *_attacks.py */job.py */results.py */reports.py */documentation.py */page.py */presented.py"
SPARED += " releases/printed.py jobs/templates.py jobs/pictures.py attack/turned_rows.py *__.py _version.py _lazy.py"
SPARED += " _optional.py"
# Tests that run no such file, or take long.
UNASKED = "docs/* plotting/* datasets/* papers/* new_family/* test_new_family.py test_fuzz.py test_c*.py test_budget.py"
UNASKED += " test_mirror.py test_p*.py test_weaken.py io/test_engines_spark.py kernels/test_gaussian_noise.py"
# Imported once, before the tests of any weakening: each is then run in a fork that need not import them.
PRELOADED = ("pytest", "hypothesis", "numpy", "scipy.stats", "scipy.optimize", "sklearn.base", "pandas", "pyarrow")
PRELOADED += ("mpmath", "threadpoolctl", "dask.array", "dask.dataframe", "cryptography.hazmat.primitives.ciphers.aead")


class Stale(Exception):
    """The text to be weakened is not there, or not there once."""


@dataclass(frozen=True, eq=False)
class ByHand:
    """A weakening that no operator makes: texts replaced."""

    id: str
    file: str
    edits: tuple[dict, ...]
    reason: str
    tests: tuple[str, ...] = ()
    ci: bool = False
    defect: str = ""
    equivalent: str = ""

    @property
    def change(self) -> str:
        return self.reason

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

    def check(self) -> None:
        self.applied((ROOT / PACKAGE / self.file).read_text())
        for name in self.tests:
            if not (ROOT / "tests" / name.partition("::")[0]).exists():
                raise Stale(f"there is no tests/{name}")


Weakening = ByHand | operators.Mutant


def by_hand() -> list[ByHand]:
    weakenings = []
    for path in sorted((ROOT / "tools" / "weakenings").glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["weakening"]:
            weakenings.append(ByHand(**{k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}))
    repeated = [name for name, times in Counter(w.id for w in weakenings).items() if times > 1]
    if repeated:
        raise ValueError(f"ids used twice: {', '.join(repeated)}")
    return weakenings


def survivors() -> dict[str, str]:
    """Return why no test notices these mutants, and none needs to."""
    return tomllib.loads((ROOT / "tools" / "survivors.toml").read_text())


def made() -> dict[str, list[operators.Mutant]]:
    """Return the mutants of every critical file."""
    names = sorted(path.relative_to(ROOT / PACKAGE).as_posix() for path in (ROOT / PACKAGE).rglob("*.py"))
    names = [name for name in names if _fits(name, CRITICAL) and not _fits(name, SPARED)]
    return {name: operators.mutants(name, (ROOT / PACKAGE / name).read_text()) for name in names}


def _fits(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


def sampled(mutants: list[operators.Mutant], many: int) -> list[operators.Mutant]:
    """Return some of one file's mutants, of as many operators as can be; what is written elsewhere changes none."""
    rounds: Counter[str] = Counter()
    turns = []
    for mutant in sorted(mutants, key=lambda one: zlib.crc32(one.id.encode())):
        operator = mutant.id.split(":")[2]
        turns.append((rounds[operator], mutant))
        rounds[operator] += 1
    return [mutant for _, mutant in sorted(turns, key=lambda turn: turn[0])[:many]]


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
        for file in folder.rglob("*.py"):
            _put_code(file, _recording(file.relative_to(folder / "dpfast").as_posix(), file.read_text()))
        put_first(folder, "import builtins\nbuiltins._functions_reached = set()\n")
        return folder

    def whole(self) -> None:
        """Put code that records nothing in the place of the code that does."""
        for package in self.packages:
            for file in (package / "dpfast").rglob("*.py"):
                py_compile.compile(str(file))

    def _extensions(self) -> list[Path]:
        return sorted((self.build / PACKAGE).rglob("*.so"))

    def compile(self) -> None:
        call("meson", "compile", "-C", self.build)

    def weaken(self, weakening: Weakening, package: Path) -> None:
        file, source = package / "dpfast" / weakening.file, self.tree / PACKAGE / weakening.file
        if isinstance(weakening, operators.Mutant):
            _put_code(file, weakening.code())
            return
        whole = source.read_text()
        text = weakening.applied(whole)
        if not weakening.file.endswith(KERNELS):
            file.write_text(text)
            Path(cache_from_source(file)).unlink()  # it may have the size and the second of the weakened file
            return
        source.write_text(text)
        try:
            self.compile()
            for path, content in self._built.items():
                if path.read_bytes() != content:
                    (package / "dpfast" / path.relative_to(self.build / PACKAGE)).write_bytes(path.read_bytes())
        finally:
            source.write_text(whole)

    def mend(self, weakening: Weakening, package: Path) -> None:
        if not weakening.file.endswith(KERNELS):
            file = package / "dpfast" / weakening.file
            shutil.copy2(self.tree / PACKAGE / weakening.file, file)
            py_compile.compile(str(file))
            return
        for path, content in self._built.items():
            copy = package / "dpfast" / path.relative_to(self.build / PACKAGE)
            if copy.read_bytes() != content:
                copy.unlink()  # a file that a process has mapped must not be written into
                copy.write_bytes(content)


def _put_code(file: Path, code: CodeType) -> None:
    """Let a module run this code, whatever its file says: a cache whose source is not looked at (PEP 552)."""
    cache = Path(cache_from_source(file))
    cache.parent.mkdir(exist_ok=True)
    cache.write_bytes(MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code))


def _recording(name: str, text: str) -> CodeType:
    """Return a module's code, with a first step in every function that tells that it was reached."""
    module = ast.parse(text)
    for function, node in operators.functions(module):
        begin = 1 if ast.get_docstring(node, clean=False) is not None else 0
        (step,) = ast.parse(f"_functions_reached.add({f'{name}:{function}'!r})").body
        for part in ast.walk(step):
            ast.copy_location(part, node)
        node.body.insert(begin, step)
    return compile(module, name, "exec", dont_inherit=True)


# In place of an exit status.
_HANGS, _TIMED_OUT = 100, 101


@dataclass
class Run:
    """Tests on one package, in a process of their own: up to the first that fails, or all of them (`to_end`)."""

    tests: tuple[str, ...]
    tree: Path
    package: Path
    log: Path
    timeout: float
    to_end: bool = False
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    status: int | None = None  # the exit status; a negative one is the signal that ended the process

    def __post_init__(self):
        self._current = self.log.with_suffix(".test")
        self._told = self.log.with_suffix(".told")
        self._current.unlink(missing_ok=True)
        self._told.unlink(missing_ok=True)
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
        import builtins

        order = {f"tests/{name}": place for place, name in enumerate(self.tests)}

        class Watch:
            seconds, failed = 0.0, False

            @staticmethod
            def pytest_collection_modifyitems(items):
                # A parameter that the weakening changed has another name here: then all of the test's.
                found = {item.nodeid for item in items}
                places = {name if name in found else name.partition("[")[0]: place for name, place in order.items()}
                of = [(p, i) for i in items for n in _containing(i.nodeid) if (p := places.get(n)) is not None]
                items[:] = dict.fromkeys(item for _, item in sorted(of, key=lambda pair: pair[0]))

            def pytest_runtest_logstart(watch, nodeid):
                self._current.write_text(nodeid)
                builtins._functions_reached.clear()
                watch.seconds, watch.failed = 0.0, False

            def pytest_runtest_logreport(watch, report):
                watch.seconds += report.duration
                watch.failed |= report.failed

            def pytest_runtest_logfinish(watch, nodeid):
                with self._told.open("a") as file:
                    functions = sorted(builtins._functions_reached)
                    told = nodeid.removeprefix("tests/"), watch.failed, round(watch.seconds, 3), functions
                    file.write(f"{json.dumps(told)}\n")

        import pytest

        options = ["-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", "--basetemp", f"{self.package}-tmp"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that were preloaded
        options += [] if self.to_end else ["-x"]
        files = dict.fromkeys(f"tests/{name.partition('::')[0]}" for name in self.tests)
        return pytest.main([*options, *files], plugins=[Watch()])

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
        # A failed test, a crash in it, one that does not end, or a package that tests cannot even import.
        if self.status in (1, 2, _HANGS) or self.status < 0:
            return "killed"
        return {0: "survived", 4: "killed", 5: "stale", _TIMED_OUT: "timed out"}.get(self.status, "broken")

    @property
    def last_test(self) -> str:
        """The test that was run last: with -x, the one that failed."""
        return self._current.read_text().removeprefix("tests/") if self._current.exists() else ""

    @property
    def told(self) -> list[tuple[str, bool, float, list[str]]]:
        """Of every test that ended: whether it failed, its seconds, and the functions it reached."""
        return [json.loads(line) for line in self._told.read_text().splitlines()] if self._told.exists() else []


def _containing(nodeid: str) -> list[str]:
    """Return what a test may be asked for by: its own name, that without parameters, its file's."""
    return [nodeid, nodeid.partition("[")[0], nodeid.partition("::")[0]]


class Record:
    """Which tests run which functions, and how long they take; kept by test file."""

    def __init__(self, path: Path):
        self.path = path
        self._files: dict[str, tuple[str, list]] = json.loads(path.read_text()) if path.exists() else {}
        self._tests: dict[str, list[tuple[float, str]]] = {}

    def renew(self, workspace: Workspace, logs: Path) -> int:
        """Run what is new; return how many tests that was."""
        names = sorted(path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
        asked = [n for n in names if not _fits(n, UNASKED)]
        digests = {name: self._digest(name) for name in asked}
        self._files = {name: kept for name, kept in self._files.items() if kept[0] == digests.get(name, kept[0])}
        waiting = [name for name in asked if name not in self._files]
        parts = [tuple(waiting[k : k + 8]) for k in range(0, len(waiting), 8)]
        running: dict[Path, Run] = {}
        n_tests = 0
        while parts or running:
            for package in workspace.packages:
                if package in running and running[package].ended():
                    run = running.pop(package)
                    self._files |= {name: (digests[name], []) for name in run.tests}
                    for nodeid, failed, seconds, functions in run.told:
                        n_tests += 1
                        if not failed:  # steps that record are steps more: a test may count them
                            self._files[nodeid.partition("::")[0]][1].append((nodeid, seconds, functions))
                    self.path.write_text(json.dumps(self._files))
                if package not in running and parts:
                    log = logs / f"record{len(parts)}.log"
                    running[package] = Run(parts.pop(), workspace.tree, package, log, 900.0, to_end=True)
            time.sleep(0.05)
        for _, tests in self._files.values():
            for nodeid, seconds, functions in tests:
                for function in functions:
                    self._tests.setdefault(function, []).append((seconds, nodeid))
        return n_tests

    @staticmethod
    def _digest(name: str) -> str:
        """Return what changes with a test file or its subject."""
        subjects = sorted((ROOT / PACKAGE / name).parent.glob("*.py"))
        texts = [(ROOT / "tests" / name).read_bytes()]
        texts += [path.read_bytes() for path in subjects if _is_own(name, path.relative_to(ROOT / PACKAGE).as_posix())]
        return hashlib.sha256(b"\0".join(texts)).hexdigest()

    def tests(self, mutant: operators.Mutant, patience: float) -> list[tuple[str, ...]]:
        """Return tests that run a mutant's function: its file's own first, quick ones first; a few, then the others.

        What runs as a module is imported, and what no test runs, is left to those of its class and of its file.
        """
        place = f"{mutant.file}:{mutant.function}"
        found = self._tests.get(place, [])
        for prefix in (f"{place}.", f"{mutant.file}:"):
            found = found or [test for name, tests in self._tests.items() if name.startswith(prefix) for test in tests]
        stages, files, total = [[], []], set(), 0.0
        for seconds, nodeid in sorted(set(found), key=lambda test: (not _is_own(test[1], mutant.file), test)):
            file = nodeid.partition("::")[0]
            cost = seconds + (0.3 if file not in files else 0.01)
            # Those of others have a part of the time too: what a file is for may be seen there alone.
            if files and total + cost > patience * (0.6 if _is_own(file, mutant.file) else 1.0):
                continue
            total += cost
            files.add(file)
            stages[total > 4.0].append(nodeid)
        return [tuple(stage) for stage in stages if stage]


def _is_own(test: str, file: str) -> bool:
    """Whether a test is about this file, by its name."""
    name = test.partition("::")[0].replace("test_", "", 1).removesuffix(".py")
    return f"{name}_".startswith(f"{file.removesuffix('.py')}_")


def ordered(chosen: list[Weakening]) -> list[Weakening]:
    """Shuffle by the commit: what a deadline leaves out is something else the next time.

    Kernels come together, first or last: a build holds up the other jobs.
    """
    commit = subprocess.check_output(("git", "-C", str(ROOT), "rev-parse", "HEAD"), text=True)
    order = random.Random(commit)
    shuffled = order.sample(chosen, len(chosen))
    return sorted(shuffled, key=lambda weakening: weakening.file.endswith(KERNELS), reverse=order.random() < 0.5)


def weaken(
    chosen: list[Weakening], workspace: Workspace, record: Record, patience: float, end: float, logs: Path
) -> dict[str, list[str]]:
    """Run the tests of each weakening; return the ids of each outcome, and the tests that noticed."""
    waiting, free, running = list(reversed(chosen)), list(workspace.packages), {}
    outcomes: dict[str, list[str]] = {"noticing": []}

    def tell(outcome, weakening, seconds, detail):
        outcomes.setdefault(outcome, []).append(weakening.id)
        print(f"{outcome:9} {weakening.id:5} {seconds:6.1f} s  {detail}", flush=True)

    def begin(weakening, stages, package):
        log = logs / f"{weakening.id.replace('/', '.')}.log"
        running[weakening] = stages[1:], Run(stages[0], workspace.tree, package, log, 30.0 + 2.0 * patience)

    while waiting or running:
        if time.monotonic() > end and waiting:
            outcomes["not tried in time"] = [weakening.id for weakening in waiting]
            waiting.clear()
        while waiting and free:
            weakening, package = waiting.pop(), free.pop()
            mutated = isinstance(weakening, operators.Mutant)
            stages = record.tests(weakening, patience) if mutated else [weakening.tests]
            if not stages:
                free.append(package)
                tell("unreached", weakening, 0.0, weakening.change)
                continue
            try:
                workspace.weaken(weakening, package)
            except RuntimeError as error:
                workspace.mend(weakening, package)
                free.append(package)
                (logs / f"{weakening.id}.log").write_text(str(error))
                tell("broken", weakening, 0.0, f"{weakening.file} does not build")
                continue
            begin(weakening, stages, package)
        for weakening, (stages, run) in list(running.items()):
            if not run.ended():
                continue
            if run.outcome == "survived" and stages:
                begin(weakening, stages, run.package)
                continue
            del running[weakening]
            workspace.mend(weakening, run.package)
            free.append(run.package)
            if run.outcome == "killed" and run.last_test:
                outcomes["noticing"].append(run.last_test)
            detail = run.last_test if run.outcome == "killed" else weakening.change
            tell(run.outcome, weakening, run.seconds, detail)
        time.sleep(0.02)
    return outcomes


def void(tests: list[str], workspace: Workspace, logs: Path) -> list[str]:
    """Return the tests that fail on the whole package: what they noticed was not the weakening."""
    names, packages = sorted(set(tests)), workspace.packages
    parts = [part for k in range(len(packages)) if (part := tuple(names[k :: len(packages)]))]
    runs = [
        Run(part, workspace.tree, package, logs / f"whole{k}.log", 300.0 + 10.0 * len(part), to_end=True)
        for k, (part, package) in enumerate(zip(parts, packages, strict=False))
    ]
    while not all(run.ended() for run in runs):
        time.sleep(0.05)
    failed = {nodeid for run in runs for nodeid, failed, *_ in run.told if failed}
    broken = {f"{run.last_test or 'collection'} ({run.status})" for run in runs if run.status not in (0, 1)}
    return sorted(failed | broken)


def shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 2/4")
    return int(part), int(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="ID", help="these, or those of a pattern such as noise/*")
    parser.add_argument("--part", choices=("ci",), help="what is marked for continuous integration")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants of every file, and none by hand")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="the I-th of N parts of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many to test at once (default: 1)")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds of tests for a mutant (default: 20)")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds after which none is begun any more")
    parser.add_argument("--folder", type=Path, help="where to build, to record and to log; kept for the next time")
    parser.add_argument("--dry-run", action="store_true", help="only see that everything named is there; list --only")
    options = parser.parse_args()

    started = time.monotonic()
    files, hand = made(), by_hand()
    explained = survivors()
    every = {mutant.id for mutants in files.values() for mutant in mutants}
    stale = sorted(explained.keys() - every)
    for name in stale:
        print(f"stale     {name}: no such mutant")
    for weakening in hand:
        try:
            weakening.check()
        except (Stale, FileNotFoundError) as error:
            stale.append(weakening.id)
            print(f"stale     {weakening.id:5} {weakening.file}: {error}")
    many = options.sample
    made_ones = [m for mutants in files.values() for m in (sampled(mutants, many) if many else mutants)]
    chosen = [w for w in hand if w.ci] if options.part else made_ones + ([] if many else hand)
    if options.only:
        chosen = [w for w in chosen if _fits(w.id, " ".join(options.only))]
    chosen = [w for w in chosen if w.id not in explained][options.shard[0] - 1 :: options.shard[1]]
    if options.dry_run or not chosen:
        for weakening in chosen if options.only else ():
            print(f"{weakening.id}  {weakening.change}")
        print(f"{len(chosen)} weakenings of {len(every)} and {len(hand)} by hand; {len(stale)} stale")
        return int(bool(stale) or not chosen)

    for name in PRELOADED:
        import_module(name)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="weaken-"))).resolve()
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        workspace, record = Workspace(folder, options.jobs), Record(folder / "reached.json")
        print(f"built in {time.monotonic() - started:.0f} s", flush=True)
        # What stands by hand names its tests.
        n_tests = record.renew(workspace, folder / "logs") if set(chosen) - set(hand) else 0
        workspace.whole()
        print(f"recorded {n_tests} tests at {time.monotonic() - started:.0f} s", flush=True)
        end = started + options.deadline
        outcomes = weaken(ordered(chosen), workspace, record, options.patience, end, folder / "logs")
        failing = void(outcomes.pop("noticing"), workspace, folder / "logs")
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    for name in failing:
        print(f"fails on the whole package too: {name}")
    counts = Counter((id_.rpartition("/")[0] or id_, outcome) for outcome, ids in outcomes.items() for id_ in ids)
    for (place, outcome), times in sorted(counts.items()):
        print(f"{place:20} {outcome:18} {times}")
    totals = ", ".join(f"{len(ids)} {outcome}" for outcome, ids in sorted(outcomes.items()))
    minutes = (time.monotonic() - started) / 60.0
    print(f"{len(chosen)} weakenings: {totals}; {len(explained)} survivors explained; {minutes:.1f} min")
    return int(bool(failing or stale) or not set(outcomes) <= {"killed", "not tried in time"})


if __name__ == "__main__":
    sys.exit(main())
