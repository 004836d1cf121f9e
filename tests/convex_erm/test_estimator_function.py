"""Objective perturbation as a function: what is released and recorded, any loss and penalty, what is refused."""

import math

import numpy as np
import pytest

from dpfast import BudgetExceeded, Ledger, Privacy, Release, noise
from dpfast.convex_erm import objective_perturbation
from dpfast.privacy import UnsoundCalibrationWarning
from dpfast.releases.objective_bounds import ObjectiveBounds, ObjectivePerturbation
from dpfast.solvers import Box, CallableLoss, L1Ball, L2Ball, LogisticLoss, SmoothedHuber, SquaredLoss
from dpfast.statistics import gram

ADJACENCIES = ["replace_one", "add_remove"]


class GroupLasso:
    """||x||_2, which keeps the minimiser at 0 or away from it."""

    def value(self, x):
        return float(np.linalg.norm(x))

    def prox(self, v, step):
        norm = np.linalg.norm(v)
        return v * max(0.0, 1.0 - step / norm) if norm > 0.0 else v

    def prox_error(self, norm, step):
        return 2.0**-49 * norm


ROWS = {"X": np.ones((3, 2)), "y": np.ones(3), "loss": LogisticLoss(), "privacy": Privacy(1.0, 1e-6), "bound_x": 1.0}


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_release_records_what_it_cost(adjacency, delta):
    rng = np.random.default_rng(6)
    X, y = rng.uniform(-1, 1, (50, 2)), np.ones(50)
    privacy = Privacy(2.0, delta, adjacency)
    release = objective_perturbation(
        X, y, loss=LogisticLoss(), privacy=privacy, bound_x=1.0, constraint=L1Ball(1.0), source=noise.SeededSource(0)
    )
    assert release.privacy == privacy
    assert release.mechanism == ("Gaussian objective" if delta else "L2-Laplace objective")
    assert set(release.scales) == {"objective", "coef"}
    assert release.reproducible
    assert release.guaranteed
    assert np.abs(release.values["coef"]).sum() <= 1.0 + 1e-12
    parts = [float(word) for word in release.name.translate(str.maketrans("", "", ",()")).split() if word[0].isdigit()]
    assert sum(parts[:3]) == pytest.approx(2.0, rel=0.01)
    assert Release.from_dict(release.to_dict()).scales == release.scales


def test_a_loss_given_by_functions():
    """Its minimiser is the one of a loss of the library that it equals."""
    rng = np.random.default_rng(7)
    X, y = rng.uniform(-0.5, 0.5, (400, 3)), rng.uniform(-1, 1, 400)
    own = SmoothedHuber(1.0, 0.5)
    same = CallableLoss(
        own.value,
        own.derivative,
        own.second_derivative,
        slope_bound=own.derivative_bound(math.inf),
        curvature_bound=1.0,
    )
    arguments = {"privacy": Privacy(1.0, 1e-6), "bound_x": 1.0, "constraint": L2Ball(2.0)}
    released = [
        objective_perturbation(X, y, loss=loss, source=noise.SeededSource(1), **arguments) for loss in (own, same)
    ]
    assert released[0].scales["objective"] == released[1].scales["objective"]
    difference = released[0].values["coef"] - released[1].values["coef"]
    assert np.abs(difference).max() < 40.0 * max(one.scales["coef"] for one in released) < 1e-2
    with pytest.raises(ValueError, match="adjacency must be 'replace_one' with a loss given by functions"):
        objective_perturbation(X, y, loss=same, **(arguments | {"privacy": Privacy(1.0, 1e-6, "add_remove")}))
    with pytest.raises(ValueError, match="slope must return an array of the shape that it was given"):
        objective_perturbation(
            X, y, loss=CallableLoss(own.value, lambda z, y: 0.0, own.value, slope_bound=1.0, curvature_bound=1.0),
            **arguments,
        )  # fmt: skip


