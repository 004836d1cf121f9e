"""An attack on a mechanism: neighbouring tables, the outputs seen on them, and the conclusion."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, get_args

import numpy as np

from dpfast._arrays import FloatArray
from dpfast.attack.laws import Law, shift_law
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy

Released = TypeVar("Released")


@dataclass(frozen=True)
class Attack:
    """A mechanism, its claim, and an attacker with knowledge of two neighbouring tables.

    Parameters
    ----------
    name : str
        The mechanism attacked.
    privacy : Privacy
        Its claim.
    law : Law
        Form of the noise in the attacker's view.
    seen : callable
        ``seen(neighbour)``: the attacker's view of one output, on the table or on its neighbour. Every call runs the
        mechanism as users do, with fresh noise.
    estimators : tuple
        The estimators that are run.
    effort : float
        Multiplier of the number of outputs: above 1 if more are needed, below 1 if the mechanism is slow.
    defect : str
        Flaw of a mechanism of the literature that is known to break its claim; "" if the claim must hold.
    """

    name: str
    privacy: Privacy
    law: Law
    seen: Callable[[bool], FloatArray]
    estimators: tuple[Any, ...] = ()
    effort: float = 1.0
    defect: str = ""

    @classmethod
    def on(cls, name: str, record: Release, law: Law, seen: Callable[[bool], FloatArray], estimator: object) -> Self:
        """Attack the mechanism of a release; the attack is named after its noise and relation too."""
        full = f"{name}, {record.mechanism}, {record.privacy.adjacency}"
        return cls(full, record.privacy, law, seen, () if estimator is None else (estimator,))

    def run(self, n: int, error: float = 0.001) -> Finding:
        """Run the mechanism n times on either table.

        Parameters
        ----------
        n : int
            Number of calls, times `effort`. Each call of `seen` makes one output, or several in rows.
        error : float, default 0.001
            Largest probability of a bound above the true epsilon, and of rejecting noise of the stated form.

        Returns
        -------
        Finding
        """
        start = time.perf_counter()
        n = math.ceil(n * self.effort)
        with warnings.catch_warnings():
            # Warnings that the answer is mostly noise are expected here.
            warnings.simplefilter("ignore")
            here, there = (
                np.concatenate([np.atleast_2d(self.seen(neighbour)) for _ in range(n)]) for neighbour in (False, True)
            )
        found = self.law.epsilon((here, there), self.privacy.delta, error)
        return Finding(
            self.name,
            self.privacy,
            found,
            self.law.attainable(self.privacy.delta),
            self.law.misfit((here, there)) >= error,
            len(here),
            time.perf_counter() - start,
            self.defect,
        )


@dataclass(frozen=True)
class Finding:
    """The result of an attack.

    Parameters
    ----------
    name : str
        The mechanism attacked.
    privacy : Privacy
        The claim.
    epsilon : float
        Lower bound on the true epsilon at the delta claimed.
    attainable : float
        The largest bound possible on these tables with noise as recorded; not a number if the noise is private. The
        calibration may have slack that no pair of tables uses.
    fits : bool
        Whether the view has the form of noise assumed by the bound.
    runs : int
        Outputs drawn on either table.
    seconds : float
        Duration.
    defect : str
        The defect of the attack.
    """

    name: str
    privacy: Privacy
    epsilon: float
    attainable: float
    fits: bool
    runs: int
    seconds: float
    defect: str = ""

    @property
    def share(self) -> float:
        """Part of the claim that was found."""
        return self.epsilon / self.privacy.epsilon

    @property
    def broken(self) -> bool:
        """Whether the mechanism loses more than it claims, or its noise is of another form than stated."""
        return self.epsilon > self.privacy.epsilon or not self.fits

    @property
    def expected(self) -> bool:
        """Whether a claim that must hold does, or a mechanism known to be broken was caught."""
        return self.broken == bool(self.defect)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.defect:
            return "broken, as is known" if self.broken else "NOT CAUGHT"
        return "BROKEN" if self.broken else "holds"

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON; an infinite bound, from missing noise, is None."""
        numbers = {"found": self.epsilon, "attainable": self.attainable, "share": self.share}
        finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        plain = ("fits", "broken", "expected", "verdict", "defect", "runs", "seconds")
        return {
            "mechanism": self.name,
            **claimed(self.privacy),
            **finite,
            **{name: getattr(self, name) for name in plain},
        }


def sum_attack(name: str, estimator: Any, fit: Callable[[bool], Release], exact: Sequence[FloatArray]) -> Attack:
    """Attack a released sum, by its exact values on the table and on its neighbour, where these differ."""
    record = probe(lambda: fit(False))
    # L2-Laplace noise has a known law as a whole; of other noise what is the same on both tables says nothing.
    is_whole = record.mechanism == "L2-Laplace"
    moved = np.arange(len(exact[0])) if is_whole else np.flatnonzero(exact[0] != exact[1])

    def seen(neighbour: bool) -> FloatArray:
        return np.asarray(fit(neighbour).values["sum"].ravel()[moved] - exact[neighbour][moved])

    # The record states the standard deviation of an entry: of Laplace noise, of vectors of one.
    size = len(moved) if is_whole else 1
    scale = record.scales["sum"] / (1.0 if record.mechanism == "Gaussian" else math.sqrt(size + 1.0))
    law = shift_law(record.mechanism, (exact[0][moved] - exact[1][moved],), (float(scale),))
    # A pure sum may leave all of delta to what comes after.
    beside = " beside a delta" if getattr(estimator, "delta", 0.0) > record.privacy.delta == 0.0 else ""
    return Attack.on(f"{name}{beside}", record, law, seen, estimator)


def claims(privacy: Privacy, *, delta: bool | None = None) -> Iterator[Privacy]:
    """Yield a claim under both relations, with its delta and with none; or only with one, or with none."""
    for amount in (privacy.delta, 0.0) if delta is None else (privacy.delta,) if delta else (0.0,):
        for adjacency in get_args(Adjacency):
            yield Privacy(privacy.epsilon, amount, adjacency)


def claimed(privacy: Privacy) -> dict[str, Any]:
    """Return a claim as arguments of estimators."""
    return {"epsilon": privacy.epsilon, "delta": privacy.delta, "adjacency": privacy.adjacency}


def probe(fit: Callable[[], Released]) -> Released:
    """Return the release of one fit, for the public numbers in its record, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit()
