"""What a user sees of the package as a whole: names, import cost, README, metadata."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
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
