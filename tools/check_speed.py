"""Is this tree slower than a commit? Names what moved and by how much; fails beyond a factor of 1.15.

    python tools/check_speed.py main               all benchmarks, this tree (committed or not) against main
    python tools/check_speed.py HEAD^ --short      every loop of every kernel, and memory: what CI runs
    python tools/check_speed.py main --only gram   benchmarks whose name holds this
    python tools/check_speed.py HEAD --slowed 1.3  is it seen that calls of this tree take 1.3 times longer?

The benchmarks are those of benchmarks/ in this tree: `time_*` is what is timed and `peakmem_*` what is weighed; rivals
(`track_*`) are left to asv. Two runs of the same code differ by more than a third on a shared machine. So each commit
has a process, both take turns of a few milliseconds on one core, and their times are compared turn by turn. They are
times of the processor: others on the machine, disks and locks do not count. (A lost thread does not either: ``--clock
wall`` counts it, on a machine that is at rest.) A benchmark has moved if both the median of the turns' ratios and the
ratio of the fastest turns are beyond the factor, and are again in new processes with more turns, twice. Memory is what
a process grows by during a call.

The kernels of a commit are built once, in build/speed, by Meson, ninja and Cython as they are found beside this Python,
and by ccache where there is one; commits that differ in Python alone share them. Exit codes: 0 nothing is slower (with
--short also where there is nothing to compare with, which is said), 1 something is, 2 it could not be found out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from building import ROOT, install, put_first

FOLDER = ROOT / "build" / "speed"
BENCHMARKS = ROOT / "benchmarks"
#: What kernels are made of, and with what.
SOURCES_OF_KERNELS = "src/dpfast/kernels src/dpfast/_transaction.pyx src/dpfast/noise/cython_noise.pyx meson.build"
SOURCES_OF_KERNELS += " src/dpfast/noise/meson.build src/dpfast/meson.build meson.options"
FACTOR = 1.15
TURN_SECONDS = 0.004
TURNS = (9, 21, 31)  # of the first look, and of each that confirms it
MEBIBYTE = 1 << 20
#: Memory moves in pages and arenas: growths that differ by less do not count.
LEAST_GROWTH = 2 * MEBIBYTE


@dataclass(frozen=True)
class Benchmark:
    """A method of a class of benchmarks/, and the number of one of its settings."""

    module: str
    group: str
    method: str
    setting: int
    label: str

    @property
    def name(self) -> str:
        return f"{self.module.removeprefix('bench_')}.{self.group}.{self.method}({self.label})"

    @property
    def weighs(self) -> bool:
        return self.method.startswith("peakmem_")


class Failed(Exception):
    """A benchmark or a process did not do what it was asked to."""


# ---------------------------------------------------------------- the process of one commit


def settings_of(group: type) -> list[tuple[Any, ...]]:
    """Return what the benchmarks of a class are called with, as asv reads its `params`."""
    lists = getattr(group, "params", [])
    if lists and not isinstance(lists[0], list | tuple):
        lists = [lists]
    return list(itertools.product(*lists))


def catalogue() -> list[Benchmark]:
    """Find the benchmarks of this tree that can be compared."""
    found = []
    for path in sorted(BENCHMARKS.glob("bench_*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        for group_name, group in inspect.getmembers(module, inspect.isclass):
            methods = [name for name in dir(group) if name.startswith(("time_", "peakmem_"))]
            if group.__module__ != module.__name__ or not methods or hasattr(group, "setup_cache"):
                continue
            for number, setting in enumerate(settings_of(group)):
                label = ", ".join(map(str, setting))
                found += [Benchmark(path.stem, group_name, method, number, label) for method in methods]
    return found


def peak_memory() -> int:
    """Return the most memory this process ever held, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


