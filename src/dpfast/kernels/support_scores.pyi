import numpy as np
from numpy.typing import NDArray

def score_supports(
    xx: NDArray[np.float64],
    xy: NDArray[np.float64],
    ridge: float,
    tolerance: float,
    first: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> None: ...
