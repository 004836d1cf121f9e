"""What is released does not depend on how a table is cut into parts, nor on what goes through them; to the bit."""

from functools import partial

import numpy as np
import pytest
from engines import Listed, cut
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PaidFailure,
    PolicyEvaluation,
    PrivateStandardScaler,
    SparseRegression,
    SyntheticControl,
    private_bounds,
)
from dpfast.datasets.decision_processes import chain_trajectories
from dpfast.io import open_table
from dpfast.ledger import Ledger
from dpfast.privacy import Privacy
from dpfast.solvers import L2Ball
from dpfast.statistics import Trajectories, gram
from dpfast.statistics.norm_histograms import NormHistograms, size_counts
from dpfast.statistics.residuals import ResidualStep, residual_sizes, residual_sums
from dpfast.statistics.rows import RowMap

rng = np.random.default_rng(5)
N = 240
X = rng.uniform(-1.0, 1.0, (N, 4))
Y = np.clip(X @ rng.normal(size=(4, 2)) / 2.0, -1.0, 1.0)
LABELS = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.3, 0.3])]
ENDS = [0, 0, 37, 200, N]
WALKS = Trajectories(*chain_trajectories(N, n_states=6, seed=0))

ridge = partial(MultiOutcomeRidge, bound_x=2.0, bound_y=1.5, fit_intercept=False)
descent = partial(ObjectivePerturbationClassifier, bound_x=2.0, method="gradient", fit_intercept=False)
squared = partial(ObjectivePerturbationRegressor, bound_x=2.0, bound_y=1.0, fit_intercept=False)
pursuit = partial(SparseRegression, n_nonzero=2)
walks = partial(PolicyEvaluation, gamma=0.9)
# What is made of which tables: outcomes as they are, a column of them, labels, or none.
OF_ROWS = {
    "moments": (partial(ridge, refine=0), Y),
    "residual steps": (partial(ridge, refine=2, fit_intercept=True), Y),
    "independent": (partial(ridge, mechanism="independent", refine=0), Y),
    "found bounds": (
        partial(MultiOutcomeRidge, bound_x="private", bound_y="private", refine=2, fit_intercept=False),
        Y,
    ),
    "squared loss": (
        partial(ObjectivePerturbationRegressor, bound_x=2.0, bound_y=1.0, constraint=L2Ball(1.0), fit_intercept=False),
        Y[:, 0],
    ),
    "two classes": (partial(descent, classes=["a", "b"]), np.where(LABELS == "a", "a", "b")),
    "two classes with standard errors": (
        partial(descent, classes=["a", "b"], inference=True),
        np.where(LABELS == "a", "a", "b"),
    ),
    "squared loss with standard errors": (
        partial(squared, constraint=L2Ball(1.0), fit_intercept=True, inference=True),
        Y[:, 0],
    ),
    "classes": (partial(descent, classes=["a", "b", "c"], class_weight={"b": 0.5}), LABELS),
    "pursuit": (pursuit, Y),
    "pursuit of bounded rows": (partial(pursuit, bound_x=1.5), Y[:, 0]),
    "exponential": (partial(pursuit, selector="exponential"), Y[:, 0]),
    "scaler": (partial(PrivateStandardScaler, box_x="private"), None),
}
OF_PANELS = {
    "panel": {"center": "private", "row_bound": "private"},
    "found range": {"bound": "private"},
    "predictors": {"bound": "private", "predictors": {"age": (-1.0, 0.5)}},
}
OF_WALKS = {
    "visits": {"return_range": (0, 1)},
    "found returns": {"return_range": "private"},
    "features": {"return_range": (0, 1), "features": np.eye(6)[:, :3] + 0.1, "block_bounds": (1.0, 1.0)},
    "means": {"return_range": (0, 1), "method": "lsw"},
}


