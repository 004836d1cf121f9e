"""The ledger: sums of decimals, reservations that come back, copies that share, processes that do not."""

import copy
import decimal
import itertools
import json
import math
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy, Release, UtilityWarning
from dpfast.ledger.entries import _process, guarantee_of
from dpfast.privacy import gaussian_delta, gaussian_mu, range_mu, split_budget
from dpfast.privacy.guarantee import plain_words


def release(epsilon, delta=0.0, adjacency="replace_one", name="a sum", **more):
    privacy = Privacy(epsilon, delta, adjacency)
    return Release(name, "Laplace", privacy, {"sum": np.arange(3.0)}, {"sum": 2.5}, **more)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0.0,), ValueError, "epsilon"),
        ((-1.0,), ValueError, "epsilon"),
        ((math.nan,), ValueError, "epsilon"),
        (("1",), TypeError, "epsilon"),
        ((True,), TypeError, "epsilon"),
        ((None,), TypeError, "epsilon"),
        ((1.0, -1e-9), ValueError, "delta"),
        ((1.0, 1.0), ValueError, "delta"),
        ((1.0, math.nan), ValueError, "delta"),
        ((1.0, [1e-6]), TypeError, "delta"),
        ((1.0, 0.0, "replace-one"), ValueError, "adjacency"),
        ((1.0, 0.0, None), ValueError, "adjacency"),
        ((1.0, 0.0, ["replace_one"]), ValueError, "adjacency"),
    ],
)
def test_a_bad_guarantee_is_refused_by_name(arguments, error, words):
    with pytest.raises(error, match=words):
        Privacy(*arguments)


def test_privacy_is_a_value():
    assert Privacy(np.float32(0.5), 0) == Privacy(0.5, 0.0, "replace_one")
    assert hash(Privacy(1)) == hash(Privacy(1.0))
    with pytest.raises(AttributeError):
        Privacy(1.0).epsilon = 2.0


@pytest.mark.parametrize(("share", "budget"), [(0.1, 0.3), (0.1, 1.0), (0.7, 2.1), (1e-3, 0.1), (0.2, 0.6)])
def test_decimal_shares_use_up_a_decimal_budget_exactly(share, budget):
    ledger = Ledger(Privacy(budget))
    for _ in range(round(budget / share)):
        ledger.spend(release(share))
    assert ledger.remaining.epsilon == 0.0
    with pytest.raises(BudgetExceeded):
        ledger.spend(release(1e-9))


@given(st.lists(st.floats(1e-6, 2.0), min_size=1, max_size=30))
def test_what_is_spent_never_passes_the_budget(costs):
    ledger = Ledger(Privacy(3.0))
    accepted = []
    for cost in costs:
        try:
            ledger.spend(release(cost))
            accepted.append(cost)
        except BudgetExceeded:
            assert math.fsum([*accepted, cost]) > 3.0 - 1e-12
    assert math.fsum(accepted) <= 3.0 + 1e-12
    assert ledger.spent.epsilon == pytest.approx(math.fsum(accepted))
    assert len(ledger.releases) == len(accepted)


def test_spent_and_remaining_are_guarantees():
    ledger = Ledger(Privacy(1.0, 1e-5))
    assert isinstance(ledger.spent, Privacy)
    assert (ledger.spent.epsilon, ledger.spent.delta) == (0.0, 0.0)
    ledger.spend(release(0.25, 1e-6))
    assert ledger.spent == Privacy(0.25, 1e-6)
    # What deltas come to beside plain sums is half of the budget's.
    assert ledger.remaining == Privacy(0.75, 4e-6)
    basic = Ledger(Privacy(1.0, 1e-5), composition="basic")
    basic.spend(release(0.25, 1e-6))
    assert basic.remaining == Privacy(0.75, 9e-6)


