"""Documents: models, ledgers, records of releases and job files, their text or their structure changed."""

import copy
import itertools
import json
import math
import sqlite3
from contextlib import suppress

import ledger_processes
import numpy as np

from dpfast import Ledger, MultiOutcomeRidge, PolicyEvaluation, Privacy, Release
from dpfast._documents import _OPENING, _digest, array_from_lists, read_document, write_document
from dpfast.jobs import Job, outputs
from dpfast.jobs.job_types import kinds, template
from dpfast.ledger.file import LedgerFile
from fuzz_targets import Draw, target
from fuzz_targets.files import new_path

X = np.linspace(0.0, 0.5, 30).reshape(10, 3)
BOUNDS = {"bound_x": 1.0, "bound_y": 1.0}
JOB = """
[input]
path = "table.csv"
[people]
id = "patient"
max_rows = 3
[features]
age = { low = 0, high = 100, missing = 50 }
smoker = "boolean"
site = { levels = ["Bern", "Basel"], undeclared = "zeros" }
"lab_*" = "number"
[outcomes]
days = "number"
[estimator]
kind = "multi_outcome_ridge"
bound_y = 9.0
bound_x = 3.5
fit_intercept = true
random_state = 7
[privacy]
epsilon = 1.0
delta = 1e-6
ledger = { path = "ledger.json", epsilon = 2, delta = 1e-5 }
[output]
folder = "fit"
"""
#: Jobs of every kind too, as their templates have them.
JOBS = (JOB, *map(template, kinds().values()))
TABLE = "patient,age,smoker,site,days,lab_1\n1,50,1,Bern,3.5,1\n1,60,0,Basel,2,2\n"


def hostile(draw):
    """A value that JSON can hold and hardly anything expects."""
    return copy.deepcopy(
        draw.choice(
            (None, True, 0, -1, 1 << 64, 10**400, 0.5, 1e308, math.inf, math.nan, "", "refuse", "0", "f8",
             "<U4000000000", "M8[s]", "O", "i1", "\ud800", "\0", [], [[]], [0] * 70, [1 << 62, 1 << 62], [1.0, [2.0]],
             {}, {"float": "inf"}, {"array": {"dtype": "<f8", "shape": [10**9, 10**9], "values": []}}, {"tuple": {}},
             {"dict": []},
             {"release": 3}, {"privacy": [1]}, {"object": {"type": "L2Ball", "arguments": {"radius": -1}}})
        )
    )  # fmt: skip


def places(value):
    """Every container in a nest of them, with the key of each member."""
    if isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from places(member)


