"""Jobs of every family: from the template to results, with the bits of the fit in memory, and refusals before it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from jobs.examples import JOB_TYPES, table_of, without, write_job

from dpfast import (
    BudgetExceeded,
    Ledger,
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PolicyEvaluation,
    Privacy,
    PrivateStandardScaler,
    SparseRegression,
    SyntheticControl,
    Trajectories,
    describe,
)
from dpfast.cli import main
from dpfast.io import Boolean, Category, Columns, Number, columns
from dpfast.jobs import Job, plan, run
from dpfast.jobs.job_types import Output
from dpfast.solvers import L2Ball

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore::dpfast.privacy.guarantee.ReleasedUtilityWarning")

SEED = ("# random_state = 10", "random_state = 11")
QUIET = ("# plots = false", "plots = false")
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "random_state": 11}
#: Of the template's features.
LIMITED = {"box_x": (np.array([-3.0, 0.0, 0.0, 0.0]), np.array([3.0, 1.0, 1.0, 1.0]))}


def fitted(path):
    assert main(["fit", str(path), "--quiet"]) == 0
    job = Job.read(path)
    return job.kind.ESTIMATOR.load(job.folder / "model.json")


def encoded(frame):
    sites = [frame.site == site for site in ("Basel", "Genf")]
    return np.column_stack([frame.dose, frame.smoker, *sites]).astype(float)


def same(model, expected, *names):
    for name in names:
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name))


def test_a_regression_within_a_set(tmp_path):
    kind = "objective_perturbation_regressor"
    model, frame = fitted(write_job(tmp_path, kind, SEED, QUIET)), table_of(kind)
    expected = ObjectivePerturbationRegressor(**BUDGET, **LIMITED, bound_y=30.0, constraint=L2Ball(30.0))
    same(model, expected.fit(encoded(frame), frame.days.to_numpy()), "coef_")
    assert model.feature_names_in_.tolist() == ["dose", "smoker", "site=Basel", "site=Genf"]


def labels_of(frame, column):
    return frame[column].to_numpy()


@pytest.mark.parametrize(
    ("outcome", "classes"),
    [
        ('outcome = { levels = ["home", "ward", "dead"] }', ["home", "ward", "dead"]),
        ("age = { levels = [3, 1] }", [3, 1]),
        ('readmitted = "boolean"', [0, 1]),
        ('readmitted = { kind = "boolean", missing = false }', [0, 1]),
    ],
)
def test_labels_of_text_numbers_and_booleans(outcome, classes, tmp_path):
    kind = "objective_perturbation_classifier"
    frame = table_of(kind).assign(age=np.where(np.arange(400) % 3, 1, 3))
    y = frame[outcome.split()[0]].to_numpy()
    missing = "missing = false" in outcome
    if missing:
        frame["readmitted"] = frame["readmitted"].astype(object)
        frame.loc[::7, "readmitted"] = None
        y = (frame["readmitted"] == True).to_numpy(int)  # noqa: E712, missing ones are False
    path = write_job(
        tmp_path, kind, SEED, QUIET, ('outcome = { levels = ["home", "ward", "dead"] }', outcome), table=frame
    )
    expected = ObjectivePerturbationClassifier(**BUDGET, **LIMITED, classes=classes).fit(encoded(frame), y)
    same(fitted(path), expected, "coef_", "classes_")


def test_weights_of_classes_are_by_their_names(tmp_path):
    kind = "objective_perturbation_classifier"
    weight = ("# class_weight = { name = 1.0 }", "class_weight = { dead = 2.5, ward = 1 }")
    assert Job.read(write_job(tmp_path, kind, weight)).parameters["class_weight"] == {"dead": 2.5, "ward": 1}
    path = write_job(tmp_path, kind, ("# class_weight = { name = 1.0 }", "class_weight = { deaf = 2.5 }"))
    with pytest.raises(ValueError, match=r"\[estimator.class_weight\] 'deaf' is none of the classes, home, ward, dead"):
        Job.read(path)


def test_a_job_pays_for_standard_errors(tmp_path):
    """Two levels, and `inference = true`: the estimator's own key."""
    kind = "objective_perturbation_classifier"
    frame = table_of(kind)
    frame["outcome"] = np.where(frame.outcome == "home", "home", "ward")
    levels = ('["home", "ward", "dead"]', '["home", "ward"]')
    path = write_job(tmp_path, kind, SEED, QUIET, ("# inference = false", "inference = true"), levels, table=frame)
    expected = ObjectivePerturbationClassifier(**BUDGET, **LIMITED, classes=["home", "ward"], inference=True)
    same(fitted(path), expected.fit(encoded(frame), frame.outcome), "coef_", "estimate_", "covariance_")


