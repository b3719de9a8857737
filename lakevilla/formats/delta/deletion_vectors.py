"""Deletion vectors: the rows of a data file that no longer count.

A vector is a 64-bit Roaring bitmap in its portable form, inline in the log (Z85 text) or in a file
next to the data. It is decoded to row indices with numpy, and every length is checked: the vector
decides which rows exist, so a damaged one is an error, never a guess. It is encoded in blocks that
are arrays or bitmaps, as every reader knows them (Delta protocol, "Deletion Vector Format").
"""

from __future__ import annotations

import itertools
import zlib
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lakevilla.arrow.nesting import document
from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.delta.actions import decode_path
from lakevilla.formats.files import ROWS_TAG, DataFile, DeletionVector, file_key
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get

RowIndices = npt.NDArray[np.int64]

#: The most rows that a union of vectors has: about 100 KB in the log entry, and in each checkpoint.
MOST_INLINE = 40_000

_MAGIC = 1681511377
_UUID_LENGTH = 20


def read_vector(location: str, vector: DeletionVector) -> Program[RowIndices]:
    """Return the deleted rows of a file, ascending, counted from zero.

    Takes at most one request: none for an inline vector, else one for the vector's own bytes. Never
    decodes more rows than the log declares.

    Raises
    ------
    CorruptObject
        The vector is damaged or missing.
    UnsupportedTableFeature
        The vector is stored in a place that the protocol does not yet define.
    """
    if vector.storage_type == "i":
        return _inline_rows(location, vector)
    key = vector_key(location, vector)
    start = 1 if vector.offset is None else vector.offset
    outcome = yield from get(key, byte_range=(start, start + vector.size_in_bytes + 8))
    name = f"deletion vector {key} at {start}"
    if not isinstance(outcome, Found):
        raise _corrupt(name, key, "it is missing")
    body = outcome.body
    data = body[4:-4]
    if len(data) != vector.size_in_bytes or int.from_bytes(body[:4], "big") != len(data):
        raise _corrupt(
            name, key, f"it is not of the {vector.size_in_bytes} bytes that the log says"
        )
    if zlib.crc32(data) != int.from_bytes(body[-4:], "big"):
        raise _corrupt(name, key, "its checksum is wrong")
    return _checked(decode_bitmap(data, vector.cardinality, name, key), vector, name, key)


@lru_cache(maxsize=64)
def _inline_rows(location: str, vector: DeletionVector) -> RowIndices:
    """Return the rows of an inline vector; a commit compares the same few vectors many times."""
    name = f"the inline deletion vector {vector.path_or_inline[:40]!r} of {location}"
    data = decode_z85(vector.path_or_inline, name)[: vector.size_in_bytes]
    if len(data) < vector.size_in_bytes:
        raise _corrupt(name, None, "it is shorter than its size")
    rows = _checked(decode_bitmap(data, vector.cardinality, name), vector, name)
    rows.flags.writeable = False
    return rows


def rows_deleted(location: str, vector: DeletionVector | None) -> Program[RowIndices]:
    """Return the deleted rows of a file, ascending; none if it has no vector."""
    if vector is None:
        return np.zeros(0, dtype=np.int64)
    return (yield from read_vector(location, vector))


def vector_key(location: str, vector: DeletionVector) -> str:
    """Return the key of the object that holds a vector that is not inline."""
    if vector.storage_type == "p":
        # The log spells a vector's path like the path of a data file.
        return decode_path(vector.path_or_inline)
    if vector.storage_type != "u":
        raise UnsupportedTableFeature(
            f"table {location} has a deletion vector of storage type {vector.storage_type!r}, "
            "which LakeVilla does not read: rewrite the file with the client that wrote it",
            table=location,
        )
    if len(vector.path_or_inline) < _UUID_LENGTH:
        raise _corrupt(f"a deletion vector of {location}", None, "its name is too short")
    prefix = vector.path_or_inline[:-_UUID_LENGTH]
    name = f"the deletion vector {vector.path_or_inline!r} of {location}"
    digits = decode_z85(vector.path_or_inline[-_UUID_LENGTH:], name).hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    name = f"deletion_vector_{uuid}.bin"
    return file_key(location, f"{prefix}/{name}" if prefix else name)


