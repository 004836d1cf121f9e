"""Every public callable that takes rows refuses the same tables: found by signature, so that none is left out."""

import inspect
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

import dpfast
from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    Privacy,
    PrivateStandardScaler,
    SparseRegression,
    SyntheticControl,
    Trajectories,
    private_bounds,
    select,
)
from dpfast.convex_erm import objective_perturbation
from dpfast.io import blocks
from dpfast.solvers import L2Ball, SquaredLoss
from dpfast.statistics import GramAccumulator, cross_moments, gram, sampled_gram

N_ROWS = 40
BOUNDS = {"bound_x": 2.0, "bound_y": 1.0}
X = pd.DataFrame(np.random.default_rng(0).uniform(-0.5, 0.5, (N_ROWS, 2)), columns=["a", "b"])
X.index = [f"p{i}" for i in range(N_ROWS)]
Y = pd.Series(np.where(np.arange(N_ROWS) % 2, 1.0, -1.0), index=X.index)
GROUPS, WEIGHTS = pd.Series(range(N_ROWS), index=X.index), pd.Series(1.0, index=X.index)


def ridge(**parameters):
    return MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, refine=0, **parameters)


def classifier():
    return ObjectivePerturbationClassifier(1.0, bound_x=2.0, classes=[-1.0, 1.0], fit_intercept=False)


def regressor():
    return ObjectivePerturbationRegressor(1.0, 1e-6, **BOUNDS, constraint=L2Ball(1.0))


PRIVACY = {"epsilon": 1.0, "delta": 1e-6}
#: By the names of the callables: what calls them with X and y.
CALLS = {
    "MultiOutcomeRidge.fit": lambda x, y: ridge().fit(x, y),
    "ObjectivePerturbationClassifier.fit": lambda x, y: classifier().fit(x, y),
    "ObjectivePerturbationRegressor.fit": lambda x, y: regressor().fit(x, y),
    "SparseRegression.fit": lambda x, y: SparseRegression(1.0, 1e-6, n_nonzero=1).fit(x, y),
    "PrivateStandardScaler.fit": lambda x, y: PrivateStandardScaler(1.0, 1e-6, box_x=(-1.0, 1.0)).fit(x, y),
    "private_bounds": lambda x, y: private_bounds(x, y, **PRIVACY),
    "select": lambda x, y: select([ridge(), ridge()], x, y, **PRIVACY, bound_y=1.0),
    "objective_perturbation": lambda x, y: objective_perturbation(
        x, y, loss=SquaredLoss(), privacy=Privacy(1.0, 1e-6), **BOUNDS, constraint=L2Ball(1.0)
    ),
    "gram": lambda x, y: gram(x, y, **BOUNDS),
    "sampled_gram": lambda x, y: sampled_gram(x, y, [0, 1], **BOUNDS),
    "cross_moments": lambda x, y: cross_moments(x, y, **BOUNDS),
    "GramAccumulator.update": lambda x, y: GramAccumulator(2, 1, **BOUNDS).update(x, y),
    "blocks": lambda x, y: list(blocks(x, y)),
}
OTHERS = {
    "select of classifiers": lambda x, y: select([classifier(), classifier()], x, y, epsilon=1.0),
    "a pipeline": lambda x, y: make_pipeline(PrivateStandardScaler(1.0, 1e-6, box_x=(-1.0, 1.0)), ridge()).fit(x, y),
}
#: What is said of rows once a model is released, and a protocol that is given arrays.
EXEMPT = {"block_votes", "LassoSelector.__call__", "Selector.__call__"}
LOOSE_Y = {"PrivateStandardScaler.fit"}  # ignores what y holds
LABELS = {"ObjectivePerturbationClassifier.fit", "select of classifiers"}


def takers_of_rows():
    """The public callables with an X and outcomes beside it."""
    for home in ("dpfast", "dpfast.statistics", "dpfast.convex_erm", "dpfast.scaling", "dpfast.selection"):
        module = import_module(home)
        for name in getattr(module, "__all__", dir(module)):
            one = getattr(module, name)
            if inspect.isclass(one) and one.__module__.startswith("dpfast"):
                members = inspect.getmembers(one, callable)
                methods = [member for member in members if getattr(member[1], "__module__", None)]
                found = {f"{name}.{method}": function for method, function in methods}
            else:
                found = {name: one} if inspect.isfunction(one) else {}
            for label, function in found.items():
                try:
                    parameters = set(inspect.signature(function).parameters)
                except ValueError:
                    continue  # of C
                private = label.split(".")[-1].startswith("_") and not label.endswith("__call__")
                inherited = function.__module__.startswith("sklearn") or label.endswith(".score")
                if "X" in parameters and parameters & {"Y", "y"} and not private and not inherited:
                    yield label


def test_every_public_callable_that_takes_rows_is_here():
    assert set(takers_of_rows()) == set(CALLS) - {"blocks"} | EXEMPT
    assert hasattr(dpfast.io, "blocks")


class Iterable:
    """What is no list, and may have data frames."""

    def __init__(self, tables):
        self._tables = tables

    def __iter__(self):
        return iter(self._tables)


