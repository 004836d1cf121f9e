"""Sources of bits: no two share a stream, and a seeded one is a function of its seed."""

import copy
import ctypes
import functools
import multiprocessing
import os
import pickle
import platform
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from dpfast import Ledger, MultiOutcomeRidge, Privacy
from dpfast.noise import SecureSource, SeededSource, gaussian, resolve_source
from dpfast.noise.samplers import BLOCK_WORDS, digest

# Forking while other tests' threads are about is what is tested, not something to be warned of.
pytestmark = [pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"), pytest.mark.fresh_noise]


def words_in_child(action):
    """What `action` returns, as bytes, run in a forked child."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write_end, action())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return data


def assert_all_different(blocks):
    """No two of many 8-word blocks are equal: a chance of 2^-512 each."""
    assert len({bytes(block) for block in blocks}) == len(blocks)


def test_words_have_the_shape_and_the_balance_of_uniform_bits():
    words = SecureSource().words(3 * BLOCK_WORDS + 5)
    assert words.shape == (3 * BLOCK_WORDS + 5,)
    assert words.dtype == np.uint64
    # Each of 64 bit positions: binomial, 6.5 sigma is exceeded with probability 8e-11, 5e-9 in all.
    ones = ((words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).sum(axis=0)
    assert np.all(np.abs(ones - len(words) / 2) < 6.5 * np.sqrt(len(words)) / 2)


@pytest.mark.parametrize("sizes", [(BLOCK_WORDS, 4, BLOCK_WORDS, 6), (1, 0, 2, 3, 500), (3, 4, 506, 1), (5, 900, 7)])
def test_a_stream_goes_on_across_calls_of_words(sizes):
    """Its first words are those of counters written out; many, or later ones, of a cipher in counter mode."""
    whole = SeededSource(5).open().words(2 * BLOCK_WORDS + 10)
    stream = SeededSource(5).open()
    parts = [stream.words(n) for n in sizes]
    assert np.array_equal(np.concatenate(parts), whole[: sum(sizes)])


FROZEN = {
    "first call": ["0x5ea371d8f1389d8b", "0x818cb5183c2e451e"],
    "second call": ["0x518a15ec686879db", "0x4a87ee8ff53d7025"],
    "branch": ["0x36c07a30bfa66a90", "0x1094ca3520ebfc88"],
    "long seed": ["0xbd417e081f2f9248"],
}


def test_seeded_streams_are_frozen():
    source = SeededSource(0)
    assert [hex(w) for w in source.words(2)] == FROZEN["first call"]
    assert [hex(w) for w in source.words(2)] == FROZEN["second call"]
    branch = SeededSource(0).open().branch(3)
    assert [hex(branch()) for _ in range(9)][::8] == FROZEN["branch"]
    assert [hex(w) for w in SeededSource(2**80 + 1).words(1)] == FROZEN["long seed"]


def test_without_a_cipher_there_are_no_bits_and_nothing_is_spent(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    for source in (SecureSource, lambda: SeededSource(1)):
        with pytest.raises(ImportError, match="cryptography"):
            source()
    ledger = Ledger(Privacy(1.0))
    model = MultiOutcomeRidge(1.0, bound_x=1.0, bound_y=1.0, fit_intercept=False, ledger=ledger)
    with pytest.raises(ImportError, match="cryptography"):
        model.fit(np.eye(9), np.eye(9))
    assert ledger.spent.epsilon == 0.0


def test_calls_branches_and_seeds_are_all_different():
    source = SeededSource(1)
    stream = source.open()
    branches = [[stream.branch(i)() for _ in range(8)] for i in range(20)]
    blocks = [np.array(b, np.uint64) for b in branches]
    blocks += [source.words(8) for _ in range(20)]
    blocks += [SeededSource(seed).words(8) for seed in range(2, 20)]
    assert_all_different(blocks)


def test_secure_sources_differ():
    assert_all_different([SecureSource().words(8) for _ in range(20)])


def test_threads_never_share_a_stream():
    source = SecureSource()
    blocks = []

    def work():
        blocks.extend([source.words(8) for _ in range(500)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(blocks) == 4000
    assert_all_different(blocks)


def test_a_forked_child_never_shares_a_stream():
    source = SecureSource()
    source.words(1)
    blocks = [words_in_child(lambda: source.words(8).tobytes()) for _ in range(3)]
    blocks += [words_in_child(lambda: words_in_child(lambda: source.words(8).tobytes()))]
    assert all(len(block) == 64 for block in blocks)
    assert_all_different([*blocks, source.words(8).tobytes(), source.words(8).tobytes()])


def test_a_child_forked_while_a_thread_holds_the_lock_does_not_hang():
    source = SecureSource()
    with source._numbering._lock:
        assert len(words_in_child(lambda: source.words(8).tobytes())) == 64


def outcome(action):
    """The name of the exception that `action` raises, as bytes."""
    try:
        action()
    except Exception as error:
        return type(error).__name__.encode()
    return b"nothing raised"


def test_seeded_sources_and_open_streams_refuse_to_cross_a_fork():
    source, stream = SeededSource(3), SecureSource().open()
    assert words_in_child(lambda: outcome(lambda: source.words(1))) == b"RuntimeError"
    assert words_in_child(lambda: outcome(lambda: stream.words(1))) == b"RuntimeError"
    assert words_in_child(lambda: outcome(lambda: stream.branch(0))) == b"RuntimeError"
    # The parent's are as they were.
    assert np.array_equal(source.words(4), SeededSource(3).words(4))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_worker_processes_never_share_a_stream(method):
    source = SecureSource()
    # A function of the package, which a spawned worker can import.
    draw = functools.partial(gaussian, 1.0, 8)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        blocks = list(pool.map(draw, [source] * 6))
    assert_all_different([*blocks, draw(source)])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_of_a_secure_source_have_keys_of_their_own(duplicate):
    source = SecureSource()
    assert_all_different([source.words(8), duplicate(source).words(8), duplicate(source).words(8)])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_seeded_sources_are_not_copied(duplicate):
    with pytest.raises(TypeError, match="seed of its own"):
        duplicate(SeededSource(0))


def test_pickles_and_representations_hold_no_key(monkeypatch):
    keys = bytes(range(32)), bytes(range(32, 64))
    monkeypatch.setattr(SecureSource, "_make_keys", lambda source: keys)
    source = SecureSource()
    assert source._numbering.branch_key == keys[1]
    assert not any(key in pickle.dumps(source) for key in keys)
    assert repr(source) == "SecureSource()"
    assert repr(SeededSource(4)) == "SeededSource(4)"


def test_random_state_resolves():
    assert isinstance(resolve_source(None), SecureSource)
    assert not resolve_source(None).reproducible
    assert resolve_source(np.int32(3)).reproducible
    assert np.array_equal(resolve_source(np.int32(3)).words(2), SeededSource(3).words(2))


@pytest.mark.parametrize("bad", [1.0, "0", True, np.random.default_rng(0), np.random.RandomState(0), [1]])
def test_random_state_of_another_kind_is_refused(bad):
    with pytest.raises(TypeError, match="random_state must be None or a nonnegative integer"):
        resolve_source(bad)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="random_state must be at least 0"):
        resolve_source(-1)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        SeededSource(-1)
    with pytest.raises(TypeError, match="seed must be"):
        SeededSource(1.5)


def test_no_two_contexts_run_into_the_same_bytes():
    """Parts that together spell alike, numbers and what they are written as, nothing, and collections of either."""
    contexts = [
        ("ab", "c"), ("a", "bc"), ("abc",), (("ab", "c"),), (b"ab", "c"), ("1",), (1,), (1.5,), ("1.5",), (None,), (),
        ("None",), (True,), ((),), ((), ()), ({"a": 1},), (("a", 1),), ("a", 1), (np.zeros(2),), (np.zeros((2, 1)),),
        (0.0, 0.0),
    ]  # fmt: skip
    assert len({digest(*context) for context in contexts}) == len(contexts)


def test_further_bits_of_two_calls_differ():
    source = SeededSource(3)
    words = [source.open().branch(index)() for _ in range(3) for index in range(3)]
    assert len(set(words)) == 9


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the modes' numbers are of x86-64"
)
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00])  # down, up, towards zero
def test_no_noise_is_drawn_where_the_processor_does_not_round_to_nearest(mode):
    library = ctypes.CDLL("libm.so.6")
    try:
        library.fesetround(mode)
        with pytest.raises(RuntimeError, match="does not round to nearest"):
            resolve_source(None)
    finally:
        library.fesetround(0)
    assert isinstance(resolve_source(None), SecureSource)


class Watched(int):
    """A counter that may be advanced only while a lock is held."""

    def __new__(cls, lock):
        counter = super().__new__(cls)
        counter.lock = lock
        return counter

    def __add__(self, other):
        assert self.lock.locked()
        return int(self) + other


def test_calls_and_bindings_are_numbered_under_their_locks():
    source = SeededSource(0)
    source._numbering._n_calls = Watched(source._numbering._lock)
    source.open()
    source._times_bound[digest("here")] = Watched(source._lock)
    source.bound("here")
    assert source._numbering._n_calls == source._times_bound[digest("here")] == 1


def test_what_has_no_name_of_its_own_is_known_by_its_type():
    class Named:
        def __init__(self, name):
            self.__qualname__ = name

    assert digest(functools.partial(len)) == digest(functools.partial(max)) != digest(len)
    assert digest(Named("a")) == digest(Named("b")) != digest(object())
    assert digest(len) != digest(max)
