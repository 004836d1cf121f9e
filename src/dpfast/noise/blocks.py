"""Rows assigned to blocks at random, without looking at them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check

from .samplers import check_source
from .source import BitSource


def random_blocks(n_rows: int, n_blocks: int, source: BitSource, *, equal: bool) -> NDArray[np.int64]:
    """Assign every row to one of the blocks.

    Privacy: the assignment depends on nobody's values and may be public. Where the number of rows is private, blocks
    must not be made equal: then one row more would move others to other blocks. Drawn for each row on its own, it does
    not.

    Parameters
    ----------
    n_rows : int
        How many rows there are, at least 0.
    n_blocks : int
        How many blocks, at least 1.
    source : BitSource
        Where the bits come from.
    equal : bool
        Whether the sizes of blocks differ by at most 1 (a random permutation, cut into pieces), or each row is assigned
        independently of all others.

    Returns
    -------
    ndarray of int64, shape (n_rows,)
        The block of each row.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, or out of the ranges above.

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast.noise import SeededSource, random_blocks
    >>> np.bincount(random_blocks(11, 4, SeededSource(0), equal=True))
    array([3, 3, 3, 2])
    """
    n_rows = check.integer_of_at_least("n_rows", n_rows, 0)
    n_blocks = check.positive_integer("n_blocks", n_blocks)
    words = check_source(source).words(n_rows)
    if not check.boolean("equal", equal):
        return (words % np.uint64(n_blocks)).astype(np.int64)
    blocks = np.empty(n_rows, np.int64)
    blocks[np.argsort(words, kind="stable")] = np.arange(n_rows) % n_blocks
    return blocks
