"""All operations of a transaction on one table become one log entry."""

from __future__ import annotations

from lakevilla.formats.base import Change
from lakevilla.transaction.redo.replay import entry_change
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome

OLD, FIRST, SECOND = data_file("old", 0, 9), data_file("first", 0, 9), data_file("second", 0, 9)


def of(txn: TransactionState, table: str) -> list[Done]:
    return [done for done in txn.work.done if done.table == table]


def test_a_file_that_a_transaction_adds_and_removes_is_not_in_its_log_entry() -> None:
    context = by_hand.make_context()
    for table in "tu":
        by_hand.make_tail(context, (OLD,), location=table)
    txn = by_hand.begun(context, "t", "u")
    by_hand.updated(txn, "id = 3", OLD, FIRST)
    by_hand.updated(txn, "id = 4", FIRST, SECOND)
    by_hand.appended(txn, data_file("elsewhere", 0, 9), "u")
    change = outcome(entry_change(txn, "t", of(txn, "t")))
    assert [file.path for file in change.removes] == ["old"]
    assert [file.path for file in change.adds] == ["second"]


def test_a_table_that_was_only_read_has_an_empty_entry() -> None:
    context = by_hand.make_context()
    by_hand.make_tail(context, (OLD,))
    txn = by_hand.begun(context)
    by_hand.read(txn)
    assert outcome(entry_change(txn, "t", of(txn, "t"))) == Change()
