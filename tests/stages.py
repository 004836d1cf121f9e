"""Fits in stages: what is asked of them, and how far one person moves it."""

from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dpfast import noise


class Size(NamedTuple):
    """A table's rows and columns, and a release that only fits of such a size make."""

    n_rows: int
    features: int
    known_by: str


RESOLVED = Size(4_000, 3, "moments of whitened rows")


def queries(mechanism, releases):
    """Every query that a mechanism makes of these releases: what is summed, how it is drawn, and its clip."""
    stages, left = mechanism.stages(), iter(releases)
    query = next(stages)
    while True:
        yield query.name, query.mechanism, query.clip
        try:
            query = stages.send(next(left))
        except StopIteration:
            return


def requested(fit, seed, wild=0.0):
    """Every query of a fit, as the noise of a seed leads to it, or releases that are off by so many powers of e."""
    source, rng = noise.resolve_source(seed), np.random.default_rng(seed)
    stages = fit.mechanism.stages()
    query = next(stages)
    while True:
        yield query
        released = query.mechanism.release(query.statistic(fit.statistic), source, query.name)
        if wild:
            values = {name: off(np.asarray(value), wild, rng) for name, value in released.values.items()}
            released = replace(released, values=values)
        try:
            query = stages.send(released)
        except StopIteration as last:
            last.value()
            return


def off(values, wild, rng):
    factors = np.exp(wild * rng.normal(size=values.shape)) * rng.choice([1.0, 1.0, -1.0], size=values.shape)
    changed = values * factors
    return (
        np.triu(changed) + np.triu(changed, 1).T if values.ndim == 2 and np.array_equal(values, values.T) else changed
    )


class Part(NamedTuple):
    """What one person adds to what is summed for a query, so that noise has one scale, and the norm it is for."""

    vector: np.ndarray
    order: int
    limit: float


def part_of_person(query, person):
    """Return a person's part; `person` is a table of their rows alone."""
    statistic = query.statistic(person)
    mechanism = query.mechanism
    if hasattr(mechanism, "scale"):
        limit = mechanism.privacy.epsilon if mechanism.mu is None else mechanism.mu
        return Part(statistic.to_float64().ravel() / mechanism.scale, 1 if mechanism.law == "Laplace" else 2, limit)
    attributes = {"xx": "exact_xx", "xy": "exact_xy", "x": "exact_x_sum", "y": "exact_y_sum", "n": "n_rows"}
    blocks = {name: getattr(statistic, attributes[name]) for name in mechanism.scales}
    blocks = {name: np.asarray(getattr(block, "to_float64", lambda b=block: b)()) for name, block in blocks.items()}
    scales = dict(mechanism.scales)
    if mechanism.mu is None:
        # One vector, X'X by its upper triangle, blocks stretched against each other as their noise is.
        scales = {name: mechanism.joint_scale * scale / scales["xx"] for name, scale in scales.items()}
        blocks["xx"] = blocks["xx"][np.triu_indices(len(blocks["xx"]))]
    vector = np.concatenate([np.ravel(block) / scales[name] for name, block in blocks.items()])
    return Part(vector, 2, mechanism.privacy.epsilon if mechanism.mu is None else mechanism.mu)


def moved(query, parts):
    """How far one of these people moves what is summed, over the farthest that its noise is for."""
    _, order, limit = parts[0]
    vectors = [one.vector for one in parts]
    if query.mechanism.privacy.adjacency == "add_remove":
        return max(float(np.linalg.norm(vector, order)) for vector in vectors) / limit
    return max(float(np.linalg.norm(one - other, order)) for one, other in combinations(vectors, 2)) / limit
