"""Every public fit on tables of hostile people: what is said, warned, printed and shown is that of any other table.

Any two tables are joined by a chain of neighbours, so all of them are held to what the first one does.
"""

import itertools
import os
import tempfile
import traceback
import warnings
from contextlib import contextmanager

import catalogue
import numpy as np
import pytest
from policy_evaluation.fits import N_STATES, walks
from sklearn.base import is_classifier

from dpfast import MultiOutcomeRidge, Privacy, Release
from dpfast.convex_erm import objective_perturbation
from dpfast.io import Columns
from dpfast.jobs import run
from dpfast.privacy.guarantee import ReleasedUtilityWarning
from dpfast.solvers import SmoothedHuber
from dpfast.statistics import GramAccumulator, Trajectories, first_visit_returns, gram, sufficient_statistics

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

N, P = 24, 4
EXTREME = (1e308, -1e308, 1e200, 1e155, 5e-324, 1e-310, 1e-160, 0.0, -0.0, 1.0, np.nextafter(1.0, 2.0))


def table():
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (N, P)), rng.uniform(-1, 1, N)


def tables():
    """Twenty-odd tables of as many rows, and what they are called."""
    yield "usual", *table()
    for value in EXTREME:
        x, y = table()
        x[0], y[0] = value, value
        yield f"a row of {value!r}", x, y
    x, y = table()
    x[0], y[0] = np.resize([1e308, -1e308], P), -1e308
    yield "a row of both ends", x, y
    x, y = table()
    x[0], y[0] = np.eye(P)[0] * 1e308, 5e-324
    yield "a row along an axis", x, y
    x, y = table()
    yield "the last row of 1e308", np.vstack([x[:-1], np.full(P, 1e308)]), np.append(y[:-1], 1e308)
    yield "all rows alike", np.tile(x[:1], (N, 1)), np.tile(y[:1], N)
    yield "all of 1e308", np.full((N, P), 1e308), np.full(N, 1e308)
    yield "all of 0", np.zeros((N, P)), np.zeros(N)
    yield "all of 5e-324", np.full((N, P), 5e-324), np.full(N, 5e-324)
    yield "collinear", np.tile(x[:, :1], (1, P)), x[:, 0].copy()
    yield "all on one side", np.abs(x), np.abs(y) + 0.5
    yield "all beyond the bounds", 1e6 * x, 1e6 * y
    yield "columns of 1e-300 and 1e300", x * np.resize([1e-300, 1e300], P), 1e-300 * y
    yield "float32", np.where(np.arange(N)[:, None] == 0, np.finfo(np.float32).max, x).astype(np.float32), y
    integers = np.where(np.arange(N)[:, None] == 0, np.iinfo(np.int64).min, np.sign(x)).astype(np.int64)
    yield "int64", integers, np.where(np.arange(N) == 0, np.iinfo(np.int64).max, 0)
    yield "bool", x > 0, y > 0
    yield "columns in memory, reversed", np.asfortranarray(x)[::-1], y[::-1]


def private_tables():
    """Tables of another number of rows, where that is private too: the empty one is one."""
    x, y = table()
    for n in (N - 1, N + 1, 2 * N, 2, 1, 0):
        yield f"{n} rows", np.resize(x, (n, P)), np.resize(y, n)
    yield "one row of 1e308", np.full((1, P), 1e308), np.full(1, 1e308)


SEEDED = {"random_state": 0, "n_threads": 1}
ONE = {"bound_x": 1.0, "bound_y": 1.0}
ADD = {"adjacency": "add_remove"}


def ridge(**options):
    return MultiOutcomeRidge(1.0, 1e-6, **ONE | SEEDED | options)


def framed(x, y):
    return pd.DataFrame(np.asarray(x, np.float64), columns=list("abcd")).assign(y=np.asarray(y, np.float64))


def columns_of(source, **options):
    return ridge(**options).fit(Columns(list("abcd"), ["y"]).encode(source), None)


def episodes(x, y):
    built = walks(x)
    bounds = zip(built.offsets[:-1], built.offsets[1:], strict=True)
    steps = [list(zip(built.states[i:j].tolist(), built.rewards[i:j].tolist(), strict=True)) for i, j in bounds]
    return first_visit_returns(Trajectories.from_episodes(steps, N_STATES), 0.9, return_range=(0.0, 1.0))


