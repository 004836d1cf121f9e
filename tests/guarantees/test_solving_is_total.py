"""No fit fails after it has drawn noise, whatever was drawn, within whatever bounds.

Every draw is answered by the test: with what its law gives hardly ever, and with what no solver likes (zeros, all
entries alike, a negative definite X'X, entries of unlike sizes), in units of the scale that the noise was calibrated
to, or with the exact sums many times over, as if there were as many more people.
"""

import math
import warnings
import zlib

import numpy as np
import pytest
from catalogue import FAMILIES, SOME, VARIED, people

from dpfast import MultiOutcomeRidge, PaidFailure, UnsoundCalibrationWarning, UtilityWarning, noise
from dpfast.estimator.base import PrivateEstimator
from dpfast.privacy.guarantee import ReleasedUtilityWarning

#: What each law gives at most, in units of its scale: beyond, in less than one draw of 1e300.
FARTHEST = {"gaussian": 37.0, "laplace": 690.0, "l2_laplace": 690.0}


def exact(center, scale, farthest, rng):
    return center


def zero(center, scale, farthest, rng):
    return np.zeros_like(center)


def negated(center, scale, farthest, rng):
    return -center


def alike(center, scale, farthest, rng):
    return np.full_like(center, scale)


def lowest(center, scale, farthest, rng):
    return center - farthest * scale


def of_unlike_sizes(center, scale, farthest, rng):
    return scale * np.geomspace(1e-12, farthest, center.size).reshape(center.shape)


def in_turns(center, scale, farthest, rng):
    return center + scale * np.where(np.arange(center.size) % 2, -1.0, 1.0).reshape(center.shape)


def in_tails(center, scale, farthest, rng):
    return center + farthest * scale * rng.choice([-1.0, 0.0, 1.0], center.shape)


def noise_alone(center, scale, farthest, rng):
    return farthest / 3.0 * scale * rng.standard_normal(center.shape)


def usual(center, scale, farthest, rng):
    return center + scale * rng.standard_normal(center.shape)


ANSWERS = [exact, zero, negated, alike, lowest, of_unlike_sizes, in_turns, in_tails, noise_alone, usual]
#: Epsilons, and what bounds on rows and on outcomes are multiplied by, all as far as they are accepted.
EPSILONS = [1.0, 2.0**-40, 2.0**40, 1e-4, 1e4]
SIZES = [(1.0, 1.0), (1e-69, 1e69), (1e69, 1e-69), (1e69, 1e69), (1e-69, 1e-69), (1e7, 1.0), (1.0, 1e-7)]
#: Minimisers take their time where epsilon is large, and noise whose size depends on the data where it is small.
OF_SLOW_FAMILIES = tuple(name for family in ("convex_erm", "policy_evaluation") for name in FAMILIES[family].FITS)
#: What solves most after its draws; of all others a few.
IN_STAGES = tuple(FAMILIES["multi_outcome"].FITS)
OF_ROWS, OF_OUTCOMES = ("bound_x", "box_x"), ("bound_y", "bound", "reward_range", "return_range")


@pytest.fixture
def answered(monkeypatch):
    """Return a function that has draws answered from now on, each in a way of its own, or all in one."""

    def answer_with(seed, people_more, way=None):
        rng = np.random.default_rng(seed)

        def answering(law):
            def draw(scale, size, source, *, center=None, grid=None):
                source.words(1)
                sums = 0.0 if center is None else center.to_float64() if hasattr(center, "to_float64") else center
                chosen = way or ANSWERS[rng.integers(len(ANSWERS))]
                farthest = FARTHEST[law] / math.sqrt(math.prod(np.atleast_1d(size)) if law == "l2_laplace" else 1.0)
                shape = size if isinstance(size, tuple) else (size,)
                return chosen(people_more * np.broadcast_to(np.asarray(sums, np.float64), shape), scale, farthest, rng)

            return draw

        for law in FARTHEST:
            monkeypatch.setattr(noise, law, answering(law))

    return answer_with


