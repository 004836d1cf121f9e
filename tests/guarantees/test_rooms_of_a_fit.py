"""How many of our files a small fit enters, and how many Python functions it calls: what a reader has to follow."""

import sys
from collections import Counter

import numpy as np
import pytest

import dpfast

ROWS = np.random.default_rng(0).uniform(-0.4, 0.4, (5_000, 5))
OUTCOMES = ROWS @ [0.5, -0.2, 0.1, 0.0, 0.3]
PANEL = np.random.default_rng(1).uniform(size=(50, 20))
EPISODES = [
    [(state, 0.5) for state in states] for states in np.random.default_rng(2).integers(0, 10, (200, 8)).tolist()
]
LIMITS = {"bound_x": 1.0, "bound_y": 1.0, "fit_intercept": False}


def ridge(refine):
    return lambda: dpfast.MultiOutcomeRidge(1.0, 1e-6, refine=refine, **LIMITS).fit(ROWS, OUTCOMES)


def classifier():
    labels = np.where(OUTCOMES > 0.0, 1, -1)
    return dpfast.ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=[-1, 1], fit_intercept=False).fit(
        ROWS, labels
    )


def panel():
    return dpfast.SyntheticControl(1.0, 1e-6, bound=(0.0, 1.0)).fit(PANEL, 10)


def policy():
    trajectories = dpfast.Trajectories.from_episodes(EPISODES, n_states=10)
    estimator = dpfast.PolicyEvaluation(1.0, 1e-6, gamma=0.9, horizon=8)
    return lambda: estimator.fit(trajectories)


def sparse():
    return dpfast.SparseRegression(1.0, 1e-6, n_nonzero=2).fit(ROWS, OUTCOMES)


FITS = {
    "ridge": ridge(0),
    "ridge with two steps": ridge(2),
    "classifier": classifier,
    "panel": panel,
    "policy": policy(),
    "sparse": sparse,
}


def entered(fit):
    """Return the files of ours that a fit enters, and the number of Python functions that it calls."""
    fit()  # what is imported when it is first used, and found once
    files, calls = Counter(), 0

    def count(frame, event, _):
        nonlocal calls
        if event == "call":
            calls += 1
            files[frame.f_code.co_filename] += 1

    sys.setprofile(count)
    try:
        fit()
    finally:
        sys.setprofile(None)
    package = dpfast.__file__.rpartition("__init__")[0]
    return sorted(name.removeprefix(package) for name in files if name.startswith(package)), calls


#: Most files and calls: a little above what was measured. Noise decides how many steps some solvers take, up to half as
#: many again: a fit of a policy takes more in a quarter of runs, so that all of 12 fits do in 4 of 10**8. One fit in a
#: thousand draws a number that takes exact arithmetic, which is a file more. Half of a classifier's fits do, and all of
#: 12 once in 4,096 runs.
MOST = {
    "ridge": (24, 880),
    "ridge with two steps": (30, 2_505),
    "classifier": (30, 4_100),
    "panel": (27, 1_620),
    "policy": (24, 2_100),
    "sparse": (34, 4_255),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_goes_through_few_rooms(name):
    most_files, most_calls = MOST[name]
    for _ in range(12):
        files, calls = entered(FITS[name])
        print(f"{name}: {len(files)} files, {calls} calls")
        if len(files) <= most_files and calls <= most_calls:
            break
    assert len(files) <= most_files, files
    assert calls <= most_calls


def test_a_further_step_adds_few_calls():
    """The median of many, as noise decides whether a fourth of the fits take 70 calls fewer."""
    two, six = (np.median([entered(ridge(steps))[1] for _ in range(31)]) for steps in (2, 6))
    print(f"calls for each further step: {(six - two) / 4:.0f}")
    assert (six - two) / 4 <= 60
