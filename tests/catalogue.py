"""One catalogue of fits, for all tests of what every fit owes: each family lists its own in tests/<family>/fits.py.

A fit is of people: a row of x and an outcome in y each, about in [-1, 1], as arrays or as frames whose index says who
they are. A family makes of them what it fits (a panel, walks, several rows of a person), one person's from one row.

Such a file has FITS, by name; CONVENTIONS, the estimators that scikit-learn's own checks are run on; and PLANS, by the
name of an estimator the flags of public numbers that ``dpfast plan`` takes for it.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dpfast import Privacy, registry
from dpfast.privacy import compose_mu, gaussian_mu


@dataclass(frozen=True)
class Fit:
    #: With a budget, but no seed, no ledger and no number of threads.
    estimator: Any
    #: ``run(estimator, x, y)`` fits it, and returns it; or the batches of a repeated fit.
    run: Callable[..., Any]
    #: What `fit` takes as outcomes.
    outcomes: Callable[[Any], Any] = lambda y: y
    #: Whether x reaches `fit` as it is: in "blocks" of rows too, as one table of "rows", as a "panel"; None if not.
    table: str | None = None
    #: How many releases are made, one more if people are counted where their number is private, and None for as many
    #: as releases ask for; and for whom.
    releases: int | None = 1
    counts_people: bool = False
    unit: str = "row"
    #: Whether another order of people leaves all as it was, to the bit.
    any_order: bool = True
    #: Whether outcomes are public: neighbours have the same.
    public_outcomes: bool = False
    #: Whether a minimiser is released as it is, all of its noise in its objective.
    bare_minimiser: bool = False

    def new(self, **parameters):
        """Return an estimator to fit, with other parameters."""
        return clone(self.estimator).set_params(**parameters)

    def __call__(self, x, y, **parameters):
        return self.run(self.new(**parameters), x, y)

    def accepts(self, **parameters):
        try:
            self.new(**parameters)._checked()
        except ValueError:
            return False
        return True


def of_rows(estimator, outcomes=lambda y: y, *, table="blocks", **facts):
    """A fit of rows and outcomes as they are."""
    return Fit(estimator, lambda one, x, y: one.fit(x, outcomes(y)), outcomes, table, **facts)


def of_people(estimator, outcomes=lambda y: y, **facts):
    """A fit of people with two rows each, scattered: the columns in halves."""

    def run(one, x, y):
        half = x.shape[1] // 2
        if hasattr(x, "index"):
            parts = [x.iloc[:, k * half : (k + 1) * half].set_axis(range(half), axis=1) for k in range(2)]
            rows, twice, owners = pd.concat(parts), pd.concat([y, y]), [*x.index, *x.index]
        else:
            rows, twice = np.vstack([x[:, :half], x[:, half : 2 * half]]), np.append(y, y)
            owners = np.tile(np.arange(len(x)), 2)
        return one.fit(rows, outcomes(twice), groups=owners, max_rows=2)

    return Fit(estimator, run, unit="person", **facts)


def releases_of(fitted):
    """What left the data, of an estimator or of batches."""
    return fitted.releases_ if hasattr(fitted, "releases_") else tuple(batch.release for batch in fitted)


def people(n, seed=0, width=4):
    """Rows and outcomes within [-0.9, 0.9]."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.9, 0.9, (n, width)), rng.uniform(-0.9, 0.9, n)


def thinned(names, others, step=4):
    """Pairs to test with: each name and each of the others in some, and the rest of the pairs among slow tests."""
    return [
        pytest.param(name, other, marks=[] if (i + j) % step == 0 else [pytest.mark.slow])
        for i, name in enumerate(names)
        for j, other in enumerate(others)
    ]


def choices(cls):
    """Parameters of an estimator that offer a choice by name, or yes or no, and what they offer."""
    hints = typing.get_type_hints(cls if is_dataclass(cls) else cls.__init__)
    hints = {name: hint for name, hint in hints.items() if name in inspect.signature(cls).parameters}
    offered = {name: _literals(hint) | ({True, False} if hint is bool else set()) for name, hint in hints.items()}
    return {name: values for name, values in offered.items() if values}


def _literals(hint):
    if typing.get_origin(hint) is typing.Literal:
        return set(typing.get_args(hint))
    return set().union(*(_literals(one) for one in typing.get_args(hint)))


def _varied(fits, parameter, values):
    """Each fit with every value that it accepts, and may have another than its own; named after it then."""
    for name, fit in fits.items():
        yield name, fit
        own = getattr(fit.estimator, parameter)
        for value, label in values.items():
            if own != value and fit.accepts(**{parameter: value}):
                yield f"{name}, {label}", replace(fit, estimator=fit.new(**{parameter: value}))


FAMILIES = {family: import_module(f"{family}.fits") for family in registry.FAMILIES}
FITS = {name: fit for module in FAMILIES.values() for name, fit in module.FITS.items()}
#: One of each family.
SOME = [next(iter(module.FITS)) for module in FAMILIES.values()]
#: Under both relations.
RELATED = dict(_varied(FITS, "adjacency", {"add_remove": "add_remove", "replace_one": "replace_one"}))
#: And with no delta too.
VARIED = dict(_varied(RELATED, "delta", {0.0: "pure"}))


def gaussian_beside_others(releases, spent):
    """Whether Gaussian releases by their mu, and the others by sums of epsilons and deltas, cost that."""
    others = [one.privacy for one in releases if one.mu is None]
    left = Privacy(spent.epsilon - sum(one.epsilon for one in others), spent.delta - sum(one.delta for one in others))
    return compose_mu([one.mu for one in releases if one.mu is not None]) <= gaussian_mu(left.epsilon, left.delta)
