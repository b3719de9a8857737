"""The end of a transaction that does not commit."""

from __future__ import annotations

from contextlib import suppress

from lakevilla.errors import CommitOutcomeUnknown, TransactionAborted
from lakevilla.phases import during
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.transaction.state.life import TERMINAL, Life
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.save import forget, unsave


def give_up(txn: TransactionState) -> Program[None]:
    """Undo everything, and delete what others might still find: record, markers, what was saved."""
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
    """Undo everything. What was stored is deleted if nobody can have committed it."""
    if txn.state in TERMINAL:
        return
    undecided = isinstance(txn.ending.failure, CommitOutcomeUnknown) or txn.ending.is_in_doubt
    if (
        txn.standing.key is not None
        and txn.state is Life.FAILED
        and not (undecided or txn.ending.shared)
    ):
        # Whoever runs again with the key in this process need not wait for
        # a lease: no replacement of HEAD by this id is under way any more, and
        # nobody can have resumed it.
        txn.context.ended.add(txn.id)
    txn.note_aborted()
    yield from delete_its_files(txn)


def delete_its_files(txn: TransactionState) -> Program[None]:
    """Delete what was stored, if nobody can have committed it; hold nothing for it any more."""
    txn.work.bodies.clear()
    if txn.ending.may_delete_its_files:
        keys, txn.work.stored = txn.work.stored, []
        if keys:
            with during("free"):
                yield from parallel([delete(key) for key in keys])
