"""Write a table by Spark's data sink: the plan, the tasks, and the commit."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakevilla.api.client.catalogs import pointer_of
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.run import begin_transaction
from lakevilla.api.spark.source.tables import (
    Access,
    access_to,
    lake_at,
    opened_on,
    reaching,
    roots_of,
)
from lakevilla.api.spark.source.writing.options import WriteOptions
from lakevilla.api.transaction import Transaction
from lakevilla.arrow.input import refuse_unknown
from lakevilla.engines.spark.planned import default_location, digest_of_plan, reader_below
from lakevilla.engines.spark.reused import in_worker
from lakevilla.engines.spark.rows import arrow_types, may_be_null
from lakevilla.engines.spark.streams import checkpoint_of_task
from lakevilla.engines.spark.tasks import TaskReport, WriteTask, reports
from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableExists,
    TableNotFound,
)
from lakevilla.formats.files import DataFile, file_key
from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.lake.context import file_namer
from lakevilla.lake.frozen.mounts import known_places
from lakevilla.lake.operations.refresh import rows_replaced
from lakevilla.lake.past import pin
from lakevilla.lake.publishing.outcome import outcome
from lakevilla.lake.view import View
from lakevilla.sql.expressions.bind import exact
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Missing
from lakevilla.store.effects import delete, parallel, stat
from lakevilla.store.location import root_location
from lakevilla.transaction.state.files import forget_created, note_created
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.carry import Carried, carried, resumed
from lakevilla.transaction.verbs.read_write import (
    append_files,
    layout_of,
    layout_to_append,
    layout_to_overwrite,
    observe,
    overwrite_by_files,
)

__all__ = [
    "abort",
    "abort_batch",
    "commit",
    "commit_batch",
    "WritePlan",
    "plan",
    "Message",
    "written",
]

# -------------------- commit
#
# The end of a write: all its files are committed, or all are given up.
#
# When all tasks have ended, Spark calls ``commit`` or ``abort`` in a separate process, with the
# message of one attempt of each task. Spark may call ``abort`` after a ``commit`` whose result it
# did not receive: so no file is deleted before the lake's HEAD shows that the transaction can't
# have committed.


@in_worker()
def commit(state: bytes, messages: Sequence[bytes | None]) -> None:
    """Commit the files that the tasks of a write have stored.

    Raises
    ------
    LakeVillaError
        The error of a task, or of the commit; then nothing is visible.
    """
    _commit(pickle.loads(state), _loaded(messages), None)


@in_worker()
def abort(state: bytes, messages: Sequence[bytes | None]) -> None:
    """Give up a write of which some tasks have failed."""
    _give_up(pickle.loads(state), _loaded(messages))


@in_worker()
def commit_batch(messages: Sequence[bytes | None], batch: int) -> None:
    """Commit a batch of a stream, unless it was committed before.

    Raises
    ------
    LakeVillaError
        The error of a task, or of the commit.
    InvalidOperation
        The lake has a later batch of the query, or has this batch from another checkpoint or with
        other rows, or lacks the batches before; or the query is a continuous one, which has no
        batches.
    """
    if None in messages:
        # Each task of a batch sends a message; tasks of a continuous query have not sent any yet.
        raise InvalidOperation(
            f"epoch {batch} has ended before its tasks have written their rows, as with a "
            "continuous trigger: use .trigger(processingTime=...), or another with batches"
        )
    found = _loaded(messages)
    first = _of_batch(found)
    if first is None or first.plan is None:
        return  # no task has run, so there are no rows; Spark runs a task even for an empty batch
    query_id = first.plan.options.query_id
    assert query_id is not None
    access = first.plan.access
    read = reader_below(first.location, access.place.root, opened_on(access, None).run)
    try:
        planned = digest_of_plan(read, first.checkpoint, query_id, batch)
    except LakeVillaError:
        _give_up(first.plan, found)
        raise
    _commit(first.plan, found, KeyUse(query_id, batch, first.checkpoint, planned, True))


@in_worker()
def abort_batch(messages: Sequence[bytes | None]) -> None:
    """Give up a batch of a stream of which some tasks have failed."""
    found = _loaded(messages)
    first = _of_batch(found)
    if first is not None and first.plan is not None:
        _give_up(first.plan, found)


def _loaded(messages: Sequence[bytes | None]) -> list[Message]:
    return [pickle.loads(one) for one in messages if one is not None]


def _of_batch(messages: Sequence[Message]) -> Message | None:
    """Return a message that has the batch's plan, or None.

    The plan in the committing process is of no use: Spark has made it again, with a new
    transaction.
    """
    return next((one for one in messages if one.plan is not None), None)


def _commit(plan: WritePlan, messages: list[Message], key: KeyUse | None) -> None:
    if plan.transaction is None:
        return  # it has committed before, or there is nothing to do
    error = next((one.report.error for one in messages if one.report.error is not None), None)
    if error is not None:
        _give_up(plan, messages)
        raise error
    client = opened_on(plan.access, plan.options.ref)
    client.ensure_safe_store()
    try:
        _locate(client, plan)
        state = client.run(resumed(client.context, plan.transaction, client.owner, key))
        _check_files(client, plan, messages)
    except AlreadyCommitted:
        _give_up(plan, messages)
        return
    except LakeVillaError:
        _give_up(plan, messages)
        raise
    try:
        _committed(client, state, plan, messages)
    except AlreadyCommitted:
        return
    except (ConflictError, TableExists):
        # With ``ifExists=ignore``, this write had to create the table; another client was faster.
        if plan.options.if_exists != "ignore" or not _is_there_now(plan):
            raise
    except CommitOutcomeUnknown:
        if client.run(outcome(client.context, state.id)).state != "committed":
            raise


def _committed(
    client: LakeClient, state: TransactionState, plan: WritePlan, messages: list[Message]
) -> None:
    write_options, files = plan.options, _files(messages)
    state.work.stored.extend(_keys(plan, files))
    executor: Executor = Executor(client, state)
    with executor:
        if write_options.overwrite:
            where = plan.where
            if write_options.by_partition:
                assert plan.task is not None
                where = rows_replaced(plan.task.layout, files)
            replaces = write_options.schema_mode == "overwrite"
            program = overwrite_by_files(
                state, plan.location, files, where, plan.columns, replaces_schema=replaces
            )
            executor.run(program)
        elif files or plan.columns is not None:
            executor.run(append_files(state, plan.location, files, plan.columns))
    if plan.creates:
        with suppress(LakeVillaError):  # gc deletes this object if the client fails to
            client.run(forget_created(state, plan.location))


def _give_up(plan: WritePlan, messages: list[Message]) -> None:
    """Fence the transaction, and delete its files if it has not committed.

    gc will delete the files of tasks that have reported nothing, because the id is fenced now. If
    the branch was rebased since, nothing is deleted here: the transaction may have committed in the
    epoch before, and this epoch's HEAD does not know its id.
    """
    if plan.transaction is None:
        return
    client = opened_on(plan.access, plan.options.ref)
    # if the table's catalog is not reachable, gc will find the files
    with suppress(LakeVillaError):
        _locate(client, plan)
    if client.context.epoch != plan.transaction.epoch:
        return
    client.ensure_safe_store()
    if client.run(outcome(client.context, plan.transaction.txn)).state == "aborted":
        client.run(parallel([delete(key) for key in _keys(plan, _files(messages))]))


def _locate(client: LakeClient, plan: WritePlan) -> None:
    """Look up a catalog's table, whose files may be anywhere, so that the client may read them."""
    if pointer_of(plan.access.catalogs, plan.options.table) is not None:
        client.location_of(plan.options.table)


