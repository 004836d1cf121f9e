"""What the package as a whole gives a family that is in its registry; run by ``tests/test_new_family.py`` on a copy."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpfast
from dpfast import BudgetExceeded, Ledger, MeanOfRows, Privacy, registry
from dpfast.audit import all_attacks
from dpfast.cli import main

ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 3))


def test_it_is_in_the_registry():
    assert registry.ESTIMATORS["MeanOfRows"] == "mean_of_rows"
    assert "MeanOfRows" in dpfast.__all__


def test_the_audit_finds_its_attacks_and_less_than_it_claims():
    attacks = [attack for attack in all_attacks(Privacy(1.0, 1e-5)) if attack.name.startswith("MeanOfRows")]
    assert [attack.name.split(", ")[1] for attack in attacks] == ["Gaussian", "L2-Laplace"]
    for attack in attacks:
        finding = attack.run(300)
        assert not finding.broken
        assert finding.epsilon > 0.6


def test_a_file_gives_it_back(tmp_path):
    fitted = MeanOfRows(1.0, 1e-6, bound=1.0).fit(ROWS)
    fitted.save(tmp_path / "mean.json")
    again = MeanOfRows.load(tmp_path / "mean.json")
    assert again.mean_.tobytes() == fitted.mean_.tobytes()
    assert again.releases_[0].privacy == fitted.privacy_spent_


def test_a_ledger_pays_for_it_once():
    ledger = Ledger(Privacy(1.5, 1e-5))
    MeanOfRows(1.0, 1e-6, bound=1.0, ledger=ledger).fit(ROWS)
    assert [one.name for one in ledger.releases] == ["MeanOfRows: sum of rows"]
    with pytest.raises(BudgetExceeded):
        MeanOfRows(1.0, 1e-6, bound=1.0, ledger=ledger).fit(ROWS)


def test_what_it_may_not_take_is_refused():
    for wrong in ({"bound": 0.0}, {"bound": 1.0, "adjacency": "add_remove"}, {"bound": 1.0, "calibration": "paper"}):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            MeanOfRows(1.0, 1e-6, **wrong).fit(ROWS)


def test_the_command_line_plans_it(capsys):
    sizes = ["--estimator", "MeanOfRows", "--n", "1000", "--n-features", "3", "--bound", "1"]
    assert main(["plan", *sizes, "--delta", "1e-6"]) == 0
    assert "1,000 people" in capsys.readouterr().out


def test_it_says_of_itself_what_every_estimator_says():
    assert "As for every estimator" not in MeanOfRows.__doc__
    assert "operating" in MeanOfRows.__doc__


def test_the_import_rule_holds():
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ["--config", str(Path(__file__).parents[2] / "pyproject.toml"), "--no-cache"]
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