def multiplied(estimator, size_x, size_y):
    """Return the bounds that are declared, so many times as large."""
    found = {}
    for names, size in ((OF_ROWS, size_x), (OF_OUTCOMES, size_y)):
        for name in names:
            value = getattr(estimator, name, None)
            if isinstance(value, tuple):
                found[name] = tuple(size * one for one in value)
            elif isinstance(value, float):
                found[name] = size * value
    return found


def finite(fitted):
    """Whether all that was fitted is: of the rest, limits are infinite and errors NaN where they are not known.

    Of a coefficient whose error is not known nothing is said but itself, and that is 0 if it was not looked for.
    """
    arrays = {name: value for name, value in vars(fitted).items() if name[-1] == "_" and isinstance(value, np.ndarray)}
    if "coef_std_" in arrays:
        unknown = np.isnan(arrays["coef_std_"])
        table = fitted.summary()
        told = table[table.index.get_level_values(-1) != "(intercept)"].to_numpy(float)
        assert np.all(np.isnan(told[unknown.ravel()]))
        assert not np.any(arrays["coef_"][unknown]) or fitted.n_steps_ > 0
        arrays["coef_std_"] = arrays["coef_std_"][~unknown]
    if "var_" in arrays:
        unknown = np.isnan(arrays["var_"])
        assert not np.any(arrays["mean_"][unknown])
        assert np.all(np.isnan(arrays["mean_std_"][unknown]))
        arrays |= {name: arrays[name][~unknown] for name in ("var_", "mean_std_")}
    if "estimate_" in arrays:
        known = ~np.isnan(arrays["estimate_"])
        assert np.array_equal(known & known[:, None], ~np.isnan(arrays["covariance_"]))
        arrays["estimate_"] = arrays["estimate_"][known]
        arrays["covariance_"] = arrays["covariance_"][np.ix_(known, known)]
    if "value_std_" in arrays:
        known = ~np.isnan(arrays["value_std_"])
        assert known.all() or "cannot be widened" in fitted.caution_
        arrays["value_std_"] = arrays["value_std_"][known]
    return all(np.all(np.isfinite(array)) for array in arrays.values() if array.dtype.kind == "f")


