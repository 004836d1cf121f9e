"""What every fit of every family owes its ledger and its seed: every release on record, noise that nothing repeats."""

import functools
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, SOME, gaussian_beside_others, people, releases_of

from dpfast import LargeDeltaWarning, Ledger, MultiOutcomeRidge, Privacy, Release, describe
from dpfast.noise import SeededSource
from dpfast.noise.samplers import Stream
from dpfast.privacy.composition import keeps_to
from dpfast.statistics import gram

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
]

X, Y = people(80)
every_fit = pytest.mark.parametrize("name", FITS)


def fitted(name, share=1.0, **parameters):
    """Fit with a share of the budget."""
    fit = FITS[name]
    return releases_of(fit(X, Y, epsilon=share * fit.estimator.epsilon, **parameters))


def rounded_up(privacy):
    """Room for the rounding of sums."""
    room = 1.0 + 2.0**-40
    return Privacy(privacy.epsilon * room, privacy.delta * room, privacy.adjacency)


def budget(name, most=50.0):
    return Privacy(most, 1e-3, FITS[name].estimator.adjacency)


def same_values(one, other):
    return one.values.keys() == other.values.keys() and all(
        np.array_equal(one.values[key], other.values[key]) for key in one.values
    )


@every_fit
def test_every_release_of_a_fit_is_on_record_and_paid_for(name, tmp_path):
    count, unit = FITS[name].releases, FITS[name].unit
    # What a file remembers is the ledger's part: one fit of each family tries it.
    in_files = [Ledger(budget(name), tmp_path / "ledger.json", composition="basic")] if name in SOME else []
    for ledger in (Ledger(budget(name), composition="basic"), *in_files):
        releases = fitted(name, ledger=ledger)
        assert len(releases) == (len(releases) if count is None else count)
        assert [one.to_dict(values=False) for one in ledger.releases] == [one.to_dict(values=False) for one in releases]
        if ledger.path is None:
            assert all(one is other for one, other in zip(ledger.releases, releases, strict=True))
        # Never less than the releases cost together; parts of one joint calibration cost less than their sum.
        costs, mus = [one.privacy for one in releases], [one.mu for one in releases]
        spent = rounded_up(ledger.spent)
        is_plain = keeps_to(costs, mus, spent, [one.log_range for one in releases])
        assert is_plain or gaussian_beside_others(releases, spent)
        if len(releases) == 1 or (None in mus and is_plain):
            assert ledger.spent.epsilon == pytest.approx(math.fsum(one.epsilon for one in costs), rel=1e-12)
        assert ledger.unit == unit
        assert {one.unit for one in releases} == {unit}
        assert not any(one.reproducible for one in releases)
        assert (ledger.promised == ledger.budget) == all(one.guaranteed for one in releases)


@every_fit
def test_a_seeded_release_is_marked_and_promises_nothing(name):
    ledger = Ledger(budget(name))
    releases = fitted(name, ledger=ledger, random_state=3)
    for one in releases:
        assert one.reproducible
        assert one.promised.epsilon == math.inf == one.to_dict()["epsilon"]
        assert one.guarantee.startswith("void" if one.guaranteed else "none")
        assert Release.from_dict(one.to_dict()).privacy == one.privacy
    assert ledger.promised.epsilon == math.inf
    assert ledger.spent.epsilon < math.inf
    assert "no guarantee" in ledger.report()
    assert "changes the odds" not in ledger.report()


@every_fit
def test_a_seed_gives_the_same_release_again_and_a_ledger_refuses_it(name, tmp_path):
    first, again = fitted(name, random_state=3), fitted(name, random_state=3)
    assert all(same_values(one, other) for one, other in zip(first, again, strict=True))
    # What a file remembers is the ledger's part: one fit of each family tries it.
    in_files = [Ledger(budget(name), tmp_path / "ledger.json")] if name in SOME else []
    for ledger in (Ledger(budget(name)), *in_files):
        fitted(name, ledger=ledger, random_state=3)
        before = ledger.remaining
        with pytest.raises(ValueError, match="random_state must be a seed that this ledger has not seen"):
            fitted(name, 0.5, ledger=ledger, random_state=3)
        assert ledger.remaining == before
        fitted(name, 0.5, ledger=ledger, random_state=4)
        fitted(name, 0.5, ledger=ledger)


