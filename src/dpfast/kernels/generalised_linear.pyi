import numpy as np
from numpy.typing import NDArray

_FloatArray = NDArray[np.float64]

def local_losses(
    z: _FloatArray,
    y: _FloatArray,
    out: _FloatArray,
    *,
    kind: str,
    width: float = 1.0,
    threshold: float = 1.0,
    start: float = 0.0,
    shift: float = 0.0,
) -> None: ...

class LossSums:
    def __init__(
        self,
        rows: _FloatArray,
        outcomes: _FloatArray,
        weights: _FloatArray | None = None,
        *,
        kind: str,
        width: float = 1.0,
        threshold: float = 1.0,
        start: float = 0.0,
        shift: float = 0.0,
        level: int = -1,
    ) -> None: ...
    def model(
        self, theta: _FloatArray, start: int, stop: int, gradient: _FloatArray, hessian: _FloatArray
    ) -> float: ...
    def precise_gradient(self, theta: _FloatArray, start: int, stop: int, gradient: _FloatArray) -> None: ...
