"""Whether the tables of clones that a transaction relies on are still shown by the same clones.

Asked of the very HEAD that is replaced: a clone that is gone there may have let its source's files
go, and one that is new shows other tables (docs/design/0039-clones.md).
"""

from __future__ import annotations

from lakevilla.errors import LakeVillaError
from lakevilla.formats.base import TableSnapshot
from lakevilla.global_log.head import Head, TableState
from lakevilla.lake.frozen.mounts import mounted_at
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import View
from lakevilla.store.effects import Program
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.transaction import TransactionState


def still_mounted(
    txn: TransactionState, head: Head | None, view: View, state: TableState | None
) -> Program[LakeVillaError | None]:
    """The conflict of a transaction whose view of a table a clone has shown.

    ``state`` is what HEAD says of the table itself by now: somebody has written to it there.
    """
    assert view.mount is not None, "asked of what a clone shows"
    location = view.location
    if state is not None and state.dropped:
        return conflict(txn, location, "it was dropped meanwhile")
    if state is not None:
        return None  # an ordinary table: what came is told by its commits
    found = None if head is None else (yield from mounted_at(head, location))
    if found is None or found.entry.id != view.mount.entry.id:
        name = view.mount.name
        return conflict(txn, location, f"clone {name!r} that showed it was deleted or made anew")
    return None


def no_log(location: str, blank: TableSnapshot) -> Tail:
    """The log of a table that a clone shows: there is none before its first write."""
    return Tail(location, -1, {-1: blank})
