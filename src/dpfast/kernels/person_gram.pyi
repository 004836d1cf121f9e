import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import Rows
from dpfast.kernels.gram import GramSums

class PersonSums(GramSums):
    def __init__(
        self,
        grid_x: tuple[int, float, float, int],
        grid_y: tuple[int, float, float, int],
        *,
        bounds_xx: tuple[float, int],
        bounds_xy: tuple[float, int],
        safe_rows: int,
        block_rows: int,
        level: int = -1,
    ) -> None: ...
    def add_people(
        self, x: Rows, y: Rows | None, rows: NDArray[np.int64] | None, offsets: NDArray[np.int64], first: int, last: int
    ) -> int: ...
