"""Rewrite files whose rows change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakevilla.engines.base import FileNamer, Rewrite, TableInput, Written
from lakevilla.engines.deletes import Deleted, can_be_marked, mark
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.reading.constants import PartitionKey
from lakevilla.engines.duckdb.reading.relation import FILE, ROW, Files
from lakevilla.engines.duckdb.sqltext import Renamed, column_of, name_list, quote_name, sql_type
from lakevilla.engines.duckdb.writing.writer import Writer, guard
from lakevilla.engines.partitions import partition_columns
from lakevilla.formats.delta.deletion_vectors import united
from lakevilla.formats.files import ChangeFile, RemovedFile, data_files, removal, rows_in
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program

# -------------------- rewrite
#
# UPDATE and DELETE: find the files with rows that change, then rewrite only these files.
#
# The first pass reads only the columns of the predicate. The second pass reads the found files,
# gathered to about the target size within their partitions, one output file at a time, so memory
# does not grow with the table. A large file with few such rows stays where the table allows that:
# its rows are marked as deleted, and only the changed ones are written (note 65).


@dataclass(frozen=True, slots=True)
class Marks:
    """The files of which a statement may mark rows as deleted, instead of a rewrite.

    ``least_bytes``: a smaller file is rewritten, which keeps the number of files low. ``part``: of
    a file's rows those that change are at most this part; ``rows``: of a file, with those deleted
    before, as whoever reads the file holds their numbers in memory. ``deleted``: from this part of
    deleted rows on, reading them costs more than they save.
    """

    least_bytes: int
    part: float
    rows: int
    deleted: float

    def allow(self, size: int, rows: int | None, matched: int, before: int) -> bool:
        """Return whether ``matched`` of a file's rows may be marked, and ``before`` are already."""
        return (
            rows is not None
            and size >= self.least_bytes
            and matched <= self.part * rows
            and matched + before <= min(self.rows, self.deleted * rows)
        )


MARKS = Marks(least_bytes=8 * 1024 * 1024, part=0.05, rows=1_000_000, deleted=0.2)

#: The column of change files that contains the kind of a row's change.
CHANGE_TYPE = pa.field("_change_type", pa.string())
#: The column of an intermediate result that marks changed rows, whose rules are checked.
HIT = '"__lakevilla_hit"'


