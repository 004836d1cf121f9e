"""What was drawn is paid, whatever fails and wherever: faults after each draw of everything that draws."""

import asyncio
import hashlib
import pickle
import warnings
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, RELATED, SOME, VARIED, people
from interrupts import BUDGET
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import dpfast
from dpfast import Ledger, MultiOutcomeRidge, PaidFailure, Privacy, UtilityWarning, noise
from dpfast.convex_erm import objective_perturbation
from dpfast.estimator.persistence import _encode, kept_by
from dpfast.ledger import Release, Reservation
from dpfast.noise import BitSource
from dpfast.solvers.losses import SmoothedHuber

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

X, Y = people(60)
SECRET = "3 people have it"
COST = Privacy(1.0, 1e-6)


def ledger(adjacency="replace_one"):
    return Ledger(replace(BUDGET, adjacency=adjacency), composition="basic")


def fitting(fit):
    """Return what fits, and its ledger."""
    books = ledger(fit.estimator.adjacency)
    return partial(fit.run, fit.new(ledger=books, random_state=3, n_threads=1), X, Y), books


def selecting():
    books = ledger()
    ridges = [
        MultiOutcomeRidge(1.0, 1e-6, bound_x=2.0, bound_y=1.0, ridge=one, fit_intercept=False) for one in (1.0, 9.0)
    ]
    return partial(dpfast.select, ridges, X, Y, epsilon=3.0, delta=1e-6, bound_y=1.0, ledger=books), books


def bounding():
    books = ledger()
    return partial(dpfast.private_bounds, X, Y, epsilon=1.0, delta=1e-6, box=True, ledger=books), books


def describing():
    books = ledger()
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(Y > 0.0, "up", "down")})
    return partial(dpfast.describe, table, {"a": (-1, 1), "b": ["up", "down"]}, 1.0, 1e-6, ledger=books), books


def minimising():
    books = ledger()
    rows = {"bound_x": 2.0, "bound_y": 1.0, "n_threads": 1}
    return partial(objective_perturbation, X, Y, loss=SmoothedHuber(), privacy=COST, ledger=books, **rows), books


def by_hand():
    books = ledger()

    def release():
        with books.reserving(COST) as reservation:
            source = noise.resolve_source(None, reservation)
            for name in ("first", "second"):
                drawn = noise.gaussian(1.0, 1, source)
                reservation.add(Release(name, "Gaussian", Privacy(0.5, 5e-7), {"sum": drawn}, {"sum": 1.0}))
            reservation.commit()

    return release, books


OTHERS = {
    "select": selecting,
    "private_bounds": bounding,
    "describe": describing,
    "objective_perturbation": minimising,
    "by hand": by_hand,
}
# What cannot be done at all, its sensitivity being proved for one adjacency, or for delta above 0, is not in VARIED.
EVERY = {name: partial(fitting, fit) for name, fit in {**FITS, **RELATED, **VARIED}.items()} | OTHERS


def in_part(names):
    """Return parameters of which all but the catalogue itself is for the slow tests."""
    return [name if name in (*FITS, *OTHERS) else pytest.param(name, marks=pytest.mark.slow) for name in names]


class Faults:
    """Counts draws that a ledger pays for; raises after the k-th, noise having been asked for."""

    def __init__(self, monkeypatch, books, at=None, error=ArithmeticError):
        self.n_draws, self._books, self._at, self._error = 0, books, at, error
        self._opening = BitSource.open
        monkeypatch.setattr(BitSource, "open", lambda source: self._open(source))

    def _open(self, source):
        bits = self._opening(source)
        # Before that a selection tries its candidates on a table of nobody.
        self.n_draws += any(one.drawn for one in self._books.reservations)
        if self.n_draws == self._at:
            self.fail()
        return bits

    def fail(self):
        raise self._error(SECRET)


