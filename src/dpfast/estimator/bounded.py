"""Inputs of a fit, as in scikit-learn, and their bounds, which may be found within the budget: "private" for a number.

A part of the budget buys noisy counts of people by size (releases/size_counts.py) before anything is summed. The
counts give bounds like declared ones. A copy of the estimator with these numbers does the rest of the fit, for the rest
of the budget.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from os import PathLike
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast._redacted import redact_errors
from dpfast.estimator.base import Prepared, PrivateEstimator, warn
from dpfast.io.blocks import column_names, is_read_once, outcome_names_of
from dpfast.io.sources import check_listed, zero_copy_view
from dpfast.privacy import Privacy, Unit
from dpfast.releases.size_counts import Lowered, NoisySizes
from dpfast.statistics.norm_histograms import NormHistograms, size_counts

Declared = TypeVar("Declared")

_NO_NUMBERS = (
    "X must hold numbers, none of them missing: of columns of text, booleans or missing values that were declared, "
    "dpfast.io.Columns.transform makes them"
)

# Rows of columns in units of their spread are hardly longer than this times the root of their number.
_LONG = 10.0
_UNLIKE_UNITS = (
    "bound_x='private' found rows of norm {:.3g}: if columns have unlike units, the largest determines it, and so the "
    "noise of all. Then declare box_x, limits of each column, or find them by private_bounds(X, box=True, ...)"
)


def columns_of(X: Any) -> dict[str, Any]:
    """Return scikit-learn's fitted attributes with names and number of the features, if a table has them.

    Parameters
    ----------
    X : table
        Of any kind.

    Returns
    -------
    dict
        ``n_features_in_`` and, if all columns have names, ``feature_names_in_``; empty if the table has no shape.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.estimator.bounded import columns_of
    >>> columns_of(np.ones((2, 3)))
    {'n_features_in_': 3}
    """
    if isinstance(X, io.EncodedTable):
        return _named(X.columns.feature_names)
    if isinstance(X, io.Partitions):
        return {"n_features_in_": X.n_features} if X.feature_names is None else _named(X.feature_names)
    if io.is_arrow(X):
        found = io.stream_names(X)
        return {} if found is None else _named(found)
    if io.is_dask(X) and hasattr(X, "shape"):
        if not hasattr(X, "columns"):
            # The empty array that an array keeps of its own kind has no columns.
            return {"n_features_in_": X.shape[1]}
        # A frame has names, and scikit-learn finds them on the empty frame that it keeps.
        X = X._meta
    if type(X) is np.ndarray and X.ndim == 2:
        return {"n_features_in_": X.shape[1]}
    if not hasattr(X, "shape"):
        return {}
    if not getattr(getattr(X, "columns", None), "is_unique", True):
        raise ValueError("X has several columns of one name: rename them, or leave all but one out")
    probe = BaseEstimator()
    validate_data(probe, X, skip_check_array=True)
    return dict(vars(probe))


def _named(names: Sequence[str]) -> dict[str, Any]:
    return {"n_features_in_": len(names), "feature_names_in_": np.array(names, dtype=object)}


def rows_to_predict(estimator: BaseEstimator, X: Any) -> NDArray[np.float64]:
    """Return rows as a fitted estimator can use them, refused without a word of their entries.

    Parameters
    ----------
    estimator : BaseEstimator
        Fitted.
    X : array_like, sparse matrix or DataFrame of shape (n_rows, n_features)
        Finite numbers.

    Returns
    -------
    ndarray of shape (n_rows, n_features)

    Raises
    ------
    ValueError
        If X is not two-dimensional, holds anything but finite real numbers, or has other columns than the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import MultiOutcomeRidge
    >>> from dpfast.estimator.bounded import rows_to_predict
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0).fit(np.eye(3), np.ones(3))
    >>> rows_to_predict(model, [[1, 2, 3]])
    array([[1., 2., 3.]])
    """
    if isinstance(X, (str, PathLike, io.EncodedTable)):
        raise TypeError(f"X must be rows of numbers, got {type(X).__name__}: dpfast.io.Columns.transform makes them")
    X = io.in_memory(X, "X", may_copy=True) if io.is_sparse(X) else zero_copy_view(X, "X")
    is_numeric = isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim == 2
    if not is_numeric:
        array = redact_errors(lambda: np.asarray(X), "X must be a table of numbers, with rows of one length")
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: X.reshape(-1, 1) if it has a "
                "single feature, X.reshape(1, -1) if it is a single row"
            )
        if array.dtype.kind == "c":
            raise ValueError("Complex data not supported: X must hold real numbers")
        redact_errors(lambda: array.astype(np.float64), _NO_NUMBERS)
    # No rows are rows too: how many there are may be private.
    rows: NDArray[np.float64] = validate_data(estimator, X, reset=False, dtype=np.float64, ensure_min_samples=0)
    return rows


def outcomes_of(X: Any, Y: Any) -> dict[str, Any]:
    """Return ``outcome_names_in_``, the names of the columns of outcomes, if all have one; empty otherwise.

    Parameters
    ----------
    X, Y : table
        Of any kind; outcomes that are declared with the features are in X.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpfast.estimator.bounded import outcomes_of
    >>> outcomes_of(None, pd.Series([1.0], name="days"))["outcome_names_in_"]
    array(['days'], dtype=object)
    """
    names = X.outcome_names if Y is None and isinstance(X, io.Partitions) else outcome_names_of(X, Y)
    return {} if names is None else {"outcome_names_in_": np.array(names, dtype=object)}


def dimensions_of(table: Any) -> int:
    """Return 1 for a single column of outcomes, 2 for any other table."""
    if hasattr(table, "ndim"):
        return int(table.ndim)
    if not (isinstance(table, list | tuple) or hasattr(table, "__array__")):
        return 2
    try:
        return np.ndim(np.asarray(table))
    except ValueError:
        # Blocks, or rows of different lengths: NumPy would say how many. Whoever reads the table refuses these.
        return 2


PRIVATE_BOX = (
    "box_x must be limits, got 'private': private_bounds(X, ..., box=True) finds them, and bound_x='private' one norm "
    "of rows, within the budget"
)


def limits_by_name(argument: str, given: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return limits (low, high) by the names of columns, once they have been checked."""
    check.by_name(argument, given)
    if texts := [name for name, pair in given.items() if isinstance(pair, list | tuple) and str in map(type, pair)]:
        raise TypeError(
            f"{argument} must have two numbers for each column, got text for {texts[0]!r}: declare its levels by "
            "dpfast.io.Columns, and fit the rows that its encode makes"
        )
    for name, pair in given.items():
        if isinstance(pair, list | tuple) and any(isinstance(one, date | np.datetime64) for one in pair):
            raise TypeError(
                f"{argument} must have two numbers for each column, got a date for {name!r}: make days since a public "
                "date of the column and of its limits"
            )
    return {name: check.limits(f"{argument}[{name!r}]", pair) for name, pair in given.items()}


