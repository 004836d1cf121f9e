"""Whatever draws noise or makes a release is under attack: what is there is read from the code, not from a list."""

import ast
import itertools
import sys
import warnings
from pathlib import Path

import pytest
from attacks import ATTACKS
from catalogue import choices

import dpfast
from dpfast import noise, registry, solvers

SOURCE = Path(dpfast.__file__).parent
# Noise itself, and what attacks it.
ELSEWHERE = {"noise", "attack", "attacks.py", "audit"}
DRAWS = {name for name in noise.__all__ if not name.endswith(("Source", "source", "grid", "scales"))}
# Parameters whose values change what is computed from a release, or what is public, and not how it is protected.
NOT_PRIVACY = {"ridge", "n_components", "center", "shrinkage", "with_mean", "with_std"}


def makes_release(node):
    """Whether a node of the syntax tree makes a release that claims anything."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Release"):
        return False
    without_noise = any(isinstance(one, ast.Constant) and one.value == "no" for one in node.args)
    disowned = any(one.arg == "guaranteed" and getattr(one.value, "value", None) is False for one in node.keywords)
    return not (without_noise or disowned)


def draws(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "draw"
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "noise"
        and node.attr in DRAWS
    )


def places():
    """List the lines of the package that draw noise or make a release: (file, line)."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if ELSEWHERE & set(path.relative_to(SOURCE).parts):
            continue
        tree = ast.parse(path.read_text())
        exact = [node for node in ast.walk(tree) if getattr(node, "name", "") == "_fit_without_noise"]
        skipped = {line for node in exact for line in range(node.lineno, node.end_lineno + 1)}
        nodes = [node for node in ast.walk(tree) if makes_release(node) or draws(node)]
        found += [(str(path), node.lineno) for node in nodes if node.lineno not in skipped]
    return found


def run_once(attacks):
    """Run each attack once, every second one on the neighbour; the lines of the package that ran."""
    ran = set()
    watched = {path for path, _ in places()}

    def trace(frame, event, argument):
        if frame.f_code.co_filename not in watched:
            return None
        ran.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.settrace(trace)
        try:
            for number, attack in enumerate(attacks):
                attack.seen(number % 2 == 1)
        finally:
            sys.settrace(before)
    return ran


@pytest.mark.slow
def test_every_line_that_draws_noise_or_makes_a_release_is_run_by_an_attack():
    missing = set(places()) - run_once(ATTACKS)
    assert not missing
    assert len(places()) > 15


def test_noise_is_drawn_by_its_module_alone():
    """Draws are found as ``noise.name``: nobody imports them under another."""
    for path in SOURCE.rglob("*.py"):
        if ELSEWHERE & set(path.relative_to(SOURCE).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpfast.noise"):
                assert not DRAWS & {one.name for one in node.names}, path


def estimators():
    return [registry.estimator(name) for name in registry.ESTIMATORS]


def protections(cls):
    """Choices that an estimator offers of how a release is protected."""
    return {name: values for name, values in choices(cls).items() if name not in NOT_PRIVACY}


def attacked(cls):
    return [one.get_params() for attack in ATTACKS for one in attack.estimators if type(one) is cls]


@pytest.mark.parametrize("cls", estimators(), ids=lambda cls: cls.__name__)
def test_every_choice_that_an_estimator_offers_is_attacked(cls):
    for name, values in protections(cls).items():
        seen = {one[name] for one in attacked(cls) if isinstance(one[name], str | bool)}
        assert values <= seen, (name, values - seen)


@pytest.mark.parametrize("cls", estimators(), ids=lambda cls: cls.__name__)
def test_every_relation_and_kind_of_claim_that_an_estimator_accepts_is_attacked(cls):
    """What is attacked under one relation, or with one delta, is so under all that it may be asked for with.

    Printed calibrations claim to be guaranteed under some only, which is not known before they are run.
    """
    names = [name for name in protections(cls) if name != "adjacency"]

    def kind(one):
        # A function of the caller's votes in the lasso's place.
        one = one | ({"selector": "sample_aggregate"} if callable(one.get("selector")) else {})
        return tuple(one[name] if isinstance(one[name], str | bool) else type(one[name]).__name__ for name in names)

    found = {(kind(one), one["adjacency"], one["delta"] > 0.0) for one in attacked(cls)}
    for one in attacked(cls):
        if one["calibration"] != "sound":
            continue
        for adjacency, delta in itertools.product(("replace_one", "add_remove"), (0.0, 1e-5)):
            estimator = cls(**(one | {"adjacency": adjacency, "delta": delta}))
            try:
                estimator._checked()
            except ValueError:
                continue
            assert (kind(one), adjacency, delta > 0.0) in found


def test_every_loss_is_attacked():
    base = solvers.GeneralisedLinearLoss
    kinds = {cls for cls in vars(solvers).values() if isinstance(cls, type) and issubclass(cls, base)} - {base}
    attacked = [one._with_placeholders() for attack in ATTACKS for one in attack.estimators if hasattr(one, "loss")]
    seen = {type(one._resolved_loss) for one in attacked}
    assert kinds <= seen
