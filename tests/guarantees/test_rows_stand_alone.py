"""Every fit from rows: how they lie in memory and come in blocks changes nothing, and no entry that is finite warns."""

import itertools
import warnings

import numpy as np
import pytest
from reference.rows import ARRAYS, TABLES

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    SparseRegression,
    SyntheticControl,
)
from dpfast.solvers import CallableLoss, L2Ball

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

N, WIDTH = 70, 9
SEEDED = {"epsilon": 1.0, "delta": 1e-6, "random_state": 1, "n_threads": 1}
BOUNDS = {"bound_x": 2.0, "bound_y": 1.0}


def table(n=N, width=WIDTH):
    """Rows that are clipped and rows that are not, whose norms another order of adding would change."""
    rng = np.random.default_rng(5)
    return rng.normal(size=(n, width)) * 10.0 ** rng.uniform(-1.0, 1.0, size=(n, 1))


X = table()
Y = np.clip(X[:, :2], -3.0, 3.0)
GROUPS = np.arange(N) // 3

PSEUDO_HUBER = CallableLoss(
    lambda z, y: np.sqrt(1.0 + (z - y) ** 2),
    lambda z, y: (z - y) / np.sqrt(1.0 + (z - y) ** 2),
    lambda z, y: (1.0 + (z - y) ** 2) ** -1.5,
    slope_bound=1.0,
    curvature_bound=1.0,
)

#: From features and outcomes. What streams takes blocks of any length too.
STREAMED = {
    "ridge": lambda: MultiOutcomeRidge(**SEEDED, **BOUNDS),
    "ridge, nonnegative": lambda: MultiOutcomeRidge(**SEEDED, **BOUNDS, nonnegative=True),
    "ridge, box": lambda: MultiOutcomeRidge(**SEEDED, bound_x=None, bound_y=1.0, box_x=(-1.5, 1.5)),
    "ridge, far box and bound": lambda: MultiOutcomeRidge(
        **SEEDED, bound_x=8.0, bound_y=1.0, box_x=(2.0, 4.0), adjacency="add_remove"
    ),
    "ridge, intercept": lambda: MultiOutcomeRidge(**SEEDED, **BOUNDS, fit_intercept=True),
    "supports by scores": lambda: SparseRegression(**SEEDED, n_nonzero=2, selector="exponential"),
    "supports by scores, bound": lambda: SparseRegression(**SEEDED, **BOUNDS, n_nonzero=2, selector="exponential"),
}
IN_MEMORY = {
    "squared loss": lambda: ObjectivePerturbationRegressor(**SEEDED, **BOUNDS, constraint=L2Ball(1.0)),
    "Huber loss": lambda: ObjectivePerturbationRegressor(**SEEDED, **BOUNDS, loss="huber"),
    "given loss": lambda: ObjectivePerturbationRegressor(**SEEDED, **BOUNDS, loss=PSEUDO_HUBER),
    "ridge, projection": lambda: MultiOutcomeRidge(**SEEDED, **BOUNDS, public_labels=True, mechanism="projection"),
    "ridge, sample": lambda: MultiOutcomeRidge(**SEEDED, **BOUNDS, n_subsample=20),
    "supports by votes": lambda: SparseRegression(**SEEDED, n_nonzero=2, n_blocks=4),
    "logistic loss": lambda: ObjectivePerturbationClassifier(**SEEDED, bound_x=2.0, classes=[0, 1]),
}
PANELS = {
    "moments": lambda: SyntheticControl(**SEEDED, row_bound=(0.8, 0.9)),
    "moments, centre and basis": lambda: SyntheticControl(**SEEDED, bound=(-2.0, 5.0), center=np.ones(WIDTH), basis=3),
    "moments, nonnegative": lambda: SyntheticControl(**SEEDED, bound=5.0, nonnegative=True),
    "output": lambda: SyntheticControl(**SEEDED, mechanism="output", row_bound=(0.8, 0.9)),
    "objective": lambda: SyntheticControl(**SEEDED, mechanism="objective", row_bound=(0.8, 0.9)),
}


def outcomes_for(name):
    if name == "logistic loss":
        return (Y[:, 0] > 0.0).astype(int)
    return Y if name.startswith("ridge") else Y[:, 0]


def released(model):
    return {key: value.tobytes() for release in model.releases_ for key, value in release.values.items()}


@pytest.mark.parametrize("name", STREAMED | IN_MEMORY)
def test_a_fit_does_not_depend_on_the_layout_of_its_table(name):
    make, y = (STREAMED | IN_MEMORY)[name], outcomes_for(name)
    expected = released(make().fit(X, y))
    for layout, lay in TABLES.items():
        if layout == "Arrow table" and name in IN_MEMORY:
            continue
        assert released(make().fit(lay(X), y)) == expected, layout
    single = X.astype(np.float32)
    assert released(make().fit(single, y)) == released(make().fit(single.astype(np.float64), y))


@pytest.mark.parametrize("name", STREAMED)
def test_a_fit_does_not_depend_on_the_blocks_that_rows_come_in(name):
    make, y = STREAMED[name], outcomes_for(name)
    expected = released(make().fit(X, y))
    for size, layout in itertools.product((1, 2, 3, N), ("C order", "Fortran order", "negative strides")):
        starts = range(0, N, size)
        blocks = ((ARRAYS[layout](X[a : a + size]), y[a : a + size]) for a in starts)
        assert released(make().fit(blocks, None)) == expected, (size, layout)


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_does_not_depend_on_the_layout_of_its_table(name):
    target = np.linspace(-0.5, 0.7, WIDTH)

    def fitted(donors):
        return released(PANELS[name]().fit(donors, WIDTH - 3, target))

    expected = fitted(X)
    for layout, lay in TABLES.items():
        if layout != "Arrow table":
            assert fitted(lay(X)) == expected, layout


EXTREMES = {
    "huge": np.full(WIDTH, 1e308),
    "tiny": np.full(WIDTH, 5e-324),
    "zeros": np.zeros(WIDTH),
    "mixed": np.resize([1e308, 5e-324, -1.7e308, 0.0, 1e-160, 2.0**512], WIDTH),
    "of middle size": np.full(WIDTH, 1e-160),
}


def quietly(fit):
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return fit()


@pytest.mark.parametrize("row", EXTREMES)
@pytest.mark.parametrize("name", STREAMED | IN_MEMORY)
def test_a_fit_does_not_warn_of_a_row(name, row):
    x, y = X.copy(), np.array(outcomes_for(name))
    x[3] = EXTREMES[row]
    if y.dtype.kind == "f" and name != "ridge, projection":
        y[3] = EXTREMES[row][: y[3].size] if y.ndim == 2 else EXTREMES[row][0]
    model = (STREAMED | IN_MEMORY)[name]()
    for lay in (np.ascontiguousarray, np.asfortranarray):
        assert np.isfinite(quietly(lambda lay=lay: model.fit(lay(x), y)).coef_).all()


@pytest.mark.parametrize("row", EXTREMES)
@pytest.mark.parametrize("name", PANELS)
def test_a_panel_does_not_warn_of_a_donor(name, row):
    donors, target = X.copy(), np.linspace(-0.5, 0.7, WIDTH)
    donors[3] = EXTREMES[row]
    model = quietly(lambda: PANELS[name]().fit(donors, WIDTH - 3, target))
    assert all(np.isfinite(value).all() for release in model.releases_ for value in release.values.values())
