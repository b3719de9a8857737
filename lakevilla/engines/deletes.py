"""The deleted rows of a table's files: in deletion vectors and delete files, read and marked.

Deletion vectors and position deletes become row numbers. Equality deletes become the values that a
row must not have (Delta protocol, "Deletion Vectors"; Iceberg spec, "Row-level deletes"). All are
read through effects.
"""

from __future__ import annotations

import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3

from lakevilla.arrow.input import places_of_true
from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.engines.base import FileNamer, TableInput, Written
from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.delta.deletion_vectors import (
    RowIndices,
    decode_bitmap,
    encode_bitmap,
    read_vector,
    rows_deleted,
    united,
    vector_key,
    vectors_of,
    with_deleted,
)
from lakevilla.formats.files import (
    DATA_SUFFIX,
    DELETES_SUFFIX,
    PUFFIN_SUFFIX,
    ROWS_TAG,
    DataFile,
    DeleteFile,
    DeletionVector,
    RemovedFile,
    data_files,
    file_key,
    files_from_structs,
    restored,
    rows_in,
)
from lakevilla.formats.iceberg.metadata.definition import TableAddress
from lakevilla.formats.layout import Layout
from lakevilla.store.base import Found
from lakevilla.store.cached import names_content
from lakevilla.store.effects import Program, get, get_immutable, parallel

_ID = b"PARQUET:field_id"
#: A file has few deleted rows up to this number: a comparison of each row's number with the deleted
#: ones takes a tenth of a lookup's time. Up to ``_FEW_FILES`` such files are read separately.
_FEW_ROWS, _FEW_FILES = 4, 8


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """Rows of the files ``ordinals`` that equal one of ``rows`` in all its columns."""

    rows: pa.Table
    ordinals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    """Deleted rows of a table input.

    ``positions``: the places of files in the table input (``file``) and of rows (``row``). ``few``:
    by a file's place, its deleted rows if they are few: a comparison of each row's number with them
    takes less time than a lookup in a table.
    """

    positions: pa.Table | None = None
    equality: tuple[EqualityDeletes, ...] = ()
    few: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def are_joined(self) -> bool:
        """Return whether some deletes can be applied only by a join with the rows."""
        return self.positions is not None or bool(self.equality)

    def rows_of(self, file: int) -> RowIndices:
        """Return the places of a file's rows that a vector or a position delete deletes."""
        if file in self.few:
            return np.array(self.few[file], dtype=np.int64)
        if self.positions is None:
            return np.zeros(0, dtype=np.int64)
        own = self.positions.filter(pc.equal(self.positions["file"], file))
        return united(own["row"].to_numpy())

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of memory that these deletes take."""
        rows = sum(int(one.rows.nbytes) for one in self.equality)
        return rows if self.positions is None else rows + int(self.positions.nbytes)


def read_deletes(table: TableInput) -> Program[Deleted]:
    """Read all deletes of a table's files.

    Raises
    ------
    CorruptObject
        A vector or delete file is missing or broken: which rows exist is never guessed.
    """
    columns = (table.files.column("deletion_vector"), table.files.column("deletes"))
    with_deletes = places_of_true(pc.or_(*(column.is_valid() for column in columns)))
    if not len(with_deletes):
        return Deleted()
    places = dict(
        zip(with_deletes.to_pylist(), data_files(table.files.take(with_deletes)), strict=True)
    )
    few, parts = _without_few((yield from _vectors(table.layout, places)))
    users: dict[DeleteFile, list[int]] = defaultdict(list)
    called: dict[tuple[str, int], str] = {}
    for ordinal, file in places.items():
        for delete in file.deletes:
            users[msgspec.structs.replace(delete, names=None)].append(ordinal)
            called[delete.path, ordinal] = delete.names or file.path
    vectors = [one for one in users if one.kind == "vector"]
    others = [one for one in users if one.kind != "vector"]
    reads: list[Program[Any]] = [_body(table.layout, one) for one in others]
    blobs, *whole = yield from parallel([_blobs(table.layout, vectors), *reads])
    for delete in vectors:
        for n in users[delete]:
            blob = blobs[delete]
            _check_named(table.layout, delete, blob, called[delete.path, n])
            parts.append(_rows_of_vector(table.layout, delete, blob, n, rows_in(places[n].stats)))
    equality = []
    for delete, body in zip(others, whole, strict=True):
        ordinals = users[delete]
        match delete.kind:
            case "position":
                named = {called[delete.path, n]: n for n in ordinals}
                parts.append(_rows_of_positions(table.layout, delete, body, named))
            case "equality":
                rows = _values(table.layout, delete, body)
                equality.append(EqualityDeletes(rows, tuple(ordinals)))
    return Deleted(pa.concat_tables(parts) if parts else None, tuple(equality), few)


def rows_marked(layout: Layout, file: DataFile | RemovedFile) -> Program[RowIndices]:
    """Return the places of a file's rows that vectors and position deletes delete, ascending."""
    if not file.deletes:
        return (yield from rows_deleted(layout.location, file.deletion_vector))
    data = file if isinstance(file, DataFile) else restored(file)
    found = yield from read_deletes(TableInput(layout, files_from_structs([data])))
    return found.rows_of(0)


