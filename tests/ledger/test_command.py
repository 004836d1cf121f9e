"""``dpfast ledger``: what is shown, and what becomes of the budget that ended processes hold."""

import json
import os
import shlex

import ledger_processes as processes
import numpy as np
import pytest

from dpfast import Ledger, Privacy, Release
from dpfast.cli import main

COST = Privacy(0.5, 1e-7)
BUDGET = Privacy(2.0, 1e-5)


@pytest.fixture
def path(tmp_path):
    """A ledger that paid for one release, and holds two reservations."""
    ledger = Ledger(BUDGET, tmp_path / "people's.json")
    ledger.spend(Release("a mean", "Gaussian", COST, {"mean": np.array([0.123456])}, {"mean": 0.1}))
    for _ in range(2):
        ledger.reserve(COST)
    return tmp_path / "people's.json"


@pytest.fixture
def _ended(monkeypatch):
    monkeypatch.setattr("dpfast.ledger.entries.Process.ended", lambda self: True)


def held(path):
    return [one.number for one in Ledger(BUDGET, path).reservations]


def test_what_was_spent_and_who_holds_what_is_shown(path, capsys):
    ledger = Ledger(BUDGET, path)
    assert main(["ledger", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(ledger.report())
    assert f"held [2]  {COST}, by process {os.getpid()} on " in said
    assert "has ended" not in said
    assert main(["ledger", str(path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["spent"] == {"epsilon": 0.5, "delta": 1e-7, "adjacency": "replace_one"}
    assert content["remaining"]["epsilon"] == ledger.remaining.epsilon
    assert content["composition"] == "gaussian"
    assert content["spending"] == [content["spent"]]
    assert [one["number"] for one in content["reservations"]] == [2, 3]
    assert not any(one["ended"] for one in content["reservations"])
    assert content["releases"][0]["name"] == "a mean"
    assert "values" not in content["releases"][0]
    assert content["limits"] == ledger._limits.to_dict()
    assert content["promised"] == content["budget"]
    # All that is in the file, for whoever has no other program for it.
    entries = processes.rows(path)[1]
    assert content["entries"] == [{"number": number} | entries[number] for number in (1, 2, 3)]


@pytest.mark.parametrize(("settle", "spent"), [("--forfeit", 1.5), ("--give-back", 0.5)])
@pytest.mark.usefixtures("_ended")
def test_what_ended_processes_hold_is_settled_once_that_is_confirmed(settle, spent, path, capsys):
    assert main(["ledger", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"processes that have ended still hold budget ({COST}, since " in said
    assert f"'dpfast ledger {shlex.quote(str(path))}' shows it" in said
    assert main(["ledger", str(path), settle]) == 2
    assert "nothing was changed: --yes is needed to" in capsys.readouterr().err
    assert held(path) == [2, 3]
    assert main(["ledger", str(path), settle, "--yes"]) == 0
    assert held(path) == []
    ledger = Ledger(BUDGET, path)
    assert sum(cost.epsilon for cost in counted(ledger)) == spent
    assert main(["ledger", str(path), settle, "--yes"]) == 0


@pytest.mark.usefixtures("_ended")
def test_all_or_nothing_is_given_back_where_noise_was_drawn_for_one(path, capsys):
    Ledger(BUDGET, path).reservations[1].draw()
    assert main(["ledger", str(path), "--give-back", "--yes"]) == 2
    assert "nothing was changed: noise was drawn for what can only be forfeited: held [3]" in capsys.readouterr().err
    assert held(path) == [2, 3]
    assert main(["ledger", str(path), "--give-back", "--reservation", "2", "--yes"]) == 0
    assert main(["ledger", str(path), "--forfeit", "--yes"]) == 0
    assert held(path) == []


def counted(ledger):
    return [entry.privacy for entry in ledger._storage.read().values()]


def test_running_processes_keep_what_they_hold(path):
    assert main(["ledger", str(path), "--give-back", "--yes"]) == 0
    assert held(path) == [2, 3]


def test_one_of_another_machine_is_settled_by_its_number(path, capsys):
    assert main(["ledger", str(path), "--forfeit", "--reservation", "3", "--yes"]) == 0
    assert held(path) == [2]
    assert main(["ledger", str(path), "--forfeit", "--reservation", "3", "--yes"]) == 2
    assert "--reservation must be the number of one that is held, got 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json"], "If it is gone, restore it"),
        (["text.json"], "is not an intact dpfast ledger file"),
        (["people's.json", "--yes"], "go with --forfeit or --give-back"),
    ],
)
def test_what_is_no_ledger_is_left_alone(arguments, message, path, capsys):
    (path.parent / "text.json").write_text("{}")
    before = sorted(os.listdir(path.parent))
    assert main(["ledger", str(path.parent / arguments[0]), *arguments[1:]]) == 2
    assert message in capsys.readouterr().err
    assert sorted(os.listdir(path.parent)) == before
    assert (path.parent / "text.json").read_text() == "{}"


def test_a_ledger_is_opened_whatever_its_budget_is(path):
    assert Ledger.open(path).budget == BUDGET
    with pytest.raises(FileNotFoundError):
        Ledger.open(path.with_name("none"))