def in_order_of(
    argument: str, given: Mapping[str, Declared], what: str, table: Any, names: Sequence[str] | None
) -> dict[str, Declared]:
    """Return declarations by name in the order of a table's columns: all of them, and no other.

    No message has a name of the table's, which may be a person's: of a file without a line of names, say.
    """
    if names is None:
        # Of files and lists, whose columns estimators name by their places.
        is_listed = isinstance(table, list | tuple) and len(table) > 0
        first = table[0] if is_listed else table
        if is_listed:
            check_listed(first, what)
        names = column_names(first, what)
    if names is None:
        if what == "X" and not (isinstance(table, list | tuple) or is_read_once(table)):
            io.open_table(table)  # what is no table at all is refused as such
        raise ValueError(
            f"{argument} is declared by name, and the columns of {what} have no names that are all text: pass a data "
            "frame or another table with names, or declare a sequence in the order of the columns"
        )
    lacking = [name for name in given if name not in names]
    if lacking:
        raise ValueError(
            f"{argument} has names that {what} lacks: {', '.join(map(repr, lacking))}. They must be those of its "
            "columns, letter by letter"
        )
    if len(given) < len(names):
        shown = ", ".join(map(repr, list(given)[:3])) + ", ..." * (len(given) > 3)
        raise ValueError(
            f"{argument} must have every column of {what}, once: it has {len(given)}, and {what} has {len(names)}. "
            f"Leave the others out, such as frame[[{shown}]]; of files, declare columns by dpfast.io.Columns"
        )
    return {name: given[name] for name in names}


def open_with_outcomes(caller: str, X: Any, Y: Any, *, may_copy: bool = False) -> io.Table:
    """Open a table with its outcomes in `Y`, or with pairs from X."""
    table = io.open_table(X, Y, may_copy=may_copy)
    if table.n_outcomes == 0:
        raise missing_outcomes(caller)
    return table


def missing_outcomes(caller: str) -> ValueError:
    """Return the error of a fit without outcomes; scikit-learn looks for its first words."""
    return ValueError(
        f"{caller} requires y to be passed, but the target y is None: give outcomes, one for each row of X, second, "
        "such as fit(frame[['age']], frame['days']), or declare them, dpfast.io.Columns(..., outcomes=['days'])"
    )


