"""Sums over visits as released by the moments engine: jointly calibrated, of their law, and solved like any ridge."""

import math
from dataclasses import replace

import numpy as np
import pytest
from neighbours import climb
from scipy import linalg, stats
from walks import FEATURES, WEIGHTS, problem, summed, walks

from dpfast import Privacy, noise
from dpfast.policy_evaluation.evaluation import VisitSolver
from dpfast.policy_evaluation.mechanism import Problem, visit_moments
from dpfast.privacy import MomentScales, gaussian_mu
from dpfast.statistics import sufficient_statistics

PRIVACY = Privacy(1.0, 1e-5)
KINDS = {"centered": None, "diagonal": None, "nonnegative": np.abs(FEATURES), "signed": FEATURES}
DIAGONAL = ("centered", "diagonal")


def public_of(kind, bounds=(None, None)):
    weights = np.full(4, 0.3) if kind == "centered" else WEIGHTS
    return problem(KINDS[kind], weights, horizon=4, block_bounds=bounds)


def moments(trajectories, kind, bounds=(None, None)):
    return sufficient_statistics(trajectories, 1.0, **public_of(kind, bounds).visits())


def noise_for(kind, privacy, bounds=(None, None), slope=None):
    """As the estimator calibrates it, or for another slope of the coefficients."""
    public = public_of(kind, bounds)
    if slope is not None:
        public = type("Sloped", (Problem,), {"usual_slope": slope})(*vars(public).values())
    return visit_moments(public, privacy)


