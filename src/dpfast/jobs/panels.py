"""Panels, as jobs declare them: wide, a row a donor, or long, a row for each unit and period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpfast._optional import optional
from dpfast.io import Deferred
from dpfast.jobs.inputs import INPUT, Files, NamedColumns, entries
from dpfast.jobs.kinds import Fact, Progress
from dpfast.jobs.values import INTEGER, LEFT_OUT, NUMBER, TEXT, Either, Key, Lists, Named, Table, Words

_LONG = ("unit", "time", "value", "treated")
_PANEL = Table(
    (
        Key(
            "n_pre",
            Either((INTEGER, TEXT)),
            "Number of periods before the intervention; or the label of the first one after it.",
            example="3",
        ),
        Key(
            "periods",
            Lists(TEXT),
            "Of a wide table, a row a donor: its columns of outcomes, in the order of time. Names that are whole "
            "numbers are labels as such. Take targets out of the table, and put them into [targets].",
            LEFT_OUT,
            '["2019", "2020", "2021", "2022"]',
        ),
        Key(
            "predictors",
            Named(Lists(NUMBER)),
            "Further columns, as rows of the pre-period, by name, with public limits and a weight of at most 1, that "
            "of a period (by default), such as { income = [0, 100000], age = [18, 90, 0.5] }. Of a long table the "
            "mean of a unit's rows before the intervention counts. In [targets] they come first.",
            LEFT_OUT,
        ),
        Key(
            "unit",
            TEXT,
            "Of a long table, a row for each unit and period: the column of units, donors and target.",
            LEFT_OUT,
        ),
        Key("time", TEXT, "The column of periods.", LEFT_OUT),
        Key("value", TEXT, "The column of outcomes.", LEFT_OUT),
        Key(
            "treated",
            Either((TEXT, INTEGER, Lists(Either((TEXT, INTEGER))))),
            "The unit that is the target, or a list of several, for one release. Their own records are public. Of "
            "numbers, units are read as numbers.",
            LEFT_OUT,
        ),
        Key(
            "times",
            Words.of("number", "text"),
            "What the column of periods holds: numbers, or text whose order is that of time, such as 2024-01-31.",
            LEFT_OUT,
            usual='"number"',
        ),
    ),
    "How the panel lies: wide (periods) or long (unit, time, value, treated).",
)
_TARGETS = Named(Lists(NUMBER), example="Bern = [1.0, 1.2, 1.1, 1.6]")
_TARGETS_SAY = (
    "Public series, by name, with a wide table: outcomes of all periods, or of those before the intervention, for "
    "which a prediction is made."
)


@dataclass(frozen=True)
class Panel:
    """The declaration of a job's panel."""

    files: list[Path]
    n_pre: int | str
    #: Columns of a wide table.
    periods: tuple[str, ...]
    #: Unit, time, value of a long one, and what tells the target.
    long: tuple[str, str, str] | None
    treated: str | int | list[str | int] | None
    columns: NamedColumns
    #: Names of public series, and the series.
    targets: tuple[str, ...]
    series: Any
    #: Limits and weights of further columns.
    predictors: Mapping[str, tuple[float, ...]] | None = None

    @property
    def labels(self) -> list[Any]:
        """Labels of the periods of a wide table: public, as they were declared."""
        names = list(self.periods)
        return [int(name) for name in names] if all(name.isdecimal() for name in names) else names

    def wide(self, progress: Progress | None) -> Any:
        """Return the donors as a frame, NaN where an entry is missing."""
        pandas = optional("pandas", "a job on a panel")
        batches = self.columns.batches(self.files, progress)
        names = self.columns.numbers
        blocks = [np.column_stack([batch.numbers(name) for name in names]) for batch in batches]
        labels: Any = [*(self.predictors or {}), *self.labels]
        if all(isinstance(label, str) for label in labels):
            # Declared, so that any text is a period.
            labels = pandas.CategoricalIndex(labels, categories=labels, ordered=True)
        return pandas.DataFrame(np.concatenate([np.empty((0, len(names))), *blocks]), columns=labels)

    def rows(self, progress: Progress | None) -> Any:
        """Return a long table as a frame."""
        pandas = optional("pandas", "a job on a panel")
        assert self.long is not None
        of_text = self.columns.text
        names = (*self.long, *(self.predictors or {}))
        found: dict[str, list[Any]] = {name: [np.empty(0, object if name in of_text else float)] for name in names}
        for batch in self.columns.batches(self.files, progress):
            for name in names:
                found[name].append(entries(batch, name) if name in of_text else batch.numbers(name))
        columns = {name: np.concatenate(parts) for name, parts in found.items()}
        return pandas.DataFrame({name: pandas.Series(one, dtype=one.dtype) for name, one in columns.items()})

    @property
    def names(self) -> tuple[Sequence[str], ...]:
        """Names of targets."""
        return (self.targets,)

    def parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, with the predictors that are declared."""
        return dict(given) | ({"predictors": self.predictors} if self.predictors else {})

    def fit(self, model: Any, progress: Progress | None) -> None:
        """Fit, from a panel in memory."""
        if self.long is None:
            model.fit(Deferred(partial(self.wide, progress)), self.n_pre, self.series)
        else:
            model.fit_long(Deferred(partial(self.rows, progress)), *self.long, self.treated, self.n_pre)

    def sizes(self) -> dict[str, int]:
        """Return the sizes that plans take, as far as they are known."""
        if self.long is not None:
            return {}
        n_pre = self.n_pre
        if n_pre in self.labels and not (isinstance(n_pre, int) and 1 <= n_pre < len(self.periods)):
            n_pre = self.labels.index(n_pre)
        return {"n_periods": len(self.periods)} | ({"n_pre": n_pre} if isinstance(n_pre, int) else {})

    def facts(self) -> list[Fact]:
        """Return the public facts on them, for a report."""
        lies = [("predictors", ", ".join(self.predictors))] if self.predictors else []
        lies.append(("periods", ", ".join(self.periods)) if self.long is None else ("treated", ", ".join(self.targets)))
        return [*lies, ("intervention", f"n_pre = {self.n_pre}"), ("targets", ", ".join(self.targets) or "none")]


class PanelForm:
    """The sections of a job on a panel, and how they are read."""

    sections = (
        Key("input", INPUT, INPUT.says),
        Key("panel", _PANEL, _PANEL.says),
        Key("targets", _TARGETS, _TARGETS_SAY, LEFT_OUT),
    )

    def read(self, sections: Mapping[str, Any], here: Path, *, look: bool = True) -> Panel:
        """Return what the sections say; unless they are not to be looked for, files must be there and fit."""
        panel, targets = sections["panel"], sections.get("targets", {})
        is_long = any(key in panel for key in _LONG)
        if is_long == ("periods" in panel):
            raise ValueError("[panel] must have either periods, of a wide table, or unit, time, value and treated")
        given = sections["input"]
        files = Files.of(given, here).found(given.get("format")) if look else []
        if is_long:
            return self._long(panel, targets, files)
        periods = tuple(panel["periods"])
        predictors = _predictors(panel)
        if both := predictors.keys() & set(periods):
            raise ValueError(f"[panel] predictors must not be periods as well, got {sorted(both)}")
        columns = NamedColumns((), (*predictors, *periods))
        columns.check(files)
        series = np.array(list(targets.values())) if len({len(one) for one in targets.values()}) == 1 else None
        series = series[0] if series is not None and len(series) == 1 else series
        wide = Panel(files, panel["n_pre"], periods, None, None, columns, tuple(targets), series, predictors or None)
        if targets and (series is None or series.shape[-1] - len(predictors) not in wide.sizes().values()):
            first = f" {len(predictors)} predictors and" if predictors else ""
            raise ValueError(
                f"[targets] must each hold{first} a number for all {len(periods)} periods, or each for those before "
                "n_pre"
            )
        return wide

    def _long(self, panel: Mapping[str, Any], given: Mapping[str, Any], files: list[Path]) -> Panel:
        for key in _LONG:
            if key not in panel:
                raise ValueError(f"[panel] lacks the key {key!r}")
        if given:
            raise ValueError("[targets] are for wide tables; of a long one targets are the units that are treated")
        unit, time, value = (panel[key] for key in _LONG[:3])
        treated = panel["treated"]
        several = treated if isinstance(treated, list) else [treated]
        if not several or len({type(one) for one in several}) > 1:
            raise ValueError("[panel] treated must be units that are all text or all numbers, at least one")
        is_text = {unit: isinstance(several[0], str), time: panel.get("times") == "text", value: False}
        if len(is_text) < 3:
            raise ValueError("[panel] unit, time and value must be three columns")
        if isinstance(n_pre := panel["n_pre"], str) and not is_text[time]:
            raise ValueError(
                f'[panel] n_pre {n_pre!r} is text, and column {time!r} holds numbers: write a number, or times = "text"'
            )
        predictors = _predictors(panel)
        if both := predictors.keys() & is_text.keys():
            raise ValueError(f"[panel] predictors must not be unit, time or value as well, got {sorted(both)}")
        of_text = tuple(name for name, text in is_text.items() if text)
        columns = NamedColumns(of_text, tuple(name for name in (*is_text, *predictors) if name not in of_text))
        columns.check(files)
        targets = tuple(map(str, several))
        return Panel(
            files, panel["n_pre"], (), (unit, time, value), treated, columns, targets, None, predictors or None
        )


def _predictors(panel: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(numbers) for name, numbers in panel.get("predictors", {}).items()}
