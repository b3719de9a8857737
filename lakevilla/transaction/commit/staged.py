"""The files of a transaction that lay unnamed for long: are they still there before it commits?

VACUUM and orphan removal of other clients know nothing of transactions: to them a file
that no log entry names is garbage once it is old enough (hazard 6, note 0019).
"""

from __future__ import annotations

from lakevilla.errors import TransactionAborted
from lakevilla.formats.paths import file_key
from lakevilla.lake.fitness import gone_for_good
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import Transaction

__all__ = ["check_files"]


def check_files(txn: Transaction) -> Program[None]:
    """Before the commit point of an old transaction, look for the files that it would name.

    A young one asks for nothing: no clean-up is quicker than ``checked_tip_seconds``.

    Raises
    ------
    TransactionAborted
        One is gone. Nothing of the transaction is or will be visible.
    """
    context = txn.context
    if context.clock.elapsed() - txn.began_at < context.settings.checked_tip_seconds:
        return
    keys = []
    for done in txn.done:
        paths = [file.path for file in done.change.adds]
        paths += [file.path for file in done.change.change_files]
        keys += [file_key(done.table, path) for path in paths]
    gone = yield from gone_for_good(list(dict.fromkeys(keys)))
    if gone:
        raise txn.fail(
            TransactionAborted(
                f"transaction {txn.id} ran so long that its file {gone[0]} was removed by another "
                "client's clean-up: nothing was committed, run it again",
                txn_id=txn.id,
            )
        )
