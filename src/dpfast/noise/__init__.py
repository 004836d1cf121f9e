"""The only folder that draws randomness: sources of bits, and exact laws seen through a public grid."""

from dpfast.registry import lazy, stub_homes

__all__ = sorted(_HOMES := stub_homes(__file__))

__getattr__, __dir__ = lazy(__name__, _HOMES)
