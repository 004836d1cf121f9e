from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import Rows
from dpfast.kernels.row_maps import RowMapKernel

class CodedRows:
    def __init__(self, tables: Any, map_y: RowMapKernel | None, *, level: int = -1) -> None: ...
    level: int
    def add(
        self,
        numbers: Rows,
        codes: list[NDArray[np.int32]],
        y: Rows | None,
        start: int,
        stop: int,
        left_out: NDArray[np.uint8],
    ) -> int: ...

class CodedSums(CodedRows):
    n_rows: int
    n_beyond: int
    def __init__(
        self, tables: Any, map_y: RowMapKernel, clip: tuple[float, float, float, float], *, level: int = -1
    ) -> None: ...
    @property
    def room(self) -> int: ...
    def take(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.uint64], int]: ...

class CodedSizes(CodedRows):
    def __init__(self, tables: Any, map_y: RowMapKernel, *, first: int, last: int, level: int = -1) -> None: ...
    def take(self) -> NDArray[np.int64]: ...

class CodedNorms(CodedRows):
    def __init__(self, tables: Any, *, level: int = -1) -> None: ...
    def of(
        self, numbers: Rows, codes: list[NDArray[np.int32]], norms: NDArray[np.float64], left_out: NDArray[np.uint8]
    ) -> int: ...
