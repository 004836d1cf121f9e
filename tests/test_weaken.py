"""Mutants keep their names, change one place, and are run on the tests of their function."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "tools"))
import weaken

TEXT = '''
"""A module."""
SLACK = 2.0**-40

def scale(privacy, bound):
    """Return a scale."""
    if bound <= 0.0:
        raise ValueError("bound must be above 0")
    return 2.0 * bound / privacy.epsilon

class Noise:
    def draw(self, sums, source):
        self.drawn = True
        source.mark()
        return draw("Gaussian", self.scale, np.clip(sums, -1.0, 1.0), source)
'''


def changes(text=TEXT):
    return {mutant.id: mutant.change.partition(": ")[2] for mutant in weaken.mutants("m.py", text)}


def test_operators_make_what_may_be_wrong_about_privacy():
    made = changes()
    assert made["m.py:scale:factor:0"] == "2.0 * bound  ->  2.0"
    assert made["m.py:scale:edge:0"] == "bound <= 0.0  ->  bound < 0.0"
    assert made["m.py:Noise.draw:noiseless:0"].endswith("->  np.clip(sums, -1.0, 1.0)")
    assert made["m.py:Noise.draw:skip:0"] == "np.clip(sums, -1.0, 1.0)  ->  sums"
    assert made["m.py:Noise.draw:statement:1"] == "source.mark()  ->  pass"
    assert made["m.py:Noise.draw:half:0"].startswith("draw('Gaussian', self.scale, ")
    assert made["m.py:<module>:number:1"] == "40  ->  41"


def test_what_is_written_elsewhere_renames_no_mutant():
    longer = TEXT.replace("SLACK =", "def first(x):\n    return max(x, 0.5 * x) - 1\n\nSLACK =")
    made = changes(longer)
    assert changes().items() <= made.items()
    assert len(made) > len(changes())


def test_a_mutant_changes_one_place_and_leaves_the_tree_whole():
    mutants = weaken.mutants("m.py", TEXT)
    whole = ast.unparse(ast.parse(TEXT))
    assert all(mutant.applied(TEXT) != whole for mutant in mutants)
    assert ast.dump(mutants[0]._module) == ast.dump(ast.parse(TEXT))


def test_no_mutant_is_made_of_annotations_errors_and_texts():
    text = 'def f(x: int | None = None) -> int | str:\n    """One + one."""\n    raise ValueError(f"{1 + 1}")\n'
    assert not changes(text)


def test_functions_tell_that_they_were_reached():
    reached = set()
    names = {"_functions_reached": reached}
    exec(weaken.recording("m.py", TEXT), names)
    with pytest.raises(ValueError, match="above 0"):
        names["scale"](None, -1.0)
    assert reached == {"m.py:scale"}


def test_a_mutant_asks_the_tests_of_its_function_its_own_file_first(monkeypatch):
    record = {
        "m.py:scale": [(0.1, "x/test_x.py::test_quick"), (0.5, "test_m.py::test_scale"), (9.0, "test_m.py::test_long")],
        "m.py:Noise.draw": [(0.2, "test_m_noise.py::test_law")],
    }
    by_name = {mutant.id: mutant for mutant in weaken.mutants("m.py", TEXT)}
    of_scale = by_name["m.py:scale:factor:0"]
    own_first = ["test_m.py::test_scale", "test_m.py::test_long", "x/test_x.py::test_quick"]
    assert weaken.tests_of(of_scale, record) == own_first
    assert weaken.tests_of(by_name["m.py:Noise.draw:skip:0"], record) == ["test_m_noise.py::test_law"]
    assert len(weaken.tests_of(by_name["m.py:<module>:number:1"], record)) == 4
    monkeypatch.setattr(weaken, "PATIENCE", 5.0)
    assert weaken.tests_of(of_scale, record) == ["test_m.py::test_scale", "x/test_x.py::test_quick"]
    # However long they take: a number may be seen there alone.
    record["m.py:scale"] += [(9.0, f"{weaken.RECORD}::test[60]"), (8.0, "y/test_y.py::test_slow")]
    assert weaken.tests_of(of_scale, record)[2:] == [f"{weaken.RECORD}::test[60]"]


def test_every_survivor_has_a_reason_and_every_text_is_found():
    entries = weaken.by_hand()
    for entry in entries:
        entry.check()
    assert len({entry.id for entry in entries}) == len(entries) <= 120
    made = {mutant.id for mutants in weaken.made().values() for mutant in mutants}
    assert weaken.SURVIVORS.keys() <= made
    assert all(reason.strip() for reason in weaken.SURVIVORS.values())
