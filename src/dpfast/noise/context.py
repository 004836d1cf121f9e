"""Public values as bytes: the context of a seeded draw, so that draws with different contexts share no noise.

Every part is prefixed by its kind and length, so that no two sequences run into the same bytes. Numbers are read to 9
digits, since the last ones may be rounding, after a change of the input's unit. The public grid has cells of 2^-20 of
the scale, so scales that agree to 9 digits are the same to it.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def digest(*context: Any) -> bytes:
    """Return a 32-byte hash of public values: numbers, strings, arrays, dataclasses and collections of them.

    Any other value, such as a function, is identified by its name alone.
    """
    return hashlib.sha256(_encoded(context)).digest()


def _encoded(value: Any) -> bytes:
    if value is None or isinstance(value, bool | np.bool_):
        return _tagged(b"c", str(value).encode())
    if isinstance(value, bytes):
        return _tagged(b"y", value)
    if isinstance(value, str):
        return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, numbers.Real):
        return _tagged(b"n", _number(value))
    if is_dataclass(value) and not isinstance(value, type):
        members = [getattr(value, field.name) for field in fields(value)]
        return _tagged(b"d", _encoded(_name(type(value))) + _encoded(members))
    if isinstance(value, Mapping):
        return _tagged(b"m", b"".join(sorted(_encoded(key) + _encoded(member) for key, member in value.items())))
    if isinstance(value, list | tuple):
        return _tagged(b"l", b"".join(map(_encoded, value)))
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "fiu":
            array = array.astype(np.float64)
        return _tagged(b"a", _encoded(list(array.shape)) + _encoded(array.ravel().tolist()))
    return _tagged(b"o", _encoded(_name(value if callable(value) and hasattr(value, "__qualname__") else type(value))))


def _tagged(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(8, "little") + content


def _number(value: Any) -> bytes:
    return (str(int(value)) if isinstance(value, numbers.Integral) else f"{float(value) + 0.0:.9g}").encode()


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
