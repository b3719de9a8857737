"""The outcome of transactions, and pending commits whose objects were lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakevilla.errors import (
    CommitOutcomeUnknown,
    CorruptObject,
    InvalidOperation,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import CommitInfo
from lakevilla.global_log.commits import commit_key
from lakevilla.global_log.head import CommitSummary, Head, PendingRef, find_commit, successor
from lakevilla.global_log.repo import HeldHead, load_tables, pages_before, replace_head
from lakevilla.ids import is_by_entry, is_txn_id
from lakevilla.lake.applicability import first_unfit, is_lost, unpublished
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.publishing.publish import Published, publish_table
from lakevilla.lake.publishing.reconcile import decided, reconcile
from lakevilla.lake.table_log import open_tail, opened_again, probe
from lakevilla.results import CommitResult, Outcome
from lakevilla.settings import shown
from lakevilla.store.base import Missing, ObjectInfo, Stored
from lakevilla.store.effects import Program, delete, get, parallel, put, sleep
from lakevilla.store.effects import Stat as HeadOf
from lakevilla.sublogs.record import record_key

# -------------------- outcome
#
# Outcomes: how a transaction has ended; a transaction that has not ended is aborted.
#
# A reported outcome never changes. So an undecided transaction, which may still be running, is
# first fenced by its id in HEAD's ``aborted``. That also replaces HEAD, so that a delayed
# replacement by the transaction's owner can no longer match.


_MAX_RACES = 100


def outcome(context: Context, txn_id: str) -> Program[Outcome]:
    """Return the outcome of a transaction that commits through HEAD; abort it if undecided.

    Raises
    ------
    CommitOutcomeUnknown
        HEAD could not be read or replaced, so the outcome stays unknown.
    """
    check_id(txn_id)
    try:
        return (yield from _settled(context, txn_id))
    except StoreError as error:
        # The caller may have got "unknown" before, and must not take a store error for "aborted".
        raise CommitOutcomeUnknown(
            f"could not settle transaction {txn_id} ({error.message}): try again", txn_id=txn_id
        ) from error


def _settled(context: Context, txn_id: str) -> Program[Outcome]:
    held = yield from context.head()
    if held is None:
        return Outcome("expired")
    try:
        found = yield from find_in_history(held.head, txn_id)
    except VersionNotFound:
        return (yield from _settled(context, txn_id))  # gc deleted a page: read the newer HEAD
    if found is not None:
        return Outcome("committed", (yield from result_of(context, held.head, found, txn_id)))
    if is_by_entry(txn_id):
        raise CommitOutcomeUnknown(
            f"transaction {txn_id} was begun without Feature.I and may have committed by its "
            "table's own log entry: search the table's history for the id",
            txn_id=txn_id,
        )
    if not held.head.is_fenced(txn_id):
        found = yield from fence(context, txn_id)
        held = context.held
        assert held is not None
        if found is not None:
            return Outcome("committed", (yield from result_of(context, held.head, found, txn_id)))
        # Without a record, its places in queues do not count, and its owner finds the abort.
        yield from delete(record_key(txn_id))
    if is_forgotten(held.head, txn_id):
        # The transaction can't commit any more, but may have committed in the history that is no
        # longer kept. HEAD's ``forgotten`` decides that, not a clock.
        return Outcome("expired")
    return Outcome("aborted")


def abort(context: Context, txn_id: str) -> Program[None]:
    """Make sure that a transaction can never commit.

    Raises
    ------
    InvalidOperation
        The transaction has committed, or it is not known whether it has.
    """
    check_id(txn_id)
    if is_by_entry(txn_id) and isinstance((yield from get(record_key(txn_id))), Missing):
        raise InvalidOperation(
            f"transaction {txn_id} was begun without Feature.I and was never saved: it commits by "
            "its table's own log entry, which nothing can fence",
            txn_id=txn_id,
        )
    found = yield from fence(context, txn_id)
    if found is not None:
        raise InvalidOperation(
            f"transaction {txn_id} has committed as global version {found.sequence} "
            "and can't be aborted",
            txn_id=txn_id,
        )
    if context.held is not None and is_forgotten(context.held.head, txn_id):
        raise InvalidOperation(
            f"transaction {txn_id} ended before the history that is kept: it can't commit any "
            "more, and it is not known whether it has",
            txn_id=txn_id,
        )


def is_forgotten(head: Head, txn_id: str) -> bool:
    """Return whether the transaction may have committed in the history that is no longer kept."""
    return txn_id <= head.forgotten and txn_id not in head.aborted


def check_id(txn_id: object) -> None:
    if not isinstance(txn_id, str) or not is_txn_id(txn_id):
        raise InvalidOperation(
            f"not a transaction id: {shown(txn_id)}; one is a UUIDv7 in canonical form, as "
            "`lake.transactions()` lists them"
        )


def find_in_history(head: Head, txn_id: str) -> Program[CommitSummary | None]:
    """Return a transaction's commit, from HEAD or from any page that is kept; else None.

    Raises
    ------
    VersionNotFound
        gc has deleted a page since HEAD was read, so nothing can be inferred.
    """
    found = find_commit(head.commits, txn_id)
    if found is not None:
        return found
    for page in (yield from pages_before(head)):
        found = find_commit(page.commits, txn_id)
        if found is not None:
            return found
    return None


def result_of(
    context: Context, head: Head, summary: CommitSummary, txn_id: str
) -> Program[CommitResult]:
    """Return a transaction's result by HEAD and its commit object; with log versions if cached.

    Of a combined commit, the result of a member has its own tables and operations alone.
    """
    operations = 0
    try:
        commit = yield from context.commit_object(summary.txn, summary.hash)
    except CorruptObject:
        # gc may have deleted the commit object since HEAD was read, after its retention. HEAD
        # still proves the commit.
        tables = [table for table, touch in summary.tables.items() if touch.adds or touch.removes]
    else:
        own = dict(commit.by_member()).get(txn_id, commit.operations)
        operations = len(own)
        written = {operation.table for operation in own}
        tables = [
            table
            for table, part in commit.tables.items()
            if not part.change.is_empty and (table in written or not commit.members)
        ]
    versions: dict[str, int | None] = {}
    for location in tables:
        versions[location] = None
        tail = context.tails.get(location)
        if tail is not None:
            for version in sorted(tail.entries):
                if summary.txn in tail.entries[version].txn_ids:
                    versions[location] = version
    return CommitResult(txn_id, versions, summary.sequence, operations=operations)


def fence(context: Context, *txn_ids: str) -> Program[CommitSummary | None]:
    """Add transactions to HEAD's ``aborted``; return the first that has committed, if any.

    This is safe because every client that replaces HEAD checks ``aborted`` in that very HEAD: once
    this replacement is stored, no replacement with these transactions can be stored.
    """
    for _ in range(_MAX_RACES):
        held = yield from context.head()
        if held is None:
            return None
        head = held.head
        try:
            for txn_id in txn_ids:
                found = yield from find_in_history(head, txn_id)
                if found is not None:
                    return found
        except VersionNotFound:
            continue  # gc has deleted a page: read the newer HEAD
        fresh = tuple(sorted(txn_id for txn_id in txn_ids if not head.is_fenced(txn_id)))
        if not fresh or (head.epoch is not None and head.epoch.closed):
            return None  # on a closed branch, no transaction can commit any more
        context.refuse_foreign_root()
        new = successor(
            head,
            nonce=context.ids.nonce(),
            now_ms=context.now_ms(),
            aborted=(*head.aborted, *fresh),
        )
        stored = yield from replace_head(held, new)
        if isinstance(stored, Stored):
            context.remember(HeldHead(new, stored.token))
            for txn_id in fresh:
                context.notify(Event("abort", txn_id, f"transaction {txn_id} was aborted"))
            return None
        yield from sleep(context.settings.retry_base_seconds * context.ids.jitter())
    raise CommitOutcomeUnknown(
        f"could not settle transaction {txn_ids[0]}: HEAD was replaced by other clients "
        f"{_MAX_RACES} times in a row; try again",
        txn_id=txn_ids[0],
    )


# -------------------- lost commits
#
# Pending commits whose objects were lost: they are cancelled, and reported (note 19).
#
# The changes of such a commit can't be read any more, so it can be neither published nor performed
# again, and all later commits on the table stay pending. Only ``recover`` cancels it, and no
# transaction does: if a user restores the object, nothing is lost.


_MAX_ATTEMPTS = 50


def void_lost(context: Context, head: Head, location: str) -> Program[Head]:
    """Cancel a table's pending commits whose objects are missing; return the HEAD to continue with.

    Another client may have the object in memory, and be about to publish the commit. So the log
    decides first: the next number gets an entry that makes the commit unfit for every client. If
    the commit's own entry was created before, the commit is published, and nothing is lost;
    otherwise it can never be published.
    """
    for _ in range(_MAX_ATTEMPTS):
        yield from load_tables(head, [location])
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        waiting = unpublished(head, location, tail)
        lost = yield from _lost(context, waiting)
        if not lost:
            return head
        first = next(i for i, ref in enumerate(waiting) if (ref.txn, ref.hash) in lost)
        made = tail.tip >= 0 and not (yield from is_lost(context, head, location, tail))
        if made and not (yield from _is_unfit(context, head, location, tail, waiting, first, lost)):
            yield from _make_unfit(context, tail, waiting[first].txn)
            continue
        newer = yield from reconcile(context, location, lost=lost)
        if newer is None:
            break
        head = newer
    raise StoreError(
        f"table {location} has a pending commit whose object is missing, and other clients always "
        "changed the table first: recover again",
        table=location,
    )


def void_with_log(context: Context, head: Head, location: str) -> Program[Head]:
    """Cancel a table's pending commits if its log is lost and some of their objects are missing.

    A user has said that the log will not come back. Return the HEAD to continue with: the given one
    if the log is there, because only ``recover`` gives up commits to it.
    """
    yield from load_tables(head, [location])
    tail = yield from open_tail(context, location, missing_ok=True)
    tail = yield from probe(context, tail)
    waiting = unpublished(head, location, tail)
    lost = yield from _lost(context, waiting)
    if not (lost and (yield from is_lost(context, head, location, tail))):
        return head
    newer = yield from reconcile(context, location, lost=lost, gives_up=True)
    return head if newer is None else newer


def _lost(context: Context, waiting: Sequence[PendingRef]) -> Program[frozenset[tuple[str, str]]]:
    """Return the commits whose objects are missing.

    An object is stored before HEAD names it, its key is never written twice, and gc deletes no
    object of a pending commit. So another program has deleted a missing object, and LakeVilla will
    never store it again.
    """
    unknown = [ref for ref in waiting if context.known_commit(ref.txn, ref.hash) is None]
    found: list[ObjectInfo | Missing] = yield from parallel(
        [HeadOf(commit_key(ref.txn, ref.hash)) for ref in unknown]
    )
    return frozenset(
        (ref.txn, ref.hash)
        for ref, info in zip(unknown, found, strict=True)
        if isinstance(info, Missing)
    )


def _is_unfit(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    waiting: Sequence[PendingRef],
    first: int,
    lost: Collection[tuple[str, str]],
) -> Program[bool]:
    """Return whether a log entry makes the commit unfit, whatever its changes are.

    Then the commit is unfit also for clients that have its object in memory.
    """
    commits = yield from decided(context, head, location, waiting[first : first + 1], lost)
    parts = [commit.tables[location] for commit in commits]
    unfit = yield from first_unfit(context, head, location, tail, waiting[first : first + 1], parts)
    return unfit == 0


def _make_unfit(context: Context, tail: Tail, txn: str) -> Program[None]:
    """Try to add an entry to the log that makes all commits unfit that were decided before it.

    The caller reads the outcome of the write from the log.
    """
    table_format = context.formats.of(tail.snapshot)
    change = table_format.void_change(tail.snapshot, txn)
    info = CommitInfo("VOID", parameters={"transaction": txn}, nonce=context.ids.nonce())
    try:
        ready = yield from table_format.prepare(tail.snapshot, change, info, context.now_ms())
    except VersionNotFound:
        yield from probe(context, tail)  # the objects that the known tip names were cleaned up
        return
    except TableNotFound:
        yield from opened_again(context, tail)
        return
    outcome = yield from put(ready.key, ready.body, ready.condition)
    if isinstance(outcome, Stored):
        newer = yield from probe(context, tail)
        yield from table_format.announce(newer.snapshot)


# -------------------- rejected commits
#
# Pending commits that the catalog of their table rejects for good, or of which no log entry can be
# made: they are cancelled, and reported (notes 19 and 73).


def publish_or_cancel(context: Context, head: Head, location: str) -> Program[Published]:
    """Publish a table's pending commits; cancel each that can't be published.

    Its table's catalog rejects it, or it is an Iceberg client's and no entry can be made of it.
    Only ``recover`` does so: until then, another client may be able to publish the commit.
    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            return (yield from publish_table(context, head, location))
        except StoreError as error:
            if not error.rejected or error.txn_id is None:
                raise
            head = yield from _cancel_rejected(context, location, error)
    raise StoreError(
        f"the catalog of table {location} rejects commit after commit: recover again",
        table=location,
    )


