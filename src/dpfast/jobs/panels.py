"""Panels, as jobs declare them: wide, a row a donor, or long, a row for each unit and period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpfast._optional import optional
from dpfast.io import Deferred
from dpfast.jobs.inputs import INPUT, NamedColumns
from dpfast.jobs.kinds import Fact, Progress
from dpfast.jobs.parameters import LEFT_OUT, NUMBER, Key, Lists, Named, table_of

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
        names = set(self.predictors or ())
        if self.periods is not None:
            if both := names & set(self.periods):
                raise ValueError(f"predictors must not be periods as well, got {sorted(both)}")
            return
        if lacking:
            raise ValueError(f"lacks the key {lacking[0]!r}")
        if not self.several or len({type(one) for one in self.several}) > 1:
            raise ValueError("treated must be units that are all text or all numbers, at least one")
        if len(set(self.long)) < 3:
            raise ValueError("unit, time and value must be three columns")
        if isinstance(self.n_pre, str) and self.times == "number":
            numbers = f"column {self.time!r} holds numbers"
            raise ValueError(f'n_pre {self.n_pre!r} is text, and {numbers}: write a number, or times = "text"')
        if both := names & set(self.long):
            raise ValueError(f"predictors must not be unit, time or value as well, got {sorted(both)}")

    @property
    def long(self) -> tuple[str, ...]:
        """Unit, time and value of a long table."""
        return tuple(name for name in (self.unit, self.time, self.value) if name is not None)

    @property
    def several(self) -> list[str | int]:
        """The treated units of a long table."""
        return self.treated if isinstance(self.treated, list) else [] if self.treated is None else [self.treated]

    @property
    def columns(self) -> NamedColumns:
        """The columns, and how they are read."""
        predictors = dict.fromkeys(self.predictors or (), "number")
        if self.periods is not None:
            return NamedColumns(predictors | dict.fromkeys(self.periods, "number"))
        unit = "text" if isinstance(self.several[0], str) else "number"
        return NamedColumns(dict(zip(self.long, (unit, self.times, "number"), strict=True)) | predictors)


_LAYOUT = table_of(Layout, n_pre="3", periods='["2019", "2020", "2021", "2022"]')
_TARGETS = Named(Lists(NUMBER), example="Bern = [1.0, 1.2, 1.1, 1.6]")
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
        names = list(self.layout.columns.kinds)
        batches = self.layout.columns.batches(self.files, progress)
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
            rows = layout.columns.of(self.files, progress)
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


class PanelForm:
    """The sections of a job on a panel, and how they are read."""

    sections = (
        Key("input", INPUT, INPUT.says),
        Key("panel", _LAYOUT, _LAYOUT.says),
        Key("targets", _TARGETS, _TARGETS_SAY, LEFT_OUT),
    )

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Panel:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        layout, targets = sections["panel"], sections.get("targets", {})
        files = sections["input"].found(here) if look else []
        if layout.periods is None and targets:
            raise ValueError("[targets] are for wide tables; of a long one targets are the units that are treated")
        layout.columns.check(files)
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
