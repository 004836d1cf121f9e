"""Every public fit on tables of hostile people: what is said, warned, printed and shown is that of any other table.

Any two tables are joined by a chain of neighbours, so all of them are held to what the first one does.
"""

import os
import tempfile
import traceback
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

from dpfast import (
    MultiOutcomeRidge,
    ObjectivePerturbationClassifier,
    ObjectivePerturbationRegressor,
    PolicyEvaluation,
    Privacy,
    Release,
    SparseRegression,
    SyntheticControl,
)
from dpfast.convex_erm import objective_perturbation
from dpfast.io import Columns
from dpfast.jobs import run
from dpfast.solvers import Box, ElasticNet, L1Ball, L2Ball, Lasso, SmoothedHinge, SmoothedHuber
from dpfast.statistics import GramAccumulator, Trajectories, first_visit_returns, gram, sufficient_statistics

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

N, P = 24, 4
TARGET = np.full(P, 0.5)
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


KW = {"random_state": 0, "n_threads": 1}
ONE = {"bound_x": 1.0, "bound_y": 1.0}
ADD = {"adjacency": "add_remove"}
BOTH = ({}, ADD)


def labels(y):
    return (np.asarray(y) > 0).astype(int)


def regression(epsilon=1.0, delta=1e-6, **options):
    return lambda x, y: ObjectivePerturbationRegressor(epsilon, delta, **ONE, **KW | options).fit(x, y)


def classification(epsilon=1.0, delta=1e-6, **options):
    options = {"bound_x": 1.0, "classes": [0, 1]} | options
    return lambda x, y: ObjectivePerturbationClassifier(epsilon, delta, **KW | options).fit(x, labels(y))


def ridge(delta=1e-6, **options):
    return lambda x, y: MultiOutcomeRidge(1.0, delta, **ONE | KW | options).fit(x, np.column_stack([y, y]))


def people(**options):
    """The first two rows are one person's, and so on."""
    return lambda x, y: MultiOutcomeRidge(1.0, 1e-6, **ONE | KW | options).fit(
        x, y, groups=np.arange(len(x)) // 2, max_rows=2
    )


def of_gram(accumulate, **options):
    return lambda x, y: MultiOutcomeRidge(1.0, 1e-6, **ONE | KW | options).fit_gram(accumulate(x, y))


def accumulated(x, y):
    half = len(x) // 2
    first = GramAccumulator(P, 1, **ONE, n_threads=2).update(x[:half], y[:half])
    return first.merge(GramAccumulator(P, 1, **ONE).update(x[half:], y[half:])).gram()


def sparse(**options):
    return lambda x, y: SparseRegression(1.0, 1e-6, n_nonzero=2, **KW | options).fit(x, y)


def control(**options):
    target = None if options.pop("alone", False) else TARGET
    return lambda x, y: SyntheticControl(1.0, 1e-6, **KW | options).fit(x, P - 1, target=target)


def long(**options):
    def fit(x, y):
        values = np.vstack([x, TARGET])
        frame = pd.DataFrame(
            {
                "unit": np.repeat(np.arange(len(values)), P),
                "time": np.tile(np.arange(P), len(values)),
                "value": values.ravel(),
            }
        )
        return SyntheticControl(1.0, 1e-6, **KW | options).fit_long(frame, "unit", "time", "value", len(x), P - 1)

    return fit


def walks(x, y):
    """One trajectory a row: its entries are rewards, the outcome says which states it visits."""
    states = (np.arange(P)[None, :] + (np.asarray(y) > 0)[:, None]) % 3
    rewards = np.clip(np.asarray(x, np.float64), -1e199, 1e199)
    return Trajectories(states.ravel(), rewards.ravel(), np.arange(len(x) + 1) * P, 3)


def policy(**options):
    options = {"gamma": 0.9, "horizon": P} | KW | options
    return lambda x, y: PolicyEvaluation(1.0, 1e-6, **options).fit(walks(x, y))


def episodes(x, y):
    built = walks(x, y)
    bounds = zip(built.offsets[:-1], built.offsets[1:], strict=True)
    steps = [list(zip(built.states[i:j].tolist(), built.rewards[i:j].tolist(), strict=True)) for i, j in bounds]
    return first_visit_returns(Trajectories.from_episodes(steps, 3), 0.9, return_range=(0.0, 1.0))


def framed(x, y):
    frame = pd.DataFrame(np.asarray(x, np.float64), columns=list("abcd")).assign(y=np.asarray(y, np.float64))
    return MultiOutcomeRidge(1.0, 1e-6, **ONE | KW | ADD).fit(Columns(list("abcd"), ["y"]).encode(frame), None)


def in_a_file(suffix, **options):
    def fit(x, y):
        frame = pd.DataFrame(np.asarray(x, np.float64), columns=list("abcd")).assign(y=np.asarray(y, np.float64))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, f"t.{suffix}")
            frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
            model = MultiOutcomeRidge(1.0, 1e-6, **ONE | KW | options)
            return model.fit(Columns(list("abcd"), ["y"]).encode(path), None)

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


