"""The changes of a table, as a transaction sees them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.formats.base import Change
from lakevilla.global_log.head import CommitSummary
from lakevilla.global_log.history import Timeline
from lakevilla.lake.operations.changed_rows import Reading, refuse_missing, sources_of
from lakevilla.lake.operations.changes import Walk, changes, changes_to_read, walk_through
from lakevilla.lake.past import Past, past_at
from lakevilla.phases import during
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import bind_to_head


def changes_seen(
    txn: TransactionState,
    location: str,
    since: int,
    columns: Sequence[str] | None,
    where: Expr | None,
) -> Program[pa.Table]:
    """The changes up to the state that a transaction is bound to, its own aside.

    A range that has ended: nothing that comes later changes it, so it is no part of
    what is validated.
    """
    past = yield from _past_seen(txn, location)
    with during("data", location):
        return (yield from changes(txn.context, past, location, since, columns, where))


def changes_to_see(
    txn: TransactionState,
    location: str,
    since: int,
    columns: Sequence[str] | None,
    where: Expr | None,
) -> Program[tuple[Reading, list[tuple[CommitSummary, Change]]]]:
    """What ``changes_seen`` reads; that all of what went is kept is looked at first."""
    past = yield from _past_seen(txn, location)
    with during("metadata", location):
        reading, found = yield from changes_to_read(
            txn.context, past, location, since, columns, where
        )
        for _, change in found:
            for source in sources_of(reading.layout, change):
                if source.kind != "insert":
                    yield from refuse_missing(location, source.files)
    return reading, found


def steps_to_see(txn: TransactionState, location: str, since: int) -> Program[Walk]:
    """The steps of a table after a global version, up to the state that is bound to."""
    past = yield from _past_seen(txn, location)
    with during("metadata", location):
        return (yield from walk_through(txn.context, past, location, since))


def _past_seen(txn: TransactionState, location: str) -> Program[Past]:
    if not txn.through_head:
        raise InvalidOperation(
            f"changes of {location}: transaction {txn.id} is not bound to a global version: "
            "begin it with Feature.I",
            table=location,
            txn_id=txn.id,
        )
    frozen = txn.bound.frozen
    if frozen is not None and frozen.base.origin:
        raise InvalidOperation(
            f"changes of {location}: {frozen.base.kind} {frozen.name!r} is a state of a branch, "
            "whose history it does not know: ask `lake.on` of that branch for them",
            table=location,
            txn_id=txn.id,
        )
    yield from bind_to_head(txn)
    past = txn.bound.past
    if past is None:
        head = txn.head
        if head is None:
            raise TableNotFound(f"table {location} is not in the lake yet", table=location)
        sequence = head.sequence
        with during("version"):
            if frozen is not None:
                # What came before a ref is told by the history as it is now.
                now = yield from txn.context.head()
                head = head if now is None else now.head
            past = yield from past_at(Timeline.of(head), sequence)
    return past
