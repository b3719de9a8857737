"""A commit point that was tried, and no answer came: what became of it (0019; hazard 36).

The write may have landed, or may yet. So before anything moves the transaction looks at
the place that it tried: at the number of its log entry and all above it, or at the
commits of a HEAD that is newer than the one that it was to replace. Found: it has
committed. The place is another's: that write can never land, and the transaction goes on
from there. The place is free: it is tried once more, since one of the two is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakevilla.errors import CommitOutcomeUnknown, LakeVillaError
from lakevilla.lake.table_log import Tail, entry_at, is_cleaned_up_soon, open_tail
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.group import Settled, own_commit

if TYPE_CHECKING:
    from lakevilla.transaction.state.transaction import Transaction

__all__ = ["doubtful", "found_in_head", "found_in_log"]


def found_in_log(txn: Transaction, tail: Tail) -> Program[int | None]:
    """The version of the known log that holds the transaction's entry, tried before.

    None if there is none: then the number is free, and stays in doubt, or another's.

    Raises
    ------
    CommitOutcomeUnknown
        Clean-up has taken what would tell.
    """
    tried = txn.entry_tried
    if tried is None or tail.tip < tried.version:
        return None
    known = txn.tables[tail.location].view.base.table_id
    for version in range(tried.version, tail.tip + 1):
        entry = yield from entry_at(txn.context, tail, version)
        if entry is None:
            if (yield from _holds_its_files(txn, tail)):
                return version
            raise _unknown(txn, tail.location, f"its log was cleaned up beyond version {version}")
        if txn.id in entry.txn_ids:
            if not (yield from _counts(txn, tail, version)):
                reason = f"it may have been cleaned up before version {version} landed"
                raise _unknown(txn, tail.location, reason)
            return version
    if tail.snapshot.table_id == known:
        txn.entry_tried = None
    return None


def _counts(txn: Transaction, tail: Tail, version: int) -> Program[bool]:
    """Whether an entry that was found under its number is part of the log (hazard 10).

    One that has landed where clean-up had taken the number away is below a checkpoint that
    does not hold it. That takes as long as a tip is not trusted, or a log that is short.
    """
    tried, context = txn.entry_tried, txn.context
    assert tried is not None
    age = context.clock.elapsed() - tried.seen_at
    if age <= context.settings.trusted_tip_seconds and not is_cleaned_up_soon(context, tail):
        return True
    context.tails.pop(tail.location, None)
    newest = yield from open_tail(context, tail.location)
    return newest.tip == version or (yield from _holds_its_files(txn, newest))


def _holds_its_files(txn: Transaction, tail: Tail) -> Program[bool]:
    """Whether the table has a file of the transaction: no other entry ever adds one."""
    removed = {file.ref for done in txn.done for file in done.change.removes}
    made = {file.ref for done in txn.done for file in done.change.adds} - removed
    return bool(made) and len((yield from tail.snapshot.missing(sorted(made)))) < len(made)


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


def _unknown(txn: Transaction, location: str, why: str) -> CommitOutcomeUnknown:
    tried = txn.entry_tried
    assert tried is not None
    return CommitOutcomeUnknown(
        f"it can't be told whether transaction {txn.id} became version {tried.version} of table "
        f"{location}, as which it was tried: {why}; look for its rows before it is run again",
        table=location,
        txn_id=txn.id,
    )
