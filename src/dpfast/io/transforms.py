"""Features made of declared columns by public numbers: logarithms, polynomials, splines, interactions.

Nothing is learned from rows: a row is encoded from its own entries and the declaration. Entries are first clipped to
their declared limits. These give the limits of the new columns, which are clipped to them last, against rounding.

Only additions, multiplications, divisions and comparisons are done, each on a whole column. Processors round these
alike, wherever in a column an entry stands. NumPy's logarithm has other bits in vectors than alone, so one is written
here. Zeros are positive: which of two zeros a minimum is depends on the place, too.

*A formula* of Wilkinson's, as R and formulaic have it, becomes columns by declaration. formulaic only parses it: its
own encoders take levels, knots and scales from rows, and warn of unseen categories by name. Calls in a formula are
looked up here and never evaluated. All of this is public, and none of it reads a table.
"""

from __future__ import annotations

import ast
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from inspect import signature
from itertools import chain, pairwise, product
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np
from numpy.polynomial.legendre import Legendre

from dpfast import _arguments as check
from dpfast._arrays import FloatArray
from dpfast._optional import optional
from dpfast.io.columns import (
    Boolean,
    Category,
    Column,
    Derived,
    Feature,
    Limits,
    Number,
    column_of,
    is_coded,
    sources_of,
)
from dpfast.io.frames import Entries, LevelCodes

Single: TypeAlias = "Number | Boolean | Category | Transform"

#: Limits that are found by solving for extremes are widened by it: no value reaches them. In units of the limits,
#: knots are as far apart at least, so that no quotient of distances is beyond what doubles hold.
_MARGIN = 2.0**-30
#: Of a search for the largest value of a function on an interval of width 2 at most: what is left of it is 1e-11.
_THIRDS = 64


@dataclass(frozen=True)
class Transform(Derived, ABC):
    """A transform of one column of numbers with limits."""

    column: Number
    limits: tuple[Limits, ...] = field(init=False, repr=False, compare=False)

    #: What a formula calls it.
    CALLED: ClassVar[str]
    is_coded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.column, Number):
            raise TypeError(f"{type(self).__name__} is made of a dpfast.io.Number, got {type(self.column).__name__}")
        self._check()
        limits = tuple(self._limits(*self.column.ends(f"{self.name} needs")))
        object.__setattr__(self, "limits", _checked(self.name, limits))

    @property
    def name(self) -> str:
        """As in messages."""
        return f"{self.CALLED}({self.column.name})"

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of its encoded columns."""
        return tuple(f"{self.name}[{k}]" for k in range(1, len(self.limits) + 1))

    @property
    def sources(self) -> tuple[Column, ...]:
        """The table's columns that it is made of."""
        return (self.column,)

    def encode(self, batch: Entries) -> list[FloatArray]:
        """Return its encoding: columns within their limits."""
        with np.errstate(all="ignore"):
            return _within(self._values(_held(self.column, batch)[0]), self.limits)

    @abstractmethod
    def _check(self) -> None:
        """Refuse invalid parameters of its own."""

    @abstractmethod
    def _limits(self, low: float, high: float) -> Iterable[Limits]:
        """Return limits of the transform of numbers within these."""

    @abstractmethod
    def _values(self, values: FloatArray) -> Sequence[FloatArray]:
        """Return the transform of numbers within their limits."""


