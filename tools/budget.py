"""How large is each folder, and by how much did it change? Fails where one outgrows its figure in tools/budget.toml.

    python tools/budget.py                 this tree (committed or not) beside its parent commit
    python tools/budget.py main            beside another commit
    python tools/budget.py --duplicates    also where the duplicates are
    python tools/budget.py --write "why"   write the figures; those that rise are given this reason

Lines are lines of code: blank lines, comments and docstrings do not count. Names are those that modules of Python
define without a leading underscore. A duplicate is a place of at least six consecutive lines, imports apart, that stand
elsewhere too; both places count. A folder fails that is more than 3% and more than 50 lines above its figure. So does a
figure that is higher than the commit's, unless its entry gives a new reason.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tarfile
import tokenize
import tomllib
from collections import Counter, defaultdict
from pathlib import Path, PurePosixPath

from building import ROOT

FIGURES = "tools/budget.toml"
TREES = ("src/dpfast", "tools")
SHARE, SLACK = 0.03, 50
ALIKE = 6
COMPILED = (".pyx", ".pxd", ".c", ".h")
COLUMNS = ("Python", "Cython and C", "files", "names", "duplicates")
HEAD = """\
# Lines of code that each folder may have: tools/budget.py fails at 3% and 50 lines more.
# Written by `python tools/budget.py --write "why"`. Whoever raises a figure says why.
"""

_STRING = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
_C_TOKEN = re.compile(rf"(/\*.*?\*/|//[^\n]*)|{_STRING}", re.DOTALL)
_CYTHON_TOKEN = re.compile(rf'(^[ \t]*r?""".*?"""|#[^\n]*)|""".*?"""|{_STRING}', re.DOTALL | re.MULTILINE)
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)
_BEGINS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)

Files = dict[str, str]  # texts by path, from the root of the repository
Lines = dict[int, str]  # code by number of line, without spaces


def code_of(path: str, text: str) -> Lines:
    """Return the lines of a file that hold code."""
    if path.endswith(".py"):
        return _python_code(text)
    token = _C_TOKEN if path.endswith((".c", ".h")) else _CYTHON_TOKEN
    # A comment leaves its line breaks: numbers of lines stay.
    bare = token.sub(lambda found: "\n" * found[1].count("\n") if found[1] else found[0], text)
    lines = ((number, "".join(line.split())) for number, line in enumerate(bare.split("\n"), 1))
    return {number: line for number, line in lines if line}


def _python_code(text: str) -> Lines:
    lines: dict[int, str] = defaultdict(str)
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _BEGINS:
            begins = True
        elif token.type not in _NO_CODE:
            if not (begins and token.type == tokenize.STRING):
                for number, part in enumerate(token.string.split("\n"), token.start[0]):
                    lines[number] += part
            begins = False
    return dict(lines)


def names_of(text: str) -> set[str]:
    """Return the names that a module defines for others."""
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def duplicates(codes: dict[str, Lines]) -> list[tuple[str, int, str, int]]:
    """Return the places whose next six lines stand elsewhere too: path and line, and those of one that is alike."""
    windows = []
    for path, code in codes.items():
        lines = [(number, line) for number, line in code.items() if not re.match("from.*import|import", line)]
        for begin in range(len(lines) - ALIKE + 1):
            windows.append(((path, lines[begin][0]), begin, tuple(line for _, line in lines[begin : begin + ALIKE])))
    places = defaultdict(list)
    for place, _, window in windows:
        places[window].append(place)
    found, last = [], ("", -1)
    for place, begin, window in windows:
        if len(places[window]) > 1:
            if last != (place[0], begin - 1):  # a longer copy is one place
                found.append((*place, *next(other for other in places[window] if other != place)))
            last = place[0], begin
    return found


def folder_of(path: str) -> str:
    """Return the folder that a file counts for: tools, src/dpfast or one right below it."""
    parts = PurePosixPath(path).parent.parts
    return "/".join(parts[: 3 if parts[0] == "src" else 1])


def measure(files: Files) -> dict[str, Counter[str]]:
    """Count each column for each folder."""
    codes = {path: code_of(path, text) for path, text in files.items()}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path, code in codes.items():
        is_python = path.endswith(".py")
        counts[folder_of(path)][COLUMNS[0] if is_python else COLUMNS[1]] += len(code)
        counts[folder_of(path)] += Counter({"files": 1, "names": len(names_of(files[path])) if is_python else 0})
    for path, *_ in duplicates(codes):
        counts[folder_of(path)]["duplicates"] += 1
    return counts


def lines_in(count: Counter[str]) -> int:
    return count[COLUMNS[0]] + count[COLUMNS[1]]


def faults(counts: dict[str, Counter[str]], figures: dict, before: dict) -> list[str]:
    """Return what is wrong with folders, and with figures that are `before` in the commit."""
    found = [f"{folder}: has no figure" for folder in counts.keys() - figures.keys()]
    found += [f"{folder}: has a figure, and no code" for folder in figures.keys() - counts.keys()]
    for folder in counts.keys() & figures.keys():
        lines, entry, old = lines_in(counts[folder]), figures[folder], before.get(folder, {})
        if lines > max(entry["lines"] * (1.0 + SHARE), entry["lines"] + SLACK):
            found.append(f"{folder}: {lines} lines, {lines - entry['lines']} above its figure")
        if before and entry["lines"] > old.get("lines", 0) and entry.get("why") in (None, "", old.get("why")):
            found.append(f"{folder}: its figure rises, and its entry does not say why")
    return sorted(found)


def written(counts: dict[str, Counter[str]], figures: dict, why: str) -> str:
    """Return the file of figures for what is there; a figure that rises is given a reason, others keep theirs."""
    text = HEAD
    for folder in sorted(counts):
        lines, old = lines_in(counts[folder]), figures.get(folder, {})
        reason = why if lines > old.get("lines", 0) else old.get("why", "")
        text += f'\n["{folder}"]\nlines = {lines}\n' + (f"why = {json.dumps(reason)}\n" if reason else "")
    return text


def table(now: dict[str, Counter[str]], base: dict[str, Counter[str]]) -> list[str]:
    """Return a row for each folder and for all, each count with its change."""
    rows = [
        (folder, now.get(folder, Counter()), base.get(folder, Counter())) for folder in sorted(now.keys() | base.keys())
    ]
    rows.append(("all", *(sum(counts.values(), Counter()) for counts in (now, base))))
    lines = [f"{'':28}" + "".join(f"{column:>16}" for column in COLUMNS)]
    for folder, count, old in rows:
        changes = [f" ({count[c] - old[c]:+d})" if count[c] != old[c] else "" for c in COLUMNS]
        lines.append(
            f"{folder:28}" + "".join(f"{f'{count[c]}{change}':>16}" for c, change in zip(COLUMNS, changes, strict=True))
        )
    return lines


def files_here(root: Path) -> Files:
    paths = [path for tree in TREES for path in (root / tree).rglob("*") if path.suffix in (".py", *COMPILED)]
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


def files_of(root: Path, commit: str) -> tuple[Files, dict]:
    """Return a commit's files and figures."""
    command = ["git", "archive", commit, *TREES]
    data = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        texts = {member.name: archive.extractfile(member).read().decode() for member in archive if member.isfile()}
    files = {path: text for path, text in sorted(texts.items()) if path.endswith((".py", *COMPILED))}
    return files, tomllib.loads(texts.get(FIGURES, ""))


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", nargs="?", default="HEAD^", help="the commit to compare with (default: HEAD^)")
    parser.add_argument("--duplicates", action="store_true", help="list them")
    parser.add_argument("--write", metavar="WHY", help="write the figures, with a reason for those that rise")
    options = parser.parse_args(arguments)
    files, file = files_here(root), root / FIGURES
    now = measure(files)
    figures = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    if options.write is not None:
        file.write_text(written(now, figures, options.write), "utf-8")
        return 0
    base, before = files_of(root, options.base)
    print(*table(now, measure(base)), sep="\n")
    if options.duplicates:
        for path, line, other, other_line in duplicates({path: code_of(path, text) for path, text in files.items()}):
            print(f"{path}:{line} is alike {other}:{other_line}")
    found = faults(now, figures, before)
    print(*(f"BUDGET: {fault}" for fault in found), sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
