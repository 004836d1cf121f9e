"""Pages of Markdown as their readers use them: blocks of Python, headings and links."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_FENCED = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$", re.DOTALL | re.MULTILINE)
#: Worker processes import the script that starts them: a page that says so is run as one.
_IS_SCRIPT = re.compile(r"^if __name__ ==", re.MULTILINE)


def written_pages() -> list[Path]:
    """The pages of the documentation, but for those that are made while it is built."""
    made = (DOCS / "_build", DOCS / "auto_gallery")
    return sorted(page for page in DOCS.rglob("*.md") if not any(page.is_relative_to(folder) for folder in made))


def python_blocks(page: Path) -> list[str]:
    """What a reader would copy."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(page: Path, folder: Path) -> None:
    """Run the blocks of a page one after the other, as one session in a folder."""
    blocks = python_blocks(page)
    if any(_IS_SCRIPT.search(block) for block in blocks):
        script = folder / "page.py"
        script.write_text("\n".join(blocks), encoding="utf-8")
        command = [sys.executable, "-W", "error", str(script)]
        subprocess.run(command, cwd=folder, env={**os.environ, "MPLBACKEND": "Agg"}, check=True)
        return
    session = {"__name__": "__main__"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), session)


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]+`", "", _FENCED.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What links into a page may end in: its headings as GitHub and MyST name them, and its own labels."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return named | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def links(page: Path) -> list[str]:
    """Links of a page that lead to other pages and files of this repository, or into the page itself."""
    found = re.findall(r"\]\(<?([^)\s>]+)>?\)", prose(page))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def leads_somewhere(link: str, page: Path) -> bool:
    """Whether what a link names is there."""
    place, _, anchor = link.partition("#")
    target = (DOCS / place[1:] if place.startswith("/") else page.parent / place) if place else page
    target = Path(os.path.normpath(target))
    if target.is_relative_to(DOCS / "auto_gallery"):  # made of the script of the same name
        target = DOCS / "gallery" / target.relative_to(DOCS / "auto_gallery")
        if target.stem == "index":
            return (target.parent / "GALLERY_HEADER.rst").is_file()
        return target.with_suffix(".py").is_file()
    if not target.exists() and not target.suffix:
        target = target.with_suffix(".md")
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))
