"""Data for examples, tests and benchmarks: the papers' generators, and small real tables.

Nothing here is private. Synthetic data come from NumPy's generators. So modules with releases must not import this
package: noise comes from `dpfast.noise` alone.
"""

from dpfast.registry import lazy, stub_homes

__all__ = sorted(_HOMES := stub_homes(__file__))

__getattr__, __dir__ = lazy(__name__, _HOMES)
