"""What the fields are drawn from (clauses 2.1.6 and 4.3.2): pure functions, and arrays of draws."""

from __future__ import annotations

from random import Random
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

#: A draw, or an array of them.
Draws = TypeVar("Draws", int, np.ndarray)
SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
#: NURand's A: of last names, customers and items.
OF_LAST, OF_CUSTOMER, OF_ITEM = 255, 1023, 8191
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_CHARACTERS = np.frombuffer(_LETTERS.encode(), np.uint8)
_DIGITS = np.frombuffer(b"0123456789", np.uint8)
_ORIGINAL = "ORIGINAL"


class Constants(NamedTuple):
    """NURand's C, one for each A."""

    last: int
    customer: int
    item: int


def constants_of_load(random: Random) -> Constants:
    """Those by which last names are drawn when the tables are loaded."""
    return Constants(
        random.randint(0, OF_LAST), random.randint(0, OF_CUSTOMER), random.randint(0, OF_ITEM)
    )


def constants_of_run(random: Random, load: Constants) -> Constants:
    """Those of the run: C of last names differs by 65 to 119, not 96 or 112 (clause 2.1.6.1)."""
    fits = [c for c in range(OF_LAST + 1) if 65 <= abs(c - load.last) <= 119]
    last = random.choice([c for c in fits if abs(c - load.last) not in (96, 112)])
    return Constants(last, random.randint(0, OF_CUSTOMER), random.randint(0, OF_ITEM))


def nurand(of_a: Draws, value: Draws, low: int, high: int, c: int) -> Draws:
    """Clause 2.1.6: ``of_a`` is drawn from 0 to A, ``value`` from ``low`` to ``high``.

    One number each, or many.
    """
    drawn: Draws = ((of_a | value) + c) % (high - low + 1) + low
    return drawn


def last_name(number: int) -> str:
    """Clause 4.3.2.3: a syllable for each of three digits."""
    return "".join(SYLLABLES[number // place % 10] for place in (100, 10, 1))


def zip_code(random: np.random.Generator, count: int) -> pa.Array:
    """Four random digits, then 11111 (clause 4.3.2.7)."""
    digits = random.integers(0, 10_000, count)
    return pa.array([f"{number:04}11111" for number in digits.tolist()])


def a_strings(random: np.random.Generator, count: int, low: int, high: int) -> pa.Array:
    """Texts of letters and digits, of ``low`` to ``high`` characters."""
    return _texts(random, count, low, high, _CHARACTERS)


def n_strings(random: np.random.Generator, count: int, low: int, high: int) -> pa.Array:
    """Texts of digits."""
    return _texts(random, count, low, high, _DIGITS)


def _texts(
    random: np.random.Generator, count: int, low: int, high: int, of: np.ndarray
) -> pa.Array:
    lengths = random.integers(low, high + 1, count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    characters = of[random.integers(0, len(of), int(offsets[-1]), np.uint8)]
    buffers = [pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))]
    return pa.StringArray.from_buffers(count, *buffers)


def data(random: np.random.Generator, count: int) -> pa.Array:
    """Texts of 26 to 50 characters, a tenth of them with ORIGINAL somewhere (clause 4.3.3.1)."""
    texts = a_strings(random, count, 26, 50).to_pylist()
    for at in random.permutation(count)[: (count + 5) // 10].tolist():
        text = texts[at]
        start = int(random.integers(0, len(text) - len(_ORIGINAL) + 1))
        texts[at] = text[:start] + _ORIGINAL + text[start + len(_ORIGINAL) :]
    return pa.array(texts)


def decimals(units: np.ndarray, type_: pa.Decimal128Type) -> pa.Array:
    """Decimals by their smallest unit: 1234 cents are 12.34."""
    words = np.zeros((len(units), 2), np.int64)
    words[:, 0] = units
    words[:, 1] = np.where(units < 0, -1, 0)
    return pa.Array.from_buffers(type_, len(units), [None, pa.py_buffer(words)])
