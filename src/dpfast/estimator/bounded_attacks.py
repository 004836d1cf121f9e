"""Attacks that families share: on moments of rows, on counts of people by size, and on stages.

The attacker knows everybody but one person. Of moments, that person's rows are at the angle at which all blocks
together move most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, GaussianShift, View, claimed, claims, flattened, probe, sum_attack, view_attack
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy, Unit
from dpfast.releases.mechanism import Mechanism, Query
from dpfast.releases.moments import JointMoments
from dpfast.statistics.norm_histograms import NormHistograms, size_counts

Table = tuple[FloatArray, FloatArray]

_ANGLES = np.linspace(0.0, math.pi, 61)


@dataclass(frozen=True)
class Rows:
    """One person's identical rows, and the arguments that describe them to an estimator."""

    #: Name of the mechanism.
    name: str
    #: Parameters of the estimator.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: L2 norm of a row, about `center`.
    length: float = 1.0
    #: Number of rows of the person; above 1 if people may have several.
    copies: int = 1
    #: Entry of the public point that rows are summed about.
    center: float = 0.0
    #: Difference between the rows of neighbours, if not all are within the bounds; and between their outcomes.
    cosines: FloatArray = field(default_factory=lambda: np.cos(_ANGLES))
    signs: tuple[float, ...] = (-1.0, 1.0)
    #: Length of all outcomes of a row.
    outcome: float = 1.0
    #: Number of outcomes, of one length in all; if several, each has a release of its own, with the recorded scales.
    n_outcomes: int = 1
    #: Whether X'X is known to be diagonal, and released so.
    diagonal: bool = False

    def blocks(self, table: Table) -> dict[str, FloatArray]:
        """Sum the blocks that a release may have, by their definition."""
        x, y = table[0] - self.center, table[1]
        xx = np.diag(x.T @ x) if self.diagonal else x.T @ x
        return {
            "xx": xx if self.n_outcomes == 1 else np.array([xx] * self.n_outcomes),
            "xy": x.T @ y,
            "x": x.sum(axis=0),
            "y": y.sum(axis=0),
            "sum": y.sum(axis=0),
            "n": np.array(float(len(x))),
        }

    def tables(self, cosine: float, sign: float, adjacency: Adjacency) -> tuple[Table, Table]:
        """Return the table and its neighbour."""
        # Symmetric about the diagonal of the plane, so that X'X moves in its diagonal alone.
        half = 0.5 * math.acos(max(-1.0, min(1.0, cosine)))
        angles = 0.25 * math.pi + np.array([-half, half])
        x, other = self.length * np.column_stack([np.cos(angles), np.sin(angles)])
        if self.options.get("nonnegative") or self.options.get("box_x") is not None:
            # Within the box a row's direction matters too: axes, or corners.
            corner = np.full(2, math.sqrt(0.5))
            x, other = self.length * (np.eye(2) if cosine == 0.0 else np.array([corner, cosine * corner]))
        y = np.full(self.n_outcomes, self.outcome * math.sqrt(1.0 / self.n_outcomes))
        first = np.tile(x + self.center, (self.copies, 1)), np.tile(y, (self.copies, 1))
        second = np.tile(other + self.center, (self.copies, 1)), np.tile(sign * y, (self.copies, 1))
        if adjacency == "replace_one":
            return first, second
        return (np.vstack([second[0], first[0]]), np.vstack([second[1], first[1]])), second

    @property
    def table(self) -> Table:
        """Some table of the person's rows."""
        return self.tables(float(self.cosines[0]), 1.0, "replace_one")[0]

    def worst_tables(self, adjacency: Adjacency, record: Release) -> tuple[tuple[Table, Table], FloatArray]:
        """Return the neighbours with blocks farthest apart in units of the noise of a release, and their difference."""
        names = tuple(record.scales)
        rows, scales = self if "x" in names else replace(self, center=0.0), deviations(record, names)

        def moved(tables: tuple[Table, Table]) -> FloatArray:
            first, second = (flattened(rows.blocks(table), names) for table in tables)
            return second - first

        candidates = (rows.tables(cosine, sign, adjacency) for cosine in rows.cosines for sign in rows.signs)
        tables = max(candidates, key=lambda pair: float(np.linalg.norm(moved(pair) / scales)))
        return tables, moved(tables)


def deviations(record: Release, names: tuple[str, ...]) -> FloatArray:
    """Return the recorded deviation of every coordinate; that off the diagonal of X'X is a root of 1/2 of it."""
    spread: dict[str, Any] = {name: np.full(np.shape(record.values[name]), record.scales[name]) for name in names}
    if record.mechanism == "Gaussian" and "xx" in spread and spread["xx"].ndim > 1:
        side = spread["xx"].shape[-1]
        spread["xx"] = spread["xx"] * np.where(np.eye(side) > 0.0, 1.0, math.sqrt(0.5))
    return flattened(spread, names)


# Lengths are rounded to the grid of sums: what differs may be this share shorter. What is as short changes nothing.
_ROUNDED, _NOTHING = 1e-4, 1e-200


def counts_attacks(
    what: str,
    new: Callable[..., Any],
    sizes: NormHistograms,
    privacy: Privacy,
    *,
    outcomes: tuple[Any, Any] = (0.5, 3.0),
) -> Iterator[Attack]:
    """Attack the counts that an estimator finds bounds by, under every claim.

    ``new(**claim)`` returns it; the person has the first outcome, or the second in their place.
    """
    for claim in claims(privacy):
        people = [(np.full(2, size), outcome) for size, outcome in zip((0.5, 3.0), outcomes, strict=True)]
        chosen = [people[:1], people[1:]] if claim.adjacency == "replace_one" else [people, people[:1]]
        tables = [(np.array([x for x, _ in rows]), np.array([y for _, y in rows])) for rows in chosen]
        yield _attack(what, new(**claimed(claim)), sizes, tables)