def open_with_outcome(caller: str, X: Any, y: Any, *, may_copy: bool = False, or_more: bool = False) -> io.Table:
    """Open a table whose outcomes are one column, `or_more`."""
    table = open_with_outcomes(caller, X, y, may_copy=may_copy)
    if table.n_outcomes > 1 and not or_more:
        raise ValueError(f"y must have one column, got {table.n_outcomes}")
    if table.n_outcomes == 1 and getattr(y, "ndim", 1) == 2:
        warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning)
    return table


def check_most(max_weight: float | None) -> float:
    """Return the bound on weights, if there is one."""
    if max_weight is None:
        raise ValueError("sample_weight needs max_weight: the largest weight that counts, a public number")
    return check.positive("max_weight", max_weight)


def check_people(groups: object, max_rows: object) -> bool:
    """Return whether people have several rows; refuse one of `groups` and `max_rows` without the other."""
    if groups is None and max_rows is None:
        return False
    if groups is None or max_rows is None:
        raise ValueError("groups (the person each row belongs to) and max_rows (rows counted per person) go together")
    check.positive_integer("max_rows", max_rows)
    return True


class Measured(NamedTuple):
    """Tables to count sizes of, from public maps; the owners of the rows, if people own several."""

    X: Any
    Y: Any
    map_x: io.BlockMap | None = None
    map_y: io.BlockMap | None = None
    groups: Any = None
    max_rows: int | None = None
    #: Whether entries are known to be at least 0.
    nonnegative: bool = False


