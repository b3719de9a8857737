"""Rows written into files that the next refresh can keep (docs/design/0038-reuse.md).

The rows are ordered by a key, by DuckDB, which spills what exceeds memory. They are cut at places
that the keys determine. Each file's rows are hashed before they are encoded. Nothing is encoded
before the last row was read: rows that must be written wait until then, in memory or in private
files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.row_digest import RowDigest
from lakevilla.engines.base import Refreshed, Written
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database, arrow_reader
from lakevilla.engines.duckdb.reading.constants import PartitionKey
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.engines.duckdb.sqltext import name_list, quote_name
from lakevilla.engines.duckdb.writing.writer import Writer
from lakevilla.engines.duckdb.writing.zeros import float_columns, has_negative_zero
from lakevilla.engines.partitions import Partitioning
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import ROWS_TAG, DataFile
from lakevilla.formats.layout import Layout
from lakevilla.store.effects import Program
from lakevilla.store.scratch import on_scratch

_CUT = pa.field("__lakevilla_cut", pa.bool_())
#: The rows between two cuts are one file, whatever its size.
_ANY_SIZE = 1 << 62
_FORM = "v1"
#: Rows take more room in memory than in a file, by this factor.
_ROOM = 4


@dataclass(frozen=True, slots=True)
class Cuts:
    """Ends of files: at one key in ``one_in`` from ``least`` rows on, else at ``most`` rows."""

    least: int = 32_768
    most: int = 262_144
    one_in: int = 65_536


CUTS = Cuts()


def write_by_key(
    database: Database,
    writer: Writer,
    reader: pa.RecordBatchReader,
    key: Sequence[str],
    live: Sequence[DataFile],
    present: Files | None,
) -> Program[Refreshed]:
    """Write rows by key; see ``engines.base.Engine``.

    ``present`` are the files of the table, if its rows have ids: a row keeps that of its key.
    """
    writer.target_bytes = _ANY_SIZE
    kept: list[DataFile] = []
    waiting: list[_Piece] = []
    known = {by: file for file in reversed(live) if (by := _known_by(file))[0]}
    room = _Room(database.directory, _ROOM * writer.memory_bytes)
    try:
        for piece in _pieces(_ordered(database, writer, reader, key, present), writer, key, room):
            file = known.pop((piece.tag, frozenset(piece.values.items())), None)
            if file is None:
                waiting.append(piece)
            else:
                kept.append(file)
                piece.drop()
        written: list[Written] = []
        in_memory: list[Written] = []
        for piece in waiting:
            in_memory += yield from _written(writer, piece)
            if sum(len(item.body or b"") for item in in_memory) > writer.memory_bytes:
                written += yield from writer.store(in_memory)
                in_memory = []
        return Refreshed((*written, *in_memory), tuple(kept))
    finally:
        room.clear()


def _known_by(file: DataFile) -> tuple[str | None, frozenset[tuple[str, str | None]]]:
    return (file.tags or {}).get(ROWS_TAG), frozenset(file.partition_values.items())


def _written(writer: Writer, piece: _Piece) -> Program[list[Written]]:
    """Write the rows of one piece as one file, in the table's own order if it has one."""
    rows = writer.in_order(piece.batches())
    zeros = piece.has_negative_zeros
    files = yield from writer.ordered(rows, piece.key, has_negative_zeros=zeros)
    piece.drop()
    assert len(files) == 1, f"the rows of one tag are in {len(files)} files"
    return [replace(item, file=_tagged(item.file, piece.tag)) for item in files]


def _tagged(file: DataFile, tag: str) -> DataFile:
    return msgspec.structs.replace(file, tags={**(file.tags or {}), ROWS_TAG: tag})


