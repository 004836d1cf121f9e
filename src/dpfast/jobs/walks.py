"""Trajectories, as jobs declare them: a row a step, in any order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, IntArray
from dpfast.io import StateEncoder, Trajectories
from dpfast.io.frames import Batch
from dpfast.io.people import numbered_column
from dpfast.io.sources import file_format
from dpfast.io.trajectory_sources import Names, Rows, flattened
from dpfast.jobs.inputs import INPUT, Files, NamedColumns
from dpfast.jobs.kinds import Fact, Progress
from dpfast.jobs.values import BOOLEAN, INTEGER, LEFT_OUT, TEXT, Either, Key, Lists, Table

_TRAJECTORIES = Table(
    (
        Key("id", TEXT, "The column that says whose step it is. A person is a trajectory.", example='"patient"'),
        Key("state", TEXT, "The column of states.", example='"state"'),
        Key("reward", TEXT, "The column of rewards.", example='"reward"'),
        Key(
            "order",
            TEXT,
            "A column of numbers by which the steps of a trajectory are put in order, no two alike; else that of rows.",
            LEFT_OUT,
            '"step"',
        ),
        Key(
            "states",
            Lists(Either((TEXT, INTEGER))),
            "All states there are, all text or all whole numbers. They are public: declared, not taken from the table.",
            LEFT_OUT,
            '["well", "ill", "home"]',
        ),
        Key(
            "truncated",
            Either((BOOLEAN, TEXT)),
            "Whether records were cut while people went on: the column of booleans that says of whom, in any of their "
            "rows; or false if none was. Left out, it is not known: those with as many steps as the horizon were.",
            LEFT_OUT,
        ),
        Key("n_states", INTEGER, "In the place of states: they are the whole numbers from 0 to one less.", LEFT_OUT),
        Key(
            "sorted",
            BOOLEAN,
            "Declares that rows are sorted by id, and within one by order. A Parquet file is then read in blocks, with "
            "bounded memory; others are held in memory.",
            LEFT_OUT,
            usual="false",
        ),
    ),
    "What the columns hold: a row is a step of somebody's trajectory.",
)


@dataclass(frozen=True)
class Walks:
    """The declaration of a job's trajectories."""

    files: list[Path]
    #: Files as declared, if they can be read in blocks.
    sorted_files: Path | None
    id: str
    state: str
    reward: str
    order: str | None
    encoder: StateEncoder | None
    n_states: int
    #: The column of flags, or that of all.
    truncated: str | bool | None

    @property
    def states(self) -> list[Any]:
        """The declared states."""
        return list(range(self.n_states) if self.encoder is None else self.encoder.states)

    @property
    def columns(self) -> NamedColumns:
        """The columns, and how they are read."""
        numbers = (self.reward,) if self.order is None else (self.reward, self.order)
        is_text = self.encoder is not None and isinstance(self.encoder.states[0], str)
        return NamedColumns(
            (self.state,) if is_text else (),
            numbers if is_text else (*numbers, self.state),
            (self.id,),
            (self.truncated,) if isinstance(self.truncated, str) else (),
        )

    def read(self, progress: Progress | None) -> Trajectories:
        """Return all trajectories, held in memory."""
        numbers: dict[Hashable, int] = {}
        rows = Rows.joined([self._rows(batch, numbers) for batch in self.columns.batches(self.files, progress)])
        flat = flattened(rows, Names(self.id, self.state, self.reward, self.order, None))
        flags: Any = self.truncated
        if isinstance(flags, str):
            flags = np.empty(0, np.bool_) if flat.truncated is None else flat.truncated
        return Trajectories(*flat[:3], self.n_states, encoder=self.encoder, truncated=flags)

    def _rows(self, batch: Batch, numbers: dict[Hashable, int]) -> Rows:
        """Return rows with numbers of their owners; the state is -1 for an undeclared one."""
        steps = None if self.order is None else _complete(batch, self.order)
        cut = _complete(batch, self.truncated) > 0.0 if isinstance(self.truncated, str) else None
        whose = numbered_column(batch, self.id, numbers)
        return Rows(whose, self._codes(batch), batch.numbers(self.reward), steps, cut)

    def _codes(self, batch: Batch) -> IntArray:
        if self.encoder is not None:
            return self.encoder.codes_in(batch, self.state)
        values = batch.numbers(self.state)
        with np.errstate(invalid="ignore"):
            known = (values >= 0.0) & (values < self.n_states) & (values == np.floor(values))
        return np.where(known, values, -1.0).astype(np.int64)

    @property
    def names(self) -> tuple[Sequence[Any], ...]:
        """The declared states."""
        return (self.states,)

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters as they are."""
        return dict(given)

    def fit(self, model: Any, progress: Progress | None) -> None:
        """Fit, from blocks of trajectories if the files are sorted and can be read in blocks."""
        model.fit(Blocks(self, progress))

    def sizes(self) -> dict[str, int]:
        """Return the sizes that plans take."""
        return {"n_states": self.n_states}

    def facts(self) -> list[Fact]:
        """Return the public facts on them, for a report."""
        listed = f"the whole numbers from 0 to {self.n_states - 1}"
        if self.encoder is not None:
            listed = ", ".join(map(str, self.encoder.states))
        cut = "not known" if self.truncated is None else f"column {self.truncated!r}"
        if isinstance(self.truncated, bool):
            cut = "all" if self.truncated else "none"
        facts = [("a person", f"a trajectory: all rows of one {self.id!r}"), (f"states ({self.n_states})", listed)]
        return [*facts, ("truncated records", cut)]


@dataclass(frozen=True)
class Blocks:
    """Trajectories, read when they are first iterated over; anew each time where they can be read in blocks."""

    walks: Walks
    progress: Progress | None

    @cached_property
    def _held(self) -> Trajectories:
        return self.walks.read(self.progress)

    def __iter__(self) -> Iterator[Trajectories]:
        walks = self.walks
        if walks.sorted_files is None:
            return iter([self._held])
        names = {"trajectory": walks.id, "state": walks.state, "reward": walks.reward, "step": walks.order}
        declared: dict[str, Any] = {"truncated": walks.truncated}
        declared |= {"n_states": walks.n_states} if walks.encoder is None else {"states": walks.encoder}
        return Trajectories.iter_parquet(walks.sorted_files, **names, **declared)  # type: ignore[arg-type]


class WalksForm:
    """The sections of a job on trajectories, and how they are read."""

    sections = (
        Key("input", INPUT, INPUT.says),
        Key("trajectories", _TRAJECTORIES, _TRAJECTORIES.says),
    )

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Walks:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        given = sections["trajectories"]
        keys = "id", "state", "reward", "order", "truncated"
        names = [given[key] for key in keys if isinstance(given.get(key), str)]
        if len(set(names)) < len(names):
            raise ValueError("[trajectories] id, state, reward, order and truncated must be different columns")
        n_states, encoder = _states(given)
        declared = Files.of(sections["input"], here)
        files = declared.found(sections["input"].get("format")) if look else []
        in_blocks = given.get("sorted", False) and len(declared.declared) == 1
        in_blocks = in_blocks and all(file_format(file, "[input] path") == "parquet" for file in files)
        walks = Walks(
            files,
            declared.declared[0] if in_blocks else None,
            given["id"],
            given["state"],
            given["reward"],
            given.get("order"),
            encoder,
            n_states,
            given.get("truncated"),
        )
        walks.columns.check(files)
        return walks


def _complete(batch: Batch, name: str) -> FloatArray:
    values = batch.numbers(name)
    if np.isnan(values).any():
        raise ValueError(f"column {name!r} has missing entries")
    return values


def _states(given: Mapping[str, Any]) -> tuple[int, StateEncoder | None]:
    if ("states" in given) == ("n_states" in given):
        raise ValueError("[trajectories] must have either states or n_states: they are never taken from the table")
    if "n_states" in given:
        return check.positive_integer("[trajectories] n_states", given["n_states"]), None
    states = given["states"]
    if len({type(state) for state in states}) > 1:
        raise ValueError("[trajectories] states must be all text or all whole numbers")
    try:
        encoder = StateEncoder(states)
    except ValueError as error:
        raise ValueError(f"[trajectories] {error}") from None
    return len(encoder), encoder