class Worker:
    """Does what it is told on its standard input, one JSON document a line, and answers likewise."""

    def __init__(self, clock: str, slowed: float) -> None:
        self.clock, self.slowed = time.process_time if clock == "cpu" else time.perf_counter, slowed

    def list(self) -> list[dict[str, Any]]:
        return [vars(benchmark) for benchmark in catalogue()]

    def open(self, module: str, group: str, method: str, setting: int, label: str) -> None:
        kind = getattr(importlib.import_module(f"benchmarks.{module}"), group)
        self.instance, self.arguments = kind(), settings_of(kind)[setting]
        if hasattr(self.instance, "setup"):
            self.instance.setup(*self.arguments)
        self.method = getattr(self.instance, method)

    def warm_up(self) -> int:
        """Call it twice; return how many calls make a turn."""
        self.method(*self.arguments)
        return max(1, math.ceil(TURN_SECONDS / max(self._seconds(1), 1e-7)))

    def turn(self, repeats: int) -> float:
        """Return the seconds of a call in the better half of a turn: caches hold what the other process left there."""
        if repeats == 1:
            return self._seconds(1)
        half = -(-repeats // 2)
        return min(self._seconds(half), self._seconds(half))

    def _seconds(self, repeats: int) -> float:
        arguments, method, clock = self.arguments, self.method, self.clock
        begun = clock()
        for _ in range(repeats):
            method(*arguments)
        ends = begun + self.slowed * (clock() - begun)
        while (now := clock()) < ends:
            pass
        return (now - begun) / repeats

    def weigh(self) -> int:
        """Return by how many bytes a call makes the process grow beyond what it held at most before."""
        Path("/proc/self/clear_refs").write_text("5")  # the most it ever held is what it holds now
        before = peak_memory()
        self.method(*self.arguments)
        return peak_memory() - before

    def close(self) -> None:
        if hasattr(self.instance, "teardown"):
            self.instance.teardown(*self.arguments)
        del self.instance, self.method


def serve(clock: str, slowed: float) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # benchmarks may print
    sys.path.insert(0, str(ROOT))
    worker = Worker(clock, slowed)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            reply = {"value": getattr(worker, name)(**arguments)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


# ---------------------------------------------------------------- both processes


class Side:
    """A process in which one of the commits runs benchmarks."""

    def __init__(self, site: Path, clock: str, slowed: float = 1.0) -> None:
        one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        places = {"PYTHONPATH": str(site), "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg"}
        command = [sys.executable, __file__, "--serve", "--clock", clock, "--slowed", str(slowed)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **one_thread, **places},
        )
        if clock == "cpu":
            os.sched_setaffinity(self._process.pid, {max(os.sched_getaffinity(0))})

    def ask(self, name: str, **arguments: object) -> Any:
        """Have the process do something; Failed if it could not, or has died."""
        try:
            print(json.dumps([name, arguments]), file=self._process.stdin, flush=True)
            reply = self._process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            raise Failed("its process died")
        answer = json.loads(reply)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True)
class Moved:
    """How many times longer a benchmark takes, or how much more memory, than it did."""

    median: float
    fastest: float

    @property
    def factor(self) -> float:
        """The one nearer to 1, of the two; 1 where they disagree about the direction."""
        low, high = sorted((self.median, self.fastest))
        return low if low > 1.0 else min(high, 1.0)


def compare_turns(base: list[float], ours: list[float]) -> Moved:
    """Compare seconds of turns that were taken alternately."""
    ratios = [after / before for before, after in zip(base, ours, strict=True)]
    return Moved(statistics.median(ratios), min(ours) / min(base))


Start = Callable[[int], Side]  # of the process of one commit


def timed(sides: list[Side], benchmark: Benchmark, turns: int, factor: float) -> Moved:
    """Time it in both processes, which take turns. A look at one that is clearly no slower ends early."""
    for number, side in enumerate(sides):
        try:
            side.ask("open", **vars(benchmark))
        except Failed as failed:
            raise Failed(f"{('base', 'this tree')[number]}: {failed}") from None
    repeats = min(side.ask("warm_up") for side in sides)
    spent: tuple[list[float], list[float]] = [], []
    for turn in range(turns):
        for number in (0, 1) if turn % 2 else (1, 0):
            spent[number].append(sides[number].ask("turn", repeats=repeats))
        if turn >= 4 and compare_turns(*spent).factor < 1.0 + 0.4 * (factor - 1.0):
            break
    for side in sides:
        side.ask("close")
    return compare_turns(*spent)


def weighed(benchmark: Benchmark, start: Start) -> Moved:
    """Weigh a call in new processes."""
    growths = []
    for number in (0, 1):
        with start(number) as side:
            side.ask("open", **vars(benchmark))
            growths.append(max(side.ask("weigh"), 0))
    before, after = growths
    factor = 1.0 if abs(after - before) < LEAST_GROWTH else after / max(before, 1)
    return Moved(factor, factor)


@dataclass
class Report:
    slower: dict[str, float]
    faster: dict[str, float]
    not_compared: dict[str, str]
    n_compared: int = 0

    def lines(self, factor: float) -> Iterator[str]:
        for name, why in self.not_compared.items():
            yield f"not compared: {name}: {why}"
        for name, ratio in sorted(self.faster.items(), key=lambda item: item[1]):
            yield f"faster: {name}: {ratio:.2f} times"
        for name, ratio in sorted(self.slower.items(), key=lambda item: -item[1]):
            yield f"SLOWER: {name}: {ratio:.2f} times"
        yield f"{self.n_compared} benchmarks compared, {len(self.slower)} beyond {factor:g} times"


