"""The only folder that draws randomness: sources of bits, and exact laws seen through a public grid."""

from .discrete import discrete_gaussian
from .grid import default_grid, finest_grid, grid_for_scales
from .indices import ExponentialPick, random_blocks, sample_without_replacement
from .radial import l2_laplace
from .samplers import gaussian, laplace
from .source import BitSource, SecureSource, SeededSource, resolve_source

__all__ = [
    "BitSource",
    "ExponentialPick",
    "SecureSource",
    "SeededSource",
    "default_grid",
    "discrete_gaussian",
    "finest_grid",
    "gaussian",
    "grid_for_scales",
    "l2_laplace",
    "laplace",
    "random_blocks",
    "resolve_source",
    "sample_without_replacement",
]
