"""Whether the files that a transaction brings back are kept by the HEAD that it replaces.

Looked at when it is told to bring them back, and in each HEAD to be replaced that says something
else of what may be deleted (docs/design/0032-apply.md).
"""

from __future__ import annotations

from lakevilla.errors import VersionNotFound
from lakevilla.global_log.head import Head
from lakevilla.lake.frozen.still_kept import kept_marks, refuse_unkept
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState


def unkept(txn: TransactionState, head: Head) -> Program[VersionNotFound | None]:
    """Why it can't be committed on ``head``: a file that it brings back may be going."""
    for done in txn.work.done:
        if done.kept_under != kept_marks(head, done.table):
            try:
                yield from note_kept(txn, head, done)
            except VersionNotFound as error:
                error.txn_id = txn.id
                return error
    return None


def note_kept(txn: TransactionState, head: Head, done: Done) -> Program[None]:
    """Look whether its files are kept, and note by which HEAD. Raises ``VersionNotFound``."""
    operation = done.operation
    if not isinstance(operation, Transplant):
        return
    by_ref = yield from refuse_unkept(txn.context, head, done.table, operation.adds)
    # A ref may be deleted: then each HEAD is asked.
    done.kept_under = None if by_ref else kept_marks(head, done.table)