@cache
def drawn(name):
    """Return how many draws something takes, what it costs in all, and the names of its releases."""
    with pytest.MonkeyPatch.context() as patch:
        act, books = EVERY[name]()
        faults = Faults(patch, books)
        act()
    return faults.n_draws, books.costs, [one.name for one in books.releases]


def failing(name, k, error, patch):
    """Fail after the k-th draw: what was raised, and the books."""
    act, books = EVERY[name]()
    Faults(patch, books, k, error)
    with pytest.raises((Exception, KeyboardInterrupt)) as failure:
        act()
    return failure.value, books


def paid(books, name):
    """Whether the books have all that a whole act costs, and the releases that were made are the first of its."""
    _, costs, releases = drawn(name)
    made = [one.name for one in books.releases]
    total = sum(one.epsilon for one in books.costs), sum(one.delta for one in books.costs)
    whole = sum(one.epsilon for one in costs), sum(one.delta for one in costs)
    return books.reservations == () and np.allclose(total, whole, rtol=1e-12) and made == releases[: len(made)]


def faults_of(name):
    """Return after which draws to fail: all of them in the slow tests."""
    n_draws = drawn(name)[0]
    return sorted({1, n_draws})


@pytest.mark.parametrize("name", [*FITS, *OTHERS])
def test_a_fault_after_the_first_or_last_draw_is_paid_and_not_told(name):
    for k in faults_of(name):
        with pytest.MonkeyPatch.context() as patch:
            told, books = failing(name, k, ArithmeticError, patch)
        assert_paid_and_not_told(told, books, name)


def assert_paid_and_not_told(told, books, name):
    assert type(told) is PaidFailure
    assert SECRET not in str(told)
    assert told.args == sentence()
    assert told.__cause__ is None
    assert told.__context__ is None
    assert paid(books, name)


@cache
def sentence():
    with pytest.MonkeyPatch.context() as patch:
        return failing("by hand", 1, ValueError, patch)[0].args


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_a_fault_after_any_draw_is_paid_and_not_told(name):
    for k in range(1, drawn(name)[0] + 1):
        # One kind of error or the other: what becomes of either is seen after every second draw.
        with pytest.MonkeyPatch.context() as patch:
            told, books = failing(name, k, (ArithmeticError, MemoryError)[k % 2], patch)
        assert_paid_and_not_told(told, books, name)


@pytest.mark.parametrize("name", [next(iter(FITS)), *OTHERS])
def test_an_interrupt_after_a_draw_is_paid_and_keeps_its_kind(name):
    for k in faults_of(name):
        with pytest.MonkeyPatch.context() as patch:
            told, books = failing(name, k, KeyboardInterrupt, patch)
        assert type(told) is KeyboardInterrupt
        assert told.args == ()
        assert told.__cause__ is None
        assert told.__context__ is None
        assert paid(books, name)


@pytest.mark.parametrize("name", in_part(EVERY))
def test_what_fails_before_any_draw_is_given_back_and_told(name, monkeypatch):
    def fail(reservation):
        raise ArithmeticError(SECRET)

    act, books = EVERY[name]()
    monkeypatch.setattr("dpfast.ledger.ledger.Reservation.draw", fail)
    with pytest.raises(ArithmeticError, match=SECRET):
        act()
    assert books.costs == ()
    assert books.reservations == ()
    assert books.remaining == books.budget


@pytest.mark.parametrize("name", [*SOME, *OTHERS])
def test_the_error_that_ends_iterators_ends_no_fit(name):
    # What counts rows, or a function of the caller's, may raise it.
    for k in (0, 1):
        act, books = EVERY[name]()
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, books, k, StopIteration)
            if k == 0:
                patch.setattr("dpfast.ledger.ledger.Reservation.draw", lambda _, fail=faults.fail: fail())
            with pytest.raises((StopIteration, PaidFailure)) as failure:
                act()
        if k == 0:
            assert type(failure.value) is StopIteration
            assert books.costs == books.reservations == ()
        else:
            assert_paid_and_not_told(failure.value, books, name)


