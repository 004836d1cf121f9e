"""Gaussian composition: what a ledger admits, what it says of it, and what it never forgets on the way."""

import itertools
import math
import sys
from pathlib import Path

import ledger_processes as processes
import numpy as np
import pytest

from dpfast import BudgetExceeded, Ledger, MultiOutcomeRidge, Privacy, Release
from dpfast.ledger import Split
from dpfast.privacy import gaussian_delta, gaussian_mu, range_mu

BUDGET = Privacy(1.0, 1e-4)
FIT = Privacy(0.1, 1e-7)
ROWS = np.linspace(-0.5, 0.5, 40).reshape(20, 2)


def release(cost=FIT, **more):
    return Release("a sum", "Gaussian", cost, {"sum": np.zeros(2)}, {"sum": 1.0}, **more)


def gaussian(cost=FIT):
    return release(cost, mu=gaussian_mu(cost.epsilon, cost.delta))


def model(ledger, epsilon=0.1, delta=1e-7):
    return MultiOutcomeRidge(epsilon, delta, bound_x=1.0, bound_y=1.0, refine=0, ledger=ledger, fit_intercept=False)


@pytest.fixture(params=["memory", "file"])
def made(request, tmp_path):
    """Make a ledger, in memory or in a file."""
    numbers = itertools.count()

    def make(budget=BUDGET, **options):
        return Ledger(budget, tmp_path / f"{next(numbers)}.json" if request.param == "file" else None, **options)

    return make


def test_ten_fits_leave_most_of_a_budget_and_a_hundred_fit_in():
    ledger = Ledger(BUDGET)
    for _ in range(10):
        model(ledger).fit(ROWS, ROWS[:, 0])
    assert ledger.composition == "gaussian"
    assert ledger.spent.epsilon == pytest.approx(0.204052, abs=1e-6)
    assert ledger.spent.delta == BUDGET.delta
    assert ledger.affords(model(None)) == 111
    for _ in range(90):
        ledger.spend(gaussian())
    assert ledger.spent.epsilon == pytest.approx(0.745405, abs=1e-6)
    for left in range(21, 0, -1):
        assert ledger.affords(FIT, mu=gaussian_mu(0.1, 1e-7)) == left
        ledger.spend(gaussian())
    with pytest.raises(BudgetExceeded):
        model(ledger).fit(ROWS, ROWS[:, 0])
    assert ledger.affords(model(None)) == 0
    # A few others still have room.
    assert ledger.affords(Privacy(0.02, 1e-8)) == 5
    assert ledger.spent.epsilon < 1.0
    assert sum(cost.epsilon for cost in ledger.costs) == pytest.approx(12.1)
    assert len(ledger.spending) == 121
    assert ledger.spending[-1] == ledger.spent


def test_what_a_ledger_affords_is_what_it_takes(made):
    for start, cost, mu in (
        ([], Privacy(0.3, 1e-5), None),
        ([Privacy(0.2, 1e-6)], Privacy(0.05, 1e-6), None),
        ([Privacy(0.2)], Privacy(0.4), None),
        ([Privacy(0.2, 1e-6)], Privacy(0.3, 1e-5), gaussian_mu(0.3, 1e-5)),
        # The whole of it, and more than any limit has room for.
        ([], Privacy(1.0, 1e-4), gaussian_mu(1.0, 1e-4)),
        ([], Privacy(0.5, 4.9e-5), None),
    ):
        ledger = made()
        for one in start:
            ledger.spend(release(one))
        said, taken = ledger.affords(cost, mu=mu), 0
        while True:
            try:
                ledger.spend(release(cost, mu=mu))
            except BudgetExceeded:
                break
            taken += 1
        assert said == taken > 0
    assert Ledger(Privacy(math.inf)).affords(Privacy(1.0)) == sys.maxsize
    with pytest.raises(TypeError, match="cost must be"):
        Ledger(BUDGET).affords(0.1)


