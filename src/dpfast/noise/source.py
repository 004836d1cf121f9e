"""Sources of random bits: AES-256 in counter mode, one numbered stream per call of a sampler.

A source holds two keys and a counter of calls. A sampler's call takes the next number ``c`` and reads the stream of
AES-256-CTR whose 128-bit counter starts at ``c * 2**64``. So calls share no block however long they are, and threads
need a lock only to take a number. The rare draws that 64 bits do not decide read further bits from a *branch*: a keyed
BLAKE2b stream indexed by (call, sample). Reading them elsewhere keeps the main stream in step, however many draws a
platform's arithmetic leaves undecided.

No two streams are ever the same: a secure source makes new keys in a forked child, and when it is copied or unpickled.
Seeded streams are the same wherever the seed is. One seed must not repeat noise over two budgets, releases or
parameters. Every release therefore draws from a source *bound* to them (`BitSource.bound`): its keys are hashed with
them. This restores no guarantee: over two tables that differ in one person a seeded release has the same noise, and the
noise cancels.

A source with a reservation marks it as drawn before it opens its first stream. So noise is never requested under a
reservation that could still be given back.

*Context.* A source is bound to public values as bytes: draws with different contexts share no noise. Every part is
prefixed by its kind and length, so that no two sequences run into the same bytes. Numbers are read to 9 digits, since
the last ones may be rounding, after a change of the input's unit. The public grid has cells of 2^-20 of the scale, so
scales that agree to 9 digits are the same to it.
"""

from __future__ import annotations

import hashlib
import itertools
import numbers
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NoReturn, Protocol, Self

import numpy as np

from dpfast import _arguments as check
from dpfast._arrays import Words


def digest(*context: Any) -> bytes:
    """Return a 32-byte hash of public values: numbers, strings, arrays, dataclasses and collections of them.

    Any other value, such as a function, is identified by its name alone.
    """
    return hashlib.sha256(_encoded(context)).digest()


def _encoded(value: Any) -> bytes:
    if value is None or isinstance(value, bool | np.bool_):
        return _tagged(b"c", str(value).encode())
    if isinstance(value, bytes):
        return _tagged(b"y", value)
    if isinstance(value, str):
        return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, numbers.Real):
        return _tagged(b"n", _number(value))
    if is_dataclass(value) and not isinstance(value, type):
        members = [getattr(value, field.name) for field in fields(value)]
        return _tagged(b"d", _encoded(_name(type(value))) + _encoded(members))
    if isinstance(value, Mapping):
        return _tagged(b"m", b"".join(sorted(_encoded(key) + _encoded(member) for key, member in value.items())))
    if isinstance(value, list | tuple):
        return _tagged(b"l", b"".join(map(_encoded, value)))
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "fiu":
            array = array.astype(np.float64)
        return _tagged(b"a", _encoded(list(array.shape)) + _encoded(array.ravel().tolist()))
    return _tagged(b"o", _encoded(_name(value if callable(value) and hasattr(value, "__qualname__") else type(value))))


