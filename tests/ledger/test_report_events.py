"""Ledgers as dp-accounting events: never less than what was promised, exact where the noise is Gaussian."""

import math
import sys

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, Privacy, Release
from dpfast.privacy import gaussian_delta, gaussian_mu

EPSILONS = [1e-8, 1e-3, 0.1, 0.999999, 1.0, 3.0, 40.0, 700.0, 1e4]


def release(epsilon, delta=0.0, **more):
    return Release("a sum", "some", Privacy(epsilon, delta), {"sum": np.zeros(2)}, {"sum": 1.0}, **more)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match="accounting"):
        Ledger(Privacy(1.0)).to_dp_accounting()


@pytest.fixture
def dp_accounting():
    return pytest.importorskip("dp_accounting")


def accountants(dp_accounting):
    return [dp_accounting.pld.PLDAccountant(), dp_accounting.rdp.RdpAccountant()]


def test_gaussian_releases_are_exact(dp_accounting):
    mu = gaussian_mu(1.0, 1e-6)
    ledger = Ledger(Privacy(2.0, 2e-6))
    for _ in range(2):
        ledger.spend(release(1.0, 1e-6, mu=mu))
    event = ledger.to_dp_accounting()
    assert [type(part) for part in event.events] == [dp_accounting.GaussianDpEvent] * 2
    for part in event.events:
        assert 1.0 / mu * (1 - 1e-15) <= part.noise_multiplier < 1.0 / mu
    pld, rdp = (accountant.compose(event).get_delta(1.0) for accountant in accountants(dp_accounting))
    exact = gaussian_delta(1.0 / (math.sqrt(2.0) * mu), 1.0)
    # The first discretises the privacy loss at 1e-4, the second is an upper bound.
    assert exact * (1 - 1e-9) <= pld <= exact * 1.001
    assert rdp >= exact


def test_pure_releases_are_never_understated(dp_accounting):
    ledger = Ledger(Privacy(1.0))
    for _ in range(10):
        ledger.spend(release(0.1))
    worst_delta = 0.0
    c = math.exp(0.1) / (1.0 + math.exp(0.1))
    # Ten randomised responses, as the binomial they are.
    for ones in range(11):
        p = math.comb(10, ones) * c**ones * (1.0 - c) ** (10 - ones)
        q = math.comb(10, ones) * c ** (10 - ones) * (1.0 - c) ** ones
        worst_delta += max(0.0, p - math.exp(0.2) * q)
    for accountant in accountants(dp_accounting):
        assert accountant.compose(ledger.to_dp_accounting()).get_delta(0.2) >= worst_delta


@pytest.mark.parametrize(
    ("one", "event"),
    [
        (release(math.inf), "NonPrivateDpEvent"),
        (release(0.5, 1e-7, mu=0.1, calibration="paper", guaranteed=False), "NonPrivateDpEvent"),
        (release(0.5, calibration="paper", guaranteed=False), "NonPrivateDpEvent"),
        (release(0.5, 1e-7, mu=0.1, reproducible=True), "NonPrivateDpEvent"),
        (release(0.5, 1e-7), "UnsupportedDpEvent"),
        (release(0.5), "GaussianDpEvent"),
    ],
)
def test_what_is_not_gaussian_is_not_taken_for_it(dp_accounting, one, event):
    ledger = Ledger(Privacy(math.inf, 1e-6))
    ledger.spend(one)
    (exported,) = ledger.to_dp_accounting().events
    assert type(exported).__name__ == event


def test_accountants_refuse_what_is_unsupported(dp_accounting):
    ledger = Ledger(Privacy(1.0, 1e-6))
    ledger.spend(release(0.5, 1e-7))
    for accountant in accountants(dp_accounting):
        assert not accountant.supports(ledger.to_dp_accounting())


def test_what_is_held_or_forfeited_is_exported_too(dp_accounting):
    ledger = Ledger(Privacy(1.0, 1e-6))
    held = ledger.reserve(Privacy(0.5))
    before = ledger.to_dp_accounting()
    assert len(before.events) == 1
    held.forfeit()
    assert ledger.to_dp_accounting() == before
    assert Ledger(Privacy(1.0)).to_dp_accounting().events == []


def test_a_ledger_file_exports_what_a_ledger_in_memory_does(dp_accounting, tmp_path):
    ledgers = Ledger(Privacy(1.0, 1e-6)), Ledger(Privacy(1.0, 1e-6), tmp_path / "ledger.json")
    rows = np.full((50, 2), 0.5)
    for ledger in ledgers:
        MultiOutcomeRidge(0.5, 1e-7, bound_x=1.0, bound_y=1.0, ledger=ledger, fit_intercept=False).fit(rows, rows)
        ledger.spend(release(0.25))
    assert ledgers[0].to_dp_accounting() == ledgers[1].to_dp_accounting()
    for accountant in accountants(dp_accounting):
        assert accountant.supports(ledgers[1].to_dp_accounting())