def compare(benchmarks: list[Benchmark], start: Start, factor: float) -> Report:
    """Compare all, then again those that moved."""
    report, moved = Report({}, {}, {}), []
    with ExitStack() as stack:
        sides: list[Side] = []
        for benchmark in benchmarks:
            try:
                if benchmark.weighs:
                    first = weighed(benchmark, start)
                else:
                    sides = sides or [stack.enter_context(start(number)) for number in (0, 1)]
                    first = timed(sides, benchmark, TURNS[0], factor)
            except Failed as failed:
                report.not_compared[benchmark.name] = str(failed)
                stack.close()  # what is in those processes is not known
                sides = []
                continue
            report.n_compared += 1
            if first.factor > factor:
                moved.append(benchmark)
            elif first.factor < 1.0 / factor:
                report.faster[benchmark.name] = first.factor
    for benchmark in moved:
        if (ratio := confirmed(benchmark, start, factor)) is not None:
            report.slower[benchmark.name] = ratio
    return report


def confirmed(benchmark: Benchmark, start: Start, factor: float) -> float | None:
    """Look again, with more turns, in new processes: memory lies elsewhere in them. None if it has not moved."""
    seen = []
    for turns in TURNS[1:]:
        try:
            if benchmark.weighs:
                again = weighed(benchmark, start)
            else:
                with start(0) as base, start(1) as ours:
                    again = timed([base, ours], benchmark, turns, factor)
        except Failed:
            return None
        if again.factor <= factor:
            return None
        seen.append(again.median)
    return statistics.median(seen)


# ---------------------------------------------------------------- builds


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr.strip())
    return done.stdout.strip()


def unpack(commit: str, folder: Path, *paths: str) -> None:
    archive = subprocess.Popen(["git", "archive", commit, *paths], cwd=ROOT, stdout=subprocess.PIPE)
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x"], cwd=folder, stdin=archive.stdout, check=True)
    if archive.wait():
        raise Failed(f"{commit} could not be read")


def kernels_of(commit: str) -> Path:
    """Return a commit's package with compiled kernels, building them if nobody has."""
    trees = git("ls-tree", commit, "--", *SOURCES_OF_KERNELS.split())
    key = hashlib.sha256(f"{trees} {sys.version}".encode()).hexdigest()[:16]
    folder = FOLDER / key
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        unpack(commit, folder / "source")
        print(f"building the kernels of {commit[:12]}", flush=True)
        site = install(folder, "-Db_ndebug=if-release", source=folder / "source", buildtype="release")
        (folder / "done").write_text(str(site.relative_to(folder)))
    return folder / (folder / "done").read_text() / "dpfast"


def site_of(commit: str) -> Path:
    """Return what is to be on the path of a process that runs a commit: its Python, and kernels."""
    package = kernels_of(commit)
    folder = FOLDER / "sites" / commit[:16]
    if not (folder / "sitecustomize.py").exists():
        shutil.rmtree(folder, ignore_errors=True)
        unpack(commit, folder / "tree", "src/dpfast")
        (folder / "tree" / "src" / "dpfast").rename(folder / "dpfast")
        for library in package.rglob("*.so"):
            os.link(library, folder / "dpfast" / library.relative_to(package))
        put_first(folder)
    return folder


def this_tree() -> str:
    """Return a commit of this tree with what has been changed in it since."""
    # Where files were touched, and nothing in them changed, to make a stash of them fails.
    return git("stash", "create") if git("status", "--porcelain", "--untracked-files=no") else git("rev-parse", "HEAD")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("--short", action="store_true", help="kernels, and the memory of a few benchmarks")
    parser.add_argument("--only", default="", metavar="TEXT", help="benchmarks whose name holds this")
    parser.add_argument("--factor", type=float, default=FACTOR, help=f"what is too slow (default: {FACTOR})")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument(
        "--slowed", type=float, default=1.0, metavar="TIMES", help="have calls of this tree take longer"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.clock, options.slowed)
        return 0
    if options.base is None:
        parser.error("which commit is to be compared with?")

    def start(number: int) -> Side:
        return Side(sites[number], options.clock, options.slowed if number else 1.0)

    try:
        commits = [git("rev-parse", "--verify", f"{options.base}^{{commit}}"), this_tree()]
        changed = git("diff", "--name-only", *commits, "--", "src", "benchmarks", "meson.build", "meson.options")
        if options.short and not changed and options.slowed == 1.0:
            print("nothing that runs has changed")
            return 0
        sites = [site_of(commit) for commit in commits]
        with start(1) as side:
            benchmarks = [Benchmark(**found) for found in side.ask("list")]
    except (Failed, RuntimeError, OSError, subprocess.CalledProcessError) as failed:
        print(f"nothing to compare with: {failed}", flush=True)
        return 0 if options.short else 2

    chosen = [benchmark for benchmark in benchmarks if options.only in benchmark.name]
    if options.short:  # what shows a slower kernel, or a larger block, within a minute
        chosen = [b for b in chosen if b.module == "bench_kernels" or (b.weighs and b.module == "bench_gram")]
    begun = time.monotonic()
    report = compare(chosen, start, options.factor)
    print(*report.lines(options.factor), f"{time.monotonic() - begun:.0f} s", sep="\n")
    return 1 if report.slower else 0


if __name__ == "__main__":
    raise SystemExit(main())
