"""What is not finite is refused before anything is drawn, by every fit: to fail after a draw would tell of a row."""

import numpy as np
import pytest
from catalogue import VARIED, people

from dpfast import Ledger, PaidFailure, Privacy

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]


@pytest.mark.parametrize("where", ["rows", "outcomes"])
@pytest.mark.parametrize("name", [name for name in VARIED if VARIED[name].table in ("rows", "blocks")])
def test_a_row_that_is_not_finite_costs_nothing(name, where):
    fit, (x, y) = VARIED[name], people(40)
    (x if where == "rows" else y).flat[7] = np.nan
    ledger = Ledger(Privacy(1e13, 0.5, fit.estimator.adjacency))
    unspent = ledger.spent
    try:
        fit(x, y, ledger=ledger)
    except PaidFailure:
        pytest.fail("fails after a draw")
    except (ValueError, TypeError):
        assert ledger.spent == unspent
