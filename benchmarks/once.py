"""Call every benchmark once, in one process: whether each runs. asv starts a process for each, most of its time.

DPFAST_SMALL_BENCHMARKS=1 python -m benchmarks.once
"""

import importlib
import inspect
import itertools
import os
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import chdir
from pathlib import Path

KINDS = ("time_", "track_", "peakmem_")


def groups():
    """Yield the classes of benchmarks, and the names of what is called of each."""
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        for _, group in inspect.getmembers(module, inspect.isclass):
            if group.__module__ == module.__name__ and (names := [n for n in dir(group) if n.startswith(KINDS)]):
                yield group, names


def call(group, names):
    """Call each once with each setting, as asv does; yield what was called, and the error if there was one."""
    lists = getattr(group, "params", [])
    lists = lists if not lists or isinstance(lists[0], list | tuple) else [lists]
    kept = [group().setup_cache()] if hasattr(group, "setup_cache") else []
    for name, setting in itertools.product(names, itertools.product(*lists)):
        instance, arguments, error = group(), [*kept, *setting], None
        try:
            if hasattr(instance, "setup"):
                instance.setup(*arguments)
            getattr(instance, name)(*arguments)
        except NotImplementedError as skipped:
            print(f"skipped: {group.__name__}.{name}{setting}: {skipped}")
        except Exception:
            error = traceback.format_exc()
        finally:
            if hasattr(instance, "teardown"):
                instance.teardown(*arguments)
        yield f"{group.__module__.rpartition('.')[2]}.{group.__name__}.{name}{setting}", error


def main():
    if not os.environ.get("DPFAST_SMALL_BENCHMARKS"):
        sys.exit("DPFAST_SMALL_BENCHMARKS is not set: large tables take an hour")
    warnings.simplefilter("ignore")  # of tables that are too small to say anything
    n_called, failed = 0, []
    for group, names in groups():
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, chdir(folder):  # a cache is made where asv calls it
            for called, error in call(group, names):
                n_called += 1
                if error:
                    failed.append(called)
                    print(f"FAILED: {called}\n{error}")
        print(f"{time.perf_counter() - begun:6.1f} s  {group.__module__}.{group.__name__}", flush=True)
    print(f"{n_called} called, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
