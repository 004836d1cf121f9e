"""Documents: JSON files that are read whole or refused, and replaced whole or left as they were; notebook views.

The first line of a document is the SHA-256 of every byte after it, so damage is found before anything is used; it
is no defence against somebody who edits the file and its checksum. Floats are written as the shortest decimals that
read back to the same bits. Floats without a JSON number stand as ``{"float": "inf"}``. Nothing read is executed.

A notebook view of an object is escaped text in tables with the colours of the page around them. There is no script in
it, and nothing is loaded. Light or dark, text has the page's own colour; lines are grey.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import stat
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

_OPENING = b'{"sha256": "'
_DIGEST_END = len(_OPENING) + 2 * hashlib.sha256().digest_size

# What a JSON scalar must be for an array of each kind: lists say nothing of the width of their numbers.
_SCALARS = {"b": bool, "i": int, "u": int, "f": float, "M": int, "U": str, "O": str}


def write_document(path: str, kind: str, version: int, content: dict[str, Any], *, temporary: str) -> None:
    """Replace a document, or create it; whoever reads `path` meanwhile sees the old one or the new one.

    `kind` names the kind of document in words, and `version` the layout of its content: numbers, strings, lists, dicts
    with string keys, None. `temporary` is a path in the same folder, written first, that no other writer may use at the
    same time.
    """
    body = _lines({"kind": kind, "version": version, **content}, depth=2).encode()
    # The checksum takes the place of the body's opening brace and is itself its first member.
    rest = b'",' + body[1:] + b"\n"
    replace_file(path, _OPENING + _digest(rest) + rest, temporary)


def read_document(path: str, kind: str, version: int) -> dict[str, Any]:
    """Return the content of a document; ValueError if it is damaged, or of another kind or version."""
    with open(path, "rb") as file:
        data = file.read()
    stated, rest = data[len(_OPENING) : _DIGEST_END], data[_DIGEST_END:]
    if not data.startswith(_OPENING) or stated != _digest(rest):
        raise ValueError(
            f"{path!r} is not an intact {kind} file: its checksum does not match its content. It may be another "
            "file, truncated, damaged or edited; restore the latest copy, nothing in it was used"
        )
    try:
        content = from_json(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path!r} is not a {kind} file: it is no valid JSON") from error
    if content.get("kind") != kind:
        raise ValueError(f"{path!r} is not a {kind} file, but says that it is a {content.get('kind')!r} file")
    if content.get("version") != version:
        raise ValueError(
            f"{path!r} has version {content.get('version')!r} of the {kind} format, this dpfast reads version {version}"
        )
    return {key: value for key, value in content.items() if key not in ("sha256", "kind", "version")}


def replace_file(path: str, data: bytes, temporary: str) -> None:
    """Put new bytes in the place of a file, durably: at any moment, a power cut leaves the old bytes or the new ones.

    Its permissions are kept, where it exists. `temporary` is a path in the same folder. Leftovers of a killed writer
    are removed there.
    """
    beside = os.path.dirname(path) or os.curdir
    if not os.path.isdir(beside):
        raise FileNotFoundError(f"{path!r} cannot be written: there is no folder {beside!r}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    # Exclusive creation follows no link that somebody may have put there.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            if hasattr(os, "fchmod"):  # not on Windows, whose files have no such permissions
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    flush_name(path)


def flush_name(path: str) -> None:
    """Have a file's name on the disk: a new one is durable only once its folder is."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders: its own journal keeps names
    folder = os.open(os.path.dirname(path) or os.curdir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def to_json(value: Any) -> str:
    """Return numbers, strings, lists, dicts with string keys and None as JSON, in one line."""
    return _lines(value, depth=0)


def from_json(text: str | bytes) -> Any:
    """Return the value that `to_json` described, to the bit."""
    return json.loads(text, object_hook=_unusual_float, parse_constant=_refuse_constant)


def array_to_lists(array: NDArray[Any]) -> Any:
    """Return an array's entries as nested lists of Python scalars, for `array_from_lists`."""
    if array.dtype.kind not in _SCALARS or (array.dtype.kind == "O" and not all(type(x) is str for x in array.flat)):
        raise TypeError(f"only arrays of numbers, booleans, dates and strings can be saved, got dtype {array.dtype}")
    return (array.view(np.int64) if array.dtype.kind == "M" else array).tolist()


def array_from_lists(name: str, lists: object, dtype: object, shape: object) -> NDArray[Any]:
    """Return the array that `array_to_lists` took apart, to the bit; ValueError if entries are not of type and shape.

    Lists alone do not tell the shape where it is empty; messages call the array by its name.
    """
    wanted = _dtype(name, dtype)
    if not isinstance(shape, list | tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"the shape of {name} must be a list of sizes")
    entries = _flatten(name, lists, shape)
    scalar = _SCALARS[wanted.kind]
    if not all(type(entry) is scalar for entry in entries):
        raise ValueError(f"{name} must hold nothing but {wanted.name} entries")
    try:
        return np.array(entries, dtype=wanted).reshape(shape)
    except OverflowError:
        raise ValueError(f"{name} holds a number that does not fit into {wanted.name}") from None


def _dtype(name: str, dtype: object) -> np.dtype[Any]:
    try:
        wanted = np.dtype(dtype) if isinstance(dtype, str) else None
    except TypeError:
        wanted = None
    if wanted is None or wanted.kind not in _SCALARS:
        raise ValueError(f"the dtype of {name} must be the name of a type of numbers, booleans, dates or strings")
    return wanted


def _flatten(name: str, lists: object, shape: Sequence[int]) -> list[Any]:
    level: list[Any] = [lists]
    for size in shape:
        if not all(type(part) is list and len(part) == size for part in level):
            raise ValueError(f"the lists of {name} must nest to its shape, {tuple(shape)}")
        level = list(itertools.chain.from_iterable(level))
    return level


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _lines(value: Any, depth: int) -> str:
    """Write JSON for people to read: the members of the outer dicts on lines of their own."""
    if depth and isinstance(value, dict) and value:
        members = (f"{json.dumps(key)}: {_lines(member, depth - 1)}" for key, member in value.items())
        return "{\n" + ",\n".join(members) + "\n}"
    try:
        try:
            return json.dumps(value, allow_nan=False)
        except ValueError:
            return json.dumps(spelled_out(value), allow_nan=False)
    except RecursionError:
        raise ValueError("a document must not nest so deeply") from None


def printed(text: str) -> str:
    """Return text with spaces for characters that end a line, hide text or reverse it."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def inert(text: str) -> str:
    """Return text that no terminal obeys and no spreadsheet computes: a formula is put after an apostrophe."""
    shown = printed(text)
    if not shown.lstrip().startswith(("=", "+", "-", "@")):
        return shown
    with contextlib.suppress(ValueError):
        float(shown)
        return shown
    return f"'{shown}"


def spelled_out(value: Any) -> Any:
    """Replace the floats that JSON has no number for."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if isinstance(value, dict):
        return {key: spelled_out(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(member) for member in value]
    return value


def _unusual_float(members: dict[str, Any]) -> Any:
    if members.keys() == {"float"} and members["float"] in ("inf", "-inf", "nan"):
        return float(members["float"])
    return members


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


Fact = tuple[str, object]

# Characters of a cell that is kept on one line.
_SHORT = 20

_STYLE = """<style>
.dpfast { border: 1px solid rgba(128,128,128,.5); border-radius: 4px; padding: .5em .9em; margin: .3em 0;
  width: fit-content; max-width: 100%; box-sizing: border-box; overflow-x: auto; line-height: 1.4; }
.dpfast .dpfast-title { font-weight: 600; }
.dpfast .dpfast-part { margin: .6em 0 .1em; font-weight: 600; }
.dpfast .dpfast-void { margin: .4em 0; padding: .1em .6em; border-left: .3em solid #d97706; font-weight: 600; }
.dpfast table, .dpfast tr, .dpfast th, .dpfast td { border: 0; background: none !important; color: inherit; }
.dpfast table { border-collapse: collapse; margin: .1em 0; font-size: inherit; font-variant-numeric: tabular-nums; }
.dpfast th, .dpfast td { padding: .1em 1.2em .1em 0 !important; text-align: left !important; vertical-align: top;
  border-bottom: 1px solid rgba(128,128,128,.25); max-width: 44em; overflow-wrap: break-word; white-space: normal; }
.dpfast .dpfast-short { white-space: nowrap; }
.dpfast th { font-weight: 400; opacity: .75; white-space: nowrap; }
.dpfast pre { margin: .3em 0; white-space: pre-wrap; background: none; color: inherit; }
.dpfast summary { cursor: pointer; margin: .6em 0 .1em; font-weight: 600; }
</style>"""


def card(title: str, *parts: str) -> str:
    """Return parts (HTML) below a title (text)."""
    return f'{_STYLE}<div class="dpfast"><div class="dpfast-title">{escape(title)}</div>{"".join(parts)}</div>'


def facts(pairs: Iterable[Fact]) -> str:
    """Return names with their values; nothing for None."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(str(said))}</td></tr>" for name, said in pairs if said is not None)
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def grid(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows of text below their names."""
    body = "".join(f"<tr>{''.join(map(_cell, map(str, row)))}</tr>" for row in rows)
    names = "".join(f"<th>{escape(name)}</th>" for name in header)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    # A number in two lines is not read as one.
    kind = ' class="dpfast-short"' if len(text) <= _SHORT else ""
    return f"<td{kind}>{escape(text)}</td>"


def section(name: str, *content: str) -> str:
    """Return content, which is HTML, below a name."""
    return f'<div class="dpfast-part">{escape(name)}</div>{"".join(content)}'


def verbatim(text: str) -> str:
    """Return lines of text as they are."""
    return f"<pre>{escape(text)}</pre>"


def folded(name: str, content: str) -> str:
    """Return content that is shown on a click."""
    return f"<details><summary>{escape(name)}</summary>{content}</details>"


def caution(text: str) -> str:
    """Return a warning, marked to be seen."""
    return f'<div class="dpfast-void">{escape(text)}</div>'


def abbreviated(text: str, most: int = 100) -> str:
    """Return text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
