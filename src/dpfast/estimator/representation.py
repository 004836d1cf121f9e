"""How an estimator is shown: its docstring, its page in a notebook, and its predictions as frames by `set_output`.

*Entries of docstrings* that all estimators share are written once: subclasses leave them to the base class.

*The page* has its parameters and the cost of a fit, or its spending and releases. All of it is public:
parameters are the analyst's own, and the rest is said of releases. A seed is not shown, as whoever has it can take the
noise off.

Frames have the index of the table predicted from. Otherwise arrays are returned, also for frames: scikit-learn's
stacking, calibration, transformed targets and scorers of probabilities slice and reshape what an estimator predicts.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arguments import CLAUSE, entries, explained
from dpfast._documents import Fact, abbreviated, card, caution, facts, folded, section
from dpfast._optional import optional
from dpfast.ledger import Ledger, Release
from dpfast.ledger.entries import guarantee_html, guarantee_of, releases_html
from dpfast.privacy import Privacy
from dpfast.privacy.guarantee import NEIGHBOURS, plain_words

_LEFT_OUT = re.compile(r"^(\w[\w, ]*)\n    As for every estimator\.$", re.MULTILINE)


def spliced(docstring: str, shared: str) -> str:
    """Put the shared entries in the place of ``name, name`` / ``    As for every estimator.``."""
    said = entries(shared)

    def named(match: re.Match[str]) -> str:
        return "\n".join(dict.fromkeys(said[name] for name in match.group(1).split(", ")))

    return _LEFT_OUT.sub(named, inspect.cleandoc(docstring))


_EXACT = ". At epsilon = inf they clip nothing, and are the units of losses and choices: give those of a private fit"
_FOUND = ", or have them found within the budget, 'private'"


def missing_bound(cls: type, *names: str, epsilon: object = 1.0) -> TypeError:
    """Return the error for an estimator without a bound, or any of several: its meaning, and how to choose it."""
    docstring = cls.__doc__ or ""
    requested = " or ".join(f"{name} ({CLAUSE.split(explained(name, docstring), maxsplit=1)[0]})" for name in names)
    is_found = any('"private"' in entries(docstring).get(name, "").partition("\n")[0] for name in names)
    return TypeError(
        f"{cls.__name__} needs {requested}. Noise hides the most that one person can add, which public numbers bound: "
        "declare them from what is known without the table (what the thing can be, an instrument, a rule, published "
        f"figures), never from its rows{_FOUND * is_found}. docs/concepts/bounds.md says how to choose them"
        f"{_EXACT * (epsilon == math.inf)}"
    )


#: Of parameters that are no bounds: how to choose them, and the page.
_CHOICES = {
    "n_nonzero": (
        "Every further feature takes up a smaller effect, and a share of the budget. Choose it from what is known "
        "without the table, never from its rows; plan gives the error to expect of any number",
        "guides/sparse_regression.md",
    ),
    "classes": (
        "List what the form, the code book or the question allows, never from its rows: labels found in a table "
        "reveal the people who have them",
        "concepts/bounds.md",
    ),
    "gamma": (
        "A reward t steps ahead counts gamma^t times as much as one now, so that about 1/(1 - gamma) steps count: "
        "choose it by how far ahead a decision is judged",
        "guides/policy_evaluation.md",
    ),
}


def missing_parameter(cls: type, name: str, epsilon: object = 1.0) -> TypeError:
    """Return the error for an estimator without a parameter that has no default."""
    if name not in _CHOICES:
        return missing_bound(cls, name, epsilon=epsilon)
    meaning = explained(name, cls.__doc__ or "")
    how, page = _CHOICES[name]
    return TypeError(f"{cls.__name__} needs {name} ({CLAUSE.split(meaning, maxsplit=1)[0]}). {how}. See docs/{page}")


def document(cls: type, shared: str) -> None:
    """Complete the docstrings of a class and of its methods."""
    documented = [cls, *(member for member in vars(cls).values() if isinstance(member, FunctionType))]
    for member in documented:
        if member.__doc__ is not None and "As for every estimator." in member.__doc__:
            member.__doc__ = spliced(member.__doc__, shared)


Container = Literal["default", "pandas", "polars"]
# What the page says elsewhere.
_SAID = ("epsilon", "delta", "adjacency", "ledger")


def with_output(config: dict[str, str], predict: Container) -> dict[str, str]:
    """Return the configuration of `set_output` with this setting; ImportError if the library is not installed."""
    if check.choice("predict", predict, get_args(Container)) != "default":
        _library(predict)
    return config | {"predict": predict}


def presented(
    config: dict[str, str], values: NDArray[Any], given: Any, names: Sequence[Any] | None, name: Any, rows: Any
) -> Any:
    """Return predictions from `given` as requested: several columns by their names, one by its own.

    Their rows are those of `given`, unless they have labels of their own.
    """
    container = config.get("predict", "default")
    if container == "default":
        return values
    library = _library(cast("Container", container))
    columns = [str(k) for k in range(values.shape[1])] if values.ndim == 2 and names is None else names
    if container == "polars":
        if values.ndim == 1:
            return library.Series("" if name is None else str(name), values)
        assert columns is not None
        return library.DataFrame({str(one): values[:, k] for k, one in enumerate(columns)})
    index = getattr(given, "index", None) if rows is None else library.Index(rows)
    index = index if isinstance(index, library.Index) else None
    if values.ndim == 1:
        return library.Series(values, index=index, name=name)
    return library.DataFrame(values, index=index, columns=range(values.shape[1]) if names is None else columns)


def check_output(config: object) -> None:
    """Refuse a value that `set_output` cannot have set: a name read from a file would be imported."""
    if not isinstance(config, dict) or not config.keys() <= {"predict", "transform"}:
        raise ValueError("_sklearn_output_config must say what predictions and transformed rows are returned as")
    for name, container in config.items():
        check.choice(name, container, get_args(Container))


def _library(name: Container) -> Any:
    return optional(name, f"predict={name!r}")


def outcome_names(names: NDArray[np.object_] | None, single: bool) -> tuple[Sequence[Any] | None, Any]:
    """Return the names of columns, and of a single one."""
    if names is None:
        return None, None
    return (None, names[0]) if single else (list(names), None)


def html_of(model: Any) -> str:
    """Return the page of an estimator, fitted or not."""
    fitted = hasattr(model, "releases_")
    body = [spent_html(model.releases_, model.privacy_spent_)] if fitted else [*_cost(model)]
    ledger = model.ledger
    if isinstance(ledger, Ledger):
        left = ledger.remaining
        body.append(facts([("left in its ledger", f"epsilon {left.epsilon:.6g}, delta {left.delta:.6g}")]))
    if fitted:
        body.append(section("Releases", releases_html(model.releases_)))
    parameters = facts(_parameters(model))
    body.append(folded("Parameters", parameters) if fitted else section("Parameters", parameters))
    state = "not fitted" if not fitted else "fitted" if model._is_solved else "paid for and not solved: call complete()"
    return card(f"{type(model).__name__}, {state}", *body)


def spent_html(releases: Sequence[Release], privacy: Privacy) -> str:
    """State the joint cost of releases, and their guarantee."""
    kept = guarantee_of(releases, privacy) == str(privacy)
    said = [("spent", privacy), ("neighbours", NEIGHBOURS[privacy.adjacency])]
    if kept:
        return facts([*said, ("meaning", plain_words(privacy))])
    return facts(said) + guarantee_html(releases, privacy)


def _cost(model: Any) -> Iterator[str]:
    """State the cost of a fit, if a fit accepts the parameters."""
    try:
        privacy, mu = model._cost()
    except (TypeError, ValueError) as error:
        yield caution(f"A fit will be refused: {error}")
        return
    composed = None if mu is None else f"as mu = {mu:.4g} of Gaussian noise"
    rows: list[Fact] = [("a fit costs", privacy), ("neighbours", NEIGHBOURS[privacy.adjacency])]
    yield facts([*rows, ("meaning", plain_words(privacy)), ("adds up", composed)])
    if model.random_state is not None:
        yield caution("Noise will come from a seed: what is released has no guarantee, for anybody.")


def _parameters(model: Any) -> Iterator[Fact]:
    """Yield parameters as Python shows them, first those that are not at their default."""
    defaults = {name: one.default for name, one in inspect.signature(type(model)).parameters.items()}
    parameters = {name: one for name, one in model.get_params(deep=False).items() if name not in _SAID}
    for name in sorted(parameters, key=lambda name: parameters[name] is defaults[name]):
        value = parameters[name]
        shown = abbreviated(str(getattr(value, "__name__", None) or repr(value)))
        if name == "random_state" and value is not None:
            shown = "given, not shown"
        yield name, f"{shown} (default)" if value is defaults[name] else shown
