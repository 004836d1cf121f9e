"""What a user sees of the package as a whole: names, import cost, README, metadata."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from pages import python_blocks

import dpfast
from dpfast import registry

ROOT = Path(__file__).parents[1]


def test_public_names_import():
    for name in dpfast.__all__:
        assert getattr(dpfast, name).__name__ == name
    assert set(dpfast.__all__) <= set(dir(dpfast))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = dpfast.nonsense


def test_version_is_that_of_the_distribution():
    assert dpfast.__version__ == metadata.version("dpfast")


def test_the_version_stands_in_one_place_and_its_changes_are_told():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == version
    for name in ("meson.build", "CITATION.cff", "docs/conf.py", "src/dpfast/__init__.py"):
        assert version not in (ROOT / name).read_text(), name


def test_what_is_tested_as_oldest_is_what_is_demanded():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    demands = project["build-system"]["requires"] + project["project"]["dependencies"]
    demands += [line for extra in project["project"]["optional-dependencies"].values() for line in extra]
    tested = {}
    for line in (ROOT / "constraints" / "oldest.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            tested[name] = Version(version)
    for demand in map(Requirement, demands):
        for bound in (part for part in demand.specifier if part.operator == ">="):
            assert Version(bound.version) == tested[demand.name], demand


def test_every_module_imports_where_nothing_is_that_only_posix_has():
    """As on Windows, once what dpfast builds on is there: types are held to other systems by mypy's --platform."""
    code = """
import asyncio, importlib, multiprocessing.pool, os, pkgutil, socket, subprocess, sys, tempfile
import cryptography, joblib, matplotlib.pyplot, numpy, pandas, pyarrow.dataset, scipy.linalg, sklearn.linear_model, tqdm
from scipy import optimize, special, stats
from sklearn import base, datasets, model_selection, pipeline, utils
for name in ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "pty"):
    sys.modules[name] = None
for name in dir(os):
    if name.startswith(("fork", "posix_", "sched_", "POSIX_", "SCHED_", "getuid", "geteuid")):
        delattr(os, name)
for name in ("O_DIRECTORY", "O_CLOEXEC", "fchmod", "register_at_fork", "uname", "sysconf", "statvfs", "killpg"):
    delattr(os, name)
import dpfast
for module in pkgutil.walk_packages(dpfast.__path__, "dpfast."):
    if module.name != "dpfast.__main__":
        importlib.import_module(module.name)
dpfast.MultiOutcomeRidge(epsilon=1.0, bound_x=1.0, bound_y=1.0, n_threads=2).fit(numpy.eye(9), numpy.eye(9))
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def loaded(code, before):
    """Return the modules that code loads after other code, without Python's own."""
    code = f"import sys\n{before}\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name for name in run.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}


BACKEND = "import dpfast.statistics, dpfast.kernels, dpfast.noise, dpfast.privacy"
# What extensions made by Cython leave among the modules, and what numpy.typing loads.
NO_LIBRARY = re.compile(r"cython_runtime|_cython_\w+|numpy\.typing|numpy\._typing\..*|__mp_main__")


def test_importing_the_folders_of_the_backend_loads_what_shows_their_names():
    folders = ["kernels", "noise", "privacy", "statistics", "registry"]
    assert loaded(BACKEND, "import numpy") == {"dpfast", *(f"dpfast.{name}" for name in folders)}


def test_the_names_of_the_backend_load_neither_scikit_learn_nor_scipy_nor_any_extra():
    names = "\n".join(f"from dpfast.{folder} import *" for folder in ("statistics", "noise", "privacy"))
    found = {name for name in loaded(names, "import numpy") if not NO_LIBRARY.fullmatch(name)}
    assert {name.partition(".")[0] for name in found} == {"dpfast"}
    assert not [name for name in found if name.split(".")[1:2] in (["solvers"], ["releases"], ["ledger"], ["plotting"])]


@pytest.mark.parametrize("name", registry.ESTIMATORS)
def test_an_estimator_loads_of_other_libraries_what_its_base_class_loads(name):
    found = loaded(f"from dpfast import {name}", "import sklearn.base")
    others = {name for name in found if name.partition(".")[0] != "dpfast" and not NO_LIBRARY.fullmatch(name)}
    assert others <= {"sklearn.utils.multiclass", "sklearn.utils._unique"}  # the targets of a classifier
    families = {one.split(".")[1] for one in found if one.startswith("dpfast.")} & set(registry.FAMILIES)
    assert families == {registry.ESTIMATORS[name]}
    assert not families & {"papers", "attack", "audit", "jobs", "demo", "cli"}


def test_the_wheel_carries_types_and_declarations():
    files = {str(path) for path in metadata.files("dpfast") or []}
    if any(path.endswith("__editable__.dpfast.py") or "editable" in path for path in files):
        pytest.skip("an editable install lists no package files")
    carried = "py.typed", "kernels/normal.pyi", "kernels/normal.pxd", "kernels/gram.h", "noise/cython_noise.pxd"
    for name in carried:
        assert f"dpfast/{name}" in files


def test_only_noise_draws_randomness():
    """The import rule sees whole packages; NumPy's generators are a part of one.

    Synthetic data may use them, since by the import rule nothing that releases anything imports `datasets`.
    """
    package = Path(dpfast.__file__).parent
    for path in package.rglob("*.py"):
        if path.parent.name not in ("noise", "datasets"):
            code = re.sub(r"^ *(>>>|\.\.\.) .*$", "", path.read_text(), flags=re.MULTILINE)
            assert not re.search(r"(np|numpy)\.random|default_rng|urandom", code), path


def test_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(ROOT / "README.md")
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
