"""Binding for what only looks: a root that may be mistyped is left as it is."""

from __future__ import annotations

from lakevilla.lake.table_log import open_tail
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import bind_to_head

__all__ = ["bind_if_made", "bind_where_it_is"]


def bind_if_made(txn: TransactionState) -> Program[None]:
    """Bind if a lake is here. Else the transaction stays unbound.

    If it writes later, the lake must be as it was seen: absent.
    """
    yield from bind_to_head(txn, makes=False)


def bind_where_it_is(txn: TransactionState, location: str) -> Program[None]:
    """The same for a table, which must be there where no lake is: then its root is right.

    Raises
    ------
    TableNotFound
    """
    yield from bind_to_head(txn, makes=False)
    if not txn.bound.is_bound:
        yield from open_tail(txn.context, location)
        txn.bound.saw_no_lake = False
