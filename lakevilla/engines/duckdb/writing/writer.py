"""Write Parquet files, and check constraints."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import field_is_strict, loosened, relabel
from lakevilla.engines.base import DataAccess, FileNamer, Written, target_file_size
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import BATCH_ROWS, Database, stream
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.failures import RULE_MARK, Tap, translated
from lakevilla.engines.duckdb.reading.constants import PartitionKey
from lakevilla.engines.duckdb.reading.relation import data_columns
from lakevilla.engines.duckdb.sqltext import column_of, name_list, quote_name, quote_text, renamed
from lakevilla.engines.duckdb.writing.parquet import Order, copy_options, encode
from lakevilla.engines.duckdb.writing.zeros import (
    float_columns,
    has_negative_zero,
    may_have_merged,
    negative_zeros,
    negative_zeros_of_file,
)
from lakevilla.engines.partitions import Partitioning, split_by_partition
from lakevilla.engines.statistics import statistics_of_copy, statistics_of_table
from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.formats.files import HASH_TAG, DataFile, file_key
from lakevilla.formats.layout import Layout
from lakevilla.meter import note
from lakevilla.settings import Settings
from lakevilla.store.backends.local import in_directory_durably, refusal_by, settle
from lakevilla.store.base import NEW, PutOutcome, Stored
from lakevilla.store.content import hash_of, hash_of_file
from lakevilla.store.effects import Program, Put, delete, parallel, put, put_file

# -------------------- writer
#
# Rows into data files: in memory when they are few, by DuckDB's COPY when they are many.
#
# Few rows are encoded by pyarrow, ten times faster for a small file, and returned as bytes that the
# commit stores. Many rows are streamed file by file: straight to their place in a local lake, else
# by way of a private directory and an upload. A statement that fails leaves none of its files.


# Rows in memory take more room than in a file; beyond this many times the limit
# for files, a stream is no longer collected.
_EXPANSION = 4
# The size of a file in proportion to its Arrow bytes, until the first file is known.
_FIRST_RATIO = 0.5
# The rows of a slice where the exact end of a file matters: DuckDB's own unit.
_VECTOR_ROWS = 2048


class Writer:
    """The writer of the files of one statement.

    ``extra`` are columns that the rows have after the table's own and that are written into the
    files too (the change type of a change file); ``prefix`` is the directory of the table that
    contains the files.
    """

    def __init__(
        self,
        database: Database,
        data: DataAccess,
        settings: Settings,
        layout: Layout,
        name: FileNamer,
        now_ms: int,
        *,
        prefix: str = "",
        extra: Sequence[pa.Field] = (),
    ) -> None:
        self._database, self._data, self._settings = database, data, settings
        self.layout = self._layout = layout
        self._name, self._now_ms = name, now_ms
        self._prefix = prefix or layout.data_directory
        self._partitioning = Partitioning(layout)
        self._order = Order(layout)
        self._stored: list[str] = []
        self._taps: list[Tap] = []
        self._extra = tuple(extra)
        self.schema = pa.schema([*layout.schema, *extra])
        places = _written_columns(layout)
        self._data_fields = [layout.schema.field(i) for i in places] + list(extra)
        self._physical = pa.schema(
            [loosened(layout.physical.field(i)) for i in places] + list(extra)
        )
        self._known_as = pa.schema([layout.statistics_schema.field(i) for i in places])
        self.target_bytes = target_file_size(layout, settings)
        self.memory_bytes = self._memory_bytes = settings.in_memory_file_limit_bytes
        self._ratio = _FIRST_RATIO
        self._floats = float_columns(self.schema)
        self._dictionaries = True
        self.rows_written = 0
        #: True if a file keeps the rows in their given order: this costs more, and few callers need
        #: it.
        self.keeps_order = bool(layout.sort_by)

    def write(self, reader: pa.RecordBatchReader) -> Program[tuple[Written, ...]]:
        """Write rows of any partitions, and check the rules of the table."""
        try:
            return (yield from self.rows(self.checked(reader)))
        except (Exception, KeyboardInterrupt):
            yield from self.withdraw()
            raise

    def checked(self, reader: pa.RecordBatchReader) -> Iterable[pa.RecordBatch]:
        """Return the rows; the rules of the table are checked as they are read."""
        layout = self._layout
        if needs_sql(layout):
            cursor = self._database.cursor()
            self.register(cursor, "__lakevilla_rows", reader)
            sql = f"SELECT r.* FROM __lakevilla_rows AS r WHERE {guard(layout, 'r')}"
            return self.stream(cursor, sql)
        return _checked(layout, reader) if checks_columns(layout) else reader

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Program[tuple[Written, ...]]:
        """Write rows that were checked already, of any partitions."""
        taken, rest = _take(_sliced(batches), self._memory_bytes * _EXPANSION)
        if rest is None:
            return tuple((yield from self._few(list(self.in_order(taken)))))
        whole = itertools.chain(taken, rest)
        if not self._partitioning.columns:
            return tuple((yield from self._many(self.in_order(whole), ())))
        # If they are sorted by partition, one file is open at a time, however many partitions
        # exist.
        ordered = self.in_order(whole, by_partition=True)
        written: list[Written] = []
        for key, run in itertools.groupby(self._pure(ordered), lambda pair: pair[0]):
            taken, rest = _take((batch for _, batch in run), self._memory_bytes * _EXPANSION)
            if rest is None:
                written += yield from self._few(taken)
            else:
                written += yield from self._many(itertools.chain(taken, rest), key)
        return tuple(written)

    def copy(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, key: PartitionKey
    ) -> Program[tuple[Written, ...]]:
        """Write the rows of a SELECT, all of one partition, as one file by DuckDB's COPY."""
        order = self._order
        if not order.derived_fields:
            return (yield from self._copied(cursor, f"({sql})", key, order.terms))
        names = name_list(self.schema.names)
        rows = self.in_order(self.stream(cursor, f"SELECT {names} FROM ({sql})"))
        sorted_cursor = self._database.cursor()
        self.register(sorted_cursor, "__lakevilla_ordered", rows)
        self._dictionaries = not self._floats  # a stream that can't be cut: one file is wanted
        return (yield from self._copied(sorted_cursor, "__lakevilla_ordered", key, streams=True))

    def whole(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, key: PartitionKey = ()
    ) -> Program[Written]:
        """Write the rows of a SELECT, at least one and all of one partition, as one file."""
        names = name_list(self.schema.names)
        batches = self.stream(cursor, f"SELECT {names} FROM ({sql})")
        taken, rest = _take(_sliced(batches), self._memory_bytes * _EXPANSION)
        if rest is None:
            (written,) = yield from self._few(list(self.in_order(taken)), is_held=True)
            return written
        for _ in rest:
            pass  # the connection takes the next statement after the last row
        (written,) = yield from self.copy(cursor, sql, key)
        return written

    def in_order(
        self, batches: Iterable[pa.RecordBatch], *, by_partition: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows in the table's sort order; DuckDB sorts, and spills what exceeds memory.

        Their order is unchanged if the table has none. ``by_partition``: they are sorted first by
        partition, and have the columns that partitions are made of.
        """
        order, parts = self._order, self._partitioning
        terms, fields = order.terms, list(self.schema)
        if by_partition:
            terms = [*map(quote_name, parts.columns), *terms]
            fields += parts.derived_fields
        if not terms:
            return iter(batches)

        def derived() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                rows = parts.derived(rows) if by_partition else rows
                yield from order.derived(rows).to_batches()

        cursor = self._database.cursor()
        schema = pa.schema([*fields, *order.derived_fields])
        self.register(cursor, "__lakevilla_rows", derived(), schema)
        names = name_list(field.name for field in fields)
        sql = f"SELECT {names} FROM __lakevilla_rows ORDER BY {', '.join(terms)}"
        return self.stream(cursor, sql, pa.schema(fields))

    def _copied(
        self,
        cursor: duckdb.DuckDBPyConnection,
        relation: str,
        key: PartitionKey,
        terms: Sequence[str] = (),
        *,
        streams: bool = False,
    ) -> Program[tuple[Written, ...]]:
        """Write a relation of one partition as a file; ``terms`` if it must still be sorted.

        ``streams``: the relation can be read once only.
        """
        path = self._new_path(key)
        store_key = file_key(self._layout.location, path)
        local = self._data.local_path(store_key)
        target = local or os.path.join(self._database.directory, os.path.basename(path))
        directory = os.path.dirname(target)
        durable = self._settings.durable_files
        if local:
            _in_place(lambda: in_directory_durably(directory, os.fstat, durable), store_key)
        in_place = False
        try:
            rows, size, summary = self._copy_to(cursor, relation, terms, target)
            if rows and not streams and self._lost_zeros(cursor, relation, target):
                self._dictionaries = False
                again = self._copy_to(cursor, relation, terms, target)
                assert again[0] == rows, f"{relation} had {rows} rows, and then {again[0]}"
                rows, size, summary = again
            # Hash it while the system still has the written data in memory.
            content = hash_of_file(target) if rows and self._settings.hash_files else None
            if rows and local is None:
                yield from put_file(store_key, target)
            elif rows:
                # The commit will rely on it, as on a file that the store writes.
                _in_place(lambda: settle(target, durable), store_key)
                in_place = True
        finally:
            if not in_place:
                # No object names it: what a disk does not delete now is left to gc.
                with suppress(OSError):
                    os.unlink(target)
        if not rows:
            return ()
        self._stored.append(store_key)
        self.rows_written += rows
        note(rows=rows, files=1, bytes=size)
        stats = statistics_of_copy(
            self._physical,
            rows,
            summary,
            self._layout.statistics_columns,
            self._known_as,
            all_or_none=self._layout.known_as is None,
        )
        return (Written(self._file(path, size, key, stats, content)),)

    def ordered(
        self,
        batches: Iterable[pa.RecordBatch],
        key: PartitionKey,
        *,
        has_negative_zeros: bool | None = None,
    ) -> Program[tuple[Written, ...]]:
        """Write rows that were checked, all of one partition, file by file in their given order.

        If it is known whether they have negative zeros, no file ends because of them.
        """
        slices = _sliced(batches, _VECTOR_ROWS)
        taken, rest = _take(slices, self._memory_bytes * _EXPANSION)
        if rest is None and sum(b.nbytes for b in taken) * self._ratio <= self.target_bytes:
            return tuple((yield from self._few(taken)))
        whole = itertools.chain(taken, rest or ())
        return tuple((yield from self._many(whole, key, has_negative_zeros)))

    def moved(
        self, batches: Iterable[pa.RecordBatch], partition: PartitionKey | None
    ) -> Program[tuple[Written, ...]]:
        """Write rows that were in files of one partition.

        A ``partition`` of None means an older spec: the rows may belong to several partitions now.
        """
        if partition is None:
            return (yield from self.rows(batches))
        return (yield from self.ordered(self.in_order(batches), partition))

    def register(
        self,
        cursor: duckdb.DuckDBPyConnection,
        name: str,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema | None = None,
    ) -> None:
        """Let SQL read a stream; pass ``schema`` if it is not that of the rows written."""
        tap = Tap(schema or self.schema, batches)
        self._taps.append(tap)
        cursor.register(name, tap.reader)

    def stream(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a SELECT of the file's columns, in the table's own types.

        Pass ``schema`` if it selects other columns.
        """
        return stream(cursor, sql, schema or self.schema, self._layout.table, self._taps)

    def translating(self) -> AbstractContextManager[None]:
        """Return a block in which DuckDB reads the registered streams."""
        return translated(self._layout.table, self._taps)

    def store(self, written: Sequence[Written]) -> Program[list[Written]]:
        """Store, in one round, the files that were still in memory; return all files."""
        keys = [file_key(self._layout.location, item.file.path) for item in written]
        puts = [
            Put(key, item.body, NEW)
            for key, item in zip(keys, written, strict=True)
            if item.body is not None
        ]
        self._stored.extend(one.key for one in puts)
        outcomes: list[PutOutcome] = yield from parallel(puts)
        for one, outcome in zip(puts, outcomes, strict=True):
            if not isinstance(outcome, Stored):
                raise StoreError(f"could not store {one.key}: nothing was written, try again")
        return [replace(item, body=None) for item in written]

    def withdraw(self) -> Program[None]:
        """Delete the stored files: nothing refers to them yet, and the statement has failed."""
        for key in self._stored:
            yield from delete(key)
        self._stored.clear()

    def _few(
        self, batches: Sequence[pa.RecordBatch], *, is_held: bool = False
    ) -> Program[list[Written]]:
        """Write one file, in memory, for each partition among rows that are all in memory.

        Large files are stored now, unless the caller wants them to be held.
        """
        written = []
        names = [field.name for field in self._data_fields]
        rows = pa.Table.from_batches(batches, self.schema)
        for part in self._partitioning.split(rows):
            key = self._partitioning.key_of(part)
            physical = pa.Table.from_batches(
                [
                    relabel(batch, self._physical)
                    for batch in part.select(names).combine_chunks().to_batches()
                ],
                self._physical,
            )
            path = self._new_path(key)
            body = encode(physical, self._layout)
            stats = statistics_of_table(
                physical,
                self._layout.statistics_columns,
                self._known_as,
                all_or_none=self._layout.known_as is None,
            )
            content = hash_of(body) if self._settings.hash_files else None
            file = self._file(path, len(body), key, stats, content)
            self.rows_written += part.num_rows
            note(rows=part.num_rows, files=1, bytes=len(body))
            if len(body) > self._memory_bytes and not is_held:
                store_key = file_key(self._layout.location, path)
                self._stored.append(store_key)
                yield from put(store_key, body, NEW)
                written.append(Written(file))
            else:
                written.append(Written(file, body))
        return written

    def _many(
        self,
        batches: Iterator[pa.RecordBatch],
        key: PartitionKey,
        has_negative_zeros: bool | None = None,
    ) -> Program[list[Written]]:
        """Cut rows of one partition into files of about the target size."""
        looked_at = self._floats if has_negative_zeros is None else ()
        if has_negative_zeros is not None:
            self._dictionaries = not has_negative_zeros
        written: list[Written] = []
        rest = _Returned(batches)
        for first in rest:
            if has_negative_zero(first, looked_at):
                self._dictionaries = False
            ends_before = looked_at if self._dictionaries else ()
            piece = _Piece(first, rest, self.target_bytes / self._ratio, ends_before)
            cursor = self._database.cursor()
            self.register(cursor, "__lakevilla_piece", piece)
            files = yield from self._copied(cursor, "__lakevilla_piece", key, streams=True)
            if files and piece.bytes:
                self._ratio = max(files[0].file.size / piece.bytes, 0.01)
            written += files
        return written

    def _pure(
        self, ordered: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
        """Cut sorted batches where the partition changes."""
        for batch in ordered:
            # Parts have the order of their rows: the last one may continue in the next batch.
            for part in split_by_partition(
                pa.Table.from_batches([batch]), self._partitioning.columns
            ):
                key = self._partitioning.key_of(part)
                pieces = part.select(self.schema.names).to_batches()
                yield from ((key, piece) for piece in pieces)

    def _copy_to(
        self, cursor: duckdb.DuckDBPyConnection, relation: str, terms: Sequence[str], target: str
    ) -> tuple[int, int, dict[str, dict[str, str]]]:
        columns = ", ".join(
            f"{renamed(quote_name(given.name), given.type, want.type)} AS {quote_name(want.name)}"
            for given, want in zip(self._data_fields, self._physical, strict=True)
        )
        order = f" ORDER BY {', '.join(terms)}" if terms else ""
        options = copy_options(self._physical, self._layout, dictionaries=self._dictionaries)
        with translated(self._layout.table, self._taps):
            found = cursor.execute(
                f"COPY (SELECT {columns} FROM {relation}{order}) "
                f"TO {quote_text(target)} ({options}"
                f"{', PRESERVE_ORDER true' if self.keeps_order else ''})"
            ).fetchall()  # read to its end: see digest
        if not found:
            return 0, 0, {}
        ((_, rows, size, _, summary, *_),) = found
        return int(rows), int(size), summary or {}

    def _lost_zeros(self, cursor: duckdb.DuckDBPyConnection, relation: str, target: str) -> bool:
        """Return whether a file has fewer negative zeros than the relation."""
        if not (self._floats and self._dictionaries):
            return False
        merged = set(may_have_merged(target))
        columns = [
            (given.name, want.name)
            for given, want in zip(self._data_fields, self._physical, strict=True)
            if want.name in merged
        ]
        if not columns:
            return False
        schema = pa.schema([self.schema.field(given) for given, _ in columns])
        rows = self.stream(cursor, f"SELECT {name_list(schema.names)} FROM {relation}", schema)
        wanted = negative_zeros(rows)
        if not wanted.total():
            return False  # zeros of one sign alone stay as they are
        found = negative_zeros_of_file(target, sorted(merged))
        return any(wanted[given] != found[want] for given, want in columns)

    def _new_path(self, key: PartitionKey) -> str:
        directory = self._partitioning.directory(key)
        return self._name("/".join(part for part in (self._prefix, directory) if part))

    def _file(
        self, path: str, size: int, key: PartitionKey, stats: str, content: str | None
    ) -> DataFile:
        return DataFile(
            path=path,
            size=size,
            modification_time=self._now_ms,
            partition_values=self._partitioning.values(key),
            stats=stats,
            tags=None if content is None else {HASH_TAG: content},
            sort_order_id=self._layout.sort_order_id,
        )


class _Returned:
    """Batches from an iterator, to which one can be given back."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._back: list[pa.RecordBatch] = []

    def give_back(self, batch: pa.RecordBatch) -> None:
        self._back.append(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._back.pop() if self._back else next(self._batches)


class _Piece:
    """Batches from a shared iterator up to a number of bytes; counts the bytes that it yields.

    It ends before a batch with a negative zero in one of the columns ``ends_before``.
    """

    def __init__(
        self,
        first: pa.RecordBatch,
        rest: _Returned,
        limit_bytes: float,
        ends_before: Sequence[str],
    ) -> None:
        self._first, self._rest, self._limit_bytes = first, rest, limit_bytes
        self._ends_before = ends_before
        self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self.bytes += self._first.nbytes
        yield self._first
        if self.bytes >= self._limit_bytes:
            return
        for batch in self._rest:
            if has_negative_zero(batch, self._ends_before):
                self._rest.give_back(batch)
                return
            self.bytes += batch.nbytes
            yield batch
            if self.bytes >= self._limit_bytes:
                return


def _take(
    batches: Iterator[pa.RecordBatch], limit_bytes: int
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """Return batches up to a number of bytes, and the iterator if there may be more."""
    taken, size = [], 0
    for batch in batches:
        taken.append(batch)
        size += batch.nbytes
        if size > limit_bytes:
            return taken, batches
    return taken, None


def _written_columns(layout: Layout) -> list[int]:
    """Return the places of the columns that new files hold.

    Iceberg's ``unknown`` is in no file: the column may get any type later.
    """
    places, of_iceberg = data_columns(layout), layout.known_as is not None
    return [i for i in places if not (of_iceberg and pa.types.is_null(layout.schema.field(i).type))]


def _sliced(batches: Iterable[pa.RecordBatch], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield batches of bounded length: a caller may pass a table in one piece."""
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _checked(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        check_columns(layout, batch)
        yield batch


def _in_place(step: Callable[[], object], key: str) -> None:
    try:
        step()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOENT, errno.ENOTDIR):
            raise StoreError(
                f"{key} could not be written, since a symbolic link is in its path, and links are "
                "not followed: put a directory there",
                permanent=True,
            ) from None
        why = refusal_by(error)
        if why is None:
            raise
        raise StoreError(f"{key} could not be written: {why}", permanent=True) from None


# -------------------- constraints
#
# NOT NULL, CHECK constraints, invariants, and values that a format can't keep.
#
# The rules are SQL that stops at the first row that breaks one.
#
# The check is a filter: it passes every row or raises, inside the same pass that writes the rows. A
# CHECK that is NULL is broken, as in Delta's own writer.


def needs_sql(layout: Layout) -> bool:
    """Return whether the rules need more than a count of NULLs in columns."""
    return bool(layout.constraints) or any(field_is_strict(field) for field in layout.schema)


def guard(layout: Layout, alias: str) -> str | None:
    """Return a filter over ``alias``, whose columns are the table's; None if all are allowed."""
    rules = [
        (f"column {path} must not be null", broken) for path, broken in _null_rules(layout, alias)
    ]
    rules += [
        # This fits text and bytes: ''::BLOB has no bytes.
        (_empty(name), f"{column_of(alias, (name,))} = ''")
        for name in _empty_is_null(layout)
    ]
    for constraint in layout.constraints:
        condition = to_duckdb(
            constraint.expression,
            layout.schema,
            column=lambda path, table: column_of(alias, path),
        )
        rules.append(
            (
                f"constraint {constraint.name} ({constraint.sql}) does not hold",
                f"({condition}) IS NOT TRUE",
            )
        )
    if not rules:
        return None
    fields = ", ".join(
        f"{quote_name(f.name)} := {alias}.{quote_name(f.name)}" for f in layout.schema
    )
    shown = f"left(CAST(struct_pack({fields}) AS VARCHAR), 300)"
    branches = " ".join(
        f"WHEN {broken} THEN error({quote_text(RULE_MARK + what + ' for row ')} || {shown})"
        for what, broken in rules
    )
    return f"CASE {branches} ELSE true END"


def checks_columns(layout: Layout) -> bool:
    """Return whether ``check_columns`` has anything to check."""
    return any(not field.nullable for field in layout.schema) or bool(_empty_is_null(layout))


def check_columns(layout: Layout, batch: pa.RecordBatch) -> None:
    """Raise if a NOT NULL column of ``batch`` holds a NULL, or a partition column empty text."""
    for field, column in zip(layout.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise _broken(layout, batch, column.is_null(), f"column {field.name} must not be null")
    for name in _empty_is_null(layout):
        empty = pc.equal(pc.binary_length(batch.column(name)), 0)
        if pc.any(empty).as_py():
            raise _broken(layout, batch, empty, _empty(name))


def _empty_is_null(layout: Layout) -> list[str]:
    """Return columns in which the empty text, or no bytes, would be read as NULL.

    Delta's protocol: an empty partition value of any type is NULL.
    """
    kinds = {field.name: field.type for field in layout.schema}
    return [
        name
        for name in layout.partition_by
        if pa.types.is_string(kinds[name]) or pa.types.is_binary(kinds[name])
    ]


def _empty(column: str) -> str:
    return f"partition column {column} must not be empty, which delta cannot distinguish from NULL,"


def _broken(
    layout: Layout, batch: pa.RecordBatch, broken: pa.BooleanArray, what: str
) -> InvalidOperation:
    index = broken.index(True).as_py()
    row = batch.slice(index, 1).to_pylist()[0]
    return InvalidOperation(
        f"table {layout.table}: {what} for row {str(row)[:300]}; correct the row and write again",
        reason="constraint",
        table=layout.table,
    )


def _null_rules(layout: Layout, alias: str) -> Iterator[tuple[str, str]]:
    """Yield a path, and SQL that is true for a row with a forbidden NULL there."""
    names = (f"__n{i}" for i in itertools.count())
    for field in layout.schema:
        value = column_of(alias, (field.name,))
        if not field.nullable:
            yield field.name, f"{value} IS NULL"
        yield from _below(field.name, value, field.type, lambda broken: broken, names)


def _below(
    path: str,
    value: str,
    kind: pa.DataType,
    wrap: Callable[[str], str],
    names: Iterator[str],
) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for field in (kind.field(i) for i in range(kind.num_fields)):
            inner = f"({value}).{quote_name(field.name)}"
            below = f"{path}.{field.name}"
            if not field.nullable:
                yield below, wrap(f"({value} IS NOT NULL AND {inner} IS NULL)")
            yield from _below(below, inner, field.type, wrap, names)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        is_map = pa.types.is_map(kind)
        field = kind.item_field if is_map else kind.value_field
        items = f"map_values({value})" if is_map else value
        name = next(names)

        def each(broken: str) -> str:
            return wrap(
                f"coalesce(list_bool_or(list_transform({items}, lambda {name}: {broken})), false)"
            )

        below = f"{path}.{'value' if is_map else 'element'}"
        if not field.nullable:
            yield below, each(f"{name} IS NULL")
        yield from _below(below, name, field.type, each, names)
