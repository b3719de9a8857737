"""An engine that handles rows one by one, in plain Python, for tiny simulated tables.

It reads and writes real Parquet files through effects, so the simulator sees every request, and it
evaluates expressions with the reference evaluator. It holds whole files in memory and knows no
delete files, hidden partitions or change files; it refuses them by name. Where a table allows it,
it marks deleted rows in files of any size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.executor import execute

from lakevilla.clock import Clock
from lakevilla.engines.base import (
    FileNamer,
    KeptRows,
    MergeClause,
    MergeSpec,
    Refreshed,
    Rewrite,
    TableInput,
    Written,
)
from lakevilla.engines.deletes import mark, rows_marked
from lakevilla.engines.partitions import partition_directory, serialise_partition_value
from lakevilla.engines.statistics import statistics_of_table
from lakevilla.engines.zorder import boundaries, z_values
from lakevilla.errors import InvalidOperation, StoreError, UnsupportedTableFeature
from lakevilla.formats.delta.deletion_vectors import RowIndices
from lakevilla.formats.files import (
    HASH_TAG,
    ROWS_TAG,
    ChangeFile,
    DataFile,
    RemovedFile,
    data_files,
    file_key,
    removal,
)
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.evaluate import evaluate, is_true
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.types import type_name
from lakevilla.sql.expressions.values import cast_value
from lakevilla.store.base import Found
from lakevilla.store.content import HashedFile, compare, damaged, hash_of
from lakevilla.store.data_files import kept_in
from lakevilla.store.effects import Program, get, parallel
from lakevilla_testing.world.rows import Row, decode_by_id, decode_rows, encode_table


class _File(NamedTuple):
    """A file, its rows that are not deleted, their places in it, and those of deleted rows."""

    file: DataFile
    rows: list[Row]
    places: list[int]
    deleted: set[int]


P = TypeVar("P")
R = TypeVar("R")


class RowEngine:
    """An ``engines.base.Engine`` for simulated tables.

    Parameters
    ----------
    clock : Clock
        Dates the files.
    reads_by_parts : bool
        Whether clients fetch small files for it, and hold those of their own transactions; else it
        requests each file when it reads it.
    """

    def __init__(self, clock: Clock, *, reads_by_parts: bool = True) -> None:
        self._clock = clock
        self.reads_by_parts = reads_by_parts
        self._held: dict[str, bytes] = {}

    def holding(self, bodies: Mapping[str, bytes]) -> AbstractContextManager[None]:
        return kept_in(self._held, bodies)

    def write(
        self, layout: Layout, data: pa.RecordBatchReader, name: FileNamer
    ) -> Program[tuple[Written, ...]]:
        yield from ()
        # Simulated clients leave out the columns without a value.
        blank = dict.fromkeys(layout.schema.names)
        rows = [{**blank, **row} for row in data.read_all().to_pylist()]
        return self._files(layout, rows, name)

    def write_by_key(
        self,
        layout: Layout,
        data: pa.RecordBatchReader,
        key: Sequence[str],
        live: Sequence[DataFile],
        name: FileNamer,
        present: pa.Table | None = None,
    ) -> Program[Refreshed]:
        """Write one file for each row: only the embedded engine cuts files by keys."""
        yield from ()
        rows = sorted(data.read_all().to_pylist(), key=lambda row: [row[column] for column in key])
        there = {(file.tags or {}).get(ROWS_TAG): file for file in live}
        written, kept = [], []
        for row in rows:
            (made,) = self._files(layout, [row], name)
            tag = hashlib.sha256(repr([layout.physical, *row.items()]).encode()).hexdigest()
            if (file := there.pop(tag, None)) is not None:
                kept.append(file)
            else:
                file = msgspec.structs.replace(made.file, tags={ROWS_TAG: tag})
                written.append(Written(file, made.body))
        return Refreshed(tuple(written), tuple(kept))

    def scan(
        self, table: TableInput, columns: Sequence[str] | None, where: Expr | None
    ) -> Program[pa.RecordBatchReader]:
        files = yield from _read(table, self._held)
        rows = [row for one in files for row in one.rows if where is None or is_true(where, row)]
        schema = table.layout.schema
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        return pa.Table.from_pylist(rows, schema=schema).to_reader()

    def find_one(self, table: TableInput, where: Expr) -> Program[pa.RecordBatch | None]:
        rows = yield from self.scan(table, None, where)
        return next((batch.slice(0, 1) for batch in rows if batch.num_rows), None)

    @property
    def spreads(self) -> int:
        return 1

    def spread(
        self, function: Callable[[P], Program[R]], portions: Sequence[P]
    ) -> Program[list[R]]:
        found = []
        for portion in portions:
            found.append((yield from function(portion)))
        return found

    def files_read(self, table: TableInput) -> Program[list[_File]]:
        """Return files with their rows."""
        return (yield from _read(table, self._held))

    def update(
        self, table: TableInput, assignments: Mapping[str, Expr], where: Expr, name: FileNamer
    ) -> Program[Rewrite]:
        def change(row: Row) -> Row:
            return {**row, **{column: evaluate(new, row) for column, new in assignments.items()}}

        changed = _Changed(table.layout, "update")
        for one in (yield from _read(table, self._held)):
            changed.note(one, [change(r) if is_true(where, r) else r for r in one.rows])
        count = changed.count
        return self._rewrite(table.layout, changed, name, updated=count, matched=count)

    def delete(self, table: TableInput, where: Expr, name: FileNamer) -> Program[Rewrite]:
        changed = _Changed(table.layout, "delete")
        for one in (yield from _read(table, self._held)):
            changed.note(one, [None if is_true(where, row) else row for row in one.rows])
        count = changed.count
        return self._rewrite(table.layout, changed, name, deleted=count, matched=count)

    def keep(self, layout: Layout, limit_bytes: int) -> KeptRows | None:
        return None if layout.partition_by else _KeptRows(self, layout)

    def merge(
        self, table: TableInput, source: pa.RecordBatchReader, spec: MergeSpec, name: FileNamer
    ) -> Program[Rewrite]:
        files = yield from _read(table, self._held)
        merge = _Merge(table.layout, source.read_all().to_pylist(), spec)
        changed = _Changed(table.layout, "merge")
        for one in files:
            changed.note(one, [merge.target_row(row) for row in one.rows])
        inserted = list(merge.insertions())
        changed.rows += inserted
        return self._rewrite(
            table.layout,
            changed,
            name,
            updated=merge.updated,
            deleted=merge.deleted,
            inserted=len(inserted),
            matched=merge.updated + merge.deleted,
        )

    def compact(
        self, parts: Sequence[TableInput], z_order_by: Sequence[str], name: FileNamer
    ) -> Program[tuple[tuple[Written, ...], ...]]:
        made = []
        for part in parts:
            made.append((yield from self._moved(part, z_order_by, name)))
        return tuple(made)

    def _moved(
        self, table: TableInput, z_order_by: Sequence[str], name: FileNamer
    ) -> Program[tuple[Written, ...]]:
        rows = [row for one in (yield from _read(table, self._held)) for row in one.rows]
        if z_order_by and rows:
            keys = pa.Table.from_pylist(rows).select(list(z_order_by))
            places = z_values(keys, boundaries(keys)).to_pylist()
            rows = [row for _, row in sorted(zip(places, rows, strict=True), key=_place)]
        return self._files(table.layout, rows, name)

    def write_change_files(
        self, table: TableInput, change_type: Literal["insert", "delete"], name: FileNamer
    ) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        raise _unsupported(table.layout, "the change data feed")

    def matching_rows(self, table: TableInput, where: Expr) -> Program[str]:
        files = yield from _read(table, self._held)
        texts = [
            repr(list(row.values())) for one in files for row in one.rows if is_true(where, row)
        ]
        return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()

    def has_ids_of(self, table: TableInput, others: TableInput) -> Program[bool]:
        raise _unsupported(table.layout, "row tracking")

    def rows_within(self, sql: str, params: object, schemas: object) -> dict[str, Expr]:
        return {}

    def query(
        self,
        sql: str,
        tables: Mapping[str, TableInput],
        views: Mapping[str, pa.RecordBatchReader],
        params: Mapping[str, object],
    ) -> Program[pa.Table]:
        rows: dict[str, list[Row]] = {
            alias: view.read_all().to_pylist() for alias, view in views.items()
        }
        for alias, table in tables.items():
            rows[alias] = [row for one in (yield from _read(table, self._held)) for row in one.rows]
        try:
            tree = sqlglot.parse_one(sql).transform(_filled, params)
            result = execute(tree, tables=rows)
        except SqlglotError as error:
            raise InvalidOperation(
                f"the row engine can't run {sql!r}: {error}; simplify it"
            ) from None
        columns = zip(*result.rows, strict=True) if result.rows else [()] * len(result.columns)
        return pa.table(dict(zip(result.columns, map(list, columns), strict=True)))

    # ------------------------------------------------------------- writing

    def _rewrite(
        self,
        layout: Layout,
        changed: _Changed,
        name: FileNamer,
        *,
        matched: int,
        inserted: int = 0,
        updated: int = 0,
        deleted: int = 0,
    ) -> Rewrite:
        return Rewrite(
            written=(
                *mark(layout, changed.again, name),
                *self._files(layout, changed.rows, name),
            ),
            removed=tuple(changed.removed),
            rows_matched=matched,
            rows_inserted=inserted,
            rows_updated=updated,
            rows_deleted=deleted,
            rows_copied=len(changed.rows) - inserted - updated,
        )

    def _files(self, layout: Layout, rows: Sequence[Row], name: FileNamer) -> tuple[Written, ...]:
        _refuse_unknown(layout)
        for row in rows:
            _check(layout, row)
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            key = tuple(row[column] for column in layout.partition_by)
            groups.setdefault(key, []).append(row)
        return tuple(self.file_of(layout, key, group, name) for key, group in groups.items())

    def file_of(
        self, layout: Layout, key: tuple[Any, ...], rows: list[Row], name: FileNamer
    ) -> Written:
        """Make the file of a partition's rows."""
        physical = dict(zip(layout.schema.names, layout.physical, strict=True))
        known = dict(zip(layout.schema.names, layout.statistics_schema, strict=True))
        texts = [
            (
                physical[column].name,
                serialise_partition_value(
                    pa.scalar(value, layout.schema.field(column).type), column, layout.table
                ),
            )
            for column, value in zip(layout.partition_by, key, strict=True)
        ]
        columns = [c for c in layout.schema.names if c not in layout.partition_by]
        table = pa.Table.from_pylist(
            rows, schema=pa.schema([layout.schema.field(c) for c in columns])
        )
        # The fields under their physical names, and with their ids where the format has some.
        table = pa.Table.from_arrays(
            table.columns,
            schema=pa.schema(
                [
                    pa.field(c.name, c.type, metadata=c.metadata)
                    for c in (physical[name] for name in columns)
                ]
            ),
        )
        body = encode_table(table)
        file = DataFile(
            path=name("/".join(filter(None, (layout.data_directory, partition_directory(texts))))),
            size=len(body),
            modification_time=int(self._clock.now() * 1000),
            partition_values=dict(texts),
            stats=statistics_of_table(
                table, layout.statistics_columns, pa.schema([known[c] for c in columns])
            ),
            tags={HASH_TAG: hash_of(body)},
        )
        return Written(file, body)


