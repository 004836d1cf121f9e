"""Tables of a TOML file whose keys and types are known; messages name the section and the key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpfast.privacy import Adjacency, Privacy

_WORDS = {str: "text", bool: "true or false", int: "an integer", float: "a number", list: "a list", dict: "a table"}
_REQUIRED = object()


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a file; ValueError if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from None
    except RecursionError:
        raise ValueError(f"{str(path)!r} nests arrays or tables too deeply") from None


class Section:
    """One table of the file, named as it stands there, for messages; refused if it has a key that is not known."""

    def __init__(self, name: str, content: object, known: Iterable[str]) -> None:
        if not isinstance(content, Mapping):
            raise TypeError(f"[{name}] must be a table, got {_word(content)}")
        self.name = name
        self.content = content
        accepted = list(known)
        for key in content:
            if key not in accepted:
                near = difflib.get_close_matches(key, accepted, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"accepted: {', '.join(accepted)}"
                raise ValueError(f"[{name}] has an unknown key {key!r}; {hint}")

    def take(self, key: str, *kinds: type, default: Any = _REQUIRED) -> Any:
        """Return a value of one of some types, or the default."""
        if key not in self.content:
            if default is _REQUIRED:
                raise ValueError(f"[{self.name}] lacks the key {key!r}")
            return default
        value = self.content[key]
        if type(value) not in kinds:
            wanted = " or ".join(_WORDS[kind] for kind in kinds)
            raise TypeError(f"[{self.name}] {key} must be {wanted}, got {_word(value)}")
        return value

    def privacy(self, adjacency: Adjacency) -> Privacy:
        """Return the guarantee that its epsilon and delta are."""
        return Privacy(self.take("epsilon", int, float), self.take("delta", int, float, default=0.0), adjacency)


def one_of(what: str, value: object, accepted: Iterable[str]) -> None:
    """Refuse what is not one of some words."""
    if value not in (words := list(accepted)):
        raise ValueError(f"{what} must be one of {', '.join(map(repr, words))}, got {value!r}")


def _word(value: object) -> str:
    return _WORDS.get(type(value), type(value).__name__)
