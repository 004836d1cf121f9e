"""Fitted models after their releases: kept until they are solved, and written to JSON files.

*Not solved.* A fit pays before it solves, and solving may be interrupted, or fail. By then the model has all that it
solves from: releases and public numbers, never anything else of the data. So a fit keeps its model before it solves,
hands it to keepers, and `complete` can solve at any later time for nothing.

*Files.* They hold everything public about a model, to the bit, and nothing that is executed when read: the estimator's
name, its parameters and its fitted attributes, releases included. For a model that waits for `complete` a file also
holds the input of the solution, equally public. It never holds a ledger, which is an account and not a model, nor a
seed: whoever has the seed of a release can take its noise off.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from inspect import getattr_static, signature
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator

from dpfast import _arguments as check
from dpfast._documents import array_from_lists, array_to_lists, read_document, write_document
from dpfast.ledger import Release
from dpfast.ledger.file import is_ledger
from dpfast.privacy import Privacy
from dpfast.registry import FAMILIES

Result = TypeVar("Result")


class Unsolved(NamedTuple):
    """The input of a fit's solution, besides its releases: all of it is public."""

    #: Parameters of the estimator as they were when its fit began, with the bounds that the fit has found.
    given: Mapping[str, Any]
    mechanism: Any
    #: What is public besides and needed to solve.
    public: Any
    #: Fitted attributes that were found before, and by how many releases.
    found: Mapping[str, Any]
    n_before: int
    #: What public numbers say of the error; None where that has been said.
    error: float | None


_keepers: ContextVar[tuple[Callable[[Any], None], ...]] = ContextVar("keepers", default=())
# By identity; adding to and removing from a dict is atomic.
_unsolved: dict[int, Any] = {}


@contextmanager
def kept_by(function: Callable[[Any], None]) -> Iterator[None]:
    """Have a function told of each model that is fitted in the block once all is drawn, before the ledger's commit.

    The model is not solved then: it can be saved, and completed.
    """
    before = _keepers.get()
    _keepers.set((*before, function))
    try:
        yield
    finally:
        _keepers.set(before)


def keep(model: Any) -> None:
    """Hand a model with all its releases to the keepers, and remember it until it is solved."""
    _unsolved[id(model)] = model
    for function in _keepers.get():
        function(model)


def forget(model: Any) -> None:
    """Forget a model that is solved."""
    _unsolved.pop(id(model), None)


class Waiting(Generic[Result]):
    """The released and not yet returned result of a function: remembered until its return."""

    def __init__(self, releases: Sequence[Release], complete: Callable[[], Result]) -> None:
        self.releases_, self._complete = tuple(releases), complete
        _unsolved[id(self)] = self

    def complete(self) -> Result:
        """Return it."""
        found = self._complete()
        forget(self)
        return found


def complete(releases: Sequence[Release]) -> Any:
    """Finish a fit that was interrupted, or failed, after its noise was drawn: solve again from its releases.

    So are functions, whose results would be lost with the error otherwise: `select`, `private_bounds`, repeated fits.

    Privacy: post-processing of releases; nothing is spent.

    Parameters
    ----------
    releases : sequence of Release
        Of one fit of this process, as its ledger has them (`Ledger.releases`), with or without their values. A model at
        hand has a method `complete`, which needs none; one of another process is loaded from its file.

    Returns
    -------
    estimator
        The model, fitted; or what a function would have returned.

    Raises
    ------
    TypeError
        If it is no sequence of releases.
    ValueError
        If no fit of this process waits to be completed from them, or several do whose releases have the same records.

    Examples
    --------
    >>> import numpy as np
    >>> import dpfast
    >>> from dpfast import Ledger, MultiOutcomeRidge, Privacy
    >>> ledger = Ledger(Privacy(1.0, 1e-6))
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, ledger=ledger)
    >>> model = model.fit(np.eye(3), np.ones(3))
    >>> dpfast.complete(ledger.releases)
    Traceback (most recent call last):
        ...
    ValueError: no fit of this process waits to be completed from these releases
    """
    if not isinstance(releases, Sequence):
        raise TypeError(f"releases must be a sequence of dpfast.Release, got a {type(releases).__name__}")
    if not releases or not all(isinstance(one, Release) for one in releases):
        raise TypeError("releases must be a sequence of dpfast.Release, at least one")
    waiting = list(_unsolved.values())
    found = [model for model in waiting if [*map(id, model.releases_)] == [*map(id, releases)]]
    found = found or [model for model in waiting if _are(model.releases_, releases)]
    if len(found) > 1:
        raise ValueError("several fits of this process wait whose releases have these records: complete the model")
    if not found:
        raise ValueError("no fit of this process waits to be completed from these releases")
    return found[0].complete()