def test_a_reservation_counts_until_it_is_given_back():
    ledger = Ledger(Privacy(1.0))
    held = ledger.reserve(Privacy(0.8))
    assert ledger.remaining.epsilon == 0.2
    assert ledger.spent.epsilon == 0.0
    with pytest.raises(BudgetExceeded, match=r"0\.2"):
        ledger.reserve(Privacy(0.3))
    held.give_back()
    held.give_back()
    assert ledger.remaining == Privacy(1.0)


def test_an_error_gives_the_reservation_back_and_a_commit_keeps_it():
    ledger = Ledger(Privacy(1.0))
    with pytest.raises(KeyboardInterrupt), ledger.reserve(Privacy(0.5)):
        raise KeyboardInterrupt
    assert ledger.remaining.epsilon == 1.0
    with ledger.reserve(Privacy(0.5)) as reservation:
        reservation.commit(release(0.5))
    assert ledger.spent.epsilon == 0.5
    with pytest.raises(ValueError, match="already"):
        reservation.commit(release(0.5))
    assert len(ledger.releases) == 1


def test_delta_is_a_budget_too():
    ledger = Ledger(Privacy(1.0, 1e-6))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(Privacy(0.1, 2e-6))


def test_adjacencies_do_not_mix():
    with pytest.raises(ValueError, match=r"adjacency must be the ledger's.*Privacy\(epsilon, delta, 'add_remove'\)"):
        Ledger(Privacy(1.0)).spend(release(0.5, adjacency="add_remove"))


@pytest.mark.parametrize("budget", [None, 1.0, "1", (1.0, 1e-6)])
def test_a_ledger_takes_a_guarantee(budget):
    with pytest.raises(TypeError, match="budget"):
        Ledger(budget)


def test_threads_never_overspend():
    ledger = Ledger(Privacy(1.0))
    results = []

    def spend():
        for _ in range(50):
            try:
                ledger.spend(release(0.01))
                results.append(True)
            except BudgetExceeded:
                results.append(False)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(results) == 100
    assert ledger.remaining.epsilon == 0.0


def test_copies_of_an_estimator_share_its_ledger():
    ledger = Ledger(Privacy(1.0))
    model = MultiOutcomeRidge(0.5, bound_x=1.0, bound_y=1.0, ledger=ledger, fit_intercept=False)
    for other in (clone(model), copy.copy(model), copy.deepcopy(model)):
        assert other.ledger is ledger


def test_a_ledger_in_memory_does_not_pickle():
    with pytest.raises(TypeError, match="every copy could spend"):
        pickle.dumps(Ledger(Privacy(1.0)))


def _spend_in_child(ledger, queue):
    try:
        ledger.reserve(Privacy(0.1))
        queue.put("spent")
    except RuntimeError:
        queue.put("refused")


def test_a_forked_copy_cannot_spend():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_spend_in_child, args=(Ledger(Privacy(1.0)), queue))
    child.start()
    assert queue.get(timeout=30) == "refused"
    child.join()


def test_the_report_says_it_all_in_words():
    ledger = Ledger(Privacy(2.0, 1e-6))
    ledger.spend(release(0.5))
    ledger.spend(release(0.5, reproducible=True))
    ledger.spend(release(0.5, calibration="paper", guaranteed=False))
    report = ledger.report()
    said = ("replaced by any other", "epsilon 2", "epsilon 1.5", "no guarantee", "void", "guarantee: none")
    for words in (*said, "release 2: its noise came from a seed", "release 3: its printed calibration"):
        assert words in report
    assert "release 1:" not in report
    assert "odds" not in report
    sound = Ledger(Privacy(2.0, 1e-6))
    sound.spend(release(1.5))
    # Not what was spent, which is no promise where costs were chosen in view of results.
    assert "at most 7.39" in sound.report()
    for said in (sound.report(), repr(sound), sound._repr_html_()):
        assert "if every analysis was decided before the first result was seen" in said
    assert "1.5 of 2" in repr(ledger)


def test_the_report_says_that_releases_of_one_fit_are_not_added_up():
    together = "a fit makes several, which share its cost"
    ledger = Ledger(Privacy(2.0, 1e-6))
    ledger.spend(release(0.5))
    assert together not in ledger.report()
    ledger.reserve(Privacy(1.0)).commit(release(0.5), release(0.5))
    assert f"releases     3; {together}" in ledger.report()


