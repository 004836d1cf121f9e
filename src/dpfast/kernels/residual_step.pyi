import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import Rows
from dpfast.kernels.row_maps import CodedMapKernel, RowMapKernel

ADDED: int
X_NOT_FINITE: int
Y_NOT_FINITE: int
LINKS: dict[str, int]

class ResidualRows:
    def __init__(
        self,
        map_x: RowMapKernel,
        map_y: RowMapKernel,
        theta: NDArray[np.float64],
        whitening: NDArray[np.float64] | None,
        has_constant: bool,
        link: str = "identity",
        longest: float = ...,
        smoothing: tuple[float, float] = (1.0, 1.0),
        beyond: float = 0.0,
        *,
        level: int = -1,
    ) -> None: ...
    level: int
    block_rows: int
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def room(self) -> float: ...
    def add(self, x: Rows, y: Rows, rows: NDArray[np.int64] | None, start: int, stop: int) -> int: ...
    def begin_coded(self, coded: CodedMapKernel) -> None: ...
    def add_coded(self, numbers: Rows, codes: list[NDArray[np.int32]], y: Rows, start: int, stop: int) -> int: ...
    def add_people(
        self, x: Rows, y: Rows, rows: NDArray[np.int64] | None, offsets: NDArray[np.int64], first: int, last: int
    ) -> int: ...

class ResidualSums(ResidualRows):
    def __init__(
        self,
        map_x: RowMapKernel,
        map_y: RowMapKernel,
        theta: NDArray[np.float64],
        whitening: NDArray[np.float64] | None,
        has_constant: bool,
        link: str = "identity",
        longest: float = ...,
        smoothing: tuple[float, float] = (1.0, 1.0),
        beyond: float = 0.0,
        *,
        units: tuple[float, float],
        row_limits: tuple[float, int],
        person_limits: tuple[float, int],
        squares_limits: tuple[float, float, int] | None = None,
        level: int = -1,
    ) -> None: ...
    rows_in_totals: int
    n_beyond: int
    def again(
        self,
        theta: NDArray[np.float64],
        beyond: float,
        units: tuple[float, float],
        row_limits: tuple[float, int],
        person_limits: tuple[float, int],
    ) -> None: ...
    def sum_again(
        self,
        x: Rows,
        y: Rows,
        theta: NDArray[np.float64],
        beyond: float,
        units: tuple[float, float],
        row_limits: tuple[float, int],
        person_limits: tuple[float, int],
        shift: int | None,
    ) -> tuple[int, NDArray[np.int64], NDArray[np.uint64], int]: ...
    def keep(self, products: NDArray[np.float32], sizes: NDArray[np.float64], n_rows: NDArray[np.uint8]) -> None: ...
    def take(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, int]: ...

class ResidualSizes(ResidualRows):
    def __init__(
        self,
        map_x: RowMapKernel,
        map_y: RowMapKernel,
        theta: NDArray[np.float64],
        whitening: NDArray[np.float64] | None,
        has_constant: bool,
        link: str = "identity",
        longest: float = ...,
        smoothing: tuple[float, float] = (1.0, 1.0),
        beyond: float = 0.0,
        *,
        first: int,
        last: int,
        level: int = -1,
    ) -> None: ...
    def take(self) -> NDArray[np.int64]: ...
