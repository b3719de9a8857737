"""MERGE: pair target and source rows once, then rewrite the files with rows that a clause changes.

The pairs, and then the actions, are tables of row places and source row numbers: small compared
with the rows themselves, and DuckDB spills them to disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial as partial_of
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakevilla.engines.base import MergeClause, MergeSpec, Rewrite
from lakevilla.engines.deletes import Deleted
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.failures import Tap, translated
from lakevilla.engines.duckdb.reading.relation import FILE, ROW, Files
from lakevilla.engines.duckdb.sqltext import (
    Renamed,
    any_of,
    column_of,
    name_list,
    quote_name,
    sql_type,
)
from lakevilla.engines.duckdb.writing.rewrite import (
    HIT,
    Rewriter,
    lineage_of,
    updated_lineage,
)
from lakevilla.engines.partitions import partition_columns
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import ChangeFile
from lakevilla.sql.expressions.tree import Call, Column, Expr, columns
from lakevilla.store.effects import Program

# The number of a source row, and the clause that acts on a row.
NUMBER = pa.field("__lakevilla_source", pa.int64(), nullable=False)
_SOURCE, _CLAUSE = f'"{NUMBER.name}"', '"__lakevilla_clause"'
# Bytes of a row in a file, for a guess of the number of rows of a table.
_ROW_BYTES = 20
_UPDATES = ("matched_update", "not_matched_by_source_update")
_DELETES = ("matched_delete", "not_matched_by_source_delete")


def merge(
    rewriter: Rewriter, source: pa.RecordBatchReader, spec: MergeSpec, *, wanted: bool
) -> Program[tuple[Rewrite, np.ndarray | None]]:
    """Merge ``source``, whose rows are ``numbered``, into the rewriter's table.

    Return also the numbers of the source rows that match a row of the table, or None unless they
    are ``wanted``.
    """
    statement = _Merge(rewriter, spec, source.schema)
    tap = Tap(source.schema, source)
    with translated(statement.table, (tap,)):
        statement.load(tap)
        statement.pair()
    counts = statement.counts()
    updated = yield from statement.rewrite_hits()
    inserted = yield from statement.insert()
    changes = yield from statement.record()
    rows_updated, rows_deleted, rows_matched = counts
    rewrite = Rewrite(
        written=updated.written + inserted.written,
        removed=updated.removed,
        change_files=changes,
        rows_matched=rows_matched,
        rows_inserted=inserted.rows_inserted,
        rows_updated=rows_updated,
        rows_deleted=rows_deleted,
        rows_copied=updated.rows_copied - rows_updated,
    )
    return rewrite, statement.matched_sources() if wanted else None


def numbered(source: pa.RecordBatchReader, start: int = 0) -> pa.RecordBatchReader:
    """Return the rows with a number each, in order; the numbers identify them."""
    schema = source.schema.append(NUMBER)

    def batches() -> Iterator[pa.RecordBatch]:
        first = start
        for batch in source:
            numbers = pa.array(np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _is_plain(spec: MergeSpec) -> bool:
    """Return whether a merge compares columns alone, which raises no error for any row."""
    terms = [spec.on]
    while terms:
        term = terms.pop()
        if not isinstance(term, Call) or term.name not in ("and", "=", "<=>"):
            return False
        if term.name == "and":
            terms += term.args
        elif not all(isinstance(arg, Column) for arg in term.args):
            return False
    return all(
        one.predicate is None and one.kind.startswith(("matched", "not_matched_insert"))
        for one in spec.clauses
    )


def _is_same(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether equal values of these types are the same; 0.0 and -0.0 are not."""
    return not (any_of(kind, pa.types.is_floating) or pa.types.is_nested(kind)) and sql_type(
        kind
    ) == sql_type(other)


