"""Run tests on a build that counts lines, and print how much of the package they run: Python, Cython and C.

    python tools/cover.py                 all tests but slow ones; of many parameters, those left out elsewhere
    python tools/cover.py tests/kernels   some of them; no floor is held then
    python tools/cover.py --missing       also the lines that nothing ran
    python tools/cover.py --seed 7        with other examples of property tests, which that seed repeats

coverage.py counts lines of Python, gcov those of C, and of Cython by the C code that stands for them. The build lives
in build/covered. Needed beside ``dpfast[test]``: coverage, meson, ninja, Cython and gcc. What only other processes run,
such as the command line's, is not counted. Fails if a test does, or if a share is below its floor.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from building import ROOT, install, put_first

FOLDER = ROOT / "build" / "covered"
PACKAGE = ROOT / "src" / "dpfast"
# Percent of the lines, just below what is measured: to be raised with it.
FLOORS = {"Python": 98.0, "Cython": 97.5, "C": 97.5}
# An interrupt that comes while coverage.py holds its own lock leaves it locked, and the run waits for ever.
INTERRUPTING = (
    "--ignore=tests/guarantees/test_interrupts.py",
    "--ignore=tests/guarantees/test_threads_and_signals.py",
    "--deselect=tests/statistics/test_rows_gram.py::test_an_interrupt_changes_nothing",
)

_NAMED = re.compile(r'\s*/\* "dpfast/((?:kernels/)?\w+\.p(?:yx|xd))":(\d+)$')

Lines = dict[int, bool]  # whether each line that can run was run


def kernel_lines() -> dict[str, Lines]:
    """Return the lines of the kernels by file; a line of several objects was run if it was in one."""
    found: dict[str, Lines] = defaultdict(dict)
    for counts in (FOLDER / "compiled").rglob("*.gcda"):
        command = ["gcov", "--json-format", "--stdout", str(counts)]
        told = subprocess.run(command, check=True, capture_output=True, cwd=FOLDER).stdout
        for data in map(json.loads, told.splitlines()):
            for file in data["files"]:
                path = (Path(data["current_working_directory"]) / file["file"]).resolve()
                lines = {line["line_number"]: line["count"] > 0 for line in file["lines"]}
                if path.name.endswith(".pyx.c"):
                    stated = cython_lines(path.read_text(), lines)
                elif path.is_relative_to(PACKAGE):
                    stated = ((str(path.relative_to(PACKAGE)), line, run) for line, run in lines.items())
                else:
                    continue
                for name, line, run in stated:
                    found[name][line] = found[name].get(line, False) or run
    return found


def cython_lines(code: str, run: Lines) -> Iterator[tuple[str, int, bool]]:
    """Yield file, line and whether it was reached, for every comment of C code that names a line it begins with."""
    place = None
    for number, text in enumerate(code.splitlines(), 1):
        if named := _NAMED.match(text):
            place = named[1], int(named[2])
        elif place is not None and number in run:
            yield *place, run[number]
            place = None


def python_lines(site: Path) -> dict[str, Lines]:
    """Return the lines of the modules by file."""
    report = FOLDER / "python.json"
    subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", report], check=True, cwd=FOLDER)
    return {
        str((FOLDER / path).resolve().relative_to(site / "dpfast")): {
            **dict.fromkeys(file["executed_lines"], True),
            **dict.fromkeys(file["missing_lines"], False),
        }
        for path, file in json.loads(report.read_text())["files"].items()
    }


def main() -> int:
    """Build, run, count."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="default: all of them")
    parser.add_argument("--missing", action="store_true", help="list the lines that nothing ran")
    parser.add_argument("--seed", help="of the examples of property tests (default: those of every other run)")
    options = parser.parse_args()
    site = install(FOLDER, "-Dcoverage=true")
    put_first(site)
    for old in [*(FOLDER / "compiled").rglob("*.gcda"), FOLDER / ".coverage"]:
        old.unlink(missing_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "CI": "true", "COVERAGE_FILE": str(FOLDER / ".coverage")}
    if sys.version_info >= (3, 12):
        environment.setdefault("COVERAGE_CORE", "sysmon")  # a line that was counted costs nothing any more
    tests = [sys.executable, "-m", "coverage", "run", f"--source={site / 'dpfast'}"]
    tests += ["-m", "pytest", "-q", "-n", "0", *INTERRUPTING, *(options.tests or ["--parameters", "others"])]
    tests += ["--hypothesis-profile=random", f"--hypothesis-seed={options.seed}"] if options.seed else []
    status = subprocess.run(tests, env=environment, check=False, cwd=ROOT).returncode

    files = python_lines(site) | kernel_lines()
    kinds = {"Python": (".py",), "Cython": (".pyx", ".pxd"), "C": (".c", ".h")}
    for kind, suffixes in kinds.items():
        of_kind = {name: lines for name, lines in sorted(files.items()) if name.endswith(suffixes)}
        n_run, n_lines = (sum(map(count, of_kind.values())) for count in (lambda lines: sum(lines.values()), len))
        share = 100.0 * n_run / max(n_lines, 1)
        print(f"{kind:7} {n_run:6,} of {n_lines:6,} lines run: {share:.1f}% (floor: {FLOORS[kind]:g}%)")
        if options.missing:
            for name, lines in of_kind.items():
                if not_run := [line for line, run in sorted(lines.items()) if not run]:
                    print(f"    {name}: {', '.join(map(str, not_run))}")
        if share < FLOORS[kind] and not options.tests:
            status = status or 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
