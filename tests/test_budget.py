"""tools/budget.py: what counts as code and as a duplicate, and what it takes to outgrow or raise a figure."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))
import budget  # noqa: E402

PYTHON = '''"""Of the module,
in two lines."""

import math  # why


class Shape:
    """Of the class."""

    # Nothing.
    TEXT = """data
    # of the same string"""

    def area(self):
        r"""Of a method."""
        return "# no comment"
'''
CYTHON = '''"""Of the module."""
cdef int area(double *side) except? -1:  # why
    """
    Of a function.
    """
    cdef str text = "# no comment"

    return 1
'''
C = """/* Of the file's
 * design. */
int area(void) {  // why
  char *text = "/* no comment */";

  return '"'; /* it's so */
}
"""
SIX = "".join(f"value_{number} = {number}\n" for number in range(6))


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("a.py", PYTHON, [4, 7, 11, 12, 14, 16]),
        ("a.pyx", CYTHON, [2, 6, 8]),
        ("a.c", C, [3, 4, 6, 7]),
    ],
    ids=["Python", "Cython", "C"],
)
def test_comments_docstrings_and_blank_lines_are_no_code(path, text, lines):
    assert list(budget.code_of(path, text)) == lines


def test_names_are_those_a_module_defines_for_others():
    code = "import math\nONE = 1\nTWO: int = 2\n_three = 3\ndef area(): a = 1\nclass Shape: b = 1\nclass _Hidden: ..."
    assert budget.names_of(code) == {"ONE", "TWO", "area", "Shape"}


def duplicates_of(*texts):
    return budget.duplicates({f"{number}.py": budget.code_of("a.py", text) for number, text in enumerate(texts)})


def test_six_lines_alike_are_a_duplicate_in_both_places_however_they_are_set():
    assert duplicates_of(SIX, SIX.replace(" = ", "=").replace("\n", "  # why\n\n")) == [
        ("0.py", 1, "1.py", 1),
        ("1.py", 1, "0.py", 1),
    ]


def test_spaces_of_compiled_code_do_not_tell_it_apart():
    assert budget.code_of("a.c", "\tint  a = 1;\n") == budget.code_of("b.pyx", "int a=1;\n")


def test_a_longer_copy_is_one_place():
    longer = SIX + "more = 1\nand_more = 2\n"
    assert duplicates_of("first = 1\n" + longer, longer + "last = 1\n") == [
        ("0.py", 2, "1.py", 1),
        ("1.py", 1, "0.py", 2),
    ]


def test_copies_within_a_file_are_found():
    assert duplicates_of(SIX + "between = 1\n" + SIX) == [("0.py", 1, "0.py", 8), ("0.py", 8, "0.py", 1)]


@pytest.mark.parametrize("text", [SIX.partition("\n")[2], "import math\n" * 6 + "from os import path\n" * 6])
def test_five_lines_and_imports_are_no_duplicate(text):
    assert duplicates_of(text + "a = 1", text + "b = 1") == []


def test_files_count_for_the_folder_below_the_package():
    files = {
        "src/dpfast/cli.py": "ONE = 1\n",
        "src/dpfast/io/a.py": "TWO = 2\n_three = 3\n" + SIX,
        "src/dpfast/io/deeper/a.pyx": "cdef int a\n",
        "tools/a.py": SIX,
    }
    assert budget.measure(files) == {
        "src/dpfast": Counter({"Python": 1, "files": 1, "names": 1}),
        "src/dpfast/io": Counter({"Python": 8, "Cython and C": 1, "files": 2, "names": 7, "duplicates": 1}),
        "tools": Counter({"Python": 6, "files": 1, "names": 6, "duplicates": 1}),
    }


@pytest.mark.parametrize(
    ("figure", "lines", "fails"),
    [(100, 150, False), (100, 151, True), (10_000, 10_300, False), (10_000, 10_301, True), (10_000, 1, False)],
)
def test_a_folder_fails_beyond_three_percent_and_fifty_lines(figure, lines, fails):
    count = Counter({"Python": lines - 1, "Cython and C": 1})
    found = budget.faults({"tools": count}, {"tools": {"lines": figure}}, {})
    assert found == ([f"tools: {lines} lines, {lines - figure} above its figure"] if fails else [])


@pytest.mark.parametrize(
    ("old", "entry", "fails"),
    [
        ({"lines": 9}, {"lines": 10}, True),
        ({"lines": 9, "why": "as before"}, {"lines": 10, "why": "as before"}, True),
        ({"lines": 9, "why": "as before"}, {"lines": 10, "why": "for this"}, False),
        ({"lines": 10}, {"lines": 10}, False),
        ({"lines": 11}, {"lines": 10}, False),
        ({}, {"lines": 10}, True),
        ({}, {"lines": 10, "why": "a new folder"}, False),
    ],
)
def test_a_figure_that_rises_says_why_anew(old, entry, fails):
    others = {"src/dpfast": {"lines": 1}}
    before = others | ({"tools": old} if old else {})
    counts = {"tools": Counter({"Python": 10}), "src/dpfast": Counter({"Python": 1})}
    found = budget.faults(counts, others | {"tools": entry}, before)
    assert found == (["tools: its figure rises, and its entry does not say why"] if fails else [])


def test_folders_and_figures_match():
    found = budget.faults({"tools": Counter({"Python": 1})}, {"src/dpfast/gone": {"lines": 1}}, {})
    assert found == ["src/dpfast/gone: has a figure, and no code", "tools: has no figure"]


@pytest.fixture
def repository(tmp_path):
    """Two commits, of 10 and 20 lines."""

    def git(*arguments):
        settings = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True)

    module, tool = tmp_path / "src" / "dpfast" / "cli.py", tmp_path / "tools" / "a.py"
    for path in (module, tool):
        path.parent.mkdir(parents=True)
    git("init")
    tool.write_text("a = 1\n")
    for n_lines in (10, 20):
        module.write_text("".join(f"a = {n_lines + line}\n" for line in range(n_lines)))
        budget.main(["--write", f"{n_lines} are needed"], tmp_path)
        git("add", ".")
        git("commit", "-m", f"{n_lines} lines")
    return tmp_path


def test_a_tree_is_printed_beside_its_parent_and_fails_when_it_has_outgrown_its_figures(repository, capsys):
    assert budget.main([], repository) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows == {
        "src/dpfast": ["20", "(+10)", "0", "1", "1", "0"],
        "tools": ["1", "0", "1", "1", "0"],
        "all": ["21", "(+10)", "0", "2", "2", "0"],
    }
    (repository / "src" / "dpfast" / "cli.py").write_text("".join(f"a = {line}\n" for line in range(71)))
    assert budget.main(["HEAD"], repository) == 1
    assert "BUDGET: src/dpfast: 71 lines, 51 above its figure" in capsys.readouterr().out.splitlines()


def test_figures_are_written_with_a_reason_where_they_rise(repository, capsys):
    (repository / "tools" / "a.py").write_text("a = 1\nb = 2\n")
    budget.main(["--write", 'it\'s "b"'], repository)
    figures = budget.tomllib.loads((repository / budget.FIGURES).read_text())
    assert figures == {
        "src/dpfast": {"lines": 20, "why": "20 are needed"},
        "tools": {"lines": 2, "why": 'it\'s "b"'},
    }
    assert budget.main(["HEAD"], repository) == 0
    budget.main(["--write", ""], repository)
    assert budget.main(["HEAD"], repository) == 0  # the reason stays


def test_duplicates_are_listed_when_asked_for(repository, capsys):
    for name in ("b", "c"):
        (repository / "tools" / f"{name}.py").write_text(SIX)
    budget.main(["--duplicates"], repository)
    assert "tools/b.py:1 is alike tools/c.py:1" in capsys.readouterr().out.splitlines()
