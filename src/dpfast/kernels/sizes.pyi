import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import Rows
from dpfast.statistics.norm_histograms import LogarithmicBins

def codes_of(
    rows: Rows, bins: LogarithmicBins, norms: bool, codes: NDArray[np.int16], start: int, stop: int
) -> bool: ...
def count(codes: NDArray[np.int16], n_rows: int, largest_code: int, counts: NDArray[np.int64]) -> None: ...
def keep_extremes(
    codes: NDArray[np.int16],
    owners: NDArray[np.int64],
    start: int,
    stop: int,
    largest: NDArray[np.int16],
    least: NDArray[np.int16],
) -> None: ...
