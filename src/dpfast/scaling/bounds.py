"""Bounds on rows as a function: the method of estimators with a "private" bound, for any use by the caller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._html import card, caution, grid
from dpfast._redacted import quiet
from dpfast.estimator.bounded import check_people, columns_of
from dpfast.estimator.persistence import Waiting
from dpfast.io.summaries import Estimates
from dpfast.ledger import Ledger, Release, paying
from dpfast.ledger.entries import guarantee_html, header_of, releases_html
from dpfast.privacy import Adjacency, Privacy, Unit, gaussian_mu
from dpfast.releases.size_counts import NoisySizes
from dpfast.statistics.sizes import Sizes, size_counts

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class PrivateBounds:
    """Bounds found, and their release.

    Parameters
    ----------
    bound_x, bound_y : float or None
        L2 norms seldom exceeded by the rows of X, and of Y; None if not requested.
    box_x : tuple of (low, high) or None
        Limits of every feature, arrays of shape (n_features,).
    are_certain : bool
        Whether every histogram shows people beyond noise; if not, some bound is a guess.
    release : Release
        The noisy counts of people.
    feature_names : tuple of str, optional
        Names of the features, if X has any.
    """

    bound_x: float | None
    bound_y: float | None
    box_x: tuple[FloatArray, FloatArray] | None
    are_certain: bool
    release: Release
    feature_names: tuple[str, ...] | None = None

    def _rows(self) -> list[tuple[str, Any, float, float]]:
        """Return the bounds: for each its kind, its feature and its limits."""
        rows: list[tuple[str, Any, float, float]] = [
            (name, "", 0.0, bound)
            for name, bound in (("bound_x", self.bound_x), ("bound_y", self.bound_y))
            if bound is not None
        ]
        if self.box_x is not None:
            low, high = self.box_x
            features = self.feature_names or range(len(low))
            rows += [("box_x", *one) for one in zip(features, low.tolist(), high.tolist(), strict=True)]
        return rows

    def _repr_html_(self) -> str:
        """Show the bounds, and their privacy cost."""
        rows = [(name, feature, f"{low:.6g}", f"{high:.6g}") for name, feature, low, high in self._rows()]
        unseen = caution("Some histogram shows no people beyond noise: nothing is known of what it counts.")
        guesses = [] if self.are_certain else [unseen]
        cost = [guarantee_html([self.release], self.release.privacy), releases_html([self.release])]
        return card("PrivateBounds", *guesses, grid(("bound", "feature", "low", "high"), rows), *cost)

    def summary(self) -> DataFrame:
        """Tabulate the bounds.

        Returns
        -------
        pandas.DataFrame
            A row a norm that is bounded, and a feature of the box: index levels ``bound`` and ``feature``, columns
            ``low`` and ``high``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        bounds, features, lows, highs = zip(*self._rows(), strict=True)
        header = {"estimator": "PrivateBounds"} | header_of([self.release], self.release.privacy)
        return Estimates({"bound": bounds, "feature": features}, {"low": lows, "high": highs}, header).frame()


@quiet
def private_bounds(
    X: Any,
    Y: Any = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency = "replace_one",
    norms: bool = True,
    box: bool = False,
    groups: ArrayLike | None = None,
    max_rows: int | None = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
    n_threads: int | None = None,
) -> PrivateBounds:
    """Find bounds exceeded by about 1% of people, from noisy counts of people by the size of their rows.

    Privacy: one release of the counts is (epsilon, delta)-differentially private under `adjacency`; it is paid for from
    the ledger, if one is given.

    Parameters
    ----------
    X : table of shape (n_rows, n_features)
        Anything that estimators fit.
    Y : table of shape (n_rows, n_outcomes) or (n_rows,), optional
        Outcomes; their norm gets a separate bound.
    epsilon, delta : float
        Budget of the release. With delta 0 noise is Laplace, else Gaussian.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of people is public.
    norms : bool, default True
        Whether to bound the L2 norm of rows.
    box : bool, default False
        Whether to find limits of every feature, from a histogram each: the noise grows with the root of their number.
    groups, max_rows : optional
        Groups (the person each row belongs to) and the number of rows counted per person: all of these are within the
        bounds.
    ledger : Ledger, optional
        The budget to pay from.
    random_state : int, optional
        A seed for tests, which voids the guarantee.
    n_threads : int, optional
        The result does not depend on it.

    Returns
    -------
    PrivateBounds
        Powers of the root of 2, between 2**-40 and 2**40, and 0 as a limit.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind; nothing is spent then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    References
    ----------
    Bounds from noisy histograms of logarithms, with a guarantee on the number clipped: Wilson, R. et al. (2020).
    Differentially private SQL with bounded user contribution. PoPETs, Section 5.1.1 (approximate bounds).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import private_bounds
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.uniform(18, 100, 5_000), rng.integers(0, 2, 5_000)])
    >>> found = private_bounds(X, epsilon=0.5, delta=1e-6, box=True, random_state=0)
    >>> found.bound_x, [limits.tolist() for limits in found.box_x]
    (128.0, [[16.0, 0.0], [128.0, 1.0]])
    """
    privacy = Privacy(epsilon, delta, adjacency)
    if math.isinf(privacy.epsilon):
        raise ValueError("epsilon must be finite: without noise bounds tell of the largest row")
    groups = io.groups_of(X, groups)
    has_outcomes = Y is not None or (isinstance(X, io.Partitions) and X.n_outcomes > 0)
    sizes = Sizes(check.boolean("norms", norms), has_outcomes, check.boolean("box", box))
    if not sizes.n_histograms(1):
        raise ValueError("norms or box must be True, or Y given: nothing else has bounds")
    unit: Unit = "person" if check_people(groups, max_rows) else "row"
    mu = gaussian_mu(epsilon, delta) if privacy.delta > 0.0 else None
    with paying(ledger, privacy).reserving(privacy, unit=unit, random_state=random_state, mu=mu) as reservation:
        io.check_aligned(X=X, Y=Y, groups=groups)
        table = io.open_table(X, Y)
        names = columns_of(X).get("feature_names_in_")
        source = noise.resolve_source(random_state, reservation)
        mechanism = NoisySizes.calibrate(privacy, sizes, table.n_features, unit=unit)
        counts = size_counts(table, sizes, groups=groups, max_rows=max_rows, n_threads=n_threads)
        n_people = int(counts.low[0].sum()) if adjacency == "replace_one" else None
        release = mechanism.noise.release(counts, source, "private_bounds: counts of people by size")
        waiting = Waiting([release], partial(_found, mechanism, release, n_people, names))
        reservation.commit(release)
    return waiting.complete()


def _found(mechanism: NoisySizes, release: Release, n_people: int | None, names: Sequence[str] | None) -> PrivateBounds:
    found = mechanism.found(release, n_people)
    assert not isinstance(found.outcomes, np.ndarray)
    named = None if names is None else tuple(names)
    return PrivateBounds(found.rows, found.outcomes, found.box, found.are_certain, release, named)
