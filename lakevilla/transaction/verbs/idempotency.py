"""Idempotency keys: check and bind them, also on branches."""

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
from lakevilla.global_log.repo import commits_since, commits_until, load_head, load_refs
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
# Idempotency: a key commits once, however often its transaction is run again (design, section 9).


_POLL_SECONDS = 0.25
_POLL_CAP_SECONDS = 2.0


class KeyRefused(InvalidOperation):
    """The request with the key was refused for good.

    Attributes
    ----------
    outcome, told : str
        What its client was told, and the reason.
    """

    def __init__(self, key: str, outcome: str, told: str) -> None:
        super().__init__(
            f"idempotency key {key!r} is that of a request which was refused for good: {told}"
        )
        self.outcome, self.told = outcome, told


def enter_key(txn: TransactionState, use: KeyUse) -> Program[None]:
    """Find out whether a transaction with the key has committed, before anything else.

    If the last transaction with the key is undecided, wait for it, for a lease; then fence its id,
    so that it can't commit concurrently with this one. After that, refuse a batch if the lake lacks
    earlier batches of the stream.

    Raises
    ------
    AlreadyCommitted
        A transaction has committed with the key; the error has its result.
    InvalidOperation
        The lake has the stream's batch of that number, but from another checkpoint or with other
        rows; or the lake lacks batches that were acknowledged. Or the key was refused for good
        (``KeyRefused``).
    """
    use.held = yield from load_key(use.key, use.version)
    if use.held is None:
        _refuse_unknown(txn, use)
        return
    record = use.held.record
    if record.refused is not None:
        raise KeyRefused(use.key, *record.refused)
    use.committed = record.committed
    _refuse_done(txn, use)
    if record.is_settled or (yield from _settled(txn, use, record)):
        _refuse_gap(txn, use, record)


def _refuse_unknown(txn: TransactionState, use: KeyUse) -> None:
    """Refuse a key that has no object, while HEAD says that the lake has lost its keys."""
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
    """Find out the final outcome of the key's last use; return whether it is known."""
    if record.txn == txn.id:
        use.is_bound = True  # this transaction was resumed: its first process has bound the key
        return True
    if record.txn in txn.context.ended:
        return True  # this process ended it, and no commit of it is under way
    deadline = txn.context.clock.elapsed() + txn.context.settings.lease_seconds
    pause = _POLL_SECONDS
    while True:
        held = yield from txn.context.head()
        if held is None:
            return False
        commits = yield from commits_until(held.head, record.sequence, record.txn)
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
                    return True  # older than the kept history: the key is free again
                result = yield from result_of(txn.context, held.head, found, record.txn)
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
    """Refuse a batch from another checkpoint than the batch that the lake has under its number.

    To skip the batch would lose its rows. Spark goes on from a batch only when it knows that the
    batch has committed, so of one checkpoint only the last batch comes again. The key's record has
    the checkpoint of that batch: if its version has committed, the record was stored by the
    transaction that has committed it, since all other transactions that bound the key are fenced.
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
    """Refuse a batch with other rows than the lake has for its number and checkpoint (note 48)."""
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
    """Refuse a batch if the lake lacks batches before it that were acknowledged (note 49).

    Spark plans a batch only when the batch before it was acknowledged. It may go back to an earlier
    batch, and never skips one.
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
    """Return whether the key's record says which batch of this checkpoint is the next."""
    return use.is_counted and last.due is not None and last.checkpoint == use.checkpoint


def note_over(txn: TransactionState, use: KeyUse) -> Program[None]:
    """Note that a batch has ended without a write, so that the next batch is due.

    This is noted before the caller gets the result: else the next batch would seem to come after a
    gap. No note is needed if the record does not say which batch is due. The note replaces the
    record of the key's last use, and has that use's outcome, which ``enter_key`` has found. This is
    safe, because that use has committed, or can't commit any more. The same holds for an earlier
    attempt of this transaction, else it would not be run again (``rerun``).
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
    """Refuse a key whose last use is older than the lake's history, unless it is a plain key.

    A plain key (without a version) is free again after its retention. It is refused if the history
    is short only because HEAD was lost, and the retention is not over: HEAD's floor, which gc
    advances by the store's time, shows the age.
    """
    age = started_at(head.floor) - started_at(record.txn)
    kept = age < context.settings.outcome_retention_seconds
    if record.version is not None and record.committed == record.version:
        return  # the last use has committed, and this is a later version
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

    Another transaction that binds the key later reads this record first, and fences the id in it
    before it replaces the record. So of all transactions that ever bind a key, one commits with it.
    """
    if use.is_bound:
        return
    yield from _replace(txn, use, _record(txn, use))
    use.is_bound = True


