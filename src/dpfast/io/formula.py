"""A formula of Wilkinson's, as R and formulaic have it, as columns by declaration.

formulaic only parses it: its own encoders take levels, knots and scales from rows, and warn of unseen categories by
name. Calls in a formula are looked up here and never evaluated. All of this is public, and none of it reads a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, NoReturn

from dpfast import _arguments as check
from dpfast._optional import optional
from dpfast.io.columns import Category, Column, Feature, Number, column_of
from dpfast.io.transforms import Interaction, Log, Polynomial, Single, Spline

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
