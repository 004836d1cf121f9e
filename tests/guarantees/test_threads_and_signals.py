"""Real threads and real signals: sums stay exact, budgets are counted once, seeds give each stream once."""

import gc
import os
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from catalogue import FITS, SOME, people
from interrupts import BUDGET, COST, accumulated, attributes, books, release, table

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy
from dpfast import _threads as threads
from dpfast import _transaction as transaction
from dpfast._threads import RowRanges, run_in_threads, single_threaded_blas
from dpfast.noise import SeededSource
from dpfast.statistics import GramAccumulator

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    # A signal that comes within a weak reference's callback, as thread pools have, is swallowed by CPython.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def run_together(acts):
    """Run each in a thread of its own, all from the same moment; return what they returned, or raised."""
    barrier = threading.Barrier(len(acts))

    def run(act):
        barrier.wait(60)
        try:
            return act()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_threads_that_share_an_accumulator_add_every_row_once():
    blocks = [table(4_000, 8, seed) for seed in range(8)]
    whole = GramAccumulator(8, bound_x=1.0, n_threads=1)
    for block in blocks:
        whole.update(block)
    for _ in range(20):
        shared = GramAccumulator(8, bound_x=1.0, n_threads=1)
        run_together([lambda block=block, shared=shared: shared.update(block) for block in blocks])
        assert accumulated(shared) == accumulated(whole)
        assert shared.n_updates == len(blocks)


def test_threads_that_merge_each_other_neither_wait_for_ever_nor_lose_rows():
    for _ in range(20):
        left, right = (GramAccumulator(8, bound_x=1.0).update(table(n, 8)) for n in (10, 20))
        run_together([lambda a=left, b=right: a.merge(b), lambda a=left, b=right: b.merge(a)])
        # Each merge comes before the other or after it: both see the other's rows as they are at one moment.
        assert (left.gram().n_rows, right.gram().n_rows) in {(30, 50), (40, 30), (30, 30)}


