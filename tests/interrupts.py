"""Interrupt everything that changes something, before each bytecode it runs; ``python tests/interrupts.py`` tabulates.

A trace function raises KeyboardInterrupt before the k-th bytecode within dpfast, so before and after every call of a
kernel too. A signal comes at some of these points only, of which CPython has fewer: what holds here holds there.
"""

import gc
import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from catalogue import FITS, people

import dpfast
from dpfast import Ledger, MultiOutcomeRidge, Privacy, Release
from dpfast.estimator.base import reserve
from dpfast.io.people import People
from dpfast.statistics import GramAccumulator
from dpfast.statistics.accumulator import PersonAccumulator
from dpfast.statistics.rows import PersonUnit

PACKAGE = os.path.dirname(dpfast.__file__) + os.sep
BUDGET = Privacy(1e3, 0.5)
COST = Privacy(1.0, 1e-6)


class Interrupter:
    """Counts bytecodes of the package, or of its functions of one name, and raises before one of them."""

    def __init__(self, place=None, function=None):
        self.place, self.function = place, function
        self.n_seen = 0

    def __enter__(self):
        self._before = sys.gettrace()  # what counts the lines that tests run
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, kind, error, trace):
        sys.settrace(self._before)

    def _enter_frame(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if self.function is not None and frame.f_code.co_name != self.function:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, argument):
        if event == "opcode":
            self.n_seen += 1
            if self.n_seen == self.place:
                raise KeyboardInterrupt
        return self._step


@dataclass
class Scenario:
    """Something that changes a state.

    `make` returns a new state, `act` changes it, `look` describes it, and `allowed` says whether what an interrupted
    act left is right, given what it was before and what a whole act makes of it.
    """

    name: str
    make: object
    act: object
    look: object
    allowed: object = None
    again: object = None
    function: str | None = None
    differences: list = field(default_factory=list)

    def states(self):
        state = self.make()
        before = self.look(state)
        self.act(state)
        return before, self.look(state)

    def length(self):
        """Bytecodes of a whole act."""
        state = self.make()
        with Interrupter(function=self.function) as interrupter:
            self.act(state)
        return interrupter.n_seen

    def places(self, n_final, n_before):
        """Return the last bytecodes, and so many before them, evenly spread; all if there are no more."""
        length = self.length()
        first_of_final = max(1, length - n_final + 1)
        spread = np.unique(np.linspace(1, first_of_final, min(n_before, first_of_final)).astype(int))
        return sorted({*spread.tolist(), *range(first_of_final, length + 1)})

    def try_at(self, places, states):
        """Interrupt at each place; returns how many interrupts came, and keeps what was wrong in `differences`."""
        before, after = states
        n_raised = 0
        for place in places:
            state, raised = self.make(), False
            try:
                with Interrupter(place, self.function):
                    self.act(state)
            except KeyboardInterrupt:
                raised = True
            n_raised += raised
            left = self.look(state)
            fine = self.allowed(before, after, left) if raised else left == after
            if not fine:
                self.differences.append((place, left))
            elif self.again is not None and raised:
                try:
                    self.again(state, left)
                except Exception as error:
                    self.differences.append((place, repr(error)))
        return n_raised


def only_before(before, after, left):
    return left == before


def before_or_after(before, after, left):
    return left in (before, after)


def table(n_rows, n_columns, seed=0):
    return np.random.default_rng(seed).uniform(-0.4, 0.4, (n_rows, n_columns))


# Accumulators


def accumulated(accumulator):
    moments = accumulator.gram()
    return moments.n_rows, moments.xx.tobytes(), None if moments.xy is None else moments.xy.tobytes()


