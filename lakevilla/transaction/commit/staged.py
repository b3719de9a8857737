"""The files of a transaction that lay unnamed for long: are they still there before it commits?

VACUUM and orphan removal of other clients know nothing of transactions: to them a file
that no log entry names is garbage once it is old enough (hazard 6, note 19).
"""

from __future__ import annotations

from lakevilla.errors import TransactionAborted
from lakevilla.formats.files import file_key
from lakevilla.lake.fitness import lost_for_good, paths_written
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState


def check_files(txn: TransactionState) -> Program[None]:
    """Before the commit point of an old transaction, look for the files that it would name.

    A young one asks for nothing: no clean-up is quicker than ``checked_tip_seconds``. One is old,
    too, if this machine's time has moved by more since it began: a clean-up that went by the time
    before, or between, had another idea of how old its files were.

    Raises
    ------
    TransactionAborted
        One is gone. Nothing of the transaction is or will be visible.
    """
    context = txn.context
    age = context.clock.elapsed() - txn.bound.began_at
    if txn.bound.started_ms:
        age = max(age, abs(context.now_ms() - txn.bound.started_ms) / 1000)
    if age < context.settings.checked_tip_seconds:
        return
    keys = []
    for done in txn.work.done:
        paths = paths_written(done.table, done.change)
        keys += [file_key(done.table, path) for path in paths]
    with during("validate"):
        lost = yield from lost_for_good(list(dict.fromkeys(keys)))
    if lost:
        raise txn.fail(
            TransactionAborted(
                f"transaction {txn.id} ran so long that its file {lost[0]} was removed by another "
                "client's clean-up: nothing was committed, run it again",
                txn_id=txn.id,
            )
        )
