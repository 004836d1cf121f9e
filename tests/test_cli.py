"""The command line as a user runs it."""

import csv
import json
import math
import re
import subprocess
import sys
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from attacks import ATTACKS
from catalogue import FAMILIES

from dpfast import UtilityWarning, audit, demo, noise, registry
from dpfast.cli import main


def test_plan_speaks_from_public_numbers(capsys):
    sizes = ["--rows", "100000", "--features", "10", "--bound-x", "1", "--bound-y", "1", "--delta", "1e-6"]
    assert main(["plan", *sizes]) == 0
    assert "100,000 people" in capsys.readouterr().out


#: Flags of public numbers, beside --delta.
PLANS = {name: flags for family in FAMILIES.values() for name, flags in family.PLANS.items()}


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_every_estimator_plans_from_the_arguments_of_its_plan(name, capsys):
    flags = PLANS[name].split()
    assert main(["plan", "--estimator", name, *flags, "--delta", "1e-6"]) == 0
    given = {}
    for flag, text in zip(flags[::2], flags[1::2], strict=True):
        key = flag[2:].replace("-", "_")
        key = {"rows": "n", "features": "n_features", "subsample": "n_subsample"}.get(key, key)
        given[key] = text if text.isidentifier() else json.loads(f"[{text}]") if "," in text else json.loads(text)
    expected = registry.estimator(name).plan(**given, epsilon=1.0, delta=1e-6)
    assert capsys.readouterr().out == f"{expected}\n"


def test_a_bad_argument_is_one_line_and_exit_code_2(capsys):
    sizes = ["--rows", "0", "--features", "10", "--bound-x", "1", "--bound-y", "1", "--delta", "1e-6"]
    assert main(["plan", *sizes]) == 2
    message = capsys.readouterr().err
    assert message.startswith("dpfast plan: n must be")
    assert message.count("\n") == 1
    assert main(["audit", "--runs", "3"]) == 2
    assert main(["plan", *sizes[:-1], "2"]) == 2


