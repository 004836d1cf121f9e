"""The demonstration: every estimator beside its fit without privacy, on real tables first, in a few seconds.

Tables of people: digits they wrote, measurements of tumours, and how far a disease had gone after a year. The declared
limits are publicly known, not read from the tables: round limits of every measurement. Panels: 38 states, too few for a
good private answer, and a thousand donors, enough for one. Games: the paper's chain, with every state visited, and
games of Gymnasium, with rarely visited ones.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from dpfast import registry
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast._threads import single_threaded_blas
from dpfast.convex_erm import ObjectivePerturbationClassifier, ObjectivePerturbationRegressor
from dpfast.datasets import Panel, california_prop99, synthetic_control_panel
from dpfast.datasets.decision_processes import chain_trajectories, exploring_policy, gymnasium_table, table_trajectories
from dpfast.datasets.tables import sparse_regression_rows
from dpfast.io import write_table
from dpfast.multi_outcome import MultiOutcomeRidge
from dpfast.policy_evaluation import PolicyEvaluation
from dpfast.privacy import Privacy, UtilityWarning
from dpfast.privacy.guarantee import plain_words
from dpfast.sparse_regression import SparseRegression
from dpfast.statistics import Trajectories
from dpfast.synthetic_control import SyntheticControl

#: Number of fits; a table shows their mean and spread.
REPEATS = 10


class Line(NamedTuple):
    """Results of fits of one estimator to one table."""

    estimator: str
    data: str
    people: int
    #: The estimate.
    quantity: str
    epsilon: float
    delta: float
    #: Mean and standard deviation of the fits.
    estimate: float
    spread: float
    no_privacy: float
    #: Root mean square difference of the fits from the one without privacy.
    error: float
    #: Of a fit, on average.
    seconds: float
    #: What half of the fits or more warn of.
    caution: str


#: A private fit at an epsilon and a delta.
Fit = Callable[[float, float], Any]


@dataclass(frozen=True)
class Comparison:
    """An estimator, its data, and the number to compare."""

    data: str
    people: int
    quantity: str
    fit: Fit
    value: Callable[[Any], float]

    def line(self, epsilon: float, delta: float) -> tuple[Line, list[Any]]:
        """Fit with and without privacy; return the private fits too."""
        exact = float(self.value(self.fit(math.inf, 0.0)))
        with warnings.catch_warnings(record=True) as caught:
            # Every fit warns by itself; once is enough here.
            warnings.simplefilter("always", UtilityWarning)
            began = time.perf_counter()
            models = [self.fit(epsilon, delta) for _ in range(REPEATS)]
            seconds = (time.perf_counter() - began) / REPEATS
        found = np.array([self.value(model) for model in models])
        return Line(
            type(models[0]).__name__,
            self.data,
            self.people,
            self.quantity,
            epsilon,
            delta,
            float(np.mean(found)),
            float(np.std(found)),
            exact,
            float(np.sqrt(np.mean((found - exact) ** 2))),
            seconds,
            # What a few fits say of their noise is chance, and untrue of the table.
            str(caught[0].message) if 2 * len(caught) >= REPEATS else "",
        ), models

    def curve(self, epsilons: Sequence[float], delta: float) -> FloatArray:
        """Return the results of private fits, a row a repeat and a column an epsilon."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            return np.array([[self.value(self.fit(one, delta)) for one in epsilons] for _ in range(REPEATS)])