def test_a_plan_knows_the_classes_though_it_looks_at_no_column(tmp_path):
    text = write_job(tmp_path, "objective_perturbation_classifier", SEED, QUIET).read_text()
    text = without(text, "features").replace("# bound_x = 1.0", "bound_x = 2.0")
    path = tmp_path / "job.toml"
    path.write_text(text + '\n[features]\n"lab_*" = "number"\n\n[plan]\nn_features = 12\n')
    job = Job.read(path, look=False)
    assert job.parameters["classes"] == ["home", "ward", "dead"]
    assert job.plan(100_000).expected_error < job.plan(10_000).expected_error


def test_a_few_features_for_several_outcomes(tmp_path):
    kind = "sparse_regression"
    model = fitted(write_job(tmp_path, kind, SEED, QUIET, ('days = "number"', 'days = "number"\nage = "number"')))
    frame = table_of(kind)
    x = np.column_stack([encoded(frame)[:, :2], *(frame.site == site for site in ("Bern", "Basel", "Genf"))])
    box = np.array([-3.0, *[0.0] * 4]), np.array([3.0, *[1.0] * 4])
    expected = SparseRegression(**BUDGET, n_nonzero=2, bound_y=30.0, box_x=box).fit(
        x.astype(float), frame[["days", "age"]].to_numpy()
    )
    same(model, expected, "support_", "coef_")


def test_each_outcome_has_a_bound_of_its_own(tmp_path, capsys):
    kind, models = "multi_outcome_ridge", []
    for place, bounds in enumerate(("{ readmitted = 1.0, days = 30.0 }", "[30.0, 1.0]")):
        (folder := tmp_path / str(place)).mkdir()
        models.append(fitted(write_job(folder, kind, SEED, QUIET, ("bound_y = 30.0", f"bound_y = {bounds}"))))
    same(*models, "coef_", "intercept_")
    assert models[0].bound_y == {"readmitted": 1.0, "days": 30.0}
    (folder := tmp_path / "wrong").mkdir()
    wrong = ("bound_y = 30.0", "bound_y = { readmited = 1.0, days = 30.0 }")
    path = str(write_job(folder, kind, SEED, QUIET, wrong))
    for arguments in (["check", path], ["plan", path], ["fit", path, "--quiet"]):
        assert main(arguments) == 2
        assert "bound_y has names that [outcomes] lacks: 'readmited'" in capsys.readouterr().err


def test_means_of_features(tmp_path):
    model, frame = fitted(write_job(tmp_path, "private_standard_scaler", SEED)), table_of("private_standard_scaler")
    expected = PrivateStandardScaler(**BUDGET, box_x=([18, 0], [100, 90])).fit(frame[["age", "days"]].to_numpy())
    same(model, expected, "mean_", "var_")


COLUMNS = {"age": (18, 100), "site": ["Bern", "Basel", "Genf"], "smoker": Boolean("smoker")}