def bind_refusal(txn: TransactionState, use: KeyUse, refused: tuple[str, str]) -> Program[None]:
    """Bind the key to the refusal of its request: whoever sends it again is told the same.

    ``enter_key`` has found that no earlier transaction with the key has committed, or may commit.
    Raises ``ConflictError`` if another client has used the key since.
    """
    yield from _replace(txn, use, _record(txn, use, refused))


def _record(
    txn: TransactionState, use: KeyUse, refused: tuple[str, str] | None = None
) -> KeyRecord:
    """Return the record that binds a key to the transaction, or to the refusal of its request."""
    assert txn.bound.held is not None
    return new_record(
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
        refused=refused,
    )


def _replace(txn: TransactionState, use: KeyUse, record: KeyRecord) -> Program[None]:
    """Replace the key's record, unless another client has replaced it since ``enter_key``."""
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
# A key commits once among the commits that a lake shows: on a branch, those of its base and of the
# branch; on the lake, those of the lake and of merged branches (docs/design/0031-branches.md). Only
# plain keys count here: the record of an ``(application, version)`` pair shows its last use alone,
# not whether it was used before the base.


def committed_in_base(lake: Context, branch: Head, key: str) -> Program[CommitResult | None]:
    """Return the result of a commit with that key in the branch's base; None if there is none.

    ``lake`` is the lake's own context, and ``branch`` is a HEAD of the branch. The result never
    changes: each commit after the creation of the branch gets a higher number than the base.

    Raises
    ------
    InvalidOperation
        The branch was created from a state of another branch, so the result can't be known.
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
    commits = yield from commits_until(held.head, used.record.sequence, used.record.txn)
    if commits is None:
        if used.record.committed is None:
            return None  # the retention is over: the key is free, as it is on the lake
        return CommitResult(used.record.txn, None, None)
    found = find_commit(commits, used.record.txn)
    if found is None or found.sequence > base.sequence:
        return None
    return (yield from result_of(lake, held.head, found, used.record.txn))


def keys_to_take(
    txn: TransactionState, branch: Branch, since: Base, *, partial: bool
) -> Program[tuple[KeyUse, ...]]:
    """Return the keys of the commits on a branch that a merge includes, none of which the lake has.

    Each is entered like any key of a transaction, before the merge binds it: of all transactions
    that use a key, one commits.

    Raises
    ------
    MergeConflict
        A transaction on the lake has committed with one of the keys, so the merge would apply the
        same changes twice.
    InvalidOperation
        The merge has only a part of the branch's tables, and so might split the changes of a key.
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
    """Return the keys of the commits on a branch since it was created, rebased or last merged.

    No client rebases a branch with such keys, so none of its older epochs has one.
    """
    head = branch.held.head
    assert head.epoch is not None, "it is a branch's"
    if not head.epoch.keyed:
        return []
    # The keys are listed after HEAD was read: a client stores its key before it replaces HEAD.
    return (yield from at_home(branch.entry.epoch, _committed_after(head, since.sequence)))


def _committed_after(head: Head, sequence: int) -> Program[list[str]]:
    """Return the idempotency keys of the commits in ``head`` after ``sequence``."""
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
    """Return the result of a commit with a key in an ended epoch, at whose home this runs."""
    used = yield from load_key(key, None)
    held = yield from load_head()
    if used is None or held is None:
        return None
    commits = yield from commits_until(held.head, used.record.sequence, used.record.txn)
    found = None if commits is None else find_commit(commits, used.record.txn)
    if found is None:
        return None
    txn_id = used.record.txn
    return (yield from result_of(lake.of_branch(held), held.head, found, txn_id))
