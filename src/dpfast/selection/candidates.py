"""Estimators to select from: the accepted kinds, and the budget of each fit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, NamedTuple

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from dpfast._arrays import IntArray
from dpfast._documents import abbreviated
from dpfast.estimator.bounded import BoundedEstimator
from dpfast.estimator.linear import LinearEstimator
from dpfast.ledger import Ledger, Release, Reservation
from dpfast.privacy import Privacy, Unit, UtilityWarning, gaussian_mu, range_of_mu, split_budget, split_mu
from dpfast.privacy.guarantee import ROUND_DOWN
from dpfast.selection.mechanism import FITTED

# Parameters that a selection sets in its candidates.
_OF_BUDGET = ("epsilon", "delta", "adjacency", "ledger", "random_state", "n_threads")


class Budgets(NamedTuple):
    """Budget parts of a selection: the fits of all candidates, by their steps; the pick; and the last fit's steps."""

    fits: list[list[Privacy]]
    pick: Privacy
    refits: list[list[Privacy]]


def private_steps(candidate: Any) -> list[BoundedEstimator]:
    """Return the private estimators in a candidate; refuse a step that learns outside of the budget."""
    steps = [candidate]
    if isinstance(candidate, Pipeline):
        if candidate.memory is not None:
            raise ValueError("memory must be None: a cache would keep private rows")
        steps = [step for _, step in candidate.steps if step not in (None, "passthrough")]
    for step in steps:
        if not isinstance(step, BoundedEstimator):
            raise TypeError(
                f"{type(step).__name__} learns from people outside of any budget: use estimators of dpfast alone, "
                "PrivateStandardScaler in the place of a scaler"
            )
    if not steps or not isinstance(steps[-1], LinearEstimator):
        raise TypeError(f"{type(candidate).__name__} must end in an estimator of dpfast that predicts from rows")
    return steps


def checked(estimators: Sequence[Any], privacy: Privacy, ledger: Ledger | None) -> list[Any]:
    """Return copies of the candidates for fits within a budget, none with a ledger of its own."""
    if isinstance(estimators, str) or not isinstance(estimators, Sequence) or len(estimators) < 1:
        raise ValueError("estimators must be a list of at least one estimator")
    copies = []
    for index, estimator in enumerate(estimators):
        try:
            copies.append(_checked(estimator, privacy, ledger))
        except (TypeError, ValueError) as error:
            raise type(error)(f"estimators[{index}]: {error}") from None
    return copies


def _checked(estimator: Any, privacy: Privacy, ledger: Ledger | None) -> Any:
    private_steps(estimator)
    copy = clone(estimator)
    for step in private_steps(copy):
        if step.random_state is not None:
            raise ValueError("random_state must be None: give select the seed")
        if step.ledger is not None and step.ledger is not ledger:
            raise ValueError("ledger must be None: give select the one that pays")
        if step.calibration != "sound":
            raise ValueError(f"calibration must be 'sound', got {step.calibration!r}")
        step.set_params(delta=privacy.delta, adjacency=privacy.adjacency, ledger=None)
        if math.isinf(step._checked().epsilon):
            raise ValueError("epsilon must be finite: the steps of a candidate share its budget in proportion to it")
    return copy


def shown(candidates: Sequence[Any]) -> list[str]:
    """Return a description of each candidate: its steps, with the parameters not shared by all candidates."""
    said = [[_declared(step) for step in private_steps(one)] for one in candidates]
    common = set[str].intersection(*(set().union(*own) for own in said))
    names = [[type(step).__name__ for step in private_steps(one)] for one in candidates]
    return [
        " + ".join(
            f"{name}({', '.join(left)})" if (left := [text for text in texts if text not in common]) else name
            for name, texts in zip(own_names, own, strict=True)
        )
        for own_names, own in zip(names, said, strict=True)
    ]


def _declared(step: BoundedEstimator) -> list[str]:
    """Return the parameters not at their default, except those of the budget, as Python shows them."""
    defaults = {name: one.default for name, one in signature(type(step)).parameters.items()}
    parameters = step.get_params(deep=False).items()
    return [
        f"{name}={abbreviated(repr(value))}"
        for name, value in parameters
        if name not in _OF_BUDGET and value is not defaults[name] and repr(value) != repr(defaults[name])
    ]


