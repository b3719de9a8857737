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
# The end of a transaction that does not commit.


def give_up(txn: TransactionState) -> Program[None]:
    """Undo everything, and delete what other clients might find: record, markers, saved sublogs."""
    yield from _withdraw(txn)
    yield from forget(txn)
    yield from abort(txn)


def _withdraw(txn: TransactionState) -> Program[None]:
    """Take back what was saved, before its owner aborts: then its files are the owner's to delete.

    Where its commit was tried, or another process has resumed it, they stay for gc.
    """
    ending = txn.ending
    if txn.state in TERMINAL or not ending.shared or ending.tried or ending.is_in_doubt:
        return
    with suppress(TransactionAborted):
        yield from unsave(txn)


def abort(txn: TransactionState) -> Program[None]:
    """Undo everything. What was stored is deleted if no client can have committed it."""
    if txn.state in TERMINAL:
        return
    undecided = isinstance(txn.ending.failure, CommitOutcomeUnknown) or txn.ending.is_in_doubt
    if (
        txn.claims.key is not None
        and txn.state is Status.FAILED
        and not (undecided or txn.ending.shared)
    ):
        # A run with the same key in this process need not wait for a lease: no replacement
        # of HEAD by this id is under way any more, and no process can have resumed it.
        txn.context.ended.add(txn.id)
    txn.note_aborted()
    yield from delete_its_files(txn)


def delete_its_files(txn: TransactionState) -> Program[None]:
    """Delete what was stored, if no client can have committed it; hold nothing for it any more."""
    txn.work.bodies.clear()
    if txn.ending.may_delete_its_files:
        keys, txn.work.stored = txn.work.stored, []
        if keys:
            with during("free"):
                yield from parallel([delete(key) for key in keys])


# -------------------- rerun
#
# Running a transaction again after a conflict: same id, same places (design, section 7).
#
# The transaction that has waited longest stays first. This is safe under one id: every
# replacement of HEAD that the attempt sent was refused, or can't be stored any more because HEAD
# has moved (else it would have ended with ``CommitOutcomeUnknown``), so the next commit
# is the id's only commit.


def rerun(old: TransactionState, *, escalate: bool = False) -> Program[TransactionState]:
    """Return the transaction as it was begun, after an attempt of it ended with ``ConflictError``.

    ``escalate``: with Feature.CT, and the tables used so far reserved in HEAD.

    Raises
    ------
    TransactionAborted
        It was saved and another process has resumed it: begin a new one.
    """
    # Where HEAD is a log, and on a branch, there are no queues: it stays optimistic.
    has_queues = not (old.context.epoch or (yield from old.context.is_only_creating()))
    escalate = escalate and has_queues
    yield from unsave(old)
    # The attempt has ended, its id has not: a client that finds its idempotency key reads HEAD.
    key, old.claims.key = old.claims.key, None
    yield from abort(old)
    queue, old.claims.queue = old.claims.queue, None
    record, old.claims.record = old.claims.record, None
    features = old.options.features | Feature.CT if escalate else old.options.features
    txn_id = old.id
    if escalate and is_by_entry(txn_id) and record is None:
        # It will commit through HEAD alone, and an id that says so can be settled there.
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
        # An escalated attempt may rely again on what the attempts before relied on.
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
