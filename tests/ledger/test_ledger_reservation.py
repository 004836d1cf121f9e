"""A reservation: given back as long as nothing was drawn under it, paid from then on, whatever ends it."""

import os

import pytest

from dpfast import Ledger, Privacy, noise
from dpfast._redacted import Terminated
from dpfast.ledger import PaidFailure
from dpfast.ledger.entries import Release

COST = Privacy(1.0, 1e-6)


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(Privacy(8.0, 1e-4), tmp_path / "budget" if request.param == "file" else None, composition="basic")


def released(name="mean", epsilon=1.0):
    return Release(name, "gaussian", Privacy(epsilon, 1e-6), {"sum": 1.0}, {"sum": 2.0})


def fail(ledger, error, draws, adds):
    """Fail under a reservation after some draws."""
    with ledger.reserving(COST) as reservation:
        source = noise.resolve_source(None, reservation)
        for _ in range(draws):
            source.open()
        for release in adds:
            reservation.add(release)
        raise error


def failing(ledger, error, *, draws=1, adds=()):
    """Return what was raised where something fails under a reservation."""
    with pytest.raises((Exception, KeyboardInterrupt, SystemExit, GeneratorExit)) as failure:
        fail(ledger, error, draws, adds)
    return failure.value


def commit(ledger, release):
    """Commit a release under a reservation that was drawn."""
    with ledger.reserving(COST) as reservation:
        reservation.draw()
        reservation.commit(release)


def test_what_fails_before_a_draw_is_given_back_with_its_own_error(ledger):
    error = ValueError("X must be a table")
    assert failing(ledger, error, draws=0) is error
    assert ledger.remaining == ledger.budget
    assert ledger.costs == ()


@pytest.mark.parametrize("draws", [1, 2, 5])
@pytest.mark.parametrize("n_released", [0, 1])
def test_what_fails_after_a_draw_is_paid_in_full_and_keeps_its_releases(ledger, draws, n_released):
    own = (released(epsilon=0.25),) * n_released
    told = failing(ledger, ValueError("the 3 people"), draws=draws, adds=own)
    assert type(told) is PaidFailure
    assert ledger.costs == (COST,)
    assert ledger.reservations == ()
    assert [one.name for one in ledger.releases] == ["mean"] * n_released


@pytest.mark.parametrize(
    "error", [ValueError("3"), ZeroDivisionError(), MemoryError(3), OSError(28, "full"), RecursionError()]
)
def test_every_error_after_a_draw_is_the_same_sentence_with_nothing_chained(ledger, error):
    error.__cause__ = KeyError("inner")
    told = failing(ledger, error)
    assert type(told) is PaidFailure
    assert told.args == failing(ledger, TypeError("another")).args
    assert told.__cause__ is None
    assert told.__context__ is None
    assert not hasattr(told, "__notes__")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt("3 people"), Terminated("3 people"), SystemExit(3), GeneratorExit("3 people")]
)
def test_interrupts_after_a_draw_keep_their_kind_and_nothing_else(ledger, error):
    told = failing(ledger, error)
    assert type(told) is type(error)
    assert told is not error
    assert told.args == ((1,) if isinstance(error, SystemExit) else ())
    assert told.__cause__ is None
    assert told.__context__ is None
    assert ledger.costs == (COST,)


def test_an_error_that_was_handled_around_a_reservation_is_not_chained_either(ledger):
    try:
        raise KeyError("earlier")
    except KeyError:
        told = failing(ledger, ValueError("3"))
    assert told.__context__ is None


def test_a_generator_that_is_closed_after_a_draw_has_paid(ledger):
    def answers():
        with ledger.reserving(COST) as reservation:
            noise.resolve_source(None, reservation).open()
            yield 1

    answering = answers()
    next(answering)
    answering.close()
    assert ledger.costs == (COST,)


def test_leaving_without_a_commit_after_a_draw_pays(ledger):
    with ledger.reserving(COST) as reservation:
        noise.resolve_source(7, reservation).open()
    assert ledger.costs == (COST,)


def test_a_commit_that_is_refused_after_a_draw_pays_and_says_no_more(ledger):
    with pytest.raises(PaidFailure):
        commit(ledger, released(epsilon=3.0))
    assert ledger.costs == (COST,)
    assert ledger.releases == ()


def test_what_was_added_but_costs_more_than_was_reserved_is_forfeited(ledger):
    assert type(failing(ledger, ValueError(), adds=[released(epsilon=3.0)])) is PaidFailure
    assert ledger.costs == (COST,)
    assert ledger.releases == ()


def test_nothing_is_drawn_under_a_reservation_that_was_settled(ledger):
    with ledger.reserving(COST) as reservation:
        source = noise.resolve_source(None, reservation)
        source.open()
        reservation.commit(released())
    with pytest.raises(ValueError, match="already been committed"):
        source.open()
    with pytest.raises(ValueError, match="stop"), ledger.reserving(COST) as reservation:
        raise ValueError("stop")
    with pytest.raises(ValueError, match="already been committed or given back"):
        noise.resolve_source(None, reservation).open()


def test_nothing_is_drawn_before_a_reservation_is_made(ledger):
    with pytest.raises(ValueError, match="before `with`"):
        noise.resolve_source(None, ledger.reserving(COST)).open()


def test_what_was_drawn_is_marked_before_the_first_bit(ledger):
    with ledger.reserving(COST) as reservation:
        assert not ledger.reservations[0].drawn
        reservation.draw()
        assert ledger.reservations[0].drawn
        reservation.commit(released())


def test_an_interrupt_right_after_the_mark_is_paid_for(ledger, monkeypatch):
    marking = Ledger._mark_drawn

    def interrupted(books, number):
        marking(books, number)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "_mark_drawn", interrupted)
    assert type(failing(ledger, ValueError())) is KeyboardInterrupt
    assert ledger.costs == (COST,)
    assert ledger.reservations == ()


def test_nothing_is_drawn_where_the_mark_cannot_be_made(ledger, monkeypatch):
    def broken(number):
        raise OSError("disk full")

    monkeypatch.setattr(ledger, "_mark_drawn", broken)
    with pytest.raises(OSError, match="disk full"), ledger.reserving(COST) as reservation:
        noise.resolve_source(None, reservation).open()
    assert ledger.costs == ()
    assert ledger.reservations == ()


def test_somebody_elses_reservation_is_given_back_only_if_nothing_was_drawn(ledger):
    first, second = ledger.reserve(COST), ledger.reserve(COST)
    second.draw()
    held = ledger.reservations
    held[0].give_back()
    with pytest.raises(ValueError, match="forfeited, and not given back"):
        held[1].give_back()
    held[1].forfeit()
    assert ledger.costs == (COST,)
    assert first.privacy == COST


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_copy_cannot_draw_under_its_parents_reservation(ledger):
    with ledger.reserving(COST) as reservation:
        reservation.draw()
        child = os.fork()
        if child == 0:
            try:
                noise.resolve_source(None, reservation).open()
            except RuntimeError:
                os._exit(3)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        reservation.commit(released())


def test_a_reservation_says_itself_that_it_was_drawn(ledger):
    with ledger.reserving(COST) as reservation:
        assert not reservation.drawn
        reservation.draw()
        assert reservation.drawn
