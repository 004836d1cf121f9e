"""The command line as a user runs it."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from dpfast import Privacy
from dpfast.audit import all_attacks
from dpfast.cli import main


def test_plan_speaks_from_public_numbers(capsys):
    sizes = ["--rows", "100000", "--features", "10", "--bound-x", "1", "--bound-y", "1", "--delta", "1e-6"]
    assert main(["plan", *sizes]) == 0
    assert "100,000 people" in capsys.readouterr().out


def test_a_bad_argument_is_one_line_and_exit_code_2(capsys):
    sizes = ["--rows", "0", "--features", "10", "--bound-x", "1", "--bound-y", "1", "--delta", "1e-6"]
    assert main(["plan", *sizes]) == 2
    message = capsys.readouterr().err
    assert message.startswith("dpfast plan: n must be")
    assert message.count("\n") == 1
    assert main(["audit", "--runs", "3"]) == 2
    assert main(["plan", *sizes[:-1], "2"]) == 2


def test_audit_passes(capsys):
    # Each bound holds with 99.9% confidence: a dozen or so of them fail once in eighty runs at most, were all tight.
    attacks = list(all_attacks(Privacy(1.0, 1e-5)))
    assert main(["audit", "--runs", "400"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(attacks)
    assert all(float(line.split()[-2]) <= 1.0 for line in lines[1:-1])


def test_an_audit_that_finds_too_much_fails(capsys, monkeypatch):
    from dpfast import audit

    whole = audit.all_attacks
    monkeypatch.setattr(audit, "all_attacks", lambda privacy, weaken=1.0: whole(privacy, 6.0))
    assert main(["audit", "--runs", "400"]) == 1
    assert "more privacy than it claims" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fit"], ["plan"]])
def test_usage_errors_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: dpfast" in capsys.readouterr().err


def test_demo_runs_and_draws(tmp_path):
    command = [sys.executable, "-m", "dpfast", "demo", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    plots = ["dpfast-demo.png", "dpfast-demo-synthetic-control.png"]
    games = ["FrozenLake 8x8", "CliffWalking", "Taxi"]
    for plot in [*plots, "dpfast-demo-policy-evaluation.png"] if find_spec("gymnasium") else plots:
        assert (tmp_path / plot).stat().st_size > 10_000
    for words in ("Handwritten digits", "Breast cancer", "no privacy", "Privacy report", "epsilon 15.5"):
        assert words in done.stdout
    for words in ("10,000 donors", "Error relative to the signal", "exact  -15.4 packs", "mostly noise", "Plan: "):
        assert words in done.stdout
    for words in ["chain, lsw", *(games if find_spec("gymnasium") else [])]:
        assert words in done.stdout
    (percent,) = re.findall(r"signal: ([0-9.]+)% at epsilon = 1", done.stdout)
    assert float(percent) < 5.0