def check_is_total(name, number, answered):
    """Fit once in the scenario of a number; of all of them every family meets all answers."""
    fit = VARIED[name]
    epsilons = [1.0, 1e-4] if name.startswith(OF_SLOW_FAMILIES) else EPSILONS
    seed = zlib.crc32(f"{name} {number}".encode())
    size_x, size_y = SIZES[seed % len(SIZES)]
    epsilon = epsilons[seed // 7 % len(epsilons)]
    bounds = multiplied(fit.estimator, size_x, size_y)
    if not fit.accepts(epsilon=epsilon, **bounds):
        epsilon, bounds, size_x, size_y = fit.estimator.epsilon, {}, 1.0, 1.0
    rows, outcomes = people(13, seed=number)
    rows *= size_y if "bound" in bounds else size_x if any(one in bounds for one in OF_ROWS) else 1.0
    answered(seed, (1.0, 1e4)[seed // 64 % 2])
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        for category in (UnsoundCalibrationWarning, UtilityWarning, ReleasedUtilityWarning):
            warnings.simplefilter("ignore", category)
        try:
            fitted = fit.run(fit.new(epsilon=epsilon, **bounds), rows, size_y * outcomes)
        except PaidFailure:
            pytest.fail(f"fails after a draw: epsilon={epsilon!r}, {bounds!r}, seed {seed}")
        except ValueError:
            # Refused before anything was drawn: what was drawn makes a PaidFailure of every error.
            assert (epsilon, size_x, size_y) != (1.0, 1.0, 1.0)
            return
        if isinstance(fitted, PrivateEstimator):
            assert finite(fitted)
            fitted.summary()


FEW = [
    pytest.param(name, marks=[] if place % 4 == 0 or name.startswith(IN_STAGES) else [pytest.mark.slow])
    for place, name in enumerate(VARIED)
]


@pytest.mark.parametrize("name", FEW)
def test_what_was_drawn_decides_nothing_but_the_result(name, answered):
    check_is_total(name, 0, answered)


def settings(fit, rng):
    """Random public numbers, far beyond what anybody declares, and the sizes of rows and of outcomes for them."""
    own, sizes = fit.estimator, []
    found = {"epsilon": 10.0 ** rng.uniform(-6.0, 6.0)} | ({"delta": 10.0 ** rng.uniform(-14, -2)} if own.delta else {})
    for names in (OF_ROWS, OF_OUTCOMES):
        size = 10.0 ** (rng.uniform(-80.0, 80.0) if rng.random() < 0.7 else rng.uniform(-9.0, 9.0))
        for name in (one for one in names if hasattr(own, one)):
            value = getattr(own, name)
            options = ["private", (-size, size) if name == "box_x" else size, None]
            if isinstance(value, tuple | float):
                options += 3 * [tuple(size * one for one in value) if isinstance(value, tuple) else size * value]
            chosen = options[rng.integers(len(options))]
            if name in OF_ROWS or chosen is not None:
                found[name] = chosen
        sizes.append(size if rng.random() < 0.7 else 1.0)
    return found, sizes


def check_is_paid_for_what_it_gives(name, number):
    """Fit as many people as `number` says, with real noise; what is refused is refused before any is drawn."""
    fit, rng = VARIED[name], np.random.default_rng(zlib.crc32(f"{name} {number}".encode()))
    found, (size_x, size_y) = settings(fit, rng)
    rows, outcomes = people(int(rng.choice([1, 2, 13, 60])), seed=number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit.run(fit.new(random_state=0, **found), size_x * rows, size_y * outcomes)
        except PaidFailure:
            pytest.fail(f"fails after a draw: {found!r}, sizes {size_x!r}, {size_y!r}, number {number}")
        except (TypeError, ValueError):
            pass


@pytest.mark.parametrize("name", IN_STAGES)
def test_nothing_that_is_accepted_fails_once_it_is_paid_for(name):
    check_is_paid_for_what_it_gives(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIED)
def test_nothing_that_is_accepted_fails_once_it_is_paid_for_in_any_family(name):
    for number in range(1, 4):
        check_is_paid_for_what_it_gives(name, number)


@pytest.mark.parametrize("found", [{"bound_x": 1e-69}, {"bound_x": 9e-58}])
def test_rows_too_short_beside_limits_that_are_found_are_refused_before_a_draw(found):
    fit = MultiOutcomeRidge(1.0, 1e-6, box_x="private", bound_y=1.0, **found)
    with pytest.raises(ValueError, match="bound_x must be at least 1e-57 with box_x='private'"):
        fit.fit(*people(60))


def test_a_box_that_bounded_rows_are_far_from_is_summed_about_the_origin():
    ridge = MultiOutcomeRidge(1.0, bound_x=1e-30, box_x=(0.25, 0.5), bound_y=1.0, refine=0, random_state=0)
    ridge.fit(*people(60))
    assert np.isfinite(ridge.coef_).all()


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("epsilon", [2.0**-41, 1e-300, 2.0**41, 1e300])
def test_an_epsilon_beyond_what_can_be_solved_for_is_refused_by_name(name, epsilon):
    with pytest.raises(ValueError, match="epsilon must lie between"):
        VARIED[name](*people(13), epsilon=epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIED)
def test_what_was_drawn_decides_nothing_but_the_result_many_times_over(name, answered):
    # Scenarios hang on the name too: all fits together try some three thousand.
    for number in range(1, 9):
        check_is_total(name, number, answered)
