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


def test_importing_loads_neither_scikit_learn_nor_any_extra():
    heavy = {"sklearn", "pandas", "pyarrow", "dask", "matplotlib", "tqdm", "mpmath", "scipy.optimize", "scipy.stats"}
    code = "import sys, dpfast, dpfast.privacy, dpfast.noise, dpfast.statistics; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy.intersection(loaded)


def test_the_wheel_carries_types_and_declarations():
    files = {str(path) for path in metadata.files("dpfast") or []}
    if any(path.endswith("__editable__.dpfast.py") or "editable" in path for path in files):
        pytest.skip("an editable install lists no package files")
    for name in ("dpfast/py.typed", "dpfast/kernels/normal.pyi", "dpfast/kernels/normal.pxd", "dpfast/kernels/gram.h"):
        assert name in files


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
