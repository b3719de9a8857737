"""Rewrite files whose rows change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import FileNamer, Rewrite, TableInput, Written
from lakevilla.engines.deletes import Deleted, can_be_marked, mark
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database, arrow_reader, stream
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.reading.constants import PartitionKey
from lakevilla.engines.duckdb.reading.relation import FILE, ROW, Files, above
from lakevilla.engines.duckdb.sqltext import (
    Renamed,
    any_of,
    column_of,
    name_list,
    quote_name,
    sql_type,
)
from lakevilla.engines.duckdb.writing.writer import Writer, guard
from lakevilla.engines.partitions import Partitioning, partition_columns
from lakevilla.engines.statistics import running
from lakevilla.formats.delta.deletion_vectors import RowIndices, among, united
from lakevilla.formats.files import (
    ChangeFile,
    DataFile,
    FileRef,
    RemovedFile,
    data_files,
    file_refs,
    removal,
    rows_in,
)
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.functions.core import COMPARISONS
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
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


#: A row's place is below two to this power, in any file.
_ROW_BITS = 40

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
        matched, marked = self.found(cursor, where, condition, "update")
        if not matched:
            return Rewrite()
        hit = self.files.only(sorted(matched))
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
        change_files = yield from self.record(cursor, lambda: changed(hit))
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
        matched, marked = self.found(cursor, where, condition, "delete")
        if not matched:
            return Rewrite()
        hit = self.files.only(sorted(matched))
        whole = hit.only(i for i in hit.chosen if i not in marked)
        totals = self.counted(cursor, whole)
        partial = hit.only(i for i in whole.chosen if matched[i] < totals[i])
        names = name_list(self.files.layout.schema.names)

        def kept(files: Files) -> str:
            rows = files.bind(cursor, lineage=True)
            return f"SELECT * FROM ({rows}) AS t WHERE ({condition}) IS NOT TRUE"

        def deleted() -> str:
            rows = hit.bind(cursor, where=where)
            return f"SELECT {names}, 'delete' AS _change_type FROM ({rows}) AS t WHERE {condition}"

        written = self.again(marked) + (yield from self.rewrite(cursor, partial, kept))
        change_files = yield from self.record(cursor, deleted)
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

    def found(
        self, cursor: duckdb.DuckDBPyConnection, where: Expr, condition: str, statement: str
    ) -> tuple[dict[int, int], dict[int, RowIndices]]:
        """Count each file's rows for which ``where`` is true, and return, by file, the places of
        those that are to be marked as deleted.

        Where rows may be marked, one pass finds both, and looks for deleted rows among those that
        fit, which are few.
        """
        sizes = (self.files.sizes[place] for place in self.files.chosen)
        if (
            statement not in self.files.layout.marks_deletes
            or max(sizes, default=0) < MARKS.least_bytes
        ):
            return self.matched(cursor, where, condition), {}
        counts = np.zeros(len(self.files.paths), np.int64)
        parts: list[RowIndices] = []
        for keys in self._keys(cursor, where, condition):
            counts += np.bincount(keys >> _ROW_BITS, minlength=len(counts))
            if counts.sum() <= MARKS.rows:
                parts.append(keys)
        matched = {int(place): int(counts[place]) for place in np.flatnonzero(counts)}
        stay = self.to_mark(matched, statement)
        if stay and counts.sum() > MARKS.rows:
            return matched, self.marked(cursor, self.files.only(stay), where, condition)
        keys = np.sort(np.concatenate(parts)) if stay else np.zeros(0, np.int64)
        marked = {}
        for place in stay:
            first, last = np.searchsorted(keys, [place << _ROW_BITS, (place + 1) << _ROW_BITS])
            marked[place] = keys[first:last] & ((1 << _ROW_BITS) - 1)
        return matched, marked

    def _keys(
        self, cursor: duckdb.DuckDBPyConnection, where: Expr, condition: str
    ) -> Iterator[RowIndices]:
        """Yield the rows for which ``where`` is true: each row's place, above it that of its
        file.
        """
        files, deleted = self.files, self.files.deleted
        gone: RowIndices | None = None
        if deleted.positions is not None and not deleted.equality and only_compares(where):
            files = replace(files, deleted=Deleted(few=deleted.few))
            gone = _keyed(deleted.positions)
        rows = files.bind(cursor, where=where)
        with translated(files.layout.table):
            sql = f"SELECT {FILE} AS file, {ROW} AS row FROM ({rows}) AS t WHERE {condition}"
            for batch in arrow_reader(cursor, sql):
                keys = _keyed(pa.Table.from_batches([batch]))
                yield keys if gone is None else keys[~among(keys, gone)]

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
        if not files.chosen:
            return {}
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
    ) -> dict[int, RowIndices]:
        """Return, by file, the places of the rows for which ``where`` is true."""
        if not files.chosen:
            return {}
        return self.placed(
            cursor,
            f"SELECT {FILE}, {ROW} FROM ({files.bind(cursor, where=where)}) AS t WHERE {condition}",
        )

    def placed(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> dict[int, RowIndices]:
        """Return rows, which the SQL gives as a file's and a row's place, in order by file."""
        with translated(self.files.layout.table):
            found = cursor.execute(f"{sql} ORDER BY ALL").fetchnumpy()
        places, rows = (np.asarray(column, np.int64) for column in found.values())
        cuts = np.flatnonzero(np.diff(places)) + 1
        parts = zip(np.split(places, cuts), np.split(rows, cuts), strict=True)
        return {int(file[0]): part for file, part in parts if len(file)}

    def again(self, marked: Mapping[int, RowIndices]) -> tuple[Written, ...]:
        """Return the files that stay, with their deleted rows: those of before and ``marked``."""
        files = data_files(self.table.files.take(pa.array(list(marked), pa.int64())))
        deleted = self.files.deleted
        rows = [united(deleted.rows_of(place), hit) for place, hit in marked.items()]
        return mark(self.files.layout, list(zip(files, rows, strict=True)), self.name)

    def moved(
        self,
        cursor: duckdb.DuckDBPyConnection,
        marked: Mapping[int, RowIndices],
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
        self, cursor: duckdb.DuckDBPyConnection, rows: Callable[[], str]
    ) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        """Write change files of the SQL that ``rows`` returns, if the table keeps a change data
        feed.
        """
        if self.changes is None:
            return ()
        written = yield from self.changes.rows(self.changes.stream(cursor, rows()))
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


def only_compares(expr: Expr) -> bool:
    """Return whether an expression compares columns with each other and with constants, and so
    raises no error for any row.
    """
    if isinstance(expr, (Column, Literal)):
        return True
    inner = ("and", "or", "not")
    if not isinstance(expr, Call) or expr.name not in (*COMPARISONS, "in", "is_null", *inner):
        return False
    return all(only_compares(arg) for arg in expr.args)


def _keyed(rows: pa.Table) -> RowIndices:
    """Return rows, given by ``file`` and ``row``, as one number each, ascending."""
    file, row = (rows[name].to_numpy() for name in ("file", "row"))
    # A stable sort takes advantage of rows that are in order.
    return np.sort((file << _ROW_BITS) | row, kind="stable")


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


# -------------------- kept rows
#
# UPDATE and DELETE in a table of DuckDB's memory, for a run of operations of one transaction.
#
# Files never change under their names, so the rows of a file are the rows of its name: a row is
# loaded once, and then changed in place, by one statement of SQL for an operation. A row belongs to
# a *chain*: the file from which it was loaded, and the files that have replaced it since. A file is
# some chains at a time, the number of steps that were done. Of the newest file of its chains the
# table has the rows. Any other promised file is computed again where it is needed: before the first
# step that may replace such a file, its rows are copied, and later steps are the same SQL again.


#: Rows of more files, or more of them, are not kept: each step would look through all of them.
_MOST_KEPT_FILES, _MOST_KEPT_ROWS, _MOST_KEPT_COLUMNS = 256, 1_000_000, 200
#: A read loads the rows of files of up to so many bytes together.
_MOST_READ_BYTES = 8 * 1024 * 1024
#: After so many steps rows are loaded anew: deleted ones, and those of lists, leave gaps in memory.
_MOST_KEPT_STEPS = 5000
#: The column with the number of a row's chain.
_CHAIN = "__lakevilla_chain"
#: The tables with the rows as they are, as they were, and of a file that is computed again.
_NOW, _BEFORE, _AGAIN = "__lakevilla_now", "__lakevilla_before", "__lakevilla_again"


def keeps_rows(layout: Layout) -> bool:
    """Return whether the rows of such a table are kept at all."""
    return not (
        layout.change_data_feed
        or layout.partition_fields
        or len(layout.schema) > _MOST_KEPT_COLUMNS
        or any(any_of(one.type, pa.types.is_null) for one in layout.schema)
    )


@dataclass(slots=True, eq=False)
class _KeptFile:
    """A file whose rows are kept: its chains, its number of rows, and the steps that led to it."""

    file: DataFile
    chains: frozenset[int]
    rows: int
    steps: int
    promised: bool
    made: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement on the kept rows, around the name of their table, and the chains that it hit."""

    verb: str
    rest: str
    chains: frozenset[int] = frozenset()

    def sql(self, table: str, returning: str = "") -> str:
        return f"{self.verb} {table} AS t {self.rest}{returning}"