@pytest.mark.parametrize("name", [*FITS, *OTHERS])
def test_warnings_made_errors_are_paid_for_once_something_was_drawn(name):
    act, books = EVERY[name]()
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error", UtilityWarning)
        faults = Faults(patch, books)
        with suppress(UtilityWarning, PaidFailure):
            act()
    assert paid(books, name) if faults.n_draws else books.costs == ()


def transcript(name, table, errors):
    """Return all that is seen of attempts which fail after their first draw, each by another error, bar values."""
    fit, seen = FITS[name], []
    cost = fit.new()._cost()[0] if "repeatedly" not in name else replace(BUDGET, adjacency=fit.estimator.adjacency)
    books = Ledger(cost)
    for error in errors:
        with warnings.catch_warnings(record=True) as warned, pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("always")
            Faults(patch, books, 1, error)
            with pytest.raises(Exception) as failure:  # noqa: PT011 -- whatever it is, it is compared
                fit.run(fit.new(ledger=books, n_threads=1), *table)
        told = failure.value
        seen.append((type(told), told.args, told.__cause__, told.__context__, [str(one.message) for one in warned]))
        records = [(one.name, one.privacy, sorted(one.values)) for one in books.releases]
        seen.append((books.remaining, books.reservations, books.costs, records))
    return seen


@pytest.mark.parametrize("name", FITS)
def test_the_transcript_of_failing_attempts_is_the_same_for_neighbours_whatever_they_fail_by(name):
    other = X.copy()
    other[0] = -X[0]
    errors = [ValueError, partial(OSError, 3), MemoryError]
    assert transcript(name, (X, Y), errors) == transcript(name, (other, Y), errors[::-1])


# A batch of repeated releases is no estimator.
MODELS = {name: fit for name, fit in {**FITS, **RELATED, **VARIED}.items() if "repeatedly" not in name}
each_model = pytest.mark.parametrize("name", in_part(MODELS))


def known(model):
    """Return what was fitted, to the bit."""
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else repr(value)
        for name, value in vars(model).items()
        if name.endswith("_")
    }


def interrupted(name, error, books):
    """Return a model whose solving was stopped, and the same that was left in peace."""
    fit = MODELS[name]
    stopped, whole = (fit.new(random_state=3, n_threads=1, ledger=one) for one in (books, None))
    fit.run(whole, X, Y)
    with pytest.MonkeyPatch.context() as patch:

        def stop(*given):
            raise error(SECRET)

        patch.setattr(type(stopped), "_solve", stop)
        with pytest.raises(PaidFailure if error is not KeyboardInterrupt else KeyboardInterrupt):
            fit.run(stopped, X, Y)
    return stopped, whole


@each_model
def test_what_was_released_is_solved_again_for_nothing(name, tmp_path):
    """From the model, from its file, and from what the ledger has."""
    books = ledger(MODELS[name].estimator.adjacency)
    stopped, whole = interrupted(name, KeyboardInterrupt, books)
    costs = books.costs
    assert stopped.releases_ == books.releases
    with pytest.raises(NotFittedError, match=r"call complete\(\), which spends nothing"):
        check_is_fitted(stopped)
    models = []
    if "given loss" in name:
        with pytest.raises(TypeError, match="loss cannot be saved"):
            stopped.save(tmp_path / "model.json")
    else:
        stopped.save(tmp_path / "model.json")
        models.append(type(stopped).load(tmp_path / "model.json").complete())
        models.append(pickle.loads(pickle.dumps(copy_without_ledger(stopped))).complete())
    assert dpfast.complete(books.releases) is stopped
    for model in (*models, stopped):
        assert known(model) == known(whole)
        assert model.complete() is model
    assert books.costs == costs
    with pytest.raises(ValueError, match="no fit of this process waits"):
        dpfast.complete(books.releases)


def copy_without_ledger(model):
    bare = copy(model)
    bare.ledger = None
    return bare


