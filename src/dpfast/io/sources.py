"""The kind of source of a table, and the files of a path.

A library is asked about its tables only where somebody has imported it. A table of Arrow's that is *held*, as Arrow's
own and Polars' frames are, has an order of rows and can be read again. A *query*, a relation of DuckDB or a lazy frame,
is executed anew for each pass, and its rows may come in another order: sums over them do not change, but nothing can go
with them row by row. Of what else offers a stream nothing is known: it is read once, and it is taken for a query.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from dpfast._redacted import in_own_words

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npy": "npy"}


def is_path(table: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether `table` names files."""
    return isinstance(table, (str, os.PathLike))


def is_frame(table: object) -> bool:
    """Whether `table` is a pandas DataFrame or Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, (pandas.DataFrame, pandas.Series))


def is_arrow(table: object) -> bool:
    """Whether `table` is a table that is read as Arrow's record batches; one of pandas' is not."""
    if isinstance(table, np.ndarray | type) or is_frame(table):
        return False
    if is_lazy_frame(table) or is_dataset(table):
        return True
    # A single column offers both a stream and itself as an array, and has no columns.
    is_table = hasattr(table, "columns") or not hasattr(table, "__array__")
    return hasattr(table, "__arrow_c_stream__") and is_table


def is_held(table: object) -> bool:
    """Whether the rows of a table of Arrow's or Polars' are in memory."""
    return _is_instance("pyarrow", ("Table", "RecordBatch"), table) or is_polars_frame(table)


def is_query(table: object) -> bool:
    """Whether the rows of a table accepted by `is_arrow` come in no fixed order."""
    return is_arrow(table) and not (is_held(table) or is_dataset(table) or is_reader(table))


def streams_once(table: object) -> bool:
    """Whether a table accepted by `is_arrow` can be read only once, or perhaps so."""
    return is_arrow(table) and not (is_held(table) or is_dataset(table) or is_lazy_frame(table) or is_relation(table))


def tables_of(several: Iterable[Any], name: str) -> Iterator[Any]:
    """Iterate over tables that make up one; refuse text, a file given twice, and a query from an iterator."""
    is_listed = isinstance(several, list | tuple)
    if is_listed:
        paths = [one for one in several if is_path(one)]
        for one in paths:
            check_listed(one, name)
        check_named_once(list(map(Path, paths)), name)
    for one in several:
        check_listed(one, name)
        if is_query(one) and not is_listed:
            # Whether anything goes with a table row by row is asked before it is read.
            raise TypeError(f"{name} yields a query, whose rows come in no fixed order: give queries in a list")
        yield one


def is_sparse(table: object) -> bool:
    """Whether `table` is a sparse matrix or array of scipy."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(table))


def is_lent(values: object) -> bool:
    """Whether an object that is neither NumPy's nor a table of columns offers its memory."""
    if isinstance(values, np.ndarray | type) or hasattr(values, "__arrow_c_stream__"):
        return False
    return hasattr(values, "__dlpack__") or hasattr(values, "__arrow_c_array__")


def is_dask(table: object) -> bool:
    """Whether `table` is a Dask array, dataframe, series or bag."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


def check_no_dask(table: object) -> None:
    """Refuse a Dask collection for rows to be put in order: they may lie in several of its partitions."""
    if is_dask(table):
        raise TypeError(
            "a table in long form, whose rows are put in order, cannot be a Dask collection: compute it first, or give "
            "dpfast.io.DaskPartitions of wide donors, or of a bag of Trajectories"
        )


def check_listed(item: object, name: str) -> None:
    """Refuse an item of a list that is text and no path: it may be somebody's, and a path's error would quote it."""
    if not isinstance(item, str) or Path(item).suffix in FORMATS:
        return
    problem = f"{name} holds text; real numbers are needed, or paths that end in {', '.join(FORMATS)}"
    if not in_own_words(lambda: os.path.isdir(item) or glob.glob(item, recursive=True), problem, TypeError):
        raise TypeError(problem)


def check_on_disk(path: str | os.PathLike[str], name: str) -> None:
    """Refuse an address."""
    if "://" in str(path):
        raise ValueError(f"{name} is the address {str(path)!r}: files are read from a disk, copy them first")


def table_files(path: str | os.PathLike[str], name: str) -> list[Path]:
    """Return the files, of one format, that a path stands for, in the order of their names; at least one.

    It is a file, which may not exist, a pattern, or a folder: the tables directly in it.
    """
    check_on_disk(path, name)
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in FORMATS and not file.name.startswith("."))
        if not files:
            raise ValueError(f"{name} is the folder {str(place)!r}, which holds no {', '.join(FORMATS)} file")
    elif glob.has_magic(str(place)) and not place.exists():
        files = sorted(map(Path, glob.glob(str(place), recursive=True)))
        if not files:
            raise ValueError(f"{name} is the pattern {str(place)!r}, which no file matches")
    else:
        files = [place]
    formats = {file_format(file, name) for file in files}
    if len(formats) > 1:
        raise ValueError(
            f"{name} is {str(place)!r}, which holds files of several formats: {', '.join(sorted(formats))}"
        )
    check_named_once(files, name)
    return files


def check_named_once(files: Sequence[Path], name: str) -> None:
    """Refuse files of which one has two names, be it by a link: its rows would count twice."""
    places = [(found.st_dev, found.st_ino) for found in (file.stat() for file in files if file.exists())]
    if len(set(places)) < len(places):
        raise ValueError(f"{name} names a file twice, whose rows would count twice")


def file_format(file: Path, name: str) -> str:
    """Return "parquet", "csv" or "npy"."""
    if not file.suffix:
        raise TypeError(
            f"{name} is text, which is read as a path to files of {', '.join(FORMATS)}; of a column of a table give "
            "the column itself, such as frame['name']"
        )
    if file.suffix not in FORMATS:
        raise TypeError(f"{name} is a path with the suffix {file.suffix!r}; accepted: {', '.join(FORMATS)}")
    return FORMATS[file.suffix]


def _is_instance(library: str, names: Sequence[str], table: object) -> bool:
    """Whether an object is of a library's class; true only if the library has been imported."""
    module = sys.modules.get(library)
    return module is not None and isinstance(table, tuple(getattr(module, name) for name in names))


is_reader = partial(_is_instance, "pyarrow", ("RecordBatchReader",))
is_dataset = partial(_is_instance, "pyarrow.dataset", ("Dataset",))
is_lazy_frame = partial(_is_instance, "polars", ("LazyFrame",))
is_polars_frame = partial(_is_instance, "polars", ("DataFrame",))
is_relation = partial(_is_instance, "duckdb", ("DuckDBPyRelation",))
