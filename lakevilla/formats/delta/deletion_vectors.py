"""Deletion vectors: the rows of a data file that no longer count.

A vector is a 64-bit Roaring bitmap in its portable form, inline in the log (Z85 text) or in a file
in the table's directory. It is decoded to row indices with numpy, and every length is checked: the
vector decides which rows exist, so a damaged one is an error, never a guess. It is encoded in
blocks that are arrays or bitmaps, as every reader knows them (Delta protocol, "Deletion Vector
Format").
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from lakevilla.arrow.nesting import document
from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.delta.actions import decode_path
from lakevilla.formats.files import (
    DATA_SUFFIX,
    ROWS_TAG,
    VECTORS_SUFFIX,
    DataFile,
    DeletionVector,
    RemovedFile,
    file_key,
)
from lakevilla.ids import uuid_of
from lakevilla.store.base import Found
from lakevilla.store.cached import OF_PROCESS, names_content
from lakevilla.store.effects import Program, get, get_immutable

RowIndices = npt.NDArray[np.int64]

#: The directory of the vectors' files, below the table and hidden from the clean-up of deltalake:
#: docs/upstream.md, "A full vacuum deletes live deletion vectors".
_DIRECTORY = "_lakevilla/v"

#: A file of at most so many bytes has the hash of its content in its name: then a process reads it
#: once, and as a whole.
_READ_WHOLE = 256 << 10

_MAGIC = 1681511377
_UUID_LENGTH = 20


def read_vector(location: str, vector: DeletionVector) -> Program[RowIndices]:
    """Return the deleted rows of a file, ascending, counted from zero.

    Takes at most one request: none for an inline vector, else one for the vector's own bytes, or
    for a small file of LakeVilla's, which a process reads once. Never decodes more rows than the
    log declares.

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
    end = vector_end(vector)
    is_whole = names_content(key)
    reading = get_immutable(key) if is_whole else get(key, byte_range=(start, end))
    outcome = yield from reading
    name = f"deletion vector {key} at {start}"
    if not isinstance(outcome, Found):
        raise _corrupt(name, key, "it is missing")
    body = outcome.body[start:end] if is_whole else outcome.body
    data = body[4:-4]
    if len(data) != vector.size_in_bytes or int.from_bytes(body[:4], "big") != len(data):
        raise _corrupt(
            name, key, f"it is not of the {vector.size_in_bytes} bytes that the log says"
        )
    if zlib.crc32(data) != int.from_bytes(body[-4:], "big"):
        raise _corrupt(name, key, "its checksum is wrong")
    return _checked(decode_bitmap(data, vector.cardinality, name, key), vector, name, key)


def _inline_rows(location: str, vector: DeletionVector) -> RowIndices:
    """Return the rows of an inline vector."""
    name = f"the inline deletion vector {vector.path_or_inline[:40]!r} of {location}"
    data = decode_z85(vector.path_or_inline, name)[: vector.size_in_bytes]
    if len(data) < vector.size_in_bytes:
        raise _corrupt(name, None, "it is shorter than its size")
    return _checked(decode_bitmap(data, vector.cardinality, name), vector, name)


def rows_deleted(location: str, vector: DeletionVector | None) -> Program[RowIndices]:
    """Return the deleted rows of a file, ascending; none if it has no vector."""
    if vector is None:
        return np.zeros(0, dtype=np.int64)
    return (yield from read_vector(location, vector))


def vector_end(vector: DeletionVector) -> int:
    """Return where a vector ends in its object: its size is before it, its checksum behind it."""
    return (1 if vector.offset is None else vector.offset) + vector.size_in_bytes + 8


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
    return _key_below(location, vector.path_or_inline)


@lru_cache(maxsize=1024)
def _key_below(location: str, spelled: str) -> str:
    """Return the key of a vector's file, of which the log spells the UUID in Z85."""
    name = f"the deletion vector {spelled!r} of {location}"
    digits = decode_z85(spelled[-_UUID_LENGTH:], name).hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return file_key(location, _path(spelled[:-_UUID_LENGTH], uuid))


def _path(directory: str, uuid: str) -> str:
    name = f"deletion_vector_{uuid}.bin"
    return f"{directory}/{name}" if directory else name


#: The name of a file of vectors.
VECTOR_FILE = re.compile(r"deletion_vector_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin")


def vector_paths(location: str, files: pa.Table) -> set[str]:
    """Return the paths, relative to the table, of the vectors that a ``FILES_SCHEMA`` table names
    so.
    """
    found = files["deletion_vector"].drop_null()
    own = found.filter(pc.equal(pc.struct_field(found, "storage_type"), "u"))
    keys = {vector_key(location, DeletionVector(**one)) for one in own.to_pylist()}
    return {key.removeprefix(f"{location}/") for key in keys}


def is_vector_of_a_lake(path: str) -> bool:
    """Return whether a path, relative to a table, is that of a file of vectors of a lake."""
    return path.startswith(f"{_DIRECTORY}/") and path.endswith(VECTORS_SUFFIX)


def paths_of(location: str, file: DataFile | RemovedFile) -> set[str]:
    """Return the paths, relative to the table, of a file and of the objects with its deletes."""
    paths = {file.path, *(delete.path for delete in file.deletes)}
    vector = file.deletion_vector
    if vector is not None and vector.storage_type in ("u", "p"):
        paths.add(vector_key(location, vector).removeprefix(f"{location}/"))
    return paths


