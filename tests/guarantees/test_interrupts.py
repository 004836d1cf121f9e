"""Whatever is interrupted leaves what was before, or what comes after; and other threads see nothing else."""

from dataclasses import replace

import pytest
from catalogue import FITS, SOME
from interrupts import accumulators, fits, jobs, ledgers

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
    # An interrupt right after a file was opened leaves closing it to the collector.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

# A million bytecodes, most of them to calibrate.
SLOW = [name for name, fit in FITS.items() if getattr(fit.estimator, "n_subsample", None)]


def interrupted(scenarios, n_final, n_before, left_out=()):
    for scenario in scenarios:
        if not any(name in scenario.name for name in left_out):
            states = scenario.states()  # what is computed once, and kept, is so before bytecodes are counted
            assert scenario.try_at(scenario.places(n_final, n_before), states) > 0
            assert scenario.differences == [], scenario.name


def test_an_interrupted_update_or_merge_has_added_nothing():
    interrupted(accumulators(), 60, 30)


def test_an_interrupted_ledger_in_memory_has_the_state_before_or_after(tmp_path):
    # What comes earlier adds up, and has changed nothing: all of it is for the slow tests.
    interrupted(ledgers(tmp_path), 75, 25, left_out=("file",))


def test_an_interrupted_ledger_file_has_the_state_before_or_after(tmp_path):
    interrupted(ledgers(tmp_path), 8, 12, left_out=("memory",))


@pytest.mark.slow
def test_an_interrupted_fit_is_as_it_was_or_fitted_and_paid_for(tmp_path):
    interrupted(fits(tmp_path, [name for name in FITS if name not in SLOW]), 2, 1, left_out=("again",))


@pytest.mark.parametrize("names", [SOME[:2], pytest.param(SOME[2:], marks=pytest.mark.slow)])
def test_an_interrupted_fit_over_an_earlier_one_mixes_no_attributes(names, tmp_path):
    scenarios = [replace(one, function="_keep", differences=[]) for one in fits(tmp_path, names)]
    interrupted(scenarios, 10**6, 0, left_out=("file", "memory:"))


@pytest.mark.slow
def test_an_interrupted_job_has_written_everything_or_nothing(tmp_path):
    interrupted(jobs(tmp_path), 2, 1)


@pytest.mark.slow
def test_no_bytecode_splits_an_update_or_a_merge():
    interrupted(accumulators(), 10**6, 0)


@pytest.mark.slow
def test_no_bytecode_splits_a_step_of_a_ledger(tmp_path):
    interrupted(ledgers(tmp_path), 10**6, 0, left_out=("file",))
    interrupted(ledgers(tmp_path), 60, 40, left_out=("memory",))


@pytest.mark.slow
def test_few_bytecodes_split_a_fit(tmp_path):
    # Minutes for some two hundred fits; `python tests/interrupts.py` tries as many places of each as one asks for.
    interrupted(fits(tmp_path, [name for name in FITS if name not in SLOW]), 3, 2)
    other = tmp_path / "other ledgers"
    other.mkdir()
    interrupted(fits(other, SLOW), 1, 1)


@pytest.mark.slow
def test_few_bytecodes_split_a_job(tmp_path):
    interrupted(jobs(tmp_path), 20, 10)
