from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import Rows

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
