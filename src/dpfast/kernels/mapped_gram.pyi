from dpfast._arrays import IntArray
from dpfast.kernels.columns import Rows
from dpfast.kernels.gram import GramSums
from dpfast.kernels.row_maps import RowMapKernel

def add_mapped(
    sums: GramSums,
    map_x: RowMapKernel,
    map_y: RowMapKernel | None,
    x: Rows,
    y: Rows | None,
    rows: IntArray | None,
    start: int,
    stop: int,
) -> int: ...