def _attack(what: str, estimator: Any, sizes: NormHistograms, tables: list[tuple[Any, Any]]) -> Attack:
    exact = [
        size_counts(io.open_table(x, y if sizes.outcomes else None), sizes).to_float64().ravel() for x, y in tables
    ]
    return sum_attack(f"counts by size, {what}", estimator, lambda one: estimator.fit(*tables[one]).releases_[0], exact)


class Neighbours:
    """The fits of an estimator to a table and to its neighbour; an attacker knows both, as what `_fit` takes."""

    def __init__(self, estimator: Any, tables: Iterable[tuple[Any, ...]]) -> None:
        self.estimator, self.tables = estimator, list(tables)
        source = noise.SecureSource()
        summed = [estimator._sum(estimator._checked(), source, *table) for table in self.tables]
        self.mechanism: Mechanism[Any] = summed[0].mechanism
        self.statistics = [one.statistic for one in summed]

    def releases(self, neighbour: bool) -> tuple[Release, ...]:
        """Fit one of the tables."""
        model, table = self.estimator._with({}), self.tables[neighbour]
        # Last is how many rows of a person count, if people have several.
        unit: Unit = "person" if isinstance(table[-1], int) else "row"
        found: tuple[Release, ...] = model._fit(model._checked(), *table, unit=unit).releases_
        return found

    def views(self, neighbour: bool, of: str = "") -> Iterator[View]:
        """Fit one of the tables, and yield the views of the releases for queries whose names begin so.

        An attacker who knows the table knows the sum behind every release: it depends on earlier releases alone.
        """
        stages, before = self.mechanism.stages(), None
        for released in self.releases(neighbour):
            query, before = stages.send(before), released  # type: ignore[arg-type]  # None begins
            if query.name.startswith(of):
                yield self.view(query, released, neighbour)

    def view(self, query: Query, released: Release, neighbour: bool) -> View:
        """Return the view of a query's release."""
        names = tuple(released.scales)
        spread = deviations(released, names)
        sums = [flattened(_blocks(query.mechanism, query.statistic(one)), names) / spread for one in self.statistics]
        return View(released, flattened(released.values, names) / spread - sums[neighbour], sums[1] - sums[0])


def shifted_attack(
    rows: Rows, adjacency: Adjacency, estimator: Any, arguments: Callable[[Table], tuple[Any, ...]]
) -> Attack:
    """Attack a release of moments at the angle that its recorded noise makes the worst; a fit takes the arguments."""
    tables, _ = rows.worst_tables(adjacency, first_release(estimator, arguments(rows.table)))
    return stage_attack(rows.name, estimator, map(arguments, tables))


def first_release(estimator: Any, table: tuple[Any, ...]) -> Release:
    """Return the first release of a fit."""
    return probe(lambda: Neighbours(estimator, [table]).releases(False)[0])


def stage_attack(name: str, estimator: Any, tables: Iterable[tuple[Any, ...]], of: str = "") -> Attack:
    """Attack the first release of a fit whose name begins so, on a table and its neighbour."""
    fits = Neighbours(estimator, tables)
    return view_attack(name, estimator, lambda neighbour: next(fits.views(neighbour, of)))


def stages_attack(
    name: str, estimator: Any, tables: Iterable[tuple[Any, ...]], *, of: str = "", last: int | None = None
) -> Attack:
    """Attack the releases of a fit whose names begin so, all or the first ones, on a table and its neighbour.

    The view is the noise along what differs, in units of the noise that a release of its claim has: claims may differ
    from fit to fit, as where releases choose the number of stages. A sum that the person does not change says nothing.
    """
    fits = Neighbours(estimator, tables)

    def along(neighbour: bool) -> tuple[Release, FloatArray, FloatArray, FloatArray]:
        """Return the last release, the noise of each in units of the difference, the difference, and each mu."""
        views = list(islice(fits.views(neighbour, of), last))
        apart, mus = np.array([[np.linalg.norm(one.moved), one.release.mu] for one in views]).T
        off = np.array([one.noise @ one.moved for one in views])
        return views[-1].release, off / np.maximum(apart**2, _NOTHING), apart, mus

    record, _, each, mus = probe(lambda: along(False))
    tells = np.flatnonzero(each)
    apart, attained = each[tells], each[tells] / mus[tells]
    law = GaussianShift((1.0 - _ROUNDED) * apart, np.ones(len(apart)), tuple(np.eye(len(apart), dtype=bool)))

    def seen(neighbour: bool) -> FloatArray:
        _, off, _, mus = along(neighbour)
        return attained * (mus * off)[tells]

    return replace(Attack.on(name, replace(record, privacy=estimator._checked()), law, seen, estimator), effort=0.25)


def _blocks(mechanism: Any, exact: Any) -> dict[str, FloatArray]:
    """Return sums by the blocks of their release, X'X as its diagonal and what is above it."""
    joint = getattr(mechanism, "joint", mechanism)
    if not isinstance(joint, JointMoments):
        return {"sum": exact.to_float64()}
    blocks = {name: one.to_float64() for name, one in joint.exact(exact).items()}
    if joint.each_outcome:
        parts = np.split(blocks["xx"], [joint.shape[0]])
        blocks["xx"] = np.concatenate([np.tile(part, joint.shape[1]) for part in parts])
    return blocks
