"""Data for examples, tests and benchmarks: the papers' generators, and small real tables.

Nothing here is private. Synthetic data come from NumPy's generators, which is why nothing that releases anything may
import this package: noise comes from `dpfast.noise` alone.
"""

from dpfast.datasets.california import Panel, california_prop99
from dpfast.datasets.panels import SyntheticPanel, synthetic_control_panel

__all__ = ["Panel", "SyntheticPanel", "california_prop99", "synthetic_control_panel"]