class _Room:
    """Space for rows that wait: in memory as long as they are few, else in files."""

    def __init__(self, directory: str, limit_bytes: int) -> None:
        self._directory, self._limit_bytes = directory, limit_bytes
        self._paths: set[str] = set()
        self._held = 0

    def take(self, size: int) -> bool:
        """Reserve this many more bytes of memory if they are free; return whether they were
        reserved.
        """
        if self._held + size > self._limit_bytes:
            return False
        self._held += size
        return True

    def give(self, size: int) -> None:
        self._held -= size

    def new_path(self) -> str:
        with self.writing():
            descriptor, path = tempfile.mkstemp(".arrow", dir=self._directory)
        os.close(descriptor)
        self._paths.add(path)
        return path

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which the disk is written."""
        return on_scratch(self._directory)

    def remove(self, path: str) -> None:
        self._paths.discard(path)
        with suppress(OSError):
            os.unlink(path)

    def clear(self) -> None:
        for path in list(self._paths):
            self.remove(path)


class _Piece:
    """The rows of one file, hashed as they are added."""

    def __init__(self, columns: pa.Schema, parts: Partitioning, key: PartitionKey, room: _Room):
        self.key, self.values = key, parts.values(key)
        self.rows = 0
        self.tag = ""
        self.has_negative_zeros = False
        self._digest = RowDigest(columns)
        self._hashed = len(columns)
        self._room = room
        self._batches: list[pa.RecordBatch] = []
        self._path = ""
        self._file: pa.ipc.RecordBatchStreamWriter | None = None
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._digest.update(batch.columns[: self._hashed])
        self.rows += batch.num_rows
        if not self.has_negative_zeros:
            self.has_negative_zeros = has_negative_zero(batch, float_columns(batch.schema))
        if self._file is None and self._room.take(batch.nbytes):
            self._bytes += batch.nbytes
            self._batches.append(batch)
            return
        if self._file is None:
            self._path = self._room.new_path()
        with self._room.writing():
            if self._file is None:
                self._file = pa.ipc.new_stream(self._path, batch.schema)
                for earlier in self._batches:
                    self._file.write_batch(earlier)
                self._release()
            self._file.write_batch(batch)

    def close(self) -> None:
        """End a file's rows: no more rows follow, so the tag of the file is known."""
        self.tag = f"{_FORM}:{self._digest.hexdigest()}"
        if self._file is not None:
            with self._room.writing():
                self._file.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        if not self._path:
            yield from self._batches
            return
        with pa.OSFile(self._path) as source:
            yield from pa.ipc.open_stream(source)

    def drop(self) -> None:
        self._release()
        if self._path:
            self._room.remove(self._path)

    def _release(self) -> None:
        self._room.give(self._bytes)
        self._bytes = 0
        self._batches = []


def _pieces(
    ordered: Iterator[pa.RecordBatch], writer: Writer, key: Sequence[str], room: _Room
) -> Iterator[_Piece]:
    """Yield the rows of each future file, in order; a piece is complete when it is yielded."""
    layout, parts = writer.layout, Partitioning(writer.layout)
    names = writer.schema.names
    check = _Keys(layout, key)
    piece: _Piece | None = None
    for batch in ordered:
        check.see(batch)
        rows = batch.select(names)
        for start, end, closes in _stretches(batch, parts, piece):
            if start == end:  # the partition ended with the batch before
                assert piece is not None
                piece.close()
                yield piece
                piece = None
                continue
            if piece is None:
                partition = parts.key_of(batch.slice(start, 1)) if parts.columns else ()
                piece = _Piece(layout.physical, parts, partition, room)
            piece.add(rows.slice(start, end - start))
            if closes:
                piece.close()
                yield piece
                piece = None
    if piece is not None:
        piece.close()
        yield piece


def _stretches(
    batch: pa.RecordBatch, parts: Partitioning, piece: _Piece | None
) -> Iterator[tuple[int, int, bool]]:
    """Yield the stretches of a batch that belong to one file, and whether the file ends with each.

    ``piece`` has the rows before the batch, if their file has not ended yet.
    """
    count = batch.num_rows
    if not count:
        return
    rows = 0 if piece is None else piece.rows
    if piece is not None and parts.columns and parts.key_of(batch.slice(0, 1)) != piece.key:
        yield 0, 0, True
        rows = 0
    ends = np.flatnonzero(batch.column(_CUT.name).to_numpy(zero_copy_only=False)) + 1
    borders = _borders(batch, parts)
    start = 0
    while start < count:
        first = start + max(CUTS.least - rows, 1)
        at = int(np.searchsorted(ends, first))
        border = int(np.searchsorted(borders, start, side="right"))
        end = min(
            start + CUTS.most - rows,
            int(ends[at]) if at < len(ends) else count + 1,
            int(borders[border]) if border < len(borders) else count + 1,
        )
        closes = end <= count
        yield start, min(end, count), closes
        start, rows = min(end, count), 0


def _borders(batch: pa.RecordBatch, parts: Partitioning) -> np.ndarray:
    """Return the places within a batch at which another partition begins."""
    differs = np.zeros(max(batch.num_rows - 1, 0), bool)
    for name in parts.columns:
        codes = batch.column(name).dictionary_encode(null_encoding="encode").indices.to_numpy()
        differs |= codes[1:] != codes[:-1]
    return np.flatnonzero(differs) + 1


