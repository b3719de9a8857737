"""Steps 6 and 7 of a commit: publish in the logs of its tables, and give places back."""

from __future__ import annotations

from lakevilla.errors import CorruptObject, ForeignConflict, LakeVillaError
from lakevilla.global_log.commits import CommitObject, commit_key
from lakevilla.global_log.head import CommitSummary, Head, Touch
from lakevilla.global_log.repo import commits_since, load_tables
from lakevilla.lake.context import Event
from lakevilla.lake.publishing.publish import Published, publish_once
from lakevilla.lake.tables.claims import note_names
from lakevilla.lake.tables.renaming import renames_of
from lakevilla.phases import during
from lakevilla.results import CommitResult
from lakevilla.store.base import Missing
from lakevilla.store.effects import Program, delete, get, parallel
from lakevilla.transaction.commit.together.group import commits_of
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided
from lakevilla.transaction.verbs.save import forget


def release_claims(txn: TransactionState) -> Program[None]:
    """Delete markers, record and sublogs. If that fails, other clients do it after a lease."""
    keys = commits_of(txn.context).proposals_to_delete(txn.context)
    try:
        if keys:
            yield from parallel([forget(txn), *[delete(key) for key in keys]])
        else:
            yield from forget(txn)
    except LakeVillaError as error:
        message = f"could not clean up after transaction {txn.id}: {error.message}"
        txn.context.notify(Event("retry", txn.id, message))


def publish_decided(txn: TransactionState, decided: Decided) -> Program[CommitResult]:
    """Publish a decided transaction on all its tables in parallel, and return its result.

    Its places in the queues are deleted in the same round: HEAD has its commit, so a transaction
    that was behind it finds the commit there, and publishes it if necessary. Of a combined commit,
    each member publishes the tables that it has changed itself.
    """
    context = txn.context
    head, summary = decided.held.head, decided.summary
    touched = _own_touches(txn, summary)
    yield from load_tables(head, touched)
    # If ``head`` has later commits, this one may not be pending any more: the log has it by now, or
    # a reconcile commit has replaced it. The log and a newer HEAD show which.
    is_overtaken = head.sequence > summary.sequence
    pending = [
        location
        for location, touch in touched.items()
        if not context.epoch
        and _may_be_pending(head, summary.sequence, location, touch, is_overtaken=is_overtaken)
    ]
    publishing = [publish_or_tell(txn, decided, location) for location in pending]
    named = renamed_tables(txn)
    noting = [note_names(context, named)] if named else []
    outcomes = (yield from parallel([*publishing, release_claims(txn), *noting]))[: len(pending)]
    versions: dict[str, int | None] = {}
    for location, published in zip(pending, outcomes, strict=True):
        versions[location] = None if published is None else published.version_of(summary.sequence)
    if context.epoch:
        versions = dict.fromkeys(touched)
        return txn.note_committed(versions, summary.sequence)
    result = txn.note_committed(versions, summary.sequence)
    logs = [one for one in outcomes if one is not None]
    newest = max((one.head for one in logs), key=lambda one: one.replacement, default=head)
    if any(one.is_by_another(summary.sequence) for one in logs):
        # HEAD is read after the log: a reconcile replaces the commit in HEAD before it publishes.
        held = yield from context.head()
        newest = newest if held is None else held.head
    if newest is not head or is_overtaken:
        yield from _report_foreign(txn, newest, summary, result)
    return result


def _own_touches(txn: TransactionState, summary: CommitSummary) -> dict[str, Touch]:
    """Return the effects of a transaction's commit on the tables that it has changed itself."""
    if txn.id not in summary.members:
        return summary.tables
    return {table: touch for table, touch in summary.tables.items() if table in txn.written}


def renamed_tables(txn: TransactionState) -> list[str]:
    """Return the tables that the transaction has renamed: their claims note the names, too."""
    return [one.table for one in renames_of(done.operation for done in txn.work.done)]


def _may_be_pending(
    head: Head, sequence: int, location: str, touch: Touch, *, is_overtaken: bool
) -> bool:
    state = head.tables.get(location)
    if state is None:
        return False
    if any(ref.sequence == sequence for ref in state.pending):
        return True
    return is_overtaken and not state.dropped and (touch.adds or touch.removes or touch.metadata)


def publish_or_tell(
    txn: TransactionState, decided: Decided, location: str
) -> Program[Published | None]:
    """Publish on one table; report an error, and leave the publishing to the next client.

    If another process has performed the operations, that process goes first.
    """
    is_ours = decided.summary.hash in txn.ending.digests
    ours = decided.together | {decided.summary.txn if is_ours else txn.id}
    with during("publish", location):
        published = yield from publish_once(txn.context, decided.held.head, location, ours)
    if isinstance(published, LakeVillaError):
        txn.context.note_unpublished(txn.id, location, published)
        return None
    return published


def _kept_commit(txn: TransactionState, summary: CommitSummary) -> Program[CommitObject | None]:
    """Return a commit's object; None if gc has deleted it, as the commit was published long ago."""
    context = txn.context
    try:
        return (yield from context.commit_object(summary.txn, summary.hash))
    except CorruptObject:
        found = yield from get(commit_key(summary.txn, summary.hash, context.epoch))
        if not isinstance(found, Missing):
            raise
    return None


def _report_foreign(
    txn: TransactionState, head: Head, own: CommitSummary, result: CommitResult
) -> Program[None]:
    commits = yield from commits_since(head, own.sequence)
    tables = _own_touches(txn, own).keys()
    # A reconcile commit may become unfit, and be reconciled in turn: report the worst outcome.
    counting, ids = {own.sequence}, {txn.id, own.txn}
    worst, table, effect = 0, "", ""
    for summary in commits or ():
        if summary.kind != "reconcile" or counting.isdisjoint(summary.replaces):
            continue
        if tables.isdisjoint(summary.tables):
            continue  # it has replayed other members of a combined commit
        commit = yield from _kept_commit(txn, summary)
        reason, is_touched = None, False
        if commit is not None:
            reason = next((why for voided, why in commit.voided if voided in ids), None)
            is_touched = not ids.isdisjoint(commit.touched_reads)
        counting.add(summary.sequence)
        ids.add(summary.txn)
        is_quiet = commit is not None and commit.quiet
        rank = 0 if is_quiet else 1 + (is_touched or commit is None) if reason is None else 3
        if rank <= worst:
            continue
        worst, table = rank, next(iter(summary.tables))
        if commit is None:
            effect = (
                "its operations were replayed long ago, and what came of it is not kept any more"
            )
        elif reason is not None:
            effect = (
                f"its changes to the table could not be replayed and are cancelled there: {reason}"
            )
        elif is_touched:
            effect = "its operations were replayed, and rows that it had read were changed"
        else:
            effect = "its operations were replayed on the changed rows"
    if worst:
        raise ForeignConflict(
            f"transaction {txn.id} is committed, but a client without lakevilla changed table "
            f"{table} before it was published: {effect}; check the table, and `guard` it to close "
            "this window",
            result=result,
            table=table,
            txn_id=txn.id,
        )
