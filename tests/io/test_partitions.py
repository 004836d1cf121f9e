"""An engine sees functions of parts and pairs of results; what comes of them is that of the table, to the bit."""

import numpy as np
import pytest
from engines import Listed, cut

from dpfast import MultiOutcomeRidge
from dpfast.io import EngineError
from dpfast.statistics import gram
from dpfast.statistics.rows import sum_of_parts

BOUNDS = {"bound_x": 1.5, "bound_y": 1.0}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(7)
    return rng.standard_normal((400, 4)), rng.standard_normal((400, 2)), np.sort(rng.integers(90, size=400))


def ends_of_people(ids):
    return np.flatnonzero(np.diff(ids))[[3, 20, 61]] + 1


def by_person(X, Y, ids):
    return Listed(cut((X, Y, ids), ends_of_people(ids)), 4, 2, partitioned_by="person")


@pytest.mark.parametrize("bounds", [{}, {"bound_xx": 2.0, "bound_xy": 1.0}])
def test_people_of_parts_add_up_to_those_of_the_table(arrays, bounds):
    X, Y, ids = arrays
    expected = gram(X, Y, **BOUNDS, groups=ids, max_rows=4, **bounds)
    parts = by_person(X, Y, ids)
    assert gram(parts, **BOUNDS, groups=parts.groups, max_rows=4, **bounds) == expected
    assert expected.n_people == len(np.unique(ids))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("refine", [0, 2])
def test_fits_of_people_do_not_depend_on_parts(arrays, adjacency, refine):
    X, Y, ids = arrays
    model = MultiOutcomeRidge(
        2.0, 1e-6, bound_x=1.5, bound_y=1.0, refine=refine, adjacency=adjacency, random_state=3, fit_intercept=False
    )
    whole = model.fit(X, Y, ids, 4).coef_
    assert np.array_equal(model.fit(by_person(X, Y, ids), max_rows=4).coef_, whole)
    rows = Listed(cut((X, Y), [0, 0, 17, 400]), 4, 2)
    assert np.array_equal(model.fit(rows).coef_, model.fit(X, Y).coef_)


def test_people_are_asked_for_where_they_are_declared_and_nowhere_else(arrays):
    X, Y, ids = arrays
    model = MultiOutcomeRidge(2.0, 1e-6, **BOUNDS)
    with pytest.raises(ValueError, match=r"groups \(.*\) and max_rows \(.*\) go together"):
        model.fit(by_person(X, Y, ids))
    with pytest.raises(ValueError, match="partitioned by person"):
        gram(by_person(X, Y, ids), **BOUNDS)
    with pytest.raises(TypeError, match="belong to the parts"):
        model.fit(Listed(cut((X, Y), [100]), 4, 2), groups=ids, max_rows=4)
    without_ids = Listed(cut((X, Y), [100]), 4, 2, partitioned_by="person")
    with pytest.raises(ValueError, match="ids are needed in every part"):
        model.fit(without_ids, max_rows=4)
    with pytest.raises(TypeError, match="Y must be among the parts"):
        model.fit(Listed(cut((X, Y), [100]), 4, 2), Y)


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (ValueError("ours"), ValueError, "^ours$"),
        (OSError(2, "No such file", "a.npy"), FileNotFoundError, "a.npy"),
        (KeyError("secret"), ValueError, "^a part of the table could not be summed: KeyError$"),
    ],
)
def test_errors_of_parts_are_results(arrays, raised, kind, message):
    def sums(x, y, ids):
        if x[0, 0] == arrays[0][100, 0]:
            raise raised
        return 1

    seen = []

    class Watched(Listed):
        pickles = False

        def run(self, function, combine):
            return super().run(lambda part: seen.append(function(part)) or seen[-1], combine)

    with pytest.raises(kind, match=message) as error:
        Watched(cut(arrays[:2], [100, 200]), 4, 2).reduce(sums, int.__add__)
    assert error.value.__context__ is None
    assert seen.count(1) == 3


def test_results_that_cannot_be_combined_are_refused_where_they_are_asked_for(arrays):
    class Unpickled(Listed):
        pickles = False

    def refuse(one, other):
        raise ValueError("unlike")

    with pytest.raises(ValueError, match=r"^unlike$") as error:
        Unpickled(cut(arrays[:2], [100, 200]), 4, 2).reduce(lambda x, y, ids: len(x), refuse)
    assert error.value.__context__ is None


def test_what_an_engine_raises_is_not_quoted(arrays):
    class Failing(Listed):
        def __init__(self, error):
            super().__init__(cut(arrays[:2], [5]), 4, 2)
            self.error = error

        def run(self, function, combine):
            raise self.error

    for error, kind, message in (
        (RuntimeError("secret"), ValueError, "^the engine failed"),
        (EngineError("no workers"), EngineError, "^no workers$"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ):
        with pytest.raises(kind, match=message) as raised:
            gram(Failing(error), **BOUNDS)
        assert raised.value.__context__ is None


def double(x, y, ids):
    return 2.0 * x, y, ids


def without_outcomes(x, y, ids):
    return x, None, ids


def test_parts_are_mapped_where_they_lie(arrays):
    X, Y, _ = arrays
    doubled = Listed(cut((X, Y), [30]), 4, 2).mapped(double, 4, 2).mapped(without_outcomes, 4, 0)
    assert gram(doubled, bound_x=1.0) == gram(2.0 * X, bound_x=1.0)


def test_parts_must_be_alike(arrays):
    X, Y, _ = arrays
    with pytest.raises(ValueError, match="same columns"):
        gram(Listed([(X, Y), (X[:, :3], Y)], 4, 2), **BOUNDS)
    with pytest.raises(ValueError, match="same columns"):
        gram(Listed([(X, Y), (X, None)], 4, 2), **BOUNDS)
    with pytest.raises(ValueError, match="feature_names must be 4"):
        Listed([], 4, feature_names=["a"])
    with pytest.raises(ValueError, match="outcome_names must be 2"):
        Listed([], 4, 2, outcome_names=["a"])
    with pytest.raises(ValueError, match="partitioned_by"):
        Listed([], 4, partitioned_by="household")


def test_sums_over_people_are_of_one_declaration(arrays):
    X, Y, ids = arrays
    sums = [gram(X, Y, **BOUNDS, groups=ids, max_rows=most) for most in (2, 3)]
    with pytest.raises(ValueError, match="differ in what was declared"):
        sum_of_parts(*sums)
