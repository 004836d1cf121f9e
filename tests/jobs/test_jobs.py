"""``dpfast fit``: the bits of the fit in memory, every refusal before anything is spent, outputs whole or absent."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, Privacy, UtilityWarning
from dpfast.cli import main
from dpfast.io import EncodedTable
from dpfast.jobs import Job, outputs
from dpfast.jobs.run import _Passes, terminable

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

SEED = 11
OUTPUTS = {"coefficients.csv", "model.json", "report.html", "report.json", "report.md"}

BASE = {
    "input": {"path": "table.csv"},
    "features": {
        "age": {"low": 0, "high": 100, "missing": 50},
        "smoker": "boolean",
        "site": {"levels": ["Bern", "Basel"], "undeclared": "zeros", "drop_first": False},
    },
    "outcomes": {"days": "number", "again": "boolean"},
    "estimator": {
        "kind": "multi_outcome_ridge",
        "bound_y": 9.0,
        "fit_intercept": True,
        "refine": 0,
        "random_state": SEED,
    },
    "privacy": {"epsilon": 1.0, "delta": 1e-6},
    "output": {"folder": "fit", "formats": ["csv"], "plots": False},
}
PARAMETERS = {"bound_x": None, "bound_y": 9.0, "fit_intercept": True, "refine": 0, "random_state": SEED}


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if not isinstance(value, float) else repr(value)


def changed(**sections):
    """Return the job with some keys replaced; None takes a key or a section out."""
    job = {name: dict(section) for name, section in BASE.items()}
    for name, keys in sections.items():
        section = {} if keys is None else job.get(name, {}) | keys
        job[name] = {key: value for key, value in section.items() if value is not None}
        if keys is None:
            del job[name]
    return job


def write_job(folder, job, name="job.toml"):
    lines = []
    for section, content in job.items():
        lines += [f"[{section}]", *(f"{json.dumps(key)} = {toml(value)}" for key, value in content.items()), ""]
    path = folder / name
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def frame():
    rng = np.random.default_rng(5)
    n = 700
    frame = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "smoker": rng.random(n) < 0.3,
            "site": rng.choice(["Bern", "Basel", "Genf"], n),
            "days": rng.gamma(2.0, 2.0, n),
            "again": rng.random(n) < 0.2,
        }
    )
    frame.loc[::9, "age"] = np.nan
    return frame


@pytest.fixture
def folder(frame, tmp_path):
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path


def arrays(frame):
    x = np.column_stack([frame.age.fillna(50.0), frame.smoker, frame.site == "Bern", frame.site == "Basel"])
    return x.astype(float), frame[["days", "again"]].to_numpy(float)


def fit_in_memory(frame):
    box = (np.zeros(4), np.array([100.0, 1.0, 1.0, 1.0]))
    return MultiOutcomeRidge(1.0, 1e-6, **PARAMETERS, box_x=box).fit(*arrays(frame))


def written(folder):
    return MultiOutcomeRidge.load(folder / "fit" / "model.json")


def record(folder):
    return json.loads((folder / "fit" / "report.json").read_text())


def left_behind(folder):
    """Names in the job's folder that were not there before it ran."""
    return {path.name for path in folder.iterdir()} - {"table.csv", "job.toml"}


def inputs(frame, folder):
    frame.to_parquet(folder / "table.parquet", row_group_size=100)
    frame[:200].to_parquet(folder / "part-1.pq")
    frame[200:].to_parquet(folder / "part-2.pq")
    yield {"path": "table.csv"}
    yield {"path": str(folder / "table.parquet")}
    yield {"path": "part-*.pq"}
    yield {"path": ["part-1.pq", "part-2.pq"]}


def test_every_kind_of_file_gives_the_bits_of_the_fit_in_memory(frame, folder, capsys):
    expected = fit_in_memory(frame)
    for section in inputs(frame, folder):
        job = changed()
        job["input"] = section
        assert main(["fit", str(write_job(folder, job)), "--force"]) == 0
        assert np.array_equal(written(folder).coef_, expected.coef_)
        assert np.array_equal(written(folder).intercept_, expected.intercept_)
        assert written(folder).feature_names_in_.tolist() == ["age", "smoker", "site=Bern", "site=Basel"]
    assert capsys.readouterr().err == ""


def test_a_bound_may_be_found_within_the_budget(frame, folder):
    assert main(["fit", str(write_job(folder, changed(estimator={"bound_y": "private"})))]) == 0
    expected = MultiOutcomeRidge(1.0, 1e-6, **PARAMETERS | {"bound_y": "private"}, box_x=fit_in_memory(frame).box_x)
    assert np.array_equal(written(folder).coef_, expected.fit(*arrays(frame)).coef_)
    assert written(folder).bound_y_.tolist() == expected.bound_y_.tolist()


