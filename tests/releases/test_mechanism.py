"""The one driver: what it draws, records and answers, whatever the mechanism."""

from dataclasses import dataclass

import numpy as np
import pytest

from dpfast import Ledger, PaidFailure, Privacy
from dpfast.kernels.columns import FixedPoint
from dpfast.noise import SecureSource, SeededSource
from dpfast.releases.mechanism import Mechanism, Named, NoisySum, Query, release, run, within

PART = Privacy(0.5, 1e-6)


def total(value):
    return FixedPoint.from_integers([value], 0)


@dataclass(frozen=True)
class Twice(Mechanism[list]):
    """Two sums, of which the second is of what the first told."""

    privacy: Privacy
    fails: bool = False

    @property
    def scales(self):
        return {}

    def stages(self):
        noise = NoisySum.calibrate(PART, 1.0, (1,))
        first = yield Query("first", noise, total)
        if self.fails:
            raise ZeroDivisionError(str(first.values["sum"]))
        second = yield Query("second", noise, lambda data: total(data + round(float(first.values["sum"][0]))))
        return lambda: [one.values["sum"][0] for one in (first, second)]


def test_what_a_fit_tells_is_what_its_releases_tell():
    mechanism = Twice(Privacy(1.0, 1e-5))
    releases, tell = run(mechanism, 7, SeededSource(1), "fit")
    assert [(one.name, one.privacy) for one in releases] == [("fit: first", PART), ("fit: second", PART)]
    assert tell() == mechanism.solve(releases) == [one.values["sum"][0] for one in releases]


def test_noise_of_stages_and_of_names_is_not_shared():
    mechanism = Twice(Privacy(1.0, 1e-5))
    one, other = (release(mechanism, 0, SeededSource(1), name) for name in ("one", "other"))
    sums = [float(each.values["sum"][0]) for each in one[:1] + other[:1]]
    noise = [*sums, float(one[1].values["sum"][0]) - round(sums[0]), float(other[1].values["sum"][0]) - round(sums[1])]
    assert len(set(noise)) == 4
    again = release(mechanism, 0, SeededSource(1), "one")
    assert np.array_equal(again[1].values["sum"], one[1].values["sum"])


def test_a_release_is_on_record_before_the_mechanism_sees_it():
    ledger = Ledger(Privacy(1.0, 1e-5))
    with pytest.raises(PaidFailure) as failure, ledger.reserve(Privacy(1.0, 1e-5)) as reservation:
        release(Twice(Privacy(1.0, 1e-5), fails=True), 7, SecureSource(reservation), "fit")
    assert [one.name for one in ledger.releases] == ["fit: first"]
    assert failure.value.__cause__ is None
    assert failure.value.__context__ is None


def test_a_statistic_that_fails_before_a_draw_costs_nothing():
    ledger = Ledger(Privacy(1.0, 1e-5))
    noise = NoisySum.calibrate(PART, 1.0, (1,))
    with pytest.raises(AttributeError), ledger.reserve(PART) as reservation:
        release(Named("sum", noise), "no exact sum", SecureSource(reservation), "fit")
    assert ledger.releases == ()
    assert ledger.remaining.epsilon == 1.0


def test_an_overflow_in_a_statistic_is_silent():
    class Loud(Twice):
        def stages(self):
            noise = NoisySum.calibrate(PART, 1.0, (1,))
            yield Query("one", noise, lambda data: total(int(np.isinf(data * np.float64(1e308)))))
            return lambda: None

    with np.errstate(all="raise"):
        assert len(release(Loud(Privacy(1.0, 1e-5)), 10.0, SeededSource(1), "fit")) == 1


def test_a_mechanism_within_another_keeps_its_noise_and_what_it_tells():
    mechanism = Twice(Privacy(1.0, 1e-5))

    class Within(Twice):
        def stages(self):
            return (yield from within(mechanism.stages(), lambda query: query._replace(name=f"inner {query.name}")))

    releases, tell = run(Within(mechanism.privacy), 3, SeededSource(2), "fit")
    assert [one.name for one in releases] == ["fit: inner first", "fit: inner second"]
    assert tell() == mechanism.solve(releases)


def test_the_record_says_what_was_drawn():
    noise = NoisySum.calibrate(PART, 1.0, (1,), unit="person")
    secret, seeded = (noise.release(total(1), source, "a sum") for source in (SecureSource(), SeededSource(0)))
    assert (secret.mechanism, secret.privacy, secret.mu, secret.unit) == ("Gaussian", PART, noise.mu, "person")
    assert (secret.reproducible, seeded.reproducible) == (False, True)
    assert dict(secret.scales) == dict(noise.scales)


def test_a_mechanism_around_another_says_the_other_ones_cost_and_noise():
    inner = NoisySum.calibrate(PART, 1.0, (1,))
    outer = Named("one", inner)
    assert (outer.privacy, outer.guaranteed, outer.scales) == (PART, inner.guaranteed, inner.scales)
