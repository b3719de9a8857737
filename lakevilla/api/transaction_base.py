"""What the verbs of a transaction share: names to locations, text to trees, rows to sources."""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.api.alteration import given_schema
from lakevilla.api.arguments import check_schema_mode
from lakevilla.api.frame import Frame
from lakevilla.api.merge import Merge
from lakevilla.api.parameters import parameters
from lakevilla.arrow import input as frames
from lakevilla.engines.sql.determinism import refuse_volatile, with_fixed_time
from lakevilla.engines.sql.select import Dialect, named_parameters
from lakevilla.engines.sql.statement import Insert, Select
from lakevilla.engines.sql.statement import Merge as MergeStatement
from lakevilla.engines.staged import to_ipc
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.expressions.bind import bind, exact, exact_assignments
from lakevilla.expressions.parse import parse_predicate
from lakevilla.expressions.statement import Together
from lakevilla.expressions.tree import Expr
from lakevilla.expressions.values import literal
from lakevilla.formats.layout import Layout
from lakevilla.lake.table_log import known_tail
from lakevilla.operations.perform import read_source
from lakevilla.results import Counts, OperationResult
from lakevilla.settings import shown
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, put
from lakevilla.sublogs.operations import (
    Delete,
    InlineSource,
    MergeClauseRecord,
    QuerySource,
    Source,
    StagedSource,
    Update,
)
from lakevilla.sublogs.operations import Insert as InsertOperation
from lakevilla.sublogs.operations import Merge as MergeOperation
from lakevilla.transaction.redo.deferred import perform_deferred
from lakevilla.transaction.state import transaction as core
from lakevilla.transaction.verbs import save as saving
from lakevilla.transaction.verbs.bind import bind_to_head, take_places
from lakevilla.transaction.verbs.read_write import execute, layout_of, query
from lakevilla.transaction.verbs.replaced_tables import explain, explained

if TYPE_CHECKING:
    from lakevilla.api.lake import Lake

__all__ = ["ALTER_FIRST", "NO_COLUMNS", "TWO_ROWS", "Workings", "is_callers", "key_columns"]

T = TypeVar("T")

#: Merge sources up to this size travel in the commit object itself.
_INLINE_BYTES = 64 * 1024
_STAGED_BYTES = 64 * 1024 * 1024
NO_COLUMNS = pa.schema([])
ALTER_FIRST = "add it to the table with `alter`"
TWO_ROWS = "the data has two rows for one key; keep one of them"

#: The transactions of this process that somebody still holds, by id.
_IN_USE: WeakValueDictionary[str, Workings[Any]] = WeakValueDictionary()


def is_callers(txn_id: str) -> bool:
    """Whether the running thread was the last to use a transaction that is still open."""
    txn = _IN_USE.get(txn_id)
    return txn is not None and txn.is_open_in(threading.get_ident())


