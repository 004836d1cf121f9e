"""Noise: exact laws with cryptographic bits, against NumPy's insecure generator in the same process."""

import numpy as np

from benchmarks.timing import median_ratio
from dpfast.noise import SecureSource, discrete, discrete_gaussian, gaussian, l2_laplace, laplace
from dpfast.noise.samplers import GaussianLaw, release

N_DRAWS = 500_000
ALTERNATIONS = 9


class Gaussian:
    """Half a million draws, with and without a centre."""

    params = ([False, True], ["baseline", "avx2", "avx512"])
    param_names = ("centre", "level")

    def setup(self, centre, level):
        self.source = SecureSource()
        self.generator = np.random.default_rng(0)
        self.center = self.generator.normal(size=N_DRAWS) if centre else None
        self.law = GaussianLaw(["baseline", "avx2", "avx512"].index(level))
        self.ours()

    def ours(self):
        release(self.law, 3.7, N_DRAWS, self.source, center=self.center)

    def numpy(self):
        draws = self.generator.standard_normal(N_DRAWS) * 3.7
        if self.center is not None:
            draws += self.center

    def time_gaussian(self, centre, level):
        self.ours()

    def track_ratio_numpy_standard_normal(self, centre, level):
        return median_ratio(self.ours, self.numpy, ALTERNATIONS)


class DiscreteGaussian:
    """Half a million integers at scales from far below one to the largest."""

    params = ([2.0**-3, 1.0, 2.0**8, 2.0**30, 2.0**57],)
    param_names = ("scale",)

    def setup(self, scale):
        self.source = SecureSource()
        self.generator = np.random.default_rng(0)
        discrete_gaussian(scale, N_DRAWS, self.source)

    def time_discrete_gaussian(self, scale):
        discrete_gaussian(scale, N_DRAWS, self.source)

    def time_table(self, scale):
        discrete.column_table.cache_clear()
        discrete._cumulative.cache_clear()
        discrete.column_table(scale)

    def track_ratio_numpy_standard_normal(self, scale):
        return median_ratio(
            lambda: discrete_gaussian(scale, N_DRAWS, self.source),
            lambda: self.generator.standard_normal(N_DRAWS) * scale,
            ALTERNATIONS,
        )


class Laplace:
    """Independent Laplace draws, and one vector of L2-Laplace noise."""

    params = ([10, 1000, 10_000],)
    param_names = ("dim",)

    def setup(self, dim):
        self.source = SecureSource()

    def time_laplace(self, dim):
        laplace(1.0, dim, self.source)

    def time_l2_laplace(self, dim):
        l2_laplace(1.0, dim, self.source)


class Bits:
    """The words that every draw is made of."""

    def setup(self):
        self.stream = SecureSource().open()

    def time_words(self):
        self.stream.words(N_DRAWS)

    def peakmem_gaussian(self):
        gaussian(1.0, 4 * N_DRAWS, SecureSource())
