from typing import Any

import numpy as np
from numpy.typing import NDArray

class FirstVisits:
    def __init__(
        self,
        n_states: int,
        gamma: float,
        horizon: int,
        longest: int,
        *,
        counted: int | None = None,
        low: float = 0.0,
        scale: float = 1.0,
        largest: float = 0.0,
    ) -> None: ...
    def add(
        self, states: NDArray[Any], rewards: NDArray[Any], offsets: NDArray[np.int64], first: int, last: int
    ) -> None: ...
    def add_to(self, units: NDArray[np.int64], counts: NDArray[np.int64]) -> None: ...
    def list_units(
        self,
        states: NDArray[Any],
        rewards: NDArray[Any],
        offsets: NDArray[np.int64],
        first: int,
        last: int,
        visited: NDArray[np.int32],
        units: NDArray[np.float64],
        ends: NDArray[np.int64],
        every: bool = False,
    ) -> int: ...
    def use_stamps_up_to(self, stamp: int) -> None: ...

def first_bad_step(states: NDArray[Any], rewards: NDArray[Any], n_states: int, most: float) -> int: ...
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
def sum_inverse_squares(weights: NDArray[np.float64], counts: NDArray[np.float64], k: float) -> float: ...