class Workings(Generic[Frame]):
    """The parts of ``Transaction`` that its users do not call.

    Every verb takes the lock (a transaction belongs to one thread at a time),
    makes programs of its arguments, and has the lake's runner carry them out.
    """

    #: Whose SQL the queries of ``sql`` are written in.
    dialect: Dialect = "duckdb"

    def __init__(
        self,
        lake: Lake,
        state: core.Transaction,
        *,
        wait: Literal["published", "decided"] = "published",
        durability: Literal["lazy", "every_op"] = "lazy",
    ) -> None:
        self._lake = lake
        self._core = state
        self._wait = wait
        self._durability = durability
        self._now: datetime | None = None
        self._merges: list[tuple[str, Merge]] = []
        #: Whether ``lake.run`` takes its places over after a conflict.
        self.keeps_place = False
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thread = 0

    def is_open_in(self, thread: int) -> bool:
        """Whether it has not ended, and ``thread`` of this process was the last to use it."""
        if (self._process, self._thread) != (os.getpid(), thread):
            return False
        return self._core.state in ("open", "failed")

    @property
    def id(self) -> str:
        self._core.told = True
        return self._core.id

    @property
    def read_only(self) -> bool:
        """Whether write verbs are refused."""
        return self._core.read_only

    # -- inside ------------------------------------------------------------------

    @contextmanager
    def _alone(self, verb: str = "", table: str | None = None) -> Generator[None]:
        if self._process != os.getpid():
            # A forked child's copy. It must not commit beside its parent, and must not undo:
            # that would delete the files which the parent goes on to commit.
            raise InvalidOperation(
                f"transaction {self.id} belongs to the process that began it, not to this forked "
                "one: begin another here, or save() it there and resume it by its id",
                txn_id=self.id,
            )
        if not self._lock.acquire(blocking=False):
            raise InvalidOperation(
                f"transaction {self.id} is in use by another thread: give each thread its own",
                txn_id=self.id,
            )
        self._thread = threading.get_ident()
        try:
            with self._placing(verb, table):
                if verb and table is not None and not isinstance(table, str):
                    raise InvalidOperation(f"a table is named by a string, not {shown(table)}")
                yield
        finally:
            _IN_USE[self._core.id] = self  # by the id that it has now
            self._lock.release()

    @contextmanager
    def _placing(self, verb: str, table: str | None) -> Generator[None]:
        """Errors from inside name the transaction, and the verb and table that they befell."""
        try:
            yield
        except LakeVillaError as error:
            error.txn_id = error.txn_id or self.id
            held = self._lake.context.held
            names = {} if held is None else held.head.names.at_hand()
            if isinstance(table, str) and error.table in (None, names.get(table)):
                is_told = error.table is not None
                error.table = table  # as the caller named it
                if isinstance(error, InvalidOperation) and not is_told:
                    told = error.message.removeprefix(f"{verb}: ")
                    error.message = f"{verb} {table}: {told}"
                    error.args = (error.message,)
            raise

    def _framed(self, rows: pa.Table) -> Frame:
        """Rows that are here, as what the lake's callers get."""
        frame: Frame = rows
        return frame

    def _run(self, program: Program[T]) -> T:
        return self._lake.runner.run(program)

    def _resolve(self, table: str) -> str:
        """The table's location by the names of the HEAD that the transaction is bound to."""
        if not self._core.through_head:
            return self._resolve_by_log(table)
        held = self._core.held or self._lake.context.held
        if held is None:
            if not self._core.read_only:
                # It makes HEAD if there is none, in the form that the store allows.
                self._lake.ensure_safe_store()
            self._run(bind_to_head(self._core))
            held = self._core.held
        names = self._lake.names(None if held is None else held.head, table)
        location = self._lake.resolve(names, table)
        if names.get(table) is not None and not self._core.bound:
            # A registered name may mean another table by now.
            self._run(bind_to_head(self._core))
            names = self._lake.names(self._core.head, table)
            location = self._lake.resolve(names, table)
        return location

    def _resolve_by_log(self, table: str) -> str:
        """The table's location for a transaction that commits by the table's own entry.

        HEAD is asked for the name, but where the name is a path whose log is known already.
        """
        context = self._lake.context
        names = self._lake.names(None if context.held is None else context.held.head, table)
        location = self._lake.resolve(names, table)
        if table in names or known_tail(context, location) is None:
            held = self._run(context.head())
            location = self._lake.resolve(
                self._lake.names(None if held is None else held.head, table), table
            )
        return location

    def _written(self, table: str, verb: str) -> str:
        self._core.check_open(verb)
        location = self._resolve(table)
        self._core.check_write(location, verb)
        self._lake.ensure_safe_store()
        self._run(take_places(self._core, [location], "append" if verb == "append" else "write"))
        return location

    def _streamed(self, location: str, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """A table's rows; that a file went with the table while they were read is a conflict."""
        try:
            yield from rows
        except (LakeVillaError, OSError) as error:
            self._run(explain(self._core, [location], error))
            raise

    def _done(self, program: Program[core.Done]) -> OperationResult:
        done = self._run(program)
        self._written_down()

        def counts() -> Counts:
            if done.deferred:
                self._perform_deferred(done)
            return done.counts

        def observe() -> None:
            counts()
            done.observed = True

        def settled() -> bool:
            return done.observed or self._core.state == "committed"

        return OperationResult(counts, observe, settled)

    def _perform_deferred(self, done: core.Done) -> None:
        """An operation that was put off is asked for its counts: it must be performed first."""
        with self._alone():
            self._core.check_open("counts")
            self._run(perform_deferred(self._core))
            if done.deferred:
                raise InvalidOperation(
                    f"counts: the operation was undone, and transaction {self.id} runs again: "
                    "look at the counts of its new run",
                    txn_id=self.id,
                )

    def _written_down(self) -> None:
        """Save after a verb, if that is due.

        A verb that raises has had no effect, so a save that fails is not the verb's failure
        unless saving each operation was asked for: then nothing can commit.
        """
        if not (self._durability == "every_op" or saving.is_due(self._core)):
            return
        try:
            self._run(saving.save(self._core))
        except StoreError as error:
            if self._durability == "every_op":
                raise self._core.fail(error) from error
            self._lake.log(f"could not save transaction {self.id} now: {error}", self.id)

    def _fixed_now(self) -> datetime:
        if self._now is None:
            self._now = datetime.fromtimestamp(self._lake.context.clock.now(), UTC)
        return self._now

    def _optional_predicate(
        self, where: str | None, params: Mapping[str, object] | None
    ) -> Expr | None:
        if where is None:
            if parameters(params):
                raise InvalidOperation("params were given without a predicate that uses them")
            return None
        return parse_predicate(where, parameters(params), self._fixed_now())

    def _together(self, params: Mapping[str, object] | None) -> Together:
        return Together(parameters(params), self._fixed_now())

    def _incoming(
        self, location: str, data: object, schema_mode: Literal["merge"] | None
    ) -> tuple[pa.RecordBatchReader, bytes | None]:
        check_schema_mode(schema_mode)
        layout = self._run(layout_of(self._core, location))
        # Looked at once: a stream begins with its first look.
        source = frames.open_data(data)

        def fitted(layout: Layout) -> pa.RecordBatchReader:
            return frames.to_reader(
                source, table=layout.table, schema=layout.schema, schema_mode=schema_mode
            )

        try:
            reader = fitted(layout)
        except InvalidOperation:
            # It may fit what others have made of the table since it was met.
            now = self._run(layout_of(self._core, location, probing=True))
            if now.schema.equals(layout.schema):
                raise
            layout = now
            reader = fitted(layout)
        wider = schema_mode == "merge" and len(reader.schema) > len(layout.schema)
        return reader, reader.schema.serialize().to_pybytes() if wider else None

    def _schema_of(self, data_or_schema: object, name: str) -> tuple[pa.Schema, object]:
        """The columns of a new table, and its rows; None for a schema alone."""
        schema = given_schema(data_or_schema)
        if schema is not None:
            return frames.schema_of(schema, table=name), None
        source = frames.open_data(data_or_schema)
        return frames.schema_of(source, table=name), source

    def _merge_rows(
        self, location: str, data: object
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        """The columns of a merge's source, and what stores its rows."""
        layout = self._run(layout_of(self._core, location, probing=True))
        rows = self._source_rows(data, layout.table, layout.schema)
        return rows.schema, lambda: self._stored_source(rows)

    def _keyed_rows(
        self, location: str, data: object, keys: Sequence[str]
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        """As ``_merge_rows``, of rows that must have a value for each key, and no key twice."""
        rows = self._materialised(location, data)
        columns = key_columns(rows.schema, keys)
        for name in columns:
            if rows[name].null_count:
                raise InvalidOperation(f"key column {name} has NULL; a key must have a value")
        if _different(rows.select(columns)) != len(rows):
            raise InvalidOperation(TWO_ROWS)
        return rows.schema, lambda: self._stored_source(rows)

    def _materialised(self, location: str, data: object) -> pa.Table:
        layout = self._run(layout_of(self._core, location, probing=True))
        source = frames.open_data(data)
        if not len(source.schema):
            return layout.schema.empty_table()  # no rows, as of an empty list: nothing to do
        frames.refuse_unknown(source.schema.names, layout.schema, layout.table, ALTER_FIRST)
        rows = self._source_rows(source, layout.table, layout.schema)
        names = {name.lower() for name in rows.schema.names}
        fields = [field for field in layout.schema if field.name.lower() in names]
        return frames.to_reader(rows, table=layout.table, schema=pa.schema(fields)).read_all()

    def _source_rows(self, data: object, name: str, like: pa.Schema = NO_COLUMNS) -> pa.Table:
        """Rows for a statement, ``name``d in messages; nulls alone take the type in ``like``."""
        rows = frames.open_data(data)
        schema = frames.schema_of(rows, table=name, like=like)
        return frames.to_reader(rows, table=name, schema=schema).read_all()

    def _merge(
        self,
        location: str,
        rows: pa.Schema,
        stored: Callable[[], Source],
        on: Expr,
        aliases: tuple[str, str],
        clauses: tuple[MergeClauseRecord, ...],
    ) -> OperationResult:
        layout = self._run(layout_of(self._core, location, probing=True))
        source_alias, target_alias = aliases
        schemas = {source_alias: rows, target_alias: layout.schema}
        condition = exact(on, schemas)
        bound = tuple(
            MergeClauseRecord(
                clause.kind,
                None if clause.predicate is None else exact(clause.predicate, schemas),
                exact_assignments(clause.assignments, layout.schema, schemas),
            )
            for clause in clauses
        )
        operation = MergeOperation(location, stored(), condition, *aliases, bound)
        return self._done(execute(self._core, operation, "merge"))

    def _merge_builder(
        self,
        table: str,
        location: str,
        rows: pa.Schema,
        stored: Callable[[], Source],
        condition: Expr,
        together: Together,
        aliases: tuple[str, str],
    ) -> Merge:
        layout = self._run(layout_of(self._core, location, probing=True))
        # What cannot mean anything is refused here, not by `execute`.
        bind(condition, {aliases[0]: rows, aliases[1]: layout.schema})

        def perform(clauses: tuple[MergeClauseRecord, ...]) -> OperationResult:
            with self._alone("merge", table):
                together.finish()
                return self._merge(location, rows, stored, condition, aliases, clauses)

        return Merge(
            source_columns=rows.names,
            target_columns=layout.schema.names,
            source_alias=aliases[0],
            parse=together.predicate,
            parse_assignments=together.assignments,
            perform=perform,
            placing=partial(self._placing, "merge", table),
        )

    # -- what sql adds to the verbs ----------------------------------------------

    def _update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: str | None,
        params: Mapping[str, object] | None,
        alias: str | None = None,
    ) -> OperationResult:
        with self._alone("update", table):
            location = self._written(table, "update")
            together = self._together(params)
            condition = together.predicate(where)
            values = together.assignments(assignments)
            together.finish()
            schema = self._run(layout_of(self._core, location, probing=True)).schema
            operation = Update(
                location,
                exact_assignments(values, schema, alias=alias),
                exact(condition, schema, alias=alias),
            )
            return self._done(execute(self._core, operation, "update"))

    def _delete(
        self,
        table: str,
        where: str | None,
        params: Mapping[str, object] | None,
        alias: str | None = None,
    ) -> OperationResult:
        with self._alone("delete", table):
            location = self._written(table, "delete")
            condition = parse_predicate(where, parameters(params), self._fixed_now())
            schema = self._run(layout_of(self._core, location, probing=True)).schema
            operation = Delete(location, exact(condition, schema, alias=alias))
            return self._done(execute(self._core, operation, "delete"))

    def _select(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> Frame:
        with self._alone():
            tables = self._sql_tables(statement, views)
            rows = {name: self._source_rows(view, name) for name, view in views.items()}
            given = {name: view.to_reader() for name, view in rows.items()}
            sql = with_fixed_time(statement.sql, self._fixed_now())
            for name, value in params.items():
                literal(value, f"parameter :{name}")  # what no column holds is no parameter
            found: Frame = self._run(query(self._core, sql, tables, given, params))
            return found

    def _sql_tables(self, statement: Select, views: Mapping[str, object]) -> dict[str, str]:
        return {name: self._resolve(name) for name in sorted(statement.tables) if name not in views}

    def _query_source(
        self,
        statement: Select,
        params: dict[str, object],
        views: Mapping[str, object],
        like: pa.Schema,
    ) -> QuerySource:
        refuse_volatile(statement.sql)
        sql = with_fixed_time(statement.sql, self._fixed_now())
        stored = {
            name: self._stored_source(self._source_rows(view, name, like))
            for name, view in views.items()
        }
        used = {
            name: literal(value)
            for name, value in params.items()
            if re.search(rf"\${name}\b", named_parameters(sql, None))
        }
        return QuerySource(sql, self._sql_tables(statement, views), used, stored)

    def _insert(
        self, statement: Insert, params: dict[str, object], views: Mapping[str, object]
    ) -> OperationResult:
        with self._alone("insert", statement.table):
            location = self._written(statement.table, "insert")
            layout = self._run(layout_of(self._core, location, probing=True))
            columns = statement.columns or tuple(layout.schema.names)
            source = self._query_source(statement.source, params, views, layout.schema)
            unused = sorted(params.keys() - source.params.keys())
            if unused:
                raise InvalidOperation(
                    f"parameters not used: {', '.join(unused)}; write :{unused[0]} "
                    "or leave them out"
                )
            operation = InsertOperation(location, columns, source)
            return self._done(execute(self._core, operation, "insert"))

    def _merge_from(
        self, statement: MergeStatement, params: dict[str, object], views: Mapping[str, object]
    ) -> Merge:
        with self._alone("merge", statement.table):
            location = self._written(statement.table, "merge")
            layout = self._run(layout_of(self._core, location, probing=True))
            source = self._query_source(statement.source, params, views, layout.schema)
            reading = read_source(self._lake.context, source, self._core.lookup)
            rows = self._run(explained(self._core, source.tables.values(), reading))
            together = self._together(params)
            together.use(source.params)
            return self._merge_builder(
                statement.table,
                location,
                rows.schema,
                lambda: source,
                together.predicate(statement.on),
                together,
                (statement.source_alias, statement.target_alias),
            )

    def _stored_source(self, rows: pa.Table) -> InlineSource | StagedSource:
        """A source that a redo, or a helper, can read again (hazard 25)."""
        if rows.nbytes <= _INLINE_BYTES:
            return InlineSource(to_ipc(rows))
        keys, counts = [], []
        for part in _parts(rows):
            # Never a name again, by another attempt or whoever resumes it: operations that
            # have their rows there may have to be redone.
            nonce = self._lake.context.ids.nonce()
            key = f"_lakevilla/txns/{self.id}/source-{nonce}.arrow"
            self._run(put(key, to_ipc(part), ANY))
            self._core.stored.append(key)
            keys.append(key)
            counts.append(part.num_rows)
        columns = rows.schema.serialize().to_pybytes()
        return StagedSource(tuple(keys), tuple(counts), columns)


def _different(keys: pa.Table) -> int:
    """How many of the rows are different by SQL: NaN equals itself, and -0.0 equals 0.0."""
    for at, column in enumerate(keys.columns):
        if pa.types.is_floating(column.type):
            zero, nan = (pa.scalar(value, column.type) for value in (0.0, math.nan))
            one = pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
            keys = keys.set_column(at, keys.schema.field(at), one)
    return int(keys.group_by(keys.column_names).aggregate([]).num_rows)


def key_columns(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    """The columns that are an upsert's keys, as they are spelled in the data."""
    columns = {name.lower(): name for name in schema.names}
    for name in keys:
        if name.lower() not in columns:
            raise InvalidOperation(f"the data has no key column {name}")
    return [columns[name] for name in dict.fromkeys(key.lower() for key in keys)]


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    count = max(1, -(-rows.nbytes // _STAGED_BYTES))
    length = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, length):
        yield rows.slice(start, length)
