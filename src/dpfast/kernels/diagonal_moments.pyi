import numpy as np
from numpy.typing import NDArray

def add_diagonal(
    visited: NDArray[np.int32],
    units: NDArray[np.float64],
    ends: NDArray[np.int64],
    n: int,
    weights: NDArray[np.float64],
    scale: float,
    bound_a: float,
    bound_b: float,
    totals: NDArray[np.int64],
) -> None: ...
