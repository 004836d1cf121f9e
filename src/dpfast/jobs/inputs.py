"""Tables of jobs: the section [input] of every job, panels, and trajectories; tables of rows are in jobs/rows.py.

A panel is wide, a row a donor, or long, a row for each unit and period. Trajectories have a row a step, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpfast._optional import optional
from dpfast.io import Boolean, Category, Columns, Deferred, Number, RowOwners, StateEncoder, Trajectories
from dpfast.io.columns import Column, DeclaredFiles
from dpfast.io.panel import check_columns
from dpfast.io.sources import check_named_once, check_on_disk, file_format, table_files
from dpfast.io.states import declared_states
from dpfast.jobs.job_types import Fact, Progress
from dpfast.jobs.parameters import LEFT_OUT, NUMBER, Key, by_name, lists, table_of


@dataclass(frozen=True, kw_only=True)
class Input:
    """Where the table is, columns by name. Paths are relative to this file's folder.

    Parameters
    ----------
    path : str or list of str
        A CSV or Parquet file, a pattern, a folder of them, or a list of these; from the folder of this file on.
    """

    path: str | list[str]

    def declared(self, here: Path) -> list[Path]:
        """Return the files as they were declared, from the job's folder on."""
        paths = [self.path] if isinstance(self.path, str) else self.path
        if not paths:
            raise ValueError("[input] path must list at least one file")
        for path in paths:
            check_on_disk(path, "[input] path")
        return [here / path for path in paths]

    def found(self, here: Path) -> list[Path]:
        """Return the existing files, which are tables of named columns."""
        files = [file for path in self.declared(here) for file in table_files(path, "[input] path")]
        if "npy" in {file_format(file, "[input] path") for file in files}:
            raise ValueError("[input] path is a .npy file, which has no named columns")
        for file in files:
            if not file.exists():
                raise FileNotFoundError(f"[input] path: no such file, seen from the folder of the job: {str(file)!r}")
        check_named_once(files, "[input] path")
        optional("pyarrow", f"reading {str(files[0])!r}")  # of a CSV file the header is read without
        return files


INPUT = table_of(Input, path='"table.csv"')


# What texts there are is not declared: one level stands for all.
_COLUMNS: Mapping[str, Callable[[str], Column]] = {
    "text": partial(Category, levels=("text",)),
    "number": Number,
    "boolean": Boolean,
}


def check_kinds(files: list[Path], kinds: Mapping[str, str]) -> None:
    """Refuse files that lack a column, or hold values of another kind there, see `DeclaredFiles`; no rows are read."""
    Columns([_COLUMNS[kind](name) for name, kind in kinds.items() if kind != "id"]).check(files)
    for name in (name for name, kind in kinds.items() if kind == "id"):
        RowOwners(files, name).check()