def restructured(draw, content):
    """Content with some members replaced, exchanged, removed, nested or added."""
    changed = copy.deepcopy(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        found = list(itertools.islice(places(changed), 5000))
        if not found:
            return changed
        container, key = draw.choice(found)
        match draw.integer(0, 5):
            case 0:
                del container[key]
            case 1:
                other, place = draw.choice(found)
                container[key] = copy.deepcopy(other[place]) if place in range(len(other)) or place in other else None
            case 2:
                for _ in range(draw.choice((1, 3, 200))):
                    container[key] = [container[key]]
            case 3 if isinstance(container, dict):
                container[draw.choice(("x", "", "coef_", "__class__", "fit", "sha256", "float"))] = hostile(draw)
            case _:
                container[key] = hostile(draw)
    return changed


def write_text(draw, path, content):
    """Write a document whose text is damaged, but not its checksum."""
    write_document(str(path), "kind", 1, {}, temporary=f"{path}.tmp")
    text = json.dumps(content)[1:].encode()
    match draw.integer(0, 3):
        case 0:
            text = draw.mutated(text)
        case 1:
            text = b'"x": ' + b"[" * 5000
        case 2:
            text = b'"x": ' + b"9" * 10_000 + b", " + text
    rest = b'", ' + text
    path.write_bytes(_OPENING + _digest(rest) + rest)


MODELS = [
    MultiOutcomeRidge(1.0, 1e-6, **BOUNDS, fit_intercept=True, random_state=0).fit(X, X[:, :2]),
    MultiOutcomeRidge(
        1.0, bound_x=None, bound_y=1.0, box_x=(0.0, np.full(3, 0.5)), random_state=0, fit_intercept=False
    ).fit(X, X[:, 0]),
]


def contents_of_models():
    for model in MODELS:
        path = new_path(".json")
        model.save(path)
        yield read_document(str(path), "dpfast model", 1)


MODEL_CONTENTS = list(contents_of_models())
RELEASES = [release.to_dict() for model in MODELS for release in model.releases_]


@target("_documents", accepts=(ValueError, OSError))
def read_documents(draw: Draw) -> None:
    path = new_path(".json")
    content = {"kind": "kind", "version": 1, "a": [0.1, {"float": "inf"}, {"b": None}]}
    write_text(draw, path, restructured(draw, content))
    if draw.flag(0.1):
        path.write_bytes(draw.mutated(path.read_bytes()))
    read_document(str(path), "kind", 1)


@target("_documents", accepts=(ValueError,))
def arrays_of_lists(draw: Draw) -> None:
    dtype = draw.choice(("<f8", "<i8", "|b1", "<U3", "|O", "<M8[D]", "|u1", "<f4", "<c8", "|V8", "f8,f8", "<U5000"))
    shape = [draw.choice((0, 1, 2, 3, 10**9, 10**30)) for _ in range(draw.choice((0, 1, 2, 2, 70)))]
    scalar = draw.choice((0.5, 1, -1, True, "abcd", 1 << 70, None))
    lists = [[scalar] * 2] * 2 if draw.flag() else scalar
    arguments = restructured(draw, {"lists": lists, "dtype": dtype, "shape": draw.choice((shape, [2, 2], []))})
    array_from_lists("values", arguments.get("lists"), arguments.get("dtype"), arguments.get("shape"))


@target("estimator.persistence", "ledger.entries", "_documents", accepts=(ValueError, OSError))
def load_models(draw: Draw) -> None:
    path = new_path(".json")
    content = restructured(draw, draw.choice(MODEL_CONTENTS))
    if draw.flag(0.1):
        write_text(draw, path, {"kind": "dpfast model", "version": 1} | content)
    else:
        write_document(str(path), "dpfast model", 1, content, temporary=f"{path}.tmp")
    draw.choice((MultiOutcomeRidge, MultiOutcomeRidge, PolicyEvaluation)).load(path)


@target("ledger.entries", accepts=(ValueError, TypeError))
def read_releases(draw: Draw) -> None:
    Release.from_dict(restructured(draw, draw.choice(RELEASES)))


def ledger_content():
    path = new_path(".json")
    ledger = Ledger(Privacy(5.0, 1e-5), path)
    for model in MODELS[:1]:
        model.set_params(ledger=ledger).fit(X, X[:, :2]).set_params(ledger=None)
    return path.read_bytes(), *ledger_processes.rows(path)


LEDGER, TOTALS, ENTRIES = ledger_content()


@target("ledger.file", accepts=(ValueError, OSError))
def open_ledgers(draw: Draw) -> None:
    path = new_path(".json")
    path.write_bytes(draw.mutated(LEDGER) if draw.flag(0.1) else LEDGER)
    with suppress(sqlite3.Error):
        totals, entries = restructured(draw, TOTALS), {key: restructured(draw, one) for key, one in ENTRIES.items()}
        ledger_processes.rewrite(path, totals, entries)
    LedgerFile(str(path), Privacy(5.0, 1e-5)).read()


@target("jobs.job_types", "jobs.rows", "jobs.parameters", "io.sources", accepts=(ValueError, TypeError, OSError))
def read_jobs(draw: Draw) -> None:
    path = new_path(".toml")
    folder = path.parent
    if not (folder / "table.csv").exists():
        (folder / "table.csv").write_text(TABLE)
    lines = draw.choice(JOBS).splitlines()
    match draw.integer(0, 4):
        case 0:
            del lines[draw.integer(0, len(lines) - 1)]
        case 1:
            lines.insert(draw.integer(0, len(lines)), draw.choice(lines))
        case 2 | 3:
            row = draw.choice([i for i, line in enumerate(lines) if "=" in line])
            value = draw.choice(
                ("nan", "-1", "1e400", "9" * 5000, "[" * 3000, '"\\u0000"', "true", "1979-05-27", '"a*"', "{ a = 1 }",
                 "[]", "''", "2", "[[1]]", "0x7fffffffffffffffffff", '"/"', '"table.npy"', '"[a"', '"**"',
                 "{ kind = [] }", "{ levels = [1.5] }", '{ missing = "x" }', "{ low = [], high = 1 }",
                 '{ kind = "category", levels = 3 }')
            )  # fmt: skip
            lines[row] = f"{lines[row].partition('=')[0]} = {value}"
    data = "\n".join(lines).encode()
    path.write_bytes(draw.mutated(data) if draw.flag(0.3) else data)
    Job.read(path)


@target("jobs.outputs")
def read_records(draw: Draw) -> None:
    path = new_path(".json")
    text = json.dumps(restructured(draw, {"job_sha256": "ab", "releases": []})).encode()
    path.write_bytes(draw.choice((text, draw.mutated(text), b"[" * 5000, b"9" * 5000)))
    path.replace(path.with_name(outputs.RECORD))
    outputs._listed(path.parent)
