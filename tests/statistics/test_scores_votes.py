"""Votes of blocks: one block's rows move one block's votes, whatever goes wrong there, and nothing else is seen."""

import itertools
import warnings

import numpy as np
import pytest

from dpfast.statistics import LassoSelector, block_votes, check_selector


def sparse(n=400, p=20, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    return x, x[:, 3] - 0.7 * x[:, 11 % p] + 0.1 * rng.normal(size=n), rng.integers(0, 10, size=n)


@pytest.mark.parametrize("selector", [LassoSelector(), LassoSelector(penalty=4.0 * 0.1 * np.sqrt(40 * np.log(20)))])
def test_the_lasso_finds_the_support_in_every_block(selector):
    x, y, blocks = sparse()
    votes = block_votes(x, y, blocks, 10, 2, selector)
    assert votes[3] == votes[11] == 10
    assert votes.sum() == 20


def test_zero_coefficients_do_not_vote():
    x, y, _ = sparse()
    assert len(LassoSelector(penalty=1e9)(x, y, 5)) == 0


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_threads_do_not_matter(n_threads):
    x, y, blocks = sparse(seed=1)
    one = block_votes(
        x, 0.01 * y + np.random.default_rng(2).normal(size=len(y)), blocks, 10, 4, LassoSelector(), n_threads=1
    )
    several = block_votes(
        x, 0.01 * y + np.random.default_rng(2).normal(size=len(y)), blocks, 10, 4, LassoSelector(), n_threads=n_threads
    )
    assert np.array_equal(one, several)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_one_row_moves_votes_by_no_more_than_is_calibrated_for(size):
    """A selector that turns over whenever any row changes: L1 distance 2 s and L2 distance sqrt(2 s) are reached."""

    def fickle(x, y, size):
        start = hash(x.tobytes()) % 3 * size
        return np.arange(start, start + size)

    largest = 0
    rng = np.random.default_rng(3)
    for _ in range(30):
        x, blocks = rng.normal(size=(30, 3 * size)), rng.integers(0, 5, size=30)
        changed = x.copy()
        changed[rng.integers(30)] = 0.0
        before, after = (block_votes(one, x[:, 0], blocks, 5, size, fickle) for one in (x, changed))
        without = block_votes(x[:-1], x[:-1, 0], blocks[:-1], 5, size, fickle)
        for other in (after, without):
            assert np.abs(before - other).sum() <= 2 * size
            assert np.linalg.norm(before - other) <= np.sqrt(2 * size) + 1e-12
            largest = max(largest, np.abs(before - other).sum())
    assert largest == 2 * size


def raises(x, y, size):
    raise RuntimeError(f"somebody's value is {x[0, 0]}")


WRONG = {
    "raises": raises,
    "too many": lambda x, y, size: np.arange(size + 1),
    "repeats": lambda x, y, size: np.zeros(size, int),
    "out of range": lambda x, y, size: [x.shape[1]],
    "negative": lambda x, y, size: [-1],
    "not integers": lambda x, y, size: [0.5],
    "a mask": lambda x, y, size: np.ones(x.shape[1], bool),
    "nothing like it": lambda x, y, size: object(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_block_that_fails_votes_for_the_first_features(name, capsys):
    x, y, blocks = sparse(n=60, p=5)

    def sometimes(block_x, block_y, size):
        return WRONG[name](block_x, block_y, size) if block_x[0, 0] > 0.0 else [3, 4]

    votes = block_votes(x, y, blocks, 10, 2, sometimes)
    assert votes[0] == votes[1] > 0
    assert votes[3] == votes[4] > 0
    assert votes.sum() == 20
    assert capsys.readouterr() == ("", "")


def test_empty_blocks_and_warnings_are_not_seen():
    x, y, _ = sparse(n=5, p=4)

    def loud(block_x, block_y, size):
        warnings.warn(f"{block_x}", stacklevel=1)
        return [int(np.argmax(np.abs(block_x).max(axis=0)))]

    # Warnings are errors in these tests; four of the blocks are empty, where a largest entry does not exist.
    votes = block_votes(x, y, np.zeros(5, int), 5, 1, loud)
    assert votes[0] >= 4
    assert votes.sum() == 5


@pytest.mark.parametrize("name", WRONG)
def test_a_selector_is_tried_where_its_errors_may_be_seen(name):
    with pytest.raises(ValueError, match="selector must select features of any table") as raised:
        check_selector(WRONG[name], 10, 6, 2)
    assert raised.value.__cause__ is not None


def test_what_is_not_callable_is_refused():
    with pytest.raises(TypeError, match="selector must be a callable"):
        check_selector("lasso", 10, 6, 2)
    with pytest.raises(ValueError, match="penalty"):
        LassoSelector(penalty=0.0)


def test_lasso_passes_the_trial_for_all_sizes():
    for rows, p in itertools.product((1, 2, 7, 40), (1, 3, 30)):
        for size in {1, p}:
            check_selector(LassoSelector(), rows, p, size)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_that_a_selector_raises_say_nothing(kind):
    def select(x, y, size):
        raise kind(f"somebody's value is {x[0, 0]}")

    with pytest.raises(kind) as raised:
        block_votes(*sparse(), 10, 2, select, n_threads=1)
    assert "somebody" not in str(raised.value)
    assert raised.value.__context__ is None
