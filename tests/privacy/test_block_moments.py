"""Calibration where a person owns several rows: against hill-climbed people, and the people who attain it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbours import climb, row_in_ball

from dpfast.privacy import (
    BlockBounds,
    MomentScales,
    block_moment_mu,
    block_moment_scales,
    block_moments,
    moment_mu,
    person_moment_mu,
    person_moment_scales,
)


def clipped(x, y, bounds, clipping):
    """A person's block, clipped; G is met by scaling all outcomes."""
    y = y * min(1.0, bounds.outcomes / max(np.linalg.norm(y), 1e-12))
    a, b = x.T @ x, x.T @ y
    factors = [bounds.xx / max(np.linalg.norm(a), 1e-12), bounds.xy / max(np.linalg.norm(b), 1e-12)]
    if clipping == "common":
        factors = [min(factors)] * 2
    return min(1.0, factors[0]) * a, min(1.0, factors[1]) * b


def distance(ours, theirs, scales):
    return math.hypot(np.linalg.norm(ours[0] - theirs[0]) / scales.xx, np.linalg.norm(ours[1] - theirs[1]) / scales.xy)


def climbed_ratio(scales, bounds, rng, *, adjacency, clipping, nonnegative, rows=2, d=4, m=1, **effort):
    size = rows * (d + m)

    def block(p):
        x, y = np.split(np.square(p).reshape(rows, -1) if nonnegative else p.reshape(rows, -1), [d], axis=1)
        return clipped(x, y, bounds, clipping)

    def change(p):
        other = (np.zeros((d, d)), np.zeros((d, m))) if adjacency == "add_remove" else block(p[size:])
        return distance(block(p[:size]), other, scales)

    found, _ = climb(change, size if adjacency == "add_remove" else 2 * size, rng, **effort)
    return found / block_moment_mu(scales, bounds, adjacency=adjacency, clipping=clipping, nonnegative=nonnegative)


def attained(scales, bounds):
    """Distance of the two people described in block_moments: outcomes along one direction, four orthogonal features."""
    xy = min(bounds.xy, bounds.outcomes * math.sqrt(bounds.xx))
    along = (xy / bounds.outcomes) ** 2
    across = math.sqrt(max(0.0, bounds.xx**2 - along**2))
    cosine = min(1.0, (bounds.outcomes * scales.xx / scales.xy) ** 2 / (2.0 * along))
    e, e_other, f, f_other = np.eye(4)
    e_other = cosine * e + math.sqrt(1.0 - cosine**2) * e_other
    y = np.array([[1.0], [1.0]]) * bounds.outcomes / math.sqrt(2.0)

    def block(e, f, y):
        x = (
            np.array([[1.0], [1.0]]) * math.sqrt(along / 2.0) * e
            + np.array([[1.0], [-1.0]]) * math.sqrt(across / 2.0) * f
        )
        return x.T @ x, x.T @ y

    return distance(block(e, f, y), block(e_other, f_other, -y), scales)


logs = st.floats(-3, 3).map(math.exp)


@given(logs, logs, logs, logs, logs)
def test_common_factor_is_attained_everywhere(xx, xy, outcomes, noise_xx, noise_xy):
    bounds, scales = BlockBounds(xx, xy, outcomes), MomentScales(xx=noise_xx, xy=noise_xy)
    mu = block_moment_mu(scales, bounds, adjacency="replace_one")
    assert attained(scales, bounds) == pytest.approx(mu, rel=1e-12)


