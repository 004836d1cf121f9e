"""Every loop of every kernel, on its own: what tools/check_speed.py compares between two commits.

A case is named after its extension. Inputs stay in the cache and a call takes well below a millisecond, on one thread:
what is timed is the loop, and hardly memory, Python or the scheduler.
"""

import math
from importlib import import_module
from pathlib import Path

import numpy as np

from dpfast import _transaction as transaction
from dpfast import kernels
from dpfast._threads import single_threaded_blas
from dpfast.kernels.columns import ColumnBlock
from dpfast.noise.discrete import column_table
from dpfast.statistics.norm_histograms import LogarithmicBins
from dpfast.statistics.rows import Layout, PersonUnit, block_limits

# Those that there are: a commit that is compared with may lack one, and its others are timed all the same.
for stub in sorted(Path(kernels.__file__).parent.glob("*.pyi")):
    import_module(f"dpfast.kernels.{stub.stem}")

CASES = {}


def case(name, *arguments, **named):
    """Register a function that makes what is timed, with some arguments."""

    def register(make):
        CASES[name] = lambda: make(*arguments, **named)
        return make

    return register


def tables(d, m):
    return Layout(d, m, math.sqrt(d), math.sqrt(m) if m else None)._tables()


def taken(sums, add, d, m):
    """Add rows, and take the totals, which would be full some day."""
    totals = kernels.gram.GramTotals(d, m, max(table[3] for table in tables(d, m)))

    def call():
        add()
        totals.take([sums])

    return call


@case("gram: 20 columns", 4000, 20)
@case("gram: 20 columns, float32", 4000, 20, dtype=np.float32)
@case("gram: 20 columns, all clipped", 4000, 20, spread=10.0)
@case("gram: 20 columns apart", 4000, 20, apart=True)
@case("gram: 20 columns apart, all clipped", 4000, 20, apart=True, spread=10.0)
@case("gram: 5 columns", 16_000, 5)
@case("gram: 20 columns, a tenth of the rows", 40_000, 20, share=0.1)
@case("gram: 20 columns and 5 outcomes, and sums", 4000, 20, 5, with_sums=True)
@case("gram: 100 columns", 800, 100)
@case("gram: 100 columns apart", 800, 100, apart=True)
@case("blas: syrk of 300 columns", 1000, 300, use_blas=True)
@case("blas: gemm of 100 columns and 100 outcomes", 1000, 100, 100, use_blas=True, cross_only=True)
def gram_sums(n, d, m=0, dtype=np.float64, spread=0.5, apart=False, share=1.0, use_blas=False, **options):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(-spread, spread, (n, columns)).astype(dtype) for columns in (d, m))
    if apart:
        x = ColumnBlock(x.T, dtype)
    rows = None if share == 1.0 else np.sort(rng.permutation(n)[: int(share * n)])
    sums = kernels.gram.GramSums(*tables(d, m), block_rows=256, use_blas=use_blas, **{"with_sums": False, **options})
    add = taken(sums, lambda: sums.add(x, y if m else None, rows, 0, n if rows is None else len(rows)), d, m)
    if not use_blas:
        return add

    def held():
        with single_threaded_blas():
            add()

    return held


@case("row_maps: summed, 20 columns apart", 4000, 20)
@case("row_maps: summed, 20 columns and 5 outcomes", 4000, 20, 5)
def mapped_sums(n, d, m=0):
    rng = np.random.default_rng(0)
    x, y = (kernels.columns.ColumnBlock(rng.uniform(-1.0, 1.0, (k, n))) if k else None for k in (d, m))
    limits = {"low": np.full(1, -0.9), "high": np.full(1, 0.9)}
    of_x, of_y = (kernels.row_maps.RowMapKernel(k, **limits) if k else None for k in (d, m))
    sums = kernels.gram.GramSums(*tables(d, m), block_rows=64, use_blas=False, with_sums=True)
    return taken(sums, lambda: kernels.row_maps.add_mapped(sums, of_x, of_y, x, y, None, 0, n), d, m)


def coded_block(n, p, n_categories, n_levels):
    """Rows with codes, which an older commit does not have."""
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, n_levels, n) for _ in range(n_categories)]
    firsts = tuple(range(p, p + n_categories * n_levels, n_levels))
    layout = kernels.columns.CodeLayout(
        p + n_categories * n_levels, tuple(range(p)), firsts, (n_levels,) * n_categories
    )
    return kernels.columns.CodedBlock(rng.uniform(-1.0, 1.0, (n, p)), codes, layout)