class Log(Transform):
    """The natural logarithm of a column of positive numbers, clipped to its limits first.

    Privacy: made of each row by public numbers alone; within limits that follow from the declared ones.

    Parameters
    ----------
    column : Number
        With `low` and `high`, both positive.

    Examples
    --------
    >>> from dpfast.io import Columns, Log, Number
    >>> columns = Columns([Log(Number("income", low=1_000, high=1_000_000))])
    >>> columns.limits
    {'log(income)': (6.907755278982137, 13.815510557964274)}
    """

    CALLED: ClassVar[str] = "log"

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of its encoded columns."""
        return (self.name,)

    def _check(self) -> None:
        if self.column.low is not None and self.column.low <= 0.0:
            raise ValueError(f"low of column {self.column.name!r} must be above 0 for {self.name}")

    def _limits(self, low: float, high: float) -> Iterable[Limits]:
        least, most = logarithm(np.array([low, high])).tolist()
        return [(least, most)]

    def _values(self, values: FloatArray) -> Sequence[FloatArray]:
        return [logarithm(values)]


@dataclass(frozen=True)
class Polynomial(Transform):
    """A polynomial of declared degree: Legendre's of degrees 1 to `degree`, on the limits of a column.

    They span the same functions as powers of the column. Unlike powers, they are uncorrelated if entries spread evenly
    over the limits. Each lies within -1 and 1.

    Privacy: made of each row by public numbers alone; within limits that follow from the declared ones.

    Parameters
    ----------
    column : Number
        With `low` and `high`.
    degree : int
        At least 1.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpfast.io import Columns, Number, Polynomial
    >>> columns = Columns([Polynomial(Number("age", low=20, high=80), 2)])
    >>> columns.transform(pd.DataFrame({"age": [20, 50, 80, 95]}))
       poly(age)[1]  poly(age)[2]
    0          -1.0           1.0
    1           0.0          -0.5
    2           1.0           1.0
    3           1.0           1.0
    """

    degree: int

    CALLED: ClassVar[str] = "poly"

    def _check(self) -> None:
        check.positive_integer(f"degree of {self.name}", self.degree)

    def _limits(self, low: float, high: float) -> Iterable[Limits]:
        _check_room(self.column)
        for degree in range(1, self.degree + 1):
            extremes = np.real(Legendre.basis(degree).deriv().roots()) if degree > 1 else np.empty(0)
            values = list(_legendre(np.append(extremes, 1.0), degree))[-1]
            yield (-1.0 if degree % 2 else max(float(values.min()) - _MARGIN, -1.0)), 1.0

    def _values(self, values: FloatArray) -> Sequence[FloatArray]:
        return list(_legendre(_unit(values, self.column), self.degree))


@dataclass(frozen=True)
class Spline(Transform):
    """A B-spline with declared knots: smooth between the limits of a column, a polynomial between two knots.

    Its basis has a function for each knot and degree. The first of all is left out, as an intercept makes up for it: an
    entry at the low limit becomes zeros. The others lie within 0 and 1 and add up to 1 at most.

    Privacy: made of each row by public numbers alone; within limits that follow from the declared ones.

    Parameters
    ----------
    column : Number
        With `low` and `high`.
    knots : sequence of float
        At least one, ascending, between `low` and `high`.
    degree : int, default 3
        At least 1; 3 is cubic.

    Examples
    --------
    >>> from dpfast.io import Columns, Number, Spline
    >>> columns = Columns([Spline(Number("age", low=18, high=90), knots=[40, 65])])
    >>> columns.feature_names
    ('bs(age)[1]', 'bs(age)[2]', 'bs(age)[3]', 'bs(age)[4]', 'bs(age)[5]')
    """

    knots: tuple[float, ...]
    degree: int = 3

    CALLED: ClassVar[str] = "bs"

    def _check(self) -> None:
        check.positive_integer(f"degree of {self.name}", self.degree)
        given: object = self.knots
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise TypeError(f"knots of {self.name} must be a sequence of numbers, got {type(given).__name__}")
        knots = tuple(check.real(f"knots of {self.name}", knot) for knot in given)
        if not knots:
            raise ValueError(f"knots of {self.name} must hold at least one number; without any it is a Polynomial")
        object.__setattr__(self, "knots", knots)

    def _limits(self, low: float, high: float) -> Iterable[Limits]:
        ends = [low, *self.knots, high]
        if not all(one < other for one, other in pairwise(ends)):
            raise ValueError(f"knots of {self.name} must ascend, between low and high of its column")
        _check_room(self.column)
        knots = self._all_knots
        if not np.all(np.diff(knots[self.degree : -self.degree]) >= _MARGIN):
            raise ValueError(f"knots of {self.name} are too near each other for the width of its limits")
        # Each function rises to its largest value and then falls: between thirds that differ, it is on the higher side.
        start, stop = knots[1 : -self.degree - 1], knots[self.degree + 2 :]
        for _ in range(_THIRDS):
            left, right = start + (stop - start) / 3.0, stop - (stop - start) / 3.0
            is_right = self._diagonal(left) < self._diagonal(right)
            start, stop = np.where(is_right, left, start), np.where(is_right, stop, right)
        for largest in self._diagonal(start):
            yield 0.0, min(float(largest) + _MARGIN, 1.0)

    def _diagonal(self, points: FloatArray) -> FloatArray:
        """Return the values of functions, all but the first, each at a point of its own."""
        return np.diagonal(self._basis(points)[1:]).copy()

    @property
    def _all_knots(self) -> FloatArray:
        """Knots in units of the limits, with each end as often as the basis needs it."""
        inner = _unit(np.array(self.knots), self.column)
        ends = np.ones(self.degree + 1)
        return np.concatenate([-ends, inner, ends])

    def _values(self, values: FloatArray) -> Sequence[FloatArray]:
        return self._basis(_unit(values, self.column))[1:]

    def _basis(self, values: FloatArray) -> list[FloatArray]:
        """Return all functions of the basis, by the recursion of de Boor and Cox, at numbers in units of the limits."""
        knots = self._all_knots
        intervals = np.searchsorted(knots[self.degree + 1 : -self.degree - 1], values, side="right") + self.degree
        basis = [np.asarray(intervals == place, np.float64) for place in range(len(knots) - 1)]
        for degree in range(1, self.degree + 1):
            # Between knots that coincide there are no entries, and the basis is 0.
            rising = [
                (values - start) / (stop - start if stop > start else 1.0)
                for start, stop in zip(knots, knots[degree:], strict=False)
            ]
            basis = [
                rising[place] * basis[place] + (1.0 - rising[place + 1]) * basis[place + 1]
                for place in range(len(basis) - 1)
            ]
        return basis


@dataclass(frozen=True, init=False)
class Interaction(Derived):
    """The products of several encoded columns, each of one with each of the others.

    Numbers are clipped to their limits first. Of categories alone, products are indicators of pairs of levels, and stay
    codes as a `Category` does.

    Privacy: made of each row by public numbers alone; within limits that follow from the declared ones.

    Parameters
    ----------
    *columns : Number, Boolean, Category, Log, Polynomial or Spline
        At least two, of different columns of the table; numbers with `low` and `high`.

    Examples
    --------
    >>> from dpfast.io import Category, Columns, Interaction, Number
    >>> age, site = Number("age", low=18, high=90), Category("site", ("Bern", "Basel"), drop_first=True)
    >>> Columns([age, site, Interaction(age, site)]).limits
    {'age': (18.0, 90.0), 'site=Basel': (0.0, 1.0), 'age:site=Basel': (0.0, 90.0)}
    """

    columns: tuple[Single, ...]
    limits: tuple[Limits, ...] = field(init=False, repr=False, compare=False)

    def __init__(self, *columns: Single) -> None:
        for column in columns:
            if not isinstance(column, Number | Boolean | Category | Transform):
                raise check.mistyped("Interaction", "of Number, Boolean, Category, Log, Polynomial and Spline", column)
        object.__setattr__(self, "columns", columns)
        names = [source.name for source in self.sources]
        if len(set(names)) < max(2, len(names)):
            raise ValueError(
                f"Interaction must be of at least two columns of the table, each of them once, got {names}; powers of "
                "one are a Polynomial"
            )
        for column in columns:
            if column.limits is None:
                raise ValueError(f"column {column.name!r} is declared without low and high, which {self.name} needs")
        of_each = [[] if column.limits is None else column.limits for column in columns]
        limits = tuple(reduce(_product, several) for several in product(*of_each))
        object.__setattr__(self, "limits", _checked(self.name, limits))

    @property
    def name(self) -> str:
        """As in messages."""
        return ":".join(column.name for column in self.columns)

    @property
    def sources(self) -> tuple[Column, ...]:
        """The table's columns that it is made of."""
        return tuple(chain.from_iterable(map(sources_of, self.columns)))

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of its encoded columns: those of the last column change fastest."""
        return tuple(map(":".join, product(*(column.encoded_names for column in self.columns))))

    @property
    def is_coded(self) -> bool:
        """Whether it becomes indicators, one of which is 1 at most."""
        return all(isinstance(column, Category) for column in self.columns)

    def encode(self, batch: Entries) -> list[FloatArray]:
        """Return its encoding: columns within their limits."""
        with np.errstate(all="ignore"):
            of_each = [_held(column, batch) for column in self.columns]
            return _within((reduce(np.multiply, several) for several in product(*of_each)), self.limits)

    def places(self, batch: Entries) -> LevelCodes:
        """Return the places of entries among the indicators; those without one have a place below 0."""
        places = np.zeros(len(batch), np.int32)
        for column in filter(is_coded, self.columns):
            own = column.places(batch)
            none = (places < 0) | (own < 0)
            places = np.where(none, np.int32(-1), places * np.int32(len(column.encoded_names)) + own)
        return places


_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG_TERMS = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def logarithm(values: FloatArray) -> FloatArray:
    """Return natural logarithms of positive finite numbers, with the same bits on every processor.

    The method of fdlibm, below one unit in the last place: x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), and
    log(1 + f) = 2 artanh(s), s = f / (2 + f), by a polynomial of seven terms; ln 2 is held in two parts.
    """
    mantissas, exponents = np.frexp(values)
    is_small = mantissas < math.sqrt(0.5)
    f = np.where(is_small, 2.0 * mantissas, mantissas) - 1.0
    k = (exponents - is_small).astype(np.float64)
    s = f / (2.0 + f)
    z = s * s
    series = np.zeros_like(z)
    for term in reversed(_LOG_TERMS):
        series = (series + term) * z
    half_square = 0.5 * f * f
    found: FloatArray = k * _LN2_HIGH - ((half_square - (s * (half_square + series) + k * _LN2_LOW)) - f)
    return found


def _unit(values: FloatArray, column: Number) -> FloatArray:
    """Return numbers within the limits of a column in units of them: from -1 to 1."""
    middle, half = middle_and_half(*column.ends("its units need"))
    return np.clip((values - middle) / half, -1.0, 1.0)


def middle_and_half(low: float, high: float) -> tuple[float, float]:
    """Return the middle of limits, and half of their width: halved first, as doubles may not hold the whole."""
    return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0


def _check_room(column: Number) -> None:
    """Refuse limits that rounding leaves no numbers between: half of their width against their size."""
    middle, half = middle_and_half(*column.ends("its units need"))
    if half < max(abs(middle) * _MARGIN, float(np.finfo(np.float64).tiny)):
        raise ValueError(f"low and high of column {column.name!r} are too near each other")


def _legendre(values: FloatArray, degree: int) -> Iterator[FloatArray]:
    """Iterate over Legendre's polynomials from degree 1 on."""
    before, last = np.ones_like(values), values
    for k in range(1, degree + 1):
        yield last
        before, last = last, ((2.0 * k + 1.0) * values * last - k * before) / (k + 1.0)


