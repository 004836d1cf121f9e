"""Any table as blocks of rows: NumPy, pandas, whatever offers Arrow's stream, files, Dask, iterables of blocks."""

from dpfast.registry import lazy, stub_homes

__all__ = sorted(_HOMES := stub_homes(__file__))

__getattr__, __dir__ = lazy(__name__, _HOMES)
