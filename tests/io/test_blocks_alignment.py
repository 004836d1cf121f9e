"""Tables that go together row by row: indices that differ are refused, before anything is spent, without a label."""

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, ObjectivePerturbationClassifier, Privacy
from dpfast.io import Columns, RowOwners, blocks, open_table
from dpfast.io.blocks import _index_of
from dpfast.statistics import gram

pd = pytest.importorskip("pandas")

X = pd.DataFrame(np.ones((6, 2)), columns=["a", "b"], index=list("uvwxyz"))
TURNED = X.index[::-1]


def test_rows_of_other_records_are_refused():
    later = pd.Series(np.ones(6), index=range(6))
    for y in (later, later.to_frame(), later.set_axis(TURNED)):
        for read in (open_table, lambda x, y: list(blocks(x, y)), lambda x, y: list(blocks([(x, y)]))):
            with pytest.raises(ValueError, match=r"^X and Y have different indices: align") as raised:
                read(X, y)
            assert not set("uvwxyz") & {word.strip("'") for word in str(raised.value).split()}
    for y in (later.set_axis(X.index.copy()), later.to_numpy(), later.tolist()):
        assert open_table(X, y).n_outcomes == 1


def test_owners_of_other_records_are_refused():
    whose = pd.Series([1, 1, 2, 2, 3, 3], index=TURNED)
    frame = whose.to_frame("whose")
    for x, groups in ((X, whose), (Columns(["a"]).encode(X), whose), (X, RowOwners(frame, "whose"))):
        with pytest.raises(ValueError, match="X and groups have different indices"):
            gram(x, bound_x=1.0, groups=groups, max_rows=2)
    assert gram(X, bound_x=1.0, groups=whose.to_numpy(), max_rows=2).n_rows == 6


@pytest.mark.parametrize("bound", [1.0, "private"])
def test_nothing_is_spent_on_them(bound):
    ledger = Ledger(Privacy(2.0, 1e-5))
    model = MultiOutcomeRidge(1.0, 1e-6, bound_x=bound, bound_y=1.0, ledger=ledger, fit_intercept=False)
    with pytest.raises(ValueError, match="different indices"):
        model.fit(X, pd.Series(np.ones(6), index=TURNED))
    assert len(ledger.releases) == 0
    assert ledger.spent.epsilon == 0.0


def test_labels_of_classes_are_aligned_too():
    model = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=2.0, classes=("no", "yes"), fit_intercept=False)
    with pytest.raises(ValueError, match="X and y have different indices"):
        model.fit(X, pd.Series(["no", "yes"] * 3, index=TURNED))


def test_dask_partitions_that_were_reordered_are_refused():
    dataframe = pytest.importorskip("dask.dataframe")
    numbers = pd.DataFrame(np.arange(40.0).reshape(20, 2) / 40.0, columns=["a", "b"])
    together = dataframe.from_pandas(numbers, npartitions=4)
    x, y = together[["a"]], together[["b"]]
    turned = dataframe.concat([y.get_partition(i) for i in (1, 0, 3, 2)])
    bounds = {"bound_x": 1.0, "bound_y": 1.0}
    assert gram(x, y, **bounds) == gram(numbers[["a"]], numbers["b"], **bounds)
    with pytest.raises(ValueError, match="X and Y have different indices"):
        gram(x, turned, **bounds)
    model = MultiOutcomeRidge(1.0, 1e-6, **bounds).fit(x, y)
    assert model.feature_names_in_.tolist() == ["a"]


def test_a_frame_goes_with_no_blocks_whose_index_is_not_known():
    pd = pytest.importorskip("pandas")
    X, Y = pd.DataFrame(np.ones((4, 2))), pd.DataFrame(np.ones((4, 1)))
    bounds = {"bound_x": 2.0, "bound_y": 2.0}
    for pair in ((X, iter([Y.to_numpy()])), (iter([X.to_numpy()]), Y)):
        with pytest.raises(ValueError, match="different indices"):
            gram(*pair, **bounds)
    assert gram(iter([X.to_numpy()]), iter([Y.to_numpy()]), **bounds) == gram(X, Y, **bounds)


def test_parts_in_a_list_have_their_labels_one_after_the_other():
    parts = [pd.DataFrame({"x": [1.0, 2.0]}, index=[5, 6]), pd.DataFrame({"x": [3.0]}, index=[9])]
    assert _index_of(parts).tolist() == [5, 6, 9]
    assert _index_of([(part, None) for part in parts]).tolist() == [5, 6, 9]
