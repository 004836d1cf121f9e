"""A ledger that pays for a block of code: for that block, its thread and its process, and never for nobody."""

import asyncio
import contextlib
import contextvars
import copy
import os
import pickle
import threading

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from dpfast import Ledger, MultiOutcomeRidge, Privacy, PrivateStandardScaler, private_bounds, select
from dpfast.ledger.ledger import ledger_of_block

ROWS = np.linspace(-0.5, 0.5, 40).reshape(20, 2)
BUDGET = Privacy(5.0, 1e-3)
COST = Privacy(0.1, 1e-7)


def model(**options):
    return MultiOutcomeRidge(0.1, 1e-7, bound_x=1.0, bound_y=1.0, refine=0, **options)


def fitted(estimator=None):
    return (estimator or model()).fit(ROWS, ROWS[:, 0])


def in_a_thread(act):
    result = []

    def run():
        try:
            result.append(act())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return result[0]


def test_the_ledger_of_a_block_pays_for_fits_that_have_none():
    ledger, own = Ledger(BUDGET), Ledger(BUDGET)
    fitted()
    with ledger as same:
        assert same is ledger
        one = fitted()
        fitted(model(ledger=own))
        private_bounds(ROWS, epsilon=0.2, delta=1e-6)
        make_pipeline(PrivateStandardScaler(0.1, 1e-7, box_x=([-1, -1], [1, 1])), model()).fit(ROWS, ROWS[:, 0])
        assert one.ledger is None
        assert clone(one).get_params()["ledger"] is None
    fitted()
    assert ledger.costs == (COST, Privacy(0.2, 1e-6), COST, COST)
    assert own.costs == (COST,)
    assert ledger_of_block() is None


def test_blocks_nest_and_end_whatever_is_raised():
    outer, inner = Ledger(BUDGET), Ledger(BUDGET)
    with outer:
        with inner, inner:
            fitted()
        with pytest.raises(ValueError, match="NaN"), inner, inner:
            model().fit(np.full((20, 2), np.nan), ROWS[:, 0])
        assert ledger_of_block() is outer
        with outer:
            fitted()
        fitted()
    assert (len(inner.costs), len(outer.costs)) == (1, 2)
    assert ledger_of_block() is None


def test_a_choice_among_candidates_pays_once():
    ledger = Ledger(BUDGET)
    with ledger:
        select([model(), model(ridge=1.0)], ROWS, ROWS[:, 0], epsilon=0.5, delta=1e-6, bound_y=1.0)
        fitted()
    assert ledger.costs == (Privacy(0.5, 1e-6), COST)


def test_another_thread_is_refused_rather_than_forgotten():
    ledger = Ledger(BUDGET)
    with ledger:
        refused = in_a_thread(fitted)
        assert isinstance(refused, RuntimeError)
        assert "give estimators ledger=" in str(refused)
        in_a_thread(lambda: fitted(model(ledger=ledger)))
        context = contextvars.copy_context()
        in_a_thread(lambda: context.run(fitted))

        def with_its_own():
            with ledger:
                fitted()

        in_a_thread(with_its_own)
        assert len(ledger.costs) == 3
        with joblib.parallel_config("threading"), pytest.raises(RuntimeError, match="another thread"):
            cross_val_score(model(), ROWS, ROWS[:, 0], cv=2, n_jobs=2, error_score="raise")
        with joblib.parallel_config("threading"):
            cross_val_score(model(ledger=ledger), ROWS, ROWS[:, 0], cv=2, n_jobs=2, error_score="raise")
    assert len(ledger.costs) == 5
    assert in_a_thread(fitted).privacy_spent_ == COST


def test_tasks_of_a_block_take_its_ledger():
    ledger = Ledger(BUDGET)

    async def fit():
        fitted()

    async def run():
        with ledger:
            tasks = [asyncio.create_task(fit()) for _ in range(2)]
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert len(ledger.costs) == 2


@contextlib.contextmanager
def block_of(ledger):
    with ledger:
        yield


def generator_of(ledger):
    with ledger:
        yield


def generator_with_a_stack_of(ledger):
    with contextlib.ExitStack() as stack:
        stack.enter_context(ledger)
        yield