def test_the_report_lists_steps_that_are_alike_in_one_line():
    ledger = Ledger(Privacy(9.0, 1e-6))
    ledger.spend(release(0.5))
    steps = [release(0.1, name=f"descent, step {k}", reproducible=True) for k in range(2, 7)]
    ledger.reserve(Privacy(1.0)).commit(release(0.2, name="descent, step 1"), *steps, release(0.1, name="residuals"))
    ledger.reserve(Privacy(0.5)).commit(*(release(0.1, name=f"other, step {k}") for k in range(2)))
    lines = ledger.report().splitlines()
    listed = [line.split()[0] + " " + line.split(": ")[0].split("  ")[-1] for line in lines if line.startswith("  [")]
    assert listed == [
        "[1] a sum",
        "[2] descent, step 1",
        "[3] descent, steps 2 to 6, each",
        "[8] residuals",
        "[9] other, step 0",
        "[10] other, step 1",
    ]
    assert sum("  [3] to [7] " in line for line in lines) == 1
    assert [line for line in lines if line.startswith("  void")] == [
        "  void         releases 3 to 7, each: its noise came from a seed, so that it protects nobody"
    ]


def test_no_name_of_a_release_becomes_a_line_of_the_report():
    ledger, plain = Ledger(Privacy(2.0, 1e-6)), Ledger(Privacy(2.0, 1e-6))
    plain.spend(release(1.0))
    ledger.spend(release(1.0, name="a sum\n  meaning      nothing is told\u2028of anybody\r\x1b[8m\u202e"))
    lines = ledger.report().splitlines()
    assert len(lines) == len(plain.report().splitlines())
    assert sum(line.startswith("  meaning") for line in lines) == 1
    assert all(line.isprintable() for line in lines)


def test_a_release_is_immutable_and_travels():
    one = release(0.5, 1e-7)
    with pytest.raises(ValueError, match="read-only"):
        one.values["sum"][0] = 1.0
    with pytest.raises(TypeError):
        one.values["other"] = 1.0
    with pytest.raises(AttributeError):
        one.mu = 1.0
    again = pickle.loads(pickle.dumps(one))
    assert again.to_dict() == one.to_dict()
    assert json.loads(json.dumps(one.to_dict()))["values"] == {"sum": [0.0, 1.0, 2.0]}


def test_a_release_keeps_no_reference_to_the_callers_array():
    mine = np.zeros(3)
    one = Release("a sum", "Gaussian", Privacy(1.0, 1e-6), {"sum": mine}, {"sum": 1.0})
    mine[0] = 5.0
    assert one.values["sum"][0] == 0.0


def test_a_release_takes_over_a_read_only_array_that_owns_its_memory():
    own = np.ones(3)
    own.flags.writeable = False
    view = np.ones(6)[::2]
    view.flags.writeable = False
    release = Release("sums", "Gaussian", Privacy(1.0, 1e-6), {"own": own, "view": view}, {})
    assert np.shares_memory(release.values["own"], own)
    assert not np.shares_memory(release.values["view"], view)


def test_an_exact_release_promises_nothing():
    assert "none" in release(math.inf).guarantee
    ledger = Ledger(Privacy(math.inf))
    ledger.spend(release(math.inf))
    assert "no privacy protection" in ledger.report()


def test_words_promise_no_more_than_is_kept():
    assert "nothing" in plain_words(Ledger(Privacy(1.0)).spent)
    for epsilon in (1e-6, 1e-4, 0.1, 1.0, 5.0, 13.0):
        factor = float(plain_words(Privacy(epsilon)).split()[-1])
        assert math.expm1(epsilon) <= factor - 1.0 <= 1.02 * math.expm1(epsilon)
    assert plain_words(Privacy(20.0)).endswith("e^20")
    assert "is in the table" in plain_words(Privacy(1.0, 1e-6, "add_remove"))


