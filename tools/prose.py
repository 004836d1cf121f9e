"""Count the prose of pages and docstrings, and name the sentences that are hard to read.

    python tools/prose.py                     words, sentences and hard ones, by file
    python tools/prose.py --total             the totals alone
    python tools/prose.py --list docs/guides  also the hard sentences of some files
    python tools/prose.py --most 2.5          fail if more than 2.5% of the sentences are hard

A sentence is hard if it has two or more relative words: which, that, who, whom, whose, what, where. Code, formulas,
tables and headings are not counted. Without paths: README.md, docs/ and src/dpfast/.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\b(?:which|that|who|whom|whose|what|where)\b", re.IGNORECASE)
MADE = {"_build", "auto_gallery"}  # by the build of the documentation

_FENCE = re.compile(r"^ *(`{3,}|\$\$)[^\n]*\n.*?^ *\1 *$", re.DOTALL | re.MULTILINE)
_NOT_PROSE = re.compile(r"^ *(?:[|#%:+]|\([\w-]+\)=|\.\. |>>>|\.\.\. |[-=~^]{3,}|\[[\w-]+\]: ).*$", re.MULTILINE)
_PARAMETER = re.compile(r"^\*{0,2}\w+(?:, \*{0,2}\w+)*(?: : .*)?$", re.MULTILINE)  # of numpydoc, not indented
_EXAMPLES = re.compile(r"^(?:Examples|References)\n-+\n.*?(?=^\w[^\n]*\n-+\n|\Z)", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"``[^`]+``|`[^`]+`|\$[^$]+\$")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_BLOCK = re.compile(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )")
_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<=[.!?])[)\"'*]*\s+(?=\W*[A-Z0-9`])")


def page_prose(text: str) -> str:
    """Return a page of Markdown without code, formulas, tables and headings."""
    return _NOT_PROSE.sub("\n", _FENCE.sub("\n", text))


def docstring_prose(text: str) -> str:
    """Return a docstring without examples, references, names of parameters and headings."""
    text = _EXAMPLES.sub("", text + "\n")
    text = re.sub(r"^[A-Z][\w ]+\n-{3,}$", "", text, flags=re.MULTILINE)
    return _NOT_PROSE.sub("\n", _PARAMETER.sub("\n", text))


def docstrings(code: str) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def sentences(prose: str) -> list[str]:
    """Split prose into sentences; an item of a list begins one. Inline code counts as one word."""
    found = []
    for block in _BLOCK.split(_LINK.sub(r"\1", _INLINE.sub("CODE", prose))):
        found += _END.split(" ".join(block.split()))
    return [sentence for sentence in found if len(re.findall(r"[A-Za-z]\w*", sentence)) > 1]


def is_hard(sentence: str) -> bool:
    """Return whether a sentence has two or more relative words."""
    return len(RELATIVE.findall(sentence)) > 1


def sentences_of(path: Path) -> list[str]:
    """Return the sentences of a page, or of the docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return sentences(page_prose(text))
    return [sentence for docstring in docstrings(text) for sentence in sentences(docstring_prose(docstring))]


def files_under(path: Path) -> list[Path]:
    """Return the pages and modules of a folder, or the file that was named."""
    if path.is_file():
        return [path]
    found = [*path.rglob("*.md"), *path.rglob("*.py")]
    return sorted(file for file in found if not MADE.intersection(file.parts))


def pages_and_modules() -> list[Path]:
    """Return the files that the documentation consists of."""
    modules = files_under(ROOT / "src" / "dpfast")
    return [ROOT / "README.md", *(page for page in files_under(ROOT / "docs") if page.suffix == ".md"), *modules]


@dataclass
class Count:
    """Sentences, hard ones and words of some files."""

    sentences: int = 0
    hard: int = 0
    words: int = 0

    @property
    def share(self) -> float:
        """Percent of the sentences that are hard."""
        return 100.0 * self.hard / max(self.sentences, 1)

    def add(self, found: list[str]) -> Count:
        """Count the sentences of one more file."""
        self.sentences += len(found)
        self.hard += sum(map(is_hard, found))
        self.words += sum(len(sentence.split()) for sentence in found)
        return self

    def __str__(self) -> str:
        return f"{self.words:7,} words {self.sentences:6,} sentences {self.hard:4} hard {self.share:5.1f}%"


def main() -> int:
    """Count, print, and compare with the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="pages, modules or folders")
    parser.add_argument("--list", action="store_true", help="print the hard sentences")
    parser.add_argument("--total", action="store_true", help="print the totals alone")
    parser.add_argument("--most", type=float, metavar="PERCENT", help="fail above this share of pages or of docstrings")
    options = parser.parse_args()
    totals = {"pages": Count(), "docstrings": Count()}
    for path in [file for folder in options.paths for file in files_under(folder)] or pages_and_modules():
        found = sentences_of(path)
        totals["pages" if path.suffix == ".md" else "docstrings"].add(found)
        if not options.total:
            print(f"{Count().add(found)}  {path.resolve().relative_to(ROOT)}")
        if options.list:
            print(*(f"    {sentence}" for sentence in filter(is_hard, found)), sep="\n")
    for kind, count in totals.items():
        print(f"{count}  {kind}")
    return int(options.most is not None and any(count.share > options.most for count in totals.values()))


if __name__ == "__main__":
    raise SystemExit(main())
