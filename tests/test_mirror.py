"""Tests are found where their subject is: ``tests/io/test_sources.py`` for ``src/dpfast/io/sources.py``."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent
sys.path.append(str(TESTS.parent / "tools"))
from budget import code_of  # noqa: E402

SOURCE = TESTS.parent / "src" / "dpfast"
#: Pages, what holds for all families, plain twins, and what is run by other tests.
ELSEWHERE = {"docs", "guarantees", "reference", "fuzz_targets", "new_family", "data"}
#: Of the whole package, or of its tests and tools.
OF_ALL = {"budget", "catalogue", "check_speed", "fuzz", "mirror", "new_family", "package", "public_names", "weaken"}
LONG = 60
#: Files of longer code that have no tests of their name, and the tests that go through them.
TESTED_BY = {
    "_transaction.pyx": "guarantees/test_interrupts.py",
    "estimator/bounded_attacks.py": "audit/test_audit.py",
    "audit/__init__.py": "audit/test_audit.py",
    "convex_erm/classifier.py": "convex_erm/test_estimator.py",
    "convex_erm/regressor.py": "convex_erm/test_estimator.py",
    "estimator/linear.py": "plotting/test_estimates.py",
    "io/__init__.py": "test_package.py",
    "io/frames.py": "io/test_columns.py",
    "io/table.py": "io/test_blocks.py",
    "io/trajectory_sources.py": "io/test_trajectories.py",
    "jobs/inputs.py": "jobs/test_job_types.py",
    "jobs/parameters.py": "jobs/test_job_types_templates.py",
    "jobs/report.py": "jobs/test_outputs.py",
    "jobs/rows.py": "jobs/test_jobs.py",
    "jobs/run.py": "jobs/test_job_types_templates.py",
    "kernels/descent.pyx": "kernels/test_quadratic_step.py",
    "kernels/first_visits.pyx": "statistics/test_returns.py",
    "kernels/lane_gram.c": "kernels/test_gram.py",
    "kernels/people.pyx": "statistics/test_rows_gram_person_unit.py",
    "kernels/person_gram.c": "statistics/test_rows_gram_person_unit.py",
    "kernels/projections.pyx": "solvers/test_constraints.py",
    "kernels/row_map.c": "guarantees/test_maps_of_rows_alone.py",
    "kernels/row_maps.pyx": "guarantees/test_maps_of_rows_alone.py",
    "kernels/support_scores.c": "solvers/test_best_subset.py",
    "ledger/entries.py": "ledger/test_ledger.py",
    "multi_outcome/mechanism.py": "multi_outcome/test_estimator.py",
    "policy_evaluation/evaluation.py": "policy_evaluation/test_estimator.py",
    "privacy/__init__.py": "test_package.py",
    "privacy/guarantee.py": "ledger/test_ledger.py",
    "releases/people.py": "releases/test_staged_regression.py",
    "releases/staged_fit.py": "releases/test_staged_regression.py",
    "solvers/losses.py": "solvers/test_losses.py",
    "statistics/accumulator.py": "statistics/test_rows_gram.py",
    "synthetic_control/mechanism.py": "synthetic_control/test_estimator.py",
}
#: The same, of a name or a folder.
TESTED_ALIKE = {
    "attacks.py": "audit/test_audit.py",
    "job.py": "jobs/test_outputs_by_family.py",
    "demo.py": "test_cli.py",
}


def code_lines(path):
    return len(code_of(path.name, path.read_text("utf-8")))


def sources(folder):
    """Names of the files of a folder, and of the folder itself, as a test is named after them."""
    if not (SOURCE / folder).is_dir():
        return set()
    files = {path.stem.lstrip("_") for path in (SOURCE / folder).iterdir() if path.suffix in (".py", ".pyx", ".c")}
    return files | {Path(folder).name}


def mirrored():
    """Return what each test file is named after, or None: (test file, source)."""
    for path in sorted(TESTS.rglob("test_*.py")):
        place = path.relative_to(TESTS)
        name = place.stem.removeprefix("test_")
        if place.parts[0] in ELSEWHERE or (len(place.parts) == 1 and name in OF_ALL):
            continue
        fitting = [source for source in sources(place.parent) if name == source or name.startswith(source + "_")]
        yield place, place.parent / max(fitting, key=len) if fitting else None


def test_every_test_is_named_after_its_subject():
    assert [str(place) for place, source in mirrored() if source is None] == []


def test_every_long_file_has_a_test_or_says_who_tests_it():
    tested = {source for _, source in mirrored()}
    untested = []
    for path in sorted(SOURCE.rglob("*")):
        place = path.relative_to(SOURCE)
        if path.suffix not in (".py", ".pyx", ".c") or code_lines(path) <= LONG:
            continue
        named = place.with_name(path.stem.lstrip("_")) in tested
        if not named and str(place) not in TESTED_BY and not TESTED_ALIKE.keys() & {path.name, place.parts[0]}:
            untested.append(str(place))
    assert untested == []


def test_what_is_said_of_tests_is_there():
    assert [name for name in TESTED_BY if not (SOURCE / name).exists()] == []
    assert [name for name in (TESTED_BY | TESTED_ALIKE).values() if not (TESTS / name).exists()] == []
