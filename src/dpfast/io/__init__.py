"""Any table as blocks of rows: NumPy, pandas, whatever offers Arrow's stream, files, Dask, iterables of blocks."""

from dpfast._redacted import in_own_words
from dpfast.io.arrays import as_matrix, borrowed
from dpfast.io.arrow import stream_names
from dpfast.io.blocks import blocks, check_aligned, in_memory, is_unordered
from dpfast.io.columns import Boolean, Category, Columns, EncodedTable, Number
from dpfast.io.engines import DaskPartitions, ProcessPartitions, SparkPartitions, reduce_partitions
from dpfast.io.panel import (
    Orientation,
    Panel,
    check_n_pre,
    intervention_at,
    open_long_panel,
    open_panel,
    period_labels,
    target_rows,
)
from dpfast.io.partitions import EngineError, Partitions, PersonIds, sum_over
from dpfast.io.people import People, RowOwners, is_partitioned_by_person, people
from dpfast.io.sources import is_arrow, is_dask, is_sparse
from dpfast.io.states import StateEncoder
from dpfast.io.table import (
    BlockMap,
    Deferred,
    Table,
    groups_of,
    map_block,
    one_table,
    open_table,
    read_now,
    reusing_room,
)
from dpfast.io.trajectories import Trajectories
from dpfast.io.transforms import Interaction, Log, Polynomial, Spline
from dpfast.io.weights import weighed
from dpfast.io.writing import write_table

__all__ = [
    "BlockMap",
    "Boolean",
    "Category",
    "Columns",
    "DaskPartitions",
    "Deferred",
    "EncodedTable",
    "EngineError",
    "Interaction",
    "Log",
    "Number",
    "Orientation",
    "Panel",
    "Partitions",
    "People",
    "PersonIds",
    "Polynomial",
    "ProcessPartitions",
    "RowOwners",
    "SparkPartitions",
    "Spline",
    "StateEncoder",
    "Table",
    "Trajectories",
    "as_matrix",
    "blocks",
    "borrowed",
    "check_aligned",
    "check_n_pre",
    "groups_of",
    "in_memory",
    "in_own_words",
    "intervention_at",
    "is_arrow",
    "is_dask",
    "is_partitioned_by_person",
    "is_sparse",
    "is_unordered",
    "map_block",
    "one_table",
    "open_long_panel",
    "open_panel",
    "open_table",
    "people",
    "period_labels",
    "read_now",
    "reduce_partitions",
    "reusing_room",
    "stream_names",
    "sum_over",
    "target_rows",
    "weighed",
    "write_table",
]
