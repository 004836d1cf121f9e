"""Columns that lie apart: what is zero_copy_view, what is copied, what is refused."""

import numpy as np
import pytest

from dpfast.kernels import draws, first_visits, limbs, projections
from dpfast.kernels.columns import ColumnBlock, FixedPoint, in_c_order, readable
from dpfast.noise import SeededSource, gaussian
from dpfast.solvers import L1Ball, quadratic_over_ball
from dpfast.statistics import Trajectories


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


def misaligned(array):
    moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def test_no_kernel_is_given_an_array_between_two_addresses_of_its_type(monkeypatch):
    seen = []

    def watch(module, name):
        kernel = getattr(module, name)

        def watched(*arguments):
            seen.extend((name, one.flags.aligned) for one in arguments if isinstance(one, np.ndarray))
            return kernel(*arguments)

        monkeypatch.setattr(module, name, watched)

    watch(projections, "project")
    watch(projections, "solve_quadratics")
    watch(first_visits, "first_bad_step")
    watch(draws, "split_cells")
    watch(limbs, "to_float64")
    points = misaligned(np.arange(6.0).reshape(2, 3))
    L1Ball(1.0).project(points)
    quadratic_over_ball(points, points, misaligned(np.ones(2)))
    offsets = misaligned(np.array([0, 2, 3]))
    walks = Trajectories(misaligned(np.array([0, 1, 1])), points[0], offsets, n_states=2)
    gaussian(1.0, 3, SeededSource(0), center=points[0])
    FixedPoint(misaligned(np.zeros(3, np.int64)), misaligned(np.zeros(3, np.uint64)), 0).to_float64()
    assert {name for name, _ in seen} == {"project", "solve_quadratics", "first_bad_step", "split_cells", "to_float64"}
    assert all(aligned for _, aligned in seen)
    assert walks.offsets.flags.aligned
    for table in (points, points.astype(np.float32), np.asfortranarray(points)):
        assert readable(misaligned(table)).flags.aligned
    assert np.array_equal(readable(points), points)
    assert in_c_order(points).flags.aligned
