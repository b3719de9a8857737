"""Committing through HEAD: store, validate, one conditional write, publish (design, section 8).

The commit point is the replacement of HEAD. Before it nothing is visible and
all can be undone; after it anyone can finish the work. A lost race repeats the
validation and the commit point alone: the commit object names no parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    StoreError,
    TransactionAborted,
)
from lakevilla.global_log.commits import CommitObject, TablePart, commit_key, seal
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    PendingRef,
    TableState,
    Touch,
    find_commit,
    successor,
)
from lakevilla.global_log.repo import (
    HeldHead,
    claim_table,
    commits_since,
    head_found,
    make_room,
    replace_head,
)
from lakevilla.store.base import ABSENT, ANY, Missing, ObjectInfo, Stored, Unknown
from lakevilla.store.effects import Head as HeadOf
from lakevilla.store.effects import Program, Put, parallel, sleep
from lakevilla.sublogs.codec import FORMAT
from lakevilla.sublogs.operations import Create, Drop, is_blind, tables_read
from lakevilla.transaction.absorb import absorb
from lakevilla.transaction.context import Event
from lakevilla.transaction.deferred import perform_deferred
from lakevilla.transaction.describe import describe, summed
from lakevilla.transaction.feed import entry_change
from lakevilla.transaction.idempotency import bind_key
from lakevilla.transaction.outcome import result_of
from lakevilla.transaction.publish import publish_table
from lakevilla.transaction.reservation import remaining, reserved_ahead
from lakevilla.transaction.tail import Tail, refresh
from lakevilla.transaction.validate import adopt, catch_up, examine
from lakevilla.transaction.waiting import wait_for_turn

if TYPE_CHECKING:
    from lakevilla.transaction.core import Transaction

__all__ = ["Decided", "decide"]

#: Races lost in a row before a commit gives up; each one means that others advanced.
_MAX_RACES = 1000
#: Times that the same replacement is sent while nobody can tell what became of it.
_MAX_UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Decided:
    """A transaction that HEAD holds: it is committed whatever happens from here on."""

    held: HeldHead
    summary: CommitSummary


def decide(txn: Transaction) -> Program[Decided]:
    """Bring a transaction to its commit point.

    Raises
    ------
    ConflictError, TransactionAborted
        Nothing of it is or will be visible.
    CommitOutcomeUnknown
        The replacement may have been stored, and the store does not say.
    """
    assert txn.held is not None, "a transaction that writes through HEAD is bound to one"
    waited = yield from wait_for_turn(txn, txn.head)
    if waited or any(done.deferred for done in txn.done):
        yield from catch_up(txn)
    while True:
        yield from perform_deferred(txn)
        commit = yield from _commit_object(txn)
        digest, body = seal(commit)
        yield from _store(txn, commit.txn, digest, body)
        yield from _check_files(txn)
        txn.context.keep_commit(digest, commit)
        decided = yield from _race(txn, commit, digest)
        if decided is not None:
            return decided
        # Something was redone on a newer HEAD: its files make a new commit object.


def _commit_object(txn: Transaction) -> Program[CommitObject]:
    tables = {}
    for table in _written(txn):
        tables[table] = yield from _table_part(txn, table)
    return CommitObject(
        FORMAT,
        txn.context.ids.nonce(),
        txn.id,
        tables,
        operations=tuple(done.operation for done in txn.done),
        reads=tuple(txn.reads.values()),
        metadata=txn.metadata,
        applications=txn.applications,
        started_ms=txn.started_ms,
    )


def _written(txn: Transaction) -> list[str]:
    return list(dict.fromkeys(done.table for done in txn.done))


def _table_part(txn: Transaction, table: str) -> Program[TablePart]:
    mine = [done for done in txn.done if done.table == table]
    change = yield from entry_change(txn, table)
    operations = [done.operation for done in mine]
    name, parameters = describe(operations)
    was_read = any(table in tables_read(done.operation) for done in txn.done)
    was_seen = any(record.table == table for record in txn.reads.values())
    dropped = bool(mine) and isinstance(mine[-1].operation, Drop)
    return TablePart(
        table_id=txn.tables[table].snapshot.table_id,
        change=change,
        blind=all(is_blind(operation) for operation in operations)
        and not was_read
        and not was_seen,
        created=any(isinstance(operation, Create) for operation in operations),
        dropped=dropped,
        operation=name,
        parameters=parameters,
        metrics=summed(done.metrics for done in mine),
    )


def _store(txn: Transaction, txn_id: str, digest: str, body: bytes) -> Program[None]:
    """Data files, commit object, claims, and probes for foreign commits, all in one round."""
    context = txn.context
    assert txn.held is not None
    head = txn.held.head
    key = commit_key(txn_id, digest)
    files = list(txn.bodies)
    parts: list[Any] = [Put(file, txn.bodies[file], ANY) for file in files]
    parts.append(Put(key, body, ABSENT))
    for location, working in txn.tables.items():
        state = head.tables.get(location)
        if (state is None or state.dropped) and not txn.read_only:
            # One that was dropped may have been let go, with its lake.json.
            parts.append(claim_table(location, head, context.ids))
        if not working.view.guarded:
            parts.append(refresh(context, location))
    if txn.key is not None:
        parts.append(bind_key(txn, txn.key))
    # Noted before they are asked for: an interruption in between leaves some of
    # them stored, and an abort must find them.
    txn.stored.extend([*files, key])
    outcomes = yield from parallel(parts)
    for name, outcome in zip([*files, key], outcomes, strict=False):
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not store {name}: nothing was committed, run the transaction again",
                txn_id=txn.id,
            )
    for file in files:
        del txn.bodies[file]


def _check_files(txn: Transaction) -> Program[None]:
    """After a long time, check that the files are still there (hazard 6).

    VACUUM and orphan removal of other clients know nothing of transactions:
    to them a file that no log entry names is garbage once it is old enough.
    """
    context = txn.context
    if context.clock.elapsed() - txn.began_at < context.settings.checked_tip_seconds:
        return
    keys = [
        f"{done.table}/{file.path}"
        for done in txn.done
        for file in done.change.adds
        if "://" not in file.path
    ]
    found: list[ObjectInfo | Missing] = yield from parallel([HeadOf(key) for key in keys])
    for key, info in zip(keys, found, strict=True):
        if isinstance(info, Missing):
            raise txn.fail(
                TransactionAborted(
                    f"transaction {txn.id} ran so long that its file {key} was removed by another "
                    "client's clean-up: run it again",
                    txn_id=txn.id,
                )
            )


def _race(txn: Transaction, commit: CommitObject, digest: str) -> Program[Decided | None]:
    """Validate and replace HEAD until it is decided; None if operations had to be redone."""
    context = txn.context
    held = txn.held
    assert held is not None
    txn.digests.add(digest)
    if txn.shared:
        yield from _refuse_committed(txn, held.head)
    for attempt in range(_MAX_RACES):
        txn.check_not_fenced(held.head)
        if reserved_ahead(txn, held.head) and (yield from wait_for_turn(txn, held.head)):
            # The one that was let go first is through: HEAD has moved.
            yield from catch_up(txn)
            return None
        # Before the examination: publishing may meet foreign commits.
        yield from _relieve(txn, held)
        found = yield from examine(txn, held.head)
        if found.conflict is not None:
            raise txn.fail(found.conflict)
        if found.redo_from is not None:
            yield from adopt(txn, held, found)
            return None
        page = yield from make_room(held.head, context.ids)
        commits, tables = yield from _entries(txn, held.head, found.tails, commit, digest)
        new = successor(
            held.head,
            nonce=context.ids.nonce(),
            now_ms=context.now_ms(),
            commits=commits,
            tables=tables,
            page=page,
            reserved=remaining(txn, held.head),
        )
        txn.tried = True
        outcome = yield from replace_head(held, new)
        for _ in range(_MAX_UNKNOWN):
            if not isinstance(outcome, Unknown):
                break
            # The very same write again: it can land once at most, because it
            # matches a HEAD that it replaces itself.
            outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            decided = HeldHead(new, outcome.token)
            context.remember(decided)
            return Decided(decided, new.commits[-1])
        newer = head_found(outcome)
        if newer is None:
            newer = yield from context.head()
        else:
            context.remember(newer)
        if newer is None or (
            isinstance(outcome, Unknown) and newer.head.replacement == held.head.replacement
        ):
            raise txn.fail(
                CommitOutcomeUnknown(
                    f"could not settle whether transaction {txn.id} was committed: "
                    f"ask `lake.outcome({txn.id!r})`",
                    txn_id=txn.id,
                )
            )
        mine = yield from _own_commit(txn, newer.head)
        if mine is not None:
            if mine.hash not in txn.digests:
                raise txn.fail(
                    TransactionAborted(
                        f"transaction {txn.id} was resumed and committed by another process: "
                        "what it did here since its last save is undone",
                        txn_id=txn.id,
                    )
                )
            return Decided(newer, mine)
        held = newer
        txn.retries += 1
        context.notify(Event("retry", txn.id, f"lost a race for HEAD ({attempt + 1} times)", {}))
        yield from _back_off(txn, attempt)
    raise txn.fail(
        ConflictError(
            f"transaction {txn.id} lost {_MAX_RACES} races for HEAD in a row: run it again later",
            txn_id=txn.id,
        )
    )


def _refuse_committed(txn: Transaction, head: Head) -> Program[None]:
    """A saved transaction may have been committed elsewhere before this HEAD was read."""
    mine = yield from _own_commit(txn, head)
    if mine is not None:
        result = yield from result_of(txn.context, head, mine)
        error = AlreadyCommitted(
            f"transaction {txn.id} was committed by another process that resumed it: "
            "nothing is left to do",
            result=result,
            txn_id=txn.id,
        )
        raise txn.fail(error)


def _own_commit(txn: Transaction, head: Head) -> Program[CommitSummary | None]:
    """The transaction's commit, if one of its attempts did land (an id commits at most once).

    All commits since it began are looked at: a resumed transaction may have
    been committed by the process that began it.
    """
    commits = yield from commits_since(head, txn.began)
    if commits is None:
        raise CommitOutcomeUnknown(
            f"the lake's history since transaction {txn.id} began is gone: "
            "it can't be told whether it was committed",
            txn_id=txn.id,
        )
    return find_commit(commits, txn.id)


def _back_off(txn: Transaction, attempt: int) -> Program[None]:
    """Spread those who lost the same race; the first repeat goes at once."""
    if attempt == 0:
        return
    settings = txn.context.settings
    longest = min(settings.retry_cap_seconds, settings.retry_base_seconds * 2 ** min(attempt, 4))
    yield from sleep(longest * txn.context.ids.jitter())


def _relieve(txn: Transaction, held: HeldHead) -> Program[None]:
    """Publish first where more is pending than HEAD should carry."""
    limit = txn.context.settings.max_pending
    for location in txn.tables:
        state = held.head.tables.get(location)
        if state is not None and len(state.pending) > limit:
            yield from publish_table(txn.context, held.head, location)


def _entries(
    txn: Transaction,
    head: Head,
    tails: Mapping[str, Tail],
    commit: CommitObject,
    digest: str,
) -> Program[tuple[list[CommitSummary], dict[str, TableState]]]:
    """The commits and table states that the transaction adds to ``head``.

    ``tails`` are those that were examined, and nothing newer: a foreign commit
    above them was not validated, so it must count as one that came after.
    """
    absorbed = yield from absorb(txn.context, head, tails)
    sequence = head.sequence + len(absorbed.commits) + 1
    tables: dict[str, TableState] = {}
    touches: dict[str, Touch] = {}
    for location, placement in absorbed.placements.items():
        part = commit.tables.get(location)
        pending = placement.overlay
        if part is not None and not part.change.is_empty:
            pending = (*pending, PendingRef(sequence, commit.txn, digest, placement.logged))
        if part is not None:
            touches[location] = _touch(part, placement.logged)
        elif location not in head.tables:
            # Only read, and new to HEAD: it enters, so that what it was read
            # at is held against later commits by everyone.
            touches[location] = Touch(published=placement.logged, data_change=False)
        working = txn.tables[location]
        state = TableState(
            table_id=working.snapshot.table_id,
            published=placement.logged,
            pending=pending,
            guarded=working.view.base.guarded and working.snapshot.guarded,
            dropped=part is not None and part.dropped,
        )
        if state != head.tables.get(location):
            tables[location] = state
    own = CommitSummary(sequence, 0, "transaction", commit.txn, digest, touches)
    return [*absorbed.commits, own], tables


def _touch(part: TablePart, published: int) -> Touch:
    change = part.change
    return Touch(
        published=published,
        adds=bool(change.adds),
        removes=bool(change.removes),
        metadata=change.metadata is not None or change.protocol is not None or part.dropped,
        data_change=change.changes_data,
    )