def with_deleted(file: DataFile, rows: RowIndices) -> DataFile:
    """Return a file of which these rows, or none, are deleted, as a log entry adds it again.

    Its bounds are those of all its rows, so they need not be reached any more. Its row ids and the
    hash of its bytes stay.
    """
    tags = {name: value for name, value in (file.tags or {}).items() if name != ROWS_TAG}
    return msgspec.structs.replace(
        file,
        deletion_vector=inline_vector(np.unique(rows)) if len(rows) else None,
        stats=_with_wide_bounds(file.stats),
        tags=tags or None,
        data_change=True,
    )


def _with_wide_bounds(stats: str | None) -> str | None:
    if stats is None:
        return None
    return msgspec.json.encode({**document(stats), "tightBounds": False}).decode()


def inline_vector(rows: RowIndices) -> DeletionVector:
    """Return a vector that the log itself holds; ``rows`` are distinct and ascending."""
    data = encode_bitmap(rows)
    return DeletionVector("i", _z85_of(data + bytes(-len(data) % 4)), len(data), len(rows))


def _checked(
    rows: RowIndices, vector: DeletionVector, name: str, key: str | None = None
) -> RowIndices:
    if len(rows) != vector.cardinality:
        raise _corrupt(name, key, f"it has {len(rows)} rows, the log says {vector.cardinality}")
    return rows


# --------------------------------------------------------------------- Roaring

_NO_RUNS, _RUNS = 12346, 12347
_ARRAY_LIMIT = 4096
_OFFSETS_FROM = 4
_OTHER_COUNT = "a block has not as many rows as it says"


def decode_bitmap(
    data: bytes,
    limit: int | None = None,
    name: str = "a deletion vector",
    key: str | None = None,
) -> RowIndices:
    """Return the row indices of Delta's form of a 64-bit Roaring bitmap.

    A block of 65,536 rows takes ten bytes, so small vectors can hold a great many rows. Their
    number is read before any row is decoded: if it is beyond ``limit``, no row is.

    Raises
    ------
    CorruptObject
        The bitmap is damaged, or has more than ``limit`` rows.
    """
    if int.from_bytes(data[:4], "little") != _MAGIC:
        raise _corrupt(name, key, "it has not the magic number of a deletion vector")
    reader = _Reader(data, 4)
    parts: list[npt.NDArray[np.int64]] = []
    made = 0
    try:
        for _ in range(reader.number(8)):
            high = reader.number(4) << 32
            found = _containers(reader, made, limit)
            made += sum(map(len, found))
            parts.extend(rows + high for rows in found)
    except _TooShort:
        raise _corrupt(name, key, "it ends too early") from None
    except ValueError as error:
        raise _corrupt(name, key, str(error)) from None
    rows = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    if len(rows) > 1 and not bool((rows[1:] > rows[:-1]).all()):
        raise _corrupt(name, key, "its rows are out of order")
    return rows


def encode_bitmap(rows: RowIndices) -> bytes:
    """Return Delta's form of the 64-bit Roaring bitmap of ``rows``, distinct and ascending."""
    parts = [_MAGIC.to_bytes(4, "little")]
    bitmaps = _runs_of(rows >> 32)
    parts.append(len(bitmaps).to_bytes(8, "little"))
    for begin, end in bitmaps:
        parts.append(int(rows[begin] >> 32).to_bytes(4, "little"))
        parts.append(_bitmap(rows[begin:end] & 0xFFFFFFFF))
    return b"".join(parts)


def _bitmap(rows: RowIndices) -> bytes:
    """Return a 32-bit bitmap without runs: a header, where each block begins, and the blocks."""
    blocks = _runs_of(rows >> 16)
    header = np.empty((len(blocks), 2), dtype="<u2")
    begins = np.empty(len(blocks), dtype="<u4")
    contents = []
    at = 8 + 8 * len(blocks)
    for number, (begin, end) in enumerate(blocks):
        low = rows[begin:end] & 0xFFFF
        if end - begin > _ARRAY_LIMIT:
            bits = np.zeros(1 << 16, dtype=np.uint8)
            bits[low] = 1
            content = np.packbits(bits, bitorder="little").tobytes()
        else:
            content = low.astype("<u2").tobytes()
        header[number] = rows[begin] >> 16, end - begin - 1
        begins[number] = at
        at += len(content)
        contents.append(content)
    first = np.array([_NO_RUNS, len(blocks)], dtype="<u4")
    return b"".join([first.tobytes(), header.tobytes(), begins.tobytes(), *contents])