class _Merge:
    def __init__(self, rewriter: Rewriter, spec: MergeSpec, source: pa.Schema) -> None:
        self._rewriter, self._spec = rewriter, spec
        self._files: Files = rewriter.files
        self._layout = rewriter.files.layout
        self._cursor: duckdb.DuckDBPyConnection = rewriter.database.cursor()
        self._schemas = {spec.source_alias: source, spec.target_alias: self._layout.schema}
        self._source = Renamed("source", source.names)
        self._old = Renamed("old", self._layout.schema.names)
        self._read = Renamed("read", self._layout.schema.names)
        self.table = self._layout.table
        #: The numbers of rows that clauses act on, and that they delete, by file: see ``counts``.
        self._hits: dict[int, int] = {}
        self._deleted: dict[int, int] = {}

    def load(self, tap: Tap) -> None:
        """Store the source: it is read more than once, and may be a stream."""
        self._cursor.register("__lakevilla_stream", tap.reader)
        self._cursor.execute("CREATE TEMP TABLE source AS SELECT * FROM __lakevilla_stream")

    def pair(self) -> None:
        """Create tables ``pairs`` (target row, source row, clause or NULL) and ``actions``."""
        sweeps = bool(self._clauses("not_matched_by_source_"))
        files, deleted = self._files, self._files.deleted
        late = deleted.positions if not deleted.equality and _is_plain(self._spec) else None
        if late is not None:
            # Few rows have a match: to look for deleted ones among these takes less time.
            files = replace(files, deleted=Deleted(few=deleted.few))
        target = files.bind(self._cursor)
        pair = [f"({target}) AS t", "source AS s"]
        if self._source_is_larger():
            pair.reverse()
        self._cursor.execute(
            f"CREATE TEMP TABLE pairs AS SELECT t.{FILE} AS file, t.{ROW} AS row, "
            f"s.{_SOURCE} AS source, {self._choice('matched_')} AS clause "
            f"FROM {pair[0]} JOIN {pair[1]} ON {self._sql(self._spec.on)}"
        )
        if late is not None:
            self._cursor.register("__lakevilla_late", late)
            self._cursor.execute(
                "DELETE FROM pairs WHERE (file, row) IN (SELECT (file, row) FROM __lakevilla_late)"
            )
        self._cursor.execute(
            f"CREATE TEMP {'TABLE' if sweeps else 'VIEW'} actions AS "
            "SELECT file, row, source, clause FROM pairs WHERE clause IS NOT NULL"
        )
        if sweeps:
            self._cursor.execute(
                "INSERT INTO actions SELECT * FROM ("
                f"SELECT t.{FILE} AS file, t.{ROW} AS row, NULL AS source, "
                f"{self._choice('not_matched_by_source_')} AS clause FROM ({target}) AS t "
                f"ANTI JOIN pairs AS p ON p.file = t.{FILE} AND p.row = t.{ROW}) "
                "WHERE clause IS NOT NULL"
            )

    def _source_is_larger(self) -> bool:
        """Return whether the hash table should be built of the target, the smaller side."""
        ((rows,),) = self._cursor.execute("SELECT count(*) FROM source").fetchall()
        return int(rows) * _ROW_BYTES > self._files.bytes()

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of target rows to update, to delete, and matched by the source.

        Raise if two source rows act on one target row: their order would decide.
        """
        with translated(self.table):
            ((matched, most),) = self._cursor.execute(
                "SELECT count(*), max(acting) FROM "
                "(SELECT count(clause) AS acting FROM pairs GROUP BY file, row)"
            ).fetchall()
        if matched and most > 1:
            self._refuse_ambiguous()
        with translated(self.table):
            acting = self._cursor.execute(
                "SELECT file, clause, count(*) FROM actions GROUP BY file, clause"
            ).fetchall()
        updated = 0
        for file, clause, rows in acting:
            is_delete = self._spec.clauses[clause].kind in _DELETES
            updated += 0 if is_delete else rows
            self._hits[file] = self._hits.get(file, 0) + rows
            self._deleted[file] = self._deleted.get(file, 0) + (rows if is_delete else 0)
        return updated, sum(self._deleted.values()), int(matched)

    def _refuse_ambiguous(self) -> NoReturn:
        with translated(self.table):
            ((pair,),) = self._cursor.execute(
                "SELECT list(source)[1:2] FROM actions WHERE source IS NOT NULL "
                "GROUP BY file, row HAVING count(*) > 1 LIMIT 1"
            ).fetchall()
            rows = self._cursor.execute(
                # Use a name that no column has: by a column's name, only that column would be
                # shown.
                "SELECT left(CAST(__lakevilla_row AS VARCHAR), 120) FROM "
                f"(SELECT * EXCLUDE ({_SOURCE}) FROM source "
                f"WHERE {_SOURCE} IN ({pair[0]}, {pair[1]})) AS __lakevilla_row"
            ).fetchall()
        raise InvalidOperation(
            f"table {self.table}: two source rows of the merge match one target row: "
            f"{' and '.join(row[0] for row in rows)}; make the source unique in the columns "
            "of the merge condition",
            table=self.table,
        )

    def matched_sources(self) -> np.ndarray:
        """Return the numbers of the source rows that match a target row."""
        with translated(self.table):
            found = self._cursor.execute("SELECT DISTINCT source FROM pairs").fetchnumpy()
        return np.asarray(found["source"], np.int64)

    def rewrite_hits(self) -> Program[Rewrite]:
        """Rewrite the files with an updated or a deleted row; drop those without any other row."""
        rewriter, cursor, deleted = self._rewriter, self._cursor, self._deleted
        if not self._hits:
            return Rewrite()
        hit = self._files.only(sorted(self._hits))
        marked = self._marked(self._hits)
        whole = hit.only(i for i in hit.chosen if i not in marked)
        totals = rewriter.counted(cursor, whole) if any(deleted.values()) else {}
        partial = hit.only(i for i in whole.chosen if not deleted[i] or deleted[i] < totals[i])
        moved = partition_columns(self._layout)
        moves = any(
            not moved.isdisjoint(clause.assignments)
            for clause in self._spec.clauses
            if clause.kind in _UPDATES
        )
        written = yield from rewriter.rewrite(cursor, partial, self._rewritten, moves=moves)
        only_hits = partial_of(self._rewritten, only_hits=True)
        written += yield from rewriter.moved(cursor, marked, only_hits)
        return Rewrite(
            written=written,
            removed=rewriter.removed(hit.chosen),
            rows_copied=rewriter.writer.rows_written,
        )

    def _marked(self, hits: dict[int, int]) -> dict[int, npt.NDArray[np.int64]]:
        """Return the rows to be marked as deleted, of the files that stay."""
        files = self._rewriter.to_mark(hits, "merge")
        if not files:
            return {}
        chosen = ", ".join(map(str, files))
        sql = f"SELECT file, row FROM actions WHERE file IN ({chosen})"
        return self._rewriter.placed(self._cursor, sql)

    def insert(self) -> Program[Rewrite]:
        """Write the source rows that match no target row and to which a clause applies."""
        if not self._clauses("not_matched_insert"):
            return Rewrite()
        writer = self._rewriter.inserts
        before = writer.rows_written
        sql = self._rewriter.guarded(self._inserted())
        names = name_list(writer.schema.names)
        batches = writer.stream(self._cursor, f"SELECT {names} FROM ({sql})")
        written = yield from writer.rows(batches)
        return Rewrite(written=written, rows_inserted=writer.rows_written - before)

    def record(self) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        """Write change files of all changes of the merge."""
        return (yield from self._rewriter.record(self._cursor, self._recorded))

    def _recorded(self) -> str:
        names = name_list(self._layout.schema.names)
        hits = self._acted(self._files.only(sorted(self._hits)))
        updates, deletes = self._numbers(_UPDATES), self._numbers(_DELETES)
        parts = [
            f"SELECT {self._old.back()}, CASE WHEN {_CLAUSE} IN {deletes} THEN 'delete' "
            f"ELSE 'update_preimage' END AS _change_type {hits} WHERE {_CLAUSE} IS NOT NULL",
            f"SELECT {self._updated_columns()}, 'update_postimage' AS _change_type {hits} "
            f"WHERE {_CLAUSE} IN {updates}",
        ]
        if self._clauses("not_matched_insert"):
            parts.append(f"SELECT {names}, 'insert' AS _change_type FROM ({self._inserted()})")
        return " UNION ALL ".join(parts)

    def _rewritten(self, files: Files, *, only_hits: bool = False) -> str:
        changed = f"{_CLAUSE} IS NOT NULL"
        values = self._updated_columns(only_hits=only_hits)
        rows = (
            f"FROM (SELECT {self._source.of('s')}, s.{_CLAUSE} FROM ({self._acting(files)}) AS s)"
            if only_hits and not self._reads_target()
            else self._acted(files)
        )
        return self._rewriter.guarded(
            f"SELECT {values}{updated_lineage(self._layout, changed)}, "
            f"{changed} AS {HIT} {rows} "
            f"WHERE {_CLAUSE} IS NULL OR {_CLAUSE} NOT IN {self._numbers(_DELETES)}"
        )

    def _acted(self, files: Files) -> str:
        """Return a FROM clause: rows, renamed, with the source row and clause acting on them."""
        columns = f"{self._old.of('t')}, {self._read.of('t')}, {self._source.of('s')}"
        return (
            f"FROM (SELECT {columns}, {lineage_of(self._layout, 't')}s.{_CLAUSE} AS {_CLAUSE} "
            f"FROM ({files.bind(self._cursor, lineage=True)}) AS t "
            f"LEFT JOIN ({self._acting(files)}) AS s "
            f"ON s.{FILE} = t.{FILE} AND s.{ROW} = t.{ROW})"
        )

    def _acting(self, files: Files) -> str:
        """Return the source rows that act on rows of some files, with their places and clauses."""
        chosen = ", ".join(map(str, files.chosen)) or "-1"
        # Hash tables hold the actions of these files alone, not the whole source.
        return (
            f"SELECT s.*, a.file AS {FILE}, a.row AS {ROW}, a.clause AS {_CLAUSE} "
            f"FROM source AS s RIGHT JOIN (SELECT * FROM actions WHERE file IN ({chosen})) AS a "
            f"ON s.{_SOURCE} = a.source"
        )

    def _updated_columns(self, *, only_hits: bool = False) -> str:
        """Return the new values; where a clause acts on each row, only those that stay are read.

        A key is not read, either: the source has it.
        """
        keys = self._keys() if only_hits else {}

        def otherwise(name: str) -> str:
            if only_hits and self._is_set(name):
                return "NULL"
            return self._source[keys[name]] if name in keys else self._old[name]

        return ", ".join(
            self._cases(name, _UPDATES, otherwise=otherwise(name))
            for name in self._layout.schema.names
        )

    def _is_set(self, name: str) -> bool:
        """Return whether each update sets a column."""
        return all(name in one.assignments for one in self._spec.clauses if one.kind in _UPDATES)

    def _reads_target(self) -> bool:
        """Return whether the new values of a row on which a clause acts depend on the row."""
        keys = self._keys()
        if self._layout.lineage or any(
            name not in keys and not self._is_set(name) for name in self._layout.schema.names
        ):
            return True
        return any(
            column.table == self._spec.target_alias
            for clause in self._spec.clauses
            if clause.kind in _UPDATES
            for value in clause.assignments.values()
            for column in columns(value)
        )

    def _keys(self) -> dict[str, str]:
        """Return the columns that are the same as one of the source in each row with a clause, and
        that one.
        """
        if self._clauses("not_matched_by_source_"):
            return {}
        source, target = (
            self._schemas[alias] for alias in (self._spec.source_alias, self._spec.target_alias)
        )
        found: dict[str, str] = {}
        terms = [self._spec.on]
        while terms:
            term = terms.pop()
            if not isinstance(term, Call):
                continue
            if term.name == "and":
                terms += term.args
            columns = {arg.table: arg.path for arg in term.args if isinstance(arg, Column)}
            if (
                term.name not in ("=", "<=>")
                or len(columns) != 2
                or any(len(path) > 1 for path in columns.values())
            ):
                continue
            ((name,), (other,)) = columns[self._spec.target_alias], columns[self._spec.source_alias]
            if _is_same(target.field(name).type, source.field(other).type):
                found[name] = other
        return found

    def _inserted(self) -> str:
        columns = ", ".join(
            self._cases(name, ("not_matched_insert",), otherwise="NULL")
            for name in self._layout.schema.names
        )
        choice = self._choice("not_matched_insert")
        return (
            f"SELECT {columns}, true AS {HIT} FROM ("
            f"SELECT {self._source.of('s')}, {choice} AS {_CLAUSE} FROM source AS s "
            f"ANTI JOIN pairs AS p ON p.source = s.{_SOURCE}) WHERE {_CLAUSE} IS NOT NULL"
        )

    def _cases(self, name: str, kinds: tuple[str, ...], *, otherwise: str) -> str:
        kind = sql_type(self._layout.schema.field(name).type)
        branches = " ".join(
            f"WHEN {number} THEN CAST({self._assigned(c.assignments[name])} AS {kind})"
            for number, c in enumerate(self._spec.clauses)
            if c.kind in kinds and name in c.assignments
        )
        value = f"CASE {_CLAUSE} {branches} ELSE {otherwise} END" if branches else otherwise
        return f"CAST({value} AS {kind}) AS {quote_name(name)}"

    def _choice(self, prefix: str) -> str:
        """Return the number of the first clause of a kind whose predicate is true; else NULL."""
        branches = " ".join(
            f"WHEN {'true' if c.predicate is None else self._sql(c.predicate)} THEN {number}"
            for number, c in self._clauses(prefix)
        )
        return f"CAST(CASE {branches} END AS INTEGER)" if branches else "CAST(NULL AS INTEGER)"

    def _clauses(self, prefix: str) -> list[tuple[int, MergeClause]]:
        return [(n, c) for n, c in enumerate(self._spec.clauses) if c.kind.startswith(prefix)]

    def _numbers(self, kinds: tuple[str, ...]) -> str:
        numbers = [str(n) for n, c in enumerate(self._spec.clauses) if c.kind in kinds]
        return f"({', '.join(numbers) or '-1'})"

    def _sql(self, expression: Expr) -> str:
        """Return an expression over the two sides, ``s`` and ``t``."""

        def column(path: tuple[str, ...], table: str | None) -> str:
            return column_of("s" if table == self._spec.source_alias else "t", path)

        return to_duckdb(expression, self._schemas, column=column)

    def _assigned(self, expression: Expr) -> str:
        """Return an expression over the columns as they are renamed."""

        def column(path: tuple[str, ...], table: str | None) -> str:
            side = self._source if table == self._spec.source_alias else self._read
            return side.field(path)

        return to_duckdb(expression, self._schemas, column=column)
