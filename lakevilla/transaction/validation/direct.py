"""Whether a transaction may write to the lake directly (docs/design/0030-refs.md).

Where main is protected it takes what other states have, as by a merge, and upkeep. It is asked
when a verb is called, and again of the very HEAD that is replaced: whoever protects main by a
replacement of HEAD sees no direct write after it.
"""

from __future__ import annotations

from lakevilla.errors import ConflictError, InvalidOperation
from lakevilla.global_log.head import Head
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import is_direct
from lakevilla.transaction.state.transaction import TransactionState

_INSTEAD = "write on a branch, and `merge` it; `protect_main(on=False)` lifts that"


def refuse_direct(txn: TransactionState, location: str, verb: str) -> Program[None]:
    """Refuse a verb that writes where main is protected, as far as is known.

    A HEAD that says so may be old: before anybody is refused it is read again.

    Raises ``InvalidOperation``.
    """
    context = txn.context
    if context.held is None or not context.held.head.is_protected:
        return
    held = yield from context.head()
    if held is not None and held.head.is_protected:
        raise InvalidOperation(
            f"{verb} {location}: main is protected, and takes only merges and upkeep: {_INSTEAD}",
            table=location,
            txn_id=txn.id,
        )


def direct_write(txn: TransactionState, head: Head | None) -> ConflictError | None:
    """The conflict of a transaction that writes directly with a HEAD that is protected."""
    if head is None or not head.is_protected:
        return None
    direct = sorted({done.table for done in txn.work.done if is_direct(done.operation)})
    if not direct:
        return None
    return ConflictError(
        f"transaction {txn.id} writes table {direct[0]} directly, and main was protected "
        f"meanwhile, so that it takes only merges and upkeep: {_INSTEAD}",
        table=direct[0],
        txn_id=txn.id,
    )