def _ordered(
    database: Database,
    writer: Writer,
    reader: pa.RecordBatchReader,
    key: Sequence[str],
    present: Files | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows by partition and key, with partition columns and a mark of possible ends."""
    layout, parts = writer.layout, Partitioning(writer.layout)
    fields = [*layout.schema, *parts.derived_fields]
    cursor = database.cursor()

    def derived() -> Iterator[pa.RecordBatch]:
        for batch in writer.checked(reader):
            yield from parts.derived(pa.Table.from_batches([batch])).to_batches()

    writer.register(cursor, "__lakevilla_refresh", derived(), pa.schema(fields))
    relation = "__lakevilla_refresh"
    if parts.columns:
        # Equal keys are next to each other only within a partition.
        relation = "__lakevilla_staged"
        names = name_list(field.name for field in fields)
        with writer.translating():
            cursor.execute(
                f"CREATE TEMP TABLE {relation} AS SELECT {names} FROM __lakevilla_refresh"
            ).fetchall()
            doubled = arrow_reader(
                cursor,
                f"SELECT {name_list(key)} FROM {relation} GROUP BY ALL HAVING count(*) > 1 LIMIT 1",
            ).read_all()
        for row in doubled.to_pylist():
            if None not in row.values():
                raise _doubled(layout, row)
    if present is not None:
        relation = _with_ids(cursor, relation, key, present)
        fields = [*writer.schema, *parts.derived_fields]
    terms = [*map(quote_name, parts.columns), *(f"{quote_name(name)} NULLS FIRST" for name in key)]
    sql = (
        f"SELECT {name_list(field.name for field in fields)}, "
        f"hash({name_list(key)}) % {CUTS.one_in} = 0 AS {_CUT.name} "
        f"FROM {relation} ORDER BY {', '.join(terms)}"
    )
    return writer.stream(cursor, sql, pa.schema([*fields, _CUT]))


def _with_ids(
    cursor: duckdb.DuckDBPyConnection, relation: str, key: Sequence[str], present: Files
) -> str:
    """Return new rows with the ids of the table's rows of equal keys; all of them are changed now.

    A key that the table has twice identifies no row.
    """
    row, since = (quote_name(field.name) for field in present.layout.lineage)
    known = [f"__lakevilla_key{i}" for i in range(len(key))]
    keys = ", ".join(
        f"{quote_name(name)} AS {alias}" for name, alias in zip(key, known, strict=True)
    )
    ids = (
        f"SELECT {', '.join(known)}, any_value({row}) AS {row} "
        f"FROM (SELECT {keys}, {row} FROM ({present.bind(cursor, lineage=True)})) "
        f"GROUP BY {', '.join(known)} HAVING count(*) = 1"
    )
    equal = " AND ".join(
        f"r.{quote_name(name)} = k.{alias}" for name, alias in zip(key, known, strict=True)
    )
    return (
        f"(SELECT r.*, k.{row}, CAST(NULL AS BIGINT) AS {since} "
        f"FROM {relation} AS r LEFT JOIN ({ids}) AS k ON {equal})"
    )


class _Keys:
    """A check that refuses NULL keys, and two equal keys next to each other."""

    def __init__(self, layout: Layout, key: Sequence[str]) -> None:
        self._layout, self._key = layout, list(key)
        self._last: pa.RecordBatch | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        keys = batch.select(self._key)
        if not keys.num_rows:
            return
        for name, column in zip(self._key, keys.columns, strict=True):
            if column.null_count:
                raise InvalidOperation(
                    f"table {self._layout.table}: column {name} of reuse_by has NULL, and a key "
                    "must have a value in each row: fill it, or name other columns",
                    table=self._layout.table,
                )
        same = _equal(keys.slice(1), keys.slice(0, keys.num_rows - 1))
        place = same.index(True).as_py() if len(same) else -1
        if self._last is not None and _equal(self._last, keys.slice(0, 1))[0].as_py():
            place = 0
        if place >= 0:
            raise _doubled(self._layout, keys.slice(place, 1).to_pylist()[0])
        self._last = keys.slice(keys.num_rows - 1)


def _equal(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.BooleanArray:
    same: pa.BooleanArray = pa.repeat(True, left.num_rows)
    for one, other in zip(left.columns, right.columns, strict=True):
        same = pc.and_(same, pc.equal(one, other))
    return same


def _doubled(layout: Layout, row: dict[str, object]) -> InvalidOperation:
    shown = ", ".join(f"{name}={value!r}"[:200] for name, value in row.items())
    return InvalidOperation(
        f"table {layout.table}: two rows have the key {shown}, and reuse_by must identify each "
        "row: keep one of them, or name more columns",
        table=layout.table,
    )