def can_be_marked(deletes: Iterable[DeleteFile]) -> bool:
    """Return whether a file with these deletes may get a vector, which replaces all of them.

    A vector does not replace equality deletes. A copy of a file keeps the deletes that name the
    file that was copied.
    """
    return all(one.kind != "equality" and one.names is None for one in deletes)


def mark(
    layout: Layout, files: Sequence[tuple[DataFile, RowIndices]], name: FileNamer
) -> tuple[Written, ...]:
    """Return files of which these rows are deleted, as a commit adds them again.

    The vectors of a statement are in one file (in Iceberg a Puffin file), which the commit stores
    with its data files: its name is known before the commit is decided, and is part of the identity
    of the data files in any state. In version 2 of Iceberg, each data file has a position delete
    file of its own for that.
    """
    if not files:
        return ()
    if not layout.uri:
        return _mark_in_delta(files, name)
    place = TableAddress(layout.location, layout.uri)
    if not layout.lineage:
        return tuple(_mark_by_positions(place, file, rows, name, layout) for file, rows in files)
    whole = tuple(Written(_with_deletes(file, ())) for file, rows in files if not len(rows))
    files = [(file, rows) for file, rows in files if len(rows)]
    if not files:
        return whole
    named = [(file.raw_path or place.spelled(file.path), united(rows)) for file, rows in files]
    body, spans = puffin_of(named)
    # By the hash, a process knows what it has read before.
    path = name(layout.data_directory).removesuffix(DATA_SUFFIX)
    path = f"{path}-{blake3(body).hexdigest(length=16)}{PUFFIN_SUFFIX}"
    made = []
    for (file, _), (_, rows), (offset, length) in zip(files, named, spans, strict=True):
        vector = DeleteFile(path, "vector", len(body), offset=offset, length=length, rows=len(rows))
        made.append(Written(with_vector(file, vector)))
    return (replace(made[0], vectors=(path, body)), *made[1:], *whole)


def _mark_in_delta(
    files: Sequence[tuple[DataFile, RowIndices]], name: FileNamer
) -> tuple[Written, ...]:
    vectors, bodies = vectors_of([united(rows) for _, rows in files], name)
    pairs = zip(files, vectors, strict=True)
    first, *others = [Written(with_deleted(file, vector)) for (file, _), vector in pairs]
    return (replace(first, vectors=next(iter(bodies.items()), None)), *others)


def _mark_by_positions(
    place: TableAddress, file: DataFile, rows: RowIndices, name: FileNamer, layout: Layout
) -> Written:
    """Return a file with a new position delete file, which has all its deleted rows.

    It replaces those of this file alone. Others still apply, and delete no further row.
    """
    rows = united(rows)
    body = positions_of(file.raw_path or place.spelled(file.path), rows)
    path = name(layout.data_directory).removesuffix(DATA_SUFFIX) + DELETES_SUFFIX
    made = DeleteFile(path, "position", len(body), rows=len(rows), alone=True)
    wide = tuple(one for one in file.deletes if not one.alone)
    return Written(_with_deletes(file, (made, *wide)), vectors=(path, body))