@pytest.mark.parametrize("is_of_people", [False, True])
def test_a_description(is_of_people, tmp_path):
    path, frame = with_people(tmp_path, "describe")
    people = {"groups": frame.patient.to_numpy(), "max_rows": 2}
    if not is_of_people:
        path, people = write_job(tmp_path, "describe", SEED, table=frame), {}
    expected = describe(frame, COLUMNS, **BUDGET, crosstabs=[("site", "smoker")], **people)
    assert main(["check", str(path)]) == 0
    pd.testing.assert_frame_equal(fitted(path).summary(), expected.summary())
    written = pd.read_csv(path.parent / "fit" / "description.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(written, expected.summary().reset_index(), check_dtype=False, check_frame_type=False)
    job = Job.read(path)
    assert job.plan(5_000).expected_error == pytest.approx(job.plan(10_000).expected_error * 2)
    assert ("all rows of one 'patient'" in (path.parent / "fit" / "report.md").read_text()) == is_of_people


def test_a_wide_panel(tmp_path):
    model, frame = fitted(write_job(tmp_path, "synthetic_control", SEED, QUIET)), table_of("synthetic_control")
    expected = SyntheticControl(**BUDGET, bound=(0.0, 5.0)).fit(frame.to_numpy(), 3, [1.0, 1.2, 1.1, 1.6])
    same(model, expected, "coef_", "target_")
    assert model.periods_.tolist() == [2019, 2020, 2021, 2022]


def test_predictors_of_a_wide_panel(tmp_path):
    frame = table_of("synthetic_control")
    frame = frame.assign(age=18.0 + 10.0 * frame["2019"], income=1_000.0)
    declared = ("# predictors = { name = [1.0] }", "predictors = { income = [0, 5000], age = [18, 90, 0.5] }")
    targets = ("Bern = [1.0", "Bern = [900.0, 50.0, 1.0")
    path = write_job(tmp_path, "synthetic_control", SEED, QUIET, declared, targets, table=frame)
    model = fitted(path)
    limits = {"income": (0.0, 5000.0), "age": (18.0, 90.0, 0.5)}
    expected = SyntheticControl(**BUDGET, bound=(0.0, 5.0), predictors=limits)
    own = [900.0, 50.0, 1.0, 1.2, 1.1, 1.6]
    same(model, expected.fit(frame[["income", "age", *frame.columns[:4]]].to_numpy(), 3, own), "coef_", "target_")
    written = pd.read_csv(path.parent / "fit" / "balance.csv")
    assert written["predictor"].tolist() == ["income", "age"]
    np.testing.assert_allclose(written["estimate"], expected.balance()["estimate"])
    assert main(["plan", str(path)]) == 0


def test_entries_of_a_wide_panel_may_be_missing_where_that_is_declared(tmp_path, capsys):
    frame = table_of("synthetic_control")
    frame.iloc[::9, 1] = np.nan
    assert main(["fit", str(write_job(tmp_path, "synthetic_control", table=frame))]) == 2
    assert "donors contains NaN: fill it, or declare the observation_rate" in capsys.readouterr().err
    declared = ("# observation_rate = 1.0", "observation_rate = 0.9")
    model = fitted(write_job(tmp_path, "synthetic_control", SEED, QUIET, declared, table=frame))
    expected = SyntheticControl(**BUDGET, bound=(0.0, 5.0), observation_rate=0.9)
    same(model, expected.fit(frame.to_numpy(), 3, [1.0, 1.2, 1.1, 1.6]), "coef_")


LONG = """[panel]
unit = "who"
time = "when"
value = "sales"
treated = {}
times = "{}"
n_pre = {}
"""


@pytest.mark.parametrize("declared", [None, {"income": (0.0, 5000.0), "age": (18.0, 90.0, 0.5)}])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("treated", "times", "n_pre"), [('"b"', "number", "2021"), ("7", "text", '"2020-12"')])
def test_a_long_panel(treated, times, n_pre, suffix, declared, tmp_path):
    wide, rng = table_of("synthetic_control"), np.random.default_rng(1)
    whole = np.arange(len(wide)) if treated == "7" else [f"u{row}" for row in range(len(wide) - 1)] + ["b"]
    periods = [2019, 2020, 2021, 2022] if times == "number" else ["2019-01", "2019-12", "2020-12", "2021-01"]
    long = wide.set_axis(periods, axis=1).assign(who=whole).melt("who", var_name="when", value_name="sales")
    long = long.iloc[rng.permutation(len(long))].reset_index(drop=True)
    long = long.assign(age=18.0 + 10.0 * long["sales"], income=1_000.0)
    path = write_job(tmp_path, "synthetic_control", SEED, QUIET, table=long)
    text = without(without(path.read_text(), "targets"), "panel") + LONG.format(treated, times, n_pre)
    text += "predictors = { income = [0, 5000], age = [18, 90, 0.5] }\n" if declared else ""
    if suffix == "parquet":
        long.astype({"when": int} if times == "number" else {}).to_parquet(tmp_path / "table.parquet")
    path.write_text(text.replace("table.csv", f"table.{suffix}"))
    model = fitted(path)
    expected = SyntheticControl(**BUDGET, bound=(0.0, 5.0), predictors=declared)
    expected.fit_long(long, "who", "when", "sales", json.loads(treated), json.loads(n_pre))
    same(model, expected, "coef_", "target_", "periods_")


@pytest.mark.parametrize("form", ["csv", "parquet", "sorted", "numbered"])
def test_trajectories(form, tmp_path):
    table = table_of("policy_evaluation", 60)
    names = {"trajectory": "patient", "state": "state", "reward": "reward", "step": "step"}
    states = ["well", "ill", "home"]
    changes = [SEED, QUIET]
    if form == "numbered":
        table["state"] = table["state"].map({name: number for number, name in enumerate(states)})
        changes += [('states = ["well"', '# states = ["well"'), ("# n_states = 10", "n_states = 3")]
    if form != "sorted":
        table = table.iloc[np.random.default_rng(1).permutation(len(table))].reset_index(drop=True)
    if form in ("parquet", "sorted"):
        table.to_parquet(tmp_path / "table.parquet")
        changes.append(("table.csv", "table.parquet"))
    if form == "sorted":
        changes.append(("# sorted = false", "sorted = true"))
    model = fitted(write_job(tmp_path, "policy_evaluation", *changes, table=table))
    declared = {"n_states": 3} if form == "numbered" else {"states": states}
    walks = Trajectories.from_frame(table, **names, **declared)
    expected = PolicyEvaluation(**BUDGET, gamma=0.9, horizon=20, reward_range=(0.0, 1.0)).fit(walks)
    same(model, expected, "value_")
    assert Job.read(tmp_path / "job.toml").data.states == (states if form != "numbered" else [0, 1, 2])


