"""Does tools/check_speed.py see a kernel slowed by 1.3, each of them, and nothing where there is nothing to see?

    python tools/try_check_speed.py --identical 10    two builds of HEAD, so many times: all must be silent
    python tools/try_check_speed.py                   every kernel slowed, one after the other: each must be named
    python tools/try_check_speed.py gram secular      some of them

Slowed kernels are a copy of HEAD that, wherever a kernel leaves Python to loop, measures how long that took and then
idles .3 times as long, if DPFAST_SLOWED names the kernel; scalar functions do their work once more, three times in ten.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
import sys
from pathlib import Path

from check_speed import FACTOR, Benchmark, Failed, Side, compare, core_of, git, short_form, site_of

SHARE = 0.3

IDLE = '''
cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    static _Thread_local double dpfast_begun[16];
    static _Thread_local int dpfast_depth;
    static double dpfast_now(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* in the wall's, waiting for the processor would do */
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }
    static int dpfast_is_slow(void)
    {
        static int known = -1;
        if (known < 0) {
            const char *name = getenv("DPFAST_SLOWED");
            known = name && strcmp(name, "%(name)s") == 0;
        }
        return known;
    }
    static void dpfast_begin(void)
    {
        if (dpfast_is_slow())
            dpfast_begun[dpfast_depth++] = dpfast_now();
    }
    static void dpfast_end(void)
    {
        if (dpfast_is_slow()) {
            double begun = dpfast_begun[--dpfast_depth], until = dpfast_now();
            until += %(share)g * (until - begun);
            while (dpfast_now() < until)
                ;
        }
    }
    static int dpfast_once_more(void)
    {
        static _Thread_local double due;
        if (!dpfast_is_slow() || (due += %(share)g) < 1.0)
            return 0;
        due -= 1.0;
        return 1;
    }
    """
    void dpfast_begin() noexcept nogil
    void dpfast_end() noexcept nogil
    bint dpfast_once_more() noexcept nogil

'''
#: Loops that keep the GIL, or have left it to their caller: statements of one line.
STATEMENTS = {
    "blas": (r"dsyrk\(.*\)", r"dgemm\(.*\)"),
    "gram": (r"part\._move_to\(self\)", r"self\._add\(other\)"),
    "quadratic_step": (r"dpfast_extrapolate\(momentum.*\)",),
    "transaction": (r"result = gather\(.*\)", r"function\(argument\)"),
}


def slowed_blocks(code: str) -> str:
    """Surround the body of every `with nogil` block."""
    lines, slowed, ends = code.split("\n"), [], []
    for line in [*lines, "#"]:
        indent = len(line) - len(line.lstrip())
        while line.strip() and ends and indent < ends[-1]:
            slowed.append(" " * ends.pop() + "dpfast_end()")
        slowed.append(line)
        if line.strip() == "with nogil:":
            ends.append(indent + 4)
            slowed.append(" " * ends[-1] + "dpfast_begin()")
    return "\n".join(slowed[:-1])


def slowed_functions(code: str) -> str:
    """Call functions that Python can call too once more, three times in ten: the clock takes longer than they do."""

    def wrapped(found: re.Match[str]) -> str:
        kind, name, arguments = found.groups()
        names = ", ".join(argument.split()[-1] for argument in arguments.split(","))
        return (
            f"cpdef {kind} {name}({arguments}) noexcept nogil:\n"
            f"    cdef {kind} found = plain_{name}({names})\n"
            f"    if dpfast_once_more():\n        found += 1e-300 * plain_{name}({names})\n    return found\n\n\n"
            f"cdef {kind} plain_{name}({arguments}) noexcept nogil:"
        )

    return re.sub(r"^cpdef (\w+) (\w+)\((.*)\) noexcept nogil:", wrapped, code, flags=re.MULTILINE)


def slow_down(source: Path) -> None:
    """Edit the kernels of a tree."""
    for path in sorted((source / "src" / "dpfast").rglob("*.pyx")):
        name, code = path.stem.lstrip("_"), path.read_text()
        for statement in STATEMENTS.get(name, ()):
            found = re.compile(rf"^( +)({statement})$", re.MULTILINE)
            code, n_found = found.subn(r"\1dpfast_begin()\n\1\2\n\1dpfast_end()", code)
            if not n_found:
                raise Failed(f"{name}: nothing matches {statement}")
        code = slowed_functions(slowed_blocks(code))
        if not re.search(r"dpfast_(begin|once_more)\(", code):
            raise Failed(f"{name}: no loop was found")
        head, docstring, rest = code.split('"""', 2)
        path.write_text(f'{head}"""{docstring}"""\n{IDLE % {"name": name, "share": SHARE}}{rest}')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernels", nargs="*", help="default: all of them")
    parser.add_argument("--identical", type=int, default=0, metavar="TIMES")
    parser.add_argument("--factor", type=float, default=FACTOR)
    options = parser.parse_args()
    head, core = git("rev-parse", "HEAD"), core_of()
    base = site_of(head)
    this = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    ours = site_of(head, name="twin") if options.identical else site_of(head, slow_down, f"slowed-{this}")

    def start(number: int, slowed: str = "") -> Side:
        return Side((base, ours)[number], "cpu", core, {"DPFAST_SLOWED": slowed} if number and slowed else None)

    with start(1) as side:
        chosen = short_form([Benchmark(**found) for found in side.ask("list")])
    if options.identical:
        loud = 0
        for number in range(options.identical):
            report = compare(chosen, start, options.factor)
            print(f"{number + 1}:", *report.lines(options.factor), sep="\n    ", flush=True)
            loud += bool(report.slower)
        print(f"{loud} of {options.identical} runs on identical commits cried wolf")
        return 1 if loud else 0

    missed = []
    kernels = options.kernels or sorted(path.stem.lstrip("_") for path in Path("src/dpfast").rglob("*.pyx"))
    for kernel in kernels:
        own = [benchmark for benchmark in chosen if benchmark.label.partition(":")[0] == kernel]
        report = compare(own, functools.partial(start, slowed=kernel), options.factor)
        ratios = ", ".join(f"{ratio:.2f}" for ratio in sorted(report.slower.values()))
        print(f"{kernel}: {len(report.slower)} of {len(own)} of its benchmarks: {ratios}", flush=True)
        for benchmark in own:
            if benchmark.name not in report.slower:
                print(f"    not: {benchmark.label}")
        if not report.slower:
            missed.append(kernel)
    print(f"{len(kernels) - len(missed)} of {len(kernels)} kernels slowed by {1 + SHARE:g} were caught", *missed)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
