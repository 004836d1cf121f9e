"""Noise from a seed is bound to public numbers alone: to all that its scale follows from, and to none of the rows."""

from contextlib import suppress

import pytest
from catalogue import FITS, RELATED, people

from dpfast.noise.samplers import digest
from dpfast.releases.mechanism import SingleRelease

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

PRIVATE = [name for name, fit in RELATED.items() if fit.estimator.adjacency == "add_remove"]


@pytest.mark.parametrize("name", PRIVATE)
def test_a_person_more_changes_no_context_of_the_first_noise(name, monkeypatch):
    """What comes later is bound to what was released before."""
    contexts = []
    bind = SingleRelease.bound

    def bound(mechanism, source, name, statistic):
        contexts.append(digest(*mechanism.seeds(statistic)))
        return bind(mechanism, source, name, statistic)

    monkeypatch.setattr(SingleRelease, "bound", bound)
    x, y = people(41)
    firsts = set()
    for n in (40, 41):
        contexts.clear()
        RELATED[name](x[:n], y[:n], random_state=0)
        firsts.add(contexts[0])
    assert len(firsts) == 1


@pytest.mark.parametrize("name", FITS)
def test_noise_of_two_scales_has_two_contexts(name, monkeypatch):
    """With bounds, ridge or threshold halved: noise of one context would be the same draws, in two sizes."""
    scales = {}
    bind = SingleRelease.bound

    def bound(mechanism, source, what, statistic):
        context = digest(type(mechanism).__name__, what, *mechanism.seeds(statistic))
        # What hides a solver's error follows from its tolerance, too. Contexts have nine digits of a number.
        of_noise = {kind: pytest.approx(scale, rel=1e-8) for kind, scale in mechanism.scales.items() if kind != "coef"}
        assert scales.setdefault(context, of_noise) == {kind: mechanism.scales[kind] for kind in of_noise}
        return bind(mechanism, source, what, statistic)

    monkeypatch.setattr(SingleRelease, "bound", bound)
    x, y = people(40)
    FITS[name](x, y, random_state=0)
    for parameter, value in FITS[name].estimator.get_params(deep=False).items():
        halved = {parameter: 0.5 * value} if type(value) is float and parameter not in ("epsilon", "delta") else {}
        if halved and FITS[name].accepts(**halved):
            with suppress(ValueError):  # sums that were made for another bound
                FITS[name](x, y, random_state=0, **halved)
    assert scales
