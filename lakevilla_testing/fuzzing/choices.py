"""An input's bytes as a list of decisions, so that whoever changes the bytes changes the decisions.

A fuzzer that is guided by coverage changes the bytes of inputs that reached new code. A seed gives
bytes at random.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

#: The length of a drawn input: most need far fewer decisions.
LENGTH = 96


def drawn(seed: int) -> bytes:
    """Return the input of a seed."""
    return random.Random(seed).randbytes(LENGTH)


class Choices:
    """The decisions that an input's bytes encode; once they are used up, each is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, below: int) -> int:
        """Return a number from 0 up to ``below``, exclusive."""
        if below <= 1:
            return 0
        size = max(1, ((below - 1).bit_length() + 7) // 8)
        return int.from_bytes(self.taken(size), "little") % below

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def happens(self, one_in: int) -> bool:
        return self.number(one_in) == one_in - 1

    def taken(self, size: int) -> bytes:
        """Return the next bytes themselves."""
        found = self._data[self._at : self._at + size]
        self._at += size
        return found