def test_an_accumulator_is_refused_to_the_iterable_that_it_reads():
    accumulator = GramAccumulator(3, bound_x=1.0, n_threads=1).update(table(5, 3))
    before = accumulated(accumulator)

    def blocks(call):
        yield table(4, 3)
        call()
        yield table(4, 3)

    for call in (lambda: accumulator.update(table(2, 3)), lambda: accumulator.merge(accumulator)):
        with pytest.raises(RuntimeError, match="in the midst of a call by this thread"):
            accumulator.update(blocks(call))
        assert accumulated(accumulator) == before
    assert accumulator.n_updates == 1
    assert accumulator.update(table(2, 3)).gram().n_rows == 7


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent():
    accumulator = GramAccumulator(3, bound_x=1.0, n_threads=1)
    reading, go_on = threading.Event(), threading.Event()

    def blocks():
        yield table(4, 3)
        reading.set()
        go_on.wait(60)

    thread = threading.Thread(target=lambda: accumulator.update(blocks()))
    thread.start()
    try:
        assert reading.wait(60)
        child = os.fork()
        if child == 0:
            os._exit(0 if accumulator.update(table(2, 3)).gram().n_rows == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        go_on.set()
        thread.join()
    assert accumulator.gram().n_rows == 4


@pytest.mark.parametrize("name", SOME)
def test_threads_that_fit_one_estimator_leave_one_whole_fit_and_pay_for_each(name):
    fit, (X, Y) = FITS[name], people(120)
    model = fit.new(n_threads=1, ledger=Ledger(BUDGET, composition="basic"))
    run_together([lambda: fit.run(model, X, Y)] * 4)
    assert model.ledger.spent.epsilon == 4.0
    assert len(model.ledger.reservations) == 0
    assert model.releases_[0].values.keys() == model.ledger.releases[0].values.keys()
    # All attributes are of one fit: one of those that were paid for.
    assert any(model.releases_[0] is one for one in model.ledger.releases)


def test_threads_that_fit_one_estimator_to_other_tables_mix_nothing():
    model = MultiOutcomeRidge(
        1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, n_threads=1, ledger=Ledger(BUDGET), fit_intercept=False
    )
    for _ in range(5):
        run_together([lambda d=d: model.fit(table(50, d), table(50, d, 1)) for d in (2, 3, 4, 5)])
        d = model.n_features_in_
        assert model.coef_.shape == model.coef_std_.shape == (d, d)
        assert model.releases_[0].values["xx"].shape[-1] in (d, d * (d + 1) // 2)


@pytest.mark.parametrize("where", ["memory", "file"])
def test_threads_that_share_a_ledger_never_pass_its_budget(where, tmp_path):
    ledger = Ledger(Privacy(3.0, 1e-5), tmp_path / "ledger.json" if where == "file" else None)

    def spend():
        n_spent = 0
        for _ in range(2):
            with suppress(BudgetExceeded):
                ledger.spend(release())
                n_spent += 1
        return n_spent

    assert sum(run_together([spend] * 4)) == 3
    assert books(ledger) == (3.0, 3, 0.0, 0)


def test_threads_that_share_a_seed_get_each_stream_once():
    one, shared = SeededSource(5), SeededSource(5)
    expected = sorted(one.words(3).tolist() for _ in range(400))
    drawn = run_together([lambda: [shared.words(3).tolist() for _ in range(100)]] * 4)
    assert sorted(words for part in drawn for words in part) == expected


class Alarm:
    """A real signal, whose handler raises KeyboardInterrupt, some time after its start."""

    def __enter__(self):
        self._handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
        return self

    def __exit__(self, kind, error, trace):
        self.stop()
        signal.signal(signal.SIGALRM, self._handler)

    def start(self, seconds):
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 2e-5))

    def stop(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


def signalled(alarm, act, times, seconds):
    """Run act() often, a signal at some time in each; yield whether it raised, after each."""
    for delay in np.random.default_rng(0).uniform(0.0, 1.2 * seconds, times):
        raised = None
        try:
            alarm.start(delay)
            act()
            alarm.stop()
        except KeyboardInterrupt as error:
            raised = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        finally:
            alarm.stop()
        yield raised


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("method", ["update", "merge"])
def test_a_signal_within_an_update_or_a_merge_means_that_nothing_was_added(method, n_threads):
    d, n_rows = 400, 3 if n_threads == 1 else 600
    accumulator = GramAccumulator(d, bound_x=1.0, n_threads=n_threads)
    other = GramAccumulator(d, bound_x=1.0).update(0.05 * table(n_rows, d))

    def act():
        return accumulator.update(0.05 * X) if method == "update" else accumulator.merge(other)

    X = table(n_rows, d)
    start = time.perf_counter()
    act()
    seconds = time.perf_counter() - start
    n_added = accumulator.n_updates
    with Alarm() as alarm:
        for raised in signalled(alarm, act, 150, seconds):
            added = accumulator.n_updates - n_added
            n_added += added
            assert accumulator.gram().n_rows == n_rows * n_added
            assert added == 1 or raised
            # An interrupt of the call itself is one that is to be repeated.
            assert not (added and raised and method in raised)


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_signal_within_a_fit_leaves_it_as_it_was_or_paid_for(where, tmp_path):
    (X, Y), ledger = (
        people(120),
        Ledger(Privacy(1e6, 0.5), tmp_path / "ledger.json" if where == "file" else None, composition="basic"),
    )
    model = FITS["ridge"].new(n_threads=1, ledger=ledger)

    def fit(model):
        FITS["ridge"].run(model, X, Y)

    fit(model)
    start = time.perf_counter()
    fit(model)
    seconds, before, n_paid = time.perf_counter() - start, attributes(model), 2
    with Alarm() as alarm:
        for raised in signalled(alarm, lambda: fit(model), 60 if where == "memory" else 25, seconds):
            assert model.ledger.reservations == ()
            costs = model.ledger.costs
            assert {one.epsilon for one in costs} == {1.0}
            # Once something was drawn it is paid for; once it is released the model has it, solved or to be.
            assert len(costs) in (n_paid, n_paid + 1)
            if attributes(model) != before:
                assert len(costs) == n_paid + 1
                if where == "memory":
                    assert model.releases_[0] is model.ledger.releases[-1]
            else:
                assert raised
            model.complete()
            before, n_paid = attributes(model), len(costs)
    model.ledger.spend(release())


def test_threads_have_stopped_before_an_interrupt_leaves_even_one_that_comes_while_they_stop():
    running = [0]
    lock = threading.Lock()
    ranges = RowRanges(10**9, 1)

    def work(seconds):
        with lock:
            running[0] += 1
        for _ in ranges:
            time.sleep(0.001)
        time.sleep(seconds)
        with lock:
            running[0] -= 1

    def interrupted():
        while running[0] < 2:
            time.sleep(0.001)
        raise KeyboardInterrupt

    with Alarm() as alarm:
        alarm.start(0.04)
        with pytest.raises(KeyboardInterrupt):
            run_in_threads([interrupted, *(partial(work, seconds) for seconds in (0.3, 0.1))], ranges.stop)
    assert running[0] == 0


class Steps(transaction.AtomicContext[str]):
    """Notes what is called, and raises in one of the calls, once."""

    def __init__(self, failing=None, turn=None, error=KeyboardInterrupt):
        super().__init__(turn)
        self.called = []
        self.failing, self.error = failing, error

    def _do(self, name):
        self.called.append(name)
        if name == self.failing:
            self.failing = None
            raise self.error

    def _open(self):
        self._do("open")
        return "opened"

    def _keep(self):
        self._do("keep")

    def _close(self):
        self._do("close")


@pytest.mark.parametrize(
    ("failing", "called"),
    [
        (None, ["open", "block", "keep", "close"]),
        ("open", ["open", "close"]),
        ("block", ["open", "block", "close"]),
        ("keep", ["open", "block", "keep", "close"]),
        ("close", ["open", "block", "keep", "close", "close"]),
    ],
)
def test_a_bracket_closes_what_it_opened(failing, called):
    turn = transaction.ForkSafeLock()
    steps = Steps(failing, turn)
    with suppress(KeyboardInterrupt), steps as opened:
        assert opened == "opened"
        steps._do("block")
    assert steps.called == called
    # Its turn is over.
    for _ in range(2):
        with transaction.AtomicContext(turn):
            pass


class SealedError(Exception):
    """What is raised in place of an error."""


@pytest.mark.parametrize("failing", ["block", "keep", "close"])
@pytest.mark.parametrize(("error", "told"), [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, SealedError)])
def test_no_failure_of_a_sealed_bracket_passes_in_silence(error, told, failing):
    steps = Steps(failing, error=error)
    steps.sealed = SealedError
    with pytest.raises(told) as raised, steps:
        steps._do("block")
    assert raised.value.__context__ is raised.value.__cause__ is None
    assert steps.called[-1] == "close"


