"""Fitted models as JSON files: everything public about them, to the bit, and nothing that is executed when read.

A file holds the estimator's name, its parameters and its fitted attributes, releases included. For a model that waits
for `complete` it also holds the input of the solution, equally public. It never holds a ledger, which is an account
and not a model, nor a seed: whoever has the seed of a release can take its noise off.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from inspect import getattr_static, signature
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator

from dpfast._documents import array_from_lists, array_to_lists, read_document, write_document
from dpfast.estimator.completion import Unsolved
from dpfast.ledger import Release
from dpfast.ledger.file import is_ledger
from dpfast.privacy import Privacy
from dpfast.registry import FAMILIES

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
    target = _path(path)
    if is_ledger(target) or target == getattr(getattr(model, "ledger", None), "path", None):
        raise ValueError(f"path must not be that of a ledger, which a model would replace; got {target!r}")
    parameters = model.get_params(deep=False)
    fitted = {name: value for name, value in vars(model).items() if name not in parameters}
    content = {
        "dpfast": version("dpfast"),
        "estimator": type(model).__name__,
        "parameters": {
            name: _encode_parameter(model, name, value) for name, value in parameters.items() if name not in LEFT_OUT
        },
        "fitted": {name: _encode(name, value) for name, value in fitted.items()},
    }
    temporary = f"{target}.{os.getpid()}-{threading.get_ident()}.tmp"
    write_document(target, _KIND, _VERSION, content, temporary=temporary)


def load(cls: type[Loaded], path: str | os.PathLike[str]) -> Loaded:
    """Read a model of a class that `save` wrote."""
    source = _path(path)
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


def _path(path: object) -> str:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path must be a path, got a {type(path).__name__}")
    return os.path.realpath(path)


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
