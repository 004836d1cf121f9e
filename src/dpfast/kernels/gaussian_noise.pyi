import numpy as np
from numpy.typing import NDArray

def quantile_table() -> NDArray[np.float64]: ...
def vector_level(level: int = -1) -> int: ...
def gaussian_offsets(
    words: NDArray[np.uint64],
    fractions: NDArray[np.float64] | None,
    steps: float,
    margin: float,
    offsets: NDArray[np.float64],
    ambiguous: NDArray[np.intp],
    level: int = -1,
) -> int: ...
def split_cells(
    values: NDArray[np.float64], grid: float, nearest: NDArray[np.float64], fractions: NDArray[np.float64]
) -> None: ...
def join_cells(
    nearest: NDArray[np.float64] | None, offsets: NDArray[np.float64], grid: float, released: NDArray[np.float64]
) -> None: ...
def draw_about(
    high: NDArray[np.int64],
    low: NDArray[np.uint64],
    words: NDArray[np.uint64],
    shift: int,
    steps: float,
    margin: float,
    exponent: int,
    released: NDArray[np.float64],
    level: int = -1,
) -> bool: ...