def test_a_solve_that_fails_is_not_told_and_can_be_completed():
    for name in SOME:
        books = ledger(MODELS[name].estimator.adjacency)
        stopped, whole = interrupted(name, ArithmeticError, books)
        assert known(stopped.complete()) == known(whole)


@pytest.mark.parametrize("name", in_part(name for name in {**FITS, **RELATED} if name in MODELS))
def test_what_a_model_keeps_beside_its_releases_is_the_same_for_neighbours(name):
    """Else it would be a release of its own: of what is solved from, only releases tell of anybody."""
    fit = MODELS[name]
    least = 1 if fit.estimator.adjacency == "add_remove" else 0
    tables = (X, Y), (np.vstack([-X[:1], X[1:]])[least:], np.append(-Y[0], Y[1:])[least:])
    if fit.public_outcomes:
        tables = (X, Y), (np.vstack([-X[:1], X[1:]]), Y)
    kept = []

    def keep(model):
        unsolved = vars(model)["_unsolved"]
        kept.append((unsolved.n_before, repr(_encode("kept", unsolved)) if "given loss" not in name else ""))

    with kept_by(keep):
        for table in tables:
            fit.run(fit.new(n_threads=1), *table)
    (n_before, first), (_, second) = kept
    # Bounds that were found were released.
    assert n_before or first == second


def test_a_model_that_waits_says_so_and_nothing_else(tmp_path):
    stopped, _ = interrupted("ridge", KeyboardInterrupt, ledger())
    for method in (stopped.summary, lambda: stopped.predict(X), lambda: stopped.plot()):
        with pytest.raises(NotFittedError, match="call complete"):
            method()
    assert "call complete()" in stopped._repr_html_()
    with pytest.raises(NotFittedError):
        MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, fit_intercept=False).complete()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            lambda text: text.replace('"dpfast.multi_outcome.mechanism", "MomentMechanism"', '"os", "system"'),
            "no classes",
        ),
        (lambda text: text.replace('"MomentMechanism"', '"limits_of"'), "no class"),
        (lambda text: text.replace('"n_before": 0', '"n_before": 99'), "must hold releases"),
        (lambda text: text.replace('"found": {"dict": {', '"found": {"dict": {"predict": 1'), "'predict' cannot be"),
        (lambda text: text.replace('"given": {"dict": {', '"given": {"dict": {"_solve": 1, '), "'_solve' cannot be"),
    ],
)
def test_a_file_of_a_waiting_model_names_no_code(found, message, tmp_path):
    stopped, _ = interrupted("ridge", KeyboardInterrupt, ledger())
    stopped.save(tmp_path / "model.json")
    rewrite(tmp_path / "model.json", found)
    with pytest.raises(ValueError, match=message):
        MultiOutcomeRidge.load(tmp_path / "model.json")


def rewrite(path, change):
    """Change a document's text, under a checksum that is right."""
    text = path.read_text()
    head, rest = text[: len('{"sha256": "')], text[len('{"sha256": "') + 64 :]
    assert change(rest) != rest
    rest = change(rest)
    path.write_text(head + hashlib.sha256(rest.encode()).hexdigest() + rest)


@pytest.mark.parametrize("name", [name for name in SOME if name in MODELS])
def test_parameters_are_those_at_the_beginning_of_a_fit(name):
    """Another thread's change would calibrate for one bound and sum with another."""
    fit = MODELS[name]
    model, whole = (fit.new(random_state=3, n_threads=1) for _ in range(2))
    fit.run(whole, X, Y)
    given = model.get_params(deep=False)

    def change(read):
        for parameter, value in given.items():
            if isinstance(value, float) and parameter != "delta":
                model.set_params(**{parameter: 1000.0 * value})
        return read

    with pytest.MonkeyPatch.context() as patch:
        reserving = Ledger.reserving
        patch.setattr(Ledger, "reserving", lambda self, *args, **named: change(reserving(self, *args, **named)))
        fit.run(model, X, Y)
    assert known(model) == known(whole)
    assert model.epsilon == 1000.0 * given["epsilon"]