@dataclass(frozen=True)
class Rewriter:
    """One statement over one table's files.

    ``writer`` writes rows that were in the table, with their lineage if they have any, and
    ``inserts`` writes rows that are new. ``changes`` writes change files; None for a table without
    a change data feed.
    ``limit_bytes``: the rewriter puts small groups of files, also of several partitions, together
    up to this total size, and rewrites them in memory; a larger group has files of one partition.
    """

    database: Database
    table: TableInput
    files: Files
    writer: Writer
    inserts: Writer
    changes: Writer | None
    limit_bytes: int
    name: FileNamer

    def update(self, assignments: Mapping[str, Expr], where: Expr) -> Program[Rewrite]:
        cursor = self.database.cursor()
        layout = self.files.layout
        schema = layout.schema
        condition = expression_sql(where, schema, "t")
        matched = self.matched(cursor, where, condition)
        if not matched:
            return Rewrite()
        hit = self.files.only(sorted(matched))
        marked = self.marked(cursor, hit.only(self.to_mark(matched, "update")), where, condition)
        old, read = Renamed("old", schema.names), Renamed("read", schema.names)
        new = _assigned(assignments, schema, read)
        moves = not partition_columns(layout).isdisjoint(new)

        def hits(files: Files, where: Expr | None = None) -> str:
            return (
                f"SELECT {old.of('t')}, {read.of('t')}, {lineage_of(layout, 't')}"
                f"coalesce(({condition}), false) AS {HIT} "
                f"FROM ({files.bind(cursor, where=where, lineage=True)}) AS t"
            )

        def rewritten(files: Files) -> str:
            columns = ", ".join(
                f"CASE WHEN {HIT} THEN {new[name]} ELSE {old[name]} END AS {quote_name(name)}"
                if name in new
                else f"{old[name]} AS {quote_name(name)}"
                for name in schema.names
            )
            columns += updated_lineage(layout, HIT)
            return self.guarded(f"SELECT {columns}, {HIT} FROM ({hits(files)})")

        def changed(files: Files) -> str:
            after = ", ".join(
                f"{new.get(name, old[name])} AS {quote_name(name)}" for name in schema.names
            )
            rows = f"FROM ({hits(files, where)}) WHERE {HIT}"
            return (
                f"SELECT {old.back()}, 'update_preimage' AS _change_type {rows} UNION ALL "
                f"SELECT {after}, 'update_postimage' AS _change_type {rows}"
            )

        rows = sum(matched.values())
        whole = hit.only(i for i in hit.chosen if i not in marked)
        written = yield from self.rewrite(cursor, whole, rewritten, moves=moves)
        written += yield from self.moved(cursor, marked, rewritten)
        change_files = yield from self.record(cursor, changed(hit))
        return Rewrite(
            written=written,
            removed=self.removed(hit.chosen),
            change_files=change_files,
            rows_matched=rows,
            rows_updated=rows,
            rows_copied=self.writer.rows_written - rows,
        )

    def delete(self, where: Expr) -> Program[Rewrite]:
        cursor = self.database.cursor()
        condition = expression_sql(where, self.files.layout.schema, "t")
        matched = self.matched(cursor, where, condition)
        if not matched:
            return Rewrite()
        hit = self.files.only(sorted(matched))
        marked = self.marked(cursor, hit.only(self.to_mark(matched, "delete")), where, condition)
        whole = hit.only(i for i in hit.chosen if i not in marked)
        totals = self.counted(cursor, whole)
        partial = hit.only(i for i in whole.chosen if matched[i] < totals[i])
        names = name_list(self.files.layout.schema.names)

        def kept(files: Files) -> str:
            rows = files.bind(cursor, lineage=True)
            return f"SELECT * FROM ({rows}) AS t WHERE ({condition}) IS NOT TRUE"

        written = self.again(marked) + (yield from self.rewrite(cursor, partial, kept))
        change_files = yield from self.record(
            cursor,
            f"SELECT {names}, 'delete' AS _change_type FROM ({hit.bind(cursor, where=where)}) AS t "
            f"WHERE {condition}",
        )
        rows = sum(matched.values())
        return Rewrite(
            written=written,
            removed=self.removed(hit.chosen),
            change_files=change_files,
            rows_matched=rows,
            rows_deleted=rows,
            rows_copied=self.writer.rows_written,
        )

    def copied(self) -> Program[Rewrite]:
        """Copy all rows unchanged; no file is removed."""
        cursor = self.database.cursor()

        def every(files: Files) -> str:
            return f"SELECT * FROM ({files.bind(cursor, lineage=True)}) AS t"

        written = yield from self.rewrite(cursor, self.files, every)
        return Rewrite(written=written, rows_copied=self.writer.rows_written)

    def matched(
        self, cursor: duckdb.DuckDBPyConnection, where: Expr, condition: str
    ) -> dict[int, int]:
        """Count each file's rows for which ``where`` is true; files without any are left out."""
        return self._count(
            cursor,
            f"SELECT {FILE}, count(*) FROM ({self.files.bind(cursor, where=where)}) AS t "
            f"WHERE {condition} GROUP BY ALL",
        )

    def counted(self, cursor: duckdb.DuckDBPyConnection, files: Files) -> dict[int, int]:
        """Return the number of live rows of each file; it reads no column."""
        return self._count(
            cursor, f"SELECT {FILE}, count(*) FROM ({files.bind(cursor)}) GROUP BY ALL"
        )

    def guarded(self, sql: str) -> str:
        """Return ``sql`` with a check of the table's rules for the rows that change."""
        check = guard(self.files.layout, "o")
        if check is None:
            return sql
        return f"SELECT o.* FROM ({sql}) AS o WHERE CASE WHEN o.{HIT} THEN {check} ELSE true END"

    def rewrite(
        self,
        cursor: duckdb.DuckDBPyConnection,
        files: Files,
        rows_of: Callable[[Files], str],
        *,
        moves: bool = False,
    ) -> Program[tuple[Written, ...]]:
        """Write new files of the rows of ``rows_of``; ``moves``: partitions may change."""
        written: list[Written] = []
        for some, key in self._portions(files, moves):
            sql = rows_of(some)
            if key is None:
                names = name_list(self.writer.schema.names)
                batches = self.writer.stream(cursor, f"SELECT {names} FROM ({sql})")
                written += yield from self.writer.rows(batches)
            else:
                written += yield from self.writer.copy(cursor, sql, key)
        return tuple(written)

    def to_mark(self, matched: Mapping[int, int], statement: str) -> list[int]:
        """Return the files, by their numbers of rows that change, of which the others stay.

        A file that is read in parts is rewritten: another part of it may have such rows, too.
        """
        if statement not in self.files.layout.marks_deletes:
            return []
        files = self.table.files
        sizes, stats = files["size"], files["stats"]
        vectors, deletes = files["deletion_vector"], files["deletes"]

        def is_to_mark(place: int) -> bool:
            vector = vectors[place].as_py()
            before = 0 if vector is None else vector["cardinality"]
            if deletes[place].as_py():
                (file,) = data_files(files.slice(place, 1))
                if not can_be_marked(file.deletes):
                    return False
                before = len(self.files.deleted.rows_of(place))
            is_whole = not self.table.parts or self.table.parts[place] is None
            rows = rows_in(stats[place].as_py())
            return is_whole and MARKS.allow(sizes[place].as_py(), rows, matched[place], before)

        return [place for place in sorted(matched) if is_to_mark(place)]

    def marked(
        self, cursor: duckdb.DuckDBPyConnection, files: Files, where: Expr, condition: str
    ) -> dict[int, npt.NDArray[np.int64]]:
        """Return, by file, the places of the rows for which ``where`` is true."""
        if not files.chosen:
            return {}
        return self.placed(
            cursor,
            f"SELECT {FILE}, {ROW} FROM ({files.bind(cursor, where=where)}) AS t WHERE {condition}",
        )

    def placed(
        self, cursor: duckdb.DuckDBPyConnection, sql: str
    ) -> dict[int, npt.NDArray[np.int64]]:
        """Return rows, which the SQL gives as a file's and a row's place, in order by file."""
        with translated(self.files.layout.table):
            found = cursor.execute(f"{sql} ORDER BY ALL").fetchnumpy()
        places, rows = (np.asarray(column, np.int64) for column in found.values())
        cuts = np.flatnonzero(np.diff(places)) + 1
        parts = zip(np.split(places, cuts), np.split(rows, cuts), strict=True)
        return {int(file[0]): part for file, part in parts if len(file)}

    def again(self, marked: Mapping[int, npt.NDArray[np.int64]]) -> tuple[Written, ...]:
        """Return the files that stay, with their deleted rows: those of before and ``marked``."""
        files = data_files(self.table.files.take(pa.array(list(marked), pa.int64())))
        deleted = self.files.deleted
        rows = [united(deleted.rows_of(place), hit) for place, hit in marked.items()]
        return mark(self.files.layout, list(zip(files, rows, strict=True)), self.name)

    def moved(
        self,
        cursor: duckdb.DuckDBPyConnection,
        marked: Mapping[int, npt.NDArray[np.int64]],
        rows_of: Callable[[Files], str],
    ) -> Program[tuple[Written, ...]]:
        """Return the files that stay, and write those of their ``marked`` rows that go on.

        ``rows_of``: as in ``rewrite``, with rows that change marked by ``HIT``.
        """
        if not marked:
            return ()
        places = range(len(self.files.paths))
        rows = tuple(tuple(map(int, marked.get(place, ()))) for place in places)
        # Rows that are marked now were not deleted before.
        some = replace(self.files.only(sorted(marked)), rows=rows, deleted=Deleted())
        sql = rows_of(some)
        names = name_list(self.writer.schema.names)
        batches = self.writer.stream(cursor, f"SELECT {names} FROM ({sql}) WHERE {HIT}")
        return self.again(marked) + (yield from self.writer.rows(batches))

    def record(
        self, cursor: duckdb.DuckDBPyConnection, sql: str
    ) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        """Write change files of the rows of ``sql``, if the table keeps a change data feed."""
        if self.changes is None:
            return ()
        written = yield from self.changes.rows(self.changes.stream(cursor, sql))
        return tuple(
            (ChangeFile(w.file.path, w.file.size, w.file.partition_values), w.body) for w in written
        )

    def removed(self, ordinals: Iterable[int]) -> tuple[RemovedFile, ...]:
        """Return the removals of some of the table's files."""
        chosen = self.table.files.take(pa.array(list(ordinals), pa.int64()))
        return tuple(removal(file) for file in data_files(chosen))

    def _portions(self, files: Files, moves: bool) -> Iterable[tuple[Files, PartitionKey | None]]:
        """Yield groups of files to rewrite together: of one partition with its key, or small ones
        of any.
        """
        groups: dict[PartitionKey | None, list[int]] = {}
        for ordinal in files.chosen:
            groups.setdefault(files.partitions[ordinal], []).append(ordinal)
        small: list[int] = []
        for key, members in groups.items():
            for portion in _packed(members, files.read_bytes, self.writer.target_bytes):
                some = files.only(portion)
                if some.bytes() <= self.limit_bytes:
                    small += portion
                else:
                    yield some, None if moves else key
        for portion in _packed(sorted(small), files.read_bytes, self.limit_bytes):
            yield files.only(portion), None

    def _count(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> dict[int, int]:
        with translated(self.files.layout.table):
            return dict(cursor.execute(sql).fetchall())


def _assigned(assignments: Mapping[str, Expr], schema: pa.Schema, read: Renamed) -> dict[str, str]:
    """Return the new values of columns, over columns as ``read`` names them."""

    def value_of(value: Expr) -> str:
        return to_duckdb(value, schema, column=lambda path, table: read.field(path))

    return {
        column: f"CAST({value_of(value)} AS {sql_type(schema.field(column).type)})"
        for column, value in assignments.items()
    }


def expression_sql(expression: Expr, schema: pa.Schema, alias: str) -> str:
    """Return an expression bound to ``schema``, over the columns of ``alias``."""
    return to_duckdb(expression, schema, column=lambda path, table: column_of(alias, path))


def lineage_of(layout: Layout, alias: str) -> str:
    """Return the columns of the rows' lineage, each with a comma; empty if the table has none."""
    return "".join(f"{alias}.{quote_name(field.name)}, " for field in layout.lineage)


def updated_lineage(layout: Layout, changed: str) -> str:
    """Return the lineage of rows, of which some are ``changed``, each column after a comma.

    A row keeps its id. A row that changes has the version of the commit to come, which its file
    will have.
    """
    if not layout.lineage:
        return ""
    row, since = (quote_name(field.name) for field in layout.lineage)
    return f", {row}, {kept_since(since, changed)} AS {since}"


def kept_since(since: str, changed: str) -> str:
    """Return the version of the commit that last changed a row; NULL if it is ``changed`` now."""
    return f"CASE WHEN {changed} THEN NULL ELSE {since} END"


def _packed(
    members: Iterable[int], size_of: Callable[[int], int], limit_bytes: int
) -> Iterable[list[int]]:
    """Yield ``members`` in runs of at most ``limit_bytes``, or of one member."""
    run: list[int] = []
    size = 0
    for member in members:
        if run and size + size_of(member) > limit_bytes:
            yield run
            run, size = [], 0
        run.append(member)
        size += size_of(member)
    if run:
        yield run


# -------------------- digest
#
# A digest of a multiset of rows: equal digests mean equal rows, in any order.
#
# Each row is written without ambiguity, hashed to 128 bits and summed, in halves. A sum, unlike an
# exclusive or, distinguishes two equal rows from none.


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of some rows, and the sums of both halves. Digests of two parts add up."""

    count: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.count + other.count, self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        return f"{self.count}-{self.low:x}-{self.high:x}"


def digest(cursor: duckdb.DuckDBPyConnection, files: Files, where: Expr) -> Digest:
    """Return the digest of the rows of ``files`` for which ``where`` is true."""
    layout = files.layout
    parts = ", ".join(_unambiguous(f"t.{quote_name(f.name)}", f.type) for f in layout.schema)
    sql = (
        "SELECT count(*), sum(md5_number_lower(line)), sum(md5_number_upper(line)) FROM ("
        f"SELECT concat({parts}) AS line FROM ({files.bind(cursor, where=where)}) AS t "
        f"WHERE {expression_sql(where, layout.schema, 't')})"
    )
    with translated(layout.table):
        # Fetch all rows, though there is one: a result that is not read to its end is dropped with
        # the interpreter's lock held, while DuckDB's threads may still wait for that lock to read a
        # file of a remote store.
        # https://github.com/duckdb/duckdb/pull/10854 (the same of relations)
        ((count, low, high),) = cursor.execute(sql).fetchall()
    return Digest(count, int(low or 0), int(high or 0))


def _unambiguous(value: str, kind: pa.DataType) -> str:
    """Return text of a value such that no two different rows are joined to the same line."""
    text = f"CAST({value} AS VARCHAR)"
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        text = f"hex({value})"
    if pa.types.is_floating(kind):
        # Both zeros are equal in SQL, and so to every predicate: they get one text.
        text = f"CAST({value} + 0.0 AS VARCHAR)"
    # The length in front marks the end of a text; "-" alone is a NULL.
    return f"coalesce(strlen({text}) || ':' || {text}, '-')"