def _check_files(client: LakeClient, plan: WritePlan, messages: list[Message]) -> None:
    """Refuse files on a worker's own disk, below a local root that the machines do not share."""
    if root_location(plan.access.place.root).scheme != "file":
        return
    hosts = {key: one.host for one in messages for key in _keys(plan, _files([one]))}
    found = client.run(parallel([stat(key) for key in hosts]))
    for (key, host), info in zip(hosts.items(), found, strict=True):
        if isinstance(info, Missing):
            raise InvalidOperation(
                f"worker {host} has written {key}, and the driver does not find it: the local "
                f"root {plan.access.place.root} must be on a disk that all machines share; use an "
                "object store, or mount one disk everywhere",
                table=plan.options.table,
            )


def _files(messages: Sequence[Message]) -> tuple[DataFile, ...]:
    return tuple(one.file for message in messages for one in message.report.rewrite.written)


def _keys(plan: WritePlan, files: Sequence[DataFile]) -> list[str]:
    return [file_key(plan.location, file.path) for file in files]


# -------------------- plan
#
# Plans of writes, made once for each write, in the process in which Spark plans it.
#
# The transaction begins in that process, and is passed to the process that commits: the tasks write
# files under its id, in the layout that the table has in its state.


if TYPE_CHECKING:
    from pyspark.sql.types import StructType


