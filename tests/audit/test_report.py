"""What ``dpfast audit`` prints and writes."""

import json
import math
import sys
from dataclasses import replace

import pytest
from attacks import ATTACKS

from dpfast import audit
from dpfast.audit import one_claim_each, report
from dpfast.privacy import Privacy


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Attacks that are set up already, and few of them."""
    ours = [attack for attack in ATTACKS if attack.name.startswith(("moments of rows, L2", "DP-LSW, sound"))]
    known = list(audit.broken_attacks())[:2]
    # A user's report errs in one run of a thousand.
    monkeypatch.setattr(report, "_CONFIDENCE", 1.0 - 1e-6)
    monkeypatch.setattr(audit, "all_attacks", lambda privacy: ours)
    monkeypatch.setattr(audit, "broken_attacks", lambda: known)
    return ours, known


def test_by_default_every_mechanism_under_one_claim_and_all_that_is_broken(capsys, few):
    findings = report.run(Privacy(1.0, 1e-5))
    out = capsys.readouterr().out
    assert [finding.name for finding in findings] == [attack.name for attack in (*one_claim_each(few[0]), *few[1])]
    assert len(findings) < len(few[0]) + 2
    assert all(finding.expected for finding in findings)
    assert "2 of 2 known to be broken are caught" in out
    assert few[1][0].defect in out
    assert "--thorough" in out


def test_the_document_says_all_that_the_table_does(tmp_path, capsys, few):
    path = tmp_path / "audit.json"
    findings = report.run(Privacy(1.0, 1e-5), runs=100, thorough=True, document=path)
    document = json.loads(path.read_text())
    assert document["schema"] == "dpfast-audit/1"
    assert document["complete"] is document["expected"] is True
    assert [one["mechanism"] for one in document["findings"]] == [finding.name for finding in findings]
    assert [one["broken"] for one in document["findings"]] == [False] * len(few[0]) + [True] * 2
    said = report.__doc__
    assert all(f"``{name}``" in said for name in [*document, *document["findings"][0]])
    assert "--thorough" not in capsys.readouterr().out


def test_a_document_is_printed_in_the_place_of_the_table(capsys):
    report.run(Privacy(1.0, 1e-5), document=report.Path("-"), mechanism="DP-LSW, sound")
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] is False
    assert [one["mechanism"] for one in document["findings"]] == ["DP-LSW, sound, replace_one"]


def test_a_broken_one_that_is_missed_is_named(capsys, monkeypatch, few):
    # A claim that randomised outputs keep: what was known to be broken is not.
    weaker = [replace(few[1][0], privacy=Privacy(50.0))]
    monkeypatch.setattr(audit, "broken_attacks", lambda: weaker)
    findings = report.run(Privacy(1.0, 1e-5), mechanism="Laplace noise in doubles")
    assert [finding.expected for finding in findings] == [False]
    assert "not caught: Laplace noise in doubles" in capsys.readouterr().err


def test_arguments_are_answered_before_anything_is_run(tmp_path):
    for wrong in ({"runs": 3}, {"mechanism": "no such thing"}, {"document": tmp_path / "nowhere" / "audit.json"}):
        with pytest.raises(ValueError, match=f"--{'json' if 'document' in wrong else next(iter(wrong))}"):
            report.run(Privacy(1.0, 1e-5), **wrong)
    for claim in (Privacy(1.0), Privacy(math.inf, 1e-5)):
        with pytest.raises(ValueError, match="--epsilon must be finite and --delta above 0"):
            report.run(claim)


def test_a_terminal_is_shown_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    report.run(Privacy(1.0, 1e-5), mechanism="sparse vector")
    said = capsys.readouterr()
    assert "attacks:" in said.err
    assert "broken, as is known" in said.out


def test_only_what_names_tell_of_claims_is_left_out_of_what_tells_mechanisms_apart():
    names = [attack.name for attack in one_claim_each(ATTACKS)]
    assert "DP-LSW, paper, replace_one" in names
    assert "moments of rows, Gaussian, replace_one" in names
    assert "moments of rows, L2-Laplace, replace_one" not in names
    # What exists under the other relation alone is there too.
    assert "coefficient, as printed, Gaussian objective, add_remove" in names
    assert sum(name.startswith("support by scores") and "printed" not in name for name in names) == 1