@pytest.fixture
def streams(monkeypatch):
    """Every stream that is opened, by the first bits of its key, and its number."""
    opened, init = [], Stream.__init__

    def noted(self, numbering, call):
        words = bytearray(32 + 15)
        numbering.counter_mode(0, 0)(bytes(32), words)  # what tells a key
        opened.append((bytes(words[:32]), call))
        init(self, numbering, call)

    monkeypatch.setattr(Stream, "__init__", noted)

    def of(action):
        opened.clear()
        action()
        return list(opened)

    return of


@every_fit
def test_seeded_noise_is_bound_to_its_release(name, streams):
    unbound = streams(lambda: SeededSource(3).words(1))[0][0]
    one = streams(lambda: fitted(name, random_state=3))
    assert one
    assert len(set(one)) == len(one)
    keys = {key for key, _ in one}
    assert unbound not in keys
    # Each release has keys of its own, and so has each budget and each seed.
    assert len(keys) >= (FITS[name].releases or 1)
    for share, seed in ((0.5, 3), (1.0, 4)):
        other = streams(functools.partial(fitted, name, share, random_state=seed))
        assert keys.isdisjoint(key for key, _ in other)


@every_fit
def test_noise_of_no_seed_never_repeats(name, streams):
    one, other = (streams(lambda: fitted(name)) for _ in range(2))
    assert not set(one) & set(other)


def test_releases_of_two_budgets_do_not_solve_for_the_sums():
    one, other = (fitted("ridge of one outcome", share, random_state=3)[0] for share in (1.0, 0.5))
    exact = gram(X, Y, bound_x=1.0, bound_y=1.0).xx
    draws = [(release.values["xx"] - exact) / release.scales["xx"] for release in (one, other)]
    # Independent normal variables: a difference below 1e-3 in 3 of 3 has a probability of 2e-10.
    assert np.abs(np.diag(draws[0] - draws[1])).max() > 1e-3


def test_a_source_is_bound_by_label_calibration_and_count():
    def words(*contexts, seed=1):
        source = SeededSource(seed)
        return [bytes(source.bound(*context).words(4)) for context in contexts]

    contexts = [
        ("a",),
        ("b",),
        ("a", 1.0),
        ("a", 1.5),
        ("a", (1.0, 2.0)),
        ("a", 1.0, 2.0),
        ("a", {"xx": 1.0}),
        ("a", {"xy": 1.0}),
        ("a", Privacy(1.0)),
        ("a", Privacy(1.0, adjacency="add_remove")),
        ("a", np.array([1.0, 2.0])),
        ("a", np.array([[1.0, 2.0]])),
        ("a", None),
        ("a", "1.0"),
        ("a", True),
        ("a", abs),
        ("a1.0",),
        (("a",),),
    ]
    found = words(*contexts, ("a",), ("a",))
    assert len(set(found)) == len(found)
    assert words(*contexts) == words(*contexts)
    assert not set(found) & set(words(*contexts, seed=2))
    assert words(("a", np.float64(1.5), [np.int64(2)])) == words(("a", 1.5, (2,)))
    once, twice = SeededSource(1).bound("a"), SeededSource(1).bound("a").bound("b")
    assert not np.array_equal(once.words(4), twice.words(4))
    assert not np.array_equal(SeededSource(1).words(4), SeededSource(1).bound().words(4))


