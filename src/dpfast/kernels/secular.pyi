import numpy as np
from numpy.typing import NDArray

def solve_quadratics(
    eigenvalues: NDArray[np.float64],
    coefficients: NDArray[np.float64],
    radii: NDArray[np.float64],
    sphere: bool,
    start: int,
    stop: int,
    solutions: NDArray[np.float64],
    multipliers: NDArray[np.float64],
    evaluations: NDArray[np.intc] | None = None,
    level: int = -1,
) -> None: ...
