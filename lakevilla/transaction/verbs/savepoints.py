"""Savepoints: a transaction goes back to what it had done at an earlier moment (note 40)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from lakevilla.errors import InvalidOperation
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Create, Detach
from lakevilla.transaction.redo.replay import undo_since
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.save import save


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The operations of a transaction at one moment, and the meanings of the names in it."""

    done: tuple[Done, ...]
    meant: dict[str, tuple[str, str]]


def savepoint(txn: TransactionState) -> Savepoint:
    """Return the present moment of an open transaction."""
    txn.check_open("savepoint")
    return Savepoint(tuple(txn.work.done), dict(txn.bound.meant))


def undo_to(txn: TransactionState, point: Savepoint) -> Program[None]:
    """Undo the operations after a savepoint, as if the caller had never requested them.

    What was read since stays read, and is validated: the caller may have acted on it. A state that
    was saved with the undone operations is replaced.

    Raises
    ------
    InvalidOperation
        An operation before the savepoint is gone: a table was made again that had been dropped.
    StoreError
        The new state could not be saved; the operations are undone all the same.
    """
    txn.check_open("rollback")
    kept = _kept(txn, point)
    undone = txn.work.done[len(kept) :]
    changed = dict.fromkeys(done.table for done in undone)
    undo_since(txn, len(kept))
    txn.bound.meant = {
        name: one for name, one in txn.bound.meant.items() if one[0] not in changed
    } | {name: one for name, one in point.meant.items() if one[0] in changed}
    created = {done.table for done in undone if isinstance(done.operation, Create)}
    for table in changed:
        if table in created or txn.revives(table):
            _forget(txn, table, kept)
    txn.work.reads = {
        key: msgspec.structs.replace(read, after=min(read.after, len(kept)))
        for key, read in txn.work.reads.items()
        if read.table in txn.work.tables
    }
    if txn.claims.saved is not None and undone:
        yield from save(txn)


def _kept(txn: TransactionState, point: Savepoint) -> list[Done]:
    """Return the operations that stay: the first ones of the transaction."""
    there: set[Any] = {id(done) for done in txn.work.done}
    # Another client may have detached a table from its clone first: the transaction needs not.
    kept = [x for x in point.done if id(x) in there or not isinstance(x.operation, Detach)]
    if any(a is not b for a, b in zip(kept, txn.work.done, strict=False)) or (
        len(kept) > len(txn.work.done)
    ):
        raise InvalidOperation(
            "the transaction has made a table again that it had dropped before the savepoint: "
            "ROLLBACK takes back all of the transaction",
            txn_id=txn.id,
        )
    return kept


def _forget(txn: TransactionState, table: str, kept: list[Done]) -> None:
    """Forget a table that only undone operations have brought into the lake."""
    if any(done.table == table for done in kept):
        return
    txn.forget_table(table)
    txn.work.noted.discard(table)  # its note leads gc to files that are stored there already
    for key in [key for key in txn.work.bodies if key.startswith(f"{table}/")]:
        del txn.work.bodies[key]
