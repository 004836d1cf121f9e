"""The mechanisms of the family, and objective perturbation of a table as a function, with a loss of the caller's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._redacted import quiet
from dpfast.convex_erm.calibration import FARTHEST_GAP, MarginCells, margin_counts, placed
from dpfast.estimator.base import warn_of_printed
from dpfast.estimator.bounded import open_with_outcome
from dpfast.estimator.persistence import Waiting
from dpfast.kernels.columns import FixedPoint
from dpfast.ledger import Ledger, Release, paying
from dpfast.noise.source import check_source
from dpfast.privacy import Calibration, Privacy
from dpfast.releases.mechanism import Around, Mechanism, NoisySum, Query, Stages, within
from dpfast.releases.noisy_descent import Descended, NoisyDescent
from dpfast.releases.objective_bounds import (
    ObjectivePerturbation,
    Penalty,
    TableLoss,
    check_bound,
    check_problem,
    loss_of_moments,
)
from dpfast.solvers import GeneralisedLinearLoss, SquaredLoss
from dpfast.solvers.certificates import Constraint
from dpfast.solvers.smooth_convex import SmoothConvexFunction
from dpfast.statistics import Gram
from dpfast.statistics.rows import RowMap, public_rows

# Below, bins would be lost in the rounding of the smallest doubles.
_LEAST_UNIT = 2.0**-1000


@dataclass(frozen=True)
class Minimisers(Mechanism[FloatArray]):
    """One minimiser of a perturbed objective, or one for each class: they have equal parts of the budget."""

    privacy: Privacy
    #: Of each.
    perturbation: ObjectivePerturbation
    number: int
    #: Value of the last feature, the same in every row; 0 for none.
    constant: float = 0.0

    method: ClassVar = "objective"

    @cached_property
    def guaranteed(self) -> bool:
        """Whether the noise is proved to give that."""
        return self.perturbation.guaranteed

    @property
    def scales(self) -> dict[str, float]:
        """Scales of the noise of each."""
        return self.perturbation.scales

    def stages(self) -> Stages[FloatArray]:
        """Ask for one minimiser after the other; they are rows of what is told."""
        found = []
        for i, name in enumerate(names_of_minimisers(self.number)):
            released = yield Query(name, self.perturbation, itemgetter(i))
            found.append(released.values["coef"])
        return lambda: np.array(found)

    def linear(self, found: FloatArray) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        return Linear.split(found, self.constant)


class Linear(NamedTuple):
    """Linear functions of rows: coefficients (l, d) and intercepts (l,)."""

    coef: FloatArray
    intercept: FloatArray

    @classmethod
    def split(cls, coef: FloatArray, constant: float) -> Self:
        """Take the coefficient of a last feature, a constant in every row, for the intercept; 0 is none."""
        if constant == 0.0:
            return cls(coef, np.zeros(len(coef)))
        return cls(coef[:, :-1].copy(), constant * coef[:, -1])


def names_of_minimisers(number: int) -> list[str]:
    """Return what so many releases are called in records."""
    return ["coefficients"] if number == 1 else [f"coefficients of class {i}" for i in range(number)]


_Told = TypeVar("_Told")


@dataclass(frozen=True)
class StepsOf(Around[_Told]):
    """A descent as one of the family's mechanisms."""

    steps: Mechanism[_Told]

    method: ClassVar = "gradient"

    @property
    def inner(self) -> Mechanism[_Told]:
        """The descent; its scale is of an entry of a sum of parts of length 1 that had the whole budget."""
        return self.steps

    def stages(self) -> Stages[_Told]:
        """Ask for one release after the other."""
        return (yield from within(self.steps.stages(), _of_coefficients))


def _of_coefficients(query: Query) -> Query:
    return query._replace(name=f"coefficients: {query.name}")


@dataclass(frozen=True)
class Descent(StepsOf[Descended]):
    """Descent for all classes at once."""

    steps: NoisyDescent
    #: Of its rows, in those of the map.
    unit: float

    def linear(self, found: Descended) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        coef, intercept = Linear.split(found.theta.T, float(self.steps.constant))
        return Linear(coef / self.unit, intercept)


class Placed(NamedTuple):
    """Places of the bins of margins."""

    unit: float
    #: The intercept that some are about, if any.
    offset: float | None
    #: Of all bins, the outermost too.
    ends: FloatArray


