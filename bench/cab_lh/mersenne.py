"""The random numbers of CAB's generator: C++'s ``mt19937``, with the distributions of libc++.

The standard fixes the engine's bits, and leaves distributions to the library; the published
streams were made with libc++. With the same draws come the same streams
(``tests/unit/bench/test_cab_streams.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")
_WORDS = 624


class Mersenne:
    """``std::mt19937`` of a seed."""

    def __init__(self, seed: int) -> None:
        words = [seed & 0xFFFFFFFF]
        for i in range(1, _WORDS):
            words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
        self._engine = Random()
        self._engine.setstate((3, (*words, _WORDS), None))  # Python's own seeding is another

    def bits(self) -> int:
        """32 of them."""
        return self._engine.getrandbits(32)

    def real(self, least: float = 0.0, below: float = 1.0) -> float:
        """``uniform_real_distribution``."""
        low, high = self.bits(), self.bits()
        return (low + high * 2.0**32) / 2.0**64 * (below - least) + least

    def whole(self, least: int, most: int) -> int:
        """``uniform_int_distribution``: as many low bits as it takes, until they fit."""
        count = most - least + 1
        mask = (1 << (count - 1).bit_length()) - 1
        while (drawn := self.bits() & mask) >= count:
            pass
        return least + drawn

    def exponential(self, rate: float) -> float:
        """``exponential_distribution``."""
        return -math.log(1.0 - self.real()) / rate

    def one_of(self, values: Sequence[T]) -> T:
        """One of them, each as likely as another."""
        return values[self.whole(0, len(values) - 1)]
