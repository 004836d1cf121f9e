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
