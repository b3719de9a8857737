"""Idempotency keys, on branches too."""

from __future__ import annotations

import msgspec

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    MergeConflict,
)
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import Head, find_commit
from lakevilla.global_log.keys import (
    KEYS_PREFIX,
    KeyRecord,
    is_key_object,
    key_object,
    load_key,
    load_key_object,
    new_record,
    put_key,
)
from lakevilla.global_log.repo import commits_since, load_head, load_refs
from lakevilla.ids import started_at
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import Branch
from lakevilla.lake.publishing.outcome import fence, result_of
from lakevilla.results import CommitResult
from lakevilla.store.base import Stored
from lakevilla.store.effects import Program, list_objects, parallel, sleep
from lakevilla.store.location import at_home
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse

# -------------------- idempotency
#
# Idempotency: a key commits once, however often its user is run again (design, section 9).


_POLL_SECONDS = 0.25
_POLL_CAP_SECONDS = 2.0


def enter_key(txn: TransactionState, use: KeyUse) -> Program[None]:
    """Find out whether the key is done already, before anything else.

    A use of it that is still undecided is waited for, for a lease; then it is
    aborted in HEAD, so that it cannot commit concurrently with this one. With what is then known a
    batch is refused if earlier batches are missing.

    Raises
    ------
    AlreadyCommitted
        With the result of the transaction that used the key.
    InvalidOperation
        It is a batch of a stream that is done, and the lake has it from another checkpoint, or with
        other rows; or the lake lacks batches that were acknowledged.
    """
    use.held = yield from load_key(use.key, use.version)
    if use.held is None:
        _refuse_unknown(txn, use)
        return
    record = use.held.record
    use.committed = record.committed
    _refuse_done(txn, use)
    if record.is_settled or (yield from _settled(txn, use, record)):
        _refuse_gap(txn, use, record)


def _refuse_unknown(txn: TransactionState, use: KeyUse) -> None:
    """Refuse a key of which nothing is known, until a user has confirmed that it is new."""
    if txn.head is None or not txn.head.keys_lost:
        return
    raise CommitOutcomeUnknown(
        f"idempotency key {use.key!r} may have been used before this lake lost all but its tables: "
        "check the tables for the changes that were committed with it; when you "
        "know what was committed, `lakevilla recover ROOT --confirm-head` lets keys be used again",
        txn_id=txn.id,
        idempotency_key=use.key,
    )


def _settled(txn: TransactionState, use: KeyUse, record: KeyRecord) -> Program[bool]:
    """Find out how the last use has ended, for good; return whether that is known."""
    if record.txn == txn.id:
        use.is_bound = True  # by the process that began this transaction, now resumed
        return True
    if record.txn in txn.context.ended:
        return True  # this process ended it: nothing of it is under way
    deadline = txn.context.clock.elapsed() + txn.context.settings.lease_seconds
    pause = _POLL_SECONDS
    while True:
        held = yield from txn.context.head()
        if held is None:
            return False
        commits = yield from commits_since(held.head, record.sequence)
        if commits is None:
            _refuse_forgotten(txn.context, held.head, use, record)
            return True
        found = find_commit(commits, record.txn)
        if found is None and not held.head.is_fenced(record.txn):
            if txn.context.clock.elapsed() < deadline:
                yield from sleep(pause)
                pause = min(_POLL_CAP_SECONDS, 2 * pause)
                continue
            found = yield from fence(txn.context, record.txn)
        if found is not None:
            if record.version is None:
                if found.sequence <= held.head.history_start:
                    return True  # past its retention: HEAD may still list it, but need not
                result = yield from result_of(txn.context, held.head, found)
                raise AlreadyCommitted(
                    f"idempotency key {use.key!r} was committed by transaction {record.txn}: "
                    "nothing is left to do",
                    result=result,
                    txn_id=record.txn,
                )
            use.committed = record.version
            _refuse_done(txn, use)
        return True


