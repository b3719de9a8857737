"""Whether the branch that a transaction merges is still the one that it has read."""

from __future__ import annotations

from lakevilla.errors import ConflictError
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_refs
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState


def changed_branch(txn: TransactionState, head: Head) -> Program[ConflictError | None]:
    """The conflict of a merge whose branch is not the one any more that it has read."""
    merging = txn.work.merging
    if merging is None:
        return None
    return (yield from changed_entry(txn, head, merging.name, merging.entry))


def changed_entry(
    txn: TransactionState, head: Head, name: str, entry: RefEntry
) -> Program[ConflictError | None]:
    """The same of a branch by its name and the entry that was read."""
    yield from load_refs(head, [name])
    if entry.is_as(head.refs.get(name)):
        return None
    return ConflictError(
        f"branch {name!r} was merged, protected or deleted by another client meanwhile: "
        "run the transaction again",
        txn_id=txn.id,
    )
