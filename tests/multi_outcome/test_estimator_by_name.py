"""Limits and bounds by the names of columns, and a bound for each outcome."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from neighbours import climb
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpfast import (
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PolicyEvaluation,
    Privacy,
    PrivateStandardScaler,
    SparseRegression,
    SyntheticControl,
    select,
)
from dpfast.io import Boolean, Category, Columns, Number
from dpfast.multi_outcome.mechanism import OutcomeUnits
from dpfast.statistics import gram, rounded_bound

BOX = {"smoker": (0, 1), "age": (18, 90)}
BOUNDS = {"cost": 10_000.0, "days": 30.0}
ARRAYS = {"box_x": (np.array([18, 0]), np.array([90, 1])), "bound_y": [30.0, 10_000.0]}


def tables(n=3_000, seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"age": rng.uniform(18, 90, n), "smoker": rng.integers(0, 2, n) * 1.0})
    days = np.clip(rng.normal(10, 4, n), 0, 30)
    return x, pd.DataFrame({"days": days, "cost": np.clip(60 * x.age - 900 + rng.normal(0, 800, n), 0, 10_000)})


def ridge(epsilon=1.0, **parameters):
    named = {"box_x": BOX, "bound_y": BOUNDS, "fit_intercept": True, "random_state": 1, "refine": 0}
    return MultiOutcomeRidge(epsilon, 1e-6, **named | parameters)


def forms():
    """The tables as whatever has names, and X and Y of one fit."""
    polars = pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow")
    x, y = tables()
    both = polars.DataFrame(x.join(y).to_dict("list"))
    columns = Columns([Number("age", low=18, high=90), "smoker"], ["days", "cost"])
    return {
        "pandas": (x, y),
        "polars": (both[["age", "smoker"]], both[["days", "cost"]]),
        "arrow": (arrow.Table.from_pandas(x), arrow.Table.from_pandas(y)),
        "a listed table": ([x.iloc[:9], x.iloc[9:]], [y.iloc[:9], y.iloc[9:]]),
        "a lazy query": (columns.encode(both.lazy()), None),
    }


@pytest.mark.parametrize("refine", [0, 2])
def test_names_do_what_arrays_in_the_order_of_the_table_do(refine):
    x, y = tables()
    expected = ridge(refine=refine, **ARRAYS).fit(x.to_numpy(), y.to_numpy()).coef_
    for form, table in forms().items():
        assert np.array_equal(ridge(refine=refine).fit(*table).coef_, expected), form


def test_files_have_names(tmp_path):
    x, y = tables()
    pytest.importorskip("pyarrow")
    paths = []
    for name, table in (("x.parquet", x), ("y.parquet", y)):
        paths.append(tmp_path / name)
        table.to_parquet(paths[-1])
    assert np.array_equal(ridge().fit(*paths).coef_, ridge().fit(x, y).coef_)


def test_what_was_declared_stays_as_it_was_declared(tmp_path):
    x, y = tables()
    fitted = ridge(refine="auto")
    assert fitted.fit(x, y) is fitted
    assert (fitted.box_x, fitted.bound_y) == (BOX, BOUNDS)
    assert clone(fitted).get_params()["bound_y"] == BOUNDS
    fitted.save(tmp_path / "model.json")
    for other in (MultiOutcomeRidge.load(tmp_path / "model.json"), pickle.loads(pickle.dumps(fitted))):
        assert list(other.box_x) == list(BOX)
        pd.testing.assert_frame_equal(other.summary(), fitted.summary())


def test_a_subclass_has_what_was_fitted():
    class Doubled(MultiOutcomeRidge):
        def fit(self, X, Y=None, **options):
            super().fit(X, Y, **options)
            self.doubled_ = 2.0 * self.coef_
            return self

    x, y = tables()
    fitted = Doubled(**ridge().get_params()).fit(x, y)
    assert np.array_equal(fitted.doubled_, 2.0 * fitted.coef_)


def test_declared_columns_have_a_box():
    columns = Columns([Category("site", ("a", "b"), drop_first=True), Number("age", low=18, high=90), Boolean("new")])
    low, high = columns.box
    assert (low.tolist(), high.tolist()) == ([0.0, 18.0, 0.0], [1.0, 90.0, 1.0])
    with pytest.raises(ValueError, match="'dose' is declared without low and high"):
        _ = Columns(["dose"]).box
    for limits, match in (
        ({"low": 1.0}, "go together"),
        ({"low": 2.0, "high": 2.0}, "below high"),
        ({"low": 0.0, "high": math.inf}, "both finite"),
        ({"low": 0.0, "high": 1.0, "missing": 3.0}, "from low to high"),
    ):
        with pytest.raises(ValueError, match=match):
            Number("age", **limits)


def test_only_numbers_need_limits_by_name_where_columns_are_declared():
    frame = pd.DataFrame({"site": ["a", "b"] * 50, "age": np.linspace(20, 80, 100), "days": np.arange(100.0)})
    columns = Columns([Category("site", ("a", "b")), "age"], ["days"])
    named = ridge(box_x={"age": (18, 90)}, bound_y={"days": 100.0}).fit(columns.encode(frame), None)
    arrays = ridge(box_x=(np.array([0, 0, 18]), np.array([1, 1, 90])), bound_y=100.0).fit(columns.encode(frame), None)
    assert np.array_equal(named.coef_, arrays.coef_)


@pytest.mark.parametrize("values", [["1", "2", "1"], [1, 2, 1], [1, None, 2]])
def test_a_column_of_pandas_categories_is_a_category(values):
    levels = tuple(dict.fromkeys(one for one in values if one is not None))
    frame = pd.DataFrame({"sex": pd.Categorical(values)})
    (rows,) = [x for x, _ in Columns([Category("sex", levels, missing=levels[0])]).encode(frame) if len(x)]
    expected = [levels.index(levels[0] if one is None else one) for one in values]
    assert rows.argmax(axis=1).tolist() == expected


def test_a_scaler_and_a_selection_take_names():
    x, y = tables()
    scaler = PrivateStandardScaler(1.0, 1e-6, box_x=BOX, random_state=0)
    arrays = PrivateStandardScaler(1.0, 1e-6, box_x=ARRAYS["box_x"], random_state=0)
    assert np.array_equal(scaler.fit(x).mean_, arrays.fit(x.to_numpy()).mean_)
    candidates = [
        ridge(bound_y=30.0, random_state=None),
        make_pipeline(clone(scaler).set_params(random_state=None), ridge(bound_x=3.0, box_x=None, bound_y=30.0)),
    ]
    candidates[1].steps[-1][1].random_state = None
    chosen = select(candidates[:1], x, y["days"], epsilon=1.0, delta=1e-6, bound_y=30.0)
    assert chosen.best_estimator_.box_x == BOX
    select(candidates[1:], x, y["days"], epsilon=1.0, delta=1e-6, bound_y=30.0)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"box_x": {"agee": (18, 90), "smoker": (0, 1)}}, r"box_x has names that X lacks: 'agee'"),
        ({"box_x": {"age": (18, 90)}}, "box_x must have every column of X, once: it has 1, and X has 2"),
        ({"box_x": BOX | {"dose": (0, 1)}}, "box_x has names that X lacks: 'dose'"),
        ({"box_x": {"age": (90, 18), "smoker": (0, 1)}}, r"box_x\['age'\] must be finite and increasing"),
        ({"box_x": {"age": 90, "smoker": (0, 1)}}, r"box_x\['age'\] must be a pair"),
        (
            {"box_x": {"age": ["young", "old"], "smoker": (0, 1)}},
            "got text for 'age': declare its levels by dpfast.io.C",
        ),
        ({"box_x": {}}, "box_x by name must be a mapping"),
        ({"box_x": {0: (18, 90), 1: (0, 1)}}, "box_x by name must be a mapping"),
        ({"box_x": ((0, 1), (0, 90))}, "box_x is ambiguous: two pairs for two features, or lows and highs"),
        ({"box_x": [[18, 90], [0, 1]]}, "not a pair for each feature; write limits by name"),
        ({"bound_y": {"days": 30.0}}, "bound_y must have every column of Y, once: it has 1, and Y has 2"),
        ({"bound_y": {"days": 30.0, "costs": 1.0}}, "bound_y has names that Y lacks: 'costs'"),
        ({"bound_y": {"days": -1.0, "cost": 1.0}}, r"bound_y\['days'\] must be positive"),
        ({"bound_y": {"days": 1e300, "cost": 1.0}}, r"bound_y\[0\] must lie between"),
        ({"bound_y": [1.0, 2.0, 3.0]}, "bound_y must be one number, or one an outcome: 2, got 3"),
        ({"bound_y": []}, "bound_y must hold at least one"),
        ({"bound_y": [1.0, 2.0], "mechanism": "independent", "box_x": None, "bound_x": 1.0}, "no bou"),
    ],
)
def test_what_is_declared_wrongly_is_refused_before_anything_is_spent(parameters, match):
    ledger = Ledger(Privacy(2.0, 1e-5))
    with pytest.raises((ValueError, TypeError), match=match) as raised:
        ridge(ledger=ledger, random_state=None, **parameters).fit(*tables())
    assert ledger.spent.epsilon == 0.0
    # No message has a name of the table's own that was not declared.
    own = [name for name in ("smoker", "days", "cost") if name not in str(parameters)]
    assert not any(f"'{name}'" in str(raised.value) for name in own)


def test_tables_without_names_take_no_names():
    x, y = tables()
    with pytest.raises(ValueError, match="box_x is declared by name, and the columns of X have no names"):
        ridge().fit([], [])
    with pytest.raises(ValueError, match="box_x is declared by name, and the columns of X have no names"):
        ridge().fit(x.to_numpy(), y)
    with pytest.raises(ValueError, match="bound_y is declared by name, and the columns of Y have no names"):
        ridge().fit(x, y.to_numpy())
    sums = gram(x.to_numpy(), y.to_numpy(), bound_x=100.0, bound_y=1.0, sums=True)
    with pytest.raises(ValueError, match="bound_y must be one number with fit_gram"):
        ridge(bound_x=100.0, box_x=None).fit_gram(sums)


def test_arrays_of_lows_and_highs_are_not_ambiguous():
    x, y = tables()
    lows_and_highs = np.array([0.0, 1.0]), np.array([90.0, 91.0])
    assert ridge(box_x=lows_and_highs).fit(x, y).coef_.shape == (2, 2)
    assert ridge(box_x=([0, 0], [90, 1])).fit(x, y).coef_.shape == (2, 2)


def test_a_plan_takes_names_and_does_not_depend_on_units():
    parameters = {"epsilon": 1.0, "delta": 1e-6, "box_x": BOX}
    plans = [
        MultiOutcomeRidge.plan(2_000, 2, 2, bound_y=bound, **parameters, refine=refine)
        for refine in (0, "auto")
        for bound in (BOUNDS, [1.0, 1.0], {"a": 1e-3, "b": 5.0})
    ]
    assert len({plan.expected_error for plan in plans[:3]}) == len({plan.expected_error for plan in plans[3:]}) == 1
    with pytest.raises(ValueError, match="each of 2 features"):
        MultiOutcomeRidge.plan(2_000, 2, 2, epsilon=1.0, delta=1e-6, box_x={"age": (1, 2)}, bound_y=1.0)


def test_without_noise_bounds_are_not_looked_at():
    x, y = tables()
    expected = MultiOutcomeRidge(math.inf, bound_x=1.0, bound_y=1.0, fit_intercept=True).fit(x, y)
    assert np.array_equal(ridge(math.inf, random_state=None).fit(x, y).coef_, expected.coef_)


@pytest.mark.parametrize("options", [{}, {"refine": 2}, {"adjacency": "add_remove"}, {"nonnegative": True}])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_units_of_outcomes_do_not_matter(options, delta):
    x, y = tables()
    factors = np.array([4.0, 2.0**-20])
    one = ridge(**options).set_params(delta=delta).fit(x, y)
    scaled = {"days": 30.0 * factors[0], "cost": 10_000.0 * factors[1]}
    other = ridge(**options | {"bound_y": scaled}).set_params(delta=delta).fit(x, y * factors)
    for name in ("coef_", "coef_std_"):
        np.testing.assert_allclose(getattr(other, name), factors[:, None] * getattr(one, name), rtol=1e-12)
    np.testing.assert_allclose(other.intercept_, factors * one.intercept_, rtol=1e-12)
    if one.residual_std_ is not None:
        np.testing.assert_allclose(other.residual_std_, factors * one.residual_std_, rtol=1e-12)
    for column in ("estimate", "std_error", "low", "high"):
        left, right = (fit.summary(target="least_squares")[column].to_numpy().reshape(2, 3) for fit in (other, one))
        np.testing.assert_allclose(left, factors[:, None] * right, rtol=1e-9)


def test_little_noise_leaves_least_squares():
    x, y = tables()
    exact = ridge(math.inf, random_state=None).fit(x, y)
    fitted = ridge(1e7).set_params(delta=1e-2).fit(x, y)
    np.testing.assert_allclose(fitted.coef_, exact.coef_, rtol=1e-3)
    np.testing.assert_allclose(fitted.intercept_, exact.intercept_, rtol=1e-3)


def test_noise_in_days_does_not_depend_on_what_costs_may_be():
    x, y = tables()
    each = ridge().fit(x, y).coef_std_
    together = ridge(bound_y=10_000.0).fit(x, y).coef_std_
    assert np.all(each[0] < together[0] / 100.0)
    # For the root of two outcomes: what the other one is given.
    assert np.all(each[1] < 1.5 * together[1])


@pytest.mark.parametrize("nonnegative", [False, True])
def test_no_outcomes_are_longer_than_what_noise_is_calibrated_for(nonnegative):
    bounds = np.array([30.0, 1e-3, 7e5])
    outcomes = OutcomeUnits.of_each(bounds, 3)
    row_map = outcomes.row_map(nonnegative)

    def length(parameters):
        rows = row_map((10.0 * bounds * parameters)[None, :])
        return float(np.linalg.norm(rows))

    worst, _ = climb(length, 3, np.random.default_rng(0))
    assert worst <= rounded_bound(outcomes.bound, 3)
    assert length(np.full(3, 0.1)) == pytest.approx(math.sqrt(3.0), rel=1e-12)


def test_a_missing_bound_says_what_it_is_and_where_from():
    missing = {
        "bound_y": lambda: MultiOutcomeRidge(1.0, 1e-6),
        "box_x": lambda: PrivateStandardScaler(1.0),
        "classes": lambda: ObjectivePerturbationClassifier(1.0, bound_x=1.0),
        "box_x (Declared limits of every feature) or bound_x": lambda: ridge(box_x=None).fit(*tables()),
    }
    for name, make in missing.items():
        with pytest.raises(TypeError) as raised:
            make()
        assert f" needs {name}" in str(raised.value)
        for word in ("never from its rows", "docs/concepts/bounds.md"):
            assert word in str(raised.value)
    rows = r"needs box_x \(Declared limits of every feature.*\) or bound_x \(L2 norm of a row of X, at most\)"
    for model in (
        ObjectivePerturbationClassifier(1.0, classes=[0, 1]),
        ObjectivePerturbationRegressor(bound_y=1.0, epsilon=1.0),
    ):
        with pytest.raises(TypeError, match=rows):
            model.fit(*tables())


def test_another_missing_parameter_says_what_it_is_and_how_to_choose_it():
    chosen = {
        "n_nonzero (How many features to choose)": (lambda: SparseRegression(1.0), "sparse_regression"),
        "gamma (Discount, in (0, 1])": (lambda: PolicyEvaluation(1.0), "policy_evaluation"),
    }
    for words, (make, page) in chosen.items():
        with pytest.raises(TypeError) as raised:
            make()
        assert f" needs {words}. " in str(raised.value)
        assert "hoose it" in str(raised.value)
        assert str(raised.value).endswith(f"docs/guides/{page}.md")


def test_a_column_of_bounds_without_names_is_a_list():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 2)), rng.normal(size=(200, 2))
    one, other = (
        MultiOutcomeRidge(1.0, 1e-6, bound_x=3.0, bound_y=bounds, refine=0, random_state=0).fit(x, y)
        for bounds in (pd.Series([2.0, 10.0]), [2.0, 10.0])
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: MultiOutcomeRidge(1.0, boundx=1.0, bound_y=1.0), "no parameter 'boundx'; did you mean 'bound_x'"),
        (lambda: MultiOutcomeRidge.plan(9, 2, eps=1.0, bound_x=1.0), "no parameter 'eps'; did you mean 'epsilon'"),
        (lambda: SyntheticControl(1.0, Bounds=2.0), "SyntheticControl has no parameter 'Bounds'; did you mean 'bound'"),
        (
            lambda: SparseRegression(1.0, n_nonzero=1, max_weight=2.0),
            r"no parameter 'max_weight'; MultiOutcomeRidge, the classifier, the regressor and describe take",
        ),
        (lambda: PolicyEvaluation(1.0, gama=0.9), "PolicyEvaluation has no parameter 'gama'; did you mean 'gamma'"),
        (lambda: SparseRegression(1.0, nonzero=2), "no parameter 'nonzero'; did you mean 'n_nonzero'"),
        (lambda: SparseRegression(1.0, colour=2), "no parameter 'colour'; its parameters: epsilon, delta, .*n_nonzero"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_nearest(made, words):
    with pytest.raises(TypeError, match=words):
        made()


def test_an_unknown_word_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="got 'gausian'; did you mean 'gaussian'"):
        MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, mechanism="gausian").fit(np.eye(3), np.ones(3))
    with pytest.raises(ValueError, match=r"or 'independent', got 'x'$"):
        MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, mechanism="x").fit(np.eye(3), np.ones(3))


@pytest.mark.parametrize("box", [[(0, 1)] * 3, np.zeros((3, 2)), (0, 1, 2)])
def test_a_box_that_is_no_lows_and_highs_says_how_to_write_it(box):
    with pytest.raises(ValueError, match="box_x must be two: all lows, and all highs, got 3; write limits by name"):
        MultiOutcomeRidge(1.0, 1e-6, box_x=box, bound_y=1.0).fit(np.eye(3), np.ones(3))
