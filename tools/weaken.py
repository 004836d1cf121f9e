#!/usr/bin/env python
"""Weaken the package one place at a time and see whether the tests notice.

A weakening is a mutant: a way to be wrong about privacy that still looks right. Operators make them from the syntax
trees of the files named in CRITICAL; what no operator makes, and kernels, stand by hand in ``tools/weakenings/*.toml``.
Each is applied to a copy of the package, and the tests that run the function it is in are run on it. A weakening that
no test notices is a hole in the tests, unless ``tools/survivors.toml`` gives the reason.

    python tools/weaken.py --part ci                    those by hand that are marked ``ci``
    python tools/weaken.py --sample 1                   a sample, one of each file
    python tools/weaken.py --only 'noise/samplers.py:*'   these; K07 is one of those by hand
    python tools/weaken.py --dry-run --only 'noise/*'   only list them

A mutant is named FILE:FUNCTION:OPERATOR:N, the N-th place in that function that the operator changes, from 0. For
mutants every fast test is first run once on a copy that records which functions it runs: ten minutes. With ``--folder``
the record is kept, and only test files that have changed are run anew. Meson, ninja, Cython and a C compiler are needed
beside ``dpfast[test]``, for the kernels.

mutmut mutates only Python, keeps every mutant in one process's module, and knows no operators of one's own; cosmic-ray
runs one command for all mutants. Neither builds kernels, drops noise or a commit, nor sees whether what failed also
fails on the whole package.

An entry by hand states: ``id``; ``file`` under src/dpfast; ``edits``, each of an ``old`` text, which occurs once, and
the ``new`` one; ``reason``, what is lost; ``tests``, the files or single tests under tests/ that must notice;
``ci = true`` for one to be tried in each run of CI.
"""

import argparse
import ast
import compileall
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from building import ROOT, call, put_first

PACKAGE = Path("src", "dpfast")
KERNELS = (".pyx", ".pxd", ".c", ".h")
CRITICAL = "privacy/* noise/* releases/* statistics/* ledger/* io/* kernels/* jobs/* attack.py estimator/* scaling/*"
CRITICAL += " selection/* description/* convex_erm/* _*.py */mechanism.py */estimator.py"
CRITICAL += " policy_evaluation/private_range.py policy_evaluation/staged.py"
CRITICAL += " synthetic_control/steps.py synthetic_control/donor_weights.py"
CRITICAL += " solvers/constraints.py solvers/averaged_descent.py solvers/loss*.py"
# What draws nothing and releases nothing: attacks, texts. Of `printed`, tests run a copy of the source.
SPARED = "*/attacks.py *_attacks.py */job.py */reports.py */representation.py *__.py _version.py _optional.py"
# Tests that run no such file, or take long.
UNASKED = "docs/* plotting/* datasets/* papers/* new_family/* test_new_family.py test_fuzz.py test_c*.py test_budget.py"
UNASKED += " test_mirror.py test_p*.py test_weaken.py io/test_engines_spark.py kernels/test_draws.py"
# Imported once, before the tests of any weakening: each is then run in a fork that need not import them.
PRELOADED = ("pytest", "hypothesis", "numpy", "scipy.stats", "scipy.optimize", "sklearn.base", "pandas", "pyarrow")
PRELOADED += ("mpmath", "threadpoolctl", "dask.array", "dask.dataframe", "cryptography.hazmat.primitives.ciphers.aead")

# Seconds of tests for a mutant, beside those of what every fit calibrates, releases and tells.
PATIENCE = 20.0
RECORD = "guarantees/test_numbers_on_record.py"

_EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES = {ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_OPPOSITES |= {opposite: one for one, opposite in _OPPOSITES.items()}
_COMPARISONS = (("edge", _EDGES), ("opposite", _OPPOSITES))
# Of a product the other factor is left, of a sum the other term, and so on; of the rest, what stands to the left.
_BOTH_SIDES = {ast.Mult: "factor", ast.Add: "term", ast.BitAnd: "bit", ast.BitOr: "bit"}
_LEFT_SIDE = {ast.Sub: "term", ast.Div: "divisor", ast.FloorDiv: "divisor", ast.Mod: "divisor", ast.Pow: "power"}
_LEFT_SIDE |= {ast.LShift: "shift", ast.RShift: "shift"}
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_OTHER_NAMES = "min max,minimum maximum,fmin fmax,any all,floor ceil,up down,sqrt_up sqrt_down,argmin argmax,zeros ones"
_PAIRS = [pair.split() for pair in f"{_OTHER_NAMES},reserving reserve".split(",")]
_SWAPS = dict(_PAIRS) | {other: one for one, other in _PAIRS}
_SWAPS |= {"sum": "max", "bitwise_and": "bitwise_or", "union1d": "append"}
# Calls in whose place their first argument may stand: what bounds, rounds, reorders or records it.
_SKIPPED = "clip shortened nextafter abs fabs sqrt square up down sqrt_up sqrt_down rounded_bound log1p expm1 rint"
_SKIPPED += " unique sorted frozenset optional cumsum hypot escape public_rows record"
# What makes noise too small, halved or doubled.
_HALVED = "scale sensitivity bound radius error size clip reach limit length deviation norm weight change cost tau"
_HALVED += " largest most gradient curvature tolerance"
_DOUBLED = "epsilon delta mu rate beta share gamma"
_UNSEEN = ("annotation", "returns", "decorator_list", "bases", "keywords", "type_params")
_HARMLESS = ("strict", "dtype", "copy")  # arguments that make an error earlier or a table larger


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change at one place of a module's syntax tree."""

    id: str
    file: str
    _module: ast.Module
    _holder: Any
    _key: str | int
    _old: ast.AST
    _new: ast.AST

    @property
    def change(self) -> str:
        return f"line {self._old.lineno}: {_shown(self._old)}  ->  {_shown(self._new)}"

    def applied(self, _: str) -> str:
        """Return the module's text with the change."""
        self._holder[self._key] = self._new
        try:
            return ast.unparse(ast.fix_missing_locations(self._module))
        finally:
            self._holder[self._key] = self._old


def mutants(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a module, by line."""
    module, found, numbers = ast.parse(text), [], Counter()
    for holder, key, function, node in _places(module, "<module>"):
        for operator, new in _changes(node):
            place = f"{file}:{function}:{operator}"
            found.append(Mutant(f"{place}:{numbers[place]}", file, module, holder, key, node, new))
            numbers[place] += 1
    return found


def _places(node: ast.AST, function: str) -> Iterator[tuple[Any, str | int, str, ast.AST]]:
    """Yield every node that may be changed, where it hangs, and the function that it is in."""
    for name, value in ast.iter_fields(node):
        if name in _UNSEEN and not isinstance(node, ast.Call):
            continue
        holder, children = (value, enumerate(value)) if isinstance(value, list) else (vars(node), [(name, value)])
        for key, child in children:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
                continue
            if (isinstance(child, ast.keyword) and child.arg in _HARMLESS) or _is_of_types(child):
                continue
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            if named and (child.name.startswith("_repr") or child.name in ("__repr__", "__str__", "__dir__")):
                continue
            inner = f"{function}.{child.name}".removeprefix("<module>.") if named else function
            if hasattr(child, "lineno"):
                yield holder, key, inner, child
            yield from _places(child, inner)


def _is_of_types(node: ast.AST) -> bool:
    """Whether this is a type with parameters, by the name of what is subscripted, or what type checkers alone see."""
    if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
        return True
    name = _last_name(node.value) if isinstance(node, ast.Subscript) else ""
    return name in ("tuple", "list", "dict", "type") or (name[:1].isupper() and not name.isupper())


def _without(items: list, place: int) -> list:
    return [*items[:place], *items[place + 1 :]]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in the place of a node, with the operator that puts it there."""
    match node:
        case ast.Compare(left, ops, comparators):
            for place, (kind, swaps) in [(k, pair) for k in range(len(ops)) for pair in _COMPARISONS]:
                if other := swaps.get(type(ops[place])):
                    yield kind, ast.Compare(left, [*ops[:place], other(), *ops[place + 1 :]], comparators)
        case ast.BoolOp(op, values):
            for place in range(len(values)):
                rest = _without(values, place)
                yield "operand", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "not" if isinstance(node.op, ast.Not) else "minus", operand
        case ast.BinOp(left, op, right):
            if kind := _BOTH_SIDES.get(type(op)):
                yield kind, left
                yield kind, right
            elif kind := _LEFT_SIDE.get(type(op)):
                yield kind, left
            if other := _SIGNS.get(type(op)):
                yield "sign", ast.BinOp(left, other(), right)
        case ast.List([_, _, *_] as elements, ast.Load()) | ast.Tuple([_, _, *_] as elements, ast.Load()):
            yield "element", type(node)(elements[:-1], ast.Load())
        case ast.Constant(bool()):
            yield "flag", ast.Constant(not node.value)
        case ast.Constant(int()):
            yield "number", ast.Constant(node.value + 1)
            if node.value > 1:
                yield "number", ast.Constant(node.value - 1)
        case ast.Constant(float()):
            yield "number", ast.Constant(0.5 * node.value or 1.0)
        case ast.Constant("replace_one" | "add_remove"):
            yield "adjacency", ast.Constant("add_remove" if node.value == "replace_one" else "replace_one")
        case ast.Call():
            yield from _changes_of_call(node)
        case ast.If(_, body, orelse):
            yield "never", ast.If(ast.Constant(False), body, orelse)
            yield "always", ast.If(ast.Constant(True), body, orelse)
        case ast.IfExp(_, body, orelse):
            yield "never", orelse
            yield "always", body
        case ast.While(_, body, orelse):
            yield "never", ast.While(ast.Constant(False), body, orelse)
        case ast.AugAssign(target, op, value):
            yield "statement", ast.Pass()
            if other := _SIGNS.get(type(op)):
                yield "sign", ast.AugAssign(target, other(), value)
        case ast.Expr(ast.Call()) | ast.Delete() | ast.Continue() | ast.Break():
            yield "statement", ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "statement", ast.Pass()
        case ast.With(items, body):
            for place, item in enumerate(items):
                if item.optional_vars is None:
                    rest = _without(items, place)
                    yield "with", ast.With(rest, body) if rest else ast.If(ast.Constant(True), body, [])
        case ast.Try(body, handlers, orelse, finalbody) if finalbody:
            yield "finally", ast.Try(body, handlers, orelse, []) if handlers else ast.If(ast.Constant(True), body, [])
        case ast.Try(body, handlers, orelse, []) if len(handlers) == 1:
            yield "handler", ast.If(ast.Constant(True), [*body, *orelse], [])
        case ast.ListComp(element, [first, *more]) | ast.GeneratorExp(element, [first, *more]) if first.ifs:
            shorter = ast.comprehension(first.target, first.iter, first.ifs[1:], 0)
            yield "filter", type(node)(element, [shorter, *more])


def _changes_of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    func, arguments, keywords = node.func, node.args, node.keywords
    name = _last_name(func)
    if other := _SWAPS.get(name):
        yield "swap", ast.Call(_renamed(func, other), arguments, keywords)
    if name in _SKIPPED.split() and arguments and not isinstance(arguments[0], ast.Starred):
        yield "skip", arguments[0]
    if isinstance(func, ast.Attribute) and _last_name(func.value) == "check" and len(arguments) > 1:
        yield "unchecked", arguments[1]
    if name in ("check_finite", "paid") and isinstance(func, ast.Attribute):
        yield "skip", func.value
    if name in ("draw", "draw_columns") and len(arguments) > 2:
        yield "noiseless", arguments[2]
    if name in ("min", "max", "minimum", "maximum") and len(arguments) == 2 and not keywords:
        yield from (("operand", argument) for argument in arguments)
    for place, argument in enumerate(arguments):
        for kind, other in _weaker(argument):
            yield kind, ast.Call(func, [*arguments[:place], other, *arguments[place + 1 :]], keywords)
    if name in ("_fixed", "resolve_source") and len(arguments) > 1:  # which go on without their last argument
        yield "argument", ast.Call(func, arguments[:-1], keywords)
    for place, keyword in enumerate(keywords):
        if keyword.arg and keyword.arg not in _HARMLESS:
            yield "keyword", ast.Call(func, arguments, _without(keywords, place))


def _renamed(node: ast.expr, name: str) -> ast.expr:
    return ast.Name(name) if isinstance(node, ast.Name) else ast.Attribute(node.value, name)


def _weaker(argument: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what asks for less noise than an argument whose name, or whose function's, ends with a telling word."""
    word = _last_name(argument.func if isinstance(argument, ast.Call) else argument).strip("_").split("_")[-1]
    if {word, word.removesuffix("s")} & {*_HALVED.split()}:
        yield "half", ast.BinOp(ast.Constant(0.5), ast.Mult(), argument)
    elif {word, word.removesuffix("s")} & {*_DOUBLED.split()}:
        yield "double", ast.BinOp(ast.Constant(2.0), ast.Mult(), argument)
    elif word in ("rest", "left"):  # the whole budget once more
        yield "whole", _renamed(argument, "privacy")


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _shown(node: ast.AST) -> str:
    """Return the first line of a piece of code."""
    return ast.unparse(ast.fix_missing_locations(node)).strip().partition("\n")[0]


@dataclass(frozen=True, eq=False)
class ByHand:
    """A weakening that no operator makes: texts replaced."""

    id: str
    file: str
    edits: list[dict]
    change: str
    tests: list[str]
    ci: bool = False
    defect: str = ""

    def applied(self, text: str) -> str:
        """Return the text weakened; an old text that is missing or ambiguous is stale."""
        for edit in self.edits:
            if text.count(edit["old"]) != 1:
                raise ValueError(f"{edit['old']!r} occurs {text.count(edit['old'])} times")
            text = text.replace(edit["old"], edit["new"])
        return text

    def check(self) -> None:
        self.applied((ROOT / PACKAGE / self.file).read_text())
        for name in self.tests:
            if not (ROOT / "tests" / name.partition("::")[0]).exists():
                raise ValueError(f"there is no tests/{name}")


def by_hand() -> list[ByHand]:
    paths = sorted((ROOT / "tools" / "weakenings").glob("*.toml"))
    entries = [entry for path in paths for entry in tomllib.loads(path.read_text())["weakening"]]
    return [ByHand(change=entry.pop("reason"), **entry) for entry in entries]


# Why no test notices these mutants, and none needs to.
SURVIVORS = tomllib.loads((ROOT / "tools" / "survivors.toml").read_text())


def made() -> dict[str, list[Mutant]]:
    """Return the mutants of every critical file."""
    names = sorted(path.relative_to(ROOT / PACKAGE).as_posix() for path in (ROOT / PACKAGE).rglob("*.py"))
    names = [name for name in names if _fits(name, CRITICAL) and not _fits(name, SPARED)]
    return {name: mutants(name, (ROOT / PACKAGE / name).read_text()) for name in names}


def _fits(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


class Workspace:
    """A copy of the tree, its build, and a package for every job to weaken."""

    def __init__(self, folder: Path, jobs: int):
        self.tree, self.build = folder / "tree", folder / "build"
        # Not what is hidden, environments and caches, nor what was built.
        unasked = shutil.ignore_patterns(".*", "build", "__pycache__", "*.so")
        shutil.copytree(ROOT, self.tree, ignore=unasked, copy_function=_renew, dirs_exist_ok=True)
        call("meson", "setup", self.build, self.tree)
        call("meson", "compile", "-C", self.build)
        self._built = {path: path.read_bytes() for path in (self.build / PACKAGE).rglob("*.so")}
        self.packages = [folder / f"package{job}" for job in range(jobs)]

    def fill(self, change: Callable[[str, str], str] = lambda name, text: text) -> None:
        """Make the packages anew, every module's text changed."""
        for folder in self.packages:
            package = folder / "dpfast"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.tree / PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
            self._put(self._built, folder)
            for file in package.rglob("*.py"):
                file.write_text(change(file.relative_to(package).as_posix(), file.read_text()))
            put_first(folder, "import builtins\nbuiltins._functions_reached = set()\n")
            compileall.compile_dir(package, quiet=1)

    def weaken(self, weakening: Mutant | ByHand, package: Path) -> None:
        file, source = package / "dpfast" / weakening.file, self.tree / PACKAGE / weakening.file
        whole = source.read_text()
        if not weakening.file.endswith(KERNELS):
            file.write_text(weakening.applied(whole))
            Path(cache_from_source(file)).unlink(missing_ok=True)  # it may have this file's size and second
            return
        source.write_text(weakening.applied(whole))
        try:
            call("meson", "compile", "-C", self.build)
            self._put({path: path.read_bytes() for path in self._built}, package)
        finally:
            source.write_text(whole)

    def mend(self, weakening: Mutant | ByHand, package: Path) -> None:
        shutil.copy2(self.tree / PACKAGE / weakening.file, package / "dpfast" / weakening.file)
        self._put(self._built, package)

    def _put(self, built: dict[Path, bytes], package: Path) -> None:
        for path, content in built.items():
            copy = package / "dpfast" / path.relative_to(self.build / PACKAGE)
            copy.unlink(missing_ok=True)  # a file that a process has mapped must not be written into
            copy.write_bytes(content)


def _renew(source: str, copy: str) -> None:
    """Copy a file; one that stands keeps its time, and what was built of it."""
    if not Path(copy).exists() or Path(copy).read_bytes() != Path(source).read_bytes():
        shutil.copyfile(source, copy)


def recording(name: str, text: str) -> str:
    """Return a module's text, with a first step in every function that tells that it was reached."""
    module = ast.parse(text)
    waiting: list[tuple[str, ast.AST]] = [("", module)]
    while waiting:
        prefix, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            waiting.append((f"{prefix}.{child.name}".lstrip(".") if is_named else prefix, child))
        if isinstance(node, ast.FunctionDef):
            begin = int(ast.get_docstring(node, clean=False) is not None)
            node.body[begin:begin] = ast.parse(f"_functions_reached.add({f'{name}:{prefix}'!r})").body
    return ast.unparse(ast.fix_missing_locations(module))


# By pytest's exit status; 1 to 4: a failed test, or a package that tests cannot even import.
_OUTCOMES = {0: "survived", 1: "killed", 2: "killed", 4: "killed", 5: "stale"}


class Run:
    """Tests on one package, in a process of their own: up to the first that fails, or all of them (`to_end`)."""

    def __init__(self, tests: Iterable[str], package: Path, log: Path, timeout: float, to_end: bool = False):
        self.tests, self.package, self.log, self.to_end = tests, package, log, to_end
        self.timeout, self.started = timeout, time.monotonic()
        self._told = log.with_suffix(".told")
        self._told.write_text("")
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
                os._exit(status)

    def _pytest(self) -> int:
        os.setsid()
        # A shell's background jobs ignore it, and tests of interrupts send it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(self.package.parent / "tree")
        # Derandomised, and a failing example is not shrunk: what one run notices, every run does.
        os.environ |= {"CI": "true", "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}
        os.environ["PYTHONPATH"] = f"{self.package}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self.package))
        exec((self.package / "sitecustomize.py").read_text(), {})
        import builtins

        import pytest

        order = {f"tests/{name}": place for place, name in enumerate(self.tests)}

        told = self._told.open("a", buffering=1)

        class Watch:
            def pytest_collection_modifyitems(watch, items):
                # A parameter that the weakening changed has another name here: then all of the test's.
                found = {item.nodeid for item in items}
                places = {name if name in found else name.partition("[")[0]: place for name, place in order.items()}
                of = [(p, i) for i in items for n in _containing(i.nodeid) if (p := places.get(n)) is not None]
                items[:] = dict.fromkeys(item for _, item in sorted(of, key=lambda pair: pair[0]))

            def pytest_runtest_logstart(watch, nodeid):
                print(json.dumps([nodeid.removeprefix("tests/")]), file=told)
                builtins._functions_reached.clear()

            def pytest_runtest_logreport(watch, report):
                if report.when == "call" or report.failed:
                    of_test = report.failed, round(report.duration, 3), sorted(builtins._functions_reached)
                    print(json.dumps([report.nodeid.removeprefix("tests/"), *of_test]), file=told)

        options = ["-q", "-n", "0", "--no-header", "-p", "no:cacheprovider", "--basetemp", f"{self.package}-tmp"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that were preloaded
        files = dict.fromkeys(f"tests/{name.partition('::')[0]}" for name in self.tests)
        return pytest.main([*options, *([] if self.to_end else ["-x"]), *files], plugins=[Watch()])

    def ended(self) -> Iterator[None]:
        """Wait step by step for the process to end, or end it; then its outcome is known."""
        process = 0
        while not process and time.monotonic() < self.started + self.timeout:
            yield
            process, status = os.waitpid(self._process, os.WNOHANG)
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)  # with what the tests may have started
        self.seconds = time.monotonic() - self.started
        if process:
            status = os.waitstatus_to_exitcode(status)
            self.outcome = "killed" if status < 0 else _OUTCOMES.get(status, "broken")  # below 0: it crashed
        else:
            os.waitpid(self._process, 0)
            # One test that hangs has noticed something; many that took long have not come to it.
            hangs = time.time() - self._told.stat().st_mtime > 0.5 * self.timeout
            self.outcome = "killed" if hangs else "timed out"
        lines = [json.loads(line) for line in self._told.read_text().splitlines()]
        #: The test that was run last: with -x, the one that failed.
        self.last_test = lines[-1][0] if lines else ""
        #: Of every test that ended: whether it failed, its seconds, and the functions it reached.
        self.told = [line for line in lines if len(line) > 1]


def _containing(nodeid: str) -> list[str]:
    """Return what a test may be asked for by: its own name, that without parameters, its file's."""
    return [nodeid, nodeid.partition("[")[0], nodeid.partition("::")[0]]


def together(workers: Iterable[Iterator[None]]) -> None:
    """Let workers take steps in turn until all are through."""
    through, waiting = object(), list(workers)
    while waiting := [one for one in waiting if next(one, through) is not through]:
        time.sleep(0.02)


def reached(path: Path, workspace: Workspace, logs: Path) -> dict[str, list[tuple[float, str]]]:
    """Return the tests that run each function, and their seconds, after running those of files that have changed."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    names = sorted(test.relative_to(ROOT / "tests").as_posix() for test in (ROOT / "tests").rglob("test_*.py"))
    files = {name: kept.get(name, [0.0, []]) for name in names if not _fits(name, UNASKED)}
    new = [name for name in files if (ROOT / "tests" / name).stat().st_mtime > files[name][0]]
    parts = [new[k : k + 8] for k in range(0, len(new), 8)]

    def on(package: Path) -> Iterator[None]:
        while parts:
            run = Run(parts.pop(), package, logs / f"record{len(parts)}.log", 900.0, to_end=True)
            files.update({name: [time.time(), []] for name in run.tests})
            yield from run.ended()
            for nodeid, failed, seconds, functions in run.told:
                if not failed:  # steps that record are steps more: a test may count them
                    files[nodeid.partition("::")[0]][1].append((nodeid, seconds, functions))

    if new:
        workspace.fill(recording)
        together(map(on, workspace.packages))
        path.write_text(json.dumps(files))
    found = defaultdict(list)
    for nodeid, seconds, functions in (test for _, tests in files.values() for test in tests):
        for function in functions:
            found[function].append((seconds, nodeid))
    return found


def tests_of(mutant: Mutant, record: dict) -> list[str]:
    """Return tests that run a mutant's function, some seconds of them: its file's own first, and quick ones.

    What runs as a module is imported, and what no test runs, is left to those of its class and of its file.
    """
    place = mutant.id.rpartition(":")[0].rpartition(":")[0]
    found = record.get(place, [])
    for prefix in (f"{place}.", f"{mutant.file}:"):
        found = found or [test for name in record if name.startswith(prefix) for test in record[name]]
    chosen, files, total = [], set(), 0.0
    for seconds, nodeid in sorted(set(found), key=lambda test: (not _is_own(test[1], mutant.file), test)):
        file = nodeid.partition("::")[0]
        cost = 0.0 if file == RECORD else seconds + (0.3 if file not in files else 0.01)
        # Those of others have a part of the time too: what a file is for may be seen there alone.
        if not files or total + cost <= PATIENCE * (0.6 if _is_own(file, mutant.file) else 1.0):
            total += cost
            files.add(file)
            chosen.append(nodeid)
    return chosen


def _is_own(test: str, file: str) -> bool:
    """Whether a test is about this file, by its name."""
    name = test.partition("::")[0].replace("test_", "", 1).removesuffix(".py")
    return f"{name}_".startswith(f"{file.removesuffix('.py')}_")


def weaken(chosen: list, workspace: Workspace, record: dict, end: float, logs: Path) -> dict:
    """Run the tests of each weakening; return the ids of each outcome, and the tests that noticed."""
    # Shuffled by the commit: what a deadline leaves out is something else the next time.
    commit = subprocess.check_output(("git", "-C", str(ROOT), "rev-parse", "HEAD"), text=True)
    waiting = random.Random(commit).sample(chosen, len(chosen))
    outcomes: dict[str, list[str]] = defaultdict(list, noticing=[])

    def tell(outcome: str, weakening: Mutant | ByHand, seconds: float = 0.0, test: str = "") -> None:
        outcomes[outcome].append(weakening.id)
        print(f"{outcome:9} {weakening.id:5} {seconds:6.1f} s  {test or weakening.change}", flush=True)

    def on(package: Path) -> Iterator[None]:
        while waiting and time.monotonic() < end:
            weakening = waiting.pop()
            log = logs / f"{weakening.id.replace('/', '.')}.log"
            tests = weakening.tests if isinstance(weakening, ByHand) else tests_of(weakening, record)
            if not tests:
                tell("unreached", weakening)
                continue
            try:
                workspace.weaken(weakening, package)
            except RuntimeError as error:
                log.write_text(str(error))
                tell("broken", weakening)
            else:
                run = Run(tests, package, log, 30.0 + 2.0 * PATIENCE)
                yield from run.ended()
                if run.outcome == "killed" and run.last_test:
                    outcomes["noticing"].append(run.last_test)
                tell(run.outcome, weakening, run.seconds, run.last_test if run.outcome == "killed" else "")
            workspace.mend(weakening, package)

    together(map(on, workspace.packages))
    if waiting:
        outcomes["not tried in time"] = [weakening.id for weakening in waiting]
    return outcomes


def void(tests: list[str], workspace: Workspace, logs: Path) -> list[str]:
    """Return the tests that fail on the whole package: what they noticed was not the weakening."""
    names, packages = sorted(set(tests)), workspace.packages
    parts = [(names[k :: len(packages)], package) for k, package in enumerate(packages)]
    runs = [
        Run(part, package, logs / f"whole-{package.name}.log", 900.0, to_end=True) for part, package in parts if part
    ]
    together(run.ended() for run in runs)
    failed = {nodeid for run in runs for nodeid, failed, *_ in run.told if failed}
    return sorted(failed) or [f"{run.last_test} ({run.outcome})" for run in runs if run.outcome != "survived"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default="*", metavar="ID", help="these, or those of a pattern: noise/*")
    parser.add_argument("--part", choices=("ci",), help="what is marked for continuous integration")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants of every file, and none by hand")
    parser.add_argument("--jobs", type=int, default=1, help="how many to test at once (default: 1)")
    parser.add_argument(
        "--deadline", type=float, default=float("inf"), help="seconds after which none is begun any more"
    )
    parser.add_argument("--folder", type=Path, help="where to build, to record and to log; kept for the next time")
    parser.add_argument("--dry-run", action="store_true", help="only see that everything named is there; list --only")
    options = parser.parse_args()

    started = time.monotonic()
    files, hand = made(), by_hand()
    every = {mutant.id for of_file in files.values() for mutant in of_file}
    stale = dict.fromkeys(SURVIVORS.keys() - every, "no such mutant")
    for weakening in hand:
        try:
            weakening.check()
        except (ValueError, FileNotFoundError) as error:
            stale[weakening.id] = f"{weakening.file}: {error}"
    for name, why in stale.items():
        print(f"stale     {name}: {why}")
    # By their names: what is written elsewhere changes no sample.
    own = [sorted(of_file, key=lambda one: random.Random(one.id).random()) for of_file in files.values()]
    chosen = [one for of_file in own for one in of_file[: options.sample]] + ([] if options.sample else hand)
    chosen = [one for one in hand if one.ci] if options.part else chosen
    chosen = [one for one in chosen if _fits(one.id, " ".join(options.only)) and one.id not in SURVIVORS]
    if options.dry_run or not chosen:
        for weakening in chosen if options.only != "*" else ():
            print(f"{weakening.id}  {weakening.change}")
        print(f"{len(chosen)} weakenings of {len(every)} and {len(hand)} by hand; {len(stale)} stale")
        return int(bool(stale) or not chosen)

    for name in PRELOADED:
        import_module(name)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="weaken-"))).resolve()
    (logs := folder / "logs").mkdir(parents=True, exist_ok=True)
    try:
        workspace = Workspace(folder, options.jobs)
        # What stands by hand names its tests.
        record = reached(folder / "reached.json", workspace, logs) if set(chosen) - set(hand) else {}
        workspace.fill()
        outcomes = weaken(chosen, workspace, record, started + options.deadline, logs)
        failing = void(outcomes.pop("noticing"), workspace, logs)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    for name in failing:
        print(f"fails on the whole package too: {name}")
    totals = ", ".join(f"{len(ids)} {outcome}" for outcome, ids in sorted(outcomes.items()))
    print(f"{len(chosen)} weakenings: {totals}; {(time.monotonic() - started) / 60.0:.1f} min")
    return int(bool(failing or stale) or not set(outcomes) <= {"killed", "not tried in time"})


if __name__ == "__main__":
    sys.exit(main())