@case("coded_gram: 5 numbers and 4 categories", 4000, 5, 4, 20)
@case("coded_gram: 20 numbers and 10 categories", 2000, 20, 10, 8)
def coded_sums(n, *shape):
    block = coded_block(n, *shape)
    d, beyond = block.shape[1], np.zeros(n, np.uint8)
    sums = kernels.coded_gram.CodedSums(*tables(d, 0), block_rows=256, use_blas=False, with_sums=False)
    values = np.zeros((2, sum(block.layout.levels)), np.int64)
    values[1] = int(tables(d, 0)[0][1])
    sums.begin(block.layout, values)
    return taken(sums, lambda: sums.add_coded(block.numbers, block.codes, None, 0, n, beyond), d, 0)


@case("sparse_gram: 200 columns, one in a hundred", 4000, 200, 0.01)
@case("sparse_gram: 1000 columns, one in a hundred, and 2 outcomes", 1000, 1000, 0.01, 2)
@case("sparse_gram: 200 columns, all out of order", 1000, 200, 0.01, ascending=False)
def sparse_sums(n, d, density, m=0, ascending=True):
    rng = np.random.default_rng(0)
    chosen = rng.random((n, d)) < density
    columns, (rows, places) = np.arange(d)[:: 1 if ascending else -1], np.nonzero(chosen)
    indptr = np.searchsorted(rows, np.arange(n + 1))
    values = rng.uniform(-1.0, 1.0, len(rows))
    block = kernels.columns.SparseBlock(indptr, columns[places].astype(np.int32), values, d)
    y = rng.uniform(-1.0, 1.0, (n, m)) if m else None
    sums = kernels.gram.GramSums(*tables(d, m), block_rows=256, use_blas=False, with_sums=False)
    return taken(sums, lambda: kernels.sparse_gram.add_sparse(sums, block, y, 0, n), d, m)


@case("gram: totals added", lambda totals: totals.add(totals.copy()))
@case("gram: totals as doubles", lambda totals: totals.symmetric_as_float64(1.0))
@case("gram: limbs of totals", lambda totals: (totals.symmetric(), totals.cross(), totals.columns()))
@case("gram: totals compared", lambda totals: totals.equals(totals))
def gram_totals(use):
    d, m = 400, 8
    x, y = np.ones((8, d)), np.ones((8, m))
    sums = kernels.gram.GramSums(*tables(d, m), block_rows=8, use_blas=False, with_sums=True)
    sums.add(x, y, None, 0, 8)
    totals = kernels.gram.GramTotals(d, m, max(table[3] for table in tables(d, m)))
    totals.take([sums])
    return lambda: use(totals)


@case("people: no block clipped", 2.0)
@case("people: all blocks clipped", 0.5)
@case("people: all blocks clipped, long", 0.5, n=1600, n_each=200)
@case("people: no bound on blocks", None)
def person_sums(share, n=4000, n_each=10, d=20, m=5):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1.0, 1.0, (n, d)), rng.uniform(-1.0, 1.0, (n, m))
    typical = float(np.linalg.norm(x[:n_each].T @ x[:n_each]))
    unit = PersonUnit.checked(n_each, None if share is None else share * typical, None, math.sqrt(d), math.sqrt(m))
    limits = block_limits(unit, tables(d, m))
    sums = kernels.people.PersonSums(
        *tables(d, m), bounds_xx=limits.xx, bounds_xy=limits.xy, safe_rows=limits.safe_rows, block_rows=256
    )
    offsets = np.arange(0, n + 1, n_each)
    rows = rng.permutation(n)
    return taken(sums, lambda: sums.add_people(x, y, rows, offsets, 0, len(offsets) - 1), d, m)


class Walks:
    """Trajectories of a hundred steps over states drawn uniformly."""

    def __init__(self, n_states, state=np.int32, reward=np.float64, n=500):
        rng = np.random.default_rng(0)
        self.n, self.n_states = n, n_states
        self.offsets = np.arange(0, 100 * n + 1, 100)
        self.states = rng.integers(0, n_states, 100 * n).astype(state)
        self.rewards = rng.random(100 * n).astype(reward)
        self.sums = kernels.first_visits.FirstVisits(n_states, 0.99, 100, 100, scale=2.0**20, largest=2.0**31)
        self.steps = self.states, self.rewards, self.offsets


