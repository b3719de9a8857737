"""When a transaction that lives long is due to be saved (design, section 6).

By time and by bytes, not by the number of its operations: a hundred small appends are over
before a save of them would be.
"""

from __future__ import annotations

from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState

#: Of new files, in the memory of one transaction.
MOST_HELD_BYTES = 64 * 1024 * 1024


def is_due(txn: TransactionState) -> bool:
    """Whether a transaction with Feature.R has lived, or holds, enough to be written down."""
    return _is_lazy(txn) and (
        _age(txn) >= txn.context.settings.save_interval_seconds or _holds_much(txn)
    )


def is_due_in_verb(txn: TransactionState) -> bool:
    """Whether the verb that ends now has to save it, although a thread saves those that are due.

    It holds as much memory as it may; or that thread, which waits for a moment between two
    verbs, has found none for as long again.
    """
    return _is_lazy(txn) and (
        _age(txn) >= 2 * txn.context.settings.save_interval_seconds or _holds_much(txn)
    )


def is_due_between_verbs(txn: TransactionState) -> bool:
    """Whether a thread beside it should save it: not what is at its commit, nor what is as saved.

    One whose commit was tried is left to its caller, who may have to hear what became of it.
    """
    count = 0 if txn.standing.saved is None else txn.standing.saved.operations
    return (
        len(txn.work.done) != count
        and not (txn.ending.tried or txn.ending.is_in_doubt or txn.work.behind)
        and is_due(txn)
    )


def _is_lazy(txn: TransactionState) -> bool:
    return (
        Feature.R in txn.options.features
        and txn.state is Life.OPEN
        and not txn.context.only_creates
    )


def _age(txn: TransactionState) -> float:
    """Seconds since it was last saved, or began."""
    since = txn.bound.began_at if txn.standing.saved is None else txn.standing.saved.at
    return txn.context.clock.elapsed() - since


def _holds_much(txn: TransactionState) -> bool:
    return txn.work.held_bytes >= MOST_HELD_BYTES