class Renamed(MultiOutcomeRidge):
    """A user's subclass, whose fit calls that of its parent and sets more."""

    def fit(self, X, Y):
        super().fit(X, Y)
        self.n_rows_ = len(X)
        self.note = "fitted"
        return self


def test_a_subclass_whose_fit_calls_its_parents_is_fitted_by_what_was_paid():
    books = ledger()
    models = [one(1.0, 1e-6, bound_x=2.0, bound_y=1.0, random_state=3) for one in (Renamed, MultiOutcomeRidge)]
    models[0].ledger = books
    fitted = [model.fit(X, Y) for model in models]
    assert fitted == models
    assert known(models[0]).keys() == known(models[1]).keys() | {"n_rows_"}
    assert (models[0].n_rows_, models[0].note, models[0].random_state) == (60, "fitted", 3)
    assert books.costs == (COST,)
    assert models[0].releases_ == books.releases


def test_a_ledger_that_cannot_be_read_is_no_draw(tmp_path):
    """Damaged between the reservation and its end, with nothing drawn: that is said."""
    books = Ledger(BUDGET, tmp_path / "ledger")
    with pytest.raises(ValueError, match="is not an intact"), books.reserving(COST):
        (tmp_path / "ledger").write_bytes(b"damaged")


@pytest.mark.parametrize("copied", [copy, deepcopy, lambda source: pickle.loads(pickle.dumps(source))])
def test_a_source_that_a_reservation_pays_for_is_not_copied(copied):
    books = ledger()
    with pytest.raises(TypeError, match="nobody would pay"), books.reserving(COST) as reservation:
        copied(noise.SecureSource(reservation)).words(1)
    assert books.costs == ()
    assert copied(noise.SecureSource()).words(1).shape == (1,)


def test_of_fits_with_the_same_records_each_is_completed_from_its_own_releases(tmp_path, monkeypatch):
    monkeypatch.setattr("dpfast.ledger.ledger.now", lambda: "2026-01-01T00:00:00+00:00")
    files = [Ledger(BUDGET, tmp_path / name) for name in "ab"]
    memory = [ledger(), ledger()]
    waiting = [interrupted("ridge", KeyboardInterrupt, books)[0] for books in (*files, *memory)]
    assert [dpfast.complete(books.releases) for books in memory] == waiting[2:]
    with pytest.raises(ValueError, match="complete the model"):
        dpfast.complete(files[0].releases)
    waiting[1].complete()
    assert dpfast.complete(files[0].releases) is waiting[0]


FUNCTIONS = {name: OTHERS[name] for name in ("select", "private_bounds", "describe", "objective_perturbation")}
FUNCTIONS |= {name: EVERY[name] for name in FITS if "repeatedly" in name}


def released(result):
    """Return what a function's result was made of."""
    match result:
        case Release():
            return (result,)
        case tuple():
            return tuple(one.release for one in result)
    return result.releases_ if hasattr(result, "releases_") else (result.release,)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_would_have_returned_is_completed_from_its_releases(name, monkeypatch):
    act, books = FUNCTIONS[name]()
    whole = act()
    commit = Reservation.commit

    def stopped(reservation, *releases):
        commit(reservation, *releases)
        if reservation._ledger is again:
            raise KeyboardInterrupt

    act, again = FUNCTIONS[name]()
    monkeypatch.setattr(Reservation, "commit", stopped)
    with pytest.raises(KeyboardInterrupt):
        act()
    costs = again.costs
    found = dpfast.complete(again.releases)
    assert type(found) is type(whole)
    assert released(found) == again.releases
    assert again.costs == costs == books.costs
    with pytest.raises(ValueError, match="no fit of this process waits"):
        dpfast.complete(again.releases)


