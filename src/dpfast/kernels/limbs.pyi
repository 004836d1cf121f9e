import numpy as np
from numpy.typing import NDArray

def to_float64(high: NDArray[np.int64], low: NDArray[np.uint64], out: NDArray[np.float64]) -> None: ...
def to_float64_pair(
    high: NDArray[np.int64], low: NDArray[np.uint64], out: NDArray[np.float64], left_out: NDArray[np.float64]
) -> None: ...
def add(
    high: NDArray[np.int64],
    low: NDArray[np.uint64],
    more_high: NDArray[np.int64],
    more_low: NDArray[np.uint64],
    sum_high: NDArray[np.int64],
    sum_low: NDArray[np.uint64],
) -> None: ...
def split_cells(
    high: NDArray[np.int64],
    low: NDArray[np.uint64],
    shift: int,
    cells_high: NDArray[np.int64],
    cells_low: NDArray[np.uint64],
    fractions: NDArray[np.float64],
) -> None: ...
def join_cells(
    high: NDArray[np.int64],
    low: NDArray[np.uint64],
    offsets: NDArray[np.float64],
    exponent: int,
    released: NDArray[np.float64],
) -> None: ...
