import numpy as np
from numpy.typing import NDArray

_FloatArray = NDArray[np.float64]

class ProximalSteps:
    def __init__(
        self,
        n: int,
        *,
        weight: float,
        step: float,
        set_name: str,
        radius: float = 0.0,
        bounds: tuple[_FloatArray, _FloatArray] | None = None,
        level: int = -1,
    ) -> None: ...
    def step_along(self, x: _FloatArray, gradient: _FloatArray, out: _FloatArray) -> bool: ...

def extrapolate(momentum: float, x: _FloatArray, last: _FloatArray, ahead: _FloatArray) -> None: ...
def add(a: _FloatArray, b: _FloatArray, total: _FloatArray) -> None: ...

class QuadraticSteps(ProximalSteps):
    def __init__(
        self,
        matrix: _FloatArray,
        transposed: _FloatArray | None,
        linear: _FloatArray,
        *,
        diagonal: tuple[float, float],
        weight: float,
        step: float,
        set_name: str,
        radius: float = 0.0,
        bounds: tuple[_FloatArray, _FloatArray] | None = None,
        level: int = -1,
    ) -> None: ...
    def gradient(self, x: _FloatArray, out: _FloatArray) -> None: ...
    def step(self, x: _FloatArray, out: _FloatArray) -> bool: ...
    def accelerate(self, momentum: float, n_steps: int, x: _FloatArray, last: _FloatArray) -> None: ...

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