class Greedy(MultiOutcomeRidge):
    """A user's subclass that releases more than the fit it is asked for."""

    def fit(self, X, Y):
        dpfast.private_bounds(X, Y, epsilon=2.0, delta=1e-7)
        return super().fit(X, Y)


def test_a_candidate_releases_no_more_than_its_part():
    books = ledger()
    greedy = [Greedy(1.0, bound_x=2.0, bound_y=1.0, ridge=one) for one in (1.0, 9.0)]
    with books, pytest.raises(dpfast.BudgetExceeded):
        dpfast.select(greedy, X, Y, epsilon=1.0, delta=1e-6, bound_y=1.0)
    assert books.costs == ()


def test_a_model_that_is_fitted_again_meanwhile_is_not_completed(monkeypatch):
    stopped, _ = interrupted("ridge", KeyboardInterrupt, ledger())
    solve = type(stopped)._solve
    coef = []

    def slow(model, *given):
        if not coef:
            coef.append(None)
            coef[0] = stopped.set_params(random_state=None).fit(X, -Y).coef_
        return solve(model, *given)

    monkeypatch.setattr(type(stopped), "_solve", slow)
    with pytest.raises(RuntimeError, match="meanwhile"):
        stopped.complete()
    assert stopped.coef_ is coef[0]


def test_what_is_drawn_and_cannot_be_committed_is_promised(tmp_path):
    (tmp_path / "here").mkdir()
    books = Ledger(BUDGET, tmp_path / "here" / "ledger")
    reservation = books.reserve(COST)
    noise.SecureSource(reservation).words(1)
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(FileNotFoundError):
        reservation.commit()
    (tmp_path / "there").rename(tmp_path / "here")
    assert books.promised == BUDGET
    assert "noise was drawn for it" in books.report()
    assert books.remaining.epsilon < BUDGET.epsilon


def test_a_task_that_is_cancelled_after_a_draw_is_cancelled():
    books = ledger()

    def cancelled():
        with books.reserving(COST) as reservation:
            noise.SecureSource(reservation).words(1)
            raise asyncio.CancelledError(SECRET)

    with pytest.raises(asyncio.CancelledError) as told:
        cancelled()
    assert told.value.args == ()
    assert books.costs == (COST,)


def test_a_seed_is_taken_once_however_it_is_given():
    books = ledger()
    rows = {"bound_x": 2.0, "bound_y": 1.0, "loss": SmoothedHuber(), "privacy": COST, "ledger": books}
    objective_perturbation(X, Y, source=noise.SeededSource(3), **rows)
    with pytest.raises(ValueError, match="a seed that this ledger has not seen"):
        objective_perturbation(X, Y, source=noise.SeededSource(3), **rows)
    assert books.costs == (COST,)


@pytest.mark.parametrize("bounds", [(1e-60, 1e60), (1e-40, 1e40), (1.0, 1e70)])
@pytest.mark.parametrize("n", [1, 30])
def test_hardly_any_noise_and_few_people_far_below_their_bounds_end(n, bounds):
    for epsilon in (1e6, 2.0**39):
        for nonnegative in (False, True):
            for far in (1.0, 1e-70):
                model = MultiOutcomeRidge(
                    epsilon,
                    1e-6,
                    bound_x=bounds[0],
                    bound_y=bounds[1],
                    nonnegative=nonnegative,
                    refine=2,
                    fit_intercept=False,
                )
                model.fit(bounds[0] * X[:n] / 4.0, bounds[1] * far * Y[:n])
                assert np.isfinite(model.coef_).all()
                assert np.isfinite(model.coef_std_).all()


@pytest.mark.parametrize("bound", [{"bound_x": 1e-71}, {"bound_y": 1e71}])
def test_bounds_that_floats_do_not_hold_moments_of_are_refused(bound):
    with pytest.raises(ValueError, match="must lie between 1e-70 and 1e70"):
        MultiOutcomeRidge(1.0, 1e-6, **({"bound_x": 1.0, "bound_y": 1.0} | bound)).fit(X, Y)
