"""``dpfast new``, ``check`` and ``plan``: jobs that are written, checked and planned by one description."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from jobs.examples import JOB_TYPES, write_job

from dpfast import Ledger, MultiOutcomeRidge, Privacy, registry
from dpfast.cli import main
from dpfast.jobs import parameters
from dpfast.jobs.job_types import schema, template
from dpfast.jobs.parameters import ARRAY, NUMBER, REQUIRED, by_name, either, enum, lists, sample

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
EXAMPLES = Path(__file__).parents[2] / "examples"


def accepts(schema, value):
    """Whether a value keeps to a JSON schema, of the words that ours are written in."""
    types = {"string": str, "boolean": bool, "integer": int, "array": list, "object": dict, "number": (int, float)}
    known = {"type", "enum", "const", "anyOf", "oneOf", "items", "minItems", "maxItems", "properties", "required"}
    assert schema.keys() <= known | {"additionalProperties", "description", "default", "examples", "title", "$schema"}
    kind = types[schema["type"]] if "type" in schema else object
    if not isinstance(value, kind) or (isinstance(value, bool) and schema.get("type") in ("integer", "number")):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if "anyOf" in schema and not any(accepts(one, value) for one in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(accepts(one, value) for one in schema["oneOf"]) != 1:
        return False
    if isinstance(value, list):
        sizes = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return sizes and all(accepts(schema.get("items", {}), one) for one in value)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if not set(schema.get("required", ())) <= value.keys() or (
            others is False and value.keys() - properties.keys()
        ):
            return False
        others = {} if isinstance(others, bool) else others
        return all(accepts(properties.get(name, others), one) for name, one in value.items())
    return True


def without_comments(kind):
    return tomllib.loads(template(JOB_TYPES[kind]))


def uncommented(kind):
    """Every key of every section, as templates show it."""
    sections, name = {}, None
    for line in template(JOB_TYPES[kind]).splitlines():
        line = line.removeprefix("# ")
        if line.startswith("[") and line.endswith("]"):
            name = line.strip("[]")
            sections[name] = []
        elif " = " in line and name and line.split(" = ")[0].isidentifier():
            sections[name].append(line.split(" = ")[0])
    return sections


def keys_of(table, place=()):
    for key in table.keys:
        if key.values.keys:
            yield ".".join((*place, key.name)), key.values
            yield from keys_of(key.values, (*place, key.name))


def test_there_is_a_job_for_every_estimator_of_a_family_that_has_jobs():
    families = [module.__name__.split(".")[1] for module in registry.parts("job")]
    estimators = {name for name, family in registry.ESTIMATORS.items() if family in families}
    assert {kind.ESTIMATOR.__name__ for kind in JOB_TYPES.values()} == estimators | {"TableDescriber"}
    if EXAMPLES.exists():  # only in a checkout
        assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(JOB_TYPES)


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_a_new_job_shows_and_explains_every_key(kind):
    shown = uncommented(kind)
    for place, table in keys_of(JOB_TYPES[kind].description):
        names = [key.name for key in table.keys if not key.values.keys]
        assert shown[place] == names
        assert all(key.doc for key in table.keys)
        # Citations are taken out of what docstrings say, and nothing is left of them.
        assert not any(re.search(r"\( |\bof[:.)]|\]_", key.doc) for key in table.keys)


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_optional_keys_of_a_new_job_are_of_their_kind(kind):
    """What stands behind # is accepted where the # is taken away, one by one."""
    for place, table in keys_of(JOB_TYPES[kind].description):
        for key in table.keys:
            if not key.values.keys and key.values.words != "a table":
                value = tomllib.loads(f"x = {key.written}")["x"]
                key.values.taken((*place.split("."), key.name), value)
                assert accepts(key.schema, value), key.name


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_the_examples_are_what_new_writes(kind, capsys, tmp_path):
    assert main(["new", kind]) == 0
    written = capsys.readouterr().out
    if EXAMPLES.exists():  # only in a checkout
        assert (EXAMPLES / f"{kind}.toml").read_text() == written
    assert main(["new", JOB_TYPES[kind].ESTIMATOR.__name__, "--output", str(tmp_path / "job.toml")]) == 0
    assert (tmp_path / "job.toml").read_text() == written
    assert main(["new", kind, "--output", str(tmp_path / "job.toml")]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_a_new_job_is_accepted_and_planned(kind, tmp_path, capsys):
    path = write_job(tmp_path, kind)
    assert main(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"is a job of {kind}; " in said
    assert "\nevery line of a CSV file is a row, " in said
    assert said.endswith("costs epsilon 1, delta 1e-06, replace-one, of a ledger of its own; no row was read\n")
    assert not (tmp_path / "fit").exists()
    (tmp_path / "table.csv").unlink()
    assert main(["plan", str(path)]) == 0
    least = capsys.readouterr().out
    assert "are needed for" in least
    assert main(["plan", str(path), "--people", "3000", "--target", "0.5"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("with 3,000 people privacy adds an error of")
    assert "are needed for 0.5" in said
    assert main(["check", str(path)]) == 2


def test_the_families_are_listed_and_a_wrong_one_is_named(capsys):
    assert main(["new"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(JOB_TYPES)
    assert main(["new", "sparse_regresion"]) == 2
    assert "there is no family 'sparse_regresion'; did you mean 'sparse_regression'?" in capsys.readouterr().err


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_the_schema_accepts_new_jobs_of_its_kind_alone(kind, capsys):
    assert main(["new", "--schema"]) == 0
    every = json.loads(capsys.readouterr().out)
    job = without_comments(kind)
    assert accepts(every, job)
    for name, other in JOB_TYPES.items():
        assert accepts(schema([other]), job) == (name == kind)
    assert not accepts(every, job | {"extra": {}})
    assert not accepts(every, job | {"privacy": {"epsilon": "1"}})
    assert not accepts(every, {name: section for name, section in job.items() if name != "output"})


def test_every_value_that_has_a_sample_accepts_it():
    def below(schema):
        yield schema
        parts = [schema[name] for name in ("items", "additionalProperties") if schema.get(name)]
        for part in [*parts, *schema.get("anyOf", ())]:
            yield from below(part)

    for kind in JOB_TYPES.values():
        for _, table in keys_of(kind.description):
            for key in table.keys:
                every = [key.values, *key.values.tables.values()]
                for values in every:
                    assert values.fits(tomllib.loads(f"x = {sample(values.schema)}")["x"])
                for part in (part for values in every for part in below(values.schema)):
                    assert accepts(part, tomllib.loads(f"x = {sample(part)}")["x"])


def test_arrays_are_lists_whatever_numpy_makes_of_their_type():
    """It is a union, of float too, in NumPy 2.0, one without float in 2.4, and no union in 2.5."""
    box = parameters.values_of(parameters.hints_of(MultiOutcomeRidge)["box_x"])
    wanted = either(lists(either(NUMBER, ARRAY), 2), by_name(lists(NUMBER, 2)), enum(["private"]))
    assert (box.words, box.schema) == (wanted.words, wanted.schema)
    assert parameters.values_of(parameters.AnyArray | float | None).schema == either(NUMBER, ARRAY).schema


def test_a_ledger_that_is_there_is_charged_by_no_check_and_no_plan(tmp_path, capsys):
    kind = "private_standard_scaler"
    ledger = ("# [privacy.ledger]", '[privacy.ledger]\npath = "l"\nepsilon = 1.5\ndelta = 1e-5\n# [x]')
    path = write_job(tmp_path, kind, ledger)
    assert main(["check", str(path)]) == 0
    assert "which is not there yet" in capsys.readouterr().out
    assert not (tmp_path / "l").exists()
    own = Ledger(Privacy(1.5, 1e-5), tmp_path / "l")
    assert main(["check", str(path)]) == 0
    assert main(["plan", str(path)]) == 0
    assert "it has room for 1 such" in capsys.readouterr().out
    assert own.spent.epsilon == 0.0
    own.reserve(Privacy(1.0, 1e-6))
    for command in ("check", "plan"):
        assert main([command, str(path)]) == 3
        assert re.search(r"costs epsilon 1, .*, but the ledger .* has epsilon 0.5", capsys.readouterr().err)


def test_what_a_plan_is_not_told_is_asked_for(tmp_path, capsys):
    kind = "multi_outcome_ridge"
    pattern = [
        ("age = { low = 18, high = 100, missing = 50 }", '"lab_*" = "number"'),
        ("# bound_x = 1.0", "bound_x = 3.0"),
    ]
    path = write_job(tmp_path, kind, *pattern)
    assert main(["plan", str(path)]) == 2
    assert "[plan] lacks the key 'n_features' (Width" in capsys.readouterr().err
    section = ("# [plan]", "[plan]\npeople = 500\nn_features = 12\nn_outcomes = 2\n# [x]")
    assert main(["plan", str(write_job(tmp_path, kind, *pattern, section))]) == 0
    assert capsys.readouterr().out.startswith("with 500 people")
    assert main(["plan", str(path), "--people", "0"]) == 2
    assert "--people must be at least 1, got 0" in capsys.readouterr().err
    limited = [("age = { low", '"lab_*" = { low'), section]
    assert main(["plan", str(write_job(tmp_path, kind, *limited))]) == 2
    assert "[features] has limits and a pattern" in capsys.readouterr().err


def test_no_key_that_must_be_there_is_left_to_an_editor_alone():
    """A job whose one required key is missing is refused by the check and by the schema alike."""
    for kind in JOB_TYPES.values():
        job = without_comments(kind.JOB_TYPE)
        for place, table in keys_of(kind.description):
            if place not in job:
                continue
            for key in table.keys:
                if key.default is REQUIRED:
                    less = {name: value for name, value in job[place].items() if name != key.name}
                    assert not accepts(schema([kind]), job | {place: less})
                    with pytest.raises(ValueError, match=f"lacks the key '{key.name}'"):
                        kind.description.read((), job | {place: less})


def test_the_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("dpfast 0.")


@pytest.mark.parametrize(
    "value", [["1", "2"], [1.0, "2"], [[1.0], ["2"]], [True], [[1.0, 2.0], [3.0]], [[1.0], 2.0], [[1.0], [[2.0]]]]
)
def test_arrays_hold_numbers_alone_in_rows_of_one_length(value):
    with pytest.raises(TypeError, match=r"\[a\] b must be a list of numbers, or of lists of them, all of one length"):
        ARRAY.taken(("a", "b"), value)
    assert ARRAY.taken(("a", "b"), [[1, 2.5]]).tolist() == [[1.0, 2.5]]
