"""What a transaction's operations come to in the one log entry of a table."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.formats.base import Change
from lakevilla.lake.file_names import file_namer
from lakevilla.lake.net_change import compose
from lakevilla.lake.operations.change_feed import in_one_entry, is_mixed
from lakevilla.store.effects import Program
from lakevilla.transaction.state.files import hold_file, store_files
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState


def entry_change(txn: TransactionState, table: str, mine: Iterable[Done]) -> Program[Change]:
    """What a transaction's operations on one table, ``mine``, come to in its one entry."""
    changes = [done.change for done in mine]
    if not is_mixed(changes):
        return compose(changes)
    yield from store_files(txn, table)
    name = file_namer(txn.context, txn.id, txn.through_head)
    before = txn.work.tables[table].view.snapshot
    change, bodies = yield from in_one_entry(txn.context, before, changes, name)
    for key, body in bodies.items():
        hold_file(txn, key, body)
    return change