@case("first_visits: 40 states", 40)
@case("first_visits: 1,000 states", 1000)
@case("first_visits: 1,000 states, int64 and float32", 1000, np.int64, np.float32)
def visits(*arguments):
    walks = Walks(*arguments)
    return lambda: walks.sums.add(*walks.steps, 0, walks.n)


def listed(walks):
    n_steps = len(walks.states)
    lists = np.empty(n_steps, np.int32), np.empty(n_steps), np.empty(walks.n, np.int64)
    return lists, lambda: walks.sums.list_units(*walks.steps, 0, walks.n, *lists)


@case("first_visits: listed")
def listed_visits():
    return listed(Walks(1000))[1]


@case("first_visits: looked over")
def bad_steps():
    walks = Walks(1000, n=1000)
    return lambda: kernels.first_visits.first_bad_step(walks.states, walks.rewards, walks.n_states, 1e200)


@case("first_visits: diagonal moments, no bounds", math.inf)
@case("first_visits: diagonal moments, half clipped", 2.0**16)
def diagonal(bound):
    walks = Walks(1000)
    (visited, units, ends), call = listed(walks)
    call()
    weights = np.random.default_rng(0).integers(0, 2**14, 1000).astype(np.float64)
    totals = np.zeros((1000, 2), np.int64)
    return lambda: kernels.first_visits.add_diagonal(
        visited, units, ends, len(ends), weights, 2.0**-20, bound, bound, totals
    )


@case("first_visits: inverse squares")
def squares():
    rng = np.random.default_rng(0)
    weights, counts = rng.random(100_000), rng.integers(0, 10_000, 100_000).astype(np.float64)
    return lambda: kernels.first_visits.sum_inverse_squares(weights, counts, 100.0)


def words(n):
    return np.random.default_rng(0).integers(0, 2**64, n, dtype=np.uint64, endpoint=False)


@case("draws: Gaussian, no centre")
@case("draws: Gaussian, about a centre", centre=True)
def offsets(centre=False, n=100_000):
    fractions = np.random.default_rng(0).uniform(-0.5, 0.5, n) if centre else None
    drawn, ambiguous, bits = np.empty(n), np.empty(n, np.intp), words(n)
    return lambda: kernels.draws.gaussian_offsets(bits, fractions, 2.0**24, 2.0**-18, drawn, ambiguous)


@case("draws: cells split", "split")
@case("draws: cells joined", "join")
@case("draws: cells joined about nothing", "offsets")
def cells(which, n=200_000):
    values, nearest, fractions = np.random.default_rng(0).normal(size=n), np.empty(n), np.empty(n)
    kernels.draws.split_cells(values, 2.0**-20, nearest, fractions)
    return {
        "split": lambda: kernels.draws.split_cells(values, 2.0**-20, nearest, fractions),
        "join": lambda: kernels.draws.join_cells(nearest, fractions, 2.0**-20, values),
        "offsets": lambda: kernels.draws.join_cells(None, fractions, 2.0**-20, values),
    }[which]


@case("draws: discrete, scale 1", 1.0)
@case("draws: discrete, scale 2^30", 2.0**30)
def discrete(scale, n=50_000):
    table, bits, draws = column_table(scale), words(4 * n), np.zeros(n, np.int64)
    return lambda: kernels.draws.discrete_gaussian(
        table.thresholds, table.sure, table.guide, 12, table.shift, scale, 2.0**-46, bits, 0, draws
    )