def accumulators():
    X, Y = table(60, 5), table(60, 2, 1)

    def new(n_threads=1):
        made = GramAccumulator(5, 2, bound_x=1.0, bound_y=1.0, n_threads=n_threads)
        return made.update(X[:20], Y[:20])

    def merged(state):
        state[0].merge(state[1])

    def adding(act):
        def again(accumulator, left):
            act(accumulator)
            whole = new()
            act(whole)
            assert accumulated(accumulator) == accumulated(whole)

        return Scenario("", new, act, accumulated, only_before, again)

    acts = {
        "arrays": lambda made: made.update(X, Y),
        "selected rows": lambda made: made.update(X, Y, np.arange(7)),
        "converted rows": lambda made: made.update(X.astype("f2"), Y),
        "a stream": lambda made: made.update(((X[i : i + 9], Y[i : i + 9]) for i in range(0, 60, 9)), None),
    }
    for name, act in acts.items():
        scenario = adding(act)
        scenario.name = f"update: {name}"
        yield scenario

    wide, wide_y = table(6_000, 40), table(6_000, 2)

    def two_threads():
        return GramAccumulator(40, 2, bound_x=3.0, bound_y=1.0, n_threads=2)

    yield Scenario("update: two threads", two_threads, lambda made: made.update(wide, wide_y), accumulated, only_before)
    yield Scenario("merge", lambda: (new(), new()), merged, lambda state: accumulated(state[0]), only_before)

    owners = People(60, None, np.arange(0, 61, 3))

    def person():
        return PersonAccumulator(5, 2, PersonUnit(3, 1.0, 1.0), bound_x=1.0, bound_y=1.0, n_threads=1)

    yield Scenario("add people", person, lambda made: made.add_people(X, Y, owners), accumulated, only_before)


# Ledgers


def release(privacy=COST):
    return Release("a sum", "Laplace", privacy, {"sum": np.arange(3.0)}, {"sum": 2.5})


def books(ledger):
    """Return what a ledger holds: what was spent, on what, and what is left and reserved."""
    return spent_plainly(ledger), len(ledger.releases), ledger.remaining.epsilon, len(ledger.reservations)


def spent_plainly(ledger):
    """Return the sum of epsilons."""
    return sum(cost.epsilon for cost in ledger.costs)


def settled(before, after, left):
    """Whether nothing is reserved, and what was spent is on record: none of it, or all."""
    return left in (before, after) and left[3] == before[3]


def still_works(state, left):
    ledger = state[0] if isinstance(state, tuple) else state
    ledger.spend(release(Privacy(0.5, 1e-7)))
    assert spent_plainly(ledger) == left[0] + 0.5


def ledgers(folder):
    def of(where):
        numbers = iter(range(10**9))

        def new():
            return Ledger(BUDGET, None if where == "memory" else folder / f"{next(numbers)}.json")

        return new

    def hold(ledger):
        with ledger.reserving(COST):
            pass

    def hold_as_fits_do(ledger):
        with reserve(MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, ledger=ledger, fit_intercept=False), COST):
            pass

    def fail(ledger):
        try:
            with ledger.reserving(COST):
                raise ValueError
        except ValueError:
            pass

    for where in ("memory", "file"):
        new = of(where)

        def held(new=new):
            ledger = new()
            return ledger, ledger.reserve(COST)

        kept = []

        def reserve_only(ledger, kept=kept):
            kept[:] = [ledger.reserve(COST)]

        def look(state):
            return books(state[0])

        yield Scenario(f"reserve: {where}", new, reserve_only, books, only_before, still_works)
        yield Scenario(f"with reserving: {where}", new, hold, books, settled, still_works)
        yield Scenario(f"with a fit's reservation: {where}", new, hold_as_fits_do, books, settled, still_works)
        yield Scenario(f"with reserving, which fails: {where}", new, fail, books, settled, still_works)
        yield Scenario(f"spend: {where}", new, lambda one: one.spend(release()), books, settled, still_works)
        yield Scenario(
            f"commit: {where}", held, lambda one: one[1].commit(release()), look, before_or_after, still_works
        )
        yield Scenario(f"give back: {where}", held, lambda one: one[1].give_back(), look, before_or_after, still_works)
        yield Scenario(f"forfeit: {where}", held, lambda one: one[1].forfeit(), look, before_or_after, still_works)


# Fits


def attributes(model):
    """Return what a model knows, as it can be compared."""
    return {name: _plain(value) for name, value in vars(model).items() if name != "ledger"}


def _plain(value):
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, Release):
        return value.privacy, {name: _plain(array) for name, array in value.values.items()}
    return value if isinstance(value, int | float | str | bool | None | Privacy) else repr(value)


def fitted_or_paid(before, after, left):
    """Whether a model is as it was, paid for or not; or paid for and fitted, or to be completed."""
    (model, ledger), unpaid, paid = left, before[1], after[1]
    # Of what was drawn all is paid for, and what was released of it by then is on record.
    is_paid = (ledger[0], *ledger[2:]) == (paid[0], *paid[2:]) and unpaid[1] <= ledger[1] <= paid[1]
    if model == before[0]:
        return ledger == unpaid or is_paid
    known = {name: one for name, one in model.items() if name[0] != "_"}
    is_whole = model == after[0] or ("_unsolved" in model and "releases_" in model)
    return is_paid and is_whole and all(after[0].get(name) == one for name, one in known.items())