def example(kind):
    rng = np.random.default_rng(0)
    visited = rng.random((60, 4)) < 0.7
    visited[:, 0] = True
    return moments(walks(visited, rng.uniform(-0.5, 1.0, (60, 4))), kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("bounds", [(None, None), (0.3, 0.2)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_no_neighbour_is_beyond_what_the_noise_is_for(kind, adjacency, bounds, seed):
    rng = np.random.default_rng(seed)
    mu = gaussian_mu(*Privacy(1.0, 1e-5).target)
    scales = noise_for(kind, Privacy(1.0, 1e-5, adjacency), bounds).scales
    kept = [0, 1] if adjacency == "replace_one" else [0]
    visited = rng.random((3, 4)) < 0.7
    visited[:, 0] = True

    def change(parameters):
        values = parameters.reshape(3, 4)
        one, other = (moments(walks(visited[k], values[k]), kind, bounds) for k in (kept, [0, 2]))
        return math.hypot(
            np.linalg.norm(one.xx - other.xx) / scales["xx"], np.linalg.norm(one.xy - other.xy) / scales["xy"]
        )

    assert 0.1 * mu < climb(change, 12, rng, restarts=1, screened=30)[0] <= mu


@pytest.mark.parametrize("kind", DIAGONAL)
def test_a_whole_trajectory_that_goes_takes_all_that_the_noise_is_for(kind):
    """Of one that visits every state with the largest return, under add/remove."""
    scales = noise_for(kind, Privacy(1.0, 1e-5, "add_remove")).scales
    alone = moments(walks(np.ones((1, 4), bool), np.ones((1, 4))), kind)
    moved = math.hypot(np.linalg.norm(alone.xx) / scales["xx"], np.linalg.norm(alone.xy) / scales["xy"])
    assert moved == pytest.approx(gaussian_mu(*PRIVACY.target), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gaussian_noise_has_its_law(kind):
    """Isotropic in the Frobenius norm: half the variance off the diagonal. Each test rejects with probability 1e-6."""
    sums = example(kind)
    calibration = noise_for(kind, PRIVACY)
    releases = [calibration.release(sums, noise.SeededSource(seed), "test") for seed in range(700)]
    xx = np.array([release.values["xx"] for release in releases]) - sums.xx
    xy = np.array([release.values["xy"] for release in releases]) - sums.xy
    samples = {"xy": xy / calibration.scales["xy"]}
    if kind in DIAGONAL:
        samples["xx"] = xx / calibration.scales["xx"]
    else:
        assert np.array_equal(xx, xx.transpose(0, 2, 1))
        samples["diagonal"] = np.diagonal(xx, axis1=1, axis2=2) / calibration.scales["xx"]
        samples["off"] = xx[:, 0, 1:] / calibration.scales["xx"] * math.sqrt(2.0)
    for name, sample in samples.items():
        assert stats.kstest(sample.ravel(), "norm").pvalue > 1e-6, name
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], sample.size)
        assert low < np.sum(sample**2) < high, name
    assert releases[0].scales == calibration.scales
    assert releases[0].unit == "row"
    assert releases[0].mu == gaussian_mu(*PRIVACY.target)


@pytest.mark.parametrize("kind", KINDS)
def test_l2_laplace_noise_has_its_law(kind):
    """One vector for both: its radius, in units of the scale, is Gamma of its dimension; rejected with probability
    1e-6. The scales recorded are the standard deviations of entries.
    """
    sums = example(kind)
    calibration = noise_for(kind, Privacy(1.0))
    stretch = round(math.log2(calibration.scales["xx"] / calibration.scales["xy"]))
    upper = (slice(None),) if kind in DIAGONAL else np.triu_indices(2)
    radii, entries = [], []
    for seed in range(700):
        release = calibration.release(sums, noise.SeededSource(seed), "test")
        xx, xy = (release.values["xx"] - sums.xx)[upper], release.values["xy"] - sums.xy
        radii.append(math.hypot(np.linalg.norm(xx), 2.0**stretch * np.linalg.norm(xy)))
        entries.append(xy)
    dim = len(xx) + len(xy)
    assert stats.kstest(np.array(radii) / calibration.joint_scale, "gamma", args=(dim,)).pvalue > 1e-6
    # Of 1400 or more entries of kurtosis below 6: five standard errors of their variance.
    deviation = np.sqrt(np.mean(np.square(entries)))
    assert deviation == pytest.approx(calibration.scales["xy"], rel=2.5 * math.sqrt(5.0 / np.size(entries)))
    assert release.mu is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_solution_is_that_of_ridge_regression(kind):
    sums = example(kind)
    calibration = replace(noise_for(kind, PRIVACY), deviations=MomentScales(xx=1e-9, xy=1e-9), off_diagonal=1e-9)
    release = calibration.release(sums, noise.SeededSource(0), "test")
    solution = VisitSolver(1.4, shrinkage=False).solve(release, calibration, public_of(kind))
    xx, xy = (np.diag(sums.xx) if kind in DIAGONAL else sums.xx), sums.xy
    if kind == "centered":
        # Of what is above the pooled return.
        pooled = xy.sum() / sums.xx.sum()
        assert solution.offset == pytest.approx(sums.origin + pooled, rel=1e-6)
        xy = xy - pooled * sums.xx
    assert solution.coef == pytest.approx(linalg.solve(xx + 0.7 * np.eye(len(xx)), xy), rel=1e-6)
    assert solution.ridge == 1.4
    assert VisitSolver(None, shrinkage=False).solve(release, calibration, public_of(kind)).ridge < 2e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_deviation_of_values_is_that_of_repeated_releases(kind):
    """1,000 releases of small noise; five standard errors of a deviation, which is 1/sqrt(2 n) of it."""
    sums, features = example(kind), KINDS[kind]
    deviations = MomentScales(xx=0.02, xy=0.01)
    calibration = replace(noise_for(kind, PRIVACY), deviations=deviations, off_diagonal=0.02 * math.sqrt(0.5))
    phi = np.eye(4) if features is None else features
    solver, sources = VisitSolver(1.0, shrinkage=False), map(noise.SeededSource, range(1000))
    solutions = [
        solver.solve(calibration.release(sums, source, "test"), calibration, public_of(kind)) for source in sources
    ]
    values = np.array([solution.offset + phi @ solution.coef for solution in solutions])
    stated = np.mean([solution.value_std for solution in solutions], axis=0)
    assert np.std(values, axis=0) == pytest.approx(stated, rel=5.0 / math.sqrt(2000.0))


def test_noise_too_unlike_for_one_draw_is_refused():
    """Before any data is read."""
    with pytest.raises(ValueError, match="within 2\\^40 of each other"):
        noise_for("diagonal", Privacy(1.0), slope=1e30)


def test_means_and_moments_count_alike():
    """The released diagonal and the smooth release speak of the same visits and returns."""
    visited, values = np.ones((3, 4), bool), np.full((3, 4), 0.25)
    returns = summed(walks(visited, values), problem())
    sums = moments(walks(visited, values), "diagonal")
    assert sums.xx == pytest.approx(WEIGHTS * returns.counts, rel=1e-8)
    assert sums.xy == pytest.approx(WEIGHTS * (returns.sums - sums.origin * returns.counts), rel=1e-8)


@pytest.mark.parametrize("slope", [1e-4, 0.5, 1e4])
@pytest.mark.parametrize("kind", DIAGONAL)
def test_a_joint_draw_is_calibrated_for_sums_as_they_are_stretched(kind, slope):
    """A whole trajectory comes: both sums, stretched, move by epsilon times the joint scale, and no more."""
    calibration = noise_for(kind, Privacy(1.0, 0.0, "add_remove"), slope=slope)
    stretch = round(math.log2(calibration.scales["xx"] / calibration.scales["xy"]))
    alone = moments(walks(np.ones((1, 4), bool), np.ones((1, 4))), kind)
    moved = math.hypot(np.linalg.norm(alone.xx), np.linalg.norm(alone.xy) * 2.0**stretch)
    assert 1.0 - 1e-6 < moved / calibration.joint_scale <= 1.0
