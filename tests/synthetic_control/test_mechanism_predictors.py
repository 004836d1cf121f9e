"""Predictors: further columns of a donor's row, which count in units of the outcomes, bounded as these are."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from engines import Listed
from neighbours import climb

from dpfast import Privacy, SyntheticControl
from dpfast.datasets import synthetic_control_panel
from dpfast.io import open_long_panel
from dpfast.synthetic_control.estimator import _Public
from dpfast.synthetic_control.mechanism import Predictors, lengths_of
from dpfast.synthetic_control.steps import Donors

DECLARED = {"income": (0.0, 80.0), "age": (20.0, 60.0, 0.5)}


def panel(n=2_000, n_pre=4, seed=0):
    """Donors whose predictors tell their level; a target; and both as tables with names."""
    donors, target, _ = synthetic_control_panel(n, n_pre, seed=seed)
    rng = np.random.default_rng(seed + 1)
    both = np.vstack([donors, target])
    levels = both.mean(axis=1, keepdims=True)
    predictors = np.hstack([40.0 + 30.0 * levels, 40.0 + 15.0 * levels]) + rng.normal(0.0, 2.0, (n + 1, 2))
    labels = [*DECLARED, *range(1990, 1990 + both.shape[1])]
    table = pd.DataFrame(np.hstack([predictors, both]), columns=pd.Index(labels, dtype=object))
    return table.iloc[:-1], table.iloc[-1]


def model(epsilon=1.0, delta=1e-6, **options):
    return SyntheticControl(epsilon, delta, **{"predictors": DECLARED, "random_state": 0} | options)


@pytest.mark.parametrize("bound", [1.0, (-1.0, 3.0)])
def test_without_noise_it_is_ridge_on_predictors_and_earlier_outcomes(bound):
    donors, target = panel(50)
    fitted = model(math.inf, 0.0, bound=bound, ridge=2.0).fit(donors, 1994, target)
    middle, half = (0.0, 1.0) if bound == 1.0 else (1.0, 2.0)

    def mapped(rows):
        rows = np.atleast_2d(np.asarray(rows, float))
        scaled = np.column_stack([(rows[:, 0] - 40.0) / 40.0, 0.5 * (rows[:, 1] - 40.0) / 20.0])
        return np.hstack([scaled, (rows[:, 2:] - middle) / half])

    rows, own = mapped(donors), mapped(target)[0]
    theta = np.linalg.solve(rows[:, :6].T @ rows[:, :6] + np.eye(6), rows[:, :6].T @ rows[:, 6:])
    np.testing.assert_allclose(fitted.predict(target.iloc[:6]), middle + half * own[:6] @ theta, rtol=1e-9)


def test_columns_are_found_by_name_and_else_come_first():
    donors, target = panel(300)
    expected = model().fit(donors.to_numpy(), 4, target.to_numpy(float))
    moved = [*donors.columns[2:], "age", "income"]
    tables = [donors, donors[moved], donors[moved].T]
    for table, series in zip(tables, (target, target[moved], target[moved]), strict=True):
        turned = len(table) != 300
        fitted = model().fit(table, 1994, series, orientation="periods_by_units" if turned else "units_by_periods")
        np.testing.assert_array_equal(fitted.coef_, expected.coef_)
        np.testing.assert_array_equal(fitted.target_, expected.target_)
        assert fitted.periods_.tolist() == list(range(1990, 1997))
        assert fitted.n_pre_ == 4
        effect = fitted.effect_summary(pd.DataFrame([series, series], index=["a", "b"]))
        np.testing.assert_allclose(effect.loc["b"], expected.effect_summary().iloc[0], rtol=1e-9)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_predictors_beyond_their_limits_count_as_these(adjacency, nonnegative):
    donors, _ = panel(200)
    far, held = np.array(donors, float), np.array(donors, float)
    far[::3, :2] = [500.0, -500.0]
    held[::3, :2] = [80.0, 20.0]
    fits = [
        model(adjacency=adjacency, nonnegative=nonnegative, row_bound=None, center=None).fit(rows, 4)
        for rows in (far, held)
    ]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    if not nonnegative:
        options = {"adjacency": adjacency, "row_bound": None, "center": None}
        parts = Listed([(rows, None, None) for rows in np.split(far, [70])], far.shape[1], 0)
        np.testing.assert_array_equal(model(**options).fit(parts, 4).coef_, fits[0].coef_)


def test_a_predictor_counts_the_same_in_other_units():
    donors, target = panel(200)
    other, own = donors.copy(), target.copy()
    other["income"], own["income"] = 1024.0 * other["income"], 1024.0 * own["income"]
    declared = DECLARED | {"income": (0.0, 80.0 * 1024.0)}
    fits = [model().fit(donors, 4, target), model(predictors=declared).fit(other, 4, own)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    tables = [fitted.balance() for fitted in fits]
    assert tables[1].loc["income", "estimate"] == pytest.approx(1024.0 * tables[0].loc["income", "estimate"])
    np.testing.assert_allclose(tables[0]["difference"], tables[1]["difference"], rtol=1e-9)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("row_bound", [None, (1.5, 1.0)])
def test_no_donor_with_predictors_moves_the_sums_by_more_than_is_calibrated(row_bound, adjacency):
    """The rows that are summed are as long as without predictors, whatever these are: the moments' proof holds."""
    estimator = model(row_bound=row_bound, center=None, adjacency=adjacency)
    n_donors = 4 if adjacency == "replace_one" else None
    public = _Public(4, np.arange(4), None, n_donors, 2)
    steps = estimator._steps(Privacy(1.0, 1e-6, adjacency), public)
    section = steps.declared
    rng = np.random.default_rng(3)
    others = rng.uniform(-1.0, 1.0, (3, 6)) * 60.0

    def sums(rows):
        queries = steps.stages()
        total = next(queries).statistic(Donors(estimator._mapping.of_donors(np.array(rows)), 1))
        return {"xx": total.xx, "xy": total.xy}

    def change(parameters):
        one, other = (3.0 * parameters.reshape(2, 6)) * np.array([60.0, 60.0, 1.0, 1.0, 1.0, 1.0])
        here = sums([*others, one])
        there = sums(others if adjacency == "add_remove" else [*others, other])
        scales = section.joint.deviations
        return math.sqrt(sum(np.sum((here[k] - there[k]) ** 2) / getattr(scales, k) ** 2 for k in ("xx", "xy")))

    corners = rng.choice([-5.0, 0.0, 0.5, 5.0], size=(60, 12))
    largest = max(max(map(change, corners)), climb(change, 12, rng, restarts=1, screened=10)[0])
    assert 0.4 * section.joint.mu < largest <= section.joint.mu