@case("draws: subset drawn")
def inserted(n_total=200_000):
    largest, bits = (1 << 64) // n_total * n_total - 1, words(n_total // 2)

    def call():
        bitmap = np.zeros(n_total // 64, np.uint64)
        kernels.draws.insert(bits.copy(), n_total, largest, bitmap, n_total // 4)

    return call


@case("draws: subset listed")
def selected(n_total=400_000):
    bitmap = words(n_total // 64)
    out = np.empty(sum(int(word).bit_count() for word in bitmap), np.int64)
    return lambda: kernels.draws.selected(bitmap, n_total, False, out)


@case("normal: delta", "gaussian_delta")
@case("normal: mu", "solve_mu")
@case("normal: epsilon", "solve_epsilon")
def calibrations(name):
    function = getattr(kernels.normal, name)
    budgets = [(2.0**i, 10.0**-j) for i in range(-6, 5) for j in range(2, 12)]
    arguments = {
        "gaussian_delta": [(4.0 / epsilon, epsilon, 1.0) for epsilon, _ in budgets],
        "solve_mu": [(epsilon, math.log(delta)) for epsilon, delta in budgets],
        "solve_epsilon": [(4.0 / epsilon, 1.0, math.log(delta)) for epsilon, delta in budgets],
    }[name]

    def call():
        for given in arguments:
            function(*given)

    return call


@case("limbs", "doubles")
@case("limbs: added", "add")
@case("limbs: cells split", "split")
@case("limbs: cells joined", "join")
def limbs(which, n=200_000):
    rng = np.random.default_rng(0)
    high, low, out = rng.integers(-(2**60), 2**60, n), words(n), np.empty(n)
    sums, offsets = (np.empty_like(high), np.empty_like(low)), np.rint(1e6 * rng.normal(size=n))
    return {
        "doubles": lambda: kernels.limbs.to_float64(high, low, out),
        "add": lambda: kernels.limbs.add(high, low, high, low, *sums),
        "split": lambda: kernels.limbs.split_cells(high, low, 20, *sums, out),
        "join": lambda: kernels.limbs.join_cells(high, low, offsets, -20, out),
    }[which]


@case("projections: quadratics of 10 terms", 1000, 10)
@case("projections: quadratics of 200 terms", 50, 200)
def quadratics(n, p):
    rng = np.random.default_rng(0)
    eigenvalues, coefficients = rng.random((n, p)), rng.normal(size=(n, p))
    out = np.zeros((n, p)), np.zeros(n)
    return lambda: kernels.projections.solve_quadratics(eigenvalues, coefficients, np.ones(1), True, 0, n, *out)


@case("projections: onto an L1 ball")
def projected(n=200, p=1000):
    points, out, kept = np.random.default_rng(0).normal(size=(n, p)), np.empty((n, p)), np.empty(p)
    return lambda: kernels.projections.project(points, 5.0, 0, n, kept, out)


@case("support_scores")
def scores(p=25, size=5):
    x = np.random.default_rng(0).normal(size=(100, p))
    xx, xy, out = x.T @ x, x.T @ x.sum(axis=1), np.empty(2_000)
    return lambda: kernels.support_scores.score_supports(xx, xy, 1e-3, 1e-9, np.arange(size), out)


@case("descent: gradient", lambda s, x, y: s.gradient(x, y))
@case("descent: step", lambda s, x, y: s.step(x, y))
@case("descent: accelerated", lambda s, x, y: s.accelerate(0.5, 4, x, y))
@case("descent: of factors", lambda s, x, y: s.gradient(x, y), factors=True)
def quadratic_steps(use, n=200, factors=False):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(n, n)) / n
    steps = kernels.descent.QuadraticSteps(
        matrix if factors else matrix @ matrix.T, matrix.T.copy() if factors else None, rng.normal(size=n),
        diagonal=(1.0, 0.0), weight=0.01, step=0.1, set_name="l2_ball", radius=1.0,
    )  # fmt: skip
    x, y = np.zeros((2, n)), np.zeros((2, n))

    def call():
        for _ in range(10):
            use(steps, x, y)

    return call


@case("descent: along", "along")
@case("descent: extrapolated", "extrapolate")
def vector_steps(which, n=5_000):
    rng = np.random.default_rng(0)
    steps = kernels.descent.ProximalSteps(n, weight=0.01, step=0.1, set_name="l1_ball", radius=0.1 * n)
    x, last, out = (np.stack([rng.normal(size=n), np.zeros(n)]) for _ in range(3))
    return {
        "along": lambda: steps.step_along(x, last, out),
        "extrapolate": lambda: kernels.descent.extrapolate(0.0, x, last, out),
    }[which]


LOSSES = ("squared", "logistic", "capped_logistic", "smoothed_hinge", "smoothed_huber", "smoothed_quantile", "poisson")


def loss_sums(kind, n, p):
    rng = np.random.default_rng(0)
    rows, outcomes = rng.normal(size=(n, p)), rng.choice([-1.0, 1.0], n)
    sums = kernels.descent.LossSums(rows, outcomes, kind=kind, width=0.5, threshold=1.0, start=0.5)
    return sums, rng.normal(size=(2, p)) * [[0.1], [0.0]]


def loss_model(kind, n=4000, p=10):
    sums, theta = loss_sums(kind, n, p)
    gradient, hessian = np.empty(p), np.empty((p, p))

    def call():
        with single_threaded_blas():
            sums.model(theta[0], 0, n, gradient, hessian)

    return call


def loss_gradient(kind, n=2000, p=10):
    sums, theta = loss_sums(kind, n, p)
    gradient = np.empty((2, p))
    return lambda: sums.precise_gradient(theta, 0, n, gradient)


for kind in LOSSES:
    case(f"descent: {kind}", kind)(loss_model)
    case(f"descent: {kind}, precisely", kind)(loss_gradient)


def shapes_of_maps(d):
    high = np.full(d, 1.5)
    return {
        "norm": {"bound": math.sqrt(d)},
        "box and norm": {"low": -high, "high": high, "bound": math.sqrt(d)},
        "centre, scale and basis": {"center": 0.1 * high, "scale": 2.0 * high, "basis": np.eye(d)[:, : d // 2]},
        "top entries": {"bound": 0.5 * math.sqrt(d), "top": max(1, d // 4)},
    }


def mapped_rows(name, n=4000, d=20):
    row_map = kernels.row_maps.RowMapKernel(d, **shapes_of_maps(d)[name])
    rows, out = np.random.default_rng(0).normal(size=(n, d)), np.empty((n, row_map.n_features))
    return lambda: row_map.map_rows(rows, out, 0, n)


for kind in shapes_of_maps(2):
    case(f"row_maps: {kind}", kind)(mapped_rows)


@case("row_maps: rows with codes")
def looked_up(n=1000):
    from dpfast.statistics.rows import CodedTables, RowMap

    block = coded_block(n, 5, 4, 20)
    row_map = RowMap(bound=2.0, basis=np.random.default_rng(1).normal(size=(85, 85)))
    tables_of_codes = CodedTables.of(row_map, block.layout)
    row_map, out = kernels.row_maps.CodedMapKernel(*tables_of_codes), np.empty((n, len(tables_of_codes.absent)))
    return lambda: row_map.map_rows(block.numbers, block.codes, out)


@case("residual_step: rows with codes")
def residuals_of_codes(n=1000):
    from dpfast.statistics.residuals import ResidualStep, ThreadSums, clip_of, coded_tables
    from dpfast.statistics.rows import RowMap

    block, rng = coded_block(n, 5, 4, 20), np.random.default_rng(1)
    step = ResidualStep(rng.normal(size=(85, 1)), RowMap(bound=3.0), RowMap(bound=3.0), rng.normal(size=(85, 85)))
    thread, y = ThreadSums(step, clip_of(2.0, step.shape)), rng.normal(size=(n, 1))
    thread.begin_coded(coded_tables(step, block.layout))
    kernel = thread.kernel

    def call():
        if kernel.room < n:
            kernel.take()
        kernel.add_coded(block.numbers, block.codes, y, 0, n)

    return call


@case("coded_step: sums")
def residual_sums_by_pairs(n=4000):
    from dpfast.statistics.residuals import ResidualStep, ThreadSums, clip_of, coded_tables
    from dpfast.statistics.rows import RowMap

    block, rng = coded_block(n, 5, 4, 20), np.random.default_rng(1)
    step = ResidualStep(rng.normal(size=(85, 1)), RowMap(bound=3.0), RowMap(bound=3.0), rng.normal(size=(85, 85)))
    thread, y, left_out = ThreadSums(step, clip_of(2.0, step.shape)), rng.normal(size=(n, 1)), np.empty(n, np.uint8)
    thread.begin_coded(coded_tables(step, block.layout))

    def call():
        if thread.coded.room < n:
            thread.coded.take()
        thread.coded.add(block.numbers, block.codes, y, 0, n, left_out)

    return call


@case("coded_step: norms")
def norms_by_pairs(n=4000):
    from dpfast.statistics.coded import PairTables
    from dpfast.statistics.rows import RowMap

    block, norms, left_out = coded_block(n, 5, 4, 20), np.empty(n), np.empty(n, np.uint8)
    row_map = RowMap(bound=3.0, basis=np.random.default_rng(1).normal(size=(85, 85)))
    kernel = kernels.coded_step.CodedNorms(PairTables.of_basis(row_map, block.layout))
    return lambda: kernel.of(block.numbers, block.codes, norms, left_out)


@case("residual_step: rows", "rows")
@case("residual_step: rows, whitened", "rows", whitened=True)
@case("residual_step: rows, logistic", "rows", "logistic")
@case("residual_step: rows, softmax", "rows", "softmax", m=10)
@case("residual_step: people", "people")
@case("residual_step: long people", "people", n_each=100)
@case("residual_step: sizes", "sizes")
def residuals(which, link="identity", n=2000, d=20, m=2, n_each=10, whitened=False):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(n, m))
    maps = [kernels.row_maps.RowMapKernel(k, bound=1.5 * math.sqrt(k)) for k in (d, m)]
    whitening = np.tril(rng.normal(size=(d, d))) if whitened else None
    arguments = *maps, rng.normal(size=(m, d)), whitening, False, link
    offsets = np.arange(0, n + 1, n_each)
    if which == "sizes":
        counts = kernels.residual_step.ResidualSizes(*arguments, first=-20, last=30)
        return lambda: counts.add(x, y, None, 0, n)
    limits = {"row_limits": (2.0**24, 1 << 49), "person_limits": (2.0**24, 1 << 49)}
    sums = kernels.residual_step.ResidualSums(*arguments, units=(2.0**12, 2.0**12), **limits)

    def call():
        if which == "rows":
            sums.add(x, y, None, 0, n)
        else:
            sums.add_people(x, y, None, offsets, 0, len(offsets) - 1)
        if sums.room < n:  # in Python integers, which take longer than the loop
            sums.take()

    return call


@case("sizes: codes of norms", "norms")
@case("sizes: codes of entries", "entries")
@case("sizes: counted", "count")
@case("sizes: extremes of people", "extremes")
def codes(which, n=4000, d=20):
    rng, bins = np.random.default_rng(0), LogarithmicBins(-40, 40)
    rows = rng.normal(size=(n, d))
    found = np.zeros((n, 1 if which == "norms" else d), np.int16)
    kernels.sizes.codes_of(rows, bins, which == "norms", found, 0, n)
    counts = np.zeros((d, bins.n_bins), np.int64)
    people, extremes = rng.integers(0, n // 10, n), np.zeros((2, n // 10, d), np.int16)
    return {
        "norms": lambda: kernels.sizes.codes_of(rows, bins, True, found, 0, n),
        "entries": lambda: kernels.sizes.codes_of(rows, bins, False, found, 0, n),
        "count": lambda: kernels.sizes.count(found, n, bins.largest_code, counts),
        "extremes": lambda: kernels.sizes.keep_extremes(found, people, 0, n, *extremes),
    }[which]


@case("people: numbered by value", "number", True)
@case("people: numbered by hash", "number", False)
@case("people: their rows", "rows", True)
@case("people: their first rows", "first", True)
def rows_of_owners(which, narrow, n=50_000, n_owners=5_000):
    ids = np.random.default_rng(0).integers(0, n_owners, n)
    ids, numbers = ids if narrow else ids * 2**40, np.empty(n, np.int64)
    counts, _ = kernels.people.number_of_each(ids, 0, n_owners if narrow else 0, numbers)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    order, chosen = np.empty(n, np.int64), np.zeros(n, np.uint8)
    return {
        "number": lambda: kernels.people.number_of_each(ids, 0, n_owners if narrow else 0, numbers),
        "rows": lambda: kernels.people.rows_of_each(numbers, offsets, order),
        "first": lambda: kernels.people.first_of_each(numbers, len(counts), 5, chosen),
    }[which]


class _Account:
    def __init__(self):
        self._additions = transaction.PendingAdditions()

    @transaction.atomic
    def add(self):
        self._additions.change = id, None


@case("transaction: additions")
def additions():
    account = _Account()

    def call():
        for _ in range(2000):
            account.add()

    return call


@case("transaction: brackets")
def brackets():
    turn = transaction.ForkSafeLock()

    def call():
        for _ in range(2000):
            with transaction.AtomicContext(turn):
                pass

    return call


@case("transaction: ranges of rows")
def ranges():
    def call():
        for _ in transaction.RowRanges(20_000, 1):
            pass

    return call


class Kernels:
    params = (sorted(CASES),)
    param_names = ("case",)

    def setup(self, name):
        self.run = CASES[name]()

    def time_kernel(self, name):
        self.run()
