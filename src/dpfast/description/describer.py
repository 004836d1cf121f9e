"""What describes a table: one release of the counts and sums of its declared columns, as every fit makes one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._redacted import quiet
from dpfast.description.description import Description
from dpfast.description.mechanism import Counted, Histogram, TableCounts, count_rows
from dpfast.estimator.base import Expected, Fitted, PrivateEstimator, Solved, Summed
from dpfast.estimator.bounded import check_people
from dpfast.estimator.plan import Plan
from dpfast.io import Columns, Number
from dpfast.io.columns import Column, column_of
from dpfast.ledger import Ledger, Release
from dpfast.privacy import Adjacency, Privacy
from dpfast.releases.mechanism import run

if TYPE_CHECKING:
    from pandas import DataFrame

_NAME = "describe"
_MOST_BINS = 1_000


@quiet
def describe(
    table: Any,
    columns: Mapping[str, Any] | Columns,
    epsilon: float,
    delta: float = 0.0,
    *,
    adjacency: Adjacency = "replace_one",
    crosstabs: Sequence[tuple[str, str]] = (),
    n_bins: int = 32,
    groups: ArrayLike | None = None,
    max_rows: int | None = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> Description:
    """Describe a table before it is modelled: rows, shares, crosstabs, means and quantiles, each with limits.

    Privacy: one release, of noisy counts of people by bin and of sums of numbers, is (epsilon, delta)-differentially
    private under `adjacency`; it is paid for from the ledger, where one is given. A person is a row, or all rows of one
    of the `groups`.

    Parameters
    ----------
    table : table
        A pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), a query, a path to a
        ``.parquet`` or ``.csv`` file, or whatever else `dpfast.io.Columns.encode` reads: once, some rows at a time.
    columns : mapping or Columns
        What is described: ``{"age": (18, 90), "sex": ["f", "m"], "smoker": "boolean"}``, a tuple of two numbers for
        limits, and a list of levels; or columns as they are declared for a fit, numbers with `low` and `high`. Numbers
        are clipped to their limits. An undeclared level is counted as ``other``. A missing value is counted as missing,
        whatever value is declared to represent it.
    epsilon, delta : float
        Its budget. With delta 0 noise is Laplace, else Gaussian; without noise at ``inf``.
    adjacency : {"replace_one", "add_remove"}, default "replace_one"
        Whether the number of rows is public; if not, it is estimated. With `groups` it never is.
    crosstabs : sequence of pairs of str, optional
        Two categories each, whose pairs of levels are counted. One costs as much as one more column.
    n_bins : int, default 32
        Bins of a number's limits, for quantiles. More are finer, and have more noise between them.
    groups : array of shape (n_rows,), optional
        The owner of each row, if people may own several: the person is then the unit of privacy, and the noise
        `max_rows` times as large. Rows are counted, not people. For a file, `dpfast.io.RowOwners` reads its column of
        ids.
    max_rows : int, optional
        Goes with `groups`: most rows of a person that count, a public number; further ones are left out.
    ledger : Ledger, optional
        The budget to pay from.
    random_state : int, optional
        A seed for tests, which voids the guarantee.

    Returns
    -------
    Description
        With ``summary()`` and ``releases_``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range or of the wrong kind, or the table lacks a declared column; nothing is spent
        then.
    BudgetExceeded
        If the ledger has too little left; no data is read then.

    References
    ----------
    Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. JASA 22: limits of
    shares, here with the variance of the noise beside that of sampling.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import dpfast
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"age": rng.uniform(18, 90, 5_000), "sex": rng.choice(["f", "m"], 5_000)})
    >>> found = dpfast.describe(people, {"age": (18, 90), "sex": ["f", "m"]}, 1.0, 1e-6, random_state=0)
    >>> table = found.summary()
    >>> table.loc[("age", "mean"), ["low", "high"]].round(1).tolist()
    [53.3, 54.6]
    >>> table.loc[("sex", "f"), ["low", "high"]].round(2).tolist()
    [0.49, 0.51]
    """
    options: dict[str, Any] = {"adjacency": adjacency, "ledger": ledger, "random_state": random_state}
    describer = TableDescriber(epsilon, delta, columns=columns, crosstabs=crosstabs, n_bins=n_bins, **options)
    return describer.fit(table, groups, max_rows).description_


@dataclass(eq=False, repr=False)
class TableDescriber(PrivateEstimator):
    """Description of a table: counts, shares, crosstabs, means and quantiles, with limits.

    Privacy: that of `describe`. This is the form of it that can be saved and planned.

    Parameters
    ----------
    columns
        As for `describe`.
    crosstabs : sequence of pairs of str, optional
        Two categories each, whose pairs of levels are counted. One costs as much as one more column.
    n_bins : int, default 32
        Bins of a number's limits, for quantiles. More are finer, and have more noise between them.
    epsilon, delta, adjacency, random_state, n_threads, ledger
        As for every estimator.
    calibration : {"sound"}
        No paper prints another.

    Attributes
    ----------
    releases_, privacy_spent_
        As for every estimator.
    """

    _: KW_ONLY
    columns: Mapping[str, Any] | Columns
    crosstabs: Sequence[tuple[str, str]] = ()
    n_bins: int = 32
    calibration: Literal["sound"] = "sound"

    _CALIBRATIONS: ClassVar[tuple[str, ...]] = ("sound",)

    @quiet
    def fit(self, table: Any, groups: ArrayLike | None = None, max_rows: int | None = None) -> Self:
        """Release the counts and sums of a table; as `describe`."""
        privacy, has_several = self._checked(), check_people(groups, max_rows)
        if math.isinf(privacy.epsilon) and has_several:
            raise ValueError("groups need a finite epsilon: without noise there is no person to hide")
        return self._fit(privacy, table, groups, max_rows, unit="person" if has_several else "row")

    @property
    def description_(self) -> Description:
        """What was released."""
        check_is_fitted(self)
        n_rows, max_rows = self._n_rows, self._max_rows
        return Description(self.releases_, self.privacy_spent_, self._histograms, n_rows, max_rows)

    def complete(self) -> Any:
        """As for every estimator; returns what `describe` would have returned."""
        super().complete()
        return self.description_

    def summary(self, **options: Any) -> DataFrame:
        """Tabulate the description."""
        return self.description_.summary(**options)

    @classmethod
    def plan(cls, n: int, *, target: float = 0.01, max_rows: int | None = None, **parameters: Any) -> Plan:
        """Say what error privacy will add to a share of rows, before any data is touched; nothing is spent.

        Parameters
        ----------
        n : int
            Number of people.
        target : float, default 0.01
            Error wanted, of a share.
        max_rows : int, optional
            Rows of a person, if people own several: everybody is taken to own that many.
        **parameters
            The estimator's own: epsilon, delta, columns, ...

        Returns
        -------
        Plan
            Expected error of a share, and the number of people needed.
        """
        describer, privacy = cls._planned_for({"n": n}, {"target": target}, parameters, max_rows)
        if math.isinf(privacy.epsilon):
            return Plan(n, 0.0, target, 1, {})
        scales = TableCounts.calibrate(privacy, describer._histograms, max_rows).scales
        return Plan.of_sums(n, target, scales, max_rows, "the number of rows")

    @property
    def _is_gaussian(self) -> bool:
        return True

    @property
    def _columns(self) -> Columns:
        return self.columns if isinstance(self.columns, Columns) else Columns(_declared(self.columns))

    @property
    def _histograms(self) -> tuple[Histogram, ...]:
        return _histograms(self._columns, self.crosstabs, check.positive_integer("n_bins", self.n_bins))

    def _check_parameters(self, privacy: Privacy) -> None:
        # Columns of a file were made without their checks.
        for column in self._columns.declared:
            replace(column)
        _ = self._histograms

    def _sum(
        self, privacy: Privacy, source: noise.BitSource, table: Any, groups: Any = None, max_rows: int | None = None
    ) -> Summed:
        histograms = self._histograms
        io.check_aligned(table=table, groups=groups)
        whose = None if max_rows is None else io.people(groups, max_rows, ordered=False)
        counted = _counted(table, self._columns, histograms, whose)
        n_rows = None
        if self.adjacency == "replace_one" and max_rows is None:
            n_rows = _some(counted.n_rows)
        expected = None if n_rows is None else Expected(0.0, n_rows, "rows")
        mechanism = TableCounts.calibrate(privacy, histograms, max_rows)
        return Summed(mechanism, counted.sums, (n_rows, max_rows), expected)

    def _release(self, summed: Summed, source: noise.BitSource) -> tuple[tuple[Release, ...], Any]:
        return run(summed.mechanism, summed.statistic, source, _NAME)

    def _solve(self, mechanism: Any, found: Any, public: tuple[int | None, int | None]) -> Fitted:
        return Fitted({"_n_rows": public[0], "_max_rows": public[1]})

    def _fit_without_noise(self, table: Any, *_: Any) -> Solved:
        counted = _counted(table, self._columns, self._histograms, None)
        n_rows = _some(counted.n_rows)
        release = self._exact_release({"sum": counted.sums.to_float64()}, _NAME)
        return Solved((release,), {"_n_rows": n_rows if self.adjacency == "replace_one" else None, "_max_rows": None})


def _some(n_rows: int) -> int:
    if n_rows == 0:
        raise ValueError("the table has no rows: at least one is needed")
    return n_rows


def _counted(table: Any, declared: Columns, histograms: Sequence[Histogram], whose: io.People | None) -> Counted:
    rows = table if isinstance(table, io.EncodedTable) else declared.encode(table)
    return count_rows(histograms, rows.batches(), whose)


def _declared(columns: object) -> list[Column]:
    """Return columns that are declared by name: limits, or levels."""
    if not isinstance(columns, Mapping):
        raise TypeError(
            "columns must be a mapping of names to limits or levels, or a dpfast.io.Columns, got "
            f"{type(columns).__name__}"
        )
    check.by_name("columns", columns)
    return [column_of("columns", name, one) for name, one in columns.items()]


def _histograms(declared: Columns, crosstabs: object, n_bins: int) -> tuple[Histogram, ...]:
    """Return what is counted: every column, and then pairs."""
    if n_bins > _MOST_BINS:
        raise ValueError(f"n_bins must be at most {_MOST_BINS}, got {n_bins}")
    by_name = {column.name: column for column in declared.declared}
    for column in by_name.values():
        if isinstance(column, Number) and column.low is None:
            raise ValueError(f"column {column.name!r} is declared without low and high, which its bins need")
    found = [Histogram.of(column, n_bins) for column in by_name.values()]
    for one in found:
        if len(one.edges) > 0 and not one.has_room:
            raise ValueError(f"limits of column {one.name!r} are too near each other, or too far, for {n_bins} bins")
    if isinstance(crosstabs, str) or not isinstance(crosstabs, Sequence):
        raise TypeError(f"crosstabs must be a sequence of pairs of names, got {type(crosstabs).__name__}")
    for place, pair in enumerate(crosstabs):
        names = check.pair(f"crosstabs[{place}]", pair, "of names of two columns")
        for name in names:
            if name not in by_name:
                raise ValueError(f"crosstabs[{place}] has {name!r}, which is no declared column")
        if names[0] == names[1]:
            raise ValueError(f"crosstabs[{place}] must be of two columns, got {names[0]!r} twice")
        found.append(Histogram.of_pairs(*map(by_name.__getitem__, names)))
    for one in found:
        if len(set(one.bins)) < len(one.bins):
            raise ValueError(f"levels of {one.name!r} must differ from each other, and from 'other' and 'missing'")
    return tuple(found)