#: The columns of a list of files by which two states of a table have the same rows.
_IDENTITY = ["path", "dv_id", "deletes"]

_WIDEN = "add it with .option('mergeSchema', 'true')"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The plan of a write; its ``repr`` shows no secret.

    Attributes
    ----------
    location : str
        The table's location.
    transaction : Carried or None
        None if there is nothing to do: the idempotency key has committed, or the table exists.
    task : WriteTask or None
        What each task needs, with the layout of the files.
    creates : bool
        True if the write creates the table.
    where : Expr or None
        A predicate for the rows that are replaced.
    columns : bytes or None
        The columns that the table gets, as an Arrow schema message.
    """

    access: Access
    options: WriteOptions
    location: str
    transaction: Carried | None = None
    task: WriteTask | None = None
    creates: bool = False
    where: Expr | None = None
    columns: bytes | None = None


@in_worker()
def plan(
    lakes: bytes,
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool,
    streaming: bool = False,
) -> bytes:
    """Begin a write and return its pickled plan; store nothing.

    Raises
    ------
    InvalidOperation
        An option is wrong, or the columns don't fit the table.
    TableNotFound, TableExists, ConflictError
        The table can't be written; no task has begun.
    """
    write_options = WriteOptions.of(
        options, overwrite=overwrite, streaming=streaming, roots=roots_of(lakes)
    )
    access = access_to(lakes, write_options.lake)
    client = opened_on(access, write_options.ref)
    nothing = WritePlan(access, write_options, "")
    try:
        executor: Executor = begin_transaction(
            client, Executor, idempotency_key=write_options.key, metadata=write_options.metadata
        )
        executor.__enter__()
    except AlreadyCommitted:
        return pickle.dumps(nothing)
    try:
        return pickle.dumps(_planned(access, write_options, schema, executor) or nothing)
    finally:
        executor.abort()


def _planned(
    access: Access, write_options: WriteOptions, schema: StructType, executor: Executor
) -> WritePlan | None:
    columns = may_be_null(arrow_types(schema, write_options.table))
    creates = not _is_there(write_options, executor)
    if creates:
        _refuse_name_in_catalog(write_options.table, executor)
        Transaction(executor).create_table(
            write_options.table,
            columns,
            format=write_options.format,
            partition_by=write_options.partition_by,
            properties=write_options.properties,
        )
    elif write_options.if_exists == "ignore":
        return None
    elif write_options.if_exists == "error":
        raise TableExists(
            f"table {write_options.table} exists, and option ifExists is error: leave the option "
            "out to add rows, or choose another name",
            table=write_options.table,
        )
    verb = "overwrite" if write_options.overwrite else "append"
    with executor.verb_scope(verb, write_options.table):
        location = executor.begin_write(write_options.table, verb)
        layout, where, wider = _layout(write_options, columns, location, executor)
        if write_options.read_version is not None:
            _check_read(access, write_options, location, executor)
        state = executor.state
        if creates:
            executor.run(note_created(state, location))
        name = file_namer(state.context, executor.id, state.through_head)
        place = reaching(access, known_places(executor.state.context, executor.client.reach)).place
        task = WriteTask(place, layout, tuple(columns.names), name)
        bundle = executor.run(carried(state))
    return WritePlan(access, write_options, location, bundle, task, creates, where, wider)


def _is_there(write_options: WriteOptions, executor: Executor) -> bool:
    """Return whether the table exists; raise an error if the name resembles an existing one."""
    try:
        executor.look(write_options.table)
    except TableNotFound:
        return False
    return True


def _refuse_name_in_catalog(table: str, executor: Executor) -> None:
    """Refuse to create a table under a name that is, for other clients, in a catalog."""
    name = table.replace("/", ".")
    head = executor.state_of_lake(whole=True) if name.count(".") > 1 else None
    pointers = () if head is None else (state.catalog for state in head.tables.values())
    if name in map(name_in_catalog, filter(None, pointers)):
        raise InvalidOperation(
            f"table {table} of the lake is in a catalog that this session is not connected to: "
            "call lakevilla.connect(root, spark=spark, catalogs={...}) with its properties first",
            table=table,
        )


def _is_there_now(plan: WritePlan) -> bool:
    with lake_at(plan.access, ref=plan.options.ref) as executor:
        return _is_there(plan.options, executor)


def _layout(
    write_options: WriteOptions, columns: pa.Schema, location: str, executor: Executor
) -> tuple[Layout, Expr | None, bytes | None]:
    """Return the new files' layout, the replaced rows' predicate, and the new columns."""
    state, rows = executor.state, columns.empty_table()
    where = executor.optional_predicate(write_options.where, None)
    wider: bytes | None
    if write_options.schema_mode == "overwrite":
        reader, wider = executor.replacing(location, rows)
    else:
        if write_options.schema_mode is None:
            present = executor.run(layout_of(state, location, probing=True)).schema
            refuse_unknown(columns.names, present, write_options.table, _WIDEN)
        bound = executor.bind(location)
        reader, wider = executor.incoming(location, bound, rows, write_options.schema_mode)
    if not write_options.overwrite:
        return executor.run(layout_to_append(state, location, wider)), None, wider
    if where is not None:
        where = exact(where, reader.schema)
    layout = layout_to_overwrite(
        state,
        location,
        where,
        wider,
        replaces_schema=write_options.schema_mode == "overwrite",
        by_partition=write_options.by_partition,
    )
    return executor.run(layout), where, wider


def _check_read(
    access: Access, write_options: WriteOptions, location: str, executor: Executor
) -> None:
    """Refuse the write if the table has changed since the version from which its rows were made.

    Later changes conflict at the commit: the table then counts as read in its present state.
    """
    assert write_options.read_version is not None
    with lake_at(access, write_options.read_version, ref=None) as past:
        before = past.look(write_options.table)
        now = executor.state.work.tables[location].view
        if not _is_same(before, now, past, executor):
            raise ConflictError(
                f"table {write_options.table} was changed since global version "
                f"{write_options.read_version}, which the rows were made from: read it again, and "
                "write the result",
                table=write_options.table,
            )
    observe(executor.state, location, None)


def _is_same(before: View, now: View, past: Executor, executor: Executor) -> bool:
    if pin(before) == pin(now):
        return True
    if before.snapshot.table_id != now.snapshot.table_id:
        return False
    # Files are compared, because publishing, and entries that change no rows, make a new version.
    files = [run(view.snapshot.files()) for run, view in ((past.run, before), (executor.run, now))]
    marks = [sorted(one.select(_IDENTITY).to_pylist(), key=str) for one in files]
    return marks[0] == marks[1]


# -------------------- rows
#
# The work of a write's task: store rows as files, which no log names before the commit.
#
# Each attempt of a task writes under new names, and reports these in its message; Spark passes the
# message of one attempt of each task to the commit. gc deletes the files of other attempts.


@dataclass(frozen=True, slots=True)
class Message:
    """The report of one attempt of a task, and the host that ran it.

    For a stream, ``plan`` is the plan of the batch, and ``checkpoint`` the checkpoint that counts
    the batches, in the directory ``location``, which is None if unknown.
    """

    report: TaskReport
    host: str
    plan: WritePlan | None = None
    checkpoint: str = ""
    location: str | None = None


@in_worker()
def written(state: bytes, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Write the rows of a task, and return a pickled ``Message``.

    An error that every attempt would get is reported in the message; if raised, Spark would repeat
    the task.
    """
    plan: WritePlan = pickle.loads(state)
    host = socket.gethostname()
    report = TaskReport()
    if plan.task is not None:
        try:
            _check_reachable(plan.access.place.root, host)
            (row,) = reports(pickle.dumps(plan.task), batches)
            report = pickle.loads(row.column("report")[0].as_py())
        except LakeVillaError as error:
            report = TaskReport(error=error)
        if isinstance(report.error, StoreError) and not report.error.message.startswith("worker"):
            report.error.message = f"worker {host}: {report.error.message}"
            report.error.args = (report.error.message,)
    for _ in batches:  # read the rest: Spark would take an early end for a broken worker
        pass
    if plan.options.query_id is None:
        return pickle.dumps(Message(report, host))
    location = plan.options.checkpoint_location or default_location(plan.options.query_name)
    of_batch = replace(plan, task=None)
    return pickle.dumps(Message(report, host, of_batch, checkpoint_of_task(), location))


def _check_reachable(root: str, host: str) -> None:
    """Refuse a local root that this machine does not share, where no other process finds files."""
    location = root_location(root)
    if location.scheme == "file" and not Path(location.uri, HEAD_KEY).exists():
        raise InvalidOperation(
            f"worker {host} can't reach the lake: there is no {HEAD_KEY} below {root} there; a "
            "local root must be on a disk that all machines share, so mount it, or use an object "
            "store"
        )
