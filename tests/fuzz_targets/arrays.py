"""The public functions that take arrays and lists, given hostile ones."""

import math

import numpy as np

from dpfast.io import blocks, open_panel
from dpfast.io.people import people
from dpfast.noise import SeededSource, discrete_gaussian, gaussian, sample_without_replacement
from dpfast.solvers import L1Ball, quadratic_over_ball, quadratic_over_sphere
from dpfast.statistics import (
    GramAccumulator,
    StateEncoder,
    Trajectories,
    every_visit_returns,
    first_visit_returns,
    gram,
    influence,
    smooth_sensitivity,
    sufficient_statistics,
)
from fuzz_targets import INTEGERS, Draw, target

REFUSALS = (ValueError, TypeError)
DTYPES = ("f8", "f4", "f2", "i8", "i4", "u8", "u1", "?", ">f8", ">i4", "g", "c16", "O", "U3", "M8[s]", "V4")


def table(draw, n, n_columns, *, hostile=0.3):
    """A table of about the shape wanted."""
    shape = (n, n_columns)
    if draw.flag(hostile * 0.3):
        shape = draw.choice(((n,), (n, n_columns, 1), (0, n_columns), (n, 0), (), (n + 1, n_columns)))
    values = draw.reals(*shape, finite=draw.flag(0.8))
    if draw.flag(hostile):
        try:
            values = values.astype(draw.choice(DTYPES))
        except (TypeError, ValueError):
            values = np.zeros(shape, "M8[s]")
    match draw.integer(0, 9):
        case 0:
            return values.tolist()
        case 1:
            return np.ma.masked_invalid(values) if values.dtype.kind == "f" else values
        case 2 if values.ndim == 2:
            return [*values[:1], [1.0]]
    return draw.laid_out(values)


def integers(draw, n, low, high):
    """Integers within a range, but now and then for one."""
    values = draw.rng.integers(low, max(low, high), n, endpoint=True)
    if n and draw.flag(0.3):
        values[draw.integer(0, n - 1)] = draw.choice(INTEGERS)
        if n > 2 and draw.flag():
            values[draw.integer(0, n - 1)] = draw.choice(INTEGERS)
    if draw.flag(0.2):
        values = values.astype(draw.choice(("u8", "i4", "u1", "f8", "?", "O", ">i8", "U5")))
    return draw.choice(
        (values, values, values[::-1], values.tolist(), values.reshape(1, -1), np.repeat(values, 2)[::2])
    )


@target("kernels.gram", "kernels.people", "_threads", accepts=REFUSALS)
def grams(draw: Draw) -> None:
    n, d, m = draw.integer(0, 40), draw.integer(1, 9), draw.integer(0, 3)
    x, y = table(draw, n, d), table(draw, n, m) if m else None
    bound_y = draw.positive(1e-110, 1e110) if m else None
    options = {"n_threads": draw.choice((None, 1, 3)), "sums": draw.flag(0.3)}
    match draw.integer(0, 2):
        case 0:
            options["rows"] = draw.choice((integers(draw, draw.integer(0, 50), 0, n - 1), draw.rng.random(n) < 0.5))
        case 1:
            groups = draw.choice((integers(draw, n, 0, 5), ["a", None, 1.5] * 9, draw.reals(n, finite=False)))
            options |= {"groups": groups, "max_rows": draw.choice((1, 3, 100, 2**62))}
            if draw.flag():
                options |= {"bound_xx": draw.positive(), "sums": False}
    moments = gram(x, y, bound_x=draw.positive(1e-110, 1e110), bound_y=bound_y, **options)
    assert np.isfinite(moments.xx).all()


@target("kernels.gram", "io.blocks", "io.table", accepts=REFUSALS)
def accumulators(draw: Draw) -> None:
    accumulator = GramAccumulator(3, 1, bound_x=1.0, bound_y=1.0, n_threads=draw.choice((1, 2)))
    for _ in range(draw.integer(1, 3)):
        parts = [(table(draw, n, 3, hostile=0.1), table(draw, n, 1, hostile=0.1)) for n in (0, 3, 9)]
        before = accumulator.gram()
        try:
            accumulator.update(iter(parts))
        except REFUSALS:
            assert accumulator.gram() == before
    list(blocks(draw.choice((parts, parts[0], parts[0][0], iter(parts[0]), {"a": 1}, b"x"))))


@target("io.people", accepts=REFUSALS)
def groups_of_rows(draw: Draw) -> None:
    n = draw.integer(0, 20)
    ids = draw.choice(
        (
            integers(draw, n, 0, 5),
            draw.reals(n, finite=False),
            np.array(["a", "b", ""])[draw.rng.integers(0, 3, n)],
            [draw.choice((None, "a", 1, 1.5, (1, math.nan), frozenset(), [1], np.nan)) for _ in range(n)],
            draw.rng.integers(-(2**63), 2**63 - 1, n).view("M8[s]"),
        )
    )
    found = people(ids, draw.choice((0, 1, 2, 100)), ordered=draw.flag())
    assert found.offsets[-1] <= found.n_rows


