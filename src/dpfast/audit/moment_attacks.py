"""Attacks on moments of rows: one person's rows are turned to the angle at which all blocks together move most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.audit.attacks import Attack, claimed, probe
from dpfast.audit.laws import GaussianShift, Law, NormShift, SampledShift, flattened
from dpfast.ledger import Release
from dpfast.multi_outcome import MultiOutcomeRidge
from dpfast.privacy import Adjacency, Composition, Privacy

Table = tuple[FloatArray, FloatArray]

_ANGLES = np.linspace(0.0, math.pi, 721)
# Draws that count how often the sampler takes a given row.
_SAMPLES = 2000


@dataclass(frozen=True)
class Rows:
    """One person's rows, all alike, and how an estimator is told of them.

    Parameters
    ----------
    name : str
        Of the mechanism.
    options : mapping
        Parameters of the estimator.
    length : float
        L2 norm of a row, about `center`.
    copies : int
        Rows of the person.
    center : float
        Entry of the public point that rows are summed about.
    cosines, signs : sequence of float
        Between the rows of neighbours, where not all are within the bounds; and between their outcomes.
    n_outcomes : int
        Outcomes of one length in all.
    grouped : bool
        Whether people may own several rows.
    off_diagonal : float
        Recorded noise off the diagonal of X'X in units of that on it.
    repeated : int
        How many releases share the record's scales, of which each sees one outcome.
    diagonal : bool
        Whether X'X is known to be diagonal, and released so.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    length: float = 1.0
    copies: int = 1
    center: float = 0.0
    cosines: FloatArray = field(default_factory=lambda: np.cos(_ANGLES))
    signs: tuple[float, ...] = (-1.0, 1.0)
    n_outcomes: int = 1
    grouped: bool = False
    off_diagonal: float = math.sqrt(0.5)
    repeated: int = 1
    diagonal: bool = False

    def blocks(self, table: Table) -> dict[str, FloatArray]:
        """Sum the blocks that a release may have, by their definition."""
        x, y = table[0] - self.center, table[1]
        xx = np.diag(x.T @ x) if self.diagonal else x.T @ x
        return {
            "xx": xx if self.repeated == 1 else np.array([xx] * self.repeated),
            "xy": x.T @ y,
            "x": x.sum(axis=0),
            "y": y.sum(axis=0),
            "n": np.array(float(len(x))),
        }

    def tables(self, cosine: float, sign: float, adjacency: Adjacency) -> tuple[Table, Table]:
        """Return the table and its neighbour."""
        # About the diagonal of the plane, so that X'X moves in its diagonal alone.
        half = 0.5 * math.acos(max(-1.0, min(1.0, cosine)))
        angles = 0.25 * math.pi + np.array([-half, half])
        x, other = self.length * np.column_stack([np.cos(angles), np.sin(angles)])
        if self.options.get("nonnegative") or self.options.get("box_x") is not None:
            # Within the box a row's direction matters too.
            x, other = self.length * np.eye(2) if cosine == 0.0 else self._corners(cosine)
        y = np.full(self.n_outcomes, math.sqrt(1.0 / self.n_outcomes))
        first = np.tile(x + self.center, (self.copies, 1)), np.tile(y, (self.copies, 1))
        second = np.tile(other + self.center, (self.copies, 1)), np.tile(sign * y, (self.copies, 1))
        if adjacency == "replace_one":
            return first, second
        return (np.vstack([second[0], first[0]]), np.vstack([second[1], first[1]])), second

    def _corners(self, cosine: float) -> FloatArray:
        corner = np.full(2, self.length * math.sqrt(0.5))
        return np.array([corner, math.copysign(1.0, cosine) * corner])