class _KeptRows:
    """The rows of files, by their paths; as DuckDB's, only the newest of them are at hand."""

    def __init__(self, engine: RowEngine, layout: Layout) -> None:
        self._engine = engine
        self.layout = layout
        self._rows: dict[str, list[Row]] = {}
        self._newest: dict[str, DataFile] = {}

    def current(self, paths: Iterable[str]) -> set[str]:
        return self._newest.keys() & set(paths)

    def change(
        self,
        table: TableInput,
        assignments: Mapping[str, Expr] | None,
        where: Expr,
        name: FileNamer,
    ) -> Program[Rewrite | None]:
        if table.layout is not self.layout or self.layout.marks_deletes:
            return None
        paths = table.files["path"].to_pylist()
        yield from self._load(table)
        rows: list[Row] = []
        removed, hits = [], 0
        self._newest.update(zip(paths, data_files(table.files), strict=True))
        for path in paths:
            hit = [is_true(where, row) for row in self._rows[path]]
            if not any(hit):
                continue
            hits += sum(hit)
            removed.append(removal(self._newest[path]))
            for row, changes in zip(self._rows[path], hit, strict=True):
                if not changes:
                    rows.append(row)
                elif assignments is not None:
                    new = {column: evaluate(one, row) for column, one in assignments.items()}
                    rows.append({**row, **new})
        for row in rows:
            _check(self.layout, row)
        for gone in removed:
            del self._newest[gone.path]
        written = []
        if rows:
            path = name(self.layout.data_directory)
            count = f'{{"numRecords":{len(rows)}}}'
            promise = DataFile(path=path, size=1, modification_time=0, stats=count)
            self._rows[path], self._newest[path] = rows, promise
            written.append(Written(promise, promised=True))
        deleted = assignments is None
        return Rewrite(
            written=tuple(written),
            removed=tuple(removed),
            rows_matched=hits,
            rows_updated=0 if deleted else hits,
            rows_deleted=hits if deleted else 0,
        )

    def _load(self, table: TableInput) -> Program[None]:
        """Load the rows of those files that are not at hand."""
        paths = table.files["path"].to_pylist()
        fresh = [place for place, path in enumerate(paths) if path not in self._newest]
        read = TableInput(self.layout, table.files.take(pa.array(fresh, pa.int64())))
        for one in (yield from self._engine.files_read(read)):
            self._newest[one.file.path] = one.file
            self._rows[one.file.path] = one.rows

    def scan(
        self,
        table: TableInput,
        columns: Sequence[str] | None,
        where: Expr | None,
        *,
        loads: bool = False,
    ) -> Program[pa.Table | None]:
        paths = table.files["path"].to_pylist()
        if loads and table.layout is self.layout:
            yield from self._load(table)
        if table.layout is not self.layout or not self._newest.keys() >= set(paths):
            return None
        schema = self.layout.schema
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        rows = [row for path in paths for row in self._rows[path]]
        found = [row for row in rows if where is None or is_true(where, row)]
        return pa.Table.from_pylist(found, schema=schema)

    def write(self, paths: Collection[str]) -> Program[tuple[Written, ...]]:
        yield from ()
        return tuple(map(self._made, paths))

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self._newest.values())

    def renew(self) -> bool:
        self._rows = {path: self._rows[path] for path in self._newest}
        return True

    def _made(self, path: str) -> Written:
        made = self._engine.file_of(self.layout, (), self._rows[path], lambda _: path)
        if path in self._newest:
            self._newest[path] = made.file
        return made


