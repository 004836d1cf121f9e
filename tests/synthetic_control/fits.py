"""Fits of synthetic control: a person is a donor, whose row is its path; two periods come after the intervention."""

import numpy as np
import pandas as pd
from catalogue import Fit

from dpfast import SyntheticControl

TREATED = "the target"


def control(delta=1e-6, **parameters):
    return SyntheticControl(1.0, delta, **parameters)


def path_of_target(x):
    return np.linspace(-0.5, 0.5, x.shape[1])


def periods(x):
    return list(range(2001, 2001 + x.shape[1]))


def panel(x):
    """Units by periods, if donors have names."""
    return x.set_axis(periods(x), axis=1) if hasattr(x, "index") else x


def long(x, extra=()):
    """One row a unit and period, those of a unit scattered, and the target's among them; no rows of missing entries."""
    names = [*(x.index if hasattr(x, "index") else range(len(x))), TREATED]
    values = np.vstack([np.asarray(x, np.float64), path_of_target(x)])
    rows = [
        (one, year, value)
        for year, column in zip(periods(x), values.T, strict=True)
        for one, value in zip(names, column, strict=True)
        if not np.isnan(value)
    ]
    return pd.DataFrame([*extra, *rows], columns=["who", "when", "value"])


def alone(one, x, y):
    return one.fit(panel(x), x.shape[1] - 2)


def with_target(one, x, y):
    return one.fit(panel(x), x.shape[1] - 2, path_of_target(x))


def from_long(one, x, y, extra=()):
    return one.fit_long(long(x, extra), "who", "when", "value", TREATED, x.shape[1] - 2)


def repeatedly(one, x, y):
    return one.fit_repeatedly(panel(x), x.shape[1] - 2, 3)


def at_two_budgets(one, x, y):
    return one.fit_repeatedly(panel(x), x.shape[1] - 2, 3, epsilons=[one.epsilon, one.epsilon])


def donors(run=with_target, releases=1, **parameters):
    table = "panel" if run in (alone, with_target) else None
    in_stages = releases > 1 and parameters.get("row_bound", "private") is not None
    return Fit(control(**parameters), run, table=table, releases=releases, counts_people=in_stages)


def weights(mechanism, run=with_target, *, bare_minimiser=False, **parameters):
    table = "panel" if run is with_target else None
    estimator = control(mechanism=mechanism, **parameters)
    return Fit(estimator, run, table=table, any_order=False, bare_minimiser=bare_minimiser)


FITS = {
    "donors": donors(releases=2),
    "donors, no target": donors(alone, releases=2),
    "donors of any length": donors(row_bound=None),
    "donors with short paths": donors(row_bound=(0.8, 0.9)),
    "donors about a centre": donors(center=0.2, row_bound=(1.0, 1.0), observation_rate=0.9),
    "donors about the target": donors(center="target", row_bound=None),
    "donors near the target": donors(center="target", releases=2),
    "donors about their mean": donors(center="private", releases=3),
    "donors about their mean, norms declared": donors(center="private", row_bound=(0.9, 0.7), releases=2),
    "donors in a range that is found": donors(bound="private", releases=3),
    "nonnegative donors in a range that is found": donors(
        alone, bound="private", nonnegative=True, row_bound=None, releases=2
    ),
    "donors, ranked": donors(row_bound=(0.9, 0.7), placebo_share=0.2, releases=2),
    "donors about their mean, ranked": donors(center="private", placebo_share=0.2, releases=4),
    "donors in a basis": donors(bound=(-2.0, 5.0), basis=2, row_bound=None),
    "donors about their mean in a basis": donors(bound=(-2.0, 5.0), basis=2, center="private", releases=3),
    "donors, fewer components": donors(n_components="noise", row_bound=None),
    "nonnegative donors": donors(bound=5.0, nonnegative=True, row_bound=None),
    "nonnegative donors about their mean": donors(bound=5.0, nonnegative=True, center="private", releases=3),
    "long donors": donors(from_long, releases=2),
    "long donors, some entries missing": donors(from_long, observation_rate=0.9, center="private", releases=3),
    "donors, repeatedly": donors(repeatedly),
    "donors, repeatedly at two budgets": Fit(control(), at_two_budgets, releases=2),
    "donor weights, output": weights("output"),
    "donor weights, output, as printed": weights("output", delta=0.0, calibration="paper"),
    "donor weights, objective": weights("objective"),
    "donor weights, objective, as printed": weights("objective", calibration="paper", bare_minimiser=True),
    "long donors, output": weights("output", from_long),
    "long donors, objective": weights("objective", from_long),
}

CONVENTIONS = []

#: Public numbers that an estimator plans from, as flags of the command line.
PLANS = {
    "SyntheticControl": "--rows 1000 --n-pre 4 --n-periods 6 --bound 0,1",
}