def _are(made: Sequence[Release], requested: Sequence[Release]) -> bool:
    """Whether releases are the requested ones; those of a ledger's file have no values."""

    def described(release: Release, like: Release) -> dict[str, Any]:
        return release.to_dict(values=bool(like.values))

    return len(made) == len(requested) and all(
        described(one, other) == described(other, other) for one, other in zip(made, requested, strict=True)
    )


_KIND = "dpfast model"
_VERSION = 1
Loaded = TypeVar("Loaded")
#: Parameters that no file holds.
LEFT_OUT = ("ledger", "random_state")
_ATTRIBUTE = re.compile("_?[a-z][a-z0-9_]*")
# Where classes are of what is calibrated and solved: their objects hold public numbers, and no code.
_FOLDERS = "|".join([*FAMILIES, "description", r"io\.columns", "privacy", "releases", "solvers", "statistics"])
_CALIBRATED = re.compile(rf"dpfast\.({_FOLDERS})(\.[a-z_]+)*")


def parameter_names(cls: type[BaseEstimator]) -> frozenset[str]:
    """Return the names of a class's parameters; scikit-learn inspects its signature each time that it is asked."""
    if cls not in _parameter_names:
        _parameter_names[cls] = frozenset(cls._get_param_names())
    return _parameter_names[cls]


_parameter_names: WeakKeyDictionary[type[BaseEstimator], frozenset[str]] = WeakKeyDictionary()


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a JSON file: its parameters and, if it is fitted, all that was released."""
    target = check.real_path("path", path)
    if is_ledger(target) or target == getattr(getattr(model, "ledger", None), "path", None):
        raise ValueError(f"path must not be that of a ledger, which a model would replace; got {target!r}")
    parameters = model.get_params(deep=False)
    held = {name: _encode_parameter(model, name, one) for name, one in parameters.items() if name not in LEFT_OUT}
    fitted = {name: _encode(name, one) for name, one in vars(model).items() if name not in parameters}
    head = {"dpfast": version("dpfast"), "estimator": type(model).__name__}
    content = head | {"parameters": held, "fitted": fitted}
    temporary = f"{target}.{os.getpid()}-{threading.get_ident()}.tmp"
    write_document(target, _KIND, _VERSION, content, temporary=temporary)


def load(cls: type[Loaded], path: str | os.PathLike[str]) -> Loaded:
    """Read a model of a class that `save` wrote."""
    source = check.real_path("path", path)
    content = read_document(source, _KIND, _VERSION)
    try:
        return _from_content(cls, content)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{source!r} does not hold a valid {cls.__name__}: {error}") from error


def _from_content(cls: type[Loaded], content: Mapping[str, Any]) -> Loaded:
    made: Any = cls
    if content["estimator"] != cls.__name__:
        raise ValueError(f"it is a {content['estimator']!r}")
    parameters = {
        name: _decode_parameter(made._PARAMETER_TYPES, name, value) for name, value in content["parameters"].items()
    }
    expected = set(made._get_param_names()) - set(LEFT_OUT)
    if not parameters.keys() <= expected:
        raise ValueError(f"it has parameters that the estimator does not: {sorted(parameters.keys() - expected)}")
    model: Any = made(**parameters)
    fitted = {name: _decode(name, value) for name, value in content["fitted"].items()}
    for name in fitted:
        # Nothing read may replace a method, a property or a parameter.
        if not _ATTRIBUTE.fullmatch(name) or hasattr(model, name):
            raise ValueError(f"{name!r} cannot be a fitted attribute")
    for one in fitted.values():
        if isinstance(one, Unsolved):
            _check_names(model, one)
    model.__dict__.update(fitted)
    model._check_loaded()
    loaded: Loaded = model
    return loaded


def _encode_parameter(model: Any, name: str, value: object) -> Any:
    if type(value) not in model._PARAMETER_TYPES:
        if _CALIBRATED.fullmatch(type(value).__module__):
            raise _not_saved(name, value)
        return _encode(name, value)
    made_with = [argument for argument in signature(type(value)).parameters if hasattr(value, argument)]
    arguments = {argument: _encode(name, getattr(value, argument)) for argument in made_with}
    return {"object": {"type": type(value).__name__, "arguments": arguments}}


def _decode_parameter(types: tuple[type, ...], name: str, value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {"object"}:
        if isinstance(value, dict) and value.keys() == {"made"}:
            raise ValueError(f"{name} is of no known type")
        return _decode(name, value)
    named = {one.__name__: one for one in types}
    arguments = {argument: _decode(name, one) for argument, one in value["object"]["arguments"].items()}
    made: Any = named[value["object"]["type"]]
    return made(**arguments)


def _check_names(model: Any, unsolved: Unsolved) -> None:
    """Refuse to complete a model by a replacement of a method, or by an attribute that no fit sets."""
    for name in {*unsolved.found, *unsolved.given} - {*model._get_param_names()}:
        held = getattr_static(model, name, None)
        if not _ATTRIBUTE.fullmatch(name) or callable(held) or isinstance(held, property | cached_property):
            raise ValueError(f"{name!r} cannot be what a model is solved from")


def _encode(name: str, value: object) -> Any:
    """Return JSON for a value. Types that JSON lacks become an object with one member, named after the type."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    match value:
        case np.ndarray():
            array = {"dtype": value.dtype.str, "shape": list(value.shape), "values": array_to_lists(value)}
            return {"array": array}
        case np.bool_() | np.integer() | np.floating():
            return {"scalar": {"dtype": value.dtype.str, "value": value.item()}}
        case Release():
            return {"release": value.to_dict()}
        case Privacy():
            return {"privacy": [value.epsilon, value.delta, value.adjacency]}
        case _ if _CALIBRATED.fullmatch(type(value).__module__) or isinstance(value, Unsolved):
            return {"made": [type(value).__module__, type(value).__name__, _encode(name, _content_of(value))]}
        case tuple():
            return {"tuple": [_encode(name, member) for member in value]}
        case list():
            return [_encode(name, member) for member in value]
        case dict() if all(type(key) is str for key in value):
            return {"dict": {key: _encode(name, member) for key, member in value.items()}}
        case dict():
            return {"items": [[_encode(name, key), _encode(name, member)] for key, member in value.items()]}
    raise _not_saved(name, value)


