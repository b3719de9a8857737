"""Transactions, for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import ClassVar, Literal, NoReturn, Self

import pyarrow as pa

from lakevilla.api.alteration import alteration
from lakevilla.api.applying.states import AppliesStates
from lakevilla.api.arguments import (
    Hinted,
    PropertyValue,
    check_choice,
    check_columns_by,
    check_flag,
    check_mode,
    check_text,
    property_texts,
)
from lakevilla.api.border import with_border
from lakevilla.api.client.discovering import ref_of
from lakevilla.api.client.names import refuse_outside
from lakevilla.api.execution.replacing import place_of, replace_table
from lakevilla.api.execution.sources import identifier
from lakevilla.api.execution.views import refuse_kind
from lakevilla.api.frame import Frame
from lakevilla.api.merge import Described, MergeBuilder, PlannedMerge, set_from
from lakevilla.api.reads import Reads
from lakevilla.api.run import naming_writers
from lakevilla.display import table_html
from lakevilla.engines.base import MergeClause
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.lake.operations.refresh import refresh_key
from lakevilla.lake.tables.dotted_names import path_of
from lakevilla.results import CommitResult, OperationResult
from lakevilla.sql.expressions.assignments import spelled
from lakevilla.sql.expressions.bind import Predicate, exact
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sublogs.describe import describe
from lakevilla.sublogs.operations import Alter, Operation
from lakevilla.transaction.verbs.begin import take_turn
from lakevilla.transaction.verbs.catalog.names import rename
from lakevilla.transaction.verbs.create_table import whole_or_not_at_all
from lakevilla.transaction.verbs.read_write import append, create, drop, execute, overwrite, refresh

__all__ = ["Transaction"]


@with_border
class Transaction(Reads[Frame], AppliesStates[Frame], Hinted):
    """Several reads and writes that take effect together, or not at all.

    ``lake.transaction()`` returns one. It commits when its ``with`` block ends normally, and
    undoes everything if the block raises an exception. Use it in one thread at a time.

    Examples
    --------
    >>> with lake.transaction() as txn:
    ...     _ = txn.update("stock", {"qty": "qty - :n"}, where="sku = 'tea'", params={"n": 1})
    ...     _ = txn.append("orders", [{"id": 2, "sku": "tea"}])
    >>> txn.state, sorted(txn.result.versions)
    ('committed', ['orders', 'stock'])
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {
        "insert": "append() adds rows, and upsert() replaces those of the same key",
        "rollback": "abort() undoes the transaction",
    }

    # -- state -------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id of the transaction, a UUIDv7."""
        return self._executor.id

    @property
    def result(self) -> CommitResult | None:
        """The result of the commit; None before the commit, or if nothing was committed."""
        return self._executor.result

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The number of write operations so far."""
        return tuple(done.operation for done in self._executor.state.work.done)

    @property
    def state(self) -> str:
        """``open``, ``failed``, ``committed`` or ``aborted``."""
        return self._executor.state.state.value

    def __repr__(self) -> str:
        count = len(self._executor.state.work.done)
        did = f", {count} write{'' if count == 1 else 's'}" if count else ""
        where = ref_of(self._executor.client)
        return f"<lakevilla.Transaction {self.id}{where} {self.state}{did}>"

    def _repr_html_(self) -> str:
        names = self._executor.shown_names()
        done = self._executor.state.work.done
        read = {location for location, _ in self._executor.state.work.reads}
        rows: list[tuple[object, ...]] = [
            (names.get(one.table, one.table), *describe([one.operation])) for one in done
        ]
        rows += [(names.get(location, location), "read", None) for location in sorted(read)]
        return table_html(repr(self).strip("<>"), ("table", "operation", ""), rows)

    def __reduce__(self) -> NoReturn:
        raise InvalidOperation(
            f"transaction {self.id} cannot be pickled or copied: save() it, and resume it by its "
            "id in the other process",
            txn_id=self.id,
        )

    def __enter__(self) -> Self:
        self._executor.state.check_alive("with")
        self._executor.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with naming_writers(self._executor.client):
            self._executor.__exit__(kind, error, trace)

    # -- order -------------------------------------------------------------------

    def take_turn(self, *tables: str) -> None:
        """Wait until it is this transaction's turn to write ``tables``; with Feature.CT.

        Call it before you read the data that you will write. Other transactions with Feature.CT
        then can't change that data until the commit, so reading, computing and writing needs one
        attempt. It stores one ticket per table, all in one round. Without Feature.CT it does
        nothing. Clients that don't queue are not delayed.

        Parameters
        ----------
        *tables : str
            All tables that the transaction is going to write.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The transaction is read-only.
        ConflictError
            Other transactions went first, and changed data that this transaction had read before.
        """
        executor = self._executor
        with executor.verb_scope("take_turn", tables[0] if len(tables) == 1 else None):
            executor.state.check_open("take_turn")
            if not tables or not all(isinstance(table, str) for table in tables):
                raise InvalidOperation('take_turn names tables: take_turn("orders", "stock")')
            locations = list(dict.fromkeys(executor.resolve(table) for table in tables))
            for location in locations:
                executor.state.check_write(location, "take_turn")
            executor.client.ensure_safe_store()
            executor.run(take_turn(executor.state, locations))

    # -- writing -----------------------------------------------------------------

    def append(
        self, table: str, data: object, *, schema_mode: Literal["merge"] | None = None
    ) -> OperationResult:
        """Add rows.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        data : Arrow, pandas or polars data, a DuckDB relation, Python rows, or a generator
            Columns match by name, and only casts that lose nothing are made. A generator yields
            dicts (one per row), or batches and frames. If it raises an error, you get that
            error and nothing is written.
        schema_mode : {None, "merge"}
            ``"merge"`` adds columns that the table does not have, and fields within structs, lists
            and maps.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The rows don't fit the table, or break one of its constraints.
        """
        executor = self._executor
        with executor.verb_scope("append", table):
            location = executor.begin_write(table, "append")
            check_mode("schema_mode", schema_mode, "merge")
            layout = executor.bind(location)
            reader, columns = executor.incoming(location, layout, data, schema_mode)
            return executor.run_verb(append(executor.state, location, reader, columns))

    def overwrite(
        self,
        table: str,
        data: object,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
        schema_mode: Literal["merge", "overwrite"] | None = None,
        partitions: Literal["dynamic"] | None = None,
        reuse_by: Sequence[str] | None = None,
    ) -> OperationResult:
        """Replace all rows, those for which ``where`` is true, or those of some partitions.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        data : data
            Any data that ``append`` takes.
        where : str, optional
            A predicate for the rows that are replaced; each row of ``data`` must satisfy it.
        params : Mapping, optional
            Values of ``:name`` in the SQL.
        schema_mode : {None, "merge", "overwrite"}
            ``"merge"`` adds columns that the table does not have, and fields within structs, lists
            and maps. ``"overwrite"`` replaces all
            rows, and gives the table exactly the columns of ``data``. A column with the same
            name and type keeps its rules and its field id. Columns that partitions, a
            constraint or a sort order use can't be removed.
        partitions : {None, "dynamic"}
            ``"dynamic"`` replaces the partitions that have rows in ``data``, and keeps the
            others. The table must be partitioned by plain columns.
        reuse_by : sequence of str, optional
            Columns that identify each row. All rows are replaced, and files whose rows have not
            changed since the last overwrite with ``reuse_by`` stay: they are neither uploaded,
            added nor removed, and the counts of the result leave them out.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The rows don't fit the table, ``where`` is not true for one of them, the table has no
            partitions by plain columns, or ``reuse_by`` does not identify its rows.
        """
        executor = self._executor
        with executor.verb_scope("overwrite", table):
            check_mode("schema_mode", schema_mode, "merge", "overwrite")
            check_mode("partitions", partitions, "dynamic")
            if partitions is not None and where is not None:
                raise InvalidOperation(
                    "partitions='dynamic' says which rows are replaced, and so does where: choose "
                    "one"
                )
            replaces = schema_mode == "overwrite"
            if replaces and not (partitions is None and where is None):
                raise InvalidOperation(
                    "schema_mode='overwrite' replaces all rows: leave where and partitions out"
                )
            if reuse_by is not None and not (partitions is None and where is None):
                raise InvalidOperation(
                    "reuse_by replaces all rows and keeps files without changes: leave where and "
                    "partitions out"
                )
            location = executor.begin_write(table, "overwrite")
            predicate = executor.optional_predicate(where, params, table)
            columns: bytes | None
            if schema_mode == "overwrite":
                reader, columns = executor.replacing(location, data)
            else:
                layout = executor.bind(location)
                reader, columns = executor.incoming(location, layout, data, schema_mode)
            if predicate is not None:
                predicate = exact(predicate, reader.schema)
            if reuse_by is not None:
                key = refresh_key(reader.schema, reuse_by, table)
                state = executor.state
                return executor.run_verb(
                    refresh(state, location, reader, key, columns, replaces_schema=replaces)
                )
            program = overwrite(
                executor.state,
                location,
                reader,
                predicate,
                columns,
                replaces_schema=replaces,
                by_partition=partitions is not None,
            )
            return executor.run_verb(program)

    def update(
        self,
        table: str,
        assignments: Mapping[str, object],
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> OperationResult:
        """Set columns of the rows for which ``where`` is true.

        A ``str`` in ``assignments`` is SQL over the row's columns; any other value is a literal. A
        mapping is a literal of a struct or a map. ``"s.a"`` names a field of a struct: its other
        fields stay unchanged. Where the struct is NULL, it becomes one whose other fields are NULL.
        ``where="true"`` means all rows; ``where`` is required.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        assignments : Mapping
            For each column, or field of a struct, SQL text or a value. A column name with a dot is
            written in double quotes or backticks if it could also mean such a field.
        where : str
            A predicate; with ``spark=`` also a ``Column`` of Spark, as in ``assignments``.
        params : Mapping, optional
            Values of ``:name`` in the SQL.

        Raises
        ------
        InvalidOperation
            Also if ``where`` is missing, so that it can't be forgotten.
        """
        return self._executor.update(table, assignments, where, params)

    def delete(
        self,
        table: str,
        where: Predicate | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> OperationResult:
        """Delete the rows for which ``where`` is true; ``"true"`` means all.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        where : str
            A predicate; with ``spark=`` also a ``Column`` of Spark.
        params : Mapping, optional
            Values of ``:name`` in the SQL.

        Raises
        ------
        InvalidOperation
            Also if ``where`` is missing, so that it can't be forgotten.
        """
        return self._executor.delete(table, where, params)

    def upsert(
        self,
        table: str,
        data: object,
        keys: str | Sequence[str] | None = None,
        *,
        schema_mode: Literal["merge"] | None = None,
    ) -> OperationResult:
        """Update the rows whose ``keys`` are in ``data``, and insert the others.

        A NULL in a key, and two rows of ``data`` with the same key, are errors. Columns and struct
        fields that ``data`` lacks stay unchanged in the updated rows. Lists and maps are replaced.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        data : data
            Any data that ``append`` takes.
        keys : str or sequence of str, optional
            Columns that identify a row. Default: an Iceberg table's identifier fields.
        schema_mode : {None, "merge"}
            ``"merge"`` adds columns, and fields within columns, that the table does not have.

        Raises
        ------
        TableNotFound, InvalidOperation
        """
        executor = self._executor
        with executor.verb_scope("upsert", table):
            check_mode("schema_mode", schema_mode, "merge")
            widens = schema_mode is not None
            named = None if keys is None else check_columns_by("keys", keys)
            if named is not None and not named:
                raise InvalidOperation("keys is empty: name at least one key column")
            location = executor.begin_write(table, "upsert")
            layout = executor.bind(location, probing=True)
            names = identifier(layout) if named is None else named
            rows, stored = executor.keyed_rows(layout, data, names, widens=widens)
            columns = {name.lower(): name for name in rows.names}
            on: Expr | None = None
            for name in names:
                column = columns[name.lower()]
                equal = Call("=", (Column((column,), "target"), Column((column,), "source")))
                on = equal if on is None else Call("and", (on, equal))
            assert on is not None
            keyed = {name.lower() for name in names}
            every: dict[str, Expr] = {
                spelled((name,)): Column((name,), "source") for name in rows.names
            }
            rest = {
                spelled((field.name,)): set_from(field, field.name, rows, ("source", "target"))
                for field in rows
                if field.name.lower() not in keyed
            }
            clauses = [MergeClause("not_matched_insert", None, every)]
            if rest:
                clauses.insert(0, MergeClause("matched_update", None, rest))
            merge = PlannedMerge(location, rows, stored, on, ("source", "target"), widens)
            return executor.merge(merge, tuple(clauses))

    def merge(
        self,
        table: str,
        source: object,
        on: Predicate,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        params: Mapping[str, object] | None = None,
        schema_mode: Literal["merge"] | None = None,
    ) -> MergeBuilder:
        """Describe a merge with deltalake's builder verbs; ``execute()`` performs it.

        If a merge is never executed, the commit raises an error.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        source : data
            Any data that ``append`` takes.
        on : str
            A predicate over columns of the table and the source: ``"target.id = source.id"``.
        source_alias, target_alias : str
            The names of the source and of the table in SQL.
        params : Mapping, optional
            Values of ``:name`` in the SQL.
        schema_mode : {None, "merge"}
            ``"merge"`` adds columns that the clauses set and the table does not have, and fields
            that the source's structs have in addition, in columns that the clauses set.

        Raises
        ------
        TableNotFound, InvalidOperation
        """
        executor = self._executor
        with executor.verb_scope("merge", table):
            check_mode("schema_mode", schema_mode, "merge")
            if on is None:
                raise InvalidOperation(
                    "a merge needs the predicate on: "
                    f'on="{target_alias}.id = {source_alias}.id", by columns of both'
                )
            source_alias = check_text("source_alias", source_alias)
            target_alias = check_text("target_alias", target_alias)
            if source_alias.lower() == target_alias.lower():
                raise InvalidOperation(f"both aliases are {source_alias!r}: choose two names")
            location = executor.begin_write(table, "merge")
            layout = executor.bind(location, probing=True)
            rows, stored = executor.merge_rows(layout, source, widens=schema_mode is not None)
            aliases = source_alias, target_alias
            foreign = executor.foreign_of_merge(location, source, rows, aliases)
            texts = executor.together(params, foreign)
            widens = schema_mode is not None
            condition = texts.predicate(on)
            merge = PlannedMerge(location, rows, stored, condition, aliases, widens)
            described = Described(table)
            builder = executor.merge_builder(described, merge, texts)
            executor.merges.append(described)
            return builder

    def create_table(
        self,
        name: str,
        data_or_schema: object,
        *,
        format: FormatName | None = None,
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, PropertyValue] | None = None,
        or_replace: bool = False,
    ) -> None:
        """Create a table, with rows if data is given.

        Parameters
        ----------
        name : str
            A path below the root: ``sales/orders``, or ``sales.orders``.
        data_or_schema : data, pyarrow.Schema or Mapping
            Any data that ``append`` takes, or only the columns: a schema, or a mapping of names
            to types as in ``alter``.
        format : {"delta", "iceberg"}, optional
            Delta, if not given. A table that is replaced keeps its format.
        partition_by : str or sequence of str
            Columns; for Iceberg also transforms, such as ``day(at)``.
        properties : Mapping, optional
            Values are str, bool, int, float or Decimal.
        or_replace : bool
            Define an existing table of that name again, as CREATE OR REPLACE TABLE does, also one
            that was dropped and whose data was kept. Its older versions stay.

        Raises
        ------
        TableExists, InvalidOperation, UnsupportedTableFeature
        """
        executor = self._executor
        if format is not None:
            check_choice("format", format, "delta", "iceberg")
        if check_flag("or_replace", or_replace):
            executor.state.check_open("create_table")
            place = place_of(executor, name, replaces=True)
            if place is not None:
                with executor.verb_scope("create_table", name), place.block:
                    replace_table(
                        executor,
                        name,
                        data_or_schema,
                        format=format,
                        partition_by=check_columns_by("partition_by", partition_by),
                        properties=property_texts("properties", properties),
                        place=place,
                    )
                return
        with executor.verb_scope("create_table", name):
            executor.state.check_open("create_table")
            schema, source = executor.schema_of(data_or_schema, name)
            partition = check_columns_by("partition_by", partition_by)
            texts = property_texts("properties", properties)
            location = executor.resolve(name, also_renamed=True)
            refuse_outside(executor.client.root, name, location)
            executor.client.ensure_safe_store()
            chosen = format or "delta"
            created = create(executor.state, location, schema, partition, texts, chosen)
            with whole_or_not_at_all(executor.state, location):
                executor.run(created)
                if source is not None:
                    rows, _ = executor.incoming(location, executor.bind(location), source, None)
                    executor.run(append(executor.state, location, rows))
            executor.save_if_due()

    def drop_table(self, name: str) -> None:
        """Remove a table from the lake; its data stays.

        Parameters
        ----------
        name : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        TableNotFound
        InvalidOperation
            It is a view, which SQL's ``DROP VIEW`` drops.
        """
        refuse_kind(self._executor, name, "table")
        self._drop(name)

    def _drop(self, name: str) -> None:
        """Remove a table or a view from the lake."""
        executor = self._executor
        with executor.verb_scope("drop_table", name):
            location = executor.begin_write(name, "drop_table")
            executor.run_verb(drop(executor.state, location))

    def rename_table(self, old: str, new: str) -> None:
        """Give a table another name in this lake; its directory and all files in it stay unchanged.

        Clients without LakeVilla find the table at its path. From then on the old name names no
        table, and no table can be created under it while its path has data. All versions of the
        table, older ones too, are read by the new name. Other transactions on the table continue.

        Parameters
        ----------
        old : str
            A registered name, or the table's path under the root where it has none.
        new : str
            A name such as ``create_table`` takes: ``sales.c`` means ``sales/c``.

        Raises
        ------
        TableNotFound, InvalidOperation
        TableExists
            The new name is registered, or a table is stored at its path.
        """
        executor = self._executor
        with executor.verb_scope("rename_table", old):
            executor.state.check_open("rename_table")
            location = executor.resolve(old)
            new = check_text("new", new)
            if new != location:
                new = path_of(new) or new
            place = executor.client.place_of_name(old, new)
            executor.client.ensure_safe_store()
            executor.run_verb(rename(executor.state, old, location, new, place))

    def alter(
        self,
        table: str,
        *,
        add_columns: pa.Schema | Mapping[str, str | pa.DataType] | None = None,
        drop_columns: Sequence[str] = (),
        rename_columns: Mapping[str, str] | None = None,
        change_types: pa.Schema | Mapping[str, str | pa.DataType] | None = None,
        drop_not_null: Sequence[str] = (),
        set_comments: Mapping[str, str | None] | None = None,
        defaults: Mapping[str, object] | None = None,
        set_defaults: Mapping[str, object] | None = None,
        add_constraints: Mapping[str, str] | None = None,
        drop_constraints: Sequence[str] = (),
        set_properties: Mapping[str, PropertyValue] | None = None,
        unset_properties: Sequence[str] = (),
    ) -> None:
        """Change a table's schema, constraints or properties; later operations see the change.

        Parameters
        ----------
        table : str
            Its path below the root, a registered name, or its name in a catalog.
        add_columns : pyarrow.Schema or Mapping, optional
            A mapping has types by column name: pyarrow's, or text such as ``"decimal(18,2)"``,
            ``"timestamp_ntz"``, ``"array<int>"``, ``"struct<a:int,b:string>"``. A dotted name adds
            a field within a column: ``"s.q"`` within a struct, ``"l.element.q"`` within the structs
            of a list, ``"m.value.q"`` within those of a map's values. The other arguments take
            such names, too; nothing within a map's keys can change.
        drop_columns : sequence of str
            Columns to remove, by name.
        rename_columns : Mapping, optional
            New names by the old ones.
        change_types : pyarrow.Schema or Mapping, optional
            Wider types by column name, or by the dotted name of a field within one. Existing files
            stay, and are read as the wider type. Delta needs the property
            ``delta.enableTypeWidening``, and then readers that know the feature typeWidening.
        drop_not_null : sequence of str
            Columns that may hold NULL from then on; ``"l.element"``: the elements of a list.
        set_comments : Mapping, optional
            Comments by column name; None removes a comment.
        defaults : Mapping, optional
            Constants by the name of a column of ``add_columns``: its value in all existing rows,
            and in rows that are written without it from then on. Iceberg tables of format version
            3 alone.
        set_defaults : Mapping, optional
            Constants by column name, for rows that are written without the column from then on;
            existing rows stay. None removes one. Iceberg tables of format version 3 alone.
        add_constraints : Mapping, optional
            Rules in SQL, by name.
        drop_constraints : sequence of str
            Names of rules to remove.
        set_properties : Mapping, optional
            Values are str, bool, int, float or Decimal.
        unset_properties : sequence of str
            Names of properties to remove.

        Raises
        ------
        TableNotFound, InvalidOperation, UnsupportedTableFeature
        """
        executor = self._executor
        with executor.verb_scope("alter", table):
            request, columns = alteration(
                table,
                add_columns=add_columns,
                drop_columns=drop_columns,
                rename_columns=rename_columns,
                change_types=change_types,
                drop_not_null=drop_not_null,
                set_comments=set_comments,
                defaults=defaults,
                set_defaults=set_defaults,
                add_constraints=add_constraints,
                drop_constraints=drop_constraints,
                set_properties=set_properties,
                unset_properties=unset_properties,
            )
            location = executor.begin_write(table, "alter")
            executor.run_verb(execute(executor.state, Alter(location, request, columns), "alter"))

    # -- ending ------------------------------------------------------------------

    def save(self) -> None:
        """Store the transaction's present state, so that any client can ``lake.resume`` it."""
        self._executor.save()

    def commit(self) -> CommitResult:
        """Make the changes take effect.

        Raises
        ------
        ConflictError
            Another commit changed what was read: run the transaction again.
        TransactionAborted, CommitOutcomeUnknown, ForeignConflict
        """
        with naming_writers(self._executor.client):
            return self._executor.commit()

    def abort(self) -> None:
        """Undo everything; do nothing if the transaction has ended."""
        self._executor.abort()
