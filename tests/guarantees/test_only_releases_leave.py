"""What a fit leaves behind follows from its releases alone: two tables that are released alike are fitted alike.

The noise is replaced by numbers that know nothing of what they are added to. Then a fit of any other table, under
add/remove one of another length too, must end with the same attributes and the same records, to the bit: whatever
differed would have come from the data past the noise.
"""

import itertools

import numpy as np
import pytest
from sklearn.base import clone

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PolicyEvaluation,
    Privacy,
    SparseRegression,
    SyntheticControl,
    noise,
)
from dpfast.solvers import Box, L1Ball, L2Ball, Lasso
from dpfast.statistics import Trajectories

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

GAUSSIAN, PURE = {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.0}
OPEN = {"adjacency": "add_remove"}
BOUNDS = {"bound_x": 1.0, "bound_y": 1.0}


def rows(n, seed, width=3, outcomes=2):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.9, 0.9, (n, width)), rng.uniform(-0.9, 0.9, (n, outcomes))


def regression(seed, longer):
    return rows(30 + longer, seed)


def one_outcome(seed, longer):
    x, y = rows(30 + longer, seed)
    return x, y[:, 0]


def labels_are_public(seed, longer):
    return rows(30, seed)[0], rows(30, 0)[1]


def owned(seed, longer):
    x, y = rows(30 + longer, seed)
    return x, y, {"groups": np.arange(30 + longer) // 3, "max_rows": 2}


def classes(seed, longer):
    x, y = rows(30 + longer, seed)
    return x, np.array(["a", "b", "c"])[(y[:, 0] > 0.0) + (y[:, 1] > 0.4).astype(int)]


def two_classes(seed, longer):
    x, y = rows(30 + longer, seed)
    return x, np.where(y[:, 0] > 0.0, 1, 0)


def panel(seed, longer):
    donors = rows(20 + longer, seed, width=9)[0]
    return donors, 6, {"target": np.linspace(-0.5, 0.8, 9)}


def walks(seed, longer):
    rng, m = np.random.default_rng(seed), 40 + longer
    # Some states are visited by everybody, or by nobody: scales that follow counts are far apart.
    return (
        Trajectories(
            rng.integers(0, 4 if seed == 1 else 2, 3 * m), rng.uniform(size=3 * m), np.arange(0, 3 * m + 1, 3), 4
        ),
    )


def ridge(**parameters):
    return MultiOutcomeRidge(**(BOUNDS | parameters))


def walk(**parameters):
    return PolicyEvaluation(**({"gamma": 0.9, "horizon": 3, "method": "sufficient_statistics"} | parameters))


def minimiser(**parameters):
    return ObjectivePerturbationRegressor(**(BOUNDS | parameters))


def classifier(**parameters):
    return ObjectivePerturbationClassifier(**({"bound_x": 1.0, "classes": [0, 1]} | parameters))


FEATURES = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]])
SET = {"constraint": L2Ball(1.0)}
# With norms that hold about the path alone: without, the origin may need less noise.
NEAR = {"center": "target", "row_bound": (0.9, 0.7)}
FITS = {
    "ridge": (ridge(**GAUSSIAN), regression),
    "ridge, pure": (ridge(**PURE), regression),
    "ridge, intercept": (ridge(**GAUSSIAN, fit_intercept=True), regression),
    "ridge, given": (ridge(**GAUSSIAN, ridge=0.5), regression),
    "ridge, box": (ridge(**GAUSSIAN, box_x=(-1.0, 1.0), bound_x=None), regression),
    "ridge, nonnegative": (ridge(**GAUSSIAN, nonnegative=True), regression),
    "ridge, add/remove": (ridge(**GAUSSIAN, **OPEN), regression),
    "ridge, add/remove, intercept": (ridge(**GAUSSIAN, **OPEN, fit_intercept=True), regression),
    "ridge, add/remove, pure": (ridge(**PURE, **OPEN, fit_intercept=True), regression),
    "ridge, people": (ridge(**GAUSSIAN), owned),
    "ridge, people, intercept": (ridge(**GAUSSIAN, fit_intercept=True), owned),
    "ridge, people, blocks": (ridge(**GAUSSIAN, **OPEN, block_bounds=(0.5, 0.5)), owned),
    "ridge, projection": (ridge(**GAUSSIAN, mechanism="projection", public_labels=True), labels_are_public),
    "ridge, independent": (ridge(**GAUSSIAN, mechanism="independent"), regression),
    "ridge, sampled": (ridge(**GAUSSIAN, n_subsample=10), regression),
    "ridge, printed": (ridge(**GAUSSIAN, calibration="paper"), regression),
    "moments of donors": (SyntheticControl(**GAUSSIAN), panel),
    "moments of donors, pure": (SyntheticControl(**PURE), panel),
    "moments of donors, add/remove": (SyntheticControl(**GAUSSIAN, **OPEN), panel),
    "moments of donors, centre": (SyntheticControl(**GAUSSIAN, **NEAR), panel),
    "moments of donors, centre, add/remove": (SyntheticControl(**GAUSSIAN, **OPEN, **NEAR), panel),
    "moments of donors, components": (SyntheticControl(**GAUSSIAN, n_components="noise"), panel),
    "weights of donors": (SyntheticControl(**GAUSSIAN, mechanism="output"), panel),
    "weights of donors, pure": (SyntheticControl(**PURE, mechanism="output"), panel),
    "weights of donors, objective": (SyntheticControl(**GAUSSIAN, mechanism="objective"), panel),
    "weights of donors, objective, pure": (SyntheticControl(**PURE, mechanism="objective"), panel),
    "weights of donors, printed": (SyntheticControl(**PURE, mechanism="output", calibration="paper"), panel),
    "visits": (walk(**GAUSSIAN), walks),
    "visits, pure": (walk(**PURE), walks),
    "visits, features": (walk(**GAUSSIAN, features=FEATURES), walks),
    "visits, features, pure": (walk(**PURE, features=FEATURES), walks),
    "visits, features, add/remove": (walk(**GAUSSIAN, **OPEN, features=FEATURES), walks),
    "visits, add/remove": (walk(**PURE, **OPEN), walks),
    "returns by state": (walk(**GAUSSIAN, method="lsw"), walks),
    "returns by state, features": (walk(**GAUSSIAN, method="lsw", features=FEATURES), walks),
    "returns by state, printed": (walk(**GAUSSIAN, method="lsw", calibration="paper"), walks),
    "returns": (walk(**GAUSSIAN, method="lsl"), walks),
    "returns, features": (walk(**GAUSSIAN, method="lsl", features=FEATURES), walks),
    "minimiser": (minimiser(**GAUSSIAN, **SET), one_outcome),
    "minimiser, pure": (minimiser(**PURE, **SET), one_outcome),
    "minimiser, intercept": (minimiser(**GAUSSIAN, **SET, fit_intercept=True), one_outcome),
    "minimiser, add/remove": (minimiser(**GAUSSIAN, **OPEN, constraint=L1Ball(1.0)), one_outcome),
    "minimiser, Huber": (minimiser(**GAUSSIAN, loss="huber"), one_outcome),
    "minimiser, Huber, add/remove": (
        minimiser(**PURE, **OPEN, loss="huber", penalty=Lasso(0.1)),
        one_outcome,
    ),
    "minimiser, printed": (minimiser(**GAUSSIAN, **SET, calibration="paper"), one_outcome),
    "classifier": (classifier(**GAUSSIAN), two_classes),
    "classifier, add/remove": (classifier(**PURE, **OPEN), two_classes),
    "classifier, three": (
        classifier(**GAUSSIAN, classes=["a", "b", "c"], loss="hinge", constraint=Box(1.0)),
        classes,
    ),
    "support by votes": (SparseRegression(**GAUSSIAN, n_nonzero=1), one_outcome),
    "support by votes, add/remove": (SparseRegression(**PURE, **OPEN, n_nonzero=1, n_blocks=4), one_outcome),
    "support by scores": (SparseRegression(**GAUSSIAN, n_nonzero=1, selector="exponential"), one_outcome),
    "support by scores, add/remove": (
        SparseRegression(**GAUSSIAN, **OPEN, n_nonzero=1, selector="exponential"),
        one_outcome,
    ),
    "support by scores, printed": (
        SparseRegression(**PURE, n_nonzero=1, selector="exponential", calibration="paper"),
        one_outcome,
    ),
}  # fmt: skip