def moment_attacks(privacy: Privacy) -> Iterator[Attack]:
    """Attack every way in which `MultiOutcomeRidge` releases moments.

    Parameters
    ----------
    privacy : Privacy
        Claim; its delta is used by Gaussian noise alone, and its adjacency by neither.
    """
    quarter = math.sqrt(0.25)
    ways = [
        Rows("moments of rows"),
        Rows("moments of rows and their sums", {"fit_intercept": True}),
        Rows(
            "moments of nonnegative rows",
            {"nonnegative": True},
            cosines=np.zeros(1),
            signs=(1.0,),
        ),
        Rows(
            "moments of rows about the centre of a box",
            {"box_x": (0.0, 2.0), "bound_x": None},
            length=math.sqrt(2.0),
            center=1.0,
            cosines=np.array([-1.0, 1.0]),
        ),
        Rows("moments of people's rows", copies=3, grouped=True),
        Rows(
            "moments of people's rows, clipped by person",
            {"block_bounds": (0.5, math.sqrt(2.0 * 0.5))},
            length=quarter,
            copies=2,
            grouped=True,
        ),
    ]
    for adjacency in get_args(Adjacency):
        for way in ways:
            yield _attack(way, replace(privacy, adjacency=adjacency))
            yield _attack(way, Privacy(privacy.epsilon, 0.0, adjacency))
    one = replace(privacy, adjacency="replace_one")
    yield _attack(
        Rows("moments of rows, projection", {"mechanism": "projection", "public_labels": True}, signs=(1.0,)), one
    )
    for adjacency in get_args(Adjacency):
        claim = replace(privacy, adjacency=adjacency)
        for composition in get_args(Composition):
            options = {"mechanism": "independent", "composition": composition}
            yield _attack(Rows(f"moments of each outcome, {composition}", options, n_outcomes=2, repeated=2), claim)
        yield _attack(Rows("moments of rows, as printed", {"calibration": "paper"}, off_diagonal=1.0), claim)
    yield sampled_attack(one)