MASK = np.arange(N_ROWS) == 3
#: Tables that every one refuses, and what is said of them.
HOSTILE = {
    "y of another order": (X, Y[::-1], "different indices"),
    "a frame of another order": (X, Y[::-1].to_frame(), "different indices"),
    "y of other people": (X, Y.reset_index(drop=True), "different indices"),
    "masked X": (np.ma.masked_array(X.to_numpy(), np.column_stack([MASK, MASK])), Y.to_numpy(), "masked array"),
    "masked y": (X.to_numpy(), np.ma.masked_array(Y.to_numpy(), MASK), "masked array"),
    "complex X": (X.to_numpy() + 1j, Y.to_numpy(), "Complex data"),
    "complex y": (X.to_numpy(), Y.to_numpy() + 1j, "Complex data|outside the declared classes"),
    "text in X": (X.to_numpy().astype(str), Y.to_numpy(), "dtype str|numbers"),
    "text in y": (X.to_numpy(), Y.to_numpy().astype(str), "dtype str|numbers|outside the declared classes"),
    "objects in y": (X.to_numpy(), np.array([None, *Y[1:]], object), "dtype object|numbers|declared classes"),
    "fewer outcomes": (X.to_numpy(), Y.to_numpy()[:-1], "numbers of rows|for each row"),
    "missing in X": (np.where(MASK[:, None], np.nan, X), Y.to_numpy(), "NaN or infinity"),
}
LISTED = {
    "lists of frames of another order": ([X[:20], X[20:]], [Y[::-1][:20], Y[::-1][20:]], "different indices"),
    "a list beside a Series of another order": ([X[:20], X[20:]], Y[::-1], "different indices"),
    "pairs of another order": ([(X[:20], Y[:20][::-1]), (X[20:], Y[20:])], None, "different indices"),
    "an iterable beside a Series": (Iterable([X]), Y[::-1], "different indices"),
    "frames of two iterables": (Iterable([X]), Iterable([Y[::-1]]), "yields data frames"),
    "a list of frames and arrays": ([X[:20], X[20:].to_numpy()], Y[::-1], "different indices"),
    "masked blocks": (
        [np.ma.masked_array(X.to_numpy(), np.column_stack([MASK, MASK]))],
        [Y.to_numpy()],
        "masked array",
    ),
    "complex blocks": ([X.to_numpy() + 1j], [Y.to_numpy()], "Complex data"),
}


#: What those say that take one table of rows alone.
NOT_SEVERAL = "must be an array|arrays, .npy files|requires y|1d array|must be 2-D|must be given with rows"


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", [*CALLS, *OTHERS])
def test_hostile_tables_are_refused_by_all_alike(name, hostile):
    x, y, said = HOSTILE[hostile]
    if name in LOOSE_Y and not said.startswith(("different", "masked")) and "X" not in hostile:
        pytest.skip("ignores y")
    if name == "blocks" and hostile == "missing in X":
        pytest.skip("sums refuse it")
    with pytest.raises((TypeError, ValueError), match=said):
        (CALLS | OTHERS)[name](x, y)


@pytest.mark.parametrize("hostile", LISTED)
@pytest.mark.parametrize("name", CALLS)
def test_tables_of_several_are_refused_by_all_alike(name, hostile):
    x, y, said = LISTED[hostile]
    if name in LOOSE_Y and (isinstance(y, Iterable) or y is None):
        pytest.skip("reads no y")
    with pytest.raises((TypeError, ValueError), match=f"{said}|{NOT_SEVERAL}"):
        CALLS[name](x, y)


@pytest.mark.parametrize("name", [*CALLS, *OTHERS])
def test_the_same_callables_take_what_is_aligned(name):
    call = (CALLS | OTHERS)[name]
    for x, y in ((X, Y), (X, Y.to_numpy()), (X.to_numpy(), Y[::-1]), (X, Y.copy())):
        call(x, y)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"groups": GROUPS[::-1], "max_rows": 1}, "X and groups have different indices"),
        ({"groups": np.ma.masked_array(GROUPS.to_numpy(), MASK), "max_rows": 1}, "groups is a masked array"),
        ({"groups": np.where(MASK, np.nan, GROUPS), "max_rows": 1}, "missing ids"),
        ({"sample_weight": WEIGHTS[::-1]}, "X and sample_weight have different indices"),
        ({"sample_weight": np.ma.masked_array(WEIGHTS.to_numpy(), MASK)}, "sample_weight is a masked array"),
        ({"sample_weight": WEIGHTS.to_numpy() + 1j}, "Complex data"),
        ({"sample_weight": WEIGHTS.to_numpy().astype(str)}, "dtype str"),
        ({"sample_weight": sparse.csr_array(WEIGHTS.to_numpy()[:-1, None])}, "numbers of rows"),
    ],
)
def test_what_goes_with_rows_is_refused_alike(given, said):
    weighs = {"max_weight": 1.0} if "sample_weight" in given else {}
    calls = [lambda x: ridge(**weighs).fit(x, Y, **given)]
    if "groups" in given:
        calls += [lambda x: gram(x, Y, **BOUNDS, **given), lambda x: private_bounds(x, Y, **PRIVACY, **given)]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match=said):
            call(X)


def test_other_kinds_of_rows_are_masked_nowhere():
    masked = np.ma.masked_array(np.zeros((30, 6)), np.eye(30, 6, dtype=bool))
    for call in (
        lambda: SyntheticControl(1.0, 1e-6).fit(masked, 4),
        lambda: SyntheticControl(1.0, 1e-6).fit(masked.data, 4, masked[0]),
        lambda: Trajectories(np.zeros(6, int), masked[0], [0, 6], 2),
        lambda: Trajectories(masked[0].astype(int), np.zeros(6), [0, 6], 2),
    ):
        with pytest.raises(TypeError, match="is a masked array"):
            call()