def fits():
    for options in BOTH:
        name = options.get("adjacency", "replace_one")
        yield f"squared, {name}", regression(constraint=L2Ball(2.0), fit_intercept=True, **options), options
        yield (
            f"squared in an L1 ball, pure, {name}",
            regression(delta=0.0, constraint=L1Ball(2.0), penalty=Lasso(1.0), **options),
            options,
        )
        yield f"Huber, {name}", regression(loss="huber", **options), options
        yield (
            f"narrow Huber in a box, {name}",
            regression(
                10.0, loss=SmoothedHuber(1.0, 2.0**-7), constraint=Box(1.0), penalty=ElasticNet(0.1, 0.2), **options
            ),
            options,
        )
        yield f"logistic, {name}", classification(fit_intercept=True, **options), options
        yield f"logistic of three, {name}", classification(classes=[0, 1, 2], **options), options
        yield f"narrow hinge, {name}", classification(10.0, loss=SmoothedHinge(2.0**-7), **options), options
        yield f"exponential selection, {name}", sparse(selector="exponential", **options), options
        yield f"votes, {name}", sparse(n_blocks=3, **options), options
        yield f"votes with bounds, {name}", sparse(n_blocks=3, **ONE, **options), options
        yield f"ridge, {name}", ridge(**options), options
        yield f"ridge, pure, with an intercept, {name}", ridge(delta=0.0, fit_intercept=True, **options), options
        yield f"ridge in a box, {name}", ridge(bound_x=None, box_x=(np.zeros(P), np.ones(P)), **options), options
        yield f"ridge, nonnegative, {name}", ridge(nonnegative=True, **options), options
        yield f"independent ridge, {name}", ridge(mechanism="independent", **options), options
        yield f"people, {name}", people(**options), options
        yield f"people's blocks, {name}", people(block_bounds=(1.5, 1.2), **options), options
        yield f"moments, {name}", of_gram(lambda x, y: gram(x, y, **ONE), **options), options
        yield f"accumulated moments, {name}", of_gram(accumulated, **options), options
        yield f"donors, {name}", control(alone=bool(options), **options), options
        yield (
            f"donors about a centre, {name}",
            control(alone=bool(options), center=0.2, row_bound=(1, 1), observation_rate=0.9, **options),
            options,
        )
        yield f"donors in a long frame, {name}", long(**options), options
        yield f"visits, {name}", policy(method="sufficient_statistics", **options), options
        yield f"a CSV file, {name}", in_a_file("csv", **options), options
        yield f"a Parquet file, {name}", in_a_file("parquet", **options), options
        yield f"a job, {name}", job(name), options
    yield "projected ridge", ridge(mechanism="projection", public_labels=True), {}
    yield "sampled ridge", ridge(n_subsample=8), {}
    yield "output perturbation", control(mechanism="output"), {}
    yield "objective perturbation of weights", control(mechanism="objective"), {}
    yield "donors repeatedly", lambda x, y: SyntheticControl(1.0, 1e-8, **KW).fit_repeatedly(x, P - 1, repeats=2), {}
    yield "DP-LSW", policy(method="lsw"), {}
    yield "DP-LSW of costs", policy(method="lsw", reward_range=(-1.0, 0.0)), {}
    yield "DP-LSL", policy(method="lsl", features=np.eye(3)[:, :2] + 0.1), {}
    yield (
        "a minimiser",
        lambda x, y: objective_perturbation(x, y, loss=SmoothedHuber(), privacy=Privacy(1.0, 1e-6), bound_x=1.0),
        {},
    )
    # The data owner's: as silent, whatever stands in the table.
    yield "sums", lambda x, y: repr(gram(x, y, **ONE)), ADD
    yield "accumulator", lambda x, y: repr(GramAccumulator(P, 1, **ONE, n_threads=2).update(x, y)), ADD
    yield "sums of people", lambda x, y: repr(gram(x, y, **ONE, groups=np.arange(len(x)) // 2, max_rows=2)), ADD
    yield "returns", lambda x, y: repr(first_visit_returns(walks(x, y), 0.9, return_range=(0.0, 1.0))), ADD
    yield "episodes", lambda x, y: repr(episodes(x, y)), ADD
    yield (
        "statistics of visits",
        lambda x, y: repr(sufficient_statistics(walks(x, y), 0.9, return_range=(0.0, 1.0), horizon=P)),
        ADD,
    )
    yield "a frame of declared columns", framed, ADD


FITS = {name: (fit, options) for name, fit, options in fits()}


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
    return result, errors, [(one.category, str(one.message)) for one in caught], said


def every_table(options):
    yield from tables()
    if options.get("adjacency") == "add_remove":
        yield from private_tables()


CASES = sum(len(list(every_table(options))) for _, options in FITS.values())


@pytest.mark.parametrize("name", FITS)
def test_nothing_is_said_of_a_table(name):
    fit, options = FITS[name]
    expected, differing, n = None, [], 0
    for title, x, y in every_table(options):
        seen = observed(fit, x, y)
        expected = seen if expected is None else expected
        n += 1
        if seen != expected:
            differing.append((title, seen))
    assert expected[1] == [], expected
    assert not differing, (expected, differing)
    assert n >= 20


@pytest.mark.parametrize("name", FITS)
def test_nothing_is_said_where_numpy_is_to_raise(name):
    """Errors of floating point that the caller asked for are none of a person's."""
    fit, options = FITS[name]
    expected = observed(fit, *table())
    picked = ("a row of 1e+308", "a row of 5e-324", "all of 1e308", "collinear", "0 rows", "int64")
    with np.errstate(all="raise"):
        for title, x, y in every_table(options):
            if title in picked:
                assert observed(fit, x, y) == expected, title
