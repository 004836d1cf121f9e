"""Quantiles of columns: what is released, paid for, kept and refused."""

import numpy as np
import pytest

from dpfast import ColumnQuantiles, Ledger, Privacy
from dpfast.audit import all_attacks

GRID = [-0.25, 0.0, 0.25]
ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, (2_000, 3))


def test_the_audit_finds_all_that_it_claims():
    attacks = [attack for attack in all_attacks(Privacy(1.0, 1e-5)) if attack.name.startswith("ColumnQuantiles")]
    assert len(attacks) == 4
    for attack in attacks:
        assert attack.law.attainable(0.0) == pytest.approx(1.0, rel=1e-6)
        assert not attack.run(300, 1e-7).broken


def test_a_ledger_pays_for_it_without_delta():
    ledger = Ledger(Privacy(1.0, 1e-5))
    ColumnQuantiles(1.0, 1e-6, candidates=GRID, ledger=ledger).fit(ROWS)
    assert [(one.name, one.privacy) for one in ledger.releases] == [("ColumnQuantiles", Privacy(1.0))]


@pytest.mark.parametrize(("percent", "quantile"), [(25, -0.25), (50, 0.0), (75, 0.25)])
def test_it_finds_the_candidate_at_the_quantile(percent, quantile):
    # Others have odds below e^-60.
    fitted = ColumnQuantiles(1.0, candidates=GRID, percent=percent).fit(ROWS)
    assert fitted.quantiles_.tolist() == [quantile] * 3


def test_a_file_gives_it_back(tmp_path):
    fitted = ColumnQuantiles(1.0, candidates=GRID).fit(ROWS)
    fitted.save(tmp_path / "quantiles.json")
    assert ColumnQuantiles.load(tmp_path / "quantiles.json").quantiles_.tobytes() == fitted.quantiles_.tobytes()


@pytest.mark.parametrize(
    "wrong",
    [{"candidates": one} for one in ([], [0.0], [0.0, 0.0], [1.0, 0.0], [0.0, np.nan], [0.0, np.inf])]
    + [{"candidates": GRID, "percent": one} for one in (0, 100)]
    + [{"candidates": GRID, "calibration": "paper"}],
    ids=str,
)
def test_what_it_may_not_take_is_refused(wrong):
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        ColumnQuantiles(1.0, **wrong).fit(ROWS)


def test_no_rows_are_refused_where_their_number_is_public_alone():
    nobody = np.empty((0, 2))
    with pytest.raises(ValueError, match="number of rows"):
        ColumnQuantiles(1.0, candidates=GRID).fit(nobody)
    assert len(ColumnQuantiles(1.0, candidates=GRID, adjacency="add_remove").fit(nobody).quantiles_) == 2