def in_a_file(suffix, **options):
    def fit(x, y):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, f"t.{suffix}")
            framed(x, y).to_csv(path, index=False) if suffix == "csv" else framed(x, y).to_parquet(path)
            return columns_of(path, **options)

    return fit


JOB = """
[input]
path = "t.csv"
[features]
a = "number"
b = {low = 0, high = 1}
[outcomes]
y = "number"
[estimator]
kind = "multi_outcome_ridge"
bound_y = 1.0
random_state = 1
adjacency = "%s"
[privacy]
epsilon = 1.0
delta = 1e-6
[output]
folder = "out"
"""


def job(adjacency="replace_one"):
    def fit(x, y):
        from pathlib import Path

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            content = JOB.replace('a = "number"', "a = {low = 0, high = 1}") % adjacency
            (folder / "job.toml").write_text(content)
            pd.DataFrame(np.asarray(x, np.float64)[:, :2], columns=["a", "b"]).assign(
                y=np.asarray(y, np.float64)
            ).to_csv(folder / "t.csv", index=False)
            said = run(folder / "job.toml").replace(name, "")
            return said, sorted(path.name for path in (folder / "out").iterdir())

    return fit


def readers():
    """Fits of what is read from files, and statistics, which are the data owner's: as silent, whatever stands there."""
    for options in ({}, ADD):
        name = options.get("adjacency", "replace_one")
        yield f"a CSV file, {name}", in_a_file("csv", **options), options
        yield f"a Parquet file, {name}", in_a_file("parquet", **options), options
        yield f"a job, {name}", job(name), options
    yield (
        "a minimiser",
        lambda x, y: objective_perturbation(x, y, loss=SmoothedHuber(), privacy=Privacy(1.0, 1e-6), bound_x=1.0),
        {},
    )
    yield "sums", lambda x, y: repr(gram(x, y, **ONE)), ADD
    yield "accumulator", lambda x, y: repr(GramAccumulator(P, 1, **ONE, n_threads=2).update(x, y)), ADD
    yield "sums of people", lambda x, y: repr(gram(x, y, **ONE, groups=np.arange(len(x)) // 2, max_rows=2)), ADD
    yield "returns", lambda x, y: repr(first_visit_returns(walks(x), 0.9, return_range=(0.0, 1.0))), ADD
    yield "episodes", lambda x, y: repr(episodes(x, y)), ADD
    yield (
        "statistics of visits",
        lambda x, y: repr(sufficient_statistics(walks(x), 0.9, return_range=(0.0, 1.0), horizon=P)),
        ADD,
    )
    yield "a frame of declared columns", lambda x, y: columns_of(framed(x, y), **ADD), ADD


def seeded(fit):
    def run(x, y):
        fitted = fit(x, y, **SEEDED)
        if fit.releases is None:
            # How many follow, and which, hangs on what was released before.
            fitted.releases_ = fitted.releases_[:1]
        return fitted

    return run


FITS = {name: (seeded(fit), {"adjacency": fit.estimator.adjacency}) for name, fit in catalogue.RELATED.items()}
FITS |= {name: (fit, options) for name, fit, options in readers()}


def quick(names):
    """One fit of each family, under both relations, and every other one of the rest; all others are slow tests."""
    quick_ones = {*catalogue.SOME, *list(catalogue.FITS)[::2], *(f"{name}, add_remove" for name in catalogue.SOME)}
    slow = catalogue.RELATED.keys() - quick_ones
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in names]


def shape_of(value):
    """Return everything of a result but the numbers."""
    if isinstance(value, np.ndarray):
        return ("array", value.shape, str(value.dtype))
    if isinstance(value, Release):
        parts = {name: shape_of(array) for name, array in value.values.items()}
        return value.mechanism, value.privacy, parts, sorted(value.scales)
    if isinstance(value, float):
        return "float"
    if isinstance(value, dict):
        return {name: shape_of(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shape_of(each) for each in value]
    if value is None or isinstance(value, bool | int | str | Privacy):
        return value
    public = {name: each for name, each in vars(value).items() if hasattr(type(value), "fit") or name[0] != "_"}
    public.pop("caution_", None)  # a warning of what was released, see below
    return type(value).__name__, {name: shape_of(each) for name, each in public.items()}


@contextmanager
def printed():
    """Catch what is written to the process's own standard output and error."""
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(1), os.dup(2)]
        said = []
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            for stream, own in zip((1, 2), kept, strict=True):
                os.dup2(own, stream)
                os.close(own)
            file.seek(0)
            said.append(file.read())


def observed(fit, x, y):
    """Return all that somebody sees who sees no value: shapes, texts of errors with their causes, warnings, output."""
    result, errors = None, []
    with printed() as said, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = shape_of(fit(x, y))
        except Exception as error:
            chain = traceback.TracebackException.from_exception(error)
            while chain is not None:
                errors.append((chain.exc_type.__name__, str(chain), getattr(chain, "__notes__", None)))
                chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    # What was released may say that it is mostly noise.
    told = [one for one in caught if not issubclass(one.category, ReleasedUtilityWarning)]
    return result, errors, [(one.category, str(one.message)) for one in told], said


def every_table(options):
    yield from tables()
    if options.get("adjacency") == "add_remove":
        yield from private_tables()


def in_parts(names):
    """A third of the tables for each of the quick fits, which is another one for the next fit; the rest are slow."""
    return [
        pytest.param(*one.values, part, marks=[*one.marks, *([] if part == place % 3 else [pytest.mark.slow])])
        for place, one in enumerate(quick(names))
        for part in range(3)
    ]


@pytest.mark.parametrize(("name", "part"), in_parts(FITS))
def test_nothing_is_said_of_a_table(name, part):
    fit, options = FITS[name]
    expected = observed(fit, *table())
    assert expected[1] == [], expected
    differing, n = [], 0
    for title, x, y in itertools.islice(every_table(options), 1 + part, None, 3):
        n += 1
        if (seen := observed(fit, x, y)) != expected:
            differing.append((title, seen))
    assert not differing, (expected, differing)
    assert n >= 8


@pytest.mark.parametrize(("name", "part"), in_parts(FITS))
def test_nothing_is_said_where_numpy_is_to_raise(name, part):
    """Errors of floating point that the caller asked for are none of a person's."""
    fit, options = FITS[name]
    expected = observed(fit, *table())
    picked = ("a row of 1e+308", "a row of 5e-324", "all of 1e308", "collinear", "0 rows", "int64")
    with np.errstate(all="raise"):
        for title, x, y in every_table(options):
            if title in picked[part::3]:
                assert observed(fit, x, y) == expected, title


def unfit(n, text):
    """Tables that are none of numbers, or whose rows are of different lengths."""
    x, y = catalogue.people(n)
    yield "outcomes of text", x, [text] * n
    yield "outcomes, one of them text", x, [*y[1:].tolist(), text]
    yield "rows of one text", [text] * n, y
    yield "rows of text", [[text] * x.shape[1]] * n, y
    yield "a shorter row", [*x[1:].tolist(), [1.0]], y
    yield "an outcome too many", x, [*([[one] for one in y[1:]]), [1.0, 2.0]]
    yield "an outcome that is a list", x, [*y[1:].tolist(), [1.0, 2.0]]


@pytest.mark.parametrize("name", [name for name, fit in catalogue.FITS.items() if fit.table not in (None, "panel")])
def test_what_are_no_numbers_is_refused_in_words_that_do_not_depend_on_them(name):
    fit = catalogue.FITS[name]
    takes_none = fit.outcomes(catalogue.people(20)[1]) is None
    said = {}
    for n, text in ((20, "-25.7"), (31, "12.5*"), (32, "secret.txt"), (33, "no path " * 60), (34, "x\0y"), (35, "")):
        for title, x, y in unfit(n, text):
            # Labels may be text: they are none that is declared. And there may be no outcomes.
            if "outcome" in title and (is_classifier(fit.estimator) or takes_none):
                continue
            with pytest.raises((TypeError, ValueError)) as refused:
                fit(x, y)
            said.setdefault(title, set()).add(f"{refused.type.__name__}: {refused.value}")
    assert all(len(messages) == 1 for messages in said.values()), said