def test_any_proximable_penalty():
    rng = np.random.default_rng(8)
    X = rng.uniform(-0.5, 0.5, (2000, 3))
    y = np.sign(X @ [1.0, 1.0, 0.0])
    for adjacency in ADJACENCIES:
        release = objective_perturbation(
            X, y, loss=LogisticLoss(), privacy=Privacy(4.0, 1e-6, adjacency), bound_x=1.0, penalty=GroupLasso(),
            ridge=10.0, source=noise.SeededSource(0),
        )  # fmt: skip
        # Where the number of rows is private, the bound on proximal errors leaves room for all there could be.
        least = 1.0 if adjacency == "replace_one" else -40.0 * release.scales["coef"]
        assert release.values["coef"][:2].min() > least
    with pytest.raises(ValueError, match="constraint must be None with a GroupLasso as penalty"):
        ObjectiveBounds(LogisticLoss(), 3, 1.0, 1.0, L2Ball(1.0), GroupLasso(), 5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"X": np.ones(3)}, ValueError, "X must be 2-D"),
        ({"X": np.empty((3, 0))}, ValueError, "X must have columns"),
        ({"X": np.empty((0, 2)), "y": np.empty(0)}, ValueError, "X has no rows"),
        ({"y": np.ones(4)}, ValueError, "X and Y have different numbers of rows"),
        ({"X": np.full((3, 2), np.nan)}, ValueError, "X contains NaN or infinity"),
        ({"y": np.array([1.0, np.inf, 1.0])}, ValueError, "y contains NaN or infinity"),
        ({"X": np.full((3, 2), "a")}, TypeError, "X has dtype str; real numbers are needed"),
        ({"bound_x": 1e200}, ValueError, "bound_x must lie between"),
        ({"y": np.array([1.0, 0.0, 1.0])}, ValueError, "y must be from -1 to 1, and not 0"),
        ({"y": None}, ValueError, "y and bound_x must be given"),
        ({"bound_x": 0.0}, ValueError, "bound_x must be positive"),
        ({"bound_y": -1.0}, ValueError, "bound_y must be positive"),
        ({"loss": "logistic"}, TypeError, "loss must be a GeneralisedLinearLoss, got str"),
        ({"loss": SquaredLoss()}, ValueError, "constraint must be given"),
        ({"constraint": 1.0}, TypeError, "constraint must be L2Ball, L1Ball, Box or None, got float"),
        ({"constraint": Box(low=[0.0] * 3, high=[1.0] * 3)}, ValueError, "the box has 3 coordinates"),
        ({"penalty": 1.0}, TypeError, "penalty must be Lasso, ElasticNet, Ridge, .* got float"),
        ({"ridge": -1.0}, ValueError, "ridge must be at least 0"),
        ({"privacy": Privacy(math.inf)}, ValueError, "epsilon must be finite"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(changes, error, message):
    arguments = ROWS | changes
    with pytest.raises(error, match=message):
        objective_perturbation(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_a_gram_has_outcomes_and_bounds_of_its_own():
    exact = gram(np.ones((3, 2)), np.ones(3), bound_x=1.0, bound_y=1.0)
    arguments = {"privacy": Privacy(1.0, 1e-6), "constraint": Box(1.0)}
    with pytest.raises(ValueError, match="a Gram needs SquaredLoss"):
        objective_perturbation(exact, loss=LogisticLoss(), **arguments)
    with pytest.raises(ValueError, match="a Gram needs SquaredLoss"):
        objective_perturbation(exact, loss=SquaredLoss(), bound_x=1.0, **arguments)
    two = gram(np.ones((3, 2)), np.ones((3, 2)), bound_x=1.0, bound_y=1.0)
    with pytest.raises(ValueError, match="gram must have one outcome, got 2"):
        objective_perturbation(two, loss=SquaredLoss(), **arguments)
    with pytest.raises(ValueError, match="n_rows must be given under adjacency='replace_one'"):
        ObjectivePerturbation.calibrate(Privacy(1.0), ObjectiveBounds(LogisticLoss(), 1, 1.0, 1.0))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_printed_noise_warns_where_it_is_too_little(delta):
    X, y = np.ones((20, 1)), np.ones(20)
    arguments = {"loss": LogisticLoss(), "bound_x": 1.0, "constraint": L2Ball(1.0), "calibration": "paper"}
    with pytest.warns(UnsoundCalibrationWarning, match="the printed calibration does not give"):
        release = objective_perturbation(X, y, privacy=Privacy(1.0, delta), **arguments)
    assert not release.guaranteed
    assert objective_perturbation(X, y, privacy=Privacy(1.0, delta, "add_remove"), **arguments).guaranteed


def test_the_printed_noise_is_judged_at_any_epsilon():
    """So much of it is left for the finishing noise that delta would not do: no number overflows over that."""
    arguments = {"loss": LogisticLoss(), "bound_x": 1.0, "constraint": L2Ball(1.0), "calibration": "paper"}
    with pytest.warns(UnsoundCalibrationWarning):
        objective_perturbation(np.ones((20, 1)), np.ones(20), privacy=Privacy(1e4, 1e-6, "add_remove"), **arguments)


def test_a_ledger_pays_for_the_release_and_not_for_a_refusal():
    ledger = Ledger(Privacy(1.5, 1e-5))
    release = objective_perturbation(**ROWS, ledger=ledger)
    assert [one.name for one in ledger.releases] == [release.name]
    assert ledger.spent.epsilon == pytest.approx(1.0)
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        objective_perturbation(**ROWS | {"X": np.full((3, 2), np.nan), "privacy": Privacy(0.5)}, ledger=ledger)
    assert ledger.remaining.epsilon == pytest.approx(0.5)
    with pytest.raises(BudgetExceeded):
        objective_perturbation(**ROWS, ledger=ledger)


def test_sums_over_people_who_own_several_rows_are_refused():
    """Their blocks are clipped, so that one row may move the others of its owner."""
    exact = gram(np.ones((4, 2)), np.ones(4), bound_x=1.0, bound_y=1.0, groups=[0, 0, 1, 1], max_rows=2)
    with pytest.raises(ValueError, match="gram must be of rows"):
        objective_perturbation(exact, loss=SquaredLoss(), privacy=Privacy(1.0, 1e-6), constraint=Box(1.0))
