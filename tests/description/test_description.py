"""Descriptions of tables: what they say, of whatever is read, within one ledger."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest

import dpfast
from dpfast import BudgetExceeded, Ledger, Privacy, describe
from dpfast.io import Boolean, Category, Columns, Number, RowOwners

COLUMNS = {"age": (18, 90), "cost": (0, 10_000), "site": ["a", "b", "c"]}


def people(n=4_000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.uniform(18, 90, n)),
            "cost": rng.lognormal(5.5, 1.2, n),
            "site": rng.choice(["a", "b", "elsewhere"], n, p=[0.6, 0.39, 0.01]),
        }
    )


def of_table(table, quantile=0.5):
    """What the table holds, once it is clipped."""
    age, cost = table["age"].dropna(), table["cost"].clip(0, 10_000)
    return {
        ("(table)", "rows"): len(table),
        ("age", "mean"): age.mean(),
        ("age", "50%"): np.quantile(age, quantile, method="inverted_cdf"),
        ("age", "missing"): table["age"].isna().mean(),
        ("cost", "mean"): cost.mean(),
        ("cost", "50%"): np.quantile(cost, quantile, method="inverted_cdf"),
        ("site", "a"): (table["site"] == "a").mean(),
        ("site", "c"): 0.0,
        ("site", "other"): (table["site"] == "elsewhere").mean(),
    }


@pytest.mark.parametrize("n", [1, 2, 3])
def test_without_noise_means_of_very_few_are_theirs(n):
    table = pd.DataFrame({"a": [0.5, -0.25, 0.75], "b": [1.0, 0.2, 0.6]}).head(n)
    found = describe(table, {"a": (-1, 1), "b": (0, 1)}, math.inf).summary()["estimate"]
    for name in table:
        assert found[name, "mean"] == pytest.approx(table[name].mean())


def test_without_noise_it_is_what_the_table_holds():
    table = people()
    found = describe(table, COLUMNS, math.inf)
    summary = found.summary(target="table")
    assert found.releases_[0].mechanism == "no"
    width = {"age": 72 / 32, "cost": 10_000 / 32}
    for (column, statistic), value in of_table(table).items():
        row = summary.loc[(column, statistic)]
        near = width.get(column, 0.0) if statistic == "50%" else 1e-6 * width.get(column, 1.0) * 32
        assert abs(row["estimate"] - value) <= near, (column, statistic)
        assert row["low"] - near <= value <= row["high"] + near
        if statistic == "50%":
            assert row["low"] <= value <= row["high"] <= row["low"] + 2.0 * near
    # Without privacy sampling is left: the textbook's error of a mean, nearly.
    error = describe(table, COLUMNS, math.inf).summary().loc[("age", "mean"), "std_error"]
    assert error == pytest.approx(table["age"].std() / math.sqrt(table["age"].count()), rel=0.02)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_limits_hold_what_the_table_holds(adjacency, delta):
    table, held = people(), {}
    exact = of_table(table)
    for seed in range(40):
        found = describe(table, COLUMNS, 1.0, delta, adjacency=adjacency, random_state=seed)
        summary = found.summary(target="table", quantiles=[0.5])
        for key, value in exact.items():
            row = summary.loc[key]
            assert row["low"] <= row["estimate"] <= row["high"]
            held.setdefault(key, []).append(row["low"] - 1e-9 <= value <= row["high"] + 1e-9)
    # 95% limits of 40: fewer than 31 hold with probability 3e-5.
    assert min(map(sum, held.values())) >= 31, held
    if adjacency == "replace_one":
        assert found.summary().loc[("(table)", "rows")].tolist() == [4_000.0, 0.0, 4_000.0, 4_000.0]
    else:
        assert found.summary().loc[("(table)", "rows"), "std_error"] > 1.0


def test_errors_are_those_of_the_noise():
    table = people(1_000)
    several = [describe(table, COLUMNS, 1.0, 1e-6, adjacency="add_remove", random_state=seed) for seed in range(150)]
    tables = [one.summary(target="table", quantiles=[]) for one in several]
    for key in (("(table)", "rows"), ("age", "mean"), ("age", "missing"), ("site", "a")):
        estimates = np.array([one.loc[key, "estimate"] for one in tables])
        stated = np.mean([one.loc[key, "std_error"] for one in tables])
        # A standard deviation of 150 is known to 6%: four of them.
        assert np.std(estimates) == pytest.approx(stated, rel=0.24), key


def test_booleans_are_declared_by_a_word_or_both_of_them():
    table = pd.DataFrame({"large": [True, False, True]})
    for declared in ("boolean", [False, True], (False, True), Boolean("large")):
        found = describe(table, {"large": declared}, math.inf).summary(target="table")
        assert found.loc[("large", "True"), "estimate"] == pytest.approx(2 / 3)


def test_crosstabs_booleans_and_declared_columns():
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"sex": pd.Categorical(rng.choice(["f", "m"], 900)), "new": rng.random(900) < 0.3, "n": 1.0})
    columns = Columns([Category("sex", ("f", "m")), Boolean("new"), Number("n", low=0.0, high=2.0, missing=1.0)])
    summary = describe(table, columns, math.inf, crosstabs=[("sex", "new")]).summary(target="table")
    assert summary.loc[("sex x new", "f, True"), "estimate"] == ((table.sex == "f") & table.new).mean()
    assert summary.loc[("new", "True"), "estimate"] == table.new.mean()
    assert summary.loc["sex x new"].index.tolist() == ["f, False", "f, True", "m, False", "m, True", "other or missing"]
    assert summary.loc[("n", "50%"), ["low", "high"]].tolist() == [1.0, 1.0625]


def test_any_table_gives_the_same(tmp_path):
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    dask = pytest.importorskip("dask.dataframe")
    table = people(500)
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    given = {
        "polars": polars.from_pandas(table),
        "lazy": polars.from_pandas(table).lazy(),
        "arrow": arrow.Table.from_pandas(table),
        "dask": dask.from_pandas(table, npartitions=3),
        "stream": arrow.Table.from_pandas(table).to_reader(),
        "parquet": tmp_path / "t.parquet",
        "csv": str(tmp_path / "t.csv"),
        "blocks": (table.iloc[k : k + 7] for k in range(0, 500, 7)),
    }
    expected = describe(table, COLUMNS, 1.0, 1e-6, random_state=4).releases_[0].values["sum"]
    for form, other in given.items():
        found = describe(other, COLUMNS, 1.0, 1e-6, random_state=4).releases_[0].values["sum"]
        np.testing.assert_array_equal(found, expected, err_msg=form)


def test_it_is_paid_for_from_the_ledger_and_held_to_it():
    ledger = Ledger(Privacy(1.0, 1e-5))
    found = describe(people(), COLUMNS, 0.6, 1e-6, ledger=ledger)
    assert ledger.releases == found.releases_
    assert found.privacy_spent_ == Privacy(0.6, 1e-6)
    with pytest.raises(BudgetExceeded):
        describe("no such table", COLUMNS, 0.9, 1e-6, ledger=ledger)
    assert repr(found) == f"<Description of age, cost, site: {Privacy(0.6, 1e-6)}>"


def test_few_people_leave_everything_open():
    """Where the number of people is private and lost in noise, limits are all that can be, and nothing fails."""
    found = describe(people(3), COLUMNS, 0.01, 1e-6, adjacency="add_remove", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = found.summary()
    assert np.isfinite(summary.to_numpy()).all()
    assert summary.loc[("site", "a"), ["low", "high"]].tolist() == [0.0, 1.0]
    assert summary.loc[("age", "50%"), ["low", "high"]].tolist() == [18.0, 90.0]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"columns": ["age"]}, "columns must be a mapping of names to limits or levels"),
        ({"columns": {}}, "columns by name must be a mapping"),
        ({"columns": {"age": 3}}, r"columns\['age'\] must be limits, \(low, high\), a list of levels, 'boolean'"),
        ({"columns": {"age": [18, 90]}}, r"columns\['age'\] is ambiguous: write \(18, 90\) for limits"),
        ({"columns": {"age": (90, 18)}}, r"columns\['age'\] must be finite and increasing"),
        ({"columns": {"age": (18, 18)}}, "low of column 'age' must be below high"),
        ({"columns": {"site": ["a", "a"]}}, "levels of column 'site' must differ"),
        ({"columns": {"size": (0, 1)}}, "has no column 'size'"),
        ({"columns": Columns(["age"])}, "column 'age' is declared without low and high"),
        ({"columns": {"age": (0.0, 5e-324)}}, "too near each other"),
        ({"columns": {"age": (0.0, 5e-324)}, "n_bins": 1}, "too near each other"),
        ({"columns": {"age": (-5e-324, 5e-324)}, "n_bins": 2}, "too near each other"),
        ({"columns": {"site": ["a", "other"]}}, "levels of 'site' must differ from each other, and from 'other'"),
        ({"crosstabs": [("site", "site")]}, r"crosstabs\[0\] must be of two columns"),
        ({"crosstabs": [("site", "sex")]}, r"crosstabs\[0\] has 'sex', which is no declared column"),
        ({"crosstabs": [("site", "age")]}, "column 'age' is of numbers"),
        ({"crosstabs": "site"}, "crosstabs must be a sequence of pairs"),
        ({"n_bins": 0}, "n_bins must be at least 1"),
        ({"n_bins": 10**6}, "n_bins must be at most"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"table": people(0)}, "no rows"),
        ({"table": np.ones((3, 3))}, "no named columns"),
        ({"table": people().astype({"age": str})}, r"column 'age' (of the frame )?holds"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_spent(changes, match):
    ledger = Ledger(Privacy(2.0, 1e-5))
    given = {"table": people(50), "columns": COLUMNS, "epsilon": 1.0, "delta": 1e-6, "ledger": ledger} | changes
    with pytest.raises((ValueError, TypeError), match=match):
        describe(**given)
    assert ledger.spent.epsilon == 0.0


def test_what_a_summary_is_asked_for_wrongly_is_refused():
    found = describe(people(50), COLUMNS, math.inf)
    for options in ({"level": 1.0}, {"target": "all"}, {"quantiles": [0.0]}):
        with pytest.raises(ValueError, match=next(iter(options))):
            found.summary(**options)
    for quantiles in (0.5, "median", np.array(0.5), None):
        with pytest.raises(TypeError, match="quantiles must be a sequence"):
            found.summary(quantiles=quantiles)
    assert found.summary(quantiles=[0.1]).loc["age"].index.tolist() == ["mean", "10%", "missing"]
    assert dpfast.Description is type(found)


def test_rows_may_be_none_where_their_number_is_private():
    assert describe(people(0).astype({"age": float, "cost": float}), COLUMNS, 1.0, 1e-6, adjacency="add_remove")


def test_limits_of_the_number_of_rows_are_in_order_and_not_below_0():
    for seed in range(30):
        found = describe(people(3), COLUMNS, 0.5, 1e-6, adjacency="add_remove", random_state=seed).summary()
        estimate, _, low, high = found.loc[("(table)", "rows")]
        assert 0.0 <= low <= max(estimate, high)
        assert estimate >= 0.0


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("target", ["table", "population"])
def test_limits_of_people_with_several_rows_hold(adjacency, target):
    """Rows of a person are all alike: the most that sampling can vary."""
    held = {}
    for seed in range(40):
        one = people(1_500, seed=seed if target == "population" else 0)
        table, ids = pd.concat([one] * 3, ignore_index=True), np.tile(np.arange(1_500), 3)
        order = np.random.default_rng(seed).permutation(4_500)
        table, ids = table.iloc[order].reset_index(drop=True), ids[order]
        options = {"groups": ids, "max_rows": 3, "adjacency": adjacency, "random_state": seed}
        summary = describe(table, COLUMNS, 1.0, 1e-6, **options).summary(target=target)
        exact = of_table(people(200_000, seed=99) if target == "population" else table)
        exact[("(table)", "rows")] = 4_500
        for key, value in exact.items():
            row = summary.loc[key]
            held.setdefault(key, []).append(row["low"] - 1e-3 <= value <= row["high"] + 1e-3)
    # 95% limits of 40: fewer than 31 hold with probability 3e-5.
    assert min(map(sum, held.values())) >= 31, held


def test_people_with_several_rows_are_the_unit(tmp_path):
    table = people(900)
    table["who"] = np.arange(900) // 3
    table.to_csv(tmp_path / "table.csv", index=False)
    ledger = Ledger(Privacy(3.0, 1e-4), unit="person")
    options = {"max_rows": 2, "ledger": ledger, "random_state": 0}
    found = describe(table, COLUMNS, 1.0, 1e-6, groups=table["who"], **options)
    assert found.releases_[0].unit == "person"
    # The number of rows that count is private: a replaced person may have fewer.
    assert "n" not in found.summary().attrs
    assert found.summary().loc[("(table)", "rows"), "std_error"] > 1.0
    of_file = tmp_path / "table.csv"
    again = describe(of_file, COLUMNS, 1.0, 1e-6, groups=RowOwners(of_file, "who"), max_rows=2, random_state=0)
    pd.testing.assert_frame_equal(again.summary(), found.summary())
    spent = ledger.spent
    for wrong, words in (
        ({"groups": table["who"]}, r"groups \(.*\) and max_rows \(rows counted per person\) go together"),
        ({"max_rows": 2}, r"groups \(.*\) and max_rows \(rows counted per person\) go together"),
        ({"groups": table["who"][1:].to_numpy(), "max_rows": 2}, "groups must have one id a row"),
        ({"groups": table["who"][::-1], "max_rows": 2}, "different indices"),
        ({"groups": table["who"], "max_rows": 0}, "max_rows must"),
    ):
        with pytest.raises(ValueError, match=words):
            describe(table, COLUMNS, 1.0, 1e-6, ledger=ledger, **wrong)
    with pytest.raises(ValueError, match="need a finite epsilon"):
        describe(table, COLUMNS, math.inf, groups=table["who"], max_rows=2)
    assert ledger.spent == spent


def test_weights_count_for_so_many_rows(tmp_path):
    table = people(3_000)
    weights = np.random.default_rng(3).integers(0, 4, 3_000)
    repeated = table.loc[table.index.repeat(weights)]
    found = describe(table, COLUMNS, math.inf, sample_weight=weights, max_weight=1.0).summary(target="table")
    expected = describe(repeated, COLUMNS, math.inf).summary(target="table")
    assert found.index[0] == ("(table)", "weights")
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-4, atol=1e-6)
    options = {"sample_weight": weights, "max_weight": 2.0, "random_state": 0}
    noisy = describe(table, COLUMNS, 1.0, 1e-6, **options)
    # How many rows there are is public, and what they weigh is not.
    assert noisy.summary().attrs["n"] == 3_000
    estimate, error, low, high = noisy.summary().loc[("(table)", "weights")]
    assert low < np.minimum(weights, 2).sum() < high
    assert 2.0 < error < high - estimate
    table.to_csv(tmp_path / "table.csv", index=False)
    again = describe(tmp_path / "table.csv", COLUMNS, 1.0, 1e-6, **options)
    pd.testing.assert_frame_equal(again.summary(), noisy.summary())
    for wrong, words in (
        ({"max_weight": None}, "sample_weight needs max_weight"),
        ({"max_weight": 0.0}, "max_weight must be positive"),
        ({"sample_weight": weights[1:]}, "different numbers of rows"),
        ({"sample_weight": pd.Series(weights)[::-1]}, "different indices"),
        ({"sample_weight": -weights}, "must hold finite numbers of at least 0"),
    ):
        with pytest.raises(ValueError, match=words):
            describe(table, COLUMNS, 1.0, 1e-6, **{**options, **wrong})


@pytest.mark.parametrize(("adjacency", "several"), [("replace_one", 1), ("add_remove", 3)])
def test_limits_of_weighted_rows_hold(adjacency, several):
    """Whose weights grow with age, and are all alike for a person's rows."""
    held, everybody = {}, people(50_000, seed=99)

    def weights_of(table):
        return 1.0 + np.clip(table["age"].fillna(40.0), 18, 90) / 10.0

    repeated = everybody.loc[everybody.index.repeat(np.rint(10.0 * weights_of(everybody)).astype(int))]
    exact = {key: value for key, value in of_table(repeated).items() if key[0] != "(table)"}
    for seed in range(40):
        one = people(1_500, seed=seed)
        table = pd.concat([one] * several, ignore_index=True)
        options = {"sample_weight": weights_of(table), "max_weight": 10.0, "adjacency": adjacency, "random_state": seed}
        options |= {"groups": np.tile(np.arange(1_500), several), "max_rows": several} if several > 1 else {}
        summary = describe(table, COLUMNS, 1.0, 1e-6, **options).summary()
        for key, value in exact.items() | {(("(table)", "weights"), weights_of(table).sum())}:
            row = summary.loc[key]
            held.setdefault(key, []).append(row["low"] - 1e-3 <= value <= row["high"] + 1e-3)
    # 95% limits of 40: fewer than 31 hold with probability 3e-5.
    assert min(map(sum, held.values())) >= 31, held


def test_limits_hold_the_estimate_whatever_the_noise():
    """Noise may leave fewer people than none; without it just so many may be below an end as at a quantile."""
    for n, epsilon, weight in ((2, math.inf, 1.0), (10, math.inf, 1e-300), (2, 0.1, 1.0), (10, 1.0, 1e-300)):
        for seed in range(6):
            options = {"sample_weight": np.full(n, weight), "max_weight": 1.0, "random_state": seed}
            described = describe(people(n, seed), COLUMNS, epsilon, 1e-6, adjacency="add_remove", **options)
            for level, target in ((0.5, "population"), (0.95, "table")):
                summary = described.summary(level=level, target=target)
                assert np.all(summary["low"] <= summary["estimate"] * (1.0 + 1e-12))
                assert np.all(summary["estimate"] <= summary["high"] * (1.0 + 1e-12))