def trajectories(draw):
    n_states, lengths = draw.choice((1, 3, 100)), [draw.integer(1, 9) for _ in range(draw.integer(1, 8))]
    n = sum(lengths)
    states, offsets = integers(draw, n, 0, n_states - 1), np.cumsum([0, *lengths])
    if draw.flag(0.4):
        place = draw.integer(0, len(offsets) - 1)
        offsets[place] = draw.choice(INTEGERS)
        offsets[place - 1] = draw.choice(INTEGERS)
        offsets[0] = 0
        offsets[-1] = n
    rewards = table(draw, 1, n)
    if isinstance(rewards, np.ndarray) and draw.flag(0.9):
        rewards = rewards.reshape(-1)
    return Trajectories(
        states,
        rewards,
        draw.choice((offsets, offsets.tolist(), offsets.astype("u8"))),
        draw.choice((n_states, n_states, 2**31, 0)),
    )


@target(
    "statistics.trajectories",
    "kernels.first_visits",
    accepts=(*REFUSALS, IndexError),
)
def returns_of_trajectories(draw: Draw) -> None:
    walks = trajectories(draw)
    gamma, horizon = draw.choice((1.0, 0.5, 1e-300, 0.9999999)), draw.choice((None, 1, 3, 2**62, 2**63, 10**30))
    selected = draw.choice(
        (slice(0, 3), slice(None, None, 2), integers(draw, 2, 0, len(walks) - 1), [True] * len(walks))
    )
    limits = sorted((float(draw.reals()), float(draw.reals())))
    match draw.integer(0, 4):
        case 0:
            first_visit_returns(walks, gamma, horizon=horizon)
        case 1:
            first_visit_returns(walks, gamma, horizon=horizon, return_range=limits).means()
        case 2:
            every_visit_returns(walks, gamma, horizon=horizon)
        case 3:
            sufficient_statistics(
                walks,
                gamma,
                horizon=horizon,
                return_range=limits,
                weights=draw.choice((None, np.abs(draw.reals(walks.n_states)))),
                features=draw.choice((None, table(draw, walks.n_states, 2))),
                bound_xx=draw.choice((None, draw.positive(1e-3, 1e3))),
            )
        case _:
            Trajectories.concatenate([walks[selected], walks])


@target("io.trajectory_sources", "io.states", accepts=REFUSALS)
def episodes(draw: Draw) -> None:
    def value():
        return draw.choice((0, 1, 2, -1, 2**64, 1.5, "a", None, True, np.int8(1), [], {}, 10**400, math.nan, "1e999"))

    steps = [
        [draw.choice(([value(), value()], (value(), 0, value()), (value(), 1.0), (0, 1.0), (1,), "ab", 3, np.zeros(2)))
         for _ in range(draw.integer(0, 4))] for _ in range(draw.integer(0, 3))
    ]  # fmt: skip
    states = [0, "a", value()] if draw.flag() else None
    Trajectories.from_episodes(steps, None if states else 3, states=states)
    StateEncoder([value(), value()]).codes([value()])


@target("kernels.first_visits", "statistics.local_sensitivity", accepts=REFUSALS)
def sensitivities(draw: Draw) -> None:
    n = draw.integer(0, 12)
    weights = np.abs(draw.reals(n, finite=False)) if draw.flag() else draw.rng.uniform(0, 1, n)
    beta = draw.positive(1e-12, 1e12) if draw.flag(0.8) else draw.choice((0.0, math.nan, 5e-324, 1e308))
    smooth_sensitivity(integers(draw, n, 0, 2**20), weights, beta, top=draw.choice((None, 1, 3, 2**70)))


@target("kernels.projections", accepts=REFUSALS)
def solutions(draw: Draw) -> None:
    n, p = draw.integer(1, 4), draw.integer(1, 9)
    radius = draw.choice((1.0, draw.positive(), 0.0, math.nan, table(draw, 1, n)))
    match draw.integer(0, 2):
        case 0:
            quadratic_over_ball(table(draw, n, p), table(draw, n, p), radius)
        case 1:
            quadratic_over_sphere(table(draw, 1, p), table(draw, n, p), radius)
        case _:
            L1Ball(radius).project(table(draw, n, p))


@target("kernels.draws", accepts=REFUSALS)
def draws_of_noise(draw: Draw) -> None:
    source, size = SeededSource(draw.integer(0, 2**40)), draw.choice((0, 1, 5, (2, 3), 700, -1, (0, 2**40)))
    match draw.integer(0, 2):
        case 0:
            discrete_gaussian(draw.choice((1.0, 64.0, draw.positive(1e-3, 1e20), math.nan)), size, source)
        case 1:
            total = draw.choice((0, 1, 64, 1000, 2**63 - 1, 2**63))
            found = sample_without_replacement(total, draw.choice((0, 1, 63, 500, min(total, 1000))), source)
            assert len(np.unique(found)) == len(found)
        case _:
            center = draw.choice((None, 0.5, table(draw, 1, 5)))
            gaussian(draw.positive(), size, source, center=center, grid=draw.choice((None, 0.5, 0.3, draw.positive())))


@target("io.panel", "statistics.influence", accepts=REFUSALS)
def panels(draw: Draw) -> None:
    n, n_periods = draw.integer(0, 6), draw.integer(0, 7)
    donors, n_pre = table(draw, n, n_periods), draw.choice((1, 2, 3, 0, n_periods, 2**70))
    if draw.flag():
        open_panel(donors, n_pre, may_miss=draw.flag())
    else:
        influence(donors, n_pre, draw.reals(min(n_pre, 9), finite=False), ridge=draw.choice((None, 1.0, 0.0)))
