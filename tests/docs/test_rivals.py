"""The bench of rivals: it runs, ours is within sight of it, and what it says of a rival's published code is so."""

import math

import numpy as np
import pytest
from pages import ROOT
from scipy.stats import laplace


@pytest.fixture
def rivals(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import rivals

    return rivals


@pytest.mark.parametrize("part", ["regression", "sparse"])
def test_every_rival_runs_on_a_small_table(rivals, part):
    table = next((rivals.sparse_tables if part == "sparse" else rivals.tables)(True))
    rows = list(rivals.compared(part, table, 1.0, 2, True))
    assert [row["rival"] for row in rows] == list(rivals.RIVALS[part])
    for row in rows:
        # Predicting zero is a setting of every rival.
        assert 0.0 < row["theirs"] < 1.2
        assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"])
        assert math.isfinite(row["standard error"])


def test_the_noise_of_a_rivals_sums_is_what_its_mu_asks_for(rivals):
    """One step of descent, of a table of nobody but one: the mean is minus half of the gradient, beside the noise."""
    table, clip = rivals.Table("", np.ones((1, 2)), np.ones(1)), 0.5
    rng = np.random.default_rng(0)
    drawn = np.array([rivals.descent(table, 1.0, (1, 1.0, clip), rng) for _ in range(4000)])
    deviation = clip / rivals.gaussian_mu(1.0, rivals.DELTA)
    assert drawn.std() == pytest.approx(deviation, rel=0.05)


def test_the_published_check_of_tukey_depths_is_not_private(rivals):
    """It draws Laplace noise of the scale epsilon/2 where 2/epsilon is due: that alone has a delta of .19."""
    epsilon, delta = 1.0, 1e-6
    half, rng = epsilon / 2.0, np.random.default_rng(0)

    def distance(models):
        ordered = np.sort(models)
        widths = (ordered[::-1] - ordered)[: len(models) // 2]
        return rivals.distance_to_unsafety(np.log(widths), half, delta, len(models) // 4)

    threshold = math.log(1.0 / (2.0 * delta)) / half
    pairs = set()
    for _ in range(60):
        models = rng.normal(size=430)
        own = distance(models)
        if abs(own - threshold) < 2.0:
            other = models.copy()
            for place in range(0, 430, 10):
                other[place] = 50.0
                pairs.add((own, distance(other)))
                other[place] = models[place]
    assert all(abs(one - other) <= 1 for one, other in pairs)
    pairs = {(max(pair), min(pair)) for pair in pairs if pair[0] != pair[1]}

    def broken(scale, level):
        passed = [[float(laplace.sf((threshold - one) / scale)) for one in pair] for pair in pairs]
        return max(more - math.exp(level) * less for more, less in passed)

    assert broken(half, epsilon) > 0.15
    assert broken(1.0 / half, half) <= delta