def test_patterns_take_the_columns_that_are_not_named(frame, folder):
    x, _ = arrays(frame)
    pd.DataFrame(np.column_stack([x, x[:, 0]]), columns=["lab_1", "y", "lab_2", "lab_3", "lab_4"]).to_csv(
        folder / "table.csv", index=False
    )
    job = changed(estimator={"bound_x": 100.0})
    job["features"], job["outcomes"] = {"lab_*": "number"}, {"y": "boolean", "lab_4": "number"}
    assert main(["fit", str(write_job(folder, job))]) == 0
    assert record(folder)["feature_names"] == ["lab_1", "lab_2", "lab_3"]


def test_a_pattern_alone_takes_no_names_from_the_first_line_of_a_text_file(folder, capsys):
    (folder / "table.csv").write_text("HIV,mild\n0.5,0.5\n")
    job = changed(estimator={"bound_x": 100.0})
    job["features"], job["outcomes"] = {"H*": "number"}, {"m*": "number"}
    assert main(["fit", str(write_job(folder, job))]) == 2
    message = capsys.readouterr().err
    assert "'H*' is a pattern: name one column of" in message
    assert "HIV" not in message
    assert "mild" not in message


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_progress_tells_of_the_number_of_rows_only_where_it_is_public(adjacency, frame, folder, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = []
    for rows in (frame, frame[:-200]):
        rows.to_csv(folder / "table.csv", index=False)
        monkeypatch.setattr("sys.stderr", Terminal())
        job = changed(estimator={"adjacency": adjacency})
        assert main(["fit", str(write_job(folder, job)), "--force"]) == 0, sys.stderr.getvalue()
        # How often it is drawn anew is a matter of time.
        shown.append({line.strip() for line in re.sub(r"\d\d:\d\d", "", sys.stderr.getvalue()).split("\r")})
    assert any("reading" in line for line in shown[0])
    assert (shown[0] == shown[1]) == (adjacency == "add_remove")
    assert any(sign.isdigit() for line in shown[0] for sign in line) == (adjacency == "replace_one")


def test_a_column_may_be_called_as_a_pattern_is_written(frame, folder):
    frame.rename(columns={"age": "a*"}).assign(ab=1.0).to_csv(folder / "table.csv", index=False)
    job = changed(features={"age": None, "a*": BASE["features"]["age"]})
    assert main(["fit", str(write_job(folder, job))]) == 0
    assert record(folder)["feature_names"] == ["smoker", "site=Bern", "site=Basel", "a*"]


def test_a_sign_of_patterns_in_brackets_is_one_of_a_name(frame, folder, capsys):
    frame.rename(columns={"age": "age [y]?"}).assign(ages=1.0).to_csv(folder / "table.csv", index=False)
    job = changed(features={"age": None, "age [[]y][?]": BASE["features"]["age"]})
    path = str(write_job(folder, job))
    assert main(["plan", path, "--people", "500"]) == 0
    assert main(["fit", path]) == 0
    assert record(folder)["feature_names"] == ["smoker", "site=Bern", "site=Basel", "age [y]?"]
    frame.to_csv(folder / "table.csv", index=False)
    assert main(["check", str(write_job(folder, job))]) == 2
    assert "no column 'age [y]?'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "parquet", "several"])
def test_people_with_several_rows(frame, folder, kind):
    """Rows of a person may lie anywhere, in any of the files."""
    ids = np.random.default_rng(6).integers(0, 200, len(frame))
    frame = frame.assign(patient=ids if kind == "parquet" else [f"p{one}" for one in ids])
    path = {"csv": "table.csv", "parquet": "table.parquet", "several": ["one.csv", "two.csv"]}[kind]
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_parquet(folder / "table.parquet", row_group_size=100)
    frame[:300].to_csv(folder / "one.csv", index=False)
    frame[300:].to_csv(folder / "two.csv", index=False)
    job = changed(people={"id": "patient", "max_rows": 4}, input={"path": path})
    assert main(["fit", str(write_job(folder, job))]) == 0
    box = (np.zeros(4), np.array([100.0, 1.0, 1.0, 1.0]))
    # Of streams, people with several rows have no residual steps.
    model = MultiOutcomeRidge(1.0, 1e-6, **PARAMETERS, box_x=box)
    expected = model.fit(*arrays(frame), groups=ids, max_rows=4)
    assert np.array_equal(written(folder).coef_, expected.coef_)
    assert "all rows of one 'patient', 4 at most" in (folder / "fit" / "report.md").read_text()


def test_a_plan_counts_the_rows_of_a_person(frame, folder, capsys):
    frame.assign(patient=0).to_csv(folder / "table.csv", index=False)
    job = write_job(folder, changed(people={"id": "patient", "max_rows": 4}, estimator={"refine": "auto"}))
    assert main(["plan", str(job), "--people", "5000"]) == 0
    options = PARAMETERS | {"box_x": (np.zeros(4), np.array([100.0, 1.0, 1.0, 1.0])), "epsilon": 1.0, "delta": 1e-6}
    options |= {"refine": "auto"}
    of_people, of_rows = (MultiOutcomeRidge.plan(5000, 4, 2, max_rows=most, **options) for most in (4, None))
    assert str(of_people) != str(of_rows)
    assert capsys.readouterr().out.startswith(f"{of_people}\n")


def test_a_check_misses_the_library_that_the_fit_would_miss(frame, folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write_job(folder, BASE)
    for command in ("check", "fit"):
        assert main([command, str(path)]) == 2
        assert (
            "table.csv' needs PyArrow, which is not installed: pip install 'dpfast[arrow]'" in capsys.readouterr().err
        )
    assert main(["plan", str(path)]) == 0


def test_what_needs_a_table_in_memory_is_no_key_of_a_job(folder):
    path = write_job(folder, changed(estimator={"block_bounds": [2.0, 9.0]}))
    with pytest.raises(ValueError, match=r"\[estimator\] has an unknown key 'block_bounds'"):
        Job.read(path)


def test_people_without_an_id_are_refused_and_cost_nothing(frame, folder, capsys):
    frame.assign(patient=["a", *[None] * 699]).to_csv(folder / "table.csv", index=False)
    assert main(["fit", str(write_job(folder, changed(people={"id": "patient", "max_rows": 4})))]) == 2
    assert "column 'patient' has missing ids: every row needs one" in capsys.readouterr().err
    assert left_behind(folder) == set()


def test_budget_of_a_dead_process_is_named(folder, capsys, monkeypatch):
    ledger = {"path": "budget.json", "epsilon": 1.5, "delta": 1e-5}
    path = write_job(folder, changed(privacy={"ledger": ledger}))
    Job.read(path).open_ledger().reserve(Privacy(1.0, 1e-6))
    assert main(["fit", str(path)]) == 3
    assert "dpfast ledger" not in capsys.readouterr().err
    monkeypatch.setattr("dpfast.ledger.entries.Process.ended", lambda self: True)
    said = "a process that has ended still holds budget (epsilon 1, delta 1e-06, replace-one, since "
    assert main(["fit", str(path)]) == 3
    error = capsys.readouterr().err
    assert said in error
    assert f"'dpfast ledger {folder / 'budget.json'}' shows it, and counts it as spent (--forfeit)" in error
    # A job that still has enough says so, too.
    ledger["path"], ledger["epsilon"] = "larger.json", 3.0
    path = write_job(folder, changed(privacy={"ledger": ledger}, estimator={"random_state": None}))
    Job.read(path).open_ledger().reserve(Privacy(1.0, 1e-6))
    assert main(["fit", str(path)]) == 0
    assert said in capsys.readouterr().out
    assert main(["ledger", str(folder / "larger.json"), "--give-back", "--yes"]) == 0
    capsys.readouterr()
    assert main(["fit", str(path), "--force"]) == 0
    assert "has ended" not in capsys.readouterr().out


def test_a_ledger_of_another_unit_is_refused_by_a_check(frame, folder, capsys):
    ledger = {"path": "rows.ledger", "epsilon": 3.0, "delta": 1e-5}
    rows = write_job(folder, changed(privacy={"ledger": ledger}))
    Job.read(rows).open_ledger().reserve(Privacy(1.0, 1e-6))
    assert main(["check", str(rows)]) == 0
    frame.assign(patient=range(700)).to_csv(folder / "table.csv", index=False)
    people = write_job(folder, changed(privacy={"ledger": ledger}, people={"id": "patient", "max_rows": 1}))
    for command in ("check", "fit"):
        assert main([command, str(people)]) == 2
        assert "unit must be the ledger's, 'row', got 'person'" in capsys.readouterr().err


def test_a_check_misses_the_folder_of_the_ledger_that_the_fit_would_miss(folder, capsys, monkeypatch):
    ledger = {"path": "l", "epsilon": 3.0, "delta": 1e-5}
    path = write_job(folder, changed(privacy={"ledger": ledger}))
    allowed = iter([True, False])  # the folder of outputs, that of the ledger
    monkeypatch.setattr(os, "access", lambda *_: next(allowed))
    assert main(["check", str(path)]) == 2
    assert "no permission to write in its folder" in capsys.readouterr().err
    ledger["path"] = "none/l"
    path = write_job(folder, changed(privacy={"ledger": ledger}))
    monkeypatch.undo()
    assert main(["check", str(path)]) == 2
    assert "there is no folder" in capsys.readouterr().err
    # A plan may be made elsewhere.
    assert main(["plan", str(path)]) == 0


def test_a_warning_is_one_line(folder, capsys, monkeypatch):
    def fit(self, *_, **__):
        warnings.warn("mostly noise", UtilityWarning, stacklevel=1)
        raise ValueError("no")

    monkeypatch.setattr(MultiOutcomeRidge, "fit", fit)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["fit", str(write_job(folder, changed()))]) == 2
    assert capsys.readouterr().err == "dpfast fit: mostly noise\ndpfast fit: no\n"


def test_an_interrupt_is_one_line(folder, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(MultiOutcomeRidge, "fit", interrupt)
    assert main(["fit", str(write_job(folder, changed()))]) == 130
    assert capsys.readouterr().err == "dpfast fit: interrupted\n"
    assert left_behind(folder) == set()


def test_what_is_written(frame, folder, capsys):
    assert main(["fit", str(write_job(folder, changed()))]) == 0
    said = capsys.readouterr().out
    assert said.startswith("spent epsilon 1, delta 1e-06, replace-one; wrote ")
    assert "so that it protects nobody" in said
    assert {path.name for path in (folder / "fit").iterdir()} == OUTPUTS
    assert left_behind(folder) == {"fit"}
    expected = fit_in_memory(frame)
    with (folder / "fit" / "coefficients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["feature"] for row in rows[:5]] == ["(intercept)", "age", "smoker", "site=Bern", "site=Basel"]
    assert [float(row["estimate"]) for row in rows] == expected.summary()["estimate"].tolist()
    assert [float(row["std_privacy"]) for row in rows[6:]] == expected.coef_std_[1].tolist()
    assert record(folder)["outcome_names"] == ["days", "again"]
    assert record(folder)["spent"] == {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace_one"}
    assert record(folder)["promised"] == record(folder)["budget"] | {"epsilon": {"float": "inf"}}
    report = (folder / "fit" / "report.md").read_text()
    assert "Privacy report" in report
    assert "so that it protects nobody" in report
    assert "in words" not in report
    # The seed takes the noise off: it is in no output, nor can it be found by trying digests.
    assert not any("random_state" in path.read_text() for path in (folder / "fit").iterdir())
    other = write_job(folder, changed(estimator={"random_state": 12}), "other.toml")
    assert Job.read(other).digest == record(folder)["job_sha256"]


def test_a_release_that_was_made_is_not_made_again(folder, capsys, monkeypatch):
    job = write_job(folder, changed(estimator={"random_state": None}, output={"overwrite": True}))
    assert main(["fit", str(job)]) == 0
    first = (folder / "fit" / "model.json").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(MultiOutcomeRidge, "fit", None)
        assert main(["fit", str(job)]) == 0
    assert "holds the release of this job already; nothing was read or spent" in capsys.readouterr().out
    assert (folder / "fit" / "model.json").read_text() == first
    assert main(["fit", str(job), "--force"]) == 0
    assert (folder / "fit" / "model.json").read_text() != first


def test_outputs_are_replaced_only_if_that_is_asked_for(folder, capsys):
    assert main(["fit", str(write_job(folder, changed()))]) == 0
    first = (folder / "fit" / "model.json").read_text()
    assert main(["fit", str(write_job(folder, changed(privacy={"epsilon": 2.0})))]) == 2
    assert "holds the outputs of another job" in capsys.readouterr().err
    assert (folder / "fit" / "model.json").read_text() == first
    path = write_job(folder, changed(privacy={"epsilon": 2.0}, output={"overwrite": True}))
    assert main(["fit", str(path)]) == 0
    assert written(folder).privacy_spent_.epsilon == 2.0
    assert left_behind(folder) == {"fit"}
    (folder / "fit" / "thesis.txt").touch()
    assert main(["fit", str(path), "--force"]) == 2
    assert "holds other files, such as 'thesis.txt'" in capsys.readouterr().err


REFUSED = [
    (changed(estimators={"kind": "x"}), r"\[job\] has an unknown key 'estimators'; did you mean 'estimator'\?"),
    (changed(privacy=None), r"\[job\] lacks the key 'privacy'"),
    (changed(people={"id": "smoker"}), r"\[people\] lacks the key 'max_rows'"),
    (changed(people={"id": "smoker", "max_rows": 2}), r"\[people\] id 'smoker' is declared as a feature"),
    (changed(people={"id": "nobody", "max_rows": 2}), "has no column 'nobody'|has none of the declared columns"),
    (changed(people={"id": "nobody", "max_rows": 0}), r"\[people\] max_rows must be at least 1, got 0"),
    (changed(people={"id": "nobody", "max_rows": 2.5}), r"\[people\] max_rows must be an integer, got a number"),
    (changed(privacy={"epsilom": 1.0}), r"\[privacy\] has an unknown key 'epsilom'; did you mean 'epsilon'\?"),
    (changed(privacy={"adjacency": "add_remove"}), r"unknown key 'adjacency'; it is a key of \[estimator\]"),
    (changed(privacy={"zzz": 1.0}), r"unknown key 'zzz'; accepted: epsilon, delta, ledger"),
    (changed(privacy={"epsilon": "one"}), r"\[privacy\] epsilon must be a number, got 'one'"),
    (changed(privacy={"epsilon": -1.0}), "epsilon must be positive"),
    (changed(privacy={"epsilon": float("inf")}), "epsilon must be finite"),
    (changed(privacy={"delta": 2}), "delta must be in"),
    (changed(privacy={"ledger": "x"}), r"\[privacy\] ledger must be a table, got 'x'"),
    (changed(privacy={"ledger": {"path": "l", "epsilon": 0, "delta": 0}}), "epsilon must be positive"),
    (
        changed(estimator={"kind": "lasso"}),
        r"\[estimator\] kind must be one of .*'multi_outcome_ridge', .*, got 'lasso'",
    ),
    (
        changed(estimator={"bound_y": None}),
        r"\[estimator\] lacks the key 'bound_y' \(L2 norm of a row.*docs/concepts/bounds.md says",
    ),
    (changed(estimator={"bound_y": 0.0}), "bound_y must be positive"),
    (changed(estimator={"ridge": "much"}), "ridge must be"),
    (changed(estimator={"fit_intercept": 1}), r"\[estimator\] fit_intercept must be true or false, got an integer"),
    (changed(estimator={"adjacency": "none"}), "adjacency must be"),
    (changed(estimator={"adjacency": 3}), r"adjacency must be one of 'replace_one', 'add_remove', got an integer"),
    (changed(estimator={"box": [0, 1]}), r"\[estimator\] has an unknown key 'box'; did you mean 'box_x'"),
    (changed(estimator={"box_x": [0, 1]}), "leave one of them out"),
    (changed(features={"age": "number"}), "nothing bounds the rows: declare low and high"),
    (changed(features={"age": {"low": 1}}), r"\[features.age\] low and high of column 'age' go together"),
    (changed(features={"age": {"low": 1, "high": 1}}), r"\[features.age\] low of column 'age' must be below high"),
    (
        changed(features={"age": {"low": 1, "high": 9, "missing": 99}}),
        r"\[features.age\] missing of column 'age' must be from low to high",
    ),
    (changed(features={"age": {"kind": "integer"}}), r"\[features.age\] kind must be one of"),
    (
        changed(features={"age": 3}),
        r"\[features\] age must be one of 'number', 'boolean' or a list of items or a table, got an integer",
    ),
    (changed(features={"age": {"levels": ["x"], "mising": "x"}}), "did you mean 'missing'"),
    (changed(features={"age": {"level": ["x"]}}), "unknown key 'level'; did you mean 'levels'"),
    (changed(features={"age": {"min": 18, "max": 90}}), "unknown key 'min'; .*accepted: .*low, high"),
    (
        changed(features={"age": {"low": 0, "high": 1, "missing": "x"}}),
        r"\[features.age\] missing must be a number or 'refuse', got 'x'",
    ),
    (changed(features={"age": {"low": 0, "high": 1, "missing": float("nan")}}), "must be 'refuse' or a finite number"),
    (changed(features={"site": {"kind": "category"}}), r"\[features.site\] lacks the key 'levels'"),
    (changed(features={"site": {"levels": "Bern"}}), r"\[features.site\] levels must be a list of items, got 'Bern'"),
    (changed(features={"days": {"low": 0, "high": 1}}), "column 'days' is declared twice"),
    (changed(features={"lab_*": "number"}), r"\[features\] 'lab_\*' matches no column"),
    (changed(features={"weight": {"low": 0, "high": 1}}), "has no column 'weight' in its first line"),
    (
        changed(outcomes={"days": {"low": 0, "high": 1}}),
        "unknown key .*; only features have limits, outcomes are bounded by bound_y",
    ),
    (
        changed(outcomes={"days": {"bound": 30}}),
        r"unknown key 'bound'; only features have limits, outcomes are bounded by bound_y in \[estimator\]",
    ),
    (
        changed(features={"age": [18, 90]}),
        r"\[features\] age is ambiguous: write { levels = \[18, 90\] } for two levels, { low = 18, high = 90 } for ",
    ),
    (changed(features={"age": [0.5, 90]}), r"age is ambiguous: .* { low = 0.5, high = 90 } for limits"),
    (
        changed(outcomes={"days": [0, 30]}),
        r"\[outcomes\] days is ambiguous: write { levels = \[0, 30\] } for two levels; only features have limits",
    ),
    (changed(estimator={"bound_y": {"dayz": 30.0}}), r"bound_y has names that \[outcomes\] lacks: 'dayz'"),
    (changed(outcomes={"days": None, "again": None}), "must declare at least one"),
    (
        changed(input={"path": "none.csv"}),
        r"\[input\] path: no such file, seen from the folder of the job: .*none.csv'",
    ),
    (changed(input={"path": "s3://bucket/table.csv"}), r"is the address 's3://bucket/table.csv'"),
    (changed(input={"path": ["table.csv", "tab*.csv"]}), "names a file twice"),
    (changed(privacy={"ledger": {"path": "no/l", "epsilon": 1, "delta": 1e-5}}), "there is no folder .*no'. Correct"),
    (changed(input={"path": "*.parquet"}), "which no file matches"),
    (changed(input={"path": 3}), r"\[input\] path must be text or a list of texts, got an integer"),
    (changed(input={"path": []}), "path must list at least one file"),
    (changed(input={"path": "table.xlsx"}), "the suffix '.xlsx'"),
    (changed(input={"path": "table.npy"}), "which has no named columns"),
    (changed(output={"folder": "table.csv"}), r"\[output\] folder .* is a file"),
    (changed(output={"folder": None}), r"\[output\] lacks the key 'folder'"),
    (changed(output={"folder": "."}), "holds the job's input .*table.csv': choose another"),
]


@pytest.mark.parametrize(("job", "message"), REFUSED)
def test_a_job_is_refused_before_a_row_is_read(job, message, folder, capsys, monkeypatch):
    monkeypatch.setattr(MultiOutcomeRidge, "fit", lambda *_: pytest.fail("a fit was begun"))
    assert main(["fit", str(write_job(folder, job))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dpfast fit: ")
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert left_behind(folder) == set()


def test_a_file_that_is_not_toml_and_one_that_is_missing(folder, capsys):
    (folder / "job.toml").write_text("[input\n")
    assert main(["fit", str(folder / "job.toml")]) == 2
    assert "is not TOML" in capsys.readouterr().err
    (folder / "job.toml").write_text("[input]\n", encoding="utf-8-sig")  # as some editors begin a file
    assert main(["check", str(folder / "job.toml")]) == 2
    assert "is not TOML" not in capsys.readouterr().err
    assert main(["check", str(folder)]) == 2
    assert capsys.readouterr().err == f"dpfast check: Is a directory: {str(folder)!r}\n"
    (folder / "job.toml").write_text(f"input = {'[' * 5000}")
    assert main(["fit", str(folder / "job.toml")]) == 2
    assert "too deeply" in capsys.readouterr().err
    assert main(["fit", str(folder / "none.toml")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("days", "", "column 'days' has missing entries"),
        ("days", "secret", "in column 'days', cells that are not numbers"),
        ("days", "inf", "column 'days' holds infinite"),
        ("smoker", "secret", "in column 'smoker', cells that are not true"),
        ("site", "secret", "column 'site' holds a level that is not declared"),
    ],
)
def test_unfit_rows_spend_and_write_nothing(column, cell, message, frame, folder, capsys, monkeypatch):
    table = frame.astype({column: object})
    table.loc[650, column] = cell
    table.to_csv(folder / "table.csv", index=False)
    ledger = Ledger(Privacy(1.0, 1e-6))
    monkeypatch.setattr(Job, "open_ledger", lambda _: ledger)
    levels = {"levels": ["Bern", "Basel", "Genf"]}
    assert main(["fit", str(write_job(folder, changed(features={"site": levels})))]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "secret" not in error
    assert "65" not in error.replace(str(folder), "")
    assert left_behind(folder) == set()
    assert ledger.spent.epsilon == 0.0
    assert ledger.remaining.epsilon == 1.0


@pytest.mark.parametrize(
    "other",
    [
        {"features": {"age": {"low": 0, "high": 90, "missing": 50}}},
        {"features": {"site": None}},
        {"outcomes": {"again": "number"}},
        {"estimator": {"bound_y": 8.0}},
        {"privacy": {"epsilon": 2.0}},
        {"input": {"path": "other.csv"}},
    ],
    ids=str,
)
def test_another_release_is_another_job(folder, other):
    plain = Job.read(write_job(folder, changed())).digest
    (folder / "other.csv").write_text((folder / "table.csv").read_text())
    assert Job.read(write_job(folder, changed(**other))).digest != plain
    assert Job.read(write_job(folder, changed(output={"formats": ["parquet"]}))).digest == plain


def test_a_budget_that_is_exceeded_is_exit_code_3(folder, capsys, monkeypatch):
    monkeypatch.setattr(EncodedTable, "blocks", lambda _: pytest.fail("rows were read"))
    ledger = {"path": "people.ledger", "epsilon": 0.5, "delta": 1e-6}
    path = write_job(folder, changed(privacy={"ledger": ledger}))
    assert Job.read(path).open_ledger().path == str((folder / "people.ledger").resolve())
    assert main(["fit", str(path)]) == 3
    error = capsys.readouterr().err
    assert "was requested, but the ledger has epsilon 0.5" in error
    assert not error.rstrip().endswith(";")  # nobody who has ended holds any
    assert error.count("\n") == 1
    assert {name for name in left_behind(folder) if not str(name).startswith("people.ledger")} == set()


def test_anything_unexpected_is_exit_code_1_and_quotes_nothing(folder, capsys, monkeypatch):
    def fail(*_, **__):
        raise KeyError("secret")

    monkeypatch.setattr(MultiOutcomeRidge, "fit", fail)
    path = write_job(folder, changed())
    assert main(["fit", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dpfast fit: unexpected KeyError; --debug")
    assert "secret" not in error
    with pytest.raises(KeyError):
        main(["fit", str(path), "--debug"])


def test_no_permission(folder, capsys, monkeypatch):
    path = write_job(folder, changed())
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert main(["fit", str(path)]) == 2
    assert "no permission to write" in capsys.readouterr().err
    plain_open = Path.open

    def refuse(self, *arguments, **options):
        if self.name == "table.csv":
            raise PermissionError(13, "Permission denied", str(self))
        return plain_open(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert main(["fit", str(path)]) == 2
    assert "Permission denied" in capsys.readouterr().err
    assert left_behind(folder) == set()


def test_a_release_that_cannot_be_put_in_place_is_not_lost(folder, capsys, monkeypatch):
    rename = Path.rename

    def fail(path, target):
        if path.name == "results":
            raise OSError("no")
        return rename(path, target)

    path = write_job(folder, changed())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        assert main(["fit", str(path)]) == 1
    results = folder / ".fit.partial" / "results"
    error = capsys.readouterr().err
    assert f"was made and paid for, but its outputs are in {str(results)!r}: no" in error
    assert "Start the job again, which pays nothing" in error
    assert {one.name for one in results.iterdir()} == OUTPUTS
    monkeypatch.setattr(MultiOutcomeRidge, "fit", lambda *_: pytest.fail("a fit was begun"))
    assert main(["fit", str(path)]) == 0
    assert {one.name for one in (folder / "fit").iterdir()} == OUTPUTS
    assert left_behind(folder) == {"fit"}


STOPPED_WHILE_READING = """
import sys
from pathlib import Path
from dpfast.io import columns
from dpfast.jobs import run

encode = columns.Number.encode

def encode_and_wait(*arguments):
    encode(*arguments)
    print("reading", flush=True)
    sys.stdin.read()  # on a thread that encodes ahead: the job ends once it has finished its block

columns.Number.encode = encode_and_wait
run(Path(sys.argv[1]))
"""


def stopped_while_reading(path, how):
    """Run a job, send it a signal while it reads its table, and return the process once it has ended."""
    command = [sys.executable, "-c", STOPPED_WHILE_READING, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as job:
        assert job.stdout.readline() == b"reading\n"
        job.send_signal(how)
        job.stdin.close()
        job.wait(timeout=60)
        return job


@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGTERM, signal.SIGINT])
def test_a_job_that_is_stopped_leaves_nothing_and_nothing_that_is_in_the_way(how, folder):
    # What is killed cannot tidy up: the hidden folder stays, for the next start. What is asked to end gives back what
    # was not drawn.
    is_killed = how == signal.SIGKILL
    ledger = {"path": "people.json", "epsilon": 1.5, "delta": 1e-5}
    path = write_job(folder, changed(privacy={} if is_killed else {"ledger": ledger}))
    assert stopped_while_reading(path, how).returncode != 0
    of_ledger = set() if is_killed else {"people.json", "people.json-journal"}
    assert left_behind(folder) == ({".fit.partial"} if is_killed else of_ledger)
    assert is_killed or Ledger.open(folder / "people.json").remaining.epsilon == 1.5
    assert main(["fit", str(path)]) == 0
    assert left_behind(folder) == {"fit"} | of_ledger


class Bar:
    """What a progress bar was told."""

    def __init__(self):
        self.n, self.shown = 0, []

    def update(self, n_bytes):
        self.n += n_bytes
        self.shown.append(self.n)

    def reset(self):
        self.n = 0

    def set_description(self, text, refresh):
        self.shown.append(text)


def test_a_pass_is_never_shown_to_have_read_more_than_there_is():
    advance = _Passes(bar := Bar(), 70)
    for n_bytes in (40, 30, 40, 30, 40):
        advance(n_bytes)
    assert bar.shown == [40, 70, "reading, pass 2", 40, 70, "reading, pass 3", 40]


def test_a_signal_that_is_handled_already_is_left_alone(monkeypatch, folder, capsys):
    handled = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminable():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, handled)
    monkeypatch.setattr(MultiOutcomeRidge, "fit", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["fit", str(write_job(folder, changed()))]) == 143
    assert "terminated" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is handled
    assert left_behind(folder) == set()


@pytest.mark.slow
def test_what_a_killed_job_reserved_is_kept_until_its_owner_says_what_becomes_of_it(folder, capsys):
    ledger = {"path": "people.json", "epsilon": 1.5, "delta": 1e-5}
    path = write_job(folder, changed(privacy={"ledger": ledger}))
    job = stopped_while_reading(path, signal.SIGKILL)
    assert Ledger.open(folder / "people.json").remaining.epsilon == 0.5
    assert main(["fit", str(path)]) == 3
    said = "a process that has ended still holds budget (epsilon 1, delta 1e-06, replace-one, since "
    assert said in capsys.readouterr().err
    assert main(["ledger", str(folder / "people.json")]) == 0
    assert f"by process {job.pid} on " in capsys.readouterr().out
    assert main(["ledger", str(folder / "people.json"), "--give-back", "--yes"]) == 0
    assert main(["fit", str(path)]) == 0
    assert "has ended" not in capsys.readouterr().out


def test_what_killed_jobs_left_costs_no_budget(folder):
    (folder / ".fit.partial").mkdir()
    (folder / ".fit.partial" / "model.json").write_text("half")
    (folder / ".fit.partial" / "owner").write_text("another")
    ledger = {"path": "ledger.json", "epsilon": 4.0, "delta": 1e-5}
    path = write_job(folder, changed(privacy={"ledger": ledger}, estimator={"random_state": None}))
    for runs in (1, 2):
        assert main(["fit", str(path), "--force"]) == 0
        assert len(Ledger(Privacy(4.0, 1e-5), folder / "ledger.json").costs) == runs


def test_outputs_are_prepared_before_anything_is_spent(folder, capsys, monkeypatch):
    def refuse(self, *arguments, **options):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    ledger = {"path": "ledger.json", "epsilon": 4.0, "delta": 1e-5}
    assert main(["fit", str(write_job(folder, changed(privacy={"ledger": ledger})))]) == 2
    assert Ledger(Privacy(4.0, 1e-5), folder / "ledger.json").remaining == Privacy(4.0, 1e-5)


def test_an_interrupt_after_the_fit_loses_no_outputs(folder, monkeypatch):
    fit = MultiOutcomeRidge.fit

    def fit_and_interrupt(self, *arguments, **options):
        fit(self, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(MultiOutcomeRidge, "fit", fit_and_interrupt)
    assert main(["fit", str(write_job(folder, changed(output={"folder": "new/fit"})))]) == 130
    assert {path.name for path in (folder / "new" / "fit").iterdir()} == OUTPUTS


@pytest.mark.slow
def test_a_table_larger_than_the_memory_it_may_use(tmp_path):
    """1.6 GB, written and read by parts: under 1 GiB resident, and the bits of the same rows summed in memory."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks.bench_files", "--gigabytes", "1.6", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=600)
    result = json.loads(done.stdout)
    assert result["same_bits_as_in_memory"]
    assert result["file_bytes"] > 1.5e9
    assert result["peak_bytes_of_fit"] < 2**30


@pytest.mark.parametrize("text", ["", "[" * 100_000, "9" * 5000, "null", "[]", '{"job_sha256": 1}'])
def test_a_record_that_cannot_be_read_is_of_no_job(folder, text):
    job = Job.read(write_job(folder, BASE))
    job.folder.mkdir()
    (job.folder / outputs.RECORD).write_text(text)
    with pytest.raises(FileExistsError, match="holds other files"):
        outputs.is_pending(job)