@pytest.fixture
def noise_alone(monkeypatch):
    """Let every draw return numbers by its place in the order of draws, not by its scale or centre."""
    draws = itertools.count()

    def numbers(size):
        return np.random.default_rng(next(draws)).normal(size=size)

    class Picked:
        def __init__(self, rate, source, **options):
            self.index = 1

        def update(self, scores):
            pass

    monkeypatch.setattr(noise, "gaussian", lambda scale, size, source, *, center=None, grid=None: numbers(size))
    monkeypatch.setattr(noise, "laplace", lambda scale, size, source, *, center=None, grid=None: numbers(size))
    monkeypatch.setattr(noise, "l2_laplace", lambda scale, dim, source, *, center=None, grid=None: numbers(dim))
    monkeypatch.setattr(noise, "ExponentialPick", Picked)

    def again():
        nonlocal draws
        draws = itertools.count()

    return again


def plain(value):
    """What a value consists of, down to numbers and text, to be compared to the bit."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tolist())
    if hasattr(value, "to_dict"):
        left = {name: entry for name, entry in value.to_dict().items() if name not in ("created", "time", "values")}
        return (left, {name: plain(array) for name, array in value.values.items()})
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return repr(value)


@pytest.mark.parametrize("name", FITS)
def test_another_table_that_is_released_alike_is_fitted_alike(name, noise_alone):
    model, table = FITS[name]
    # One other table; under add/remove one row longer, as even their number is private.
    longer = 3 * (model.adjacency == "add_remove")
    kept = []
    for seed, more in ((1, 0), (2, longer)):
        arguments = table(seed, more)
        named = arguments[-1] if isinstance(arguments[-1], dict) else {}
        arguments = arguments[: len(arguments) - bool(named)]
        noise_alone()
        fitted = clone(model).fit(*arguments, **named)
        kept.append({attribute: plain(value) for attribute, value in vars(fitted).items()})
    assert kept[0].keys() == kept[1].keys()
    for attribute in kept[0]:
        assert kept[0][attribute] == kept[1][attribute], attribute


# The first step after the noise of each family, and of each of its mechanisms.
AFTER_NOISE = {
    "ridge": "dpfast.multi_outcome.estimator.ridge_from_moments",
    "ridge, independent": "dpfast.multi_outcome.estimator.ridge_of_each_outcome",
    "ridge, people": "dpfast.multi_outcome.estimator.noisy_moments",
    "moments of donors": "dpfast.synthetic_control.estimator.coefficients_of_moments",
    "weights of donors": "dpfast.synthetic_control.estimator.prediction",
    "weights of donors, objective": "dpfast.synthetic_control.estimator.prediction",
    "visits": "dpfast.policy_evaluation.estimator.solve",
    "visits, features": "dpfast.policy_evaluation.estimator.solve",
    "returns by state": "dpfast.policy_evaluation.mechanism.WeightedMeans.coefficients",
    "returns": "dpfast.policy_evaluation.mechanism.RidgeFit.coefficients",
}


@pytest.mark.parametrize("name", AFTER_NOISE)
def test_noise_that_was_drawn_is_paid_for_whatever_fails_after_it(name, monkeypatch):
    """A debugger, a log or an interrupt may have shown it: a fit that fails from there on gives nothing back."""
    model, table = FITS[name]
    arguments = table(1, 0)
    named = arguments[-1] if isinstance(arguments[-1], dict) else {}
    ledger = Ledger(Privacy(1.0, 1e-6))

    def failing(*arguments, **named):
        raise RuntimeError("the solver failed")

    monkeypatch.setattr(AFTER_NOISE[name], failing)
    with pytest.raises(RuntimeError, match="the solver failed"):
        clone(model).set_params(ledger=ledger).fit(*arguments[: len(arguments) - bool(named)], **named)
    assert ledger.spent == Privacy(1.0, 1e-6)
    assert len(ledger.releases) == 1
