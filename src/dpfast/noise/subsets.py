"""Rows sampled secretly, for privacy amplified by sampling, and rows assigned to blocks: neither looks at them.

A sample's indices are drawn uniformly and independently, and those not seen before are kept, until there are enough.
Relabelling the indices does not change the law of the draws, so every set of that size is equally likely: exactly, with
no bias from reducing words modulo n either, because words beyond the last whole multiple of n are rejected. Beyond half
of all rows, those left out are drawn instead. The set is a bitmap where that is small beside the result, else it is
sorted; both take the same words in the same order, so they find the same set.
"""

from __future__ import annotations

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import IntArray
from dpfast.kernels import sampling as kernel

from .source import BLOCK_WORDS, BitSource, Stream, check_source

#: The most rows there can be: indices are int64.
MAX_ROWS = 2**63 - 1
# A bitmap of so many bits per index drawn takes twice the memory of the indices themselves.
_BITS_PER_DRAW = 128


def sample_without_replacement(n_total: int, n_sampled: int, source: BitSource) -> IntArray:
    """Return a uniformly random set of `n_sampled` row indices below `n_total`, in increasing order.

    Privacy: `dpfast.privacy.subsampled_budget` and `subsampled_moment_scales` count on this sample staying secret. It
    must never be released, stored or shown, nor a release be repeated on it.

    Examples
    --------
    >>> from dpfast.noise import SeededSource, sample_without_replacement
    >>> rows = sample_without_replacement(1000, 3, SeededSource(0))
    >>> len(set(rows.tolist())), bool((rows[:-1] < rows[1:]).all())
    (3, True)
    """
    total = check.integer_of_at_least("n_total", n_total, 0)
    if total > MAX_ROWS:
        raise ValueError(f"n_total must be below 2**63, got {total}")
    sampled = check.integer_of_at_least("n_sampled", n_sampled, 0)
    if sampled > total:
        raise ValueError(f"n_sampled must be at most n_total, {total}, got {sampled}")
    stream = check_source(source).open()
    n_drawn = min(sampled, total - sampled)
    if total <= _BITS_PER_DRAW * n_drawn:
        return _by_bitmap(total, sampled, stream)
    drawn = _by_sorting(total, n_drawn, stream)
    return drawn if n_drawn == sampled else np.delete(np.arange(total), drawn)


def _by_bitmap(n_total: int, n_sampled: int, stream: Stream) -> IntArray:
    bitmap = np.zeros(-(-n_total // 64), np.uint64)
    missing = min(n_sampled, n_total - n_sampled)
    complement = missing < n_sampled
    while missing > 0:
        missing -= kernel.insert(stream.words(BLOCK_WORDS), n_total, _largest_word(n_total), bitmap, missing)
    rows = np.empty(n_sampled, np.int64)
    kernel.selected(bitmap, n_total, complement, rows)
    return rows


def _by_sorting(n_total: int, n_wanted: int, stream: Stream) -> IntArray:
    """Draw as many as are missing and drop repeats: no more than is missing, so no set is ever cut down."""
    found = np.empty(0, np.int64)
    while len(found) < n_wanted:
        found = np.union1d(found, _uniform(n_wanted - len(found), n_total, stream))
    return found


def _uniform(n: int, n_total: int, stream: Stream) -> IntArray:
    """Return `n` independent uniform integers below `n_total`."""
    out = np.empty(n, np.int64)
    made = 0
    while made < n:
        words = stream.words(min(BLOCK_WORDS, n - made))
        words = words[words <= np.uint64(_largest_word(n_total))]
        out[made : made + len(words)] = words % np.uint64(n_total)
        made += len(words)
    return out


def _largest_word(n_total: int) -> int:
    """Return the last word before the incomplete multiple of `n_total` at the end of the range."""
    return (1 << 64) // n_total * n_total - 1


def random_blocks(n_rows: int, n_blocks: int, source: BitSource, *, equal: bool) -> IntArray:
    """Return the block that each row is assigned to.

    Either the sizes of blocks differ by at most 1 (`equal`: a random permutation, cut into pieces), or each row is
    assigned independently of all others.

    Privacy: the assignment depends on nobody's values and may be public. Where the number of rows is private, blocks
    must not be made equal: then one row more would move others to other blocks. Drawn for each row on its own, it does
    not.

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