class _Changed:
    """The files that a statement changes, and the rows that it writes for them."""

    def __init__(self, layout: Layout, statement: str) -> None:
        self._marks = statement in layout.marks_deletes
        self.count = 0
        self.removed: list[RemovedFile] = []
        self.again: list[tuple[DataFile, RowIndices]] = []
        self.rows: list[Row] = []

    def note(self, one: _File, results: Sequence[Row | None]) -> None:
        """Note what becomes of a file's rows: the same row, another one, or None."""
        hits = [new is not old for new, old in zip(results, one.rows, strict=True)]
        if not any(hits):
            return
        self.count += sum(hits)
        self.removed.append(removal(one.file))
        stays = self._marks and not all(hits)
        if stays:
            places = [place for place, hit in zip(one.places, hits, strict=True) if hit]
            deleted = np.array(sorted([*one.deleted, *places]), np.int64)
            self.again.append((one.file, deleted))
        self.rows += [
            row
            for row, hit in zip(results, hits, strict=True)
            if row is not None and (hit or not stays)
        ]


class _Merge:
    """A merge's rules, one target row at a time."""

    def __init__(self, layout: Layout, source: list[Row], spec: MergeSpec) -> None:
        self._layout = layout
        self._source = source
        self._spec = spec
        self._matched = [False] * len(source)
        self.updated = 0
        self.deleted = 0

    def target_row(self, row: Row) -> Row | None:
        """Return the result for a target row: the row itself, another one, or None."""
        spec = self._spec
        pairs = []
        for index, source in enumerate(self._source):
            both = {spec.source_alias: source, spec.target_alias: row}
            if is_true(spec.on, both):
                self._matched[index] = True
                pairs.append(both)
        if not pairs:
            both = {spec.target_alias: row}
            clause = self._clause(
                both, "not_matched_by_source_update", "not_matched_by_source_delete"
            )
            return row if clause is None else self._apply(clause, row, both)
        chosen = [
            (clause, both)
            for both in pairs
            if (clause := self._clause(both, "matched_update", "matched_delete")) is not None
        ]
        if len(chosen) > 1:
            raise InvalidOperation(
                f"merge into {self._layout.table}: {len(chosen)} source rows match one target row; "
                "make the source's keys unique",
                table=self._layout.table,
            )
        return row if not chosen else self._apply(chosen[0][0], row, chosen[0][1])

    def insertions(self) -> Iterator[Row]:
        """Yield new rows for the source rows that no target row has matched."""
        for source, matched in zip(self._source, self._matched, strict=True):
            row = {self._spec.source_alias: source}
            clause = None if matched else self._clause(row, "not_matched_insert")
            if clause is not None:
                new = {column: evaluate(e, row) for column, e in clause.assignments.items()}
                yield {column: new.get(column) for column in self._layout.schema.names}

    def _clause(self, row: Row, *kinds: str) -> MergeClause | None:
        for clause in self._spec.clauses:
            if clause.kind in kinds and (
                clause.predicate is None or is_true(clause.predicate, row)
            ):
                return clause
        return None

    def _apply(self, clause: MergeClause, row: Row, both: Row) -> Row | None:
        if clause.kind.endswith("delete"):
            self.deleted += 1
            return None
        self.updated += 1
        return {**row, **{column: evaluate(e, both) for column, e in clause.assignments.items()}}


