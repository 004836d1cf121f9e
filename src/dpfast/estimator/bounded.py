"""Estimators with bounds on rows that may be found within their budget: "private" in the place of a number.

A part of the budget buys noisy counts of people by size (releases/size_counts.py) before anything is summed. The
counts give bounds like declared ones. A copy of the estimator with these numbers does the rest of the fit, for the rest
of the budget.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from dpfast import _arguments as check
from dpfast import io, noise
from dpfast._arrays import FloatArray
from dpfast.estimator.base import Prepared, PrivateEstimator
from dpfast.estimator.documentation import missing_bound
from dpfast.estimator.inputs import check_people, in_order_of, limits_by_name
from dpfast.io.blocks import is_read_once
from dpfast.privacy import Privacy, Unit
from dpfast.releases.size_counts import Lowered, NoisySizes
from dpfast.statistics.sizes import Sizes, size_counts

Class = TypeVar("Class", bound=type)

#: Of required keywords, those whose absence is explained.
_EXPLAINED = "bound", "box", "classes"


# What other estimators take, and this one may not.
_ELSEWHERE = {
    "box_x": "rows are bounded by bound_x: scale columns by public limits first, (X - middle) / half_width, and a row "
    "of d columns is at most sqrt(d) long",
    "max_weight": "MultiOutcomeRidge takes weights",
}


def explains_parameters(cls: Class) -> Class:
    """Make the error for a missing bound explain it, and that for an unknown parameter name the nearest."""
    init: Any = cls.__init__  # type: ignore[misc]
    known = signature(init).parameters
    needed = [
        name
        for name, parameter in known.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is parameter.empty
        and name.startswith(_EXPLAINED)
    ]

    @wraps(init)
    def explaining(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                near = (
                    _ELSEWHERE.get(name)
                    or check.nearest(name, known)
                    or f"its parameters: {', '.join(list(known)[1:])}"
                )
                raise TypeError(f"{cls.__name__} has no parameter {name!r}; {near}")
        for name in needed:
            if name not in kwargs:
                raise missing_bound(cls, name)
        init(self, *args, **kwargs)

    cls.__init__ = explaining  # type: ignore[misc]
    return cls


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
    bound_y_: float | FloatArray
    box_x_: FloatArray

    #: What "private" stands for while other parameters are checked.
    _STAND_INS: ClassVar[dict[str, Any]] = {"bound_x": 1.0, "bound_y": 1.0, "box_x": (-1.0, 1.0)}

    @property
    def _to_find(self) -> set[str]:
        """Names of the bounds that are to be found."""
        values = {name: getattr(self, name, None) for name in self._STAND_INS}
        return {name for name, value in values.items() if isinstance(value, str) and value == "private"}

    @property
    def _may_be_lower(self) -> Lowered | None:
        """A declared bound of outcomes of which a smaller one is looked for; not with others that are to be found."""
        return None

    def _sizes(self) -> Sizes:
        """Return what is to be counted."""
        found, most = self._to_find, self._may_be_lower
        return Sizes("bound_x" in found, "bound_y" in found, "box_x" in found) if most is None else most.sizes

    @property
    def _bounds_each_outcome(self) -> bool:
        """Whether a bound is found for each of several outcomes, and not one for all."""
        return False

    @abstractmethod
    def _measured(self, *data: Any) -> Measured:
        """Return the tables to find bounds for."""

    def _stand_in(self) -> Self:
        placed, to_find = self._in_order(), self._to_find
        return placed._with({name: self._STAND_INS[name] for name in to_find}) if to_find else placed

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

    def _with(self, bounds: dict[str, Any]) -> Self:
        """Return a copy with other bounds, which shares the ledger."""
        if not bounds:
            return self
        other = copy(self)
        other.__dict__.update(bounds)
        return other

    def _checked(self) -> Privacy:
        privacy = super()._checked()
        if self._to_find:
            self._check_findable()
        return privacy

    def _check_findable(self) -> None:
        """Refuse parameters that do not go with bounds to be found."""
        if self.calibration != "sound":
            raise ValueError(f"{self._named} needs calibration='sound': the papers' algorithms take bounds as given")

    @property
    def _named(self) -> str:
        return " and ".join(f"{name}='private'" for name in sorted(self._to_find))

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
        self._stand_in()._sum(rest, source, *data)
        counts = size_counts(
            table,
            sizes,
            map_x=measured.map_x,
            map_y=measured.map_y,
            groups=measured.groups,
            max_rows=measured.max_rows,
            n_threads=self.n_threads,
        )
        # Public under replace-one: every histogram has everybody in it.
        n_people = int(counts.low[0].sum()) if self.adjacency == "replace_one" else None
        release = mechanism.noise.release(counts, source, f"{type(self).__name__}: counts of people by size")
        found = mechanism.found(release, n_people, nonnegative=measured.nonnegative, declared=self._may_be_lower)
        caution = (
            f"the noisy counts that {self._named} paid for show nobody beyond the noise in some histogram: what it "
            "measures is left out of the fit, with coefficients of 0. Give bounds, or a larger epsilon."
        )
        named = {"bound_x": found.rows, "bound_y": found.outcomes, "box_x": found.box}
        attributes = {
            f"{name}_": np.array(one) if isinstance(one, tuple) else one
            for name, one in named.items()
            if one is not None
        }
        used = named | {"box_x": found.usable_box}
        bounds = {name: one for name, one in used.items() if one is not None}
        return Prepared(self._with(bounds), rest, (release,), attributes, "" if found.are_certain else caution)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not hasattr(self, "releases_") or self.privacy_spent_.epsilon == float("inf") or not self._is_solved:
            return
        for name in self._to_find | ({"bound_y"} if hasattr(self, "bound_y_") else set()):
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
