import numpy as np
from numpy.typing import NDArray

def discrete_gaussian(
    thresholds: NDArray[np.uint64],
    sure: NDArray[np.uint64],
    guide: NDArray[np.uint16],
    guide_bits: int,
    shift: int,
    scale: float,
    margin: float,
    words: NDArray[np.uint64],
    position: int,
    draws: NDArray[np.int64],
) -> tuple[int, int, bool]: ...
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
def insert(
    words: NDArray[np.uint64], n_total: int, largest: int, bitmap: NDArray[np.uint64], n_missing: int
) -> int: ...
def selected(bitmap: NDArray[np.uint64], n_total: int, complement: bool, out: NDArray[np.int64]) -> None: ...
