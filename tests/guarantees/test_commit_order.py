"""In every family a release is paid for, and recorded, right after its noise was drawn and before it is used."""

import contextlib
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from catalogue import FITS, people
from interrupts import BUDGET, attributes, books

import dpfast
from dpfast import BudgetExceeded, Ledger, Privacy, UtilityWarning, registry
from dpfast.ledger import Reservation
from dpfast.noise import BitSource
from dpfast.privacy.composition import keeps_to

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

PACKAGE = Path(dpfast.__file__).parent
# Where fits are conducted; a mechanism makes the record between its draw and its end.
MECHANISMS = ("mechanism.py", "donor_weights.py", "steps.py")
FAMILIES = {str(path) for name in (*registry.FAMILIES, "estimator") for path in (PACKAGE / name).glob("*.py")}
FAMILIES = {path for path in FAMILIES if not path.endswith(MECHANISMS)}

X, Y = people(120)


class Recorder:
    """Lists what happens in a fit: streams of bits opened, releases committed, and what the family calls itself.

    Parameters
    ----------
    stop_at : int, optional
        The number of a call by the family that raises instead.
    """

    def __init__(self, monkeypatch, stop_at=None):
        self.events = []
        self._stop_at = stop_at
        self._patch = monkeypatch
        self._profiled = {}

    def __enter__(self):
        opening, committing = BitSource.open, Reservation.commit

        def record_opening(source):
            self.events.append("draw")
            return opening(source)

        def record_commit(reservation, *releases):
            self.events.append("commit")
            committing(reservation, *releases)
            self.events.append("committed")

        self._patch.setattr(BitSource, "open", record_opening)
        self._patch.setattr(Reservation, "commit", record_commit)
        sys.setprofile(self._called)
        return self

    def __exit__(self, kind, error, trace):
        sys.setprofile(None)
        self._patch.undo()

    def _called(self, frame, event, argument):
        if event != "call" or frame.f_back is None or frame.f_back.f_code.co_filename not in FAMILIES:
            return
        # A comprehension goes on where it was.
        if frame.f_code.co_name in ("record_commit", "<genexpr>", "<listcomp>"):
            return
        if self._stop_at is not None and len(self.events) == self._stop_at:
            raise ArithmeticError(frame.f_code.co_name)
        self.events.append(frame.f_code.co_name)


def new(name):
    fit = FITS[name]
    ledger = Ledger(replace(BUDGET, adjacency=fit.estimator.adjacency), composition="basic")
    return fit.new(ledger=ledger, random_state=3, n_threads=1), lambda model: fit.run(model, X, Y)


@pytest.mark.parametrize("name", FITS)
def test_a_release_is_committed_right_after_its_noise_was_drawn(name, monkeypatch):
    model, fit = new(name)
    with Recorder(monkeypatch) as recorder:
        fit(model)
    events = recorder.events
    assert events.count("commit") == 1
    last_draw = len(events) - 1 - events[::-1].index("draw")
    assert events[last_draw + 1 : last_draw + 3] == ["commit", "committed"]


@pytest.mark.parametrize("name", [name for name, fit in FITS.items() if fit.table is not None])
def test_a_fit_that_cannot_be_paid_for_does_not_tell_that_its_table_would_be_refused(name):
    model = FITS[name].new(ledger=Ledger(Privacy(1e-9, 0.0, FITS[name].estimator.adjacency)))
    with pytest.raises(BudgetExceeded):
        FITS[name].run(model, np.where(np.arange(len(X))[:, None] == 3, np.nan, X), Y)


@pytest.mark.parametrize("name", FITS)
def test_a_warning_that_is_made_an_error_tells_of_nothing_that_is_not_paid_for(name, monkeypatch):
    """Of few people answers and found bounds are guesses, as warnings say."""
    fit = FITS[name]
    model, _ = new(name)
    with warnings.catch_warnings(), Recorder(monkeypatch) as recorder:
        warnings.simplefilter("error", UtilityWarning)
        with contextlib.suppress(UtilityWarning, ValueError):
            fit.run(model, *people(6))
    assert "draw" not in recorder.events or "committed" in recorder.events


@pytest.mark.parametrize("name", FITS)
def test_what_fails_after_the_draw_is_paid_for_and_recorded(name, monkeypatch):
    model, fit = new(name)
    with Recorder(monkeypatch) as recorder:
        fit(model)
    recorded = [(release.name, release.privacy) for release in model.ledger.releases]
    if hasattr(model, "releases_"):
        assert recorded == [(release.name, release.privacy) for release in model.releases_]
        assert model.privacy_spent_.epsilon == model.ledger.spent.epsilon
    releases = model.ledger.releases
    # What was spent is what they cost together.
    assert keeps_to([one.privacy for one in releases], [one.mu for one in releases], model.ledger.spent)
    if len(releases) == 1:
        assert releases[0].privacy.epsilon == model.ledger.spent.epsilon
    after = recorder.events.index("committed") + 1
    failing, fit = new(name)
    before = attributes(failing)
    if after < len(recorder.events):
        with pytest.raises(ArithmeticError), Recorder(monkeypatch, stop_at=after):
            fit(failing)
        assert attributes(failing) == before
        assert [(release.name, release.privacy) for release in failing.ledger.releases] == recorded
        assert failing.ledger.spent == model.ledger.spent


@pytest.mark.parametrize("name", FITS)
def test_a_draw_that_fails_costs_nothing(name, monkeypatch):
    opened = [0]
    opening = BitSource.open

    def fail_at(number):
        def fail(source):
            opened[0] += 1
            if opened[0] == number:
                raise ArithmeticError
            return opening(source)

        return fail

    n_draws, number = None, 1
    while n_draws is None or number <= n_draws:
        model, fit = new(name)
        before, unspent = attributes(model), books(model.ledger)
        opened[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(BitSource, "open", fail_at(number))
            with pytest.raises(ArithmeticError):
                fit(model)
        assert attributes(model) == before
        assert books(model.ledger) == unspent
        if n_draws is None:
            opened[0] = 0
            with monkeypatch.context() as patch:
                patch.setattr(BitSource, "open", fail_at(0))
                fit(model)
            n_draws = min(opened[0], 4)
        number += 1