CASES = [
    (adjacency, clipping, nonnegative)
    for adjacency in ("replace_one", "add_remove")
    for clipping in ("common", "separate")
    for nonnegative in (False, True)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_climbed_people_never_pass_the_bound(case):
    check_climbed(case, range(2), restarts=1, screened=30)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_climbed_people_never_pass_the_bound_with_effort(case):
    check_climbed(case, range(2, 14), restarts=8, screened=60)


def check_climbed(case, seeds, **effort):
    adjacency, clipping, nonnegative = case
    best = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        xx, xy, outcomes, *noise = np.exp(rng.uniform(-1, 1, 5))
        scales = MomentScales(xx=xx * noise[0], xy=xy * noise[1])
        rows = 2 + seed % 2
        options = {"adjacency": adjacency, "clipping": clipping, "nonnegative": nonnegative, "rows": rows}
        ratio = climbed_ratio(scales, BlockBounds(xx, xy, outcomes), rng, **options, **effort)
        assert ratio <= 1.0 + 1e-12, (case, seed, ratio)
        best = max(best, ratio)
    # Long rows let separately clipped blocks come close; no climb is sure to.
    assert best > 0.85, (case, best)


def test_separate_clipping_passes_the_common_formula_and_stays_within_its_own():
    """Two people whose b are opposite, while their A, mostly of further rows, have nothing in common any more."""
    bounds, scales = BlockBounds(1.0, 1.0, 1.0), MomentScales(xx=1.0, xy=1.0)

    def block(further, sign):
        x = np.zeros((2, 3))
        x[0, 0], x[1, further] = 1.0, 1e3
        return clipped(x, np.array([[sign], [0.0]]), bounds, "separate")

    found = distance(block(1, 1.0), block(2, -1.0), scales)
    common, separate = (
        block_moment_mu(scales, bounds, adjacency="replace_one", clipping=clipping)
        for clipping in ("common", "separate")
    )
    assert common * 1.1 < found <= separate
    assert found == pytest.approx(separate, rel=1e-5)


def test_rank_one_formula_does_not_hold_for_blocks():
    """Section 1's formula, with a and c in place of a row's bounds, is passed: kappa is needed."""
    bounds, scales = BlockBounds(2.0, 0.5, 1.0), MomentScales(xx=2.0, xy=0.2)
    a, b = 2.0 * (bounds.xx / scales.xx) ** 2, 2.0 * (bounds.xy / scales.xy) ** 2
    rank_one = a + b + b * b / (4 * a) if b <= 2 * a else 2 * b
    assert attained(scales, bounds) ** 2 > 1.05 * rank_one


@pytest.mark.parametrize("wrong", ["kappa one", "no knee", "half of xy"])
def test_broken_copies_are_passed(wrong, monkeypatch):
    right = block_moments._Shape.squared_mu

    def broken(self, u2, v2):
        if wrong == "half of xy":
            return right(self, u2, v2 / 2)
        if wrong == "kappa one":
            return 2 * u2 + 2 * v2 + v2 * v2 / (2 * u2) if v2 <= 2 * u2 else 4 * v2
        return 2 * u2 + 2 * v2

    monkeypatch.setattr(block_moments._Shape, "squared_mu", broken)
    bounds = BlockBounds(2.0, 0.5, 1.0)
    ratios = []
    for noise in (0.05, 0.2, 1.0):
        scales = MomentScales(xx=2.0, xy=noise)
        ratios.append(attained(scales, bounds) / block_moment_mu(scales, bounds, adjacency="replace_one"))
    assert max(ratios) > 1.01


@given(logs, logs, logs, logs)
def test_one_row_is_the_formula_of_rows(bound_x, bound_y, noise_xx, noise_xy):
    bounds = BlockBounds(bound_x**2, bound_x * bound_y, bound_y)
    scales = MomentScales(xx=noise_xx, xy=noise_xy)
    for adjacency, nonnegative in itertools.product(("replace_one", "add_remove"), (False, True)):
        options = {"adjacency": adjacency, "nonnegative": nonnegative}
        of_rows = moment_mu(scales, bound_x, bound_y, **options, n_features=4)
        assert block_moment_mu(scales, bounds, **options) == pytest.approx(of_rows, rel=1e-11)


@given(logs, logs, logs, logs, logs, st.floats(0.01, 1.0), st.sampled_from(["xx", "xy", "outcomes"]))
def test_tighter_bounds_never_cost_more(xx, xy, outcomes, noise_xx, noise_xy, share, which):
    bounds, scales = BlockBounds(xx, xy, outcomes), MomentScales(xx=noise_xx, xy=noise_xy)
    tighter = BlockBounds(**(vars(bounds) | {which: share * getattr(bounds, which)}))
    for clipping in ("common", "separate"):
        options = {"adjacency": "replace_one", "clipping": clipping}
        assert block_moment_mu(scales, tighter, **options) <= block_moment_mu(scales, bounds, **options) * (1 + 1e-12)
    common, separate = (
        block_moment_mu(scales, bounds, adjacency="replace_one", clipping=clipping)
        for clipping in ("common", "separate")
    )
    assert common <= separate * (1 + 1e-12)


@given(logs, logs, logs, logs, logs, st.sampled_from(CASES))
@settings(deadline=None)
def test_best_scales_keep_the_budget_and_beat_every_other_ratio(xx, xy, outcomes, weight_xx, weight_xy, case):
    bounds, weights = BlockBounds(xx, xy, outcomes), {"xx": weight_xx, "xy": weight_xy}
    options = dict(zip(("adjacency", "clipping", "nonnegative"), case, strict=True))
    scales = block_moment_scales(0.3, bounds, weights, **options)
    assert 0.3 * (1 - 1e-12) <= block_moment_mu(scales, bounds, **options) <= 0.3
    cost = weight_xx * scales.xx**2 + weight_xy * scales.xy**2
    for tilt in np.concatenate([np.linspace(-6, 6, 41), np.linspace(-1e-3, 1e-3, 3)]):
        other = MomentScales(xx=scales.xx, xy=scales.xy * math.exp(tilt))
        spent = block_moment_mu(other, bounds, **options)
        others = (weight_xx * other.xx**2 + weight_xy * other.xy**2) * (spent / 0.3) ** 2
        assert cost <= others * (1 + 1e-9)


def test_single_blocks_and_no_noise():
    bounds = BlockBounds(2.0, 3.0, 4.0)
    for name, loads in (("xx", (2.0 * math.sqrt(2.0), 2.0)), ("xy", (6.0, 3.0))):
        for load, adjacency in zip(loads, ("replace_one", "add_remove"), strict=True):
            scales = block_moment_scales(0.5, bounds, {name: 1.0}, adjacency=adjacency)
            assert getattr(scales, name) == pytest.approx(2.0 * load, rel=1e-13)
            assert scales.released == (name,)
    alone = block_moment_scales(0.5, BlockBounds(2.0), adjacency="replace_one")
    assert alone.released == ("xx",)
    free = block_moment_scales(math.inf, bounds, adjacency="replace_one")
    assert free == MomentScales(xx=0.0, xy=0.0)
    assert block_moment_mu(free, bounds, adjacency="replace_one") == math.inf
    assert block_moment_mu(MomentScales(), bounds, adjacency="replace_one") == 0.0


BLOCKS = ("xx", "x", "xy", "y", "n")


def person_distance(ours, theirs, scales):
    """How far two people's rows move all five blocks, in standard deviations."""

    def moments(z, y):
        return {"xx": z.T @ z, "x": z.sum(0), "xy": z.T @ y, "y": y.sum(0), "n": np.array([float(len(z))])}

    one, other = moments(*ours), moments(*theirs)
    return math.sqrt(sum(np.sum((one[b] - other[b]) ** 2) / getattr(scales, b) ** 2 for b in scales.released))


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("blocks", [BLOCKS, BLOCKS[:4], ("xx", "xy"), ("x", "n")], ids=str)
def test_people_of_bounded_rows_attain_the_bound_of_rows_times_their_number(blocks, nonnegative, adjacency):
    """Any two people of 1 to 3 rows are within it; three copies of the worst rows reach it."""
    rng = np.random.default_rng(0)
    d, m, most = 3, 2, 3
    scales = MomentScales(**{block: math.exp(rng.uniform(-1, 1)) for block in blocks})
    options = {"adjacency": adjacency, "n_features": d, "n_outcomes": m, "nonnegative": nonnegative}
    mu = person_moment_mu(scales, most, 1.0, 1.0, **options)

    def person(rows):
        z, y = np.split(rows, [d], axis=1)
        for table in (z, y):
            for i, row in enumerate(table):
                table[i] = row_in_ball(row, 1.0, nonnegative=nonnegative)
        return z, y

    def people(p, n_ours, n_theirs):
        rows = p.reshape(-1, d + m).copy()
        return person(rows[:n_ours]), person(rows[n_ours : n_ours + n_theirs])

    best = 0.0
    for n_ours, n_theirs in ((1, 0), (1, 1)) if adjacency == "replace_one" else ((1, 0),):

        def change(p, n_ours=n_ours, n_theirs=n_theirs):
            return person_distance(*people(p, n_ours, n_theirs), scales)

        found, worst = climb(change, (n_ours + n_theirs) * (d + m), rng, restarts=3, screened=30)
        copies = [tuple(np.repeat(part, most, axis=0) for part in one) for one in people(worst, n_ours, n_theirs)]
        assert person_distance(*copies, scales) == pytest.approx(most * found, rel=1e-9)
        best = max(best, most * found / mu)
    assert 1.0 - 1e-5 <= best <= 1.0
    for _ in range(200):
        n_ours, n_theirs = (int(n) for n in rng.integers(0, most + 1, 2))
        n_theirs = 0 if adjacency == "add_remove" else n_theirs
        pair = people(rng.normal(size=2 * most * (d + m)) * rng.choice([0.3, 3.0]), n_ours, n_theirs)
        assert person_distance(*pair, scales) <= mu


weights_of_blocks = st.dictionaries(st.sampled_from(BLOCKS), logs, min_size=1)


@given(weights_of_blocks, st.integers(1, 100), st.sampled_from(CASES), st.sampled_from([(1, 1), (3, 2)]))
@settings(deadline=None, max_examples=60)
def test_person_scales_keep_the_budget(weights, max_rows, case, shape):
    options = {"adjacency": case[0], "nonnegative": case[2], "n_features": shape[0], "n_outcomes": shape[1]}
    scales = person_moment_scales(0.3, max_rows, 1.5, 0.7, weights, **options)
    assert set(scales.released) == set(weights)
    assert 0.3 * (1 - 1e-9) <= person_moment_mu(scales, max_rows, 1.5, 0.7, **options) <= 0.3


def test_count_costs_little_beside_a_replaced_row():
    options = {"adjacency": "replace_one", "n_features": 5}
    weights = dict.fromkeys(BLOCKS, 1.0)
    with_n = person_moment_scales(1.0, 10, 1.0, 1.0, weights, **options)
    without = person_moment_scales(1.0, 10, 1.0, 1.0, dict.fromkeys(BLOCKS[:4], 1.0), **options)
    assert with_n.xx == pytest.approx(without.xx, rel=1e-9)
    assert 10.0 < with_n.n < 20.0
    assert person_moment_scales(math.inf, 3, 1.0, 1.0, weights, **options).n == 0.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: BlockBounds(0.0), ValueError, r"bounds\.xx must be positive"),
        (lambda: BlockBounds(1.0, 1.0), ValueError, "go together"),
        (lambda: BlockBounds(1.0, math.inf, 1.0), ValueError, r"bounds\.xy"),
        (lambda: BlockBounds("1"), TypeError, r"bounds\.xx"),
        (lambda: BlockBounds(1e200), ValueError, r"bounds\.xx must lie between"),
        (lambda: mu(bounds=(1.0, 1.0, 1.0)), TypeError, "bounds must be a BlockBounds"),
        (lambda: mu(clipping="both"), ValueError, "clipping must be"),
        (lambda: mu(adjacency="one"), ValueError, "adjacency must be"),
        (lambda: mu(nonnegative=1), TypeError, "nonnegative"),
        (lambda: mu(scales=MomentScales(xx=1.0, y=1.0)), ValueError, r"scales\.y must be inf"),
        (lambda: mu(bounds=BlockBounds(1.0)), ValueError, r"bounds\.xy is needed"),
        (lambda: scales_of(mu=0.0), ValueError, "mu must be positive"),
        (lambda: scales_of(weights={}), ValueError, "weights must name"),
        (lambda: scales_of(weights={"x": 1.0}), ValueError, "weights must name"),
        (lambda: scales_of(weights=[1.0]), TypeError, "weights must map"),
        (lambda: scales_of(weights={"xx": 0.0}), ValueError, r"weights\['xx'\]"),
        (lambda: scales_of(weights={"xx": 1e300, "xy": 1e-320}, bounds=BlockBounds(1e80)), ValueError, "xy is needed"),
        (
            lambda: person_moment_mu(MomentScales(xx=1.0), 0, 1.0, adjacency="add_remove", n_features=1),
            ValueError,
            "max_rows",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def mu(**change):
    arguments = {
        "scales": MomentScales(xx=1.0, xy=1.0),
        "bounds": BlockBounds(1.0, 1.0, 1.0),
        "adjacency": "replace_one",
    }
    return block_moment_mu(**arguments | change)


def scales_of(**change):
    return block_moment_scales(**{"mu": 1.0, "bounds": BlockBounds(1.0, 1.0, 1.0), "adjacency": "replace_one"} | change)


@given(st.integers(1, 1000), st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_many_rows_cost_so_many_times_one_row_rounded_up(rows, xx, xy):
    scales = MomentScales(xx=xx, xy=xy)
    options = {"adjacency": "replace_one", "n_features": 3, "n_outcomes": 2}
    one = Fraction(moment_mu(scales, 1.0, 1.0, **options))
    assert Fraction(person_moment_mu(scales, rows, 1.0, 1.0, **options)) >= rows * one