def test_sums_do_not_depend_on_the_decimal_context():
    with decimal.localcontext() as context:
        context.prec = 1
        ledger = Ledger(Privacy(1.0))
        for _ in range(25):
            ledger.spend(release(0.04))
        with pytest.raises(BudgetExceeded):
            ledger.spend(release(0.04))


def test_tiny_releases_add_up():
    ledger = Ledger(Privacy(1.0))
    ledger.spend(release(1.0))
    for _ in range(5):
        ledger.spend(release(1e-13))
    with pytest.raises(BudgetExceeded):
        ledger.spend(release(1e-12))


def test_an_interrupt_within_a_commit_never_refunds():
    for line in range(1, 12):
        ledger = Ledger(Privacy(1.0))
        steps = [0]

        def interrupt(frame, event, argument, line=line, steps=steps):
            if frame.f_code.co_name != "_commit":
                return None
            if event == "line":
                steps[0] += 1
                if steps[0] == line:
                    raise KeyboardInterrupt
            return interrupt

        try:
            with ledger.reserve(Privacy(0.9)) as reservation:
                before = sys.gettrace()
                sys.settrace(interrupt)
                try:
                    reservation.commit(release(0.9))
                finally:
                    sys.settrace(before)
            committed = True
        except KeyboardInterrupt:
            committed = False
        # Either nothing was recorded, or the whole cost was; a commit that returned is always recorded.
        assert ledger.spent.epsilon == (0.9 if ledger.releases else 0.0)
        assert ledger.remaining.epsilon == pytest.approx(1.0 - ledger.spent.epsilon)
        assert ledger.releases or not committed


@pytest.mark.parametrize(
    ("recorded", "error"),
    [
        (release(1.0), ValueError),
        (release(0.1, 1e-6), ValueError),
        (release(0.1, adjacency="add_remove"), ValueError),
        ("a release", TypeError),
    ],
)
def test_what_a_reservation_does_not_cover_is_not_recorded(recorded, error):
    ledger = Ledger(Privacy(1.0, 1e-6))
    with pytest.raises(error), ledger.reserve(Privacy(0.1)) as reservation:
        reservation.commit(recorded)
    assert ledger.remaining == Privacy(1.0, 1e-6)
    assert not ledger.releases


def test_a_reservation_and_a_budget_do_not_change():
    ledger = Ledger(Privacy(1.0))
    with pytest.raises(AttributeError):
        ledger.budget = Privacy(2.0)
    with pytest.raises(AttributeError):
        ledger.reserve(Privacy(0.9)).privacy = Privacy(1e-9)


def test_what_a_seed_was_reserved_for_promises_nothing_even_without_a_record():
    """Forfeited: its noise may have been seen, and came from the seed."""
    ledger = Ledger(Privacy(1.0, 1e-6))
    ledger.reserve(Privacy(0.25), random_state=3).forfeit()
    assert ledger.spent == Privacy(0.25)
    assert math.isinf(ledger.promised.epsilon)


def test_a_release_is_dated_by_its_reservation(monkeypatch):
    """What lies between the two is the time that reading took, which the data decides."""
    monkeypatch.setattr("dpfast.ledger.ledger.now", iter(["at reservation", "at commitment"]).__next__)
    ledger = Ledger(Privacy(1.0, 1e-6))
    with ledger.reserve(Privacy(0.25)) as reservation:
        reservation.commit(release(0.25))
    assert [one.time for one in ledger.releases] == ["at reservation"]


def test_releases_of_one_joint_calibration_are_paid_for_by_it():
    cost = Privacy(1.0, 1e-6)
    parts = split_budget(cost, [0.5, 0.5])
    mus = [gaussian_mu(*part.target) for part in parts]

    def recorded(mu):
        return Release("a part", "Gaussian", parts[0], {"sum": np.zeros(2)}, {"sum": 1.0}, mu=mu)

    ledger = Ledger(cost)
    with ledger.reserve(cost) as reservation:
        for too_much in ([1.01 * mu for mu in mus], [*mus, mus[0]], [mus[0], None]):
            with pytest.raises(ValueError, match="cost more"):
                reservation.commit(*map(recorded, too_much))
        reservation.commit(*map(recorded, mus))
    assert ledger.spent == cost
    assert sum(one.privacy.epsilon for one in ledger.releases) > 1.0


