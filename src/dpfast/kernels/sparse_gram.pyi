from dpfast.kernels.columns import Rows, SparseBlock
from dpfast.kernels.gram import GramSums

OUTSIDE: int

def add_sparse(sums: GramSums, x: SparseBlock, y: Rows | None, start: int, stop: int) -> int: ...
