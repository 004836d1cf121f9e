"""The words of pages, docstrings, errors and names: standard terms, in sentences that are read once."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from pages import DOCS, ROOT

PACKAGE = ROOT / "src" / "dpfast"
GLOSSARY = DOCS / "development" / "words.md"
#: Percent of sentences with two or more relative words.
MOST = {".md": 2.5, ".py": 2.5}


@pytest.fixture
def prose(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return import_module("prose")


def rows_of_glossary(columns):
    """Rows of the table with so many columns, without its head."""
    row = r"^\|" + r" ([^|]+) \|" * columns + "$"
    return re.findall(row, GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)[2:]


def glossary():
    """Standard term and pattern of each home-made word."""
    for words, standard in rows_of_glossary(2):
        pattern = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words.split(", "))
        yield words, standard, re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)


def code_of_the_package():
    """Names, comments, docstrings, errors and keys of jobs, in words."""
    files = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in (".py", ".pyi", ".pyx", ".pxd")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\n\s*#:?", "\n", text).replace("_", " ")


def test_pages_have_no_home_made_word(prose):
    pages = {page: " ".join(prose.sentences_of(page)) for page in prose.pages_and_modules() if page.suffix == ".md"}
    found = {
        (str(page.relative_to(ROOT)), one[0]): f"say: {standard}"
        for _, standard, pattern in glossary()
        for page, text in pages.items()
        if (one := pattern.search(text))
    }
    assert found == {}


def test_the_package_has_no_home_made_word():
    code = code_of_the_package()
    assert {one[0]: f"say: {standard}" for _, standard, pattern in glossary() if (one := pattern.search(code))} == {}


def test_no_class_or_function_has_a_home_made_name():
    instead = {name: f"say: {new}" for names, new, _ in rows_of_glossary(3) for name in names.split(", ")}
    assert len(instead) > 15
    defined = {
        (str(path.relative_to(ROOT)), one.name): instead[one.name]
        for path in sorted(PACKAGE.rglob("*.py"))
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name in instead
    }
    assert defined == {}


def test_a_home_made_word_is_found_in_text_code_and_names():
    patterns = [pattern for words, _, pattern in glossary() if words.startswith("shorten")]
    assert [pattern.findall("Rows are shortened. Shorten\nthem.") for pattern in patterns] == [["shortened", "Shorten"]]
    assert len(list(glossary())) > 20


@pytest.mark.parametrize("suffix", MOST)
def test_few_sentences_have_to_be_read_twice(prose, suffix):
    count = prose.Count()
    for path in prose.pages_and_modules():
        if path.suffix == suffix:
            count.add(prose.sentences_of(path))
    assert count.sentences > 1000
    assert count.share <= MOST[suffix], str(count)


def test_a_sentence_with_two_relative_words_is_hard_and_code_is_not_read(prose, tmp_path):
    page = Path(tmp_path) / "page.md"
    page.write_text(
        "# What that is\n\nIt says what it is that counts, e.g. this. It does not.\n\n"
        "| what | that |\n\n```python\n# what is that which\n```\n\n- One `that which` is short.\n- Two is\n  short.\n",
        encoding="utf-8",
    )
    found = prose.sentences_of(page)
    assert [prose.is_hard(sentence) for sentence in found] == [True, False, False, False]
    assert [text for text in prose.docstrings('def f():\n    """Give it."""\n') if text] == ["Give it."]
