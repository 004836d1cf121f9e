"""Hypothesis profiles, and how many processes run the tests.

Examples are derandomised in continuous integration, random by hand; machines are too noisy for deadlines. Continuous
integration has a step of random examples besides, ``-m hypothesis --hypothesis-profile=random``: a failure prints the
example, and a ``@reproduce_failure`` line that brings it back.
"""

import importlib
import os
import signal

import pytest
from hypothesis import Phase, settings

# Tests of families that are not there: `test_new_family.py` puts them into a copy, and runs them there.
collect_ignore = ["new_family"]

# A failing example is reported as it was found: shrinking may take longer than everything else.
settings.register_profile("ci", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "random")

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
