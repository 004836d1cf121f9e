"""Attacks on the releases of sparse regression, at the neighbours that move each most; broken copies are caught."""

from dataclasses import replace

import numpy as np
import pytest

from dpfast import Privacy
from dpfast.audit import epsilon_lower_bound
from dpfast.kernels.fixed_point import FixedPoint
from dpfast.noise import SecureSource
from dpfast.support_regression import SupportRegression
from dpfast.support_selection import RecordBounds, ScoredSelection, VotedSelection

pytestmark = pytest.mark.slow

BOUNDS = RecordBounds(1, 1.0, 1.0)


def lower_bound(outputs, delta, n=2000):
    """Epsilon between outputs(False) and outputs(True); too high with probability at most 1e-6."""
    here, there = (np.array([outputs(neighbour) for _ in range(n)], float) for neighbour in (False, True))
    return epsilon_lower_bound(here, there, delta, 1.0 - 1e-6)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_choice_by_scores(adjacency):
    """Two features held where one more record's losses differ most; another one's, the other way about."""
    x, y = 1e3 * np.eye(2), np.array([1e3, -1e3])
    before = (np.vstack([x, [-1.0, -1.0]]), np.append(y, 1.0)) if adjacency == "replace_one" else (x, y)
    after = np.vstack([x, [1.0, 1.0]]), np.append(y, 1.0)
    tables = [(one.T @ one, one.T @ outcome) for one, outcome in (before, after)]
    selection = ScoredSelection.calibrate(Privacy(2.0, 0.0, adjacency), BOUNDS, 10**6)
    source = SecureSource()

    def outputs(selection):
        return lambda neighbour: selection.release(*tables[neighbour], source, "audit").values["support"][0]

    assert lower_bound(outputs(selection), 0.0) <= 2.0
    assert lower_bound(outputs(replace(selection, rate=4.0 * selection.rate)), 0.0) > 2.0


@pytest.mark.parametrize("delta", [0.0, 1e-2])
def test_the_choice_by_votes(delta):
    """One block of one row, whose votes it decides."""
    size, p = (3, 6) if delta == 0.0 else (12, 24)
    selection = VotedSelection.calibrate(Privacy(1.0, delta), size, p, 1)
    assert selection.calibrated.mechanism == ("Laplace" if delta == 0.0 else "Gaussian")
    rows, source = [np.full((1, p), sign) for sign in (1.0, -1.0)], SecureSource()

    def votes(x, y, size):
        return np.arange(size) if x[0, 0] > 0.0 else size + np.arange(size)

    def outputs(selection):
        def score(neighbour):
            counts = selection.release(rows[neighbour], np.zeros(1), votes, source, "audit", 1).values["votes"]
            # Log likelihood ratio of the counts, up to a factor for Gaussian noise.
            moved = counts[:size] - counts[size:] if delta else np.abs(counts - 1.0) - np.abs(counts)
            return np.sum(moved) if delta else np.sum(moved[size:]) - np.sum(moved[:size])

        return score

    broken = replace(selection, calibrated=replace(selection.calibrated, scale=selection.calibrated.scale / 8.0))
    assert lower_bound(outputs(selection), delta) <= 1.0
    assert lower_bound(outputs(broken), delta) > 1.0


@pytest.mark.parametrize("delta", [0.0, 1e-2])
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_the_coefficients(adjacency, delta):
    """One feature, whose coefficient one record turns."""
    regression = SupportRegression.calibrate(Privacy(1.0, delta, adjacency), BOUNDS, 100)
    source = SecureSource()
    rest = np.ones(3), np.full(3, -1.0)
    before = (np.append(rest[0], 1.0), np.append(rest[1], -1.0)) if adjacency == "replace_one" else rest
    after = np.append(rest[0], 1.0), np.append(rest[1], 1.0)
    moments = [(np.array([[x @ x]]), FixedPoint.from_integers([round(x @ y)], 0)) for x, y in (before, after)]

    def outputs(regression):
        return lambda neighbour: regression.release(*moments[neighbour], source, "audit").values["coef"][0]

    own = regression.calibrated
    broken = replace(regression, calibrated=replace(own, scale=own.scale / 40.0))
    assert lower_bound(outputs(regression), delta, 800) <= 1.0
    assert lower_bound(outputs(broken), delta, 800) > 1.0
