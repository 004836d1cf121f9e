"""Quadratics over balls and spheres, and the projection built on them.

``python -m benchmarks.bench_sphere`` prints the figures in full: time a term and evaluation, evaluations, error against
the reference of the tests' many digits, brentq's time over ours, the secular solve's share of a projection, and what
projecting gains at n = 2,000 rows, d = 64 features, l = 2,000 outcomes under noise calibrated to (1, 1e-6).
"""

import statistics
import sys
from pathlib import Path

import numpy as np
from scipy import linalg, optimize

from benchmarks.timing import median_ratio, seconds
from dpfast.kernels.projections import solve_quadratics
from dpfast.privacy import gaussian_scale
from dpfast.solvers import LabelFactor, quadratic_over_ball, quadratic_over_sphere
from dpfast.solvers.projection import ball_multiplier


def problems(n, terms, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, terms)), rng.normal(size=(n, terms)), np.exp(2 * rng.normal(size=n))


def brentq_over_sphere(eigenvalues, coefficients, radius):
    """One problem as one would write it in scipy."""
    gaps = eigenvalues - eigenvalues.min()
    high = linalg.norm(coefficients, check_finite=False) / radius

    def excess(shift):
        terms = coefficients / (gaps + shift)
        return 1 / radius - 1 / np.sqrt(terms @ terms)

    shift = optimize.brentq(excess, 1e-15 * high, 2 * high, xtol=1e-16 * high, rtol=1e-15)
    return coefficients / (gaps + shift)


def evaluations(eigenvalues, coefficients, radii):
    """How often the kernel evaluated the secular function, for every problem over a sphere."""
    counts = np.empty(len(radii), np.intc)
    out = np.empty(coefficients.shape), np.empty(len(radii))
    solve_quadratics(eigenvalues, coefficients, radii, True, 0, len(radii), *out, counts)
    return counts


class Batch:
    params = ([(100_000, 10), (1000, 1000), (1, 100_000)],)
    param_names = ("size",)

    def setup(self, size):
        self.problems = problems(*size)

    def time_sphere(self, size):
        quadratic_over_sphere(*self.problems, n_threads=1)

    def time_ball(self, size):
        quadratic_over_ball(*self.problems, n_threads=1)

    def track_nanoseconds_a_term_and_evaluation(self, size):
        total = evaluations(*self.problems).sum() * size[1]
        times = (seconds(lambda: quadratic_over_sphere(*self.problems, n_threads=1)) for _ in range(7))
        return 1e9 * statistics.median(times) / total


class AgainstBrentq:
    """A batch of ours against a loop of theirs."""

    params = ([(200, 10), (50, 1000), (1, 100_000)],)
    param_names = ("size",)

    def setup(self, size):
        self.problems = problems(*size)

    def track_ratio_brentq(self, size):
        def theirs():
            for problem in zip(*self.problems, strict=True):
                brentq_over_sphere(*problem)

        return median_ratio(lambda: quadratic_over_sphere(*self.problems, n_threads=1), theirs, rounds=7)


def noisy_moments(n, d, outcomes, seed=0):
    """Rows and labels of norm 1, correlated; X'Y exact and with the noise of the Gaussian mechanism."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=(d, outcomes)) / d**0.5 + rng.normal(size=(n, outcomes))
    x, y = (table / linalg.norm(table, axis=1, keepdims=True) for table in (x, y))
    exact = x.T @ y
    scale = gaussian_scale(1.0, 1e-6, sensitivity=2.0)
    return y, exact, exact + scale * rng.normal(size=exact.shape)


def secular_share(factor, xy):
    """Part of a projection that the secular solve takes, median over alternating rounds."""
    lengths = linalg.norm(factor._coordinates(xy), axis=0)
    squares, radius = factor.singular_values**2, factor.n_rows**0.5

    def solve():
        ball_multiplier(squares, lengths, radius)

    return 1.0 / median_ratio(solve, lambda: factor.project(xy, 1.0), rounds=9)


class Projection:
    params = ([(200, 16, 400), (2000, 64, 300), (300, 64, 2000)],)
    param_names = ("n_d_outcomes",)

    def setup(self, size):
        self.labels, self.exact, self.noisy = noisy_moments(*size)
        self.factor = LabelFactor.from_labels(self.labels)

    def time_factor(self, size):
        LabelFactor.from_labels(self.labels)

    def time_project(self, size):
        self.factor.project(self.noisy, 1.0)

    def track_secular_share(self, size):
        return secular_share(self.factor, self.noisy)

    def track_ratio_squared_error(self, size):
        projected = self.factor.project(self.noisy, 1.0)
        return float(np.sum((self.noisy - self.exact) ** 2) / np.sum((projected - self.exact) ** 2))


def largest_error(count):
    """Largest relative error of a solution over hard cases and cases near it."""
    import mpmath as mp
    from reference.secular import exact_minimiser

    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(count):
        a, c = np.sort(rng.normal(size=6)), rng.normal(size=6)
        c[0] = 10.0 ** rng.uniform(-30, 0) * rng.choice([0.0, 1.0])
        radius = linalg.norm(c[1:] / (a[1:] - a[0])) * (1 + 10.0 ** rng.uniform(-16, 0) * rng.choice([-0.9, 1.0]))
        x, (exact, _) = quadratic_over_sphere(a, c, radius), exact_minimiser(a, c, radius, True)
        difference = mp.sqrt(mp.fsum((mp.mpf(x_j) - e) ** 2 for x_j, e in zip(x, exact, strict=True)))
        worst = max(worst, float(difference / radius))
    return worst


def main():
    for size in Batch.params[0]:
        bench = Batch()
        bench.setup(size)
        counts = evaluations(*bench.problems)
        batch = statistics.median(seconds(lambda b=bench, s=size: b.time_sphere(s)) for _ in range(9)) / size[0]
        print(
            f"{size}: {1e6 * batch:.3g} us a problem, "
            f"{bench.track_nanoseconds_a_term_and_evaluation(size):.2f} ns a term and evaluation, "
            f"evaluations {np.median(counts):.0f} median, {counts.max()} at most"
        )
    for size in AgainstBrentq.params[0]:
        bench = AgainstBrentq()
        bench.setup(size)
        print(f"{size}: {bench.track_ratio_brentq(size):.1f} times faster than brentq")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    print(f"largest error near the hard case: {largest_error(300):.1e} of the radius")
    labels, exact, noisy = noisy_moments(2000, 64, 2000)
    factor = LabelFactor.from_labels(labels)
    gain = np.sum((noisy - exact) ** 2) / np.sum((factor.project(noisy, 1.0) - exact) ** 2)
    print(
        f"n = l = 2000, d = 64: secular share {secular_share(factor, noisy):.2%}, squared error {gain:.0f} times less"
    )


if __name__ == "__main__":
    main()
