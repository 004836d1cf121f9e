"""The bundled panel is the one the literature knows."""

import numpy as np
import pytest

from dpfast.datasets import Panel, california_prop99, tables


def test_states_by_years():
    panel = california_prop99()
    assert panel.shape == (39, 31)
    assert panel.index.name == "state"
    assert panel.columns.tolist() == list(range(1970, 2001))
    assert panel.loc["California", 1988] == pytest.approx(90.1, abs=1e-5)
    assert panel.loc["Alabama", 1970] == pytest.approx(89.8, abs=1e-5)
    assert np.all((panel > 0) & (panel < 300))


def test_ridge_synthetic_control_finds_the_known_gap():
    panel = california_prop99()
    donors, target = panel.drop("California").to_numpy(), panel.loc["California"].to_numpy()
    pre = donors[:, :19]
    weights = np.linalg.solve(pre @ pre.T + 0.5 * np.eye(38), pre @ target[:19])
    assert np.mean(target[19:] - weights @ donors[:, 19:]) == pytest.approx(-15.393, abs=5e-4)


def test_arrays_without_pandas(monkeypatch):
    frame = california_prop99()
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    panel = california_prop99()
    assert isinstance(panel, Panel)
    np.testing.assert_array_equal(panel.values, frame.to_numpy())
    assert list(panel.units) == frame.index.tolist()
    np.testing.assert_array_equal(panel.periods, frame.columns)
