"""Perform SAVEPOINT, ROLLBACK TO and RELEASE."""

from __future__ import annotations

from lakevilla.api.frame import Frame
from lakevilla.api.transaction import Transaction
from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.script.control import Release, RollbackTo, Savepoint

__all__ = ["perform_savepoint"]


def perform_savepoint(txn: Transaction[Frame], node: Savepoint | RollbackTo | Release) -> None:
    """Set a savepoint, go back to one, or forget one; later ones go with it.

    Of several with one name the last is meant. ROLLBACK TO keeps the savepoint itself.
    """
    executor = txn._executor
    known = executor.savepoints
    if isinstance(node, Savepoint):
        known.append((node.name, executor.savepoint()))
        return
    index = next((i for i in reversed(range(len(known))) if known[i][0] == node.name), None)
    if index is None:
        names = ", ".join(dict.fromkeys(name for name, _ in known)) or "none"
        raise InvalidOperation(
            f"savepoint {node.name} does not exist: the transaction has {names}", txn_id=txn.id
        )
    if isinstance(node, RollbackTo):
        executor.undo_to(known[index][1])
        del known[index + 1 :]
    else:
        del known[index:]
