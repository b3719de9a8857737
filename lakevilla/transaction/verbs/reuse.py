"""Reuse a table that was dropped and whose log and data were left in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.head import NOWHERE
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.tables.dropped import is_emptied
from lakevilla.lake.tables.overlaps import in_the_way
from lakevilla.lake.view import is_another
from lakevilla.phases import during
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import bind_to_head, join_head, touch
from lakevilla.transaction.verbs.create_table import log_of_dropped, whole_or_not_at_all


def can_be_reused(txn: TransactionState, location: str, name: str) -> Program[bool]:
    """Return whether HEAD has dropped the table that ``name`` means, and the table's log exists.

    False on a branch, whose past states begin with the base or with a table's first commit there;
    for a table of a catalog; and for a path whose table had another name when it was dropped.
    """
    if txn.context.epoch:
        return False
    if not txn.through_head:
        yield from join_head(txn)
    yield from bind_to_head(txn, [location])
    head = txn.head
    yield from load_tables(head, [location])
    yield from load_names(head, [name])
    state = None if head is None else head.tables.get(location)
    if head is None or state is None or not state.dropped:
        return False
    if is_emptied(state) or state.catalog or head.names.get(name) == NOWHERE:
        return False
    with during("metadata", location):
        tail = yield from log_of_dropped(txn, location, state)
        return tail.tip >= 0 and not (yield from is_another(txn.context, state, tail))


def reuse(txn: TransactionState, location: str) -> Program[None]:
    """Make a dropped table part of the transaction, as its entry in HEAD and its log show it.

    Raises
    ------
    TableNotFound, InvalidOperation
    """
    txn.check_write(location, "create_table")
    txn.bound.revived.add(location)
    try:
        yield from touch(txn, [location], probing=True)
        reason = yield from in_the_way(location, txn.head)
        if reason is not None:
            raise InvalidOperation(reason, table=location, txn_id=txn.id)
    except BaseException:
        txn.bound.revived.discard(location)
        raise


@contextmanager
def reused(
    txn: TransactionState, location: str, run: Callable[[Program[None]], object]
) -> Iterator[None]:
    """Reuse the table for a block that defines it again; if it raises, the table stays dropped."""
    with whole_or_not_at_all(txn, location):
        run(reuse(txn, location))
        yield
