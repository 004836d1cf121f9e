"""The catalogue of fits leaves nothing out: every estimator, and every choice that one offers, is in it."""

import numpy as np
import pytest
from catalogue import FAMILIES, FITS, RELATED, VARIED, choices, people, releases_of

from dpfast import registry


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_every_choice_of_every_estimator_is_in_the_catalogue(name):
    listed = [fit.estimator for fit in VARIED.values() if type(fit.estimator).__name__ == name]
    for parameter, offered in choices(registry.estimator(name)).items():
        values = [getattr(one, parameter) for one in listed]
        assert offered <= {value for value in values if isinstance(value, str | bool)}, parameter


def test_every_family_lists_fits_of_names_of_their_own():
    assert set(FAMILIES) == set(registry.FAMILIES)
    assert sum(len(module.FITS) for module in FAMILIES.values()) == len(FITS)
    assert len(FITS) < len(RELATED) < len(VARIED)


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning")
@pytest.mark.parametrize("name", VARIED)
def test_a_fit_is_what_the_catalogue_says_of_it(name):
    fit, (x, y) = VARIED[name], people(80)

    def released(x, y):
        return releases_of(fit(x, y, random_state=0, n_threads=1))

    first, order = released(x, y), np.random.default_rng(0).permutation(80)
    counted = fit.counts_people and fit.estimator.adjacency == "add_remove"
    if fit.releases is not None:
        # A ridge with an intercept and no delta asks for a private number, once more if it shows few people.
        asked = sum("Ridge: number" in one.name for one in first)
        assert asked == 0 or (asked == 2 and fit.estimator.delta == 0.0 and fit.estimator.adjacency == "add_remove")
        assert len(first) == fit.releases + counted + asked
    assert {one.unit for one in first} == {fit.unit}
    if fit.any_order:
        for one, other in zip(first, released(x[order], y[order]), strict=True):
            assert all(np.array_equal(one.values[key], other.values[key]) for key in one.values)
