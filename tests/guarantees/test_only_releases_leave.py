"""What a fit leaves behind follows from its releases alone: two tables that are released alike are fitted alike.

The noise is replaced by numbers that know nothing of what they are added to. Then a fit of any other table, under
add/remove one of another length too, must end with the same attributes and the same records, to the bit: whatever
differed would have come from the data past the noise.
"""

import itertools

import numpy as np
import pytest
from catalogue import FITS, VARIED, people

from dpfast import noise

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]


@pytest.fixture
def noise_alone(monkeypatch):
    """Let every draw return numbers by its place in the order of draws, not by its scale or centre."""
    draws = itertools.count()

    def numbers(size):
        return np.random.default_rng(next(draws)).normal(size=size)

    class Picked:
        def __init__(self, rate, source, **options):
            self.index = 1

        def update(self, scores):
            pass

    monkeypatch.setattr(noise, "gaussian", lambda scale, size, source, *, center=None, grid=None: numbers(size))
    monkeypatch.setattr(noise, "laplace", lambda scale, size, source, *, center=None, grid=None: numbers(size))
    monkeypatch.setattr(noise, "l2_laplace", lambda scale, dim, source, *, center=None, grid=None: numbers(dim))
    monkeypatch.setattr(noise, "ExponentialPick", Picked)

    def again():
        nonlocal draws
        draws = itertools.count()

    return again


def plain(value):
    """What a value consists of, down to numbers and text, to be compared to the bit."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, repr(value.tolist()))  # one NaN is as another
    if hasattr(value, "to_dict"):
        left = {name: entry for name, entry in value.to_dict().items() if name not in ("created", "time", "values")}
        return (left, {name: plain(array) for name, array in value.values.items()})
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    return repr(value)


def left_behind(fitted):
    """All that a fit keeps: of an estimator, or of the batches of a repeated fit."""
    kept = vars(fitted) if hasattr(fitted, "fit") else {f"batch {k}": vars(one) for k, one in enumerate(fitted)}
    left = {name: plain(value) for name, value in kept.items()}
    if hasattr(fitted, "summary"):
        left["table"], left["page"] = fitted.summary().to_csv(), fitted._repr_html_()
    return left


TRIED = [name for name, fit in VARIED.items() if not fit.bare_minimiser]


# Of the same fits under other claims every second one is slow.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in FITS or k % 2 == 0 else [pytest.mark.slow]) for k, n in enumerate(TRIED)],
)
def test_another_table_that_is_released_alike_is_fitted_alike(name, noise_alone):
    fit = VARIED[name]
    x, y = people(30, 1)
    # Under add/remove longer, as even their number is private. On one side: some states are visited by nobody.
    other_x, other_y = people(30 + 3 * (fit.estimator.adjacency == "add_remove"), 2)
    other_x = -np.abs(other_x)
    kept = []
    for table in ((x, y), (other_x, y if fit.public_outcomes else other_y)):
        noise_alone()
        kept.append(left_behind(fit(*table)))
    assert kept[0].keys() == kept[1].keys()
    for attribute in kept[0]:
        assert kept[0][attribute] == kept[1][attribute], attribute
