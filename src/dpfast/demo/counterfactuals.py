"""Synthetic control where it works, on ten thousand donors, and where no private answer can: on 38 states."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.datasets import Panel, california_prop99, synthetic_control_panel
from dpfast.plotting import saved
from dpfast.privacy import UtilityWarning
from dpfast.synthetic_control import SyntheticControl

EPSILON, DELTA = 1.0, 1e-6
LEVEL = 0.9
REPEATS = 20

N_DONORS, N_PRE = 10_000, 10

# Known without looking: packs of cigarettes a head and year; 365 would be a pack a day for every child and adult.
PACKS = (0.0, 365.0)
TAX_YEAR = 1989


def show(output: Path) -> None:
    """Fit, print and plot; there is a plot where pandas is installed too."""
    print(f"\nSynthetic control: {N_DONORS:,} donors, {N_PRE} periods before an intervention without any effect")
    model, target = _many_donors()
    if find_spec("matplotlib") is not None and find_spec("pandas") is not None:
        print(f"  Plot: {saved(model.plot(target, level=LEVEL), output, 'dpfast-demo-synthetic-control.png')}")
    print("\nCalifornia's tobacco tax of 1989, with 38 states as donors")
    _few_donors()


def _many_donors() -> tuple[SyntheticControl, FloatArray]:
    donors, target, signal = synthetic_control_panel(N_DONORS, N_PRE, seed=0)
    pre, truth = target[:N_PRE], signal[N_PRE:]
    exact = SyntheticControl(float("inf")).fit(donors, N_PRE)
    models = [SyntheticControl(EPSILON, DELTA).fit(donors, N_PRE) for _ in range(REPEATS)]
    low, high = models[0].interval(pre, LEVEL)
    print(f"  {'period':>8}  {'truth':>7}  {'exact':>7}  {'private':>7}  {100 * LEVEL:g}% limits for privacy noise")
    rows = zip(truth, exact.predict(pre), models[0].predict(pre), low, high, strict=True)
    for period, (true, free, private, least, most) in enumerate(rows, N_PRE):
        print(f"  {period:8}  {true:7.3f}  {free:7.3f}  {private:7.3f}  {least:.3f} to {most:.3f}")
    errors = [_relative_error(model, pre, truth) for model in models]
    found, without = 100.0 * np.mean(errors), 100.0 * _relative_error(exact, pre, truth)
    print(
        f"  Error relative to the signal: {found:.2g}% at epsilon = {EPSILON:g} (mean of {REPEATS} fits), "
        f"{without:.2g}% without privacy"
    )
    return models[0], target


def _few_donors() -> None:
    panel = california_prop99()
    sales, states, years = (
        panel if isinstance(panel, Panel) else (panel.to_numpy(), tuple(panel.index), panel.columns.to_numpy())
    )
    row, n_pre = states.index("California"), int(np.searchsorted(years, TAX_YEAR))
    donors, target = np.delete(sales, row, axis=0), sales[row]
    exact = SyntheticControl(float("inf"), ridge=1.0).fit(donors, n_pre)
    print(f"  {'exact':>8}  {_mean_gap(exact, target):+.1f} packs a head and year, {years[n_pre]} to {years[-1]}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UtilityWarning)
        models = [SyntheticControl(EPSILON, DELTA, bound=PACKS).fit(donors, n_pre) for _ in range(REPEATS)]
    gaps = [_mean_gap(model, target) for model in models]
    print(f"  {'private':>8}  {min(gaps):+.0f} to {max(gaps):+.0f} packs in {REPEATS} fits at epsilon = {EPSILON:g}")
    print(f"  As said before each of them was paid for: {caught[0].message}")
    plan = SyntheticControl.plan(len(donors), n_pre, len(target), epsilon=EPSILON, delta=DELTA, bound=PACKS)
    print(f"  Plan: {plan}.")


def _relative_error(model: SyntheticControl, pre: FloatArray, truth: FloatArray) -> float:
    return float(np.sqrt(np.mean((model.predict(pre) - truth) ** 2) / np.mean(truth**2)))


def _mean_gap(model: SyntheticControl, target: FloatArray) -> float:
    n_pre = model.n_pre_
    return float(np.mean(target[n_pre:] - model.predict(target[:n_pre])))