def _tagged(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(8, "little") + content


def _number(value: Any) -> bytes:
    return (str(int(value)) if isinstance(value, numbers.Integral) else f"{float(value) + 0.0:.9g}").encode()


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


#: Words (of 64 bits) requested from the cipher at a time: 64 KiB run at full speed and stay in the second-level cache.
BLOCK_WORDS = 8192

_ZEROS = bytes(8 * BLOCK_WORDS)

# update_into needs room for one cipher block less a byte beyond the data.
_SLACK_WORDS = 2
#: Words of a stream whose counters are written out, in place of a cipher of its own: that costs as much as these.
_FEW_WORDS = 512
# The lower halves of their counters.
_BLOCKS = np.arange(_FEW_WORDS // 2 + 1, dtype=">u8")
_KEY_BYTES = 32

_forks_survived = 0


class Reserved(Protocol):
    """The payer of a source's noise, as far as the source knows it: a ledger's reservation."""

    def draw(self) -> None:
        """Mark it as drawn, durably; no effect if it is marked."""

    def add(self, release: Any) -> None:
        """Put a release on record, whatever happens next."""


def _note_fork() -> None:
    global _forks_survived
    _forks_survived += 1


if hasattr(os, "register_at_fork"):  # Windows has no forks to note
    os.register_at_fork(after_in_child=_note_fork)


class Stream:
    """The bits of one call of a sampler, numbered below 2**64. It belongs to one thread and is invalid after a fork."""

    def __init__(self, numbering: _Numbering, call: int) -> None:
        self._numbering = numbering
        self._call = call
        self._n_words = 0
        self._cipher: Callable[[Any, Any], int] | None = None

    def words(self, n: int) -> Words:
        """Return the next `n` words, uniform and independent."""
        numbering, begun = self._numbering, self._n_words
        if numbering.generation != _forks_survived:
            raise _carried_across_a_fork()
        self._n_words += n
        skipped = 0
        if self._cipher is None and 0 < n <= _FEW_WORDS - begun:
            first, skipped = divmod(begun, 2)
            counters = np.empty((-(-(skipped + n) // 2), 2), ">u8")
            counters[:, 0] = self._call
            counters[:, 1] = _BLOCKS[first : first + len(counters)]
            buffer = np.empty(counters.size + _SLACK_WORDS, np.uint64)
            encrypt = getattr(numbering.of_thread, "encrypt", None) or numbering.start()
            encrypt(counters.data.cast("B"), buffer.data.cast("B"))
        else:
            if self._cipher is None:
                self._cipher = numbering.counter_mode(self._call, begun)
            buffer = np.empty(n + _SLACK_WORDS, np.uint64)
            view = buffer.data.cast("B")
            for start in range(0, n, BLOCK_WORDS):
                n_bytes = 8 * min(BLOCK_WORDS, n - start)
                self._cipher(memoryview(_ZEROS)[:n_bytes], view[8 * start :])
        words = buffer[skipped : skipped + n]
        # The words are the keystream read as little-endian, on every machine.
        return words if np.little_endian else words.byteswap()

    def branch(self, index: int) -> Callable[[], int]:
        """Return a function giving the further 64-bit words of draw number `index`, one a call."""
        if self._numbering.generation != _forks_survived:
            raise _carried_across_a_fork()
        return _branch_words(self._numbering.branch_key, self._call, index).__next__


def _carried_across_a_fork() -> RuntimeError:
    return RuntimeError("a stream of random bits was carried across a fork: open a new one in the child")


def _branch_words(key: bytes, call: int, index: int) -> Iterator[int]:
    for block in itertools.count():
        message = b"".join(part.to_bytes(8, "little") for part in (call, index, block))
        digest = hashlib.blake2b(message, key=key, person=b"dpfast.branch").digest()
        for start in range(0, len(digest), 8):
            yield int.from_bytes(digest[start : start + 8], "little")


class _Numbering:
    """Two keys and the calls numbered under them: replaced whole, so that a number is never used twice with a key."""

    def __init__(self, cipher_key: bytes, branch_key: bytes) -> None:
        # Imported with the first source, before anything is read.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self.generation = _forks_survived
        self.branch_key = branch_key
        #: The block cipher of each thread, as `encrypt`.
        self.of_thread = threading.local()
        self._start = partial(Cipher, algorithms.AES(cipher_key))
        self._modes = modes
        self._lock = threading.Lock()
        self._n_calls = 0
        self.start()

    def start(self) -> Callable[[Any, Any], int]:
        """Return the block cipher for this thread, made: of counters, it gives the words of counter mode."""
        self.of_thread.encrypt = encrypt = self._start(self._modes.ECB()).encryptor().update_into
        return encrypt

    def counter_mode(self, call: int, n_words: int) -> Callable[[Any, Any], int]:
        """Return the cipher of a call in counter mode, which goes on after so many words."""
        counter = call.to_bytes(8, "big") + (n_words // 2).to_bytes(8, "big")
        cipher = self._start(self._modes.CTR(counter)).encryptor().update_into
        if n_words % 2:
            cipher(bytes(8), bytearray(8 + 15))
        return cipher


class BitSource(ABC):
    """A source of uniform random bits, safe to share between threads.

    Attributes
    ----------
    reproducible : bool
        Whether the bits follow from a seed. Noise made of them then protects nobody: two releases of one seed can be
        subtracted from each other without knowing it.
    """

    reproducible: bool
    #: The seed that the bits follow from, if any.
    seed: int | None = None
    #: The reservation that pays for the noise, and is to hold every release made of it.
    payer: Reserved | None

    def __init__(self, reservation: Reserved | None = None) -> None:
        self.payer = reservation
        self._numbering = _Numbering(*self._make_keys())

    @abstractmethod
    def _make_keys(self) -> tuple[bytes, bytes]:
        """Return the key of the main streams and the key of the branches."""

    @abstractmethod
    def bound(self, *context: Any) -> BitSource:
        """Return the source to draw one release from.

        The context is the release's label and everything public that decides its noise or its center: parameters,
        calibration, shapes. A secure source returns itself. A seeded source returns one with keys derived from the
        seed, the context, and the number of times this source was bound to that context before.
        """

    def paid(self, payer: Reserved) -> Self:
        """Return a source of the same streams, each opened once by either; a reservation pays for its noise."""
        source = object.__new__(type(self))
        source.__dict__ = self.__dict__ | {"payer": payer}
        return source

    def open(self) -> Stream:
        """Open the stream of one call; no other call, thread or process shares it."""
        if self.payer is not None:
            self.payer.draw()
        numbering = self._numbering
        if numbering.generation != _forks_survived:
            if self.reproducible:
                raise RuntimeError("a SeededSource was carried across a fork: give every process a seed of its own")
            # The parent's streams are left to the parent. Two threads of a child may both come here: each goes on with
            # keys of its own, and either may be kept.
            numbering = self._numbering = _Numbering(*self._make_keys())
        with numbering._lock:
            call = numbering._n_calls
            numbering._n_calls += 1
        return Stream(numbering, call)

    def words(self, n: int) -> Words:
        """Return `n` uniform 64-bit words from a stream of their own."""
        return self.open().words(n)


class SecureSource(BitSource):
    """Unpredictable bits: AES-256 in counter mode, keyed by the operating system.

    Copying, pickling and forking give a source with keys of its own, so no two sources ever share a stream. A source
    with a reservation cannot be copied.

    Parameters
    ----------
    reservation : Reservation, optional
        A ledger's reservation. It is marked as drawn before the first bit; from then on its cost is spent whatever
        happens.

    References
    ----------
    NIST SP 800-38A (2001), section 6.5 (counter mode).

    Examples
    --------
    >>> from dpfast.noise import SecureSource
    >>> source = SecureSource()
    >>> source.words(3).shape, source.reproducible
    ((3,), False)
    """

    reproducible = False

    def bound(self, *context: Any) -> Self:
        """Return this source: its streams are never the same."""
        return self

    def _make_keys(self) -> tuple[bytes, bytes]:
        return os.urandom(_KEY_BYTES), os.urandom(_KEY_BYTES)

    def __reduce__(self) -> tuple[type[SecureSource], tuple[()]]:
        if self.payer is not None:
            raise TypeError(
                "a source whose noise a reservation pays for is neither copied nor pickled: nobody would pay for the "
                "copy's. Make another of the same reservation"
            )
        return SecureSource, ()

    def __repr__(self) -> str:
        return "SecureSource()"


class SeededSource(BitSource):
    """Bits derived from a seed: for tests and for reproducing a run. Noise made of them gives no guarantee at all.

    Parameters
    ----------
    seed : int
        Any nonnegative integer. The stream is a function of it alone (the keys are its hash).
    reservation : Reservation, optional
        As for `SecureSource`.

    Raises
    ------
    ValueError, TypeError
        If `seed` is not a nonnegative integer; on copying or pickling, which would make two sources of the same noise.

    Examples
    --------
    >>> from dpfast.noise import SeededSource
    >>> bool((SeededSource(7).words(4) == SeededSource(7).words(4)).all())
    True
    """

    reproducible = True

    def __init__(self, seed: int, reservation: Reserved | None = None) -> None:
        self.seed: int = check.integer_of_at_least("seed", seed, 0)
        self._start(b"", reservation)

    def _start(self, path: bytes, reservation: Reserved | None) -> None:
        self._path = path
        self._times_bound: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        super().__init__(reservation)

    def bound(self, *context: Any) -> SeededSource:
        """Return a source with keys from the seed, the context and the number of times it was bound to that before."""
        own = digest(*context)
        with self._lock:
            counter = self._times_bound[own]
            self._times_bound[own] += 1
        source = object.__new__(SeededSource)
        source.seed = self.seed
        source._start(self._path + own + counter.to_bytes(8, "little"), self.payer)
        return source

    def _make_keys(self) -> tuple[bytes, bytes]:
        seed_bytes = self.seed.to_bytes((self.seed.bit_length() + 7) // 8, "little")
        if self._path:
            message = b"dpfast.noise.SeededSource.bound:1:" + digest(seed_bytes, self._path)
        else:
            message = b"dpfast.noise.SeededSource:1:" + seed_bytes
        keys = hashlib.sha512(message).digest()
        return keys[:_KEY_BYTES], keys[_KEY_BYTES:]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SeededSource is neither copied nor pickled: give every worker a seed of its own")

    def __repr__(self) -> str:
        return f"SeededSource({self.seed})" + (".bound(...)" if self._path else "")


def check_source(source: Any) -> BitSource:
    """Return a source of bits; TypeError for anything else."""
    if type(source) is SecureSource:  # told without a call
        return source
    return check.instance("source", source, BitSource, "a SecureSource or a SeededSource")  # type: ignore[type-abstract]


def _rounds_to_nearest() -> bool:
    # Rounding up or down moves one of these, rounding towards zero moves the last. The compiler cannot fold these sums,
    # since a variable is in them.
    less_than_half = 2.0**-53 * 0.875
    for one in (1.0, -1.0):
        if one + one * less_than_half != one or one - one * less_than_half / 4.0 != one:
            return False
    return True


def check_random_state(random_state: Any) -> None:
    """Refuse anything but None and nonnegative integers: NumPy's generators are not cryptographic.

    RuntimeError if the processor does not round to nearest: noise would still be exact, but draws thousands of times
    slower.
    """
    if not _rounds_to_nearest():
        raise RuntimeError("the processor does not round to nearest: some code of this process has set another mode")
    if random_state is None:
        return
    if isinstance(random_state, bool) or not isinstance(random_state, numbers.Integral):
        raise TypeError(f"random_state must be None or a nonnegative integer, not {type(random_state).__name__}")
    check.integer_of_at_least("random_state", random_state, 0)


def resolve_source(random_state: Any, reservation: Reserved | None = None) -> BitSource:
    """Return a new SecureSource for a ``random_state`` of None, a SeededSource for a nonnegative integer."""
    check_random_state(random_state)
    return SecureSource(reservation) if random_state is None else SeededSource(int(random_state), reservation)
