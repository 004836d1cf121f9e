"""Attacks that families share: on moments of rows, on counts of people by size, and on stages.

The attacker knows everybody but one person. Of moments, that person's rows are at the angle at which all blocks
together move most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast.attack import Attack, GaussianShift, Law, NormShift, claimed, claims, flattened, probe, sum_attack
from dpfast.ledger import Release
from dpfast.privacy import Adjacency, Privacy
from dpfast.statistics import Gram
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
    #: Recorded noise off the diagonal of X'X in units of that on it.
    off_diagonal: float = math.sqrt(0.5)
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

    def worst_tables(
        self, adjacency: Adjacency, names: tuple[str, ...], scales: FloatArray
    ) -> tuple[tuple[Table, Table], FloatArray]:
        """Return the neighbours with blocks farthest apart in units of the noise, and their difference."""

        def moved(tables: tuple[Table, Table]) -> FloatArray:
            first, second = (flattened(self.blocks(table), names) for table in tables)
            return second - first

        candidates = (self.tables(cosine, sign, adjacency) for cosine in self.cosines for sign in self.signs)
        tables = max(candidates, key=lambda pair: float(np.linalg.norm(moved(pair) / scales)))
        return tables, moved(tables)

    def scales(self, record: Release, names: tuple[str, ...]) -> FloatArray:
        """Return the recorded deviation of every coordinate."""
        return deviations(record, names, self.off_diagonal)


def deviations(record: Release, names: tuple[str, ...], off_diagonal: float = math.sqrt(0.5)) -> FloatArray:
    """Return the recorded deviation of every coordinate; that off the diagonal of X'X in units of that on it."""
    spread: dict[str, Any] = {name: np.full(np.shape(record.values[name]), record.scales[name]) for name in names}
    if record.mechanism == "Gaussian" and "xx" in spread and spread["xx"].ndim > 1:
        side = spread["xx"].shape[-1]
        spread["xx"] = spread["xx"] * np.where(np.eye(side) > 0.0, 1.0, off_diagonal)
    return flattened(spread, names)


def shifted_attack(rows: Rows, adjacency: Adjacency, fit: Callable[[Table], Release], estimator: object) -> Attack:
    """Attack a release of moments, fitted from a table, at the angle that its recorded noise makes the worst."""
    record = probe(lambda: fit(rows.tables(float(rows.cosines[0]), 1.0, "replace_one")[0]))
    names = tuple(record.values)
    if "x" not in names:
        rows = replace(rows, center=0.0)
    scales = rows.scales(record, names)
    tables, shift = rows.worst_tables(adjacency, names, scales)
    centres = [flattened(rows.blocks(table), names) for table in tables]
    # L2-Laplace noise is one draw for all blocks, each scaled by a power of two.
    stretch: FloatArray = np.ones(len(scales))
    law: Law
    if record.mechanism == "Gaussian":
        law = GaussianShift(shift, scales, _parts(record, names))
    else:
        usual = record.scales[names[0]]
        stretch = np.exp2(np.round(np.log2(usual / scales)))
        # The deviation of a coordinate is recorded.
        law = NormShift((shift * stretch,), (usual / math.sqrt(len(scales) + 1.0),))

    def seen(neighbour: bool) -> FloatArray:
        return (flattened(fit(tables[neighbour]).values, names) - centres[neighbour]) * stretch

    return Attack.on(rows.name, record, law, seen, estimator)


def _parts(record: Release, names: tuple[str, ...]) -> tuple[NDArray[np.bool_], ...]:
    """Coordinates of every block; those of X'X on its diagonal and off it apart."""
    shapes = [np.shape(record.values[name]) for name in names]
    marked: dict[str, FloatArray] = {
        name: np.full(shape, index + 1.0) for index, (name, shape) in enumerate(zip(names, shapes, strict=True))
    }
    if marked["xx"].ndim > 1:
        marked["xx"] = marked["xx"] - np.eye(marked["xx"].shape[-1])
    labels = flattened(marked, names)
    return tuple(labels == label for label in np.unique(labels))


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


def stages_attack(
    name: str,
    estimator: Any,
    tables: Sequence[tuple[Any, ...]],
    privacy: Privacy,
    *,
    of: str = "",
    last: int | None = None,
) -> Attack:
    """Attack the releases of a fit whose names begin so, all or the first ones, on a table and its neighbour.

    An attacker who knows the table knows the sum behind every release: it depends on earlier releases alone. The view
    is the noise along what differs, in units of the recorded noise. A sum that the person does not change says nothing.
    """
    source = noise.SecureSource()
    summed = [estimator._sum(privacy, source, *table) for table in tables]

    def fit(neighbour: bool) -> tuple[Release, ...]:
        released: tuple[Release, ...] = estimator.fit(*tables[neighbour]).releases_
        return released

    def along(releases: tuple[Release, ...], at: int) -> tuple[FloatArray, FloatArray]:
        """Return the noise of every release in units of the difference, and the difference in recorded noise."""
        seen, apart, stages = [], [], summed[0].mechanism.stages()
        stage = next(stages)
        for release in releases:
            if stage.name.startswith(of):
                sums = [_in_noise(release, _blocks(stage.statistic(one.statistic))) for one in summed]
                moved = sums[1] - sums[0]
                length = float(np.linalg.norm(moved))
                off = _in_noise(release, release.values) - sums[at]
                seen.append(float(off @ moved) / max(length**2, _NOTHING))
                apart.append(length)
            if len(seen) == last or release is releases[-1]:
                break
            stage = stages.send(release)
        return np.array(seen), np.array(apart)

    releases = probe(lambda: fit(False))
    _, each = along(releases, 0)
    tells = np.flatnonzero(each)
    apart = each[tells]
    law = GaussianShift((1.0 - _ROUNDED) * apart, np.ones(len(apart)), tuple(np.eye(len(apart), dtype=bool)))

    def view(neighbour: bool) -> FloatArray:
        return np.asarray(apart * along(fit(neighbour), int(neighbour))[0][tells])

    record = replace(releases[-1], privacy=privacy)
    return replace(Attack.on(name, record, law, view, estimator), effort=0.25)


def _blocks(exact: Any) -> dict[str, FloatArray]:
    """Return sums by the blocks of their release."""
    if isinstance(exact, Gram):
        sums = exact.exact_x_sum
        return {"xx": exact.xx} | ({} if sums is None else {"x": sums.to_float64()})
    return {"sum": exact.to_float64()}


def _in_noise(release: Release, values: Mapping[str, FloatArray]) -> FloatArray:
    """Return what was summed, or released, in units of the noise in every entry."""
    names = tuple(release.scales)
    return np.asarray(flattened(values, names) / deviations(release, names))