def _read(table: TableInput, held: Mapping[str, bytes]) -> Program[list[_File]]:
    """Return the rows of each file, under their logical names, partition values filled in."""
    layout = table.layout
    _refuse_unknown(layout)
    files = sorted(data_files(table.files), key=lambda file: file.path)
    keys = [file_key(layout.location, file.path) for file in files]
    missing = [key for key in keys if key not in held]
    fetched = dict(zip(missing, (yield from parallel([get(key) for key in missing])), strict=True))
    result: list[_File] = []
    only = dict(zip(table.files["path"].to_pylist(), table.rows or (), strict=False))
    for file, key in zip(files, keys, strict=True):
        if any(one.kind == "equality" for one in file.deletes):
            raise _unsupported(layout, "deletes beside its data files")
        found = fetched.get(key)
        if key not in held and not isinstance(found, Found):
            raise StoreError(
                f"{key}, a data file of table {layout.table}, is missing; "
                "check that it was not vacuumed, then try again",
                table=layout.table,
            )
        body = found.body if isinstance(found, Found) else held[key]
        content = (file.tags or {}).get(HASH_TAG)
        if table.verify and content is not None:
            hashed = HashedFile(key, file.size, content, layout.table)
            wrong = compare(hashed, len(body), hash_of(body))
            if wrong is not None:
                raise damaged(hashed, wrong)
        rows = _logical(layout, file, body)
        deleted = set(map(int, (yield from rows_marked(layout, file))))
        chosen = range(len(rows)) if table.rows is None else only[file.path]
        places = [place for place in chosen if place not in deleted]
        result.append(_File(file, [rows[place] for place in places], places, deleted))
    return result


