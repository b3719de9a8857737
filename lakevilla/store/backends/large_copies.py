"""Copies of objects that S3 does not copy itself: it refuses more than 5 GB.

They are fetched and stored part by part. (S3's own copy of parts is a request that the backend does
not know, and other stores that speak S3 may not.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lakevilla.store.base import ObjectInfo

#: What S3 copies itself.
COPIED_BYTES = 5 * 1024**3
#: The parts of what it does not: at least so large, and so many at most.
_PART_BYTES = 64 * 1024**2
_MOST_PARTS = 9_000
#: How a copy of a larger object is answered: an invalid request, or one that is too large.
REFUSALS = (400, 413)


class PartWriter(Protocol):
    """What takes an object piece by piece; nothing is stored before it is closed."""

    def write(self, buffer: bytes, /) -> int: ...

    def close(self) -> None: ...


def write_parts(
    info: ObjectInfo, fetch: Callable[[int, int], bytes], open_writer: Callable[[int], PartWriter]
) -> None:
    """Store what ``fetch`` gives, range by range, of an object; a writer is told of how much."""
    part = max(_PART_BYTES, -(-info.size // _MOST_PARTS))
    writer = open_writer(part)
    for start in range(0, info.size, part):
        writer.write(fetch(start, min(start + part, info.size)))
    writer.close()
