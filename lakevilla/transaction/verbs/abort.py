"""Abort a transaction, or run it again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from lakevilla.errors import CommitOutcomeUnknown, LakeVillaError, TransactionAborted
from lakevilla.ids import is_by_entry
from lakevilla.phases import during
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.sublogs.own_record import Renewal
from lakevilla.transaction.queue.reservation import reserve
from lakevilla.transaction.state.parts import Claims
from lakevilla.transaction.state.status import TERMINAL, Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.save import forget, unsave

# -------------------- abort
#
# End a transaction that does not commit.


def give_up(txn: TransactionState) -> Program[None]:
    """Abort the transaction, and delete its record, markers and saved sublogs."""
    yield from _withdraw(txn)
    yield from forget(txn)
    yield from abort(txn)


def _withdraw(txn: TransactionState) -> Program[None]:
    """Take back the saved state, so that no process can resume it and its files can be deleted.

    If its commit was tried, or another process has resumed it, the files stay for gc.
    """
    ending = txn.ending
    if txn.state in TERMINAL or not ending.shared or ending.tried or ending.is_in_doubt:
        return
    with suppress(TransactionAborted):
        yield from unsave(txn)


def abort(txn: TransactionState) -> Program[None]:
    """Abort the transaction; delete the files that it has stored, if no client can commit them."""
    if txn.state in TERMINAL:
        return
    if txn.turn is not None:
        txn.turn.give_back()
    undecided = isinstance(txn.ending.failure, CommitOutcomeUnknown) or txn.ending.is_in_doubt
    if (
        txn.claims.key is not None
        and txn.state is Status.FAILED
        and not (undecided or txn.ending.shared)
    ):
        # A later transaction with the same key in this process need not wait for a lease: no commit
        # of this id is under way any more, and no process can have resumed it.
        txn.context.ended.add(txn.id)
    txn.note_aborted()
    yield from delete_its_files(txn)


def delete_its_files(txn: TransactionState) -> Program[None]:
    """Drop the files in memory; delete the stored ones, if no client can have committed them."""
    txn.work.drop_all_files()
    if txn.ending.may_delete_its_files:
        keys, txn.work.stored = txn.work.stored, []
        if keys:
            with during("free"):
                yield from parallel([delete(key) for key in keys])


# -------------------- rerun
#
# Run a transaction again after a conflict, with the same id and places (design, section 7).
#
# So the transaction that has waited longest stays first. The same id is safe: each replacement of
# HEAD that the earlier attempt sent was refused, or can't be stored any more because HEAD has moved
# (else the attempt would have ended with ``CommitOutcomeUnknown``). So the next commit is the only
# one of the id.


def rerun(old: TransactionState, *, escalate: bool = False) -> Program[TransactionState]:
    """Return the transaction as it was begun, after an attempt that ended with ``ConflictError``.

    ``escalate``: begin it with Feature.CT, and reserve the tables used so far in HEAD.

    Raises
    ------
    TransactionAborted
        The transaction was saved, and another process has resumed it.
    """
    # A lake whose HEAD is a log, and a branch, have no queues: the transaction stays optimistic.
    has_queues = not (old.context.epoch or (yield from old.context.is_only_creating()))
    escalate = escalate and has_queues
    yield from unsave(old)
    # Without its key the attempt does not note the id as ended: the id may still commit.
    key, old.claims.key = old.claims.key, None
    yield from abort(old)
    queue, old.claims.queue = old.claims.queue, None
    record, old.claims.record = old.claims.record, None
    features = old.options.features | Feature.CT if escalate else old.options.features
    txn_id = old.id
    if escalate and is_by_entry(txn_id) and record is None:
        # It will commit through HEAD alone: it gets an id for that, which HEAD can settle.
        txn_id = old.context.new_txn_id(above=txn_id)
    options = replace(old.options, features=features)
    new = begin(
        TransactionState(old.context, txn_id, options, through_head=old.through_head or escalate)
    )
    new.bound.began, new.bound.started_ms = old.bound.began, old.bound.started_ms
    new.claims = Claims(
        record=record,
        claim=old.claims.claim,
        key=None if key is None else KeyUse(key.key, key.version, *key.batch),
        queue=queue,
        # The escalated attempt may use again all tables that earlier attempts have used.
        used=old.claims.used | set(old.work.tables),
    )
    new.ending.id_was_seen = old.ending.id_was_seen and txn_id == old.id
    if record is not None:
        new.context.renewed(Renewal(new))
    if escalate and new.claims.used and not new.options.read_only:
        try:
            yield from reserve(new, new.claims.used)
        except LakeVillaError:
            yield from forget(new)
            raise
    return new