def _runs_of(keys: RowIndices) -> list[tuple[int, int]]:
    """Return where each run of equal keys begins and ends."""
    if not len(keys):
        return []
    cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    return list(itertools.pairwise(cuts))


class _TooShort(Exception):
    pass


class _Reader:
    """Reader of little-endian values in order, never past the end."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def number(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "little")

    def bytes(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise _TooShort
        chunk = self._data[self._position : end]
        self._position = end
        return chunk

    def array(self, kind: str, count: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.bytes(count * np.dtype(kind).itemsize), dtype=kind)


def _containers(reader: _Reader, before: int, limit: int | None) -> list[npt.NDArray[np.int64]]:
    """Read one 32-bit bitmap: blocks of 65,536 values, each as an array, a bitmap or runs."""
    cookie = reader.number(4)
    if cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        flags = np.unpackbits(reader.array("u1", (count + 7) // 8), bitorder="little")
    elif cookie == _NO_RUNS:
        count = reader.number(4)
        if count > 65_536:
            raise ValueError("it has more blocks than there can be")
        flags = np.zeros(count, dtype=np.uint8)
    else:
        raise ValueError("it is no roaring bitmap")
    header = reader.array("<u2", 2 * count).astype(np.int64).reshape(count, 2)
    if limit is not None and before + int(header[:, 1].sum()) + count > limit:
        raise ValueError(f"it has more rows than the {limit} that there can be")
    if cookie == _NO_RUNS or count >= _OFFSETS_FROM:
        reader.bytes(4 * count)  # where each block begins; they are read in order
    found = []
    for (block, cardinality_less_one), is_runs in zip(header.tolist(), flags, strict=False):
        cardinality = cardinality_less_one + 1
        if is_runs:
            values = _runs(reader, cardinality)
        elif cardinality > _ARRAY_LIMIT:
            bits = np.unpackbits(reader.array("u1", 8192), bitorder="little")
            values = np.flatnonzero(bits).astype(np.int64)
        else:
            values = reader.array("<u2", cardinality).astype(np.int64)
        if len(values) != cardinality:
            raise ValueError(_OTHER_COUNT)
        found.append(values + (block << 16))
    return found


def _runs(reader: _Reader, cardinality: int) -> npt.NDArray[np.int64]:
    pairs = reader.array("<u2", 2 * reader.number(2)).astype(np.int64).reshape(-1, 2)
    if len(pairs) == 0:
        return np.zeros(0, dtype=np.int64)
    starts, lengths = pairs[:, 0], pairs[:, 1] + 1
    if int((starts + lengths).max()) > 65_536:
        raise ValueError("a run goes beyond its block")
    if int(lengths.sum()) != cardinality:
        raise ValueError(_OTHER_COUNT)
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


# ------------------------------------------------------------------------- Z85

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_LETTERS = np.frombuffer(_Z85, np.uint8)
#: By letter, its digit; 85 for a letter that is none.
_DIGITS = np.full(256, 85, np.uint64)
_DIGITS[_LETTERS] = np.arange(85)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.uint64)


def decode_z85(text: str, name: str = "a deletion vector") -> bytes:
    """Decode Z85 (ZeroMQ RFC 32): five letters for each four bytes. Raises ``CorruptObject``."""
    try:
        digits = _DIGITS[np.frombuffer(text.encode("ascii"), np.uint8)].reshape(-1, 5)
    except ValueError:
        raise _corrupt(name, None, "its text is no z85") from None
    numbers = (digits * _POWERS).sum(axis=1)
    if (digits > 84).any() or (numbers >> np.uint64(32)).any():
        raise _corrupt(name, None, "its text is no z85")
    return bytes(numbers.astype(">u4"))


def _z85_of(data: bytes) -> str:
    """Encode bytes, of which there is a multiple of four."""
    numbers = np.frombuffer(data, ">u4").astype(np.uint64)
    letters = _LETTERS[(numbers[:, None] // _POWERS) % np.uint64(85)]
    return bytes(letters).decode("ascii")


def _corrupt(name: str, key: str | None, why: str) -> CorruptObject:
    return CorruptObject(f"{name} cannot be read: {why}; restore the table or the object", key=key)
