"""The papers' printed algorithms can be left out: nothing else of the package needs them."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dpfast
from dpfast import registry
from dpfast.releases import printed

TESTS = Path(__file__).parents[1]

FITS = """
import json, sys, warnings
sys.path[:0] = [{package!r}, *{paths!r}]
warnings.simplefilter("ignore")
import dpfast
from catalogue import FITS, people

assert dpfast.__file__.startswith({package!r})
found = {{}}
for fit in FITS.values():
    family = type(fit.estimator).__module__.split(".")[1]
    if fit.estimator.calibration == "sound":
        fit(*people(120))
    for delta in (fit.estimator.delta, 0.0):
        try:
            fit(*people(120), calibration="paper", delta=delta)
        except (ImportError, ValueError) as refusal:
            found.setdefault(family, []).append([type(refusal).__name__, str(refusal)])
print(json.dumps(found))
"""


def copy_without_papers(target):
    """Copy the package, its compiled modules too, which an editable install keeps elsewhere."""
    source = Path(dpfast.__file__).parent
    shutil.copytree(source, target / "dpfast", ignore=shutil.ignore_patterns("papers", "__pycache__"))
    for stub in (source / "kernels").glob("*.pyi"):
        compiled = Path(find_spec(f"dpfast.kernels.{stub.stem}").origin)
        shutil.copy(compiled, target / "dpfast" / "kernels" / compiled.name)


@pytest.mark.slow
def test_every_estimator_fits_without_the_papers_and_says_what_is_missing(tmp_path):
    copy_without_papers(tmp_path)
    code = FITS.format(package=str(tmp_path), paths=[str(TESTS), *filter(None, sys.path)])
    # -S: an editable install would find its own modules first.
    run = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    refused = json.loads(run.stdout)
    missing = {
        family: [message for kind, message in refusals if kind == "ImportError"] for family, refusals in refused.items()
    }
    assert set(missing) == set(registry.FAMILIES)
    for family, messages in missing.items():
        # A family of no paper takes no other calibration than the sound one.
        assert messages or all("calibration must be 'sound'" in message for _, message in refused[family])
        assert all("dpfast.papers" in message and "calibration must be 'sound'" in message for message in messages)


def test_a_printed_calibration_is_found_by_name():
    assert printed("sparse_regression", "printed_score_rate")(1.0, 3) == pytest.approx(1.0 / 72.0)
    with pytest.raises(AttributeError, match="nonsense"):
        printed("primo", "nonsense")
