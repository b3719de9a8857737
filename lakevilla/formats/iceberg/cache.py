"""Manifests read lately: they never change under their name (hazard 7)."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

__all__ = ["ManifestCache"]

_MOST_BYTES = 256 << 20


class ManifestCache:
    """Manifests as columns, by URI, up to a number of bytes. Thread-safe."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, pa.Table] = OrderedDict()
        self._bytes = 0

    def find(self, uri: str) -> pa.Table | None:
        with self._lock:
            found = self._held.get(uri)
            if found is not None:
                self._held.move_to_end(uri)
            return found

    def keep(self, uri: str, entries: pa.Table) -> None:
        with self._lock:
            if uri in self._held:
                return
            self._held[uri] = entries
            self._bytes += entries.nbytes
            while self._bytes > self._most_bytes and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= dropped.nbytes