def test_a_fit_that_is_not_gaussian_says_no_mu_and_is_counted_by_its_epsilon_and_delta():
    other = MultiOutcomeRidge(0.1, 1e-7, bound_x=1.0, bound_y=1.0, n_subsample=10, fit_intercept=False)
    assert other._cost() == (FIT, None)
    assert model(None)._cost() == (FIT, gaussian_mu(0.1, 1e-7))
    assert model(None, delta=0.0)._cost() == (Privacy(0.1), None)
    assert model(None, epsilon=math.inf)._cost()[1] is None
    assert Ledger(BUDGET).affords(other) == 10


def test_releases_are_held_to_the_mu_that_was_reserved():
    ledger, mu = Ledger(BUDGET), gaussian_mu(0.1, 1e-7)
    with ledger.reserve(FIT, mu=mu) as reservation:
        for too_much in (
            [release(mu=math.nextafter(mu, 1.0))],
            [release()],
            [release(Privacy(0.1))],
            [release(mu=0.8 * mu, part="one"), release(Privacy(0.05, 1e-8), mu=0.8 * mu)],
        ):
            with pytest.raises(ValueError, match="cost more than the reserved"):
                reservation.commit(*too_much)
        reservation.commit(release(mu=0.8 * mu, part="one"), release(mu=0.8 * mu, part="other"))
    for bad, error in ((0.0, ValueError), (math.nan, ValueError), (math.inf, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="mu"):
            ledger.reserve(FIT, mu=bad)
    with ledger.reserve(Privacy(0.5), mu=range_mu(0.1)) as reservation:
        reservation.commit(release(Privacy(0.05)))


def test_a_printed_calibration_has_no_mu_to_be_counted_by():
    ledger = Ledger(BUDGET)
    ledger.spend(release(mu=1e-9, calibration="paper", guaranteed=False))
    ((entry,),) = [list(ledger._storage.read().values())]
    assert entry.mu is None
    assert entry.charge.mu == range_mu(0.2)


def test_the_first_reservation_may_take_what_no_limit_has_room_for(made):
    ledger = made(Privacy(1.0, 1e-6))
    held = ledger.reserve(Privacy(0.9, 9e-7))
    # Plain sums of all of the budget from now on, and for as long as anything is there.
    assert ledger.remaining.epsilon == pytest.approx(0.1)
    assert ledger.remaining.delta == pytest.approx(1e-7)
    ledger.spend(release(Privacy(0.05, 1e-8)))
    held.give_back()
    for _ in range(9):
        ledger.spend(gaussian(Privacy(0.1, 1e-8)))
    with pytest.raises(BudgetExceeded):
        ledger.spend(gaussian(Privacy(0.1, 1e-8)))
    # Nothing was released of what was given back: with nothing else there it is a new ledger.
    again = made(Privacy(1.0, 1e-6))
    again.reserve(Privacy(0.9, 9e-7)).give_back()
    assert again.affords(model(None, 0.1, 1e-8)) > 50
    second = made(Privacy(1.0, 1e-6))
    second.reserve(Privacy(1e-6))
    with pytest.raises(BudgetExceeded, match="composition='basic' has all of it for plain sums"):
        second.reserve(Privacy(0.9, 9e-7))


def test_what_is_given_back_makes_room_again_in_its_own_sum(made):
    ledger = made()
    before = ledger.affords(model(None))
    held = [ledger.reserve(FIT, mu=gaussian_mu(0.1, 1e-7)) for _ in range(3)]
    assert ledger.affords(model(None)) == before - 3
    for one in held:
        one.give_back()
    assert ledger.affords(model(None)) == before
    assert ledger.remaining == BUDGET


def test_whoever_goes_on_by_outputs_finds_no_curve_to_trade_on():
    """Section by section what `privacy.composition` shows to break: neither is offered."""
    half, pure = gaussian_mu(1.0, 1e-6) / math.sqrt(2.0), 0.31109
    for split in (Split(), Split(0.0, 0.0, 0.0), Split(0.0, 0.35, 0.0)):
        offers = []
        for cost, mu in ((Privacy(50.0, 0.0), half), (Privacy(pure), None)):
            ledger = Ledger(Privacy(1.0, 1e-6), split=split)
            try:
                with ledger.reserve(Privacy(0.7, 1e-6), mu=half) as first:
                    first.commit(release(Privacy(0.7, 1e-6), mu=half))
                ledger.reserve(cost, mu=mu)
            except BudgetExceeded:
                offers.append(False)
            else:
                offers.append(True)
        assert offers.count(True) <= 1


def test_composition_and_split_are_checked():
    assert Ledger(BUDGET, composition="basic").composition == "basic"
    assert Ledger(Privacy(1.0)).composition == "basic"
    for options, error in (
        ({"composition": "mu"}, ValueError),
        ({"split": 0.5}, TypeError),
        ({"composition": "basic", "split": Split()}, ValueError),
    ):
        with pytest.raises(error, match=next(iter(options))):
            Ledger(BUDGET, **options)


def test_a_file_keeps_the_limits_that_it_was_made_with(tmp_path):
    path, own = tmp_path / "ledger.json", Split(0.2, 0.3, 0.1)
    Ledger(BUDGET, path, split=own).spend(gaussian())
    for options in ({}, {"split": own}, {"composition": "gaussian", "split": own}):
        again = Ledger(BUDGET, path, **options)
        assert again._limits == Ledger(BUDGET, split=own)._limits
        assert again.affords(model(None)) == Ledger(BUDGET, split=own).affords(model(None)) - 1
    assert Ledger.open(path).composition == "gaussian"
    before = path.read_bytes()
    for options in ({"composition": "basic"}, {"split": Split()}, {"composition": "gaussian"}):
        with pytest.raises(ValueError, match="composition and split must be those of the ledger file"):
            Ledger(BUDGET, path, **options)
    assert path.read_bytes() == before
    basic = tmp_path / "basic.json"
    Ledger(BUDGET, basic, composition="basic")
    assert processes.rows(basic)[0]["limits"] is None
    with pytest.raises(ValueError, match="composition"):
        Ledger(BUDGET, basic, composition="gaussian")


def test_limits_in_a_file_are_seen_to_keep_the_promise(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = Ledger(BUDGET, path)
    content = processes.rows(path)[0]
    for plain, own in (
        ([1.0, 0.0, 1e-4], None),
        (None, [0.1, 0.4, 1e-5]),
        ([2.0, 0.0, 0.0], None),
        (None, [0.1, -0.1, 0.0]),
    ):
        limits = content["limits"]
        changed = {"plain": plain or limits["plain"], "gaussian": own or limits["gaussian"]}
        processes.rewrite(path, content | {"limits": changed})
        with pytest.raises(ValueError, match="not a valid dpfast ledger file"):
            Ledger(BUDGET, path)
        with pytest.raises(ValueError, match="not a valid dpfast ledger file"):
            ledger.reserve(FIT)
    # Sound limits, and others than those that it was opened with.
    processes.rewrite(path, content | {"limits": {"plain": [1.0, 0.0, 1e-5], "gaussian": [0.1, 0.1, 1e-5]}})
    with pytest.raises(ValueError, match="has other limits than when it was opened"):
        ledger.reserve(FIT)


def test_the_place_of_a_cost_is_on_record_and_never_changes(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = Ledger(Privacy(1.0, 1e-6), path)

    def places():
        return [entry["charge"] for entry in processes.rows(path)[1].values()]

    mu = gaussian_mu(0.1, 1e-8)
    held = ledger.reserve(Privacy(0.1, 1e-8), mu=mu)
    ledger.spend(release(Privacy(0.01, 1e-9)))
    first = places()
    assert first == [[0.0, mu, 0.0], [0.0, range_mu(0.02), 1e-9]]
    for _ in range(4):
        ledger.spend(release(Privacy(0.09)))
    held.commit(release(Privacy(0.1, 1e-8), mu=mu))
    assert places()[:2] == first
    # Three have room among squares of mu, and the last among pure epsilons.
    assert [charge[0] for charge in places()[2:]] == [0.0, 0.0, 0.0, 0.09]


def test_the_report_shows_the_limits_and_what_is_taken_of_them():
    ledger = Ledger(BUDGET)
    ledger.spend(gaussian())
    report = ledger.report()
    assert "spent        epsilon 0.0548726, delta 0.0001" in report
    assert "composition  gaussian: all releases together stay within one of two limits" in report
    assert "plain sums   epsilon 0.1 of 1, delta 1e-07 of 5e-05" in report
    assert "mu^2 0.0005854 of 0.07121, epsilon 0 of 0.1, delta 0 of 1e-05" in report
    assert "passed" not in report
    for _ in range(10):
        ledger.spend(gaussian())
    assert "delta 1.1e-06 of 5e-05: beyond it, so the other one holds" in ledger.report()
    assert "composition  basic: epsilons add up" in Ledger(BUDGET, composition="basic").report()


def test_what_is_spent_is_said_at_the_budgets_delta_where_a_release_has_a_larger_one():
    ledger = Ledger(Privacy(2.0, 1e-5))
    ledger.spend(release(Privacy(1.0, 1e-4), mu=gaussian_mu(1.0, 1e-4)))
    assert ledger.spent.delta == 1e-5
    assert 1.0 < ledger.spent.epsilon < 2.0


def test_what_is_spent_is_said_where_epsilon_is_nothing():
    ledger = Ledger(Privacy(1.0, 0.5))
    ledger.spend(release(Privacy(0.1, 1e-7), mu=0.01))
    assert ledger.spent == Privacy.of_sum(0.0, 0.5, "replace_one")
    assert (
        "spent        epsilon 0, delta 0.5; if every analysis was decided before the first result was seen"
        in ledger.report()
    )


def test_the_plot_shows_what_was_spent():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    ledger, axes = Ledger(BUDGET), Figure().subplots()
    for _ in range(3):
        ledger.spend(gaussian())
    assert ledger.plot(ax=axes) is axes
    plain, spent, budget = axes.get_lines()
    assert list(plain.get_ydata()) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert list(spent.get_ydata()) == [0.0, *(cost.epsilon for cost in ledger.spending)]
    assert list(budget.get_ydata()) == [1.0, 1.0]
    assert len(Ledger(Privacy(math.inf)).plot().get_lines()) == 1


@pytest.mark.parametrize(
    "budget", [(1.0, 1e-30), (1e3, 1e-30), (1e-6, 1e-9), (1.0, 0.999), (5e-324, 1e-6), (1.0, 3e-308)]
)
def test_corners_of_budgets_admit_no_more_than_they_hold(budget):
    ledger = Ledger(Privacy(*budget))
    cost = Privacy(max(budget[0] / 4.0, 5e-324), budget[1] / 4.0)
    taken = 0
    while taken < 300:
        try:
            ledger.spend(release(cost))
        except BudgetExceeded:
            break
        taken += 1
    assert taken >= 1
    assert ledger.spent.epsilon <= budget[0] * (1 + 1e-11)
    gaussian_limits = ledger._limits.gaussian
    if gaussian_limits is not None:
        tail = gaussian_delta(1.0, budget[0] - gaussian_limits.epsilon, gaussian_limits.mu)
        assert tail + gaussian_limits.delta + ledger._limits.plain.delta <= budget[1] * (1 + 1e-12)


@pytest.mark.slow
def test_what_is_spent_is_what_an_accountant_finds():
    pytest.importorskip("dp_accounting")
    folder = str(Path(__file__).parents[2] / "benchmarks" / "papers")
    sys.path.insert(0, folder)
    try:
        import ledger_composition
    finally:
        sys.path.remove(folder)
    for budget, mixture, own, other in ledger_composition.table():
        # The accountant rounds up too, by its steps of 1e-4.
        assert own == pytest.approx(other, rel=2e-5), (budget, mixture)


def test_an_empty_ledger_affords_the_whole_budget_once():
    budget = Privacy(1.0, 1e-6)
    empty = Ledger(budget)
    assert empty.affords(budget) == 1
    with empty.reserving(budget):
        assert empty.affords(budget) == 0
