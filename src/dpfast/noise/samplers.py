"""Sources of random bits, and noise with the exact law of the ideal mechanism, seen through a public grid.

*Bits* are AES-256 in counter mode, one numbered stream per call of a sampler.

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

*Noise.* A release is round_g(S + N), with S the statistic as an exact dyadic number, N the real-valued noise and g a
public power of two. Rounding is post-processing, so the guarantee of S + N holds exactly for the release, in floating
point too (docs/proofs/noise.md). Double arithmetic with a proved margin decides almost every draw. The rest are decided
by revealing further bits against rigorous bounds (exact.py). The center S is split into exact numbers of grid cells.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import numbers
import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final, NoReturn, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._arrays import FloatArray, Words
from dpfast.io.sources import zero_copy_view
from dpfast.kernels import draws as kernel
from dpfast.kernels import limbs
from dpfast.kernels.columns import FixedPoint, in_c_order
from dpfast.noise.exact import decide_offset, exponential_magnitude, exponential_tail, gaussian_magnitude, gaussian_tail


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
_BLOCKS = [block.to_bytes(8, "big") for block in range(_FEW_WORDS // 2 + 1)]
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

    __slots__ = ("_call", "_cipher", "_n_words", "_numbering")

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
            stop = first - (-(skipped + n) // 2)
            # The call's number goes before each block's.
            counters = self._call.to_bytes(8, "big").join([b"", *_BLOCKS[first:stop]])
            buffer = np.empty(len(counters) // 8 + _SLACK_WORDS, np.uint64)
            encrypt = getattr(numbering.of_thread, "encrypt", None) or numbering.start()
            encrypt(counters, buffer.data.cast("B"))
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
    if type(source) is SecureSource:  # known without a call
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


#: The center that noise is added to: the exact numbers that it holds.
Center: TypeAlias = float | FloatArray | FixedPoint | None

#: A default grid has between 2**20 and 2**21 steps per unit of scale: rounding adds 1e-13 of the noise's variance.
_DEFAULT_STEPS_EXPONENT = 20
#: Up to 2 to this many steps per unit of scale the margins of double arithmetic stay small against a step.
_FAST_STEPS_EXPONENT = 24
#: At most this many steps per unit of scale: beyond, double arithmetic would decide few draws. At 2**24 it decides all
#: but a millionth, at the finest grid all but an eighth of Gaussian ones, in time for the few that need it.
_FINEST_STEPS_EXPONENT = 38
MAX_STEPS = 2.0**_FINEST_STEPS_EXPONENT
#: Exponents of grids whose cells, and their numbers up to 2**53, are normal doubles.
_EXPONENT_LIMIT = 900


class NoiseGrid:
    """The multiples of ``2**exponent``, with the number of steps in a unit of the noise's scale.

    It is not cached, as scales may be private if the step is given.
    """

    __slots__ = ("exponent", "scale", "step", "steps")

    def __init__(self, scale: float, step: float | None = None) -> None:
        if type(scale) is not float or not 0.0 < scale < math.inf:  # most are known without a call
            scale = check.positive("scale", scale)
        self.scale: Final = scale
        if step is None:
            step = default_grid(scale)
        elif type(step) is not float:
            step = check.real("grid", step)
        mantissa, exponent = math.frexp(step)
        if mantissa != 0.5:
            raise ValueError(f"grid must be a positive power of two, not {step!r}")
        self.exponent: Final = exponent - 1
        if abs(self.exponent) > _EXPONENT_LIMIT:
            raise ValueError(f"grid must lie between 2**-{_EXPONENT_LIMIT} and 2**{_EXPONENT_LIMIT}, not {step!r}")
        self.step: Final = step
        # Exact, as the step is a power of two.
        if self.scale > MAX_STEPS * self.step:
            raise ValueError(f"grid must be at least scale / 2**38 = {self.scale / MAX_STEPS!r}, not {step!r}")
        # Exact except for quotients below 2^-1022, with an error below every margin.
        self.steps: Final = self.scale / self.step

    @property
    def exact_steps(self) -> Fraction:
        """The steps of a unit of the noise's scale, for the rare draws that double arithmetic leaves open."""
        return Fraction(self.scale) / Fraction(self.step)


