"""Tables that other clients drop, or create again, while a transaction uses them.

The transaction finds the old table's log or files missing in the middle of a verb. That is a
conflict, which a rerun repairs. But if the transaction has read nothing of the old table, and the
newest HEAD has the new one, it reads the new one. An error for any other reason is raised
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    LakeVillaError,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.table_log import is_made_again
from lakevilla.lake.tables.dropped import is_emptied
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Create, tables_read
from lakevilla.transaction.state.files import fail_if_collected
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.validate import extend

__all__ = [
    "READING_FAILED",
    "conflict_of_replaced",
    "raise_if_replaced",
    "read_again_if_replaced",
    "refuse_new_lake",
    "replaced",
]

T = TypeVar("T")

#: Errors that a reader may get while another client deletes a log and files.
READING_FAILED = (TableNotFound, VersionNotFound, CorruptObject, StoreError)


def replaced(txn: TransactionState, locations: Iterable[str]) -> Program[dict[str, str]]:
    """Return the tables that were dropped or created again since the transaction opened them.

    The result has the old tables' ids by location. The newest HEAD shows that a table was dropped
    or created again, or its log does, which then belongs to another table. This is called only
    after an error, so that a success costs no request. A dropped table that the transaction revives
    counts once its data was deleted.
    """
    known = {location: table_id for location in locations if (table_id := _known_id(txn, location))}
    if not known:
        return {}
    try:
        held = yield from txn.context.head()
        head = None if held is None else held.head
        yield from load_tables(head, known)
    except LakeVillaError:
        return {}  # the caller raises the first error, not the error of this check
    # A table that HEAD lacks is not in the lake (yet): HEAD keeps an entry of a dropped table.
    now = {} if head is None else {location: head.tables.get(location) for location in known}
    by_head = {
        location: known[location]
        for location, state in now.items()
        if state is not None
        and (
            state.table_id != known[location]
            or (is_emptied(state) if txn.revives(location) else state.dropped)
        )
    }
    undecided = [location for location in known if location not in by_head]
    logs = yield from parallel([is_made_again(txn.context, location) for location in undecided])
    return by_head | {
        location: known[location]
        for location, made_again in zip(undecided, logs, strict=True)
        if made_again
    }


def _known_id(txn: TransactionState, location: str) -> str | None:
    """Return the id of a table as the transaction knows it; None if it does not, or creates it."""
    if any(done.table == location and isinstance(done.operation, Create) for done in txn.work.done):
        return None
    state = None
    working = txn.work.tables.get(location)
    if working is not None:
        state = working.view.state
    elif txn.head is not None and not txn.head.tables.missing([location]):
        state = txn.head.tables.get(location)
    if state is not None:
        return state.table_id if not state.dropped or txn.revives(location) else None
    return None if working is None else working.view.base.table_id


def conflict_of_replaced(txn: TransactionState, location: str) -> LakeVillaError:
    """Return the conflict with the drop of a table; the transaction can't commit after it."""
    advice = (
        "take a new snapshot"
        if txn.options.read_only
        else "run it again (`lake.run` does so by itself)"
    )
    return txn.fail(
        ConflictError(
            f"table {location} was dropped, or created again, after transaction {txn.id} began, "
            f"and can't be read in its earlier state: {advice}",
            table=location,
            txn_id=txn.id,
        )
    )


def refuse_new_lake(txn: TransactionState, head: Head) -> None:
    """Refuse a lake that was made after the transaction has read that there is none.

    A HEAD without a commit is accepted: a lake without commits shows the same as no lake.
    """
    if txn.bound.saw_no_lake and head.sequence > 0:
        raise txn.fail(
            ConflictError(
                f"a lake was made here after transaction {txn.id} had seen that there was none: "
                "run it again",
                txn_id=txn.id,
            )
        )


def raise_if_replaced(
    txn: TransactionState, locations: Iterable[str], error: Exception
) -> Program[None]:
    """Raise a conflict if the error comes from a table that was dropped, or created again.

    If it comes from a file of the transaction itself, and gc has deleted that, abort.
    """
    if txn.state is not Status.OPEN or txn.bound.is_past:
        return
    yield from fail_if_collected(txn, error)
    others = yield from replaced(
        txn, [location for location in locations if location in txn.work.tables]
    )
    if others:
        raise conflict_of_replaced(txn, next(iter(others))) from error


def read_again_if_replaced(
    txn: TransactionState, locations: Sequence[str], see: Callable[[], Program[T]]
) -> Program[T]:
    """Run ``see``; if a table was replaced and nothing relies on the old one, run it again."""
    met: set[str] = set()
    while True:
        before = dict(txn.work.reads)
        try:
            return (yield from see())
        except READING_FAILED as error:
            if txn.state is not Status.OPEN or txn.bound.is_past:
                raise
            others = yield from replaced(
                txn, [location for location in locations if location in txn.work.tables]
            )
            if met.issuperset(others.values()):
                raise  # no table was replaced since the last try: the error has another reason
            met.update(others.values())
            txn.work.reads = before  # the caller has seen no row of this read
            if not (yield from _forget_tables(txn, others)):
                raise conflict_of_replaced(txn, next(iter(others))) from error


def _forget_tables(txn: TransactionState, locations: Iterable[str]) -> Program[bool]:
    """Forget tables on which nothing relies, and move to the newest HEAD; else return False."""
    relied = {table for table, _ in txn.work.reads}
    for done in txn.work.done:
        relied |= {done.table, *tables_read(done.operation)}
    if not relied.isdisjoint(locations):
        return False
    for location in locations:
        txn.forget_table(location)
    return not txn.through_head or (yield from extend(txn))
