"""A job's report: one content, as Markdown and as HTML. The HTML is one file and loads nothing.

Its first page is for those who answer for the data: in plain words, made of public numbers only. Names of columns,
states and targets are whatever the job declared: they are escaped in both. Pictures are drawn without pyplot, under
settings of their own: a dollar sign in a name begins no formula. Files say nothing of when they were made, and the same
results give the same bytes.
"""

from __future__ import annotations

import base64
import html
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dpfast._documents import facts, grid, inert, printed
from dpfast._optional import optional
from dpfast.io.summaries import cells, markdown_table, plain_markdown, shown_cell
from dpfast.jobs.job_types import Job
from dpfast.ledger import Release
from dpfast.ledger.entries import guarantee_of
from dpfast.ledger.report import IF_BEFOREHAND
from dpfast.privacy.guarantee import NEIGHBOURS, UNITS, plain_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Columns by name, of equal length.
Table = Mapping[str, Any]
#: Rows of a table that the report shows; its files hold all.
MOST_ROWS = 60
_NOT_PROMISED = (
    "facts about people in general, such as that a treatment works: they apply to everybody, in the table or not"
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


@dataclass(frozen=True)
class Part:
    """A section of a report: whatever it has, in this order; of its title alone, a line below which others stand."""

    title: str
    #: Names and what is said of them.
    facts: Sequence[tuple[str, str]] = ()
    text: str = ""
    #: Pictures: files by format, by name.
    pictures: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    verbatim: str = ""


def first_page(job: Job, model: Any) -> list[Part]:
    """Return the promise, its recipients, the spending, the computations, and the facts that could void the promise."""
    ledger = model.ledger
    kept = guarantee_of(model.releases_, model.privacy_spent_) == str(model.privacy_spent_)
    promised = [
        ("what", plain_words(model.privacy_spent_) if kept else "nothing: see what could void it"),
        ("to whom", f"everybody who is in the table; {UNITS[ledger.unit or job.unit]}"),
        ("compared with", f"a table in which {NEIGHBOURS[job.budget.adjacency]}"),
        ("not promised", _NOT_PROMISED),
    ]
    spent = [
        ("by this job", str(model.privacy_spent_)),
        ("by all computations so far", f"{ledger.spent}: at the delta of the budget, and {IF_BEFOREHAND}"),
        ("of a budget of", str(ledger.budget)),
        ("the whole budget promises", plain_words(ledger.promised)),
    ]
    return [
        Part("What was promised", promised),
        Part("What was spent", spent, tables={"computations": _computations(ledger.releases)}),
        Part("What could void it", list(_voids(job, model))),
    ]


def _computations(releases: tuple[Release, ...]) -> dict[str, list[Any]]:
    """Return the computations that released something, in their order: releases of one kind after one another."""
    grouped = [list(group) for _, group in groupby(releases, key=lambda one: one.name.partition(":")[0])]
    return {
        "computation": [group[0].name.partition(":")[0] for group in grouped],
        "releases": [len(group) for group in grouped],
        "first": [group[0].time for group in grouped],
        "last": [group[-1].time for group in grouped],
    }


def _voids(job: Job, model: Any) -> Iterator[tuple[str, str]]:
    """Yield the assumptions of a promise that no computer can check, and the facts by now against it."""
    if any(one.reproducible for one in model.releases_):
        yield "voided", "the noise came from a seed: whoever has it can take the noise off"
    if not all(one.guaranteed for one in model.releases_):
        yield "not reached", "the requested printed algorithm does not give what is printed with it"
    yield "bounds from the data", "limits, bounds, levels and constants of the job that were read from these records"
    if job.ledger_path is None:
        yield "other computations", "this job has a ledger of its own: what others release of these people adds to it"
    else:
        here = repr(job.ledger_path.name)
        yield "other computations", f"releases about these people that are not in the ledger {here}"
    if job.unit == "row":
        yield "several rows of a person", "the more rows a person has in the table, the weaker is their guarantee"
    yield "access to the computer", "anybody who sees the table, or the memory or temporary files of that computer"
    yield "predictions", "published predictions for people of the table: each reveals the record it is computed from"


def drawn(figures: Callable[[], Mapping[str, Axes]], formats: Iterable[str]) -> dict[str, dict[str, bytes]]:
    """Return the bytes of every figure in every format."""
    style = optional("matplotlib.style", "a picture")
    settings = {"text.parse_math": False, "text.usetex": False, "svg.hashsalt": "dpfast", "font.family": "DejaVu Sans"}
    with style.context(["default", settings]), warnings.catch_warnings():
        # Such as of a letter that no font has: nobody can do anything about it once the release is paid for.
        warnings.simplefilter("ignore")
        return {name: {one: _saved(axes, one) for one in formats} for name, axes in figures().items()}


def _saved(axes: Axes, file_format: str) -> bytes:
    sink = BytesIO()
    axes.figure.canvas.figure.savefig(sink, format=file_format, dpi=150, metadata=_METADATA[file_format])
    # XML has no place for control characters, which names may hold.
    return sink.getvalue() if file_format == "png" else _CONTROLS.sub(b"", sink.getvalue())


def as_markdown(title: str, parts: Sequence[Part], formats: Sequence[str]) -> str:
    """Return the report as Markdown, with the pictures that are files beside it."""
    lines = [f"# {plain_markdown(title)}", ""]
    for part in parts:
        lines += ["---", ""] if part == Part(part.title) else []
        lines += [f"## {plain_markdown(part.title)}", ""]
        listed = [f"- {plain_markdown(name)}: {plain_markdown(text)}" for name, text in part.facts]
        lines += [*listed, ""] if listed else []
        lines += [plain_markdown(part.text), ""] if part.text else []
        for name in part.pictures:
            file_format = next((one for one in ("svg", "png") if one in formats), None)
            lines += [f"![{name}]({name}.{file_format})", ""] if file_format else []
        for name, table in part.tables.items():
            header, rows, total = _shown(table, MOST_ROWS)
            lines += [f"**{name}**{_cut(rows, total)}", ""]
            lines += [*markdown_table(header, rows), ""]
        lines += [*(f"    {printed(line)}" for line in part.verbatim.splitlines()), ""] if part.verbatim else []
    return "\n".join(lines)


def as_html(title: str, parts: Sequence[Part]) -> str:
    """Return the report as one page, its pictures in it; scripts and other files are forbidden to it."""
    body = [f"<h1>{_documents(title)}</h1>"]
    for part in parts:
        body += ["<hr/>"] if part == Part(part.title) else []
        body.append(f"<h2>{_documents(part.title)}</h2>")
        if part.facts:
            body.append(facts((printed(name), printed(text)) for name, text in part.facts))
        if part.text:
            body.append(f"<p>{_documents(part.text)}</p>")
        for name, files in part.pictures.items():
            data = base64.b64encode(files["svg"]).decode()
            body.append(f'<img alt="{_documents(name)}" src="data:image/svg+xml;base64,{data}">')
        for name, table in part.tables.items():
            header, rows, total = _shown(table, MOST_ROWS)
            body.append(f"<h3>{_documents(name)}{_cut(rows, total)}</h3><div>{grid(header, rows)}</div>")
        if part.verbatim:
            body.append(f"<pre>{_documents(part.verbatim)}</pre>")
    return _PAGE.format(title=_documents(title), body="\n".join(body))


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1, h2, h3 {{ line-height: 1.2; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid #ccc; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #eee; }}
th {{ color: #666; font-weight: 400; }}
pre {{ white-space: pre-wrap; background: #f6f6f6; padding: 1rem; }}
img {{ display: block; max-width: 100%; margin: 1rem 0; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def _documents(text: str) -> str:
    return "\n".join(html.escape(printed(line)) for line in text.splitlines())


def _cut(rows: Sequence[object], total: int) -> str:
    """State that a table is not shown whole, if so."""
    return "" if len(rows) == total else f" (the first {len(rows)} of {total} rows)"


def _shown(table: Table, most: int) -> tuple[list[str], list[list[str]], int]:
    """Return a table's names, its first rows as people read them, and how many rows there are."""
    columns = [cells(column) for column in table.values()]
    rows = zip(*(column[:most] for column in columns), strict=True)
    shown_rows = [[inert(one) if isinstance(one, str) else shown_cell(one) for one in row] for row in rows]
    return list(map(inert, table)), shown_rows, len(columns[0])
