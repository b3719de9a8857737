"""Whether a table may still come into the lake where a transaction brings it in."""

from __future__ import annotations

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.global_log.head import Head, TableState
from lakevilla.lake.tables.surroundings import in_the_way
from lakevilla.lake.view import View
from lakevilla.store.effects import Program
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.transaction import TransactionState


def refused_place(
    txn: TransactionState, old: View, state: TableState | None, head: Head | None
) -> Program[LakeVillaError | None]:
    """Why a table can't be made at a place, or taken up there, on a newer HEAD; None if it can.

    ``state`` is what that HEAD says of the place. The claim that the transaction has written may be
    what another client has begun to give away since (docs/design/0051-claims-let-go.md).
    """
    known = "" if old.state is None else old.state.let_go
    if state is not None and state.let_go not in ("", known):
        return conflict(txn, old.location, "it was let go to other lakes by `unregister`")
    reason = yield from in_the_way(old.location, head)
    if reason is not None:
        return InvalidOperation(reason, table=old.location, txn_id=txn.id)
    return None
