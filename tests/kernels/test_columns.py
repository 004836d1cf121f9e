"""Columns that lie apart: what is borrowed, what is copied, what is refused."""

import numpy as np
import pytest

from dpfast.kernels.columns import ColumnBlock


def test_what_can_be_borrowed_is():
    columns = [np.arange(4.0), np.ones(4)]
    block = ColumnBlock(columns)
    assert block.addresses.tolist() == [column.ctypes.data for column in columns]
    assert block[1:3].addresses.tolist() == [column.ctypes.data + 8 for column in columns]
    assert np.asarray(block).tolist() == np.column_stack(columns).tolist()
    assert np.asarray(block[np.array([3, 0])]).tolist() == [[3.0, 1.0], [0.0, 1.0]]
    assert np.asarray(block, np.float32).dtype == np.float32
    assert "not private" in repr(block)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_other_columns_are_converted(dtype):
    unaligned = np.frombuffer(b"x" + np.arange(4.0).tobytes(), np.float64, offset=1)
    columns = [np.arange(8.0)[::2], np.arange(4, dtype=">f8"), np.arange(4), np.arange(4) > 1, unaligned]
    block = ColumnBlock(columns, dtype)
    assert block.dtype == dtype
    assert block.shape == (4, 5)
    np.testing.assert_array_equal(np.asarray(block), np.column_stack(columns))


def test_columns_must_go_together():
    with pytest.raises(ValueError, match="of one length"):
        ColumnBlock([np.zeros(3), np.zeros(2)])
    with pytest.raises(ValueError, match="of one length"):
        ColumnBlock([np.zeros((3, 1))])
