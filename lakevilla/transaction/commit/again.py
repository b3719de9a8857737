"""A commit point that was tried, and no answer came: what became of it (0019; hazard 36).

The write may have landed, or may yet. So before anything moves the transaction looks at
the place that it tried: at the number of its log entry and all above it, or at the
commits of a HEAD that is newer than the one that it was to replace. Found: it has
committed. The place is another's: that write can never land, and the transaction goes on
from there. The place is free: it is tried once more, since one of the two is refused.
"""

from __future__ import annotations

from lakevilla.errors import CommitOutcomeUnknown, LakeVillaError
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.group import Settled, own_commit
from lakevilla.transaction.state.transaction import Transaction

__all__ = ["doubtful", "found_in_head"]


def found_in_head(txn: Transaction) -> Program[Settled | None]:
    """The transaction's commit in the newest HEAD, if a replacement tried before has landed."""
    if txn.head_tried is None:
        return None
    held = yield from txn.context.head()
    if held is None:
        return None
    mine = yield from own_commit(txn, held.head)
    if mine is not None:
        return Settled(held, mine)
    if held.head.replacement > txn.head_tried:
        txn.head_tried = None  # what was to be replaced is gone, and with it the write
    return None


def doubtful(txn: Transaction, error: LakeVillaError) -> CommitOutcomeUnknown:
    """What an error of a commit means while an earlier write of it may yet land."""
    if isinstance(error, CommitOutcomeUnknown):
        return error
    ask = (
        f"ask `lake.outcome({txn.id!r})`" if txn.through_head else "the table's history tells later"
    )
    unknown = CommitOutcomeUnknown(
        f"transaction {txn.id} may have committed: its commit was tried before, and that could "
        f"not be settled now ({error.message}); commit it again, or {ask}",
        table=error.table,
        txn_id=txn.id,
    )
    if txn.state == "failed":
        txn.fail(unknown)
    return unknown