def _attack(rows: Rows, privacy: Privacy) -> Attack:
    options = {"bound_x": 1.0, "bound_y": 1.0, "ridge": 1.0} | claimed(privacy) | dict(rows.options)
    estimator = MultiOutcomeRidge(**options)

    def fit(table: Table) -> Release:
        people = np.repeat(np.arange(len(table[0]) // rows.copies), rows.copies)
        grouped: dict[str, Any] = {"groups": people, "max_rows": rows.copies} if rows.grouped else {}
        released: Release = estimator.fit(*table, **grouped).releases_[0]
        return released

    return shifted_attack(rows, privacy.adjacency, fit, estimator)


def shifted_attack(rows: Rows, adjacency: Adjacency, fit: Callable[[Table], Release], estimator: object) -> Attack:
    """Attack a release of moments at the angle that its recorded noise makes the worst.

    Parameters
    ----------
    rows : Rows
        The person who is replaced, or comes.
    adjacency : {"replace_one", "add_remove"}
        Which of them.
    fit : callable
        From a table, as arrays of rows and of outcomes, to what left.
    estimator : object
        Whose mechanism it is.
    """
    record = probe(lambda: fit(rows.tables(float(rows.cosines[0]), 1.0, "replace_one")[0]))
    names = tuple(record.values)
    if "x" not in names:
        rows = replace(rows, center=0.0)
    scales = _scales(rows, record, names)

    def moved(tables: tuple[Table, Table]) -> FloatArray:
        first, second = (flattened(rows.blocks(table), names) for table in tables)
        return second - first

    candidates = (rows.tables(cosine, sign, adjacency) for cosine in rows.cosines for sign in rows.signs)
    tables = max(candidates, key=lambda pair: float(np.linalg.norm(moved(pair) / scales)))
    centres = [flattened(rows.blocks(table), names) for table in tables]
    # L2-Laplace noise is one draw for all blocks, each stretched by a power of two.
    stretch: FloatArray = np.ones(len(scales))
    law: Law = GaussianShift(moved(tables), scales, _parts(record, names))
    if record.mechanism != "Gaussian":
        stretch = np.exp2(np.round(np.log2(record.scales["xx"] / scales)))
        # The deviation of a coordinate is recorded.
        law = NormShift((moved(tables) * stretch,), (record.scales["xx"] / math.sqrt(len(scales) + 1.0),))

    def seen(neighbour: bool) -> FloatArray:
        return (flattened(fit(tables[neighbour]).values, names) - centres[neighbour]) * stretch

    return Attack(f"{rows.name}, {record.mechanism}, {adjacency}", record.privacy, law, seen, (estimator,))


def _scales(rows: Rows, record: Release, names: tuple[str, ...]) -> FloatArray:
    """Return the recorded deviation of every coordinate."""
    spread: dict[str, Any] = {name: np.full(np.shape(record.values[name]), record.scales[name]) for name in names}
    if record.mechanism == "Gaussian" and spread["xx"].ndim > 1:
        side = spread["xx"].shape[-1]
        spread["xx"] = spread["xx"] * np.where(np.eye(side) > 0.0, 1.0, rows.off_diagonal)
    return flattened(spread, names)


def _parts(record: Release, names: tuple[str, ...]) -> tuple[NDArray[np.bool_], ...]:
    """Coordinates of every block; those of X'X on its diagonal and off it apart."""
    marked: dict[str, FloatArray] = {}
    for index, name in enumerate(names):
        marked[name] = np.full(np.shape(record.values[name]), index + 1.0)
    if marked["xx"].ndim > 1:
        marked["xx"] = marked["xx"] - np.eye(marked["xx"].shape[-1])
    labels = flattened(marked, names)
    return tuple(labels == label for label in np.unique(labels))


def sampled_attack(privacy: Privacy, n_sampled: int = 8, n_rows: int = 10) -> Attack:
    """Attack X'X of a secret sample and X'Y of all rows: one person differs from all others, who are alike.

    Parameters
    ----------
    privacy : Privacy
        Claim, under replace-one with a delta above 0.
    n_sampled, n_rows : int
        Rows in the sample, and in all.
    """
    rows = Rows("moments of a sample and of all rows")
    estimator = MultiOutcomeRidge(bound_x=1.0, bound_y=1.0, ridge=1.0, n_subsample=n_sampled, **claimed(privacy))

    def fit(table: Table) -> Release:
        released: Release = estimator.fit(*table).releases_[0]
        return released

    def together(cosine: float, sign: float, *, alike: bool) -> Table:
        (x, y), (other, w) = rows.tables(cosine, sign, "replace_one")
        usual = np.repeat(other, n_rows - 1, axis=0), np.repeat(w, n_rows - 1, axis=0)
        first = (other, w) if alike else (x, y)
        return np.vstack([first[0], usual[0]]), np.vstack([first[1], usual[1]])

    record = probe(lambda: fit(together(1.0, 1.0, alike=True)))
    scales = {name: _scales(rows, replace(record, values={name: record.values[name]}), (name,)) for name in ("xx",)}
    scales["xy"] = np.full(2, record.scales["xy"])

    def moved(cosine: float, sign: float) -> dict[str, FloatArray]:
        first, second = (rows.blocks(table) for table in rows.tables(cosine, sign, "replace_one"))
        return {name: flattened(first, (name,)) - flattened(second, (name,)) for name in scales}

    candidates = [(c, sign, moved(c, sign)) for c in rows.cosines for sign in rows.signs]
    cosine, sign, shift = max(
        candidates, key=lambda one: sum(float(np.linalg.norm(one[2][name] / scales[name])) ** 2 for name in scales)
    )
    along = {name: shift[name] / scales[name] ** 2 for name in scales}
    tables = [together(cosine, sign, alike=alike) for alike in (True, False)]
    usual = rows.blocks(rows.tables(cosine, sign, "replace_one")[1])
    n_of = {"xx": n_sampled, "xy": n_rows}

    def seen(neighbour: bool) -> FloatArray:
        values, found = fit(tables[neighbour]).values, []
        for name in ("xx", "xy"):
            centre = n_of[name] * flattened(usual, (name,)) + (shift[name] if neighbour and name == "xy" else 0.0)
            length = float(np.linalg.norm(along[name]))
            found.append(float((flattened(values, (name,)) - centre) @ along[name]) / length if length > 0.0 else 0.0)
        # Whether the one who differs was sampled is hidden, and with it the noise in X'X.
        return np.array([math.nan if neighbour else found[0], found[1]])

    units = [along[name] / np.linalg.norm(along[name]) for name in ("xx", "xy")]
    distances = [float(unit @ shift[name]) for unit, name in zip(units, ("xx", "xy"), strict=True)]
    deviations = [float(np.linalg.norm(unit * scales[name])) for unit, name in zip(units, ("xx", "xy"), strict=True)]
    source = noise.SecureSource()
    hits = sum(bool(np.any(noise.sample_without_replacement(n_rows, n_sampled, source) == 0)) for _ in range(_SAMPLES))
    law = SampledShift((distances[0], distances[1]), (deviations[0], deviations[1]), (hits, _SAMPLES))
    return Attack(f"{rows.name}, {privacy.adjacency}", record.privacy, law, seen, (estimator,))
