"""Whether files that a verb was given fit the table as the transaction has it by then."""

from __future__ import annotations

from lakevilla.lake.operations.comparing.dropped_columns import files_fit
from lakevilla.lake.operations.perform import layout_given
from lakevilla.sublogs.operations import Append, Operation, Overwrite
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.parts import Working
from lakevilla.transaction.state.transaction import TransactionState


def refuse_unfit(txn: TransactionState, operation: Operation, before: Working | None) -> None:
    """Refuse files that were written before others were looked for, who have changed the schema.

    ``before``: the table as it was then, None if nothing was written for it.

    Raises ``ConflictError``.
    """
    if before is None or not isinstance(operation, Append | Overwrite):
        return
    then, now = before.snapshot, txn.work.tables[operation.table].snapshot
    if now.metadata == then.metadata and now.protocol == then.protocol:
        return
    written, found = (layout_given(txn.context, operation, state) for state in (then, now))
    if not files_fit(operation.files, written, found):
        reason = "its schema or constraints were changed meanwhile"
        raise txn.fail(conflict(txn, operation.table, reason))
