"""The files of a transaction that lay unnamed for long: are they still there before it commits?

VACUUM and orphan removal of other clients know nothing of transactions: to them a file
that no log entry names is garbage once it is old enough (hazard 6, note 19).
"""

from __future__ import annotations

from lakevilla.errors import TransactionAborted
from lakevilla.formats.files import file_key
from lakevilla.lake.fitness import lost_for_good
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState


def check_files(txn: TransactionState) -> Program[None]:
    """Before the commit point of an old transaction, look for the files that it would name.

    A young one asks for nothing: no clean-up is quicker than ``checked_tip_seconds``.

    Raises
    ------
    TransactionAborted
        One is gone. Nothing of the transaction is or will be visible.
    """
    context = txn.context
    if context.clock.elapsed() - txn.bound.began_at < context.settings.checked_tip_seconds:
        return
    keys = []
    for done in txn.work.done:
        paths = [file.path for file in done.change.adds]
        paths += [file.path for file in done.change.change_files]
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