class Counts(NamedTuple):
    """How rows are counted by margin and class."""

    #: Of all cells in one histogram.
    noise: NoisySum
    #: The public map of rows, and the length of the longest after it.
    row_map: RowMap
    bound: float
    #: Where bins of margins end, in multiples of `unit_of_margins`.
    edges: FloatArray
    #: Whether margins have an intercept: then there are some bins about it.
    about_intercept: bool = False

    def placed(self, linear: Linear) -> Placed:
        """Return where bins of margins are, by released coefficients."""
        unit, intercept = unit_of_margins(linear.coef, self.bound), linear.intercept
        if len(intercept) > 1:
            unit = max(unit, float(np.ptp(intercept)) / FARTHEST_GAP)
        offset = float(intercept[0]) if self.about_intercept else None
        return Placed(unit, offset, placed(self.edges, unit, offset))


class Labelled(NamedTuple):
    """The data owner's: the data of a classifier's fit, and the table of the rows counted afterwards."""

    fitted: Any
    table: io.Table
    n_threads: int | None = None
    #: Of the people that rows belong to, if people have several.
    groups: Any = None


@dataclass(frozen=True)
class Calibrated(Mechanism[tuple[Any, FloatArray]]):
    """A classifier, and then noisy counts of rows by margin and class: what probabilities are calibrated with.

    *Privacy.* The cell of a row is a function of that row, of coefficients released before and of public numbers
    (convex_erm/calibration.py). The row adds at most 1 to its cell. Of a person with several rows the first is counted.
    No other person decides which row this is. With more than two classes each class has a histogram of its own. So for
    any coefficients one record more or less changes one cell of each histogram by up to 1, and one in the place of
    another two: `NoisySum.of_counts`. That holds for every value of the coefficients, and the noise is drawn afresh. So
    the counts compose adaptively with any releases before. After Gaussian steps, Gaussian counts add to mu squared.
    After a pure minimiser, pure counts add to epsilon. The privacy loss of an (epsilon, delta)-private minimiser has no
    proved curve under replace-one. After it, the epsilons and the deltas add up (`NoisySum.counts_within`). Everything
    computed from coefficients and counts is post-processing.
    """

    privacy: Privacy
    classifier: Minimisers | Descent
    counts: Counts

    @property
    def method(self) -> str:
        """How the classifier is found."""
        return self.classifier.method

    @property
    def guaranteed(self) -> bool:
        """Whether all of it is proved to keep to the budget."""
        return self.classifier.guaranteed

    @property
    def scales(self) -> Mapping[str, float]:
        """Scales of the noise: of the classifier, and of counts."""
        return {**self.classifier.scales, "counts": self.counts.noise.deviation}

    def stages(self) -> Stages[tuple[Any, FloatArray]]:
        """Ask for the classifier's releases, and for the counts."""
        classifier: Any = self.classifier
        found = (yield from within(classifier.stages(), of_fitted))()
        cells = self.cells(classifier.linear(found))
        statistic = partial(_count_margins, cells=cells)
        released = yield Query("counts of margins by class", self.counts.noise, statistic)
        return lambda: (found, released.values["sum"])

    def linear(self, found: tuple[Any, FloatArray]) -> Linear:
        """Return what is told as linear functions of rows after their map."""
        classifier: Any = self.classifier
        linear: Linear = classifier.linear(found[0])
        return linear

    def cells(self, linear: Linear) -> MarginCells:
        """Return the cells of rows, by released coefficients."""
        basis = np.ascontiguousarray(linear.coef.T)
        edges = self.counts.placed(linear).ends[1:-1]
        return MarginCells(replace(self.counts.row_map, basis=basis), linear.intercept, edges)


def unit_of_margins(coef: FloatArray, bound: float) -> float:
    """Return the root mean square of margins, or of gaps between two, of rows of half the bound even over directions.

    1 where coefficients are 0, and all rows are alike.
    """
    n_margins, d = coef.shape
    pairs = 1.0 if n_margins == 1 else 2.0 / n_margins
    unit = 0.5 * bound * math.sqrt(pairs * float(np.sum(coef * coef)) / d)
    return unit if _LEAST_UNIT < unit < math.inf else 1.0


def of_fitted(query: Query) -> Query:
    """Ask it of what a classifier or regressor is fitted to."""
    return query._replace(statistic=partial(_answer, statistic=query.statistic))


def _answer(data: Labelled, *bits: Any, statistic: Callable[..., Any]) -> Any:
    return statistic(data.fitted, *bits)


def _count_margins(data: Labelled, cells: MarginCells) -> FixedPoint:
    return margin_counts(data.table, cells, data.n_threads, groups=data.groups)