def _refuse_done(txn: TransactionState, use: KeyUse) -> None:
    if use.version is None or use.committed is None or use.version > use.committed:
        return
    _refuse_other_checkpoint(txn, use, use.version)
    raise AlreadyCommitted(
        f"application {use.key!r} has committed version {use.committed}, so version "
        f"{use.version} is done: nothing is left to do",
        txn_id=txn.id,
    )


def _refuse_other_checkpoint(txn: TransactionState, use: KeyUse, batch: int) -> None:
    """Refuse a batch whose rows are nowhere, though the lake has its number: to skip it loses them.

    Spark goes on from a batch only when it knows of its commit, so of one checkpoint only the
    last batch comes again. The record holds the checkpoint of that batch. This is safe, because a
    record whose version is committed was stored by the transaction that has committed it: all other
    transactions that bound it are fenced.
    """
    if use.checkpoint is None or use.held is None:
        return
    last = use.held.record
    if last.version == batch and last.checkpoint == use.checkpoint:
        _refuse_other_plan(txn, use, last)
        return
    what = f"brings batch {batch}, and the lake has its batch {last.version}"
    why = "the checkpoint is a new one, or an older copy of the one that the lake has seen"
    if last.version == batch:
        ours, its = (f"checkpoint {one or 'unknown'}" for one in (use.checkpoint, last.checkpoint))
        what = f"brings batch {batch} of {ours}, and the lake has its batch {batch} of {its}"
        why = "skipping it would lose its rows"
    raise InvalidOperation(
        f"stream {use.key!r} {what}: {why}; a new checkpoint needs a query_id of its own (option "
        "queryId of the data source)",
        txn_id=txn.id,
    )


def _refuse_other_plan(txn: TransactionState, use: KeyUse, last: KeyRecord) -> None:
    """Refuse a batch that the checkpoint has planned twice: the lake has other rows (note 48)."""
    if not use.planned or not last.planned or use.planned == last.planned:
        return
    raise InvalidOperation(
        f"stream {use.key!r} brings batch {last.version}, and lake {txn.context.root} has a batch "
        f"{last.version} of other rows: checkpoint {last.checkpoint or 'unknown'} has gone back "
        "to an older copy, from before the batches that the lake has seen, and skipping the batch "
        "would lose its rows; continue with its newest copy, or give this one a query_id of its "
        f"own (option queryId of the data source): then all batches from {last.version} on are "
        "written, including those that the lake has already",
        txn_id=txn.id,
    )


def _refuse_gap(txn: TransactionState, use: KeyUse, last: KeyRecord) -> None:
    """Refuse a batch that comes after acknowledged batches that are not here (note 49).

    Spark plans a batch when the one before was acknowledged. It goes back at times, never ahead.
    """
    if not _is_waiting(use, last) or use.version is None or last.due is None:
        return
    due = last.due if use.committed is None else max(last.due, use.committed + 1)
    if use.version <= due:
        return
    lacks = f"batch {due}" if use.version == due + 1 else f"batches {due} to {use.version - 1}"
    ends = f"ends with its batch {due - 1}" if due else "has none of its batches"
    raise InvalidOperation(
        f"stream {use.key!r} brings batch {use.version}, and lake {txn.context.root} {ends}: "
        f"{lacks} of checkpoint {use.checkpoint} precede it and can't be found, so the lake has "
        "gone back to an older state, as by a backup, or they were written elsewhere; restore the "
        "newer state of the lake, or continue with a copy of the checkpoint that is as old as the "
        "lake, or give the stream a query_id of its own (option queryId of the data source): then "
        f"it continues from batch {use.version}, and the lake stays without {lacks}",
        txn_id=txn.id,
    )


def _is_waiting(use: KeyUse, last: KeyRecord) -> bool:
    """Return whether the last use says which batch of the same checkpoint is due."""
    return use.is_counted and last.due is not None and last.checkpoint == use.checkpoint


