"""Operations that are deferred because other transactions are ahead, or after giving way."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.formats.base import Change
from lakevilla.lake.context import Context
from lakevilla.markers.claims import HeldTicket, Queue
from lakevilla.markers.queue import State
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.effects import Get, Put
from lakevilla.sublogs.operations import Alter, Append, Delete, Insert, Operation, QuerySource
from lakevilla.sublogs.record import Ticket
from lakevilla.transaction.redo.deferred import defer, is_deferred, perform_deferred
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.world.engine import RowEngine
from tests.support import by_hand
from tests.support.by_hand import data_file, first_asked, outcome

OLD, NEW = data_file("old", 0, 9), data_file("new", 0, 9)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    for table in "tu":
        by_hand.make_tail(context, (OLD,), location=table)
    return context


@pytest.fixture
def txn(context: Context) -> TransactionState:
    """A transaction behind others in the queue of ``t``, and first in that of ``u``."""
    txn = by_hand.begun(context, "t", "u", features=Feature.CT | Feature.I)
    txn.claims.queue = Queue(
        [
            HeldTicket(Ticket("t", 2, "write"), State.WAITING),
            HeldTicket(Ticket("u", 1, "write"), State.FIRST),
        ]
    )
    return txn


def delete(table: str = "t", where: str = "id = 3") -> Delete:
    return Delete(table, parse_predicate(where))


def put_off(txn: TransactionState, operation: Operation) -> bool:
    return outcome(is_deferred(txn, operation))


def test_only_an_operation_on_a_table_with_transactions_ahead_is_deferred(
    txn: TransactionState,
) -> None:
    assert put_off(txn, delete("t"))
    assert not put_off(txn, delete("u"))


def test_an_append_and_a_schema_change_are_performed_at_once(txn: TransactionState) -> None:
    assert not put_off(txn, Append("t", (NEW,)))
    assert not put_off(txn, Alter("t", {"set_properties": {"a": "b"}}))


def test_an_operation_on_a_table_with_deferred_operations_is_deferred_too(
    txn: TransactionState,
) -> None:
    by_hand.did(txn, delete("u"), Change(), deferred=True)
    assert put_off(txn, delete("u", "id = 4"))


def test_a_mistake_in_a_deferred_operation_is_reported_at_once(txn: TransactionState) -> None:
    with pytest.raises(lv.InvalidOperation, match="colour"):
        put_off(txn, delete("t", "colour = 3"))


def test_an_operation_that_an_append_only_table_may_refuse_is_performed_at_once(
    context: Context,
) -> None:
    context.tails.clear()
    by_hand.make_tail(context, (OLD,), **{"delta.appendOnly": "true"})
    txn = by_hand.begun(context, features=Feature.CT)
    txn.claims.queue = Queue([HeldTicket(Ticket("t", 2, "write"), State.WAITING)])
    assert not put_off(txn, delete("t"))


def test_a_transaction_that_gives_way_defers_its_performed_operations(
    txn: TransactionState,
) -> None:
    done = by_hand.updated(txn, "id = 3", OLD, NEW)
    txn.work.bodies["t/new"] = b"rows"
    defer(txn, ["t"])
    assert (done.deferred, done.fitted, done.change, txn.work.bodies) == (True, True, Change(), {})
    assert outcome(txn.work.tables["t"].snapshot.files())["path"].to_pylist() == ["old"]


def test_operations_whose_result_the_caller_has_read_are_not_deferred_with_their_sources(
    txn: TransactionState,
) -> None:
    made_from = by_hand.updated(txn, "id = 3", OLD, NEW)
    source = QuerySource("select * from t", {"t": "t"})
    change = Change(adds=(data_file("copied", 0, 9),))
    copied = by_hand.did(txn, Insert("u", ("id",), source), change)
    by_hand.read(txn, "id = 3", table="u")
    after = by_hand.updated(txn, "id = 5", NEW, data_file("newer", 0, 9))
    defer(txn, ["t", "u"])
    assert [done.deferred for done in (made_from, copied, after)] == [False, False, True]


def test_an_operation_that_reads_the_result_of_a_deferred_one_is_deferred_too(
    txn: TransactionState,
) -> None:
    by_hand.updated(txn, "id = 3", OLD, NEW)
    source = QuerySource("select * from t", {"t": "t"})
    copied = by_hand.did(txn, Insert("u", ("id",), source), Change(adds=(data_file("c", 0, 9),)))
    defer(txn, ["t"])
    assert copied.deferred


def test_rows_that_the_caller_read_before_an_operation_do_not_keep_it_performed(
    txn: TransactionState,
) -> None:
    by_hand.read(txn, "id = 3", table="t")
    done = by_hand.updated(txn, "id = 3", OLD, NEW)
    defer(txn, ["t"])
    assert done.deferred


def test_operations_on_other_tables_stay_performed_when_a_transaction_gives_way(
    txn: TransactionState,
) -> None:
    on_t = by_hand.updated(txn, "id = 3", OLD, NEW)
    other = by_hand.did(txn, delete("u"), Change(adds=(data_file("left", 0, 9),)))
    defer(txn, ["t"])
    assert (on_t.deferred, other.deferred) == (True, False)
    assert other.change.adds == (data_file("left", 0, 9),)


def test_appends_keep_their_files_when_a_transaction_gives_way(txn: TransactionState) -> None:
    done = by_hand.appended(txn, NEW)
    defer(txn, ["t"])
    assert not done.deferred
    assert done.change.adds == (NEW,)


def test_deferred_operations_of_other_tables_stay_deferred(txn: TransactionState) -> None:
    by_hand.did(txn, delete("t"), Change(), deferred=True)
    txn.work.bodies["t/made-before"] = b"rows"
    txn.context.engine = RowEngine(txn.context.clock)
    outcome(perform_deferred(txn, ["u"]))
    assert txn.work.done[0].deferred
    # To perform it, the engine reads the table's file, and from memory what was made before.
    asked = first_asked(perform_deferred(txn, ["t"]))
    assert isinstance(asked, Get)
    assert asked.key == "t/old"
    assert "t/made-before" in txn.work.bodies


def test_an_engine_without_memory_of_its_caller_gets_the_files_made_before_stored(
    txn: TransactionState,
) -> None:
    by_hand.did(txn, delete("t"), Change(), deferred=True)
    txn.work.bodies["t/made-before"] = b"rows"
    txn.context.engine = RowEngine(txn.context.clock, reads_by_parts=False)
    asked = first_asked(perform_deferred(txn, ["t"]))
    assert isinstance(asked, Put)
    assert asked.key == "t/made-before"