def _held(column: Single, batch: Entries) -> list[FloatArray]:
    """Return the encoding of a column, clipped to its limits."""
    assert column.limits is not None
    return _within(column.encode(batch), column.limits)


def _within(columns: Iterable[FloatArray], limits: Sequence[Limits]) -> list[FloatArray]:
    # In a new array, contiguous, whose zeros are positive.
    return [np.clip(values, low, high) + 0.0 for values, (low, high) in zip(columns, limits, strict=True)]


def _product(one: Limits, other: Limits) -> Limits:
    """Return the limits of products: those of the ends, as rounding keeps the order of products."""
    ends = [0.0 + x * y for x in one for y in other]
    return min(ends), max(ends)


def _checked(name: str, limits: tuple[Limits, ...]) -> tuple[Limits, ...]:
    if not all(-math.inf < low < high < math.inf for low, high in limits):
        raise ValueError(f"limits of what {name} is made of are too near each other, or too large: declare others")
    return limits


_ACCEPTED = (
    "names of columns, C(name, levels=[...]), log(name), poly(name, degree), bs(name, knots=[...], degree=3), their "
    "interactions, and +, *, :, / and ** between them"
)


def declared_by(formula: str, limits: Mapping[str, Any]) -> tuple[list[Feature], list[Feature]]:
    """Return the features and the outcomes that a formula declares, as `Columns.from_formula` describes."""
    check.text("formula", formula)
    if not isinstance(limits, Mapping):
        raise TypeError(f"limits must be a mapping of names to limits or levels, got {type(limits).__name__}")
    declared = {name: column_of("limits", name, one) for name, one in limits.items()}
    sides = _parsed(formula)
    right = sides.get("rhs", sides.get("root", ()))
    terms = {frozenset(factor.expr for factor in term.factors): term for term in right}
    if terms.pop(frozenset("1"), None) is None:
        raise ValueError("formula leaves out the intercept, which is the estimator's: fit_intercept=False there")
    features: list[Feature] = []
    for exprs, term in sorted(terms.items(), key=lambda one: len(one[0])):
        # R's rule: the first level goes where what is left of the term is in the formula too.
        margins = {factor.expr: exprs - {factor.expr} for factor in term.factors}
        drops = {expr: not margin or margin in terms for expr, margin in margins.items()}
        several = [_column(factor, declared, drop_first=drops[factor.expr]) for factor in term.factors]
        features.append(several[0] if len(several) == 1 else Interaction(*several))
    outcomes: list[Feature] = []
    for term in sides.get("lhs", ()):
        if len(term.factors) > 1:
            _refuse(str(term), "an interaction as an outcome")
        outcomes.append(_column(term.factors[0], declared, drop_first=False))
    return features, outcomes