def positions_of(path: str, rows: RowIndices) -> bytes:
    """Return a position delete file of one data file (spec, "Position Delete Files")."""
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {_ID: str(_PATH_COLUMN).encode()}),
            pa.field("pos", pa.int64(), False, {_ID: str(_POS_COLUMN).encode()}),
        ]
    )
    paths = pa.repeat(pa.scalar(path, pa.string()), len(rows))
    sink = io.BytesIO()
    table = pa.Table.from_arrays([paths, pa.array(rows, pa.int64())], schema=schema)
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def rows_in_positions(body: bytes) -> RowIndices:
    """Return the rows of a position delete file of one data file that this process has made."""
    found: RowIndices = pq.read_table(io.BytesIO(body), columns=["pos"])["pos"].to_numpy()
    return found


def with_vector(file: DataFile, vector: DeleteFile) -> DataFile:
    """Return a file whose deleted rows are those of one vector."""
    return _with_deletes(file, (vector,))


def _with_deletes(file: DataFile, deletes: tuple[DeleteFile, ...]) -> DataFile:
    tags = {key: value for key, value in (file.tags or {}).items() if key != ROWS_TAG}
    return msgspec.structs.replace(file, deletes=deletes, tags=tags or None, data_change=True)


def _without_few(
    vectors: Mapping[int, RowIndices],
) -> tuple[dict[int, tuple[int, ...]], list[pa.Table]]:
    """Return the rows of vectors with few rows, and the positions of all other deleted rows."""
    short = [n for n, rows in vectors.items() if len(rows) <= _FEW_ROWS][:_FEW_FILES]
    few = {n: tuple(map(int, vectors[n])) for n in short}
    return few, [_positions(n, rows) for n, rows in vectors.items() if n not in few]


def _vectors(layout: Layout, places: dict[int, DataFile]) -> Program[dict[int, RowIndices]]:
    vectors = {n: _credible(layout, file) for n, file in places.items() if file.deletion_vector}
    # Several may be in one file, which is read once.
    keys = {vector_key(layout.location, one) for one in vectors.values() if one.storage_type == "u"}
    yield from parallel([get_immutable(key) for key in sorted(keys) if names_content(key)])
    rows_of = yield from parallel([read_vector(layout.location, one) for one in vectors.values()])
    for n, rows in zip(vectors, rows_of, strict=True):
        most = rows_in(places[n].stats)
        if most is not None and len(rows) and rows[-1] >= most:
            raise CorruptObject(
                f"the deletion vector of {places[n].path} of table {layout.table} is of another "
                f"file: it deletes row {rows[-1]}, and the log says that the file has {most} rows; "
                "restore the table to a version before it",
                key=file_key(layout.location, places[n].path),
                table=layout.table,
            )
    return dict(zip(vectors, rows_of, strict=True))


def _credible(layout: Layout, file: DataFile) -> DeletionVector:
    """Return a file's deletion vector, checked before its rows are read.

    It must not delete more rows than exist.
    """
    vector, rows = file.deletion_vector, rows_in(file.stats)
    assert vector is not None
    if rows is not None and vector.cardinality > rows:
        raise CorruptObject(
            f"the deletion vector of {file.path} of table {layout.table} can't be right: it "
            f"deletes {vector.cardinality} rows, and the log says that the file has {rows}; "
            "restore the table to a version before it",
            key=file_key(layout.location, file.path),
            table=layout.table,
        )
    return vector


def _positions(ordinal: int, rows: Any) -> pa.Table:
    row = pa.array(rows, pa.int64())
    return pa.table({"file": pa.repeat(pa.scalar(ordinal, pa.int64()), len(row)), "row": row})


def _body(layout: Layout, delete: DeleteFile) -> Program[bytes]:
    outcome = yield from get(file_key(layout.location, delete.path))
    if not isinstance(outcome, Found):
        raise _corrupt(layout, delete, "it is missing")
    return outcome.body


