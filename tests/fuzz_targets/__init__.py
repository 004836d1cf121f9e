"""Fuzz targets: functions that put one drawn input through a kernel or a parser; tools/fuzz.py runs them for a time.

A target draws everything from the `Draw` it is given, so an execution is repeated from its seed and number. It returns,
or raises what its kernel or parser documents (`accepts`); anything else is a finding. Targets are registered when
`all_targets` imports their modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

MODULES = ("fuzz_targets.kernels", "fuzz_targets.arrays", "fuzz_targets.tables", "fuzz_targets.documents")

LARGEST = float(np.finfo(np.float64).max)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, -5e-324, 2.3e-308, 1e-200, 1e-100, 2.0**52 + 0.5, 2.0**53, -(2.0**63), 2.0**64,
     1e100, -1e200, LARGEST, -LARGEST]
)  # fmt: skip
NOT_FINITE = np.array([np.inf, -np.inf, np.nan])
INTEGERS = (0, 1, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63))


class Draw:
    """Everything that one execution draws."""

    def __init__(self, seed: int, execution: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64([seed, execution]))

    def integer(self, low: int, high: int) -> int:
        """An integer of low to high."""
        return int(self.rng.integers(low, high, endpoint=True, dtype=np.int64))

    def choice(self, options: Sequence[T]) -> T:
        """One of several."""
        return options[self.integer(0, len(options) - 1)]

    def flag(self, probability: float = 0.5) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < probability)

    def positive(self, low: float = 1e-300, high: float = 1e300) -> float:
        """A positive number, its logarithm uniform."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def reals(self, *shape: int, finite: bool = True, scale: float | None = None) -> Any:
        """Doubles of one size, of all sizes or mixed with special ones."""
        with np.errstate(over="ignore"):
            values = (self.positive(1e-12, 1e12) if scale is None else scale) * np.asarray(self.rng.normal(size=shape))
            if self.flag(0.3):
                values = values * 10.0 ** self.rng.integers(-300, 300, shape)
        if self.flag(0.3):
            chosen = self.rng.random(shape) < 0.3
            values = np.where(chosen, self.rng.choice(SPECIAL, shape), values)
        values = np.asarray(np.clip(values, -LARGEST, LARGEST))
        if not finite and self.flag(0.2) and values.size:
            values.flat[self.integer(0, values.size - 1)] = self.choice(NOT_FINITE)
        return values

    def laid_out(self, array: Any) -> Any:
        """The same values, lying in memory in another way."""
        match self.integer(0, 7) if array.ndim else 8:
            case 0:
                return array.astype(array.dtype.newbyteorder())
            case 1:
                return np.asfortranarray(array)
            case 2:
                return array[::-1].copy()[::-1]
            case 3 if array.ndim == 2:
                wide = np.zeros((2 * array.shape[0], array.shape[1] + 3), array.dtype)
                wide[::2, 1:-2] = array
                return wide[::2, 1:-2]
            case 4 if array.ndim == 2 and array.shape[1] > 0:
                return np.broadcast_to(array[:, :1], array.shape)
            case 5:
                odd = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
                odd[...] = array
                return odd
            case 6:
                array = array.copy()
                array.flags.writeable = False
        return array

    def mutated(self, data: bytes) -> bytes:
        """Bytes with some of them changed, removed, repeated or cut off."""
        changed = bytearray(data)
        for _ in range(self.choice((1, 1, 2, 4, 16))):
            place = self.integer(0, len(changed))
            match self.integer(0, 5):
                case 0 if place < len(changed):
                    changed[place] ^= 1 << self.integer(0, 7)
                case 1 if place < len(changed):
                    changed[place] = self.choice(
                        (0, 0xFF, 0x7F, 0x80, 0x22, 0x2C, 0x0A, 0x5B, 0x7B, self.integer(0, 255))
                    )
                case 2:
                    del changed[place : place + self.integer(1, 8)]
                case 3:
                    changed[place:place] = bytes(self.integer(0, 255) for _ in range(self.integer(1, 8)))
                case 4:
                    end = min(len(changed), place + self.integer(1, 64))
                    changed[place:place] = changed[place:end] * self.choice((1, 1, 2, 100))
                case _ if self.flag(0.2):
                    del changed[place:]
        return bytes(changed)


@dataclass(frozen=True)
class Target:
    """A function to fuzz, the modules of dpfast it reaches, and the errors these document."""

    name: str
    run: Callable[[Draw], None]
    covers: tuple[str, ...]
    accepts: tuple[type[Exception], ...]

    def execute(self, seed: int, execution: int) -> None:
        """Run once; raises only if that is a finding."""
        with np.errstate(all="ignore"), suppress(*self.accepts):
            self.run(Draw(seed, execution))


_TARGETS: dict[str, Target] = {}


def target(
    *covers: str, accepts: tuple[type[Exception], ...] = ()
) -> Callable[[Callable[[Draw], None]], Callable[[Draw], None]]:
    """Register a function as a target that covers some modules, named without "dpfast."."""

    def register(function: Callable[[Draw], None]) -> Callable[[Draw], None]:
        name = function.__name__
        assert name not in _TARGETS
        _TARGETS[name] = Target(name, function, covers, accepts)
        return function

    return register


def all_targets() -> dict[str, Target]:
    """Return every target by its name."""
    for module in MODULES:
        importlib.import_module(module)
    return dict(_TARGETS)