@pytest.mark.parametrize("form", ["csv", "parquet", "sorted"])
@pytest.mark.parametrize("declared", ["cut", False])
def test_trajectories_with_flags(form, declared, tmp_path):
    table = table_of("policy_evaluation", 60)
    table["cut"] = (table["patient"] % 3 == 0) & (table["step"] == 2)
    changes = [SEED, QUIET, ("# truncated = false", f"truncated = {json.dumps(declared)}")]
    changes.append(("horizon = 20", "# horizon = 20"))
    if form != "csv":
        table.to_parquet(tmp_path / "table.parquet")
        changes.append(("table.csv", "table.parquet"))
    if form == "sorted":
        changes.append(("# sorted = false", "sorted = true"))
    model = fitted(write_job(tmp_path, "policy_evaluation", *changes, table=table))
    names = {"trajectory": "patient", "state": "state", "reward": "reward", "step": "step", "truncated": declared}
    walks = Trajectories.from_frame(table, **names, states=["well", "ill", "home"])
    same(model, PolicyEvaluation(**BUDGET, gamma=0.9, reward_range=(0.0, 1.0)).fit(walks), "value_")


def test_sorted_trajectories_are_read_again_for_a_range_that_is_to_be_found(tmp_path):
    table = table_of("policy_evaluation", 60)
    table.to_parquet(tmp_path / "table.parquet")
    changes = [("table.csv", "table.parquet"), ("# sorted = false", "sorted = true"), QUIET]
    changes.append(("# return_range = [1.0, 2.0]", 'return_range = "private"'))
    assert hasattr(fitted(write_job(tmp_path, "policy_evaluation", *changes)), "return_range_")


def test_states_that_are_no_whole_numbers_are_not_declared(tmp_path, capsys):
    table = table_of("policy_evaluation", 20)
    table["state"] = 1.5
    numbers = [('states = ["well"', '# states = ["well"'), ("# n_states = 10", "n_states = 3")]
    assert main(["fit", str(write_job(tmp_path, "policy_evaluation", *numbers, table=table))]) == 2
    assert "a state that is none of the 3 declared" in capsys.readouterr().err


def test_steps_are_put_in_one_order_or_refused(tmp_path, capsys):
    table = table_of("policy_evaluation", 20)
    table.loc[1, "step"] = 0
    path = write_job(tmp_path, "policy_evaluation", QUIET, table=table)
    assert main(["fit", str(path)]) == 2
    assert "a trajectory has the same 'step' twice" in capsys.readouterr().err
    path.write_text(path.read_text().replace('order = "step"', '# order = "step"'))
    assert main(["fit", str(path)]) == 0


def test_what_plans_are_told_makes_no_other_job(tmp_path):
    path = write_job(tmp_path, "synthetic_control")
    plain = Job.read(path).digest
    path.write_text(path.read_text().replace("# [plan]", "[plan]\npeople = 10"))
    assert Job.read(path).people == 10
    assert Job.read(path).digest == plain


BAD = [
    ("objective_perturbation_regressor", "days", "", "column 'days' has missing entries"),
    ("objective_perturbation_regressor", "dose", "secret", "in column 'dose', cells that are not numbers"),
    ("objective_perturbation_classifier", "outcome", "secret", "column 'outcome' holds a level that is not declared"),
    ("objective_perturbation_classifier", "outcome", "", "column 'outcome' has missing entries"),
    ("sparse_regression", "days", "inf", "column 'days' holds infinite"),
    ("private_standard_scaler", "days", "", "column 'days' has missing entries"),
    ("synthetic_control", "2020", "", "donors contains NaN"),
    ("synthetic_control", "2020", "secret", "in column '2020', cells that are not numbers"),
    ("synthetic_control", "2020", "inf", "donors contains infinity"),
    ("policy_evaluation", "state", "secret", "a state that is none of the 3 declared"),
    ("policy_evaluation", "state", "", "a state that is none of the 3 declared"),
    ("policy_evaluation", "reward", "", "a reward that is not finite"),
    ("policy_evaluation", "reward", "secret", "in column 'reward', cells that are not numbers"),
    ("policy_evaluation", "step", "", "column 'step' has missing entries"),
    ("policy_evaluation", "step", "1e9", None),
    ("policy_evaluation", "patient", "", "column 'patient' has missing ids"),
]


@pytest.mark.parametrize(("kind", "column", "cell", "message"), BAD)
def test_a_bad_cell_is_refused_alike_whoever_has_it(kind, column, cell, message, tmp_path, capsys):
    said = set()
    for row in (0, 37, 59):
        table = table_of(kind, 20 if kind == "policy_evaluation" else 60, seed=row).astype({column: object})
        table.loc[row, column] = cell
        code = main(["fit", str(write_job(tmp_path, kind, QUIET, table=table)), "--quiet", "--force"])
        assert code == (2 if message else 0)
        said.add(capsys.readouterr().err)
    (one,) = said
    assert "secret" not in one
    assert (message or "") in one
    assert (tmp_path / "fit").exists() == (message is None)