def default_grid(scale: float) -> float:
    """Return the default grid of noise of a public scale, from the scale alone.

    Examples
    --------
    >>> from dpfast.noise import default_grid
    >>> default_grid(3.0) == 2.0**-19  # the power of two in (scale/2**21, scale/2**20]
    True
    """
    if type(scale) is not float or not 0.0 < scale < math.inf:
        scale = check.positive("scale", scale)
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - _DEFAULT_STEPS_EXPONENT)


def grid_for_scales(least_scale: float, greatest_scale: float) -> float:
    """Return a grid for noise whose scale is private, and known to lie between two public numbers.

    A grid computed from the scale itself would reveal it. Rounding noise of the least scale to this grid adds 1e-13 of
    its variance if the greatest is at most 8 times as large, and below 1e-4 up to 2e5 times.

    The two scales are those for the most and the least favourable data possible. The grid is the power of two in
    ``(least_scale/2**21, least_scale/2**20]``, or the smallest of at least ``greatest_scale/2**24`` if that is larger.

    Examples
    --------
    >>> from dpfast.noise import grid_for_scales
    >>> grid_for_scales(1.0, 2.0) == 2.0**-20, grid_for_scales(1.0, 1024.0) == 2.0**-14
    (True, True)
    """
    greatest = check.positive("greatest_scale", greatest_scale)
    least = check.positive("least_scale", least_scale)
    if least > greatest:
        raise ValueError(f"least_scale must be at most greatest_scale, {greatest!r}, got {least!r}")
    return max(default_grid(least), _power_at_least(greatest, _FAST_STEPS_EXPONENT))


def finest_grid(scale: float) -> float:
    """Return the finest grid that noise of a public scale can be seen through, from the scale alone."""
    return _power_at_least(check.positive("scale", scale), _FINEST_STEPS_EXPONENT)


def _power_at_least(scale: float, steps_exponent: int) -> float:
    """Return the least power of two on which a scale takes at most ``2**steps_exponent`` steps."""
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - (mantissa == 0.5) - steps_exponent)


class _Origin:
    """Zeros; its methods are those of all cells."""

    def __init__(self, grid: NoiseGrid) -> None:
        self._grid = grid

    def split(self, start: int, stop: int) -> None:
        """Return the fractions of some entries in double (None for zeros), to within 2**-54."""

    def fraction(self, index: int) -> Fraction:
        """Return one fraction exactly. Its entry has been split before."""
        return Fraction(0)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        """Fill `released` (out) with the base cells plus offsets, correctly rounded to double."""
        kernel.join_cells(None, offsets, self._grid.step, released)


class _DoubleCells:
    """The dyadic rationals in an array of doubles."""

    def __init__(self, values: FloatArray, grid: NoiseGrid) -> None:
        self._grid = grid
        self._values = values
        self._nearest = np.empty(0)

    def split(self, start: int, stop: int) -> FloatArray:
        if len(self._nearest) != stop - start:
            self._nearest = np.empty(stop - start)
            self._fractions = np.empty(stop - start)
        kernel.split_cells(self._values[start:stop], self._grid.step, self._nearest, self._fractions)
        self._start = start
        return self._fractions

    def repeated(self, copies: int) -> Cells:
        """Return the cells of these numbers, repeated this many times."""
        return _RepeatedCells(self, len(self._values), self._grid)

    def fraction(self, index: int) -> Fraction:
        left_over = Fraction(float(self._values[index])) - Fraction(float(self._nearest[index - self._start]))
        return left_over / Fraction(self._grid.step)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        kernel.join_cells(self._nearest, offsets, self._grid.step, released)


