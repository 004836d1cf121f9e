"""Hypothesis profiles, and how many processes run the tests.

Examples are derandomised in continuous integration, random by hand; machines are too noisy for deadlines. Continuous
integration has a run of other examples besides, that of ``tools/cover.py --seed``: a failure prints the example, and
a ``@reproduce_failure`` line that brings it back.

Of a test with many sets of parameters the whole suite runs every other one, of one with sixty every fourth, drawn
by their names. ``--parameters`` says which: ``some`` of them, the ``others``, as the run for coverage does, or ``all``,
as a run of files or tests that are named does. Of slow tests with hundreds of sets every other one is run; which ones
changes with the commit.

With ``--time-budget SECONDS`` no test is begun after so many seconds, in an order that changes with the commit: what is
left out on a slow machine is said, and is something else the next time.

The noise of secure sources follows from the name of the test that makes them: what fails once in a thousand draws fails
again, here and on the server, or nowhere. With ``--fresh-noise`` it comes from the operating system; in tests with that
marker, and in processes that tests start, it always does.
"""

import hashlib
import importlib
import itertools
import math
import os
import random
import shutil
import signal
import subprocess
import time
import warnings
import zlib
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings

# Tests of families that are not there: `test_new_family.py` puts them into a copy, and runs them there.
collect_ignore = ["new_family"]

# Ledgers wait for the disk at every step. Files of tests lie in memory where there is room; those of failed tests stay.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# A failing example is reported as it was found: shrinking may take longer than everything else. Examples are fewer than
# Hypothesis's hundred, as two runs of continuous integration draw different ones.
common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "max_examples": 50}
settings.register_profile("ci", **common, derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.register_profile("random", **common, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "random")

#: From so many sets of parameters on, the whole suite runs every other one; every fourth; and of slow ones every other.
MANY, VERY_MANY, HUNDREDS = 4, 60, 200

#: Where sources are made now: a test, or a fixture that several tests share, and how many were made there before.
MAKES_SOURCES = {"name": None, "numbers": itertools.count()}


@pytest.fixture(scope="session", autouse=True)
def noise_that_repeats(request):
    """Keys of secure sources are hashes of who makes them, in this process."""
    from dpfast.noise import SecureSource  # not before the processes that run tests have begun

    from_the_system, process = SecureSource._make_keys, os.getpid()

    def make_keys(source):
        if MAKES_SOURCES["name"] is None or os.getpid() != process:
            return from_the_system(source)
        number = next(MAKES_SOURCES["numbers"])  # of its own in every thread
        keys = hashlib.sha512(f"{MAKES_SOURCES['name']}:{number}".encode()).digest()
        return keys[:32], keys[32:]

    with pytest.MonkeyPatch.context() as patch:
        if not request.config.option.fresh_noise:
            patch.setattr(SecureSource, "_make_keys", make_keys)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope == "function":
        return (yield)
    before = MAKES_SOURCES.copy()
    name = f"{fixturedef.baseid}:{fixturedef.argname}:{getattr(request, 'param_index', 0)}"
    MAKES_SOURCES.update(name=name, numbers=itertools.count())
    try:
        return (yield)
    finally:
        MAKES_SOURCES.update(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Nothing that a test calls changes for the process what is warned of, or what numpy does about floating point.

    But an interrupt may come between what changes it and what changes it back.
    """
    import numpy as np  # not before the processes that run tests have begun

    def of_process():
        return np.geterr(), [one for one in warnings.filters if one[2].__module__.startswith("dpfast")]

    with np.errstate():
        before = of_process()
        result = yield
        is_same = of_process() == before
    assert is_same or any(word in item.nodeid for word in ("interrupt", "signal")), "changed for the whole process"
    return result


# Where SIGINT is ignored, as in the background of a shell, tests that interrupt would wait for ever; so would children.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config):
    """All tests run in a process for each core (``-n auto``); tests that are named run here, as with ``-n 0``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if config.args_source is pytest.Config.ArgsSource.ARGS or cores == 1:
        return 0
    importlib.import_module("dpfast")  # an editable install compiles what has changed: once, not in every process
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # every process has one core: threads of BLAS would only wait
    return cores


def pytest_addoption(parser):
    parser.addoption("--parameters", choices=("some", "others", "all"), help="of tests that have many sets of them")
    parser.addoption("--fresh-noise", action="store_true", help="noise of secure sources from the operating system")
    parser.addoption("--time-budget", type=float, default=math.inf, help="seconds after which no test is begun")


def pytest_configure(config):
    config.begun = time.monotonic()
    # Processes that run the tests get this process's options, and all files by name.
    if config.option.parameters is None:
        config.option.parameters = "all" if config.args_source is pytest.Config.ArgsSource.ARGS else "some"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    commit = git_commit(config)
    if config.option.parameters != "all":
        n_sets = Counter(item.nodeid.partition("[")[0] for item in items)

        def is_left_out(item):
            n = n_sets[item.nodeid.partition("[")[0]]
            if item.get_closest_marker("slow") is not None:
                return n >= HUNDREDS and zlib.crc32(f"{item.nodeid}{commit}".encode()) % 2
            step = 1 if n < MANY else 2 if n < VERY_MANY else 4
            is_some = zlib.crc32(item.nodeid.encode()) % step == 0
            return step > 1 and is_some == (config.option.parameters == "others")

        left_out = {item for item in items if is_left_out(item)}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    if config.option.time_budget < math.inf:
        random.Random(commit).shuffle(items)


def git_commit(config):
    """The name of the commit, which chooses what is not run every time; nothing where there is no repository."""
    try:
        return subprocess.run(["git", "rev-parse", "HEAD"], cwd=config.rootpath, capture_output=True, text=True).stdout
    except OSError:
        return ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    MAKES_SOURCES.update(
        name=None if item.get_closest_marker("fresh_noise") else item.nodeid, numbers=itertools.count()
    )
    if time.monotonic() - item.config.begun > item.config.option.time_budget:
        pytest.skip("not tried in time")