def _parsed(formula: str) -> Mapping[str, Any]:
    """Return the terms of either side."""
    parser = optional("formulaic.parser", "a formula").DefaultFormulaParser(feature_flags={"twosided"})
    try:
        found: Mapping[str, Any] = parser.get_terms(formula)._to_dict()
    except Exception as error:
        # What follows the first sentence marks a place by colours of a terminal; Python's errors name none.
        is_own = isinstance(error, optional("formulaic.errors", "a formula").FormulaicError)
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".") if is_own else "a call is no Python"
        raise ValueError(f"formula {formula!r} cannot be read: {reason}; accepted: {_ACCEPTED}") from None
    return found


def _column(factor: Any, declared: Mapping[str, Column], *, drop_first: bool) -> Single:
    """Return the declaration of a factor, of a category without its first level if `drop_first`."""
    if factor.eval_method.value == "literal":
        _refuse(factor.expr, "which is a number")
    if factor.eval_method.value == "lookup":
        column = declared.get(factor.expr, Number(factor.expr))
        return replace(column, drop_first=drop_first) if isinstance(column, Category) else column
    call, names = _read(factor.expr)
    function = _FUNCTIONS.get(ast.unparse(call.func)) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or function is None:
        _refuse(factor.expr, "which is not known, and might learn from rows")
    others = call.args[1:]
    name = call.args[0] if call.args else None
    if not isinstance(name, ast.Name | ast.Attribute):
        _refuse(factor.expr, "which is of no column by name")
    column_name = names.get(ast.unparse(name), ast.unparse(name))
    try:
        given = [ast.literal_eval(one) for one in others]
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        bound = signature(function).bind(None, *given, **options)
    except (TypeError, ValueError):
        _refuse(factor.expr, "whose arguments are not those below, written out")
    column = declared.get(column_name, Number(column_name))
    if function is _category:
        bound.arguments.setdefault("drop_first", drop_first)
        if "levels" not in bound.arguments and not isinstance(column, Category):
            _refuse(factor.expr, "whose levels are not declared, here or in limits")
    elif not isinstance(column, Number):
        _refuse(factor.expr, f"and {column_name!r} is no number")
    bound.arguments["column"] = column
    return function(*bound.args, **bound.kwargs)


def _read(expr: str) -> tuple[ast.expr | None, dict[str, str]]:
    """Parse a call as Python, and return the names in backticks by their placeholders."""
    names: dict[str, str] = {}

    def plain(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        return names.setdefault(found["name"], f"_{len(names)}_")

    code = re.sub(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?P<name>[^`]+)`""", plain, expr)
    try:
        return ast.parse(code, mode="eval").body, {placeholder: name for name, placeholder in names.items()}
    except (SyntaxError, ValueError):
        return None, {}


def _category(
    column: Column, levels: Any = None, drop_first: Any = None, missing: Any = None, undeclared: Any = None
) -> Category:
    given = {"levels": levels, "drop_first": drop_first, "missing": missing, "undeclared": undeclared}
    options = {name: one for name, one in given.items() if one is not None}
    return replace(column, **options) if isinstance(column, Category) else Category(column.name, **options)


#: By what a formula calls it.
_FUNCTIONS: Mapping[str, Callable[..., Single]] = {
    "C": _category,
    "log": Log,
    "np.log": Log,
    "poly": Polynomial,
    "bs": Spline,
}


def _refuse(term: str, why: str) -> NoReturn:
    raise ValueError(f"formula has {term!r}, {why}; accepted: {_ACCEPTED}")
