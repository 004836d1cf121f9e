"""Effect tables: arithmetic on what is already released, and words that say what the limits cover."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest

from dpfast import SyntheticControl, UtilityWarning
from dpfast.datasets import synthetic_control_panel
from dpfast.io import write_table
from dpfast.synthetic_control.reports import effect_report, effect_table

YEARS = pd.Index([1989, 1990, 1991], name="year")
OBSERVED = np.array([82.0, 77.0, 69.0])
COUNTERFACTUAL = np.array([100.0, 110.0, 0.0])


def test_a_row_is_a_period():
    table = effect_table(OBSERVED, COUNTERFACTUAL, index=YEARS)
    assert list(table.columns) == ["observed", "counterfactual", "effect", "cumulative", "percent"]
    assert table.index.equals(YEARS)
    assert table.index.name == "year"
    np.testing.assert_array_equal(table["effect"], [-18.0, -33.0, 69.0])
    np.testing.assert_array_equal(table["cumulative"], [-18.0, -51.0, 18.0])
    np.testing.assert_array_equal(table["percent"], [-18.0, -30.0, np.nan])


def test_limits_are_those_of_the_effect():
    table = effect_table(OBSERVED, COUNTERFACTUAL, index=YEARS, low=[-20, -40, 60], high=[-10, -30, 70])
    np.testing.assert_array_equal(table[["low", "high"]], [[-20, -10], [-40, -30], [60, 70]])
    cumulative = table[["cumulative_low", "cumulative_high"]]
    np.testing.assert_array_equal(cumulative, [[-20, -10], [-60, -40], [0, 30]])
    words = effect_report(table, level=0.9)
    assert "90% limits of the average effect: 0 to 10." in words
    assert "known privacy noise" in words
    assert "do not cover chance in the outcomes" in words
    assert "90%" not in effect_report(table)


def test_the_limits_of_the_average_are_wide_enough_for_any_correlation():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(500, 3, 3)) * rng.exponential(size=(500, 3, 1))
    covariance = factor @ factor.transpose(0, 2, 1)
    of_average = np.sqrt(covariance.mean(axis=(1, 2)))
    limits = np.sqrt(covariance.diagonal(axis1=1, axis2=2)).mean(axis=1)
    assert np.all(of_average <= limits * (1 + 1e-12))


def test_summary_gives_average_total_and_share():
    words = effect_report(effect_table(OBSERVED, [100.0, 110.0, 90.0], index=YEARS))
    assert words.splitlines() == [
        "From 1989 to 1991 (3 periods) the outcome was 76 on average, where 100 was to be expected without the "
        "intervention.",
        "Average effect -24 a period, cumulative effect -72, or -24% of the counterfactual.",
    ]
    one = effect_report(effect_table([2.0], [0.0], index=["May"]))
    assert "(1 period)" in one
    assert "%" not in one


def test_several_targets_are_one_table():
    observed = pd.DataFrame([OBSERVED, OBSERVED + 1.0], index=["Utah", "Ohio"])
    table = effect_table(observed, np.tile(COUNTERFACTUAL, (2, 1)), index=YEARS)
    assert table.index.names == ["target", "year"]
    pd.testing.assert_frame_equal(table.loc["Utah"], effect_table(OBSERVED, COUNTERFACTUAL, index=YEARS))
    assert table.loc[("Ohio", 1990), "cumulative"] == -49.0
    paragraphs = effect_report(table).split("\n\n")
    assert [words.split(".")[0] for words in paragraphs] == ["Target Utah", "Target Ohio"]
    assert effect_table([[1.0]], [[2.0]], index=[5]).index.tolist() == [(0, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observed": OBSERVED[:2]}, r"observed must have one value for each .* got shape \(2,\) for 3 labels"),
        ({"observed": np.zeros((1, 1, 3))}, "observed must"),
        ({"counterfactual": [1.0]}, r"counterfactual must have the shape of observed, \(3,\), got \(1,\)"),
        ({"low": OBSERVED}, "low and high must be given together"),
        ({"low": OBSERVED, "high": OBSERVED - 1.0}, "low must not be above high"),
        ({"observed": [], "counterfactual": [], "index": []}, "at least one"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        effect_table(**({"observed": OBSERVED, "counterfactual": COUNTERFACTUAL, "index": YEARS} | arguments))


@pytest.mark.parametrize(("level", "message"), [(0.9, "needs a table with limits"), (1.0, r"in \(0, 1\)")])
def test_a_bad_level_is_named(level, message):
    with pytest.raises(ValueError, match=message):
        effect_report(effect_table(OBSERVED, COUNTERFACTUAL, index=YEARS), level)


def test_periods_of_a_table_of_effects_are_in_its_file(tmp_path):
    for periods, name in (([1989, 1990, 1991], "period"), (YEARS, "year")):
        write_table(effect_table(OBSERVED, COUNTERFACTUAL, index=periods), tmp_path / "effects.csv")
        lines = (tmp_path / "effects.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in lines] == [name, "1989", "1990", "1991"]


def test_a_summary_of_effects_is_a_row_a_target():
    donors, target, _ = synthetic_control_panel(5_000, 10, seed=0)
    targets = pd.DataFrame(np.stack([target, target + np.r_[np.zeros(10), np.full(3, 0.2)]]), index=["Bern", "Basel"])
    fitted = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10)
    table, effects = fitted.effect_summary(targets, level=0.8), fitted.effect(targets, level=0.8)
    assert list(table.index) == ["Bern", "Basel"]
    for name, row in table.iterrows():
        one, series = effects.loc[name], targets.loc[name].to_numpy()
        for column, source in (("average", "effect"), ("average_low", "low"), ("average_high", "high")):
            assert row[column] == pytest.approx(one[source].mean())
        for column in ("cumulative", "cumulative_low", "cumulative_high"):
            assert row[column] == one[column].iloc[-1]
        assert row["percent"] == pytest.approx(100.0 * one["effect"].sum() / one["counterfactual"].sum())
        assert row["pre_rmspe"] == pytest.approx(fitted.pre_fit(series))
        assert row["post_rmspe"] == pytest.approx(math.sqrt(np.mean(one["effect"] ** 2)))
        assert row["ratio"] == row["post_rmspe"] / row["pre_rmspe"]
    alone = fitted.effect_summary(targets.loc["Basel"], level=0.8)
    np.testing.assert_allclose(alone.iloc[0], table.loc["Basel"])


def test_targets_of_a_fit_keep_their_names(tmp_path):
    donors, target, _ = synthetic_control_panel(1_000, 10, seed=0)
    targets = pd.DataFrame([target, 0.9 * target], index=["Bern", "Basel"])
    panel = pd.concat([targets, pd.DataFrame(donors)]).rename_axis("unit").reset_index()
    long = panel.melt("unit", var_name="period", value_name="y").astype({"period": int})
    wide, of_rows = (SyntheticControl(1.0, 1e-6, random_state=0, placebo_share=0.1) for _ in range(2))
    wide.fit(donors, 10, targets).save(tmp_path / "model.json")
    of_rows.fit_long(long, "unit", "period", "y", ["Bern", "Basel"], 10)
    for fitted in (wide, of_rows, SyntheticControl.load(tmp_path / "model.json")):
        tables = fitted.summary(), fitted.effect(), fitted.effect_summary(), fitted.placebo(5), fitted.placebo_ranks()
        for table in tables:
            assert list(dict.fromkeys(table.index.get_level_values("target"))) == ["Bern", "Basel"]
        assert "Target Basel. From" in fitted.report()
        assert fitted.effect(targets.to_numpy()).index[0] == (0, 10)


def test_a_summary_of_effects_has_what_there_is():
    """The weights of one target give no earlier periods, and those by an objective no limits."""
    donors, target, _ = synthetic_control_panel(300, 10, seed=0)
    for mechanism, has_limits in (("output", True), ("objective", False)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            fitted = SyntheticControl(1.0, 1e-6, mechanism=mechanism, random_state=0).fit(donors, 10, target)
        row = fitted.effect_summary().iloc[0]
        assert np.isnan(row["pre_rmspe"])
        assert np.isnan(row["ratio"])
        assert ("average_low" in row) == ("cumulative_high" in row) == has_limits


def test_what_released_weights_do_not_tell_is_refused_and_the_mechanism_is_named():
    donors, target, _ = synthetic_control_panel(300, 10, seed=0)
    for mechanism in ("output", "objective"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            fitted = SyntheticControl(1.0, 1e-6, mechanism=mechanism, random_state=0).fit(donors, 10, target)
        calls = {"placebo": 5, "predict": 0.9 * target[:10], "interval": target[:10]}
        for name, argument in calls.items():
            if (name, mechanism) != ("interval", "output"):
                with pytest.raises(ValueError, match=f"mechanism='{mechanism}'"):
                    getattr(fitted, name)(argument)
        with pytest.raises(ValueError, match="fit with a placebo_share"):
            fitted.placebo_ranks()


def several_targets():
    """A fit with three named targets, with a predictor and a placebo share, and these targets with the predictor."""
    donors, target, _ = synthetic_control_panel(1_000, 10, seed=0)
    targets = pd.DataFrame([target, 0.9 * target, 0.8 * target], index=["Bern", "Basel", "Genf"])
    given = [one.assign(size=0.5) for one in (pd.DataFrame(donors), targets)]
    model = SyntheticControl(1.0, 1e-6, random_state=0, placebo_share=0.1, predictors={"size": (0, 1)})
    return model.fit(given[0], 10, given[1]), given[1]


def test_a_target_of_the_fit_may_be_given_by_its_name():
    fitted, targets = several_targets()
    for name in ("Basel", "Genf"):
        for method in ("summary", "effect", "effect_summary", "placebo_ranks", "balance", "pre_fit", "predict"):
            given = targets.loc[name, [*range(10), "size"]] if method == "predict" else targets.loc[name]
            wanted = getattr(fitted, method)(given)
            if method != "predict":
                np.testing.assert_array_equal(getattr(fitted, method)(name), wanted)
        np.testing.assert_array_equal(fitted.placebo(5, name), fitted.placebo(5, targets.loc[name]))
        assert list(fitted.effect_summary(name).index) == [name]


def test_pictures_of_several_targets_are_drawn_by_name():
    fitted, _ = several_targets()
    for draw in (fitted.plot, fitted.plot_gap, fitted.plot_placebo):
        first, second = ([line.get_xydata().tolist() for line in draw(name).lines] for name in ("Bern", "Basel"))
        assert first != second
        with pytest.raises(ValueError, match="one series to be drawn, such as target='Bern', got 3"):
            draw()
        with pytest.raises(ValueError, match=r"name of a target of the fit \(Bern, Basel, Genf\): a donor's"):
            draw("Thun")


def test_the_picture_of_placebos_has_released_counts_and_the_target_among_them():
    fitted, _ = several_targets()
    errors = fitted._released.errors
    for name, row in fitted.placebo_ranks(level=0.8).iterrows():
        axes = fitted.plot_placebo(name, level=0.8, label="treated")
        drawn = axes.patches[0].get_data()
        first = int(np.flatnonzero(errors.counts == drawn.values[0])[0])
        np.testing.assert_array_equal(drawn.values, errors.counts[first : first + len(drawn.values)])
        np.testing.assert_array_equal(drawn.edges[1:-1], errors.ends[first : first + len(drawn.values) - 1])
        assert errors.counts.argmax() in range(first, first + len(drawn.values))
        assert any(set(line.get_xdata()) == {row["ratio"]} for line in axes.lines)
        said = f"({row['low']:.2g} to {row['high']:.2g})".strip("()")
        assert [text for text in axes.get_legend().get_texts() if said in text.get_text()]


def test_one_target_keeps_its_name():
    donors, target, _ = synthetic_control_panel(1_000, 10, seed=0)
    wide = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, pd.Series(target, name="Bern"))
    panel = pd.concat([pd.DataFrame([target], index=["Bern"]), pd.DataFrame(donors)]).rename_axis("unit").reset_index()
    long = panel.melt("unit", var_name="period", value_name="y").astype({"period": int})
    of_rows = SyntheticControl(1.0, 1e-6, random_state=0).fit_long(long, "unit", "period", "y", "Bern", 10)
    for fitted in (wide, of_rows):
        assert list(fitted.effect_summary().index) == ["Bern"]
        np.testing.assert_array_equal(fitted.effect("Bern"), fitted.effect())
        assert fitted.effect().index.name == "period"
    unnamed = SyntheticControl(1.0, 1e-6, random_state=0).fit(donors, 10, pd.Series(target))
    assert unnamed.target_names_ is None
    assert list(unnamed.effect_summary().index) == [0]


def test_tables_of_effects_print_every_column():
    rng = np.random.default_rng(0)
    donors = rng.uniform(0.0, 1.0, (500, 8))
    model = SyntheticControl(1.0, 1e-6, bound=1.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        model.fit(donors, 5, target=donors[0])
    for table in (model.effect(), model.effect_summary()):
        for shown in (str(table), table._repr_html_(), table.to_markdown().replace("\\", "")):
            assert all(name in shown for name in table.columns)
