"""Copies that are broken in other ways than by noise that is too small throughout are caught too."""

import itertools

import attacks
import numpy as np
import pytest
from lower_bounds import epsilon_lower_bound

from dpfast import PolicyEvaluation, Trajectories, UtilityWarning, noise
from dpfast.estimator import base
from dpfast.ledger import Reservation
from dpfast.policy_evaluation import mechanism as smooth
from dpfast.privacy.guarantee import gaussian_mu
from dpfast.releases import mechanism, moments, objective_bounds, sandwich, staged_fit
from dpfast.solvers import averaged_descent

# Each attack is wrong once in ten million times.
ERROR = 1e-7


ATTACKS = {attack.name: attack for attack in attacks.ATTACKS}


def attack_on(name):
    return ATTACKS[name]


def test_noise_that_is_missing_off_the_diagonal(monkeypatch):
    """The direction in which neighbours differ has most of its noise still: each block is looked at alone too."""
    attack = attack_on("moments of donors, Gaussian, add_remove")
    draw, calls = noise.gaussian, itertools.count()

    def partly(scale, *rest, **options):
        # A release draws the diagonal, what is off it, and X'Y.
        return draw(scale * 2.0**-10 if next(calls) % 3 == 1 else scale, *rest, **options)

    monkeypatch.setattr(noise, "gaussian", partly)
    assert attack.run(200, ERROR).epsilon > 10.0


def test_a_claim_about_replacement_calibrated_for_a_row_more_or_less(monkeypatch):
    least = moments.moment_scales
    monkeypatch.setattr(
        moments, "moment_scales", lambda *rest, **options: least(*rest, **options | {"adjacency": "add_remove"})
    )
    assert attack_on("moments of rows, Gaussian, replace_one").run(300, ERROR).epsilon > 1.0


def test_a_delta_that_is_ignored(monkeypatch):
    for module in (moments, base):  # what a fit reserves is ignored too: a ledger refuses more than was reserved
        monkeypatch.setattr(module, "gaussian_mu", lambda epsilon, delta: gaussian_mu(epsilon, 0.1))
    assert attack_on("moments of rows, Gaussian, replace_one").run(300, ERROR).epsilon > 1.0


def test_half_of_the_sensitivity(monkeypatch):
    calibrate = objective_bounds.objective_noise

    def halved(privacy, *, changes, **options):
        return calibrate(privacy, changes={what: 0.5 * length for what, length in changes.items()}, **options)

    monkeypatch.setattr(objective_bounds, "objective_noise", halved)
    for law in ("Gaussian", "L2-Laplace"):
        # Twice the epsilon: 150 outputs tell a factor of 1.8 from 1 in all but one of a million runs.
        assert attack_on(f"minimiser, hinge, {law} objective, replace_one").run(150, ERROR).epsilon > 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        *(
            f"counts by size, {of}"
            for of in ("classification", "regression", "sparse regression", "entries to standardise")
        ),
        "range of donors",
    ],
)
def test_counts_with_noise_for_one_bin_where_a_person_moves_two(what, monkeypatch):
    monkeypatch.setattr(mechanism, "_times_moved", lambda privacy: 1)
    attack = attack_on(f"{what}, Laplace, replace_one")
    assert attack.run(100, ERROR).epsilon > attack.privacy.epsilon


def test_steps_with_noise_for_an_eighth_of_the_clip(monkeypatch):
    clip = staged_fit.clip_of

    def of_an_eighth(*rest):
        return clip(*rest)._replace(norm=0.125 * clip(*rest).norm)

    monkeypatch.setattr(staged_fit, "clip_of", of_an_eighth)
    monkeypatch.setattr(averaged_descent, "COUNT_UNIT", 0.125 * averaged_descent.COUNT_UNIT)
    assert attack_on("residual steps, Gaussian, replace_one").run(120, ERROR).epsilon > 1.0


@pytest.mark.slow
def test_sums_of_standard_errors_with_noise_for_an_eighth_of_the_length(monkeypatch):
    bound = sandwich.rounded_bound
    monkeypatch.setattr(sandwich, "rounded_bound", lambda *rest: 0.125 * bound(*rest))
    assert attack_on("sums of curvatures and scores, Gaussian, replace_one").run(120, ERROR).epsilon > 1.0


def test_rows_that_are_not_clipped_are_not_taken_for_noise():
    """Outputs about another centre than the rows' own bounds allow have not the form of noise."""
    attack = attack_on("moments of rows, Gaussian, replace_one")
    seen = attack.seen
    here, there = (np.array([seen(neighbour) for _ in range(200)]) for neighbour in (False, True))
    assert attack.law.goodness_of_fit((here, there)) > ERROR
    assert attack.law.goodness_of_fit((here + 5.0 * here.std(), there)) < ERROR


@pytest.mark.slow
def test_attempts_that_fail_after_a_draw_and_are_given_back(monkeypatch):
    """Each may tell what was drawn, and who has the budget back asks again."""
    attack = attack_on("transcript of attempts beside a delta, replace_one")
    assert attack.run(50, ERROR).epsilon == 0.0
    monkeypatch.setattr(Reservation, "draw", lambda reservation: None)
    assert attack.run(120, 1e-4).broken


def test_noise_that_repeats_itself(monkeypatch):
    attack = attack_on("moments of rows, Gaussian, replace_one")
    [model] = attack.estimators
    monkeypatch.setattr(model, "random_state", 0)
    assert not attack.run(200, ERROR).fits


def test_a_radius_of_the_wrong_law(monkeypatch):
    """An exponential radius in place of Gamma's: no epsilon at all in two dimensions or more."""
    attack = attack_on("moments of rows, L2-Laplace, replace_one")
    draw, rng = noise.l2_laplace, np.random.default_rng(0)

    def wrong(scale, dim, source, **options):
        direction = rng.normal(size=dim)
        centre = draw(scale * 2.0**-20, dim, source, **options)
        return centre + rng.exponential(dim * scale) * direction / np.linalg.norm(direction)

    monkeypatch.setattr(noise, "l2_laplace", wrong)
    finding = attack.run(200, ERROR)
    assert finding.epsilon <= 1.0
    assert finding.broken


@pytest.mark.slow
@pytest.mark.parametrize("local", [False, True])
def test_local_in_place_of_smooth_sensitivity(local, monkeypatch):
    """Two visitors or one: their local sensitivities differ twice, in 40 coordinates. The bound assumes no law."""
    states = 40
    weights = np.append(np.ones(states), 0.0)
    model = PolicyEvaluation(1.0, 0.01, gamma=1.0, horizon=states, method="lsw", weights=weights)
    walk = list(range(states))
    tables = [
        Trajectories(walk + other, np.zeros(states + len(other)), [0, states, states + len(other)], states + 1)
        for other in (walk, [states])
    ]
    if local:
        bound = smooth.smooth_sensitivity
        monkeypatch.setattr(smooth, "smooth_sensitivity", lambda counts, w, beta, **top: bound(counts, w, 50.0, **top))
    with pytest.warns(UtilityWarning):
        lengths = [
            np.array([np.linalg.norm(model.fit(table).releases_[0].values["coordinates"]) for _ in range(1000)])
            for table in tables
        ]
    assert (epsilon_lower_bound(*lengths, 0.01, 1.0 - ERROR) > 1.0) is local