REFUSED = [
    ("sparse_regression", ("dose = { low = -3, high = 3 }", 'dose = "number"'), "nothing bounds the rows: .* or box_x"),
    ("describe", ("age = { low = 18, high = 100 }", "age = [18, 100]"), "age is ambiguous: write"),
    ("synthetic_control", ("n_pre = 3", "n_pre = 4"), "n_pre must"),
    ("synthetic_control", ('"2019", ', '"2018", '), "has no column '2018'"),
    ("synthetic_control", ("1.2, 1.1, 1.6]", "1.2]"), r"\[targets\] must each hold a number for all 4"),
    (
        "synthetic_control",
        ("1.2, 1.1, 1.6]", "1.2, 1.1, 1.6, 1.7]"),
        r"\[targets\] must each hold a number for all 4",
    ),
    ("synthetic_control", ('# unit = "..."', 'unit = "x"'), r"\[panel\] must have either periods"),
    ("synthetic_control", ("# predictors = { name = [1.0]", "predictors = { income = [0, 1]"), "no column 'income'"),
    ("synthetic_control", ("bound = [0.0, 5.0]", "bound = [0.0]"), r"bound must be a list of 2 numbers, got 1"),
    ("synthetic_control", ("bound = [0.0, 5.0]", "bound = [5.0, 0.0]"), "bound must be finite and increasing"),
    (
        "policy_evaluation",
        ("# n_states = 10", "n_states = 3"),
        r"\[trajectories\] either n_states or states must be given",
    ),
    ("policy_evaluation", ('"ill", "home"]', '"ill", "ill"]'), r"\[trajectories\] states must be distinct"),
    ("policy_evaluation", ('"ill", "home"]', '"ill", 3]'), r"\[trajectories\] states must be all text or all whole"),
    ("policy_evaluation", ('order = "step"', 'order = "state"'), "must be different columns"),
    ("policy_evaluation", ('order = "step"', 'order = "stop"'), "has no column 'stop'"),
    ("policy_evaluation", ("gamma = 0.9", "gamma = 1.9"), "gamma must"),
    ("policy_evaluation", ('id = "patient"', 'jd = "patient"'), "unknown key 'jd'; accepted: id, state"),
    ("objective_perturbation_regressor", ("radius = 30.0", "radios = 30.0"), "did you mean 'radius'"),
    ("objective_perturbation_regressor", ("radius = 30.0", "radius = -1"), r"\[estimator.constraint\] radius must"),
    (
        "objective_perturbation_regressor",
        ('= { kind = "L2Ball"', '= { kind = "L3Ball"'),
        r"\[estimator.constraint\] kind must be one of 'L2Ball'",
    ),
    (
        "objective_perturbation_regressor",
        ("dose = { low = -3, high = 3 }", 'dose = "number"'),
        "nothing bounds the rows: declare low and high of every number",
    ),
    (
        "objective_perturbation_regressor",
        ('days = "number"', 'days = "number"\nage = "number"'),
        "must declare one column",
    ),
    (
        "objective_perturbation_regressor",
        ('days = "number"', 'site = { levels = ["a", "b"] }'),
        "declared twice|of categories",
    ),
    (
        "objective_perturbation_classifier",
        ("outcome = {", "outcome = { drop_first = true,"),
        "unknown key 'drop_first'",
    ),
    (
        "objective_perturbation_classifier",
        ('{ levels = ["home", "ward", "dead"] }', '"number"'),
        "'boolean' or a list of items or a table",
    ),
    ("sparse_regression", ("n_nonzero = 2", "n_nonzero = 200"), "n_nonzero must be at most the number of features"),
    (
        "sparse_regression",
        ("[estimator]\n", '[estimator]\nselector = "exponential"\n'),
        "low and high of a job's features, go with selector='pursuit'",
    ),
    (
        "private_standard_scaler",
        ("age = { low = 18, high = 100, missing = 50 }", 'age = "number"'),
        "without low and high",
    ),
    (
        "describe",
        ("age = { low = 18, high = 100 }", 'age = "number"'),
        "age must be 'boolean' or a list of items or a table",
    ),
    ("describe", ("low = 18, high", "high"), r"lacks the key 'low'"),
    ("describe", ('["site", "smoker"]', '["site", "sex"]'), r"crosstabs\[0\] has 'sex', which is no declared column"),
    ("describe", ("# n_bins = 32", "n_bins = 0"), "n_bins must be at least 1"),
]


