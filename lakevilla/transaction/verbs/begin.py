"""The one place that makes a transaction ready: by an API call, a rerun or a resume."""

from __future__ import annotations

from functools import partial

from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import lookup


def begin(txn: TransactionState) -> TransactionState:
    """Hand a new transaction what an operation that is done again needs to read other tables.

    Here lower code calls up, and nowhere else.
    """
    txn.lookup = partial(lookup, txn)
    return txn