def test_releases_of_disjoint_parts_cost_as_much_as_the_dearer_part():
    ledger = Ledger(Privacy(1.0, 1e-6))
    with ledger.reserve(Privacy(0.5)) as reservation:
        reservation.commit(
            release(0.3, part="one"), release(0.2, part="one"), release(0.5, part="other"), release(0.1, part="third")
        )
    assert ledger.spent == Privacy(0.5)


@pytest.mark.parametrize(
    "releases",
    [
        [release(0.3, part="one"), release(0.3, part="one")],
        [release(0.3, part="one"), release(0.3)],
        [release(0.6, part="one"), release(0.1, part="other")],
        [release(0.3), release(0.3), release(0.1, part="one")],
    ],
)
def test_a_part_of_the_rows_pays_for_its_own_releases_and_those_of_all_rows(releases):
    ledger = Ledger(Privacy(1.0))
    with pytest.raises(ValueError, match="cost more"), ledger.reserve(Privacy(0.5)) as reservation:
        reservation.commit(*releases)
    assert ledger.spent.epsilon == 0.0


def test_parts_of_the_rows_add_up_between_reservations():
    ledger = Ledger(Privacy(1.0))
    for part in ("one", "other"):
        ledger.spend(release(0.5, part=part))
    assert ledger.remaining.epsilon == 0.0


@pytest.mark.parametrize("field", sorted(release(0.5).to_dict().keys() - {"guarantee", "log_range", "values"}))
def test_a_record_without_one_of_its_fields_is_refused(field):
    """A default in its place would say what nobody has: a guarantee, say."""
    record = release(0.5).to_dict()
    del record[field]
    with pytest.raises(ValueError, match="not the record of a release"):
        Release.from_dict(record)


@pytest.mark.parametrize("claim", [{"epsilon": 0.4}, {"guaranteed": False}, {"reproducible": True}])
def test_a_record_that_states_more_privacy_than_its_own_is_refused(claim):
    record = release(0.5).to_dict()
    assert Release.from_dict(record).to_dict() == record
    with pytest.raises(ValueError, match="it states an epsilon that is not its own"):
        Release.from_dict(record | claim)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"name": 3},
        {"mechanism": None},
        {"mu": -1.0},
        {"scales": {"mean": -1.0}},
        {"grid": {"mean": 0.0}},
        {"calibration": "mine"},
        {"guaranteed": 1},
        {"reproducible": "no"},
        {"sample": (3, 2)},
        {"part": 3},
        {"log_range": 0.0},
        {"privacy": Privacy.of_sum(0.0, 0.0, "replace_one")},
        {"privacy": Privacy.of_sum(1e9, -1e-6, "replace_one"), "mu": 0.01},
    ],
)
def test_what_no_file_could_be_read_with_is_not_committed(spoilt):
    ledger, whole = Ledger(Privacy(1.0, 1e-6)), release(0.5)
    with pytest.raises((ValueError, TypeError)), ledger.reserve(Privacy(0.5, 1e-6)) as reservation:
        reservation.commit(replace(whole, **spoilt))
    assert ledger.releases == ()


def test_the_part_of_a_release_is_on_record():
    one = release(0.5, part="held-out")
    assert Release.from_dict(one.to_dict()).part == "held-out"
    assert "of the held-out part of the rows" in one.summary()

    assert pickle.loads(pickle.dumps(one)).part == "held-out"


def test_the_unit_of_a_release_is_on_record():
    told = "for a person's rows together"
    assert told in release(0.5, unit="person").summary()
    assert told not in release(0.5).summary()


