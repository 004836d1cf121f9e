"""Data for examples, tests and benchmarks: the papers' generators, and small real tables.

Nothing here is private. Synthetic data come from NumPy's generators. So modules with releases must not import this
package: noise comes from `dpfast.noise` alone.
"""

from dpfast.datasets.california import Panel, california_prop99
from dpfast.datasets.decision_processes import (
    GYMNASIUM_ENVIRONMENTS,
    FlatTrajectories,
    adjacent_pairs,
    chain_trajectories,
    chain_values,
    gymnasium_values,
    markov_trajectories,
    table_values,
)
from dpfast.datasets.panels import SyntheticPanel, synthetic_control_panel

__all__ = [
    "GYMNASIUM_ENVIRONMENTS",
    "FlatTrajectories",
    "Panel",
    "SyntheticPanel",
    "adjacent_pairs",
    "california_prop99",
    "chain_trajectories",
    "chain_values",
    "gymnasium_values",
    "markov_trajectories",
    "synthetic_control_panel",
    "table_values",
]
