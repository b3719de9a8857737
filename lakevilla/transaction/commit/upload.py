"""Step 3 of a commit: files, commit object, claims and a look for other clients, in one round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakevilla.errors import (
    StoreError,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.registry import refuse_two_tables
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.repo import claim_table, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import look_above
from lakevilla.store.base import ABSENT, NEW, Stored
from lakevilla.store.effects import Program, Put, parallel
from lakevilla.store.location import is_external
from lakevilla.transaction.commit.commit_object import Sealed, tables_written
from lakevilla.transaction.commit.together.lane import commits_of
from lakevilla.transaction.commit.together.proposed import may_go_along
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.idempotency import bind_key

#: For how long the HEAD that a transaction has begun on is as good as one that is asked for.
_FRESH_SECONDS = 0.15


def upload(txn: TransactionState, sealed: Sealed) -> Program[None]:
    """Store whatever the commit names, and ask whatever may speak against it, in one round.

    Raises
    ------
    StoreError
        An object could not be stored.
    """
    context = txn.context
    assert txn.bound.held is not None, "a transaction that writes through HEAD is bound to one"
    head = txn.bound.held.head
    yield from load_tables(head, txn.work.tables)
    files = list(txn.work.bodies)
    named = [*files, sealed.key]
    stores: list[Any] = [Put(file, txn.work.bodies[file], NEW) for file in files]
    stores.append(Put(sealed.key, sealed.body, ABSENT))
    named += [squash.put.key for squash in sealed.squashes.values()]
    stores += [squash.put for squash in sealed.squashes.values()]
    unguarded = [place for place, working in txn.work.tables.items() if not working.view.guarded]
    looks = [look_above(context, location) for location in unguarded]
    if unguarded and _may_be_proposed(txn):
        # Both take no longer than a file, and the HEAD that it stands on is old by now.
        looks = [_look_at_all(context, unguarded, most=1)]
    # Noted before they are asked for: an interruption in between leaves some of
    # them stored, and an abort must find them.
    txn.work.stored.extend(named)
    outcomes = yield from parallel([*stores, *looks, *_claims(txn, head)])
    for name, outcome in zip(named, outcomes, strict=False):
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not store {name}: nothing was committed, run the transaction again",
                txn_id=txn.id,
            )
    for file in files:
        del txn.work.bodies[file]
    outdated = [
        place for place, newer in zip(unguarded, outcomes[len(named) :], strict=False) if newer
    ]
    if outdated:
        # The race is lost: the newer HEAD tells what was published, and from where to look on.
        yield from _look_at_all(context, outdated)


def _may_be_proposed(txn: TransactionState) -> bool:
    """Whether others may take it along, and count on what is found now."""
    context = txn.context
    is_old = context.clock.elapsed() - txn.bound.began_at > _FRESH_SECONDS
    return is_old and commits_of(context).is_crowded(context) and may_go_along(txn)


def _look_at_all(context: Context, tables: Sequence[str], **options: int) -> Program[bool]:
    """HEAD as it is now, and then the looks above it: nothing is there that it does not tell."""
    yield from context.head()
    yield from parallel([look_above(context, one, again=True, **options) for one in tables])
    return False


def _claims(txn: TransactionState, head: Head) -> list[Program[Any]]:
    """Looks and writes that refuse a table which is damaged, another's or two in one place."""
    context = txn.context
    parts: list[Program[Any]] = []
    merging = txn.work.merging
    for use in (txn.standing.key, *(() if merging is None else merging.keys)):
        if use is not None:
            parts.append(bind_key(txn, use))
    if context.life:
        return parts  # it is whose base tells, and a merge looks whose it is by then
    for location in tables_written(txn):
        tail = context.tails.get(location)
        if tail is not None and not txn.options.read_only:
            parts.append(context.formats.of(tail.snapshot).check_whole(tail.snapshot))
    for location, working in () if txn.options.read_only else txn.work.tables.items():
        state, snapshot = head.tables.get(location), working.snapshot
        # One that was dropped may have been let go, with its lake.json.
        enters = state is None or state.dropped
        if enters or _is_another_elsewhere(location, state, snapshot):
            table_id, catalog = snapshot.table_id, snapshot.catalog
            parts.append(claim_table(location, head, context.ids, table_id, catalog=catalog))
        if enters and (state is None or txn.revives(location)):
            parts.append(refuse_two_tables(snapshot))
    return parts


def _is_another_elsewhere(location: str, state: TableState | None, snapshot: TableSnapshot) -> bool:
    """Whether a table outside of the root is made anew, where its claim tells which it is."""
    return is_external(location) and state is not None and state.table_id != snapshot.table_id
