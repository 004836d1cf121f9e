"""Every fit from rows: how they lie in memory and come in blocks changes nothing, and no entry that is finite warns."""

import itertools
import warnings

import numpy as np
import pytest
from catalogue import FITS, releases_of, thinned
from reference.rows import ARRAYS, TABLES

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

N, WIDTH = 70, 9
SEEDED = {"random_state": 1, "n_threads": 1}


def table(n=N, width=WIDTH):
    """Rows that are clipped and rows that are not, whose norms another order of adding would change."""
    rng = np.random.default_rng(5)
    return rng.normal(size=(n, width)) * 10.0 ** rng.uniform(-1.0, 1.0, size=(n, 1))


X = table()
Y = np.clip(X[:, 0], -3.0, 3.0)
#: What streams takes blocks of any length; what is in memory, one table; panels are tables too.
STREAMED = {name: fit for name, fit in FITS.items() if fit.table == "blocks"}
TAKEN_AS_THEY_ARE = {name: fit for name, fit in FITS.items() if fit.table}


def released(fitted):
    return {key: value.tobytes() for release in releases_of(fitted) for key, value in release.values.items()}


@pytest.mark.parametrize("name", TAKEN_AS_THEY_ARE)
def test_a_fit_does_not_depend_on_the_layout_of_its_table(name):
    fit = TAKEN_AS_THEY_ARE[name]
    expected = released(fit(X, Y, **SEEDED))
    for layout, lay in TABLES.items():
        if layout == "Arrow table" and fit.table != "blocks":
            continue
        assert released(fit(lay(X), Y, **SEEDED)) == expected, layout
    single = X.astype(np.float32)
    assert released(fit(single, Y, **SEEDED)) == released(fit(single.astype(np.float64), Y, **SEEDED))


@pytest.mark.parametrize("name", STREAMED)
def test_a_fit_does_not_depend_on_the_blocks_that_rows_come_in(name):
    fit = STREAMED[name]
    expected, y = released(fit(X, Y, **SEEDED)), fit.outcomes(Y)
    for size, layout in itertools.product((1, 2, 3, N), ("C order", "Fortran order", "negative strides")):
        parts = [slice(a, a + size) for a in range(0, N, size)]
        blocks = ((ARRAYS[layout](X[part]), None if y is None else y[part]) for part in parts)
        if getattr(fit.estimator, "refine", 0):
            # Steps read a table again, which an iterator does not allow.
            blocks = list(blocks)
        assert released(fit.new(**SEEDED).fit(blocks, None)) == expected, (size, layout)


EXTREMES = {
    "huge": np.full(WIDTH, 1e308),
    "tiny": np.full(WIDTH, 5e-324),
    "zeros": np.zeros(WIDTH),
    "mixed": np.resize([1e308, 5e-324, -1.7e308, 0.0, 1e-160, 2.0**512], WIDTH),
    "of middle size": np.full(WIDTH, 1e-160),
}


def quietly(fit):
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return fit()


@pytest.mark.parametrize(("name", "row"), thinned(TAKEN_AS_THEY_ARE, EXTREMES, 2))
def test_a_fit_does_not_warn_of_a_row(name, row):
    fit, x, y = TAKEN_AS_THEY_ARE[name], X.copy(), Y.copy()
    x[3] = EXTREMES[row]
    if not fit.public_outcomes:
        y[3] = EXTREMES[row][0]
    for lay in (np.ascontiguousarray, np.asfortranarray):
        fitted = quietly(lambda lay=lay: fit(lay(x), y, **SEEDED))
        assert all(np.isfinite(value).all() for release in releases_of(fitted) for value in release.values.values())
        assert np.isfinite(getattr(fitted, "coef_", 0.0)).all()