def fits(folder, names=tuple(FITS)):
    X, Y = people(120)
    numbers = iter(range(10**9))
    for name in names:
        fit = FITS[name]
        budget = replace(BUDGET, adjacency=fit.estimator.adjacency)
        for where, earlier in (("memory", False), ("memory, again", True), ("file, again", True)):

            def act(made, fit=fit):
                fit.run(made, X, Y)

            def make(fit=fit, act=act, budget=budget, where=where, earlier=earlier):
                # What an earlier fit with other settings left must not be seen beside what this one sets.
                made = fit.new(random_state=4, n_threads=1)
                if earlier:
                    act(made)
                made.random_state = 3
                made.ledger = Ledger(budget, folder / f"fit{next(numbers)}.json" if "file" in where else None)
                return made

            def look(made):
                return attributes(made), books(made.ledger)

            yield Scenario(f"fit, {where}: {name}", make, act, look, fitted_or_paid, None)


# Jobs

JOB = """
[input]
path = "table.csv"
[features]
a = "number"
b = "number"
[outcomes]
y = "number"
[estimator]
kind = "multi_outcome_ridge"
bound_x = 1.0
bound_y = 1.0
n_threads = 1
[privacy]
epsilon = 1.0
delta = 1e-6
[privacy.ledger]
path = "ledger.json"
epsilon = 1000.0
delta = 0.5
[output]
folder = "fit"
overwrite = true
"""


def jobs(folder):
    from dpfast.jobs import run

    numbers = iter(range(10**9))
    rows = "\n".join(f"{a:.6f},{b:.6f},{y:.6f}" for a, b, y in table(40, 3))

    def make(earlier):
        here = folder / f"job{next(numbers)}"
        here.mkdir()
        (here / "table.csv").write_text("a,b,y\n" + rows + "\n")
        (here / "job.toml").write_text(JOB)
        Ledger(Privacy(1000.0, 0.5), here / "ledger.json")
        if earlier:
            run(here / "job.toml", progress=False)
        return here

    def look(here):
        written = sorted(file.name for file in (here / "fit").iterdir()) if (here / "fit").exists() else None
        others = {"table.csv", "job.toml", "ledger.json", "ledger.json-journal", "fit"}
        strays = sorted(file.name for file in here.iterdir() if file.name not in others)
        ledger = Ledger(Privacy(1000.0, 0.5), here / "ledger.json")
        return spent_plainly(ledger), len(ledger.reservations), written, len(strays)

    def allowed(before, after, left):
        """Whether outputs are whole, nothing is reserved, and nothing lies about but a release that was paid for."""
        spent, reserved, written, strays = left
        kept = spent == after[0] and written == before[2]
        return spent in (before[0], after[0]) and reserved == 0 and written in (before[2], after[2]) and strays <= kept

    def again(here, left):
        run(here / "job.toml", force=True, progress=False)
        assert look(here)[0] == left[0] + 1.0

    for earlier in (False, True):
        name = "job, over an earlier one" if earlier else "job"
        yield Scenario(
            name,
            lambda earlier=earlier: make(earlier),
            lambda here: run(here / "job.toml", force=True, progress=False),
            look,
            allowed,
            again,
        )


def scenarios(folder):
    yield from accumulators()
    yield from ledgers(folder)
    yield from fits(folder)
    yield from jobs(folder)


def main():
    n_final, n_before = (int(argument) for argument in (sys.argv[1:] or (300, 300)))
    warnings.simplefilter("ignore")
    total, n_wrong = 0, 0
    print(f"{'what was interrupted':50} {'bytecodes':>10} {'interrupts':>10} {'differences':>11} {'seconds':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for scenario in scenarios(Path(folder)):
            start = time.perf_counter()
            states = scenario.states()
            n_raised = scenario.try_at(scenario.places(n_final, n_before), states)
            total, n_wrong = total + n_raised, n_wrong + len(scenario.differences)
            print(
                f"{scenario.name:50} {scenario.length():10} {n_raised:10} {len(scenario.differences):11} "
                f"{time.perf_counter() - start:8.1f}",
                flush=True,
            )
            for place, left in scenario.differences[:2]:
                print(f"    before bytecode {place}: {str(left)[:300]}")
            gc.collect()
    print(f"{'all':50} {'':10} {total:10} {n_wrong:11}")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
