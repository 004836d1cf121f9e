"""Building blocks of attacks, used by each family: laws of noise, lower bounds, rows at the worst angle."""

from dpfast.registry import lazy, stub_homes

__all__ = sorted(_HOMES := stub_homes(__file__))

__getattr__, __dir__ = lazy(__name__, _HOMES)
