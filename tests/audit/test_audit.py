"""The audit stays below every claim, finds most of it, and catches every mechanism that lacks a third of its noise."""

import math
import warnings
from contextlib import contextmanager

import pytest
from attacks import ATTACKS
from scipy import stats

from dpfast import audit, noise
from dpfast.attack import GaussianShift, NormShift, OddsShift
from dpfast.privacy import Privacy

NAMES = [attack.name for attack in ATTACKS]
# All bounds and all judgements of forms, of the tests below at once, are right with a probability of 99.9%.
ERROR = 0.001 / (4 * len(ATTACKS))
# Moments and what is no moment; the rest are slow together.
QUICK = [
    "moments of rows and their sums, Gaussian, add_remove",
    "donor weights, output perturbation, Gaussian, replace_one",
    "minimiser, hinge in the plane, L2-Laplace objective, add_remove",
]
# Its rate is an eighth or a quarter of what the claim allows: a choice shows too little of it in a few hundred outputs.
PRINTED_SCORES = [name for name in NAMES if name.startswith("support by scores, as printed")]
# What it may show beside releases is always the same: there is nothing to find, whatever the noise.
TRANSCRIPTS = [name for name in NAMES if name.startswith("transcript")]
PRINTED_POLICY = [name for name in NAMES if name.startswith("DP-") and "sound" not in name]
SHOWS_LITTLE = PRINTED_POLICY + PRINTED_SCORES + TRANSCRIPTS


@contextmanager
def less_noise(factor):
    """Divide every draw of noise by a factor; records go on to state what was asked for."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("gaussian", "laplace", "l2_laplace"):
            draw = getattr(noise, name)

            def weaker(scale, *rest, draw=draw, **options):
                return draw(scale / factor, *rest, **options)

            patch.setattr(noise, name, weaker)
        pick = noise.ExponentialPick
        patch.setattr(noise, "ExponentialPick", lambda rate, source: pick(rate * factor, source))
        yield


def runs(name):
    """Outputs on either table: so many that a third of the noise missing is overlooked once in 200,000 times.

    The bound lies as many deviations of the estimated size of noise above it as `ERROR` asks for, and the estimate lies
    4.9 more above the truth that seldom: both together must be less than what is to be told apart. In logarithms, n
    outputs of either table tell the size of Gaussian noise within 1/sqrt(4 n), and that of a norm in d dimensions
    within 1/sqrt(2 n d); epsilon grows faster than mu, so that less would do. What a claim is to show in vain, or 0.6
    of it, is told apart with still fewer. Two choices as likely tell the logarithm of their odds within sqrt(8/n).
    """
    attack = ATTACKS[NAMES.index(name)]
    apart = math.log(1.5 * attack.law.attainable(attack.privacy.delta) / caught_above(attack))
    match attack.law:
        case GaussianShift(parts=parts) if apart == apart:
            deviations = stats.norm.isf(ERROR / (1 + len(parts))) + 4.9
            n = (deviations / apart) ** 2 / 4.0
        case NormShift(shifts=shifts):
            deviations = stats.norm.isf(ERROR / len(shifts)) + 4.9
            n = (deviations / apart) ** 2 / (2.0 * min(map(len, shifts)))
        case OddsShift():
            # Times 8 or more, in choices: with a third missing, odds of 1 are found 9.7 of their deviations above 0.5.
            return 400
        case _:
            return 150 if name in SHOWS_LITTLE else 500  # what is recorded of the others' noise is private
    return max(100, math.ceil(n / attack.effort))


def caught_above(attack):
    """Epsilon to be found where a third of the noise is missing: the claim, or what would be found with all of it."""
    attainable = attack.law.attainable(attack.privacy.delta)
    return attack.privacy.epsilon if not 1.5 * attainable < 1.2 else attainable


def each(names):
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def one_law(name):
    """Return a name with the other law, where a fit takes the one with less noise: the claim decides which."""
    return name.replace("after objective, Gaussian", "after objective beside a delta, Laplace")


@pytest.mark.slow
def test_a_small_claim_leaves_nothing_out():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of mostly noise.
        names = {one_law(attack.name) for attack in audit.all_attacks(Privacy(0.1, 1e-5))}
    assert names == set(map(one_law, NAMES))


@pytest.mark.parametrize("name", each(NAMES))
def test_a_claim_holds_and_most_of_what_there_is_to_find_is_found(name):
    attack = ATTACKS[NAMES.index(name)]
    finding = attack.run(runs(name), ERROR)
    assert not finding.broken
    if name not in PRINTED_POLICY and finding.attainable == finding.attainable:
        assert finding.epsilon >= 0.6 * min(finding.attainable, 1.0) or name in PRINTED_SCORES


@pytest.mark.parametrize("name", each([name for name in NAMES if name not in SHOWS_LITTLE]))
def test_a_third_of_the_noise_missing_is_caught(name):
    """Of printed calibrations with too much noise, that there is less of it than is recorded.

    (Those of DP-LSW and DP-LSL have so much that two thirds of it keep the claim, and record none.)
    """
    attack = ATTACKS[NAMES.index(name)]
    with less_noise(1.5):
        assert attack.run(runs(name), ERROR).epsilon > caught_above(attack)


def test_no_two_attacks_have_one_name():
    assert len(set(NAMES)) == len(NAMES)
