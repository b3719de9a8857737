"""Transactions as their users see them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, NoReturn, Self

import pyarrow as pa

from lakevilla.api.alteration import alteration
from lakevilla.api.arguments import (
    check_choice,
    check_columns,
    check_columns_by,
    check_number,
    check_text,
    check_views,
)
from lakevilla.api.frame import Frame
from lakevilla.api.history import bind_to_version
from lakevilla.api.merge import Merge
from lakevilla.api.parameters import parameters
from lakevilla.api.properties import PropertyValue, property_texts
from lakevilla.api.sql import run_statement
from lakevilla.api.transaction_base import Workings
from lakevilla.errors import ConflictError, InvalidOperation, LakeVillaError
from lakevilla.expressions.bind import exact
from lakevilla.expressions.tree import Call, Column, Expr
from lakevilla.formats.base import FormatName
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.view import View
from lakevilla.results import CommitResult, OperationResult
from lakevilla.sublogs.operations import Alter, Guard, MergeClauseRecord, Operation
from lakevilla.transaction.commit import commit as finish
from lakevilla.transaction.state import transaction as core
from lakevilla.transaction.verbs import optimize as optimizing
from lakevilla.transaction.verbs import save as saving
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.bind import bind_to_head, touch
from lakevilla.transaction.verbs.changes import changes_seen
from lakevilla.transaction.verbs.create_table import whole_or_not_at_all
from lakevilla.transaction.verbs.past import refuse_missing_files
from lakevilla.transaction.verbs.read_write import append, create, drop, execute, overwrite, scan
from lakevilla.transaction.verbs.take_turn import take_turn

__all__ = ["Transaction"]


class Transaction(Workings[Frame]):
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

    # -- state -------------------------------------------------------------------

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
    def lost(self) -> core.Transaction | None:
        """Its state, if it ended with ``ConflictError`` and may be run again in its place."""
        core_ = self._core
        is_lost = core_.state == "failed" and isinstance(core_.failure, ConflictError)
        return core_ if is_lost else None

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
        if self._core.key is not None:
            try:
                with self._alone():
                    # A key that is done already must be told before the body runs.
                    self._run(bind_to_head(self._core))
            except BaseException:
                self._undo()  # run again, it has places from before
                raise
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
        a failed one never will. In between another ``commit``, or ``outcome``, may
        tell: nothing but its places is given up.
        """
        state = self._core.state
        if state == "failed" or (state == "open" and not self._core.tried):
            self._undo()
        elif self._core.in_doubt:
            self.give_back()

    def _undo(self) -> None:
        """Abort because of an exception, which must not be hidden by one of ours."""
        if self._process != os.getpid():
            return  # a forked child leaves the block: nothing here is its own
        if self.keeps_place and isinstance(self._core.failure, ConflictError):
            return  # it is run again, in its place
        try:
            self.abort()
        except LakeVillaError as error:
            self._lake.log(f"could not clean up after transaction {self.id}: {error}", self.id)

    # -- order -------------------------------------------------------------------

    def take_turn(self, *tables: str) -> None:
        """Wait until it is this transaction's turn to write ``tables``; with Feature.CT.

        Called before what will be written is read, it keeps others who queue from
        changing it until the commit: reading, computing and writing then needs one
        attempt. It places one ticket a table, all in one round. Without Feature.CT it
        does nothing; nor does it hold up clients that don't queue.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The transaction is read-only.
        ConflictError
            Others went first, and have changed what this transaction has read before.
        """
        with self._alone("take_turn", tables[0] if len(tables) == 1 else None):
            self._core.check_open("take_turn")
            if not tables or not all(isinstance(table, str) for table in tables):
                raise InvalidOperation('take_turn names tables: take_turn("orders", "stock")')
            locations = list(dict.fromkeys(self._resolve(table) for table in tables))
            for location in locations:
                self._core.check_write(location, "take_turn")
            self._lake.ensure_safe_store()
            self._run(take_turn(self._core, locations))

    # -- reading -----------------------------------------------------------------

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> Frame:
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
        rows: Frame = self.scan(table, columns, where, params=params).read_all()
        return rows

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
            columns = check_columns(columns)
            predicate = self._optional_predicate(where, params)
            location = self._resolve(table)
            rows = self._run(scan(self._core, location, columns, predicate))
        return pa.RecordBatchReader.from_batches(rows.schema, self._streamed(location, rows))

    def changes(
        self,
        table: str,
        since: int,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Frame:
        """Rows changed after global version ``since``, up to the one that is bound to.

        Beside the table's columns: ``_change_type`` (``insert``, ``delete``,
        ``update_preimage``, ``update_postimage``), ``_commit_version`` (global) and
        ``_commit_timestamp``. Without Delta's change data feed a changed row is a
        ``delete`` and an ``insert``. Own changes, and other clients' that have no place in
        the lake's order yet, are not among them. Nothing that comes later conflicts with it.

        Raises
        ------
        TableNotFound, InvalidOperation
        VersionNotFound
            The history since then, or a file that tells it, is not kept any more.
        """
        with self._alone("changes", table):
            self._core.check_open("changes")
            columns = check_columns(columns)
            since = check_number("since", since)
            predicate = self._optional_predicate(where, params)
            location = self._resolve(table)
            return self._framed(
                self._run(changes_seen(self._core, location, since, columns, predicate))
            )

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
    ) -> Frame | OperationResult:
        """One SELECT (in DuckDB's dialect; in Spark's with ``spark=``), INSERT, UPDATE, DELETE or
        MERGE.

        It sees the lake's tables (``sales.orders`` is the table ``sales/orders``)
        and the frames in ``views``, nothing else: no files, no network, no
        Python variables. All rows of a table in a SELECT count as read.

        Returns
        -------
        Frame or OperationResult
        """
        with self._alone():
            self._core.check_open("sql")
            query = check_text("query", query)
        return run_statement(self, query, parameters(params), check_views(views))

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
            return self._done(append(self._core, location, reader, columns))

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
                predicate = exact(predicate, reader.schema)
            return self._done(overwrite(self._core, location, reader, predicate, columns))

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> OperationResult:
        """Set columns of the rows for which ``where`` is true.

        A ``str`` in ``assignments`` is SQL over the row's columns; any other
        value is a literal. ``where="true"`` means all rows; left out it is refused.

        Raises
        ------
        InvalidOperation
            Without ``where`` too: it must not be forgotten.
        """
        return self._update(table, assignments, where, params)

    def delete(
        self, table: str, where: str | None = None, *, params: Mapping[str, object] | None = None
    ) -> OperationResult:
        """Delete the rows for which ``where`` is true; ``"true"`` means all.

        Raises
        ------
        InvalidOperation
            Without ``where`` too: it must not be forgotten.
        """
        return self._delete(table, where, params)

    def upsert(self, table: str, data: object, keys: str | Sequence[str]) -> OperationResult:
        """Update the rows whose ``keys`` are in ``data``, insert the others.

        NULL in a key and two rows of ``data`` for one key are errors.
        """
        with self._alone("upsert", table):
            names = check_columns_by("keys", keys)
            if not names:
                raise InvalidOperation("keys names none: name at least one key column")
            location = self._written(table, "upsert")
            rows, stored = self._keyed_rows(location, data, names)
            columns = {name.lower(): name for name in rows.names}
            on: Expr | None = None
            for name in names:
                column = columns[name.lower()]
                equal = Call("=", (Column((column,), "target"), Column((column,), "source")))
                on = equal if on is None else Call("and", (on, equal))
            assert on is not None
            keyed = {name.lower() for name in names}
            every: dict[str, Expr] = {name: Column((name,), "source") for name in rows.names}
            rest = {name: value for name, value in every.items() if name.lower() not in keyed}
            clauses = [MergeClauseRecord("not_matched_insert", None, every)]
            if rest:
                clauses.insert(0, MergeClauseRecord("matched_update", None, rest))
            return self._merge(location, rows, stored, on, ("source", "target"), tuple(clauses))

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
        with self._alone("merge", table):
            source_alias = check_text("source_alias", source_alias)
            target_alias = check_text("target_alias", target_alias)
            if source_alias.lower() == target_alias.lower():
                raise InvalidOperation(f"both aliases are {source_alias!r}: choose two names")
            location = self._written(table, "merge")
            rows, stored = self._merge_rows(location, source)
            together = self._together(params)
            builder = self._merge_builder(
                table,
                location,
                rows,
                stored,
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
        format: FormatName = "delta",
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> None:
        """Create a table, with rows if data is given.

        Parameters
        ----------
        name : str
        data_or_schema : data, pyarrow.Schema or Mapping
            Data of any kind that ``append`` takes, or the columns alone: a schema, or a mapping
            of names to types as ``alter`` takes it.
        format : {"delta", "iceberg"}
        partition_by : str or sequence of str
        properties : Mapping, optional
            Values are str, bool, int, float or Decimal.

        Raises
        ------
        TableExists, InvalidOperation, UnsupportedTableFeature
        """
        check_choice("format", format, "delta", "iceberg")
        with self._alone("create_table", name):
            self._core.check_open("create_table")
            location = self._resolve(name)
            schema, source = self._schema_of(data_or_schema, name)
            partition = check_columns_by("partition_by", partition_by)
            texts = property_texts("properties", properties)
            self._lake.ensure_safe_store()
            created = create(self._core, location, schema, partition, texts, format)
            with whole_or_not_at_all(self._core, location):
                self._run(created)
                if source is not None:
                    rows, _ = self._incoming(location, source, None)
                    self._run(append(self._core, location, rows))
            self._written_down()

    def drop_table(self, name: str) -> None:
        """Take a table out of the lake; its data stays."""
        with self._alone("drop_table", name):
            location = self._written(name, "drop_table")
            self._done(drop(self._core, location))

    def alter(
        self,
        table: str,
        *,
        add_columns: pa.Schema | Mapping[str, str | pa.DataType] | None = None,
        drop_columns: Sequence[str] = (),
        rename_columns: Mapping[str, str] | None = None,
        drop_not_null: Sequence[str] = (),
        add_constraints: Mapping[str, str] | None = None,
        drop_constraints: Sequence[str] = (),
        set_properties: Mapping[str, PropertyValue] | None = None,
        unset_properties: Sequence[str] = (),
    ) -> None:
        """Change a table's schema, constraints or properties; later verbs see the new schema.

        Parameters
        ----------
        table : str
        add_columns : pyarrow.Schema or Mapping, optional
            A mapping is of names to types: pyarrow's, or text such as ``"decimal(18,2)"``,
            ``"timestamp_ntz"``, ``"array<int>"``, ``"struct<a:int,b:string>"``.
        drop_columns, drop_not_null, drop_constraints, unset_properties : sequence of str
        rename_columns : Mapping, optional
            New names by the old ones.
        add_constraints : Mapping, optional
            Rules, in SQL, by their names.
        set_properties : Mapping, optional
            Values are str, bool, int, float or Decimal.

        Raises
        ------
        TableNotFound, InvalidOperation, UnsupportedTableFeature
        """
        with self._alone("alter", table):
            request, columns = alteration(
                table,
                add_columns=add_columns,
                drop_columns=drop_columns,
                rename_columns=rename_columns,
                drop_not_null=drop_not_null,
                add_constraints=add_constraints,
                drop_constraints=drop_constraints,
                set_properties=set_properties,
                unset_properties=unset_properties,
            )
            location = self._written(table, "alter")
            self._done(execute(self._core, Alter(location, request, columns), "alter"))

    # -- ending ------------------------------------------------------------------

    def save(self) -> None:
        """Store the transaction as it is, so that ``lake.resume`` can go on with it elsewhere."""
        with self._alone():
            self._core.check_alive("save")
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
            except BaseException:
                ended = self._core.state == "failed" or self._core.in_doubt
                if ended and not self.keeps_place:
                    # Its caller may hold it for long, and nobody is to wait for it.
                    self.give_back()
                raise
            finally:
                self._lake.after_commit(self._core, publish=publish)
            return self._lake.named(result)

    def abort(self) -> None:
        """Undo everything; harmless after the end."""
        with self._alone():
            self._run(saving.forget(self._core))
            self._run(abort(self._core))

    # -- for the lake --------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether it was saved, so that another process may have resumed it."""
        return self._core.shared

    def give_back(self) -> None:
        """Give back its places and its record: it has ended, or never will."""
        try:
            self._run(saving.forget(self._core))
        except LakeVillaError as error:
            self._lake.log(f"could not clean up after transaction {self.id}: {error}", self.id)

    def state_of_lake(self, *, whole: bool = False) -> Head | None:
        """The HEAD that the transaction is bound to; ``whole``: with all tables and names."""
        with self._alone():
            self._run(bind_to_head(self._core))
            if whole:
                self._run(load_tables(self._core.head))
                self._run(load_names(self._core.head))
            return self._core.head

    def bind_to(self, version: int | None, timestamp: datetime | None) -> None:
        """Bind it for good to a global version, or to the newest at a time."""
        with self._alone():
            bind_to_version(self._lake, self._core, version, timestamp)

    @property
    def is_past(self) -> bool:
        """Whether it is bound to a global version for good."""
        return self._core.past is not None

    def refuse_missing_files(self) -> None:
        """Raise ``VersionNotFound`` if files of a past state that it has opened are gone."""
        with self._alone():
            past = self._core.past
            for location, working in self._core.tables.items():
                if past is not None:
                    view = working.view
                    self._run(refuse_missing_files(self._lake.context, past, location, view))

    def look(self, table: str) -> View:
        """A table's state without its rows: nothing becomes part of the transaction's reads."""
        with self._alone("open", table):
            location = self._resolve(table)
            self._run(touch(self._core, [location], probing=True))
            return self._core.tables[location].view

    def _optimize(
        self,
        table: str,
        where: str | None,
        target_file_size_bytes: int | None,
        z_order_by: Sequence[str],
    ) -> core.Done | None:
        """Move a table's rows into fewer files, and do nothing else; None if all are as they
        should be.
        """
        with self._alone("optimize", table):
            location = self._written(table, "optimize")
            return self._run(
                optimizing.optimize(
                    self._core,
                    location,
                    self._optional_predicate(where, None),
                    target_file_size_bytes=target_file_size_bytes,
                    z_order_by=z_order_by,
                )
            )

    def set_guard(self, table: str, on: bool) -> None:
        """Turn the writer feature ``lakevilla`` on or off."""
        with self._alone():
            location = self._written(table, "guard" if on else "unguard")
            self._done(execute(self._core, Guard(location, on), "guard"))
