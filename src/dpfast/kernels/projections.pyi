import numpy as np
from numpy.typing import NDArray

def project(
    points: NDArray[np.float64],
    radius: float,
    start: int,
    stop: int,
    workspace: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None: ...
