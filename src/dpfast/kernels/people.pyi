import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import Rows
from dpfast.kernels.gram import GramSums

def number_of_each(
    words: NDArray[np.int64], low: int, n_values: int, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], bool]: ...
def counts_of_sorted(words: NDArray[np.int64]) -> NDArray[np.int64] | None: ...
def rows_of_each(numbers: NDArray[np.int64], offsets: NDArray[np.int64], order: NDArray[np.int64]) -> None: ...
def first_of_each(numbers: NDArray[np.int64], n_numbers: int, most: int, chosen: NDArray[np.uint8]) -> None: ...

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