def printed(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a table of text, and below it the warnings of fits."""
    cautions = list(dict.fromkeys(line.caution for line in lines if line.caution))
    rows = [("estimator", "estimate", "people", "eps", "private", "no privacy", "error", "seconds")]
    for line in lines:
        mark = f" [{cautions.index(line.caution) + 1}]" if line.caution else ""
        estimate = f"{_short(line.estimate)} ± {_short(line.spread, 2)}"
        what = f"{line.data}: {line.quantity}"
        numbers = estimate, _short(line.no_privacy), f"{_short(line.error, 2)}{mark}", f"{line.seconds:.3f}"
        rows.append((line.estimator, what, f"{line.people:,}", f"{line.epsilon:g}", *numbers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    for number, caution in enumerate(cautions, start=1):
        yield f"[{number}] {caution}"


def _short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if abs(value) < 10.0**digits else f"{value:,.0f}"


DELTA = 1e-6
#: Of curves.
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)

# Upper limits of the 30 features (radius in pixels, texture, perimeter, area, smoothness, ...; means, then standard
# errors, then worst values); none is below 0.
_TUMOURS = np.concatenate(
    [
        [30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1],
        [3, 5, 25, 500, 0.03, 0.15, 0.4, 0.05, 0.1, 0.03],
        [40, 50, 250, 4000, 0.3, 1.0, 1.2, 0.3, 0.7, 0.2],
    ]
)
# Age, sex, body mass index, blood pressure and six blood values; and the score of the disease.
_PATIENTS = np.array([[18, 1, 15, 60, 80, 30, 10, 1.5, 3, 50], [90, 2, 45, 140, 350, 260, 110, 10, 6.5, 150]])
_SCORES = 10.0, 360.0
_SCORE_REACH = (_SCORES[1] - _SCORES[0]) / 2.0
# Body mass index, blood pressure and, as a logarithm, triglycerides.
_KNOWN_TO_MATTER = [2, 3, 8]

#: Of the made-up table: which features count, and how much.
MADE_UP = {7: 0.9, 20: -0.6, 41: 0.5}

# Of the limits that are drawn.
LEVEL = 0.9
# Of the made-up donors: how many there are, and periods before the intervention.
_N_DONORS, _N_PRE = 1_000, 10
# Known without looking: packs of cigarettes a head and year; 365 would be a pack a day for every child and adult.
_PACKS = (0.0, 365.0)
_TAX_YEAR = 1989

_PLAYERS = 20_000
GAMMA, EXPLORE = 0.95, 0.2


class Game(NamedTuple):
    """A game and its declarations: the range of returns, and the number of steps to truncate trajectories to."""

    title: str
    name: str
    return_range: tuple[float, float]
    horizon: int


GAMES = (
    Game("FrozenLake 4x4", "frozen_lake_4x4", (0.0, 1.0), 60),
    Game("FrozenLake 8x8", "frozen_lake_8x8", (0.0, 1.0), 100),
    Game("CliffWalking", "cliff_walking", (-200.0, 0.0), 40),
    Game("Taxi", "taxi", (-40.0, 20.0), 40),
)
#: Those that are played here.
SHOWN = GAMES[1:3]
# The first of them, which is drawn: a grid, from one corner to the other.
SHAPE, START, GOAL = (8, 8), 0, 63
HOLES = (19, 29, 35, 41, 42, 46, 49, 52, 54, 59)


def parted(rows: FloatArray, labels: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Hold three of ten people out: rows and labels of the people to fit on, then those of the others."""
    own, others, own_labels, other_labels = train_test_split(rows, labels, test_size=0.3, random_state=0)
    return own, own_labels, others, other_labels


def images() -> tuple[FloatArray, NDArray[np.int64]]:
    """Return 64 pixels from 0 to 1, and the digit that somebody wrote."""
    pixels, written = load_digits(return_X_y=True)
    return pixels / 16.0, written


def measurements() -> tuple[FloatArray, NDArray[np.int64]]:
    """Return 30 measurements of tumours, almost all from 0 to 1, and whether these are benign."""
    measured, benign = load_breast_cancer(return_X_y=True)
    return measured / _TUMOURS, benign


def _fits(estimator: type[Any], *table: Any, exact: Mapping[str, Any] | None = None, **options: Any) -> Fit:
    """Return the fits of an estimator to a table, with some other options where there is no noise."""

    def fit(epsilon: float, delta: float) -> Any:
        return estimator(epsilon, delta, **options | dict((math.isinf(epsilon) and exact) or {})).fit(*table)

    return fit


def digits() -> Comparison:
    """Classify digits by ten outcomes on 64 pixels."""
    rows, labels, other_rows, other_labels = parted(*images())
    outcomes = np.asarray(labels[:, None] == np.arange(10), np.float64)
    bounds = {"bound_x": 4.0, "bound_y": 1.0, "nonnegative": True}
    fit = _fits(MultiOutcomeRidge, rows, outcomes, exact={"ridge": 1.0}, **bounds)
    right = partial(accuracy_score, other_labels)
    return Comparison(
        "digits", len(rows), "accuracy", fit, lambda model: right(model.predict(other_rows).argmax(axis=1))
    )


def tumours() -> Comparison:
    """Classify malignant tumours by 30 measurements."""
    measured, benign = measurements()
    rows, labels, other_rows, other_labels = parted(2.0 * measured - 1.0, benign)
    options = {"bound_x": 3.5, "classes": [0, 1], "method": "gradient"}
    fit = _fits(ObjectivePerturbationClassifier, rows, labels, exact={"method": "auto"}, **options)
    return Comparison("breast cancer", len(rows), "accuracy", fit, lambda model: model.score(other_rows, other_labels))


def patients() -> tuple[FloatArray, FloatArray]:
    """Return what was measured within -1 and 1, and the score of the disease about the middle of its limits."""
    measured, score = load_diabetes(return_X_y=True, scaled=False)
    low, high = _PATIENTS
    return np.clip(2.0 * (measured - low) / (high - low) - 1.0, -1.0, 1.0), score - sum(_SCORES) / 2.0


def _explained(rows: FloatArray, outcomes: FloatArray, model: Any) -> float:
    return float(r2_score(outcomes, model.predict(rows)))


def disease() -> Comparison:
    """Explain the score by three measurements, robustly."""
    rows, score = patients()
    rows = rows[:, _KNOWN_TO_MATTER]
    options = {"loss": "huber", "bound_x": np.sqrt(3.0), "bound_y": _SCORE_REACH}
    fit = _fits(ObjectivePerturbationRegressor, rows, score, **options)
    return Comparison("diabetes, 3 features", len(rows), "R2", fit, partial(_explained, rows, score))


def disease_by_few() -> Comparison:
    """Explain the score by three measurements of ten, which are chosen privately too."""
    rows, score = patients()
    fit = _fits(SparseRegression, rows, score, n_nonzero=3, box_x=(-1.0, 1.0), bound_y=_SCORE_REACH)
    return Comparison("diabetes, 3 of 10", len(rows), "R2", fit, partial(_explained, rows, score))


def made_up() -> Comparison:
    """Find three features among sixty that make an outcome."""
    rows, outcomes = sparse_regression_rows(4_000, 60, MADE_UP)
    fit = _fits(SparseRegression, rows, outcomes, n_nonzero=3, box_x=(-1.0, 1.0))
    return Comparison("made up, 3 of 60", len(rows), "R2", fit, partial(_explained, rows, outcomes))


def tobacco_tax() -> Comparison:
    """Estimate the effect of California's tax of 1989, with other states as donors."""
    panel = california_prop99()
    sales, states, years = (
        panel if isinstance(panel, Panel) else (panel.to_numpy(), tuple(panel.index), panel.columns.to_numpy())
    )
    row, n_pre = states.index("California"), int(np.searchsorted(years, _TAX_YEAR))
    donors, target = np.delete(sales, row, axis=0), sales[row]
    fit = _fits(SyntheticControl, donors, n_pre, exact={"ridge": 1.0, "bound": 1.0}, bound=_PACKS)
    before, after = np.split(target, [n_pre])
    return Comparison(
        "tobacco tax", len(donors), "packs a year", fit, lambda model: np.mean(after - model.predict(before))
    )


def without_effect() -> Comparison:
    """Predict a made-up target without an intervention that has no effect."""
    donors, target, _ = synthetic_control_panel(_N_DONORS, _N_PRE, seed=0)
    fit = _fits(SyntheticControl, donors, _N_PRE, target)
    return Comparison(
        "made-up donors", len(donors), "outcome", fit, lambda model: np.mean(model.predict(target[:_N_PRE]))
    )


def _evaluated(title: str, trajectories: Trajectories, start: int, **declared: Any) -> Comparison:
    """Describe the value of a policy from the first state, estimated from its trajectories."""
    fit = _fits(PolicyEvaluation, trajectories, gamma=GAMMA, **declared)
    return Comparison(title, len(trajectories), "value", fit, lambda model: model.value_[start])


#: Of few people, or of many outcomes: they need a larger epsilon.
_SMALL = digits, disease, disease_by_few


def lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield the results of fits, and the fits."""
    for table in (digits, tumours, disease, disease_by_few, made_up, tobacco_tax, without_effect):
        yield table().line(4.0 if table in _SMALL else 1.0, DELTA)
    yield from _game_lines()


def _game_lines() -> Iterator[tuple[Line, list[Any]]]:
    """Yield the lines of games, which need Gymnasium."""
    if find_spec("gymnasium") is None:
        trajectories = Trajectories(*chain_trajectories(_PLAYERS, seed=0), truncated=False)
        yield _evaluated("a chain of 40 states", trajectories, 0, return_range=(0.0, 1.0)).line(1.0, DELTA)
        return
    for game in SHOWN:
        table, start = gymnasium_table(game.name)
        policy = exploring_policy(table, GAMMA, EXPLORE)
        flat = table_trajectories(table, _PLAYERS, start=start, horizon=game.horizon, policy=policy, seed=0)
        declared = {"return_range": game.return_range, "horizon": game.horizon}
        yield _evaluated(game.title, Trajectories(*flat), int(np.argmax(start)), **declared).line(1.0, DELTA)


def run(output: Path) -> None:
    """Fit, print and write; pictures are drawn where matplotlib is installed."""
    # The tables are small: further BLAS threads only wait for each other.
    with single_threaded_blas():
        lines, models = _fitted()
        files = [_table(lines, output), *(_pictures(models, output) if find_spec("matplotlib") else [])]
    print("\n".join(printed(lines)))
    print(
        f"\nprivate: mean ± standard deviation of {REPEATS} fits, with the seconds of one. error: root mean "
        f"square of what they are off the fit without privacy.\n"
        f"At epsilon 1, {plain_words(Privacy(1.0, DELTA))}.\n"
    )
    if find_spec("matplotlib") is None:
        print("No pictures: matplotlib is not installed (pip install 'dpfast[plot]').")
    for path in files:
        print(f"wrote {path}")


def _fitted() -> tuple[list[Line], dict[str, Any]]:
    """Return the results of fits, and one fit of each table by its name."""
    found, models = [], {}
    for all_lines in (lines, *(part.lines for part in registry.parts("demo"))):
        for line, fits in all_lines():
            if sys.stderr.isatty():
                print(f"  {line.estimator}, {line.data}: {line.seconds:.3f} s a fit", file=sys.stderr)
            found.append(line)
            models[line.data] = fits[0]
    return found, models


def _table(lines: list[Line], output: Path) -> Path:
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.csv"
    write_table({name: [getattr(line, name) for line in lines] for name in Line._fields}, path)
    return path


def _pictures(models: dict[str, Any], output: Path) -> Iterator[Path]:
    """Draw all plots; yield the files."""
    from dpfast import plotting

    figure = optional("matplotlib.figure", "a picture").Figure(figsize=(10.0, 3.8), layout="constrained")
    for panel, table in zip(figure.subplots(1, 2), (digits(), tumours()), strict=True):
        looks: dict[str, Any] = {
            "quantity": "accuracy on held-out people",
            "title": f"{table.data}, {table.people:,} people",
        }
        exact, scores = table.value(table.fit(math.inf, 0.0)), table.curve(EPSILONS, DELTA)
        plotting.score_curves(EPSILONS, scores, exact=exact, ax=panel, **looks)
    yield plotting.saved(figure.axes[0], output, "accuracy.png")
    truth = [MADE_UP.get(feature, 0.0) for feature in range(60)]
    looks = {"label": "private", "title": "3 of 60 features, chosen privately"}
    yield plotting.saved(models["made up, 3 of 60"].plot(reference=truth, **looks), output, "sparse-regression.png")
    if find_spec("pandas"):
        path = models["made-up donors"].plot(level=LEVEL, title="1,000 donors, no effect")
        yield plotting.saved(path, output, "synthetic-control.png")
    if (lake := models.get("FrozenLake 8x8")) is not None:
        places = {"start": START, "goal": GOAL, "holes": HOLES}
        drawn = lake.plot(SHAPE, title="FrozenLake: value of every state", **places)
        yield plotting.saved(drawn, output, "policy-evaluation.png")