def _not_saved(name: str, value: object) -> TypeError:
    return TypeError(
        f"{name} cannot be saved: a {type(value).__name__} is no number, string, array or collection of them"
    )


def _content_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, by name, without those computed on request."""
    held = value._asdict() if hasattr(value, "_asdict") else vars(value)
    cls = type(value)
    return {name: one for name, one in held.items() if not isinstance(getattr(cls, name, None), cached_property)}


def _made(module: str, name: str, content: dict[str, Any]) -> Any:
    """Return an object of one of our classes with this content; no constructor runs."""
    if module == Unsolved.__module__ and name == Unsolved.__name__:
        return Unsolved(**content)
    if not _CALIBRATED.fullmatch(module):
        raise ValueError(f"{module!r} has no classes of what a model is solved from")
    cls = getattr(import_module(module), name)
    if not isinstance(cls, type) or cls.__module__ != module:
        raise ValueError(f"{module}.{name} is no class of what a model is solved from")
    if issubclass(cls, tuple):
        return cls(**content)
    made = object.__new__(cls)
    vars(made).update(content)
    return made


def _decode(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(name, member) for member in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"{name} is of no known type")
    ((kind, content),) = value.items()
    match kind:
        case "array":
            return array_from_lists(name, content["values"], content["dtype"], content["shape"])
        case "scalar":
            return array_from_lists(name, content["value"], content["dtype"], [])[()]
        case "release":
            return Release.from_dict(content)
        case "privacy":
            epsilon, delta, adjacency = content
            return Privacy(epsilon, delta, adjacency)
        case "made":
            module, made, content = content
            return _made(module, made, _decode(name, content))
        case "tuple":
            return tuple(_decode(name, member) for member in content)
        case "dict":
            return {key: _decode(name, member) for key, member in content.items()}
        case "items":
            return {_decode(name, key): _decode(name, member) for key, member in content}
    raise ValueError(f"{name} is of no known type")
