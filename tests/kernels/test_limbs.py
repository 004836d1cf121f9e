"""128-bit integers to doubles, against Python's own correctly rounded conversion."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dpfast.kernels.fixed_point import FixedPoint

wide = st.one_of(
    st.integers(-(2**127), 2**127 - 1),
    st.integers(-(2**65), 2**65),
    # Ties and their neighbours: 54 leading bits, then a run of zeros, then -1, 0 or 1.
    st.builds(
        lambda lead, shift, off: (lead << shift) + off,
        st.integers(2**53, 2**54),
        st.integers(1, 72),
        st.integers(-1, 1),
    ),
)


@given(values=st.lists(wide, min_size=1, max_size=6), exponent=st.integers(-200, 200))
@example(values=[2**63, -(2**63), -(2**63) - 1, 2**64 - 1, -1, 0], exponent=0)
def test_values_are_rounded_once(values, exponent):
    found = FixedPoint.from_integers(values, exponent).to_float64()
    np.testing.assert_array_equal(found, np.ldexp([float(v) for v in values], exponent))


def test_shape_and_strides_are_kept():
    grid = FixedPoint.from_integers(np.arange(12).reshape(3, 4), 1)
    np.testing.assert_array_equal(
        FixedPoint(grid.high.T, grid.low.T, 1).to_float64(), 2.0 * np.arange(12).reshape(3, 4).T
    )
