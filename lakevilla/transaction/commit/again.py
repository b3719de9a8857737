"""A commit point that was tried, and no answer came: what became of it (note 19; hazard 36).

The write may have landed, or may yet. So before anything moves the transaction looks at
the place that it tried: at the number of its log entry and all above it, or at the
commits of a HEAD that is newer than the one that it was to replace. Found: it has
committed. The place is another's: that write can never land, and the transaction goes on
from there. The place is free: it is tried once more, since one of the two is refused.
"""

from __future__ import annotations

from lakevilla.errors import InvalidOperation
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.decide import decided_by, nobody_takes
from lakevilla.transaction.commit.doubt import doubtful
from lakevilla.transaction.commit.together.candidate import own_commit
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Decided


def check_may_commit(txn: TransactionState) -> None:
    """Refuse to commit what has ended, or has failed."""
    if txn.state is Life.FAILED:
        assert txn.ending.failure is not None
        raise doubtful(txn, txn.ending.failure) if txn.ending.is_in_doubt else txn.ending.failure
    if txn.state is not Life.OPEN:
        raise InvalidOperation(
            f"commit: transaction {txn.id} has {txn.state} already", txn_id=txn.id
        )


def found_in_head(txn: TransactionState) -> Program[Decided | None]:
    """The transaction's commit in the newest HEAD, if a replacement tried before has landed."""
    if not txn.ending.is_in_doubt_in_head:
        return None
    held = yield from txn.context.head()
    if held is None:
        return None
    mine = yield from own_commit(txn, held.head)
    if mine is not None:
        return decided_by(txn, held, mine)
    txn.note_not_in(held.head)
    return (yield from nobody_takes(txn))
