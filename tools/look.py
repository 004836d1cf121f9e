"""Look at the built documentation in a browser: ``python tools/look.py docs/_build [--pictures FOLDER]``.

Of the files: every page has a sidebar, and the search finds pages by the words that people ask for. Then every page is
opened in headless Chromium, as wide as a screen and as a telephone. What is told, and fails: a page wider than its
window, an image that does not appear, and whatever a page would fetch from elsewhere. With ``--pictures`` they are
drawn besides, light and dark, for somebody to look at. Where there is no Chromium, that is said.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTHS = {"screen": 1280, "telephone": 400}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# With access to files, or a page may not look into its frames.
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --hide-scrollbars --allow-file-access-from-files"
#: What people ask for, and the page that must be among the first that the search finds.
ASKED = {
    "confidence interval": "concepts/inference",
    "clustered": "concepts/inference",
    "standard error": "concepts/inference",
    "categories": "guides/files",
    "placebo": "guides/synthetic_control",
    "odds ratio": "guides/classification",
}
FIRST = 5
# Pages are opened in frames of a page, one after the other; what is found becomes its text.
LOOK = """<!doctype html><body><script>
const pages = %s, widths = %s, found = [];
const fetched = "script[src], img[src], iframe[src], link[rel=stylesheet], link[rel=preload]";
const away = frame => [...frame.contentDocument.querySelectorAll(fetched)]
  .map(one => one.src || one.href).filter(place => /^(https?:)?\\/\\//.test(place));
function look(at) {
  if (at == pages.length * widths.length) {
    document.body.innerHTML = "<pre id=found></pre>";
    document.getElementById("found").textContent = JSON.stringify(found);
    return;
  }
  const page = pages[Math.floor(at / widths.length)], width = widths[at %% widths.length];
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.onload = () => {
    const inside = frame.contentDocument, root = inside.documentElement;
    inside.querySelectorAll("img").forEach(one => one.loading = "eager");
    if (root.scrollWidth > width) found.push([page, `${root.scrollWidth} pixels wide in a window of ${width}`]);
    for (const one of inside.images) if (one.complete && !one.naturalWidth) found.push([page, `no image ${one.src}`]);
    for (const place of away(frame)) found.push([page, `fetches ${place}`]);
    if (!inside.querySelector("h1")) found.push([page, "has no heading"]);
    frame.remove();
    look(at + 1);
  };
  frame.src = page;
  document.body.append(frame);
}
look(0);
</script></body>"""


def found_by_search(built: Path, requested: str) -> list[str]:
    """Return the pages with all of the words, by the scores of Sphinx: 15 for a word of a heading, 5 of the text.

    Words are stemmed as those of the index are. (The whole phrase in a heading, or a Python name, scores besides.)
    """
    from sphinx.search.en import SearchEnglish

    stem = SearchEnglish({}).stem  # which is not the same in all versions of Sphinx
    text = (built / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    scores: dict[int, int] = {}
    for place, word in enumerate(map(stem, requested.lower().split())):
        of_word: dict[int, int] = {}
        for terms, score in ((index["terms"], 5), (index["titleterms"], 15)):
            pages = terms.get(word, [])
            of_word |= dict.fromkeys([pages] if isinstance(pages, int) else pages, score)
        scores = {page: scores.get(page, 0) + score for page, score in of_word.items() if place == 0 or page in scores}
    ranked = sorted(scores, key=lambda page: (-scores[page], index["titles"][page].lower()))
    return [index["docnames"][page] for page in ranked]


def faults_of_files(built: Path, pages: list[Path]) -> list[str]:
    """Return what is wrong without a browser: pages without a sidebar, and words whose page is not found."""
    faults = [
        f"{page.relative_to(built)}: has no sidebar"
        for page in pages
        if 'class="bd-docs-nav bd-links"' not in page.read_text(encoding="utf-8")
    ]
    for requested, wanted in ASKED.items():
        if wanted not in (first := found_by_search(built, requested)[:FIRST]):
            faults.append(f"the search for {requested!r} finds {first}, not {wanted}")
    return faults


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("built", type=Path)
    options.add_argument("--pictures", type=Path, help="draw every page here")
    options.add_argument("--only", default="", help="draw pages whose names hold this")
    chosen = options.parse_args()
    built = chosen.built.resolve()
    pages = sorted(page for page in built.rglob("*.html") if page.stem not in ("genindex", "py-modindex", "search"))
    pages = [page for page in pages if "_static" not in page.parts and "_modules" not in page.parts]
    faults = faults_of_files(built, pages)
    print("\n".join([*faults, f"{len(pages)} pages, {len(ASKED)} searches: {len(faults)} faults"]))
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("no browser here: nothing was drawn")
        return int(bool(faults))
    with tempfile.TemporaryDirectory() as folder:
        command = [browser, *FLAGS.split(), f"--user-data-dir={folder}/profile"]
        wrapper = Path(folder, "look.html")
        wrapper.write_text(LOOK % (json.dumps([page.as_uri() for page in pages]), json.dumps([*WIDTHS.values()])))
        dump = [*command, "--virtual-time-budget=600000", "--dump-dom", wrapper.as_uri()]
        seen = subprocess.run(dump, capture_output=True, text=True, timeout=170).stdout
        told = re.search(r'<pre id="found">(.*)</pre>', seen)
        if told is None:
            print("the browser did not finish")
            return 1
        found = json.loads(html.unescape(told[1]))
        for page, what in found:
            print(f"{page.removeprefix(built.as_uri())}: {what}")
        print(f"{len(pages)} pages, at widths of {' and '.join(map(str, WIDTHS.values()))}: {len(found)} faults")
        if chosen.pictures is not None:
            chosen.pictures.mkdir(parents=True, exist_ok=True)
            for page in pages:
                name = "-".join(page.relative_to(built).with_suffix("").parts)
                if chosen.only in name:
                    draw(command, page, chosen.pictures / name)
    return int(bool(found or faults))


def draw(command: list[str], page: Path, picture: Path) -> None:
    """Draw a page in both widths, light and dark."""
    for window, width in WIDTHS.items():
        for scheme, number in {"dark": 0, "light": 1}.items():
            drawn = picture.with_name(f"{picture.name}-{window}-{scheme}.png")
            size = f"--window-size={width},{1600 if width > 1000 else 1200}"
            flags = (size, f"--blink-settings=preferredColorScheme={number}", f"--screenshot={drawn}")
            subprocess.run([*command, *flags, page.as_uri()], capture_output=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
