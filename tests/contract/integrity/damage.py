"""Objects of a lake on any store, and ways to damage them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lakevilla as lv
from lakevilla.store.base import ANY, Found
from lakevilla.store.base import Store as AnyStore
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import listed


class Objects:
    """The objects of a lake; tests read and damage them without a client."""

    def __init__(self, place: Place) -> None:
        self.store: AnyStore = inside(place.connect()).store

    def keys(self, prefix: str, ends: str = ".parquet") -> list[str]:
        return sorted(info.key for info in listed(self.store, prefix) if info.key.endswith(ends))

    def body(self, key: str) -> bytes:
        found = self.store.get(key)
        assert isinstance(found, Found)
        return found.body

    def write(self, key: str, body: bytes) -> None:
        self.store.put(key, body, ANY)

    @contextmanager
    def holding(self, key: str, body: bytes) -> Iterator[None]:
        """Replace an object's body while the block runs."""
        before = self.body(key)
        assert body != before, "this would be no damage"
        self.write(key, body)
        try:
            yield
        finally:
            self.write(key, before)


#: Makes a damaged body of a sound one, given older bodies of the same kind.
Damage = Callable[[random.Random, bytes, list[bytes]], bytes]


def flipped(draw: random.Random, body: bytes, others: list[bytes]) -> bytes:
    """Return the body with one bit flipped."""
    place, bit = draw.randrange(len(body)), 1 << draw.randrange(8)
    return body[:place] + bytes([body[place] ^ bit]) + body[place + 1 :]


def cut(draw: random.Random, body: bytes, others: list[bytes]) -> bytes:
    """Return the body without its end, or an empty one."""
    return body[: draw.randrange(len(body))]


def swapped(draw: random.Random, body: bytes, others: list[bytes]) -> bytes:
    """Return an older body of the same kind."""
    return draw.choice([other for other in others if other != body])


DAMAGES: tuple[Damage, ...] = (flipped, cut, swapped)


def filled(place: Place, **settings: object) -> lv.Lake:
    """Make a lake with table ``t`` (five commits of one file each) and table ``u`` (one file)."""
    lake = place.connect(settings=lv.Settings(**settings))  # type: ignore[arg-type]
    lake.create_table("t", [{"id": n, "text": "x" * n} for n in range(20)])
    lake.create_table("u", [{"id": 1}])
    for number in range(4):
        lake.run(lambda txn, n=number: txn.append("t", [{"id": 100 + n, "text": "y"}] * (n + 1)))
    return lake
