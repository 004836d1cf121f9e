"""What dpfast's kernels are to code outside of it: which are cimported, and that it works."""

import os
import re
import subprocess
import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import dpfast
from dpfast import noise, privacy, solvers, statistics
from dpfast.kernels.first_visits import sum_inverse_squares

FOLDER = Path(dpfast.get_include())
#: Cimported by others: small problems and scalars, called many times within their own loops; and, of rows, the sums.
FOR_OTHERS = {"blas", "first_visits", "gram", "limbs", "normal", "projections", "row_maps"}
#: Called from Python, a whole table or vector at a time, or drawing noise, which `dpfast.noise` must see to.
LEFT_OUT = {
    "coded_gram",
    "coded_step",
    "draws",
    "descent",
    "people",
    "residual_step",
    "sizes",
    "sparse_gram",
    "support_scores",
}

PAGE = Path(__file__).parents[2] / "docs" / "api" / "kernels.md"


def blocks_of(language):
    """The page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


#: What draws noise, and so is no kernel.
NOISE = FOLDER.parent / "noise" / "cython_noise.pxd"


def declared(path):
    """Names of a .pxd that others may use: functions and classes of Cython, and inline ones of a header."""
    text = path.read_text()
    return set(re.findall(r"^c(?:p)?def (?:class )?(?:[\w ]+ )?(\w+)[(:]", text, re.MULTILINE))


def test_every_kernel_is_for_others_or_said_to_be_left_out():
    kernels = {path.stem for path in FOLDER.glob("*.pyx")} or FOR_OTHERS | LEFT_OUT  # a wheel has no sources
    assert kernels == FOR_OTHERS | LEFT_OUT
    declarations = {path.stem for path in FOLDER.glob("*.pxd")}
    assert {name for name in declarations if not name.startswith("_")} == FOR_OTHERS


def test_what_others_see_is_in_a_library_or_inline():
    """Functions of C that are compiled into one kernel only cannot be linked: they are in .pxd of private names."""
    for name in FOR_OTHERS - {"limbs"}:
        text = (FOLDER / f"{name}.pxd").read_text()
        externs = re.findall(r"^cdef extern .*:\n((?:(?:    .*)?\n)+)", text, re.MULTILINE)
        assert not any("(" in extern for extern in externs), name


def test_headers_include_only_headers_that_are_there():
    for path in [*FOLDER.glob("*.h"), *FOLDER.glob("*.pxd")]:
        for header in re.findall(r'^(?:#include|cdef extern from) "(.*)"', path.read_text(), re.MULTILINE):
            assert (FOLDER / header).exists(), (path.name, header)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    pytest.importorskip("Cython")
    folder = tmp_path_factory.mktemp("outside")
    source = folder / "outside.pyx"
    source.write_text("\n".join(blocks_of("cython")))
    # Where an installed package is found by itself, one that is installed for editing is not.
    subprocess.run([sys.executable, "-m", "cython", "-3", f"-I{FOLDER.parents[1]}", source], check=True)
    library = folder / f"outside{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = ["cc", "-shared", "-fPIC", "-O1", f"-I{sysconfig.get_path('include')}", f"-I{FOLDER}"]
    subprocess.run([*compiler, folder / "outside.c", "-o", library], check=True)
    spec = spec_from_file_location("outside", library)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_package_outside_cimports_each_kernel_that_is_for_others(outside):
    for path in [NOISE, *(FOLDER / f"{name}.pxd" for name in FOR_OTHERS)]:
        module = f"dpfast.{path.parent.name}.{path.stem}"
        examples = [block for block in blocks_of("cython") if f"from {module} cimport" in block]
        assert declared(path) <= set(re.findall(r"\w+", "".join(examples))), module

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    square, cross = outside.products(a, b)
    np.testing.assert_allclose(square, np.triu(a.T @ a), rtol=1e-12)
    np.testing.assert_allclose(cross, a.T @ b, rtol=1e-12)

    from dpfast.kernels.row_maps import RowMapKernel

    sums = statistics.gram(a, bound_x=2.0)
    exact = sums.exact_xx
    status, (high, low) = outside.gram(a, 2.0, sums.grid.exponent_x)
    assert status == 0
    assert np.array_equal(high, exact.high)
    assert np.array_equal(low, exact.low)
    assert outside.as_double(int(high[0, 0]), int(low[0, 0])) == float((int(high[0, 0]) << 64) + int(low[0, 0]))

    row_map, whole = RowMapKernel(4, bound=1.0), np.empty((50, 4))
    row_map.map_rows(a, whole, 0, 50)
    assert np.array_equal(outside.mapped(row_map, a), whole)

    delta, mu, epsilon = outside.scalars(2.0, 1.0, 1e-6)
    assert delta == pytest.approx(privacy.gaussian_delta(2.0, 1.0, sensitivity=1.0), rel=1e-12)
    assert 1.0 / mu == pytest.approx(privacy.gaussian_scale(1.0, 1e-6, sensitivity=1.0), rel=1e-12)
    assert privacy.gaussian_delta(2.0, epsilon, sensitivity=1.0) == pytest.approx(1e-6, rel=1e-6)

    weights, counts = rng.random(600), rng.integers(1, 50, 600).astype(np.float64)
    assert outside.inverse_squares(weights, counts, 3.0) == sum_inverse_squares(weights, counts, 3.0)
    assert np.array_equal(outside.onto_l1_ball(a[0], 0.5), solvers.L1Ball(0.5).project(a[0]))
    eigenvalues = np.sort(rng.random(4))
    expected = solvers.quadratic_over_sphere(eigenvalues, a[1], 1.0)
    assert np.array_equal(outside.on_sphere(eigenvalues, a[1], 1.0), expected)


@pytest.mark.slow
def test_noise_is_drawn_from_outside_as_from_python(outside):
    numbers = np.array([1, 7, 3, -4, 2**40])
    drawn = outside.released_sums(numbers, 5, 3.0, noise.SeededSource(0))
    source = noise.SeededSource(0)
    expected = [sampler(3.0, 1, source, center=np.array([14.0]))[0] for sampler in (noise.gaussian, noise.laplace)]
    assert drawn == (*expected, 14 + noise.discrete_gaussian(3.0, 1, source)[0])
    with pytest.raises(ValueError, match="scale must be positive"):
        outside.released_sums(numbers, 5, 0.0, source)
    with pytest.raises(TypeError, match="source must be a SecureSource"):
        outside.released_sums(numbers, 5, 3.0, np.random.default_rng(0))
    reservation = Mock()
    outside.released_sums(numbers, 5, 3.0, noise.SecureSource(reservation))
    assert reservation.draw.call_count == 3


@pytest.mark.slow
def test_the_recipes_of_the_page_build_its_example(tmp_path):
    """By setuptools and by meson, from the page alone."""
    pytest.importorskip("Cython")
    for module, tool in (("setuptools", "setup.py"), ("mesonbuild", "meson.build")):
        pytest.importorskip(module)
        folder = tmp_path / module
        folder.mkdir()
        (folder / "smallest.pyx").write_text("\n".join(blocks_of("cython")))
        (recipe,) = blocks_of("py" if tool == "setup.py" else "meson")
        (folder / tool).write_text(recipe)
        # Its tools beside this Python, and this dpfast.
        paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(FOLDER.parents[1])}
        lines = [["setup.py", "-q", "build_ext", "--inplace"]]
        if module == "mesonbuild":
            lines = [["-m", "mesonbuild.mesonmain", "setup", "b"], ["-m", "mesonbuild.mesonmain", "compile", "-C", "b"]]
        for line in lines:
            subprocess.run([sys.executable, *line], cwd=folder, env=os.environ | paths, check=True)
        library = next(folder.rglob("smallest*.so"))
        spec = spec_from_file_location("smallest", library)
        built = module_from_spec(spec)
        spec.loader.exec_module(built)
        np.testing.assert_allclose(built.onto_l1_ball(np.array([3.0, -4.0]), 2.0), [0.5, -1.5])
