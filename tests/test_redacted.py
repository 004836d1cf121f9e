"""What reads rows is silent in its own thread and in those it starts."""

import numpy as np
import pytest

from dpfast._redacted import Terminated, redact_errors, suppress_float_warnings
from dpfast._threads import run_in_threads


def overflow():
    return float(np.float64(1e308) * np.float64(10.0))


@pytest.mark.parametrize("setting", ["warn", "raise"])
def test_an_overflow_is_silent_in_every_thread(setting):
    with np.errstate(all=setting):
        assert suppress_float_warnings(overflow)() == np.inf
        assert suppress_float_warnings(run_in_threads)([overflow] * 3, lambda: None) == [np.inf] * 3


def test_too_little_memory_does_not_tell_of_the_shape():
    with pytest.raises(MemoryError, match=r"^too little memory for the table$") as raised:
        suppress_float_warnings(np.empty)((1 << 40, 1 << 10))
    assert raised.value.__context__ is None


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated, SystemExit])
def test_an_interrupt_of_what_is_read_keeps_its_kind_and_says_nothing(stop):
    def read():
        raise stop("3 people")

    with pytest.raises(stop) as raised:
        redact_errors(read, "X holds text")
    assert type(raised.value) is stop
    assert "people" not in str(raised.value)
    assert raised.value.__context__ is None