def test_errors_of_predictors_are_not_errors_of_the_fit():
    donors, target = panel()
    fitted = model(placebo_share=0.1).fit(donors, 1994, target)
    pre = target.to_numpy(float)[:6]
    before = fitted._earlier(pre)
    assert fitted.pre_fit() == pytest.approx(math.sqrt(np.mean((pre - before)[2:] ** 2)))
    table = fitted.balance()
    np.testing.assert_allclose(table["estimate"], before[:2])
    np.testing.assert_allclose(table["difference"], 100.0 * (pre - before)[:2] / np.array([80.0, 40.0]))
    errors = target.to_numpy(float)[2:] - np.r_[before[2:], fitted.predict(pre)]
    ratio = lengths_of(errors[None, 4:])[0] / lengths_of(errors[None, :4])[0] * math.sqrt(4.0 / 3.0)
    assert fitted.placebo_ranks()["ratio"].item() == pytest.approx(ratio)
    assert fitted.effect_summary()["ratio"].item() == pytest.approx(ratio)
    assert len(fitted.summary()) == 7
    assert list(fitted.placebo(2).index) == [1992, 1993]
    assert "predictors income, age" in fitted.report()
    assert max(len(line.get_xdata()) for line in fitted.plot().lines) == 7
    assert {len(fitted.interval(target.iloc[:6])[0]), len(fitted.predict(target.iloc[:6]))} == {3}