@pytest.fixture
def usual_warnings():
    """What a process has that asks for nothing: of the tests' own filters, none makes an error of a warning."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore", UtilityWarning)
        yield


def folds(ledger, **options):
    """A model, and people enough for five folds, of which the ledger pays for three."""
    rows = np.linspace(-0.5, 0.5, 40).reshape(20, 2)
    return MultiOutcomeRidge(0.1, bound_x=1.0, bound_y=1.0, refine=0, ledger=ledger, **options), rows, rows[:, 0]


def test_a_cross_validation_that_the_ledger_cannot_pay_for_is_warned_of_or_raises(usual_warnings):
    """By scikit-learn: a ledger changes no filter of warnings."""
    before = list(warnings.filters)
    for paid in (1, 3):
        ledger = Ledger(Privacy(0.1 * paid))
        with pytest.warns(FitFailedWarning, match="BudgetExceeded"):
            cross_val_score(*folds(ledger), cv=5)
        assert len(ledger.releases) == paid
    with pytest.raises(BudgetExceeded):
        cross_val_score(*folds(Ledger(Privacy(0.3))), cv=5, error_score="raise")
    with pytest.raises(ValueError, match="All the 5 fits failed"):
        cross_val_score(*folds(Ledger(Privacy(0.05))), cv=5)
    # All folds are paid for, and the last fit is not.
    model, rows, outcomes = folds(Ledger(Privacy(0.5)))
    with pytest.raises(BudgetExceeded):
        GridSearchCV(model, {"ridge": [0.0]}, cv=5).fit(rows, outcomes)
    assert warnings.filters == before


def test_folds_in_threads_pay_from_one_ledger(usual_warnings):
    ledger = Ledger(Privacy(0.3))
    with joblib.parallel_config("threading"), pytest.raises(BudgetExceeded):
        cross_val_score(*folds(ledger), cv=5, n_jobs=2, error_score="raise")
    # The third may be under way when the fourth is refused.
    assert len(ledger._storage.read()) == 3


@pytest.mark.slow
def test_folds_in_processes_raise_too(usual_warnings, tmp_path):
    ledger = Ledger(Privacy(0.3), tmp_path / "people.json")
    with pytest.raises(BudgetExceeded):
        cross_val_score(*folds(ledger), cv=5, n_jobs=2, error_score="raise")
    # The third may be under way in the other process, which joblib ends when the fourth is refused.
    assert len(ledger.releases) in (2, 3)
    with pytest.raises(pickle.PicklingError):
        cross_val_score(*folds(Ledger(Privacy(0.3))), cv=5, n_jobs=2)


@pytest.mark.parametrize(("share", "is_kept"), [(0.5, True), (0.51, False)])
def test_gaussian_releases_compose_beside_others_that_add_up(share, is_kept):
    # Four of half the mu each: their epsilons add up to much more than that of all four.
    mu = gaussian_mu(*Privacy(0.5, 5e-7).target)
    quarters = split_budget(Privacy(0.5, 5e-7), [1.0] * 4)
    gaussians = [release(part.epsilon, part.delta, mu=0.5 * mu * (1.0 - 1e-12)) for part in quarters]
    assert sum(part.epsilon for part in quarters) > 0.9
    others = release(share / 2, 2e-7), release(share / 2, 3e-7 - 1e-15)
    ledger = Ledger(Privacy(1.0, 1e-6))
    with ledger.reserve(Privacy(1.0, 1e-6)) as reservation:
        if is_kept:
            reservation.commit(*gaussians, *others)
        else:
            with pytest.raises(ValueError, match="cost more"):
                reservation.commit(*gaussians, *others)


def test_releases_are_tabulated_with_what_they_promise():
    ledger = Ledger(Privacy(5.0, 1e-5))
    assert ledger.summary().empty
    x = np.eye(4)
    for seed in (None, 0):
        MultiOutcomeRidge(
            1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=0, ledger=ledger, random_state=seed, fit_intercept=False
        ).fit(x, x)
    table = ledger.summary()
    assert table.index.tolist() == [1, 2]
    assert table["epsilon"].tolist() == [1.0, 1.0]
    assert [text.startswith("void") for text in table["guarantee"]] == [False, True]
    assert set(table) <= set(str(table).split())


def test_a_guarantee_is_as_weak_as_the_weakest_release():
    sound, together = Release("a", "Gaussian", Privacy(0.5, 1e-7), {}, {}), Privacy(1.0, 1e-6)
    for spoilt, said in ((replace(sound, reproducible=True), "void: "), (replace(sound, guaranteed=False), "none: ")):
        told = guarantee_of((sound, spoilt), together)
        assert told.startswith(said)
        assert str(together) in told
        assert "dpfast-void" in spoilt._repr_html_()
    assert guarantee_of((sound, sound), together) == str(together)
    assert 'dpfast-void"' not in sound._repr_html_()


def test_neither_the_package_nor_a_ledger_changes_anything_of_the_process(tmp_path):
    code = """
