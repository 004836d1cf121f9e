import numpy as np
from numpy.typing import NDArray

def insert(
    words: NDArray[np.uint64], n_total: int, largest: int, bitmap: NDArray[np.uint64], n_missing: int
) -> int: ...
def selected(bitmap: NDArray[np.uint64], n_total: int, complement: bool, out: NDArray[np.int64]) -> None: ...
