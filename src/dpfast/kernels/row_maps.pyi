from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast._arrays import IntArray
from dpfast.kernels.columns import Rows
from dpfast.kernels.gram import GramSums

class RowMapKernel:
    def __init__(
        self,
        n_columns: int,
        *,
        low: NDArray[np.float64] | None = None,
        high: NDArray[np.float64] | None = None,
        bound: float = ...,
        top: int | None = None,
        center: NDArray[np.float64] | None = None,
        scale: NDArray[np.float64] | None = None,
        basis: NDArray[np.float64] | None = None,
        offset: float = 0.0,
        unit: float = 1.0,
        fills: bool = False,
        level: int = -1,
    ) -> None: ...
    @property
    def n_features(self) -> int: ...
    def map_rows(self, rows: Rows, out: NDArray[Any], start: int, stop: int) -> bool: ...

class CodedMapKernel:
    def __init__(
        self,
        map_numbers: RowMapKernel | None,
        levels: tuple[int, ...],
        bound: float,
        squared_absent: float,
        slot_squares: NDArray[np.float64],
        center: NDArray[np.float64],
        inverse_scale: NDArray[np.float64],
        of_numbers: NDArray[np.float64],
        of_slots: NDArray[np.float64],
        absent: NDArray[np.float64],
        constant: NDArray[np.float64],
        *,
        block_rows: int = ...,
        level: int = -1,
    ) -> None: ...
    @property
    def block_rows(self) -> int: ...
    def map_rows(self, numbers: Rows, codes: list[NDArray[np.int32]], out: NDArray[np.float64]) -> bool: ...

def add_mapped(
    sums: GramSums,
    map_x: RowMapKernel,
    map_y: RowMapKernel | None,
    x: Rows,
    y: Rows | None,
    rows: IntArray | None,
    start: int,
    stop: int,
) -> int: ...
