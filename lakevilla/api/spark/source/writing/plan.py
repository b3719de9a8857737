"""What a writer is going to do, found out once: in the process in which Spark plans it.

The transaction begins here, and is carried to where it is committed: the tasks write files under
its id, for the layout that the table has for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakevilla.api.begin import begin_transaction
from lakevilla.api.execution.executor import Executor
from lakevilla.api.spark.source.access import Access, access_to, lake_at, opened_on, reaching
from lakevilla.api.spark.source.writing.options import WriteOptions
from lakevilla.api.transaction import Transaction
from lakevilla.arrow.input import refuse_unknown
from lakevilla.engines.spark.rows import arrow_types, may_be_null
from lakevilla.engines.spark.tasks import WriteTask
from lakevilla.errors import AlreadyCommitted, ConflictError, TableExists, TableNotFound
from lakevilla.formats.layout import Layout
from lakevilla.lake.file_names import file_namer
from lakevilla.lake.frozen.elsewhere import places_at_hand
from lakevilla.lake.pinned import pin
from lakevilla.lake.view import View
from lakevilla.sql.expressions.bind import exact
from lakevilla.sql.expressions.tree import Expr
from lakevilla.transaction.verbs.carrying.carry import Carried, carried, note_created
from lakevilla.transaction.verbs.read_write import (
    layout_of,
    layout_to_append,
    layout_to_overwrite,
    observe,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["WritePlan", "plan"]

#: What tells whether two lists of files have the same rows.
_IDENTITY = ["path", "dv_id", "deletes"]

_WIDEN = "add it with .option('mergeSchema', 'true')"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write that was begun. Its ``repr`` tells no secret.

    Attributes
    ----------
    location : str
        Of the table.
    transaction : Carried or None
        None if nothing is to be done: its key is, or the table is there.
    task : WriteTask or None
        With the layout of the files.
    creates : bool
        Whether it creates the table.
    where : Expr or None
        A predicate for the rows that are replaced.
    columns : bytes or None
        Those that the table gets, an Arrow schema message.
    """

    access: Access
    options: WriteOptions
    location: str
    transaction: Carried | None = None
    task: WriteTask | None = None
    creates: bool = False
    where: Expr | None = None
    columns: bytes | None = None


def plan(
    lakes: bytes,
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool,
    streaming: bool = False,
) -> bytes:
    """Begin a write: what it needs is looked at, and nothing is stored.

    Raises
    ------
    InvalidOperation
        An option is wrong, or the columns don't fit the table.
    TableNotFound, TableExists, ConflictError
        Before any task was begun.
    """
    asked = WriteOptions.of(options, overwrite=overwrite, streaming=streaming)
    access = access_to(lakes, asked.lake)
    client = opened_on(access, asked.ref)
    nothing = WritePlan(access, asked, "")
    try:
        executor: Executor = begin_transaction(
            client, Executor, idempotency_key=asked.key, metadata=asked.metadata
        )
        executor.__enter__()
    except AlreadyCommitted:
        return pickle.dumps(nothing)
    try:
        return pickle.dumps(_planned(access, asked, schema, executor) or nothing)
    finally:
        executor.abort()


def _planned(
    access: Access, asked: WriteOptions, schema: StructType, executor: Executor
) -> WritePlan | None:
    columns = may_be_null(arrow_types(schema, asked.table))
    creates = not _is_there(asked, executor)
    if creates:
        Transaction(executor).create_table(
            asked.table,
            columns,
            format=asked.format,
            partition_by=asked.partition_by,
            properties=asked.properties,
        )
    elif asked.if_exists == "ignore":
        return None
    elif asked.if_exists == "error":
        raise TableExists(
            f"table {asked.table} exists, and option ifExists is error: leave the option out to "
            "add rows, or choose another name",
            table=asked.table,
        )
    verb = "overwrite" if asked.overwrite else "append"
    with executor.alone(verb, asked.table):
        location = executor.to_write(asked.table, verb)
        layout, where, wider = _layout(asked, columns, location, executor)
        if asked.read_version is not None:
            _check_read(access, asked, location, executor)
        state = executor.state
        if creates:
            executor.run(note_created(state, location))
        name = file_namer(state.context, executor.id, state.through_head)
        place = reaching(
            access, places_at_hand(executor.state.context, executor.client.reach)
        ).place
        task = WriteTask(place, layout, tuple(columns.names), name)
        bundle = executor.run(carried(state))
    return WritePlan(access, asked, location, bundle, task, creates, where, wider)


def _is_there(asked: WriteOptions, executor: Executor) -> bool:
    """Whether there is such a table; one whose name only looks like another's is an error."""
    try:
        executor.look(asked.table)
    except TableNotFound:
        return False
    return True


def _layout(
    asked: WriteOptions, columns: pa.Schema, location: str, executor: Executor
) -> tuple[Layout, Expr | None, bytes | None]:
    """The layout of the files; the predicate and the columns that the operation has."""
    state, rows = executor.state, columns.empty_table()
    where = executor.optional_predicate(asked.where, None)
    wider: bytes | None
    if asked.schema_mode == "overwrite":
        reader, wider = executor.replacing(location, rows)
    else:
        if asked.schema_mode is None:
            there = executor.run(layout_of(state, location, probing=True)).schema
            refuse_unknown(columns.names, there, asked.table, _WIDEN)
        reader, wider = executor.incoming(location, rows, asked.schema_mode)
    if not asked.overwrite:
        return executor.run(layout_to_append(state, location, wider)), None, wider
    if where is not None:
        where = exact(where, reader.schema)
    layout = layout_to_overwrite(
        state,
        location,
        where,
        wider,
        replaces_schema=asked.schema_mode == "overwrite",
        by_partition=asked.by_partition,
    )
    return executor.run(layout), where, wider


def _check_read(access: Access, asked: WriteOptions, location: str, executor: Executor) -> None:
    """Hold the table to what it was at the version that the rows were made from.

    Up to here it is compared; from here on it counts as read, as any other does.
    """
    assert asked.read_version is not None
    with lake_at(access, asked.read_version, ref=None) as past:
        before = past.look(asked.table)
        now = executor.state.work.tables[location].view
        if not _is_same(before, now, past, executor):
            raise ConflictError(
                f"table {asked.table} was changed since global version {asked.read_version}, "
                "which the rows were made from: read it again, and write what comes of that",
                table=asked.table,
            )
    observe(executor.state, location, None)


def _is_same(before: View, now: View, past: Executor, executor: Executor) -> bool:
    if pin(before) == pin(now):
        return True
    if before.snapshot.table_id != now.snapshot.table_id:
        return False
    # A commit that is published by now, or an entry that changes no rows, makes no difference.
    files = [run(view.snapshot.files()) for run, view in ((past.run, before), (executor.run, now))]
    marks = [sorted(one.select(_IDENTITY).to_pylist(), key=str) for one in files]
    return marks[0] == marks[1]
