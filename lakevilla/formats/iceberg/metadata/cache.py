"""What was read lately of objects that never change under their name (hazard 7)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from lakevilla.forked import lock

T = TypeVar("T")


class Cache(Generic[T]):
    """Things by URI, up to a number of bytes; the one asked for longest ago goes. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = lock()
        self._held: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def find(self, uri: str) -> T | None:
        with self._lock:
            found = self._held.get(uri)
            if found is None:
                return None
            self._held.move_to_end(uri)
            return found[0]

    def keep(self, uri: str, value: T, size: int) -> None:
        with self._lock:
            if uri in self._held:
                return
            self._held[uri] = value, size
            self._bytes += size
            while self._bytes > self._most_bytes and len(self._held) > 1:
                _, (_, dropped) = self._held.popitem(last=False)
                self._bytes -= dropped