def budgets(candidates: Sequence[Any], privacy: Privacy, refit_share: float) -> Budgets:
    """Split a budget: the fits together and the last one compose, and so do the pick and the last one.

    By mu where all is Gaussian, else by sums. A candidate's steps share its part in proportion to their epsilons.
    """
    steps = [private_steps(candidate) for candidate in candidates]
    gaussian = privacy.delta > 0.0 and all(step._is_gaussian for own in steps for step in own)
    ratios = [[step.epsilon / max(one.epsilon for one in own) for step in own] for own in steps]
    powers = [[ratio**2 if gaussian else ratio for ratio in own] for own in ratios]
    weights = [[power / math.fsum(own) for power in own] for own in powers]
    first = 1.0 - refit_share
    fits: list[list[Privacy]] = []
    refits: list[list[Privacy]] = []
    for own in weights:
        # Whichever is picked, all candidates and its second fit stay within the whole.
        shares = [first / len(weights) * weight for each in weights for weight in each]
        last = [refit_share * weight for weight in own] if refit_share > 0.0 else []
        parts = iter(split_budget(privacy, shares + last, "mu" if gaussian else "basic"))
        fits = [[next(parts) for _ in each] for each in weights]
        refits.append(list(parts))
    epsilon = privacy.epsilon
    if refit_share > 0.0:
        mu, _ = split_mu(gaussian_mu(*privacy.target), [first, refit_share]) if gaussian else (0.0, 0.0)
        epsilon = range_of_mu(mu) if gaussian else first * privacy.epsilon * ROUND_DOWN
    return Budgets(fits, Privacy(epsilon, 0.0, privacy.adjacency), refits)


def fit(
    candidate: Any,
    parts: Sequence[Privacy],
    seeds: Sequence[int | None],
    X: Any,
    y: Any,
    whose: IntArray | None = None,
    max_rows: int | None = None,
) -> list[warnings.WarningMessage]:
    """Fit a candidate, with a part of the budget for each step; return its warnings.

    `whose` has the number of each row's person, if people own several, of which `max_rows` count.

    They are not issued at once: warnings depend on released values, and turned into errors they would reveal these
    before they are paid for.
    """
    steps = private_steps(candidate)
    for step, part, seed in zip(steps, parts, seeds, strict=True):
        step.set_params(epsilon=part.epsilon, delta=part.delta, random_state=seed)
        step._shares_mu = True
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UtilityWarning)
            several = {} if whose is None else {"groups": whose, "max_rows": max_rows}
            candidate.fit(X, y, **_of_steps(candidate, several))
    finally:
        for step in steps:
            del step._shares_mu
    return said


def _of_steps(candidate: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a fit, for every step of a pipeline."""
    if not isinstance(candidate, Pipeline):
        return dict(options)
    names = [name for name, step in candidate.steps if isinstance(step, BoundedEstimator)]
    return {f"{name}__{key}": value for name in names for key, value in options.items()}


def allowance(
    name: str,
    parts: Sequence[Privacy],
    reservation: Reservation | None = None,
    *,
    unit: Unit,
    part: str | None = FITTED,
) -> Ledger:
    """Return a ledger for the steps of a candidate, and for no other release.

    Each release is recorded, as it is made, in the common reservation of all candidates.
    """
    epsilon, delta = (math.fsum(getattr(one, name) for one in parts) for name in ("epsilon", "delta"))
    ledger = Ledger(Privacy(epsilon, delta, parts[0].adjacency), composition="basic", unit=unit)
    if reservation is not None:
        ledger._on_release = lambda made: reservation.add(replace(made, name=f"{name}: {made.name}", part=part))
    return ledger


def record(model: Any, name: str, ledger: Ledger | None, *, part: str | None = FITTED) -> tuple[Release, ...]:
    """Return the releases of a fit, which also keeps these records; further fits pay from the ledger."""
    releases: tuple[Release, ...] = ()
    for step in private_steps(model):
        step.set_params(random_state=None, ledger=ledger)
        step.releases_ = tuple(replace(one, name=f"{name}: {one.name}", part=part) for one in step.releases_)
        releases += step.releases_
    return releases
