import numpy as np
from numpy.typing import NDArray

from dpfast.kernels.columns import CodeLayout, Rows
from dpfast.kernels.gram import GramSums

class CodedSums(GramSums):
    def begin(self, layout: CodeLayout, values: NDArray[np.int64]) -> bool: ...
    def add_coded(
        self,
        numbers: Rows,
        codes: list[NDArray[np.int32]],
        y: Rows | None,
        start: int,
        stop: int,
        beyond: NDArray[np.uint8],
    ) -> int: ...