@pytest.mark.parametrize(
    "options", [{"bound": "private"}, {"center": "target"}, {"center": "private"}, {"center": 0.1}]
)
def test_it_goes_with_ranges_and_centres_and_is_saved(options, tmp_path):
    donors, target = panel()
    fitted = model(3.0, **options).fit(donors, 4, target)
    assert np.all(np.abs(fitted.predict(target.iloc[:6]) - target.to_numpy(float)[6:]) < 0.25)
    fitted.save(tmp_path / "model")
    again = SyntheticControl.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(target.iloc[:6]), fitted.predict(target.iloc[:6]))
    np.testing.assert_array_equal(again.balance(), fitted.balance())
    without_noise = model(math.inf, 0.0, **options).fit(donors, 4, target)
    assert without_noise.predict(target.iloc[:6]).shape == (3,)


def test_predictors_help_where_few_periods_tell():
    """Two noisy periods and an exact predictor: at epsilon 1 the error of predictions is less than half."""
    rng = np.random.default_rng(0)
    levels = rng.uniform(-0.8, 0.8, 3_001)
    outcomes = levels[:, None] + rng.normal(0.0, 0.4, (3_001, 4))
    errors = {}
    for name, first in {"with": levels[:, None], "without": np.empty((3_001, 0))}.items():
        rows = np.hstack([first, outcomes])
        k = first.shape[1]
        options = {"predictors": {"level": (-1.0, 1.0)} if k else None, "row_bound": None, "random_state": 0}
        fitted = SyntheticControl(1.0, 1e-6, **options).fit(rows, 2)
        errors[name] = np.sqrt(np.mean((fitted.predict(rows[:500, : k + 2]) - levels[:500, None]) ** 2))
    assert errors["with"] < 0.5 * errors["without"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predictors": ["age"]}, "predictors must be a dict of"),
        ({"predictors": {"age": 3.0}}, r"predictors\['age'\] must be \(low, high\)"),
        ({"predictors": {"age": (3.0, 3.0)}}, "low below its high"),
        ({"predictors": {"age": (0.0, math.inf)}}, "predictors"),
        ({"predictors": {"age": (0.0, 1.0, 2.0)}}, "weight of predictors.* at most 1"),
        ({"predictors": {"age": (0.0, 1.0, 0.0)}}, "weight of predictors.* positive"),
        ({"predictors": {1: (0.0, 1.0)}}, "predictors must have text for names"),
        ({"basis": 2}, "predictors cannot go with basis"),
        ({"mechanism": "output"}, "predictors must not be given with mechanism='output'"),
        ({"predictors": {"height": (0.0, 1.0)}}, "must have an entry 'height', once"),
    ],
)
def test_bad_declarations_are_named(options, message):
    donors, target = panel(40)
    with pytest.raises((ValueError, TypeError), match=message):
        model(**options).fit(donors, 4, target)


def test_rows_of_targets_need_their_predictors():
    donors, target = panel(200)
    fitted = model().fit(donors, 4, target)
    with pytest.raises(ValueError, match=r"4 or|6 \(n_pre\) \(with 2 predictors, which come first\)"):
        fitted.predict(np.zeros(4))
    with pytest.raises(ValueError, match="must have an entry 'income', once"):
        fitted.effect(target.drop("income"))
    with pytest.raises(ValueError, match="predictors must have been given"):
        SyntheticControl(1.0, 1e-6).fit(donors.iloc[:, 2:], 4).balance()


def in_rows(donors, target, rng):
    """The panel with a row for each unit and period, in any order; income differs between a unit's rows, age not."""
    wide = pd.concat([donors, target.to_frame().T], ignore_index=True).assign(unit=range(len(donors) + 1))
    long = wide.melt(["unit", "income", "age"], var_name="year", value_name="sales").astype({"year": int})
    long["income"] += (long["year"] - 1991.5) * (long["year"] < 1994) + 1e3 * (long["year"] >= 1994)
    return long.iloc[rng.permutation(len(long))].reset_index(drop=True)


