"""Which key comes next: the generators of YCSB 0.17, each a pure function of a random number.

Golden values of the reference (``site.ycsb:core:0.17.0``) hold them: see ``tests/unit/bench``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

THETA = 0.99
_MASK = (1 << 64) - 1
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 1099511628211
#: Of the scrambled generator: its inner range (its bounds are inclusive), and the zeta of 10^10.
_INNER, _INNER_ZETA = 10_000_000_001, 26.46902820178302


def fnv64(number: int) -> int:
    """FNV-1 of the eight octets of a number, lowest first, as YCSB has it; never negative."""
    hashed = _FNV_OFFSET
    for _ in range(8):
        hashed = ((hashed ^ (number & 0xFF)) * _FNV_PRIME) & _MASK
        number >>= 8
    return abs(hashed - (1 << 64) if hashed >> 63 else hashed)


@cache
def zeta(items: int, theta: float = THETA) -> float:
    """The sum of ``1 / i ** theta`` for ``i`` up to ``items``, in the reference's order."""
    total = 0.0
    for i in range(items):
        total += 1 / math.pow(i + 1, theta)
    return total


@dataclass(frozen=True, slots=True)
class Zipfian:
    """Small numbers often, large ones rarely (Gray et al., 1994): 0 up to ``items`` - 1.

    ``zetan`` is given where summing it takes long.
    """

    items: int
    zetan: float | None = None

    def at(self, u: float) -> int:
        """The number that a random ``u`` in [0, 1) stands for."""
        zetan = zeta(self.items) if self.zetan is None else self.zetan
        uz = u * zetan
        if uz < 1:
            return 0
        if uz < 1 + math.pow(0.5, THETA):
            return 1
        # Of more than two items: of fewer, the reference's eta is none of a number, and unused.
        alpha = 1 / (1 - THETA)
        eta = (1 - math.pow(2 / self.items, 1 - THETA)) / (1 - zeta(2) / zetan)
        return int(self.items * math.pow(eta * u - eta + 1, alpha))


@dataclass(frozen=True, slots=True)
class Scrambled:
    """As often as a Zipfian's, and spread over 0 up to ``items`` - 1 by a hash."""

    items: int

    def at(self, u: float) -> int:
        return fnv64(Zipfian(_INNER, _INNER_ZETA).at(u)) % self.items


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest of ``items`` numbers most often."""

    items: int

    def at(self, u: float) -> int:
        newest = self.items - 1
        return newest - Zipfian(newest).at(u)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of all keys for each client; intervals overlap wholly (0) to not at all (1).

    Only YCSB-LH has it. The paper's text has the stride the other way round, so that 0 would
    be none: here 0 is full overlap, as its figures are labelled.
    """

    items: int
    clients: int
    apart: float

    @property
    def length(self) -> int:
        return max(1, int(self.items / (1 + (self.clients - 1) * self.apart)))

    def at(self, client: int, u: float) -> int:
        stride = self.length * self.apart
        return int(client * stride + u * self.length) % self.items


def key_of(number: int) -> str:
    """The key of a record."""
    return f"user{fnv64(number)}"


def drawn_until(
    generator: Callable[[float], int], random: Random, fits: Callable[[int], bool]
) -> int:
    """Draw again until a number fits: one that was chosen before it was inserted does not."""
    while True:
        number = generator(random.random())
        if fits(number):
            return number