def _place(pair: tuple[int, Row]) -> int:
    return pair[0]


def _logical(layout: Layout, file: DataFile, body: bytes) -> list[Row]:
    rows: Sequence[Row] = decode_rows(body)
    if layout.by_field_id:
        own = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in layout.physical}
        rows = [{own[n]: row[n] for n in row if n in own} for row in decode_by_id(body)]
    names = list(zip(layout.schema, layout.physical.names, strict=True))
    constants = {
        field.name: _partition_value(field, file.partition_values.get(name))
        for field, name in names
        if field.name in layout.partition_by
    }
    return [
        {field.name: constants.get(field.name, row.get(name)) for field, name in names}
        for row in rows
    ]


def _partition_value(field: pa.Field, text: str | None) -> Any:
    # An empty string means NULL in partition values of every type.
    return None if not text else cast_value(text, type_name(field.type))


def _refuse_unknown(layout: Layout) -> None:
    if layout.partition_fields:
        raise _unsupported(layout, "hidden partitions")
    if layout.change_data_feed:
        raise _unsupported(layout, "the change data feed")


def _unsupported(layout: Layout, what: str) -> UnsupportedTableFeature:
    return UnsupportedTableFeature(
        f"table {layout.table} uses {what}, which the row engine does not know: "
        "use the DuckDB engine",
        table=layout.table,
    )


def _check(layout: Layout, row: Row) -> None:
    for field in layout.schema:
        if not field.nullable and row.get(field.name) is None:
            raise InvalidOperation(
                f"column {field.name} of table {layout.table} is not null, and a row has none "
                f"there: {json.dumps(dict(row), default=str)}; give it a value",
                table=layout.table,
            )
    for constraint in layout.constraints:
        if not is_true(constraint.expression, row):
            raise InvalidOperation(
                f"a row breaks constraint {constraint.name} ({constraint.sql}) of table "
                f"{layout.table}: {json.dumps(dict(row), default=str)}; leave it out or change it",
                table=layout.table,
            )


def _filled(node: exp.Expr, params: Mapping[str, object]) -> exp.Expr:
    if isinstance(node, exp.Placeholder) and node.name in params:
        return exp.convert(params[node.name])
    return node