def same_releases(make, whole, parts):
    """Whether two fits with a seed release the same."""
    one, other = (make(random_state=2).fit(*data).releases_ for data in (whole, parts))
    values = [[value for release in releases for value in release.values.values()] for releases in (one, other)]
    return len(values[0]) == len(values[1]) and all(map(np.array_equal, *values))


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("adjacency", ["replace_one", pytest.param("add_remove", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OF_ROWS)
def test_rows(name, adjacency):
    make, y = OF_ROWS[name]
    tables = (X,) if y is None else (X, y)
    n_outcomes = 0 if y is None else 1 if y.ndim == 1 else y.shape[1]
    parts = Listed(cut(tables, ENDS), 4, n_outcomes)
    assert same_releases(partial(make, 3.0, 1e-5, adjacency=adjacency), tables, (parts,))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("name", OF_PANELS)
def test_panels(name, adjacency):
    make = partial(
        SyntheticControl, 3.0, 1e-5, placebo_share=0.1, adjacency=adjacency, **{"bound": 1.0} | OF_PANELS[name]
    )
    assert same_releases(make, (X, 2), (Listed(cut((X,), ENDS), 4), 2))


@pytest.mark.parametrize("name", OF_WALKS)
def test_trajectories(name):
    lists = [[], WALKS[:30], [WALKS[30:31], WALKS[31:100]], WALKS[100:]]
    assert same_releases(partial(walks, 3.0, 1e-5, **OF_WALKS[name]), (WALKS,), (Listed(lists, 6),))


def test_bounds():
    found = private_bounds(Listed(cut((X, Y), ENDS), 4, 2), epsilon=1.0, box=True, random_state=1)
    expected = private_bounds(X, Y, epsilon=1.0, box=True, random_state=1)
    assert np.array_equal(found.release.values["sum"], expected.release.values["sum"])


@pytest.mark.parametrize(
    ("make", "y", "message"),
    [
        (
            partial(
                ObjectivePerturbationRegressor,
                bound_x=1.0,
                bound_y=1.0,
                loss="huber",
                method="objective",
                fit_intercept=False,
            ),
            Y[:, 0],
            "in parts",
        ),
        (partial(descent, classes=["a", "b", "c"], method="objective"), LABELS, "in parts"),
        (partial(pursuit, selector="sample_aggregate"), Y[:, 0], "held in memory"),
        (partial(ridge, n_subsample=20), Y, "n_subsample"),
        (partial(ridge, mechanism="projection", public_labels=True), Y, "projection"),
    ],
)
def test_what_needs_rows_says_so_and_spends_nothing(make, y, message):
    parts = Listed(cut((X, y), ENDS), 4, 1 if y.ndim == 1 else 2)
    ledger = Ledger(Privacy(10.0, 1e-3))
    model = make(3.0, 1e-5, ledger=ledger)
    with pytest.raises(TypeError, match=message):
        model.fit(parts)
    assert len(ledger.releases) == 0
    assert ledger.remaining == Ledger(Privacy(10.0, 1e-3)).remaining
    assert not hasattr(model, "releases_")


def test_rows_are_not_taken_for_none():
    parts = Listed(cut((X, Y), ENDS), 4, 2)
    with pytest.raises(TypeError, match="held in memory here"):
        list(open_table(parts).blocks())
    with pytest.raises(TypeError, match="held in memory here"):
        open_table(parts).whole()


def test_without_noise_rows_are_needed_in_memory():
    with pytest.raises(TypeError, match="epsilon must be finite"):
        ridge(np.inf).fit(Listed(cut((X, Y), ENDS), 4, 2))
    with pytest.raises(TypeError, match="finite epsilon"):
        SyntheticControl(np.inf, bound=1.0).fit(Listed(cut((X,), ENDS), 4), 2)


def test_people_with_several_rows_are_refused_where_a_person_is_a_row():
    ids = np.arange(N)
    parts = Listed(cut((X, Y[:, 0], ids), ENDS), 4, 1, partitioned_by="person")
    for model in (pursuit(1.0, 1e-6), PrivateStandardScaler(1.0, 1e-6, box_x="private")):
        with pytest.raises(ValueError, match="partitioned by person"):
            model.fit(parts)
    donors = Listed([(X, None, ids)], 4, partitioned_by="person")
    with pytest.raises(ValueError, match="partitioned by person"):
        SyntheticControl(1.0, 1e-6, bound=1.0).fit(donors, 2)
    with pytest.raises(ValueError, match="partitioned by person"):
        walks(1.0, 1e-6).fit(Listed([WALKS], 6, partitioned_by="person"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_during_any_pass_leaves_the_model_as_it_was_and_pays_for_what_was_drawn(error):
    class Interrupted(Listed):
        def run(self, function, combine):
            self.passes = getattr(self, "passes", 0) + 1
            if self.passes == self.last:
                raise error
            return super().run(function, combine)

    for last in (1, 2, 4):
        ledger = Ledger(total := Privacy(10.0, 1e-3, "add_remove"))
        model = ridge(3.0, 1e-5, refine=2, adjacency="add_remove", ledger=ledger)
        parts = Interrupted(cut((X, Y), ENDS), 4, 2)
        parts.last = last
        with pytest.raises(error if last == 1 or error is KeyboardInterrupt else PaidFailure):
            model.fit(parts)
        # The first pass counts, and what it counted is the first release.
        assert len(ledger.releases) == last - 1
        assert (ledger.remaining == Ledger(total).remaining) == (last == 1)
        assert not any(name.endswith("_") for name in vars(model))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=5).map(sorted), st.sampled_from([np.float32, np.float64, np.int8]))
def test_statistics_over_any_parts(ends, dtype):
    x, y = (3.0 * X[:60]).astype(dtype), (3.0 * Y[:60]).astype(dtype)
    whole, parts = open_table(x, y), open_table(Listed(cut((x, y), ends), 4, 2))
    step = ResidualStep(np.full((4, 2), 0.25), RowMap(bound=1.0), RowMap(bound=1.0))
    for statistic in (
        partial(gram, bound_x=1.0, bound_y=1.0, sums=True),
        partial(residual_sizes, step=step, half_octaves=(-4, 4)),
        partial(size_counts, sizes=NormHistograms(rows=True, outcomes=True, entries=True)),
    ):
        assert np.all(statistic(parts) == statistic(whole))
    sums = partial(residual_sums, step=step, clip=0.5, bound_squares=1.0)
    assert sums(parts).products == sums(whole).products
    assert sums(parts).squares == sums(whole).squares