def note_over(txn: TransactionState, use: KeyUse) -> Program[None]:
    """Note that a batch is over and has written nothing: the next one is due.

    This is noted before its caller learns that it is done: else the next batch would be considered
    one after a gap. Where no batch is waited for, the note is never read. The outcome of the last
    use was found on entry, and goes into the same object. This is safe, because that use has
    committed or can't any more. That holds for an earlier attempt of this transaction, too, or it
    would not be run again (``rerun``).
    """
    held = use.held
    if use.version is None or held is None or not _is_waiting(use, held.record):
        return
    if held.record.due is not None and held.record.due > use.version:
        return  # noted before
    noted = msgspec.structs.replace(
        held.record,
        nonce=txn.context.ids.nonce(),
        committed=use.committed,
        due=use.version + 1,
    )
    yield from _replace(txn, use, noted)


def _refuse_forgotten(context: Context, head: Head, use: KeyUse, record: KeyRecord) -> None:
    """Refuse a key whose last use is older than the lake's history; only a plain key is free again.

    A plain key is not free if the history is short because HEAD was lost: then the key's retention
    still runs. HEAD's floor, which gc moves on by the store's time, shows how far it has run.
    """
    age = started_at(head.floor) - started_at(record.txn)
    kept = age < context.settings.outcome_retention_seconds
    if record.version is not None and record.committed == record.version:
        return  # it has committed, and this is a later version
    if record.version is None and not (record.sequence < head.rebuilt and kept):
        return
    if record.version is None and record.committed is not None:
        raise AlreadyCommitted(
            f"idempotency key {use.key!r} was committed by transaction {record.txn}, before the "
            "lake's HEAD was lost: nothing is left to do",
            txn_id=record.txn,
        )
    what = f"idempotency key {use.key!r}"
    if record.version is not None:
        what = f"version {record.version} of application {use.key!r}"
    raise CommitOutcomeUnknown(
        f"{what} may have been committed, which is not known any more: search for transaction "
        f"{record.txn} in the tables' histories; if it is in none, delete "
        f"{key_object(use.key, use.version)} and run again",
        txn_id=record.txn,
        idempotency_key=use.key,
    )


def bind_key(txn: TransactionState, use: KeyUse) -> Program[None]:
    """Bind the key to the transaction, before its commit point.

    A transaction that binds it again has seen this record first, and fences its id before
    replacing it: so of all transactions that ever bind a key, one commits with it.
    """
    if use.is_bound:
        return
    assert txn.bound.held is not None
    record = new_record(
        txn.context.ids.nonce(),
        use.key,
        txn.id,
        txn.bound.held.head.sequence,
        use.version,
        use.committed,
        as_log=txn.bound.held.head.as_log,
        checkpoint=use.checkpoint or "",
        planned=use.planned,
        due=use.version if use.is_counted else None,
    )
    yield from _replace(txn, use, record)
    use.is_bound = True


def _replace(txn: TransactionState, use: KeyUse, record: KeyRecord) -> Program[None]:
    """Store the record that follows the use found on entry, unless another client has done so."""
    outcome = yield from put_key(key_object(use.key, use.version), use.held, record)
    if not isinstance(outcome, Stored):
        raise txn.fail(
            ConflictError(
                f"idempotency key {use.key!r} was taken by another transaction meanwhile: run it "
                "again, which waits for that transaction",
                txn_id=txn.id,
            )
        )


# -------------------- branch keys
#
# Idempotency keys and branches: the keys in a branch's base, and those that a merge includes.
#
# A key commits once in what a lake shows: on a branch, that is its base and all that was
# committed there; on the lake, all that was committed there, and all that was merged
# (docs/design/0031-branches.md). Keys are strings here; an ``(application, version)`` pair shows
# its last use alone, and its use at the base could not be known.


