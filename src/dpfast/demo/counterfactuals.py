"""Synthetic control on 38 states, too few for a good private answer, and on a thousand donors, enough for one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.datasets import Panel, california_prop99, synthetic_control_panel
from dpfast.demo.comparison import Comparison, Line
from dpfast.synthetic_control import SyntheticControl

EPSILON, DELTA = 1.0, 1e-6
LEVEL = 0.9

N_DONORS, N_PRE = 1_000, 10

# Known without looking: packs of cigarettes a head and year; 365 would be a pack a day for every child and adult.
PACKS = (0.0, 365.0)
TAX_YEAR = 1989


def lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield the results of fits, and the fits."""
    yield tobacco_tax().line(EPSILON, DELTA)
    yield without_effect().line(EPSILON, DELTA)


def tobacco_tax() -> Comparison:
    """Estimate the effect of California's tax of 1989, with other states as donors."""
    panel = california_prop99()
    sales, states, years = (
        panel if isinstance(panel, Panel) else (panel.to_numpy(), tuple(panel.index), panel.columns.to_numpy())
    )
    row, n_pre = states.index("California"), int(np.searchsorted(years, TAX_YEAR))
    donors, target = np.delete(sales, row, axis=0), sales[row]

    def fit(epsilon: float, delta: float) -> SyntheticControl:
        options: dict[str, Any] = {"ridge": 1.0} if math.isinf(epsilon) else {"bound": PACKS}
        return SyntheticControl(epsilon, delta, **options).fit(donors, n_pre)

    def effect(model: SyntheticControl) -> float:
        return float(np.mean(target[n_pre:] - model.predict(target[:n_pre])))

    return Comparison("tobacco tax", len(donors), "packs a year", fit, effect)


def without_effect() -> Comparison:
    """Predict a made-up target without an intervention that has no effect."""
    donors, target = made_up_panel()

    def fit(epsilon: float, delta: float) -> SyntheticControl:
        return SyntheticControl(epsilon, delta).fit(donors, N_PRE, target)

    def level(model: SyntheticControl) -> float:
        return float(np.mean(model.predict(target[:N_PRE])))

    return Comparison("made-up donors", len(donors), "outcome", fit, level)


def made_up_panel() -> tuple[FloatArray, FloatArray]:
    """Return donors and a target."""
    donors, target, _ = synthetic_control_panel(N_DONORS, N_PRE, seed=0)
    return donors, target