@pytest.mark.parametrize(("kind", "change", "message"), REFUSED)
def test_a_job_is_refused_before_a_row_is_read(kind, change, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(JOB_TYPES[kind].ESTIMATOR, "fit", lambda *_: pytest.fail("a fit was begun"))
    code = main(["check", str(write_job(tmp_path, kind, change))])
    error = capsys.readouterr().err
    assert code == 2
    assert error.count("\n") == 1
    assert re.search(message, error), error


def long_panel(folder):
    long = table_of("synthetic_control", 60).assign(who=range(60)).melt("who", var_name="when", value_name="sales")
    path = write_job(folder, "synthetic_control", QUIET, table=long)
    text = without(without(path.read_text(), "targets"), "panel")
    path.write_text(text + LONG.format("7", "number", "2021"))
    return path


@pytest.mark.parametrize("kind", [*JOB_TYPES, long_panel])
def test_rows_are_read_under_the_reservation_that_pays_for_them(kind, tmp_path, monkeypatch):
    """An exhausted ledger says the same of every table, and the time on record is that before reading."""
    events, file_part, hold = [], columns._file_part, Ledger._hold

    def spied_part(file):
        part = file_part(file)
        return replace(part, batches=lambda wanted: [events.append("rows")] and part.batches(wanted))

    def spied_hold(ledger, reservation):
        hold(ledger, reservation)
        events.append(reservation.since)

    path = write_job(tmp_path, kind, QUIET) if kind in JOB_TYPES else kind(tmp_path)
    monkeypatch.setattr(columns, "_file_part", spied_part)
    monkeypatch.setattr(Ledger, "_hold", spied_hold)
    with monkeypatch.context() as patch:
        patch.setattr(Job, "open_ledger", lambda job: Ledger(Privacy(0.5, 1e-6), unit=job.unit))
        with pytest.raises(BudgetExceeded):
            run(path, progress=False)
    assert "rows" not in events
    monkeypatch.setattr("dpfast.ledger.ledger.now", lambda: "2026-01-01T00:00:00+00:00" if "rows" not in events else "")
    run(path, progress=False)
    (since,) = {one for one in events if one != "rows"}
    assert events.index(since) < events.index("rows")
    record = json.loads((Job.read(path).folder / "report.json").read_text())
    assert {release["time"] for release in record["this_job"]} == {since}


def test_no_pictures_are_made_where_there_are_no_plots():
    made = Output(folder="fit", plots=False)
    assert (made.pictures, made.is_drawn) == ([], False)
    assert "csv" in made.tables


# Of each kind: lines of the template that change, and the fit in memory.
OF_PEOPLE = {
    "objective_perturbation_regressor": (
        [('constraint = { kind = "L2Ball", radius = 30.0 }', 'loss = "huber"')],
        lambda frame, **people: ObjectivePerturbationRegressor(**BUDGET, **LIMITED, bound_y=30.0, loss="huber").fit(
            encoded(frame), frame.days.to_numpy(), **people
        ),
        ("coef_", "intercept_"),
    ),
    "objective_perturbation_classifier": (
        [],
        lambda frame, **people: ObjectivePerturbationClassifier(
            **BUDGET, **LIMITED, classes=["home", "ward", "dead"]
        ).fit(encoded(frame), frame.outcome.to_numpy(), **people),
        ("coef_", "intercept_", "log_odds_"),
    ),
    "sparse_regression": (
        [],
        lambda frame, **people: SparseRegression(
            **BUDGET, n_nonzero=2, bound_y=30.0, box_x=(np.array([-3.0, *[0.0] * 4]), np.array([3.0, *[1.0] * 4]))
        ).fit(
            np.column_stack([frame.dose, frame.smoker, *(frame.site == site for site in ("Bern", "Basel", "Genf"))]),
            frame.days.to_numpy(),
            **people,
        ),
        ("coef_", "support_"),
    ),
    "private_standard_scaler": (
        [],
        lambda frame, **people: PrivateStandardScaler(**BUDGET, box_x=([18.0, 0.0], [100.0, 90.0])).fit(
            frame[["age", "days"]].to_numpy(), **people
        ),
        ("mean_", "scale_"),
    ),
}


def with_people(folder, kind, *changes):
    """Write a job on people with several rows, scattered, of which two count."""
    frame = table_of(kind)
    frame = frame.assign(patient=[f"p{one}" for one in np.random.default_rng(3).integers(0, 150, len(frame))])
    named = [
        ("# [people]", "[people]"), ('# id = "patient"', 'id = "patient"'), ("# max_rows = 20", "max_rows = 2"),
    ]  # fmt: skip
    return write_job(folder, kind, SEED, QUIET, *named, *changes, table=frame), frame


@pytest.mark.parametrize("kind", OF_PEOPLE)
def test_people_with_several_rows_are_fitted_and_planned_as_in_memory(tmp_path, kind, capsys):
    changes, fit, names = OF_PEOPLE[kind]
    path, frame = with_people(tmp_path, kind, *changes)
    model = fitted(path)
    same(model, fit(frame, groups=frame.patient.to_numpy(), max_rows=2), *names)
    assert {release.unit for release in model.releases_} == {"person"}
    assert "all rows of one 'patient', 2 at most" in (tmp_path / "fit" / "report.md").read_text()
    capsys.readouterr()
    assert main(["plan", str(path), "--people", "5000"]) == 0
    job = Job.read(path)
    options = {name: one for name, one in job.parameters.items() if name != "random_state"}
    planned = model.plan(n=5000, n_features=len(job.data.feature_names), max_rows=2, **options)
    assert capsys.readouterr().out.startswith(f"{planned}\n")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("objective_perturbation_regressor", []),
        ("objective_perturbation_regressor", [("# method = \"auto\"", 'method = "objective"')]),
        ("objective_perturbation_classifier", [("delta = 1e-6", "delta = 0.0")]),
        (
            "sparse_regression",
            [('# selector = "auto"', 'selector = "exponential"'), ("dose = { low = -3, high = 3 }", 'dose = "number"')],
        ),
    ],
)  # fmt: skip
def test_people_of_a_fit_that_sums_none_are_refused_before_rows_are_read(tmp_path, kind, changes, capsys):
    path, _ = with_people(tmp_path, kind, *changes)
    for command in ("check", "plan", "fit"):
        assert main([command, str(path)]) == 2
        assert "groups need " in capsys.readouterr().err


