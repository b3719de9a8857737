"""Transactions as their users see them."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeVar

import pyarrow as pa

from lakevilla import frames
from lakevilla.api.merge import Merge
from lakevilla.api.names import resolve
from lakevilla.api.statements import run_statement
from lakevilla.engines.repeatable import refuse_volatile, with_fixed_time
from lakevilla.engines.select import named_parameters
from lakevilla.engines.sql import Insert, Select
from lakevilla.engines.sql import Merge as MergeStatement
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.expressions.bind import bind, bind_assignments
from lakevilla.expressions.parse import parse_predicate
from lakevilla.expressions.together import Together
from lakevilla.expressions.tree import Call, Column, Expr
from lakevilla.expressions.values import literal
from lakevilla.global_log.head import Head
from lakevilla.results import CommitResult, OperationResult
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, put
from lakevilla.sublogs.operations import (
    Alter,
    Delete,
    Guard,
    InlineSource,
    MergeClauseRecord,
    Operation,
    QuerySource,
    Source,
    StagedSource,
    Update,
)
from lakevilla.sublogs.operations import Insert as InsertOperation
from lakevilla.sublogs.operations import Merge as MergeOperation
from lakevilla.transaction import core, finish, saving
from lakevilla.transaction.perform import read_source
from lakevilla.transaction.view import View

if TYPE_CHECKING:
    from lakevilla.api.lake import Lake

__all__ = ["Transaction"]

T = TypeVar("T")

#: Merge sources up to this size travel in the commit object itself.
_INLINE_BYTES = 64 * 1024
_STAGED_BYTES = 64 * 1024 * 1024


class Transaction:
    """Several reads and writes that take effect together, or not at all.

    Made by ``lake.transaction()``; commits when its ``with`` block ends well
    and undoes everything when it ends by any exception. Belongs to one thread
    at a time.

    Attributes
    ----------
    id : str
        A UUIDv7.
    result : CommitResult or None
        After the commit.
    """

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
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._sources = itertools.count()

    # -- state -------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def result(self) -> CommitResult | None:
        result = self._core.result
        return None if result is None else self._lake.named(result)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The write operations so far."""
        return tuple(done.operation for done in self._core.done)

    @property
    def through_head(self) -> bool:
        """Whether it commits by replacing HEAD, rather than by one table's own log entry."""
        return self._core.through_head

    @property
    def read_only(self) -> bool:
        """Whether write verbs are refused."""
        return self._core.read_only

    @property
    def state(self) -> str:
        """``open``, ``failed``, ``committed`` or ``aborted``."""
        return self._core.state

    def __repr__(self) -> str:
        return f"<lakevilla.Transaction {self.id} {self.state}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidOperation(
            f"transaction {self.id} cannot be pickled or copied: save() it, and resume it by its "
            "id in the other process",
            txn_id=self.id,
        )

    def __enter__(self) -> Self:
        with self._alone():
            if self._core.key is not None:
                # A key that is done already must be told before the body runs.
                self._run(self._core.bind())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._undo()
        elif self._core.state in ("open", "failed"):
            try:
                self.commit()
            except BaseException:
                self._give_up()
                raise

    def _give_up(self) -> None:
        """Undo after a commit that raised, where that is safe.

        Before its commit point was tried nothing of it can become visible, and
        a failed one never will. In between only ``outcome`` may tell, so
        nothing is touched.
        """
        state = self._core.state
        if state == "failed" or (state == "open" and not self._core.tried):
            self._undo()

    def _undo(self) -> None:
        """Abort because of an exception, which must not be hidden by one of ours."""
        if self._process != os.getpid():
            return  # a forked child leaves the block: nothing here is its own
        try:
            self.abort()
        except LakeVillaError as error:
            self._lake.log(f"could not clean up after transaction {self.id}: {error}", self.id)

    # -- reading -----------------------------------------------------------------

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.Table:
        """Rows of a table, own changes included; they become part of the transaction.

        Parameters
        ----------
        table : str
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; the narrower it is, the fewer commits conflict with it.
        params : Mapping, optional
            Values of ``:name`` in ``where``.

        Raises
        ------
        TableNotFound, InvalidOperation, ConflictError
        """
        return self.scan(table, columns, where, params=params).read_all()

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.RecordBatchReader:
        """As ``read``, streamed in bounded memory; valid until the transaction ends."""
        with self._alone("read", table):
            self._core.check_open("read")
            if isinstance(columns, str):
                raise InvalidOperation(
                    f"columns must be a list of names, not a string: pass columns=[{columns!r}]"
                )
            predicate = self._optional_predicate(where, params)
            location = self._resolve(table)
            return self._run(self._core.scan(location, columns, predicate))

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
    ) -> pa.Table | OperationResult:
        """One SELECT (in DuckDB's dialect), INSERT, UPDATE, DELETE or MERGE.

        It sees the lake's tables (``sales.orders`` is the table ``sales/orders``)
        and the frames in ``views``, nothing else: no files, no network, no
        Python variables. All rows of a table in a SELECT count as read.

        Returns
        -------
        pyarrow.Table or OperationResult
        """
        with self._alone():
            self._core.check_open("sql")
        return run_statement(self, query, dict(params or {}), dict(views or {}))

    # -- writing -----------------------------------------------------------------

    def append(
        self, table: str, data: object, *, schema_mode: Literal["merge"] | None = None
    ) -> OperationResult:
        """Add rows.

        Parameters
        ----------
        table : str
        data : Arrow, pandas or polars data, a DuckDB relation, or Python rows
            Columns match by name; only casts that lose nothing are made.
        schema_mode : {None, "merge"}
            ``"merge"`` adds columns that the table lacks.
        """
        with self._alone("append", table):
            location = self._written(table, "append")
            reader, columns = self._incoming(location, data, schema_mode)
            return self._done(self._core.append(location, reader, columns))

    def overwrite(
        self,
        table: str,
        data: object,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
        schema_mode: Literal["merge"] | None = None,
    ) -> OperationResult:
        """Replace all rows, or those for which ``where`` is true; then ``data`` must satisfy it."""
        with self._alone("overwrite", table):
            location = self._written(table, "overwrite")
            predicate = self._optional_predicate(where, params)
            reader, columns = self._incoming(location, data, schema_mode)
            if predicate is not None:
                predicate = bind(predicate, reader.schema)
            return self._done(self._core.overwrite(location, reader, predicate, columns))

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: str,
        *,
        params: Mapping[str, object] | None = None,
    ) -> OperationResult:
        """Set columns of the rows for which ``where`` is true.

        A ``str`` in ``assignments`` is SQL over the row's columns; any other
        value is a literal. ``where="true"`` means all rows.
        """
        return self._update(table, assignments, where, params)

    def delete(
        self, table: str, where: str, *, params: Mapping[str, object] | None = None
    ) -> OperationResult:
        """Delete the rows for which ``where`` is true; ``"true"`` means all."""
        return self._delete(table, where, params)

    def upsert(self, table: str, data: object, keys: str | Sequence[str]) -> OperationResult:
        """Update the rows whose ``keys`` are in ``data``, insert the others.

        NULL in a key and two rows of ``data`` for one key are errors.
        """
        names = [keys] if isinstance(keys, str) else list(keys)
        if not names:
            raise InvalidOperation(f"upsert into {table} needs at least one key column")
        with self._alone("upsert", table):
            location = self._written(table, "upsert")
            source = self._materialised(location, data)
            columns = {name.lower(): name for name in source.schema.names}
            on: Expr | None = None
            for name in names:
                column = columns.get(name.lower())
                if column is None:
                    raise InvalidOperation(
                        f"upsert into {table}: the data has no key column {name}", table=table
                    )
                if source[column].null_count:
                    raise InvalidOperation(
                        f"upsert into {table}: key column {name} has NULL; a key must have a value",
                        table=table,
                    )
                equal = Call("=", (Column((column,), "target"), Column((column,), "source")))
                on = equal if on is None else Call("and", (on, equal))
            assert on is not None
            keyed = {name.lower() for name in names}
            every: dict[str, Expr] = {
                name: Column((name,), "source") for name in source.schema.names
            }
            rest = {name: value for name, value in every.items() if name.lower() not in keyed}
            clauses = [MergeClauseRecord("not_matched_insert", None, every)]
            if rest:
                clauses.insert(0, MergeClauseRecord("matched_update", None, rest))
            if source.group_by([columns[k] for k in keyed]).aggregate([]).num_rows != len(source):
                raise InvalidOperation(
                    f"upsert into {table}: the data has two rows for one key; keep one of them",
                    table=table,
                )
            return self._merge(
                location,
                source.schema,
                lambda: self._stored_source(source),
                on,
                ("source", "target"),
                tuple(clauses),
            )

    def merge(
        self,
        table: str,
        source: object,
        on: str,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        params: Mapping[str, object] | None = None,
    ) -> Merge:
        """Describe a merge with deltalake's builder verbs; ``execute()`` performs it.

        A merge that is never executed makes the commit raise.
        """
        if source_alias == target_alias:
            raise InvalidOperation(f"merge: both aliases are {source_alias!r}: choose two names")
        with self._alone("merge", table):
            location = self._written(table, "merge")
            rows = self._source_rows(source)
            together = self._together(params)
            builder = self._merge_builder(
                table,
                location,
                rows.schema,
                lambda: self._stored_source(rows),
                together.predicate(on),
                together,
                (source_alias, target_alias),
            )
            self._merges.append((table, builder))
            return builder

    def create_table(
        self,
        name: str,
        data_or_schema: object,
        *,
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a table, with rows if data is given."""
        with self._alone("create_table", name):
            self._core.check_open("create_table")
            location = self._resolve(name)
            is_schema = isinstance(data_or_schema, pa.Schema)
            source = None if is_schema else frames.open_data(data_or_schema)
            schema = (
                frames.schema_of(data_or_schema, table=name)
                if source is None
                else frames.schema_of(source, table=name)
            )
            partition = [partition_by] if isinstance(partition_by, str) else list(partition_by)
            self._lake.ensure_safe_store()
            created = self._core.create(location, schema, partition, dict(properties or {}))
            self._run(created)
            if source is not None:
                layout = self._run(self._core.layout(location))
                reader = frames.to_reader(source, table=name, schema=layout.schema)
                self._run(self._core.append(location, reader))

    def drop_table(self, name: str) -> None:
        """Take a table out of the lake; its data stays."""
        with self._alone("drop_table", name):
            location = self._written(name, "drop_table")
            self._run(self._core.drop(location))

    def alter(
        self,
        table: str,
        *,
        add_columns: pa.Schema | None = None,
        drop_columns: Sequence[str] = (),
        rename_columns: Mapping[str, str] | None = None,
        drop_not_null: Sequence[str] = (),
        add_constraints: Mapping[str, str] | None = None,
        drop_constraints: Sequence[str] = (),
        set_properties: Mapping[str, str] | None = None,
        unset_properties: Sequence[str] = (),
    ) -> None:
        """Change a table's schema, constraints or properties; later verbs see the new schema."""
        request: dict[str, object] = {
            "drop_columns": list(drop_columns),
            "rename_columns": dict(rename_columns or {}),
            "drop_not_null": list(drop_not_null),
            "add_constraints": dict(add_constraints or {}),
            "drop_constraints": list(drop_constraints),
            "set_properties": dict(set_properties or {}),
            "unset_properties": list(unset_properties),
        }
        request = {name: value for name, value in request.items() if value}
        if not request and add_columns is None:
            raise InvalidOperation(f"alter {table}: nothing to change was given", table=table)
        with self._alone("alter", table):
            location = self._written(table, "alter")
            columns = None if add_columns is None else add_columns.serialize().to_pybytes()
            self._done(self._core.execute(Alter(location, request, columns), "alter"))

    # -- ending ------------------------------------------------------------------

    def save(self) -> None:
        """Store the transaction as it is, so that ``lake.resume`` can go on with it elsewhere."""
        with self._alone():
            self._core.check_open("save")
            self._lake.ensure_safe_store()
            self._run(saving.save(self._core))

    def commit(self) -> CommitResult:
        """Make the changes take effect.

        Raises
        ------
        ConflictError
            Another commit changed what was read: run the transaction again.
        TransactionAborted, CommitOutcomeUnknown, ForeignConflict
        """
        with self._alone():
            for table, merge in self._merges:
                if not merge.ended:
                    raise InvalidOperation(
                        f"a merge into {table} was described and never executed: call execute()",
                        table=table,
                        txn_id=self.id,
                    )
            if self._core.done:
                self._lake.ensure_safe_store()
            publish = self._wait == "published"
            try:
                result = self._run(finish.commit(self._core, publish=publish))
            finally:
                self._lake.after_commit(self._core, publish=publish)
            return self._lake.named(result)

    def abort(self) -> None:
        """Undo everything; harmless after the end."""
        with self._alone():
            self._run(saving.forget(self._core))
            self._run(self._core.abort())

    # -- for the lake --------------------------------------------------------------

    def state_of_lake(self) -> Head | None:
        """The HEAD that the transaction is bound to."""
        with self._alone():
            self._run(self._core.bind())
            return self._core.head

    def look(self, table: str) -> View:
        """A table's state without its rows: nothing becomes part of the transaction's reads."""
        with self._alone("open", table):
            location = self._resolve(table)
            self._run(self._core.touch([location], probing=True))
            return self._core.tables[location].view

    def set_guard(self, table: str, on: bool) -> None:
        """Turn the writer feature ``lakevilla`` on or off."""
        with self._alone():
            location = self._written(table, "guard" if on else "unguard")
            self._done(self._core.execute(Guard(location, on), "guard"))

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
        try:
            with self._placing(verb, table):
                yield
        finally:
            self._lock.release()

    @contextmanager
    def _placing(self, verb: str, table: str | None) -> Generator[None]:
        """Errors from inside name the transaction, and the verb and table that they befell."""
        try:
            yield
        except LakeVillaError as error:
            error.txn_id = error.txn_id or self.id
            held = self._lake.context.held
            names = {} if held is None else held.head.names
            if isinstance(table, str) and error.table in (None, names.get(table)):
                is_told = error.table is not None
                error.table = table  # as the caller named it
                if isinstance(error, InvalidOperation) and not is_told:
                    error.message = f"{verb} {table}: {error.message}"
                    error.args = (error.message,)
            raise

    def _run(self, program: Program[T]) -> T:
        return self._lake.runner.run(program)

    def _resolve(self, table: str) -> str:
        """The table's location by the names of the HEAD that the transaction is bound to."""
        held = self._core.held or self._lake.context.held
        if self._core.through_head and held is None:
            self._run(self._core.bind())
            held = self._core.held
        names = {} if held is None else held.head.names
        location = resolve(self._lake.root, names, table)
        if names.get(table) is not None and not self._core.bound:
            # A registered name may mean another table by now.
            self._run(self._core.bind())
            head = self._core.head
            location = resolve(self._lake.root, {} if head is None else head.names, table)
        return location

    def _written(self, table: str, verb: str) -> str:
        self._core.check_open(verb)
        location = self._resolve(table)
        self._core.check_write(location, verb)
        self._lake.ensure_safe_store()
        return location

    def _done(self, program: Program[core.Done]) -> OperationResult:
        done = self._run(program)
        if self._durability == "every_op" or saving.is_due(self._core):
            self._write_down()

        def observe() -> None:
            done.observed = True

        return OperationResult(lambda: done.counts, observe)

    def _write_down(self) -> None:
        """Save after a verb. A verb that raises has had no effect, so a save that fails is not
        the verb's failure unless saving each operation was asked for: then nothing can commit.
        """
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
            if params:
                raise InvalidOperation("params were given without a predicate that uses them")
            return None
        return parse_predicate(where, params, self._fixed_now())

    def _together(self, params: Mapping[str, object] | None) -> Together:
        return Together(params, self._fixed_now())

    def _incoming(
        self, location: str, data: object, schema_mode: Literal["merge"] | None
    ) -> tuple[pa.RecordBatchReader, bytes | None]:
        if schema_mode not in (None, "merge"):
            raise InvalidOperation(f"schema_mode must be None or 'merge', not {schema_mode!r}")
        layout = self._run(self._core.layout(location))
        reader = frames.to_reader(
            data, table=layout.table, schema=layout.schema, schema_mode=schema_mode
        )
        wider = schema_mode == "merge" and len(reader.schema) > len(layout.schema)
        return reader, reader.schema.serialize().to_pybytes() if wider else None

    def _materialised(self, location: str, data: object) -> pa.Table:
        layout = self._run(self._core.layout(location))
        rows = self._source_rows(data)
        names = {name.lower() for name in rows.schema.names}
        fields = [field for field in layout.schema if field.name.lower() in names]
        return frames.to_reader(rows, table=layout.table, schema=pa.schema(fields)).read_all()

    def _source_rows(self, data: object) -> pa.Table:
        rows = frames.open_data(data)
        schema = frames.schema_of(rows)
        return frames.to_reader(rows, table="source", schema=schema).read_all()

    def _merge(
        self,
        location: str,
        rows: pa.Schema,
        stored: Callable[[], Source],
        on: Expr,
        aliases: tuple[str, str],
        clauses: tuple[MergeClauseRecord, ...],
    ) -> OperationResult:
        layout = self._run(self._core.layout(location))
        source_alias, target_alias = aliases
        schemas = {source_alias: rows, target_alias: layout.schema}
        condition = bind(on, schemas)
        bound = tuple(
            MergeClauseRecord(
                clause.kind,
                None if clause.predicate is None else bind(clause.predicate, schemas),
                bind_assignments(clause.assignments, layout.schema, schemas),
            )
            for clause in clauses
        )
        operation = MergeOperation(location, stored(), condition, *aliases, bound)
        return self._done(self._core.execute(operation, "merge"))

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
        layout = self._run(self._core.layout(location))
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
        where: str,
        params: Mapping[str, object] | None,
        alias: str | None = None,
    ) -> OperationResult:
        with self._alone("update", table):
            location = self._written(table, "update")
            together = self._together(params)
            condition = together.predicate(where)
            values = together.assignments(assignments)
            together.finish()
            schema = self._run(self._core.layout(location)).schema
            operation = Update(
                location,
                bind_assignments(values, schema, alias=alias),
                bind(condition, schema, alias=alias),
            )
            return self._done(self._core.execute(operation, "update"))

    def _delete(
        self,
        table: str,
        where: str,
        params: Mapping[str, object] | None,
        alias: str | None = None,
    ) -> OperationResult:
        with self._alone("delete", table):
            location = self._written(table, "delete")
            condition = parse_predicate(where, params, self._fixed_now())
            schema = self._run(self._core.layout(location)).schema
            operation = Delete(location, bind(condition, schema, alias=alias))
            return self._done(self._core.execute(operation, "delete"))

    def _select(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Table:
        with self._alone():
            tables = self._sql_tables(statement, views)
            given = {name: self._source_rows(view).to_reader() for name, view in views.items()}
            sql = with_fixed_time(statement.sql, self._fixed_now())
            return self._run(self._core.query(sql, tables, given, params))

    def _sql_tables(self, statement: Select, views: Mapping[str, object]) -> dict[str, str]:
        return {name: self._resolve(name) for name in sorted(statement.tables) if name not in views}

    def _query_source(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> QuerySource:
        refuse_volatile(statement.sql)
        sql = with_fixed_time(statement.sql, self._fixed_now())
        stored = {
            name: self._stored_source(self._source_rows(view)) for name, view in views.items()
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
            layout = self._run(self._core.layout(location))
            columns = statement.columns or tuple(layout.schema.names)
            source = self._query_source(statement.source, params, views)
            unused = sorted(params.keys() - source.params.keys())
            if unused:
                raise InvalidOperation(
                    f"parameters not used: {', '.join(unused)}; write :{unused[0]} "
                    "or leave them out"
                )
            operation = InsertOperation(location, columns, source)
            return self._done(self._core.execute(operation, "insert"))

    def _merge_from(
        self, statement: MergeStatement, params: dict[str, object], views: Mapping[str, object]
    ) -> Merge:
        with self._alone("merge", statement.table):
            location = self._written(statement.table, "merge")
            source = self._query_source(statement.source, params, views)
            rows = self._run(read_source(self._lake.context, source, self._core.lookup))
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
            return InlineSource(_ipc(rows))
        keys = []
        for part in _parts(rows):
            key = f"_lakevilla/txns/{self.id}/source-{next(self._sources):04}.arrow"
            self._run(put(key, _ipc(part), ANY))
            self._core.stored.append(key)
            keys.append(key)
        return StagedSource(tuple(keys))


def _ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    count = max(1, -(-rows.nbytes // _STAGED_BYTES))
    length = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, length):
        yield rows.slice(start, length)
