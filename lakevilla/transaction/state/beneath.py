"""What the state of a table is made of, as a transaction sees it."""

from __future__ import annotations

from lakevilla.lake.operations.comparing.computed import Beneath
from lakevilla.transaction.state.transaction import TransactionState


def beneath_of(txn: TransactionState, location: str) -> Beneath | None:
    """What the transaction's state of a table is made of; None if no HEAD tells."""
    head = txn.head
    if head is None:
        return None
    return Beneath(
        head.sequence if head.life is None else head.life.base.sequence,
        tuple(done.operation for done in txn.work.done if done.table == location),
        txn.work.tables[location].view.placement.hidden,
    )
