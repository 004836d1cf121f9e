"""The command line as a user runs it."""

import subprocess
import sys

import pytest

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
    # Eight bounds at 99.9% confidence each: false-reject rate 0.8% at most.
    assert main(["audit", "--runs", "400"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
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
    assert (tmp_path / "dpfast-demo.png").stat().st_size > 10_000
    for words in ("Handwritten digits", "Breast cancer", "no privacy", "Privacy report", "epsilon 15.5"):
        assert words in done.stdout