class BoundedEstimator(PrivateEstimator):
    """An estimator with `bound_x`, and perhaps `bound_y` and `box_x`, each of which may be "private"."""

    #: Where they are "private": what was found.
    bound_x_: float
    caution_: str
    bound_y_: float | FloatArray
    box_x_: FloatArray

    #: What "private" stands for while other parameters are checked.
    _PLACEHOLDERS: ClassVar[dict[str, Any]] = {"bound_x": 1.0, "bound_y": 1.0, "box_x": (-1.0, 1.0)}

    @property
    def _private_bounds(self) -> set[str]:
        """Names of the bounds that are to be found."""
        values = vars(self)
        return {name for name in self._PLACEHOLDERS if type(value := values.get(name)) is str and value == "private"}

    @property
    def _may_be_lower(self) -> Lowered | None:
        """A declared bound of outcomes of which a smaller one is looked for; not with others that are to be found."""
        return None

    def _sizes(self) -> NormHistograms:
        """Return what is to be counted."""
        found, most = self._private_bounds, self._may_be_lower
        return NormHistograms("bound_x" in found, "bound_y" in found, "box_x" in found) if most is None else most.sizes

    @property
    def _bounds_each_outcome(self) -> bool:
        """Whether a bound is found for each of several outcomes, and not one for all."""
        return False

    @abstractmethod
    def _measured(self, *data: Any) -> Measured:
        """Return the tables to find bounds for."""

    def _with_placeholders(self) -> Self:
        placed, to_find = self._in_order(), self._private_bounds
        return placed._with({name: self._PLACEHOLDERS[name] for name in to_find}) if to_find else placed

    def _in_order(self, columns: Mapping[str, Any] | None = None, X: Any = None, Y: Any = None) -> Self:
        """Return a copy with limits and bounds by name in the order of these columns; or as given."""
        found: dict[str, Any] = {}
        box: Any = getattr(self, "box_x", None)
        if _is_by_name(box):
            limits = limits_by_name("box_x", box)
            if columns is not None:
                usual = X.columns.limits if isinstance(X, io.EncodedTable) else {}
                limits = in_order_of("box_x", usual | limits, "X", X, columns.get("feature_names_in_"))
            low, high = (np.array(side) for side in zip(*limits.values(), strict=True))
            found["box_x"] = low, high
        given: Any = getattr(self, "bound_y", None)
        if _is_by_name(given):
            bounds = {name: check.positive(f"bound_y[{name!r}]", bound) for name, bound in given.items()}
            check.by_name("bound_y", bounds)
            if columns is not None:
                bounds = in_order_of("bound_y", bounds, "Y", Y, columns.get("outcome_names_in_"))
            # What one outcome is bounded by is its norm.
            found["bound_y"] = np.array([*bounds.values()]) if len(bounds) > 1 else next(iter(bounds.values()))
        return self._with(found) if found else self

    def _fit(self, privacy: Privacy, *data: Any, columns: Mapping[str, Any] | None = None, **options: Any) -> Self:
        placed = self._in_order(columns or {}, *data[:2])
        super(BoundedEstimator, placed)._fit(privacy, *data, columns=columns, **options)
        if placed is not self:
            # What was declared stays as it was declared.
            self.__dict__ |= {name: one for name, one in vars(placed).items() if name not in ("box_x", "bound_y")}
        return self

    def _fit_people(
        self, *data: Any, groups: Any, max_rows: int | None, columns: Callable[[], Mapping[str, Any]], **options: Any
    ) -> Self:
        """Fit people with a row each, or with several if there are groups; columns are named after the checks."""
        privacy, groups = self._checked(), groups if max_rows is None else io.groups_of(data[0], groups)
        if not check_people(groups, max_rows):
            return self._fit(privacy, *data, columns=columns(), **options)
        self._check_takes_people(privacy)
        return self._fit(privacy, *data, groups, max_rows, unit="person", columns=columns(), **options)

    def _checked(self) -> Privacy:
        privacy = super()._checked()
        if self._private_bounds:
            self._check_findable()
        return privacy

    def _check_findable(self) -> None:
        """Refuse parameters that do not go with bounds to be found."""
        if self.calibration != "sound":
            raise ValueError(f"{self._named} needs calibration='sound': the papers' algorithms take bounds as given")

    @property
    def _named(self) -> str:
        return " and ".join(f"{name}='private'" for name in sorted(self._private_bounds))

    def _prepared(self, privacy: Privacy, source: noise.BitSource, *data: Any) -> Prepared:
        sizes = self._sizes()
        if not (sizes.rows or sizes.outcomes or sizes.entries):
            return super()._prepared(privacy, source, *data)
        measured = self._measured(*data)
        if is_read_once(measured.X) or is_read_once(measured.Y):
            raise TypeError(f"X and Y must be tables that can be read twice with {self._named}, got an iterator")
        table = io.open_table(measured.X, measured.Y if sizes.outcomes else None)
        if self._bounds_each_outcome and sizes.outcomes and table.n_outcomes > 1:
            sizes = replace(sizes, each=table.n_outcomes)
        unit: Unit = "row" if measured.groups is None else "person"
        mechanism, rest = NoisySizes.within(privacy, self._is_gaussian, sizes, table.n_features, unit=unit)
        # What a table is refused for is said before anything is drawn, whatever the bounds on its rows will be.
        self._with_placeholders()._sum(rest, source, *data)
        rows: dict[str, Any] = {"map_x": measured.map_x, "map_y": measured.map_y, "groups": measured.groups}
        counts = size_counts(table, sizes, **rows, max_rows=measured.max_rows, n_threads=self.n_threads)
        # Public under replace-one: every histogram has everybody in it.
        n_people = int(counts.low[0].sum()) if self.adjacency == "replace_one" else None
        release = mechanism.noise.release(counts, source, f"{type(self).__name__}: counts of people by size")
        found = mechanism.found(release, n_people, nonnegative=measured.nonnegative, declared=self._may_be_lower)
        caution = (
            f"the noisy counts that {self._named} paid for show nobody beyond the noise in some histogram: what it "
            "measures is left out of the fit, with coefficients of 0. Give bounds, or a larger epsilon."
        )
        named = {"bound_x": found.rows, "bound_y": found.outcomes, "box_x": found.box}
        attributes: dict[str, Any] = {f"{name}_": one for name, one in named.items() if one is not None}
        if found.box is not None:
            attributes["box_x_"] = np.array(found.box)
        is_long = found.rows is not None and found.rows > _LONG * math.sqrt(table.n_features)
        seem_unlike = found.are_certain and is_long and getattr(self, "box_x", None) is None
        attributes["caution_"] = _UNLIKE_UNITS.format(found.rows) if seem_unlike else ""
        used = named | {"box_x": found.usable_box}
        bounds = {name: one for name, one in used.items() if one is not None}
        return Prepared(self._with(bounds), rest, (release,), attributes, "" if found.are_certain else caution)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not hasattr(self, "releases_") or self.privacy_spent_.epsilon == float("inf") or not self._is_solved:
            return
        for name in self._private_bounds | ({"bound_y"} if hasattr(self, "bound_y_") else set()):
            found = getattr(self, f"{name}_")
            if name == "bound_y" and isinstance(found, np.ndarray):
                check.positives("bound_y_", found.tolist())
            elif name != "box_x":
                check.positive(f"{name}_", found)
            elif found.shape != (2, self.n_features_in_) or not np.all(found[0] <= found[1]):
                raise ValueError("box_x_ must hold limits in order for every feature")


def _is_by_name(given: Any) -> bool:
    """Whether limits or bounds are by name: a mapping, or a table of one column with names for its rows."""
    keys = getattr(given, "keys", None)
    return isinstance(given, Mapping) or (callable(keys) and all(isinstance(one, str) for one in keys()))
