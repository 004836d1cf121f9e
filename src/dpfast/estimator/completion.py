"""Models with their releases that are not solved: a fit keeps its model before it solves, and hands it to keepers.

A fit pays before it solves, and solving may be interrupted, or fail. By then the model has all that it solves from:
releases and public numbers, never anything else of the data. So `complete` can solve at any later time for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from dpfast.ledger import Release


class Unsolved(NamedTuple):
    """The input of a fit's solution, besides its releases: all of it is public."""

    #: Parameters of the estimator as they were when its fit began, with the bounds that the fit has found.
    given: Mapping[str, Any]
    mechanism: Any
    #: What is public besides and needed to solve.
    public: Any
    #: Fitted attributes that were found before, and by how many releases.
    found: Mapping[str, Any]
    n_before: int
    #: What public numbers say of the error; None where that has been said.
    error: float | None


_keepers: ContextVar[tuple[Callable[[Any], None], ...]] = ContextVar("keepers", default=())
# By identity; adding to and removing from a dict is atomic.
_unsolved: dict[int, Any] = {}


@contextmanager
def kept_by(function: Callable[[Any], None]) -> Iterator[None]:
    """Have a function told of each model that is fitted in the block once all is drawn, before the ledger's commit.

    The model is not solved then: it can be saved, and completed.
    """
    before = _keepers.get()
    _keepers.set((*before, function))
    try:
        yield
    finally:
        _keepers.set(before)


def keep(model: Any) -> None:
    """Hand a model with all its releases to the keepers, and remember it until it is solved."""
    _unsolved[id(model)] = model
    for function in _keepers.get():
        function(model)


def forget(model: Any) -> None:
    """Forget a model that is solved."""
    _unsolved.pop(id(model), None)


class Waiting:
    """The released and not yet returned result of a function: remembered until its return."""

    def __init__(self, releases: Sequence[Release], complete: Callable[[], Any]) -> None:
        self.releases_, self._complete = tuple(releases), complete
        _unsolved[id(self)] = self

    def complete(self) -> Any:
        """Return it."""
        found = self._complete()
        forget(self)
        return found


def complete(releases: Sequence[Release]) -> Any:
    """Finish a fit that was interrupted, or failed, after its noise was drawn: solve again from its releases.

    So are functions, whose results would be lost with the error otherwise: `select`, `private_bounds`, repeated fits.

    Privacy: post-processing of releases; nothing is spent.

    Parameters
    ----------
    releases : sequence of Release
        Of one fit of this process, as its ledger has them (`Ledger.releases`), with or without their values. A model at
        hand has a method `complete`, which needs none; one of another process is loaded from its file.

    Returns
    -------
    estimator
        The model, fitted; or what a function would have returned.

    Raises
    ------
    TypeError
        If it is no sequence of releases.
    ValueError
        If no fit of this process waits to be completed from them, or several do whose releases have the same records.

    Examples
    --------
    >>> import numpy as np
    >>> import dpfast
    >>> from dpfast import Ledger, MultiOutcomeRidge, Privacy
    >>> ledger = Ledger(Privacy(1.0, 1e-6))
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, ledger=ledger)
    >>> model = model.fit(np.eye(3), np.ones(3))
    >>> dpfast.complete(ledger.releases)
    Traceback (most recent call last):
        ...
    ValueError: no fit of this process waits to be completed from these releases
    """
    if not isinstance(releases, Sequence):
        raise TypeError(f"releases must be a sequence of dpfast.Release, got a {type(releases).__name__}")
    if not releases or not all(isinstance(one, Release) for one in releases):
        raise TypeError("releases must be a sequence of dpfast.Release, at least one")
    waiting = list(_unsolved.values())
    found = [model for model in waiting if [*map(id, model.releases_)] == [*map(id, releases)]]
    found = found or [model for model in waiting if _are(model.releases_, releases)]
    if len(found) > 1:
        raise ValueError("several fits of this process wait whose releases have these records: complete the model")
    if not found:
        raise ValueError("no fit of this process waits to be completed from these releases")
    return found[0].complete()


def _are(made: Sequence[Release], asked: Sequence[Release]) -> bool:
    """Whether releases are the requested ones; those of a ledger's file have no values."""

    def described(release: Release, like: Release) -> dict[str, Any]:
        return release.to_dict(values=bool(like.values))

    return len(made) == len(asked) and all(
        described(one, other) == described(other, other) for one, other in zip(made, asked, strict=True)
    )