@quiet
def objective_perturbation(
    X: Gram | ArrayLike,
    y: ArrayLike | None = None,
    *,
    loss: GeneralisedLinearLoss,
    privacy: Privacy,
    bound_x: float | None = None,
    bound_y: float = 1.0,
    constraint: Constraint | None = None,
    penalty: Penalty | None = None,
    ridge: float | Literal["auto"] = "auto",
    calibration: Calibration = "sound",
    source: noise.BitSource | None = None,
    n_threads: int | None = None,
    name: str = "objective perturbation",
    ledger: Ledger | None = None,
) -> Release:
    """Release the minimiser of a sum of generalised linear losses, by noise in the objective.

    Privacy: the release is (epsilon, delta)-differentially private under the adjacency of `privacy`; it is paid for
    from the ledger, where one is given.

    Parameters
    ----------
    X : array_like of shape (n_rows, n_features), or Gram
        Rows; longer ones than `bound_x` are scaled onto it. For the squared loss the data owner's exact sums will do,
        with one outcome.
    y : array_like of shape (n_rows,)
        Outcomes, clipped to `bound_y`; -1 or 1 for classification, times a weight of at most 1.
    loss : GeneralisedLinearLoss
        ``SquaredLoss``, ``SmoothedHuber``, ``SmoothedQuantile``, ``PoissonLoss`` (counts, clipped at 0 as well),
        ``LogisticLoss``, ``CappedLogisticLoss`` or ``SmoothedHinge`` of dpfast.solvers, or a ``CallableLoss`` with
        bounds on its derivatives, under "replace_one".
    privacy : Privacy
        Finite epsilon. Gaussian noise where its delta is above 0, else L2-Laplace noise.
    bound_x, bound_y : float
        L2 norm of a row and size of an outcome, at most. A Gram has its own.
    constraint : L2Ball, L1Ball or Box, optional
        The set of parameters allowed. The squared loss needs one: without, its gradient has no bound.
    penalty : Lasso, ElasticNet, Ridge or another Proximable, optional
        Added to the summed loss.
    ridge : float or "auto", default "auto"
        (ridge/2) ||theta||^2 is added too, or more where less noise is worth it.
    calibration : {"sound", "paper"}, default "sound"
        "paper" is the printed noise, with an UnsoundCalibrationWarning where it is too little.
    source : BitSource, optional
        The source of the bits; the operating system by default.
    n_threads : int, optional
        The result does not depend on it.
    name : str
        Name of the release in a ledger's report.
    ledger : Ledger, optional
        The budget to pay from. Without one whoever calls sees to it that the release is paid for.

    Returns
    -------
    Release
        With the value "coef", of shape (n_features,).

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind; nothing is spent then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    References
    ----------
    Kifer, Smith and Thakurta (2012), "Private convex empirical risk minimization", COLT, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import Privacy
    >>> from dpfast.convex_erm import objective_perturbation
    >>> from dpfast.noise import SeededSource
    >>> from dpfast.solvers import Box, SquaredLoss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(100_000, 2))
    >>> release = objective_perturbation(
    ...     X,
    ...     X @ [0.5, -1.5],
    ...     loss=SquaredLoss(),
    ...     privacy=Privacy(1.0, 1e-6),
    ...     bound_x=1.0,
    ...     constraint=Box(1.0),
    ...     source=SeededSource(0),
    ... )
    >>> release.values["coef"].round(1)
    array([ 0.5, -1. ])
    """
    check_problem(loss, constraint, penalty)
    if isinstance(X, Gram):
        if not isinstance(loss, SquaredLoss) or y is not None or bound_x is not None:
            raise ValueError("a Gram goes with SquaredLoss(), and has outcomes and bounds of its own")
        if X.unit is not None:
            raise ValueError("gram must be of rows: sums over people who own several change by more than a row")
    elif bound_x is None or y is None:
        raise ValueError("y and bound_x must be given with rows")
    bits = noise.SecureSource() if source is None else check_source(source)
    with paying(ledger, privacy).reserving(privacy, random_state=bits.seed) as reservation:
        losses: list[SmoothConvexFunction]
        if isinstance(X, Gram):
            summed = TableLoss(loss, X.bound_x, X.bound_y or bound_y)
            losses, n_rows = [loss_of_moments(X, summed.sizes(X.n_features))], X.n_rows
        else:
            summed = TableLoss(loss, check_bound("bound_x", bound_x), check_bound("bound_y", bound_y))
            table = open_with_outcome("objective_perturbation", X, y)
            if loss.is_classification:
                table = table.held()
                if not table.whole()[1].all():
                    raise ValueError("y must be from -1 to 1, and not 0, for a loss of classification")
            losses, n_rows = summed.of_table(table, n_threads)
        (statistic,) = losses
        rows = public_rows(n_rows, privacy.adjacency)
        bounds = summed.bounds(statistic.n, constraint, penalty, rows)
        bounds.check_functions()
        mechanism = ObjectivePerturbation.calibrate(privacy, bounds, ridge, calibration=calibration)
        warn_of_printed(mechanism)
        release = mechanism.release(statistic, bits.paid(reservation), name)
        waiting = Waiting([release], lambda: release)
        reservation.commit(release)
    return waiting.complete()