_LONG = ("unit", "time", "value", "treated")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the panel lies: wide (periods) or long (unit, time, value, treated).

    Parameters
    ----------
    n_pre : int or str
        Number of periods before the intervention; or the label of the first one after it.
    periods : list of str
        Of a wide table, a row a donor: its columns of outcomes, in the order of time. Names that are whole numbers are
        labels as such. Take targets out of the table, and put them into [targets].
    predictors : mapping of str to list of float
        Further columns, as rows of the pre-period, by name, with public limits and a weight of at most 1, that of a
        period (by default), such as { income = [0, 100000], age = [18, 90, 0.5] }. Of a long table the mean of a unit's
        rows before the intervention counts. In [targets] they come first.
    unit : str
        Of a long table, a row for each unit and period: the column of units, donors and target.
    time : str
        The column of periods.
    value : str
        The column of outcomes.
    treated : str, int, or list of these
        The unit that is the target, or a list of several, for one release. Their own records are public. Of numbers,
        units are read as numbers.
    times : {"number", "text"}
        What the column of periods holds: numbers, or text whose order is that of time, such as 2024-01-31.
    """

    n_pre: int | str
    periods: list[str] | None = None
    predictors: Mapping[str, list[float]] | None = None
    unit: str | None = None
    time: str | None = None
    value: str | None = None
    treated: str | int | list[str | int] | None = None
    times: Literal["number", "text"] = "number"

    def __post_init__(self) -> None:
        lacking = [key for key in _LONG if getattr(self, key) is None]
        if (len(lacking) < len(_LONG)) == (self.periods is not None):
            raise ValueError("must have either periods, of a wide table, or unit, time, value and treated")
        if self.periods is not None:
            if both := set(self.predictors or ()) & set(self.periods):
                raise ValueError(f"predictors must not be periods as well, got {sorted(both)}")
            return
        if lacking:
            raise ValueError(f"lacks the key {lacking[0]!r}")
        if not self.several or len({type(one) for one in self.several}) > 1:
            raise ValueError("treated must be units that are all text or all numbers, at least one")
        check_columns(self.long, self.predictors or ())
        if isinstance(self.n_pre, str) and self.times == "number":
            numbers = f"column {self.time!r} holds numbers"
            raise ValueError(f'n_pre {self.n_pre!r} is text, and {numbers}: write a number, or times = "text"')

    @property
    def long(self) -> tuple[str, ...]:
        """Unit, time and value of a long table."""
        return tuple(name for name in (self.unit, self.time, self.value) if name is not None)

    @property
    def several(self) -> list[str | int]:
        """The treated units of a long table."""
        return self.treated if isinstance(self.treated, list) else [] if self.treated is None else [self.treated]

    @property
    def kinds(self) -> dict[str, str]:
        """The columns, and how they are read."""
        predictors = dict.fromkeys(self.predictors or (), "number")
        if self.periods is not None:
            return predictors | dict.fromkeys(self.periods, "number")
        unit = "text" if isinstance(self.several[0], str) else "number"
        return dict(zip(self.long, (unit, self.times, "number"), strict=True)) | predictors


_LAYOUT = table_of(Layout, n_pre="3", periods='["2019", "2020", "2021", "2022"]')
_TARGETS_SAY = (
    "Public series, by name, with a wide table: outcomes of all periods, or of those before the intervention, for "
    "which a prediction is made."
)


@dataclass(frozen=True)
class Panel:
    """The declaration of a job's panel."""

    files: list[Path]
    layout: Layout
    #: Names of public series, and the series.
    targets: tuple[str, ...]
    series: Any = None

    @property
    def labels(self) -> list[Any]:
        """Labels of the periods of a wide table: public, as they were declared."""
        names = self.layout.periods or []
        return [int(name) for name in names] if all(name.isdecimal() for name in names) else names

    def wide(self, progress: Progress | None) -> Any:
        """Return the donors as a frame, NaN where an entry is missing."""
        pandas = optional("pandas", "a job on a panel")
        names = list(self.layout.kinds)
        batches = DeclaredFiles(self.files, self.layout.kinds, progress).batches()
        blocks = [np.column_stack([batch.numbers(name) for name in names]) for batch in batches]
        labels: Any = [*(self.layout.predictors or ()), *self.labels]
        if all(isinstance(label, str) for label in labels):
            # Declared, so that any text is a period.
            labels = pandas.CategoricalIndex(labels, categories=labels, ordered=True)
        return pandas.DataFrame(np.concatenate([np.empty((0, len(names))), *blocks]), columns=labels)

    @property
    def names(self) -> tuple[Sequence[str], ...]:
        """Names of targets."""
        return (self.targets,)

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, with the predictors that are declared."""
        predictors = {name: tuple(numbers) for name, numbers in (self.layout.predictors or {}).items()}
        return dict(given) | ({"predictors": predictors} if predictors else {})

    def fit(self, model: Any, progress: Progress | None) -> None:
        """Fit, from a panel in memory."""
        layout = self.layout
        if layout.periods is not None:
            model.fit(Deferred(partial(self.wide, progress)), layout.n_pre, self.series)
        else:
            rows = DeclaredFiles(self.files, layout.kinds, progress)
            model.fit_long(rows, *layout.long, layout.treated, layout.n_pre)

    def sizes(self) -> dict[str, int]:
        """Return the sizes that plans take, as far as they are known."""
        if self.layout.periods is None:
            return {}
        n_pre, n_periods = self.layout.n_pre, len(self.layout.periods)
        if n_pre in self.labels and not (isinstance(n_pre, int) and 1 <= n_pre < n_periods):
            n_pre = self.labels.index(n_pre)
        return {"n_periods": n_periods} | ({"n_pre": n_pre} if isinstance(n_pre, int) else {})

    def facts(self) -> list[Fact]:
        """Return the public facts on them, for a report."""
        layout, targets = self.layout, ", ".join(self.targets)
        lies = [("predictors", ", ".join(layout.predictors))] if layout.predictors else []
        lies.append(("treated", targets) if layout.periods is None else ("periods", ", ".join(layout.periods)))
        return [*lies, ("intervention", f"n_pre = {layout.n_pre}"), ("targets", targets or "none")]


class PanelInput:
    """The sections of a job on a panel, and how they are read."""

    sections = (
        Key("input", INPUT, INPUT.doc),
        Key("panel", _LAYOUT, _LAYOUT.doc),
        Key("targets", by_name(lists(NUMBER)), _TARGETS_SAY, LEFT_OUT, "Bern = [1.0, 1.2, 1.1, 1.6]"),
    )

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Panel:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        layout, targets = sections["panel"], sections.get("targets", {})
        files = sections["input"].found(here) if look else []
        if layout.periods is None and targets:
            raise ValueError("[targets] are for wide tables; in a long one the treated units are the targets")
        check_kinds(files, layout.kinds)
        if layout.periods is None:
            return Panel(files, layout, tuple(map(str, layout.several)))
        series = np.array(list(targets.values())) if len({len(one) for one in targets.values()}) == 1 else None
        series = series[0] if series is not None and len(series) == 1 else series
        wide, n_predictors = Panel(files, layout, tuple(targets), series), len(layout.predictors or ())
        if targets and (series is None or series.shape[-1] - n_predictors not in wide.sizes().values()):
            first = f" {n_predictors} predictors and" if n_predictors else ""
            raise ValueError(
                f"[targets] must each hold{first} a number for all {len(layout.periods)} periods, or each for those "
                "before n_pre"
            )
        return wide


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
        if len({type(state) for state in self.states or ()}) > 1:
            raise ValueError("states must be all text or all whole numbers")
        _ = self.declared

    @cached_property
    def declared(self) -> tuple[int, StateEncoder | None]:
        """The number of states, and their mapping where they are listed."""
        return declared_states(self.n_states, self.states)

    @property
    def kinds(self) -> dict[str, str]:
        """The columns, and how they are read."""
        is_text = self.states is not None and isinstance(self.states[0], str)
        kinds = {self.id: "id", self.state: "text" if is_text else "number", self.reward: "number"}
        kinds |= {} if self.order is None else {self.order: "number"}
        return kinds | ({self.truncated: "boolean"} if isinstance(self.truncated, str) else {})


_STEPS = table_of(
    Steps, id='"patient"', state='"state"', reward='"reward"', order='"step"', states='["well", "ill", "home"]'
)


@dataclass(frozen=True)
class TrajectoryTable:
    """The declaration of a job's trajectories, which are read when they are iterated over.

    They are read anew each time where they can be in blocks, and otherwise once.
    """

    files: list[Path]
    #: Files as declared, if they can be read in blocks.
    sorted_files: Path | None
    steps: Steps
    progress: Progress | None = None

    @property
    def states(self) -> list[Any]:
        """The declared states."""
        return list(range(self.steps.declared[0])) if self.steps.states is None else self.steps.states

    @property
    def names(self) -> tuple[Sequence[Any], ...]:
        """The declared states."""
        return (self.states,)

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters as they are."""
        return dict(given)

    def fit(self, model: Any, progress: Progress | None) -> None:
        """Fit, from blocks of trajectories if the files are sorted and can be read in blocks."""
        model.fit(replace(self, progress=progress))

    def sizes(self) -> dict[str, int]:
        """Return the sizes that plans take."""
        return {"n_states": self.steps.declared[0]}

    def facts(self) -> list[Fact]:
        """Return the public facts on them, for a report."""
        number, truncated = self.steps.declared[0], self.steps.truncated
        listed = f"the whole numbers from 0 to {number - 1}"
        if self.steps.states is not None:
            listed = ", ".join(map(str, self.steps.states))
        cut = "not known" if truncated is None else f"column {truncated!r}"
        if isinstance(truncated, bool):
            cut = "all" if truncated else "none"
        facts = [("a person", f"a trajectory: all rows of one {self.steps.id!r}"), (f"states ({number})", listed)]
        return [*facts, ("truncated records", cut)]

    @cached_property
    def _held(self) -> Trajectories:
        return Trajectories.from_frame(DeclaredFiles(self.files, self.steps.kinds, self.progress), **self._declared)

    @property
    def _declared(self) -> dict[str, Any]:
        steps = self.steps
        names = {"trajectory": steps.id, "state": steps.state, "reward": steps.reward, "step": steps.order}
        return names | {"truncated": steps.truncated, "n_states": steps.n_states, "states": steps.declared[1]}

    def __iter__(self) -> Iterator[Trajectories]:
        files = self.sorted_files
        return iter([self._held]) if files is None else Trajectories.iter_sorted(files, **self._declared)


class TrajectoriesInput:
    """The sections of a job on trajectories, and how they are read."""

    sections = (Key("input", INPUT, INPUT.doc), Key("trajectories", _STEPS, _STEPS.doc))

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> TrajectoryTable:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        source, steps = sections["input"], sections["trajectories"]
        declared = source.declared(here)
        files = source.found(here) if look else []
        in_blocks = steps.sorted and len(declared) == 1
        in_blocks = in_blocks and all(file_format(file, "[input] path") == "parquet" for file in files)
        check_kinds(files, steps.kinds)
        return TrajectoryTable(files, declared[0] if in_blocks else None, steps)
