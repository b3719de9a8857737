"""The end of a transaction that does not commit."""

from __future__ import annotations

from lakevilla.errors import (
    CommitOutcomeUnknown,
)
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.transaction.state.transaction import Transaction


def abort(txn: Transaction) -> Program[None]:
    """Undo everything. What was stored is deleted if nobody can have committed it."""
    if txn.state in ("committed", "aborted"):
        return
    undecided = isinstance(txn.failure, CommitOutcomeUnknown)
    if txn.key is not None and txn.state == "failed" and not (undecided or txn.shared):
        # Whoever runs again with the key in this process need not wait for
        # a lease: no replacement of HEAD by this id is under way any more, and
        # nobody can have resumed it.
        txn.context.ended.add(txn.id)
    txn.state = "aborted"
    txn.bodies.clear()
    if not (txn.tried or txn.shared):
        keys, txn.stored = txn.stored, []
        yield from parallel([delete(key) for key in keys])
