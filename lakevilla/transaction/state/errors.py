"""Errors that end a transaction."""

from __future__ import annotations

from lakevilla.errors import ConflictError
from lakevilla.transaction.state.transaction import TransactionState


def conflict(txn: TransactionState, table: str, reason: str) -> ConflictError:
    """The error of a transaction that can't be mended."""
    return ConflictError(
        f"transaction {txn.id} conflicts on table {table}: {reason}; run it again "
        "(`lake.run` does so by itself)",
        table=table,
        txn_id=txn.id,
    )


def entered(txn: TransactionState, location: str) -> ConflictError:
    """The error of one that has begun before a table came into the lake."""
    return ConflictError(
        f"table {location} entered the lake after transaction {txn.id} began: "
        "run the transaction again",
        table=location,
        txn_id=txn.id,
    )