class _FixedPointCells:
    """Exact 128-bit sums: whole cells are kept in 128 bits; the rest is rounded to double only for the first decision.

    Entry i is ``integer * 2**exponent``; on a coarser grid ``2**(exponent + shift)`` its cell is the integer shifted
    right, half a cell added first.
    """

    def __init__(self, values: FixedPoint, grid: NoiseGrid) -> None:
        self._grid = grid
        if not (values.high.ndim == 1 and values.high.flags.carray and values.low.flags.carray):
            values = values.in_a_row()
        self._values = values
        self._shift = grid.exponent - values.exponent
        self._unit = 1 << max(self._shift, 0)
        #: Both limbs, or integers of any length.
        self._cells: tuple[NDArray[np.int64], Words] | NDArray[np.object_]

    def split(self, start: int, stop: int) -> FloatArray:
        values = self._values if (start, stop) == (0, len(self._values.high)) else self._values[start:stop]
        if 1 <= self._shift <= 62:
            size = len(values.high)
            self._cells, fractions = (np.empty(size, np.int64), np.empty(size, np.uint64)), np.empty(size)
            limbs.split_cells(values.high, values.low, self._shift, *self._cells, fractions)
            return fractions
        integers = [high * 2**64 + low for high, low in zip(values.high.tolist(), values.low.tolist(), strict=True)]
        if self._shift <= 0:
            self._cells = np.array([integer << -self._shift for integer in integers], object)
            return np.zeros(stop - start)
        split = [self._split_integer(integer) for integer in integers]
        self._cells = np.array([cell for cell, _ in split], object)
        # Python divides integers with one correct rounding, however long they are.
        return np.array([left_over / self._unit for _, left_over in split])

    def _split_integer(self, integer: int) -> tuple[int, int]:
        """Return the cell of an integer, by the rounding of the kernel, and the remaining part of a unit."""
        cell = (integer + self._unit // 2) // self._unit
        return cell, integer - cell * self._unit

    def repeated(self, copies: int) -> Cells:
        """Return the cells of these numbers, repeated this many times."""
        # Cells below 2**53 are exact in double, and sums with offsets are then rounded as correctly as in 128 bits.
        if np.all(np.abs(self._values.to_float64()) < 2.0**53 * self._grid.step):
            return _RepeatedCells(self, self._values.shape[0], self._grid)
        high, low = np.tile(self._values.high, copies), np.tile(self._values.low, copies)
        return _FixedPointCells(FixedPoint(high, low, self._values.exponent), self._grid)

    def fraction(self, index: int) -> Fraction:
        left_over = self._split_integer(self._values.integer(index))[1] if self._shift > 0 else 0
        return Fraction(left_over, self._unit)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        if isinstance(self._cells, tuple):
            limbs.join_cells(*self._cells, offsets, self._grid.exponent, released)
        else:
            released[:] = _to_doubles((self._cells + offsets.astype(np.int64)).tolist(), self._grid.exponent)


class _RepeatedCells:
    """A few numbers repeated: split once, and laid out so that every block of draws finds its part in one slice."""

    def __init__(self, once: _DoubleCells | _FixedPointCells, length: int, grid: NoiseGrid) -> None:
        self._grid = grid
        self._once = once
        self._length = length
        fractions, nearest = once.split(0, length), np.empty(length)
        once.join(np.full(length, -0.0), 0, nearest)
        copies = 1 + -(-BLOCK_WORDS // length)
        self._fractions, self._nearest = np.tile(fractions, copies), np.tile(nearest, copies)

    def split(self, start: int, stop: int) -> FloatArray:
        self._start = start % self._length
        return self._fractions[self._start : self._start + stop - start]

    def fraction(self, index: int) -> Fraction:
        return self._once.fraction(index % self._length)

    def join(self, offsets: FloatArray, start: int, released: FloatArray) -> None:
        nearest = self._nearest[self._start : self._start + len(offsets)]
        kernel.join_cells(nearest, offsets, self._grid.step, released)


#: Exact numbers in units of a grid: base cells, and the remaining fractions of a cell in [-1/2, 1/2].
Cells: TypeAlias = _Origin | _DoubleCells | _FixedPointCells | _RepeatedCells


def _to_doubles(cells: list[int], exponent: int) -> list[float]:
    try:
        return [math.ldexp(float(cell), exponent) for cell in cells]
    except OverflowError:
        if len(cells) == 1:
            return [math.copysign(math.inf, cells[0])]
        return [_to_doubles([cell], exponent)[0] for cell in cells]


def cells_of(center: Center, shape: tuple[int, ...], grid: NoiseGrid) -> Cells:
    """Return the cells of a release's center; an array of the last axes, such as a scalar, is repeated along the first.

    TypeError or ValueError if it is not of doubles, not finite, or of another shape.
    """
    if center is None:
        return _Origin(grid)
    if isinstance(center, FixedPoint):
        actual = center.high.shape
        exact: _DoubleCells | _FixedPointCells = _FixedPointCells(center, grid)
    else:
        values = np.asarray(
            float(center) if type(center) is int and abs(center) <= 2**53 else zero_copy_view(center, "center")
        )
        if values.dtype != np.float64:
            cure = "counts below 2**53 are exact as float64"
            raise TypeError(f"center must be None, float64 or FixedPoint, not {values.dtype}: {cure}")
        if not np.isfinite(values).all():
            raise ValueError("center must be finite")
        actual, exact = values.shape, _DoubleCells(in_c_order(values).ravel(), grid)
    leading = len(shape) - len(actual)
    if actual != shape and (leading < 0 or actual != shape[leading:] or 0 in actual):
        raise ValueError(f"center has shape {actual}, and the release {shape}")
    copies = math.prod(shape[:leading])
    return exact if copies == 1 else exact.repeated(copies)


Size: TypeAlias = int | tuple[int, ...]
#: Offsets from the base cells, and the indices of those that double arithmetic does not decide.
Offsets: TypeAlias = tuple[FloatArray, NDArray[np.intp]]

_SIGN = np.uint64(1 << 63)

#: Bound on |computed z - z(p)| for every word of the Gaussian table, proved by tests/kernels/test_draws.py.
TABLE_ERROR = 2.0**-42
#: Roundings in units of one cell: of the sum of noise and fraction, of the fraction itself, of 1/2 less the margin.
ROUNDING = 2.0**-51


def gaussian_margin(steps: float) -> float:
    """Bound the error of a draw in double, in cells of which a unit of the noise's scale has so many."""
    return TABLE_ERROR * steps + ROUNDING


@dataclass(frozen=True)
class GaussianLaw:
    """The standard normal law, drawn by the kernel at a vector level of cpu.h (the best one if negative)."""

    level: int = -1

    tail = staticmethod(gaussian_tail)
    magnitude = staticmethod(gaussian_magnitude)

    def draw(self, words: Words, fractions: FloatArray | None, steps: float) -> Offsets:
        """Draw about the fractions of base cells, with this many cells per unit of scale, by the kernel's table."""
        offsets = np.empty(len(words))
        ambiguous = np.empty(len(words), np.intp)
        margin = gaussian_margin(steps)
        n_ambiguous = kernel.gaussian_offsets(words, fractions, steps, margin, offsets, ambiguous, self.level)
        return offsets, ambiguous[:n_ambiguous]


@dataclass(frozen=True)
class LaplaceLaw:
    """The Laplace law of density exp(-|z|)/2: minus the logarithm of p, with a sign."""

    tail = staticmethod(exponential_tail)
    magnitude = staticmethod(exponential_magnitude)

    def draw(self, words: Words, fractions: FloatArray | None, steps: float) -> Offsets:
        """Draw by NumPy's logarithm."""
        prefixes = (words & ~_SIGN).astype(np.float64)
        # The unrevealed bits move p within (prefix, prefix + 1) 2^-63, so its logarithm by at most 1/prefix.
        magnitudes = -np.log((prefixes + 0.5) * 2.0**-63)
        with np.errstate(divide="ignore"):
            errors = logarithm_error(magnitudes) + 1.0 / prefixes
        draws = steps * np.where(words & _SIGN, -magnitudes, magnitudes)
        return in_cells(draws, fractions, 1.001 * steps * errors)


_GAUSSIAN, _LAPLACE = GaussianLaw(), LaplaceLaw()
#: A symmetric law of unit scale: a draw in double, and the tail for the exact decision.
Law: TypeAlias = GaussianLaw | LaplaceLaw


def in_cells(draws: FloatArray, fractions: FloatArray | None, margins: FloatArray | float) -> Offsets:
    """Round draws about the fractions of base cells; `margins` bound their errors, except that of this addition."""
    if fractions is not None:
        draws = draws + fractions
    offsets = np.rint(draws)
    return offsets, np.flatnonzero(~(np.abs(draws - offsets) <= 0.5 - (margins + ROUNDING)))


def logarithm_error(magnitudes: FloatArray) -> FloatArray:
    """Bound the error of -log(p) in double: p rounded to 53 bits, and 4 units in the last place of the logarithm."""
    return 2.0**-52 + 2.0**-49 * magnitudes


def gaussian(
    scale: float, size: Size, source: BitSource, *, center: Center = None, grid: float | None = None
) -> FloatArray:
    """Return ``center + N(0, scale**2)``, rounded to a public grid, with exactly that law.

    Privacy: the release is a post-processing of the ideal Gaussian mechanism of standard deviation `scale`, so it is
    (epsilon, delta)-DP whenever that mechanism is; there is no floating-point term to add.

    Parameters
    ----------
    scale : float
        Standard deviation, in the units of `center`. Public.
    size : int or tuple of int
        Shape of the release.
    source : BitSource
        Source of the random bits.
    center : None, float, ndarray of float64 or FixedPoint, optional
        Center that the noise is added to, taken as the exact numbers it holds. Zero if None. An array with the shape of
        the release's last axes is repeated along its first ones.
    grid : float, optional
        A power of two, chosen from public values only; at least ``scale / 2**38``. Default: about ``scale / 2**20``.

    Returns
    -------
    ndarray of float64
        Multiples of the grid (correctly rounded if they have more than 53 bits).

    Raises
    ------
    ValueError, TypeError
        If an argument is out of its range.

    References
    ----------
    B. Balle and Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018.
    I. Mironov, "On Significance of the Least Significant Bits for Differential Privacy", CCS 2012, on why noise must
    not be a plain double.

    Examples
    --------
    >>> from dpfast.noise import SeededSource, gaussian
    >>> release = gaussian(2.0, 3, SeededSource(0), center=10.0, grid=2.0**-4)
    >>> release * 16 == (release * 16).round()
    array([ True,  True,  True])
    """
    return release(_GAUSSIAN, scale, size, source, center=center, grid=grid)


def laplace(
    scale: float, size: Size, source: BitSource, *, center: Center = None, grid: float | None = None
) -> FloatArray:
    """Return `center` plus Laplace noise of density ``exp(-|z|/scale)/(2 scale)``, rounded to a public grid, exactly.

    Privacy: entries drawn independently make a release of L1 sensitivity Delta (Delta/scale)-DP. Arguments, errors and
    the result are those of `gaussian`, except that the scale is the mean magnitude.

    References
    ----------
    C. Dwork, F. McSherry, K. Nissim and A. Smith, "Calibrating Noise to Sensitivity in Private Data Analysis",
    TCC 2006, Example 1.
    """
    return release(_LAPLACE, scale, size, source, center=center, grid=grid)


def release(
    law: Law, scale: float, size: Size, source: BitSource, *, center: Center = None, grid: float | None = None
) -> FloatArray:
    """Return independent draws of a symmetric law about `center`, through a grid."""
    public = NoiseGrid(scale, grid)
    cells: Cells | None = None
    both: tuple[NDArray[np.int64], Words] | None = None
    if type(size) is tuple and isinstance(center, FixedPoint) and size == center.high.shape:
        shape = center.high.shape  # most are known without a call
        if law is _GAUSSIAN and center.high.flags.carray and center.low.flags.carray:
            both = center.high.reshape(-1), center.low.reshape(-1)
            how = public.exponent - center.exponent, public.steps, gaussian_margin(public.steps)
    else:
        shape = check.shape("size", size)
    if both is None:
        cells = cells_of(center, shape, public)
    stream = (source if type(source) is SecureSource else check_source(source)).open()
    released = np.empty(shape)
    flat = released.reshape(-1)
    for start in range(0, flat.size, BLOCK_WORDS):
        stop = min(start + BLOCK_WORDS, flat.size)
        words = stream.words(stop - start)
        if both is not None:
            high, low = both
            if kernel.draw_about(high[start:stop], low[start:stop], words, *how, public.exponent, flat[start:stop]):
                continue
        if cells is None:
            cells = cells_of(center, shape, public)
        offsets, undecided = law.draw(words, cells.split(start, stop), public.steps)
        for i in undecided.tolist():
            more, fraction = stream.branch(start + i), cells.fraction(start + i)
            offsets[i] = decide_offset(int(words[i]), more, fraction, public.exact_steps, law.tail, law.magnitude)
        cells.join(offsets, start, flat[start:stop])
    return released