def _rows_of_positions(
    layout: Layout, delete: DeleteFile, body: bytes, named: dict[str, int]
) -> pa.Table:
    rows = _parquet(layout, delete, body)
    if not {"file_path", "pos"} <= set(rows.schema.names):
        raise _corrupt(layout, delete, "it has no columns file_path and pos")
    place = TableAddress(layout.location, layout.uri)
    encoded = rows["file_path"].combine_chunks().dictionary_encode()
    ordinals = [named.get(place.path(path)) for path in encoded.dictionary.to_pylist()]
    file = pc.take(pa.array(ordinals, pa.int64()), encoded.indices)
    found = pa.table({"file": file, "row": rows["pos"].cast(pa.int64())})
    return found.filter(pc.is_valid(found["file"]))


def _values(layout: Layout, delete: DeleteFile, body: bytes) -> pa.Table:
    """Return the values of an equality delete file, under the table's names and in its types."""
    rows = _parquet(layout, delete, body)
    by_id = {(f.metadata or {}).get(_ID): f.name for f in rows.schema}
    fields = {(f.metadata or {}).get(_ID): i for i, f in enumerate(layout.physical)}
    columns = {}
    representable = None
    if not delete.equality_ids:
        raise _corrupt(layout, delete, "its manifest does not say by which columns (equality_ids)")
    for number in delete.equality_ids:
        key = str(number).encode()
        if key not in fields:
            raise UnsupportedTableFeature(
                f"table {layout.table} has equality deletes by column id {number}, which is nested "
                f"or was dropped since ({delete.path}): rewrite its data files with the client "
                "that wrote them",
                table=layout.table,
            )
        if key not in by_id:
            raise _corrupt(layout, delete, f"it lacks column id {number}")
        field = layout.schema.field(fields[key])
        try:
            columns[field.name], same = _as_type(rows[by_id[key]], field.type)
        except pa.ArrowException as error:
            raise _corrupt(
                layout, delete, f"its column id {number} is no column's: {error}"
            ) from None
        if same is not None:
            representable = same if representable is None else pc.and_(representable, same)
    found = pa.table(columns)
    return found if representable is None else found.filter(representable)


def _as_type(
    values: pa.ChunkedArray, kind: pa.DataType
) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """Cast values to a type; return also the places where they stay the same, None if all do.

    A value that the type can't hold (beyond its range, or finer) equals no row's value.
    """
    try:
        return values.cast(kind), None
    except pa.ArrowInvalid:
        cast = values.cast(kind, safe=False)
        same = pc.equal(cast.cast(values.type, safe=False), values)
        return cast, pc.if_else(values.is_null(), True, pc.fill_null(same, False))


def _parquet(layout: Layout, delete: DeleteFile, body: bytes) -> pa.Table:
    try:
        return pq.read_table(
            io.BytesIO(body),
            page_checksum_verification=True,
            # In nanoseconds, a time after 2262 would overflow into another one.
            coerce_int96_timestamp_unit="ns" if _has_nanoseconds(layout.schema) else "us",
        )
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(layout, delete, str(error)) from None


def _has_nanoseconds(schema: pa.Schema) -> bool:
    return any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in schema.types)


def _corrupt(layout: Layout, delete: DeleteFile, what: str) -> CorruptObject:
    return CorruptObject(
        f"delete file {delete.path} of table {layout.table} can't be read: {what}; restore it, or "
        "roll the table back to a snapshot without it",
        key=file_key(layout.location, delete.path),
        table=layout.table,
    )


# -------------------- vectors in Puffin files
#
# A vector's manifest entry says where the vector is and of which data file. The footer of its
# Puffin file says the same again: a vector is applied only if both agree. A footer is read together
# with the vectors before it, where these are not much larger together.


