"""Trajectories, as jobs declare them: a row a step, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpfast import _arguments as check
from dpfast.io import StateEncoder, Trajectories
from dpfast.io.sources import file_format
from dpfast.jobs.inputs import INPUT, NamedColumns
from dpfast.jobs.kinds import Fact, Progress
from dpfast.jobs.parameters import Key, table_of


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What the columns hold: a row is a step of somebody's trajectory.

    Parameters
    ----------
    id : str
        The column that says whose step it is. A person is a trajectory.
    state : str
        The column of states.
    reward : str
        The column of rewards.
    order : str
        A column of numbers by which the steps of a trajectory are put in order, no two alike; else that of rows.
    states : list of str or of int
        All states there are, all text or all whole numbers. They are public: declared, not taken from the table.
    truncated : bool or str
        Whether records were cut while people went on: the column of booleans that says of whom, in any of their rows;
        or false if none was. Left out, it is not known: those with as many steps as the horizon were.
    n_states : int
        In the place of states: they are the whole numbers from 0 to one less.
    sorted : bool
        Declares that rows are sorted by id, and within one by order. A Parquet file is then read in blocks, with
        bounded memory; others are held in memory.
    """

    id: str
    state: str
    reward: str
    order: str | None = None
    states: list[str | int] | None = None
    truncated: bool | str | None = None
    n_states: int | None = None
    sorted: bool = False

    def __post_init__(self) -> None:
        columns = self.id, self.state, self.reward, self.order, self.truncated
        names = [name for name in columns if isinstance(name, str)]
        if len(set(names)) < len(names):
            raise ValueError("id, state, reward, order and truncated must be different columns")
        if (self.states is None) == (self.n_states is None):
            raise ValueError("must have either states or n_states: they are never taken from the table")
        if self.n_states is not None:
            check.positive_integer("n_states", self.n_states)
        elif len({type(state) for state in self.states or ()}) > 1:
            raise ValueError("states must be all text or all whole numbers")
        _ = self.encoder

    @cached_property
    def encoder(self) -> StateEncoder | None:
        """The mapping of the states that are listed."""
        return None if self.states is None else StateEncoder(self.states)

    @property
    def number(self) -> int:
        """Number of states."""
        return self.n_states or len(self.states or ())

    @property
    def columns(self) -> NamedColumns:
        """The columns, and how they are read."""
        is_text = self.states is not None and isinstance(self.states[0], str)
        kinds = {self.id: "id", self.state: "text" if is_text else "number", self.reward: "number"}
        kinds |= {} if self.order is None else {self.order: "number"}
        return NamedColumns(kinds | ({self.truncated: "boolean"} if isinstance(self.truncated, str) else {}))


_STEPS = table_of(
    Steps, id='"patient"', state='"state"', reward='"reward"', order='"step"', states='["well", "ill", "home"]'
)


@dataclass(frozen=True)
class Walks:
    """The declaration of a job's trajectories."""

    files: list[Path]
    #: Files as declared, if they can be read in blocks.
    sorted_files: Path | None
    steps: Steps

    @property
    def states(self) -> list[Any]:
        """The declared states."""
        return list(range(self.steps.number)) if self.steps.states is None else self.steps.states

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
        return {"n_states": self.steps.number}

    def facts(self) -> list[Fact]:
        """Return the public facts on them, for a report."""
        number, truncated = self.steps.number, self.steps.truncated
        listed = f"the whole numbers from 0 to {number - 1}"
        if self.steps.states is not None:
            listed = ", ".join(map(str, self.steps.states))
        cut = "not known" if truncated is None else f"column {truncated!r}"
        if isinstance(truncated, bool):
            cut = "all" if truncated else "none"
        facts = [("a person", f"a trajectory: all rows of one {self.steps.id!r}"), (f"states ({number})", listed)]
        return [*facts, ("truncated records", cut)]


@dataclass(frozen=True)
class Blocks:
    """Trajectories, read when they are first iterated over; anew each time where they can be read in blocks."""

    walks: Walks
    progress: Progress | None

    @cached_property
    def _held(self) -> Trajectories:
        walks = self.walks
        return Trajectories.from_frame(walks.steps.columns.of(walks.files, self.progress), **self._declared)

    @property
    def _declared(self) -> dict[str, Any]:
        steps = self.walks.steps
        names = {"trajectory": steps.id, "state": steps.state, "reward": steps.reward, "step": steps.order}
        return names | {"truncated": steps.truncated, "n_states": steps.n_states, "states": steps.encoder}

    def __iter__(self) -> Iterator[Trajectories]:
        files = self.walks.sorted_files
        return iter([self._held]) if files is None else Trajectories.iter_sorted(files, **self._declared)


class WalksForm:
    """The sections of a job on trajectories, and how they are read."""

    sections = (Key("input", INPUT, INPUT.says), Key("trajectories", _STEPS, _STEPS.says))

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Walks:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        source, steps = sections["input"], sections["trajectories"]
        declared = source.declared(here)
        files = source.found(here) if look else []
        in_blocks = steps.sorted and len(declared) == 1
        in_blocks = in_blocks and all(file_format(file, "[input] path") == "parquet" for file in files)
        steps.columns.check(files)
        return Walks(files, declared[0] if in_blocks else None, steps)