def most_inside(turn):
    """How many of four threads are ever within a turn at once."""
    inside, most = [0], [0]

    def enter_often():
        for _ in range(200):
            with transaction.AtomicContext(turn):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0)
                inside[0] -= 1

    run_together([enter_often] * 4)
    return most[0]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_turn_is_one_threads_at_a_time_in_a_forked_child_too():
    turn = transaction.ForkSafeLock()
    with transaction.AtomicContext(turn):
        pass
    child = os.fork()
    if child == 0:
        os._exit(most_inside(turn))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert most_inside(turn) == 1


def test_a_turn_is_one_threads_at_a_time_and_refused_to_the_one_that_has_it():
    turn = transaction.ForkSafeLock()
    assert most_inside(turn) == 1
    with (
        transaction.AtomicContext(turn),
        pytest.raises(RuntimeError, match="this thread"),
        transaction.AtomicContext(turn),
    ):
        pass
    with transaction.AtomicContext(turn):
        pass


def test_a_reservation_must_be_entered_before_it_is_committed():
    ledger = Ledger(BUDGET)
    prepared = ledger.reserving(COST)
    with pytest.raises(ValueError, match="not made before"):
        prepared.commit(release())
    prepared.give_back()
    assert books(ledger) == (0.0, 0, 1e3, 0)


def test_a_reservation_that_nobody_kept_stays_counted_until_it_is_settled():
    ledger = Ledger(BUDGET)
    ledger.reserve(COST)
    gc.collect()
    assert books(ledger) == (0.0, 0, 999.0, 1)
    ledger.reservations[0].give_back()
    assert books(ledger) == (0.0, 0, 1e3, 0)


def test_one_that_was_interrupted_before_it_was_written_does_not_give_back_the_next(tmp_path, monkeypatch):
    ledger = Ledger(BUDGET, tmp_path / "ledger.json")
    prepared = ledger.reserving(COST)
    with monkeypatch.context() as patch:
        patch.setattr("dpfast.ledger.file._Rows.keep", _interrupt)
        # Without its own attempt to settle it, as if that was interrupted too.
        patch.setattr("dpfast.ledger.ledger.Reservation._close", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            prepared.__enter__()
    kept = ledger.reserve(COST)
    prepared.give_back()
    assert books(ledger) == (0.0, 0, 999.0, 1)
    kept.commit(release())


def _interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupted_limit_on_blas_is_lifted(monkeypatch):
    interrupting = iter([_interrupt])
    set_threads = threads._limiter._set

    def once(limits):
        next(interrupting, set_threads)(limits)

    with monkeypatch.context() as patch:
        patch.setattr(threads._limiter, "_set", once)
        with pytest.raises(KeyboardInterrupt), single_threaded_blas():
            pass
    assert threads._limiter._users == set()
    assert threads._limiter._limit is None