#: The bytes of a Puffin file that are read at once, from the first vector that is needed on.
_AT_ONCE = 1 << 20
#: The bytes at the end of a larger one in which its footer mostly is.
_TAIL = 64 << 10
_PUFFIN = b"PFA1"
#: The bytes after a footer's text: its length, flags, and the magic number.
_AFTER_FOOTER = 12
_VECTOR_TYPE = "deletion-vector-v1"
#: The id of the reserved column of rows' places in their file, which a vector is of.
_ROW_POSITION = 2147483645
#: The ids of the columns of position delete files.
_PATH_COLUMN, _POS_COLUMN = 2147483546, 2147483545


class _BlobMetadata(msgspec.Struct):
    type: str
    offset: int
    length: int
    properties: dict[str, str] = {}


class _Footer(msgspec.Struct):
    blobs: list[_BlobMetadata]


_footers = JsonDecoder(_Footer)


@dataclass(frozen=True, slots=True)
class _Blob:
    body: bytes
    properties: Mapping[str, str]


def _blobs(layout: Layout, vectors: Sequence[DeleteFile]) -> Program[dict[DeleteFile, _Blob]]:
    """Return the vectors' bytes, and what the footers of their Puffin files say of them."""
    by_path: dict[str, list[DeleteFile]] = defaultdict(list)
    for one in vectors:
        if one.offset is None or one.length is None:
            raise _corrupt(layout, one, "its manifest does not say where the vector is stored")
        by_path[one.path].append(one)
    found = yield from parallel([_of_puffin(layout, those) for those in by_path.values()])
    return {delete: blob for part in found for delete, blob in part.items()}


