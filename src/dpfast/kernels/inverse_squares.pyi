import numpy as np
from numpy.typing import NDArray

def sum_inverse_squares(weights: NDArray[np.float64], counts: NDArray[np.float64], k: float) -> float: ...