class Kept:
    """``engines.base.KeptRows`` in temporary tables of one connection, which has no other use.

    The tables go with the connection, and that with the object.

    Parameters
    ----------
    layout : Layout
        That of all files. When it changes, the transaction has another object keep the rows.
    rewriter : callable
        Returns a ``Rewriter`` of files that are not loaded yet.
    writer : callable
        Returns a ``Writer`` of rows that were in the table.
    looked_into : callable
        Returns a block whose errors name a damaged file.
    limit_bytes : int
        So many bytes of files are loaded, and no more.
    """

    def __init__(
        self,
        database: Database,
        layout: Layout,
        rewriter: Callable[[TableInput, FileNamer], Program[Rewriter]],
        writer: Callable[[FileNamer], Writer],
        looked_into: Callable[[TableInput], AbstractContextManager[None]],
        limit_bytes: int,
    ) -> None:
        self._cursor = database.cursor(watched=False)
        self.layout = self._layout = layout
        self._partitioning = Partitioning(layout)
        self._limit_bytes = limit_bytes
        self._rewriter, self._writer, self._looked_into = rewriter, writer, looked_into
        #: The promised files, by their paths.
        self._files: dict[str, _KeptFile] = {}
        #: The newest file of each chain.
        self._newest: dict[int, _KeptFile] = {}
        #: The table with a copy of a chain's rows, and the number of steps that had led to them.
        self._copied: dict[int, tuple[str, int]] = {}
        self._steps: list[_Step] = []
        self._chains = self._bytes = self._rows = self._steps_before = 0
        #: Files that an earlier transaction has made, of which a state may know more by now.
        self._earlier: set[FileRef] = set()

    def current(self, paths: Iterable[str]) -> set[str]:
        """Return the files without deletes that are the newest of their chains."""
        return {path for path, deletes in self._by_ref() if deletes is None}.intersection(paths)

    def _by_ref(self) -> dict[FileRef, _KeptFile]:
        return {one.file.ref: one for one in self._newest.values()}

    def change(
        self,
        table: TableInput,
        assignments: Mapping[str, Expr] | None,
        where: Expr,
        name: FileNamer,
    ) -> Program[Rewrite | None]:
        """Change the rows by one statement; see ``engines.base.KeptRows``."""
        if table.layout is not self._layout or table.files.num_rows > _MOST_KEPT_FILES:
            return None
        if not partition_columns(self._layout).isdisjoint(assignments or ()):
            return None  # rows may move to other partitions
        refs = list(file_refs(table.files))
        known = self._by_ref()
        for place, ref in enumerate(refs):
            if ref in self._earlier and ref in known:
                (known[ref].file,) = data_files(table.files.slice(place, 1))
                self._earlier.discard(ref)
        current = [known[ref] for ref in refs if ref in known]
        fresh = [place for place, ref in enumerate(refs) if ref not in known]
        with limited_by_time(self._cursor), translated(self._layout.table):
            if fresh:
                some = TableInput(self._layout, table.files.take(pa.array(fresh, pa.int64())))
                verb = "delete" if assignments is None else "update"
                with self._looked_into(some):
                    loaded = yield from self._load(some, verb, where, name)
                if loaded is None:
                    return None
                current += loaded
            if not current:
                return Rewrite()
            step = self._step(current, assignments, where)
            self._copy(step.chains)
            try:
                hit = self._hit(step, checked=assignments is not None)
                return self._noted(step, hit, name, deletes=assignments is None)
            except BaseException:
                # It does not matter then whether the statement was rolled back: the rows that it
                # may have changed are not used any more.
                for chain in step.chains:
                    self._newest.pop(chain, None)
                raise

    def scan(
        self,
        table: TableInput,
        columns: Sequence[str] | None,
        where: Expr | None,
        *,
        loads: bool = False,
    ) -> Program[pa.Table | None]:
        """Return rows of the table; see ``engines.base.KeptRows``."""
        layout = self._layout
        refs, known = file_refs(table.files), self._by_ref()
        names = layout.schema.names if columns is None else list(columns)
        if (
            table.layout is not layout
            or not refs
            or not names
            or not set(layout.schema.names).issuperset(names)
            or len(set(names)) < len(names)
        ):
            return None
        fresh = [place for place, ref in enumerate(refs) if ref not in known]
        if fresh:
            some = TableInput(layout, table.files.take(pa.array(fresh, pa.int64())))
            given = data_files(some.files)
            if not loads or not self._has_room(given) or not self._pays_to_load(given):
                return None
            with limited_by_time(self._cursor), translated(layout.table), self._looked_into(some):
                rewriter = yield from self._rewriter(some, _no_name)  # it reads deletes
                self._loaded(rewriter.files, given)
            known = self._by_ref()
        schema = pa.schema([layout.schema.field(name) for name in names])
        within = self._within(frozenset[int]().union(*(known[ref].chains for ref in refs)))
        condition = "true" if where is None else self._sql(where)
        sql = f"SELECT {name_list(names)} FROM {_NOW} AS t WHERE {within}({condition})"
        with limited_by_time(self._cursor):
            rows = stream(self._cursor, sql, schema, layout.table)
            return pa.Table.from_batches(rows, schema)

    def write(self, paths: Collection[str]) -> Program[tuple[Written, ...]]:
        """Make promised files; those that are not current in the order in which they came."""
        current = self.current(paths)
        wanted = sorted((self._files[path] for path in paths), key=lambda one: one.steps)
        made = []
        with limited_by_time(self._cursor), translated(self._layout.table):
            for one in wanted:
                if one.file.path in current:
                    made.append((yield from self._written(one, _NOW)))
            others = [one for one in wanted if one.file.path not in current]
            made += yield from self._written_again(others)
        return tuple(made)

    @property
    def size_bytes(self) -> int:
        """Return the size of the loaded files; see ``engines.base.KeptRows``."""
        return self._bytes

    def renew(self) -> bool:
        """Forget how the rows came about; see ``engines.base.KeptRows``."""
        files = list({id(one): one for one in self._newest.values()}.values())
        self._steps_before += len(self._steps)
        if (
            self._layout.lineage  # a row's version may be that of its file, which has one now
            or self._steps_before > _MOST_KEPT_STEPS
            or 2 * self._chains > _MOST_KEPT_FILES
            or any(one.promised and not one.made for one in files)
        ):
            return False
        for copy in {table for table, _ in self._copied.values()}:
            self._cursor.execute(f"DROP TABLE {copy}")
        if len(self._newest) < self._chains:
            live = ", ".join(map(str, sorted(self._newest))) or "-1"
            self._cursor.execute(f"DELETE FROM {_NOW} WHERE {_CHAIN} NOT IN ({live})")
        for one in files:
            one.promised, one.steps = False, 0
        self._files, self._copied, self._steps = {}, {}, []
        self._earlier = set(self._by_ref())
        self._bytes = sum(one.file.size for one in files)
        self._rows = sum(one.rows for one in files)
        return True

    def _load(
        self, some: TableInput, verb: str, where: Expr, name: FileNamer
    ) -> Program[list[_KeptFile] | None]:
        """Load the files that may have rows to change, and return them; None if they can't be."""
        layout, known = self._layout, data_files(some.files)
        if not self._has_room(known):
            return None
        rewriter = yield from self._rewriter(some, name)  # it reads deletes
        files = rewriter.files
        if len(known) > 1 or verb in layout.marks_deletes:
            condition = expression_sql(where, layout.schema, "t")
            matched = rewriter.matched(self._cursor, where, condition)
            if rewriter.to_mark(matched, verb):
                return None
            files = files.only(sorted(matched))
            known = [known[place] for place in files.chosen]
        return self._loaded(files, known)

    def _has_room(self, files: Sequence[DataFile]) -> bool:
        """Return whether the rows of these files may be loaded, too."""
        rows = [rows_in(file.stats) for file in files]
        return not (
            self._bytes + sum(file.size for file in files) > self._limit_bytes
            or self._chains + len(files) > _MOST_KEPT_FILES
            or None in rows
            or self._rows + sum(count or 0 for count in rows) > _MOST_KEPT_ROWS
        )

    def _pays_to_load(self, files: Sequence[DataFile]) -> bool:
        """Return whether a read shall load all rows of these files, of which it needs few.

        Not if they are large, or loaded anew by each transaction; nor if a statement may mark rows
        of one of them, as a statement on rows that are kept rewrites their file.
        """
        sizes = [file.size for file in files]
        marks = bool(self._layout.marks_deletes) and max(sizes, default=0) >= MARKS.least_bytes
        return not (marks or self._layout.lineage) and sum(sizes) <= _MOST_READ_BYTES

    def _loaded(self, files: Files, known: Sequence[DataFile]) -> list[_KeptFile]:
        """Load the rows of files, each as a chain of its own."""
        self._bytes += files.bytes()
        loaded = []
        for place, file in zip(files.chosen, known, strict=True):
            chain, count = self._inserted(files.only([place]))
            one = _KeptFile(file, frozenset([chain]), count, len(self._steps), promised=False)
            self._newest[chain] = one
            self._rows += count
            loaded.append(one)
        return loaded

    def _inserted(self, file: Files) -> tuple[int, int]:
        """Read the rows of a file as the next chain; return that, and their number."""
        if not self._chains:
            self._create(_NOW)
        chain = self._chains
        self._chains += 1  # now: rows that a failure leaves behind belong to no file
        columns = name_list(self._layout.moved_schema.names)
        rows = file.bind(self._cursor, lineage=True)
        sql = f"INSERT INTO {_NOW} SELECT {columns}, {chain} FROM ({rows})"
        ((count,),) = self._cursor.execute(sql).fetchall()
        return chain, count

    def _copy(self, chains: Collection[int]) -> None:
        """Copy the rows of the promised files that a step may replace, if that was not done yet."""
        fresh = [
            chain
            for chain in sorted(chains)
            if chain not in self._copied and self._newest[chain].promised
        ]
        if fresh:
            copy = f"{_BEFORE}{len(self._steps)}_{fresh[0]}"
            self._cursor.execute(
                f"CREATE OR REPLACE TEMP TABLE {copy} AS "
                f"SELECT * FROM {_NOW} WHERE {_CHAIN} IN ({', '.join(map(str, fresh))})"
            )
            for chain in fresh:  # of which the rows have not changed since the file was promised
                self._copied[chain] = copy, self._newest[chain].steps

    def _create(self, table: str) -> None:
        columns = "".join(
            f"{quote_name(one.name)} {sql_type(one.type)}, " for one in self._layout.moved_schema
        )
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({columns}{_CHAIN} INTEGER)")

    def _step(
        self, files: Iterable[_KeptFile], assignments: Mapping[str, Expr] | None, where: Expr
    ) -> _Step:
        """Return the statement on the rows of these files; its chains are those of the files."""
        layout = self._layout
        chains = frozenset[int]().union(*(one.chains for one in files))
        rest = f"WHERE {self._within(chains)}({self._sql(where)})"
        if assignments is None:
            return _Step("DELETE FROM", rest, chains)
        new = [
            f"{quote_name(column)} = CAST({self._sql(value)} AS "
            f"{sql_type(layout.schema.field(column).type)})"
            for column, value in assignments.items()
        ]
        if layout.lineage:  # as ``updated_lineage``
            new.append(f"{quote_name(layout.lineage[1].name)} = NULL")
        return _Step("UPDATE", f"SET {', '.join(new)} {rest}", chains)

    def _within(self, chains: Collection[int]) -> str:
        """Return the beginning of a condition on the rows of these chains."""
        if len(chains) == self._chains:
            return ""
        return f"t.{_CHAIN} IN ({', '.join(map(str, sorted(chains)))}) AND "

    def _sql(self, expression: Expr) -> str:
        """Return an expression over the rows; as over files, see ``above``."""
        return to_duckdb(
            expression, self._layout.schema, lambda path, table: above(column_of("t", path))
        )

    def _hit(self, step: _Step, *, checked: bool) -> dict[int, int]:
        """Do a step; return the number of rows that it changed, by chain.

        ``checked``: the rules of the table must hold for these rows, else none is changed.
        """
        check = guard(self._layout, "t") if checked else None
        if check is None and len(step.chains) == 1:
            ((count,),) = self._cursor.execute(step.sql(_NOW)).fetchall()
            return dict.fromkeys(step.chains, count) if count else {}
        returning = f" RETURNING t.{_CHAIN} AS chain"
        if check is not None:
            returning += f", {check} AS checked"
        found = self._cursor.execute(step.sql(_NOW, returning)).fetchnumpy()
        chains, counts = np.unique(np.asarray(found["chain"], np.int64), return_counts=True)
        return dict(zip(chains.tolist(), counts.tolist(), strict=True))

    def _noted(
        self, step: _Step, hit: Mapping[int, int], name: FileNamer, *, deletes: bool
    ) -> Rewrite:
        """Note what a step has changed, and return it with promises of its new files.

        It makes one file in each partition.
        """
        count = sum(hit.values())
        if not count:
            return Rewrite()
        replaced = list(dict.fromkeys(self._newest[chain] for chain in sorted(hit)))
        parts: dict[PartitionKey, list[_KeptFile]] = {}
        for one in replaced:
            key = self._partitioning.key_in(one.file.partition_values)
            parts.setdefault(key, []).append(one)
        every = frozenset[int]().union(*(one.chains for one in replaced))
        self._steps.append(replace(step, chains=every))
        written, rows = [], 0
        for key, files in parts.items():
            chains = frozenset[int]().union(*(one.chains for one in files))
            left = sum(one.rows for one in files)
            if deletes:
                left -= sum(hit.get(chain, 0) for chain in chains)
            rows += left
            if left:
                promise = self._promised(key, files, chains, left, name)
                self._newest.update(dict.fromkeys(chains, promise))
                written.append(Written(promise.file, promised=True))
            else:
                for chain in chains:
                    del self._newest[chain]
        return Rewrite(
            written=tuple(written),
            removed=tuple(removal(one.file) for one in replaced),
            rows_matched=count,
            rows_updated=0 if deletes else count,
            rows_deleted=count if deletes else 0,
            rows_copied=rows if deletes else rows - count,
        )

    def _promised(
        self,
        key: PartitionKey,
        replaced: Collection[_KeptFile],
        chains: frozenset[int],
        rows: int,
        name: FileNamer,
    ) -> _KeptFile:
        """Promise the file that replaces some files of one partition."""
        layout, parts = self._layout, self._partitioning
        directories = (layout.data_directory, parts.directory(key))
        file = DataFile(
            path=name("/".join(part for part in directories if part)),
            size=sum(one.file.size for one in replaced),
            modification_time=0,
            partition_values=parts.values(key),
            stats=f'{{"numRecords":{rows}}}',
            sort_order_id=layout.sort_order_id,
        )
        promise = _KeptFile(file, chains, rows, len(self._steps), promised=True)
        self._files[file.path] = promise
        return promise

    def _written(self, one: _KeptFile, table: str) -> Program[Written]:
        """Write a file of the rows that ``table`` has now."""
        writer = self._writer(lambda _: one.file.path)
        chains = ", ".join(map(str, sorted(one.chains)))
        sql = f"SELECT * FROM {table} WHERE {_CHAIN} IN ({chains})"
        try:
            key = self._partitioning.key_in(one.file.partition_values)
            written = yield from writer.whole(self._cursor, sql, key)
        except (Exception, KeyboardInterrupt):
            yield from writer.withdraw()
            raise
        assert writer.rows_written == one.rows, f"{one.file.path} was to have {one.rows} rows"
        one.file, one.made = written.file, True
        return written

    def _written_again(self, files: Iterable[_KeptFile]) -> Program[list[Written]]:
        """Write files that are not current, in the order of their steps: do the steps again."""
        made: list[Written] = []
        missing = set[int]().union(*(one.chains for one in files))
        needed = frozenset(missing)
        if needed:
            self._create(_AGAIN)
        done = 0
        for one in files:
            for number in range(done, one.steps + 1):
                if number > done and not needed.isdisjoint(self._steps[number - 1].chains):
                    self._cursor.execute(self._steps[number - 1].sql(_AGAIN))
                for chain in [c for c in sorted(missing) if self._copied[c][1] == number]:
                    rows = f"SELECT * FROM {self._copied[chain][0]} WHERE {_CHAIN} = {chain}"
                    self._cursor.execute(f"INSERT INTO {_AGAIN} {rows}")
                    missing.discard(chain)
            done = one.steps
            made.append((yield from self._written(one, _AGAIN)))
        if needed:
            self._cursor.execute(f"DROP TABLE {_AGAIN}")
        return made


def _no_name(directory: str) -> str:
    raise AssertionError("a read makes no file")


@contextmanager
def limited_by_time(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Return a block in which a connection of several statements is interrupted as theirs are."""
    statement = running()
    if statement is None:
        yield
        return
    statement.watch(cursor)
    try:
        yield
    finally:
        statement.leave(cursor)


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