async def asynchronous_generator_of(ledger):
    with ledger:
        yield


@pytest.mark.parametrize(
    "begin",
    [
        lambda ledger: next(generator_of(ledger)),
        lambda ledger: next(generator_with_a_stack_of(ledger)),
        lambda ledger: block_of(ledger).__enter__(),
        lambda ledger: asyncio.run(anext(asynchronous_generator_of(ledger))),
    ],
)
def test_a_block_is_not_entered_where_it_could_be_suspended(begin):
    """It would pay for whatever is fitted while the generator waits."""
    own, others = Ledger(BUDGET), Ledger(BUDGET)
    with own:
        with pytest.raises(RuntimeError, match="cannot be entered in a generator"):
            begin(others)
        fitted()
    assert (len(own.costs), len(others.costs)) == (1, 0)
    assert ledger_of_block() is None


def test_functions_that_a_generator_calls_may_enter_blocks():
    def paid(ledger):
        with contextlib.ExitStack() as stack:
            stack.enter_context(ledger)
            fitted()

    ledger = Ledger(BUDGET)
    assert list(map(paid, [ledger] * 2)) == [None, None]
    assert [None for _ in (0,) for _ in (paid(ledger) for _ in (0,))] == [None]
    assert len(ledger.costs) == 3


@pytest.mark.parametrize("elsewhere", [in_a_thread, lambda act: contextvars.copy_context().run(act)])
def test_a_block_is_left_where_it_was_entered(elsewhere):
    ledger = Ledger(BUDGET)

    def leave():
        try:
            ledger.__exit__(None, None, None)
        except RuntimeError as error:
            return str(error)

    with ledger:
        assert "must be left in the thread and task that entered it" in elsewhere(leave)
        # Nothing has changed: it pays, and other threads are refused.
        fitted()
        assert "pays for a block of code in another thread" in str(in_a_thread(fitted))
    assert ledger_of_block() is None
    assert len(ledger.costs) == 1
    assert in_a_thread(ledger_of_block) is None


def test_blocks_are_left_in_the_reverse_order():
    first, second = Ledger(BUDGET), Ledger(BUDGET)
    with first, second:
        with pytest.raises(RuntimeError, match="after all blocks within it"):
            first.__exit__(None, None, None)
        assert ledger_of_block() is second
    assert ledger_of_block() is None


def test_what_is_pickled_in_a_block_takes_a_ledger_file_along_and_no_ledger_in_memory(tmp_path):
    file = Ledger(BUDGET, tmp_path / "people.json")
    with file:
        travelled = pickle.loads(pickle.dumps(model()))
        done = pickle.dumps(fitted())
        assert copy.deepcopy(model()).ledger is file
    assert travelled.ledger.path == file.path
    assert pickle.loads(done).ledger is None
    assert pickle.loads(pickle.dumps(model())).ledger is None
    with Ledger(BUDGET), pytest.raises(TypeError, match=r"share a ledger file: Ledger\(budget, path\)"):
        pickle.dumps(model())


def test_a_forked_child_has_the_block_and_no_budget_of_a_ledger_in_memory():
    if threading.active_count() > 1:
        pytest.skip("other threads are running")
    with Ledger(BUDGET):
        child = os.fork()
        if child == 0:
            try:
                fitted()
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_a_search_in_processes_says_what_to_do_with_a_ledger_in_memory_and_pays_from_a_file(tmp_path):
    def search(ledger):
        return GridSearchCV(model(ledger=ledger), {"ridge": [0.0, 1.0]}, cv=2, n_jobs=2, error_score="raise")

    with pytest.raises(pickle.PicklingError) as caught:
        search(Ledger(BUDGET)).fit(ROWS, ROWS[:, 0])
    assert "share a ledger file: Ledger(budget, path)" in str(caught.value.__cause__)
    file = Ledger(BUDGET, tmp_path / "people.json")
    search(file).fit(ROWS, ROWS[:, 0])
    assert len(file.costs) == 5
    with file, pytest.raises((pickle.PicklingError, RuntimeError)) as caught:
        search(None).fit(ROWS, ROWS[:, 0])
    assert len(file.costs) == 5
