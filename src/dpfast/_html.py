"""Notebook views of an object: escaped text in tables with the colours of the page around them.

There is no script in it, and nothing is loaded. Light or dark, text has the page's own colour; lines are grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

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


def folded(name: str, content: str) -> str:
    """Return content that is shown on a click."""
    return f"<details><summary>{escape(name)}</summary>{content}</details>"


def caution(text: str) -> str:
    """Return a warning, marked to be seen."""
    return f'<div class="dpfast-void">{escape(text)}</div>'


def shortened(text: str, most: int = 100) -> str:
    """Return text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