def _cancel_rejected(context: Context, location: str, error: StoreError) -> Program[Head]:
    """Cancel a table's first pending commit, which its catalog has rejected; return the new HEAD.

    Another client may be about to publish the commit, with a client that the catalog accepts. So
    the log decides first, as for a lost commit: the next version makes the commit unfit for all. If
    the catalog rejects that version, too, it takes nothing from this client, and nothing is
    cancelled: the fault need not be the commit's.
    """
    for _ in range(_MAX_ATTEMPTS):
        held = yield from context.head()
        if held is None:
            break
        head = held.head
        yield from load_tables(head, [location])
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        waiting = unpublished(head, location, tail)[:1]
        if not waiting or waiting[0].txn != error.txn_id:
            return head  # another client has published it, or cancelled it
        if not (yield from _is_unfit(context, head, location, tail, waiting, 0, ())):
            try:
                yield from _make_unfit(context, tail, waiting[0].txn)
            except StoreError as also:
                if not also.rejected:
                    raise
                raise StoreError(
                    f"the catalog of table {location} rejects every commit of this client, so the "
                    f"commit of transaction {error.txn_id} stays decided and unpublished: "
                    f"{also.message}; mend the catalog, or recover with a client that it accepts",
                    permanent=True,
                    table=location,
                ) from also
            continue
        reason = _reason(error)
        newer = yield from reconcile(
            context, location, rejected={(waiting[0].txn, waiting[0].hash): reason}
        )
        if newer is not None:
            return newer
    raise StoreError(
        f"table {location} has a pending commit that its catalog rejects, and other clients always "
        "changed the table first: recover again",
        table=location,
    )


def _reason(error: StoreError) -> str:
    """Return why a commit is cancelled: its catalog rejects it, or no entry can be made of it."""
    cause = error.__cause__
    if isinstance(cause, StoreError):
        return f"its catalog rejects the commit: {cause.message}"
    return error.message
