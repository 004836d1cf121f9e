import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

class ProximalSteps:
    def __init__(
        self,
        n: int,
        *,
        weight: float,
        step: float,
        set_name: str,
        radius: float = 0.0,
        bounds: tuple[FloatArray, FloatArray] | None = None,
        level: int = -1,
    ) -> None: ...
    def step_along(self, x: FloatArray, gradient: FloatArray, out: FloatArray) -> bool: ...

def extrapolate(momentum: float, x: FloatArray, last: FloatArray, ahead: FloatArray) -> None: ...

class QuadraticSteps(ProximalSteps):
    def __init__(
        self,
        matrix: FloatArray,
        transposed: FloatArray | None,
        linear: FloatArray,
        *,
        diagonal: tuple[float, float],
        weight: float,
        step: float,
        set_name: str,
        radius: float = 0.0,
        bounds: tuple[FloatArray, FloatArray] | None = None,
        level: int = -1,
    ) -> None: ...
    def gradient(self, x: FloatArray, out: FloatArray) -> None: ...
    def step(self, x: FloatArray, out: FloatArray) -> bool: ...
    def accelerate(self, momentum: float, n_steps: int, x: FloatArray, last: FloatArray) -> None: ...
