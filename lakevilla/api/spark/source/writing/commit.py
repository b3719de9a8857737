"""The end of a write: its files are committed together, or given up together.

Spark calls one of the two when all tasks have ended, in a process of its own, with a message of
one attempt of each task. It may call ``abort`` after a ``commit`` that it heard nothing of: so
nothing is deleted before the lake's HEAD has told that the transaction can't have committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.spark.source.access import opened_on
from lakevilla.api.spark.source.writing.plan import WritePlan
from lakevilla.api.spark.source.writing.rows import Message
from lakevilla.engines.spark.planned import digest_of_plan, reader_below
from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    TableExists,
)
from lakevilla.formats.files import DataFile, file_key
from lakevilla.lake.operations.replaced_partitions import rows_replaced
from lakevilla.lake.publishing.outcome import outcome
from lakevilla.store.base import Missing
from lakevilla.store.effects import delete, parallel, stat
from lakevilla.store.location import root_location
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.carrying.carry import forget_created, taken_up
from lakevilla.transaction.verbs.read_write import append_files, overwrite_by_files

__all__ = ["abort", "abort_batch", "commit", "commit_batch"]


def commit(state: bytes, messages: Sequence[bytes | None]) -> None:
    """Commit what the tasks of a batch write have written.

    Raises
    ------
    LakeVillaError
        What a task has met, or the commit; then nothing is visible.
    """
    _commit(pickle.loads(state), _loaded(messages), None)


def abort(state: bytes, messages: Sequence[bytes | None]) -> None:
    """Give up a batch write, some of whose tasks have failed."""
    _give_up(pickle.loads(state), _loaded(messages))


def commit_batch(messages: Sequence[bytes | None], batch: int) -> None:
    """Commit a batch of a stream, unless it was committed before.

    Raises
    ------
    LakeVillaError
        What a task has met, or the commit.
    InvalidOperation
        The lake has a later batch of the query, or this one of another checkpoint or with other
        rows, or lacks those before; or it is an epoch of a continuous query, and has none.
    """
    if None in messages:
        # No task of a batch tells nothing; those of a continuous query have not come to it.
        raise InvalidOperation(
            f"epoch {batch} has ended before its tasks have written their rows, as with a "
            "continuous trigger: use .trigger(processingTime=...), or another one of batches"
        )
    found = _loaded(messages)
    first = _of_batch(found)
    if first is None or first.plan is None:
        return  # no task, no rows: Spark makes one even of a batch without partitions
    query_id = first.plan.options.query_id
    assert query_id is not None
    access = first.plan.access
    read = reader_below(first.location, access.place.root, opened_on(access, None).run)
    try:
        planned = digest_of_plan(read, first.checkpoint, query_id, batch)
    except (LakeVillaError, OSError):
        _give_up(first.plan, found)
        raise
    _commit(first.plan, found, KeyUse(query_id, batch, first.checkpoint, planned, True))


def abort_batch(messages: Sequence[bytes | None]) -> None:
    """Give up a batch of a stream, some of whose tasks have failed."""
    found = _loaded(messages)
    first = _of_batch(found)
    if first is not None and first.plan is not None:
        _give_up(first.plan, found)


def _loaded(messages: Sequence[bytes | None]) -> list[Message]:
    return [pickle.loads(one) for one in messages if one is not None]


def _of_batch(messages: Sequence[Message]) -> Message | None:
    """One that has the plan of the batch: what the commit made anew is another transaction's."""
    return next((one for one in messages if one.plan is not None), None)


def _commit(plan: WritePlan, messages: list[Message], key: KeyUse | None) -> None:
    if plan.transaction is None:
        return  # done before, or not to be done
    error = next((one.report.error for one in messages if one.report.error is not None), None)
    if error is not None:
        _give_up(plan, messages)
        raise error
    client = opened_on(plan.access, plan.options.ref)
    client.ensure_safe_store()
    try:
        state = client.run(taken_up(client.context, plan.transaction, client.owner, key))
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
        if plan.options.if_exists != "ignore":
            raise
        # It was to be created: somebody else did that first.
    except CommitOutcomeUnknown:
        if client.run(outcome(client.context, state.id)).state != "committed":
            raise


def _committed(
    client: LakeClient, state: TransactionState, plan: WritePlan, messages: list[Message]
) -> None:
    asked, files = plan.options, _files(messages)
    state.work.stored.extend(_keys(plan, files))
    executor: Executor = Executor(client, state)
    with executor:
        if asked.overwrite:
            where = plan.where
            if asked.by_partition:
                assert plan.task is not None
                where = rows_replaced(plan.task.layout, files)
            replaces = asked.schema_mode == "overwrite"
            program = overwrite_by_files(
                state, plan.location, files, where, plan.columns, replaces_schema=replaces
            )
            executor.run(program)
        elif files or plan.columns is not None:
            executor.run(append_files(state, plan.location, files, plan.columns))
    if plan.creates:
        with suppress(LakeVillaError):  # gc does it
            client.run(forget_created(state, plan.location))


def _give_up(plan: WritePlan, messages: list[Message]) -> None:
    """See to it that the transaction never commits, and delete what it has stored, if it has not.

    What tasks have stored that did not tell of it is gc's: the id is fenced from here on.
    """
    if plan.transaction is None:
        return
    client = opened_on(plan.access, plan.options.ref)
    client.ensure_safe_store()
    if client.run(outcome(client.context, plan.transaction.txn)).state == "aborted":
        client.run(parallel([delete(key) for key in _keys(plan, _files(messages))]))


def _check_files(client: LakeClient, plan: WritePlan, messages: list[Message]) -> None:
    """Refuse files that lie on a worker's own disk, under a local root that is not shared."""
    if root_location(plan.access.place.root).scheme != "file":
        return
    hosts = {key: one.host for one in messages for key in _keys(plan, _files([one]))}
    found = client.run(parallel([stat(key) for key in hosts]))
    for (key, host), info in zip(hosts.items(), found, strict=True):
        if isinstance(info, Missing):
            raise InvalidOperation(
                f"worker {host} has written {key}, and it is not there for the driver: the local "
                f"root {plan.access.place.root} must be on a disk that all machines share; use "
                "an object store, or mount one disk everywhere",
                table=plan.options.table,
            )


def _files(messages: Sequence[Message]) -> tuple[DataFile, ...]:
    return tuple(one.file for message in messages for one in message.report.rewrite.written)


def _keys(plan: WritePlan, files: Sequence[DataFile]) -> list[str]:
    return [file_key(plan.location, file.path) for file in files]