import pickle, random, signal, sys, threading, warnings
import numpy, sklearn.base, scipy.optimize  # what others change is theirs
def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook, sys.gettrace()
    numbers = random.getstate(), pickle.dumps(numpy.random.get_state())
    return list(sys.meta_path), list(sys.path_hooks), list(warnings.filters), hooks, handlers, numbers
before = state()
import dpfast
assert state() == before
for path in (None, sys.argv[1]):
    ledger = dpfast.Ledger(dpfast.Privacy(1.0, 1e-6), path)
    with ledger.reserve(dpfast.Privacy(0.5)) as held:
        held.forfeit()
    ledger.report()
assert state() == before
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "ledger")], check=True)


@pytest.mark.parametrize("kept_in", ["memory", "file"])
def test_a_transaction_in_one_thread_lets_another_wait(kept_in, tmp_path):
    """What the second reserves is not overwritten by the first, whose draft is older."""
    ledger = Ledger(Privacy(1.0), None if kept_in == "memory" else tmp_path / "ledger")
    begun, other = threading.Event(), []

    def reserve():
        begun.set()
        other.append(ledger.reserve(Privacy(0.3)))

    thread = threading.Thread(target=reserve)
    with ledger._storage.transaction() as draft:
        thread.start()
        assert begun.wait(60)
        thread.join(0.05)
        draft.hold(ledger.reserving(Privacy(0.3))._entry)
    thread.join()
    assert len(other) == 1
    assert ledger.remaining.epsilon == 0.4
    assert [one.number for one in ledger.reservations] == [1, 2]


@pytest.mark.parametrize("kept_in", ["memory", "file"])
@pytest.mark.parametrize("is_void", list(itertools.product([False, True], repeat=2)))
def test_one_void_release_among_others_voids_all(kept_in, is_void, tmp_path):
    """And is exported as no promise; what is forfeited or held goes by its cost, or by its seed."""
    dp_accounting = pytest.importorskip("dp_accounting")
    path = None if kept_in == "memory" else tmp_path / "ledger"
    ledger = Ledger(Privacy(9.0, 1e-3), path, composition="basic")
    ledger.reserve(Privacy(1.0)).commit(*(release(0.5, reproducible=one) for one in is_void))
    ledger.reserve(Privacy(0.25)).forfeit()
    assert math.isinf(ledger.promised.epsilon) == any(is_void)
    assert ledger.spent.epsilon == 1.25
    events = ledger.to_dp_accounting().events
    assert [isinstance(one, dp_accounting.NonPrivateDpEvent) for one in events] == [*is_void, False]
    ledger.reserve(Privacy(0.25), random_state=1)
    assert math.isinf(ledger.promised.epsilon) == any(is_void)
    ledger.reservations[0].forfeit()
    assert math.isinf(ledger.promised.epsilon)
    assert isinstance(ledger.to_dp_accounting().events[-1], dp_accounting.NonPrivateDpEvent)