def with_deleted(file: DataFile, vector: DeletionVector | None) -> DataFile:
    """Return a file with this vector, or without one, as a log entry adds it again.

    Its bounds are those of all its rows, so they need not be reached any more. Its row ids and the
    hash of its bytes stay.
    """
    tags = {name: value for name, value in (file.tags or {}).items() if name != ROWS_TAG}
    return msgspec.structs.replace(
        file,
        deletion_vector=vector,
        stats=_with_wide_bounds(file.stats),
        tags=tags or None,
        data_change=True,
    )


def _with_wide_bounds(stats: str | None) -> str | None:
    if stats is None:
        return None
    return msgspec.json.encode({**document(stats), "tightBounds": False}).decode()


def united(*rows: RowIndices) -> RowIndices:
    """Return all of some rows once, ascending.

    A stable sort takes advantage of runs that are in order, as ``np.unique`` does not.
    """
    every = np.sort(np.concatenate(rows), kind="stable")
    if not len(every):
        return every
    return every[np.concatenate(([True], every[1:] != every[:-1]))]


def among(rows: RowIndices, others: RowIndices) -> np.ndarray:
    """Return, for each of some rows, whether it is among others; both are ascending.

    A search takes advantage of that, as ``np.isin`` does not.
    """
    if not len(others):
        return np.zeros(len(rows), bool)
    found: np.ndarray = others[np.minimum(np.searchsorted(others, rows), len(others) - 1)] == rows
    return found


def vectors_of(
    rows: Sequence[RowIndices], name: Callable[[str], str]
) -> tuple[list[DeletionVector | None], dict[str, bytes]]:
    """Return a vector for each of some rows, None for none, and by its path the file with all.

    Each ``rows`` are distinct and ascending. ``name`` names the transaction's data files. The file
    is in a directory with such a name, which shows whose it is, and its own name is as the Delta
    protocol requires, with a hash of the content in place of a random number. It is not inline in
    the log: docs/upstream.md, "VACUUM fails at a vector in the log".
    """
    bitmaps = [encode_bitmap(one) if len(one) else b"" for one in rows]
    if not any(bitmaps):
        return [None] * len(rows), {}
    body, begins = bytearray(b"\1"), []  # the version of the form
    for data in bitmaps:
        begins.append(len(body))
        if data:
            body += len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    digest = blake3(body).digest(length=16)
    directory = name("").removesuffix(DATA_SUFFIX)
    if not directory.startswith(_DIRECTORY.partition("/")[0]):  # but for those of a branch
        directory = f"{_DIRECTORY}/{directory}"
    if len(body) <= _READ_WHOLE:
        directory = f"{directory}-{digest.hex()}"
    uuid = uuid_of(digest)
    named = directory + encode_z85(bytes.fromhex(uuid.replace("-", "")))
    vectors = [
        DeletionVector("u", named, len(data), len(one), begin) if data else None
        for one, data, begin in zip(rows, bitmaps, begins, strict=True)
    ]
    return vectors, {_path(directory, uuid): bytes(body)}


def rows_in_file(body: bytes, vector: DeletionVector) -> RowIndices:
    """Return the rows of a vector in a file that this process has made."""
    begin = (vector.offset or 1) + 4
    return decode_bitmap(body[begin : begin + vector.size_in_bytes], vector.cardinality)


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
_TOO_MANY = "it has more rows than the {limit} that there can be"
#: The place of decoded rows among the objects that the process keeps.
_DECODED = "rows of deletion vectors"


def decode_bitmap(
    data: bytes,
    limit: int | None = None,
    name: str = "a deletion vector",
    key: str | None = None,
) -> RowIndices:
    """Return the row indices of Delta's form of a 64-bit Roaring bitmap, which nobody may change.

    A block of 65,536 rows takes ten bytes, so small vectors can hold a great many rows. Their
    number is read before any row is decoded: if it is beyond ``limit``, no row is.

    A commit compares the same few vectors many times, so the process keeps their rows by the hash
    of the bytes, within its budget for cached objects.

    Raises
    ------
    CorruptObject
        The bitmap is damaged, or has more than ``limit`` rows.
    """
    known = OF_PROCESS.get(_DECODED, blake3(data).hexdigest())
    if known is None:
        return _kept(data, _decoded(data, limit, name, key))
    rows = cast(RowIndices, known)
    if limit is not None and len(rows) > limit:
        raise _corrupt(name, key, _TOO_MANY.format(limit=limit))
    return rows


def _kept(data: bytes, rows: RowIndices) -> RowIndices:
    """Keep the rows of a vector with these bytes."""
    rows.flags.writeable = False
    OF_PROCESS.keep(_DECODED, blake3(data).hexdigest(), rows, rows.nbytes)
    return rows


def _decoded(data: bytes, limit: int | None, name: str, key: str | None) -> RowIndices:
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
    data = b"".join(parts)
    _kept(data, rows.copy())
    return data


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
        raise ValueError(_TOO_MANY.format(limit=limit))
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


def encode_z85(data: bytes) -> str:
    """Encode bytes, of which there is a multiple of four."""
    numbers = np.frombuffer(data, ">u4").astype(np.uint64)
    letters = _LETTERS[(numbers[:, None] // _POWERS) % np.uint64(85)]
    return bytes(letters).decode("ascii")


def _corrupt(name: str, key: str | None, why: str) -> CorruptObject:
    return CorruptObject(f"{name} cannot be read: {why}; restore the table or the object", key=key)
