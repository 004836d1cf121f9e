from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dpfast.kernels.columns import Rows

BASELINE: Final = 0
PACKED: Final = 0
X_NOT_FINITE: Final = 1
Y_NOT_FINITE: Final = 2

def cpu_level() -> int: ...
def aligned_zeros(n_words: int, dtype: DTypeLike = ...) -> NDArray[Any]: ...

class GramSums:
    def __init__(
        self,
        grid_x: tuple[int, float, float, int],
        grid_y: tuple[int, float, float, int],
        *,
        block_rows: int,
        use_blas: bool,
        with_sums: bool,
        cross_only: bool = False,
        level: int = -1,
    ) -> None: ...
    @property
    def block_rows(self) -> int: ...
    @property
    def level(self) -> int: ...
    @property
    def rows_in_totals(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def add(
        self,
        x: Rows,
        y: Rows | None,
        rows: NDArray[np.int64] | None,
        start: int,
        stop: int,
    ) -> int: ...

class GramTotals:
    def __init__(self, n_x: int, n_y: int, squared_bound: int) -> None: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def squared_bound(self) -> int: ...
    def take(self, parts: list[GramSums]) -> None: ...
    def add(self, other: GramTotals) -> None: ...
    def copy(self) -> GramTotals: ...
    def symmetric(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]: ...
    def symmetric_as_float64(self, unit: float) -> NDArray[np.float64]: ...
    def equals(self, other: GramTotals) -> bool: ...
    def cross(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]: ...
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]: ...

def restore_totals(
    n_x: int,
    n_y: int,
    squared_bound: int,
    n_rows: int,
    product_high: NDArray[np.int64],
    product_low: NDArray[np.uint64],
    column_high: NDArray[np.int64],
    column_low: NDArray[np.uint64],
) -> GramTotals: ...