@pytest.mark.parametrize("kept_in", ["memory", "file"])
def test_releases_are_in_the_order_of_their_reservations(kept_in, tmp_path):
    ledger = Ledger(Privacy(9.0), None if kept_in == "memory" else tmp_path / "ledger")
    held = [ledger.reserve(Privacy(0.5)) for _ in range(3)]
    for number in (2, 0, 1):
        held[number].commit(release(0.5, name=f"{number}"))
    assert [one.name for one in ledger.releases] == ["0", "1", "2"]


def test_what_is_spent_counts_the_deltas_of_releases_that_are_not_gaussian():
    """Closed form: a Gaussian release beside an approximate one that has no mu."""
    ledger, mu, other = Ledger(Privacy(4.0, 1e-5)), 0.2, Privacy(0.3, 4e-6)
    ledger.spend(release(3.0, 1e-7, mu=mu))
    ledger.spend(release(other.epsilon, other.delta))
    up, down = 1.0 / (1.0 + math.exp(-other.epsilon)), 1.0 / (1.0 + math.exp(other.epsilon))

    def delta(epsilon, left):
        mixed = [up * gaussian_delta(1.0, epsilon - other.epsilon, mu), down * gaussian_delta(1.0, epsilon + 0.3, mu)]
        return left + math.fsum(mixed)

    told = ledger.spent
    assert told.delta == 1e-5
    assert delta(told.epsilon, 4e-6) <= 1e-5 * (1 + 1e-9)
    assert delta(told.epsilon * (1 - 1e-4), 4e-6) > 1e-5


def test_a_pure_release_beside_a_mu_is_held_to_the_mu_of_twice_its_range():
    """The least mu of a Gaussian that dominates whatever has a log ratio within its epsilon."""
    pure = release(0.5)
    for mu, is_kept in ((range_mu(1.0) * (1 + 1e-12), True), (range_mu(1.0) * 0.999, False)):
        with Ledger(Privacy(4.0, 1e-3)).reserve(Privacy(0.5), mu=mu) as held:
            if is_kept:
                held.commit(pure)
            else:
                with pytest.raises(ValueError, match="more than the reserved mu"):
                    held.commit(pure)


@pytest.mark.parametrize("where", [None, "ledger"])
@pytest.mark.parametrize(
    "flaw",
    [
        {"mechanism": None},
        {"scales": {"a": -1.0}},
        {"scales": {"a": np.inf}},
        {"grid": {"a": 0.0}},
        {"sample": (5, 3)},
        {"part": 3},
        {"guaranteed": 1},
        {"time": 3},
    ],
)
def test_a_release_that_could_not_be_read_again_is_not_recorded(flaw, where, tmp_path):
    """A file that holds it would be opened by nobody."""
    budget = Privacy(1.0, 1e-6)
    ledger = Ledger(budget, where and tmp_path / where)
    one = Release(**{"name": "x", "mechanism": "Laplace", "privacy": Privacy(0.1), "values": {}, "scales": {}} | flaw)
    with pytest.raises((TypeError, ValueError)):
        ledger.spend(one)
    assert ledger.costs == ()
    assert where is None or Ledger(budget, tmp_path / where).costs == ()


def test_a_refusal_names_processes_that_have_ended_only_where_one_holds_budget(tmp_path):
    path = tmp_path / "budget"
    ledger = Ledger(Privacy(1.0), path)

    def refused():
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.reserve(Privacy(0.9))
        return "has ended" in str(refusal.value)

    ledger.reserve(Privacy(0.2))
    assert not refused()
    code = f"import os; from dpfast import *; Ledger(Privacy(1.0), {str(path)!r}).reserve(Privacy(0.2)); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert refused()
    ledger.abandoned[0].give_back()
    assert not refused()


def test_to_ask_whether_a_process_has_ended_sends_it_no_signal(monkeypatch):
    sent, kill = [], os.kill
    monkeypatch.setattr(os, "kill", lambda pid, signal: sent.append(signal) or kill(pid, 0))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        held = _process(other.pid)
        assert not held.ended()
        other.communicate(b"\n")
    assert held.ended()
    assert sent == [0, 0]