SITE = Category("site", ("Bern", "Basel", "Genf"), drop_first=True)
OF_FILES = Columns([Number("age", low=18, high=100), Boolean("smoker"), SITE], ["days"])
# Of each kind: lines of the template that change, and the fit in memory, or of the file.
WEIGHTED = {
    "objective_perturbation_regressor": (
        [],
        lambda frame, **weights: ObjectivePerturbationRegressor(
            **BUDGET, **LIMITED, bound_y=30.0, constraint=L2Ball(30.0), max_weight=4.0
        ).fit(encoded(frame), frame.days.to_numpy(), **weights),
    ),
    "objective_perturbation_classifier": (
        [],
        lambda frame, **weights: ObjectivePerturbationClassifier(
            **BUDGET, **LIMITED, classes=["home", "ward", "dead"], max_weight=4.0
        ).fit(encoded(frame), frame.outcome.to_numpy(), **weights),
    ),
    "multi_outcome_ridge": (
        [('readmitted = "boolean"\n', "")],
        lambda frame, **weights: MultiOutcomeRidge(
            **BUDGET, bound_y=30.0, box_x=([18.0, 0.0, 0.0, 0.0], [100.0, 1.0, 1.0, 1.0]), max_weight=4.0
        ).fit(OF_FILES.encode(frame.attrs["file"]), **weights),
    ),
}  # fmt: skip
COLUMN_OF_WEIGHTS = [
    ("# [weights]", "[weights]"), ('# weight = "weight"', 'weight = "w"'), ("# max_weight = 10.0", "max_weight = 4.0"),
]  # fmt: skip


def with_weights(folder, kind, *changes, **columns):
    frame = table_of(kind)
    frame = frame.assign(**{"w": np.random.default_rng(5).gamma(2.0, 1.0, len(frame))} | columns)
    frame.attrs["file"] = folder / "table.csv"
    return write_job(folder, kind, SEED, QUIET, *COLUMN_OF_WEIGHTS, *changes, table=frame), frame


@pytest.mark.parametrize("kind", WEIGHTED)
def test_rows_have_the_weights_of_a_column(tmp_path, kind):
    changes, fit = WEIGHTED[kind]
    path, frame = with_weights(tmp_path, kind, *changes)
    model, weights = fitted(path), frame.w.to_numpy()
    assert (weights > 4.0).any()
    same(model, fit(frame, sample_weight=weights), "coef_", "intercept_")
    assert not np.array_equal(model.coef_, fit(frame, sample_weight=np.ones(len(frame))).coef_)
    report = (tmp_path / "fit" / "report.md").read_text()
    assert "- weights: column 'w', over 4.0 and at most 1" in report
    assert "- max\\_weight: 4.0" in report


def test_every_kind_whose_estimator_takes_weights_has_them_in_jobs():
    takes = {name for name, kind in JOB_TYPES.items() if "weights" in [key.name for key in kind.description.keys]}
    assert takes == set(WEIGHTED) | {"describe"}


def test_a_description_has_the_weights_of_a_column(tmp_path):
    path, frame = with_weights(tmp_path, "describe")
    columns = {"age": (18, 100), "site": ["Bern", "Basel", "Genf"], "smoker": "boolean"}
    options = {"crosstabs": [("site", "smoker")], "sample_weight": frame.w, "max_weight": 4.0}
    expected = describe(frame, columns, **BUDGET | options)
    pd.testing.assert_frame_equal(fitted(path).summary(), expected.summary())
    assert "(table),weights," in (tmp_path / "fit" / "description.csv").read_text()