class Untouchable:
    """Data that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"looked at {name}")


def test_a_seed_is_refused_before_data_is_read():
    ledger = Ledger(Privacy(2.0, 1e-5))
    ledger.reserve(Privacy(0.1), random_state=7)
    with pytest.raises(ValueError, match="random_state"):
        MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, ledger=ledger, random_state=7, fit_intercept=False).fit(
            iter([()]), None
        )
    with pytest.raises(ValueError, match="random_state"):
        ledger.reserve(Privacy(0.1), random_state=np.int64(7))


def test_a_failed_fit_gives_its_seed_back():
    ledger = Ledger(Privacy(2.0, 1e-5))
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, ledger=ledger, random_state=7, fit_intercept=False)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((3, 2), np.nan), np.ones((3, 1)))
    assert model.fit(X, Y).releases_ == ledger.releases


def test_rows_and_people_are_not_added_up(tmp_path):
    paths = (None, tmp_path / "ledger.json")
    for path in paths:
        ledger = Ledger(Privacy(5.0, 1e-4), path, composition="basic")
        assert ledger.unit is None
        fitted("ridge", ledger=ledger)
        for name in ("ridge of people", "ridge of people, clipped by person"):
            with pytest.raises(ValueError, match="unit must be the ledger's, 'row', got 'person'"):
                fitted(name, ledger=ledger)
        assert (len(ledger.releases), ledger.spent) == (1, Privacy(1.0, 1e-6))
    again = Ledger(Privacy(5.0, 1e-4), paths[1])
    assert again.unit == "row"
    assert again.report() == ledger.report()
    with pytest.raises(ValueError, match="unit must be the ledger's, 'row'"):
        Ledger(Privacy(5.0, 1e-4), paths[1], unit="person")
    declared = Ledger(Privacy(5.0, 1e-4), unit="person")
    assert declared.unit == "person"
    with pytest.raises(ValueError, match="unit must be the ledger's, 'person', got 'row'"):
        fitted("donors", ledger=declared)
    assert fitted("ridge of people", ledger=declared) == declared.releases
    with pytest.raises(ValueError, match="unit must be"):
        Ledger(Privacy(1.0), unit="household")


def test_a_reservation_for_rows_does_not_record_people():
    ledger = Ledger(Privacy(5.0, 1e-4))
    release = replace(fitted("ridge")[0], unit="person")
    with ledger.reserve(release.privacy) as held, pytest.raises(ValueError, match="a release for a person"):
        held.commit(release)
    assert ledger.releases == ()
    ledger.spend(release)
    assert ledger.unit == "person"


def told_of_delta(name, delta, n=80, **parameters):
    """Fit people, and return the warnings that their number is small for delta."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FITS[name](*people(n), delta=delta, **parameters)
    return [str(one.message) for one in caught if one.category is LargeDeltaWarning]


@every_fit
def test_a_delta_that_hides_nobody_is_spoken_of_once_where_the_number_of_people_is_public(name):
    fit = FITS[name]
    if fit.estimator.delta == 0.0 or not fit.accepts(delta=0.4):
        pytest.skip("delta is 0")
    if "repeatedly" in name:
        pytest.skip("the delta of all of them is above 1")
    told = told_of_delta(name, 0.4)
    if fit.estimator.adjacency == "add_remove" or fit.unit == "person":
        assert told == []
        return
    # A family that expects no error says no number of people.
    if getattr(fit(*people(80)), "_n_public", None) is not None:
        assert len(told) == 1
        assert told[0].startswith("delta 0.4 is at least 1 over the number of people, ")
    assert told_of_delta(name, fit.estimator.delta) == []


def test_a_large_delta_is_spoken_of_before_anything_is_spent():
    ledger = Ledger(Privacy(5.0, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", LargeDeltaWarning)
        with pytest.raises(LargeDeltaWarning, match="such as 1e-04"):
            FITS["ridge"](X, Y, delta=1.0 / 80, ledger=ledger)
        assert ledger.spent.epsilon == 0.0
        FITS["ridge"](X, Y, delta=0.99 / 80, ledger=ledger)
        with pytest.raises(LargeDeltaWarning):
            describe(pd.DataFrame({"x": X[:, 0]}), {"x": (-1, 1)}, 1.0, 0.1)
        describe(pd.DataFrame({"x": X[:, 0]}), {"x": (-1, 1)}, 1.0, 0.1, adjacency="add_remove")
