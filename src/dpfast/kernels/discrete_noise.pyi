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
