"""Arrays of other libraries where they lie, without a copy: what offers DLPack, or itself as an Arrow C array."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfast._own_words import in_own_words
from dpfast.io.arrow import is_number, numbers_of
from dpfast.io.streams import arrow_library

# Devices whose memory the processor reads: its own, and that which CUDA or ROCm pin or manage for it.
_READ_BY_THE_PROCESSOR = frozenset({1, 3, 11, 13})


def is_lent(values: object) -> bool:
    """Whether an object that is neither NumPy's nor a table of columns offers its memory."""
    if isinstance(values, np.ndarray | type) or hasattr(values, "__arrow_c_stream__"):
        return False
    return hasattr(values, "__dlpack__") or hasattr(values, "__arrow_c_array__")


def check_unmasked(values: object, name: str) -> None:
    """Refuse masked arrays: NumPy reads what lies under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; drop or fill its missing values first")


def borrowed(values: Any, name: str) -> Any:
    """Return what is lent as an array of the same memory, structs as a record batch, and anything else as it is.

    Arrow's lists of one length are rows. A copy is made where Arrow has missing entries, which become NaN, or bits for
    booleans. TypeError for what lies on a device of its own, and for masked arrays.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from dpfast.io.borrowed import borrowed
    >>> ages = pa.array([30.0, 40.0])
    >>> borrowed(ages, "ages").ctypes.data == ages.buffers()[1].address
    True
    """
    check_unmasked(values, name)
    if not is_lent(values):
        return values
    if hasattr(values, "__arrow_c_array__"):
        return _of_arrow(values, name)
    problem = f"{name} does not lend its memory: its numbers may be of a type that NumPy lacks, or need .detach()"
    device = in_own_words(lambda: int(values.__dlpack_device__()[0]), problem, TypeError)
    if device not in _READ_BY_THE_PROCESSOR:
        raise TypeError(
            f"{name} lies in the memory of a GPU or another device: copy it to that of the processor first, as .get() "
            "of CuPy and .cpu() of PyTorch do"
        )
    return in_own_words(lambda: np.from_dlpack(values), problem, TypeError)


def _of_arrow(values: Any, name: str) -> Any:
    pyarrow = arrow_library(name)
    array = in_own_words(lambda: pyarrow.array(values), f"{name} is no array that pyarrow reads", TypeError)
    types = pyarrow.types
    if types.is_struct(array.type):
        return pyarrow.RecordBatch.from_struct_array(array)
    shape: tuple[int, ...] = (len(array),)
    if types.is_fixed_size_list(array.type) and array.null_count == 0:
        shape, array = (len(array), array.type.list_size), array.flatten()
    if not is_number(array.type):
        raise TypeError(f"{name} is no array of numbers")
    return numbers_of(array).reshape(shape)
