"""Whatever is given where a label belongs is answered by name: not hashable, missing, of mixed kinds."""

import re

import numpy as np
import pandas as pd
import pytest

from dpfast import ObjectivePerturbationClassifier, PolicyEvaluation, SyntheticControl
from dpfast.io import Category, Columns, Number, RowOwners, open_panel
from dpfast.statistics import StateEncoder, Trajectories, gram

PANEL = pd.DataFrame({"who": ["a", "a", "b", "b", "c", "c"], "year": [1, 2] * 3, "sales": np.linspace(0.0, 1.0, 6)})
STEPS = pd.DataFrame({"t": [0, 0, 1], "s": ["u", "v", "u"], "r": [0.0, 1.0, 0.5], "k": [0, 1, 0]})
X, Y = np.zeros((6, 2)), np.array([0, 1, 0, 1, 0, 1])

#: What is no label, and for no argument that takes one.
NO_LABELS = {
    "list": ["who"],
    "dictionary": {"who": 1},
    "set": {"who"},
    "array": np.array(["who", "year"]),
    "array without dimensions": np.array("who"),
    "tuple of a list": ("who", ["year"]),
    "frame": PANEL,
    "NaN": float("nan"),
    "NaT": pd.NaT,
    "NA": pd.NA,
    "mixed": ["who", 1, None, [2]],
    "object": object(),
    "number": 3,
}


def long(**changes):
    given = {"unit": "who", "time": "year", "value": "sales", "treated": "a", "n_pre": 1} | changes
    return SyntheticControl(1.0, 1e-6).fit_long(PANEL, **given)


def walks(**changes):
    given = {"trajectory": "t", "state": "s", "reward": "r", "step": "k", "states": ["u", "v"]} | changes
    return Trajectories.from_frame(STEPS, **given)


def classified(y=Y, **changes):
    return ObjectivePerturbationClassifier(1.0, 1e-6, **{"bound_x": 1.0, "classes": [0, 1]} | changes).fit(X, y)


class Unlike:
    """What neither has a hash nor says why without a word of itself."""

    def __hash__(self):
        raise RuntimeError("3 people have it")


def encoded(entry, **options):
    frame = pd.DataFrame({"k": pd.Series([*["a", "b"] * 2, entry, "a"], dtype=object)})
    return gram(Columns([Category("k", ["a", "b"], **options)]).encode(frame), bound_x=2.0)


def evaluated(states):
    steps = [[("u", 0.0)]] * 30
    return PolicyEvaluation(1.0, 1e-6, gamma=0.5).fit(Trajectories.from_episodes(steps, states=["u"])).predict(states)


#: By the argument: what takes it, and what it is called where that is not its name.
USES = {name: (lambda label, name=name: long(**{name: label}), name) for name in ("unit", "time", "value", "treated")}
USES |= {"n_pre": (lambda label: long(n_pre=label), "n_pre")}
USES |= {"n_pre of a panel": (lambda label: open_panel(pd.DataFrame(X.T, columns=range(7, 13)), label), "n_pre")}
USES |= {
    name: (lambda label, name=name: walks(**{name: label}), rf"{name}|frame has no column|no column|column")
    for name in ("trajectory", "state", "reward", "step")
}
USES |= {
    "classes": (lambda label: classified(classes=label), "classes"),
    "a class": (lambda label: classified(classes=[0, label]), "classes"),
    "class_weight": (lambda label: classified(class_weight=label), "class_weight"),
    "y": (lambda label: classified(y=label), "y"),
    "a label of y": (lambda label: classified(y=[0, 1, 0, 1, 0, label]), "y"),
    "groups": (lambda label: gram(X, Y, bound_x=1.0, bound_y=1.0, groups=label, max_rows=2), "groups"),
    "RowOwners": (lambda label: np.asarray(RowOwners(PANEL, label)), "name|column"),
    "Columns": (lambda label: Columns(label, {"sales": Number(0.0, 1.0)}).encode(PANEL), ""),
    "a level": (encoded, "column 'k'"),
    "StateEncoder": (lambda label: StateEncoder(label), "states"),
    "states to predict": (evaluated, "states"),
}
#: What some of them take.
TAKEN = {("class_weight", "dictionary"), ("n_pre", "number"), ("n_pre of a panel", "number")}
TAKEN |= {("StateEncoder", name) for name in ("list", "dictionary", "set", "array", "tuple", "mixed", "frame")}
TAKEN |= {("Columns", "dictionary")}
QUOTED_FROM_PYTHON = re.compile("unhashable|ambiguous|truth value|not supported between|object is not|has no attribute")


@pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning")
@pytest.mark.parametrize("use", USES)
def test_what_is_no_label_is_answered(use):
    call, name = USES[use]
    for kind, label in NO_LABELS.items():
        if (use, kind) in TAKEN:
            continue
        with pytest.raises((ValueError, TypeError)) as refused:
            call(label)
        assert re.search(name, str(refused.value)), (kind, str(refused.value))
        assert not QUOTED_FROM_PYTHON.search(str(refused.value)), (kind, str(refused.value))


@pytest.mark.parametrize("odd", [["a"], {"a": 1}, Unlike()], ids=["list", "dictionary", "errors of its own"])
def test_an_entry_that_cannot_be_looked_up_is_no_level_and_moves_no_other(odd):
    np.testing.assert_array_equal(encoded(odd, undeclared="zeros").xx, encoded("c", undeclared="zeros").xx)
