"""Hashes of data files: stored when a file is written, compared when it is read or checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from blake3 import blake3

from lakevilla.errors import CorruptObject
from lakevilla.ids import txn_in
from lakevilla.store.base import Found, GetOutcome
from lakevilla.store.effects import Program, get, parallel

#: The length of a file's hash, as in the names of other objects; ``b3sum -l 16`` prints the same.
_BYTES = 16
_BUFFER_BYTES = 1024 * 1024
#: The size of one request, and of one round: the bytes in memory at once.
_PART_BYTES = 16 * 1024 * 1024
ROUND_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A data file of a table, and the hash that was stored when it was written."""

    key: str
    size: int
    hash: str
    table: str


class Hashing:
    """The hash of bytes that arrive part by part.

    It is computed in one thread: a pool of threads would not exist after a fork, and one thread is
    faster than any store. Other threads of the process can run meanwhile.
    """

    def __init__(self) -> None:
        self._hash = blake3(max_threads=1)

    def add(self, part: bytes | memoryview) -> None:
        self._hash.update(part)

    def result(self) -> str:
        return self._hash.hexdigest(length=_BYTES)


def hash_of(body: bytes) -> str:
    """Return the hash of a file that is in memory."""
    return blake3(body).hexdigest(length=_BYTES)


def hash_of_file(path: str) -> str:
    """Return the hash of a file on this machine.

    The file is read, and not mapped: a file that is cut meanwhile must not end the process.
    """
    hashing = Hashing()
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with open(path, "rb", buffering=0) as file:
        while length := file.readinto(buffer):
            hashing.add(buffer[:length])
    return hashing.result()


@dataclass(frozen=True, slots=True)
class Damage:
    """The difference of a file from what was written.

    ``is_missing``: it does not exist; ``is_elsewhere``: the lake does not read it.
    """

    what: str
    is_missing: bool = False
    is_elsewhere: bool = False


_MISSING = Damage("is missing although the table names it", is_missing=True)


def compare(file: HashedFile, size: int, found: str) -> Damage | None:
    """Return the damage of a file, by its size and hash now; None if it has none."""
    if size != file.size:
        return Damage(f"has {size} bytes, and the table's log says {file.size}")
    if found != file.hash:
        return Damage(f"has the blake3 {found}, and was written with {file.hash}")
    return None


def compare_local(file: HashedFile, path: str) -> Damage | None:
    """Compare a file on this machine, as ``compare`` does."""
    try:
        size = os.stat(path).st_size
        return compare(file, size, hash_of_file(path) if size == file.size else "")
    except FileNotFoundError:
        return _MISSING


def compare_all(
    files: Sequence[HashedFile], take: Callable[[HashedFile, bytes], object] | None = None
) -> Program[list[Damage | None]]:
    """Return the damage of each file; files are fetched whole, a round at a time.

    ``take`` gets the parts of each file in order, up to the first part of a wrong size.
    """
    wrong: dict[HashedFile, Damage] = {}
    hashing = Hashing()
    for parts in _in_rounds(files):
        found: list[GetOutcome] = yield from parallel(
            [get(file.key, byte_range=(start, end)) for file, start, end in parts]
        )
        for (file, start, end), part in zip(parts, found, strict=True):
            if start == 0:
                hashing = Hashing()
            if file in wrong:
                continue
            if not isinstance(part, Found):
                wrong[file] = _MISSING
                continue
            hashing.add(part.body)
            is_last = end == file.size
            here = compare(file, part.size, hashing.result() if is_last else file.hash)
            if here is None and len(part.body) != end - start:
                here = Damage(f"ends before byte {end}")
            if here is not None:
                wrong[file] = here
            elif take is not None:
                take(file, part.body)
    return [wrong.get(file) for file in files]


def damaged(file: HashedFile, wrong: Damage) -> CorruptObject:
    """Return the error for a damaged file; it names the transaction that has written the file."""
    writer = txn_in(file.key)
    by = "" if writer is None else f", written by transaction {writer},"
    return CorruptObject(
        f"data file {file.key} of table {file.table}{by} {wrong.what}: restore it from a backup, "
        "or restore the table to a version without it; `lakevilla verify ROOT` checks all files",
        key=file.key,
        table=file.table,
    )


def _in_rounds(files: Sequence[HashedFile]) -> Iterator[list[tuple[HashedFile, int, int]]]:
    """Yield a list per round: the parts of files in order, each with its first byte and its end."""
    parts: list[tuple[HashedFile, int, int]] = []
    size = 0
    for file in files:
        for start in range(0, max(file.size, 1), _PART_BYTES):
            end = min(start + _PART_BYTES, file.size)
            parts.append((file, start, end))
            size += end - start
            if size >= ROUND_BYTES:
                yield parts
                parts, size = [], 0
    if parts:
        yield parts
