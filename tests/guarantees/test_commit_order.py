"""In every family a release is paid for, and recorded, right after its noise was drawn and before it is used."""

import contextlib
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from catalogue import FITS, gaussian_beside_others, people
from interrupts import BUDGET, attributes

import dpfast
from dpfast import BudgetExceeded, Ledger, PaidFailure, Privacy, UtilityWarning, registry
from dpfast.ledger import Reservation
from dpfast.noise import BitSource
from dpfast.privacy import keeps_to

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
    """Lists what happens in a fit: streams of bits opened, releases recorded and committed, calls by the family.

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
        opening, committing, adding = BitSource.open, Reservation.commit, Reservation.add

        def record_opening(source):
            self.events.append("draw")
            return opening(source)

        def record_commit(reservation, *releases):
            self.events.append("commit")
            committing(reservation, *releases)
            self.events.append("committed")

        def record_adding(reservation, release):
            self.events.append("add")
            adding(reservation, release)

        self._patch.setattr(BitSource, "open", record_opening)
        self._patch.setattr(Reservation, "commit", record_commit)
        self._patch.setattr(Reservation, "add", record_adding)
        sys.setprofile(self._called)
        return self

    def __exit__(self, kind, error, trace):
        sys.setprofile(None)
        self._patch.undo()

    def _called(self, frame, event, argument):
        if event != "call" or frame.f_back is None or frame.f_back.f_code.co_filename not in FAMILIES:
            return
        # A comprehension goes on where it was.
        if frame.f_code.co_name in ("record_commit", "record_adding", "<genexpr>", "<listcomp>"):
            return
        if self._stop_at is not None and len(self.events) == self._stop_at:
            raise ArithmeticError(frame.f_code.co_name)
        self.events.append(frame.f_code.co_name)


def new(name):
    fit = FITS[name]
    ledger = Ledger(replace(BUDGET, adjacency=fit.estimator.adjacency), composition="basic")
    return fit.new(ledger=ledger, random_state=3, n_threads=1), lambda model: fit.run(model, X, Y)


@pytest.mark.parametrize("name", FITS)
def test_a_release_is_on_record_right_after_its_draw_and_committed_before_it_is_used(name, monkeypatch):
    model, fit = new(name)
    with Recorder(monkeypatch) as recorder:
        fit(model)
    events = recorder.events
    assert events.count("commit") == 1
    drawn = [number for number, event in enumerate(events) if event == "draw"]
    # A secret sample is no release: it is summed first.
    if getattr(model, "n_subsample", None) is None:
        assert all(events[number + 1] in ("draw", "add") for number in drawn)
    last = max(number for number, event in enumerate(events) if event == "add")
    assert last < events.index("commit") < events.index("committed")
    assert "_solve" not in events[: events.index("committed")]


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
def test_what_was_spent_is_what_the_releases_on_record_cost(name, monkeypatch):
    model, fit = new(name)
    with Recorder(monkeypatch):
        fit(model)
    recorded = [(release.name, release.privacy) for release in model.ledger.releases]
    if hasattr(model, "releases_"):
        assert recorded == [(release.name, release.privacy) for release in model.releases_]
        assert model.privacy_spent_.epsilon == model.ledger.spent.epsilon
    releases = model.ledger.releases
    # What was spent is what they cost together.
    costs, mus, ranges = zip(*((one.privacy, one.mu, one.log_range) for one in releases), strict=True)
    assert keeps_to(costs, mus, model.ledger.spent, ranges) or gaussian_beside_others(releases, model.ledger.spent)
    if len(releases) == 1:
        assert releases[0].privacy.epsilon == model.ledger.spent.epsilon


@pytest.mark.parametrize("name", [name for name in FITS if "repeatedly" not in name])
def test_what_fails_around_the_commit_is_paid_for_and_keeps_its_releases(name, monkeypatch):
    """In the first function of the family after the last draw, and after the commit."""
    model, fit = new(name)
    with Recorder(monkeypatch) as recorder:
        fit(model)
    events = recorder.events
    for stop_at in {len(events) - events[::-1].index("add"), events.index("committed") + 1} - {len(events)}:
        failing, fit = new(name)
        before = attributes(failing)
        with pytest.raises(PaidFailure), Recorder(monkeypatch, stop_at=stop_at):
            fit(failing)
        records = [[(one.name, one.privacy) for one in books.releases] for books in (failing.ledger, model.ledger)]
        assert records[0] == records[1]
        assert failing.ledger.spent == model.ledger.spent
        if attributes(failing) != before:
            assert attributes(failing.complete()) == attributes(model)
