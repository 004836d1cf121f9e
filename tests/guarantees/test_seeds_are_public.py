"""Noise from a seed is bound to public numbers alone: to none that one person more would change."""

import pytest
from catalogue import RELATED, people

from dpfast.noise.samplers import digest
from dpfast.releases.mechanism import SingleRelease

pytestmark = pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")

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
