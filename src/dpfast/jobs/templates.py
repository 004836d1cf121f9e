"""Jobs for people to fill in, and a JSON schema for their editors: of the description that jobs are read by."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from dpfast.jobs.kinds import Kind
from dpfast.jobs.values import REQUIRED, Either, Key, Named, Schema, Table, Values, Variants

_WIDTH = 110
_HEAD = """\
# {says}
#
#   dpfast check JOB.toml   looks at all but the rows
#   dpfast plan JOB.toml    says what error to expect, how many people are needed, and what the ledger is charged
#   dpfast fit JOB.toml     fits, and writes the results
#
# Everything here is public: write what you know without looking at the rows. Keys after # are optional; what they
# have there is what leaving them out means, or an example. An editor that knows JSON schemas takes that of
# `dpfast new --schema`."""


def template(kind: Kind) -> str:
    """Return a commented job, in which paths and columns are to be set."""
    lines = [_HEAD.format(says=kind.description.says)]
    for key in kind.description.keys:
        lines += ["", *_section((key.name,), key)]
    return "\n".join(lines) + "\n"


def schema(kinds: Iterable[Kind]) -> Schema:
    """Return the JSON schema (draft 7) of jobs of some kinds, for editors of TOML."""
    alternatives = [kind.description.schema() | {"title": kind.KIND} for kind in kinds]
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "A job for dpfast"}
    return head | (alternatives[0] if len(alternatives) == 1 else {"oneOf": alternatives})


def _section(place: tuple[str, ...], key: Key) -> Iterator[str]:
    """Yield the lines of a table; as comments, where it may be left out and has nothing to show."""
    is_shown = key.default is REQUIRED or (isinstance(key.values, Named) and bool(key.values.example))
    mark = "" if is_shown else "# "
    yield from _comment(key.says)
    if isinstance(key.values, Named):
        yield from _explained(key.values.item)
        yield f"{mark}[{'.'.join(place)}]"
        yield from (mark + line for line in key.values.example.splitlines())
        return
    assert isinstance(key.values, Table)
    yield f"{mark}[{'.'.join(place)}]"
    inner = [one for one in key.values.keys if isinstance(one.values, Table)]
    for number, one in enumerate(one for one in key.values.keys if one not in inner):
        if number > 0:
            yield ""
        yield from _key(one, is_comment=not is_shown)
    for one in inner:
        yield ""
        yield from _section((*place, one.name), one)


def _key(key: Key, *, is_comment: bool) -> Iterator[str]:
    """Yield the purpose of a key, and the key with a value."""
    yield from _comment(key.says)
    yield from _explained(key.values)
    is_set = key.example is not None or key.default is REQUIRED
    value = key.example or key.usual or key.values.sample()
    yield f"{'# ' if is_comment or not is_set else ''}{key.name} = {value}"


def _explained(values: Values) -> Iterator[str]:
    """Yield the contents of tables that may replace a value."""
    for variants in _variants(values):
        for name, table in variants.tables.items():
            yield from _comment(f'{{ kind = "{name}" }}: {table.says}', "#   ")
            for key in table.keys:
                optional = "" if key.default is REQUIRED else " (optional)"
                yield from _comment(f"{key.name}{optional}: {key.says or key.values.words}", "#     ")


def _variants(values: Values) -> Iterator[Variants]:
    if isinstance(values, Variants):
        yield values
    elif isinstance(values, Either):
        for option in values.options:
            yield from _variants(option)


def _comment(text: str, mark: str = "# ") -> list[str]:
    further = mark if mark == "# " else f"{mark}  "
    return textwrap.wrap(text, _WIDTH, initial_indent=mark, subsequent_indent=further, break_long_words=False)
