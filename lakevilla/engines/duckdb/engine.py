"""The DuckDB engine: each verb of ``engines.base.Engine`` on its own cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import chain, islice
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import (
    DataAccess,
    FileNamer,
    KeptRows,
    MergeSpec,
    Refreshed,
    Rewrite,
    StagedRows,
    TableInput,
    Written,
    projection,
)
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database, stream
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.reading.closed import ClosedDatabases
from lakevilla.engines.duckdb.reading.damage import looked_into, watched
from lakevilla.engines.duckdb.reading.query import query
from lakevilla.engines.duckdb.reading.relation import (
    Files,
    GivenTables,
    compared,
    in_turn,
    read_files,
    whole_files,
)
from lakevilla.engines.duckdb.sqltext import name_list, quote_name, quote_text
from lakevilla.engines.duckdb.writing.by_key import write_by_key
from lakevilla.engines.duckdb.writing.merge import merge, numbered
from lakevilla.engines.duckdb.writing.rewrite import (
    CHANGE_TYPE,
    Digest,
    Kept,
    Rewriter,
    digest,
    expression_sql,
    keeps_rows,
)
from lakevilla.engines.duckdb.writing.routing import Routing, hashed, keys_in
from lakevilla.engines.duckdb.writing.writer import Writer
from lakevilla.engines.duckdb.writing.z_order import in_z_order, sampled, sorted_along
from lakevilla.engines.staged import read_staged
from lakevilla.formats.files import ChangeFile, DataFile
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids, started_at
from lakevilla.settings import Settings
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.conditions import rows_within
from lakevilla.store.effects import Program

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

#: Compacted rows are written into one file, even if it becomes much larger than its sources.
_ANY_SIZE = 1 << 20
#: New files wait in memory up to this many bytes, and are stored in one round.
_HELD_BYTES = 64 * 1024 * 1024


class DuckDBEngine:
    """The engine that processes rows of tables with one embedded DuckDB database.

    Parameters
    ----------
    data : DataAccess
        Reaches data files, by path on this machine or through the store.
    settings : Settings
        Memory limit, file sizes.
    ids : Ids
        Stamps the files that are written.
    threads : int, optional
        As many as the machine has cores if not given, and at least eight where files are read from
        a store.

    Notes
    -----
    Safe across threads and fork: the database is made on first use, each process has its own, and
    every call works on a connection of its own.
    """

    def __init__(
        self, data: DataAccess, settings: Settings, ids: Ids, *, threads: int | None = None
    ) -> None:
        self._data, self._settings, self._ids = data, settings, ids
        self._database = Database(data, settings, threads)
        self._given = GivenTables(data, ids)
        self._closed = ClosedDatabases(self._database, self._given.names)

    @property
    def reads_by_parts(self) -> bool:
        """Return whether the files are in a store; for local files the system itself
        reads ahead.
        """
        return self._data.local_path("_lakevilla") is None

    def holding(self, bodies: Mapping[str, bytes]) -> AbstractContextManager[None]:
        """Return a block in which these files are read from memory."""
        return self._data.holding(bodies)

    def write(
        self, layout: Layout, data: pa.RecordBatchReader, name: FileNamer
    ) -> Program[tuple[Written, ...]]:
        """Write rows into files with statistics; see ``engines.base.Engine``."""
        return (yield from self._writer(layout, name).write(data))

    def write_by_key(
        self,
        layout: Layout,
        data: pa.RecordBatchReader,
        key: Sequence[str],
        live: Sequence[DataFile],
        name: FileNamer,
        present: pa.Table | None = None,
    ) -> Program[Refreshed]:
        """Write the rows that no existing file has; see ``engines.base.Engine``."""
        files = None
        if present is not None and layout.lineage:
            files = yield from read_files(self._data, TableInput(layout, present), "present")
        writer = self._writer(layout, name, lineage=files is not None)
        try:
            return (yield from write_by_key(self._database, writer, data, key, live, files))
        except (Exception, KeyboardInterrupt):
            yield from writer.withdraw()
            raise

    def scan(
        self, table: TableInput, columns: Sequence[str] | None, where: Expr | None
    ) -> Program[pa.RecordBatchReader]:
        """Return the rows for which ``where`` is true, as a stream."""
        layout = table.layout
        own = {field.name for field in layout.lineage}.difference(layout.schema.names)
        lineage = not own.isdisjoint(columns or ())
        if lineage:
            layout = replace(layout, schema=layout.moved_schema)
        schema = projection(layout, columns)
        files = yield from read_files(self._data, table, "scan")
        condition = ""
        if where is not None:
            condition = f" WHERE {expression_sql(where, table.layout.schema, 't')}"
        names = name_list(schema.names) or "1"

        def rows_of(files: Files) -> Iterator[pa.RecordBatch]:
            cursor = self._database.cursor()
            relation = files.bind(cursor, where=where, lineage=lineage)
            sql = f"SELECT {names} FROM ({relation}) AS t{condition}"
            return stream(cursor, sql, schema, table.layout.table)

        rows: Iterator[pa.RecordBatch]
        if table.verify:
            some = in_turn(self._data, self._database, table, files)
            rows = chain.from_iterable(map(rows_of, some))
        else:
            with self._looked_into(table):
                rows = rows_of(files)
        rows = watched(self._data, self._database, table, rows)
        return pa.RecordBatchReader.from_batches(schema, rows)

    def rows_to_move(self, table: TableInput) -> Program[pa.RecordBatchReader]:
        """Return all rows, with their lineage if they have any, for a writer of other files."""
        schema = table.layout.moved_schema
        files = yield from read_files(self._data, table, "moved")
        with self._looked_into(table):
            cursor = self._database.cursor()
            relation = files.bind(cursor, lineage=True)
            sql = f"SELECT {name_list(schema.names)} FROM ({relation}) AS t"
            rows = stream(cursor, sql, schema, table.layout.table)
        rows = watched(self._data, self._database, table, rows)
        return pa.RecordBatchReader.from_batches(schema, rows)

    def find_one(self, table: TableInput, where: Expr) -> Program[pa.RecordBatch | None]:
        """Return one row for which ``where`` is true, if there is one."""
        rows = yield from self.scan(table, None, where)
        return next((batch.slice(0, 1) for batch in rows if batch.num_rows), None)

    @property
    def spreads(self) -> int:
        """Return one: this engine is a single process."""
        return 1

    def spread(
        self, function: Callable[[P], Program[R]], portions: Sequence[P]
    ) -> Program[list[R]]:
        """Run a program for each portion, one after the other."""
        found = []
        for portion in portions:
            found.append((yield from function(portion)))
        return found

    def update(
        self, table: TableInput, assignments: Mapping[str, Expr], where: Expr, name: FileNamer
    ) -> Program[Rewrite]:
        """Rewrite the files that hold a row for which ``where`` is true."""
        rewriter = yield from self._rewriter(table, name)
        return (yield from self._whole(rewriter, rewriter.update(assignments, where)))

    def delete(self, table: TableInput, where: Expr, name: FileNamer) -> Program[Rewrite]:
        """Delete rows; a file whose rows all match is removed, not rewritten."""
        rewriter = yield from self._rewriter(table, name)
        return (yield from self._whole(rewriter, rewriter.delete(where)))

    def keep(self, layout: Layout, limit_bytes: int) -> KeptRows | None:
        """Return an object that keeps rows of small files; see ``engines.base.Engine``."""
        if not keeps_rows(layout):
            return None
        return Kept(
            self._database,
            layout,
            self._rewriter,
            lambda name: self._writer(layout, name, lineage=True),
            self._looked_into,
            limit_bytes,
        )

    def copied(self, table: TableInput, name: FileNamer) -> Program[Rewrite]:
        """Copy the rows into new files, as a rewrite copies the rows that it does not change."""
        rewriter = yield from self._rewriter(table, name)
        return (yield from self._whole(rewriter, rewriter.copied()))

    def merge(
        self,
        table: TableInput,
        source: pa.RecordBatchReader | StagedRows,
        spec: MergeSpec,
        name: FileNamer,
    ) -> Program[Rewrite]:
        """Merge a source; see ``engines.base.MergeClause`` for the rules."""
        rewriter = yield from self._rewriter(table, name)
        rows = numbered(self._rows(source))
        rewrite, _ = yield from self._whole(rewriter, merge(rewriter, rows, spec, wanted=False))
        return rewrite

    def merge_part(
        self, table: TableInput, source: pa.RecordBatchReader, spec: MergeSpec, name: FileNamer
    ) -> Program[tuple[Rewrite, np.ndarray]]:
        """Merge into some of a table's files, from a source whose rows are ``numbered``.

        Return also the numbers of those source rows that match a row of these files.
        """
        rewriter = yield from self._rewriter(table, name)
        program = merge(rewriter, source, spec, wanted=True)
        rewrite, found = yield from self._whole(rewriter, program)
        assert found is not None
        return rewrite, found

    @property
    def version(self) -> str:
        """Return the version of DuckDB."""
        return str(duckdb.__version__)

    def keys_in(
        self, table: TableInput, names: Sequence[str], equal: Sequence[str]
    ) -> Program[Iterator[pa.RecordBatch]]:
        """Return the distinct values of some columns, with a hash of the columns in ``equal``."""
        files = yield from read_files(self._data, table, "keys")
        with self._looked_into(table):
            keys = keys_in(self._database, files, names, equal)
        return watched(self._data, self._database, table, keys)

    def hashed(
        self, rows: pa.RecordBatchReader, equal: Sequence[str], table: str
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows with a hash of some columns."""
        return hashed(self._database, rows, equal, table)

    def routing(
        self, layout: Layout, spec: MergeSpec, names: Sequence[str], source: pa.Schema
    ) -> Routing:
        """Return an object that assigns rows of a source to parts of a merge's target."""
        return Routing(self._database, layout, spec, names, source)

    def compact(
        self, parts: Sequence[TableInput], z_order_by: Sequence[str], name: FileNamer
    ) -> Program[tuple[tuple[Written, ...], ...]]:
        """Write the same rows into new files, one part at a time; see ``engines.base.Engine``."""
        made: list[tuple[Written, ...]] = []
        writers: list[Writer] = []
        first_held, bytes_in_memory = 0, 0
        try:
            for part in parts:
                writer = self._moving(part.layout, name, z_order_by)
                writers.append(writer)
                with self._looked_into(part):
                    made.append((yield from self._moved(writer, part, z_order_by)))
                bytes_in_memory += sum(len(one.body or b"") for one in made[-1])
                if bytes_in_memory > _HELD_BYTES:  # no more of them than a round of PUTs
                    waiting = made[first_held:]
                    stored = iter((yield from writer.store(list(chain.from_iterable(waiting)))))
                    made[first_held:] = [tuple(islice(stored, len(one))) for one in waiting]
                    first_held, bytes_in_memory = len(made), 0
        except (Exception, KeyboardInterrupt):
            for writer in writers:
                yield from writer.withdraw()
            raise
        return tuple(made)

    def _moving(self, layout: Layout, name: FileNamer, z_order_by: Sequence[str]) -> Writer:
        """Return a writer of existing rows: constraints are not checked again."""
        layout = replace(layout, constraints=())
        if not z_order_by:
            return self._writer(layout, name, lineage=True)
        writer = self._writer(replace(layout, sort_by=(), sort_order_id=None), name, lineage=True)
        writer.keeps_order = True
        return writer

    def _moved(
        self, writer: Writer, part: TableInput, z_order_by: Sequence[str]
    ) -> Program[tuple[Written, ...]]:
        files = yield from read_files(self._data, part, "compact")
        if z_order_by:
            rows = in_z_order(self._database, files, writer, z_order_by)
        else:
            cursor = self._database.cursor()
            names = name_list(writer.schema.names)
            relation = files.bind(cursor, lineage=True)
            rows = writer.stream(cursor, f"SELECT {names} FROM ({relation})")
            writer.target_bytes = files.bytes() * _ANY_SIZE
        return (yield from writer.moved(rows, files.partitions[0]))

    def sample(self, table: TableInput, columns: Sequence[str], rows: int) -> Program[pa.Table]:
        """Return ``count`` rows of some columns, or all if there are fewer."""
        files = yield from read_files(self._data, table, "sample")
        with self._looked_into(table):
            return sampled(self._database, files, columns, rows)

    def sorted_along(
        self,
        part: TableInput,
        placed: pa.RecordBatchReader,
        z_order_by: Sequence[str],
        name: FileNamer,
    ) -> Program[tuple[Written, ...]]:
        """Write rows with their places on a Z curve into files; ``part`` is one of their files.

        They may be more than memory holds.
        """
        writer = self._moving(part.layout, name, z_order_by)
        partition = whole_files(self._data, part, "part").partitions[0]
        try:
            rows = sorted_along(self._database, placed, writer, z_order_by)
            return (yield from writer.moved(rows, partition))
        except (Exception, KeyboardInterrupt):
            yield from writer.withdraw()
            raise

    def write_change_files(
        self, table: TableInput, change_type: Literal["insert", "delete"], name: FileNamer
    ) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        """Write change files with every row of the files as inserted, or as deleted."""
        rewriter = yield from self._rewriter(table, name)
        cursor = self._database.cursor()
        names = name_list(table.layout.schema.names)
        with self._looked_into(table):
            sql = (
                f"SELECT {names}, {quote_text(change_type)} AS {CHANGE_TYPE.name} "
                f"FROM ({rewriter.files.bind(cursor)})"
            )
        return (yield from self._whole(rewriter, rewriter.record(cursor, lambda: sql)))

    def matching_rows(self, table: TableInput, where: Expr) -> Program[str]:
        """Return a digest of the multiset of rows for which ``where`` is true."""
        return str((yield from self.digest(table, where)))

    def digest(self, table: TableInput, where: Expr) -> Program[Digest]:
        """Return the digest of some of a table's files, to be added to those of other files."""
        files = yield from read_files(self._data, table, "digest")
        with self._looked_into(table):
            return digest(self._database.cursor(), files, where)

    def has_ids_of(self, table: TableInput, others: TableInput) -> Program[bool]:
        """Return whether a row of ``table`` has the id of a row of ``others``."""
        cursor = self._database.cursor()
        id_ = quote_name(table.layout.lineage[0].name)
        relations = []
        for name, one in (("ids", table), ("others", others)):
            files = yield from read_files(self._data, one, name)
            with self._looked_into(one):
                relations.append(f"({files.bind(cursor, lineage=True)})")
        sql = (
            f"SELECT count(*) FROM {relations[1]} AS o SEMI JOIN {relations[0]} AS t USING ({id_})"
        )
        with self._looked_into(table, others), translated(table.layout.table):
            ((count,),) = cursor.execute(sql).fetchall()
        return bool(count)

    def rows_within(
        self, sql: str, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
    ) -> dict[str, Expr]:
        """Return a predicate, by the query's WHERE, that holds for each row that the query uses."""
        return rows_within(sql, params, schemas)

    def query(
        self,
        sql: str,
        tables: Mapping[str, TableInput],
        views: Mapping[str, pa.RecordBatchReader],
        params: Mapping[str, object],
    ) -> Program[pa.Table]:
        """Run one SELECT that sees ``tables`` and ``views`` and nothing else."""
        inputs = {}
        with ExitStack() as stack:
            for table_name, table in tables.items():
                if not table.verify:
                    inputs[table_name] = yield from self._given.files(table)
                    continue
                files = yield from self._given.unkept_files(table)
                copies = compared(
                    self._data, self._database, table, files, self._given.names.give_copy
                )
                inputs[table_name] = stack.enter_context(copies)
            with self._looked_into(*tables.values(), name=None):
                local = self._database.is_local
                return query(self._closed, sql, inputs, views, params, plans_by_footers=local)

    def query_over(
        self,
        sql: str,
        tables: Mapping[str, TableInput],
        where: Expr | None,
        schema: pa.Schema,
    ) -> Program[Iterator[pa.RecordBatch]]:
        """Run one SELECT of the library's own over rows for which ``where`` is true; stream it."""
        cursor = self._database.cursor()
        views = []
        for name, table in tables.items():
            files = yield from read_files(self._data, table, name)
            with self._looked_into(table):
                rows = f"SELECT {name_list(table.layout.schema.names)} FROM "
                rows += f"({files.bind(cursor, where=where)}) AS t"
            if where is not None:
                rows += f" WHERE {expression_sql(where, table.layout.schema, 't')}"
            views.append(f"{name} AS ({rows})")
        (first, *_) = tables.values()
        with self._looked_into(*tables.values()):
            found = stream(cursor, f"WITH {', '.join(views)} {sql}", schema, first.layout.table)
        return watched(self._data, self._database, first, found)

    def close(self) -> None:
        """Release everything that is kept between statements; the engine can be used again."""
        self._closed.close()
        self._given.forget()

    def _rows(self, source: pa.RecordBatchReader | StagedRows) -> pa.RecordBatchReader:
        return read_staged(self._data, source) if isinstance(source, StagedRows) else source

    def _writer(self, layout: Layout, name: FileNamer, *, lineage: bool = False) -> Writer:
        """Return a writer of new rows, or, with ``lineage``, of rows that keep theirs."""
        return Writer(
            self._database,
            self._data,
            self._settings,
            layout,
            name,
            self._now_ms(),
            extra=layout.lineage if lineage else (),
        )

    def _rewriter(self, table: TableInput, name: FileNamer) -> Program[Rewriter]:
        files = yield from read_files(self._data, table, "target")
        changes = None
        if table.layout.change_data_feed:
            changes = Writer(
                self._database,
                self._data,
                self._settings,
                table.layout,
                name,
                self._now_ms(),
                prefix="_change_data",
                extra=(CHANGE_TYPE,),
            )
        writer = self._writer(table.layout, name, lineage=True)
        return Rewriter(
            database=self._database,
            table=table,
            files=files,
            writer=writer,
            inserts=self._writer(table.layout, name) if table.layout.lineage else writer,
            changes=changes,
            limit_bytes=self._settings.in_memory_file_limit_bytes,
            name=name,
        )

    def _whole(self, rewriter: Rewriter, program: Program[T]) -> Program[T]:
        """Run a rewrite; if it fails, delete the files that it has stored."""
        try:
            with self._looked_into(rewriter.table):
                return (yield from program)
        except (Exception, KeyboardInterrupt):
            yield from rewriter.writer.withdraw()
            yield from rewriter.inserts.withdraw()
            if rewriter.changes is not None:
                yield from rewriter.changes.withdraw()
            raise

    def _looked_into(
        self, *tables: TableInput, name: str | None = ""
    ) -> AbstractContextManager[None]:
        """Return a block whose errors name a damaged file of ``tables`` if one is the cause."""
        named = tables[0].layout.table if name == "" else name
        return looked_into(self._data, self._database, tables, named)

    def _now_ms(self) -> int:
        # An id begins with the time of its maker's clock; the engine can't read that clock
        # otherwise.
        return int(started_at(self._ids.txn_id()) * 1000)