@pytest.mark.parametrize("arguments", [["new", "--schema"], ["new"]])
def test_a_reader_that_has_enough_is_no_error(arguments):
    """Long texts fail while they are written, short ones at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dpfast", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


def test_audit_passes(capsys, monkeypatch):
    monkeypatch.setattr(audit, "all_attacks", lambda privacy: ATTACKS)
    # All bounds hold at once with 99.9% confidence, and so do all judgements of forms of noise.
    assert main(["audit", "--runs", "100", "--mechanism", "moments of rows, L2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mechanism", "epsilon", "delta", "found", "share", "runs", "verdict"]
    assert all(float(line.split()[-4]) <= 1.0 and line.endswith(" holds") for line in lines[1:3])
    assert main(["audit", "--runs", "100", "--json", "--mechanism", "DP-LSW, sound"]) == 0
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["found"] <= finding["epsilon"] == 1.0
    assert finding["attainable"] is None
    assert main(["audit", "--mechanism", "no such thing"]) == 2


def test_an_audit_that_finds_too_much_fails(capsys, monkeypatch):
    monkeypatch.setattr(audit, "all_attacks", lambda privacy: ATTACKS)
    draw = noise.gaussian
    monkeypatch.setattr(noise, "gaussian", lambda scale, *rest, **options: draw(scale / 2.0, *rest, **options))
    assert main(["audit", "--runs", "200", "--mechanism", "moments of rows, Gaussian, replace_one"]) == 1
    assert "moments of rows, Gaussian, replace_one" in capsys.readouterr().err


def test_without_a_command_all_of_them_are_explained(capsys):
    assert main([]) == 2
    shown = capsys.readouterr().err
    for word in ("demo", "new", "check", "plan", "fit", "ledger", "audit", "Exit codes"):
        assert word in shown


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_help_of_a_plan_says_each_argument_in_a_sentence_of_plain_text(name, capsys):
    with pytest.raises(SystemExit):
        main(["plan", "--estimator", name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert not re.search(r"`|\]_|\*\*\w+\*\*", shown)
    assert max(map(len, shown.split(" VALUE ")[1:])) < 400


@pytest.mark.parametrize("arguments", [["fit"], ["plan"]])
def test_usage_errors_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: dpfast" in capsys.readouterr().err


PICTURES = {"accuracy.png", "sparse-regression.png", "synthetic-control.png", "policy-evaluation.png"}


@pytest.mark.parametrize(("every", "said"), [(demo.REPEATS, ""), (2, "noise"), (1, "noise")])
def test_the_demo_says_what_half_of_the_fits_warn_of(every, said):
    """One fit of ten may say by chance what is not so."""
    numbers = iter(range(1 + demo.REPEATS))

    def fit(epsilon, delta):
        if (number := next(numbers)) and number % every == 0:
            warnings.warn("noise", UtilityWarning, stacklevel=1)
        return 0.0

    line, _ = demo.Comparison("a table", 5, "value", fit, float).line(1.0, 0.0)
    assert line.caution == said


def test_the_demo_shows_what_the_values_of_its_fits_are_on_average(monkeypatch):
    monkeypatch.setattr(demo, "REPEATS", 4)
    values = iter([5.0, 4.0, 4.0, 6.0, 14.0])
    line, models = demo.Comparison("a table", 5, "value", lambda *_: next(values), float).line(1.0, 0.0)
    assert (line.no_privacy, line.estimate, models) == (5.0, 7.0, [4.0, 4.0, 6.0, 14.0])
    assert line.spread == pytest.approx(math.sqrt((9.0 + 9.0 + 1.0 + 49.0) / 4.0))
    assert line.error == pytest.approx(math.hypot(line.estimate - line.no_privacy, line.spread))


def test_tables_of_the_demo_are_in_units_of_their_limits():
    """Images have white and black pixels; of tumours and patients the limits are round, and none is far off."""
    pixels, _ = demo.images()
    assert (pixels.min(), pixels.max()) == (0.0, 1.0)
    measured, _ = demo.measurements()
    assert measured.min() >= 0.0
    assert ((measured.max(axis=0) > 0.7) & (measured.max(axis=0) < 1.1)).all()
    rows, score = demo.patients()
    assert (rows.min(axis=0) < -0.7).all()
    assert (rows.max(axis=0) > 0.4).all()
    assert (np.abs(rows) <= 1.0).all()
    assert np.abs(score).max() <= demo._SCORE_REACH <= 1.2 * np.abs(score).max()


def test_the_demo_compares_means_over_periods():
    """A prediction that is higher by one in a single period of n is higher by 1/n in what is compared."""

    class Predicted:
        def __init__(self, values):
            self.predict = lambda target: values

    for compared, n in ((demo.without_effect(), 10), (demo.tobacco_tax(), 12)):
        values = np.zeros(n)
        level = compared.value(Predicted(values))
        assert abs(compared.value(Predicted(values + np.eye(n)[3])) - level) == pytest.approx(1.0 / n)


def test_the_demo_shows_every_estimator_beside_its_fit_without_privacy(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "REPEATS", 1)
    monkeypatch.setattr(demo, "EPSILONS", (1.0, 4.0))
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr().out
    with (tmp_path / "demo" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    predicting = set(registry.ESTIMATORS) - {"PrivateStandardScaler"}
    assert {row["estimator"] for row in rows} == predicting
    assert all(name in printed for name in predicting)
    pictures = PICTURES if find_spec("gymnasium") else PICTURES - {"policy-evaluation.png"}
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {"results.csv", *pictures}
    assert all(f"wrote {tmp_path / 'demo' / name}" in printed for name in ("results.csv", *pictures))
    assert all((tmp_path / "demo" / name).stat().st_size > 10_000 for name in pictures)
    found = {row["data"]: row for row in rows}
    assert float(found["digits"]["no_privacy"]) > 0.9
    assert float(found["made up, 3 of 60"]["error"]) < 0.01
    assert float(found["made-up donors"]["error"]) < 0.1
    assert float(found["tobacco tax"]["no_privacy"]) == pytest.approx(-15.4, abs=0.05)
    assert "mostly noise" in found["tobacco tax"]["caution"]
    assert max(map(len, printed.partition("\n[1] ")[0].splitlines())) <= 120


def test_the_demo_goes_without_what_is_not_installed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "REPEATS", 1)
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert main(["demo", "--output", str(tmp_path)]) == 0
    assert "No pictures: matplotlib is not installed (pip install 'dpfast[plot]')." in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]


def test_a_command_that_has_no_debug_names_none(monkeypatch, capsys):
    def fail(*_, **__):
        raise KeyError("a person's name")

    monkeypatch.setattr("dpfast.audit.report.run", fail)
    assert main(["audit"]) == 1
    assert capsys.readouterr().err == "dpfast audit: unexpected KeyError, a defect of dpfast: please report it\n"