@pytest.mark.parametrize(
    ("changes", "columns", "said"),
    [
        ([], {"w": [-1.0] * 400}, "column 'w' must hold finite weights of at least 0, none of them missing"),
        ([], {"w": [None, *[1.0] * 399]}, "column 'w' must hold finite weights of at least 0, none of them missing"),
        ([], {"w": ["much"] * 400}, "in column 'w', cells that are not numbers"),
        ([('weight = "w"', 'weight = "v"')], {}, "has none of the declared columns in its first line"),
        ([("max_weight = 4.0", "max_weight = 0.0")], {}, "max_weight must be positive and finite, got 0.0"),
        ([("max_weight = 4.0", "")], {}, "[weights] lacks the key 'max_weight'"),
        (
            [("[estimator]", "[estimator]\nmax_weight = 3.0")], {},
            "[estimator] has an unknown key 'max_weight'; it is a key of [weights]",
        ),
    ],
)  # fmt: skip
def test_weights_that_are_none_are_refused(tmp_path, changes, columns, said, capsys):
    path, _ = with_weights(tmp_path, "objective_perturbation_classifier", *changes, **columns)
    assert main(["fit", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "fit").exists()


def test_a_pattern_does_not_match_the_column_of_weights(tmp_path):
    path, frame = with_weights(tmp_path, "multi_outcome_ridge")
    frame[["w", "age", "days"]].to_csv(tmp_path / "table.csv", index=False)
    text = without(without(path.read_text(), "features"), "outcomes")
    path.write_text(f'[features]\n"*" = {{ low = 0, high = 100 }}\n[outcomes]\ndays = "number"\n{text}')
    assert Job.read(path).data.feature_names == ("age",)


def test_weights_and_owners_of_rows_go_together(tmp_path):
    kind = "multi_outcome_ridge"
    changes, fit = WEIGHTED[kind]
    path, frame = with_people(tmp_path, kind, *COLUMN_OF_WEIGHTS, *changes)
    frame = frame.assign(w=1.0 + np.arange(len(frame)) % 5)
    frame.attrs["file"] = tmp_path / "table.csv"
    frame.to_csv(tmp_path / "table.csv", index=False)
    people = {"groups": frame.patient.to_numpy(), "max_rows": 2}
    same(fitted(path), fit(frame, sample_weight=frame.w.to_numpy(), **people), "coef_", "intercept_")


@pytest.mark.parametrize("treated", [["Bern", "Basel", "Genf"], [7, 3], ["Bern"]])
def test_several_treated_units_have_one_release_and_one_table(tmp_path, treated):
    who = [*treated, *(f"u{k}" if isinstance(treated[0], str) else k for k in range(100, 160))]
    long = table_of("synthetic_control", len(who)).assign(who=who).melt("who", var_name="when", value_name="sales")
    path = write_job(tmp_path, "synthetic_control", SEED, QUIET, table=long)
    rest = path.read_text().partition("[panel]")[2].partition("[estimator]")[2]
    path.write_text(
        f'[input]\npath = "table.csv"\n[panel]\nunit = "who"\ntime = "when"\nvalue = "sales"\nn_pre = 3\n'
        f"treated = {json.dumps(treated)}\n[estimator]{rest}"
    )
    with pytest.raises(ValueError, match=r"\[plan\] lacks the keys 'n_pre' and 'n_periods' \(Periods before"):
        plan(path)
    job = path.read_text()
    path.write_text(f"{job}\n[plan]\nn_pre = 3\nn_periods = 4\n")
    assert "people are needed for an added error of 0.1 of" in plan(path)
    path.write_text(job)
    expected = SyntheticControl(**BUDGET, bound=(0.0, 5.0))
    expected.fit_long(long.astype({"when": float}), "who", "when", "sales", treated, 3)
    model = fitted(path)
    same(model, expected, "target_", "center_")
    effects = pd.read_csv(tmp_path / "fit" / "effects.csv")
    assert effects.target.tolist() == treated
    np.testing.assert_allclose(effects.effect, expected.effect().effect.to_numpy())
    named = ", ".join(map(str, treated))
    assert f"- treated: {named}\n" in (tmp_path / "fit" / "report.md").read_text()


def test_a_label_of_text_is_refused_where_periods_are_numbers(tmp_path):
    path = long_panel(tmp_path)
    path.write_text(re.sub("n_pre = .*", 'n_pre = "2021"', path.read_text()))
    with pytest.raises(ValueError, match=r"\[panel\] n_pre '2021' is text, and column 'when' holds numbers"):
        Job.read(path)


@pytest.mark.parametrize(
    ("treated", "said"),
    [
        ("[]", r"\[panel\] treated must be units that are all text or all numbers, at least one"),
        ('["Bern", 3]', r"\[panel\] treated must be units that are all text or all numbers, at least one"),
        ("[[1]]", r"\[panel\] treated must hold text or an integer"),
        ("1.5", r"\[panel\] treated must be text or an integer or a list"),
    ],
)
def test_treated_units_that_are_none_are_refused(tmp_path, treated, said):
    path = long_panel(tmp_path)
    path.write_text(re.sub("treated = .*", f"treated = {treated}", path.read_text()))
    with pytest.raises((TypeError, ValueError), match=said):
        Job.read(path)
