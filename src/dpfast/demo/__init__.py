"""The demonstration: every estimator beside its fit without privacy, on real tables first, in a few seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpfast import registry
from dpfast._optional import optional
from dpfast._threads import single_threaded_blas
from dpfast.demo import tables
from dpfast.demo.tables import Line, printed
from dpfast.io import write_table
from dpfast.privacy import Privacy
from dpfast.privacy.guarantee import plain_words


def run(output: Path) -> None:
    """Fit, print and write; pictures are drawn where matplotlib is installed."""
    # The tables are small: further BLAS threads only wait for each other.
    with single_threaded_blas():
        lines, models = _fitted()
        files = [_table(lines, output), *(_pictures(models, output) if find_spec("matplotlib") else [])]
    print("\n".join(printed(lines)))
    print(
        f"\nprivate: mean ± standard deviation of {tables.REPEATS} fits, with the seconds of one. error: root mean "
        f"square of what they are off the fit without privacy.\n"
        f"At epsilon 1, {plain_words(Privacy(1.0, tables.DELTA))}.\n"
    )
    if find_spec("matplotlib") is None:
        print("No pictures: matplotlib is not installed (pip install 'dpfast[plot]').")
    for path in files:
        print(f"wrote {path}")


def _fitted() -> tuple[list[Line], dict[str, Any]]:
    """Return the results of fits, and one fit of each table by its name."""
    lines, models = [], {}
    for part in (tables, *registry.parts("demo")):
        for line, fits in part.lines():
            if sys.stderr.isatty():
                print(f"  {line.estimator}, {line.data}: {line.seconds:.3f} s a fit", file=sys.stderr)
            lines.append(line)
            models[line.data] = fits[0]
    return lines, models


def _table(lines: list[Line], output: Path) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.csv"
    write_table({name: [getattr(line, name) for line in lines] for name in Line._fields}, path)
    return path


def _pictures(models: dict[str, Any], output: Path) -> Iterator[Path]:
    """Draw all plots; yield the files."""
    from dpfast import plotting

    figure = optional("matplotlib.figure", "a picture").Figure(figsize=(10.0, 3.8), layout="constrained")
    for panel, table in zip(figure.subplots(1, 2), (tables.digits(), tables.tumours()), strict=True):
        plotting.score_curves(
            tables.EPSILONS,
            table.curve(tables.EPSILONS, tables.DELTA),
            exact=table.value(table.fit(float("inf"), 0.0)),
            quantity="accuracy on held-out people",
            title=f"{table.data}, {table.people:,} people",
            ax=panel,
        )
    yield plotting.saved(figure.axes[0], output, "accuracy.png")
    truth = [tables.MADE_UP.get(feature, 0.0) for feature in range(60)]
    sparse = models["made up, 3 of 60"].plot(
        reference=truth, label="private", title="3 of 60 features, chosen privately"
    )
    yield plotting.saved(sparse, output, "sparse-regression.png")
    if find_spec("pandas"):
        path = models["made-up donors"].plot(level=tables.LEVEL, title="1,000 donors, no effect")
        yield plotting.saved(path, output, "synthetic-control.png")
    if (lake := models.get("FrozenLake 8x8")) is not None:
        places = {"start": tables.START, "goal": tables.GOAL, "holes": tables.HOLES}
        drawn = lake.plot(tables.SHAPE, title="FrozenLake: value of every state", **places)
        yield plotting.saved(drawn, output, "policy-evaluation.png")