def puffin_of(vectors: Sequence[tuple[str, RowIndices]]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a Puffin file of vectors, and where each begins and how long it is.

    ``vectors``: the data file of each as its manifest spells it, and the rows, ascending.
    """
    parts, spans, listed = [_PUFFIN], [], []
    at = len(_PUFFIN)
    for path, rows in vectors:
        bitmap = encode_bitmap(rows)
        blob = b"".join(
            (len(bitmap).to_bytes(4, "big"), bitmap, zlib.crc32(bitmap).to_bytes(4, "big"))
        )
        known = {"referenced-data-file": path, "cardinality": str(len(rows))}
        listed.append(
            {
                "type": _VECTOR_TYPE,
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,  # those of the commit to come, which its manifest has
                "sequence-number": -1,
                "offset": at,
                "length": len(blob),
                "properties": known,
            }
        )
        spans.append((at, len(blob)))
        parts.append(blob)
        at += len(blob)
    text = msgspec.json.encode({"blobs": listed, "properties": {"created-by": "lakevilla"}})
    end = (_PUFFIN, text, len(text).to_bytes(4, "little"), bytes(4), _PUFFIN)
    return b"".join((*parts, *end)), spans


def rows_in_puffin(body: bytes, vector: DeleteFile) -> RowIndices:
    """Return the rows of a vector in a Puffin file that this process has made."""
    begin, length = vector.offset or 0, vector.length or 0
    return decode_bitmap(body[begin + 4 : begin + length - 4], vector.rows)


def _of_puffin(layout: Layout, vectors: Sequence[DeleteFile]) -> Program[dict[DeleteFile, _Blob]]:
    """Return the vectors of one Puffin file: by one request if it is not large."""
    one = vectors[0]
    key = file_key(layout.location, one.path)
    spans = {
        vector: (vector.offset or 0, (vector.offset or 0) + (vector.length or 0))
        for vector in vectors
    }
    is_cached = one.size <= _AT_ONCE and names_content(key)  # as a whole
    first = 0 if is_cached else min(start for start, _ in spans.values())
    wanted = sum(end - start for start, end in spans.values())
    at_once = one.size - first <= max(_AT_ONCE, 4 * wanted)
    tail = (first if at_once else max(0, one.size - _TAIL), one.size)
    ranges = [tail, *(() if at_once else spans.values())]
    reads = [get(key, byte_range=span) for span in ranges]
    outcomes = yield from parallel([get_immutable(key)] if is_cached else reads)
    bodies = []
    for outcome in outcomes:
        if not isinstance(outcome, Found):
            raise _corrupt(layout, one, "it is missing")
        if outcome.size != one.size:
            raise _corrupt(
                layout, one, f"it has {outcome.size} bytes, and {one.size} by its manifest"
            )
        bodies.append(outcome.body)
    start = one.size - _footer_size(layout, one, bodies[0])
    footer = bodies[0][max(0, start - tail[0]) :]
    if start < tail[0]:
        rest = yield from get(key, byte_range=(start, tail[0]))
        if not isinstance(rest, Found):
            raise _corrupt(layout, one, "it is missing")
        footer = rest.body + footer
    known = _named_in(layout, one, footer)
    if at_once:
        bodies = [bodies[0], *(bodies[0][a - first : b - first] for a, b in spans.values())]
    found = {}
    for (vector, span), body in zip(spans.items(), bodies[1:], strict=True):
        properties = known.get((span[0], span[1] - span[0]))
        if properties is None:
            raise _corrupt(
                layout,
                vector,
                f"it has no vector of {vector.length} bytes at {vector.offset}, where its manifest "
                "says that there is one",
            )
        found[vector] = _Blob(body, properties)
    return found


def _footer_size(layout: Layout, one: DeleteFile, tail: bytes) -> int:
    """Return how many bytes a Puffin file's footer takes, with the magic numbers around it."""
    text = int.from_bytes(tail[-_AFTER_FOOTER:-8], "little")
    size = len(_PUFFIN) + text + _AFTER_FOOTER
    if tail[-4:] != _PUFFIN or size > one.size:
        raise _corrupt(layout, one, "it does not end as a Puffin file does")
    return size


def _named_in(
    layout: Layout, one: DeleteFile, footer: bytes
) -> dict[tuple[int, int], Mapping[str, str]]:
    """Return the properties of the vectors that a footer lists, by their places and lengths."""
    text: bytes = footer[len(_PUFFIN) : -_AFTER_FOOTER]
    try:
        if footer[: len(_PUFFIN)] != _PUFFIN:
            raise ValueError("no magic number before it")
        if footer[-8] & 1:
            text = pa.CompressedInputStream(pa.BufferReader(text), "lz4").read()
        listed = _footers.decode(text).blobs
    except (ValueError, OSError, IndexError) as error:
        raise _corrupt(layout, one, f"its footer is damaged ({error})") from None
    return {
        (blob.offset, blob.length): blob.properties for blob in listed if blob.type == _VECTOR_TYPE
    }


def _check_named(layout: Layout, delete: DeleteFile, blob: _Blob, path: str) -> None:
    """Refuse a vector that is of another data file than the one at ``path``."""
    other = blob.properties.get("referenced-data-file")
    place = TableAddress(layout.location, layout.uri)
    if other is not None and place.path(other) != path:
        raise _corrupt(
            layout,
            delete,
            f"its vector at {delete.offset} is of data file {other}, and of {path} by its manifest",
        )


def _rows_of_vector(
    layout: Layout, delete: DeleteFile, blob: _Blob, ordinal: int, limit: int | None
) -> pa.Table:
    """Read a ``deletion-vector-v1`` blob: the same bytes as Delta's, with length and checksum.

    ``limit``: the number of rows of its data file.
    """
    data = blob.body[4:-4]
    if int.from_bytes(blob.body[:4], "big") != len(data):
        raise _corrupt(layout, delete, "a vector in it is not of the length that it says")
    if zlib.crc32(data) != int.from_bytes(blob.body[-4:], "big"):
        raise _corrupt(layout, delete, "the checksum of a vector in it is wrong")
    source = f"deletion vector {delete.path} at {delete.offset} of table {layout.table}"
    key = file_key(layout.location, delete.path)
    rows = decode_bitmap(data, limit, source, key)
    if delete.rows is not None and len(rows) != delete.rows:
        raise _corrupt(
            layout,
            delete,
            f"its vector at {delete.offset} deletes {len(rows)} rows, and {delete.rows} by its "
            "manifest",
        )
    if limit is not None and len(rows) and rows[-1] >= limit:
        raise _corrupt(
            layout,
            delete,
            f"its vector at {delete.offset} deletes row {rows[-1]} of a data file of {limit} rows",
        )
    return _positions(ordinal, rows)
