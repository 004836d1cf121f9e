"""Every order of the steps of a ledger: what an observer has seen is within what is charged, exactly."""

import copy
import os
import pickle
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from ledger_processes import release

from dpfast import BudgetExceeded, Ledger, PaidFailure, Privacy
from dpfast.ledger.entries import Process
from dpfast.noise import resolve_source

COSTS = ["0.1", "0.25", "0.3", "0.7"]
BUDGET = "1.5"
ENDS = ["commit", "fail", "interrupt", "back", "forfeit"]


class Held:
    """A reservation of the machine's, and what is known of it: what the ledger must count, and nothing less."""

    def __init__(self, reservation, cost, who):
        self.reservation, self.cost, self.who = reservation, Fraction(cost), who
        self.is_drawn = False
        self.n_added = 0


class Steps(RuleBasedStateMachine):
    """Several processes, of which some die, and threads of one, on one ledger."""

    is_file = True
    open_ones = Bundle("open")
    left = Bundle("left")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "ledger") if self.is_file else None
        self.ledgers = [Ledger(Privacy(float(BUDGET)), path)]
        self.here = Process.here()
        self.charged = Fraction(0)  # by what the machine did, in exact numbers
        self.seen = Fraction(0)  # what observers know of: releases, and outcomes of what drew noise
        self.n_seen = 0
        self.dead = set()

    def teardown(self):
        self.folder.cleanup()

    def ledger(self, who):
        """The ledger as one of the processes has it: an object of its own on the same file, or the same in memory."""
        return self.ledgers[who % len(self.ledgers)]

    @precondition(lambda self: self.is_file and len(self.ledgers) < 3)
    @rule(how=st.sampled_from(["open", "pickle", "copy"]))
    def open_again(self, how):
        """Another process opens it, is handed it, or shares it."""
        first = self.ledgers[0]
        again = {
            "open": lambda: Ledger.open(first.path),
            "pickle": lambda: pickle.loads(pickle.dumps(first)),
            "copy": lambda: copy.deepcopy(first),
        }[how]()
        self.ledgers.append(again)

    @rule(target=open_ones, cost=st.sampled_from(COSTS), who=st.integers(0, 2))
    def reserve(self, cost, who):
        """Hold a cost, or be refused it: exactly where the exact sum passes the budget."""
        try:
            held = self.ledger(who).reserve(Privacy(float(cost)))
        except BudgetExceeded:
            assert self.charged + Fraction(cost) > Fraction(BUDGET)
            return None
        self.charged += Fraction(cost)
        assert self.charged <= Fraction(BUDGET)
        return Held(held, cost, who)

    @rule(held=open_ones)
    def draw(self, held):
        """Ask for noise under it."""
        if held is not None:
            resolve_source(None, held.reservation).words(1)
            held.is_drawn = True

    @rule(held=open_ones)
    def add(self, held):
        """Have something on record, which an observer sees at once: only after a draw."""
        if held is not None and held.is_drawn and held.n_added == 0:
            held.reservation.add(a_release(held))
            held.n_added = 1
            self.seen += held.cost

    @rule(
        target=left, held=consumes(open_ones), how=st.sampled_from(["commit", "fail", "interrupt", "back", "forfeit"])
    )
    def settle(self, held, how):
        """End it in one of the ways in which it can."""
        if held is None:
            return None
        one = held.reservation
        if how == "commit":
            if held.n_added:
                one.commit()
            else:
                one.commit(a_release(held))
                self.seen += held.cost
            self.n_seen += 1
        elif how == "forfeit":
            one.forfeit()
            self.n_seen += held.n_added
        elif how == "back":
            try:
                one.give_back()
                self.charged -= held.cost
                assert not held.is_drawn
            except ValueError:
                assert held.is_drawn
                one.commit()
                self.n_seen += held.n_added
        else:
            raised = ZeroDivisionError if how == "fail" else KeyboardInterrupt
            told = PaidFailure if held.is_drawn and how == "fail" else raised
            error = ended_by(one, raised)
            assert type(error) is told
            if held.is_drawn:
                self.n_seen += held.n_added
                # How it failed is seen too: it is paid for.
                self.seen += held.cost * (1 - held.n_added)
                assert error.__context__ is None
            else:
                self.charged -= held.cost
        return held

    @rule(held=left)
    def settle_again(self, held):
        """What has ended stays as it is, whoever tries what."""
        if held is not None:
            for act in (held.reservation.commit, held.reservation.forfeit, held.reservation.draw):
                with pytest.raises(ValueError, match="already"):
                    act()
            held.reservation.give_back()

    @precondition(lambda self: self.is_file)
    @rule(held=consumes(open_ones))
    def crash(self, held):
        """Its process dies: nothing comes back by itself."""
        if held is None:
            return
        ledger, number = self.ledger(held.who), held.reservation.number
        with ledger._storage.transaction() as draft:
            entry = draft.find(number)
            draft._set(number, replace(entry, holder=replace(self.here, started=self.here.started + 1)))
        self.dead.add(number)
        held.reservation._settled = True

    @precondition(lambda self: self.dead)
    @rule(who=st.integers(0, 2), is_forfeited=st.booleans())
    def settle_the_dead(self, who, is_forfeited):
        """Somebody who knows settles what dead processes hold; what they drew is not given back."""
        for one in self.ledger(who).abandoned:
            assert one.number in self.dead
            if is_forfeited:
                one.forfeit()
            elif one.drawn:
                with pytest.raises(ValueError, match="noise was drawn"):
                    one.give_back()
                continue
            else:
                one.give_back()
                self.charged -= Fraction(str(one.privacy.epsilon))
            self.dead.remove(one.number)

    @rule(held=open_ones)
    def be_refused_in_a_fork(self, held):
        """A copy in another process can do nothing with it."""
        if held is not None and not held.is_drawn:
            with mock.patch.object(os, "getpid", return_value=held.reservation._process + 1), suppress(RuntimeError):
                held.reservation.commit(a_release(held))
                raise AssertionError

    @invariant()
    def what_is_seen_is_charged(self):
        """To the last digit, for whoever looks."""
        for ledger in self.ledgers:
            totals = ledger._storage.totals()
            assert totals.plain.epsilon == self.charged >= self.seen
            assert ledger.remaining.epsilon == float(Fraction(BUDGET) - self.charged)
            entries = ledger._storage.read()
            assert sum(Fraction(str(one.privacy.epsilon)) for one in entries.values()) == self.charged
            assert len(ledger.releases) == self.n_seen
            assert len(ledger.abandoned) == len(self.dead)


class StepsInMemory(Steps):
    """The same of a ledger in memory."""

    is_file = False


def a_release(held):
    """What a reservation pays for."""
    return release(Privacy(float(held.cost)))


def ended_by(reservation, kind):
    """Let an error out of the block of a reservation that has been entered; return what comes out."""
    try:
        with ExitStack() as stack:
            stack.push(reservation)
            raise kind
    except BaseException as error:
        return error


class LongSteps(Steps):
    """The same, for the slow tests."""


TestMemory, TestFile = StepsInMemory.TestCase, Steps.TestCase
TestMemory.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestFile.settings = settings(max_examples=6, stateful_step_count=25, deadline=None)
TestFileLong = pytest.mark.slow(LongSteps.TestCase)
TestFileLong.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