def committed_in_base(lake: Context, branch: Head, key: str) -> Program[CommitResult | None]:
    """Return the result of a commit with that key in the branch's base; None if there is none.

    ``lake`` is the lake's own context, and ``branch`` a HEAD of the branch. A commit that did not
    exist when the branch was made has a later number by now, or will have, so the answer stays the
    same.

    Raises
    ------
    InvalidOperation
        The answer can't be known: the branch was made of another one.
    """
    assert branch.epoch is not None, "it is a branch's"
    base = yield from load_base(branch.epoch.base)
    if base.origin:
        raise InvalidOperation(
            f"branch {branch.epoch.name!r} was created from a state of another branch, so it is "
            f"not known whether idempotency key {key!r} was committed in it: use keys on branches "
            "of the lake, or check the tables for the rows before you repeat"
        )
    held = yield from lake.head()
    if held is None:
        return None
    yield from load_refs(held.head, [branch.epoch.name])
    entry = held.head.refs.get(branch.epoch.name)
    for epoch in () if entry is None or entry.id != branch.epoch.ref_id else entry.epochs:
        if epoch != branch.epoch.id:
            found_before = yield from at_home(epoch, _committed_in(lake, key))
            if found_before is not None:
                return found_before
    used = yield from load_key(key, None)
    if used is None:
        return None
    commits = yield from commits_since(held.head, used.record.sequence)
    if commits is None:
        if used.record.committed is None:
            return None  # past its retention: no answer is owed, on the lake neither
        return CommitResult(used.record.txn, None, None)
    found = find_commit(commits, used.record.txn)
    if found is None or found.sequence > base.sequence:
        return None
    return (yield from result_of(lake, held.head, found))


def keys_to_take(
    txn: TransactionState, branch: Branch, since: Base, *, partial: bool
) -> Program[tuple[KeyUse, ...]]:
    """Return the keys of commits on a branch that a merge includes, none of which the lake has.

    They are found before the merge is bound to them, as in any use of a key: of all transactions
    that use it, one commits.

    Raises
    ------
    MergeConflict
        The lake has committed one of them itself, so its changes are there twice.
    InvalidOperation
        A part of the changes that were committed with a key would be merged.
    """
    name = branch.name
    waiting = yield from keys_waiting(branch, since)
    if waiting and partial:
        raise InvalidOperation(
            f"branch {name!r} has committed with idempotency key {waiting[0]!r}: merge all of its "
            "tables together, as a key covers all changes that were committed with it"
        )
    uses = tuple(KeyUse(key, None) for key in waiting)
    for use in uses:
        try:
            yield from enter_key(txn, use)
        except AlreadyCommitted as error:
            raise MergeConflict(
                f"idempotency key {use.key!r} was committed on branch {name!r} and on the lake "
                f"(transaction {error.txn_id}), so that its changes would be applied twice: undo "
                "one of them, or delete the branch"
            ) from error
    return uses


def keys_waiting(branch: Branch, since: Base) -> Program[list[str]]:
    """Return the keys that were committed on a branch since it was made, rebased or last merged.

    A branch that has any is not rebased, so no older epoch of it has one.
    """
    head = branch.held.head
    assert head.epoch is not None, "it is a branch's"
    if not head.epoch.keyed:
        return []
    # They are listed after its HEAD is read: a client that commits with a key has stored it before.
    return (yield from at_home(branch.entry.epoch, _committed_after(head, since.sequence)))


def _committed_after(head: Head, sequence: int) -> Program[list[str]]:
    """Return the keys with which the commits in ``head`` after ``sequence`` were made."""
    infos = yield from list_objects(f"{KEYS_PREFIX}/")
    names = [info.key for info in infos if is_key_object(info.key)]
    used = yield from parallel([load_key_object(name) for name in names])
    commits = yield from commits_since(head, max(sequence, head.history_start))
    assert commits is not None, "a branch keeps its history"
    by_txn = {commit.txn for commit in commits}
    return sorted(
        held.record.key
        for held in used
        if held is not None and held.record.version is None and held.record.txn in by_txn
    )


def _committed_in(lake: Context, key: str) -> Program[CommitResult | None]:
    """Return the result of a commit with a key in an epoch that is over. It runs at its home."""
    used = yield from load_key(key, None)
    held = yield from load_head()
    if used is None or held is None:
        return None
    commits = yield from commits_since(held.head, used.record.sequence)
    found = None if commits is None else find_commit(commits, used.record.txn)
    if found is None:
        return None
    return (yield from result_of(lake.of_branch(held), held.head, found))
