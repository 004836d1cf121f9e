import numpy as np
from numpy.typing import NDArray

def to_float64(high: NDArray[np.int64], low: NDArray[np.uint64], out: NDArray[np.float64]) -> None: ...
