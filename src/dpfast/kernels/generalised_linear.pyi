import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

class LossSums:
    def __init__(
        self,
        rows: FloatArray,
        outcomes: FloatArray,
        *,
        kind: str,
        width: float = 1.0,
        threshold: float = 1.0,
        level: int = -1,
    ) -> None: ...
    def model(self, theta: FloatArray, start: int, stop: int, gradient: FloatArray, hessian: FloatArray) -> float: ...
    def precise_gradient(self, theta: FloatArray, start: int, stop: int, gradient: FloatArray) -> None: ...