def test_a_long_panel_has_means_of_earlier_rows():
    donors, target = panel(40)
    rng = np.random.default_rng(5)
    wide, long = model().fit(donors, 1994, target), in_rows(donors, target, rng)
    own = model().fit_long(long, "unit", "year", "sales", 40, 1994)
    for name in ("coef_", "target_", "center_", "periods_"):
        np.testing.assert_allclose(getattr(own, name), getattr(wide, name), rtol=1e-9)
    pd.testing.assert_frame_equal(own.balance(), wide.balance())
    gaps = long.assign(age=long["age"].where((long["year"] == 1991) | (long["unit"] % 2 == 0)))
    again = model().fit_long(gaps, "unit", "year", "sales", 40, 1994)
    np.testing.assert_array_equal(again.coef_, own.coef_)
    with pytest.raises(ValueError, match=r"column 'age' contains NaN: fill it$"):
        model().fit_long(gaps[gaps["year"] != 1991], "unit", "year", "sales", 40, 1994)
    with pytest.raises(ValueError, match="observation_rate cannot go with predictors in fit_long"):
        model(observation_rate=0.9).fit_long(long, "unit", "year", "sales", 40, 1994)
    with pytest.raises(ValueError, match="predictors must not be unit, time or value"):
        model(predictors={"sales": (0.0, 1.0)}).fit_long(long, "unit", "year", "sales", 40, 1994)
    with pytest.raises(ValueError, match="predictors must be a column of frame, got 'height'"):
        model(predictors={"height": (0.0, 1.0)}).fit_long(long, "unit", "year", "sales", 40, 1994)
    with pytest.raises(TypeError, match="column 'age' has entries that are not numbers"):
        model().fit_long(long.astype({"age": str}), "unit", "year", "sales", 40, 1994)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_one_donor_move_no_other_one_of_a_long_panel(seed):
    donors, target = panel(6)
    rng = np.random.default_rng(seed)
    long = in_rows(donors, target, rng)
    long["income"] = long["income"] * 10.0 ** rng.integers(-300, 300, len(long))
    columns = "unit", "year", "sales", 6, 1994
    read = partial(open_long_panel, predictors=("income", "age"))
    order = list(dict.fromkeys(long["unit"][long["unit"] != 6]))
    before = dict(zip(order, read(long, *columns)[0].values, strict=True))
    other = long.assign(income=long["income"].where(long["unit"] != 3, -np.finfo(float).max))
    for changed in (other, long[long["unit"] != 3], long.sort_values("sales"), long.sort_values("unit")):
        order = list(dict.fromkeys(changed["unit"][changed["unit"] != 6]))
        for unit, row in zip(order, read(changed, *columns)[0].values, strict=True):
            assert np.all(np.isfinite(row))
            if unit != 3:
                assert row.tobytes() == before[unit].tobytes()


def test_a_map_of_predictors_has_an_inverse():
    rng = np.random.default_rng(0)
    for least in (-1.0, 0.0):
        mapping = Predictors.of(DECLARED).mapping(3.0, 2.0, least)
        rows = rng.normal(40.0, 30.0, (20, 5))
        np.testing.assert_allclose(mapping.back(mapping(rows)), rows, rtol=1e-12)
        ends = mapping(np.array([[0.0, 20.0], [80.0, 60.0]]))
        np.testing.assert_allclose(ends, 3.0 + 2.0 * np.array([[least, 0.5 * least], [1.0, 0.5]]))


@pytest.mark.parametrize("bound", [1.0, (-1.0, 3.0)])
def test_moments_released_repeatedly_have_them_too(bound):
    donors, target = panel(20_000)
    options = {"bound": bound, "row_bound": None, "center": None, "ridge": 2.0}
    (batch,) = model(**options).fit_repeatedly(donors, 1994, 40)
    once = model(**options).fit(donors, 1994)
    assert batch.section.rows == once._released.section.rows
    assert batch.section.joint.scales == once._released.section.joint.scales
    before = target.iloc[:6]
    exact = model(math.inf, 0.0, **options).fit(donors, 1994).predict(before)
    found = batch.predict(before)
    assert found.shape == (40, once.n_post_)
    # The noise of the mean of forty releases.
    assert np.all(abs(found.mean(axis=0) - exact) < 5.0 * found.std(axis=0) / math.sqrt(40) + 0.01)
    two = batch.predict(pd.DataFrame([before, before]))
    np.testing.assert_allclose(two[:, 1], found)
