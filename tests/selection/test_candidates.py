"""Candidates: what they may be, and budgets that compose."""

import math

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    PolicyEvaluation,
    Privacy,
    PrivateStandardScaler,
)
from dpfast.privacy import compose_mu, gaussian_mu, range_mu
from dpfast.selection.candidates import budgets, checked


def ridge(epsilon=1.0, **options):
    return MultiOutcomeRidge(epsilon, 1e-6, **{"bound_x": 1.0, "bound_y": 1.0} | options)


def classifier(epsilon=1.0, **options):
    return ObjectivePerturbationClassifier(epsilon, 1e-6, bound_x=1.0, classes=[0, 1], **options)


def scaler(epsilon=1.0):
    return PrivateStandardScaler(epsilon, 1e-6, box_x=(-1.0, 1.0))


def sums(parts):
    return math.fsum(part.epsilon for part in parts), math.fsum(part.delta for part in parts)


@pytest.mark.parametrize("refit", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_fits_and_the_last_one_add_up_and_so_do_the_pick_and_the_last_one(refit, delta):
    privacy = Privacy(1.0, delta)
    shares = budgets([classifier(), classifier(), make_pipeline(scaler(0.5), classifier(1.5))], privacy, refit)
    assert [len(part) for part in shares.fits] == [1, 1, 2]
    for own in shares.refits:
        for parts in ([part for fit in shares.fits for part in fit], [shares.pick]):
            epsilon, spent = sums(parts + own)
            assert privacy.epsilon * (1.0 - 1e-9) < epsilon <= privacy.epsilon
            assert spent <= privacy.delta
    assert sums(shares.fits[0]) == pytest.approx(((1.0 - refit) / 3, delta * (1.0 - refit) / 3), rel=1e-9)
    first, second = shares.fits[2]
    assert second.epsilon == pytest.approx(3.0 * first.epsilon)
    assert (shares.refits[0] == []) == (refit == 0.0)


@pytest.mark.parametrize("refit", [0.0, 0.5])
def test_gaussian_candidates_share_the_square_of_mu(refit):
    privacy = Privacy(1.0, 1e-6)
    whole = gaussian_mu(privacy.epsilon, privacy.delta)
    shares = budgets([ridge(), make_pipeline(scaler(0.5), ridge(1.5))], privacy, refit)
    mus = [[gaussian_mu(*part.target) for part in fit] for fit in shares.fits]
    assert mus[1][1] == pytest.approx(3.0 * mus[1][0], rel=1e-6)
    assert compose_mu(mus[1]) == pytest.approx(mus[0][0], rel=1e-6)
    for own in shares.refits:
        last = [gaussian_mu(*part.target) for part in own]
        assert whole * (1.0 - 1e-6) < compose_mu([mu for fit in mus for mu in fit] + last) <= whole
        if last:
            assert whole * (1.0 - 1e-6) < compose_mu([range_mu(shares.pick.epsilon), *last]) <= whole
        else:
            assert shares.pick.epsilon == 1.0


def test_steps_share_in_proportion_whatever_their_epsilons_add_up_to():
    for scale in (1e-200, 1.0, 1e200):
        shares = budgets([make_pipeline(scaler(scale), ridge(3.0 * scale))], Privacy(1.0, 1e-6), 0.0)
        first, second = (gaussian_mu(*part.target) for part in shares.fits[0])
        assert second == pytest.approx(3.0 * first, rel=1e-6)


def test_candidates_that_are_not_all_gaussian_share_by_sums():
    privacy = Privacy(1.0, 1e-6)
    for other in (classifier(), ridge(n_subsample=5), ridge(mechanism="independent", composition="basic")):
        shares = budgets([ridge(), other], privacy, 0.5)
        assert [fit[0].epsilon for fit in shares.fits] == pytest.approx([0.25, 0.25])


def test_copies_are_made_that_neither_pay_nor_differ_in_adjacency():
    ledger = Ledger(Privacy(1.0))
    own = make_pipeline(scaler(), ridge(ledger=ledger))
    (copy,) = checked([own], Privacy(1.0, 1e-9, "add_remove"), ledger)
    assert [step.adjacency for _, step in copy.steps] == ["add_remove", "add_remove"]
    assert [step.ledger for _, step in copy.steps] == [None, None]
    assert [(step.epsilon, step.delta) for _, step in copy.steps] == [(1.0, 1e-9), (1.0, 1e-9)]
    assert own.steps[1][1].ledger is ledger


@pytest.mark.parametrize(
    ("candidate", "error", "words"),
    [
        (make_pipeline(StandardScaler(), classifier()), TypeError, "StandardScaler.*PrivateStandardScaler"),
        (make_pipeline(scaler(), MinMaxScaler(), classifier()), TypeError, "MinMaxScaler"),
        (make_pipeline(scaler(), "passthrough"), TypeError, "must end"),
        (make_pipeline("passthrough"), TypeError, "must end"),
        (make_pipeline(scaler(), classifier(), memory="/tmp/unused"), ValueError, "memory"),
        (scaler(), TypeError, "must end"),
        (PolicyEvaluation(1.0, gamma=0.5), TypeError, "PolicyEvaluation"),
        ("ridge", TypeError, "str"),
        (classifier(random_state=3), ValueError, "random_state"),
        (classifier(ledger=Ledger(Privacy(1.0))), ValueError, "ledger"),
        (classifier(calibration="paper"), ValueError, "calibration"),
        (classifier(math.inf), ValueError, "epsilon"),
        (classifier(-1.0), ValueError, "epsilon"),
        (classifier(loss="none"), ValueError, "loss"),
    ],
)
def test_what_would_learn_outside_the_budget_is_refused_by_its_place(candidate, error, words):
    with pytest.raises(error, match=rf"estimators\[1\]: .*{words}"):
        checked([classifier(), candidate], Privacy(1.0, 1e-6), None)


@pytest.mark.parametrize("estimators", [[], "two", None, {1: 2}, iter([1])])
def test_a_list_of_candidates_is_asked_for(estimators):
    with pytest.raises(ValueError, match="estimators"):
        checked(estimators, Privacy(1.0, 1e-6), None)
