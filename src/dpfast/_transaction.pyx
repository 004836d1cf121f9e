"""Steps that no interrupt parts: what must happen together is called from C, one thing right after the other.

CPython runs signal handlers between the bytecodes of the main thread, so a Python function can be interrupted after
the last thing it did and before it has returned, and a `with` statement before its block has begun. The callers'
functions are called from here instead: once the last of them has returned, control is back with whoever called the
whole step before any handler runs.
"""

import sys
import threading
from functools import partial, update_wrapper
from types import GenericAlias

from dpfast._redacted import Terminated

cimport cython
from cpython.exc cimport PyErr_CheckSignals

cdef extern from *:
    # A system call costs less than a look into a module of Python's, in every call of an accumulator.
    """
    #ifdef _WIN32
    #include <process.h>
    #define DPFAST_GETPID _getpid
    #else
    #include <unistd.h>
    #define DPFAST_GETPID getpid
    #endif
    """
    int getpid "DPFAST_GETPID" () noexcept

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


cdef class ForkSafeLock:
    """A lock for one call at a time: other threads wait, and the thread that has it is refused.

    That thread comes again from a signal handler, or from an iterable that the call reads: it would wait for itself.
    A forked child starts with a lock of its own, as whoever held it lives on in the parent only.
    """

    cdef object lock
    cdef unsigned long holder
    cdef int process

    def __init__(self):
        self.lock = threading.Lock()
        self.process = getpid()

    cdef bint begin(self) except -1:
        """Wait for the lock; returns whether a fork interrupted somebody else's, and may have left things undone."""
        cdef unsigned long own = PyThread_get_thread_ident()
        cdef bint was_interrupted = False
        if self.process != getpid():
            if self.holder != own:
                was_interrupted = self.holder != 0
                self.lock, self.holder = threading.Lock(), 0
            self.process = getpid()
        if self.holder == own:
            raise RuntimeError(
                "this object is in the midst of a call by this thread: neither a signal handler nor an iterable that "
                "the call reads may use it before that has returned")
        self.lock.acquire()
        self.holder = own
        return was_interrupted

    cdef end(self):
        if self.holder == PyThread_get_thread_ident():
            self.holder = 0
            self.lock.release()


cdef class AtomicContext:
    """A context manager that closes whatever it has opened, even if it is interrupted before its block or after it.

    Subclasses define `_open`, whose value `with` binds; `_keep`, called if the block raised nothing; and `_close`,
    called in any case, also after an `_open` that raised half-way. A `_close` that raises, as an interrupt may, is
    called once more: it goes on where it was, or has nothing left to do.

    Parameters
    ----------
    lock : ForkSafeLock, optional
        Held from before `_open` until after `_close`.

    Attributes
    ----------
    sealed : callable or None
        Once it is set, no error leaves the block: what it makes, called without arguments, is raised in its place, and
        an interrupt anew. Neither has a cause or a context.
    """

    cdef ForkSafeLock lock
    cdef bint has_turn
    cdef public object sealed

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, ForkSafeLock lock=None):
        self.lock = lock

    def __enter__(self):
        if self.lock is not None:
            self.lock.begin()
            self.has_turn = True
        try:
            return self._open()
        except BaseException:
            self._finish()
            raise

    def __exit__(self, kind, error, trace):
        try:
            try:
                if kind is None:
                    self._keep()
            finally:
                self._finish()
        except BaseException as raised:
            if self.sealed is None:
                raise
            error = raised
        if self.sealed is not None and error is not None:
            _raise_alone(_interrupts().get(type(error), self.sealed))

    def _open(self):
        """Nothing, by default: there is a lock to hold then."""

    def _keep(self):
        """Nothing, by default."""

    def _close(self):
        """Nothing, by default."""

    cdef _finish(self):
        try:
            try:
                self._close()
            except BaseException:
                self._close()
                raise
        finally:
            self._end_turn()

    cdef _end_turn(self):
        if self.has_turn:
            self.has_turn = False
            self.lock.end()

    def __del__(self):
        # A debugger can raise where no signal does, between a block and its __exit__.
        if self.has_turn:
            self._finish()


cdef _interrupts():
    """Return what raises each kind of interrupt anew; a task of asyncio is cancelled where that was imported."""
    kinds = {kind: kind for kind in (KeyboardInterrupt, Terminated, GeneratorExit)}
    kinds[SystemExit] = partial(SystemExit, 1)
    cancelled = getattr(sys.modules.get("asyncio"), "CancelledError", None)
    return kinds if cancelled is None else kinds | {cancelled: cancelled}


cdef _raise_alone(make):
    """Raise a new error with nothing in it of the one that is being handled."""
    try:
        raise make()
    except BaseException as error:
        error.__context__ = None
        raise


def entered(make):
    """Turn a method that makes a AtomicContext into one that returns what entering it gives."""

    def method(*arguments, **named):
        return (<AtomicContext?>make(*arguments, **named)).__enter__()

    return update_wrapper(method, make)


cdef class PendingAdditions:
    """What calls add to an accumulator's totals, one call at a time: see `atomic`.

    Attributes
    ----------
    parts : list
        Buffers of the threads, which are used again unless a call that filled them has failed.
    change : tuple of (callable, object) or None
        What adds them: a function of C, which neither fails nor runs Python once it has begun, and its argument.
    n_made : int
        Calls that have been added.
    """

    cdef ForkSafeLock lock
    cdef public list parts
    cdef public object change
    cdef readonly long long n_made

    def __init__(self, n_made=0):
        self.lock = ForkSafeLock()
        self.parts = []
        self.n_made = n_made


def atomic(gather):
    """Let a method of an accumulator change its totals as the last thing it does, or not at all.

    The method gathers what it adds in ``self._additions``, and leaves the totals alone. They are changed when it has
    returned; if it raises, whatever it raises, what it has gathered is dropped. Other threads wait meanwhile.
    """

    def method(accumulator, *arguments, **named):
        cdef PendingAdditions additions = accumulator._additions
        if additions.lock.begin():
            additions.parts = []
        try:
            result = gather(accumulator, *arguments, **named)
            # A handler that raises does so now, or in the caller, after the call.
            PyErr_CheckSignals()
            function, argument = additions.change
            function(argument)
            additions.n_made += 1
        except BaseException:
            additions.parts = []
            raise
        finally:
            additions.change = None
            additions.lock.end()
        return result

    return update_wrapper(method, gather)


cdef class RowRanges:
    """Consecutive ranges of rows handed out to several threads, until none is left or `stop` is called.

    Each is handed out by one call of C, so there is no lock that an interrupt could leave behind.
    """

    cdef Py_ssize_t n_rows, step, first

    def __init__(self, Py_ssize_t n_rows, Py_ssize_t step):
        self.n_rows, self.step = n_rows, step

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef Py_ssize_t start = self.first
        if start >= self.n_rows:
            raise StopIteration
        self.first = min(start + self.step, self.n_rows)
        return start, self.first

    @cython.critical_section
    def stop(self):
        """Hand out no more rows."""
        self.n_rows = 0
