"""Whether an entry that a transaction has tried stands in its table's log (note 19)."""

from __future__ import annotations

from lakevilla.errors import CommitOutcomeUnknown
from lakevilla.lake.table_log import entry_at, is_cleaned_up_soon, open_tail
from lakevilla.lake.tail import Tail
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState


def found_in_log(txn: TransactionState, tail: Tail) -> Program[int | None]:
    """The version of the known log that holds the transaction's entry, tried before.

    None if there is none: then the number is free, and stays in doubt, or another's.

    Raises
    ------
    CommitOutcomeUnknown
        Clean-up has taken what would tell.
    """
    tried = txn.ending.entry_tried
    if tried is None or tail.tip < tried.version:
        return None
    known = txn.work.tables[tail.location].view.base.table_id
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
        txn.ending.entry_tried = None
    return None


def _counts(txn: TransactionState, tail: Tail, version: int) -> Program[bool]:
    """Whether an entry that was found under its number is part of the log (hazard 10).

    One that has landed where clean-up had taken the number away is below a checkpoint that
    does not hold it. That takes as long as a tip is not trusted, or a log that is short.
    """
    tried, context = txn.ending.entry_tried, txn.context
    assert tried is not None
    age = context.clock.elapsed() - tried.seen_at
    if age <= context.settings.trusted_tip_seconds and not is_cleaned_up_soon(context, tail):
        return True
    context.tails.pop(tail.location, None)
    newest = yield from open_tail(context, tail.location)
    return newest.tip == version or (yield from _holds_its_files(txn, newest))


def _holds_its_files(txn: TransactionState, tail: Tail) -> Program[bool]:
    """Whether the table has a file of the transaction: no other entry ever adds one."""
    removed = {file.ref for done in txn.work.done for file in done.change.removes}
    made = {file.ref for done in txn.work.done for file in done.change.adds} - removed
    return bool(made) and len((yield from tail.snapshot.missing(sorted(made)))) < len(made)


def _unknown(txn: TransactionState, location: str, why: str) -> CommitOutcomeUnknown:
    tried = txn.ending.entry_tried
    assert tried is not None
    return CommitOutcomeUnknown(
        f"it is not known whether transaction {txn.id} became version {tried.version} of table "
        f"{location}, as which it was tried: {why}; look for its rows before it is run again",
        table=location,
        txn_id=txn.id,
    )
